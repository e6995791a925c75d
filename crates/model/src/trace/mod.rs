//! The trace: operations in a file.
//!
//! A trace is appended to as the program runs, says itself what is in it, and is
//! readable after the program was killed.
//!
//! ```text
//! streamcheck trace 2 1f0c9a3e\n      magic, format version, CRC-32 of the next line
//! {"tool":{…},"process":{…},…}\n      the header, JSON in one line
//! length u32 | crc u32 | payload      a frame, numbers little-endian
//! length u32 | crc u32 | payload      …
//! 00 00 00 00 …                       the end of what was written
//! ```
//!
//! *Frames.* Each holds one [`Record`] as [postcard](https://postcard.jamesmunns.com/wire-format)
//! writes it. The checksum is a CRC-32 over the length and the payload. The header's
//! `schema` names every record, operation and field in the order of their
//! encoding, so that the file can be decoded without this source.
//!
//! *Killed writers.* A recorder may write into a preallocated file: a frame of
//! length zero ends what was written, and the zeros after it mean nothing. Whoever
//! copies a batch of frames into shared memory must copy its first four bytes last;
//! then a kill at any moment leaves whole frames only. A trace that was ended in
//! order has an [`End`](Record::End) record; without it the writer was killed, and
//! what there is is complete up to that point.
//!
//! *Names and stacks* go before the first operation that uses them, once.
//! Numbers are the recording process's own; [`Tables`] gives them back their meaning.
//! An address from [`INTERPRETED`](crate::INTERPRETED) on stands for one frame of an
//! interpreted language, which a [`Frames`](Record::Frames) record under
//! [`StackId::of_interpreted`](crate::StackId::of_interpreted) holds.
//!
//! The [`Writer`] only encodes into a `Vec<u8>`, and the [`Reader`] reads from any
//! [`std::io::Read`]: neither knows about files.

mod error;
mod reader;
mod record;
mod tables;
mod writer;

pub use error::TraceError;
pub use reader::{Ending, Reader};
pub use record::{Counts, Frame, Header, Module, ProcessFacts, Record, Tool};
pub use tables::Tables;
pub use writer::Writer;

/// The format's version. It goes up with every change of `schema.json`.
pub const VERSION: u32 = 2;

/// How the first line starts.
const MAGIC: &str = "streamcheck trace ";

/// Bytes before a frame's payload.
const FRAME_HEAD: usize = 8;

/// No record is longer than this; a length beyond it is damage.
const LONGEST_FRAME: u32 = 16 << 20;

/// A frame's checksum.
fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
