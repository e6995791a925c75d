//! Signs of life, for a person at a terminal only.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use crate::output;

/// Shorter work shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// How far the reading of a file is.
pub(crate) struct Reading {
    bar: ProgressBar,
    began: Instant,
    shown: bool,
}

impl Reading {
    /// Begins with a file of `bytes` bytes.
    pub(crate) fn new(name: &str, bytes: u64) -> Self {
        // Hidden for now, so that short work leaves no trace.
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("streamcheck: {msg}: {percent} %, {eta} left")
            .expect("the template is well formed");
        bar.set_style(style);
        bar.set_message(format!("replaying {name}"));
        Self {
            bar,
            began: Instant::now(),
            shown: false,
        }
    }

    /// `bytes` were read so far.
    pub(crate) fn at(&mut self, bytes: u64) {
        if !self.shown {
            if self.began.elapsed() < PATIENCE {
                return;
            }
            self.shown = true;
            // Draws nothing unless standard error is a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(bytes);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// When a run says that it goes on: after so many seconds, then every ten minutes.
const SIGNS: [u64; 5] = [10, 30, 60, 120, 300];

/// The signs of life of a run. They are whole lines: the application writes to the same
/// terminal, where a line that is drawn anew would run into its own.
pub(crate) struct Running {
    given: usize,
}

impl Running {
    /// `None` if nobody looks: standard error is no terminal.
    pub(crate) fn new() -> Option<Self> {
        io::stderr().is_terminal().then_some(Self { given: 0 })
    }

    /// How long after the run's start the next sign is due.
    pub(crate) fn due(&self) -> Duration {
        let later = || 600 * (self.given + 1 - SIGNS.len()) as u64;
        Duration::from_secs(SIGNS.get(self.given).copied().unwrap_or_else(later))
    }

    /// Gives the sign that is due. A process in the background keeps quiet.
    pub(crate) fn give(&mut self, findings: usize) {
        let due = self.due().as_secs();
        self.given += 1;
        if tcgetpgrp(io::stderr()).is_ok_and(|front| front != getpgrp()) {
            return;
        }
        let time = if due < 60 {
            format!("{due} s")
        } else {
            format!("{} min", due / 60)
        };
        let found = match findings {
            0 => "no findings".to_owned(),
            1 => "1 finding".to_owned(),
            _ => format!("{findings} findings"),
        };
        output::say(&format!("running for {time}, {found} so far"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_grow_rarer() {
        let due: Vec<u64> = (0..8)
            .map(|given| Running { given }.due().as_secs())
            .collect();
        assert_eq!(due, [10, 30, 60, 120, 300, 600, 1200, 1800]);
    }
}
