//! JUnit XML, for the test pages of CI systems.
//!
//! A suite is a process, a test case a finding. What fails the gate is a failure; what does
//! not has passed, with the finding as its output; what somebody accepted is skipped. A
//! process without findings has one case that passed, so that the check can be seen to have
//! been made. Names hold no lines and no process numbers: they are the same in the next run.
//! No element or attribute is beyond the schema of Jenkins' xUnit plugin, the strictest
//! reader; where a finding is made stands in its text.

use std::collections::HashMap;
use std::path::Path;

use quick_junit as junit;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use crate::json::{Finding, ProcessFacts, Report};
use crate::places::{Source, call, pointed_at, sentences, source_line};
use crate::text::clean;
use crate::{Context, Frame, rule_url};

/// The longest text of a name.
const LONGEST_NAME: usize = 200;

/// Frames of a call's stack that are told.
const FRAMES: usize = 16;

/// The report as a whole file.
pub(crate) fn suites(report: &Report, context: &Context) -> String {
    let mut out = junit::Report::new("streamcheck");
    let mut names = Names::default();
    let processes = report.watched();
    for (place, process) in processes.iter().enumerate() {
        let name = names.unique(suite_name(process));
        let mut suite = TestSuite::new(xml(&name));
        suite
            .extra
            .insert("hostname".into(), xml(&process.host).into());
        suite.add_property(("pid", &*process.pid.to_string()));
        suite.add_property(("command", &*xml(&process.argv.join(" "))));
        let findings: Vec<&Finding> = report
            .findings
            .iter()
            .filter(|finding| finding.process.unwrap_or(0).min(processes.len() - 1) == place)
            .collect();
        if findings.is_empty() {
            suite.add_test_case(without_findings(report, &name));
        }
        let mut names = Names::default();
        for finding in findings {
            suite.add_test_case(case(finding, context, &mut names));
        }
        out.add_test_suite(suite);
    }
    let skipped = out
        .test_suites
        .iter()
        .map(|suite| suite.skipped)
        .sum::<usize>();
    // The schema has no such attribute of all suites together.
    let mut text =
        out.to_string()
            .unwrap_or_default()
            .replacen(&format!(" skipped=\"{skipped}\""), "", 1);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// `train`, `train on rank 3`.
fn suite_name(process: &ProcessFacts) -> String {
    let exe = Path::new(&process.exe).file_name().unwrap_or_default();
    let exe = exe.to_string_lossy();
    match process.rank {
        Some(rank) => format!("{exe} on rank {rank}"),
        None => exe.into_owned(),
    }
}

/// The one case of a process in which nothing was found.
fn without_findings(report: &Report, suite: &str) -> TestCase {
    let mut status = TestCaseStatus::success();
    // What was not checked has not passed.
    if report.summary.operations == 0 {
        status = TestCaseStatus::skipped();
        status.set_message("no CUDA call was seen, so nothing was checked");
    }
    let mut case = TestCase::new("no findings", status);
    case.set_classname(class(suite));
    case
}

fn case(finding: &Finding, context: &Context, names: &mut Names) -> TestCase {
    let mut output = None;
    let status = match &finding.suppressed {
        Some(reason) => skipped(&format!("suppressed: {reason}")),
        None if finding.baseline => skipped("in the baseline"),
        None if finding.fails(context.fail_on) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(xml(&finding.message));
            status.set_type(xml(&format!("{} {}", finding.level, finding.name)));
            status.set_description(xml(&story(finding, context)));
            status
        }
        None => {
            output = Some(story(finding, context));
            TestCaseStatus::success()
        }
    };
    let mut title = format!("{} {}", finding.rule, finding.name);
    let at = pointed_at(finding, context).or_else(|| {
        let event = finding.events.last()?;
        Some((event, event.stack.first()?))
    });
    if let Some((event, frame)) = at {
        if let Some(kernel) = &event.kernel {
            title.push_str(&format!(", kernel {}", clean(kernel, LONGEST_NAME)));
        }
        title.push_str(&format!(", {}", clean(&frame.place(), LONGEST_NAME)));
    }
    let mut case = TestCase::new(xml(&names.unique(title)), status);
    case.set_classname(class(&finding.rule));
    if let Some(output) = output {
        case.set_system_out(xml(&output));
    }
    case
}

fn skipped(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(xml(&clean(why, 1000)));
    status
}

/// Dots make packages.
fn class(name: &str) -> String {
    xml(&format!("streamcheck.{}", name.replace('.', "_")))
}

/// A finding for a person, in lines.
fn story(finding: &Finding, context: &Context) -> String {
    let mut lines = sentences(finding);
    for event in &finding.events {
        lines.push(String::new());
        lines.push(call(event));
        lines.extend(
            event
                .stack
                .iter()
                .take(FRAMES)
                .map(|frame| format!("  {}", frame_line(frame, context))),
        );
    }
    lines.push(String::new());
    lines.push(rule_url(&clean(&finding.rule, 40)));
    lines.join("\n")
}

/// `main at src/a.cu:12`.
fn frame_line(frame: &Frame, context: &Context) -> String {
    let function = frame.function.as_deref().unwrap_or("?");
    let function = clean(function, LONGEST_NAME);
    match source_line(frame) {
        Some((file, line)) => {
            let path = match context.source(file) {
                Source::Inside(path) | Source::Outside(path) => path,
            };
            format!("{function} at {}:{line}", path.display())
        }
        None => format!("{function} in {}", frame.module.as_deref().unwrap_or("?")),
    }
}

/// Text without the characters that XML cannot hold in any spelling, beside those that
/// quick-junit takes out itself.
fn xml(text: &str) -> String {
    text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

/// Names that were given, so that none is given twice.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    fn unique(&mut self, name: String) -> String {
        let number = self.0.entry(name.clone()).or_default();
        *number += 1;
        match *number {
            1 => name,
            number => format!("{name} ({number})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailOn;
    use crate::json::tests::report;
    use crate::places::tests::context;

    #[test]
    fn a_finding_is_a_failure_with_its_story() {
        insta::assert_snapshot!(suites(&report(), &context()));
    }

    #[test]
    fn what_does_not_fail_the_gate_passes_and_what_is_accepted_is_skipped() {
        let mut mixed = report();
        let error = mixed.findings.remove(0);
        let with = |change: fn(&mut Finding)| {
            let mut finding = error.clone();
            change(&mut finding);
            finding
        };
        mixed.findings = vec![
            with(|_| {}),
            with(|finding| finding.level = "warning".to_owned()),
            with(|finding| finding.suppressed = Some("known & fine".to_owned())),
            with(|finding| finding.baseline = true),
        ];
        let counts = |fail_on| {
            let context = Context {
                fail_on,
                ..context()
            };
            let text = suites(&mixed, &context);
            let count = |what: &str| text.matches(what).count();
            assert!(
                text.contains("message=\"suppressed: known &amp; fine\""),
                "{text}"
            );
            [
                count("<failure "),
                count("<skipped "),
                count("<system-out>"),
            ]
        };
        assert_eq!(counts(FailOn::Error), [1, 2, 1]);
        assert_eq!(counts(FailOn::Warning), [2, 2, 0]);
        assert_eq!(counts(FailOn::Never), [0, 2, 2]);
    }

    #[test]
    fn a_clean_process_shows_and_an_unchecked_one_has_not_passed() {
        let mut clean = report();
        clean.findings.clear();
        let text = suites(&clean, &context());
        assert!(
            text.contains("name=\"no findings\" classname=\"streamcheck.train\""),
            "{text}"
        );
        assert!(!text.contains("<skipped"), "{text}");
        clean.summary = crate::json::Summary::default();
        assert!(suites(&clean, &context()).contains("<skipped message=\"no CUDA call"));
    }

    #[test]
    fn each_process_has_a_suite_by_name_and_rank() {
        let mut merged = report();
        let ranked = |rank| ProcessFacts {
            rank,
            ..report().process
        };
        merged.processes = vec![ranked(Some(0)), ranked(Some(1)), ranked(None), ranked(None)];
        merged.findings[0].process = Some(1);
        let text = suites(&merged, &context());
        for name in ["train on rank 0", "train on rank 1", "train", "train (2)"] {
            assert!(
                text.contains(&format!("<testsuite name=\"{name}\"")),
                "{text}"
            );
        }
        assert_eq!(text.matches("name=\"no findings\"").count(), 3);
    }
}
