//! Operations of threads that found the core's lock taken.
//!
//! Whoever holds that lock takes them in before it goes, so nobody waits: the others' calls
//! go on, and the engine's memory stays in one processor's cache. A thread first hands in
//! what it has, then returns to the application, so operations come in the order in which
//! calls return, as far as anybody can tell that order.

use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    compiler_fence, fence,
};
use std::sync::{Mutex, PoisonError};

use streamcheck_model::Operation;

/// Past this many a thread waits for the lock: nobody shall work for others for long.
const MOST: usize = 64;

static INBOX: Mutex<Vec<Operation>> = Mutex::new(Vec::new());
/// How many operations are in it.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are any. Exact for those that were handed in before the core's lock was
/// taken.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Relaxed) != 0
}

/// The same after the core's lock was let go: what was not seen while it was held, and was
/// handed in before another thread found it taken, is seen now.
#[inline]
pub(crate) fn any_now() -> bool {
    // Letting go of a lock is a locked instruction on x86-64, which no load overtakes.
    if cfg!(target_arch = "x86_64") {
        compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
    any()
}

/// Hands an operation in. False if there are too many.
pub(crate) fn put(operation: &Operation) -> bool {
    let operation = operation.clone();
    let mut inbox = INBOX.lock().unwrap_or_else(PoisonError::into_inner);
    if inbox.len() >= MOST {
        return false;
    }
    if inbox.capacity() == 0 {
        inbox.reserve_exact(MOST);
    }
    inbox.push(operation);
    COUNT.store(inbox.len(), Relaxed);
    drop(inbox);
    fence(SeqCst);
    true
}

/// Takes all of them, in their order. `batch` is empty.
pub(crate) fn take(batch: &mut Vec<Operation>) {
    if batch.capacity() == 0 {
        batch.reserve_exact(MOST);
    }
    let mut inbox = INBOX.lock().unwrap_or_else(PoisonError::into_inner);
    core::mem::swap(&mut *inbox, batch);
    COUNT.store(0, Relaxed);
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&INBOX)]
}

/// In a forked child, where nobody else runs: what was handed in is the parent's.
pub(crate) fn fresh_after_fork() {
    let mut inbox = INBOX.lock().unwrap_or_else(PoisonError::into_inner);
    // Not dropped: see `recorder::fresh_after_fork`.
    core::mem::forget(core::mem::take(&mut *inbox));
    COUNT.store(0, Relaxed);
}
