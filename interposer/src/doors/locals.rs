//! Local variables that copies use after their function has returned.
//!
//! A buffer on a thread's stack goes without a call. That it has gone shows at the thread's
//! next call into CUDA: the stack pointer lies above it, or the place where its function kept
//! its return address holds another, as the caller has called something else since.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::libc_door;
use crate::call::Call;
use crate::hook::{Door, Hook};
use crate::thread::{self, Origin};
use crate::{call, recorder};

/// How many there are. At 0 nothing is looked at.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What the end of one is recorded as.
static RETURN: Hook = Hook::new(c"return", Door::Runtime, no_entry);

unsafe extern "C" fn no_entry() {}

/// A buffer on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Local {
    thread: u32,
    start: u64,
    end: u64,
    /// Where its function's return address lies, and what that is, if that is known.
    returns: Option<(u64, u64)>,
}

impl Local {
    /// Whether its function has returned, as seen from a frame of the same stack. `read`
    /// reads a word of the stack above that frame.
    fn is_gone(&self, frame: u64, read: impl FnOnce(u64) -> u64) -> bool {
        let left = |(place, address)| place < frame || read(place) != address;
        self.start < frame || self.returns.is_some_and(left)
    }
}

/// Those of all threads, the oldest first.
pub(super) struct Locals(Vec<Local>);

impl Locals {
    /// Looked after at a time; then the oldest goes.
    const MOST: usize = 64;

    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn add(&mut self, local: Local) {
        let same = |known: &Local| (known.thread, known.start) == (local.thread, local.start);
        let end = self
            .0
            .iter()
            .find(|known| same(known))
            .map(|known| known.end);
        self.0.retain(|known| !same(known));
        if self.0.len() == Self::MOST {
            self.0.remove(0);
        }
        let end = end.map_or(local.end, |end| end.max(local.end));
        self.0.push(Local { end, ..local });
        self.publish();
    }

    /// Takes out those of a thread that are gone.
    fn take_gone(&mut self, thread: u32, gone: impl Fn(&Local) -> bool) -> Vec<Local> {
        let gone = |local: &mut Local| local.thread == thread && gone(local);
        let taken = self.0.extract_if(.., gone).collect();
        self.publish();
        taken
    }

    /// Memory that begins there is given back in order.
    pub(super) fn remove(&mut self, start: u64) {
        self.0.retain(|local| local.start != start);
        self.publish();
    }

    fn publish(&self) {
        COUNT.store(self.0.len(), Relaxed);
    }
}

/// Memory of this thread that a call gave to copies or had registered is looked after if it
/// lies on the thread's stack.
pub(super) fn watch(origin: &Origin, start: u64, end: u64) {
    let block = thread::block();
    let frame = origin.frame_address();
    // Off the thread's own stack nothing is known.
    if start < frame || block.stack_end(frame).is_none() || block.stack_end(start).is_none() {
        return;
    }
    let local = Local {
        thread: block.number().0,
        start,
        end,
        returns: recorder::returns_above(origin, start),
    };
    libc_door::change_locals(|locals| locals.add(local));
}

/// At a call's beginning: what is gone by then is recorded as released.
#[inline(always)]
pub(crate) fn look(call: &Call) {
    if COUNT.load(Relaxed) != 0 {
        look_at_all(call);
    }
}

#[cold]
fn look_at_all(call: &Call) {
    let released = thread::keeping_errno(|| call::guarded(|| take_gone(&call.origin)));
    for start in released.unwrap_or_default() {
        call.aside(&RETURN, |aside| aside.released(start, None));
    }
}

fn take_gone(origin: &Origin) -> Vec<u64> {
    let block = thread::block();
    let frame = origin.frame_address();
    if block.stack_end(frame).is_none() {
        return Vec::new();
    }
    // SAFETY: an aligned word of this thread's own stack, above the call's frame: that is
    // where it was read when the buffer came to be looked after.
    let read = |place: u64| unsafe { *(place as *const u64) };
    let gone = |local: &Local| local.is_gone(frame, read);
    let gone = libc_door::change_locals(|locals| locals.take_gone(block.number().0, gone));
    gone.into_iter()
        .flat_map(|local| libc_door::taken(local.start, (local.end - local.start) as usize))
        .map(|range| range.start)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(thread: u32, start: u64) -> Local {
        Local {
            thread,
            start,
            end: start + 64,
            returns: Some((start + 128, 0x40_1000)),
        }
    }

    #[test]
    fn a_function_has_returned_if_its_frame_is_left_or_made_anew() {
        let local = local(1, 0x7000);
        let same = |_| 0x40_1000;
        assert!(!local.is_gone(0x6f00, same));
        assert!(local.is_gone(0x7100, same));
        // The caller has called something else.
        assert!(local.is_gone(0x6f00, |_| 0x40_1010));
        let unknown = Local {
            returns: None,
            ..local
        };
        assert!(!unknown.is_gone(0x6f00, |_| unreachable!()));
        assert!(unknown.is_gone(0x7040, |_| unreachable!()));
    }

    #[test]
    fn each_is_looked_after_once_and_by_its_own_thread() {
        let mut locals = Locals::new();
        locals.add(local(1, 0x7000));
        locals.add(Local {
            end: 0x7010,
            ..local(1, 0x7000)
        });
        locals.add(local(2, 0x9000));
        assert_eq!(locals.take_gone(1, |_| true), [local(1, 0x7000)]);
        assert_eq!(locals.take_gone(2, |_| false), []);
        locals.remove(0x9000);
        assert_eq!(locals.take_gone(2, |_| true), []);
        for start in 1..=100 {
            locals.add(local(3, start * 0x1000));
        }
        assert_eq!(locals.take_gone(3, |_| true).len(), Locals::MOST);
    }
}
