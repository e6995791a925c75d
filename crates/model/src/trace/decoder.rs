//! Entries become records.

use super::entry::{Entry, read_again, read_varied};
use super::{Counts, KEPT, Record, numbers};
use crate::Operation;

/// What one entry says.
pub(super) enum Step {
    /// An operation that lies in the ring at this place since now, with names of its own.
    New(usize),
    /// The operation at this place of the ring, whose names were there before.
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
            _ => match read_varied(bytes) {
                Some((like, differences, length)) => {
                    Ok((self.varied(like.into(), &differences)?, length))
                }
                None => self.entry(bytes),
            },
        }
    }

    fn entry(&mut self, bytes: &[u8]) -> Result<(Step, usize), String> {
        let (entry, rest) = postcard::take_from_bytes::<Entry>(bytes)
            .map_err(|error| format!("an unknown record: {error}"))?;
        let step = match entry {
            Entry::Operation { like, operation } => self.new_operation(like.into(), operation)?,
            Entry::Varied { like, differences } => self.varied(like.into(), &differences)?,
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

    /// The operation that lies so many places before the next one.
    fn base(&self, like: usize) -> Result<&Operation, String> {
        (1..=KEPT)
            .contains(&like)
            .then(|| self.ring.get((self.next + KEPT - like) % KEPT))
            .flatten()
            .ok_or_else(|| "a difference to nothing".to_owned())
    }

    fn varied(&mut self, like: usize, differences: &[u64]) -> Result<Step, String> {
        let operation =
            numbers::vary(self.base(like)?, differences).ok_or("a difference to something else")?;
        // Its names have the numbers that its base's were given.
        let place = self.keep(operation);
        Ok(Step::Again(place))
    }

    fn new_operation(&mut self, like: usize, mut operation: Operation) -> Result<Step, String> {
        if like != 0 {
            numbers::add(&mut operation, self.base(like)?);
        }
        let place = self.keep(operation);
        Ok(Step::New(place))
    }

    /// Puts an operation into the ring.
    fn keep(&mut self, operation: Operation) -> usize {
        let place = self.next;
        if place == self.ring.len() {
            self.ring.push(operation);
        } else {
            self.ring[place] = operation;
        }
        self.next = (place + 1) % KEPT;
        self.counts.operations += 1;
        place
    }
}
