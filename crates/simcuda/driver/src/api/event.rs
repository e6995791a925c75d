//! Events.

use crate::abi::{Out, Status};
use crate::error::{CAPTURED_EVENT, INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use crate::sim::graph::Action;
use crate::sim::sched::Work;
use crate::sim::session::{Session, session};
use crate::sim::state::{Event, Lane, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `CU_EVENT_DISABLE_TIMING`, and the flags that exist: blocking synchronization, no timing, interprocess.
const DISABLE_TIMING: u32 = 2;
const FLAGS: u32 = 7;
const INTERPROCESS: u32 = 4;

/// An event belongs to its context, of which green ones are parts: another device's refuses it.
pub(super) fn check_context(s: &State, event: u64, context: u64) -> Status {
    let event = s.events.get(event).ok_or(INVALID_HANDLE)?;
    if s.whole(event.context) == s.whole(context) {
        Ok(())
    } else {
        Err(INVALID_HANDLE)
    }
}

/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`: a node of the graph that is captured, and nothing to a
/// stream that is not.
const EXTERNAL: u32 = 1;

/// Whether a record or a wait is to be a node of its own.
pub(super) fn external(s: &mut State, lane: Lane, flags: u32) -> Status<bool> {
    match flags {
        0 => Ok(false),
        EXTERNAL => match s.capturing(lane)? {
            Some(_) => Ok(true),
            None => Err(INVALID_VALUE),
        },
        _ => Err(INVALID_VALUE),
    }
}

fn record(event: u64, stream: u64, per_thread: bool, flags: u32) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        check_context(s, event, lane.context)?;
        if external(s, lane, flags)? {
            return s.capture_external(lane, Action::RecordEvent(event));
        }
        if let Some(capture) = s.capturing(lane)? {
            s.capture_record(capture, lane, event);
            return Ok(());
        }
        let time = Arc::new(AtomicU64::new(0));
        s.submit(lane, Vec::new(), Work::Stamp(time.clone()));
        let past = s.sched.past(lane.id);
        if let Some(event) = s.events.get_mut(event) {
            event.record = Some((past, time));
            event.captured = None;
        }
        s.submitted();
        Ok(())
    })
}

/// When the newest record completed, in simulated nanoseconds.
fn time(s: &Session, event: u64) -> Status<u64> {
    let event = s.events.get(event).ok_or(INVALID_HANDLE)?;
    let (_, time) = event
        .record
        .as_ref()
        .filter(|_| event.timed)
        .ok_or(INVALID_HANDLE)?;
    match time.load(Ordering::Acquire) {
        0 => Err(NOT_READY),
        time => Ok(time),
    }
}

fn elapsed(milliseconds: Out<f32>, start: u64, end: u64) -> Status {
    session(|s| {
        for event in [start, end] {
            if s.events
                .get(event)
                .is_some_and(|event| event.captured.is_some())
            {
                return Err(CAPTURED_EVENT);
            }
        }
        // A wrong handle is told before "not ready".
        let (start, end) = match (time(s, start), time(s, end)) {
            (Err(INVALID_HANDLE), _) | (_, Err(INVALID_HANDLE)) => return Err(INVALID_HANDLE),
            (start, end) => (start?, end?),
        };
        milliseconds.put((end as f64 - start as f64) as f32 / 1e6)
    })
}

/// What waited for the event before goes on waiting.
fn destroy(event: u64) -> Status {
    session(|s| s.events.remove(event).map(|_| ()).ok_or(INVALID_HANDLE))
}

api! {
    "cuEventCreate" 2000 => cuEventCreate(event: Out<u64>, flags: u32) {
        session(|s| {
            event.wanted()?;
            let interprocess = flags & INTERPROCESS != 0;
            if flags & !FLAGS != 0 || interprocess && flags & DISABLE_TIMING == 0 {
                return Err(INVALID_VALUE);
            }
            let (context, _) = s.context(0)?;
            let timed = flags & DISABLE_TIMING == 0;
            let handle = s.events.insert(Event { context, timed, interprocess, record: None, captured: None });
            event.put(handle)
        })
    }
    "cuEventDestroy" 2000 => cuEventDestroy(event: u64) { destroy(event) }
    "cuEventDestroy" 4000 => cuEventDestroy_v2(event: u64) { destroy(event) }
    "cuEventRecord" 2000 => cuEventRecord / cuEventRecord_ptsz |per_thread| (event: u64, stream: u64) {
        record(event, stream, per_thread, 0)
    }
    "cuEventRecordWithFlags" 11010 => cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz |per_thread|
                                      (event: u64, stream: u64, flags: u32) {
        record(event, stream, per_thread, flags)
    }
    "cuEventQuery" 2000 => cuEventQuery(event: u64) {
        session(|s| {
            s.event_not_captured(event)?;
            let Some((past, _)) = s.events.get(event).ok_or(INVALID_HANDLE)?.record.clone() else { return Ok(()) };
            let done = |s: &Session| s.sched.is_done(past.point);
            if done(s) || s.step() && done(s) { Ok(()) } else { Err(NOT_READY) }
        })
    }
    "cuEventSynchronize" 2000 => cuEventSynchronize(event: u64) {
        session(|s| {
            s.event_not_captured(event)?;
            if let Some((past, _)) = s.events.get(event).ok_or(INVALID_HANDLE)?.record.clone() {
                s.run_to(past.point);
                s.trim_pools();
            }
            Ok(())
        })
    }
    "cuEventElapsedTime" 2000 => cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }
    "cuEventElapsedTime" 12080 => cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }
}
