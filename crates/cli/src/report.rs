//! `report`: reports of many processes, merged into one of any form.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use streamcheck_report::json::Report;
use streamcheck_report::output::write_once;
use streamcheck_report::text::count;
use streamcheck_report::{Context, Gate, Process, terminal};

use crate::args;
use crate::failure::Failure;
use crate::merged::Merged;
use crate::preflight::same;
use crate::{output, preflight};

/// Merges the files, writes the one report and returns the exit code.
pub(crate) fn report(report: &args::Report) -> Result<u8, Failure> {
    let settings = report.options.settings()?;
    let mut gate =
        Gate::read(&settings).map_err(|problems| Failure::of(crate::USAGE, &problems))?;
    let reports = read(&report.files)?;
    let outputs = [
        ("output", report.output()),
        ("write-baseline", report.write_baseline.as_deref()),
    ];
    let outputs = outputs
        .into_iter()
        .filter_map(|(name, path)| Some((name, path?)));
    preflight::check_kept(&report.files, &settings, outputs)?;
    let mut merged = Merged::of(&Process::this(), reports);
    gate.judge(&mut merged.report);
    if let Some(path) = &report.write_baseline {
        write_baseline(&merged.report, path)?;
    }
    if !report.only_baseline() {
        let text = match report.format() {
            Some(format) => format.render(&merged.report, &Context::of_this_process(&settings)),
            None => {
                let is_terminal = report.output().is_none() && io::stdout().is_terminal();
                findings(&merged.report, settings.color.wanted(is_terminal))
                    + &merged.summary(gate.remarks())
            }
        };
        match report.output() {
            None => output::out(&text)?,
            Some(path) => write_once(path, &text)?,
        }
    }
    // A converter says nothing about good and bad unless it is asked.
    Ok(if report.options.has("fail-on") {
        merged.code(&settings)
    } else {
        0
    })
}

/// Reads the reports, of which each may be given once.
fn read(files: &[PathBuf]) -> Result<Vec<Report>, Failure> {
    let mut reports = Vec::new();
    for (place, file) in files.iter().enumerate() {
        reports.push(Report::read(file)?);
        if let Some(twin) = files[..place].iter().find(|other| same(other, file)) {
            let (file, twin) = (file.display(), twin.display());
            return Err(Failure::new(
                crate::USAGE,
                if file.to_string() == twin.to_string() {
                    format!("{file} is given twice, but each report counts once")
                } else {
                    format!("{file} and {twin} are the same file, but each report counts once")
                },
            ));
        }
    }
    Ok(reports)
}

/// The findings as a person reads them.
fn findings(report: &Report, color: bool) -> String {
    report
        .findings
        .iter()
        .map(|finding| terminal::render(report, finding, color))
        .collect()
}

/// Writes a report for `--baseline`.
fn write_baseline(report: &Report, path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return output::out(&report.to_text());
    }
    write_once(path, &report.to_text())?;
    let known = report
        .findings
        .iter()
        .filter(|finding| finding.suppressed.is_none())
        .count();
    output::say(&format!(
        "{} in the baseline {}",
        count(known as u64, "finding is", "findings are"),
        path.display()
    ));
    Ok(())
}
