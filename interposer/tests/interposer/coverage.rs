//! Which entry points are seen: `docs/coverage.md` is made of the declarations, and
//! nothing that CUDA knows is forgotten.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An entry point with its twins.
pub(crate) struct Declared {
    pub(crate) names: Vec<String>,
    effect: String,
    driver: bool,
}

/// The declarations of one file.
struct Family {
    title: String,
    declared: Vec<Declared>,
}

/// What is taken for irrelevant though it has a stream or a telling name, and why.
const IRRELEVANT: &[(&str, &[&str])] = &[
    (
        "It asks, and changes nothing.",
        &[
            "cuStreamGetAttribute",
            "cuStreamGetCaptureInfo",
            "cuStreamGetCaptureInfo_v2",
            "cuStreamGetCaptureInfo_v3",
            "cuStreamGetCtx",
            "cuStreamGetCtx_v2",
            "cuStreamGetDevResource",
            "cuStreamGetDevice",
            "cuStreamGetFlags",
            "cuStreamGetGreenCtx",
            "cuStreamGetId",
            "cuStreamGetPriority",
            "cuStreamIsCapturing",
            "cudaStreamGetAttribute",
            "cudaStreamGetCaptureInfo",
            "cudaStreamGetCaptureInfo_v2",
            "cudaStreamGetCaptureInfo_v3",
            "cudaStreamGetDevResource",
            "cudaStreamGetDevice",
            "cudaStreamGetFlags",
            "cudaStreamGetId",
            "cudaStreamGetPriority",
            "cudaStreamIsCapturing",
        ],
    ),
    (
        "A stream's attributes order nothing.",
        &[
            "cuStreamCopyAttributes",
            "cuStreamSetAttribute",
            "cudaStreamCopyAttributes",
            "cudaStreamSetAttribute",
        ],
    ),
    (
        "A range of addresses holds no memory; what is mapped there is seen.",
        &["cuMemAddressFree"],
    ),
    (
        "Arrays have no addresses. Whether their release waits is not documented.",
        &[
            "cudaFreeArray",
            "cudaFreeMipmappedArray",
            "cudaMalloc3DArray",
            "cudaMallocArray",
            "cudaMallocMipmappedArray",
        ],
    ),
    (
        "It asks about a node of a graph, and changes nothing.",
        &[
            "cuGraphEventRecordNodeGetEvent",
            "cuGraphMemAllocNodeGetParams",
            "cuGraphMemFreeNodeGetParams",
            "cuGraphMemcpyNodeGetParams",
            "cuGraphMemsetNodeGetParams",
            "cudaGraphEventRecordNodeGetEvent",
            "cudaGraphMemAllocNodeGetParams",
            "cudaGraphMemFreeNodeGetParams",
            "cudaGraphMemcpyNodeGetParams",
            "cudaGraphMemsetNodeGetParams",
        ],
    ),
];

fn doors() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doors");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the doors")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

/// Everything declared with `hooks!`, read from the sources.
pub(crate) fn declared() -> Vec<Declared> {
    let families = doors().into_iter().map(|path| family(&path));
    families.flat_map(|family| family.declared).collect()
}

fn family(path: &Path) -> Family {
    let text = std::fs::read_to_string(path).expect("a source");
    let about = text.lines().map_while(|line| line.strip_prefix("//!"));
    let about: String = about.flat_map(|line| [line.trim(), " "]).collect();
    let title = about.split(['.', ':']).next().unwrap_or("").trim();
    let mut family = Family {
        title: title.to_owned(),
        declared: Vec::new(),
    };
    let (mut driver, mut effect) = (false, String::new());
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(door) = line.strip_prefix("hooks! {") {
            driver = door.trim() == "Driver:";
        } else if let Some(text) = line.strip_prefix("///") {
            effect = format!("{effect} {}", text.trim()).trim().to_owned();
            continue;
        } else if let Some(first) = line.strip_prefix("fn ") {
            let mut head = first.to_owned();
            while !head.contains(['(', '<', ':']) {
                head = format!("{head} {}", lines.next().unwrap_or("("));
            }
            let end = head.find(['(', '<', ':']).expect("it is there");
            if head[end..].starts_with(": (") {
                family.declared.push(Declared {
                    names: head[..end]
                        .split('|')
                        .map(|name| name.trim().to_owned())
                        .collect(),
                    effect: core::mem::take(&mut effect),
                    driver,
                });
            }
        }
        effect.clear();
    }
    family
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn page() -> String {
    let mut page = String::from(
        "# Entry points\n\n\
         Every CUDA function that is seen, and what it does to the model: made of the declarations in\n\
         `interposer/src/doors` by a test, which `STREAMCHECK_BLESS=1` has write this page. Twins with the endings\n\
         `_v2`, `_ptsz` and `_ptds` differ in their default stream or their parameters' sizes. Of a call that fails\n\
         nothing is kept, and of a call that another one makes nothing either: a driver call is recorded if the\n\
         application made it, and not if the runtime did.\n",
    );
    for path in doors() {
        let family = family(&path);
        if family.declared.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {}\n", family.title);
        for (driver, door) in [(false, "runtime"), (true, "driver")] {
            let mut rows = family
                .declared
                .iter()
                .filter(|declared| declared.driver == driver)
                .peekable();
            if rows.peek().is_some() {
                let _ = write!(page, "\n| {door} | effect |\n| --- | --- |\n");
            }
            for declared in rows {
                let _ = writeln!(page, "| {} | {} |", list(&declared.names), declared.effect);
            }
        }
    }
    page.push_str(
        "\n## Not seen, as nothing depends on it\n\n\
         Functions that take a stream or have a telling name.\n\n| function | why not |\n| --- | --- |\n",
    );
    for (reason, names) in IRRELEVANT {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let _ = writeln!(page, "| {} | {reason} |", list(&names));
    }
    page
}

#[test]
fn the_page_is_made_of_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/coverage.md");
    let page = page();
    if std::env::var_os("STREAMCHECK_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = page
        .lines()
        .zip(written.lines().chain(std::iter::repeat("")))
        .find(|(made, written)| made != written);
    assert!(
        page == written,
        "{} is not what the declarations say (write it with STREAMCHECK_BLESS=1): {differing:?}",
        path.display()
    );
}

#[test]
fn every_declaration_says_what_it_does() {
    let silent: Vec<String> = declared()
        .into_iter()
        .filter(|declared| declared.effect.is_empty() || declared.effect.contains('|'))
        .map(|declared| declared.names.join(" | "))
        .collect();
    assert!(silent.is_empty(), "{silent:#?}");
}

/// The source of a module of cudarc's, of the version that is built with.
fn cudarc(module: &str) -> String {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["metadata", "--format-version", "1", "--offline"])
        // Packages of other platforms may not be at hand.
        .arg("--filter-platform")
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .output()
        .expect("cargo starts");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo tells of the packages");
    let manifest = metadata["packages"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|package| package["name"] == "cudarc")
        .and_then(|package| package["manifest_path"].as_str())
        .expect("cudarc is built with");
    let path = Path::new(manifest).with_file_name(format!("src/{module}/sys/mod.rs"));
    std::fs::read_to_string(&path).expect("its source")
}

/// The functions that may matter: with a stream, or a telling name.
fn telling(module: &str, stream: &str) -> BTreeSet<String> {
    const NAMES: [&str; 9] = [
        "Memcpy",
        "Memset",
        "MemAlloc",
        "MemFree",
        "Malloc",
        "Free",
        "Synchronize",
        "EventRecord",
        "WaitEvent",
    ];
    let text = cudarc(module);
    let functions = text.split("pub unsafe fn ").skip(1).filter_map(|piece| {
        let (name, rest) = piece.split_once('(')?;
        let (arguments, _) = rest.split_once('{')?;
        let words = arguments.split(|c: char| !c.is_alphanumeric() && c != '_');
        let tells = words.into_iter().any(|word| word == stream)
            || NAMES.iter().any(|part| name.contains(part));
        (name.starts_with("cu") && tells).then(|| name.to_owned())
    });
    functions.collect()
}

#[test]
fn nothing_that_takes_a_stream_is_forgotten() {
    let mut known = telling("driver", "CUstream");
    known.extend(telling("runtime", "cudaStream_t"));
    assert!(known.len() > 250, "its source was read: {}", known.len());
    let declared: BTreeSet<String> = declared()
        .into_iter()
        .flat_map(|declared| declared.names)
        .collect();
    let irrelevant: BTreeSet<String> = IRRELEVANT
        .iter()
        .flat_map(|(_, names)| names.iter().map(|&name| name.to_owned()))
        .collect();
    let forgotten: Vec<_> = known
        .iter()
        .filter(|name| !declared.contains(*name) && !irrelevant.contains(*name))
        .collect();
    assert!(
        forgotten.is_empty(),
        "neither seen nor irrelevant: {forgotten:#?}"
    );
    let stale: Vec<_> = irrelevant
        .iter()
        .filter(|name| declared.contains(*name) || !known.contains(*name))
        .collect();
    assert!(stale.is_empty(), "irrelevant for no reason: {stale:#?}");
}
