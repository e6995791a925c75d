//! Decoding.

use std::io::{self, BufRead, BufReader, Read};

use super::{
    Counts, FRAME_HEAD, Header, LONGEST_FRAME, MAGIC, Record, TraceError, VERSION, checksum,
};

/// How long the header's lines may be.
const LONGEST_LINE: u64 = 4 << 20;

/// How a trace that was read to its end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Clean(Counts),
    /// The writer stopped without ending it: killed, or still running. What was read is whole.
    Killed,
}

/// Iterates over a trace's records.
///
/// Everything readable is delivered; then either the iteration ends, and
/// [`Reader::ending`] says how, or one error says where reading stopped.
#[derive(Debug)]
pub struct Reader<R> {
    source: BufReader<R>,
    name: String,
    header: Header,
    offset: u64,
    records: u64,
    counts: Counts,
    ending: Option<Ending>,
    done: bool,
    payload: Vec<u8>,
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
        if magic.iter().all(|&byte| byte == 0) {
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
        let offset = (magic.len() + line.len()) as u64;
        if magic.last() != Some(&b'\n') || line.pop() != Some(b'\n') {
            return Err(damaged("it ends too early".to_owned()));
        }
        if sum != format!("{:08x}", crc32fast::hash(&line)) {
            return Err(damaged("its checksum differs".to_owned()));
        }
        let header = serde_json::from_slice(&line).map_err(|error| damaged(error.to_string()))?;
        Ok(Self {
            source,
            name,
            header,
            offset,
            records: 0,
            counts: Counts::default(),
            ending: None,
            done: false,
            payload: Vec::new(),
        })
    }

    /// Who wrote the trace, about which process.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes read so far; all of them belong to whole records.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How the trace ended; `None` before its end, and after an error.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
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
            offset: self.offset,
            records: self.records,
        }
    }

    fn record(&mut self) -> Result<Option<Record>, TraceError> {
        let mut head = [0; FRAME_HEAD];
        let got = fill(&mut self.source, &mut head).map_err(|error| self.io(error))?;
        let length_bytes = [head[0], head[1], head[2], head[3]];
        let length = u32::from_le_bytes(length_bytes);
        // The preallocated rest of a killed writer's file, or nothing at all.
        if length == 0 {
            let remainder = remainder(&mut self.source).map_err(|error| self.io(error))?;
            let written = head != [0; FRAME_HEAD] || remainder.used > 0;
            if written && !remainder.is_unfinished_frame() {
                return Err(self.damaged("bytes after the end of what was written"));
            }
            self.ending = Some(Ending::Killed);
            return Ok(None);
        }
        if got < FRAME_HEAD {
            return Err(self.truncated());
        }
        if length > LONGEST_FRAME {
            return Err(self.damaged(format!("a record of {length} bytes")));
        }
        self.payload.clear();
        let got = self
            .source
            .by_ref()
            .take(u64::from(length))
            .read_to_end(&mut self.payload)
            .map_err(|source| TraceError::Io {
                name: self.name.clone(),
                source,
            })?;
        if got < length as usize {
            return Err(self.truncated());
        }
        let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if sum != checksum(length_bytes, &self.payload) {
            return Err(self.damaged("its checksum differs"));
        }
        let (record, rest) = postcard::take_from_bytes::<Record>(&self.payload)
            .map_err(|error| self.damaged(format!("an unknown record: {error}")))?;
        if !rest.is_empty() {
            return Err(self.damaged("a record is longer than its fields"));
        }
        match &record {
            Record::Operation(_) => self.counts.operations += 1,
            Record::Name { .. } => self.counts.names += 1,
            Record::Stack { .. } => self.counts.stacks += 1,
            Record::End(counts) => {
                if *counts != self.counts {
                    return Err(self.damaged("records are missing before its end"));
                }
                if !only_zeros(&mut self.source).map_err(|error| self.io(error))? {
                    return Err(self.damaged("bytes after its end"));
                }
                self.ending = Some(Ending::Clean(*counts));
                self.done = true;
            }
            Record::Module(_) | Record::Frames { .. } => {}
        }
        self.offset += FRAME_HEAD as u64 + u64::from(length);
        self.records += 1;
        Ok(Some(record))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let record = self.record().transpose();
        self.done |= !matches!(record, Some(Ok(_)));
        record
    }
}

/// Reads until `buffer` is full or the source ends; bytes not read stay zero.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match source.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// What a source holds from some place on.
struct Remainder {
    /// Bytes up to the last that is not zero.
    used: u64,
    /// Zeros after them.
    zeros: u64,
}

impl Remainder {
    /// Whether it may be a frame whose writer was killed before it stored the
    /// length, which it does last: little enough for one frame, in a file that was
    /// longer than its contents.
    fn is_unfinished_frame(&self) -> bool {
        const PREALLOCATED: u64 = 64;
        self.used <= 1 << 16 && self.zeros >= PREALLOCATED
    }
}

fn remainder(source: &mut impl BufRead) -> io::Result<Remainder> {
    let mut remainder = Remainder { used: 0, zeros: 0 };
    loop {
        let chunk = source.fill_buf()?;
        if chunk.is_empty() {
            return Ok(remainder);
        }
        let length = chunk.len() as u64;
        match chunk.iter().rposition(|&byte| byte != 0) {
            Some(last) => {
                let used = last as u64 + 1;
                remainder.used += remainder.zeros + used;
                remainder.zeros = length - used;
            }
            None => remainder.zeros += length,
        }
        source.consume(length as usize);
    }
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
