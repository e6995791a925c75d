//! Memory as operations speak of it: kinds, regions, pointers.

use serde::{Deserialize, Serialize};

use crate::Handle;

/// How memory was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemoryKind {
    /// `cudaMallocAsync` and its kin: valid in stream order only.
    StreamOrdered,
    /// `cudaMalloc` and its kin.
    Device,
    /// `cudaMallocManaged`.
    Managed,
    /// Page-locked host memory that CUDA allocated (`cudaMallocHost`, `cudaHostAlloc`).
    Pinned,
    /// The application's own host memory, page-locked by `cudaHostRegister`.
    Registered,
    /// A mapping made by `cuMemMap`.
    Mapped,
    /// Host memory that CUDA was never told of, of which a pending copy still reads
    /// or writes.
    System,
}

impl MemoryKind {
    /// Whether it is host memory.
    #[must_use]
    pub fn is_host(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered | Self::System)
    }

    /// The name used in messages and reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::StreamOrdered => "stream-ordered",
            Self::Device => "device",
            Self::Managed => "managed",
            Self::Pinned => "pinned",
            Self::Registered => "registered",
            Self::Mapped => "mapped",
            Self::System => "system",
        }
    }
}

/// The call that gives memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FreeKind {
    /// `cudaFreeAsync`, `cuMemFreeAsync`: in stream order.
    Async,
    /// `cudaFree`, `cuMemFree`.
    Sync,
    /// `cudaFreeHost`, `cuMemFreeHost`.
    Host,
    /// `cudaHostUnregister`, `cuMemHostUnregister`.
    Unregister,
    /// `cuMemUnmap`.
    Unmap,
    /// The C library's `free`, `realloc`, `munmap` or `mremap` took host memory away, or a
    /// function returned whose variable it was.
    Libc,
    /// Memory of another process was closed (`cudaIpcCloseMemHandle`). Whether that
    /// waits is not documented.
    Import,
}

/// Whether an access reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Reads only.
    Read,
    /// Writes, or may write by its declaration.
    Write,
    /// Updates atomically, and does nothing else.
    Update,
    /// May be anything, or not be an access at all: a pointer-like value in a
    /// by-value struct.
    Unknown,
    /// As `Unknown`, in a struct so large that part of it may never have been
    /// written: an array with room to spare, holding what the stack held before.
    Doubtful,
}

/// What streams signal each other with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Flag {
    /// A word of memory (`cuStreamWriteValue32` and its kin).
    Memory(u64),
    /// An external semaphore.
    Semaphore(Handle),
}

/// When a wait for a value is over (`CUstreamWaitValue_flags`, cuda.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// `(int32_t)(there - value) >= 0`, for 32-bit values.
    Reached32,
    /// `(int64_t)(there - value) >= 0`, for 64-bit values.
    Reached64,
    /// `there == value`.
    Equal,
    /// `(there & value) != 0`.
    And,
    /// `~(there | value) != 0`, for 32-bit values.
    Nor32,
    /// `~(there | value) != 0`, for 64-bit values.
    Nor64,
    /// At the next signal, whatever its value (semaphores that carry none).
    Signalled,
}

impl Condition {
    /// Whether a wait for `value` is over once `there` was written.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "32-bit values are compared"
    )]
    pub fn holds(self, there: u64, value: u64) -> bool {
        match self {
            Self::Reached32 => (there as u32).wrapping_sub(value as u32) as i32 >= 0,
            Self::Reached64 => there.wrapping_sub(value) as i64 >= 0,
            Self::Equal => there == value,
            Self::And => there & value != 0,
            Self::Nor32 => !(there as u32 | value as u32) != 0,
            Self::Nor64 => !(there | value) != 0,
            Self::Signalled => true,
        }
    }
}

/// When a copy reads its source (`cudaMemcpySrcAccessOrder`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceOrder {
    /// In stream order.
    Stream,
    /// Before the call returns.
    DuringCall,
    /// At any time until the copy is complete, not even in stream order.
    Any,
}

/// One of several copies that a call submits together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCopy {
    /// Bytes written.
    pub to: Region,
    /// Bytes read.
    pub from: Region,
    /// What the driver says of a host side that no recorded call explains.
    pub host: HostMemory,
    /// When the source is read.
    pub order: SourceOrder,
}

/// A pointer among a kernel's parameters. Its extent is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// The value. Values inside no known memory are not accesses.
    pub address: u64,
    /// What the kernel's code does with it; where that is not known, `Read` where the
    /// kernel's signature says `const T*`, `Update` where it says `volatile T*`, `Unknown`
    /// or `Doubtful` inside a by-value struct, else `Write`.
    pub mode: Mode,
    /// 0 where the kernel begins at the address itself. Else the kernel adds parameters
    /// to it, and this tells their values apart.
    pub shift: u32,
    /// Whether it is used.
    pub used: Used,
    /// What the kernel uses from there on.
    pub element: Element,
}

/// What a kernel's code is known to do with a [`Pointer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Used {
    /// Nothing is known.
    #[default]
    Perhaps,
    /// It uses what lies there.
    Surely,
    /// It may use what lies before, so that this may be the end of that.
    Before,
}

/// What a kernel uses of the memory from a pointer on: elements, one after the other.
///
/// Two bytes, as launches have many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element(u16);

impl Element {
    const MOST_BYTES: u16 = 127;
    const MOST_FIRST: u16 = 63;

    /// Elements of so many bytes, or 127; 0 if that is not known. The first begins so many
    /// bytes behind the pointer. Where that is too far to be told, nothing is.
    #[must_use]
    pub fn new(per: Per, first: usize, bytes: usize) -> Self {
        let bits = |number: usize, most: u16| u16::try_from(number).map_or(most, |n| n.min(most));
        let bytes = bits(bytes, Self::MOST_BYTES);
        let (per, first, bytes) = match u16::try_from(first) {
            Ok(first) if first <= Self::MOST_FIRST => (per, first, bytes),
            _ => (Per::Nowhere, 0, bytes),
        };
        Self(bytes | first << 7 | (per as u16) << 13)
    }

    /// The same, of [`Element::word`].
    #[must_use]
    pub fn of_word(word: u16) -> Self {
        Self(word)
    }

    /// All of it in one number.
    #[must_use]
    pub fn word(self) -> u16 {
        self.0
    }

    /// Bytes of one, by the kernel's code or its signature (`float*`: 4, `float4*`: 16); 0 if
    /// that is not known.
    #[must_use]
    pub fn bytes(self) -> u64 {
        (self.0 & Self::MOST_BYTES).into()
    }

    /// How many bytes behind the pointer the first begins.
    #[must_use]
    pub fn first(self) -> u64 {
        (self.0 >> 7 & Self::MOST_FIRST).into()
    }

    /// How many there are.
    #[must_use]
    pub fn per(self) -> Per {
        match self.0 >> 13 {
            1 => Per::Launch,
            2 => Per::Block,
            3 => Per::Lane,
            4 => Per::Thread,
            5 => Per::Nowhere,
            _ => Per::Unknown,
        }
    }
}

/// For what of a launch there is one [`Element`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// That is not known.
    #[default]
    Unknown,
    /// For the whole: all threads use the same.
    Launch,
    /// For each block.
    Block,
    /// For each thread of a block: all blocks use the same.
    Lane,
    /// For each thread.
    Thread,
    /// Where it is used is known, but too far away to be told here.
    Nowhere,
}

/// The bytes that a copy or fill touches: `rows` runs of `width` bytes, each
/// `pitch` bytes after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// First byte.
    pub address: u64,
    /// Bytes in a row.
    pub width: u64,
    /// Number of rows; 1 for a plain range.
    pub rows: u64,
    /// Bytes from one row's start to the next's; of no meaning for one row.
    pub pitch: u64,
}

impl Region {
    /// A plain range of `bytes` bytes.
    #[must_use]
    pub fn linear(address: u64, bytes: u64) -> Self {
        Self {
            address,
            width: bytes,
            rows: 1,
            pitch: bytes,
        }
    }

    /// `rows` rows of `width` bytes, folded into a plain range where they touch.
    #[must_use]
    pub fn pitched(address: u64, width: u64, rows: u64, pitch: u64) -> Self {
        if width == pitch || rows <= 1 {
            Self::linear(address, width.saturating_mul(rows))
        } else {
            Self {
                address,
                width,
                rows,
                pitch,
            }
        }
    }

    /// The address after the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        let last = self.rows.saturating_sub(1).saturating_mul(self.pitch);
        self.address
            .saturating_add(last)
            .saturating_add(if self.rows == 0 { 0 } else { self.width })
    }

    /// Bytes touched.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.rows)
    }

    /// Whether the byte at `address` is one of the region's.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        if address < self.address || address >= self.end() {
            return false;
        }
        self.rows <= 1 || (address - self.address) % self.pitch.max(1) < self.width
    }

    /// Whether the two regions share a byte. Regions of different pitches and very
    /// many rows are not compared row by row: they are taken as apart.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.bytes() == 0
            || other.bytes() == 0
            || self.address >= other.end()
            || other.address >= self.end()
        {
            return false;
        }
        if self.rows == 1 || other.rows == 1 || self.pitch == other.pitch {
            return self.meets(other);
        }
        let (few, many) = if self.rows <= other.rows {
            (self, other)
        } else {
            (other, self)
        };
        few.rows <= Self::COMPARED_ROWS
            && (0..few.rows).any(|row| {
                let start = few.address.saturating_add(row.saturating_mul(few.pitch));
                Self::linear(start, few.width).meets(many)
            })
    }

    /// Rows compared one by one, where pitches differ.
    const COMPARED_ROWS: u64 = 1 << 16;

    /// [`Region::overlaps`] for equal pitches, or where one region is a single row:
    /// row `i` of one meets row `j` of the other for some difference `i - j`.
    fn meets(&self, other: &Self) -> bool {
        let pitch = i128::from(
            if self.rows > 1 {
                self.pitch
            } else {
                other.pitch
            }
            .max(1),
        );
        let distance = i128::from(other.address) - i128::from(self.address);
        let least = (distance - i128::from(self.width)).div_euclid(pitch) + 1;
        let most = -(-(distance + i128::from(other.width))).div_euclid(pitch) - 1;
        least.max(1 - i128::from(other.rows)) <= most.min(i128::from(self.rows) - 1)
    }
}

/// What is known of host memory that no recorded call allocated or registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostMemory {
    /// The driver was not asked, or there is none: taken as pageable where the
    /// copy's direction says that it is host memory.
    #[default]
    Unasked,
    /// The driver does not know it.
    Pageable,
    /// The driver knows it as page-locked.
    Pinned,
}

/// Which way a copy goes, as the call states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Host memory to host memory.
    HostToHost,
    /// Host memory to device memory.
    HostToDevice,
    /// Device memory to host memory.
    DeviceToHost,
    /// Device memory to device memory, the same or a peer.
    DeviceToDevice,
    /// Not stated; CUDA infers it from the addresses.
    Inferred,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_regions_overlap_by_bytes() {
        let a = Region::linear(100, 10);
        assert!(a.overlaps(&Region::linear(109, 1)));
        assert!(!a.overlaps(&Region::linear(110, 5)));
        assert!(!a.overlaps(&Region::linear(90, 10)));
        assert!(!a.overlaps(&Region::linear(105, 0)));
        assert!(a.contains(100) && a.contains(109) && !a.contains(110));
    }

    #[test]
    fn columns_of_one_matrix_do_not_overlap() {
        let left = Region::pitched(0, 16, 8, 64);
        let right = Region::pitched(16, 16, 8, 64);
        let wide = Region::pitched(8, 16, 8, 64);
        assert!(!left.overlaps(&right));
        assert!(left.overlaps(&wide) && wide.overlaps(&right));
        assert!(left.overlaps(&Region::linear(64, 1)));
        assert!(!left.overlaps(&Region::linear(20, 40)));
        assert!(!left.contains(16) && left.contains(64));
        assert_eq!(left.end(), 7 * 64 + 16);
    }

    #[test]
    fn rows_meet_as_their_bytes_do() {
        // Against a comparison byte by byte, over many small shapes.
        let bytes = |r: &Region| -> Vec<u64> {
            (0..r.rows)
                .flat_map(|row| (0..r.width).map(move |x| row * r.pitch + x))
                .map(|x| r.address + x)
                .collect()
        };
        for seed in 0..20_000u64 {
            let pick = |place: u32, below: u64| {
                (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (place * 6)) % below
            };
            let a = Region {
                address: pick(0, 20),
                width: 1 + pick(1, 4),
                rows: 1 + pick(2, 4),
                pitch: 4 + pick(3, 4),
            };
            let b = Region {
                address: pick(4, 20),
                width: 1 + pick(5, 4),
                rows: 1 + pick(6, 4),
                pitch: 4 + pick(7, 4),
            };
            let shared = bytes(&a).iter().any(|byte| bytes(&b).contains(byte));
            assert_eq!(a.overlaps(&b), shared, "{a:?} {b:?}");
            assert_eq!(b.overlaps(&a), shared, "{b:?} {a:?}");
        }
    }

    #[test]
    fn absurd_regions_are_compared_in_no_time() {
        let a = Region {
            address: u64::MAX - 5,
            width: u64::MAX,
            rows: u64::MAX,
            pitch: u64::MAX,
        };
        let b = Region {
            address: 3,
            width: 1,
            rows: u64::MAX,
            pitch: 7,
        };
        assert!(!a.overlaps(&b) && a.overlaps(&a) && b.overlaps(&b));
    }

    #[test]
    fn touching_rows_are_one_range() {
        assert_eq!(Region::pitched(8, 32, 4, 32), Region::linear(8, 128));
    }
}
