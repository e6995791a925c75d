//! Events, and streams and hosts that wait for them.

use cudarc::driver::sys::CUipcEventHandle;
use cudarc::runtime::sys::cudaIpcEventHandle_t;
use streamcheck_model::{Action, Handle, NodeWork};

use super::unseen_order::{event_gone, event_recorded, event_shared, is_shared};
use crate::call::Call;
use crate::capture;
use crate::hook::{hooks, written};

fn created(call: &Call, event: *const usize) {
    // SAFETY: the call succeeded and wrote the handle.
    let handle = unsafe { written(event) };
    call.record(Action::EventCreated {
        event: Handle(handle as u64),
    });
}

/// Recorded ahead of the real call: see [`Call::ahead`].
fn destroyed(call: &Call, event: usize) {
    event_gone(event);
    capture::event_gone(event);
    call.record(Action::EventDestroyed {
        event: Handle(event as u64),
    });
}

pub(super) fn recorded(call: &Call, event: usize, stream: usize) {
    capture::recorded(call, event, stream);
    // In a capture it is recorded for the capture alone.
    if is_shared(event) && !capture::holds(call, stream) {
        event_recorded(call, event);
        return;
    }
    call.record_on(stream, |stream| Action::EventRecorded {
        event: Handle(event as u64),
        stream,
    });
}

/// `cudaEventRecordExternal`, `cudaEventWaitExternal` (driver_types.h): while the stream
/// captures, a node of the graph records the event or waits for it.
const EXTERNAL: u32 = 1;

fn recorded_with(call: &Call, event: usize, stream: usize, flags: u32) {
    if flags & EXTERNAL != 0 && capture::holds(call, stream) {
        if is_shared(event) {
            event_recorded(call, event);
        }
        let event = Handle(event as u64);
        call.captured(stream, NodeWork::EventRecord { event });
    } else {
        recorded(call, event, stream);
    }
}

fn waited_with(call: &Call, stream: usize, event: usize, flags: u32) {
    if flags & EXTERNAL != 0 && capture::holds(call, stream) {
        let event = Handle(event as u64);
        call.captured(stream, NodeWork::EventWait { event });
        return;
    }
    capture::waited(call, stream, event);
    call.record_on(stream, |stream| Action::StreamWaited {
        stream,
        event: Handle(event as u64),
    });
}

fn synchronized(call: &Call, event: usize, polled: bool) {
    call.record(Action::EventSynchronized {
        event: Handle(event as u64),
        polled,
    });
}

hooks! { Runtime:
    /// An event without a record
    fn cudaEventCreate: (event: *mut usize) after(call) {
        created(call, event);
    }
    /// An event without a record
    fn cudaEventCreateWithFlags: (event: *mut usize, flags: u32) after(call) {
        let _ = flags;
        created(call, event);
    }
    /// The handle is free; waits already made stand
    fn cudaEventDestroy: (event: usize) whole(hook, real, origin) {
        Call::ahead(hook, origin, |call| destroyed(call, event), || real(event))
    }
    /// The event's newest record is the stream's past
    fn cudaEventRecord | cudaEventRecord_ptsz: (event: usize, stream: usize) after(call) {
        recorded(call, event, stream);
    }
    /// The event's newest record is the stream's past; an external one in a capture is a node that records it at every launch
    fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz: (
        event: usize, stream: usize, flags: u32,
    ) after(call) {
        recorded_with(call, event, stream, flags);
    }
    /// The stream's later work comes after the event's newest record
    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz: (stream: usize, event: usize, flags: u32) after(call) {
        waited_with(call, stream, event, flags);
    }
    /// The host knows the event's newest record complete
    fn cudaEventSynchronize: (event: usize) after(call) {
        synchronized(call, event, false);
    }
    /// If it succeeds, the host knows the event's newest record complete
    fn cudaEventQuery: (event: usize) after(call) {
        synchronized(call, event, true);
    }
    /// If it succeeds, the host knows both events' newest records complete
    fn cudaEventElapsedTime | cudaEventElapsedTime_v2: (out: usize, start: usize, end: usize) after(call) {
        let _ = out;
        synchronized(call, start, true);
        synchronized(call, end, true);
    }
    /// Another process may record the event: from here on its record is unknown
    fn cudaIpcGetEventHandle: (handle: usize, event: usize) after(call) {
        let _ = handle;
        event_shared(call, event);
    }
    /// An event whose record is unknown
    fn cudaIpcOpenEventHandle: (event: *mut usize, handle: cudaIpcEventHandle_t) after(call) {
        let _ = handle;
        opened(call, event);
    }
}

/// An event's handle as a call that succeeded wrote it.
fn opened(call: &Call, event: *const usize) {
    // SAFETY: the call succeeded and wrote the handle.
    event_shared(call, unsafe { written(event) });
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// An event without a record
        fn cuEventCreate: (event: *mut usize, flags: u32) after(call) {
            let _ = flags;
            created(call, event);
        }
        /// The handle is free; waits already made stand
        fn cuEventDestroy | cuEventDestroy_v2: (event: usize) whole(hook, real, origin) {
            Call::ahead(hook, origin, |call| destroyed(call, event), || real(event))
        }
        /// The event's newest record is the stream's past
        fn cuEventRecord | cuEventRecord_ptsz: (event: usize, stream: usize) after(call) {
            recorded(call, event, stream);
        }
        /// The event's newest record is the stream's past; an external one in a capture is a node that records it at every launch
        fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz: (
            event: usize, stream: usize, flags: u32,
        ) after(call) {
            recorded_with(call, event, stream, flags);
        }
        /// The stream's later work comes after the event's newest record
        fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz: (stream: usize, event: usize, flags: u32) after(call) {
            waited_with(call, stream, event, flags);
        }
        /// The host knows the event's newest record complete
        fn cuEventSynchronize: (event: usize) after(call) {
            synchronized(call, event, false);
        }
        /// If it succeeds, the host knows the event's newest record complete
        fn cuEventQuery: (event: usize) after(call) {
            synchronized(call, event, true);
        }
        /// If it succeeds, the host knows both events' newest records complete
        fn cuEventElapsedTime | cuEventElapsedTime_v2: (out: usize, start: usize, end: usize) after(call) {
            let _ = out;
            synchronized(call, start, true);
            synchronized(call, end, true);
        }
        /// Another process may record the event: from here on its record is unknown
        fn cuIpcGetEventHandle: (handle: usize, event: usize) after(call) {
            let _ = handle;
            event_shared(call, event);
        }
        /// An event whose record is unknown
        fn cuIpcOpenEventHandle: (event: *mut usize, handle: CUipcEventHandle) after(call) {
            let _ = handle;
            opened(call, event);
        }
    }
}
