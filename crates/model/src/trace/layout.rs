//! Where in the file what lies.

use super::{Header, MAGIC, VERSION};

/// Bytes of the journal, where no limit asks for less. What a killed writer leaves uncompressed,
/// and what is compressed at a time.
const JOURNAL: u64 = 256 << 10;

/// The journal is never smaller.
const LEAST_JOURNAL: u64 = 4 << 10;

/// A journal that is said to be larger is damage.
pub(super) const LARGEST_JOURNAL: u32 = 64 << 20;

/// Bytes before the journal's contents, and before a block's.
pub(super) const HEAD: usize = 16;

/// Where in the journal its number lies, and where its length and checksum.
pub(super) const NUMBER: usize = 0;
pub(super) const COVERED: usize = 8;

/// No block is longer than this, compressed or not; a length beyond it is damage.
pub(super) const LONGEST_BLOCK: u32 = 64 << 20;

/// A file that is to be written: its header, and what goes where.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) header: Vec<u8>,
    pub(super) journal: usize,
    pub(super) limit: u64,
}

impl Layout {
    /// The layout for a header and the size that the file must not exceed, in bytes. `None` if that
    /// leaves no room for anything.
    #[must_use]
    pub fn new(header: &Header, limit: Option<u64>) -> Option<Self> {
        let limit = limit.unwrap_or(u64::MAX);
        // The header's length hardly depends on the journal's size.
        let head = Self::with_journal(header, JOURNAL as usize).header.len() as u64 + 64;
        // Blocks need room, too.
        let room = (limit.checked_sub(head)? / 2).min(JOURNAL) / 8 * 8;
        (room >= LEAST_JOURNAL).then(|| Self {
            limit,
            ..Self::with_journal(header, room as usize)
        })
    }

    /// The layout with a journal of so many bytes.
    pub(super) fn with_journal(header: &Header, journal: usize) -> Self {
        let mut json = serde_json::to_value(header).expect("plain data becomes JSON");
        json["journal"] = journal.into();
        json["encoding"] = "entries in postcard 1, one after the other. Entry::Operation takes the \
                            next place of a ring of 8192; with `like` = n > 0 each number of its \
                            action (handles of created streams, events and pools, addresses, sizes, \
                            regions, values, tokens; the stream first) is the zigzag-coded \
                            difference to the number at the same position of the operation n places \
                            before it. Entry::Varied takes the next place, too: it is the operation \
                            `like` places before it, with each number more by one of the zigzag-coded \
                            `differences`. Blocks of u32 stored, u32 raw, u32 number, u32 CRC-32 of \
                            raw, number and the stored bytes, which are an LZ4 block; \
                            little-endian"
            .into();
        json["schema"] = serde_json::from_str(include_str!("schema.json"))
            .expect("the schema is JSON, a test says so");
        let mut json = json.to_string();
        let first = |json: &str| {
            let sum = crc32fast::hash(json.as_bytes());
            format!("{MAGIC}{VERSION} {sum:08x}\n")
        };
        while !(first(&json).len() + json.len() + 1).is_multiple_of(8) {
            json.push(' ');
        }
        let header = format!("{}{json}\n", first(&json)).into_bytes();
        Self {
            header,
            journal,
            limit: u64::MAX,
        }
    }

    /// Where the journal begins, head included: a multiple of 8.
    #[must_use]
    pub fn start(&self) -> usize {
        self.header.len()
    }

    /// How long the journal is, head included.
    #[must_use]
    pub fn size(&self) -> usize {
        HEAD + self.journal
    }
}

/// The checksum of a block.
pub(super) fn checksum(raw: u32, number: u32, stored: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&raw.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(stored);
    hasher.finalize()
}
