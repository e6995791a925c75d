//! One report of many processes.
//!
//! Each process writes its JSON report into a private directory as it runs; they
//! are merged when all is over. So what a killed process had found is kept.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use streamcheck_report::json::Report;
use streamcheck_report::{Problem, Process};
use tempfile::TempDir;

use crate::failure::{Failure, reason};
use crate::merged::Merged;
use crate::output;

/// The private directory.
pub(crate) struct Collection {
    directory: TempDir,
    /// What was said of reports that cannot be read, so that it is said once.
    told: Mutex<HashSet<String>>,
}

impl Collection {
    pub(crate) fn new() -> Result<Self, Failure> {
        tempfile::Builder::new()
            .prefix("streamcheck-")
            .tempdir()
            .map(|directory| Self {
                directory,
                told: Mutex::default(),
            })
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

    /// Merges what is there, as often as one likes: what cannot be read is said once.
    pub(crate) fn merge(&self, process: &Process) -> Merged {
        let (reports, problems) = self.read();
        for problem in problems {
            output::say(problem.text());
        }
        let (who, reports): (HashSet<_>, Vec<_>) = reports.into_iter().unzip();
        let mut merged = Merged::of(process, reports);
        merged.processes = who.len();
        merged
    }

    /// The reports, and the problems that are new.
    fn read(&self) -> (Vec<(String, Report)>, Vec<Problem>) {
        let (reports, mut problems) = read_all(self.directory.path());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        problems.retain(|problem| told.insert(problem.text().to_owned()));
        (reports, problems)
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
    fn what_cannot_be_read_is_said_once() {
        let collection = Collection::new().unwrap();
        let write = |name: &str| fs::write(collection.directory.path().join(name), "{").unwrap();
        let news = || collection.read().1.len();
        write("7.json");
        assert_eq!((news(), news()), (1, 0));
        write("8.json");
        assert_eq!((news(), news()), (1, 0));
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
}
