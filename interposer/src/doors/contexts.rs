//! Which device and context are current. These calls change no memory and no
//! order; they are hooked so that other calls can say where they were made.

use streamcheck_model::Action;

use crate::call::{self, Call};
use crate::hook::hooks;
use crate::{place, recorder, thread};

/// Makes a call that unloads kernels. They are forgotten before it, as another thread
/// may load a kernel under the same handle before it returns, and after it, as another
/// thread may have launched one of them until then. A stale layout would have more
/// parameters read than a launch has.
pub(super) fn forgetting_kernels(real: impl FnOnce() -> u32) -> u32 {
    let forget = || {
        // At any depth, as the runtime unloads too: the recorder's lock is never held
        // across a real call. It may be where a signal's handler ended the process.
        if thread::block().in_own_code() {
            return;
        }
        let _inside = thread::Inside::nest();
        thread::keeping_errno(|| call::guarded(recorder::forget_kernels));
    };
    forget();
    let status = real();
    forget();
    status
}

hooks! { Runtime:
    fn cudaSetDevice: (device: i32) whole(hook, real, origin) {
        let status = real(device);
        thread::block().forget_place();
        status
    }
    fn cudaInitDevice: (device: i32, device_flags: u32, flags: u32) whole(hook, real, origin) {
        let status = real(device, device_flags, flags);
        thread::block().forget_place();
        status
    }
    fn cudaDeviceReset: () whole(hook, real, origin) {
        forgetting_kernels(|| {
            let Some(call) = Call::enter(hook, origin) else {
                return real();
            };
            // Asked before the call: afterwards no context may be current.
            call.finish(|_| place::learn());
            let status = real();
            if status == 0 {
                // It waits for all work of the device; what it frees is not told one by one.
                call.finish(|call| call.record(Action::DeviceSynchronized));
            }
            thread::block().forget_place();
            status
        })
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        fn cuCtxSetCurrent: (context: usize) whole(hook, real, origin) {
            let status = real(context);
            thread::block().forget_place();
            status
        }
        fn cuCtxPushCurrent | cuCtxPushCurrent_v2: (context: usize) whole(hook, real, origin) {
            let status = real(context);
            thread::block().forget_place();
            status
        }
        fn cuCtxPopCurrent | cuCtxPopCurrent_v2: (context: *mut usize) whole(hook, real, origin) {
            let status = real(context);
            thread::block().forget_place();
            status
        }
        fn cuCtxCreate_v2: (context: *mut u64, flags: u32, device: i32) whole(hook, real, origin) {
            let status = real(context, flags, device);
            created(status, context);
            status
        }
        fn cuCtxCreate_v3: (
            context: *mut u64, affinity: usize, count: i32, flags: u32, device: i32,
        ) whole(hook, real, origin) {
            let status = real(context, affinity, count, flags, device);
            created(status, context);
            status
        }
        fn cuCtxCreate_v4: (context: *mut u64, parameters: usize, flags: u32, device: i32) whole(hook, real, origin) {
            let status = real(context, parameters, flags, device);
            created(status, context);
            status
        }
        fn cuCtxDestroy | cuCtxDestroy_v2: (context: usize) whole(hook, real, origin) {
            forgetting_kernels(|| {
                let Some(call) = Call::enter(hook, origin) else {
                    return real(context);
                };
                let place = place::of(context as u64);
                // Before the call, after which the handle may be another context's.
                call.finish(|_| place::destroyed(context as u64));
                let status = real(context);
                if let (0, Some(place)) = (status, place) {
                    call.finish(|call| synchronized(call, place));
                }
                thread::block().forget_place();
                status
            })
        }
        fn cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2: (device: i32) whole(hook, real, origin) {
            forgetting_kernels(|| {
                let Some(call) = Call::enter(hook, origin) else {
                    return real(device);
                };
                let status = real(device);
                if let (0, Some(place)) = (status, place::primary(device)) {
                    call.finish(|call| synchronized(call, place));
                }
                thread::block().forget_place();
                status
            })
        }
        // The last release ends the context and its modules.
        fn cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2: (device: i32) whole(hook, real, origin) {
            forgetting_kernels(|| real(device))
        }
        fn cuModuleUnload: (module: usize) whole(hook, real, origin) {
            forgetting_kernels(|| real(module))
        }
        fn cuLibraryUnload: (library: usize) whole(hook, real, origin) {
            forgetting_kernels(|| real(library))
        }
    }

    /// All work of `place`'s device is complete, whatever is current here.
    fn synchronized(call: &Call, place: thread::Place) {
        place::at(place, || call.record(Action::DeviceSynchronized));
    }

    fn created(status: u32, context: *const u64) {
        if status == 0 && !context.is_null() {
            // SAFETY: the call succeeded and wrote the handle.
            place::created(unsafe { *context });
        }
        thread::block().forget_place();
    }
}
