//! The forms that a report can take in a file.

use std::env;
use std::path::{Path, PathBuf};

use crate::json::Report;
use crate::{FailOn, Settings, github, html, junit, sarif};

/// A form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The report itself, schema `streamcheck-report/1`.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for the test pages of CI systems.
    Junit,
    /// A page with a timeline.
    Html,
    /// Annotations of a GitHub Actions job.
    Github,
}

impl Format {
    /// Every form, in the order of the options.
    pub const ALL: [Self; 5] = [
        Self::Json,
        Self::Sarif,
        Self::Junit,
        Self::Html,
        Self::Github,
    ];

    /// Its name, which is that of its option.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Sarif => "sarif",
            Self::Junit => "junit",
            Self::Html => "html",
            Self::Github => "github",
        }
    }

    /// The report in this form, as the text of a whole file.
    #[must_use]
    pub fn render(self, report: &Report, context: &Context) -> String {
        match self {
            Self::Json => report.to_text(),
            Self::Sarif => sarif::log(report, context),
            Self::Junit => junit::suites(report, context) + &stamp(report),
            Self::Html => html::page(report) + &stamp(report),
            Self::Github => github::annotations(report, context),
        }
    }
}

/// A comment for people's forms that says whose report it is and whether anything is in it.
fn stamp(report: &Report) -> String {
    let seen = report.summary.operations > 0 || !report.findings.is_empty();
    let what = if seen { "something" } else { "nothing" };
    format!(
        "<!-- streamcheck: process {} saw {what} -->\n",
        report.process.pid
    )
}

/// Whether a report that ends in a stamp holds something that a process with this number saw.
pub(crate) fn is_stamped(text: &str, pid: u32) -> bool {
    text.trim_end().ends_with(&format!(
        "<!-- streamcheck: process {pid} saw something -->"
    ))
}

/// What a form tells beside the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The least level that fails the gate.
    pub fail_on: FailOn,
    /// The working directory.
    pub here: PathBuf,
    /// The folder below which source files are named relative to it: the repository's.
    pub root: PathBuf,
    /// The application's exit code as a shell tells it, where it is known.
    pub exit_code: Option<u8>,
    /// Whether there is a baseline.
    pub baseline: bool,
}

impl Context {
    /// The context of a report that this process writes.
    #[must_use]
    pub fn of_this_process(settings: &Settings) -> Self {
        let workspace = env::var_os("GITHUB_WORKSPACE").filter(|path| !path.is_empty());
        let here = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Self {
            fail_on: settings.fail_on,
            root: workspace.map_or_else(|| repository(&here), PathBuf::from),
            here,
            exit_code: None,
            baseline: settings.baseline.is_some(),
        }
    }
}

/// The repository that a folder belongs to; the folder itself outside any.
fn repository(folder: &Path) -> PathBuf {
    folder
        .ancestors()
        .find(|ancestor| ancestor.join(".git").exists())
        .unwrap_or(folder)
        .to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_repositorys() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir(directory.path().join(".git")).unwrap();
        assert_eq!(repository(&inner), directory.path());
        assert_eq!(repository(Path::new("/nowhere")), Path::new("/nowhere"));
    }

    #[test]
    fn each_form_has_its_option() {
        for format in Format::ALL {
            assert!(crate::OptionSpec::named(format.label()).is_some());
        }
    }
}
