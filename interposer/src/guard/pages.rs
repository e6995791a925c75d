//! The pages that are closed to the CPU, and how far.
//!
//! What is closed is changed by whoever holds the core's lock. A signal's handler asks
//! without a lock whether an address is among them: each range stands in a slot of a fixed
//! table, from before its pages are closed until after they are open.

use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::collections::BTreeMap;

/// What the CPU may do with a page, the least last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protection {
    Open,
    /// It may read: the device reads, too.
    ReadOnly,
    /// It may do nothing: the device writes.
    Closed,
}

impl Protection {
    fn bits(self) -> i32 {
        match self {
            Self::Open => libc::PROT_READ | libc::PROT_WRITE,
            Self::ReadOnly => libc::PROT_READ,
            Self::Closed => libc::PROT_NONE,
        }
    }
}

/// Why the pages could not be changed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The table is full.
    Full,
    /// The kernel's answer.
    Kernel(std::io::Error),
}

/// Ranges that can be closed at a time.
const SLOTS: usize = 1 << 14;

/// A range in which pages are closed; none while `end` is 0.
struct Slot {
    start: AtomicU64,
    end: AtomicU64,
}

impl Slot {
    /// Both of one time.
    fn range(&self) -> (u64, u64) {
        loop {
            let first = self.start.load(Acquire);
            let last = self.end.load(Acquire);
            if self.start.load(Acquire) == first {
                return (first, last);
            }
        }
    }
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
    }
}; SLOTS];
/// Slots from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// How many ranges are closed.
static CLOSED: AtomicUsize = AtomicUsize::new(0);
/// How often pages were opened. A fault on one that is open by now finds that this has risen.
static OPENINGS: AtomicU64 = AtomicU64::new(1);
/// Whether a page was opened behind the table's back (see [`pierce`]).
static PIERCED: AtomicBool = AtomicBool::new(false);
/// Bytes of a page.
static PAGE: AtomicU64 = AtomicU64::new(4096);

/// Learns how large a page is.
pub(super) fn prepare() {
    // SAFETY: a question without conditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if let Ok(size @ 1..) = u64::try_from(size) {
        PAGE.store(size, Relaxed);
    }
}

/// Bytes of a page.
pub(crate) fn page() -> u64 {
    PAGE.load(Relaxed)
}

pub(super) fn floor(address: u64) -> u64 {
    address & !(page() - 1)
}

pub(super) fn ceil(address: u64) -> u64 {
    floor(address.saturating_add(page() - 1))
}

/// Whether any page is closed.
#[inline]
pub(super) fn any() -> bool {
    CLOSED.load(Relaxed) != 0
}

/// Whether a page of `start..end` may be closed.
pub(super) fn closed(start: u64, end: u64) -> bool {
    let used = USED.load(Acquire).min(SLOTS);
    TABLE[..used].iter().any(|slot| {
        let (first, last) = slot.range();
        first < end && start < last
    })
}

/// How often pages were opened so far.
pub(super) fn openings() -> u64 {
    OPENINGS.load(Acquire)
}

/// Opens what is closed of these bytes' pages, from code that must not take a lock. False if
/// the kernel does not.
pub(super) fn pierce(start: u64, end: u64) -> bool {
    PIERCED.store(true, Release);
    let (start, end) = (floor(start), ceil(end));
    let mut opened = true;
    for slot in &TABLE[..USED.load(Acquire).min(SLOTS)] {
        let (first, last) = slot.range();
        let (first, last) = (first.max(start), last.min(end));
        if first < last {
            opened &= protect(first, last, Protection::Open).is_ok();
        }
    }
    opened
}

/// Opens all that is closed, from code that must not take a lock. The table keeps it: what
/// another thread is just closing must still be known for ours.
pub(super) fn pierce_all() {
    pierce(0, u64::MAX);
    OPENINGS.fetch_add(1, AcqRel);
}

/// Pages that were open for an instruction stay so, until the next change.
pub(super) fn leave_pierced() {
    PIERCED.store(true, Release);
}

/// Opens all that is closed, in a forked child, which has one thread.
pub(super) fn open_in_child() {
    for slot in &TABLE[..USED.load(Acquire).min(SLOTS)] {
        let end = slot.end.swap(0, Relaxed);
        if end != 0 {
            // A child has no pages of some kinds of memory.
            let _ = protect(slot.start.load(Relaxed), end, Protection::Open);
        }
    }
    USED.store(0, Relaxed);
    CLOSED.store(0, Relaxed);
}

fn protect(start: u64, end: u64, protection: Protection) -> std::io::Result<()> {
    // SAFETY: whole pages of host memory that was found to be readable and writable; what
    // an access to it does meanwhile is the handler's concern.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_mprotect,
            start,
            end.saturating_sub(start),
            protection.bits(),
        )
    };
    if failed == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// A range of pages that are closed alike.
#[derive(Clone, Copy, Debug)]
struct Range {
    end: u64,
    protection: Protection,
    slot: usize,
}

/// A stretch of pages that are to be alike.
pub(super) type Piece = (u64, u64, Protection);

/// All that is closed.
pub(super) struct Pages {
    ranges: BTreeMap<u64, Range>,
    free: Vec<usize>,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
            free: Vec::new(),
        }
    }

    /// How the page at `address` is closed.
    pub(super) fn at(&self, address: u64) -> Protection {
        self.overlapping(address, address + 1)
            .next()
            .map_or(Protection::Open, |(_, range)| range.protection)
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Range)> {
        let first = self
            .ranges
            .range(..=start)
            .next_back()
            .map_or(start, |(&first, _)| first);
        self.ranges
            .range(first..end.max(first))
            .map(|(&first, &range)| (first, range))
            .filter(move |(first, range)| *first < end && start < range.end)
    }

    fn add(&mut self, (start, end, protection): Piece) -> Result<(), Trouble> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = USED.load(Relaxed);
                if slot >= SLOTS {
                    return Err(Trouble::Full);
                }
                USED.store(slot + 1, Release);
                slot
            }
        };
        TABLE[slot].start.store(start, Release);
        TABLE[slot].end.store(end, Release);
        let range = Range {
            end,
            protection,
            slot,
        };
        self.ranges.insert(start, range);
        CLOSED.store(self.ranges.len(), Relaxed);
        Ok(())
    }

    /// Makes the pages of `start..end` what `pieces` say, which lie side by side and fill it.
    pub(super) fn set(&mut self, start: u64, end: u64, pieces: &[Piece]) -> Result<(), Trouble> {
        let all_again = PIERCED.swap(false, AcqRel);
        if all_again {
            self.close_again(0, u64::MAX).map_err(Trouble::Kernel)?;
        }
        let old: Vec<(u64, Range)> = self.overlapping(start, end).collect();
        let closed = pieces
            .iter()
            .filter(|(_, _, protection)| *protection != Protection::Open);
        let before = old
            .iter()
            .map(|&(first, range)| (first, range.end, range.protection));
        if before.eq(closed.copied()) {
            return Ok(());
        }
        for (first, _) in &old {
            self.ranges.remove(first);
        }
        // What was closed stays in the table until it is open, and what will be is in it
        // before it is.
        let mut result = Ok(());
        for &(first, range) in &old {
            for (first, last) in [(first, range.end.min(start)), (first.max(end), range.end)] {
                if first < last && result.is_ok() {
                    result = self.add((first, last, range.protection));
                }
            }
        }
        for &piece in pieces {
            if piece.2 != Protection::Open && result.is_ok() {
                result = self.add(piece);
            }
        }
        for &(first, last, protection) in pieces {
            if result.is_err() {
                break;
            }
            let mut from = first;
            for &(old_first, range) in &old {
                let (low, high) = (old_first.max(from), range.end.min(last));
                if low >= high {
                    continue;
                }
                if from < low {
                    result = result.and(change(from, low, protection, Protection::Open));
                }
                result = result.and(change(low, high, protection, range.protection));
                from = high;
            }
            if from < last {
                result = result.and(change(from, last, protection, Protection::Open));
            }
        }
        if result.is_err() {
            // Whoever is told opens all; what the table no longer holds is opened here.
            for &(first, range) in &old {
                let _ = protect(first, range.end, Protection::Open);
            }
        }
        OPENINGS.fetch_add(1, AcqRel);
        for (_, range) in old {
            TABLE[range.slot].end.store(0, Release);
            self.free.push(range.slot);
        }
        CLOSED.store(self.ranges.len(), Relaxed);
        result
    }

    /// Opens all of them.
    pub(super) fn open_all(&mut self) {
        for (start, range) in core::mem::take(&mut self.ranges) {
            let _ = protect(start, range.end, Protection::Open);
            OPENINGS.fetch_add(1, AcqRel);
            TABLE[range.slot].end.store(0, Release);
            self.free.push(range.slot);
        }
        CLOSED.store(0, Relaxed);
    }

    /// Opens `start..end` for a moment. The table keeps it.
    pub(super) fn open_for_now(&self, start: u64, end: u64) -> std::io::Result<()> {
        protect(start, end, Protection::Open)
    }

    /// Closes again what of `start..end` is in the table.
    pub(super) fn close_again(&self, start: u64, end: u64) -> std::io::Result<()> {
        for (first, range) in self.overlapping(start, end) {
            protect(first.max(start), range.end.min(end), range.protection)?;
        }
        Ok(())
    }
}

fn change(start: u64, end: u64, to: Protection, from: Protection) -> Result<(), Trouble> {
    if to == from {
        return Ok(());
    }
    protect(start, end, to).map_err(Trouble::Kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(pages: u64) -> u64 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let size = (pages * page()) as usize;
        // SAFETY: fresh memory.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), size, access, kind, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    }

    /// Each page's protection as the kernel has it.
    fn seen(start: u64, pages: u64) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel lists them");
        let of = |address: u64| {
            let holds = |line: &&str| {
                let (first, rest) = line.split_once('-').expect("a range");
                let (last, _) = rest.split_once(' ').expect("a range");
                let number = |text| u64::from_str_radix(text, 16).expect("a number");
                (number(first)..number(last)).contains(&address)
            };
            let line = maps.lines().find(holds).expect("it is mapped");
            let (_, rest) = line.split_once(' ').expect("its protection");
            match &rest[..2] {
                "rw" => 'w',
                "r-" => 'r',
                "--" => '-',
                other => panic!("{other}"),
            }
        };
        (0..pages).map(|nth| of(start + nth * page())).collect()
    }

    #[test]
    fn pages_are_closed_and_opened_piece_by_piece() {
        prepare();
        let start = mapping(6);
        let at = |nth: u64| start + nth * page();
        let mut pages = Pages::new();
        let before = openings();
        let pieces = [
            (at(0), at(2), Protection::Closed),
            (at(2), at(4), Protection::ReadOnly),
        ];
        pages.set(at(0), at(4), &pieces).expect("they are closed");
        assert_eq!(seen(start, 6), "--rrww");
        assert!(any() && closed(at(3), at(3) + 1) && !closed(at(4), at(6)));
        assert_eq!(pages.at(at(1) + 5), Protection::Closed);
        let pieces = [
            (at(1), at(3), Protection::Open),
            (at(3), at(5), Protection::Closed),
        ];
        pages.set(at(1), at(5), &pieces).expect("and changed");
        assert_eq!(seen(start, 6), "-ww--w");
        assert!(!closed(at(1), at(3)) && closed(at(0), at(1)));
        assert!(openings() > before);
        pages.open_for_now(at(3), at(4)).expect("it is opened");
        assert_eq!(seen(start, 6), "-www-w");
        assert!(closed(at(3), at(4)));
        pages.close_again(at(3), at(4)).expect("it is closed");
        // Opened without a lock, a page is closed again with the next change.
        assert!(pierce(at(0) + 9, at(0) + 10));
        assert_eq!(seen(start, 6), "www--w");
        let pieces = [(at(5), at(6), Protection::ReadOnly)];
        pages.set(at(5), at(6), &pieces).expect("closed");
        assert_eq!(seen(start, 6), "-ww--r");
        // All at once, where nobody may take the lock: a fault is still known for ours.
        let before = openings();
        pierce_all();
        assert_eq!(seen(start, 6), "wwwwww");
        assert!(closed(at(0), at(1)) && openings() > before);
        pages.close_again(at(0), at(6)).expect("they are closed");
        pages.open_all();
        assert_eq!(seen(start, 6), "wwwwww");
        assert!(!closed(start, at(6)));
    }
}
