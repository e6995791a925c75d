//! Every program in `tests/litmus/` gets exactly the findings that its lines
//! expect. A file is a topic; `=== title` begins a program of it. The notation is
//! that of `streamcheck_model::text`; a comment `# level: SC204=warning` switches a
//! rule on.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use streamcheck_engine::{Engine, Levels};
use streamcheck_model::text::Program;

/// Runs a program and returns what is wrong with its verdicts.
fn judge(place: &str, text: &str) -> String {
    let program = match Program::parse(text) {
        Ok(program) => program,
        Err(error) => return format!("{place}: {error}\n"),
    };
    let mut levels = Levels::default();
    for line in text.lines() {
        if let Some((code, level)) = line
            .strip_prefix("# level: ")
            .and_then(|setting| setting.split_once('='))
        {
            levels.set(code.parse().unwrap(), level.parse().unwrap());
        }
    }
    let mut engine = Engine::new(levels);
    *engine.names_mut() = program.names.clone();
    let mut wrong = String::new();
    for step in &program.steps {
        let found = step
            .operations
            .iter()
            .flat_map(|operation| engine.apply(operation));
        let mut got: Vec<String> = found.map(|finding| finding.rule.to_string()).collect();
        let mut expected = step.expected.clone();
        got.sort();
        expected.sort();
        if got != expected {
            let _ = writeln!(
                wrong,
                "{place}: `{}` should give [{}], gave [{}]",
                step.text,
                expected.join(" "),
                got.join(" ")
            );
        }
    }
    wrong
}

#[test]
fn every_program_gets_its_verdict() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/litmus");
    let (mut wrong, mut programs) = (String::new(), 0);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let topic = file.file_stem().unwrap().to_string_lossy();
        for section in text.split("=== ").skip(1) {
            let (title, program) = section.split_once('\n').unwrap();
            wrong.push_str(&judge(&format!("{topic}: {title}"), program));
            programs += 1;
        }
    }
    assert!(programs > 50, "only {programs} programs were found");
    assert!(wrong.is_empty(), "\n{wrong}");
}
