//! `report`, and what `run` and `replay` share of it: the inputs of a gate and its summary.

use std::path::{Path, PathBuf};

use streamcheck_report::json::Report;
use streamcheck_report::output::{behind_links, is_special};
use streamcheck_report::suppressions::Suppressions;
use streamcheck_report::text::{count, thousands};
use streamcheck_report::{
    Context, Format, Gate, PathTemplate, Process, Reporter, Settings, verdict,
};

use crate::args;
use crate::collect::{Collection, Merged, write_whole};
use crate::failure::{Failure, reason};
use crate::output;

/// Merges the files, writes the one report and returns the exit code.
pub(crate) fn report(report: &args::Report) -> Result<u8, Failure> {
    let settings = report.options.settings()?;
    let mut gate =
        Gate::read(&settings).map_err(|problems| Failure::of(crate::USAGE, &problems))?;
    let mut reports = Vec::new();
    for (place, file) in report.files.iter().enumerate() {
        reports.push(Report::read(file)?);
        if let Some(twin) = report.files[..place].iter().find(|other| same(other, file)) {
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
    let mut merged = Merged::of(&Process::this(), reports);
    gate.judge(&mut merged.report);
    if let Some(path) = &report.write_baseline {
        write_baseline(&merged.report, path)?;
    }
    if !report.only_baseline() {
        let text = match report.format() {
            Some(format) => format.render(&merged.report, &Context::of_this_process(&settings)),
            None => {
                let stdout = report.output().is_none();
                let terminal = stdout && std::io::IsTerminal::is_terminal(&std::io::stdout());
                let color = settings.color.wanted(terminal);
                let findings: String = merged
                    .report
                    .findings
                    .iter()
                    .map(|finding| {
                        streamcheck_report::terminal::render(&merged.report, finding, color)
                    })
                    .collect();
                findings + &summary(&merged, gate.remarks())
            }
        };
        match report.output() {
            None => output::out(&text)?,
            Some(path) => write_whole(path, &text)?,
        }
    }
    // A converter says nothing about good and bad unless it is asked.
    Ok(if report.options.has("fail-on") {
        merged.code(&settings)
    } else {
        0
    })
}

/// Whether two paths lead to one file.
fn same(one: &Path, other: &Path) -> bool {
    behind_links(one) == behind_links(other) && !is_special(one)
}

/// Writes a report for `--baseline`.
fn write_baseline(report: &Report, path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return output::out(&report.to_text());
    }
    write_whole(path, &report.to_text())?;
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

/// What all processes together came to, in lines for a person; `remarks` follow.
pub(crate) fn summary(merged: &Merged, remarks: Vec<String>) -> String {
    let mut lines = verdict(&merged.report);
    if merged.processes > 1 {
        lines[0].push_str(&format!(
            "; {} processes",
            thousands(merged.processes as u64)
        ));
    }
    lines.extend(remarks);
    lines
        .iter()
        .map(|line| format!("streamcheck: {line}\n"))
        .collect()
}

/// What is to be said of suppressions: those that no finding of any process used.
pub(crate) fn remarks(merged: &Merged, settings: &Settings) -> Vec<String> {
    let Some(Ok(mut suppressions)) = settings.suppressions.as_deref().map(Suppressions::read)
    else {
        return Vec::new();
    };
    for finding in &merged.report.findings {
        suppressions.recognize(finding);
    }
    suppressions.remarks()
}

/// Makes sure that what the gate reads can be read.
pub(crate) fn check_inputs(settings: &Settings) -> Result<(), Failure> {
    match Reporter::new(settings.without_files(), Process::this()) {
        Ok(_) => Ok(()),
        Err(problems) => Err(Failure::of(crate::USAGE, &problems)),
    }
}

/// Makes sure that the reports can be written, each to a place of its own, before an
/// hour is spent on them.
pub(crate) fn check_outputs(settings: &Settings, process: &Process) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    let mut places: Vec<(Format, Option<PathBuf>)> = Vec::new();
    for (format, template) in settings.reports() {
        let name = format.label();
        let path = (!template.is_stdout()).then(|| template.expand(process));
        if let Some(why) = path.as_deref().and_then(impossible) {
            wrong.push(format!("--{name}: {why}"));
        }
        let place = path
            .as_deref()
            .map(|path| behind_links(&std::path::absolute(path).unwrap_or_default()));
        if let Some((other, _)) = places.iter().find(|(_, taken)| *taken == place) {
            let place = template.text();
            let other = other.label();
            wrong.push(format!(
                "--{other} and --{name} both name {place}; each report needs a place of its own"
            ));
        }
        places.push((format, place));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Failure::lines(crate::USAGE, wrong))
    }
}

/// Why a report cannot be written there, if it cannot.
fn impossible(path: &Path) -> Option<String> {
    // Opening a pipe would wait for its reader.
    if is_special(path) {
        return None;
    }
    let place = behind_links(path);
    let folder = match place.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let why = if path.is_dir() {
        "it is a directory".to_owned()
    } else {
        reason(&tempfile::tempfile_in(folder).err()?)
    };
    Some(format!("{} cannot be written: {why}", path.display()))
}

/// The settings of one process's reporter, whose report is collected.
pub(crate) fn only_json(
    settings: &Settings,
    collection: &Collection,
    number: usize,
) -> Result<Settings, Failure> {
    let template = collection.template().replace("%p", &number.to_string());
    let json = PathTemplate::parse(&template)
        .map_err(|what| Failure::new(crate::USAGE, format!("{template} holds {what}")))?;
    Ok(Settings {
        json: Some(json),
        ..settings.without_files()
    })
}
