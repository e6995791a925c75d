//! A process that goes on as another program: what was seen before is kept.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use streamcheck_model::trace::{Ending, Reader, Record};

use crate::common::{folder, preloaded, program, run};
use crate::preload::{report, rules};

const FUNCTIONS: [&str; 9] = [
    "execve", "execv", "execl", "execle", "execvp", "execvpe", "execlp", "fexecve", "execveat",
];

/// `execs HOW FIRST SECOND`, with its reports and traces under `name`.
fn execs(name: &str, arguments: [&str; 3]) -> Command {
    let mut command = preloaded(program("execs"));
    command
        .args(arguments)
        .env("PATH", folder())
        .env("MARK", "inherited")
        .env("STREAMCHECK_JSON", format!("{name}.json"))
        .env("STREAMCHECK_TRACE", format!("{name}.trace"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The number of a trace's operations. It must have been ended in order.
fn operations(name: &str) -> usize {
    let file = std::fs::File::open(folder().join(name)).expect("a trace");
    let mut reader = Reader::new(file, name).expect("its header is whole");
    let count = reader
        .by_ref()
        .filter(|record| matches!(record, Ok(Record::Operation(_))))
        .count();
    assert!(matches!(reader.ending(), Some(Ending::Clean(_))), "{name}");
    count
}

#[test]
fn each_program_leaves_its_report_and_its_trace() {
    for how in FUNCTIONS {
        let child = execs(how, [how, "race", "clean"]).spawn().expect("starts");
        let pid = child.id();
        let output = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&output.stderr);
        let own = ["execve", "execle", "execvpe", "fexecve", "execveat"].contains(&how);
        let mark = if own { "own" } else { "inherited" };
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("second, 8, {mark}\n"),
            "{how}: {said}"
        );
        assert_eq!(output.status.code(), Some(0), "the next program's: {said}");
        assert_eq!(
            said.matches("streamcheck: 1 error in ").count(),
            1,
            "{said}"
        );
        assert_eq!(
            said.matches("goes on as another program").count(),
            1,
            "{said}"
        );
        assert_eq!(
            said.matches("streamcheck: no findings in ").count(),
            1,
            "{said}"
        );
        let first = report(&format!("{how}.json"));
        assert_eq!(rules(&first), ["SC101"], "{how}");
        let later = report(&format!("{how}.json.{pid}"));
        assert!(rules(&later).is_empty());
        // Two streams, an allocation, a launch. Then a stream, an allocation, a launch, a free
        // and its outcome, a wait, and the end.
        assert_eq!(operations(&format!("{how}.trace")), 4, "{how}");
        assert_eq!(operations(&format!("{how}.trace.{pid}")), 7, "{how}");
    }
}

#[test]
fn a_faultless_program_gets_its_last_counts_and_says_nothing() {
    let result = run(&mut execs("counted", ["execv", "clean", "quiet"]));
    assert_eq!(result.code, Some(0), "{}", result.stderr);
    let report = report("counted.json");
    assert_eq!(report["summary"]["operations"], 5, "{report}");
    assert_eq!(report["summary"]["launches"], 1);
    assert!(!result.stderr.contains("operations"), "{}", result.stderr);
}

/// A program that can be started, by its mode, and not be run.
fn spoil(name: &str) {
    let spoiled = folder().join(name);
    std::fs::write(&spoiled, "\x7fELF").expect("a file");
    std::fs::set_permissions(&spoiled, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

#[test]
fn a_failing_exec_writes_what_is_new_alone() {
    spoil("hopeless");
    for first in ["race", "clean"] {
        let result = run(&mut execs(
            &format!("again-{first}"),
            ["again", first, "quiet"],
        ));
        let written: Vec<_> = result.stdout.split_whitespace().collect();
        assert_eq!(
            written[1..],
            ["kept", "kept", "written", "kept"],
            "{first}: {}",
            result.stderr
        );
    }
}

#[test]
fn a_program_that_cannot_be_run_changes_nothing() {
    spoil("spoiled");
    for (how, errno) in [("absent", 2), ("spoiled", 8)] {
        let result = run(&mut execs(how, [how, "race", "quiet"]));
        assert_eq!(
            (result.code, result.stdout.as_str()),
            (Some(66), &*format!("-1 {errno}\n")),
            "{}",
            result.stderr
        );
        assert_eq!(
            result.stderr.matches("streamcheck: 1 error in ").count(),
            1,
            "{how}: {}",
            result.stderr
        );
        assert_eq!(rules(&report(&format!("{how}.json"))), ["SC101"]);
        assert_eq!(
            operations(&format!("{how}.trace")),
            5,
            "with the end: {how}"
        );
        // What it does after that is seen as well.
        let name = format!("{how}-on");
        let result = run(&mut execs(&name, [how, "clean", "race"]));
        assert_eq!(result.code, Some(66), "{}", result.stderr);
        assert_eq!(rules(&report(&format!("{name}.json"))), ["SC101"]);
        assert_eq!(report(&format!("{name}.json"))["summary"]["launches"], 2);
        assert_eq!(operations(&format!("{name}.trace")), 6 + 4 + 1, "{how}");
    }
}

#[test]
fn a_child_that_shares_memory_tells_nothing_of_its_parents() {
    let result = run(&mut execs("shared", ["vfork", "race", "clean"]));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(66), "child ended with 7\n"),
        "{}",
        result.stderr
    );
    let said = result.stderr;
    assert_eq!(
        said.matches("streamcheck: 1 error in ").count(),
        1,
        "{said}"
    );
    assert!(!said.contains("another program"), "{said}");
    assert_eq!(operations("shared.trace"), 4 + 6 + 1);
}
