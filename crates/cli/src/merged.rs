//! The one report that a run, a replay or a merge comes to, and the exit code.

use streamcheck_report::json::Report;
use streamcheck_report::output::write_once;
use streamcheck_report::suppressions::Suppressions;
use streamcheck_report::text::thousands;
use streamcheck_report::{Context, Process, Settings, verdict};

use crate::failure::Failure;
use crate::output;

/// What all processes reported.
pub(crate) struct Merged {
    /// The one report.
    pub(crate) report: Report,
    /// How many processes wrote one.
    pub(crate) processes: usize,
}

impl Merged {
    /// Merges reports into one about `process`, or about their own if it is one.
    pub(crate) fn of(process: &Process, reports: Vec<Report>) -> Self {
        let processes = reports.len();
        let own = reports.first().map(|report| report.process.clone());
        let mut report = Report::merge(process, reports);
        if let (1, Some(own)) = (processes, own) {
            report.process = own;
            report.processes.clear();
            for finding in &mut report.findings {
                finding.ranks.clear();
                finding.process = None;
            }
        }
        Self { report, processes }
    }

    /// Writes each report that the settings ask for.
    pub(crate) fn write(
        &self,
        settings: &Settings,
        context: &Context,
        process: &Process,
    ) -> Result<(), Failure> {
        let mut problems = Vec::new();
        for (format, template) in settings.reports() {
            let text = format.render(&self.report, context);
            if template.is_stdout() {
                output::out(&text)?;
            } else {
                problems.extend(write_once(&template.expand(process), &text).err());
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Failure::of(crate::USAGE, &problems))
        }
    }

    /// Whether a finding fails the gate.
    fn gate_failed(&self, settings: &Settings) -> bool {
        let mut findings = self.report.findings.iter();
        findings.any(|finding| finding.fails(settings.fail_on))
    }

    /// Whether any process made a CUDA call.
    pub(crate) fn saw_cuda(&self) -> bool {
        self.report.summary.operations > 0
    }

    /// The exit code that the findings ask for.
    pub(crate) fn code(&self, settings: &Settings) -> u8 {
        if self.gate_failed(settings) {
            settings.exit_code
        } else if !self.saw_cuda() && settings.require_cuda.unwrap_or(true) {
            crate::NO_CUDA
        } else {
            0
        }
    }

    /// What all processes together came to, in lines for a person; `remarks` follow.
    pub(crate) fn summary(&self, remarks: Vec<String>) -> String {
        let mut lines = verdict(&self.report);
        if self.processes > 1 {
            lines[0].push_str(&format!("; {} processes", thousands(self.processes as u64)));
        }
        lines.extend(remarks);
        lines
            .iter()
            .map(|line| format!("streamcheck: {line}\n"))
            .collect()
    }

    /// Says what all processes together came to, and which suppressions no finding of any
    /// process used.
    pub(crate) fn tell(&self, settings: &Settings) {
        output::err(&self.summary(self.remarks(settings)));
    }

    /// A line for each suppression that no finding of any process used.
    fn remarks(&self, settings: &Settings) -> Vec<String> {
        let Some(Ok(mut suppressions)) = settings.suppressions.as_deref().map(Suppressions::read)
        else {
            return Vec::new();
        };
        for finding in &self.report.findings {
            suppressions.recognize(finding);
        }
        suppressions.remarks()
    }
}
