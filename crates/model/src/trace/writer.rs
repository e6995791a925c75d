//! Encoding.

use super::{Counts, FRAME_HEAD, Frame, Header, MAGIC, Module, Record, VERSION, checksum, tables};
use crate::{NameId, Names, Operation, StackId};

/// Encodes a trace, remembering which names and stacks it has written.
///
/// All methods append whole frames to `out` and never fail. What becomes of the bytes
/// is the caller's business; they must reach the file in this order.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    names: Vec<bool>,
    stacks: Vec<bool>,
    counts: Counts,
}

impl Writer {
    /// Begins a trace with its two header lines.
    pub fn new(header: &Header, out: &mut Vec<u8>) -> Self {
        let mut json = serde_json::to_value(header).expect("plain data becomes JSON");
        json["encoding"] = "frames of u32 length, u32 CRC-32 of length and payload, payload in \
                            postcard 1 as a Record; little-endian"
            .into();
        json["schema"] = serde_json::from_str(include_str!("schema.json"))
            .expect("the schema is JSON, a test says so");
        let json = json.to_string();
        let sum = crc32fast::hash(json.as_bytes());
        out.extend_from_slice(format!("{MAGIC}{VERSION} {sum:08x}\n{json}\n").as_bytes());
        Self::default()
    }

    /// Appends an operation, and before it the names and the stack that it is the
    /// first to use. `addresses` gives the return addresses of a stack, the
    /// innermost first.
    pub fn operation<'a>(
        &mut self,
        operation: &Operation,
        names: &Names,
        addresses: impl FnOnce(StackId) -> &'a [u64],
        out: &mut Vec<u8>,
    ) {
        for id in tables::names_in(operation) {
            self.name(id, names, out);
        }
        let id = operation.call.stack;
        if id != StackId::default() && first(&mut self.stacks, id.0) {
            self.counts.stacks += 1;
            append(
                &Borrowed::Stack {
                    id,
                    addresses: addresses(id),
                },
                out,
            );
        }
        self.counts.operations += 1;
        append(&Borrowed::Operation(operation), out);
    }

    /// Appends a module. Modules that are loaded later are appended when they are
    /// seen; of two that cover an address, the later counts.
    pub fn module(&mut self, module: &Module, out: &mut Vec<u8>) {
        append(&Borrowed::Module(module), out);
    }

    /// Appends what a stack means.
    pub fn frames(&mut self, stack: StackId, frames: &[Frame], out: &mut Vec<u8>) {
        append(&Borrowed::Frames { stack, frames }, out);
    }

    /// Ends the trace in order.
    pub fn end(self, out: &mut Vec<u8>) {
        append(&Borrowed::End(self.counts), out);
    }

    /// What was written so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn name(&mut self, id: NameId, names: &Names, out: &mut Vec<u8>) {
        if id != NameId::default() && first(&mut self.names, id.0) {
            self.counts.names += 1;
            append(
                &Borrowed::Name {
                    id,
                    text: names.text(id),
                },
                out,
            );
        }
    }
}

/// Marks `number`; true the first time.
fn first(seen: &mut Vec<bool>, number: u32) -> bool {
    let place = number as usize;
    if place >= seen.len() {
        seen.resize(place + 1, false);
    }
    !std::mem::replace(&mut seen[place], true)
}

/// [`Record`] without copies: a test holds the two encodings together.
#[derive(serde::Serialize)]
enum Borrowed<'a> {
    Name { id: NameId, text: &'a str },
    Module(&'a Module),
    Stack { id: StackId, addresses: &'a [u64] },
    Frames { stack: StackId, frames: &'a [Frame] },
    Operation(&'a Operation),
    End(Counts),
}

impl<'a> From<&'a Record> for Borrowed<'a> {
    fn from(record: &'a Record) -> Self {
        match record {
            Record::Name { id, text } => Self::Name { id: *id, text },
            Record::Module(module) => Self::Module(module),
            Record::Stack { id, addresses } => Self::Stack { id: *id, addresses },
            Record::Frames { stack, frames } => Self::Frames {
                stack: *stack,
                frames,
            },
            Record::Operation(operation) => Self::Operation(operation),
            Record::End(counts) => Self::End(*counts),
        }
    }
}

impl Record {
    /// Appends the record as one frame. For tools that write traces of their own;
    /// a recorder uses [`Writer`].
    pub fn append_to(&self, out: &mut Vec<u8>) {
        append(&Borrowed::from(self), out);
    }
}

fn append(record: &Borrowed<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    let body = start + FRAME_HEAD;
    // Postcard into a slice is several times as fast as into a growing vector.
    let mut room = 192;
    let end = loop {
        out.resize(body + room, 0);
        match postcard::to_slice(record, &mut out[body..]) {
            Ok(written) => break body + written.len(),
            Err(postcard::Error::SerializeBufferFull) => room *= 4,
            Err(error) => unreachable!("plain data that postcard refuses: {error}"),
        }
    };
    out.truncate(end);
    let payload = &out[body..];
    let length = u32::try_from(payload.len())
        .expect("records are short")
        .to_le_bytes();
    let sum = checksum(length, payload).to_le_bytes();
    out[start..start + 4].copy_from_slice(&length);
    out[start + 4..body].copy_from_slice(&sum);
}
