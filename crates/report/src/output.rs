//! Report files: claimed by one process, replaced as a whole.
//!
//! A report is written beside its place and renamed over it, so that a reader sees the
//! old one or the new one. Who writes it holds an advisory lock on the very file that is
//! there: the kernel drops it when the process ends, however it ends, and
//! nothing has to be cleaned up.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::format::is_stamped;
use crate::json::plain;
use crate::{Format, Problem};

/// Links that are followed from one report's path, as many as Linux follows.
const LINKS: usize = 40;

/// Attempts at a claim while other processes keep replacing the file.
const ATTEMPTS: usize = 16;

/// What the clocks of files and of processes may differ by: both tick in hundredths of a second.
const CLOCKS_APART: Duration = Duration::from_millis(20);

/// Names that a process tries for its report: more images than any process runs,
/// one after the other.
const NAMES: u32 = 1000;

/// A report's place, claimed.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    claim: Option<Claim>,
}

/// The lock on the file that is at the path.
#[derive(Debug)]
struct Claim {
    /// Open until the claim is dropped.
    file: Option<File>,
    /// Device and inode of what was locked.
    identity: (u64, u64),
}

/// What a claim came to.
enum Attempt {
    Mine(Claim),
    /// The file system has no locks.
    Unlocked,
    Taken,
    /// The file was replaced meanwhile.
    Again,
}

impl Output {
    /// Claims `path`, or `path.PID` if another living process has it, and puts `text` there.
    /// A process that runs another program keeps its number and loses its locks: the
    /// report of an earlier image stays, and the later one adds `.PID`, `.PID-2` and so on.
    ///
    /// # Errors
    /// A sentence that names the path, if nothing can be written there.
    pub fn claim(path: &Path, format: Format, pid: u32, text: &str) -> Result<Self, Problem> {
        let problem = |path: &Path, why: &str| {
            Problem::new(format!("{} cannot be written: {why}", path.display()))
        };
        // A later change of the working directory, or of a link, moves nothing.
        let path = std::path::absolute(path).map_err(|error| problem(path, &plain(&error)))?;
        let path = behind_links(&path);
        for number in 0..NAMES {
            let mut candidate = path.clone().into_os_string();
            match number {
                0 => {}
                1 => candidate.push(format!(".{pid}")),
                _ => candidate.push(format!(".{pid}-{number}")),
            }
            let candidate = PathBuf::from(candidate);
            if is_of_an_earlier_image(&candidate, format, pid) {
                continue;
            }
            if let Some(mut output) = Self::try_claim(&candidate, pid, text)
                .map_err(|error| problem(&candidate, &plain(&error)))?
            {
                output
                    .replace(text)
                    .map_err(|error| problem(&candidate, &plain(&error)))?;
                return Ok(output);
            }
        }
        Err(problem(
            &path,
            "other processes hold it and its substitutes",
        ))
    }

    /// Where the report is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the report.
    ///
    /// # Errors
    /// A sentence that names the path; the old report is still there.
    pub fn write(&mut self, text: &str) -> Result<(), Problem> {
        self.replace(text).map_err(|error| {
            Problem::new(format!(
                "{} cannot be written: {}",
                self.path.display(),
                plain(&error)
            ))
        })
    }

    /// `None` if another process has the path.
    fn try_claim(path: &Path, pid: u32, text: &str) -> io::Result<Option<Self>> {
        for _ in 0..ATTEMPTS {
            let attempt = match OpenOptions::new().read(true).write(true).open(path) {
                Ok(file) => lock(file, path)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => create(path, pid, text)?,
                Err(error) => return Err(error),
            };
            let claim = match attempt {
                Attempt::Mine(claim) => Some(claim),
                Attempt::Unlocked => None,
                Attempt::Taken => return Ok(None),
                Attempt::Again => continue,
            };
            return Ok(Some(Self {
                path: path.to_owned(),
                claim,
            }));
        }
        Ok(None)
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // One name for each report, so that a process killed in here leaves
        // something that the next run overwrites.
        let beside = beside(&self.path, "tmp");
        let written = write_locked(&beside, text).and_then(|claim| {
            fs::rename(&beside, &self.path)?;
            Ok(claim)
        });
        match written {
            // The new file's lock was there before the old one's goes.
            Ok(claim) => {
                self.claim = claim;
                Ok(())
            }
            Err(error) => {
                // What is left of it helps nobody; that it can't be removed
                // is no news after this.
                let _ = fs::remove_file(&beside);
                Err(error)
            }
        }
    }
}

/// Writes a report that nobody writes again: a regular file is replaced as a whole,
/// a device or a pipe is written to and stays what it is, and links are followed.
///
/// # Errors
/// A sentence that names the path; an old file is still there.
pub fn write_once(path: &Path, text: &str) -> Result<(), Problem> {
    let place = behind_links(path);
    let written = if is_special(&place) {
        OpenOptions::new()
            .write(true)
            .open(&place)
            .and_then(|mut file| file.write_all(text.as_bytes()))
    } else {
        let beside = beside(&place, &format!("{}.tmp", std::process::id()));
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &place))
            .inspect_err(|_| {
                // What is left of it helps nobody.
                let _ = fs::remove_file(&beside);
            })
    };
    written.map_err(|error| {
        Problem::new(format!(
            "{} cannot be written: {}",
            path.display(),
            plain(&error)
        ))
    })
}

/// Whether `path` is a device, a pipe or a socket: something that a file must not replace.
#[must_use]
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// Where a path leads, also if there is nothing there yet.
#[must_use]
pub fn behind_links(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    let mut place = path.to_path_buf();
    for _ in 0..LINKS {
        match fs::read_link(&place) {
            // A relative target begins where the link is; an absolute one replaces all.
            Ok(target) => place = place.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => break,
        }
    }
    place
}

/// Whether a report with something in it was written by this process before it ran its
/// present program: it bears the process's number, and is not older than the process.
fn is_of_an_earlier_image(path: &Path, format: Format, pid: u32) -> bool {
    let age = |path: &Path| {
        let about = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        // One of the future is as good as new.
        Some(about.modified().ok()?.elapsed().unwrap_or_default())
    };
    let Some((age, since_start)) = age(path).zip(age_of_this_process()) else {
        return false;
    };
    age <= since_start + CLOCKS_APART
        && fs::read_to_string(path).is_ok_and(|text| tells_of(&text, format, pid))
}

/// Whether a report holds something that a process with this number saw. Where the form
/// does not name the process, whatever is there may be its own.
fn tells_of(text: &str, format: Format, pid: u32) -> bool {
    #[derive(Deserialize)]
    struct Json {
        process: JsonProcess,
        summary: Counts,
        findings: Vec<IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct JsonProcess {
        pid: u32,
    }
    #[derive(Deserialize)]
    struct Counts {
        operations: u64,
    }
    #[derive(Deserialize)]
    struct Sarif {
        runs: [SarifRun; 1],
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SarifRun {
        invocations: [SarifInvocation; 1],
        properties: Counts,
        results: Vec<IgnoredAny>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SarifInvocation {
        process_id: u32,
    }
    match format {
        Format::Json => serde_json::from_str::<Json>(text).is_ok_and(|report| {
            report.process.pid == pid
                && (report.summary.operations > 0 || !report.findings.is_empty())
        }),
        Format::Sarif => serde_json::from_str::<Sarif>(text).is_ok_and(|Sarif { runs: [run] }| {
            run.invocations[0].process_id == pid
                && (run.properties.operations > 0 || !run.results.is_empty())
        }),
        Format::Junit | Format::Html => is_stamped(text, pid),
        Format::Github => !text.is_empty(),
    }
}

/// Whether a file was written since this process began, whatever it has run.
#[must_use]
pub fn is_younger_than_this_process(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|about| about.modified()).ok();
    // One of the future is as good as new.
    let age = age.map(|time| time.elapsed().unwrap_or_default());
    age.zip(age_of_this_process())
        .is_some_and(|(age, since_start)| age <= since_start + CLOCKS_APART)
}

/// How long this process has been there, whatever it has run. `proc_pid_stat(5)`: field 22
/// is its start in ticks since the system's, and Linux tells user space of 100 in a second.
fn age_of_this_process() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in brackets, may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let start: u64 = fields.split(' ').nth(19)?.parse().ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let uptime = Duration::try_from_secs_f64(uptime).ok()?;
    uptime.checked_sub(Duration::from_millis(start.checked_mul(10)?))
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The application may have closed all descriptors that it doesn't know, as
        // daemons do, and have got this number for a file of its own.
        if let Some(file) = self.file.take()
            && identity(&file).ok() != Some(self.identity)
        {
            let _ = file.into_raw_fd();
        }
    }
}

/// Locks a file that was opened at `path`.
fn lock(file: File, path: &Path) -> io::Result<Attempt> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Attempt::Taken),
        Err(TryLockError::Error(_)) => return Ok(Attempt::Unlocked),
    }
    let identity = identity(&file)?;
    let there = fs::metadata(path).map(|about| (about.dev(), about.ino()));
    if there.ok() != Some(identity) {
        return Ok(Attempt::Again);
    }
    Ok(Attempt::Mine(Claim {
        file: Some(file),
        identity,
    }))
}

/// Makes the report where there is none: whole, and locked before it is there.
fn create(path: &Path, pid: u32, text: &str) -> io::Result<Attempt> {
    let beside = beside(path, &pid.to_string());
    let claim = write_locked(&beside, text);
    let linked = claim.and_then(|claim| match fs::hard_link(&beside, path) {
        Ok(()) => Ok(claim.map_or(Attempt::Unlocked, Attempt::Mine)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Attempt::Again),
        // No links on this file system: an empty file for a moment, then.
        Err(_) => match OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
        {
            Ok(file) => lock(file, path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Attempt::Again),
            Err(error) => Err(error),
        },
    });
    // If it isn't there, there is nothing to remove.
    let _ = fs::remove_file(&beside);
    linked
}

/// Writes a file of ours and locks it, if the file system can.
fn write_locked(path: &Path, text: &str) -> io::Result<Option<Claim>> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let locked = file.try_lock().is_ok();
    file.write_all(text.as_bytes())?;
    let identity = identity(&file)?;
    Ok(locked.then_some(Claim {
        file: Some(file),
        identity,
    }))
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let about = file.metadata()?;
    Ok((about.dev(), about.ino()))
}

/// `.name.suffix` in the same directory.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Whether `path` can be claimed, if not at once: a child that another test is just
    /// starting has this process's descriptors until it runs its own program.
    fn becomes_free(path: &Path) -> bool {
        (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            Output::claim(path, Format::Json, 9, "free").is_ok_and(|output| output.path() == path)
        })
    }

    #[test]
    fn a_report_is_there_from_the_start_and_leaves_no_litter() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        let mut output = Output::claim(&path, Format::Json, 1, "none yet").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "none yet");
        output.write("one").unwrap();
        output.write("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        drop(output);
        assert_eq!(names(directory.path()), ["r.json"]);
    }

    #[test]
    fn the_later_process_adds_its_pid() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        let mut first = Output::claim(&path, Format::Json, 1, "1").unwrap();
        let second = Output::claim(&path, Format::Json, 2, "2").unwrap();
        first.write("1 again").unwrap();
        let third = Output::claim(&path, Format::Json, 3, "3").unwrap();
        assert_eq!(first.path().file_name().unwrap(), "r.json");
        assert_eq!(names(directory.path()), ["r.json", "r.json.2", "r.json.3"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1 again");
        assert_eq!(fs::read_to_string(third.path()).unwrap(), "3");
        drop((first, second));
        // An ended process has no claim left.
        assert!(becomes_free(&path));
    }

    #[test]
    fn many_at_once_get_a_file_each() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        let outputs: Vec<_> = std::thread::scope(|scope| {
            let path = &path;
            let threads: Vec<_> = (1..=16)
                .map(|pid| {
                    scope.spawn(move || {
                        let mut output =
                            Output::claim(path, Format::Json, pid, &pid.to_string()).unwrap();
                        output.write(&format!("{pid} done")).unwrap();
                        output
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(names(directory.path()).len(), 16);
        let mut texts: Vec<_> = outputs
            .iter()
            .map(|output| fs::read_to_string(output.path()).unwrap())
            .collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 16);
    }

    #[test]
    fn what_cannot_be_written_is_one_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let problem =
            Output::claim(&directory.path().join("no/r.json"), Format::Json, 1, "").unwrap_err();
        assert!(
            problem
                .text()
                .ends_with("no/r.json cannot be written: No such file or directory"),
            "{problem}"
        );
        let problem = Output::claim(directory.path(), Format::Json, 1, "").unwrap_err();
        assert!(problem.text().ends_with("Is a directory"), "{problem}");
        let problem = Output::claim(Path::new("/dev/null"), Format::Json, 1, "").unwrap_err();
        assert_eq!(
            problem.text(),
            "/dev/null cannot be written: it is not a regular file"
        );
    }

    #[test]
    fn a_killed_writer_leaves_no_claim() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        fs::write(&path, "old").unwrap();
        let ready = directory.path().join("ready");
        let mut writer = std::process::Command::new("flock")
            .args(["--exclusive", "--no-fork"])
            .arg(&path)
            .args(["sh", "-c", "touch \"$0\"; exec sleep 600"])
            .arg(&ready)
            .spawn()
            .expect("util-linux's flock");
        while !ready.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let second = Output::claim(&path, Format::Json, 2, "2").unwrap();
        assert_eq!(second.path().file_name().unwrap(), "r.json.2");
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(becomes_free(&path));
    }

    #[test]
    fn a_descriptor_that_became_the_applications_stays_open() {
        use std::os::fd::AsRawFd;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("theirs");
        fs::write(&path, "").unwrap();
        let open = |number: i32| fs::read_link(format!("/proc/self/fd/{number}")).ok();
        let file = File::open(&path).unwrap();
        let (number, own) = (file.as_raw_fd(), identity(&file).unwrap());
        let claim = |file, identity| Claim {
            file: Some(file),
            identity,
        };
        drop(claim(file, (own.0, own.1.wrapping_add(1))));
        assert_eq!(open(number), Some(path.clone()));
        let file = File::open(&path).unwrap();
        let number = file.as_raw_fd();
        drop(claim(file, own));
        assert_ne!(open(number), Some(path));
    }

    #[test]
    fn a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        fs::write(&target, "old").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        Output::claim(&link, Format::Json, 1, "new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_link_to_nothing_yet_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        write_once(&link, "once").unwrap();
        assert_eq!(names(directory.path()), ["link", "target"]);
        fs::remove_file(directory.path().join("target")).unwrap();
        Output::claim(&link, Format::Json, 1, "claimed").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&link).unwrap(), "claimed");
    }

    #[test]
    fn what_is_written_once_replaces_files_alone() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        fs::write(&target, "old").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_once(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");

        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read_to_string(&pipe));
            write_once(&pipe, "through").unwrap();
            reader.join().unwrap().unwrap()
        });
        assert_eq!(read, "through");
        assert!(is_special(&pipe) && !is_special(&target));
        assert_eq!(names(directory.path()), ["link", "pipe", "target"]);

        let problem = write_once(directory.path(), "x").unwrap_err();
        assert!(problem.text().ends_with("Is a directory"), "{problem}");
    }

    #[test]
    fn a_later_image_of_a_process_adds_its_pid_and_a_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        let report = |pid: u32, operations: u64| {
            format!(
                "{{\"process\": {{\"pid\": {pid}}}, \"summary\": {{\"operations\": {operations}}}, \
                 \"findings\": []}}"
            )
        };
        let claim = |pid| {
            let output = Output::claim(&path, Format::Json, pid, &report(pid, 0)).unwrap();
            output.path().file_name().unwrap().to_owned()
        };
        // One that saw nothing is no loss, and nor is another process's.
        for old in [report(7, 0), report(8, 5)] {
            fs::write(&path, old).unwrap();
            assert_eq!(claim(7), "r.json");
        }
        fs::write(&path, report(7, 5)).unwrap();
        assert_eq!(claim(7), "r.json.7");
        fs::write(directory.path().join("r.json.7"), report(7, 6)).unwrap();
        assert_eq!(claim(7), "r.json.7-2");
        assert_eq!(fs::read_to_string(&path).unwrap(), report(7, 5));
        // A number is given again, in a container to each run: older than the process.
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(hour_ago).unwrap();
        drop(file);
        assert!(age_of_this_process().unwrap() < Duration::from_secs(3600));
        assert_eq!(claim(7), "r.json");
    }

    #[test]
    fn an_earlier_image_is_known_in_every_form() {
        let context = crate::places::tests::context();
        let process = crate::json::tests::process();
        let full = crate::json::tests::report();
        let empty = crate::json::Report::new(&process);
        for format in Format::ALL {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("r");
            let claimed = |report| {
                fs::write(&path, format.render(report, &context)).unwrap();
                let output = Output::claim(&path, format, process.pid, "").unwrap();
                output.path() == path
            };
            assert!(claimed(&empty), "{format:?}: nothing is lost");
            assert!(!claimed(&full), "{format:?}: the earlier one stays");
        }
    }
}
