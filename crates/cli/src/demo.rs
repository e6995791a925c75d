//! `demo`: real preloaded runs of faulty programs over the bundled simulated CUDA.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use streamcheck_report::json::Report;

use crate::failure::{Failure, reason};
use crate::output;

/// A faulty program, and the finding that it must get.
struct Act {
    program: &'static str,
    rule: &'static str,
    what: &'static str,
}

const ACTS: [Act; 2] = [
    Act {
        program: "a03_use_before_alloc",
        rule: "SC101",
        what: "two streams use memory that another one allocates, without waiting for it",
    },
    Act {
        program: "a04_reused_block",
        rule: "SC105",
        what: "the pool hands a freed block out again, and a stream uses it too early",
    },
];

/// The exit code of a gate that failed.
const GATE_FAILED: i32 = 66;

/// Runs the programs; 0 if the gate failed for each as it should.
pub(crate) fn demo() -> Result<u8, Failure> {
    let exe = env::current_exe()
        .map_err(|error| Failure::new(crate::USAGE, format!("where is this command? {error}")))?;
    let stage = stage(&exe)?;
    for act in &ACTS {
        output::out(&format!("\n{}: {}\n", act.program, act.what))?;
        play(act, &exe, &stage)?;
    }
    output::out(
        "\nBoth gates failed with exit code 66, as they should. Next: `streamcheck explain SC101`,\n\
         and `streamcheck run -- ./your-program` on a machine with a GPU.\n",
    )?;
    Ok(0)
}

/// The folder that holds `bin/streamcheck` and what the demo needs.
fn stage(exe: &Path) -> Result<PathBuf, Failure> {
    let stage = exe
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"))
        .to_path_buf();
    let needed = ["sim/libcuda.so.1", "sim/libcudart.so.13"].map(str::to_owned);
    let programs = ACTS
        .iter()
        .map(|act| format!("fixtures/cc/{}", act.program));
    match needed
        .into_iter()
        .chain(programs)
        .find(|file| !stage.join(file).is_file())
    {
        None => Ok(stage),
        Some(missing) => Err(Failure::new(
            crate::USAGE,
            format!(
                "the demo needs {}, which is not there; in the source tree `cargo xtask demo` builds it",
                stage.join(missing).display()
            ),
        )),
    }
}

fn play(act: &Act, exe: &Path, stage: &Path) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| {
        Failure::new(
            crate::USAGE,
            format!("no temporary directory: {}", reason(&error)),
        )
    })?;
    let json = folder.path().join("report.json");
    // Settings of the place where the demo happens to run are not its own.
    let config = folder.path().join("streamcheck.toml");
    std::fs::write(&config, "").map_err(|error| {
        Failure::new(
            crate::USAGE,
            format!("{}: {}", config.display(), reason(&error)),
        )
    })?;
    let mut command = Command::new(exe);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("STREAMCHECK_") {
            command.env_remove(name);
        }
    }
    let program = stage.join("fixtures/cc").join(act.program);
    let status = command
        .args(["run", "--json"])
        .arg(&json)
        .arg("--")
        .arg(&program)
        .env("STREAMCHECK_CONFIG", &config)
        .env("LD_LIBRARY_PATH", stage.join("sim"))
        .status()
        .map_err(|error| {
            Failure::new(
                crate::NOT_STARTED,
                format!("{}: {}", exe.display(), reason(&error)),
            )
        })?;
    let wrong = |what: String| Failure::new(1, format!("the demo of {} failed: {what}", act.rule));
    if status.code() != Some(GATE_FAILED) {
        return Err(wrong(format!(
            "the run ended with {status}, not with exit code {GATE_FAILED}"
        )));
    }
    let report = Report::read(&json)?;
    if report
        .findings
        .iter()
        .all(|finding| finding.rule != act.rule)
    {
        return Err(wrong("the report does not have it".to_owned()));
    }
    Ok(())
}
