//! Memory and contexts on which synchronous copies and fills really wait
//! (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, `CU_CTX_SYNC_MEMOPS`, `cudaDeviceSyncMemops`;
//! cuda.h: "ensures that synchronous memory operations … will synchronize").

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use streamcheck_model::Region;

use crate::thread::{self, Place};

/// Whether anything was ever set: if not, nothing is looked up.
static ANY: AtomicBool = AtomicBool::new(false);

struct Set {
    /// First bytes and the addresses after the last ones.
    ranges: Vec<(u64, u64)>,
    /// Contexts' numbers.
    contexts: Vec<u32>,
}

static SET: Mutex<Set> = Mutex::new(Set {
    ranges: Vec::new(),
    contexts: Vec::new(),
});

fn set() -> MutexGuard<'static, Set> {
    SET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The attribute of the memory in `start..end` was set or cleared.
pub(crate) fn memory(start: u64, end: u64, on: bool) {
    let mut set = set();
    set.ranges.retain(|range| *range != (start, end));
    if on {
        set.ranges.push((start, end));
        ANY.store(true, Relaxed);
    }
}

/// A context's flags were set.
pub(crate) fn context(place: Place, flags: u32) {
    const SYNC_MEMOPS: u32 = 0x80;
    let on = flags & SYNC_MEMOPS != 0;
    if !on && !ANY.load(Relaxed) {
        return;
    }
    let mut set = set();
    set.contexts.retain(|context| *context != place.context);
    if on {
        set.contexts.push(place.context);
        ANY.store(true, Relaxed);
    }
}

/// Memory is about to be freed: what comes to lie there has no attribute.
pub(crate) fn freed(address: u64) {
    if ANY.load(Relaxed) {
        set()
            .ranges
            .retain(|(start, end)| !(*start..*end).contains(&address));
    }
}

/// Whether a synchronous copy or fill of these bytes in the current context waits.
#[inline]
pub(crate) fn wait(regions: &[Region]) -> bool {
    ANY.load(Relaxed) && look_up(regions)
}

#[cold]
fn look_up(regions: &[Region]) -> bool {
    let set = set();
    set.contexts.contains(&thread::block().place().context)
        || regions.iter().any(|region| {
            let mut ranges = set.ranges.iter();
            ranges.any(|(start, end)| region.address < *end && *start < region.end())
        })
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&SET)]
}
