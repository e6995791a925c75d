//! Reports to show.

use std::path::Path;

use serde_json::{Value, json};
use streamcheck_report::json::Report;

/// A text that tries whatever a text can try, and is to be seen as it is.
pub(crate) const HOSTILE: &str = "</script><script>window.caught=1</script></style><!-- \
    <img src=x onerror=\"window.caught=2\"> \" onfocus='window.caught=3' autofocus x=\" ' ` \
    &lt;b&gt; {{7*7}} ]]> javascript:window.caught=4 \u{2028}\u{2029}\u{202e}gnp\u{202c}\u{2066}\
    \u{0}\u{1b}[31m\r\n\t\u{fffd}é漢";

fn parse(value: &Value) -> Report {
    Report::parse(value.to_string().as_bytes()).unwrap()
}

fn process(pid: u32, rank: Option<u32>) -> Value {
    json!({"pid": pid, "exe": "/opt/app/train", "argv": ["train", "--fast"], "host": "node1", "rank": rank})
}

fn summary(operations: u64, errors: u64, warnings: u64) -> Value {
    json!({"operations": operations, "launches": 4, "copies": 2, "allocations": 3, "streams": 3,
        "errors": errors, "warnings": warnings, "suppressed": 1,
        "blind_spots": [{"kind": "unknown-kernel-parameters", "count": 2, "example": "gemm"}]})
}

fn event(
    role: &str,
    api: &str,
    stream: Option<&str>,
    kernel: Option<&str>,
    sequence: u64,
    frame: (&str, u32),
) -> Value {
    json!({"role": role, "api": api, "stream": stream, "kernel": kernel, "device": 0, "thread": 1,
        "sequence": sequence, "stack": [
            {"function": "step(Model&)", "file": frame.0, "line": frame.1, "module": "/opt/app/train", "offset": "0x10"},
            {"function": "main", "file": null, "line": null, "module": "/opt/app/train", "offset": "0x20"}]})
}

const ONE: &str = "stream 1 (0x55d0, non-blocking)";
const TWO: &str = "stream 2 \"compute\" (0x55e0)";
const SAXPY: &str = "saxpy(int, float, float*, float*)";

fn timeline() -> Value {
    let operation = |sequence: u64, lane: u64, api: &str, kernel: Option<&str>| json!({"sequence": sequence, "lane": lane, "api": api, "kernel": kernel});
    json!({
    "lanes": [{"name": ONE, "device": 0}, {"name": TWO, "device": 0}, {"name": "host", "device": 0}],
    "operations": [
        operation(3, 0, "cudaMallocAsync", None),
        operation(4, 0, "cudaMemsetAsync", None),
        operation(5, 0, "cudaEventRecord", None),
        operation(6, 1, "cudaStreamWaitEvent", None),
        operation(7, 1, "cudaLaunchKernel", Some("void scale<float>(float*, int)")),
        operation(1212, 0, "cudaMallocAsync", None),
        operation(1213, 1, "cudaLaunchKernel", Some(SAXPY)),
        operation(1214, 2, "cudaStreamSynchronize", None),
        operation(1215, 0, "cudaFreeAsync", None),
    ],
    "edges": [
        {"from": 5, "to": 6, "reason": "event wait"},
        {"from": 1213, "to": 1214, "reason": "host synchronize"},
        {"from": 1214, "to": 1215, "reason": "submission after what the host knows complete"},
    ]})
}

fn finding(rule: &str, name: &str, level: &str, message: &str, events: Value) -> Value {
    json!({"rule": rule, "name": name, "level": level, "count": 1, "message": message,
        "ordering": "stream 2 is ordered after stream 1 only up to operation 5",
        "help": "record an event on stream 1 after the allocation and make stream 2 wait for it:\n\
            cudaEventRecord(e, stream1); cudaStreamWaitEvent(stream2, e)",
        "allocation": {"address": "0x7f0000", "size": 4096, "kind": "stream-ordered"},
        "events": events, "timeline": timeline(), "suppressed": null, "baseline": false})
}

/// A source file for the findings to point at.
pub(crate) const SOURCE: &str = "void step(Model& model) {
    float* x;
    cudaMallocAsync((void**)&x, 4096, model.copy);
\tsaxpy<<<1, 256, 0, model.compute>>>(1024, a < b && c > d, x, x);
    cudaFreeAsync(x, model.copy);
}
";

/// Two processes, findings of every state.
pub(crate) fn sample(source: &Path) -> Report {
    let source = source.to_str().unwrap();
    let allocation = event(
        "allocation",
        "cudaMallocAsync",
        Some(ONE),
        None,
        1212,
        (source, 3),
    );
    let usage = event(
        "use",
        "cudaLaunchKernel",
        Some(TWO),
        Some(SAXPY),
        1213,
        (source, 4),
    );
    let free = event("free", "cudaFreeAsync", Some(ONE), None, 1215, (source, 5));
    let mut first = finding(
        "SC101",
        "use-before-alloc",
        "error",
        "kernel saxpy on stream 2 uses 4,096 bytes that stream 1 allocates, and nothing makes it wait",
        json!([allocation, usage]),
    );
    first["process"] = json!(0);
    first["ranks"] = json!([0, 1]);
    first["count"] = json!(1500);
    let mut second = finding(
        "SC203",
        "implicit-sync-reliance",
        "warning",
        "the free is ordered after kernel saxpy only because the host happened to wait",
        json!([usage, free]),
    );
    second["process"] = json!(0);
    second["ranks"] = json!([0]);
    let mut third = finding(
        "SC103",
        "free-in-flight",
        "error",
        "an excused free",
        json!([usage, free]),
    );
    third["suppressed"] = json!("NCCL orders this through its own proxy thread");
    third["process"] = json!(0);
    third["ranks"] = json!([1]);
    let mut fourth = finding(
        "SC112",
        "wait-on-unrecorded-event",
        "warning",
        "a known wait",
        json!([event(
            "event",
            "cudaStreamWaitEvent",
            Some(TWO),
            None,
            17,
            ("/nowhere/b.cu", 9)
        )]),
    );
    fourth["baseline"] = json!(true);
    fourth["process"] = json!(1);
    fourth["ranks"] = json!([1]);
    fourth["timeline"] = json!({"lanes": [], "operations": [], "edges": []});
    parse(
        &json!({"schema": "streamcheck-report/1", "tool": {"name": "streamcheck", "version": "0.1.0"},
        "process": process(1, None), "processes": [process(4242, Some(0)), process(4243, Some(1))],
        "summary": summary(2430, 1, 1), "findings": [first, second, third, fourth]}),
    )
}

/// The same as one process's own report, with its live findings only.
pub(crate) fn single(source: &Path) -> Report {
    let mut report = sample(source);
    report.processes.clear();
    report.findings.truncate(2);
    for finding in &mut report.findings {
        finding.process = None;
        finding.ranks.clear();
    }
    report.summary.operations = 1300;
    report.summary.suppressed = 0;
    report
}

/// A run in which everything was as it should be.
pub(crate) fn clean() -> Report {
    let mut summary = summary(1204, 0, 0);
    summary["suppressed"] = json!(0);
    summary["blind_spots"] = json!([]);
    parse(
        &json!({"schema": "streamcheck-report/1", "tool": {"name": "streamcheck", "version": "0.1.0"},
        "process": process(4242, None), "summary": summary, "findings": []}),
    )
}

/// A run without a CUDA call.
pub(crate) fn nothing() -> Report {
    let mut report = clean();
    report.summary = streamcheck_report::json::Summary::default();
    report
}

/// A report of which every text is hostile.
pub(crate) fn hostile(source: &Path) -> Report {
    fn poison(value: &mut Value, key: &str) {
        match value {
            // What has to stay for it to be a report.
            Value::String(_) if ["schema", "role", "offset"].contains(&key) => {}
            Value::String(file) if key == "file" && Path::new(file).exists() => {}
            Value::String(text) => *text = format!("{text}{HOSTILE}"),
            Value::Array(values) => values.iter_mut().for_each(|value| poison(value, key)),
            Value::Object(fields) => fields
                .iter_mut()
                .for_each(|(key, value)| poison(value, key)),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(sample(source)).unwrap();
    poison(&mut value, "");
    parse(&value)
}

/// A report that follows the schema, and nothing else: numbers that lead nowhere.
pub(crate) fn absurd(source: &Path) -> Report {
    let mut report = sample(source);
    let most = u64::MAX;
    let timeline = &mut report.findings[0].timeline;
    timeline.operations[0].lane = 77;
    timeline.operations[1].sequence = most;
    timeline.operations[2].sequence = 0;
    timeline.operations[3].sequence = 7;
    timeline.edges[0].to = most;
    timeline.edges[1].from = most - 1;
    timeline.edges[2].to = 3;
    report.findings[0].events[0].sequence = most - 1;
    report.findings[0].events[1].sequence = 0;
    report.findings[1].process = Some(usize::MAX);
    report.findings[1].events.clear();
    report.findings[1].count = most;
    report.findings[2].ranks = vec![0, u32::MAX, u32::MAX - 1];
    report.findings[3].events[0].stack[0].line = Some(u32::MAX);
    report.summary.operations = most;
    report.processes[0].argv.clear();
    report
}

/// A thousand findings, each with its own surroundings.
pub(crate) fn large(source: &Path) -> Report {
    let mut report = single(source);
    let one = report.findings[0].clone();
    report.findings = (0..1000)
        .map(|number| {
            let mut finding = one.clone();
            let shift = number * 10_000;
            for operation in &mut finding.timeline.operations {
                operation.sequence += shift;
            }
            for edge in &mut finding.timeline.edges {
                edge.from += shift;
                edge.to += shift;
            }
            for event in &mut finding.events {
                event.sequence += shift;
            }
            finding.message = format!("finding number {number} of kernel k{}", number % 7);
            finding
        })
        .collect();
    report.summary.operations = 20_000_000;
    report.count_findings();
    report
}
