//! What the library writes to standard error of itself.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;

use crate::common::{preloaded, program, run};

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
