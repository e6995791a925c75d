//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use streamcheck_report::Format;

use crate::options::Options;

/// Finds misuse of CUDA's stream-ordered memory, streams and events in running
/// programs.
#[derive(Debug, Parser)]
#[command(
    name = "streamcheck",
    version,
    disable_help_subcommand = true,
    after_help = "Without this command: LD_PRELOAD=/path/to/libstreamcheck.so ./app\n\
                  Exit codes: 0 clean, 66 the gate failed, 67 no CUDA call seen, 2 wrong usage,\n\
                  127 the application did not start, else the application's own."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) task: Task,
}

impl Arguments {
    /// Parses the words of a command line, the command's own name first.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(with_joined_switches(words.into_iter().collect()))
    }
}

/// What a switch takes.
const SWITCH_VALUES: [&str; 6] = ["on", "off", "true", "false", "1", "0"];

/// Makes `--halt=on` of `--halt on`. A switch may stand alone, so clap, which looks at
/// no value before it takes one, would take the application for it or it for the
/// application.
fn with_joined_switches(words: Vec<OsString>) -> Vec<OsString> {
    let command = Arguments::command();
    let task = words.get(1).and_then(|task| command.find_subcommand(task));
    let Some(task) = task else { return words };
    let app_ends_options = task.get_name() == "run";
    let option = |word: &OsStr| -> Option<&Arg> {
        let word = word.to_str()?;
        task.get_arguments().find(|arg| {
            let long = word.strip_prefix("--");
            let short = word.strip_prefix('-');
            long.is_some() && arg.get_long() == long
                || short.is_some() && arg.get_short().map(String::from).as_deref() == short
        })
    };
    let mut joined: Vec<OsString> = words[..2].to_vec();
    let mut rest = words[2..].iter().peekable();
    while let Some(word) = rest.next() {
        joined.push(word.clone());
        let dashed = word.as_encoded_bytes().starts_with(b"-");
        if word == "--" || (app_ends_options && !dashed) {
            break;
        }
        let Some(option) = option(word) else { continue };
        if option.is_require_equals_set() {
            let mut ahead = rest.clone();
            let value = ahead.next();
            let before_app = app_ends_options && ahead.next().is_some_and(|next| next == "--");
            if let Some(value) = value
                && (SWITCH_VALUES.iter().any(|known| value == known)
                    // Whatever it is, it is not the application.
                    || before_app && !value.as_encoded_bytes().starts_with(b"-"))
                && let Some(switch) = joined.last_mut()
            {
                switch.push("=");
                switch.push(value);
                rest.next();
            }
        } else if option.get_action().takes_values() {
            joined.extend(rest.next().cloned());
        }
    }
    joined.extend(rest.cloned());
    joined
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Run a program and its children under the checker
    Run(Run),
    /// Check recorded traces, on any machine
    Replay(Replay),
    /// Merge JSON reports into one
    Report(Report),
    /// Explain a rule, by code or name
    Explain {
        /// A code such as SC101, or a name such as use-before-alloc
        rule: String,
    },
    /// List the rules
    Rules,
    /// Tell what will and won't be seen of a program
    Doctor(Doctor),
    /// Watch the checker find two faults, without a GPU
    Demo,
    /// Print a shell's completions
    #[command(
        after_help = "bash: streamcheck completions bash > ~/.local/share/bash-completion/completions/streamcheck\n\
                      zsh:  streamcheck completions zsh > _streamcheck, in a folder of $fpath\n\
                      fish: streamcheck completions fish > ~/.config/fish/completions/streamcheck.fish"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page
    #[command(after_help = "To read one: streamcheck man run | man -l -")]
    Man {
        /// The command that it is about; without one, streamcheck
        command: Option<String>,
    },
}

/// Tell what will and won't be seen of a program.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing of the program is run. Exit codes: 0 nothing stands in the way, 67 a run would\n\
                  check nothing, 2 there is no program to look at."
)]
pub(crate) struct Doctor {
    /// What to write
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: DoctorFormat,
    /// The program, or a library; without one, this machine alone is looked at
    #[arg(value_name = "APP", value_hint = ValueHint::ExecutablePath)]
    pub(crate) app: Option<OsString>,
}

/// The form of what `doctor` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoctorFormat {
    // Lines for people.
    Text,
    // Schema streamcheck-doctor/1.
    Json,
}

/// Run a program and its children under the checker.
#[derive(Debug, Args)]
#[command(
    override_usage = "streamcheck run [OPTIONS] -- APP [ARGS]…",
    after_help = "Every option can also stand in the environment (STREAMCHECK_FAIL_ON=warning) or in\n\
                  streamcheck.toml (fail-on = \"warning\"). The preload library is looked for beside this\n\
                  command, in ../lib, or where STREAMCHECK_LIBRARY says."
)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) options: Options<All>,
    /// The program and its arguments
    #[arg(value_name = "APP", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) app: Vec<OsString>,
}

/// Check recorded traces, on any machine.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) options: Options<Offline>,
    /// The files are programs typed by hand, not recorded traces
    #[arg(long)]
    pub(crate) text: bool,
    /// The traces, one for each process
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,
}

/// Merge JSON reports into one.
#[derive(Debug, Args)]
#[command(after_help = "The gate fails only if --fail-on is given.")]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) options: Options<Merging>,
    /// The form to write [default: text]
    #[arg(long, value_parser = format_parser(), value_name = "FORMAT")]
    format: Option<String>,
    /// Where to write it; `-` is standard output [default: -]
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Write what was found to a file for --baseline
    #[arg(long, value_name = "PATH")]
    pub(crate) write_baseline: Option<PathBuf>,
    /// The reports, one for each process
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

/// What a terminal shows.
const TEXT: &str = "text";

/// Takes the names of all forms.
fn format_parser() -> PossibleValuesParser {
    let formats = Format::ALL.into_iter().map(Format::label);
    [TEXT].into_iter().chain(formats).collect::<Vec<_>>().into()
}

impl Report {
    /// The form to write; `None` is text for people.
    pub(crate) fn format(&self) -> Option<Format> {
        let name = self.format.as_deref().unwrap_or(TEXT);
        Format::ALL
            .into_iter()
            .find(|format| format.label() == name)
    }

    /// Where to write it; `None` is standard output.
    pub(crate) fn output(&self) -> Option<&Path> {
        let path = self.output.as_deref()?;
        (path != Path::new("-")).then_some(path)
    }

    /// Whether there is nothing to write but a baseline.
    pub(crate) fn only_baseline(&self) -> bool {
        self.write_baseline.is_some() && self.format.is_none() && self.output.is_none()
    }
}

/// Which of the options a task takes.
pub(crate) trait Subset {
    /// Whether the task takes the option of this name.
    fn takes(name: &str) -> bool;
}

/// Every option.
#[derive(Debug)]
pub(crate) struct All;

impl Subset for All {
    fn takes(_: &str) -> bool {
        true
    }
}

/// Those that mean something without a running program.
#[derive(Debug)]
pub(crate) struct Offline;

impl Subset for Offline {
    fn takes(name: &str) -> bool {
        !matches!(name, "halt" | "trace" | "trace-limit" | "stacks" | "guard")
    }
}

/// Those for findings that were made elsewhere.
#[derive(Debug)]
pub(crate) struct Merging;

impl Subset for Merging {
    fn takes(name: &str) -> bool {
        matches!(
            name,
            "fail-on"
                | "exit-code"
                | "suppressions"
                | "baseline"
                | "level"
                | "require-cuda"
                | "color"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_application_keeps_its_own_options() {
        for line in [
            &[
                "streamcheck",
                "run",
                "--fail-on",
                "never",
                "--",
                "./app",
                "--json",
                "x",
            ][..],
            &[
                "streamcheck",
                "run",
                "--fail-on=never",
                "./app",
                "--json",
                "x",
            ],
        ] {
            let Task::Run(run) = Arguments::try_parse_from(line).unwrap().task else {
                panic!("a run");
            };
            assert_eq!(run.app, ["./app", "--json", "x"]);
            assert_eq!(
                run.options.given(),
                [("fail-on".to_owned(), "never".to_owned())]
            );
        }
    }

    #[test]
    fn switches_stand_alone_or_take_a_value() {
        let given = |line: &[&str]| match Arguments::try_parse_from(line).unwrap().task {
            Task::Run(run) => run.options.given().to_vec(),
            _ => panic!("a run"),
        };
        let halt = |value: &str| vec![("halt".to_owned(), value.to_owned())];
        assert_eq!(
            given(&["streamcheck", "run", "--halt", "./app"]),
            halt("on")
        );
        assert_eq!(
            given(&["streamcheck", "run", "--halt=off", "./app"]),
            halt("off")
        );
    }

    #[test]
    fn a_switchs_value_is_never_the_application() {
        let read = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            match Arguments::read(words).unwrap().task {
                Task::Run(run) => (run.options.given().to_vec(), run.app),
                _ => panic!("a run"),
            }
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for (line, given, app) in [
            ("run --halt -- ./app", vec![pair("halt", "on")], "./app"),
            ("run --halt ./app", vec![pair("halt", "on")], "./app"),
            ("run --halt=on -- ./app", vec![pair("halt", "on")], "./app"),
            ("run --halt on -- ./app", vec![pair("halt", "on")], "./app"),
            ("run --halt true ./app", vec![pair("halt", "true")], "./app"),
            ("run --halt 0 -- ./app", vec![pair("halt", "0")], "./app"),
            (
                "run --halt yes -- ./app",
                vec![pair("halt", "yes")],
                "./app",
            ),
            (
                "run --json --halt --require-cuda off -- ./app",
                vec![pair("json", "--halt"), pair("require-cuda", "off")],
                "./app",
            ),
            ("run ./app --halt on -- x", vec![], "./app --halt on -- x"),
            ("run -- ./app --halt on", vec![], "./app --halt on"),
        ] {
            let (mut found, ran) = read(&format!("streamcheck {line}"));
            found.sort();
            assert_eq!(found, given, "{line}");
            assert_eq!(ran.join(OsStr::new(" ")), app, "{line}");
        }
        let words = ["streamcheck", "run", "--halt", "true"].map(OsString::from);
        assert!(Arguments::read(words).is_err(), "no application");
        let words = ["streamcheck", "replay", "--require-cuda", "off", "a.trace"];
        let Task::Replay(replay) = Arguments::read(words.map(OsString::from)).unwrap().task else {
            panic!("a replay");
        };
        assert_eq!(replay.traces, [PathBuf::from("a.trace")]);
        assert_eq!(replay.options.given(), [pair("require-cuda", "off")]);
    }

    #[test]
    fn help_fits_a_screen() {
        let mut command = Arguments::command();
        let lines = |text: &str| text.lines().count();
        let help = command.render_help().to_string();
        assert!(lines(&help) <= 24, "{help}");
        for task in command.get_subcommands_mut() {
            let help = task.render_help().to_string();
            assert!(lines(&help) <= 40, "{help}");
        }
    }
}
