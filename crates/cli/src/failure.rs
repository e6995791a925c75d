//! Why the command could not do its work.

use std::io;

use streamcheck_report::Problem;

use crate::output;

/// Lines for a person, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    lines: Vec<String>,
}

impl Failure {
    /// A failure told in one line.
    pub(crate) fn new(code: u8, line: impl Into<String>) -> Self {
        Self {
            code,
            lines: vec![line.into()],
        }
    }

    /// One line for each problem.
    pub(crate) fn of(code: u8, problems: &[Problem]) -> Self {
        Self {
            code,
            lines: problems.iter().map(ToString::to_string).collect(),
        }
    }

    /// Several lines.
    pub(crate) fn lines(code: u8, lines: Vec<String>) -> Self {
        Self { code, lines }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// What is wrong, as one text.
    pub(crate) fn text(&self) -> String {
        self.lines.join("; ")
    }

    /// What is wrong, line by line.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines
    }

    /// Writes the lines to standard error.
    pub(crate) fn tell(&self) {
        for line in &self.lines {
            output::say(line);
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::of(crate::USAGE, &[problem])
    }
}

/// An I/O error's reason, without the number that the standard library puts behind it.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}
