//! Green contexts, which are parts of a device's primary one, and the order that
//! whole contexts have: events that stand for all of a context's streams, and streams
//! that all wait.

use streamcheck_model::{Action, Handle};

use super::streams;
use super::unseen_order::{event_recorded, host_waits};
use crate::call::Call;
use crate::hook::{hooks, written};
use crate::{place, thread};

/// What is said of a context that was not seen to be made.
const UNKNOWN: &str = "context-event";

/// Runs `known` in the context, or `unknown` where it was never met.
fn within(call: &Call, context: usize, known: impl FnOnce(), unknown: impl FnOnce()) {
    match place::of(context as u64) {
        Some(place) => place::at(place, known),
        None => {
            call.blind_spot(UNKNOWN, call.hook.api());
            unknown();
        }
    }
}

fn recorded(call: &Call, context: usize, event: usize) {
    let handle = Handle(event as u64);
    let known = || call.record(Action::ContextRecorded { event: handle });
    within(call, context, known, || event_recorded(call, event));
}

fn waited(call: &Call, context: usize, event: usize) {
    let handle = Handle(event as u64);
    let known = || call.record(Action::ContextWaited { event: handle });
    within(call, context, known, || host_waits(call));
}

fn stream_created(call: &Call, context: usize, stream: *const usize, flags: u32) {
    let created = || streams::created(call, stream, flags);
    match place::of(context as u64) {
        Some(place) => place::at(place, created),
        None => created(),
    }
}

fn green_created(out: *const u64, device: i32) {
    // SAFETY: the call succeeded and wrote the handle.
    let handle = unsafe { written(out) };
    place::created_green(handle, device);
}

hooks! { Runtime:
    /// The context's handle stands for a green context from here on
    fn cudaGreenCtxCreate: (out: *mut u64, resources: usize, device: i32, flags: u32) after(call) {
        let _ = (call, resources, flags);
        green_created(out, device);
    }
    /// The handle stands for the device's primary context
    fn cudaDeviceGetExecutionCtx: (out: *mut u64, device: i32) after(call) {
        let _ = call;
        if let Some(place) = place::primary(device) {
            // SAFETY: the call succeeded and wrote the handle.
            place::named(unsafe { written(out) }, place);
        }
    }
    /// The handle is free; the context's streams and their work go on
    fn cudaExecutionCtxDestroy: (context: usize) whole(hook, real, origin) {
        let destroyed = |_: &Call| place::destroyed(context as u64);
        let status = Call::ahead(hook, origin, destroyed, || real(context));
        thread::block().forget_place();
        status
    }
    /// A stream of that context
    fn cudaExecutionCtxStreamCreate: (stream: *mut usize, context: usize, flags: u32, priority: i32) after(call) {
        let _ = priority;
        stream_created(call, context, stream, flags);
    }
    /// The event's newest record is the past of all of the context's streams
    fn cudaExecutionCtxRecordEvent: (context: usize, event: usize) after(call) {
        recorded(call, context, event);
    }
    /// The host knows all work of the context complete
    fn cudaExecutionCtxSynchronize: (context: usize) after(call) {
        within(call, context, || call.record(Action::ContextSynchronized), || host_waits(call));
    }
    /// All later work of the context comes after the event's newest record
    fn cudaExecutionCtxWaitEvent: (context: usize, event: usize) after(call) {
        waited(call, context, event);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// The context's handle stands for a green context from here on
        fn cuGreenCtxCreate: (out: *mut u64, resources: usize, device: i32, flags: u32) after(call) {
            let _ = (call, resources, flags);
            green_created(out, device);
        }
        /// The handle is free; the context's streams and their work go on
        fn cuGreenCtxDestroy: (context: usize) whole(hook, real, origin) {
            let destroyed = |_: &Call| place::destroyed(context as u64);
            let status = Call::ahead(hook, origin, destroyed, || real(context));
            thread::block().forget_place();
            status
        }
        /// The handle stands for the same green context
        fn cuCtxFromGreenCtx: (out: *mut u64, context: usize) after(call) {
            let _ = call;
            if let Some(place) = place::of(context as u64) {
                // SAFETY: the call succeeded and wrote the handle.
                place::named(unsafe { written(out) }, place);
            }
        }
        /// A stream of that green context
        fn cuGreenCtxStreamCreate: (stream: *mut usize, context: usize, flags: u32, priority: i32) after(call) {
            let _ = priority;
            stream_created(call, context, stream, flags);
        }
        /// The event's newest record is the past of all of the context's streams
        fn cuCtxRecordEvent | cuGreenCtxRecordEvent: (context: usize, event: usize) after(call) {
            recorded(call, context, event);
        }
        /// All later work of the context comes after the event's newest record
        fn cuCtxWaitEvent | cuGreenCtxWaitEvent: (context: usize, event: usize) after(call) {
            waited(call, context, event);
        }
    }
}
