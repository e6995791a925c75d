//! `cargo xtask demo` and `cargo xtask test`: what the README promises, from a
//! fresh clone, with Rust and a C compiler. `cargo xtask bench` and `cargo xtask soak`:
//! what the tool costs, in time and in memory.

mod bench;
mod soak;

use std::env;
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use fixtures::{Build, fixtures, repository, stage};

const USAGE: &str = "\
cargo xtask demo   build everything and watch two faults being found, without a GPU
cargo xtask test   run the whole test suite
cargo xtask stage  build the preload library, the command and the simulated CUDA
cargo xtask bench  measure what the preload library, built for release, adds to a CUDA call
    --json             as JSON
    --rounds N         rounds of native and preloaded runs in turn, 5 by default
    --over BACKEND     standin (default), or static-sim: the simulated CUDA by its static cudart
    --loop NAME        this loop only; may be repeated
cargo xtask soak   show how much memory a program of 10 million calls takes, natively and preloaded
    CALLS              how many calls it makes
    --trace            recording a trace as well
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["demo"] => demo(),
        ["test"] => test(),
        ["stage"] => stage().and_then(|stage| say(&format!("{}\n", stage.root.display()))),
        ["bench", ref options @ ..] => bench::Options::parse(options)
            .and_then(|options| bench::bench(&options))
            .and_then(|text| say(&text)),
        ["soak", ref options @ ..] => soak::Options::parse(options)
            .and_then(|options| soak::soak(&options))
            .and_then(|text| say(&text)),
        ["--help" | "-h" | "help"] => say(USAGE),
        _ => {
            tell(USAGE);
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("xtask: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Builds and stages what the demo needs, and runs it.
fn demo() -> Result<()> {
    tell("building the preload library, the command and the simulated CUDA\n");
    let stage = stage()?;
    fixtures::compile(&stage.root, Build::Cc, &fixtures()?)?
        .context("a plain C compiler builds the demo's programs")?;
    let status = Command::new(&stage.command)
        .arg("demo")
        .status()
        .with_context(|| format!("start {}", stage.command.display()))?;
    if !status.success() {
        bail!("the demo ended with {status}");
    }
    Ok(())
}

/// Runs the suite, then says what of it this machine could not run.
fn test() -> Result<()> {
    let began = Instant::now();
    // Plain `cargo test` gives the same; the tests stage what they need.
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(repository())
        .args(["test", "--workspace", "--no-fail-fast"])
        .status()
        .context("start cargo")?;
    let mut left_out = Vec::new();
    if fixtures::compile::find_nvcc()?.is_none() {
        for build in Build::ALL.into_iter().filter(|build| build.needs_nvcc()) {
            left_out.push(format!(
                "left out: fixtures built as {build}, for want of nvcc\n"
            ));
        }
    }
    if !has_browser() {
        left_out.push("left out: the HTML report in a browser, for want of chromium\n".to_owned());
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        left_out.push("left out: instruction counts, for want of valgrind\n".to_owned());
    }
    if left_out.is_empty() {
        left_out.push("nothing was left out\n".to_owned());
    }
    left_out.push(format!("{} s\n", began.elapsed().as_secs()));
    say(&left_out.concat())?;
    if !status.success() {
        bail!("some tests failed: cargo test ended with {status}");
    }
    Ok(())
}

/// Whether a browser is installed that the HTML report's tests can drive.
fn has_browser() -> bool {
    let names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ];
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| names.iter().any(|name| folder.join(name).is_file()))
}

fn say(text: &str) -> Result<()> {
    io::stdout()
        .write_all(text.as_bytes())
        .context("write to standard output")
}

fn tell(text: &str) {
    // Nobody is left to tell if standard error is closed.
    drop(io::stderr().write_all(text.as_bytes()));
}
