//! What merging the reports of a hundred ranks takes: to read them, to merge them and to write
//! the one report, for findings that all ranks share and for findings of each rank's own.

use std::fs;
use std::path::PathBuf;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use streamcheck_report::json::Report;
use streamcheck_report::{Context, Format, Process, Settings};
use tempfile::TempDir;

const RANKS: u64 = 100;

/// A finding at a line of its own, as large as findings are.
fn finding(line: u64) -> Value {
    let frames: Vec<Value> = (0..8)
        .map(|depth| {
            json!({
                "function": format!("solver::step_{depth}(float*, int)"),
                "file": format!("/home/user/solver/src/step_{depth}.cu"),
                "line": line + depth,
                "module": "/home/user/solver/build/solver",
                "offset": format!("{:#x}", 0x1000 + line * 16 + depth),
            })
        })
        .collect();
    let event = |role: &str, api: &str, sequence: u64| {
        json!({
            "role": role, "api": api, "stream": "stream 2 (0x5555, non-blocking)",
            "kernel": null, "device": 0, "thread": 1, "sequence": sequence, "stack": frames,
        })
    };
    json!({
        "rule": "SC101", "name": "use-before-alloc", "level": "error", "count": 3,
        "message": format!("kernel `fill` uses 4,096 bytes that step_0.cu:{line} allocates"),
        "help": "After cudaMallocAsync on stream 1, call cudaEventRecord(event, stream_1).",
        "allocation": {"address": "0x7000", "size": 4096, "kind": "stream-ordered"},
        "events": [event("allocation", "cudaMallocAsync", 4), event("use", "cudaLaunchKernel", 5)],
        "suppressed": null, "baseline": false,
    })
}

/// Writes the reports of all ranks.
fn reports(folder: &TempDir, findings: u64, own: bool) -> Vec<PathBuf> {
    (0..RANKS)
        .map(|rank| {
            let first = if own { 1 + rank * findings } else { 1 };
            let report = json!({
                "schema": "streamcheck-report/1",
                "tool": {"name": "streamcheck", "version": "0.1.0"},
                "process": {"pid": 1000 + rank, "exe": "/home/user/solver/build/solver",
                            "argv": ["solver"], "host": "node", "rank": rank},
                "summary": {"operations": 1000, "launches": 1000, "copies": 0, "allocations": 1,
                            "streams": 2, "errors": findings, "warnings": 0, "suppressed": 0,
                            "blind_spots": []},
                "findings": (first..first + findings).map(finding).collect::<Vec<_>>(),
            });
            let path = folder.path().join(format!("{rank}.json"));
            fs::write(&path, report.to_string()).unwrap();
            path
        })
        .collect()
}

fn merge(c: &mut Criterion) {
    let mut group = c.benchmark_group("merge a hundred reports");
    group.sample_size(10);
    let context = Context::of_this_process(&Settings::default());
    for (name, own) in [("shared", false), ("of each rank's own", true)] {
        for findings in [10, 100] {
            let folder = TempDir::new().unwrap();
            let files = reports(&folder, findings, own);
            group.throughput(Throughput::Elements(RANKS * findings));
            group.bench_function(BenchmarkId::new(name, findings), |b| {
                b.iter(|| {
                    let read = files.iter().map(|file| Report::read(file).unwrap());
                    let merged = Report::merge(&Process::this(), read.collect());
                    Format::Json.render(&merged, &context)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, merge);
criterion_main!(benches);
