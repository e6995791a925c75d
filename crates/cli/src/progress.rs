//! Signs of life, for a person at a terminal only.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
