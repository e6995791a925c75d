//! Addresses: a reserved range of our own address space from which allocations are carved.
//!
//! The last freed range of a size is the first given out for that size again, as on a real GPU; apart from that,
//! free neighbours merge and the first fit wins.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Pages become usable in steps of this size: the granularity of a GPU's large pages.
const STEP: u64 = 2 << 20;

/// One reserved range.
pub(crate) struct Arena {
    range: Range<u64>,
    /// Up to here the pages are usable.
    usable: u64,
    free: BTreeMap<u64, u64>,
    recent: HashMap<u64, Vec<u64>>,
    align: u64,
}

impl Arena {
    /// Reserves `length` bytes; allocations are multiples of `align`. `usable` says whether pages are to be usable
    /// when they are given out: not so where the caller maps memory there.
    pub(crate) fn reserve(length: u64, align: u64, usable: bool) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping; it touches no memory that exists.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length as usize,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        (at != libc::MAP_FAILED).then(|| {
            let mut arena = Self::over(at as u64..at as u64 + length, align);
            if !usable {
                arena.usable = arena.range.end;
            }
            arena
        })
    }

    fn over(range: Range<u64>, align: u64) -> Self {
        let start = range.start.next_multiple_of(align.max(STEP));
        Self {
            usable: range.start,
            free: BTreeMap::from([(start, range.end - start)]),
            range,
            recent: HashMap::new(),
            align,
        }
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// What an allocation of `size` bytes takes.
    pub(crate) fn rounded(&self, size: u64) -> Option<u64> {
        size.max(1).checked_next_multiple_of(self.align)
    }

    /// Carves `size` bytes, or `None` when there is no room left.
    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let size = self.rounded(size)?;
        let address = self.recent_fit(size).or_else(|| {
            self.free
                .iter()
                .find(|&(_, &length)| length >= size)
                .map(|(&address, _)| address)
        })?;
        let (&start, &length) = self.free.range(..=address).next_back()?;
        self.free.remove(&start);
        if start < address {
            self.free.insert(start, address - start);
        }
        if address + size < start + length {
            self.free
                .insert(address + size, start + length - address - size);
        }
        self.make_usable(address + size)?;
        Some(address)
    }

    fn recent_fit(&mut self, size: u64) -> Option<u64> {
        let stack = self.recent.get_mut(&size)?;
        while let Some(address) = stack.pop() {
            let hole = self.free.range(..=address).next_back();
            if hole.is_some_and(|(&start, &length)| address + size <= start + length) {
                return Some(address);
            }
        }
        None
    }

    /// Gives back what [`Arena::take`] gave out for `size`.
    pub(crate) fn give(&mut self, address: u64, size: u64) {
        let Some(size) = self.rounded(size) else {
            return;
        };
        let (mut start, mut length) = (address, size);
        if let Some((&before, &len)) = self.free.range(..address).next_back()
            && before + len == address
        {
            self.free.remove(&before);
            (start, length) = (before, length + len);
        }
        if let Some(len) = self.free.remove(&(address + size)) {
            length += len;
        }
        self.free.insert(start, length);
        self.recent.entry(size).or_default().push(address);
    }

    fn make_usable(&mut self, end: u64) -> Option<()> {
        if end <= self.usable {
            return Some(());
        }
        let end = end.next_multiple_of(STEP).min(self.range.end);
        let length = (end - self.usable) as usize;
        // SAFETY: the pages lie in the range that this arena reserved, and nobody has them yet.
        let failed = unsafe {
            libc::mprotect(
                self.usable as *mut _,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if failed != 0 {
            return None;
        }
        self.usable = end;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_size_gets_the_last_freed_address_back() {
        let mut arena = Arena::reserve(64 << 20, 512, true).unwrap();
        let (a, b, c) = (
            arena.take(1000).unwrap(),
            arena.take(1000).unwrap(),
            arena.take(4096).unwrap(),
        );
        arena.give(a, 1000);
        arena.give(b, 1000);
        assert_eq!(arena.take(900), Some(b), "the same size once rounded");
        assert_eq!(arena.take(1000), Some(a));
        arena.give(c, 4096);
        assert_eq!(arena.take(4096), Some(c));
    }

    #[test]
    fn allocations_are_aligned_writable_and_apart() {
        let mut arena = Arena::reserve(64 << 20, 512, true).unwrap();
        let mut taken: Vec<Range<u64>> = Vec::new();
        for size in [1u64, 511, 512, 513, 3 << 20] {
            let at = arena.take(size).unwrap();
            assert_eq!(at % 512, 0);
            // SAFETY: the arena has just given out these bytes.
            unsafe { ((at + size - 1) as *mut u8).write(1) };
            assert!(
                taken
                    .iter()
                    .all(|other| at >= other.end || at + size <= other.start)
            );
            taken.push(at..at + size);
        }
    }

    #[test]
    fn free_neighbours_merge_and_exhaustion_is_no_address() {
        let mut arena = Arena::reserve(8 << 20, 512, true).unwrap();
        let mut held = Vec::new();
        while let Some(at) = arena.take(1 << 20) {
            held.push(at);
        }
        assert!(held.len() >= 6);
        for &at in &held {
            arena.give(at, 1 << 20);
        }
        assert!(arena.take((held.len() as u64) << 20).is_some());
        assert_eq!(arena.take(u64::MAX), None);
    }
}
