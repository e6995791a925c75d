//! Where kernels' parameters lie, on drivers that cannot be asked.

use crate::common::{Run, folder, old_program, preloaded, run, simulated, simulated_program};

/// Runs one of the programs in `images.c`; the rules that it breaks and the kinds of blind spots.
fn see(name: &str, param_info: &str) -> (Vec<String>, Vec<String>, Run) {
    let json = format!("images-{name}-{param_info}.json");
    let seen = run(preloaded(simulated_program("images"))
        .arg(name)
        .env("LD_LIBRARY_PATH", simulated())
        .env("SIMCUDA_PARAM_INFO", param_info)
        .env("STREAMCHECK_LOG", "debug")
        .env("STREAMCHECK_JSON", &json));
    assert_eq!(
        seen.stdout,
        format!("{name}\n"),
        "the program ran to its end: {:?} {}",
        seen.code,
        seen.stderr
    );
    let (rules, blind_spots) = report(&json);
    (rules, blind_spots, seen)
}

fn report(json: &str) -> (Vec<String>, Vec<String>) {
    let text = std::fs::read_to_string(folder().join(json)).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let texts = |list: &serde_json::Value, of: &str| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|entry| entry[of].as_str().expect("a text").to_owned())
            .collect()
    };
    (
        texts(&report["findings"], "rule"),
        texts(&report["summary"]["blind_spots"], "kind"),
    )
}

#[test]
fn images_tell_where_parameters_lie() {
    for name in [
        "text",
        "library",
        "library-function",
        "library-module",
        "file",
        "reloaded",
        "reset",
        "unloads-library",
    ] {
        let (rules, blind_spots, seen) = see(name, "0");
        assert_eq!(rules, ["SC101"], "{name}: {}", seen.stderr);
        assert!(blind_spots.is_empty(), "{name}: {blind_spots:?}");
        assert!(seen.stderr.contains("kernel `k`"), "{}", seen.stderr);
    }
}

/// How many lines of a run's log say that.
fn lines(run: &Run, what: &str) -> usize {
    run.stderr
        .lines()
        .filter(|line| line.contains(what))
        .count()
}

#[test]
fn a_kernel_is_known_until_its_own_module_is_unloaded() {
    for param_info in ["0", "1"] {
        let (rules, blind_spots, seen) = see("unloads-another", param_info);
        assert!(rules.is_empty() && blind_spots.is_empty(), "{rules:?}");
        assert_eq!(lines(&seen, "kernel k: where"), 1, "{}", seen.stderr);
        assert_eq!(lines(&seen, "kernel l: where"), 3, "{}", seen.stderr);
    }
}

#[test]
fn an_image_is_read_once_for_a_kernel() {
    let (_, blind_spots, seen) = see("other-context", "0");
    assert!(blind_spots.is_empty(), "{blind_spots:?}");
    assert_eq!(lines(&seen, "kernel k: where"), 3, "{}", seen.stderr);
    assert_eq!(lines(&seen, "the code of kernel k"), 1, "{}", seen.stderr);
}

#[test]
fn what_holds_no_text_is_kept_for_layouts_alone() {
    for (param_info, expected) in [("0", "is kept"), ("1", "is not to be had")] {
        let (_, _, seen) = see("without-text", param_info);
        assert_eq!(lines(&seen, expected), 1, "{}", seen.stderr);
    }
}

#[test]
fn names_still_tell_which_pointers_are_read() {
    let (rules, blind_spots, _) = see("reads", "0");
    assert!(rules.is_empty() && blind_spots.is_empty(), "{rules:?}");
    let (rules, blind_spots, _) = see("writes", "0");
    assert_eq!(rules, ["SC109"]);
    assert!(blind_spots.is_empty(), "{blind_spots:?}");
}

#[test]
fn only_what_may_change_is_copied_and_little_where_the_driver_can_be_asked() {
    for (name, param_info, expected) in [
        ("text", "0", "is kept"),
        ("text", "1", "is kept"),
        ("long-text", "0", "is kept"),
        ("long-text", "1", "is not to be had"),
        ("library", "0", "is in a loaded object"),
        ("library", "1", "is in a loaded object"),
    ] {
        let (rules, _, seen) = see(name, param_info);
        assert_eq!(rules, ["SC101"], "{name}: {}", seen.stderr);
        let told = |line: &&str| line.contains("device code of module");
        let lines: Vec<&str> = seen.stderr.lines().filter(told).collect();
        let [line] = lines[..] else {
            panic!("{name}: one module: {lines:?}");
        };
        assert!(line.ends_with(expected), "{name}, {param_info}: {line}");
    }
}

#[test]
fn code_tells_what_is_done_with_pointers() {
    for (name, expected) in [
        ("code-looks", None),
        ("code-updates", None),
        ("code-writes", Some("SC109")),
        ("code-writes-parts", None),
        ("code-writes-a-part", Some("SC109")),
        ("code-ignores", None),
        ("code-follows", Some("SC102")),
    ] {
        for param_info in ["0", "1"] {
            let (rules, blind_spots, seen) = see(name, param_info);
            assert_eq!(rules, Vec::from_iter(expected), "{name}: {}", seen.stderr);
            assert!(blind_spots.is_empty(), "{name}: {blind_spots:?}");
        }
    }
}

/// A runtime that nothing is known of but what nvcc's start-up code registers with it.
#[test]
fn registered_images_tell_where_parameters_lie() {
    let (program, folder) = old_program("registered");
    let seen = run(preloaded(program)
        .env("LD_LIBRARY_PATH", folder)
        .env("STREAMCHECK_JSON", "registered.json"));
    assert_eq!(seen.stdout, "done\n", "{}", seen.stderr);
    let (rules, blind_spots) = report("registered.json");
    assert_eq!(rules, ["SC101"], "{}", seen.stderr);
    // The kernel of the image that was registered later is not in it.
    assert_eq!(blind_spots, ["unknown-kernel-parameters"]);
}
