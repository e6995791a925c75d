//! Python programs' lines, under every interpreter that is here.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use streamcheck_model::trace::{Reader, Record};
use streamcheck_model::{INTERPRETED, StackId};

use crate::common::{Run, bare, folder, library, run, simulated, simulated_program};

/// An interpreter that Python lines come from.
struct Interpreter {
    program: PathBuf,
    /// The minor version: 9 to 14.
    minor: u32,
    /// Its shared library, if it has one.
    shared: Option<PathBuf>,
    prefix: String,
}

/// One interpreter of each version: those on the `PATH`, and pyenv's.
fn interpreters() -> &'static [Interpreter] {
    static FOUND: OnceLock<Vec<Interpreter>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut names: Vec<PathBuf> = vec!["python3".into()];
        names.extend((9..=14).map(|minor| format!("python3.{minor}").into()));
        let pyenv = std::env::var_os("PYENV_ROOT")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")));
        let versions = pyenv.and_then(|pyenv| std::fs::read_dir(pyenv.join("versions")).ok());
        names.extend(
            versions
                .into_iter()
                .flatten()
                .flatten()
                .map(|version| version.path().join("bin/python3")),
        );
        let mut found: Vec<Interpreter> = Vec::new();
        for interpreter in names.iter().filter_map(|name| ask(name)) {
            let known = found.iter().any(|known| known.minor == interpreter.minor);
            if !known && (9..=14).contains(&interpreter.minor) {
                found.push(interpreter);
            }
        }
        found
    })
}

/// What an interpreter says of itself. `None` if it does not start, or has no `ctypes`.
fn ask(name: &Path) -> Option<Interpreter> {
    const QUESTION: &str = "import sys, ctypes, sysconfig, os\n\
        value = sysconfig.get_config_var\n\
        print(os.path.realpath(sys.executable), sys.version_info[1], sys.base_prefix,\n\
        os.path.join(value('LIBDIR') or '', value('INSTSONAME') or ''), sep='\\n')";
    let output = Command::new(name).args(["-c", QUESTION]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut lines = text.lines();
    let program = PathBuf::from(lines.next()?);
    let minor = lines.next()?.parse().ok()?;
    let prefix = lines.next()?.to_owned();
    let shared = PathBuf::from(lines.next()?);
    let is_shared = shared.is_file() && shared.to_string_lossy().contains(".so");
    Some(Interpreter {
        program,
        minor,
        shared: is_shared.then_some(shared),
        prefix,
    })
}

/// A line for whoever runs the tests, whether or not they fail.
fn say(line: &str) {
    let line = format!("{line}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr takes a line");
}

/// Runs `test` under every interpreter; says so if there is none.
fn each(what: &str, test: impl Fn(&Interpreter)) {
    let interpreters = interpreters();
    if interpreters.is_empty() {
        say(&format!(
            "left out: {what}, for want of a Python 3.9 to 3.14 with ctypes"
        ));
    }
    for interpreter in interpreters {
        test(interpreter);
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/calls.py")
}

/// The line of the script that holds this text.
fn line_of(text: &str) -> u64 {
    let script = std::fs::read_to_string(script()).expect("the script is there");
    let place = script.lines().position(|line| line.contains(text));
    place.unwrap_or_else(|| panic!("no line with {text}")) as u64 + 1
}

/// A frame of a report: the function's last name, the file's name, the line.
type Seen = (String, String, u64);

fn seen(function: &str, line: &str) -> Seen {
    (function.to_owned(), "calls.py".to_owned(), line_of(line))
}

struct Report {
    run: Run,
    findings: Vec<Value>,
}

impl Report {
    /// The frames of the finding's event in this role.
    fn stack(&self, finding: usize, role: &str) -> Vec<Seen> {
        let events = self.findings[finding]["events"].as_array().expect("events");
        let event = events.iter().find(|event| event["role"] == role);
        let stack = &event.expect("an event of that role")["stack"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        stack
            .as_array()
            .expect("a stack")
            .iter()
            .map(|frame| {
                let (function, file) = (text(&frame["function"]), text(&frame["file"]));
                (
                    function.rsplit('.').next().unwrap_or_default().to_owned(),
                    file.rsplit('/').next().unwrap_or_default().to_owned(),
                    frame["line"].as_u64().unwrap_or_default(),
                )
            })
            .collect()
    }
}

fn python(interpreter: &Interpreter, name: &str) -> Command {
    let mut command = bare(&interpreter.program);
    command
        .arg(script())
        .arg(name)
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", simulated())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a function of the script.
fn calls(interpreter: &Interpreter, name: &str, settings: &[(&str, &str)]) -> Report {
    let json = format!(
        "python-{}-{name}-{}.json",
        interpreter.minor,
        settings.len()
    );
    let mut command = python(interpreter, name);
    command
        .env("STREAMCHECK_JSON", &json)
        .envs(settings.iter().copied());
    finish(&mut command, &json, name)
}

fn finish(command: &mut Command, json: &str, printed: &str) -> Report {
    let run = run(command);
    assert_eq!(
        run.stdout,
        format!("{printed}\n"),
        "it ran to its end ({json}): {:?} {}",
        run.code,
        run.stderr
    );
    let text = std::fs::read_to_string(folder().join(json)).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    Report {
        run,
        findings: report["findings"].as_array().expect("a list").clone(),
    }
}

/// Both ends of the script's mistake, from the line inwards.
fn assert_fault(report: &Report, finding: usize, outer: &[Seen]) {
    for (role, ends) in [
        (
            "allocation",
            [
                seen("allocate", "# allocated"),
                seen("fault", "# fault allocates"),
            ],
        ),
        (
            "use",
            [seen("use", "# used"), seen("fault", "# fault uses")],
        ),
    ] {
        let stack = report.stack(finding, role);
        let expected: Vec<_> = ends.iter().chain(outer).collect();
        let got: Vec<_> = stack.iter().take(expected.len()).collect();
        assert_eq!(got, expected, "{role} in {stack:?}\n{}", report.run.stderr);
    }
}

#[test]
fn the_line_that_called_is_shown() {
    each("the line that called", |interpreter| {
        for (name, outer) in [
            ("released", vec![seen("released", "    fault()")]),
            ("held", vec![seen("held", "fault(HELD)")]),
            ("thread", vec![]),
            ("thread_held", vec![]),
            ("generator", vec![]),
            ("coroutine", vec![]),
            ("deep", vec![seen("down", "return down(levels - 1)")]),
            ("back", vec![seen("<lambda>", "list(map(lambda")]),
            ("traced", vec![]),
            ("monitored", vec![]),
            ("at_exit", vec![]),
            ("at_end", vec![]),
        ] {
            let report = calls(interpreter, name, &[]);
            assert_eq!(report.findings.len(), 1, "{name}");
            assert_fault(&report, 0, &outer);
            assert!(report.run.stderr.contains("calls.py"), "{name}");
        }
    });
}

#[test]
fn whole_stacks_come_in_order() {
    each("whole stacks", |interpreter| {
        let functions = |name: &str| -> Vec<String> {
            let stack = calls(interpreter, name, &[]).stack(0, "use");
            stack.into_iter().map(|(function, ..)| function).collect()
        };
        let ends = ["released", "<module>"];
        assert_eq!(
            functions("released")[2..],
            ends,
            "and nothing of Python's own"
        );
        assert_eq!(
            functions("generator")[2..],
            ["steps", "generator", "<module>"]
        );
        let coroutine = functions("coroutine");
        assert_eq!(coroutine[2..4], ["inner", "outer"], "{coroutine:?}");
        assert_eq!(functions("back")[2..], ["<lambda>", "back", "<module>"]);
        let thread = functions("thread");
        assert_eq!(thread[2..4], ["run", "_bootstrap_inner"], "{thread:?}");
        assert_eq!(functions("deep").len(), 64);
    });
}

#[test]
fn each_line_is_a_finding_of_its_own() {
    each("lines apart", |interpreter| {
        let report = calls(interpreter, "two_lines", &[]);
        let mut lines: Vec<_> = (0..report.findings.len())
            .map(|finding| report.stack(finding, "use").swap_remove(1))
            .collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                seen("two_lines", "# line one"),
                seen("two_lines", "# line two")
            ]
        );
        for finding in &report.findings {
            assert_eq!(finding["count"], 50);
        }
        // Code that comes and goes at one address, each time a line further down.
        let report = calls(interpreter, "again", &[]);
        let lines: Vec<_> = (0..report.findings.len())
            .map(|finding| report.stack(finding, "use").swap_remove(0))
            .collect();
        let expected: Vec<_> = (2..202)
            .map(|line| ("made".to_owned(), "made.py".to_owned(), line))
            .collect();
        assert_eq!(lines, expected);
    });
}

#[test]
fn names_beyond_ascii_are_read() {
    each("names beyond ASCII", |interpreter| {
        let report = calls(interpreter, "texts", &[]);
        let stack = report.stack(0, "use");
        let made = |function: &str, line| (function.to_owned(), "größe.py".to_owned(), line);
        assert_eq!(stack[2..4], [made("größe", 2), made("шаг", 5)]);
    });
}

#[test]
fn the_callers_line_alone_is_cheap() {
    each("the caller's line", |interpreter| {
        let report = calls(interpreter, "released", &[("STREAMCHECK_STACKS", "caller")]);
        assert_eq!(report.stack(0, "use"), [seen("use", "# used")]);
        let report = calls(interpreter, "thread", &[("STREAMCHECK_STACKS", "caller")]);
        assert_eq!(
            report.stack(0, "allocation"),
            [seen("allocate", "# allocated")]
        );
    });
}

#[test]
fn a_forked_child_has_lines_of_its_own() {
    each("a forked child", |interpreter| {
        let name = format!("python-{}-fork-", interpreter.minor);
        let mut command = python(interpreter, "fork");
        command.env("STREAMCHECK_JSON", format!("{name}%p.json"));
        let run = run(&mut command);
        assert_eq!(run.stdout, "fork\n", "{}", run.stderr);
        let reports: Vec<Value> = std::fs::read_dir(folder())
            .expect("the folder")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|file| file.starts_with(&name))
            .map(|file| std::fs::read_to_string(folder().join(file)).expect("a report"))
            .map(|text| serde_json::from_str(&text).expect("it is JSON"))
            .collect();
        assert_eq!(reports.len(), 2);
        let findings = |report: &Value| report["findings"].as_array().expect("a list").clone();
        let report = Report {
            run,
            findings: reports.iter().flat_map(findings).collect(),
        };
        assert_eq!(report.findings.len(), 1);
        assert_fault(&report, 0, &[]);
    });
}

/// Threads in calls while the interpreter ends: nothing to see but that it ends well.
#[test]
fn threads_that_are_left_behind_do_no_harm() {
    each("threads left behind", |interpreter| {
        for _ in 0..10 {
            let mut command = python(interpreter, "left_behind");
            let run = run(command.env("STREAMCHECK_STACKS", "full"));
            assert_eq!(
                (run.code, &*run.stdout),
                (Some(0), "left_behind\n"),
                "{}",
                run.stderr
            );
        }
    });
}

#[test]
fn an_interpreter_within_the_interpreter_is_no_trouble() {
    each("an inner interpreter", |interpreter| {
        // The module has another name or manner in each version; what is looked for is
        // that a finding has Python lines where it runs at all.
        let run = run(&mut python(interpreter, "within"));
        if run.stdout.is_empty() {
            say(&format!(
                "left out: an inner interpreter of 3.{}",
                interpreter.minor
            ));
            assert_eq!(run.code, Some(1), "{}", run.stderr);
        } else {
            assert_eq!(run.code, Some(66), "{}", run.stderr);
            assert!(run.stderr.contains("calls.py"), "{}", run.stderr);
        }
    });
}

#[test]
fn a_program_with_python_inside_shows_both() {
    each("Python inside of a program", |interpreter| {
        let Some(shared) = &interpreter.shared else {
            say(&format!(
                "left out: 3.{} has no shared library",
                interpreter.minor
            ));
            return;
        };
        let json = format!("python-{}-embeds.json", interpreter.minor);
        let script = script();
        let text = format!(
            "import sys; sys.path.insert(0, {:?}); import calls; calls.fault()",
            script.parent().expect("a folder")
        );
        let mut command = bare(simulated_program("embeds"));
        command
            .arg(shared)
            .arg(text)
            .env("LD_LIBRARY_PATH", simulated())
            .env("PYTHONHOME", &interpreter.prefix)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        // 3.12.1 ends its second life with a fault, whoever watches.
        if run(&mut command).stdout.is_empty() {
            say(&format!(
                "left out: 3.{} inside of a program does not run without the library either",
                interpreter.minor
            ));
            return;
        }
        command
            .env("LD_PRELOAD", library())
            .env("STREAMCHECK_JSON", &json);
        let report = finish(&mut command, &json, "embeds");
        // The second life's findings are the first's again.
        assert_eq!(report.findings.len(), 1, "{}", report.run.stderr);
        assert_fault(
            &report,
            0,
            &[("<module>".to_owned(), "<string>".to_owned(), 1)],
        );
        let outer: Vec<_> = report.stack(0, "use").into_iter().skip(3).collect();
        let functions: Vec<_> = outer.iter().map(|(function, ..)| &**function).collect();
        assert_eq!(functions, ["run_script", "main"], "{outer:?}");
    });
}

/// A trace holds what the addresses of Python frames stand for, in every stack.
#[test]
fn traces_carry_python_lines() {
    each("traces", |interpreter| {
        let trace = format!("python-{}.trace", interpreter.minor);
        calls(interpreter, "released", &[("STREAMCHECK_TRACE", &trace)]);
        let file = std::fs::File::open(folder().join(&trace)).expect("a trace");
        let mut known = std::collections::HashMap::new();
        let mut shown = Vec::new();
        for record in Reader::new(std::io::BufReader::new(file), trace).expect("its header") {
            match record.expect("every record is whole") {
                Record::Frames { stack, frames } => {
                    known.insert(stack, frames);
                }
                Record::Stack { addresses, .. } => {
                    let python = addresses.into_iter().find(|at| *at >= INTERPRETED);
                    let at = StackId::of_interpreted(python.expect("Python called"));
                    let frame = &known[&at][0];
                    shown.push((frame.function.clone(), frame.line));
                }
                _ => {}
            }
        }
        let names: Vec<_> = shown
            .iter()
            .map(|(function, _)| function.as_deref().and_then(|name| name.rsplit('.').next()))
            .collect();
        let stream = Some("stream");
        assert_eq!(names, [stream, Some("allocate"), Some("use")]);
        assert_eq!(shown[2].1.map(u64::from), Some(line_of("# used")));
    });
}
