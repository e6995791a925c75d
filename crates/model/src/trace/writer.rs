//! Writing.

use std::io;

use super::encoder::Encoder;
use super::entry::{Borrowed, LONGEST_END};
use super::layout::{COVERED, HEAD, LONGEST_BLOCK, NUMBER, checksum};
use super::{Counts, Frame, Header, InMemory, Layout, Medium, Module, Reason};
use crate::{Names, Operation, StackId};

/// Why a trace ends before the process does.
#[derive(Debug)]
pub enum Stopped {
    /// It would have become longer than it may.
    Limit {
        /// Operations that are in it.
        operations: u64,
    },
    /// The medium took no more.
    Unwritable(io::Error),
}

/// Writes a trace.
///
/// What is written is in the medium with the next [`commit`](Self::commit), all at once. Once
/// it has stopped, nothing more becomes part of the trace.
#[derive(Debug)]
pub struct Writer<M> {
    medium: M,
    encoder: Encoder,
    /// The journal's contents, and after `committed` bytes what comes next.
    raw: Vec<u8>,
    committed: usize,
    /// The checksum of what is committed.
    sum: u32,
    /// What all committed entries hold.
    counts: Counts,
    number: u32,
    capacity: usize,
    /// Where the file ends.
    end: u64,
    limit: u64,
    start: u64,
    /// A block that is being made.
    block: Vec<u8>,
    paused: bool,
    stopped: bool,
}

impl<M: Medium> Writer<M> {
    /// Begins a trace. The journal must be there, full of zeros.
    ///
    /// # Errors
    /// If the medium does not take the header.
    pub fn begin(layout: &Layout, mut medium: M) -> io::Result<Self> {
        medium.append(0, &layout.header)?;
        Ok(Self {
            medium,
            encoder: Encoder::default(),
            raw: Vec::with_capacity(layout.journal + 1024),
            committed: 0,
            sum: 0,
            counts: Counts::default(),
            number: 0,
            capacity: layout.journal,
            end: (layout.start() + layout.size()) as u64,
            limit: layout.limit,
            start: layout.start() as u64,
            block: Vec::new(),
            paused: false,
            stopped: false,
        })
    }

    /// Writes an operation, and before it the names and the stack that it is the
    /// first to use. `addresses` gives the return addresses of a stack, the
    /// innermost first.
    #[inline]
    pub fn operation<'a>(
        &mut self,
        operation: &Operation,
        names: &Names,
        addresses: impl FnOnce(StackId) -> &'a [u64],
    ) {
        if self.stopped {
            return;
        }
        self.encoder
            .operation(operation, names, addresses, &mut self.raw);
    }

    /// Writes a module. Modules that are loaded later are written when they are
    /// seen; of two that cover an address, the later counts.
    pub fn module(&mut self, module: &Module) {
        self.encoder.module(module, &mut self.raw);
    }

    /// Writes what a stack means.
    pub fn frames(&mut self, stack: StackId, frames: &[Frame]) {
        self.encoder.frames(stack, frames, &mut self.raw);
    }

    /// Puts into the medium what was written since the last time.
    ///
    /// # Errors
    /// Once, why the trace ends here, with what was committed before.
    #[inline]
    pub fn commit(&mut self) -> Result<(), Stopped> {
        if self.stopped || self.paused || self.raw.len() + LONGEST_END > self.capacity {
            return self.commit_slowly();
        }
        self.put();
        Ok(())
    }

    #[cold]
    fn commit_slowly(&mut self) -> Result<(), Stopped> {
        if self.stopped {
            self.raw.truncate(self.committed);
            return Ok(());
        }
        if self.raw.len() == self.committed {
            return Ok(());
        }
        // What follows takes the place of the end that a pause has put there.
        if self.paused {
            self.cover(self.committed, self.sum);
            self.paused = false;
        }
        if self.raw.len() + LONGEST_END > self.capacity {
            self.turn_over().map_err(|why| self.stop(why))?;
        }
        self.put();
        Ok(())
    }

    /// Puts what is new into the journal, where there is room for it.
    #[inline]
    fn put(&mut self) {
        let new = &self.raw[self.committed..];
        self.sum = checksum_of_more(self.sum, new);
        self.medium.store(HEAD + self.committed, new);
        self.committed = self.raw.len();
        self.counts = self.encoder.counts();
        self.cover(self.committed, self.sum);
    }

    /// Has the journal's head cover so many bytes.
    #[inline]
    fn cover(&mut self, length: usize, sum: u32) {
        let mut word = [0; 8];
        word[..4].copy_from_slice(&(length as u32).to_le_bytes());
        word[4..].copy_from_slice(&sum.to_le_bytes());
        self.medium.publish(COVERED, u64::from_ne_bytes(word));
    }

    /// Makes the journal's contents a block, and what does not fit into an empty journal
    /// one more.
    fn turn_over(&mut self) -> Result<(), Stopped> {
        if self.committed > 0 {
            self.put_block(self.committed)?;
        }
        if self.raw.len() + LONGEST_END > self.capacity {
            self.put_block(self.raw.len())?;
            self.counts = self.encoder.counts();
        }
        Ok(())
    }

    /// Makes the first `length` bytes a block, and begins the journal anew.
    fn put_block(&mut self, length: usize) -> Result<(), Stopped> {
        let raw = &self.raw[..length];
        let most = lz4_flex::block::get_maximum_output_size(length);
        self.block.clear();
        self.block.resize(HEAD + most, 0);
        let too_long = || Stopped::Unwritable(io::Error::other("a record is too long"));
        let stored =
            lz4_flex::block::compress_into(raw, &mut self.block[HEAD..]).map_err(|_| too_long())?;
        if length.max(stored) > LONGEST_BLOCK as usize {
            return Err(too_long());
        }
        let (stored, length) = (stored as u32, length as u32);
        self.block.truncate(HEAD + stored as usize);
        let sum = checksum(length, self.number, &self.block[HEAD..]);
        let head = [stored, length, self.number, sum];
        for (place, number) in self.block.chunks_exact_mut(4).zip(head) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        self.block.resize(self.block.len().next_multiple_of(8), 0);
        let end = self.end + self.block.len() as u64;
        if end > self.limit {
            return Err(Stopped::Limit {
                operations: self.counts.operations,
            });
        }
        self.medium
            .append(self.end, &self.block)
            .map_err(Stopped::Unwritable)?;
        self.end = end;
        self.number += 1;
        self.raw.drain(..length as usize);
        (self.committed, self.sum) = (0, 0);
        self.cover(0, 0);
        let number = u64::from(self.number).to_le_bytes();
        self.medium.publish(NUMBER, u64::from_ne_bytes(number));
        Ok(())
    }

    /// Writes nothing more: what was written is lost.
    pub fn abandon(&mut self) {
        self.stopped = true;
    }

    /// Marks that the trace ends here, though the process does not.
    fn stop(&mut self, why: Stopped) -> Stopped {
        self.stopped = true;
        let reason = match why {
            Stopped::Limit { .. } => Reason::Limit,
            Stopped::Unwritable(_) => Reason::Unwritable,
        };
        self.raw.truncate(self.committed);
        let counts = self.counts;
        self.put_last(&Borrowed::Stopped { counts, reason });
        self.committed = self.raw.len();
        why
    }

    /// Puts a last entry into the journal; there is always room for it.
    fn put_last(&mut self, entry: &Borrowed<'_>) {
        let mut bytes = Vec::with_capacity(256);
        entry.append_to(&mut bytes);
        self.medium.store(HEAD + self.committed, &bytes);
        let sum = checksum_of_more(self.sum, &bytes);
        self.cover(self.committed + bytes.len(), sum);
        self.raw.extend_from_slice(&bytes);
    }

    /// Ends the trace in order for the case that nothing follows. What follows takes the
    /// end's place.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn pause(&mut self) -> Result<(), Stopped> {
        self.commit()?;
        if !self.stopped && !self.paused {
            self.put_last(&Borrowed::End(self.counts));
            self.raw.truncate(self.committed);
            self.paused = true;
        }
        Ok(())
    }

    /// Ends the trace in order, and says how long it is: the rest of the file may be cut off.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn end(&mut self) -> Result<u64, Stopped> {
        self.commit()?;
        if self.stopped {
            return Ok(self.length());
        }
        // An end that a pause has put there is the same.
        self.put_last(&Borrowed::End(self.counts));
        self.committed = self.raw.len();
        self.stopped = true;
        // Without any block, the journal is cut to what is in it. A block that finds no place
        // stays in the journal.
        if self.number > 0 {
            let _ = self.put_block(self.raw.len());
        }
        Ok(self.length())
    }

    fn length(&self) -> u64 {
        if self.number == 0 {
            self.start + (HEAD + self.committed) as u64
        } else {
            self.end
        }
    }

    /// What is in the trace.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether nothing that is written becomes part of the trace any more.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// What it writes into.
    #[must_use]
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// What it wrote into.
    #[must_use]
    pub fn into_medium(self) -> M {
        self.medium
    }
}

impl Writer<InMemory> {
    /// Begins a trace in memory.
    #[must_use]
    pub fn in_memory(header: &Header) -> Self {
        let layout = Layout::new(header, None).expect("there is room without a limit");
        let medium = InMemory::new(&layout);
        Self::begin(&layout, medium).expect("memory takes everything")
    }

    /// The trace's bytes, ended in order or as after a kill.
    #[must_use]
    pub fn into_bytes(mut self, ended: bool) -> Vec<u8> {
        if ended {
            let length = self.end().map_or(u64::MAX, |length| length);
            let mut bytes = self.into_medium().into_bytes();
            bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
            return bytes;
        }
        // Memory has no end.
        let _ = self.commit();
        self.into_medium().into_bytes()
    }
}

/// The checksum of some bytes and of `more` behind them.
#[inline]
fn checksum_of_more(sum: u32, more: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(sum);
    hasher.update(more);
    hasher.finalize()
}
