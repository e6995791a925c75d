//! Decoding.

use std::io::{self, BufRead, BufReader, Read};

use super::decoder::{Decoder, Step};
use super::layout::{COVERED, HEAD, LARGEST_JOURNAL, LONGEST_BLOCK, NUMBER, checksum};
use super::{Counts, Header, MAGIC, Reason, Record, Tables, TraceError, VERSION};
use crate::{Names, Operation};

/// How long the header's lines may be.
const LONGEST_LINE: u64 = 4 << 20;

/// How a trace that was read to its end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Clean(Counts),
    /// The writer stopped without ending it: killed, or still running. What was read is whole.
    Killed,
    /// The writer stopped in order, and its process went on.
    Stopped(Counts, Reason),
}

/// What the header says of the layout.
#[derive(serde::Deserialize)]
struct Sizes {
    journal: u32,
}

/// The journal, read before the blocks that come before it in time.
#[derive(Debug, Default)]
struct Journal {
    number: u64,
    bytes: Vec<u8>,
    sum: u32,
    /// Bytes that its head covers, more than there are if the file was cut off.
    covered: usize,
    /// Whether the file ends within it.
    last: bool,
}

/// What is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Nothing yet.
    Header,
    /// The block of this number.
    Blocks(u32),
    /// The journal.
    Journal,
    /// Nothing any more.
    End,
}

/// Reads a trace's records.
///
/// Everything readable is delivered; then either the iteration ends, and
/// [`Reader::ending`] says how, or one error says where reading stopped. As an iterator it
/// yields all records with the trace's own numbers; [`Reader::operation`] is the faster way
/// for those who want the operations alone. A reader is read in one of the two ways.
#[derive(Debug)]
pub struct Reader<R> {
    source: BufReader<R>,
    name: String,
    header: Header,
    journal_size: usize,
    journal: Journal,
    decoder: Decoder,
    part: Part,
    /// Entries, of which `at` bytes are read.
    raw: Vec<u8>,
    at: usize,
    /// The entries end too early.
    cut: bool,
    stored: Vec<u8>,
    /// Where in the file `raw` is from.
    offset: u64,
    /// Bytes that were taken from the source.
    taken: u64,
    records: u64,
    ending: Option<Ending>,
}

impl<R: Read> Reader<R> {
    /// Opens a trace. `name` stands in messages, usually the file's path.
    ///
    /// # Errors
    /// If the bytes are no trace, of another version, or the header is damaged.
    pub fn new(source: R, name: impl Into<String>) -> Result<Self, TraceError> {
        let mut source = BufReader::with_capacity(1 << 16, source);
        let name = name.into();
        let io = |name: &str, source| TraceError::Io {
            name: name.to_owned(),
            source,
        };

        let mut magic = Vec::new();
        // A file that is no trace may have no line end for a long way.
        source
            .by_ref()
            .take(MAGIC.len() as u64 + 32)
            .read_until(b'\n', &mut magic)
            .map_err(|error| io(&name, error))?;
        // The first four bytes are written last.
        let unfinished = |(place, (&byte, known)): (usize, (&u8, u8))| {
            byte == 0 || (place >= 4 && byte == known)
        };
        if magic.iter().zip(MAGIC.bytes()).enumerate().all(unfinished) {
            return Err(TraceError::Empty { name });
        }
        let Some(rest) = magic.strip_prefix(MAGIC.as_bytes()) else {
            return Err(TraceError::NotATrace { name });
        };
        let rest = String::from_utf8_lossy(rest);
        let (version, sum) = rest
            .trim_end()
            .split_once(' ')
            .unwrap_or((rest.trim_end(), ""));
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TraceError::NotATrace { name });
        }
        if version != VERSION.to_string() {
            return Err(TraceError::OtherVersion {
                name,
                found: version.to_owned(),
                known: VERSION,
            });
        }

        let mut line = Vec::new();
        source
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| io(&name, error))?;
        let damaged = |why: String| TraceError::Header {
            name: name.clone(),
            why,
        };
        let taken = (magic.len() + line.len()) as u64;
        if magic.last() != Some(&b'\n') || line.pop() != Some(b'\n') {
            return Err(damaged("it ends too early".to_owned()));
        }
        if sum != format!("{:08x}", crc32fast::hash(&line)) {
            return Err(damaged("its checksum differs".to_owned()));
        }
        let header = serde_json::from_slice(&line).map_err(|error| damaged(error.to_string()))?;
        let sizes: Sizes =
            serde_json::from_slice(&line).map_err(|error| damaged(error.to_string()))?;
        if sizes.journal > LARGEST_JOURNAL {
            return Err(damaged(format!("a journal of {} bytes", sizes.journal)));
        }
        Ok(Self {
            source,
            name,
            header,
            journal_size: sizes.journal as usize,
            journal: Journal::default(),
            decoder: Decoder::default(),
            part: Part::Header,
            raw: Vec::new(),
            at: 0,
            cut: false,
            stored: Vec::new(),
            offset: taken,
            taken,
            records: 0,
            ending: None,
        })
    }

    /// Who wrote the trace, about which process.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes of the file were read, save the journal, which is read last.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self.part {
            Part::Header => self.taken,
            Part::Blocks(_) => self.taken - (HEAD + self.journal_size) as u64,
            Part::Journal | Part::End => self.taken,
        }
    }

    /// How the trace ended; `None` before its end, and after an error.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The next operation, its names with their numbers in `names`. Other records go into `tables`.
    ///
    /// # Errors
    /// As the iterator's, after which there is nothing more.
    #[inline]
    pub fn operation(
        &mut self,
        tables: &mut Tables,
        names: &mut Names,
    ) -> Option<Result<&Operation, TraceError>> {
        loop {
            match self.step() {
                Some(Ok(Step::Again(place))) => return Some(Ok(self.decoder.operation(place))),
                Some(Ok(Step::New(place))) => {
                    tables.rename(self.decoder.operation_mut(place));
                    return Some(Ok(self.decoder.operation(place)));
                }
                Some(Ok(Step::Record(record))) => tables.keep(record, names),
                Some(Err(error)) => return Some(Err(error)),
                None => return None,
            }
        }
    }

    #[inline]
    fn step(&mut self) -> Option<Result<Step, TraceError>> {
        if self.at == self.raw.len() {
            match self.refill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(self.fail(error))),
            }
        }
        let (step, length) = match self.decoder.step(&self.raw[self.at..]) {
            Ok(read) => read,
            Err(why) => {
                let error = if self.cut {
                    self.truncated()
                } else {
                    self.damaged(why)
                };
                return Some(Err(self.fail(error)));
            }
        };
        self.at += length;
        self.records += 1;
        if let Step::Record(record) = &step
            && let Some(ending) = ending(record)
            && let Err(error) = self.ended(ending)
        {
            return Some(Err(self.fail(error)));
        }
        Some(Ok(step))
    }

    #[cold]
    fn fail(&mut self, error: TraceError) -> TraceError {
        self.part = Part::End;
        self.raw.clear();
        self.at = 0;
        error
    }

    /// Takes in that the trace says how it ends.
    #[cold]
    fn ended(&mut self, ending: Ending) -> Result<(), TraceError> {
        let (Ending::Clean(counts) | Ending::Stopped(counts, _)) = ending else {
            return Ok(());
        };
        if counts != self.decoder.counts() {
            return Err(self.damaged("records are missing before its end"));
        }
        let more = self.at < self.raw.len()
            || match self.part {
                Part::Blocks(number) => {
                    let next = u64::from(number);
                    self.journal.number > next
                        || (self.journal.number == next && self.journal.covered > 0)
                        || !only_zeros(&mut self.source).map_err(|error| self.io(error))?
                }
                _ => false,
            };
        if more {
            return Err(self.damaged("bytes after its end"));
        }
        if self.cut {
            return Err(self.truncated());
        }
        self.part = Part::End;
        self.ending = Some(ending);
        Ok(())
    }

    /// Gets more entries. False at the end of the trace.
    #[cold]
    fn refill(&mut self) -> Result<bool, TraceError> {
        self.raw.clear();
        self.at = 0;
        loop {
            match self.part {
                Part::Header => {
                    self.read_journal()?;
                    self.part = Part::Blocks(0);
                }
                Part::Blocks(number) => {
                    if !self.journal.last && self.read_block(number)? {
                        self.part = Part::Blocks(number + 1);
                        return Ok(true);
                    }
                    self.part = Part::Journal;
                    if self.take_journal(number)? {
                        return Ok(true);
                    }
                }
                Part::Journal if self.cut => return Err(self.truncated()),
                Part::Journal => {
                    self.part = Part::End;
                    self.ending = Some(Ending::Killed);
                }
                Part::End => return Ok(false),
            }
        }
    }

    fn read_journal(&mut self) -> Result<(), TraceError> {
        let mut head = [0; HEAD];
        if self.fill(&mut head)? < HEAD {
            return Err(self.truncated());
        }
        let covered = number(&head[COVERED..]);
        if covered as usize > self.journal_size {
            return Err(self.damaged(format!("a journal of {covered} bytes")));
        }
        let mut bytes = Vec::new();
        let got = self
            .source
            .by_ref()
            .take(self.journal_size as u64)
            .read_to_end(&mut bytes)
            .map_err(|error| self.io(error))?;
        self.taken += got as u64;
        bytes.truncate(covered as usize);
        self.journal = Journal {
            number: u64::from(number(&head[NUMBER..]))
                | u64::from(number(&head[NUMBER + 4..])) << 32,
            bytes,
            sum: number(&head[COVERED + 4..]),
            covered: covered as usize,
            last: got < self.journal_size,
        };
        Ok(())
    }

    /// Reads the block of this number into `raw`. False if there is none.
    fn read_block(&mut self, expected: u32) -> Result<bool, TraceError> {
        self.offset = self.taken;
        let mut head = [0; HEAD];
        let got = self.fill(&mut head)?;
        let [stored, raw, number, sum] = [0, 4, 8, 12].map(|at| number(&head[at..]));
        // Nothing, or a block whose writer did not come to its first bytes.
        if stored == 0 {
            return Ok(false);
        }
        if got < HEAD {
            return Err(self.truncated());
        }
        if stored.max(raw) > LONGEST_BLOCK {
            return Err(self.damaged(format!("a block of {stored} bytes")));
        }
        let padded = u64::from(stored).next_multiple_of(8);
        self.stored.clear();
        let got = self
            .source
            .by_ref()
            .take(padded)
            .read_to_end(&mut self.stored)
            .map_err(|source| TraceError::Io {
                name: self.name.clone(),
                source,
            })?;
        self.taken += got as u64;
        if (got as u64) < padded {
            return Err(self.truncated());
        }
        let (bytes, padding) = self.stored.split_at(stored as usize);
        if sum != checksum(raw, number, bytes) || padding.iter().any(|&byte| byte != 0) {
            return Err(self.damaged("its checksum differs"));
        }
        if number != expected {
            return Err(self.damaged(format!("block {number} stands where {expected} should")));
        }
        self.raw.resize(raw as usize, 0);
        match lz4_flex::block::decompress_into(bytes, &mut self.raw) {
            Ok(length) if length == raw as usize => Ok(true),
            Ok(_) => Err(self.damaged("a block is shorter than it says")),
            Err(error) => Err(self.damaged(format!("a block cannot be unpacked: {error}"))),
        }
    }

    /// Goes on with the journal, if what is in it comes after so many blocks.
    fn take_journal(&mut self, blocks: u32) -> Result<bool, TraceError> {
        let journal = std::mem::take(&mut self.journal);
        // It became a block, or was copied before that.
        if journal.number < blocks.into() {
            return Ok(false);
        }
        if journal.number > blocks.into() {
            return if journal.last || self.source.fill_buf().map_or(true, <[u8]>::is_empty) {
                Err(self.truncated())
            } else {
                Err(self.damaged("blocks are missing"))
            };
        }
        self.offset = self.taken;
        self.cut = journal.bytes.len() < journal.covered;
        // What is left of one that was cut off cannot be checked as a whole.
        if !self.cut && journal.sum != crc32fast::hash(&journal.bytes) {
            return Err(self.damaged("its checksum differs"));
        }
        self.raw = journal.bytes;
        // And zeros at its end may be what a file system put there.
        while self.cut && self.raw.pop_if(|byte| *byte == 0).is_some() {}
        Ok(!self.raw.is_empty())
    }

    /// Reads until `buffer` is full or the source ends; bytes not read stay zero.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let mut got = 0;
        while got < buffer.len() {
            match self.source.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        self.taken += got as u64;
        Ok(got)
    }

    fn damaged(&self, why: impl Into<String>) -> TraceError {
        TraceError::Damaged {
            name: self.name.clone(),
            offset: self.offset,
            why: why.into(),
            records: self.records,
        }
    }

    fn io(&self, source: io::Error) -> TraceError {
        TraceError::Io {
            name: self.name.clone(),
            source,
        }
    }

    fn truncated(&self) -> TraceError {
        TraceError::Truncated {
            name: self.name.clone(),
            offset: self.taken,
            records: self.records,
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.step()? {
            Ok(Step::New(place) | Step::Again(place)) => {
                Ok(Record::Operation(self.decoder.operation(place).clone()))
            }
            Ok(Step::Record(record)) => Ok(record),
            Err(error) => Err(error),
        })
    }
}

/// What a record says of the trace's end.
fn ending(record: &Record) -> Option<Ending> {
    match *record {
        Record::End(counts) => Some(Ending::Clean(counts)),
        Record::Stopped { counts, reason } => Some(Ending::Stopped(counts, reason)),
        _ => None,
    }
}

/// The number that `bytes` begins with.
fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Whether the source holds nothing but zeros from here on.
fn only_zeros(source: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let chunk = source.fill_buf()?;
        if chunk.is_empty() {
            return Ok(true);
        }
        if chunk.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        let length = chunk.len();
        source.consume(length);
    }
}
