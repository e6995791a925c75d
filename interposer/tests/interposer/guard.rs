//! Guarded host memory: what is found, and that nothing else changes for the program.

use std::os::unix::process::ExitStatusExt as _;

use crate::common::{folder, preloaded, simulated, simulated_program};

/// How a run of one of the programs in `guards.c` went.
struct Seen {
    /// The rules that were broken, each with the call that broke it.
    found: Vec<(String, String)>,
    blind_spots: Vec<String>,
    code: Option<i32>,
    signal: Option<i32>,
    stderr: String,
}

fn see(name: &str) -> Seen {
    see_on(name, false)
}

/// The same on a device that uses the host's page tables.
fn see_on(name: &str, coherent: bool) -> Seen {
    let json = folder().join(format!("guard-{name}-{coherent}.json"));
    let mut command = preloaded(simulated_program("guards"));
    let output = command
        .arg(name)
        .env("LD_LIBRARY_PATH", simulated())
        .env("SIMCUDA_COHERENT", u8::from(coherent).to_string())
        .env("STREAMCHECK_GUARD", "on")
        .env("STREAMCHECK_EXIT_CODE", "77")
        .env("STREAMCHECK_JSON", &json)
        .output()
        .expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{name}\n"),
        "{name} ran to its end: {:?} {stderr}",
        output.status
    );
    let text = std::fs::read_to_string(json).unwrap_or_else(|_| "{}".to_owned());
    let report: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    Seen {
        found: list(&report["findings"])
            .iter()
            .map(|finding| {
                let last = list(&finding["events"]).pop().expect("a call");
                (text(&finding["rule"]), text(&last["api"]))
            })
            .collect(),
        blind_spots: list(&report["summary"]["blind_spots"])
            .iter()
            .map(|spot| text(&spot["kind"]))
            .collect(),
        code: output.status.code(),
        signal: output.status.signal(),
        stderr,
    }
}

/// A run that finds this one access too early.
#[track_caller]
fn early(name: &str, call: &str) {
    let seen = see(name);
    let wanted = [("SC108".to_owned(), call.to_owned())];
    assert_eq!(seen.found, wanted, "{name}: {}", seen.stderr);
    assert_eq!(seen.code, Some(77), "{name}: {}", seen.stderr);
}

/// A run in which nothing is wrong.
#[track_caller]
fn right(name: &str) -> Seen {
    let seen = see(name);
    assert_eq!(seen.found, [], "{name}: {}", seen.stderr);
    assert_eq!(seen.code, Some(0), "{name}: {}", seen.stderr);
    seen
}

/// A run that a signal ends.
#[track_caller]
fn ended_by(name: &str, signal: i32) {
    let seen = see(name);
    assert_eq!(seen.signal, Some(signal), "{name}: {}", seen.stderr);
}

const SIGTRAP: i32 = 5;
const SIGSEGV: i32 = 11;

#[test]
fn what_comes_too_early_is_found_and_goes_on() {
    early("read-early", "host read");
    early("write-early", "host write");
    early("threads", "host read");
}

#[test]
fn what_comes_in_order_is_not() {
    right("in-order");
    right("small-allocations");
    right("device-reset");
}

#[test]
fn other_bytes_of_a_page_are_the_programs() {
    let seen = right("neighbours");
    assert_eq!(seen.blind_spots, ["guard-shared-page"]);
    let seen = right("registered");
    assert_eq!(seen.blind_spots, ["guard-partial-page"]);
    let seen = right("rounded");
    assert_eq!(seen.blind_spots, ["guard-partial-page"]);
}

#[test]
fn messages_in_a_ring_do_not_step_for_ever() {
    let seen = right("ring");
    assert_eq!(seen.blind_spots, ["guard-shared-page"]);
}

#[test]
fn the_c_library_reads_texts_in_vectors_and_hands_them_on() {
    right("texts");
}

#[test]
fn stacks_stay_open() {
    let seen = right("coroutine");
    assert_eq!(seen.blind_spots, ["guard-mapping"]);
}

#[test]
fn a_handler_of_the_programs_stays_what_it_is() {
    early("action-before", "host read");
    early("action-after", "host read");
    ended_by("reset-hand", SIGSEGV);
    early("ignored", "host read");
}

#[test]
fn a_crash_stays_a_crash() {
    for name in ["crashes", "killed", "crashes-in-handler"] {
        ended_by(name, SIGSEGV);
    }
    ended_by("traps", SIGTRAP);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_handler_that_replaces_ours_unseen_is_handed_what_is_its_own() {
    ended_by("replaced", SIGSEGV);
}

#[test]
fn blocked_signals_do_not_end_the_program() {
    early("masked-before", "host read");
    let seen = see("masked-after");
    let reads = seen.found.iter().filter(|(_, call)| call == "host read");
    // In a thread, and in handlers.
    assert_eq!((reads.count(), seen.found.len()), (2, 2), "{}", seen.stderr);
    early("own-stack", "host read");
    early("timer", "host read");
    let seen = see("held");
    let read_early = |found: &(String, String)| found.0 == "SC108" && found.1 == "host read";
    assert!(
        seen.found.iter().all(read_early) && seen.code == Some(77),
        "{}",
        seen.stderr
    );
}

#[test]
fn system_calls_get_and_give_the_right_bytes() {
    early("system-calls", "sendmsg");
    early("cancelled", "host read");
}

#[test]
fn a_call_that_waits_is_given_its_memory_however_long() {
    right("waits");
    early("read-after-wait", "host read");
}

#[test]
fn a_list_that_points_nowhere_is_the_kernels_to_refuse() {
    right("bad-list");
}

#[test]
fn a_value_of_one_stream_does_not_order_another() {
    early("value-of-another-stream", "host read");
}

#[test]
fn a_signal_that_comes_before_a_single_step_may_step_too() {
    right("interrupted");
}

#[test]
fn handlers_may_be_left_by_jumps_and_threads_cancelled_anywhere() {
    right("jumps");
    right("cancelled-anywhere");
}

#[test]
fn locks_beside_what_is_in_use_are_waited_for() {
    right("locked");
    right("in-the-loader");
    right("writes-anywhere");
    right("waited-for");
}

#[test]
fn where_guarding_cannot_begin_masks_are_the_programs() {
    let seen = right("blocked-unseen");
    let said = "streamcheck: guard=on does not work here: thread ";
    assert_eq!(seen.stderr.matches(said).count(), 1, "{}", seen.stderr);
}

#[test]
fn children_are_not_guarded() {
    right("forks");
}

#[test]
fn a_device_with_the_hosts_page_tables_is_left_alone() {
    let seen = see_on("read-early", true);
    assert_eq!((seen.found, seen.code), (Vec::new(), Some(0)));
    let said = "streamcheck: guarding host memory stops here: the device uses the host's page";
    assert_eq!(seen.stderr.matches(said).count(), 1, "{}", seen.stderr);
}

#[test]
fn memory_that_goes_is_open() {
    let seen = see("freed");
    let rules: Vec<&str> = seen.found.iter().map(|(rule, _)| rule.as_str()).collect();
    assert_eq!(rules, ["SC107"], "{}", seen.stderr);
}
