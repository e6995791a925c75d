//! Stream capture: work that a capturing stream takes is a graph's, not the
//! stream's, and does not run now.
//!
//! Which streams capture is known from the calls alone, as CUDA is asked nothing about memory,
//! kernels or streams while any does. A call that a broken capture refuses fails, and is not
//! seen; such a capture lasts until its end, as every other one.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use streamcheck_model::StreamRef;

use crate::call::Call;
use crate::thread::{self, Place};

/// A stream that may capture, as the table knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// One that the application created.
    Created(u64),
    /// A thread's own default stream in a context.
    PerThread(u32, u32),
}

/// A capture that was begun and has not ended.
struct Open {
    /// The stream on which it was begun.
    origin: Key,
    /// The context that was current then.
    context: u32,
}

/// The captures, and who is part of them.
#[derive(Default)]
struct Table {
    captures: FxHashMap<u64, Open>,
    /// Captures begun so far, for their numbers.
    begun: u64,
    /// The streams that capture, and for which capture.
    streams: FxHashMap<Key, u64>,
    /// The events whose newest record is a capture's.
    events: FxHashMap<usize, u64>,
}

/// Captures open or about to be.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn begin(&mut self, origin: Key, context: u32) {
        // What the table still has of that stream is over: CUDA begins no second capture.
        self.end(origin);
        self.begun += 1;
        let capture = self.begun;
        self.captures.insert(capture, Open { origin, context });
        self.streams.insert(origin, capture);
    }

    /// Ends the capture that this stream is part of.
    fn end(&mut self, stream: Key) {
        if let Some(&capture) = self.streams.get(&stream) {
            self.close(|number, _| number == capture);
        }
    }

    /// Ends the captures that are `over`.
    fn close(&mut self, over: impl Fn(u64, &Open) -> bool) {
        let before = self.captures.len();
        self.captures.retain(|&number, open| !over(number, open));
        let captures = &self.captures;
        self.streams
            .retain(|_, capture| captures.contains_key(capture));
        self.events
            .retain(|_, capture| captures.contains_key(capture));
        lessen(before - self.captures.len());
    }

    /// The event's newest record is this stream's.
    fn record(&mut self, event: usize, stream: Option<Key>) {
        let capture = stream.and_then(|stream| self.streams.get(&stream));
        match capture {
            Some(&capture) => self.events.insert(event, capture),
            None => self.events.remove(&event),
        };
    }

    /// A stream that waits for an event of a capture becomes part of it.
    fn wait(&mut self, stream: Key, event: usize) {
        if let Some(&capture) = self.events.get(&event) {
            self.streams.entry(stream).or_insert(capture);
        }
    }

    fn destroy(&mut self, stream: Key) {
        self.close(|_, open| open.origin == stream);
        self.streams.remove(&stream);
    }
}

fn lessen(by: usize) {
    let _ = OPEN.fetch_update(Relaxed, Relaxed, |open| Some(open.saturating_sub(by)));
}

/// The stream that this call names; `None` for the legacy one, which cannot capture.
fn key(call: &Call, raw: usize) -> Option<Key> {
    match call.stream(raw) {
        StreamRef::Legacy => None,
        StreamRef::PerThread => {
            crate::place::learn();
            let (_, context) = crate::place::current();
            Some(Key::PerThread(thread::block().number().0, context.0))
        }
        StreamRef::Created(handle) => Some(Key::Created(handle.0)),
    }
}

/// A capture is about to begin: from here on CUDA is asked nothing.
pub(crate) fn begins() {
    OPEN.fetch_add(1, Relaxed);
}

/// A capture that was about to begin did not.
pub(crate) fn did_not_begin() {
    lessen(1);
}

/// A capture that was about to begin did, on this stream.
pub(crate) fn begun(call: &Call, raw: usize) {
    match key(call, raw) {
        Some(key) => {
            let (_, context) = crate::place::current();
            table().get_or_insert_default().begin(key, context.0);
        }
        None => did_not_begin(),
    }
}

/// The capture that this stream began is over.
pub(crate) fn ended(call: &Call, raw: usize) {
    if let (Some(key), Some(table)) = (key(call, raw), table().as_mut()) {
        table.end(key);
    }
}

/// Whether `cudaStreamEndCapture` has ended a capture that returned `status`. One that
/// became invalid, was not joined, or does not fit its old graph ends with an error; on a
/// stream that did not begin one, or from the wrong thread (driver_types.h; the driver's
/// codes are the same), nothing ends.
pub(crate) fn is_over(status: u32) -> bool {
    const INVALIDATED: u32 = 901;
    const UNJOINED: u32 = 904;
    const RECAPTURE_FAILURE: u32 = 918;
    matches!(status, 0 | INVALIDATED | UNJOINED | RECAPTURE_FAILURE)
}

/// The event was recorded in this stream.
pub(crate) fn recorded(call: &Call, event: usize, raw: usize) {
    if any() {
        let key = key(call, raw);
        if let Some(table) = table().as_mut() {
            table.record(event, key);
        }
    }
}

/// This stream's later work waits for the event.
pub(crate) fn waited(call: &Call, raw: usize, event: usize) {
    if any()
        && let Some(key) = key(call, raw)
        && let Some(table) = table().as_mut()
    {
        table.wait(key, event);
    }
}

/// The event is destroyed, and its handle free.
pub(crate) fn event_gone(event: usize) {
    if any()
        && let Some(table) = table().as_mut()
    {
        table.events.remove(&event);
    }
}

/// The stream is destroyed, and with it a capture that it began.
pub(crate) fn stream_gone(stream: usize) {
    if any()
        && let Some(table) = table().as_mut()
    {
        table.destroy(Key::Created(stream as u64));
    }
}

/// The context has ended, and with it what its streams captured.
pub(crate) fn context_gone(place: Place) {
    if any()
        && let Some(table) = table().as_mut()
    {
        table.close(|_, open| open.context == place.context);
    }
}

/// In a forked child: the captures are the parent's.
pub(crate) fn fresh_after_fork() {
    OPEN.store(0, Relaxed);
    // Not dropped: another thread of the parent may have been changing the heap.
    core::mem::forget(table().take());
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&TABLE)]
}

/// Whether any stream is capturing, or about to.
#[inline]
pub(crate) fn any() -> bool {
    OPEN.load(Relaxed) != 0
}

/// Whether the stream that this call names is capturing.
#[inline]
pub(crate) fn holds(call: &Call, raw: usize) -> bool {
    any() && is_capturing(call, raw)
}

#[cold]
fn is_capturing(call: &Call, raw: usize) -> bool {
    key(call, raw).is_some_and(|key| {
        let table = table();
        table
            .as_ref()
            .is_some_and(|table| table.streams.contains_key(&key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = Key::Created(10);
    const B: Key = Key::Created(11);
    const C: Key = Key::PerThread(1, 0);

    fn capturing(table: &Table) -> Vec<bool> {
        let captures = |stream| table.streams.contains_key(&stream);
        [A, B, C].map(captures).to_vec()
    }

    #[test]
    fn streams_join_by_events_and_leave_at_the_end() {
        let mut table = Table::default();
        table.record(1, Some(A));
        table.begin(A, 0);
        table.wait(B, 1);
        assert_eq!(capturing(&table), [true, false, false], "an older record");
        table.record(1, Some(A));
        table.wait(B, 1);
        table.record(2, Some(B));
        table.wait(C, 2);
        assert_eq!(capturing(&table), [true; 3]);
        table.record(2, None);
        table.end(A);
        assert_eq!(capturing(&table), [false; 3]);
        table.wait(B, 1);
        assert_eq!(capturing(&table), [false; 3], "a record of the past");
    }

    #[test]
    fn captures_are_kept_apart() {
        let mut table = Table::default();
        table.begin(A, 0);
        table.begin(B, 1);
        table.record(1, Some(A));
        table.wait(B, 1);
        table.end(A);
        assert_eq!(capturing(&table), [false, true, false]);
        table.close(|_, open| open.context == 1);
        assert_eq!(capturing(&table), [false; 3]);
        assert!(table.captures.is_empty());
    }

    #[test]
    fn a_capture_goes_with_the_stream_that_began_it() {
        let mut table = Table::default();
        table.begin(A, 0);
        table.record(1, Some(A));
        table.wait(B, 1);
        table.destroy(B);
        assert_eq!(capturing(&table), [true, false, false]);
        table.wait(B, 1);
        table.destroy(A);
        assert_eq!(capturing(&table), [false; 3]);
        assert!(table.events.is_empty());
    }
}
