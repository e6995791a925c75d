//! What each kind of call is recorded as, and what is said of it, over the simulated
//! driver and runtime.

use streamcheck_model::trace::{Reader, Record};
use streamcheck_model::{
    Action, Condition, ContextId, DeviceId, Direction, Flag, HostMemory, Operation, Region,
    SourceOrder,
};

use crate::common::{Run, folder, preloaded, run, simulated, simulated_program};

/// A run of one of the programs in `simulated.c`.
struct Seen {
    run: Run,
    rules: Vec<String>,
    blind_spots: Vec<String>,
    operations: Vec<Operation>,
}

impl Seen {
    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.operations.iter().map(|operation| &operation.action)
    }
}

fn see(name: &str) -> Seen {
    see_with(name, &[])
}

fn see_with(name: &str, settings: &[(&str, &str)]) -> Seen {
    let (json, trace) = (
        format!("simulated-{name}.json"),
        format!("simulated-{name}.trace"),
    );
    let mut command = preloaded(simulated_program("simulated"));
    command
        .arg(name)
        .env("LD_LIBRARY_PATH", simulated())
        .env("SIMCUDA_DEVICES", "2")
        .env("STREAMCHECK_JSON", &json)
        .env("STREAMCHECK_TRACE", &trace)
        .envs(settings.iter().copied());
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
    let texts = |list: &serde_json::Value, of: &str| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|entry| entry[of].as_str().expect("a text").to_owned())
            .collect()
    };
    let file = std::fs::File::open(folder().join(&trace)).expect("a trace");
    let operations = Reader::new(std::io::BufReader::new(file), trace)
        .expect("its header is whole")
        .filter_map(|record| match record.expect("every record is whole") {
            Record::Operation(operation) => Some(operation),
            _ => None,
        })
        .collect();
    Seen {
        rules: texts(&report["findings"], "rule"),
        blind_spots: texts(&report["summary"]["blind_spots"], "kind"),
        run,
        operations,
    }
}

fn clean(name: &str) -> Seen {
    let seen = see(name);
    assert!(seen.rules.is_empty(), "{name}: {}", seen.run.stderr);
    assert!(seen.blind_spots.is_empty(), "{:?}", seen.blind_spots);
    seen
}

#[test]
fn waits_for_values_order_after_the_writes_that_end_them() {
    clean("values");
    clean("values-64");
    assert_eq!(see("values-too-early").rules, ["SC101"]);
    let seen = clean("values-batch");
    let values: Vec<(bool, u64, Option<Condition>)> = seen
        .actions()
        .filter_map(|action| match *action {
            Action::ValueWritten {
                flag: Flag::Memory(_),
                value,
                ..
            } => Some((true, value, None)),
            Action::ValueWaited {
                flag: Flag::Memory(_),
                value,
                condition,
                ..
            } => Some((false, value, Some(condition))),
            _ => None,
        })
        .collect();
    assert_eq!(
        values,
        [
            (true, 7, None),
            (true, 9, None),
            (false, 2, Some(Condition::And)),
            (false, 9, Some(Condition::Reached64)),
        ]
    );
}

#[test]
fn a_batch_tells_when_each_source_is_read() {
    let seen = see("batch");
    // Pageable memory is staged, which is worth a warning, but no error.
    assert_eq!(seen.rules, ["SC201"], "{}", seen.run.stderr);
    let copies = seen
        .actions()
        .find_map(|action| match action {
            Action::CopiedTogether { copies, .. } => Some(copies),
            _ => None,
        })
        .expect("the batch");
    let told: Vec<(u64, HostMemory, SourceOrder)> = copies
        .iter()
        .map(|copy| (copy.from.bytes(), copy.host, copy.order))
        .collect();
    assert_eq!(
        told,
        [
            (16, HostMemory::Pageable, SourceOrder::DuringCall),
            (8, HostMemory::Pageable, SourceOrder::Stream),
            (4, HostMemory::Unasked, SourceOrder::Any),
        ]
    );
    // B17: its source is freed while the copy may be pending.
    let freed = see("batch-freed").rules;
    assert_eq!(freed, ["SC201", "SC107"]);
}

#[test]
fn a_batchs_pageable_target_has_to_live_until_it_is_written() {
    for name in [
        "batch-targets",
        "batch-targets-any",
        "batch-targets-during-call",
        "batch-targets-side-by-side",
        "batch-targets-resized",
    ] {
        assert_eq!(see(name).rules, ["SC107"], "{name}");
    }
    clean("batch-targets-waited");
    clean("batch-targets-side-by-side-waited");
}

#[test]
fn sources_that_are_too_many_are_counted() {
    assert_eq!(see("many-sources").blind_spots, ["forgotten-sources"]);
    // Those that were read need no watching.
    assert!(see("waited-many-sources").blind_spots.is_empty());
}

#[test]
fn volumes_are_told_exactly() {
    let seen = clean("volumes");
    let mut regions = seen.actions().filter_map(|action| match action {
        Action::Copied { to, from, .. } => Some(vec![*to, *from]),
        Action::CopiedInLayers { layers, .. } => {
            Some(layers.iter().flat_map(|(to, from)| [*to, *from]).collect())
        }
        Action::CopiedTogether { copies, .. } => Some(
            copies
                .iter()
                .flat_map(|copy| [copy.to, copy.from])
                .collect(),
        ),
        Action::Filled { to, .. } => Some(vec![*to]),
        _ => None,
    });
    let sizes = |regions: Vec<Region>| -> Vec<(u64, u64, u64)> {
        let of = |region: Region| (region.width, region.rows, region.pitch);
        regions.into_iter().map(of).collect()
    };
    // Rows with gaps between the slices: slice by slice.
    let sliced = regions.next().expect("a copy with gaps");
    assert_eq!(sliced[2].address - sliced[0].address, 16 * 6);
    assert_eq!(sliced[3].address - sliced[1].address, 8 * 4);
    let (gaps, dense) = ((8, 4, 16), (32, 1, 32));
    assert_eq!(sizes(sliced), [gaps, dense, gaps, dense]);
    // Slices that touch: one run of rows.
    let folded = regions.next().expect("a dense copy");
    assert_eq!(sizes(folded), [(8, 12, 16), (96, 1, 96)]);
    assert_eq!(sizes(regions.next().expect("a fill")), [gaps]);
    assert_eq!(sizes(regions.next().expect("its second slice")), [gaps]);
    // One row a slice.
    let batch = regions.next().expect("a batch");
    assert_eq!(sizes(batch), [(8, 3, 96), (24, 1, 24)]);
}

#[test]
fn an_arrays_other_side_is_told_exactly() {
    let seen = clean("arrays");
    let copies: Vec<(Region, Region, Direction)> = seen
        .actions()
        .filter_map(|action| match *action {
            Action::Copied {
                to,
                from,
                direction,
                ..
            } => Some((to, from, direction)),
            _ => None,
        })
        .collect();
    let rows = |rows| Region::pitched(copies[0].1.address, 16, rows, 64);
    for ((to, from, direction), wanted) in copies.iter().zip([rows(4), rows(2)]) {
        assert_eq!((to.bytes(), *direction), (0, Direction::HostToDevice));
        assert_eq!(*from, wanted);
    }
    assert_eq!(copies.len(), 2);
}

#[test]
fn a_copy_between_devices_is_a_barrier_if_it_is_synchronous() {
    let seen = clean("peer");
    let devices: Vec<&[DeviceId]> = seen
        .actions()
        .filter_map(|action| match action {
            Action::Barrier { devices } => Some(devices.as_slice()),
            _ => None,
        })
        .collect();
    let both: &[DeviceId] = &[DeviceId(0), DeviceId(1)];
    assert_eq!(devices, [both, both]);
    assert_eq!(see("peer-async").rules, ["SC109"]);
}

#[test]
fn managed_memory_moves_in_stream_order() {
    let seen = clean("managed");
    let enqueued = |action: &&Action| matches!(action, Action::Enqueued { .. });
    assert_eq!(seen.actions().filter(enqueued).count(), 2);
    assert_eq!(see("discard-race").rules, ["SC109"]);
}

#[test]
fn pools_are_told_apart() {
    let seen = clean("pools");
    let pools: Vec<(bool, u64)> = seen
        .actions()
        .filter_map(|action| match action {
            Action::Allocated { pool, .. } => Some((true, pool.0)),
            Action::PoolDestroyed { pool } => Some((false, pool.0)),
            _ => None,
        })
        .collect();
    let [
        (true, first),
        (false, first_gone),
        (true, second),
        (false, second_gone),
    ] = pools[..]
    else {
        panic!("{pools:?}");
    };
    assert_ne!(first, 0);
    assert_eq!((first, second), (first_gone, second_gone));
}

#[test]
fn a_time_between_events_tells_that_they_are_over() {
    clean("elapsed");
    assert_eq!(see("not-elapsed").rules, ["SC109"]);
}

#[test]
fn a_record_that_was_refused_is_none() {
    clean("refused-record");
}

#[test]
fn flags_make_synchronous_fills_wait() {
    clean("flags");
    // The fill before them does not.
    assert_eq!(see("flags-too-late").rules, ["SC109"]);
}

#[test]
fn green_contexts_have_an_order_of_their_own() {
    for name in ["green-event", "green-synchronize", "green-primary"] {
        clean(name);
    }
    for name in ["green", "green-synchronizes-another"] {
        assert_eq!(see(name).rules, ["SC109"], "{name}");
    }
    let seen = see("green-event");
    let contexts: Vec<u32> = seen
        .operations
        .iter()
        .filter(|operation| {
            matches!(
                operation.action,
                Action::ContextRecorded { .. } | Action::ContextWaited { .. }
            )
        })
        .map(|operation| operation.call.context.0)
        .collect();
    assert_eq!(contexts, [0x8000_0000, 0x8000_0001, 0x8000_0000]);
}

#[test]
fn execution_contexts_are_green_or_primary() {
    for name in ["execution-event", "execution-primary"] {
        clean(name);
    }
    for name in ["execution", "execution-synchronizes-another"] {
        assert_eq!(see(name).rules, ["SC109"], "{name}");
    }
}

#[test]
fn waits_for_semaphores_order_after_their_signals() {
    clean("semaphore");
    clean("timeline");
    assert_eq!(see("timeline-too-early").rules, ["SC101"]);
}

#[test]
fn a_reset_ends_the_primary_context() {
    let seen = clean("reset");
    let ends: Vec<(&Action, ContextId)> = seen
        .operations
        .iter()
        .map(|operation| (&operation.action, operation.call.context))
        .filter(|(action, _)| {
            matches!(
                action,
                Action::ContextSynchronized | Action::ContextDestroyed
            )
        })
        .collect();
    assert_eq!(
        ends,
        [
            (&Action::ContextSynchronized, ContextId(0)),
            (&Action::ContextSynchronized, ContextId(0)),
            (&Action::ContextDestroyed, ContextId(0)),
        ]
    );
}

#[test]
fn what_is_held_at_the_end_is_told() {
    let seen = see("leak");
    assert!(seen.rules.is_empty(), "the rule is off by default");
    assert_eq!(seen.actions().last(), Some(&Action::Ended));
    let told = see_with("leak", &[("STREAMCHECK_LEVEL", "SC111=error")]);
    assert_eq!(
        (told.run.code, &*told.rules),
        (Some(66), &["SC111".to_owned()][..])
    );
    assert!(told.run.stderr.contains("SC111"), "{}", told.run.stderr);
}
