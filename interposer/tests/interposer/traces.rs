//! Traces of programs that make many calls: their blocks, their ends, their limits.

use std::fs::File;
use std::process::Command;

use streamcheck_model::trace::{Ending, Reader, Reason, Record};

use crate::common::{self, Run, bare, folder, preloaded, program, run};

/// How many operations a trace holds, how it ends, and how long it is.
fn facts(name: &str) -> (u64, Ending, u64) {
    let file = File::open(folder().join(name)).expect("a trace");
    let length = file.metadata().expect("its length").len();
    let mut reader = Reader::new(file, name).expect("its header is whole");
    let mut operations = 0;
    for record in &mut reader {
        operations += u64::from(matches!(
            record.expect("every record is whole"),
            Record::Operation(_)
        ));
    }
    (operations, reader.ending().expect("an end"), length)
}

/// `traces LAUNCHES HOW`, with its trace under `name`.
fn traces(name: &str, words: [&str; 2], limit: Option<&str>) -> Run {
    let mut command: Command = preloaded(program("traces"));
    command.args(words).env("STREAMCHECK_TRACE", name);
    if let Some(limit) = limit {
        command.env("STREAMCHECK_TRACE_LIMIT", limit);
    }
    run(&mut command)
}

const LAUNCHES: u64 = 100_000;

#[test]
fn a_long_trace_has_all_operations_however_it_ends() {
    for how in ["kill", "return"] {
        let name = format!("long-{how}.trace");
        let result = traces(&name, [&LAUNCHES.to_string(), how], None);
        assert_eq!(result.stdout, format!("{}\n", LAUNCHES + 2));
        let (operations, ending, length) = facts(&name);
        if how == "kill" {
            assert_eq!((operations, ending), (LAUNCHES + 2, Ending::Killed));
        } else {
            // And the process's end.
            assert_eq!(operations, LAUNCHES + 3);
            assert!(matches!(ending, Ending::Clean(counts) if counts.operations == operations));
        }
        // Each has six bytes of its own that nothing tells beforehand.
        assert!(length > 6 * LAUNCHES, "{length}: there are blocks");
        assert!(length < 16 * LAUNCHES, "{length}: they are compressed");
    }
}

#[test]
fn a_limit_ends_a_trace_in_order_and_checking_goes_on() {
    let result = traces(
        "capped.trace",
        [&LAUNCHES.to_string(), "race"],
        Some("400K"),
    );
    assert_eq!(result.code, Some(66), "{}", result.stderr);
    assert!(result.stderr.contains("SC101"), "{}", result.stderr);
    let (operations, ending, length) = facts("capped.trace");
    let told = format!(
        "trace capped.trace is as long as it may be, after {operations} operations; \
         what follows is checked, and not recorded"
    );
    assert_eq!(result.stderr.matches(&told).count(), 1, "{}", result.stderr);
    assert!(
        matches!(ending, Ending::Stopped(counts, Reason::Limit) if counts.operations == operations),
        "{ending:?}"
    );
    assert!(operations > 1000 && operations < LAUNCHES, "{operations}");
    assert!(length <= 400 << 10 && length > 200 << 10, "{length}");
}

#[test]
fn a_trace_within_its_limit_is_whole() {
    let result = traces("within.trace", ["10", "return"], Some("64K"));
    assert_eq!(result.code, Some(0), "{}", result.stderr);
    assert!(!result.stderr.contains("trace"), "{}", result.stderr);
    let (operations, ending, length) = facts("within.trace");
    assert_eq!(operations, 13);
    assert!(matches!(ending, Ending::Clean(_)), "{ending:?}");
    assert!(length < 20 << 10, "{length}: cut to what is in it");
}

#[test]
fn the_processes_own_limit_on_files_is_kept() {
    let mut shell = bare("/bin/bash");
    shell
        .args([
            "-c",
            "ulimit -f 200; exec env LD_PRELOAD=\"$1\" STREAMCHECK_TRACE=files.trace \"$2\" 100000",
            "bash",
        ])
        .arg(common::library())
        .arg(program("traces"));
    let result = run(&mut shell);
    assert_eq!(result.code, Some(0), "{}", result.stderr);
    let (operations, ending, length) = facts("files.trace");
    assert!(
        matches!(ending, Ending::Stopped(counts, Reason::Limit) if counts.operations == operations),
        "{ending:?}"
    );
    assert!(length <= 200 << 10 && length > 100 << 10, "{length}");
    assert_eq!(
        result
            .stderr
            .matches("files.trace is as long as it may be")
            .count(),
        1,
        "{}",
        result.stderr
    );
}
