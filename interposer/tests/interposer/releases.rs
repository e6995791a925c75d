//! Host memory that goes away in one of the many ways there are, with a copy or fill of it
//! pending or complete.

use crate::common::{folder, preloaded, run, simulated, simulated_program};

/// The rules that a run of the program finds broken, with the calls that broke them.
fn found(name: &str) -> Vec<(String, String)> {
    found_on(false, name)
}

/// The same, on a device that uses the host's page tables or on one that does not.
fn found_on(coherent: bool, name: &str) -> Vec<(String, String)> {
    let json = format!("releases-{name}-{coherent}.json");
    let mut command = preloaded(simulated_program("releases"));
    command
        .arg(name)
        .env("LD_LIBRARY_PATH", simulated())
        .env("SIMCUDA_COHERENT", u8::from(coherent).to_string())
        .env("STREAMCHECK_JSON", &json);
    let run = run(&mut command);
    assert_eq!(
        run.stdout,
        format!("{name}\n"),
        "the program ran to its end: {:?} {}",
        run.code,
        run.stderr
    );
    let text = std::fs::read_to_string(folder().join(json)).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let findings = report["findings"].as_array().expect("a list").iter();
    findings
        .map(|finding| {
            let events = finding["events"].as_array().expect("a list");
            let last = events.last().expect("a call");
            let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
            (text(&finding["rule"]), text(&last["api"]))
        })
        .collect()
}

#[track_caller]
fn broken(name: &str, call: &str) {
    let wanted = [("SC107".to_owned(), call.to_owned())];
    assert_eq!(found(name), wanted, "{name}");
}

#[track_caller]
fn right(name: &str) {
    assert_eq!(found(name), [], "{name}");
}

#[test]
fn what_new_gave_delete_takes() {
    broken("delete", "free");
    right("delete-waited");
}

#[test]
fn a_mapping_is_moved_cut_off_or_covered() {
    broken("moved", "mremap");
    right("moved-waited");
    broken("cut-off", "mremap");
    right("cut-off-waited");
    broken("placed-over", "mremap");
    right("placed-over-waited");
    right("kept");
    right("refused");
}

#[test]
fn a_fill_uses_memory_too() {
    broken("fill", "mremap");
    right("fill-waited");
}

#[test]
fn a_host_function_frees_what_was_used_before_it() {
    broken("callback-too-early", "free");
    right("callback");
}

#[test]
fn a_variable_goes_when_its_function_returns() {
    broken("local", "return");
    broken("local-far-below", "return");
    broken("local-registered", "return");
    // Staged, which is worth a warning.
    let staged = ("SC201".to_owned(), "cudaMemcpyBatchAsync".to_owned());
    assert_eq!(found("local-during-call"), [staged]);
    right("local-waited");
    right("local-of-a-caller");
    right("local-registered-waited");
}

#[test]
fn a_copy_to_pageable_memory_may_be_pending_on_coherent_devices_alone() {
    let staged = ("SC201".to_owned(), "cudaMemcpyAsync".to_owned());
    let released = ("SC107".to_owned(), "mremap".to_owned());
    let alone = std::slice::from_ref(&staged);
    assert_eq!(found_on(false, "pageable"), alone);
    assert_eq!(found_on(true, "pageable-waited"), alone);
    assert_eq!(found_on(true, "pageable"), [staged, released]);
}
