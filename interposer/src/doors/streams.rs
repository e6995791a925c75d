//! Streams: their making and end, and waiting for them.

use streamcheck_model::{Action, Handle};

use crate::call::Call;
use crate::capture;
use crate::hook::{hooks, written};

/// `cudaStreamNonBlocking`, `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

pub(super) fn created(call: &Call, stream: *const usize, flags: u32) {
    // SAFETY: the call succeeded and wrote the handle.
    let handle = unsafe { written(stream) };
    call.record(Action::StreamCreated {
        stream: Handle(handle as u64),
        blocking: flags & NON_BLOCKING == 0,
    });
}

/// Recorded ahead of the real call: see [`Call::ahead`].
fn destroyed(call: &Call, stream: usize) {
    // Only created streams can be destroyed.
    if stream > 2 {
        capture::stream_gone(stream);
        call.record(Action::StreamDestroyed {
            stream: Handle(stream as u64),
        });
    }
}

fn synchronized(call: &Call, stream: usize, polled: bool) {
    call.record_on(stream, |stream| Action::StreamSynchronized {
        stream,
        polled,
    });
}

hooks! { Runtime:
    /// A stream of the current context
    fn cudaStreamCreate: (stream: *mut usize) after(call) {
        created(call, stream, 0);
    }
    /// A stream of the current context, that takes no part in the legacy stream's order if it is non-blocking
    fn cudaStreamCreateWithFlags: (stream: *mut usize, flags: u32) after(call) {
        created(call, stream, flags);
    }
    /// A stream of the current context, that takes no part in the legacy stream's order if it is non-blocking
    fn cudaStreamCreateWithPriority: (stream: *mut usize, flags: u32, priority: i32) after(call) {
        let _ = priority;
        created(call, stream, flags);
    }
    /// The handle is free; the work goes on
    fn cudaStreamDestroy: (stream: usize) whole(hook, real, origin) {
        Call::ahead(hook, origin, |call| destroyed(call, stream), || real(stream))
    }
    /// The host knows the stream's work complete
    fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz: (stream: usize) after(call) {
        synchronized(call, stream, false);
    }
    /// If it succeeds, the host knows the stream's work complete
    fn cudaStreamQuery | cudaStreamQuery_ptsz: (stream: usize) after(call) {
        synchronized(call, stream, true);
    }
    /// The host knows the current context's work complete
    fn cudaDeviceSynchronize | cudaThreadSynchronize: () after(call) {
        call.record(Action::ContextSynchronized);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;
    use crate::place;

    hooks! { Driver:
        /// A stream of the current context, that takes no part in the legacy stream's order if it is non-blocking
        fn cuStreamCreate: (stream: *mut usize, flags: u32) after(call) {
            created(call, stream, flags);
        }
        /// A stream of the current context, that takes no part in the legacy stream's order if it is non-blocking
        fn cuStreamCreateWithPriority: (stream: *mut usize, flags: u32, priority: i32) after(call) {
            let _ = priority;
            created(call, stream, flags);
        }
        /// The handle is free; the work goes on
        fn cuStreamDestroy | cuStreamDestroy_v2: (stream: usize) whole(hook, real, origin) {
            Call::ahead(hook, origin, |call| destroyed(call, stream), || real(stream))
        }
        /// The host knows the stream's work complete
        fn cuStreamSynchronize | cuStreamSynchronize_ptsz: (stream: usize) after(call) {
            synchronized(call, stream, false);
        }
        /// If it succeeds, the host knows the stream's work complete
        fn cuStreamQuery | cuStreamQuery_ptsz: (stream: usize) after(call) {
            synchronized(call, stream, true);
        }
        /// The host knows the context's work complete
        fn cuCtxSynchronize: () after(call) {
            call.record(Action::ContextSynchronized);
        }
        /// The host knows that context's work complete
        fn cuCtxSynchronize_v2: (context: usize) after(call) {
            match place::of(context as u64) {
                Some(place) => place::at(place, || call.record(Action::ContextSynchronized)),
                None => call.record(Action::DeviceSynchronized),
            }
        }
    }
}
