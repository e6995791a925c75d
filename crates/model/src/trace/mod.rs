//! The trace: operations in a file.
//!
//! A trace is written as the program runs, says itself what is in it, and is
//! readable after the program was killed.
//!
//! ```text
//! streamcheck trace 5 1f0c9a3e\n      magic, format version, CRC-32 of the next line
//! {"tool":{…},"process":{…},…}  \n    the header, JSON in one line, filled up to a multiple of 8
//! number u64 | length u32 | crc u32   the journal's head; numbers are little-endian
//! …                                   the journal: as many bytes as the header's `journal` says
//! stored u32 | raw u32 | number u32 | crc u32 | bytes, filled up to a multiple of 8
//! …                                   blocks to the end of the file
//! ```
//!
//! *Entries.* What happened is a sequence of [`Entry`](entry::Entry) as
//! [postcard](https://postcard.jamesmunns.com/wire-format) writes them, one after the other.
//! The newest 8,192 different operations are kept by writer and reader, in a ring: an
//! operation that is equal to one of them is its number alone, and one that is not
//! is written as its difference to an earlier one of the same place. The header's `schema` names
//! every entry, operation and field in the order of their encoding, and its `encoding` says the
//! rest, so that the file can be decoded without this source.
//!
//! *Journal and blocks.* The newest entries stand in the journal as they are. When it is
//! full, its contents become a block at the end of the file, compressed with LZ4, and it begins
//! anew. Blocks are numbered from 0, and the journal's number is that of the block that it
//! will become. Whoever reads takes the blocks in their order, and then the journal if its number
//! is the one after the last block; else its contents are in that block already. A short trace has
//! no blocks, and its journal is cut to what is in it.
//!
//! *Killed writers.* The journal is shared memory. An entry is put behind what its head covers, and
//! then the head's length and checksum, eight bytes, are stored at once. A block's first four
//! bytes are written last; then the journal is emptied, then its number rises. So a
//! kill at any moment loses nothing but what was not yet in the journal. A trace that was
//! ended in order has an [`End`](Record::End); one without it was written by a process that
//! was killed, and what there is is complete up to that point. A
//! [`Stopped`](Record::Stopped) says that the writer had to stop while the process went on.
//!
//! *Names and stacks* go before the first operation that uses them, once.
//! Numbers are the recording process's own; [`Tables`] gives them back their meaning.
//! An address from [`INTERPRETED`](crate::INTERPRETED) on stands for one frame of an
//! interpreted language, which a [`Frames`](Record::Frames) record under
//! [`StackId::of_interpreted`](crate::StackId::of_interpreted) holds.
//!
//! The [`Writer`] writes into any [`Medium`], and the [`Reader`] reads from any
//! [`std::io::Read`]: neither knows about files.

mod decoder;
mod encoder;
mod entry;
mod error;
mod layout;
mod medium;
mod numbers;
mod reader;
mod record;
mod tables;
mod writer;

pub use error::TraceError;
pub use layout::Layout;
pub use medium::{InMemory, Medium};
pub use reader::{Ending, Reader};
pub use record::{Counts, Frame, Header, Module, ProcessFacts, Reason, Record, Tool};
pub use tables::Tables;
pub use writer::{Stopped, Writer};

/// The format's version. It goes up with every change of `schema.json`.
pub const VERSION: u32 = 5;

/// How the first line starts.
const MAGIC: &str = "streamcheck trace ";

/// Different operations that writer and reader keep. A change is a new format version.
const KEPT: usize = 8192;

#[cfg(test)]
mod kills;
#[cfg(test)]
mod tests;
