//! Host functions in streams. The application's function is called through one of
//! ours, so that what it knows when it runs is recorded before it runs.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use streamcheck_model::{Action, NodeWork, StreamRef};

use crate::call::Call;
use crate::hook::{Hook, hooks};
use crate::thread::{self, Origin, Place};
use crate::{capture, place};

type HostFunction = unsafe extern "C-unwind" fn(*mut c_void);
type Callback = unsafe extern "C-unwind" fn(usize, u32, *mut c_void);

/// One submission. Made when the call is made, freed when the function has run or
/// the call has failed.
struct Submission {
    function: usize,
    data: *mut c_void,
    hook: &'static Hook,
    origin: Origin,
    entry: Arc<Entry>,
}

/// What is recorded once for a submission: by the function if it runs before the call
/// returns, else once the call has succeeded. A call that fails records nothing.
struct Entry {
    stream: StreamRef,
    token: u64,
    place: Place,
    recorded: Mutex<bool>,
}

impl Entry {
    fn record(&self, call: &Call) {
        // Held while it records, so that the start cannot come before.
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if !core::mem::replace(&mut *recorded, true) {
            place::at(self.place, || {
                call.record(Action::HostFunctionEnqueued {
                    stream: self.stream,
                    token: self.token,
                });
            });
        }
    }
}

static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

impl Submission {
    fn started(&self) {
        if let Some(call) = Call::enter(self.hook, self.origin) {
            call.finish(|call| {
                self.entry.record(call);
                let token = self.entry.token;
                // CUDA is asked nothing inside a host function, which may not call it.
                place::at(self.entry.place, || {
                    call.record(Action::HostFunctionStarted { token });
                });
            });
        }
    }
}

unsafe extern "C-unwind" fn run_function(data: *mut c_void) {
    // A cudart may run it before the call that submits it, or waits for it, returns.
    let _outside = thread::Outside::leave();
    // SAFETY: `submit` made the box for this one run.
    let submission = unsafe { take(data) };
    submission.started();
    // SAFETY: the application's own function with its own data.
    unsafe { core::mem::transmute::<usize, HostFunction>(submission.function)(submission.data) }
}

unsafe extern "C-unwind" fn run_callback(stream: usize, status: u32, data: *mut c_void) {
    let _outside = thread::Outside::leave();
    // SAFETY: `submit` made the box for this one run.
    let submission = unsafe { take(data) };
    submission.started();
    // SAFETY: the application's own function with its own data.
    unsafe {
        core::mem::transmute::<usize, Callback>(submission.function)(
            stream,
            status,
            submission.data,
        )
    }
}

/// # Safety
/// `data` came from `submit` and is taken once.
unsafe fn take(data: *mut c_void) -> Submission {
    let _inside = thread::Inside::nest();
    // SAFETY: the caller's promise.
    *unsafe { Box::from_raw(data.cast::<Submission>()) }
}

/// How the application's function is called.
#[derive(Clone, Copy)]
enum Kind {
    /// With its data.
    Function,
    /// With the stream and its status as well.
    Callback,
}

/// Submits `function` through `real`, which gets the function and data to pass on.
fn submit(
    kind: Kind,
    hook: &'static Hook,
    origin: Origin,
    stream: usize,
    function: usize,
    data: *mut c_void,
    real: impl Fn(usize, *mut c_void) -> u32,
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        return real(function, data);
    };
    if function == 0 {
        return real(function, data);
    }
    // A captured function runs once for each launch of the graph, not once: when it does, is
    // not seen.
    if capture::holds(&call, stream) {
        let status = real(function, data);
        if status == 0 {
            call.finish(|call| call.captured(stream, NodeWork::Host));
        }
        return status;
    }
    call.finish(|_| place::learn());
    let entry = Arc::new(Entry {
        stream: call.stream(stream),
        token: NEXT_TOKEN.fetch_add(1, Relaxed),
        place: thread::block().place(),
        recorded: Mutex::new(false),
    });
    if entry.stream == StreamRef::PerThread {
        // Only this thread can say which stream that is.
        call.finish(|call| entry.record(call));
    }
    let submission = Box::into_raw(Box::new(Submission {
        function,
        data,
        hook,
        origin,
        entry: entry.clone(),
    }));
    let wrapper = match kind {
        Kind::Function => run_function as *const () as usize,
        Kind::Callback => run_callback as *const () as usize,
    };
    let status = real(wrapper, submission.cast());
    if status == 0 {
        call.finish(|call| entry.record(call));
    } else {
        // SAFETY: the call failed, so the function never runs.
        let _ = unsafe { take(submission.cast()) };
    }
    status
}

hooks! { Runtime:
    /// In stream order; when it runs the host knows what came before it in the stream
    fn cudaLaunchHostFunc | cudaLaunchHostFunc_ptsz: (stream: usize, user: usize, data: *mut c_void) whole(hook, real, origin) {
        submit(Kind::Function, hook, origin, stream, user, data, |user, data| real(stream, user, data))
    }
    /// In stream order; when it runs the host knows what came before it in the stream
    fn cudaLaunchHostFunc_v2 | cudaLaunchHostFunc_v2_ptsz: (
        stream: usize, user: usize, data: *mut c_void, mode: u32,
    ) whole(hook, real, origin) {
        submit(Kind::Function, hook, origin, stream, user, data, |user, data| real(stream, user, data, mode))
    }
    /// In stream order; when it runs the host knows what came before it in the stream
    fn cudaStreamAddCallback | cudaStreamAddCallback_ptsz: (
        stream: usize, user: usize, data: *mut c_void, flags: u32,
    ) whole(hook, real, origin) {
        submit(Kind::Callback, hook, origin, stream, user, data, |user, data| real(stream, user, data, flags))
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// In stream order; when it runs the host knows what came before it in the stream
        fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz: (stream: usize, user: usize, data: *mut c_void) whole(hook, real, origin) {
            submit(Kind::Function, hook, origin, stream, user, data, |user, data| real(stream, user, data))
        }
        /// In stream order; when it runs the host knows what came before it in the stream
        fn cuLaunchHostFunc_v2 | cuLaunchHostFunc_v2_ptsz: (
            stream: usize, user: usize, data: *mut c_void, mode: u32,
        ) whole(hook, real, origin) {
            submit(Kind::Function, hook, origin, stream, user, data, |user, data| real(stream, user, data, mode))
        }
        /// In stream order; when it runs the host knows what came before it in the stream
        fn cuStreamAddCallback | cuStreamAddCallback_ptsz: (
            stream: usize, user: usize, data: *mut c_void, flags: u32,
        ) whole(hook, real, origin) {
            submit(Kind::Callback, hook, origin, stream, user, data, |user, data| real(stream, user, data, flags))
        }
    }
}
