//! The HTML report: that its markup is sound whatever a report holds, and that it works in
//! a browser.

mod browser;
mod markup;
mod sample;
mod work;

use std::fs;
use std::path::PathBuf;

use streamcheck_report::json::Report;
use streamcheck_report::{Context, FailOn, Format};
use tempfile::TempDir;

/// The page of a report.
fn page(report: &Report) -> String {
    let context = Context {
        fail_on: FailOn::Error,
        here: PathBuf::from("/"),
        root: PathBuf::from("/"),
        exit_code: None,
        baseline: false,
    };
    Format::Html.render(report, &context)
}

/// A source file with this text, as long as its folder is kept.
fn source(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step.cu");
    fs::write(&path, text).unwrap();
    (folder, path)
}
