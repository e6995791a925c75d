//! Where in the source a finding's operations stand, in its own words.
//!
//! The engine knows operations by their number. A person knows lines, so wherever a
//! number's line is known the words give that.

use std::collections::{HashMap, HashSet};

use streamcheck_engine as engine;

use crate::Frame;
use crate::story::user_frames;

/// What comes before a number in the engine's words.
const NUMBERED: &str = "(operation ";

/// The source lines of a finding's operations, by their numbers.
pub(crate) struct Places {
    /// File and line.
    lines: HashMap<u64, (String, u32)>,
    /// File names that stand for more than one file.
    ambiguous: HashSet<String>,
}

impl Places {
    /// Those of a finding with these stacks, as [`engine::Finding::stacks`] lists them.
    pub(crate) fn new(finding: &engine::Finding, stacks: &[Vec<Frame>]) -> Self {
        let events = finding
            .events
            .iter()
            .map(|event| Some((event.sequence, &event.kernel)));
        let streams = finding.streams.iter().map(|_| None);
        let mentioned = finding
            .mentioned
            .iter()
            .map(|call| Some((call.sequence, &call.kernel)));
        let operations = finding
            .timeline
            .operations
            .iter()
            .map(|op| Some((op.sequence, &op.kernel)));
        let calls = events.chain(streams).chain(mentioned).chain(operations);
        let mut lines = HashMap::new();
        for (call, stack) in calls.zip(stacks) {
            let Some((sequence, kernel)) = call else {
                continue;
            };
            if let Some(place) = place(stack, kernel.as_deref()) {
                lines.entry(sequence).or_insert(place);
            }
        }
        let mut paths: HashMap<&str, &str> = HashMap::new();
        let mut ambiguous = HashSet::new();
        for (path, _) in lines.values() {
            if *paths.entry(file_name(path)).or_insert(path) != path {
                ambiguous.insert(file_name(path).to_owned());
            }
        }
        Self { lines, ambiguous }
    }

    /// Gives the finding's words and its timeline's operations their lines.
    pub(crate) fn put_into(&self, mut finding: engine::Finding) -> engine::Finding {
        let texts = [&finding.message, &finding.ordering, &finding.help];
        let numbers: HashSet<u64> = texts.iter().flat_map(|text| numbered(text)).collect();
        // A line that several of them share does not tell them apart.
        let mut shared: HashMap<&(String, u32), u32> = HashMap::new();
        for number in &numbers {
            if let Some(place) = self.lines.get(number) {
                *shared.entry(place).or_default() += 1;
            }
        }
        let name = |number: u64| {
            let line = self.line(number)?;
            let alone = self
                .lines
                .get(&number)
                .is_some_and(|place| shared.get(place).is_none_or(|count| *count < 2));
            Some(if alone {
                line
            } else {
                format!("{line}, operation {number}")
            })
        };
        finding.message = renamed(&finding.message, name);
        finding.ordering = renamed(&finding.ordering, name);
        finding.help = renamed(&finding.help, name);
        for operation in &mut finding.timeline.operations {
            operation.place = self.line(operation.sequence);
        }
        finding
    }

    /// `a.cu:42`, or with the whole path where there are several such files.
    fn line(&self, number: u64) -> Option<String> {
        let (path, line) = self.lines.get(&number)?;
        let name = file_name(path);
        let shown = if self.ambiguous.contains(name) {
            path
        } else {
            name
        };
        Some(format!("{shown}:{line}"))
    }
}

/// The line of the application's that made a call.
fn place(stack: &[Frame], kernel: Option<&str>) -> Option<(String, u32)> {
    let frames = user_frames(stack, kernel);
    let frame = frames.first()?;
    Some((frame.file.clone()?, frame.line?))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The numbers that a text names operations by.
fn numbered(text: &str) -> Vec<u64> {
    let parts = text.split(NUMBERED).skip(1);
    parts
        .filter_map(|part| part.split_once(')')?.0.parse().ok())
        .collect()
}

/// The text with `(operation 17)` replaced by `(name)`, where there is a name.
fn renamed(text: &str, name: impl Fn(u64) -> Option<String>) -> String {
    let mut parts = text.split(NUMBERED);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let known = part.split_once(')').and_then(|(number, rest)| {
            let name = name(number.parse().ok()?)?;
            Some(format!("({name}){rest}"))
        });
        match known {
            Some(known) => out.push_str(&known),
            None => {
                out.push_str(NUMBERED);
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use streamcheck_engine::{CallSite, StreamFacts, Timeline, TimelineOperation};
    use streamcheck_model::StackId;

    use super::*;
    use crate::json::Finding;
    use crate::json::tests::{finding, frame};

    /// A finding whose help names operations 4, 6 and 9, the last of which is no event.
    fn numbered_finding() -> engine::Finding {
        let operation = |sequence| TimelineOperation {
            sequence,
            ..TimelineOperation::default()
        };
        engine::Finding {
            message: "kernel k (operation 6) uses what cudaMallocAsync allocates".to_owned(),
            ordering: "only up to cudaEventRecord (operation 9)".to_owned(),
            help: "After f (operation 4), before k (operation 6), not (operation 7) (operation x)"
                .to_owned(),
            streams: vec![StreamFacts {
                name: "stream 1 (0x55d0, non-blocking)".to_owned(),
                flags: "non-blocking",
                device: 0,
                created: StackId(9),
            }],
            mentioned: vec![CallSite {
                sequence: 9,
                kernel: None,
                stack: StackId(3),
            }],
            timeline: Timeline {
                operations: vec![operation(4), operation(5), operation(6)],
                ..Timeline::default()
            },
            ..finding()
        }
    }

    fn at(file: &str, line: u32) -> Vec<Frame> {
        vec![
            frame("cudaMallocAsync", "/cuda/include/cuda_runtime.h", 9),
            frame("main", file, line),
        ]
    }

    #[test]
    fn numbers_become_lines_where_they_are_known() {
        let stacks = vec![
            at("/src/a.cu", 10),
            at("/src/b.cu", 20),
            at("/src/a.cu", 3),
            at("/src/c.cu", 30),
            Vec::new(),
            at("/src/a.cu", 15),
        ];
        let finding = Finding::new(numbered_finding(), stacks);
        assert_eq!(
            finding.message,
            "kernel k (b.cu:20) uses what cudaMallocAsync allocates"
        );
        assert_eq!(finding.ordering, "only up to cudaEventRecord (c.cu:30)");
        assert_eq!(
            finding.help,
            "After f (a.cu:10), before k (b.cu:20), not (operation 7) (operation x)"
        );
        let places: Vec<_> = finding
            .timeline
            .operations
            .iter()
            .map(|op| op.place.as_deref())
            .collect();
        assert_eq!(places, [Some("a.cu:10"), Some("a.cu:15"), Some("b.cu:20")]);
        let created = &finding.streams[0].created;
        assert_eq!((created.len(), created[0].line), (1, Some(3)));
    }

    #[test]
    fn a_shared_line_keeps_the_numbers_and_equal_names_the_paths() {
        let stacks = vec![at("/src/a.cu", 10), at("/src/a.cu", 10)];
        let found = Finding::new(numbered_finding(), stacks);
        assert!(
            found
                .help
                .starts_with("After f (a.cu:10, operation 4), before k (a.cu:10, operation 6)"),
            "{}",
            found.help
        );
        let stacks = vec![at("/src/a.cu", 10), at("/lib/a.cu", 10)];
        let found = Finding::new(numbered_finding(), stacks);
        assert!(
            found
                .help
                .starts_with("After f (/src/a.cu:10), before k (/lib/a.cu:10)"),
            "{}",
            found.help
        );
        let nothing = Finding::new(numbered_finding(), Vec::new());
        assert_eq!(nothing.help, numbered_finding().help);
    }
}
