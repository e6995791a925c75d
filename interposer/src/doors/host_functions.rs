//! Host functions in streams. The application's function is called through one of
//! ours, so that what it knows when it runs is recorded before it runs.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
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

/// A function that a capture took: it runs at every launch of the graph, so nobody knows when
/// it has run for the last time, and this is never freed.
struct Captured {
    function: usize,
    data: *mut c_void,
    hook: &'static Hook,
    origin: Origin,
    token: u64,
    place: Place,
}

/// How many there are.
static CAPTURED: AtomicUsize = AtomicUsize::new(0);
/// So many there may be.
const MOST_CAPTURED: usize = 1 << 16;

unsafe extern "C-unwind" fn run_captured(data: *mut c_void) {
    let _outside = thread::Outside::leave();
    // SAFETY: `submit_captured` made it, and it is never freed.
    let captured = unsafe { &*data.cast::<Captured>() };
    if let Some(call) = Call::enter(captured.hook, captured.origin) {
        call.finish(|call| {
            let token = captured.token;
            // CUDA is asked nothing inside a host function, which may not call it.
            place::at(captured.place, || {
                call.record(Action::HostFunctionStarted { token });
            });
        });
    }
    // SAFETY: the application's own function with its own data.
    unsafe { core::mem::transmute::<usize, HostFunction>(captured.function)(captured.data) }
}

/// Submits a function to a stream that captures. When a callback runs, is not seen.
fn submit_captured(
    call: &Call,
    kind: Kind,
    stream: usize,
    (function, data): (usize, *mut c_void),
    real: impl Fn(usize, *mut c_void) -> u32,
) -> u32 {
    let room = |count: usize| (count < MOST_CAPTURED).then_some(count + 1);
    let seen =
        matches!(kind, Kind::Function) && CAPTURED.fetch_update(Relaxed, Relaxed, room).is_ok();
    if !seen {
        let status = real(function, data);
        if status == 0 {
            call.finish(|call| {
                unseen(call);
                call.captured(stream, NodeWork::Host);
            });
        }
        return status;
    }
    call.finish(|_| place::learn());
    let captured = Box::into_raw(Box::new(Captured {
        function,
        data,
        hook: call.hook,
        origin: call.origin,
        token: NEXT_TOKEN.fetch_add(1, Relaxed),
        place: thread::block().place(),
    }));
    let status = real(run_captured as *const () as usize, captured.cast());
    if status == 0 {
        // SAFETY: never freed from here on.
        let token = unsafe { (*captured).token };
        call.finish(|call| {
            call.record_on(stream, |stream| Action::HostFunctionEnqueued {
                stream,
                token,
            });
        });
    } else {
        CAPTURED.fetch_sub(1, Relaxed);
        // SAFETY: the call failed, so there is no node that has it.
        drop(unsafe { Box::from_raw(captured) });
    }
    status
}

/// Whether any function was captured that is seen to begin.
pub(super) fn any_captured() -> bool {
    CAPTURED.load(Relaxed) > 0
}

/// A host function of a graph of which it is not seen when it runs.
pub(super) fn unseen(call: &Call) {
    call.blind_spot("graph-host-function", call.hook.api());
}

/// What a host node's parameters begin with (driver_types.h; the driver's are the same).
#[repr(C)]
struct HostNode {
    function: usize,
    data: *mut c_void,
}

/// Puts the application's function where CUDA has told it of ours.
///
/// # Safety
/// A call that succeeded wrote the node's parameters.
unsafe fn tell_own(node: *mut HostNode) {
    // SAFETY: the caller's promise; with our function comes the data that was made with it.
    unsafe {
        if (*node).function == run_captured as *const () as usize {
            let captured = &*(*node).data.cast::<Captured>();
            (*node).function = captured.function;
            (*node).data = captured.data;
        }
    }
}

/// The same where a node may be of any type: behind the type there are 16 bytes.
///
/// # Safety
/// A call that succeeded wrote the node's parameters.
unsafe fn tell_own_of(node: *mut u32) {
    /// `cudaGraphNodeTypeHost` (driver_types.h; the driver's is the same).
    const HOST: u32 = 3;
    // SAFETY: the caller's promise.
    unsafe {
        if *node == HOST {
            tell_own(node.add(4).cast());
        }
    }
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
    if capture::holds(&call, stream) {
        return submit_captured(&call, kind, stream, (function, data), real);
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
    /// Nothing: it tells the application's own function
    fn cudaGraphHostNodeGetParams: (node: usize, parameters: *mut HostNode) after(call) {
        let _ = (call, node);
        // SAFETY: the call succeeded and wrote them.
        unsafe { tell_own(parameters) };
    }
    /// Nothing: of a host node, it tells the application's own function
    fn cudaGraphNodeGetParams: (node: usize, parameters: *mut u32) after(call) {
        let _ = (call, node);
        // SAFETY: the call succeeded and wrote them.
        unsafe { tell_own_of(parameters) };
    }
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
        /// Nothing: it tells the application's own function
        fn cuGraphHostNodeGetParams: (node: usize, parameters: *mut HostNode) after(call) {
            let _ = (call, node);
            // SAFETY: the call succeeded and wrote them.
            unsafe { tell_own(parameters) };
        }
        /// Nothing: of a host node, it tells the application's own function
        fn cuGraphNodeGetParams: (node: usize, parameters: *mut u32) after(call) {
            let _ = (call, node);
            // SAFETY: the call succeeded and wrote them.
            unsafe { tell_own_of(parameters) };
        }
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
