//! The settings of a run.
//!
//! Every option has one name and three spellings: `--fail-on` on the command
//! line, `STREAMCHECK_FAIL_ON` in the environment, `fail-on` in
//! `streamcheck.toml`. The command line beats the environment, the environment
//! beats the file. A value that makes no sense is a [`Problem`], and the option
//! keeps its default.

mod options;
mod sources;
mod template;

use std::path::PathBuf;

use streamcheck_engine::{Level, Levels, RuleCode};

use crate::{Format, Problem};

pub use options::{OPTIONS, OptionSpec};
pub use sources::RESERVED_VARIABLES;
pub use template::PathTemplate;

/// What a run does, and with which findings it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The least level that fails the gate.
    pub fail_on: FailOn,
    /// The process's exit code when the gate fails and the application's is 0.
    pub exit_code: u8,
    /// Stop at the first finding that fails the gate.
    pub halt: bool,
    /// Where the JSON report goes.
    pub json: Option<PathTemplate>,
    /// Where the SARIF report goes.
    pub sarif: Option<PathTemplate>,
    /// Where the JUnit report goes.
    pub junit: Option<PathTemplate>,
    /// Where the page goes.
    pub html: Option<PathTemplate>,
    /// Where the GitHub annotations go.
    pub github: Option<PathTemplate>,
    /// Where the trace goes.
    pub trace: Option<PathTemplate>,
    /// How long the trace may become, in bytes.
    pub trace_limit: Option<u64>,
    /// The suppressions file.
    pub suppressions: Option<PathBuf>,
    /// An earlier JSON report whose findings are known.
    pub baseline: Option<PathBuf>,
    /// What is recorded of the host stack at each call.
    pub stacks: Stacks,
    /// Watch the CPU's accesses to host memory that pending work uses.
    pub guard: bool,
    /// The rules' levels.
    pub levels: Levels,
    /// The levels among them that somebody gave, the later ones last.
    pub given_levels: Vec<(RuleCode, Level)>,
    /// Whether a run without any CUDA call fails; `None` where nobody said.
    pub require_cuda: Option<bool>,
    /// Whether text is coloured.
    pub color: ColorChoice,
    /// The filter of the tool's own log.
    pub log: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fail_on: FailOn::Error,
            exit_code: 66,
            halt: false,
            json: None,
            sarif: None,
            junit: None,
            html: None,
            github: None,
            trace: None,
            trace_limit: None,
            suppressions: None,
            baseline: None,
            stacks: Stacks::Full,
            guard: false,
            levels: Levels::default(),
            given_levels: Vec::new(),
            require_cuda: None,
            color: ColorChoice::Auto,
            log: "warn".to_owned(),
        }
    }
}

impl Settings {
    /// The settings of this process, from `overrides` (pairs of an option's name and
    /// its value, as on a command line), the environment and `streamcheck.toml`.
    ///
    /// Whatever was wrong comes back beside them; such options hold their defaults.
    #[must_use]
    pub fn load(overrides: &[(String, String)]) -> (Self, Vec<Problem>) {
        let directory = std::env::current_dir().unwrap_or_default();
        sources::load(overrides, std::env::vars_os(), &directory)
    }

    /// The reports that are asked for, each with its place.
    pub fn reports(&self) -> impl Iterator<Item = (Format, &PathTemplate)> {
        Format::ALL
            .into_iter()
            .filter_map(|format| Some((format, self.report(format)?)))
    }

    /// Where the report of a format goes.
    #[must_use]
    pub fn report(&self, format: Format) -> Option<&PathTemplate> {
        match format {
            Format::Json => &self.json,
            Format::Sarif => &self.sarif,
            Format::Junit => &self.junit,
            Format::Html => &self.html,
            Format::Github => &self.github,
        }
        .as_ref()
    }

    /// The same settings, with no report and no trace to write.
    #[must_use]
    pub fn without_files(&self) -> Self {
        Self {
            json: None,
            sarif: None,
            junit: None,
            html: None,
            github: None,
            trace: None,
            ..self.clone()
        }
    }
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$meaning:meta])* $choice:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$meaning])* $choice,)*
        }

        impl $name {
            /// Its name in options.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Self::$choice => $label,)* }
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($label => Ok(Self::$choice),)* _ => Err(()) }
            }
        }
    };
}

choice! {
    /// The least level that fails the gate.
    FailOn {
        /// Errors fail it.
        Error = "error",
        /// Errors and warnings fail it.
        Warning = "warning",
        /// Nothing fails it.
        Never = "never",
    }
}

impl FailOn {
    /// Whether a finding of `level` fails the gate.
    #[must_use]
    pub fn fails(self, level: Level) -> bool {
        match self {
            Self::Error => level >= Level::Error,
            Self::Warning => level >= Level::Warning,
            Self::Never => false,
        }
    }
}

choice! {
    /// What is recorded of the host stack at each call.
    Stacks {
        /// Nothing.
        None = "none",
        /// The call's return address.
        Caller = "caller",
        /// The whole stack.
        Full = "full",
    }
}

choice! {
    /// Whether text is coloured.
    ColorChoice {
        /// On a terminal, unless `NO_COLOR` is set.
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never.
        Never = "never",
    }
}

impl ColorChoice {
    /// Whether to colour text that goes to a terminal or not; asks `NO_COLOR`.
    #[must_use]
    pub fn wanted(self, terminal: bool) -> bool {
        self.decide(
            terminal,
            std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
        )
    }

    fn decide(self, terminal: bool, no_color: bool) -> bool {
        match self {
            Self::Auto => terminal && !no_color,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_fails_from_the_chosen_level_up() {
        let mut settings = Settings::default();
        let verdicts = |settings: &Settings| {
            [Level::Off, Level::Warning, Level::Error].map(|level| settings.fail_on.fails(level))
        };
        assert_eq!(verdicts(&settings), [false, false, true]);
        settings.fail_on = FailOn::Warning;
        assert_eq!(verdicts(&settings), [false, true, true]);
        settings.fail_on = FailOn::Never;
        assert_eq!(verdicts(&settings), [false, false, false]);
    }

    #[test]
    fn no_color_counts_only_where_nobody_insists() {
        assert!(ColorChoice::Auto.decide(true, false));
        assert!(!ColorChoice::Auto.decide(false, false));
        assert!(!ColorChoice::Auto.decide(true, true));
        assert!(ColorChoice::Always.decide(false, true));
        assert!(!ColorChoice::Never.decide(true, false));
    }
}
