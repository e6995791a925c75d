//! Entries become records.

use super::entry::{Entry, read_again};
use super::{Counts, KEPT, Record, numbers};
use crate::Operation;

/// What one entry says.
pub(super) enum Step {
    /// An operation that lies in the ring at this place since now.
    New(usize),
    /// The operation at this place of the ring.
    Again(usize),
    /// Something else.
    Record(Record),
}

/// Reads entries, remembering what later ones refer to.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    ring: Vec<Operation>,
    next: usize,
    counts: Counts,
}

impl Decoder {
    /// The operation at a place that a step named.
    #[inline]
    pub(super) fn operation(&self, place: usize) -> &Operation {
        &self.ring[place]
    }

    /// The same, for giving its names other numbers. Nothing else may be changed.
    pub(super) fn operation_mut(&mut self, place: usize) -> &mut Operation {
        &mut self.ring[place]
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Reads the entry that `bytes` begins with; says how long it was.
    #[inline]
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<(Step, usize), String> {
        match read_again(bytes) {
            Some((place, length)) if place < self.ring.len() => {
                self.counts.operations += 1;
                Ok((Step::Again(place), length))
            }
            _ => self.entry(bytes),
        }
    }

    fn entry(&mut self, bytes: &[u8]) -> Result<(Step, usize), String> {
        let (entry, rest) = postcard::take_from_bytes::<Entry>(bytes)
            .map_err(|error| format!("an unknown record: {error}"))?;
        let step = match entry {
            Entry::Operation { like, operation } => self.new_operation(like.into(), operation)?,
            Entry::Again(_) => return Err("a repetition of nothing".to_owned()),
            Entry::Name { id, text } => {
                self.counts.names += 1;
                Step::Record(Record::Name { id, text })
            }
            Entry::Stack { id, addresses } => {
                self.counts.stacks += 1;
                Step::Record(Record::Stack { id, addresses })
            }
            Entry::Module(module) => Step::Record(Record::Module(module)),
            Entry::Frames { stack, frames } => Step::Record(Record::Frames { stack, frames }),
            Entry::End(counts) => Step::Record(Record::End(counts)),
            Entry::Stopped { counts, reason } => Step::Record(Record::Stopped { counts, reason }),
        };
        Ok((step, bytes.len() - rest.len()))
    }

    fn new_operation(&mut self, like: usize, mut operation: Operation) -> Result<Step, String> {
        let place = self.next;
        if like != 0 {
            let base = (like <= KEPT)
                .then(|| self.ring.get((place + KEPT - like) % KEPT))
                .flatten()
                .ok_or("a difference to nothing")?;
            numbers::add(&mut operation, base);
        }
        if place == self.ring.len() {
            self.ring.push(operation);
        } else {
            self.ring[place] = operation;
        }
        self.next = (place + 1) % KEPT;
        self.counts.operations += 1;
        Ok(Step::New(place))
    }
}
