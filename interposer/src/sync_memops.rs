//! Memory and contexts on which synchronous copies and fills really wait
//! (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, `CU_CTX_SYNC_MEMOPS`, `cudaDeviceSyncMemops`;
//! cuda.h: "ensures that synchronous memory operations … will synchronize").

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use streamcheck_model::Region;

use crate::place;
use crate::thread::{self, Place};

/// Whether anything was ever set: if not, nothing is looked up.
static ANY: AtomicBool = AtomicBool::new(false);

/// What the attribute is set for.
struct Waiting {
    /// Memory: first bytes and the addresses after the last ones.
    ranges: Vec<(u64, u64)>,
    /// Contexts' numbers.
    contexts: Vec<u32>,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    ranges: Vec::new(),
    contexts: Vec::new(),
});

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    /// No memory in `start..end` has the attribute.
    fn clear(&mut self, start: u64, end: u64) {
        self.ranges
            .retain(|range| range.1 <= start || end <= range.0);
    }
}

/// The attribute of the memory in `start..end` was set or cleared.
pub(crate) fn memory(start: u64, end: u64, on: bool) {
    let mut waiting = waiting();
    waiting.clear(start, end);
    if on {
        waiting.ranges.push((start, end));
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
    let mut waiting = waiting();
    waiting.contexts.retain(|context| *context != place.context);
    if on {
        waiting.contexts.push(place.context);
        ANY.store(true, Relaxed);
    }
}

/// A context that the application created ended. A primary one may come back, and what the
/// flags then are is not documented: waits of its go on being seen.
pub(crate) fn context_ended(place: Place) {
    if ANY.load(Relaxed) && place::is_created(place) {
        waiting()
            .contexts
            .retain(|context| *context != place.context);
    }
}

/// Memory was allocated, which has no attribute. What lay there before lost it with its free,
/// if that did not fail.
pub(crate) fn allocated(address: u64, size: u64) {
    if ANY.load(Relaxed) {
        waiting().clear(address, address.saturating_add(size));
    }
}

/// Whether a synchronous copy or fill of these bytes in the current context waits.
#[inline]
pub(crate) fn wait(regions: &[Region]) -> bool {
    ANY.load(Relaxed) && look_up(regions)
}

#[cold]
fn look_up(regions: &[Region]) -> bool {
    let waiting = waiting();
    waiting.contexts.contains(&thread::block().place().context)
        || regions.iter().any(|region| {
            let mut ranges = waiting.ranges.iter();
            ranges.any(|(start, end)| region.address < *end && *start < region.end())
        })
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&WAITING)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_the_attribute_until_other_memory_comes_to_lie_there() {
        let start = 0x7700_0000_0000;
        let waits = |from: u64| wait(&[Region::linear(start + from, 8)]);
        memory(start, start + 64, true);
        memory(start + 64, start + 128, true);
        assert!(waits(0) && waits(60) && waits(120) && !waits(128));
        allocated(start + 60, 4);
        assert!(!waits(0) && waits(64));
        memory(start + 64, start + 128, false);
        assert!(!waits(64));
    }

    #[test]
    fn a_context_has_the_flag_until_it_ends() {
        let here = thread::block().place();
        let mut made = place::created(0x7700_0000_0001, 3).expect("a device's number");
        thread::block().set_place(made);
        let waits = || wait(&[Region::linear(0x7700_1000_0000, 8)]);
        context(made, 0x80);
        assert!(waits());
        context_ended(made);
        assert!(!waits() && !waiting().contexts.contains(&made.context));
        // A primary context may come back with its flags.
        made = place::primary(3).expect("a device's number");
        thread::block().set_place(made);
        context(made, 0x80);
        context_ended(made);
        assert!(waits());
        context(made, 0);
        assert!(!waits());
        thread::block().set_place(here);
    }
}
