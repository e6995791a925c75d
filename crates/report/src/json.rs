//! The JSON report, schema `streamcheck-report/1`.
//!
//! Field names and shapes are a contract with scripts: they change only with the
//! schema's number.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use streamcheck_engine::{self as engine, Level, Role, Timeline};

use crate::sites::Places;
use crate::story::user_frames;
use crate::{FailOn, Frame, Problem, Process};

/// The schema that this version writes and reads.
pub const SCHEMA: &str = "streamcheck-report/1";

/// The largest report that is read.
const LARGEST: u64 = 1 << 30;

/// A whole report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who wrote it.
    pub tool: Tool,
    /// Who ran.
    pub process: ProcessFacts,
    /// Whose reports were merged into this one; empty in one process's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessFacts>,
    /// What was seen.
    pub summary: Summary,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Who wrote a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `streamcheck`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The process that a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The process id.
    pub pid: u32,
    /// The executable.
    pub exe: String,
    /// The command line.
    pub argv: Vec<String>,
    /// The host.
    pub host: String,
    /// The rank in a distributed job.
    pub rank: Option<u32>,
}

/// What was seen in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Operations in all; 0 if no CUDA call was seen.
    pub operations: u64,
    /// Kernel launches.
    pub launches: u64,
    /// Copies and fills.
    pub copies: u64,
    /// Allocations.
    pub allocations: u64,
    /// Streams.
    pub streams: u64,
    /// Findings of level error that are neither suppressed nor in the baseline.
    pub errors: u64,
    /// Findings of level warning that are neither suppressed nor in the baseline.
    pub warnings: u64,
    /// Suppressed findings.
    pub suppressed: u64,
    /// What could not be seen into.
    pub blind_spots: Vec<engine::BlindSpot>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's code.
    pub rule: String,
    /// The rule's name.
    pub name: String,
    /// `error` or `warning`.
    pub level: String,
    /// How often it was made.
    pub count: u64,
    /// The place in `processes` of the first process that made it, in a merged report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// The ranks that made it, in a report of several processes of a distributed job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
    /// One sentence.
    pub message: String,
    /// The ordering that does exist, as far as it goes; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ordering: String,
    /// The missing edge, as calls to add.
    pub help: String,
    /// The memory concerned.
    pub allocation: Option<Allocation>,
    /// The calls that tell the story, in the order in which they were made.
    pub events: Vec<Event>,
    /// The streams of these calls, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
    /// What else happened around these calls, where that is remembered.
    #[serde(default, skip_serializing_if = "Timeline::is_empty")]
    pub timeline: Timeline,
    /// The reason of the suppression that applies.
    pub suppressed: Option<String>,
    /// Whether the baseline holds it.
    pub baseline: bool,
}

/// The memory that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// First byte, in hexadecimal.
    pub address: String,
    /// Bytes.
    pub size: u64,
    /// How it was obtained, such as `stream-ordered`.
    pub kind: String,
}

/// One call of a finding's story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its part.
    pub role: Role,
    /// The entry point.
    pub api: String,
    /// The stream, as a person would name it.
    pub stream: Option<String>,
    /// The kernel's demangled name.
    pub kernel: Option<String>,
    /// The device.
    pub device: u16,
    /// The host thread, from 1.
    pub thread: u32,
    /// The operation's place in the run, from 1.
    pub sequence: u64,
    /// The host stack from the application's own frame outward.
    pub stack: Vec<Frame>,
}

/// A stream of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// As in [`Event::stream`].
    pub name: String,
    /// `non-blocking`, `blocking`, `legacy default` or `per-thread default`.
    pub flags: String,
    /// The device.
    pub device: u16,
    /// The host stack of the call that created it, from the application's own frame
    /// outward; empty for default streams, and where the creation was not seen.
    #[serde(default)]
    pub created: Vec<Frame>,
}

impl Report {
    /// The processes that were watched, which findings number: of a report of one process
    /// that one.
    pub(crate) fn watched(&self) -> &[ProcessFacts] {
        if self.processes.is_empty() {
            std::slice::from_ref(&self.process)
        } else {
            &self.processes
        }
    }

    /// A report of nothing yet.
    #[must_use]
    pub fn new(process: &Process) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            tool: Tool {
                name: "streamcheck".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            process: ProcessFacts {
                pid: process.pid,
                exe: process.exe.clone(),
                argv: process.argv.clone(),
                host: process.host.clone(),
                rank: process.rank,
            },
            processes: Vec::new(),
            summary: Summary::default(),
            findings: Vec::new(),
        }
    }

    /// The report as text, indented, with a newline at its end.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Strings, numbers and lists only: nothing here can fail to serialize.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Reads the report at `path`.
    ///
    /// # Errors
    /// A sentence that names the file: it's missing or unreadable, no JSON, cut short,
    /// or of another schema.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let shown = path.display();
        let problem = |why: String| Problem::new(format!("{shown} {why}"));
        let file = fs::File::open(path)
            .map_err(|error| problem(format!("cannot be read: {}", plain(&error))))?;
        let mut text = Vec::new();
        file.take(LARGEST + 1)
            .read_to_end(&mut text)
            .map_err(|error| problem(format!("cannot be read: {}", plain(&error))))?;
        if text.len() as u64 > LARGEST {
            return Err(problem(
                "is larger than 1 GiB, which no report is".to_owned(),
            ));
        }
        Self::parse(&text).map_err(problem)
    }

    /// Reads a report from text; the error completes «FILE …».
    ///
    /// # Errors
    /// Why it's no report that this version reads.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        use serde_json::error::Category;

        #[derive(Deserialize)]
        struct Head {
            schema: Option<serde_json::Value>,
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err("is empty, but a JSON report was expected".to_owned());
        }
        let head: Head = serde_json::from_slice(text).map_err(|error| match error.classify() {
            Category::Eof => format!("is cut short: it ends at line {}", error.line()),
            Category::Data => "is JSON, but no report of streamcheck's".to_owned(),
            _ => format!(
                "is not JSON: line {}, column {}",
                error.line(),
                error.column()
            ),
        })?;
        match head.schema {
            Some(serde_json::Value::String(schema)) if schema == SCHEMA => {}
            Some(serde_json::Value::String(schema)) => {
                return Err(format!(
                    "has the schema {schema:?}, but this version reads {SCHEMA:?}{}",
                    if schema.starts_with("streamcheck-report/") {
                        "; a newer streamcheck reads it"
                    } else {
                        ""
                    }
                ));
            }
            _ => return Err("is JSON, but no report of streamcheck's".to_owned()),
        }
        serde_json::from_slice(text)
            .map_err(|error| format!("does not follow the schema {SCHEMA}: {error}"))
    }

    /// One report of several processes: counts are summed, and findings that only
    /// differ in addresses, threads and places in the run become one that names the
    /// ranks it was made by.
    #[must_use]
    pub fn merge(process: &Process, reports: Vec<Self>) -> Self {
        let mut merged = Self::new(process);
        let mut places = std::collections::HashMap::new();
        for report in reports {
            let rank = report.process.rank;
            let first_process = merged.processes.len();
            if report.processes.is_empty() {
                merged.processes.push(report.process);
            } else {
                merged.processes.extend(report.processes);
            }
            let summary = &mut merged.summary;
            summary.operations += report.summary.operations;
            summary.launches += report.summary.launches;
            summary.copies += report.summary.copies;
            summary.allocations += report.summary.allocations;
            summary.streams += report.summary.streams;
            for spot in report.summary.blind_spots {
                match summary
                    .blind_spots
                    .iter_mut()
                    .find(|known| known.kind == spot.kind)
                {
                    Some(known) => known.count += spot.count,
                    None => summary.blind_spots.push(spot),
                }
            }
            // One process's findings are different ones, however alike.
            let mut alike = std::collections::HashMap::new();
            for mut finding in report.findings {
                finding.process = Some(first_process + finding.process.unwrap_or(0));
                if finding.ranks.is_empty() {
                    finding.ranks.extend(rank);
                }
                let key = identity(&finding);
                let number = alike.entry(key.clone()).or_insert(0_usize);
                *number += 1;
                let place = *places
                    .entry((key, *number))
                    .or_insert(merged.findings.len());
                match merged.findings.get_mut(place) {
                    Some(known) => {
                        known.count += finding.count;
                        known.ranks.extend(finding.ranks);
                        known.ranks.sort_unstable();
                        known.ranks.dedup();
                    }
                    None => merged.findings.push(finding),
                }
            }
        }
        merged.count_findings();
        merged
    }

    /// Brings the summary's counts of findings up to date.
    pub fn count_findings(&mut self) {
        let live = |level: Level| {
            self.findings
                .iter()
                .filter(|finding| finding.is_live() && finding.level == level.label())
                .count() as u64
        };
        let (errors, warnings) = (live(Level::Error), live(Level::Warning));
        self.summary.errors = errors;
        self.summary.warnings = warnings;
        self.summary.suppressed = self
            .findings
            .iter()
            .filter(|finding| finding.suppressed.is_some())
            .count() as u64;
    }
}

/// What makes two processes' findings the same one.
fn identity(finding: &Finding) -> String {
    let mut key = format!(
        "{} {} {:?} {}",
        finding.rule, finding.level, finding.suppressed, finding.baseline
    );
    for event in &finding.events {
        key.push_str(&format!(
            "\n{:?} {} {:?} {:?}",
            event.role,
            event.api,
            event.kernel,
            event.stack.first().map(|frame| (frame.place(), frame.line))
        ));
    }
    key
}

impl Finding {
    /// Whether it counts: neither suppressed nor in the baseline.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.suppressed.is_none() && !self.baseline
    }

    /// Whether it fails the gate: it counts, and its level is `fail_on` or above.
    #[must_use]
    pub fn fails(&self, fail_on: FailOn) -> bool {
        self.is_live() && self.level.parse().is_ok_and(|level| fail_on.fails(level))
    }

    /// An engine's finding, with what [`engine::Finding::stacks`] stand for, in that order;
    /// of missing ones nothing is known. Its words say where in the source what they
    /// number stands, as far as that is known.
    #[must_use]
    pub fn new(finding: engine::Finding, stacks: Vec<Vec<Frame>>) -> Self {
        let places = Places::new(&finding, &stacks);
        let finding = places.put_into(finding);
        let mut stacks = stacks.into_iter();
        let mut finding = Self::with_stacks(finding, &mut stacks);
        for stream in &mut finding.streams {
            stream.created = user_frames(&stacks.next().unwrap_or_default(), None);
        }
        finding
    }

    fn with_stacks(
        finding: engine::Finding,
        stacks: &mut impl Iterator<Item = Vec<Frame>>,
    ) -> Self {
        Self {
            rule: finding.rule.to_string(),
            name: finding.rule.rule().name.to_owned(),
            level: finding.level.label().to_owned(),
            count: 1,
            process: None,
            ranks: Vec::new(),
            message: finding.message,
            ordering: finding.ordering,
            help: finding.help,
            allocation: finding.allocation.map(|allocation| Allocation {
                address: format!("{:#x}", allocation.address),
                size: allocation.size,
                kind: allocation.kind.label().to_owned(),
            }),
            events: finding
                .events
                .into_iter()
                .map(|event| Event {
                    role: event.role,
                    api: event.api,
                    stream: event.stream,
                    kernel: event.kernel,
                    device: event.device,
                    thread: event.thread,
                    sequence: event.sequence,
                    stack: stacks.next().unwrap_or_default(),
                })
                .collect(),
            streams: finding
                .streams
                .into_iter()
                .map(|stream| Stream {
                    name: stream.name,
                    flags: stream.flags.to_owned(),
                    device: stream.device,
                    created: Vec::new(),
                })
                .collect(),
            timeline: finding.timeline,
            suppressed: None,
            baseline: false,
        }
    }
}

/// An I/O error without the number that the standard library puts behind it.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((plain, _)) => plain.to_owned(),
        None => text,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use streamcheck_engine::{AllocationFacts, EventFacts, RuleCode};
    use streamcheck_model::{MemoryKind, StackId};

    use super::*;

    pub(crate) fn process() -> Process {
        Process {
            pid: 4242,
            exe: "/opt/app/train".to_owned(),
            argv: vec!["train".to_owned(), "--fast".to_owned()],
            host: "node1".to_owned(),
            rank: None,
        }
    }

    /// A use of an allocation on another stream, as the engine tells it.
    pub(crate) fn finding() -> engine::Finding {
        let event =
            |role, api: &str, stream: &str, kernel: Option<&str>, sequence, stack| EventFacts {
                role,
                api: api.to_owned(),
                stream: Some(stream.to_owned()),
                kernel: kernel.map(str::to_owned),
                device: 0,
                thread: 1,
                sequence,
                stack: StackId(stack),
            };
        engine::Finding {
            number: 0,
            rule: RuleCode::SC101,
            level: Level::Error,
            message: "kernel saxpy on stream 2 uses 4096 bytes at 0x7f0000 that stream 1 \
                      allocates, and nothing makes it wait for the allocation"
                .to_owned(),
            ordering: "stream 2 is ordered after stream 1 only up to operation 3".to_owned(),
            help: "record an event on stream 1 after the allocation and make stream 2 wait \
                   for it: cudaEventRecord(e, stream1); cudaStreamWaitEvent(stream2, e)"
                .to_owned(),
            allocation: Some(AllocationFacts {
                address: 0x7f_0000,
                size: 4096,
                kind: MemoryKind::StreamOrdered,
            }),
            events: vec![
                event(
                    Role::Allocation,
                    "cudaMallocAsync",
                    "stream 1 (0x55d0, non-blocking)",
                    None,
                    4,
                    1,
                ),
                event(
                    Role::Use,
                    "cudaLaunchKernel",
                    "stream 2 (0x55e0, non-blocking)",
                    Some("saxpy(int, float, float*, float*)"),
                    6,
                    2,
                ),
            ],
            streams: Vec::new(),
            mentioned: Vec::new(),
            timeline: Timeline::default(),
        }
    }

    pub(crate) fn frame(function: &str, file: &str, line: u32) -> Frame {
        Frame {
            function: Some(function.to_owned()),
            file: Some(file.to_owned()),
            line: Some(line),
            module: Some("/opt/app/train".to_owned()),
            offset: Some(0x1234),
        }
    }

    pub(crate) fn report() -> Report {
        let mut report = Report::new(&process());
        report.summary.operations = 9;
        report.summary.blind_spots.push(engine::BlindSpot {
            kind: "unknown-kernel-parameters".to_owned(),
            count: 2,
            example: "k".to_owned(),
        });
        let stacks = vec![vec![frame("main", "/src/a.cu", 10)], Vec::new()];
        report.findings.push(Finding::new(finding(), stacks));
        report.count_findings();
        report
    }

    #[test]
    fn the_shape_is_the_contracts() {
        insta::assert_snapshot!(report().to_text());
    }

    #[test]
    fn what_was_written_is_read() {
        let report = report();
        assert_eq!(Report::parse(report.to_text().as_bytes()), Ok(report));
    }

    #[test]
    fn what_is_no_report_is_named_as_what_it_is() {
        let text = report().to_text();
        let error = |text: &str| Report::parse(text.as_bytes()).unwrap_err();
        for end in [1, 30, text.len() / 2, text.len() - 3] {
            assert!(error(&text[..end]).starts_with("is cut short"), "{end}");
        }
        assert!(error("").starts_with("is empty"));
        assert!(error("{]").starts_with("is not JSON: line 1, column 2"));
        assert_eq!(error("[1]"), "is JSON, but no report of streamcheck's");
        assert_eq!(error("{}"), "is JSON, but no report of streamcheck's");
        assert_eq!(
            error(&text.replace("report/1", "report/2")),
            "has the schema \"streamcheck-report/2\", but this version reads \
             \"streamcheck-report/1\"; a newer streamcheck reads it"
        );
        let error = error(&text.replace("\"operations\"", "\"ops\""));
        assert!(error.starts_with("does not follow the schema"), "{error}");
        let missing = Report::read(Path::new("/nowhere/r.json")).unwrap_err();
        assert_eq!(
            missing.text(),
            "/nowhere/r.json cannot be read: No such file or directory"
        );
    }

    #[test]
    fn merging_sums_counts_and_folds_equal_findings() {
        let mut other = report();
        other.findings[0].events[0].sequence = 99;
        other.findings[0].count = 4;
        let mut third = report();
        third.findings[0].rule = "SC102".to_owned();
        let merged = Report::merge(&process(), vec![report(), other, third]);
        assert_eq!(merged.summary.operations, 27);
        assert_eq!(merged.summary.blind_spots[0].count, 6);
        let counts: Vec<_> = merged.findings.iter().map(|f| f.count).collect();
        assert_eq!(counts, [5, 1]);
        assert_eq!(merged.summary.errors, 2);
    }

    #[test]
    fn a_merged_report_names_the_ranks() {
        let ranked = |rank, rule: &str| {
            let mut report = report();
            report.process.rank = rank;
            report.findings[0].rule = rule.to_owned();
            report
        };
        let reports = vec![
            ranked(Some(1), "SC101"),
            ranked(Some(0), "SC101"),
            ranked(Some(2), "SC103"),
            ranked(None, "SC103"),
        ];
        let merged = Report::merge(&process(), reports);
        let ranks: Vec<_> = merged.findings.iter().map(|f| f.ranks.clone()).collect();
        assert_eq!(ranks, [vec![0, 1], vec![2]]);
        let processes: Vec<_> = merged.processes.iter().map(|p| p.rank).collect();
        assert_eq!(processes, [Some(1), Some(0), Some(2), None]);
        // Merged reports merge.
        let again = Report::merge(&process(), vec![merged.clone(), ranked(Some(3), "SC101")]);
        assert_eq!(again.findings[0].ranks, [0, 1, 3]);
        assert_eq!(again.processes.len(), 5);
        assert!(
            !report().to_text().contains("\"processes\"")
                && !report().to_text().contains("\"ranks\"")
        );
    }

    #[test]
    fn findings_of_one_process_stay_apart() {
        let mut one = report();
        let mut twin = one.findings[0].clone();
        one.findings.push(twin.clone());
        twin.events[0].stack[0].line = Some(11);
        one.findings.push(twin);
        let merged = Report::merge(&process(), vec![one.clone(), one]);
        let counts: Vec<_> = merged.findings.iter().map(|f| f.count).collect();
        assert_eq!(counts, [2, 2, 2]);
    }
}
