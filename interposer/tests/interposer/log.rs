//! What the library writes to standard error of itself.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;

use crate::common::{Run, folder, library, preloaded, program, run};

#[test]
fn the_log_says_what_its_filter_lets_through() {
    let clean = program("clean");
    let quiet = run(&mut preloaded(&clean));
    assert!(!quiet.stderr.contains("started in"), "{}", quiet.stderr);
    let info = run(preloaded(&clean).env("STREAMCHECK_LOG", "info"));
    let started = info
        .stderr
        .lines()
        .filter(|line| line.starts_with("streamcheck: info: started in "))
        .count();
    assert_eq!(started, 1, "{}", info.stderr);
    assert!(!info.stderr.contains("debug:"), "{}", info.stderr);
    let debug = run(preloaded(&clean).env("STREAMCHECK_LOG", "error, streamcheck=DEBUG"));
    assert!(
        debug
            .stderr
            .contains("streamcheck: debug: kernel _Z4fillPf: "),
        "{}",
        debug.stderr
    );
    let elsewhere = run(preloaded(&clean).env("STREAMCHECK_LOG", "error,elsewhere=debug"));
    assert!(!elsewhere.stderr.contains("started in"));
    let odd = run(preloaded(&clean).env("STREAMCHECK_LOG", "loud"));
    assert_eq!(odd.code, Some(0));
    assert!(
        odd.stderr
            .lines()
            .any(|line| line.starts_with("streamcheck: ") && line.contains("STREAMCHECK_LOG")),
        "{}",
        odd.stderr
    );
}

#[test]
fn a_reader_that_has_gone_away_ends_no_program() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = preloaded(program("race"))
        .stdout(std::process::Stdio::null())
        .stderr(OwnedFd::from(writer))
        .status()
        .expect("it starts");
    assert_eq!((status.code(), status.signal()), (Some(66), None));
}

/// A run of `fd_two.c`, and what its own file holds then.
fn fd_two(how: &str, through: Option<&str>) -> (Run, String) {
    let program = program("fd_two");
    let own = format!("fd-two-{how}.own");
    let mut command = match through {
        None => preloaded(program),
        Some(shell) => {
            let mut command = crate::common::bare("/bin/sh");
            command.args(["-c", shell, "sh"]).arg(program);
            command.env("PRELOADED", library());
            command
        }
    };
    let run = run(command.args([how, &own]));
    let own = std::fs::read_to_string(folder().join(own)).unwrap_or_default();
    (run, own)
}

#[test]
fn a_file_that_gets_the_number_of_standard_error_stays_the_programs() {
    let (late, own) = fd_two("late", None);
    assert_eq!((own.as_str(), late.code), ("mine", Some(66)));
    assert_eq!(late.stdout, "child ended with 66\n");
    // The parent's and the child's, where they belong.
    let told = |run: &Run| run.stderr.matches("error SC101").count();
    assert_eq!(told(&late), 2, "{}", late.stderr);
    // Before the first call there is nothing to tell them through.
    let (early, own) = fd_two("early", None);
    assert_eq!((own.as_str(), early.code), ("mine", Some(66)));
    assert_eq!(early.stdout, "child ended with 66\n");
    assert_eq!(early.stderr, "");
    // Unless the program kept it.
    let (kept, own) = fd_two("kept", None);
    assert_eq!((own.as_str(), kept.code), ("mine", Some(66)));
    assert_eq!(told(&kept), 1, "{}", kept.stderr);
}

#[test]
fn a_standard_error_that_was_closed_at_the_start_is_none() {
    let shell = "LD_PRELOAD=\"$PRELOADED\" exec \"$@\" 2>&-";
    let (closed, own) = fd_two("closed", Some(shell));
    assert_eq!((own.as_str(), closed.code), ("mine", Some(66)));
    assert_eq!(closed.stderr, "");
}

#[test]
fn a_further_descriptor_of_standard_error_is_high_and_ends_with_exec() {
    let (seen, _) = fd_two("seen", None);
    assert_eq!((seen.stdout.as_str(), seen.code), ("two\n", Some(66)));
    assert!(seen.stderr.contains("error SC101"), "{}", seen.stderr);
    // Where there is no room for one, all else is as it was.
    let shell = "ulimit -n 40; LD_PRELOAD=\"$PRELOADED\" exec \"$@\"";
    let (few, _) = fd_two("seen", Some(shell));
    assert_eq!((few.stdout.as_str(), few.code), ("one\n", Some(66)));
    assert!(few.stderr.contains("error SC101"), "{}", few.stderr);
}
