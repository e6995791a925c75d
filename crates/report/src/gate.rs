//! What a team accepts, applied to findings: levels, suppressions, a baseline.

use streamcheck_engine::{Level, RuleCode};

use crate::baseline::Baseline;
use crate::json::{Finding, Report};
use crate::suppressions::Suppressions;
use crate::{Problem, Settings};

/// The files that the settings name, read.
#[derive(Debug, Default)]
pub struct Gate {
    levels: Vec<(RuleCode, Level)>,
    suppressions: Suppressions,
    baseline: Baseline,
}

impl Gate {
    /// Reads what the settings name.
    ///
    /// # Errors
    /// All that is wrong with the files.
    pub fn read(settings: &Settings) -> Result<Self, Vec<Problem>> {
        match Self::lenient(settings) {
            (gate, problems) if problems.is_empty() => Ok(gate),
            (_, problems) => Err(problems),
        }
    }

    /// As [`Gate::read`], but does without the files that are not as they should be.
    #[must_use]
    pub fn lenient(settings: &Settings) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let suppressions = match settings.suppressions.as_deref().map(Suppressions::read) {
            Some(Ok(suppressions)) => suppressions,
            Some(Err(wrong)) => {
                problems.extend(wrong);
                Suppressions::default()
            }
            None => Suppressions::default(),
        };
        let baseline = match settings.baseline.as_deref().map(Baseline::read) {
            Some(Ok(baseline)) => baseline,
            Some(Err(wrong)) => {
                problems.push(wrong);
                Baseline::default()
            }
            None => Baseline::default(),
        };
        let gate = Self {
            levels: settings.given_levels.clone(),
            suppressions,
            baseline,
        };
        (gate, problems)
    }

    /// The reason for which a new finding is suppressed, if it is.
    pub(crate) fn reason(&mut self, finding: &Finding) -> Option<String> {
        self.suppressions.reason(finding)
    }

    /// Whether the baseline knows a new finding.
    pub(crate) fn knows(&mut self, finding: &Finding) -> bool {
        self.baseline.knows(finding)
    }

    /// Judges a report that was made elsewhere: what was suppressed or known there stays so,
    /// findings of rules that are off go, and levels that were given replace the report's.
    pub fn judge(&mut self, report: &mut Report) {
        let levels = &self.levels;
        report.findings.retain_mut(|finding| {
            let given = levels
                .iter()
                .rfind(|(rule, _)| rule.to_string() == finding.rule);
            match given {
                Some((_, Level::Off)) => return false,
                Some((_, level)) => finding.level = level.label().to_owned(),
                None => {}
            }
            true
        });
        for finding in &mut report.findings {
            if finding.suppressed.is_some() {
                self.suppressions.recognize(finding);
            } else {
                finding.suppressed = self.suppressions.reason(finding);
            }
            // A finding that is known already uses its place in the baseline all the same.
            finding.baseline =
                finding.suppressed.is_none() && (self.baseline.knows(finding) | finding.baseline);
        }
        report.count_findings();
    }

    /// A line for each suppression that was not used, or no longer applies.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.suppressions.remarks()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::json::tests::report;

    /// Settings with files of these contents.
    fn settings(suppressions: &str, baseline: Option<&Report>) -> (tempfile::TempDir, Settings) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("s.toml"), suppressions).unwrap();
        let mut settings = Settings {
            suppressions: Some(path("s.toml")),
            ..Settings::default()
        };
        if let Some(report) = baseline {
            fs::write(path("b.json"), report.to_text()).unwrap();
            settings.baseline = Some(path("b.json"));
        }
        (folder, settings)
    }

    #[test]
    fn levels_that_were_given_replace_the_reports() {
        let (_folder, mut settings) = settings("", None);
        settings.given_levels = vec![
            (RuleCode::SC101, Level::Off),
            (RuleCode::SC101, Level::Warning),
            (RuleCode::SC103, Level::Off),
        ];
        let mut mixed = report();
        let mut other = mixed.findings[0].clone();
        other.rule = "SC103".to_owned();
        mixed.findings.push(other.clone());
        other.rule = "SC777".to_owned();
        mixed.findings.push(other);
        Gate::read(&settings).unwrap().judge(&mut mixed);
        let left: Vec<_> = mixed
            .findings
            .iter()
            .map(|f| (&*f.rule, &*f.level))
            .collect();
        assert_eq!(left, [("SC101", "warning"), ("SC777", "error")]);
        assert_eq!((mixed.summary.errors, mixed.summary.warnings), (1, 1));
    }

    #[test]
    fn what_was_accepted_stays_so_and_more_is() {
        let entries = "[[suppress]]\nrule = 'SC103'\nreason = 'here'\n\
                       [[suppress]]\nrule = 'SC112'\nreason = 'there'\n\
                       [[suppress]]\nrule = 'SC109'\nreason = 'unused'\n\
                       [[suppress]]\nrule = 'SC101'\nreason = 'old'\nexpires = 2020-01-01\n";
        let known = report();
        let (_folder, settings) = settings(entries, Some(&known));
        let mut judged = report();
        let first = judged.findings[0].clone();
        judged.findings.push(first.clone());
        for (rule, suppressed) in [("SC103", None), ("SC112", Some("there".to_owned()))] {
            judged.findings.push(Finding {
                rule: rule.to_owned(),
                suppressed,
                ..first.clone()
            });
        }
        let mut gate = Gate::read(&settings).unwrap();
        gate.judge(&mut judged);
        let said: Vec<_> = judged
            .findings
            .iter()
            .map(|finding| (finding.suppressed.as_deref(), finding.baseline))
            .collect();
        // One known finding makes one known, and an expired entry nothing.
        let wanted = [
            (None, true),
            (None, false),
            (Some("here"), false),
            (Some("there"), false),
        ];
        assert_eq!(said, wanted);
        let remarks = gate.remarks();
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert!(
            remarks[0].contains("matched nothing (unused)"),
            "{remarks:?}"
        );
        assert!(remarks[1].contains("expired on 2020-01-01"), "{remarks:?}");
    }

    #[test]
    fn a_marked_finding_uses_its_place_in_the_baseline() {
        let (_folder, settings) = settings("", Some(&report()));
        let mut judged = report();
        judged.findings[0].baseline = true;
        judged.findings.push(report().findings.remove(0));
        Gate::read(&settings).unwrap().judge(&mut judged);
        let marks: Vec<_> = judged.findings.iter().map(|f| f.baseline).collect();
        assert_eq!(marks, [true, false]);
    }
}
