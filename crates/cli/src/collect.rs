//! One report of many processes.
//!
//! Each process writes its JSON report into a private directory as it runs; they
//! are merged when all is over. So what a killed process had found is kept.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use streamcheck_engine::Level;
use streamcheck_report::json::Report;
use streamcheck_report::output::write_once;
use streamcheck_report::{Context, Problem, Process, Settings};
use tempfile::TempDir;

use crate::failure::{Failure, reason};
use crate::output;

/// The private directory.
pub(crate) struct Collection {
    directory: TempDir,
}

/// What all processes reported.
pub(crate) struct Merged {
    /// The one report.
    pub(crate) report: Report,
    /// How many processes wrote one.
    pub(crate) processes: usize,
}

impl Collection {
    pub(crate) fn new() -> Result<Self, Failure> {
        tempfile::Builder::new()
            .prefix("streamcheck-")
            .tempdir()
            .map(|directory| Self { directory })
            .map_err(|error| {
                let place = std::env::temp_dir();
                let place = place.display();
                Failure::new(
                    crate::USAGE,
                    format!(
                        "no directory can be made in {place} ({}); TMPDIR can name another",
                        reason(&error)
                    ),
                )
            })
    }

    /// The path of the report of each process, for the option `json`.
    pub(crate) fn template(&self) -> String {
        let directory = self.directory.path().to_string_lossy().replace('%', "%%");
        format!("{directory}/%p.json")
    }

    /// The reports, each with the number of the process that wrote it.
    pub(crate) fn writers(&self) -> Vec<(PathBuf, String)> {
        paths(self.directory.path())
            .into_iter()
            .map(|path| {
                let pid = whose(&path);
                (path, pid)
            })
            .collect()
    }

    /// Merges what is there.
    pub(crate) fn merge(&self, process: &Process) -> Merged {
        let (reports, problems) = read_all(self.directory.path());
        for problem in problems {
            output::say(problem.text());
        }
        let (who, reports): (HashSet<_>, Vec<_>) = reports.into_iter().unzip();
        let mut merged = Merged::of(process, reports);
        merged.processes = who.len();
        merged
    }
}

/// Where the reports are.
fn paths(directory: &Path) -> Vec<PathBuf> {
    let (folders, mut paths): (Vec<_>, Vec<_>) = entries(directory)
        .filter(|path| is_report(path) || is_folder_of_a_process(path))
        .partition(|path| is_folder_of_a_process(path));
    for folder in folders {
        paths.extend(entries(&folder).filter(|path| is_report(path)));
    }
    paths.sort();
    paths
}

/// The reports, each with whose it is.
fn read_all(directory: &Path) -> (Vec<(String, Report)>, Vec<Problem>) {
    let mut problems = Vec::new();
    let reports = paths(directory)
        .iter()
        .filter_map(|path| {
            Report::read(path)
                .map_err(|problem| problems.push(problem))
                .ok()
                .map(|report| (whose(path), report))
        })
        .collect();
    (reports, problems)
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// Whether it bears a process's number: a test runner keeps the reports of what it starts
/// apart from other processes' in there.
fn is_folder_of_a_process(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    !name.is_empty() && name.iter().all(u8::is_ascii_digit) && path.is_dir()
}

/// `12.json`, and `12.json.34` of a process that found the first name taken, and
/// `12.json.12-2` of a process that ran several programs, one after the other; not
/// what a killed process left half written.
fn is_report(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split_once(".json") {
        Some((pid, rest)) => {
            let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            number(pid)
                && (rest.is_empty()
                    || rest
                        .strip_prefix('.')
                        .is_some_and(|rest| rest.split('-').all(number)))
        }
        None => false,
    }
}

/// The number of the process that wrote a report, which may have written several.
fn whose(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split_once(".json") {
        Some((first, "")) => first,
        Some((_, later)) => later
            .trim_start_matches('.')
            .split('-')
            .next()
            .unwrap_or(""),
        None => "",
    }
    .to_owned()
}

impl Merged {
    /// Merges reports into one about `process`, or about their own if it is one.
    pub(crate) fn of(process: &Process, reports: Vec<Report>) -> Self {
        let processes = reports.len();
        let own = reports.first().map(|report| report.process.clone());
        let mut report = Report::merge(process, reports);
        if let (1, Some(own)) = (processes, own) {
            report.process = own;
            report.processes.clear();
            for finding in &mut report.findings {
                finding.ranks.clear();
                finding.process = None;
            }
        }
        Self { report, processes }
    }

    /// Writes each report that the settings ask for.
    pub(crate) fn write(
        &self,
        settings: &Settings,
        context: &Context,
        process: &Process,
    ) -> Result<(), Failure> {
        let mut problems = Vec::new();
        for (format, template) in settings.reports() {
            let text = format.render(&self.report, context);
            if template.is_stdout() {
                output::out(&text)?;
            } else {
                problems.extend(write_once(&template.expand(process), &text).err());
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Failure::of(crate::USAGE, &problems))
        }
    }

    /// Whether a finding fails the gate.
    pub(crate) fn gate_failed(&self, settings: &Settings) -> bool {
        self.report
            .findings
            .iter()
            .filter(|finding| finding.is_live())
            .any(|finding| {
                finding
                    .level
                    .parse::<Level>()
                    .is_ok_and(|level| settings.fails(level))
            })
    }

    /// Whether any process made a CUDA call.
    pub(crate) fn saw_cuda(&self) -> bool {
        self.report.summary.operations > 0
    }

    /// The exit code that the findings ask for.
    pub(crate) fn code(&self, settings: &Settings) -> u8 {
        if self.gate_failed(settings) {
            settings.exit_code
        } else if !self.saw_cuda() && settings.require_cuda.unwrap_or(true) {
            crate::NO_CUDA
        } else {
            0
        }
    }
}

/// Writes a file as a whole or not at all; what is no file is written to.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    write_once(path, text).map_err(|problem| Failure::of(crate::USAGE, &[problem]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_reports_are_read() {
        for (name, is) in [
            ("12.json", true),
            ("12.json.345", true),
            ("12.json.12-2", true),
            ("12.json.tmp", false),
            (".12.json.tmp", false),
            ("12.txt", false),
        ] {
            assert_eq!(is_report(Path::new(name)), is, "{name}");
        }
    }

    #[test]
    fn a_process_may_keep_a_folder_for_those_it_starts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for sub in ["7", "7/8", "other"] {
            fs::create_dir(root.join(sub)).unwrap();
        }
        let text = Report::new(&Process::this()).to_text();
        for file in [
            "7.json",
            "7/9.json",
            "7/.9.json.tmp",
            "7/8/1.json",
            "other/2.json",
        ] {
            fs::write(root.join(file), &text).unwrap();
        }
        let (reports, problems) = read_all(root);
        assert_eq!(problems, []);
        let who: Vec<_> = reports.into_iter().map(|(who, _)| who).collect();
        assert_eq!(who, ["9", "7"]);
    }

    #[test]
    fn a_process_may_write_several_reports() {
        for (name, who) in [
            ("12.json", "12"),
            ("12.json.12", "12"),
            ("12.json.12-2", "12"),
            ("12.json.345", "345"),
        ] {
            assert_eq!(whose(Path::new(name)), who, "{name}");
        }
    }

    #[test]
    fn a_file_is_replaced_and_an_impossible_one_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        fs::write(&path, "old").unwrap();
        write_whole(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let failure = write_whole(&folder.path().join("no/r.json"), "x").unwrap_err();
        assert!(format!("{failure:?}").contains("no/r.json cannot be written: No such file"));
    }
}
