//! Events, and streams and hosts that wait for them.

use cudarc::driver::sys::CUipcEventHandle;
use cudarc::runtime::sys::cudaIpcEventHandle_t;
use streamcheck_model::{Action, Handle};

use super::graphs::graph_waits;
use super::memory::written;
use super::unseen_order::{event_gone, event_recorded, event_shared, is_shared};
use crate::call::Call;
use crate::capture;
use crate::hook::hooks;

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
    call.record(Action::EventDestroyed {
        event: Handle(event as u64),
    });
}

fn recorded(call: &Call, event: usize, stream: usize) {
    if is_shared(event) {
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
        event_recorded(call, event);
    } else {
        recorded(call, event, stream);
    }
}

fn waited_with(call: &Call, stream: usize, event: usize, flags: u32) {
    if flags & EXTERNAL != 0 && capture::holds(call, stream) {
        graph_waits();
        return;
    }
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
    fn cudaEventCreate: (event: *mut usize) after(call) {
        created(call, event);
    }
    fn cudaEventCreateWithFlags: (event: *mut usize, flags: u32) after(call) {
        let _ = flags;
        created(call, event);
    }
    fn cudaEventDestroy: (event: usize) whole(hook, real, origin) {
        Call::ahead(hook, origin, |call| destroyed(call, event), || real(event))
    }
    fn cudaEventRecord | cudaEventRecord_ptsz: (event: usize, stream: usize) after(call) {
        recorded(call, event, stream);
    }
    fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz: (
        event: usize, stream: usize, flags: u32,
    ) after(call) {
        recorded_with(call, event, stream, flags);
    }
    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz: (stream: usize, event: usize, flags: u32) after(call) {
        waited_with(call, stream, event, flags);
    }
    fn cudaEventSynchronize: (event: usize) after(call) {
        synchronized(call, event, false);
    }
    fn cudaEventQuery: (event: usize) after(call) {
        synchronized(call, event, true);
    }
    fn cudaIpcGetEventHandle: (handle: usize, event: usize) after(call) {
        let _ = handle;
        event_shared(call, event);
    }
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
        fn cuEventCreate: (event: *mut usize, flags: u32) after(call) {
            let _ = flags;
            created(call, event);
        }
        fn cuEventDestroy | cuEventDestroy_v2: (event: usize) whole(hook, real, origin) {
            Call::ahead(hook, origin, |call| destroyed(call, event), || real(event))
        }
        fn cuEventRecord | cuEventRecord_ptsz: (event: usize, stream: usize) after(call) {
            recorded(call, event, stream);
        }
        fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz: (
            event: usize, stream: usize, flags: u32,
        ) after(call) {
            recorded_with(call, event, stream, flags);
        }
        fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz: (stream: usize, event: usize, flags: u32) after(call) {
            waited_with(call, stream, event, flags);
        }
        fn cuEventSynchronize: (event: usize) after(call) {
            synchronized(call, event, false);
        }
        fn cuEventQuery: (event: usize) after(call) {
            synchronized(call, event, true);
        }
        fn cuIpcGetEventHandle: (handle: usize, event: usize) after(call) {
            let _ = handle;
            event_shared(call, event);
        }
        fn cuIpcOpenEventHandle: (event: *mut usize, handle: CUipcEventHandle) after(call) {
            let _ = handle;
            opened(call, event);
        }
    }
}
