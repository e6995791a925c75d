//! Kernels whose launches can be read without a lock: where pointers stand among their
//! parameters.
//!
//! As the table of stacks (see [`crate::known_stacks`]), this one has a fixed size, is read
//! by all threads at once, and is written by whoever holds the core's lock.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use smallvec::SmallVec;
use streamcheck_model::{Element, Mode, NameId, Pointer, Used};

use crate::kernels::{Layout, MOST_PLANNED, Parameters, Planned};

const SETS: usize = 1024;
const WAYS: usize = 2;

struct Entry {
    /// 0 while it is written and where there is none, else a number of this writing.
    mark: AtomicU64,
    key: AtomicU64,
    name: AtomicU32,
    count: AtomicU32,
    slots: [AtomicU64; MOST_PLANNED],
}

static TABLE: [[Entry; WAYS]; SETS] = [const { [const { Entry::EMPTY }; WAYS] }; SETS];
static WRITINGS: AtomicU64 = AtomicU64::new(0);

const MODES: [Mode; 4] = [Mode::Read, Mode::Write, Mode::Update, Mode::Unknown];
/// Four, so that any two bits are one.
const USED: [Used; 4] = [Used::Perhaps, Used::Surely, Used::Before, Used::Perhaps];

/// A slot as a word; `None` if its mode is none of [`MODES`].
fn packed(slot: Planned) -> Option<u64> {
    let mode = MODES.iter().position(|mode| *mode == slot.mode)? as u64;
    let used = USED.iter().position(|used| *used == slot.used)? as u64;
    Some(
        u64::from(slot.parameter)
            | u64::from(slot.offset) << 16
            | mode << 32
            | used << 40
            | u64::from(slot.element.word()) << 48,
    )
}

fn unpacked(word: u64) -> Planned {
    Planned {
        parameter: word as u16,
        offset: (word >> 16) as u16,
        mode: MODES[(word >> 32) as usize & 3],
        used: USED[(word >> 40) as usize & 3],
        element: Element::of_word((word >> 48) as u16),
    }
}

fn set(key: u64) -> &'static [Entry; WAYS] {
    &TABLE[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SETS]
}

impl Entry {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "each use makes an entry of its own"
    )]
    const EMPTY: Self = Self {
        mark: AtomicU64::new(0),
        key: AtomicU64::new(0),
        name: AtomicU32::new(0),
        count: AtomicU32::new(0),
        slots: [const { AtomicU64::new(0) }; MOST_PLANNED],
    };
}

/// The name of the kernel under `key`, if it is known, and its launch's pointers, which
/// become `pointers`.
///
/// # Safety
/// `parameters` are those of a launch of that kernel.
#[inline]
pub(crate) unsafe fn launched(
    key: u64,
    parameters: Parameters,
    pointers: &mut SmallVec<[Pointer; 6]>,
) -> Option<NameId> {
    let Parameters::Array(array) = parameters else {
        return None;
    };
    let entry = set(key)
        .iter()
        .find(|entry| entry.key.load(Relaxed) == key)?;
    let mark = entry.mark.load(Acquire);
    let count = entry.count.load(Relaxed) as usize;
    if mark == 0 || count > MOST_PLANNED {
        return None;
    }
    let is_same = || {
        fence(Acquire);
        entry.mark.load(Relaxed) == mark
    };
    let name = NameId(entry.name.load(Relaxed));
    if entry.key.load(Relaxed) != key || !is_same() {
        return None;
    }
    pointers.clear();
    for slot in &entry.slots[..count] {
        let slot = unpacked(slot.load(Relaxed));
        // Nothing is read of the launch before it is sure that the slot is this kernel's.
        if !is_same() {
            return None;
        }
        // SAFETY: a slot of the kernel's plan.
        if let Some(pointer) = unsafe { slot.read(array) } {
            pointers.push(pointer);
        }
    }
    Some(name)
}

/// Keeps a kernel, if its plan is short. Called with the core's lock held.
pub(crate) fn remember(key: u64, name: NameId, layout: &Layout) {
    let Some(plan) = layout.plan() else { return };
    let packed = plan.into_iter().map(packed);
    let Some(slots) = packed.collect::<Option<SmallVec<[u64; MOST_PLANNED]>>>() else {
        return;
    };
    let writing = WRITINGS.fetch_add(1, Relaxed) + 1;
    let set = set(key);
    let entry = set
        .iter()
        .find(|entry| entry.key.load(Relaxed) == key)
        .or_else(|| set.iter().find(|entry| entry.mark.load(Relaxed) == 0))
        .unwrap_or(&set[writing as usize % WAYS]);
    entry.mark.store(0, Relaxed);
    fence(Release);
    entry.key.store(key, Relaxed);
    entry.name.store(name.0, Relaxed);
    entry.count.store(slots.len() as u32, Relaxed);
    for (place, slot) in entry.slots.iter().zip(&slots) {
        place.store(*slot, Relaxed);
    }
    entry.mark.store(writing, Release);
}

/// Forgets the kernels whose keys are `gone`. Called with the core's lock held.
pub(crate) fn forget(gone: impl Fn(u64) -> bool) {
    for entry in TABLE.iter().flatten() {
        if entry.mark.load(Relaxed) != 0 && gone(entry.key.load(Relaxed)) {
            entry.mark.store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use streamcheck_model::Per;

    use super::*;

    #[test]
    fn a_slot_is_the_same_after_it_was_kept() {
        for mode in MODES {
            for used in USED {
                let slot = Planned {
                    parameter: 4095,
                    offset: 32_760,
                    mode,
                    used,
                    element: Element::new(Per::Nowhere, 63, 127),
                };
                assert_eq!(packed(slot).map(unpacked), Some(slot));
            }
        }
    }
}
