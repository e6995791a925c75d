//! `replay`: recorded traces and typed programs, checked anywhere.

use std::fs::{self, File};
use std::path::Path;

use streamcheck_engine::{Engine, Finding};
use streamcheck_model::StackId;
use streamcheck_model::text::Program;
use streamcheck_model::trace::{self, Ending, Reader, Tables};
use streamcheck_report::{
    Context, Frame, Module, PathTemplate, Process, Reporter, Settings, Symbolizer,
};

use crate::args::Replay;
use crate::collect::Collection;
use crate::failure::{Failure, reason};
use crate::progress::Reading;
use crate::{output, preflight};

/// Operations between two looks at the clock.
const STRIDE: u64 = 4096;

/// Checks every trace and returns the exit code.
pub(crate) fn replay(replay: &Replay) -> Result<u8, Failure> {
    let settings = replay.options.settings()?;
    preflight::check_inputs(&settings)?;
    let process = Process::this();
    preflight::check_outputs(&settings, &process)?;
    let outputs = settings
        .reports()
        .filter(|(_, template)| !template.is_stdout())
        .map(|(format, template)| (format.label(), template.expand(&process)));
    preflight::check_kept(&replay.traces, &settings, outputs)?;
    let context = Context::of_this_process(&settings);
    let collection = Collection::new()?;
    let mut failures = Vec::new();
    for (number, path) in replay.traces.iter().enumerate() {
        let checked = if replay.text {
            check_text(path, &settings)
        } else {
            check_trace(path, &settings)
        };
        match checked {
            Ok(checked) => {
                failures.extend(checked.failure);
                tell(checked.session, number, &settings, &collection)?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    let merged = collection.merge(&process);
    if merged.saw_cuda() {
        merged.tell(&settings);
    } else if failures.is_empty() {
        output::say("no CUDA call is in the trace");
    }
    merged.write(&settings, &context, &process)?;
    for failure in &failures {
        failure.tell();
    }
    Ok(if failures.is_empty() {
        merged.code(&settings)
    } else {
        crate::USAGE
    })
}

/// One trace that was checked, and what was wrong at its end.
struct Checked {
    session: Session,
    failure: Option<Failure>,
}

/// What came of one trace.
struct Session {
    engine: Engine,
    findings: Vec<Finding>,
    process: Process,
    stacks: Stacks,
}

/// What a stack's number means.
enum Stacks {
    Trace {
        tables: Box<Tables>,
        symbolizer: Box<Symbolizer>,
    },
    Text {
        file: String,
        program: Program,
    },
}

impl Stacks {
    fn frames(&mut self, stack: StackId) -> Vec<Frame> {
        match self {
            Self::Trace { tables, symbolizer } => match tables.frames(stack) {
                Some(frames) => frames.iter().map(frame).collect(),
                None => symbolizer.frames_with(tables.addresses(stack), |address| {
                    let stands_for = StackId::of_interpreted(address);
                    tables.frames(stands_for)?.first().map(frame)
                }),
            },
            Self::Text { file, program } => program
                .step_at(stack)
                .map(|step| Frame {
                    function: None,
                    file: Some(file.clone()),
                    line: Some(step.line),
                    module: None,
                    offset: None,
                })
                .into_iter()
                .collect(),
        }
    }
}

fn frame(frame: &trace::Frame) -> Frame {
    let trace::Frame {
        function,
        file,
        line,
        module,
        offset,
    } = frame.clone();
    Frame {
        function,
        file,
        line,
        module,
        offset,
    }
}

fn module(module: &trace::Module) -> Module {
    let trace::Module {
        start,
        end,
        offset,
        path,
        build_id,
    } = module.clone();
    Module {
        start,
        end,
        offset,
        path,
        build_id,
    }
}

fn check_trace(path: &Path, settings: &Settings) -> Result<Checked, Failure> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        Failure::new(
            crate::USAGE,
            format!("{name} cannot be read: {}", reason(&error)),
        )
    };
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let wrong = |error: trace::TraceError| Failure::new(crate::USAGE, error.to_string());
    let mut reader = Reader::new(file, &name).map_err(wrong)?;
    let facts = reader.header().process.clone();
    let process = Process {
        pid: facts.pid,
        exe: facts.exe,
        argv: facts.argv,
        host: facts.host,
        rank: facts.rank,
    };
    let mut engine = Engine::new(settings.levels.clone());
    let mut tables = Tables::default();
    let mut findings = Vec::new();
    let mut failure = None;
    let mut reading = Reading::new(&name, bytes);
    let mut operations: u64 = 0;
    while let Some(operation) = reader.operation(&mut tables, engine.names_mut()) {
        match operation {
            Ok(operation) => findings.append(&mut engine.apply(operation)),
            Err(error) => failure = Some(wrong(error)),
        }
        operations += 1;
        if operations.is_multiple_of(STRIDE) {
            reading.at(reader.offset());
        }
    }
    drop(reading);
    if let Some(note) = note(&name, reader.ending()) {
        output::say(&note);
    }
    let modules = tables.modules().iter().map(module).collect();
    let stacks = Stacks::Trace {
        tables: Box::new(tables),
        symbolizer: Box::new(Symbolizer::new(modules)),
    };
    Ok(Checked {
        session: Session {
            engine,
            findings,
            process,
            stacks,
        },
        failure,
    })
}

/// What is to be said of a trace that does not tell of the whole run.
fn note(name: &str, ending: Option<Ending>) -> Option<String> {
    match ending {
        None | Some(Ending::Clean(_)) => None,
        Some(Ending::Killed) => Some(format!(
            "{name}: recording was not ended in order (the process was killed, or still runs); \
             all that it wrote was checked"
        )),
        Some(Ending::Stopped(counts, reason)) => Some(format!(
            "{name}: recording stopped after {} operations, as the trace {}; \
             what the process did after that was not recorded, and is not checked",
            counts.operations,
            match reason {
                trace::Reason::Limit => "was as long as it may be",
                trace::Reason::Unwritable => "could not be written any further",
            }
        )),
    }
}

fn check_text(path: &Path, settings: &Settings) -> Result<Checked, Failure> {
    let file = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::new(
            crate::USAGE,
            format!("{file} cannot be read: {}", reason(&error)),
        )
    })?;
    let program = Program::parse(&text)
        .map_err(|error| Failure::new(crate::USAGE, format!("{file}:{error}")))?;
    let mut engine = Engine::new(settings.levels.clone());
    *engine.names_mut() = program.names.clone();
    let mut findings = Vec::new();
    for operation in program.operations() {
        findings.append(&mut engine.apply(operation));
    }
    let process = Process {
        exe: file.clone(),
        argv: vec![file.clone()],
        ..Process::this()
    };
    let stacks = Stacks::Text { file, program };
    Ok(Checked {
        session: Session {
            engine,
            findings,
            process,
            stacks,
        },
        failure: None,
    })
}

/// Writes a trace's findings to standard error and its report into the collection.
///
/// Only now: a recorder appends what a finding's stacks mean after the finding.
fn tell(
    mut session: Session,
    number: usize,
    settings: &Settings,
    collection: &Collection,
) -> Result<(), Failure> {
    let settings = only_json(settings, collection, number)?;
    let mut reporter = Reporter::new(settings, session.process)
        .map_err(|problems| Failure::of(crate::USAGE, &problems))?;
    for finding in session.findings {
        let added = reporter.add(finding, &mut |stack| session.stacks.frames(stack));
        if let Some(text) = added.text {
            output::err(&text);
        }
    }
    let problems = reporter.write_files(&session.engine.summary(), session.engine.counts());
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Failure::of(crate::USAGE, &problems))
    }
}

/// The settings of one process's reporter, whose report is collected.
fn only_json(
    settings: &Settings,
    collection: &Collection,
    number: usize,
) -> Result<Settings, Failure> {
    let template = collection.template().replace("%p", &number.to_string());
    let json = PathTemplate::parse(&template)
        .map_err(|what| Failure::new(crate::USAGE, format!("{template} holds {what}")))?;
    Ok(Settings {
        json: Some(json),
        ..settings.without_files()
    })
}
