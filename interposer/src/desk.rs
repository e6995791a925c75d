//! Where findings become text and files. It has a lock of its own, so that while a
//! stack is symbolized other threads go on recording.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use streamcheck_engine::Summary;
use streamcheck_report::{Process, Reporter, Settings, Symbolizer, modules_of_this_process};

use crate::recorder::{self, News};
use crate::{life, objects, stderr};

struct Desk {
    reporter: Reporter,
    symbolizer: Symbolizer,
    generation: Option<(u64, u64)>,
    halt: bool,
    exit_code: u8,
    /// What was said of files that cannot be written, so that it is said once.
    told: HashSet<String>,
}

static DESK: Mutex<Option<Desk>> = Mutex::new(None);

/// Opens the desk of this process.
pub(crate) fn open(settings: Settings, process: Process) {
    let (halt, exit_code) = (settings.halt, settings.exit_code);
    if let Some(json) = &settings.json {
        tracing::info!("the report goes to {}", json.expand(&process).display());
    }
    let (reporter, problems) = Reporter::lenient(settings, process);
    for problem in problems {
        stderr::line(problem.text());
    }
    if let Ok(mut desk) = DESK.lock() {
        *desk = Some(Desk {
            reporter,
            symbolizer: Symbolizer::new(Vec::new()),
            generation: None,
            halt,
            exit_code,
            told: HashSet::new(),
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
            let frames = symbolizer.frames(addresses);
            recorder::trace_frames(stack, &frames);
            frames
        });
        if let Some(text) = added.text {
            stderr::text(&text);
        }
        stop |= added.fails_gate && desk.halt;
    }
    desk.write_files(&news.summary, &news.counts);
    if stop {
        let code = desk.exit_code;
        drop(guard);
        life::halt(code);
    }
}

impl Desk {
    fn write_files(&mut self, summary: &Summary, counts: &[u64]) {
        for problem in self.reporter.write_files(summary, counts) {
            if self.told.insert(problem.text().to_owned()) {
                stderr::line(problem.text());
            }
        }
    }
}

/// Writes the last reports and the summary. The exit code, if the gate failed.
pub(crate) fn close(summary: &Summary, counts: &[u64]) -> Option<u8> {
    let mut guard = recorder::patient_lock(&DESK)?;
    let desk = guard.as_mut()?;
    desk.write_files(summary, counts);
    // `streamcheck run` sums up for all of its processes.
    if std::env::var_os("STREAMCHECK_RUN_ID").is_none() {
        stderr::text(&desk.reporter.closing(summary, counts));
    }
    desk.reporter.gate_failed().then_some(desk.exit_code)
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
}
