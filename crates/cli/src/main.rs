//! The `streamcheck` command.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | clean |
//! | `exit-code` (66) | the gate failed |
//! | 67 | no CUDA call was seen; of `doctor`: none would be |
//! | 2 | wrong usage, or input that cannot be read |
//! | 127 | the application could not be started |
//! | other | the application's own; 128 and the signal if one killed it |

mod args;
mod collect;
mod completions;
mod demo;
mod doctor;
mod failure;
mod leftover;
mod log;
mod man;
mod merged;
mod options;
mod output;
mod preflight;
mod preload;
mod progress;
mod replay;
mod report;
mod rules;
mod run;
mod signals;

use std::process::ExitCode;

use clap::error::ErrorKind;

use args::{Arguments, Task};
use failure::Failure;

/// Wrong usage, or input that cannot be read.
const USAGE: u8 = 2;
/// No process made a CUDA call.
const NO_CUDA: u8 = 67;
/// The application could not be started.
const NOT_STARTED: u8 = 127;

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let result = match arguments.task {
        Task::Run(run) => run::run(&run),
        Task::Replay(replay) => replay::replay(&replay),
        Task::Report(report) => report::report(&report),
        Task::Explain { rule } => rules::explain(&rule),
        Task::Rules => rules::list(),
        Task::Doctor(doctor) => doctor::doctor(&doctor),
        Task::Demo => demo::demo(),
        Task::Completions { shell } => completions::print(shell),
        Task::Man { command } => man::print(command.as_deref()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}

/// Prints help as clap made it, and a mistake as one line.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A pipe that was closed early is the reader's choice.
        drop(error.print());
        return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
    }
    let text = error.render().to_string();
    let said = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"));
    let mut line = String::new();
    for part in said {
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.push_str(part);
    }
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    Failure::new(USAGE, format!("{line}; see `streamcheck --help`")).tell();
    ExitCode::from(USAGE)
}
