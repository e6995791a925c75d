//! Process trees, and processes that end badly, outlive the run or leave it.

use std::fs::{self, File};
use std::path::Path;

use tempfile::TempDir;

use crate::{compiled, report, rules, script, staged, streamcheck, wait_for};

#[test]
fn all_kinds_of_children_make_one_report() {
    for (text, processes, found) in [
        (
            "$FIXTURES/a03_use_before_alloc | cat; $FIXTURES/a04_reused_block | cat",
            2,
            3,
        ),
        (
            "setsid -w $FIXTURES/a04_reused_block; cd /; $FIXTURES/a03_use_before_alloc_fixed",
            2,
            1,
        ),
        // A process that its parent does not wait for, but the application does.
        (
            "( (sleep 0.2; $FIXTURES/a04_reused_block; : >done) & ); while [ ! -e done ]; do sleep 0.02; done",
            1,
            1,
        ),
        (
            "echo a03_use_before_alloc a03_use_before_alloc_fixed a04_reused_block | xargs -n1 -P3 sh -c '$FIXTURES/$0'; true",
            3,
            3,
        ),
        (
            "printf 'all: one two\none two:\n\t-$(FIXTURES)/a04_reused_block\n' | make -f - -j2 >&2",
            2,
            1,
        ),
    ] {
        let (output, report) = script(&[], text);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(66), "{text}: {said}");
        assert_eq!(rules(&report).len(), found, "{text}: {said}");
        let listed = report["processes"].as_array().map_or(1, Vec::len);
        assert_eq!(listed, processes, "{text}: {said}");
        assert_eq!(
            said.matches(" operations (").count(),
            1,
            "one summary: {said}"
        );
    }
}

#[test]
fn a_process_without_the_preload_is_not_checked() {
    for clear in [
        "env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH",
        "env -u LD_PRELOAD",
        "LD_PRELOAD=",
    ] {
        let alone = format!("{clear} $FIXTURES/a03_use_before_alloc");
        let (output, report) = script(&[], &alone);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(67), "{clear}: {said}");
        assert!(said.contains("env -i"), "the remedy is named: {said}");
        assert_eq!(report["summary"]["operations"], 0);
        let (output, report) = script(
            &[],
            &format!("{alone}; $FIXTURES/a03_use_before_alloc_fixed"),
        );
        assert_eq!(output.status.code(), Some(0), "{clear}: {output:?}");
        assert!(rules(&report).is_empty());
    }
}

#[test]
fn settings_hold_in_other_working_directories() {
    let folder = TempDir::new().unwrap();
    let excuse = "[[suppress]]\nrule = \"SC101\"\nreason = \"known\"\n";
    fs::write(folder.path().join("excused.toml"), excuse).unwrap();
    let file = "suppressions = \"excused.toml\"\njson = \"out.json\"\n";
    fs::write(folder.path().join("streamcheck.toml"), file).unwrap();
    let text = "cd / && exec $FIXTURES/a03_use_before_alloc";
    let output = streamcheck(&folder, &[], &["sh", "-c", text])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&folder.path().join("out.json"));
    assert_eq!(report["summary"]["suppressed"], 2, "{report}");
}

#[test]
fn a_run_inside_of_a_run_answers_to_the_outer_one() {
    let folder = TempDir::new().unwrap();
    let (exe, _) = staged();
    let text = "$INNER run --json inner.json -- $FIXTURES/a03_use_before_alloc; echo $?; \
                $INNER run -- $FIXTURES/a04_reused_block; echo $?";
    let output = streamcheck(&folder, &["--json", "outer.json"], &["sh", "-c", text])
        .env("INNER", exe)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "66\n66\n",
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    let inner = report(&folder.path().join("inner.json"));
    assert_eq!(rules(&inner), ["SC101", "SC101"]);
    let outer = report(&folder.path().join("outer.json"));
    let mut all = rules(&outer);
    all.sort_unstable();
    assert_eq!(all, ["SC101", "SC101", "SC105"], "each once");
    let counts: Vec<_> = outer["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| &f["count"])
        .collect();
    assert!(counts.iter().all(|&count| count == 1), "{counts:?}");
    assert_eq!(
        outer["processes"].as_array().map(Vec::len),
        Some(2),
        "{}",
        outer["processes"]
    );
}

#[test]
fn what_killed_the_application_is_said() {
    for (signal, name, code) in [
        ("SEGV", "SIGSEGV", 139),
        ("ABRT", "SIGABRT", 134),
        ("KILL", "SIGKILL", 137),
    ] {
        let (output, report) = script(
            &[],
            &format!("$FIXTURES/a04_reused_block; kill -{signal} $$"),
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(&format!("killed by {name}")), "{said}");
        assert_eq!(rules(&report), ["SC105"]);
    }
}

#[test]
fn a_process_that_outlives_the_application_is_named_and_goes_on() {
    let folder = TempDir::new().unwrap();
    compiled(&folder, "outlives");
    let file = |name: &str| folder.path().join(name);
    let text = "./outlives & while [ ! -e ready ]; do sleep 0.02; done; echo $! >pid";
    let status = streamcheck(&folder, &["--json", "out.json"], &["sh", "-c", text])
        .stderr(File::create(file("said")).unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(66));
    assert_eq!(rules(&report(&file("out.json"))), ["SC101"]);
    let pid = fs::read_to_string(file("pid")).unwrap();
    let said = fs::read_to_string(file("said")).unwrap();
    let line = format!("streamcheck: process {} still runs; ", pid.trim());
    assert!(said.contains(&line), "{said}");
    File::create(file("over")).unwrap();
    wait_for(&file("ended"));
    // It says its last words, for itself, after its mark.
    let gone = Path::new("/proc").join(pid.trim());
    while gone.join("exe").exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let said = fs::read_to_string(file("said")).unwrap();
    assert!(said.contains("streamcheck: 2 errors in "), "{said}");
    for line in ["cannot be written", "streamcheck: report: "] {
        assert!(!said.contains(line), "{said}");
    }
}

#[test]
fn no_rank_is_lost_however_it_dies() {
    let folder = TempDir::new().unwrap();
    compiled(&folder, "ranks");
    let text = "rank=0
        for end in ends killed aborts crashes; do
            OMPI_COMM_WORLD_RANK=$rank ./ranks $end & rank=$((rank + 1))
        done
        wait";
    let status = streamcheck(&folder, &["--json", "out.json"], &["sh", "-c", text])
        .stderr(File::create(folder.path().join("said")).unwrap())
        .status()
        .unwrap();
    let said = fs::read_to_string(folder.path().join("said")).unwrap();
    assert_eq!(status.code(), Some(66), "{said}");
    let report = report(&folder.path().join("out.json"));
    assert_eq!(rules(&report), ["SC101"; 5], "{said}");
    let numbers = |list: &serde_json::Value| -> Vec<u64> {
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(serde_json::Value::as_u64).collect()
    };
    let findings = report["findings"].as_array().unwrap();
    let mut ranks: Vec<_> = findings.iter().map(|one| numbers(&one["ranks"])).collect();
    ranks.sort();
    let all = vec![0, 1, 2, 3];
    assert_eq!(ranks, [vec![0], all.clone(), vec![1], vec![2], vec![3]]);
    let processes = report["processes"].as_array().unwrap();
    let mut ranks: Vec<_> = processes
        .iter()
        .filter_map(|one| one["rank"].as_u64())
        .collect();
    ranks.sort_unstable();
    assert_eq!(ranks, all, "{said}");
    // Each rank made two launches.
    assert_eq!(report["summary"]["launches"], 8, "{said}");
}
