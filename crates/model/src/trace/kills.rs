//! Whatever moment a writer is killed at, what it had committed can be read.

use std::io;

use proptest::prelude::*;

use super::tests::{STACKS, header, module, names, only_operations, operations, read, unlike};
use super::*;
use crate::Operation;

/// One thing that a kill finds done or not done.
#[derive(Debug)]
struct Step {
    at: usize,
    bytes: Vec<u8>,
}

/// Keeps what is written, step by step.
#[derive(Debug, Default)]
struct Logged {
    start: usize,
    steps: Vec<Step>,
    /// Appends that succeed before one fails halfway.
    appends: Option<usize>,
}

impl Logged {
    fn byte_by_byte(&mut self, at: usize, bytes: &[u8]) {
        for (place, &byte) in bytes.iter().enumerate() {
            self.at_once(at + place, &[byte]);
        }
    }

    fn at_once(&mut self, at: usize, bytes: &[u8]) {
        self.steps.push(Step {
            at,
            bytes: bytes.to_vec(),
        });
    }
}

impl Medium for Logged {
    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.byte_by_byte(self.start + at, bytes);
    }

    fn publish(&mut self, at: usize, word: u64) {
        assert_eq!((self.start + at) % 8, 0);
        self.at_once(self.start + at, &word.to_ne_bytes());
    }

    fn append(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(at % 8, 0);
        let at = at as usize;
        if let Some(left) = &mut self.appends {
            let Some(fewer) = left.checked_sub(1) else {
                self.byte_by_byte(at + 4, &bytes[4..bytes.len() / 2]);
                return Err(io::ErrorKind::StorageFull.into());
            };
            *left = fewer;
        }
        self.byte_by_byte(at + 4, &bytes[4..]);
        self.at_once(at, &bytes[..4]);
        Ok(())
    }
}

/// A writer whose every step is known, and how much it had committed at which.
struct Run {
    layout: Layout,
    writer: Writer<Logged>,
    /// Steps, and the operations that are in the trace after them.
    commits: Vec<(usize, usize)>,
    written: Vec<Operation>,
}

impl Run {
    fn new(layout: Layout, appends: Option<usize>) -> Self {
        let medium = Logged {
            start: layout.start(),
            steps: Vec::new(),
            // The header is the first.
            appends: appends.map(|appends| appends + 1),
        };
        let writer = Writer::begin(&layout, medium).unwrap();
        let commits = vec![(writer.medium().steps.len(), 0)];
        Self {
            layout,
            writer,
            commits,
            written: Vec::new(),
        }
    }

    fn committed(&mut self, outcome: Result<(), Stopped>) -> bool {
        if outcome.is_ok() && !self.writer.is_stopped() {
            self.commits
                .push((self.writer.medium().steps.len(), self.written.len()));
        }
        outcome.is_ok()
    }

    fn operation(&mut self, operation: &Operation) -> bool {
        let names = names();
        self.writer
            .operation(operation, &names, |id| STACKS[id.0 as usize]);
        if !self.writer.is_stopped() {
            self.written.push(operation.clone());
        }
        let outcome = self.writer.commit();
        self.committed(outcome)
    }

    fn pause(&mut self) {
        let outcome = self.writer.pause();
        self.committed(outcome);
    }

    /// Reads the file as a kill after each step leaves it. Returns the last reading's end.
    fn check(self) -> Ending {
        let Self {
            layout,
            writer,
            commits,
            written,
        } = self;
        let steps = writer.into_medium().steps;
        let mut file = vec![0; layout.start() + layout.size()];
        let header = commits[0].0;
        let mut next = commits.iter().peekable();
        let mut done = 0;
        let mut last = Ending::Killed;
        for (number, step) in steps.iter().enumerate() {
            file.resize(file.len().max(step.at + step.bytes.len()), 0);
            file[step.at..step.at + step.bytes.len()].copy_from_slice(&step.bytes);
            if number + 1 < header {
                // Nothing is there before the header is. It is long, and all the same.
                if number % 997 == 0 {
                    assert!(matches!(read(&file).1, Err(TraceError::Empty { .. })));
                }
                continue;
            }
            let mut may_be = done;
            while let Some(&&(steps, operations)) = next.peek() {
                may_be = may_be.max(operations);
                if steps > number + 1 {
                    break;
                }
                done = operations;
                next.next();
            }
            let (records, ending) = read(&file);
            let ending = ending.unwrap_or_else(|error| panic!("after step {number}: {error}"));
            let found = only_operations(&records);
            assert!(
                (done..=may_be).contains(&found.len()),
                "{} operations instead of {done} to {may_be} after step {number}",
                found.len()
            );
            assert!(found.iter().zip(&written).all(|(is, was)| *is == was));
            last = ending;
        }
        last
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn no_kill_loses_or_invents_anything(
        operations in operations(40),
        size in 13_usize..60,
        pauses in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        ended in any::<bool>(),
    ) {
        let mut run = Run::new(Layout::with_journal(&header(), size * 8), None);
        run.writer.module(&module());
        let pauses: Vec<_> = pauses.iter().map(|place| place.index(40)).collect();
        for (number, operation) in operations.iter().enumerate() {
            if pauses.contains(&number) {
                run.pause();
            }
            prop_assert!(run.operation(operation));
        }
        if ended {
            run.writer.end().unwrap();
        }
        let clean = matches!(run.check(), Ending::Clean(_));
        prop_assert_eq!(clean, ended);
    }
}

#[test]
fn no_kill_around_a_block_loses_anything() {
    let mut run = Run::new(Layout::with_journal(&header(), 104), None);
    for operation in unlike(60) {
        assert!(run.operation(&operation));
    }
    run.pause();
    assert!(matches!(run.check(), Ending::Clean(_)));
}

#[test]
fn no_kill_around_a_limit_loses_anything() {
    let mut layout = Layout::with_journal(&header(), 104);
    layout.limit = (layout.start() + layout.size() + 500) as u64;
    let mut run = Run::new(layout, None);
    let stops = unlike(100)
        .filter(|operation| !run.operation(operation))
        .count();
    assert_eq!(stops, 1);
    run.writer.end().unwrap();
    assert!(matches!(run.check(), Ending::Stopped(_, Reason::Limit)));
}

#[test]
fn a_file_that_takes_no_more_ends_in_order() {
    for appends in [0, 1, 4] {
        let mut run = Run::new(Layout::with_journal(&header(), 104), Some(appends));
        let stops = unlike(100)
            .filter(|operation| !run.operation(operation))
            .count();
        assert_eq!(stops, 1);
        run.writer.end().unwrap();
        assert!(matches!(
            run.check(),
            Ending::Stopped(_, Reason::Unwritable)
        ));
    }
}
