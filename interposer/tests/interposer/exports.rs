//! The library's exports are the declared hooks, the C library's door, NVTX's entry, the
//! test runners', and nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::{common, coverage};

/// The C library's functions that the library stands in front of.
const C_LIBRARY: [&str; 18] = [
    "dlsym",
    "dlvsym",
    "free",
    "realloc",
    "munmap",
    "mremap",
    "_exit",
    "_Exit",
    "quick_exit",
    "execve",
    "execv",
    "execl",
    "execle",
    "execvp",
    "execvpe",
    "execlp",
    "fexecve",
    "execveat",
];

/// The names declared with `hooks!`.
fn declared() -> BTreeSet<String> {
    let declared = coverage::declared().into_iter();
    declared.flat_map(|declared| declared.names).collect()
}

/// Those declared with `passing!`.
fn passing() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in ["signal_actions.rs", "system_calls.rs"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/doors")
            .join(file);
        let text = std::fs::read_to_string(path).expect("a source");
        let (_, declared) = text.split_once("passing! {").expect("they are declared");
        let lines = declared.lines().take_while(|line| *line != "}");
        let functions = lines.filter_map(|line| line.strip_prefix("    fn "));
        names.extend(functions.map(|line| line.split('(').next().unwrap_or(line).to_owned()));
    }
    assert!(names.len() > 40, "they were read: {names:?}");
    names
}

fn exported() -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(common::library())
        .output()
        .expect("nm runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect()
}

#[test]
fn exports_are_the_declared_functions() {
    let mut expected = declared();
    assert!(
        expected.len() > 200,
        "the declarations were read: {}",
        expected.len()
    );
    expected.extend(C_LIBRARY.map(str::to_owned));
    expected.extend(passing());
    // By which NVTX attaches a tool.
    expected.insert("InitializeInjectionNvtx2".to_owned());
    // Which test runners call.
    expected.insert("streamcheck_update_reports".to_owned());
    let exported = exported();
    let missing: Vec<_> = expected.difference(&exported).collect();
    let extra: Vec<_> = exported.difference(&expected).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "missing {missing:?}, extra {extra:?}"
    );
    assert!(
        exported.iter().all(|name| !name.contains('@')),
        "no export is versioned"
    );
}

#[test]
fn no_cuda_library_is_needed() {
    let output = Command::new("readelf")
        .arg("-d")
        .arg(common::library())
        .output()
        .expect("readelf runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .collect();
    assert!(!needed.is_empty());
    assert!(
        !needed.iter().any(|line| line.contains("cuda")),
        "{needed:?}"
    );
}
