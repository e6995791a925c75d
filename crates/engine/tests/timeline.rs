//! What a finding shows of the operations around it.

use std::fmt::Write as _;

use streamcheck_engine::{Engine, Finding, Levels, Timeline};
use streamcheck_model::text::Program;

fn run(text: &str) -> Vec<Finding> {
    let program = Program::parse(text).unwrap();
    let mut engine = Engine::new(Levels::default());
    *engine.names_mut() = program.names.clone();
    program
        .operations()
        .flat_map(|operation| engine.apply(operation))
        .collect()
}

/// The last finding's.
fn timeline(text: &str) -> Timeline {
    run(text).pop().expect("a finding").timeline
}

/// A timeline in lines.
fn told(text: &str) -> String {
    let timeline = timeline(text);
    let mut told = String::new();
    for op in &timeline.operations {
        let lane = timeline.lanes[op.lane].name.split(" (0x").next().unwrap();
        let name = op.kernel.as_deref().unwrap_or(&op.api);
        let _ = writeln!(told, "{} {name} | {lane}", op.sequence);
    }
    for edge in &timeline.edges {
        let _ = writeln!(told, "{} -> {} {}", edge.from, edge.to, edge.reason);
    }
    told
}

fn lines(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn an_event_that_was_recorded_too_early_is_an_arrow_from_there() {
    assert_eq!(
        told(
            "stream S1 nonblocking\nstream S2 nonblocking\nevent E\nq = malloc 64\n\
             launch before S1 q\nrecord E S1\np = malloc_async 1024 S1\nlaunch fill S1 p\n\
             wait S2 E\nlaunch use S2 p"
        ),
        lines(&[
            "6 cudaEventRecord | stream 1",
            "7 cudaMallocAsync | stream 1",
            "8 fill | stream 1",
            "9 cudaStreamWaitEvent | stream 2",
            "10 use | stream 2",
            "6 -> 9 event wait",
        ])
    );
}

#[test]
fn the_host_has_a_lane_where_it_waits() {
    assert_eq!(
        told(
            "stream S1 nonblocking\nstream S2 nonblocking\np = malloc 64\nlaunch a S1 p\n\
             sync S1\nlaunch b S2 p\nlaunch c S1 p"
        ),
        lines(&[
            "3 cudaMalloc | host",
            "4 a | stream 1",
            "5 cudaStreamSynchronize | host",
            "6 b | stream 2",
            "7 c | stream 1",
            "4 -> 5 host synchronize",
            "5 -> 6 submission after what the host knows complete",
            "5 -> 7 submission after what the host knows complete",
        ])
    );
}

#[test]
fn a_barrier_of_the_legacy_stream_is_an_arrow_to_and_from_it() {
    assert_eq!(
        told(
            "stream S1 blocking\nstream S3 blocking\np = malloc 64\nq = malloc 64\n\
             launch a S1 q\nlaunch b L q\nlaunch c S3 q\nlaunch d S1 p\nlaunch e S3 p"
        ),
        lines(&[
            "3 cudaMalloc | host",
            "5 a | stream 1",
            "6 b | legacy default stream",
            "7 c | stream 2",
            "8 d | stream 1",
            "9 e | stream 2",
            "5 -> 6 legacy default stream",
            "6 -> 7 legacy default stream",
            "6 -> 8 legacy default stream",
        ])
    );
}

#[test]
fn a_value_that_was_written_early_is_an_arrow() {
    assert_eq!(
        told(
            "stream S1 nonblocking\nstream S2 nonblocking\nf = malloc 4\np = malloc 64\n\
             write_value S1 f 1\nlaunch a S1 p\nwait_value S2 f >= 1\nlaunch b S2 p"
        ),
        lines(&[
            "4 cudaMalloc | host",
            "5 cuStreamWriteValue32 | stream 1",
            "6 a | stream 1",
            "7 cuStreamWaitValue32 | stream 2",
            "8 b | stream 2",
            "5 -> 7 value wait",
        ])
    );
}

#[test]
fn a_free_is_where_its_call_was_made() {
    assert_eq!(
        told(
            "stream S1 nonblocking\nstream S2 nonblocking\nevent E\np = malloc_async 64 S1\n\
             record E S1\nwait S2 E\nlaunch a S1 p\nfree_async p S2"
        ),
        lines(&[
            "4 cudaMallocAsync | stream 1",
            "5 cudaEventRecord | stream 1",
            "6 cudaStreamWaitEvent | stream 2",
            "7 a | stream 1",
            "8 cudaFreeAsync | stream 2",
            "5 -> 6 event wait",
        ])
    );
}

#[test]
fn an_event_older_than_what_is_remembered_is_there() {
    let mut text = String::from(
        "stream S1 nonblocking\nstream S2 nonblocking\np = malloc_async 64 S1\nq = malloc 64\n",
    );
    for _ in 0..5000 {
        text.push_str("launch step S2 q\n");
    }
    text.push_str("launch use S2 p");
    let timeline = timeline(&text);
    assert_eq!(timeline.operations.len(), 32);
    let first = &timeline.operations[0];
    assert_eq!((first.sequence, &*first.api), (3, "cudaMallocAsync"));
    assert_eq!(timeline.lanes[first.lane].name, timeline.lanes[0].name);
    assert_eq!(timeline.operations[31].sequence, 5005);
}

#[test]
fn what_orders_is_kept_before_what_works() {
    let mut text = String::from(
        "stream S1 nonblocking\nstream S2 nonblocking\nevent E\np = malloc_async 64 S1\n\
         q = malloc 64\nr = malloc 64\nrecord E S1\nwait S2 E\n",
    );
    for _ in 0..50 {
        text.push_str("launch step S2 q\nlaunch other S1 r\n");
    }
    text.push_str("launch last S1 p\nlaunch use S2 p");
    let timeline = timeline(&text);
    let sequences: Vec<u64> = timeline.operations.iter().map(|op| op.sequence).collect();
    assert!(
        [4, 7, 8, 109, 110]
            .iter()
            .all(|one| sequences.contains(one))
    );
    assert_eq!(sequences.len(), 32);
    let edges: Vec<_> = timeline
        .edges
        .iter()
        .map(|edge| (edge.from, edge.to))
        .collect();
    assert_eq!(edges, [(7, 8)]);
}

#[test]
fn streams_that_have_nothing_to_do_with_it_are_left_out() {
    let told = told(
        "stream S1 nonblocking\nstream S2 nonblocking\nstream S3 nonblocking\np = malloc 64\n\
         q = malloc 64\nlaunch a S1 p\nlaunch elsewhere S3 q\nsync S3\nlaunch b S2 p",
    );
    assert!(
        !told.contains("elsewhere") && !told.contains("stream 3"),
        "{told}"
    );
}

/// B10: the second record replaces the first, so that the wait is for the wrong stream.
#[test]
fn a_wait_for_the_wrong_stream_is_shown() {
    let told = told(
        "stream S1 nonblocking\nstream S2 nonblocking\nstream S3 nonblocking\n\
         p = malloc 64\nlaunch a S1 p\nevent E\nrecord E S1\nrecord E S2\nwait S3 E\nlaunch b S3 p",
    );
    assert!(told.contains("stream 2"), "{told}");
}

#[test]
fn the_streams_of_a_finding_are_named_with_how_they_were_made() {
    let found = run(
        "stream S1 nonblocking\nstream S2 blocking\np = malloc 64\nlaunch a S1 p\nlaunch b S2 p",
    );
    let streams: Vec<_> = found[0]
        .streams
        .iter()
        .map(|stream| (stream.flags, stream.created.0 != 0))
        .collect();
    assert_eq!(streams, [("non-blocking", true), ("blocking", true)]);
    let names: Vec<_> = found[0]
        .events
        .iter()
        .filter_map(|event| event.stream.clone())
        .collect();
    assert!(
        found[0]
            .streams
            .iter()
            .all(|stream| names.contains(&stream.name))
    );
}

#[test]
fn only_the_first_findings_have_one() {
    let mut text = String::from("stream S1 nonblocking\nstream S2 nonblocking\n");
    for _ in 0..300 {
        text.push_str("p = malloc 64\nlaunch a S1 p\nlaunch b S2 p\n");
    }
    let found = run(&text);
    assert_eq!(found.len(), 300);
    assert!(
        found[..256]
            .iter()
            .all(|finding| !finding.timeline.is_empty())
    );
    assert!(
        found[256..]
            .iter()
            .all(|finding| finding.timeline.is_empty())
    );
}
