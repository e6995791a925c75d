//! What is recorded where order, or its lack, is out of sight.

use std::path::Path;

use serde_json::Value;

use crate::common::{driver_program, folder, preloaded, program, run};

/// The rules that a scenario of `order.c` breaks, and its report.
fn scenario(arguments: &[&str], settings: &[(&str, &str)]) -> (Vec<String>, Value) {
    scenario_of(&program("order"), arguments, settings)
}

/// The same of `driver_order.c`.
fn driver_scenario(name: &str) -> (Vec<String>, Value) {
    scenario_of(&driver_program("driver_order"), &[name], &[])
}

fn scenario_of(
    program: &Path,
    arguments: &[&str],
    settings: &[(&str, &str)],
) -> (Vec<String>, Value) {
    let json = format!("order-{}.json", arguments.join("-"));
    let mut command = preloaded(program);
    command.args(arguments).env("STREAMCHECK_JSON", &json);
    for (name, value) in settings {
        command.env(name, value);
    }
    let result = run(&mut command);
    let text = std::fs::read_to_string(folder().join(json)).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(
        result.stdout,
        format!("{}\n", arguments[0]),
        "the program ran to its end: {:?} {}",
        result.code,
        result.stderr
    );
    let rules = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|finding| finding["rule"].as_str().expect("a code").to_owned())
        .collect();
    (rules, report)
}

fn rules(arguments: &[&str]) -> Vec<String> {
    scenario(arguments, &[]).0
}

/// How often a kind of blind spot was counted.
fn blind(report: &Value, kind: &str) -> u64 {
    report["summary"]["blind_spots"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|spot| spot["kind"] == kind)
        .filter_map(|spot| spot["count"].as_u64())
        .sum()
}

#[test]
fn a_wait_for_a_semaphore_orders_after_everything() {
    let (rules, report) = scenario(&["semaphore"], &[]);
    assert!(rules.is_empty(), "{rules:?}");
    assert_eq!(blind(&report, "value-wait-of-unseen-end"), 1);
}

#[test]
fn an_array_copy_to_the_host_waits() {
    let (rules, report) = scenario(&["array"], &[]);
    assert!(rules.is_empty(), "{rules:?}");
    assert_eq!(blind(&report, "array-copy"), 0, "its other side is known");
}

#[test]
fn a_graph_launch_takes_its_place_in_the_legacy_stream() {
    let (rules, report) = scenario(&["graph"], &[]);
    assert!(rules.is_empty(), "{rules:?}");
    assert_eq!(blind(&report, "graph-of-unknown-origin"), 1);
}

#[test]
fn an_event_of_a_launch_attribute_has_a_record() {
    let (rules, report) = scenario(&["completion"], &[]);
    assert!(rules.is_empty(), "{rules:?}");
    assert_eq!(blind(&report, "launch-completion-event"), 1);
}

#[test]
fn only_an_attribute_that_is_on_starts_a_kernel_early() {
    const EARLY: &str = "programmatic-dependent-launch";
    assert_eq!(blind(&scenario(&["early"], &[]).1, EARLY), 1);
    assert_eq!(blind(&scenario(&["not-early"], &[]).1, EARLY), 0);
}

#[test]
fn a_capture_lasts_until_it_is_ended() {
    assert!(rules(&["capture"]).is_empty());
    assert_eq!(rules(&["capture", "then-run"]), ["SC101"]);
}

#[test]
fn memory_stays_registered_when_its_unregistration_fails() {
    assert_eq!(rules(&["unregister"]), ["SC107"]);
}

#[test]
fn a_free_takes_every_registered_part_of_its_block() {
    assert_eq!(rules(&["halves"]), ["SC107"]);
    assert_eq!(rules(&["halves-reversed"]), ["SC107"]);
}

#[test]
fn a_destroyed_streams_handle_is_free_at_once() {
    assert!(rules(&["reuse"]).is_empty());
}

#[test]
fn a_host_function_that_was_refused_is_in_no_stream() {
    let (rules, report) = scenario(
        &["host-function"],
        &[("STANDIN_REFUSES_HOST_FUNCTIONS", "1")],
    );
    assert!(rules.is_empty());
    assert_eq!(report["summary"]["operations"], 2, "two streams");
}

#[test]
fn a_host_function_may_run_in_the_call() {
    let at_once = [("STANDIN_RUNS_HOST_FUNCTIONS_AT_ONCE", "1")];
    assert!(scenario(&["at-once"], &at_once).0.is_empty());
    // What it calls is the application's.
    assert_eq!(scenario(&["race-at-once"], &at_once).0, ["SC101"]);
}

#[test]
fn the_runtime_says_whether_memory_is_pageable() {
    assert_eq!(rules(&["inferred", "unregistered"]), ["SC201"]);
    assert!(rules(&["inferred", "device"]).is_empty());
    // No answer, and none asked for while an error of the program's is pending.
    assert!(rules(&["inferred", "failing"]).is_empty());
    assert!(rules(&["inferred", "pending"]).is_empty());
}

#[test]
fn imported_memory_may_lie_where_memory_was_freed() {
    for import in ["ipc", "pool", "buffer"] {
        assert!(rules(&["import", import]).is_empty(), "{import}");
    }
    assert_eq!(rules(&["import", "nothing"]), ["SC102"]);
}

#[test]
fn a_closed_import_is_gone() {
    assert_eq!(rules(&["import", "ipc", "open"]), ["SC109"]);
    assert!(rules(&["import", "ipc", "closed"]).is_empty());
}

#[test]
fn another_processs_records_of_an_event_are_not_known() {
    assert_eq!(rules(&["event"]), ["SC101"]);
    for name in ["shared-event", "opened-event"] {
        let (rules, report) = scenario(&[name], &[]);
        assert!(rules.is_empty(), "{rules:?}");
        assert_eq!(blind(&report, "event-of-unknown-origin"), 1);
    }
}

#[test]
fn an_attribute_of_memory_makes_synchronous_fills_wait() {
    assert!(driver_scenario("attribute").0.is_empty());
    for name in ["no-attribute", "attribute-off", "attribute-freed"] {
        assert_eq!(driver_scenario(name).0, ["SC109"], "{name}");
    }
}

#[test]
fn a_layout_that_a_pending_error_hid_is_asked_for_again() {
    assert_eq!(rules(&["pending-error"]), ["SC101"]);
}

#[test]
fn a_kernel_at_an_unloaded_ones_address_is_learned_anew() {
    assert_eq!(rules(&["another-module"]), ["SC101"]);
    assert_eq!(rules(&["another-kernel"]), ["SC101"]);
}

#[test]
fn the_driver_says_whether_memory_is_pageable() {
    assert_eq!(driver_scenario("inferred").0, ["SC201"]);
}

#[test]
fn the_driver_says_how_large_an_import_is() {
    assert!(driver_scenario("import").0.is_empty());
    assert_eq!(driver_scenario("race-in-import").0, ["SC109"]);
    assert_eq!(driver_scenario("not-imported").0, ["SC102"]);
}

#[test]
fn a_wait_for_a_value_in_memory_orders_after_everything() {
    let (rules, report) = driver_scenario("wait-value");
    assert!(rules.is_empty(), "{rules:?}");
    assert_eq!(blind(&report, "value-wait-of-unseen-end"), 1);
}

#[test]
fn the_end_of_a_context_is_that_of_its_own_devices_work() {
    assert!(driver_scenario("context").0.is_empty());
}

#[test]
fn a_contexts_end_forgets_its_kernels() {
    assert_eq!(driver_scenario("kernels").0, ["SC101"]);
}

#[test]
fn an_unmapping_takes_every_mapping_in_its_range() {
    assert_eq!(driver_scenario("unmap").0, ["SC102"]);
    assert!(driver_scenario("failed-unmap").0.is_empty());
}
