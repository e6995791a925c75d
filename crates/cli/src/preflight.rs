//! What is made sure before an application is run or a trace is read: that the gate's files
//! can be read, and the reports written.

use std::path::{Path, PathBuf};

use streamcheck_report::output::{behind_links, is_special};
use streamcheck_report::{Format, Process, Reporter, Settings};

use crate::failure::{Failure, reason};

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

/// Makes sure that the trace can be written.
pub(crate) fn check_trace(settings: &Settings, process: &Process) -> Result<(), Failure> {
    let path = settings.trace.as_ref().map(|trace| trace.expand(process));
    match path.as_deref().and_then(impossible) {
        Some(why) => Err(Failure::new(crate::USAGE, format!("--trace: {why}"))),
        None => Ok(()),
    }
}

/// Makes sure that no output takes the place of a file that is read: of one of `files`, or
/// of the suppressions. The outputs come with their options' names.
pub(crate) fn check_kept<P: AsRef<Path>>(
    files: &[PathBuf],
    settings: &Settings,
    outputs: impl IntoIterator<Item = (&'static str, P)>,
) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    for (name, output) in outputs {
        let output = output.as_ref();
        let mut inputs = files.iter().chain(&settings.suppressions);
        if let Some(input) = inputs.find(|input| same(input, output)) {
            let (input, output) = (input.display(), output.display());
            wrong.push(format!(
                "--{name} {output} would overwrite {input}, which is read; name another file"
            ));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Failure::lines(crate::USAGE, wrong))
    }
}

/// Whether two paths lead to one file.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    behind_links(one) == behind_links(other) && !is_special(one)
}

/// Why a file cannot be written there, if it cannot.
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
