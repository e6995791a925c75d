//! Where findings become text and files. It has a lock of its own, so that while a
//! stack is symbolized other threads go on recording.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use streamcheck_engine::Summary;
use streamcheck_report::{Process, Reporter, Settings, Symbolizer, modules_of_this_process};

use crate::pace::Pace;
use crate::recorder::{self, News};
use crate::{call, life, objects, stderr};

struct Desk {
    reporter: Reporter,
    symbolizer: Symbolizer,
    generation: Option<(u64, u64)>,
    halt: bool,
    exit_code: u8,
    /// How many findings were told.
    told_findings: usize,
    /// How many there were when the summary was told, if it was.
    summed_up: Option<usize>,
    /// What was said of files that cannot be written, so that it is said once.
    told: HashSet<String>,
    /// What the newest finding came with, should the recorder not answer at exit.
    last: Option<(Summary, Vec<u64>)>,
    /// What the files were last written with, if they could be.
    written: Option<(Summary, Vec<u64>)>,
    pace: Pace,
}

static DESK: Mutex<Option<Desk>> = Mutex::new(None);

/// The exit code above a set bit once the gate has failed. Beside the lock, so that
/// whoever ends the process can read it, whatever has become of the desk.
static VERDICT: AtomicU32 = AtomicU32::new(0);
const FAILED: u32 = 1 << 8;

/// Whether findings wait to be written to the files.
static OWED: AtomicBool = AtomicBool::new(false);

/// The exit code, if the gate failed.
pub(crate) fn verdict() -> Option<u8> {
    let verdict = VERDICT.load(Relaxed);
    (verdict & FAILED != 0).then_some(verdict as u8)
}

/// Opens the desk of this process.
pub(crate) fn open(settings: Settings, process: Process) {
    let (halt, exit_code) = (settings.halt, settings.exit_code);
    for (format, place) in settings.reports() {
        let path = place.expand(&process);
        tracing::info!("the {} report goes to {}", format.label(), path.display());
    }
    let (reporter, problems) = Reporter::lenient(settings, process);
    // Nobody waits for the report of a process that has outlived its run.
    for problem in problems.iter().filter(|_| !outlives_its_run()) {
        stderr::line(problem.text());
    }
    if let Ok(mut desk) = DESK.lock() {
        *desk = Some(Desk {
            reporter,
            symbolizer: Symbolizer::new(Vec::new()),
            generation: None,
            halt,
            exit_code,
            told_findings: 0,
            summed_up: None,
            told: HashSet::new(),
            last: None,
            written: None,
            pace: Pace::default(),
        });
    }
}

/// Tells of new findings, and ends the process if they are to.
pub(crate) fn tell(news: News) {
    let Ok(mut guard) = DESK.lock() else {
        recorder::give_up("an internal lock is poisoned");
        return;
    };
    let Some(desk) = guard.as_mut() else { return };
    if desk.take(news) {
        let code = desk.exit_code;
        drop(guard);
        life::halt(code);
    }
}

/// Whether findings wait to be written to the files.
#[inline]
pub(crate) fn owes() -> bool {
    OWED.load(Relaxed)
}

/// Writes the findings that wait for it, if it is time and nobody is at the desk.
#[cold]
pub(crate) fn catch_up() {
    if let Ok(mut guard) = DESK.try_lock()
        && let Some(desk) = guard.as_mut()
    {
        desk.write_what_is_owed();
    }
}

/// Tells of what the end of the process shows.
pub(crate) fn tell_last(news: News) {
    if let Some(mut guard) = recorder::patient_lock(&DESK, Duration::from_secs(10))
        && let Some(desk) = guard.as_mut()
    {
        desk.take(news);
    }
}

/// Names the run that a process is a part of.
const RUN_ID: &str = "STREAMCHECK_RUN_ID";

/// Whether the `streamcheck run` that this process is a part of has ended: the folder for
/// its processes' reports is gone.
fn outlives_its_run() -> bool {
    std::env::var_os(RUN_ID).is_some()
        && std::env::var_os("STREAMCHECK_JSON").is_some_and(|path| {
            let folder = std::path::Path::new(&path).parent();
            folder.is_some_and(|folder| !folder.exists())
        })
}

impl Desk {
    /// Takes new findings in. True if the process is to end with them.
    fn take(&mut self, news: News) -> bool {
        let desk = self;
        let generation = objects::generation();
        if desk.generation != Some(generation) {
            desk.generation = Some(generation);
            desk.symbolizer.set_modules(modules_of_this_process());
        }
        let mut stop = false;
        for finding in news.findings {
            let Desk {
                reporter,
                symbolizer,
                ..
            } = desk;
            let added = reporter.add(finding, &mut |stack| {
                let addresses = news
                    .stacks
                    .get(&stack)
                    .map_or(&[][..], |addresses| addresses);
                // Without what its stacks mean a finding is still one.
                let frames = call::guarded(|| {
                    symbolizer
                        .frames_with(addresses, |address| news.interpreted.get(&address).cloned())
                })
                .unwrap_or_default();
                recorder::trace_frames(stack, &frames);
                frames
            });
            if added.fails_gate {
                VERDICT.store(FAILED | u32::from(desk.exit_code), Relaxed);
            }
            if let Some(text) = added.text {
                desk.told_findings += 1;
                stderr::text(&text);
            }
            stop |= added.fails_gate && desk.halt;
        }
        desk.last = Some((news.summary, news.counts));
        OWED.store(true, Relaxed);
        desk.write_what_is_owed();
        stop
    }

    /// Writes the findings that wait for it, unless that was done just now.
    fn write_what_is_owed(&mut self) {
        if OWED.load(Relaxed)
            && self.pace.is_due(Instant::now())
            && let Some((summary, counts)) = self.last.take()
        {
            self.write_files(&summary, &counts);
            self.last = Some((summary, counts));
        }
    }

    /// Tells the summary, unless someone else does.
    fn sum_up(&mut self, summary: &Summary, counts: &[u64]) -> bool {
        // `streamcheck run` sums up for all of its processes.
        if std::env::var_os(RUN_ID).is_some() && !outlives_its_run() {
            return false;
        }
        self.summed_up = Some(self.told_findings);
        stderr::text(&self.reporter.closing(summary, counts));
        true
    }

    /// Whether the files hold all this.
    fn has_written(&self, summary: &Summary, counts: &[u64]) -> bool {
        let written = self.written.as_ref();
        !owes() && written.is_some_and(|(s, c)| s == summary && c == counts)
    }

    fn write_files(&mut self, summary: &Summary, counts: &[u64]) {
        OWED.store(false, Relaxed);
        let begin = Instant::now();
        let problems = self.reporter.write_files(summary, counts);
        self.written = problems
            .is_empty()
            .then(|| (summary.clone(), counts.to_vec()));
        for problem in problems {
            if self.told.insert(problem.text().to_owned()) && !outlives_its_run() {
                stderr::line(problem.text());
            }
        }
        let end = Instant::now();
        self.pace.wrote(end - begin, end);
    }
}

/// Writes the last reports and the summary, from the last finding's news if there
/// are no newer.
pub(crate) fn close(news: Option<(Summary, Vec<u64>)>) {
    // A thread with much to symbolize takes its time.
    let Some(mut guard) = recorder::patient_lock(&DESK, Duration::from_secs(10)) else {
        stderr::line("a finding is still being worked out; the summary is left out");
        return;
    };
    let Some(desk) = guard.as_mut() else { return };
    let Some((summary, counts)) = news.or_else(|| desk.last.take()) else {
        return;
    };
    desk.write_files(&summary, &counts);
    // What was said before a program that could not be run is not said again.
    if desk.summed_up != Some(desk.told_findings) {
        desk.sum_up(&summary, &counts);
    }
}

/// Brings the reports up to date with what has repeated itself since the last finding.
pub(crate) fn update(news: Option<(Summary, Vec<u64>)>) {
    let Some(mut guard) = recorder::patient_lock(&DESK, Duration::from_secs(10)) else {
        return;
    };
    if let (Some(desk), Some((summary, counts))) = (guard.as_mut(), news) {
        desk.write_files(&summary, &counts);
    }
}

/// Another program is about to take the process over. As most that do this are shells
/// and launchers, nothing is said unless something was found.
pub(crate) fn image_goes(news: Option<(Summary, Vec<u64>)>) {
    let Some(mut guard) = recorder::patient_lock(&DESK, Duration::from_secs(10)) else {
        return;
    };
    let Some(desk) = guard.as_mut() else { return };
    let Some((summary, counts)) = news else {
        return;
    };
    // A program that cannot be run may be tried again and again.
    if !desk.has_written(&summary, &counts) {
        desk.write_files(&summary, &counts);
    }
    if desk.told_findings == 0 || desk.summed_up == Some(desk.told_findings) {
        return;
    }
    if desk.sum_up(&summary, &counts) && verdict().is_some() {
        stderr::line(
            "the process goes on as another program and ends with that one's exit code, \
             although the gate failed; under `streamcheck run` the verdict stands",
        );
    }
}

/// The desk's guard while a process forks.
pub(crate) struct ForkGuard(Option<MutexGuard<'static, Option<Desk>>>);

pub(crate) fn before_fork() -> ForkGuard {
    ForkGuard(DESK.lock().ok())
}

pub(crate) fn fresh_after_fork(guard: ForkGuard) {
    if let Some(mut desk) = guard.0 {
        core::mem::forget(desk.take());
    }
    VERDICT.store(0, Relaxed);
    OWED.store(false, Relaxed);
}
