//! `run`: an application and its children under the preload library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use streamcheck_report::output::write_once;
use streamcheck_report::{
    Context, Format, OptionSpec, PathTemplate, Process, Settings, nothing_checked,
};

use crate::args::{All, Run};
use crate::collect::Collection;
use crate::failure::{Failure, reason};
use crate::merged::Merged;
use crate::options::Options;
use crate::progress::Running;
use crate::signals::Signals;
use crate::{doctor, leftover, output, preflight, preload};

/// Tells a process that it is one of a run's, whose summary the command writes.
const RUN_ID: &str = "STREAMCHECK_RUN_ID";

/// Tells a process where its report goes.
const JSON: &str = "STREAMCHECK_JSON";

/// Runs the application and returns the exit code.
pub(crate) fn run(run: &Run) -> Result<u8, Failure> {
    let settings = run.options.settings()?;
    let library = preload::library()?;
    tracing::info!("the preload library is {}", library.display());
    preflight::check_inputs(&settings)?;
    let collection = Collection::new()?;
    let mut process = Process::this();
    process.argv = run
        .app
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    process.exe = process.argv[0].clone();
    preflight::check_outputs(&settings, &process)?;
    preflight::check_trace(&settings, &process)?;

    let mut command = Command::new(&run.app[0]);
    command.args(&run.app[1..]);
    environment(&mut command, &run.options, &settings, &library, &collection);
    let status = watch(&mut command, &collection, &mut process)?;

    let leftover = leftover::after(&collection);
    let merged = collection.merge(&process);
    tell_outer(&merged, &settings, &process);
    if merged.saw_cuda() {
        merged.tell(&settings);
    } else {
        output::say(&unseen(&run.app[0], status));
    }
    if let Some(leftover) = leftover {
        output::say(&leftover);
    }
    let context = Context {
        // A report of one process is about that one.
        exit_code: (merged.report.process.pid == process.pid).then(|| as_a_shell(status)),
        ..Context::of_this_process(&settings)
    };
    merged.write(&settings, &context, &process)?;
    if annotates(&settings) {
        output::out(&Format::Github.render(&merged.report, &context))?;
        if !merged.saw_cuda() && settings.require_cuda.unwrap_or(true) {
            output::out(&nothing_checked(&unseen(&run.app[0], status)))?;
        }
    }
    if let Some(name) = killed_by(status).filter(|_| merged.saw_cuda()) {
        output::say(&format!("the application was killed by {name}"));
    }
    // The application's own code, unless it is 0.
    Ok(match as_a_shell(status) {
        0 => merged.code(&settings),
        code => code,
    })
}

/// Starts the application, hands signals on to it, and waits for its end. `process` gets
/// its number.
fn watch(
    command: &mut Command,
    collection: &Collection,
    process: &mut Process,
) -> Result<ExitStatus, Failure> {
    let signals = Signals::catch().map_err(|error| {
        Failure::new(
            crate::USAGE,
            format!("signals cannot be caught: {}", reason(&error)),
        )
    })?;
    let mut child = command.spawn().map_err(|error| {
        Failure::new(
            crate::NOT_STARTED,
            format!("{} cannot be started: {}", process.exe, reason(&error)),
        )
    })?;
    process.pid = child.id();
    tracing::info!("started {} (process {})", process.exe, process.pid);
    let forwarding = signals.forward_to(child.id());
    let status = wait(&mut child, collection, process).map_err(|error| {
        Failure::new(
            crate::USAGE,
            format!("the application was lost: {}", reason(&error)),
        )
    })?;
    drop(forwarding);
    tracing::debug!("the application ended: {status}");
    Ok(status)
}

/// Names the library that NVTX attaches to each object that holds it.
pub(crate) const NVTX: &str = "NVTX_INJECTION64_PATH";

/// Sets what the application's processes need to know.
fn environment(
    command: &mut Command,
    options: &Options<All>,
    settings: &Settings,
    library: &Path,
    collection: &Collection,
) {
    for (name, value) in options.given() {
        if let Some(option) = OptionSpec::named(name) {
            command.env(option.variable(), value);
        }
    }
    let variable = |name: &str| OptionSpec::named(name).map(OptionSpec::variable);
    // The command writes the reports, once for all processes.
    for name in Format::ALL.into_iter().filter_map(|f| variable(f.label())) {
        command.env_remove(name);
    }
    if let Some(levels) = levels(options) {
        command.env("STREAMCHECK_LEVEL", levels);
    }
    // A process may work in another directory.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    if let Some(trace) = &settings.trace {
        command.env("STREAMCHECK_TRACE", absolute(Path::new(trace.text())));
    }
    if let Some(path) = &settings.suppressions {
        command.env("STREAMCHECK_SUPPRESSIONS", absolute(path));
    }
    if let Some(path) = &settings.baseline {
        command.env("STREAMCHECK_BASELINE", absolute(path));
    }
    if let Some(file) = config() {
        command.env("STREAMCHECK_CONFIG", file);
    }
    command
        .env(JSON, collection.template())
        // Not every process of a run need use CUDA; the command judges the whole.
        .env("STREAMCHECK_REQUIRE_CUDA", "off")
        .env(RUN_ID, std::process::id().to_string())
        .env_remove(preload::VARIABLE)
        .env(
            "LD_PRELOAD",
            preload::ld_preload(library, env::var_os("LD_PRELOAD")),
        );
    // NVTX has room for one tool, which learns the streams' names by it.
    if env::var_os(NVTX).is_none() {
        command.env(NVTX, library);
    }
}

/// The levels that were given, which add up: the environment's first, then the command
/// line's. `None` if there are none.
fn levels(options: &Options<All>) -> Option<String> {
    let given = options.given().iter();
    let levels: Vec<String> = env::var("STREAMCHECK_LEVEL")
        .into_iter()
        .chain(
            given
                .filter(|(name, _)| name == "level")
                .map(|(_, value)| value.clone()),
        )
        .collect();
    (!levels.is_empty()).then(|| levels.join(","))
}

/// The settings file in force, if there is one.
pub(crate) fn config() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    match env::var_os("STREAMCHECK_CONFIG").filter(|path: &OsString| !path.is_empty()) {
        Some(path) => Some(here.join(path)),
        None => here
            .ancestors()
            .map(|folder| folder.join("streamcheck.toml"))
            .find(|path| path.is_file()),
    }
}

/// Waits for the application, and says now and then that it still runs.
fn wait(child: &mut Child, collection: &Collection, process: &Process) -> io::Result<ExitStatus> {
    let Some(mut running) = Running::new() else {
        return child.wait();
    };
    let began = Instant::now();
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                let pause = running.due().saturating_sub(began.elapsed());
                if ended.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
                running.give(collection.merge(process).report.findings.len());
            }
        });
        let status = child.wait();
        drop(done);
        status
    })
}

/// That nothing was seen, and why, if the program or its end shows it.
fn unseen(app: &OsStr, status: ExitStatus) -> String {
    let what = match (killed_by(status), status.code()) {
        (Some(name), _) => format!("the application was killed by {name} before any"),
        (None, Some(code)) if code != 0 => {
            format!("the application ended with exit status {code} before any")
        }
        _ => "no".to_owned(),
    };
    let what = format!("{what} CUDA call was seen in any process");
    match doctor::obstacle(app) {
        Some(why) => format!("{what}; {why}"),
        // Who failed had most likely not come to its first call.
        None if !status.success() => what,
        None => format!(
            "{what}: it makes none, or it is statically linked or set-user-ID, or `env -i` or a \
             container left LD_PRELOAD behind; --require-cuda=off lets such a run pass"
        ),
    }
}

/// The name of the signal that killed the application, if one did.
fn killed_by(status: ExitStatus) -> Option<String> {
    let signal = status.signal()?;
    let name = signal_hook::low_level::signal_name(signal);
    Some(name.map_or_else(|| format!("signal {signal}"), str::to_owned))
}

/// Whether a job of GitHub Actions reads standard output, and nobody said where the
/// annotations go. A run inside another leaves them to that one.
fn annotates(settings: &Settings) -> bool {
    settings.github.is_none()
        && env::var_os("GITHUB_ACTIONS").is_some_and(|on| on == "true")
        && !is_nested()
}

/// Hands the merged report to the run that this one is a part of: that one answers for
/// all that runs below it.
fn tell_outer(merged: &Merged, settings: &Settings, process: &Process) {
    let place = env::var(JSON).ok().filter(|_| is_nested());
    let Some(place) = place.and_then(|text| PathTemplate::parse(&text).ok()) else {
        return;
    };
    let told = settings
        .json
        .as_ref()
        .is_some_and(|json| json.text() == place.text());
    if !told {
        // An outer run that has ended needs it no more.
        let _ = write_once(&place.expand(process), &merged.report.to_text());
    }
}

/// Whether this run is a process of another.
fn is_nested() -> bool {
    env::var_os(RUN_ID).is_some()
}

/// How the application ended, as a shell tells it.
fn as_a_shell(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    u8::try_from(code.unwrap_or(0)).unwrap_or(u8::MAX)
}
