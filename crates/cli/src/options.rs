//! The settings' options on the command line, made from their one declaration.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use streamcheck_report::{OPTIONS, OptionSpec, Settings};

use crate::args::Subset;
use crate::failure::Failure;
use crate::log;

/// The options that were given, as pairs of name and value.
#[derive(Debug)]
pub(crate) struct Options<S> {
    given: Vec<(String, String)>,
    subset: PhantomData<S>,
}

impl<S> Options<S> {
    /// The pairs, in the order of the options' declaration.
    pub(crate) fn given(&self) -> &[(String, String)] {
        &self.given
    }

    /// Whether the command line has the option.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The settings of this run: command line, environment, file.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let (settings, problems) = Settings::load(&self.given);
        if problems.is_empty() {
            log::open(&settings.log);
            Ok(settings)
        } else {
            let refused: Vec<_> = problems
                .iter()
                .map(|problem| refusal(problem.text()))
                .collect();
            Err(Failure::lines(crate::USAGE, refused))
        }
    }
}

/// A problem as the command tells it: a preloaded process goes on with the default
/// and says so, the command does not go on.
pub(crate) fn refusal(problem: &str) -> String {
    let end = [
        "; the default",
        "; it is ignored",
        ", so it is ignored",
        "; another value beats it",
    ]
    .iter()
    .filter_map(|what| problem.rfind(what))
    .min()
    .unwrap_or(problem.len());
    problem[..end].to_owned()
}

/// The options that a task takes and that this version has.
fn taken<S: Subset>() -> impl Iterator<Item = &'static OptionSpec> {
    OPTIONS.iter().filter(|option| S::takes(option.name))
}

/// What stands for the value in help: the choices if they are few, else a word.
fn value_name(option: &OptionSpec) -> String {
    let takes = option.takes;
    if takes.starts_with("a path") || takes.starts_with("the path") {
        return "PATH".to_owned();
    }
    let choices = takes.replace(" or ", ", ");
    if choices.split(", ").all(|choice| !choice.contains(' ')) {
        return choices.replace(", ", "|");
    }
    match option.name {
        "level" => "RULE=LEVEL",
        _ if option.switch => "on|off",
        _ if takes.starts_with("a number") => "N",
        _ if takes.starts_with("a size") => "SIZE",
        _ => "VALUE",
    }
    .to_owned()
}

/// One line of help: what the option does, without the details after it.
fn one_line(meaning: &str) -> &str {
    let end = meaning.find([';', ':', ',']).unwrap_or(meaning.len());
    meaning[..end].trim()
}

/// As clap writes its own lines.
fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(rest).collect()
    })
}

fn arg(option: &'static OptionSpec) -> Arg {
    let default = match option.default {
        default if default == "none" || default.contains(' ') => String::new(),
        default => format!(" [{default}]"),
    };
    let arg = Arg::new(option.name)
        .long(option.name)
        .value_name(value_name(option))
        .value_hint(match value_name(option).as_str() {
            "PATH" => ValueHint::FilePath,
            _ => ValueHint::Other,
        })
        .help(capitalized(&format!(
            "{}{default}",
            one_line(option.meaning)
        )))
        .allow_hyphen_values(true)
        .action(if option.repeatable {
            ArgAction::Append
        } else {
            ArgAction::Set
        });
    if option.switch {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("on")
    } else {
        arg
    }
}

impl<S: Subset> Args for Options<S> {
    fn augment_args(command: Command) -> Command {
        command.args(taken::<S>().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Subset> FromArgMatches for Options<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = taken::<S>()
            .flat_map(|option| {
                matches
                    .get_many::<String>(option.name)
                    .unwrap_or_default()
                    .map(|value| (option.name.to_owned(), value.clone()))
            })
            .collect();
        Ok(Self {
            given,
            subset: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
