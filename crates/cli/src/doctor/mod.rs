//! `doctor`: what will and won't be seen of a program, and what to do about it.
//!
//! It reads files and runs nothing of the program. The preload library alone is tried
//! out, in a run of `true`.

mod cuda;
mod elf;
mod here;
mod loader;
mod program;

use std::ffi::OsStr;

use serde::Serialize;
use streamcheck_report::text::clean;

use crate::args::{Doctor, DoctorFormat};
use crate::failure::Failure;
use crate::output;
use loader::Search;

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mark {
    /// As it should be.
    Ok,
    /// Something will not be seen, or is not known before the run.
    Note,
    /// Nothing would be seen.
    Problem,
}

impl Mark {
    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    mark: Mark,
    /// What was looked at, in a word or two.
    about: &'static str,
    /// What was found, in a sentence.
    text: String,
    /// What to do.
    remedy: Option<String>,
}

impl Check {
    fn new(mark: Mark, about: &'static str, text: impl Into<String>) -> Self {
        Self {
            mark,
            about,
            text: text.into(),
            remedy: None,
        }
    }

    fn ok(about: &'static str, text: impl Into<String>) -> Self {
        Self::new(Mark::Ok, about, text)
    }

    fn note(about: &'static str, text: impl Into<String>) -> Self {
        Self::new(Mark::Note, about, text)
    }

    fn problem(about: &'static str, text: impl Into<String>) -> Self {
        Self::new(Mark::Problem, about, text)
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// What was found, as `--format json` writes it.
#[derive(Debug, Serialize)]
struct Findings {
    schema: &'static str,
    version: &'static str,
    /// The program as it was given.
    app: Option<String>,
    /// Whether nothing was found that would keep all of it from being seen.
    fit: bool,
    checks: Vec<Check>,
}

/// Looks at this machine, and at a program if one is given. The exit code is 0, or 67 if a
/// run would check nothing.
pub(crate) fn doctor(doctor: &Doctor) -> Result<u8, Failure> {
    let search = Search::here();
    let mut checks = Vec::new();
    if let Some(app) = &doctor.app {
        checks = program::examine(app, &search)?;
    }
    let of_app = checks.len();
    checks.extend(here::examine(&search));
    // The machine comes first: what is wrong there is wrong for every program.
    checks.rotate_left(of_app);
    let fit = checks.iter().all(|check| check.mark != Mark::Problem);
    let findings = Findings {
        schema: "streamcheck-doctor/1",
        version: env!("CARGO_PKG_VERSION"),
        app: doctor
            .app
            .as_ref()
            .map(|app| app.to_string_lossy().into_owned()),
        fit,
        checks,
    };
    let text = match doctor.format {
        DoctorFormat::Text => lines(&findings),
        DoctorFormat::Json => serde_json::to_string_pretty(&findings)
            .map(|text| text + "\n")
            .map_err(|error| Failure::new(crate::USAGE, error.to_string()))?,
    };
    output::out(&text)?;
    Ok(if fit { 0 } else { crate::NO_CUDA })
}

/// Why nothing will be seen of a program, with the remedy, if its files show it.
pub(crate) fn obstacle(app: &OsStr) -> Option<String> {
    let checks = program::examine(app, &Search::here()).ok()?;
    let problem = checks
        .into_iter()
        .find(|check| check.mark == Mark::Problem)?;
    Some(match problem.remedy {
        Some(remedy) => format!("{}; {remedy}", problem.text),
        None => problem.text,
    })
}

fn lines(findings: &Findings) -> String {
    let widest = |width: fn(&Check) -> usize| findings.checks.iter().map(width).max().unwrap_or(0);
    let marks = widest(|check| check.mark.label().len());
    let abouts = widest(|check| check.about.len());
    let mut text = String::new();
    for check in &findings.checks {
        let (mark, about) = (check.mark.label(), check.about);
        let said = clean(&check.text, 2000);
        text.push_str(&format!("{mark:marks$}  {about:abouts$}  {said}\n"));
        if let Some(remedy) = &check.remedy {
            let said = clean(remedy, 2000);
            text.push_str(&format!("{:marks$}  {:abouts$}  -> {said}\n", "", ""));
        }
    }
    let app = findings.app.as_deref().unwrap_or("./app");
    let app = clean(app, 2000);
    text.push_str(&if findings.fit {
        format!("\nNothing stands in the way of `streamcheck run -- {app}`.\n")
    } else {
        format!("\n`streamcheck run -- {app}` would check nothing; see the problems above.\n")
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_what_it_remedies() {
        let findings = Findings {
            schema: "x",
            version: "1",
            app: Some("./a".to_owned()),
            fit: false,
            checks: vec![
                Check::ok("driver", "it is there"),
                Check::problem("program", "it\nis static").remedy("link it dynamically"),
            ],
        };
        assert_eq!(
            lines(&findings),
            "ok       driver   it is there\n\
             problem  program  it\u{fffd}is static\n\
             \x20                 -> link it dynamically\n\
             \n`streamcheck run -- ./a` would check nothing; see the problems above.\n"
        );
    }
}
