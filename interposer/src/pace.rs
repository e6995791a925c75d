//! When the report files are written. Each new finding calls for it, as a process that is
//! killed loses what is not in its files. But each time all findings are written, so that
//! thousands of them would hold the program up for ever.

use std::time::{Duration, Instant};

/// What the files may take of the program's time before they have to rest.
const AT_ONCE: Duration = Duration::from_secs(2);

/// After that the files wait this many times as long as it took to write them last.
const REST: u32 = 4;

/// How much was written so far, and when.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    spent: Duration,
    rests_until: Option<Instant>,
}

impl Pace {
    /// Whether the files are to be written now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.spent < AT_ONCE || self.rests_until.is_none_or(|until| until <= now)
    }

    /// Tells that they were written, which took some time and has ended now.
    pub(crate) fn wrote(&mut self, took: Duration, now: Instant) {
        self.spent = self.spent.saturating_add(took);
        self.rests_until = now.checked_add(took.saturating_mul(REST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_findings_take_a_part_of_the_time() {
        const TAKES: Duration = Duration::from_millis(100);
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..20 {
            assert!(pace.is_due(now));
            pace.wrote(TAKES, now);
        }
        // A finding each millisecond, for a minute.
        let mut writing = Duration::ZERO;
        let begin = now;
        while now < begin + Duration::from_secs(60) {
            now += Duration::from_millis(1);
            if pace.is_due(now) {
                now += TAKES;
                pace.wrote(TAKES, now);
                writing += TAKES;
            }
        }
        assert!(writing > Duration::from_secs(10), "{writing:?}");
        assert!(writing <= Duration::from_secs(13), "{writing:?}");
    }

    #[test]
    fn a_write_of_any_length_is_outlived() {
        let mut pace = Pace::default();
        let now = Instant::now();
        for _ in 0..2 {
            pace.wrote(Duration::MAX, now);
        }
        assert!(pace.is_due(now));
    }
}
