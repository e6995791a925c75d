//! What a trace is written into.

use std::io;

/// A file, as a writer needs it: memory that is shared with the file for its journal, and a way
/// to add to its end.
///
/// Everything must reach the file in the order of the calls, whenever the process is killed.
pub trait Medium {
    /// Puts bytes into the journal, `at` bytes after its beginning.
    fn store(&mut self, at: usize, bytes: &[u8]);

    /// Puts a word into the journal at once, as the machine orders its bytes; `at` is a
    /// multiple of 8. It goes after all that was stored before.
    fn publish(&mut self, at: usize, word: u64);

    /// Puts bytes at place `at` of the file, a multiple of 8. The first four go last, and at once.
    ///
    /// # Errors
    /// If the file does not take them. What is there then must not begin with the first four.
    fn append(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A trace in memory.
#[derive(Clone, Debug)]
pub struct InMemory {
    bytes: Vec<u8>,
    start: usize,
}

impl InMemory {
    /// Room for a trace of that layout.
    #[must_use]
    pub fn new(layout: &super::Layout) -> Self {
        Self {
            bytes: vec![0; layout.start() + layout.size()],
            start: layout.start(),
        }
    }

    /// What was written, as long as it was there at the end.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Medium for InMemory {
    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[self.start + at..][..bytes.len()].copy_from_slice(bytes);
    }

    fn publish(&mut self, at: usize, word: u64) {
        self.store(at, &word.to_ne_bytes());
    }

    fn append(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = at as usize;
        let end = at + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
        Ok(())
    }
}
