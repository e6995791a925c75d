//! The findings of one process on their way out.

use std::collections::HashMap;
use std::io::IsTerminal;

use streamcheck_engine::{self as engine, BlindSpot, Summary};
use streamcheck_model::StackId;

use crate::frameworks;
use crate::gate::Gate;
use crate::json::{Finding, Report};
use crate::known;
use crate::output::Output;
use crate::source::shown_path;
use crate::terminal::{Look, render_with};
use crate::text::{clean, count, thousands};
use crate::{Context, Format, Frame, Problem, Process, Settings, story};

/// Findings kept for the report; more are told and counted, not kept.
const KEPT: usize = 4096;

/// Repeated findings that the closing summary lists.
const REPEATED: usize = 8;

/// Takes findings in; gives text, a report and a verdict out.
pub struct Reporter {
    settings: Settings,
    look: Look,
    report: Report,
    /// The number of each kept finding, for its count.
    numbers: Vec<usize>,
    /// Findings not kept.
    dropped: u64,
    gate: Gate,
    context: Context,
    outputs: Vec<(Format, Output)>,
    gate_failed: bool,
}

/// What became of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// What to tell a person at once; `None` if it's suppressed or in the baseline.
    pub text: Option<String>,
    /// Whether it fails the gate.
    pub fails_gate: bool,
}

impl Reporter {
    /// A reporter for `process`. Claims the reports' places and puts empty ones there.
    ///
    /// # Errors
    /// All that's wrong with the files that the settings name.
    pub fn new(settings: Settings, process: Process) -> Result<Self, Vec<Problem>> {
        match Self::lenient(settings, process) {
            (reporter, problems) if problems.is_empty() => Ok(reporter),
            (_, problems) => Err(problems),
        }
    }

    /// As [`Reporter::new`], but does without the files that are not as they should be.
    #[must_use]
    pub fn lenient(settings: Settings, process: Process) -> (Self, Vec<Problem>) {
        let (gate, mut problems) = Gate::lenient(&settings);
        let report = Report::new(&process);
        let context = Context::of_this_process(&settings);
        let mut outputs = Vec::new();
        for (format, template) in settings.reports() {
            let name = format.label();
            if template.is_stdout() {
                problems.push(Problem::new(format!(
                    "{name} is -, standard output, which is the application's own here: \
                     only the streamcheck command can write a report there",
                )));
                continue;
            }
            let path = template.expand(&process);
            let text = format.render(&report, &context);
            match Output::claim(&path, format, process.pid, &text) {
                Ok(output) => outputs.push((format, output)),
                Err(wrong) => problems.push(wrong),
            }
        }
        let terminal = std::io::stderr().is_terminal();
        let look = Look::of_this_process(settings.color.wanted(terminal), terminal);
        let reporter = Self {
            settings,
            look,
            report,
            numbers: Vec::new(),
            dropped: 0,
            gate,
            context,
            outputs,
            gate_failed: false,
        };
        (reporter, problems)
    }

    /// Takes a new finding in; `stacks` gives the frames of a stack.
    pub fn add(
        &mut self,
        finding: engine::Finding,
        stacks: &mut dyn FnMut(StackId) -> Vec<Frame>,
    ) -> Added {
        // A loop's operations share a stack; of 0 nothing is known.
        let mut known = HashMap::from([(StackId::default(), Vec::new())]);
        let frames = finding
            .stacks()
            .map(|stack| known.entry(stack).or_insert_with(|| stacks(stack)).clone())
            .collect();
        let number = finding.number;
        let mut finding = Finding::new(finding, frames);
        finding.suppressed = self
            .gate
            .reason(&finding)
            .or_else(|| known::reason(&finding));
        frameworks::advise(&mut finding);
        // Whose frames a person can do something about matters from here on.
        for event in &mut finding.events {
            event.stack = story::user_frames(&event.stack, event.kernel.as_deref());
        }
        finding.baseline = finding.suppressed.is_none() && self.gate.knows(&finding);
        let fails_gate = finding.fails(self.settings.fail_on);
        self.gate_failed |= fails_gate;
        let text = finding.is_live().then(|| render_with(&finding, self.look));
        if self.report.findings.len() < KEPT {
            self.report.findings.push(finding);
            self.numbers.push(number);
        } else {
            self.dropped += 1;
        }
        Added { text, fails_gate }
    }

    /// Whether the gate has failed.
    #[must_use]
    pub fn gate_failed(&self) -> bool {
        self.gate_failed
    }

    /// The report as it stands.
    #[must_use]
    pub fn report(&self, summary: &Summary, counts: &[u64]) -> Report {
        let mut report = self.report.clone();
        let seen = &mut report.summary;
        seen.operations = summary.operations;
        seen.launches = summary.launches;
        seen.copies = summary.copies;
        seen.allocations = summary.allocations;
        seen.streams = summary.streams;
        seen.blind_spots = summary.blind_spots.clone();
        if self.dropped > 0 {
            seen.blind_spots.push(engine::BlindSpot {
                kind: "findings-not-kept".to_owned(),
                count: self.dropped,
                example: format!("a report keeps the first {KEPT}"),
            });
        }
        for (finding, number) in report.findings.iter_mut().zip(&self.numbers) {
            // Found, so at least once, whatever the caller has counted.
            finding.count = counts.get(*number).copied().unwrap_or(1).max(1);
        }
        report.count_findings();
        report
    }

    /// Replaces the report files. `counts` are the engine's, by the findings' numbers.
    pub fn write_files(&mut self, summary: &Summary, counts: &[u64]) -> Vec<Problem> {
        if self.outputs.is_empty() {
            return Vec::new();
        }
        let report = self.report(summary, counts);
        self.outputs
            .iter_mut()
            .filter_map(|(format, output)| {
                output.write(&format.render(&report, &self.context)).err()
            })
            .collect()
    }

    /// The lines that end a run, each with `streamcheck:` before it and a newline behind it.
    #[must_use]
    pub fn closing(&self, summary: &Summary, counts: &[u64]) -> String {
        let report = self.report(summary, counts);
        let mut lines = if summary.operations == 0 {
            vec![format!(
                "no CUDA call was seen in {} (pid {}), so nothing was checked",
                clean(&report.process.exe, 300),
                report.process.pid
            )]
        } else {
            verdict(&report)
        };
        lines.extend(self.gate.remarks());
        // A `streamcheck run` that has ended took its processes' reports along.
        let left = self.outputs.iter().map(|(_, output)| output);
        for output in left.filter(|output| output.path().exists()) {
            let path = output.path().to_string_lossy();
            lines.push(format!("report: {}", shown_path(&path)));
        }
        lines
            .iter()
            .map(|line| format!("streamcheck: {line}\n"))
            .collect()
    }
}

/// What was found, in what, and what could not be seen, in lines.
#[must_use]
pub fn verdict(report: &Report) -> Vec<String> {
    let seen = &report.summary;
    let found = match (seen.errors, seen.warnings) {
        (0, 0) => "no findings".to_owned(),
        (errors, 0) => count(errors, "error", "errors"),
        (0, warnings) => count(warnings, "warning", "warnings"),
        (errors, warnings) => format!(
            "{}, {}",
            count(errors, "error", "errors"),
            count(warnings, "warning", "warnings")
        ),
    };
    let mut first = format!(
        "{found} in {} ({}, {}, {}, {})",
        count(seen.operations, "operation", "operations"),
        count(seen.launches, "launch", "launches"),
        count(seen.copies, "copy or fill", "copies and fills"),
        count(seen.allocations, "allocation", "allocations"),
        count(seen.streams, "stream", "streams"),
    );
    if seen.suppressed > 0 {
        first.push_str(&format!("; {} suppressed", thousands(seen.suppressed)));
    }
    let known = report.findings.iter().filter(|f| f.baseline).count();
    if known > 0 {
        first.push_str(&format!("; {} in the baseline", thousands(known as u64)));
    }
    let mut lines = vec![first];
    let repeated: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|finding| finding.is_live() && finding.count > 1)
        .collect();
    for finding in repeated.iter().take(REPEATED) {
        lines.push(format!(
            "{} {} happened {}{}",
            finding.rule,
            finding.name,
            count(finding.count, "time", "times"),
            place_of(finding)
        ));
    }
    if repeated.len() > REPEATED {
        lines.push(format!(
            "{} more happened more than once",
            count((repeated.len() - REPEATED) as u64, "finding", "findings")
        ));
    }
    for spot in &seen.blind_spots {
        lines.push(unseen(spot));
    }
    lines
}

/// `could not see into 3 × unknown-kernel-parameters (such as gemm)`.
pub(crate) fn unseen(spot: &BlindSpot) -> String {
    let mut text = format!(
        "could not see into {} × {}",
        thousands(spot.count),
        clean(&spot.kind, 80)
    );
    if !spot.example.is_empty() {
        text.push_str(&format!(" (such as {})", clean(&spot.example, 160)));
    }
    text
}

/// ` at a.cu:12`, where the last call of a finding's story is.
fn place_of(finding: &Finding) -> String {
    let frame = finding.events.last().and_then(|event| event.stack.first());
    match frame.map(|frame| (&frame.file, frame.line)) {
        Some((Some(file), Some(line))) => format!(" at {}:{line}", shown_path(file)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use streamcheck_engine::{BlindSpot, Level, RuleCode};

    use super::*;
    use crate::json::tests::{finding, frame, process};
    use crate::{ColorChoice, FailOn, PathTemplate};

    fn settings() -> Settings {
        Settings {
            color: ColorChoice::Never,
            ..Settings::default()
        }
    }

    fn reporter(settings: Settings) -> Reporter {
        Reporter::new(settings, process()).unwrap()
    }

    fn add(reporter: &mut Reporter, number: usize, rule: RuleCode, level: Level) -> Added {
        let finding = engine::Finding {
            number,
            rule,
            level,
            ..finding()
        };
        reporter.add(finding, &mut |stack| {
            vec![
                frame("cudaMallocAsync", "/cuda/include/cuda_runtime.h", 9),
                frame("main", "/nowhere/a.cu", stack.0),
            ]
        })
    }

    fn summary() -> Summary {
        Summary {
            operations: 1204,
            launches: 12,
            copies: 1,
            allocations: 5,
            streams: 2,
            blind_spots: vec![BlindSpot {
                kind: "unknown-kernel-parameters".to_owned(),
                count: 3,
                example: "gemm".to_owned(),
            }],
        }
    }

    #[test]
    fn a_finding_is_told_once_and_fails_the_gate_by_level() {
        let mut reporter = reporter(settings());
        assert!(!reporter.gate_failed());
        let added = add(&mut reporter, 0, RuleCode::SC201, Level::Warning);
        assert!(!added.fails_gate && !reporter.gate_failed());
        assert!(added.text.unwrap().contains("SC201"));
        let added = add(&mut reporter, 1, RuleCode::SC101, Level::Error);
        assert!(added.fails_gate && reporter.gate_failed());
        let report = reporter.report(&summary(), &[7]);
        let counts: Vec<_> = report.findings.iter().map(|f| f.count).collect();
        assert_eq!(counts, [7, 1]);
        let stack = &report.findings[0].events[0].stack;
        assert_eq!((stack.len(), stack[0].line), (1, Some(1)));
        assert_eq!((report.summary.errors, report.summary.warnings), (1, 1));
    }

    #[test]
    fn never_means_never() {
        let mut reporter = reporter(Settings {
            fail_on: FailOn::Never,
            ..settings()
        });
        assert!(!add(&mut reporter, 0, RuleCode::SC101, Level::Error).fails_gate);
        assert!(!reporter.gate_failed());
    }

    #[test]
    fn the_summary_is_a_short_block() {
        let mut reporter = reporter(settings());
        add(&mut reporter, 0, RuleCode::SC101, Level::Error);
        add(&mut reporter, 1, RuleCode::SC103, Level::Error);
        add(&mut reporter, 2, RuleCode::SC201, Level::Warning);
        insta::assert_snapshot!(reporter.closing(&summary(), &[1, 1500, 1]));
    }

    #[test]
    fn a_clean_run_and_a_run_without_cuda_say_so() {
        let reporter = reporter(settings());
        let clean = Summary {
            blind_spots: Vec::new(),
            ..summary()
        };
        let both = reporter.closing(&clean, &[]) + &reporter.closing(&Summary::default(), &[]);
        insta::assert_snapshot!(both);
    }

    #[test]
    fn library_frames_excuse_a_finding_and_are_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.toml");
        fs::write(
            &file,
            "[[suppress]]\nfunction = 'ncclGroupEnd'\nreason = 'proxy'\n",
        )
        .unwrap();
        let add = |rule, module: &str, function: &str| {
            let mut reporter = reporter(Settings {
                suppressions: Some(file.clone()),
                ..settings()
            });
            let mut finding = engine::Finding { rule, ..finding() };
            finding.events.truncate(1);
            finding.events[0].role = streamcheck_engine::Role::Event;
            let in_module = |module: &str, function: &str| Frame {
                module: Some(module.to_owned()),
                function: Some(function.to_owned()),
                ..Frame::default()
            };
            reporter.add(finding, &mut |_| {
                vec![
                    in_module("/x/libstreamcheck.so", "hook"),
                    in_module(module, function),
                    in_module("/x/libtorch_cuda.so", "allreduce()"),
                ]
            });
            let report = reporter.report(&summary(), &[]);
            let stack = &report.findings[0].events[0].stack;
            assert_eq!(stack[0].function.as_deref(), Some("allreduce()"));
            report.findings[0].suppressed.clone()
        };
        let nccl = "/x/libnccl.so.2";
        assert!(add(RuleCode::SC112, nccl, "f").unwrap().contains("NCCL"));
        assert_eq!(add(RuleCode::SC112, "/x/libcudnn.so.9", "f"), None);
        assert_eq!(
            add(RuleCode::SC103, nccl, "ncclGroupEnd").as_deref(),
            Some("proxy")
        );
    }

    #[test]
    fn the_fix_is_told_in_the_words_of_the_framework_that_called() {
        let help = |rule, module: &str| {
            let mut reporter = reporter(settings());
            let finding = engine::Finding { rule, ..finding() };
            reporter.add(finding, &mut |_| {
                vec![Frame {
                    module: Some(module.to_owned()),
                    ..Frame::default()
                }]
            });
            reporter.report(&summary(), &[]).findings[0].help.clone()
        };
        let torch = "/venv/torch/lib/libtorch_cuda.so";
        assert!(help(RuleCode::SC201, torch).contains("`pin_memory=True`"));
        assert!(help(RuleCode::SC108, torch).contains("`non_blocking=True`"));
        let cupy = "/venv/cupy_backends/cuda/api/runtime.so";
        assert!(help(RuleCode::SC201, cupy).contains("`cupyx.empty_pinned`"));
        let plain = help(RuleCode::SC201, "/usr/bin/app");
        assert_eq!(help(RuleCode::SC101, torch), plain);
        assert!(!plain.contains("PyTorch"));
    }

    fn in_directory(write: impl FnOnce(&Path)) -> (tempfile::TempDir, Settings) {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path());
        let json = directory.path().join("r-%p.json").display().to_string();
        let settings = Settings {
            json: Some(PathTemplate::parse(&json).unwrap()),
            ..settings()
        };
        (directory, settings)
    }

    #[test]
    fn the_report_is_there_before_and_after_each_finding() {
        let (directory, settings) = in_directory(|_| {});
        let mut reporter = reporter(settings);
        let path = directory.path().join("r-4242.json");
        assert_eq!(Report::read(&path).unwrap(), Report::new(&process()));
        add(&mut reporter, 0, RuleCode::SC101, Level::Error);
        assert_eq!(reporter.write_files(&summary(), &[2]), []);
        let report = Report::read(&path).unwrap();
        assert_eq!(report, reporter.report(&summary(), &[2]));
        assert_eq!(report.findings[0].count, 2);
        let closing = reporter.closing(&summary(), &[2]);
        assert!(closing.contains("r-4242.json"), "{closing}");
    }

    #[test]
    fn suppressed_and_known_findings_are_kept_but_do_not_fail() {
        let mut first = reporter(settings());
        add(&mut first, 0, RuleCode::SC103, Level::Error);
        let earlier = first.report(&summary(), &[1]).to_text();
        let (directory, mut settings) = in_directory(|directory| {
            let text = "[[suppress]]\nrule = 'SC101'\nreason = 'we know'\n\
                        [[suppress]]\nrule = 'SC107'\nreason = 'unused'\n";
            fs::write(directory.join("s.toml"), text).unwrap();
            fs::write(directory.join("b.json"), earlier).unwrap();
        });
        settings.suppressions = Some(directory.path().join("s.toml"));
        settings.baseline = Some(directory.path().join("b.json"));
        let mut reporter = reporter(settings);
        for (number, rule) in [RuleCode::SC101, RuleCode::SC103].into_iter().enumerate() {
            let added = add(&mut reporter, number, rule, Level::Error);
            assert_eq!(
                added,
                Added {
                    text: None,
                    fails_gate: false
                }
            );
        }
        assert!(!reporter.gate_failed());
        let report = reporter.report(&summary(), &[1, 1]);
        assert_eq!(report.findings[0].suppressed.as_deref(), Some("we know"));
        assert!(!report.findings[0].baseline && report.findings[1].baseline);
        assert_eq!((report.summary.errors, report.summary.suppressed), (0, 1));
        let closing = reporter.closing(&summary(), &[1, 1]);
        assert!(
            closing.contains("no findings in 1,204 operations"),
            "{closing}"
        );
        assert!(
            closing.contains("; 1 suppressed; 1 in the baseline"),
            "{closing}"
        );
        assert!(
            closing.contains("s.toml:4 matched nothing (unused)"),
            "{closing}"
        );
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_goes_on() {
        let settings = Settings {
            suppressions: Some(PathBuf::from("/nowhere/s.toml")),
            baseline: Some(PathBuf::from("/nowhere/b.json")),
            json: Some(PathTemplate::parse("/nowhere/r.json").unwrap()),
            ..settings()
        };
        let problems = Reporter::new(settings.clone(), process()).err().unwrap();
        let texts: Vec<_> = problems.iter().map(Problem::text).collect();
        insta::assert_snapshot!(texts.join("\n"));
        let (mut reporter, again) = Reporter::lenient(settings, process());
        assert_eq!(problems, again);
        assert!(add(&mut reporter, 0, RuleCode::SC101, Level::Error).fails_gate);
        assert_eq!(reporter.write_files(&summary(), &[1]), []);
    }

    #[test]
    fn standard_output_is_the_applications() {
        let settings = Settings {
            json: Some(PathTemplate::parse("-").unwrap()),
            ..settings()
        };
        let problems = Reporter::new(settings, process()).err().unwrap();
        assert!(problems[0].text().starts_with("json is -"), "{problems:?}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut reporter = reporter(settings());
        for number in 0..KEPT + 3 {
            add(&mut reporter, number, RuleCode::SC201, Level::Warning);
        }
        let report = reporter.report(&Summary::default(), &[]);
        assert_eq!(report.findings.len(), KEPT);
        assert_eq!(report.summary.blind_spots[0].count, 3);
    }
}
