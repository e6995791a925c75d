//! Runs a C program over both libraries, as the loader would find them on a machine with a GPU.

mod stage;

use stage::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder with the libraries and the program.
fn stage() -> &'static Path {
    static STAGE: OnceLock<PathBuf> = OnceLock::new();
    STAGE.get_or_init(|| program("smoke.c").parent().unwrap().to_owned())
}

fn run(part: &str, seed: u64) -> Output {
    let stage = stage();
    Command::new(stage.join("smoke"))
        .arg(part)
        .env("LD_LIBRARY_PATH", stage)
        .env("SIMCUDA_SEED", seed.to_string())
        .env(
            "SIMCUDA_DEVICES",
            if part == "two-devices" { "2" } else { "1" },
        )
        .output()
        .unwrap()
}

/// The part passes for several seeds, and nothing but the part itself writes anything.
fn passes(part: &str) {
    for seed in 0..5 {
        let output = run(part, seed);
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{part}, seed {seed}: {:?}\n{text}",
            output.status
        );
        assert_eq!(text, "", "{part}, seed {seed}");
    }
}

macro_rules! parts {
    ($($name:ident = $part:literal),* $(,)?) => { $( #[test] fn $name() { passes($part) } )* };
}

parts! {
    kernels_run_and_layouts_are_known = "kernels",
    entry_points_are_the_exports = "entry-points",
    the_legacy_stream_is_a_barrier = "legacy",
    pools_recycle = "pools",
    mistakes_get_their_error = "errors",
    copies_move_bytes = "copies",
    host_functions_run_in_order_and_alone = "host-functions",
    polling_ends = "polling",
    destroyed_streams_finish = "destroyed-streams",
    two_devices_are_apart = "two-devices",
    each_thread_has_its_stream = "per-thread",
    threads_do_not_disturb_each_other = "threads",
    forked_children_are_left_alone = "forks",
    the_driver_interface_stands_alone = "driver-api",
}

#[test]
fn a_race_shows_for_some_seeds_and_never_when_ordered() {
    let outcomes: Vec<i32> = (0..16)
        .map(|seed| run("race", seed).status.code().unwrap())
        .collect();
    assert!(
        outcomes.contains(&10) && outcomes.contains(&11),
        "{outcomes:?}"
    );
    assert_eq!(
        run("race", 3).status.code().unwrap(),
        outcomes[3],
        "the same seed, the same order"
    );
    assert!((0..16).all(|seed| run("ordered", seed).status.code() == Some(11)));
}

/// As a tool's preload library has it: exports of the same names that come first in the global scope.
#[test]
fn preloaded_names_do_not_leak_into_the_driver() {
    let (source, library) = (stage().join("preload.c"), stage().join("preload.so"));
    let names = [
        "cuMemAllocAsync",
        "cuMemAllocAsync_ptsz",
        "cuMemAlloc_v2",
        "cuGetProcAddress_v2",
    ];
    let text: String = names
        .map(|name| format!("int {name}(void) {{ return 999; }}\n"))
        .concat();
    std::fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    assert!(cc.status().unwrap().success());
    for part in ["entry-points", "pools"] {
        let stage = stage();
        let mut smoke = Command::new(stage.join("smoke"));
        smoke
            .arg(part)
            .env("LD_LIBRARY_PATH", stage)
            .env("LD_PRELOAD", &library);
        let output = smoke.output().unwrap();
        assert!(
            output.status.success(),
            "{part}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The exports of a library, as `nm -D` lists them.
fn exports(library: &str) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(stage().join(library))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter(|line| line.contains(" T "))
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn exports_carry_nvidias_version_and_nothing_else_is_exported() {
    let runtime = exports("libcudart.so.13");
    assert!(runtime.len() > 150);
    for name in &runtime {
        let stem = name
            .strip_suffix("@@libcudart.so.13")
            .unwrap_or_else(|| panic!("{name} has no version"));
        assert!(
            stem.starts_with("cuda") || stem.starts_with("__cuda"),
            "{name}"
        );
    }
    let driver = exports("libcuda.so.1");
    assert!(driver.len() > 200);
    assert!(
        driver
            .iter()
            .all(|name| name.starts_with("cu") && !name.contains('@'))
    );
}

#[test]
fn the_runtime_is_not_linked_to_the_driver() {
    let output = Command::new("readelf")
        .arg("-d")
        .arg(stage().join("libcudart.so.13"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Library soname: [libcudart.so.13]"));
    assert!(!text.contains("libcuda.so"));
}
