//! Findings known from an earlier report.
//!
//! A finding is the same one if its rule is, and its calls come from the same
//! functions of the same files: addresses change from run to run, and lines with every
//! edit. Of several that are alike, as many are known as the earlier report holds.

use std::collections::HashMap;
use std::path::Path;

use crate::json::{Event, Finding, Report};
use crate::{Frame, Problem};

/// The findings of an earlier report.
#[derive(Debug, Default)]
pub struct Baseline {
    /// How many of each are not yet matched.
    left: HashMap<String, u64>,
}

impl Baseline {
    /// Reads the report at `path`.
    ///
    /// # Errors
    /// As [`Report::read`].
    pub fn read(path: &Path) -> Result<Self, Problem> {
        Report::read(path).map(|report| Self::new(&report))
    }

    /// The findings of `report`.
    #[must_use]
    pub fn new(report: &Report) -> Self {
        let mut left = HashMap::new();
        // A suppressed one has its own excuse, which may expire.
        let excused = |finding: &&Finding| finding.suppressed.is_none();
        for finding in report.findings.iter().filter(excused) {
            *left.entry(key(finding)).or_default() += 1;
        }
        Self { left }
    }

    /// Whether a finding is known. Each of the earlier findings makes one known.
    pub fn knows(&mut self, finding: &Finding) -> bool {
        match self.left.get_mut(&key(finding)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }
}

/// What stays the same from run to run.
pub(crate) fn key(finding: &Finding) -> String {
    let mut key = finding.rule.clone();
    for event in &finding.events {
        let Event {
            role,
            api,
            kernel,
            stack,
            ..
        } = event;
        let place = stack.first().map(Frame::place);
        key.push_str(&format!("\n{role:?} {api} {kernel:?} {place:?}"));
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tests::{finding, frame, process};

    fn at(function: &str, file: &str, line: u32) -> Finding {
        let stacks = vec![
            vec![frame(function, file, line)],
            vec![frame("main", "/a/m.cu", line)],
        ];
        Finding::new(finding(), stacks)
    }

    #[test]
    fn lines_and_addresses_may_change() {
        let mut report = Report::new(&process());
        report.findings = vec![at("f", "/a/x.cu", 1)];
        let mut moved = at("f", "/b/x.cu", 99);
        moved.allocation.as_mut().unwrap().address = "0x1".to_owned();
        moved.events[0].stream = Some("stream 9 (0x1)".to_owned());
        moved.events[0].stack[0].offset = Some(7);
        assert!(Baseline::new(&report).knows(&moved));
    }

    #[test]
    fn other_rules_functions_and_kernels_are_news() {
        let mut report = Report::new(&process());
        report.findings = vec![at("f", "/a/x.cu", 1)];
        let mut rule = at("f", "/a/x.cu", 1);
        rule.rule = "SC102".to_owned();
        let mut kernel = at("f", "/a/x.cu", 1);
        kernel.events[1].kernel = Some("other()".to_owned());
        for news in [rule, kernel, at("g", "/a/x.cu", 1), at("f", "/a/y.cu", 1)] {
            assert!(!Baseline::new(&report).knows(&news), "{news:?}");
        }
    }

    #[test]
    fn a_suppression_that_goes_leaves_no_known_finding() {
        let mut report = Report::new(&process());
        report.findings = vec![at("f", "/a/x.cu", 1)];
        report.findings[0].suppressed = Some("until May".to_owned());
        assert!(!Baseline::new(&report).knows(&at("f", "/a/x.cu", 1)));
    }

    #[test]
    fn one_known_finding_does_not_excuse_two() {
        let mut report = Report::new(&process());
        report.findings = vec![at("f", "/a/x.cu", 1)];
        let mut baseline = Baseline::new(&report);
        assert!(baseline.knows(&at("f", "/a/x.cu", 5)));
        assert!(!baseline.knows(&at("f", "/a/x.cu", 6)));
    }
}
