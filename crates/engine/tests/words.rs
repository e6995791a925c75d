//! What a finding says, and what the summary counts.

use streamcheck_engine::{Engine, Finding, Levels};
use streamcheck_model::Action;
use streamcheck_model::text::Program;

fn run(text: &str) -> (Engine, Vec<Finding>) {
    let program = Program::parse(text).unwrap();
    let mut engine = Engine::new(Levels::default());
    *engine.names_mut() = program.names.clone();
    let found = program
        .operations()
        .flat_map(|operation| engine.apply(operation))
        .collect();
    (engine, found)
}

/// The ordering that the only finding tells of.
fn ordering(text: &str) -> String {
    let (_, found) = run(text);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].ordering.clone()
}

#[test]
fn a_synchronous_copy_from_pageable_memory_is_named_as_the_cause() {
    let staged = ordering(
        "stream S1 nonblocking\nh = pageable 1024\np = malloc 1024\n\
         copy_sync h -> p 1024\nlaunch write S1 p",
    );
    assert!(
        staged.contains("cudaMemcpy from pageable memory"),
        "{staged}"
    );
    let pinned = ordering(
        "stream S1 nonblocking\nstream S2 nonblocking\nh = malloc_host 1024\n\
         p = malloc 1024\ncopy S2 h -> p 1024\nlaunch write S1 p",
    );
    assert!(!pinned.contains("pageable"), "{pinned}");
}

#[test]
fn streams_are_numbered_in_the_order_of_their_creation() {
    let (_, found) = run(
        "stream S1 nonblocking\nlaunch empty L\nstream S2 nonblocking\np = malloc 1024\n\
         launch write S1 p\nlaunch write S2 p",
    );
    let message = &found[0].message;
    assert!(
        message.contains("stream 1") && message.contains("stream 2"),
        "{message}"
    );
}

#[test]
fn the_summary_counts_what_happened() {
    let (engine, _) = run(
        "stream S1 nonblocking\nevent E\np = malloc 1024\nq = malloc_async 1024 S1\n\
         h = malloc_host 4096\nlaunch write S1 p\nlaunch write S1 ?\ncopy S1 h -> p 1024\n\
         fill S1 q 1024\ncopies S1 h -> p 512, h+512 -> p+512 512\nlaunch empty L\n\
         free_async q S1\nblind texture k",
    );
    let summary = engine.summary();
    assert_eq!(summary.operations, 12);
    assert_eq!(summary.launches, 3);
    assert_eq!(summary.copies, 4);
    assert_eq!(summary.allocations, 3);
    assert_eq!(summary.streams, 2);
    let blind: Vec<(&str, u64)> = summary
        .blind_spots
        .iter()
        .map(|spot| (spot.kind.as_str(), spot.count))
        .collect();
    assert_eq!(blind, [("unknown-kernel-parameters", 1), ("texture", 1)]);
}

#[test]
fn waits_whose_end_is_not_seen_are_blind_spots() {
    let waits = |program: &str| {
        let (engine, _) = run(&format!(
            "stream S1 nonblocking\nstream S2 nonblocking\nf = malloc 4\n{program}"
        ));
        let spots = engine.summary().blind_spots;
        spots.iter().map(|spot| spot.count).sum::<u64>()
    };
    assert_eq!(waits("wait_value S2 f >= 1"), 1);
    assert_eq!(waits("write_value S1 f 1\nwait_value S2 f >= 1"), 0);
}

#[test]
fn a_use_after_free_is_told_with_its_own_address() {
    let (_, found) = run(
        "stream S1 nonblocking\np = malloc_async 1024 S1\nfree_async p S1\n\
         launch write S1 p+16",
    );
    let address = found[0].allocation.unwrap().address + 16;
    let message = &found[0].message;
    assert!(message.contains(&format!("{address:#x}")), "{message}");
}

#[test]
fn an_invalid_free_is_told_by_what_is_wrong_with_it() {
    let message = |program: &str| {
        let (_, found) = run(&format!("stream S1 nonblocking\n{program}"));
        (found[0].message.clone(), found[0].allocation.is_some())
    };
    let (twice, known) = message("p = malloc_async 1024 S1\nfree_async p S1\nfree_async p S1");
    assert!(twice.contains("freed already") && known, "{twice}");
    let (inside, known) = message("p = malloc_async 1024 S1\nfree_async p+256 S1 refused");
    assert!(inside.contains("256 bytes inside") && known, "{inside}");
    let (unknown, known) = message("h = pageable 64\nfree h refused");
    assert!(unknown.contains("0x5500") && !known, "{unknown}");
}

/// B10: the wait is there, for the wrong record.
#[test]
fn a_record_that_was_replaced_is_named_as_the_cause() {
    let program = |second: &str| {
        format!(
            "stream S1 nonblocking\nstream S2 nonblocking\nstream S3 nonblocking\n\
             p = malloc 64\nevent E\nevent F\nlaunch a S1 p\nrecord E S1\nrecord {second} S2\n\
             wait S3 E\nlaunch b S3 p"
        )
    };
    let (_, found) = run(&program("E"));
    assert!(found[0].ordering.contains("last recorded"), "{found:?}");
    assert!(
        found[0].help.starts_with("Record another event"),
        "{found:?}"
    );
    assert!(run(&program("F")).1.is_empty());
    // The replaced record did not cover the use: it is not the cause.
    let (_, found) = run(
        "stream S1 nonblocking\nstream S2 nonblocking\nstream S3 nonblocking\np = malloc 64\nevent E\n\
         record E S1\nrecord E S2\nlaunch a S1 p\nwait S3 E\nlaunch b S3 p",
    );
    assert!(!found[0].ordering.contains("last recorded"), "{found:?}");
}

const CAPTURED: &str = "stream S nonblocking\nstream R nonblocking\np = malloc_async 1024 S\n\
    capture S\nlaunch step S p\nend_capture S G\ninstantiate G X\n";

#[test]
fn a_launch_is_told_with_its_node_and_where_that_was_captured() {
    let (_, found) = run(&format!("{CAPTURED}free_async p S\ngraph_launch S X"));
    let message = &found[0].message;
    for part in [
        "kernel `step` of the graph that cudaGraphLaunch launches on stream 1 uses",
        "inside 1,024 bytes that cudaFreeAsync on stream 1 (operation 8) has freed",
        "the node was captured from kernel `step` on stream 1 (operation 5)",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let stacks: Vec<u32> = found[0].events.iter().map(|event| event.stack.0).collect();
    assert_eq!(
        stacks,
        [5, 3, 8, 9],
        "the node, the allocation, the free and the launch"
    );
    assert!(
        found[0].help.contains("capture the graph again"),
        "{}",
        found[0].help
    );
    // What follows a launch tells of the launch.
    let (_, found) = run(&format!("{CAPTURED}graph_launch S X\nfree_async p R"));
    let message = &found[0].message;
    assert!(
        message.contains("while kernel `step` of the graph that cudaGraphLaunch launches on stream 1 (operation 8)"),
        "{message}"
    );
}

#[test]
fn a_race_inside_a_graph_is_told_with_both_nodes() {
    let (_, found) = run(
        "p = malloc 64\ngraph G\nnode G a kernel first p\nnode G b kernel second read:p\n\
         instantiate G X",
    );
    let finding = &found[0];
    assert!(
        finding
            .message
            .starts_with("kernel `second` and kernel `first` (operation 3)"),
        "{}",
        finding.message
    );
    assert!(
        finding.ordering.contains("nodes of one graph"),
        "{}",
        finding.ordering
    );
    assert!(
        finding.help.contains("cudaGraphAddDependencies"),
        "{}",
        finding.help
    );
    let (_, found) = run(
        "stream S nonblocking\nstream R nonblocking\nevent E\np = malloc 64\ncapture S\nrecord E S\n\
         wait R E\nlaunch first S p\nlaunch second R p\nend_capture S G\ninstantiate G X",
    );
    assert!(
        found[0]
            .help
            .contains("cudaStreamWaitEvent(stream_2, event)"),
        "{}",
        found[0].help
    );
}

#[test]
fn what_is_not_known_of_graphs_is_a_blind_spot() {
    let spots = |program: &str| -> Vec<(String, u64)> {
        let (engine, found) = run(program);
        assert!(found.is_empty(), "{found:?}");
        let spots = engine.summary().blind_spots;
        spots
            .into_iter()
            .map(|spot| (spot.kind, spot.count))
            .collect()
    };
    let other = "graph H\nnode H n kernel k p\n";
    let changed = format!("{CAPTURED}{other}set X n kernel k p\nfree_async p S\ngraph_launch S X");
    assert_eq!(
        spots(&changed),
        [("graph-node-of-unknown-origin".to_owned(), 1)]
    );
    let conditional = "graph B\ngraph G\nnode G c conditional B";
    assert_eq!(spots(conditional), [("graph-conditional".to_owned(), 1)]);
    let unknown =
        "stream S nonblocking\ngraph G\nnode G u unknown\ninstantiate G X\ngraph_launch S X";
    assert_eq!(
        spots(unknown),
        [
            ("graph-node-of-unknown-kind".to_owned(), 1),
            ("graph-with-unknown-nodes".to_owned(), 1)
        ]
    );
}

#[test]
fn a_launch_counts_what_its_nodes_do() {
    let (engine, _) = run(
        "stream S nonblocking\np = malloc 64\ncapture S\nlaunch k S p\nfill S p 8\nlaunch l S\n\
         end_capture S G\ninstantiate G X\ngraph_launch S X\ngraph_launch S X",
    );
    let summary = engine.summary();
    assert_eq!((summary.launches, summary.copies), (4, 2));
}

#[test]
fn an_early_access_of_the_cpus_is_told_with_the_work_that_it_meets() {
    let program = |access: &str| {
        let text = format!(
            "stream S nonblocking\nh = malloc_host 1024\np = malloc 1024\ncopy S p -> h 1024\n{access}"
        );
        let (_, found) = run(&text);
        (found[0].message.clone(), found[0].help.clone())
    };
    let (message, help) = program("host reads h+8 4");
    assert!(
        message.starts_with("the host reads 4 bytes at 0x5500"),
        "{message}"
    );
    assert!(
        message.ends_with(
            "8, inside 1,024 bytes of pinned memory, while cudaMemcpyAsync on stream 1 (operation 4) may still write \
             them"
        ),
        "{message}"
    );
    assert!(
        help.starts_with(
            "Before the host's read (operation 5), call cudaStreamSynchronize(stream_1)"
        ),
        "{help}"
    );
    let (message, help) = program("host writes h 512 in recv");
    assert!(
        message.starts_with("recv writes 512 bytes at") && message.ends_with("may still use them"),
        "{message}"
    );
    assert!(
        help.starts_with("Before recv (operation 5), call"),
        "{help}"
    );
    // What a kernel does with a pointer that is not `const` may be to read.
    let (_, found) =
        run("stream S nonblocking\nm = malloc_managed 64\nlaunch k S m\nhost reads m 4");
    assert!(
        found[0].help.contains("declare its parameter `const`"),
        "{}",
        found[0].help
    );
}

#[test]
fn a_variable_whose_function_has_returned_is_told_so() {
    let program = Program::parse(
        "stream S nonblocking\nh = pageable 64\np = malloc 64\ncopies S h -> p 64\nrelease h",
    )
    .unwrap();
    let mut engine = Engine::new(Levels::default());
    *engine.names_mut() = program.names.clone();
    let returned = engine.names_mut().intern("return");
    let mut found = Vec::new();
    for operation in program.operations() {
        let mut operation = operation.clone();
        if let Action::FreeBegun { .. } = operation.action {
            operation.call.api = returned;
        }
        found.extend(engine.apply(&operation));
    }
    let (message, help) = (&found[0].message, &found[0].help);
    assert!(
        message.starts_with(
            "a function has returned, and with it went 64 bytes of system host memory"
        ),
        "{message}"
    );
    assert!(
        help.starts_with("Before the function returns, call cudaStreamSynchronize(stream_1)"),
        "{help}"
    );
}
