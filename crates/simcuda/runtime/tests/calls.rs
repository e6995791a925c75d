//! Runs a C program for each group of calls over both libraries; each checks what it sees and says nothing else.

mod stage;

use std::process::Command;

/// The program passes for several seeds, on two devices.
fn passes(name: &str) {
    let program = stage::program(&format!("calls/{name}.c"));
    for seed in 0..5 {
        let output = Command::new(&program)
            .env("LD_LIBRARY_PATH", stage::libraries())
            .env("SIMCUDA_SEED", seed.to_string())
            .env("SIMCUDA_DEVICES", "2")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.is_empty(),
            "{name}, seed {seed}: {:?}\n{text}",
            output.status
        );
    }
}

macro_rules! programs {
    ($($test:ident = $name:literal),* $(,)?) => { $( #[test] fn $test() { passes($name) } )* };
}

programs! {
    streams_wait_for_values = "values",
    devices_are_apart_and_copy_to_each_other = "devices",
    arrays_and_boxes_keep_their_bytes = "arrays",
    copies_with_attributes_read_when_they_say = "batches",
    green_contexts_have_streams_of_their_own = "green",
    launches_of_every_kind_run = "launches",
    managed_memory_is_discarded_in_stream_order = "managed",
    pools_live_until_their_last_allocation = "pools",
    what_others_share_is_used_and_handles_open_nowhere = "external",
    streams_say_what_they_are = "streams",
    captured_streams_become_graphs = "captures",
    graphs_are_built_by_hand = "graphs",
    executables_run_and_are_changed = "executables",
    graphs_allocate_and_free = "graph_memory",
    random_programs_are_replayed_as_they_run = "replays",
}

#[test]
fn a_race_within_a_graph_shows_for_some_seeds_and_never_along_an_edge() {
    let program = stage::program("calls/graph_race.c");
    let run = |seed: u64, ordered: bool| {
        let mut race = Command::new(&program);
        race.env("LD_LIBRARY_PATH", stage::libraries())
            .env("SIMCUDA_SEED", seed.to_string());
        if ordered {
            race.arg("ordered");
        }
        race.status().unwrap().code().unwrap()
    };
    let outcomes: Vec<i32> = (0..16).map(|seed| run(seed, false)).collect();
    assert!(
        outcomes.contains(&10) && outcomes.contains(&11),
        "{outcomes:?}"
    );
    assert_eq!(run(3, false), outcomes[3], "the same seed, the same order");
    assert!((0..16).all(|seed| run(seed, true) == 11));
}
