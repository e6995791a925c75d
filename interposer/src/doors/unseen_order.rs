//! Order that no call of the application's tells of. What cannot be known is taken to
//! order after everything.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use streamcheck_model::{Action, Handle};

use crate::call::Call;

/// An event that is never created, whose history is thus never known.
const UNSEEN: Handle = Handle(u64::MAX);

/// The stream's later work waits for something out of sight.
pub(super) fn stream_waits(call: &Call, stream: usize) {
    call.record_on(stream, |stream| Action::StreamWaited {
        stream,
        event: UNSEEN,
    });
}

/// The host has waited for something out of sight, or all later work of a context
/// whose streams are not known does, for which the host is taken to have waited.
pub(super) fn host_waits(call: &Call) {
    call.record(Action::EventSynchronized {
        event: UNSEEN,
        polled: false,
    });
}

/// The event was, or will be, recorded out of sight: waits for it are waits for
/// something unknown, and not waits for an event without a record.
pub(super) fn event_recorded(call: &Call, event: usize) {
    call.record(Action::EventDestroyed {
        event: Handle(event as u64),
    });
}

/// Events that another process may record as well.
static SHARED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

fn shared() -> MutexGuard<'static, Vec<usize>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The event is another process's too, whose records of it are not seen.
pub(super) fn event_shared(call: &Call, event: usize) {
    let mut shared = shared();
    if !shared.contains(&event) {
        shared.push(event);
    }
    ANY.store(true, Relaxed);
    drop(shared);
    event_recorded(call, event);
}

/// Whether another process may have recorded the event since this one did.
pub(super) fn is_shared(event: usize) -> bool {
    ANY.load(Relaxed) && shared().contains(&event)
}

/// The event is destroyed, and its handle free.
pub(super) fn event_gone(event: usize) {
    if ANY.load(Relaxed) {
        shared().retain(|other| *other != event);
    }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&SHARED)]
}
