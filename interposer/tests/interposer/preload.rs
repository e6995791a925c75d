//! Programs under the preload library: what they see of it, and what it says of them.

use crate::common::{self, bare, folder, plain_program, preloaded, program, run, shared_library};
use serde_json::Value;

pub(crate) fn report(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(name)).expect("a report was written");
    serde_json::from_str(&text).expect("it is JSON")
}

pub(crate) fn rules(report: &Value) -> Vec<&str> {
    report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|finding| finding["rule"].as_str().expect("a code"))
        .collect()
}

#[test]
fn programs_without_cuda_are_left_alone() {
    for command in [
        &["bash", "-c", "echo one; (exit 3)"][..],
        &["sh", "-c", "ls / >/dev/null; echo two >&2"],
        &["cat", "/etc/hostname"],
        &["false"],
    ] {
        let without = run(bare(command[0]).args(&command[1..]));
        let with = run(preloaded(command[0]).args(&command[1..]));
        assert_eq!(with.code, without.code, "{command:?}");
        assert_eq!(with.stdout, without.stdout, "{command:?}");
        let own: Vec<&str> = with
            .stderr
            .lines()
            .filter(|line| !line.starts_with("streamcheck: "))
            .collect();
        assert_eq!(
            own,
            without.stderr.lines().collect::<Vec<_>>(),
            "{command:?}"
        );
    }
}

#[test]
fn a_process_that_made_no_cuda_call_says_so_once() {
    let alone = run(preloaded("true").env("STREAMCHECK_JSON", "none.json"));
    assert_eq!(alone.code, Some(0));
    assert!(
        alone
            .stderr
            .starts_with("streamcheck: no CUDA call was seen in "),
        "{}",
        alone.stderr
    );
    assert_eq!(report("none.json")["summary"]["operations"], 0);
    // The shell has a child, and the child a preloaded parent: neither can tell.
    let both = run(preloaded("sh").args(["-c", "true; /bin/true; exit 0"]));
    assert_eq!((both.code, both.stderr.as_str()), (Some(0), ""));
    let required = run(preloaded("true").env("STREAMCHECK_REQUIRE_CUDA", "true"));
    assert_eq!(required.code, Some(67));
    assert!(
        required.stderr.contains("no CUDA call"),
        "{}",
        required.stderr
    );
    // Children are no excuse where the calls are required of each process.
    let parent = run(preloaded("sh")
        .args(["-c", "/bin/true; exit 0"])
        .env("STREAMCHECK_REQUIRE_CUDA", "true"));
    assert_eq!(parent.code, Some(67), "{}", parent.stderr);
}

#[test]
fn a_finding_fails_the_gate_and_names_the_line() {
    let race = program("race");
    let found = run(preloaded(&race).env("STREAMCHECK_JSON", "race.json"));
    assert_eq!(found.code, Some(66), "{}", found.stderr);
    assert_eq!(found.stdout, "after the race\natexit\n");
    assert!(
        found.stderr.contains("SC101 use-before-alloc"),
        "{}",
        found.stderr
    );
    assert!(
        found.stderr.contains("streamcheck: 1 error in "),
        "{}",
        found.stderr
    );
    let report = report("race.json");
    assert_eq!(rules(&report), ["SC101"]);
    let uses = report["findings"][0]["events"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|event| event["role"] == "use")
        .expect("the use");
    assert_eq!(uses["kernel"], "fill(float*)");
    assert_eq!(uses["api"], "cudaLaunchKernel");
    let functions: Vec<&str> = uses["stack"]
        .as_array()
        .expect("a stack")
        .iter()
        .filter_map(|frame| frame["function"].as_str())
        .collect();
    assert!(
        functions.contains(&"race") && functions.contains(&"main"),
        "{functions:?}"
    );
}

#[test]
fn the_gate_holds_at_every_kind_of_exit() {
    let race = program("race");
    for kind in ["return", "_exit", "quick_exit"] {
        let failed = run(preloaded(&race).args([kind, "0"]));
        assert_eq!(failed.code, Some(66), "{kind}: {}", failed.stderr);
        assert_eq!(
            failed.stderr.matches("streamcheck: 1 error in ").count(),
            1,
            "{kind}"
        );
        let own = run(preloaded(&race).args([kind, "5"]));
        assert_eq!(own.code, Some(5), "{kind} keeps the program's own code");
    }
    let killed = run(preloaded(&race)
        .arg("kill")
        .env("STREAMCHECK_JSON", "killed.json"));
    assert_eq!(killed.code, None);
    assert_eq!(rules(&report("killed.json")), ["SC101"]);
}

#[test]
fn options_change_the_verdict() {
    let race = program("race");
    let never = run(preloaded(&race).env("STREAMCHECK_FAIL_ON", "never"));
    assert_eq!(never.code, Some(0));
    let other = run(preloaded(&race).env("STREAMCHECK_EXIT_CODE", "9"));
    assert_eq!(other.code, Some(9));
    let off = run(preloaded(&race).env("STREAMCHECK_LEVEL", "SC101=off"));
    assert_eq!(off.code, Some(0), "{}", off.stderr);
    let halted = run(preloaded(&race).env("STREAMCHECK_HALT", "on"));
    assert_eq!((halted.code, halted.stdout.as_str()), (Some(66), ""));
    assert!(halted.stderr.contains("SC101"));
    for policy in ["none", "caller", "full"] {
        let name = format!("{policy}.json");
        let run = run(preloaded(&race)
            .env("STREAMCHECK_STACKS", policy)
            .env("STREAMCHECK_JSON", &name));
        assert_eq!(run.code, Some(66), "{policy}");
        let report = report(&name);
        let deepest = report["findings"][0]["events"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|event| event["stack"].as_array().expect("a stack").len())
            .max();
        match policy {
            "none" => assert_eq!(deepest, Some(0)),
            _ => assert!(deepest > Some(0), "{policy}"),
        }
    }
}

#[test]
fn a_bad_setting_is_one_line_and_no_more() {
    let race = program("race");
    let odd = run(preloaded(&race).env("STREAMCHECK_FAIL_ON", "banana"));
    assert_eq!(odd.code, Some(66));
    let lines: Vec<&str> = odd
        .stderr
        .lines()
        .filter(|line| line.contains("banana"))
        .collect();
    assert!(
        matches!(lines[..], [line] if line.contains("STREAMCHECK_FAIL_ON")),
        "{}",
        odd.stderr
    );
    for (name, path) in [
        ("STREAMCHECK_JSON", "/proc/none/x.json"),
        ("STREAMCHECK_TRACE", "/proc/none/x.trace"),
    ] {
        let unwritable = run(preloaded(&race).env(name, path));
        assert_eq!(unwritable.code, Some(66));
        let lines = unwritable
            .stderr
            .lines()
            .filter(|line| line.contains(path))
            .count();
        assert_eq!(lines, 1, "{}", unwritable.stderr);
    }
}

#[test]
fn errno_and_the_last_error_are_the_programs_own() {
    let clean = program("clean");
    let result = run(preloaded(&clean).env("STREAMCHECK_JSON", "clean.json"));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(0), "clean\n"),
        "{}",
        result.stderr
    );
    let report = report("clean.json");
    assert!(rules(&report).is_empty());
    assert_eq!(report["summary"]["launches"], 2);
    assert_eq!(
        report["summary"]["allocations"], 1,
        "a failed call is not recorded"
    );
}

#[test]
fn static_constructors_and_exit_handlers_may_call_cuda() {
    let result = run(preloaded(program("constructor")).env("STREAMCHECK_JSON", "constructor.json"));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(66), "main\n"),
        "{}",
        result.stderr
    );
    let report = report("constructor.json");
    assert_eq!(rules(&report), ["SC101"]);
    assert_eq!(
        report["summary"]["allocations"], 2,
        "the exit handler's is there too"
    );
}

#[test]
fn threads_are_recorded_side_by_side() {
    let result = run(preloaded(program("threads")).env("STREAMCHECK_JSON", "threads.json"));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(0), "done\n"),
        "{}",
        result.stderr
    );
    let report = report("threads.json");
    assert!(rules(&report).is_empty());
    assert_eq!(report["summary"]["launches"], 8 * 500);
    assert_eq!(report["summary"]["allocations"], 8 * 500);
}

#[test]
fn the_order_of_calls_is_kept_where_threads_hand_memory_on() {
    for stacks in ["none", "full"] {
        let mut command = preloaded(program("handover"));
        command
            .env("STREAMCHECK_JSON", "handover.json")
            .env("STREAMCHECK_STACKS", stacks);
        let result = run(&mut command);
        assert_eq!(
            (result.code, result.stdout.as_str()),
            (Some(0), "handed on\n"),
            "{stacks}: {}",
            result.stderr
        );
        let report = report("handover.json");
        assert!(rules(&report).is_empty());
        assert_eq!(report["summary"]["allocations"], 4 + 80);
        assert!(report["summary"]["launches"].as_u64() >= Some(800));
    }
}

#[test]
fn callers_are_told_apart_that_leave_the_same_stack_pointer() {
    let result = run(preloaded(program("callers")).env("STREAMCHECK_JSON", "callers.json"));
    assert_eq!(result.code, Some(66), "{}", result.stderr);
    let report = report("callers.json");
    assert_eq!(rules(&report), ["SC101"]);
    let events = report["findings"][0]["events"].as_array().expect("a list");
    let used = events.iter().find(|event| event["role"] == "use");
    let stack = used.expect("there is a use")["stack"].as_array();
    let functions: Vec<_> = stack
        .expect("a list")
        .iter()
        .filter_map(|frame| frame["function"].as_str())
        .collect();
    assert!(
        functions.contains(&"use") && functions.contains(&"wrong"),
        "{functions:?}"
    );
    assert!(!functions.contains(&"right"), "{functions:?}");
}

#[test]
fn a_forked_child_starts_afresh() {
    let result = run(preloaded(program("forks")).env("STREAMCHECK_JSON", "forks.%p.json"));
    assert_eq!(result.code, Some(66), "{}", result.stderr);
    assert_eq!(
        result.stdout,
        "child\nchild ended with 66\nvfork child ended with 3\n"
    );
    let mut reports: Vec<_> = std::fs::read_dir(folder())
        .expect("the folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("forks.") && name.ends_with(".json"))
        .collect();
    reports.sort();
    assert_eq!(reports.len(), 2, "{reports:?}");
    for name in reports {
        let report = report(&name);
        assert_eq!(rules(&report), ["SC101"]);
        assert_eq!(report["findings"][0]["events"][0]["thread"], 1);
    }
}

#[test]
fn a_child_forked_in_the_midst_of_calls_finds_no_lock_held() {
    // Unwinding walks through the loader's list, under a lock of the loader's.
    for stacks in ["caller", "full", "full", "full"] {
        let result = run(preloaded(program("forks_busy")).env("STREAMCHECK_STACKS", stacks));
        assert_eq!(
            (result.code, result.stdout.as_str()),
            (Some(0), "forked\n"),
            "{stacks}: {}",
            result.stderr
        );
    }
}

#[test]
fn a_host_function_orders_what_follows_it() {
    let result = run(&mut preloaded(program("hostfunc")));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(0), "ran\n"),
        "{}",
        result.stderr
    );
}

#[test]
fn streams_bear_the_names_that_nvtx_gave_them() {
    let names = program("names");
    let library = common::library();
    let named = run(preloaded(&names).env("NVTX_INJECTION64_PATH", library));
    assert_eq!(
        (named.code, named.stdout.as_str()),
        (Some(66), "attached\n")
    );
    for name in ["copies", "kernels \u{b5}"] {
        assert!(named.stderr.contains(name), "{}", named.stderr);
    }
    let alone = run(&mut preloaded(&names));
    assert_eq!((alone.code, alone.stdout.as_str()), (Some(66), "alone\n"));
    assert!(!alone.stderr.contains("kernels \u{b5}"), "{}", alone.stderr);
}

#[test]
fn a_cancelled_thread_leaves_nothing_locked() {
    let result = run(preloaded(program("cancel")).env("STANDIN_WAITS_FOREVER", "1"));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(66), "went on\n"),
        "{}",
        result.stderr
    );
}

#[test]
fn a_thread_is_not_cancelled_where_the_tool_writes() {
    let name = "cancelled.trace";
    let result = run(preloaded(program("cancels")).env("STREAMCHECK_TRACE", name));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(66), "made all calls\nwent on\n"),
        "{}",
        result.stderr
    );
}

#[test]
fn functions_looked_up_in_a_local_library_are_seen() {
    let result = run(&mut preloaded(plain_program("loads")));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(66), "loaded\n"),
        "{}",
        result.stderr
    );
    assert!(result.stderr.contains("SC104"), "{}", result.stderr);
}

#[test]
fn a_wrapping_library_still_finds_the_next_function() {
    let wrapper = shared_library("wrapper", &[]);
    let library = common::library();
    for wrapped in [plain_program("wrapped"), program("wrapped_cudart")] {
        for order in [[library, &*wrapper], [&*wrapper, library]] {
            let list = order.map(|path| path.to_str().expect("UTF-8")).join(" ");
            let result = run(bare(&wrapped).env("LD_PRELOAD", &list));
            assert_eq!(
                (result.code, result.stdout.as_str()),
                (Some(0), "wrapped\n"),
                "{list}: {}",
                result.stderr
            );
        }
    }
}

#[test]
fn a_trace_survives_a_kill() {
    use streamcheck_model::trace::{Reader, Record};
    let race = program("race");
    for (kind, ended) in [("return", true), ("kill", false)] {
        let name = format!("{kind}.trace");
        run(preloaded(&race).arg(kind).env("STREAMCHECK_TRACE", &name));
        let file = std::fs::File::open(folder().join(&name)).expect("a trace");
        let records: Vec<Record> = Reader::new(std::io::BufReader::new(file), &*name)
            .expect("its header is whole")
            .collect::<Result<_, _>>()
            .expect("every record is whole");
        let operations = records
            .iter()
            .filter(|record| matches!(record, Record::Operation(_)))
            .count();
        // Two streams, an allocation, a launch; and the end, if there was one in order.
        assert_eq!(operations, if ended { 5 } else { 4 });
        assert_eq!(
            records
                .iter()
                .any(|record| matches!(record, Record::End(_))),
            ended,
            "{kind}"
        );
        assert!(
            records
                .iter()
                .any(|record| matches!(record, Record::Frames { .. }))
        );
    }
}

#[test]
fn a_closed_trace_is_not_written_into_the_programs_files() {
    let result = run(preloaded(program("closes"))
        .arg("closes.own")
        .env("STREAMCHECK_TRACE", "closes.trace"));
    assert_eq!(
        (result.code, result.stdout.as_str()),
        (Some(0), "kept\n"),
        "{}",
        result.stderr
    );
    assert_eq!(
        result.stderr.matches("closes.trace ends early").count(),
        1,
        "{}",
        result.stderr
    );
    let own = std::fs::read(folder().join("closes.own")).expect("the program's file");
    assert_eq!(own, b"mine", "its end at the program's exit too");
}

#[test]
fn a_trace_that_is_cut_short_ends_and_no_more() {
    use std::os::unix::process::ExitStatusExt as _;
    for (kind, code, signal, said) in [
        (None, Some(0), None, "went on\n"),
        (Some("sent"), Some(4), None, "went on\nhandled\n"),
        (Some("fault"), Some(3), None, "went on\nhandled\n"),
        (Some("default"), None, Some(libc::SIGBUS), "went on\n"),
    ] {
        let output = preloaded(program("truncates"))
            .arg("cut.trace")
            .args(kind)
            .env("STREAMCHECK_TRACE", "cut.trace")
            .output()
            .expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{errors}");
        assert_eq!(output.status.code(), code, "{kind:?}: {errors}");
        assert_eq!(output.status.signal(), signal, "{kind:?}: {errors}");
        let told = errors
            .matches("cut.trace ends early: it was cut short")
            .count();
        assert_eq!(told, 1, "{errors}");
        let left = std::fs::metadata(folder().join("cut.trace")).expect("a file");
        assert_eq!(left.len(), 0, "nothing is put into it again");
    }
}

#[test]
fn two_cudarts_each_get_their_own_calls() {
    shared_library("plugin", &[common::standin(12)]);
    let two = program("two_cudarts");
    let without = run(&mut bare(&two));
    let with = run(preloaded(&two).env("STREAMCHECK_JSON", "two.json"));
    assert_eq!(with.code, Some(0), "{}", with.stderr);
    assert_eq!(without.stdout, "2 and 3\n");
    assert_eq!(with.stdout, without.stdout);
    assert_eq!(report("two.json")["summary"]["allocations"], 5);
}

#[test]
fn a_limit_on_file_sizes_ends_the_trace_and_no_more() {
    let race = program("race");
    let mut shell = bare("/bin/sh");
    shell
        .args([
            "-c",
            "ulimit -f 8; exec env LD_PRELOAD=\"$1\" STREAMCHECK_TRACE=limit.trace \"$2\"",
            "sh",
        ])
        .arg(common::library())
        .arg(&race);
    let found = run(&mut shell);
    assert_eq!(found.code, Some(66), "{}", found.stderr);
    assert!(found.stderr.contains("limit.trace"), "{}", found.stderr);
}

#[test]
fn a_finding_fits_on_a_small_stack() {
    let found = run(&mut preloaded(program("small_stack")));
    assert_eq!(
        (found.code, found.stdout.as_str()),
        (Some(66), "done\n"),
        "{}",
        found.stderr
    );
}

#[test]
fn look_ups_say_what_they_say_without_the_library() {
    let names: Vec<String> = (11..=16)
        .map(|version| {
            let path = common::standin(version);
            path.to_str().expect("UTF-8").to_owned()
        })
        .collect();
    let loader = plain_program("loader");
    // One cudart, which stays though its handle is closed; then more for one caller
    // than it can have, each of which still gets its own calls.
    for (count, said) in [(1, "1 looked up\n"), (6, "1 2 3 4 5 6 looked up\n")] {
        let with = run(preloaded(&loader).args(&names[..count]));
        assert_eq!(
            (with.code, with.stdout.as_str()),
            (Some(0), said),
            "{}",
            with.stderr
        );
    }
}

#[test]
fn dlerror_may_be_the_first_to_call_realloc() {
    let with = run(&mut preloaded(plain_program("dlerror")));
    assert_eq!(
        (with.code, with.stdout.as_str()),
        (Some(0), "whole\n"),
        "{}",
        with.stderr
    );
}
