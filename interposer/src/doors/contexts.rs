//! Contexts: which one is current, and how they end. Which is current changes no
//! memory and no order, but other calls say with it where they were made.

use streamcheck_model::Action;

use super::modules;
use crate::call::{self, Call};
use crate::hook::{Hook, hooks};
use crate::thread::Origin;
use crate::{capture, guard, images, place, recorder, sync_memops, thread};

/// Makes a call that unloads all kernels of a context.
fn forgetting_kernels(real: impl FnOnce() -> u32) -> u32 {
    if guard::on() {
        // Its memory may go, and others be mapped there.
        call::quietly(recorder::open_host);
    }
    modules::forgetting(|_| true, real)
}

/// The context at `place` ended: its work is complete, and what it held is gone.
fn ended(call: &Call, place: thread::Place) {
    sync_memops::context_ended(place);
    capture::context_gone(place);
    place::ended();
    place::at(place, || call.record(Action::ContextDestroyed));
}

/// The flags of the current device's primary context were set.
fn flags_set(flags: u32) {
    place::learn();
    sync_memops::context(thread::block().place(), flags);
}

/// A reset of the current device through `real`.
fn reset(hook: &'static Hook, origin: Origin, real: impl FnOnce() -> u32) -> u32 {
    forgetting_kernels(|| {
        let Some(call) = Call::enter(hook, origin) else {
            return real();
        };
        let mut primary = None;
        // Asked before the call: afterwards no context may be current.
        call.finish(|_| {
            place::learn();
            primary = place::primary(thread::block().place().device.into());
        });
        let status = real();
        if let (0, Some(primary)) = (status, primary) {
            call.finish(|call| ended(call, primary));
        }
        thread::block().forget_place();
        status
    })
}

/// Runs our own code at any depth, if the tool is at work.
pub(super) fn quietly(f: impl FnOnce()) {
    if !recorder::dormant() {
        call::quietly(f);
    }
}

hooks! { Runtime:
    /// Synchronous copies and fills of the context wait, if it sets cudaDeviceSyncMemops
    fn cudaSetDeviceFlags: (flags: u32) after(call) {
        let _ = call;
        flags_set(flags);
    }
    /// Says which device and context later calls of the thread are in
    fn cudaSetDevice: (device: i32) whole(hook, real, origin) {
        let status = real(device);
        thread::block().forget_place();
        status
    }
    /// Says which device and context later calls of the thread are in; its flags may make synchronous copies wait
    fn cudaInitDevice: (device: i32, device_flags: u32, flags: u32) whole(hook, real, origin) {
        let status = real(device, device_flags, flags);
        // `cudaInitDeviceFlagsAreValid` (driver_types.h).
        if let (0, 1, Some(place)) = (status, flags & 1, place::primary(device)) {
            quietly(|| sync_memops::context(place, device_flags));
        }
        thread::block().forget_place();
        status
    }
    /// The primary context ends: its work is complete, its streams and memory are gone
    fn cudaDeviceReset | cudaThreadExit: () whole(hook, real, origin) {
        reset(hook, origin, real)
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;
    use crate::hook::written;

    hooks! { Driver:
        /// Says which device and context later calls of the thread are in
        fn cuCtxSetCurrent: (context: usize) whole(hook, real, origin) {
            let status = real(context);
            thread::block().forget_place();
            status
        }
        /// Says which device and context later calls of the thread are in
        fn cuCtxPushCurrent | cuCtxPushCurrent_v2: (context: usize) whole(hook, real, origin) {
            let status = real(context);
            thread::block().forget_place();
            status
        }
        /// Says which device and context later calls of the thread are in
        fn cuCtxPopCurrent | cuCtxPopCurrent_v2: (context: *mut usize) whole(hook, real, origin) {
            let status = real(context);
            thread::block().forget_place();
            status
        }
        /// A context of its own, and the current one
        fn cuCtxCreate_v2: (context: *mut u64, flags: u32, device: i32) whole(hook, real, origin) {
            let status = real(context, flags, device);
            created(status, context, device, flags);
            status
        }
        /// A context of its own, and the current one
        fn cuCtxCreate_v3: (
            context: *mut u64, affinity: usize, count: i32, flags: u32, device: i32,
        ) whole(hook, real, origin) {
            let status = real(context, affinity, count, flags, device);
            created(status, context, device, flags);
            status
        }
        /// A context of its own, and the current one
        fn cuCtxCreate_v4: (context: *mut u64, parameters: usize, flags: u32, device: i32) whole(hook, real, origin) {
            let status = real(context, parameters, flags, device);
            created(status, context, device, flags);
            status
        }
        /// The context ends: its work is complete, its streams and memory are gone
        fn cuCtxDestroy | cuCtxDestroy_v2: (context: usize) whole(hook, real, origin) {
            forgetting_kernels(|| {
                images::context_ending(context as u64);
                let Some(call) = Call::enter(hook, origin) else {
                    return real(context);
                };
                let place = place::of(context as u64);
                // Before the call, after which the handle may be another context's.
                call.finish(|_| place::destroyed(context as u64));
                let status = real(context);
                if let (0, Some(place)) = (status, place) {
                    call.finish(|call| ended(call, place));
                }
                thread::block().forget_place();
                status
            })
        }
        /// The primary context ends: its work is complete, its streams and memory are gone
        fn cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2: (device: i32) whole(hook, real, origin) {
            forgetting_kernels(|| {
                images::device_resetting(device);
                let Some(call) = Call::enter(hook, origin) else {
                    return real(device);
                };
                let status = real(device);
                if let (0, Some(place)) = (status, place::primary(device)) {
                    call.finish(|call| ended(call, place));
                }
                thread::block().forget_place();
                status
            })
        }
        /// The handle stands for the device's primary context
        fn cuDevicePrimaryCtxRetain: (context: *mut u64, device: i32) whole(hook, real, origin) {
            let status = real(context, device);
            if let (0, Some(place)) = (status, place::primary(device)) {
                // SAFETY: the call succeeded and wrote the handle.
                quietly(|| place::named(unsafe { written(context) }, place));
            }
            status
        }
        /// Synchronous copies and fills of the context wait, if it sets CU_CTX_SYNC_MEMOPS
        fn cuDevicePrimaryCtxSetFlags | cuDevicePrimaryCtxSetFlags_v2: (device: i32, flags: u32) whole(hook, real, origin) {
            let status = real(device, flags);
            if let (0, Some(place)) = (status, place::primary(device)) {
                quietly(|| sync_memops::context(place, flags));
            }
            status
        }
        /// Synchronous copies and fills of the context wait, if it sets CU_CTX_SYNC_MEMOPS
        fn cuCtxSetFlags: (flags: u32) after(call) {
            let _ = call;
            flags_set(flags);
        }
        // The last release ends the context and its modules.
        /// The last one ends the primary context, as a reset does
        fn cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2: (device: i32) whole(hook, real, origin) {
            let release = || {
                let Some(call) = Call::enter(hook, origin) else {
                    return real(device);
                };
                let status = real(device);
                if let (0, Some(place)) = (status, place::primary(device)) {
                    call.finish(|call| {
                        if !is_active(device) {
                            ended(call, place);
                        }
                    });
                }
                thread::block().forget_place();
                status
            };
            let status = forgetting_kernels(release);
            images::device_released(device, is_active);
            status
        }
    }

    /// Whether anyone holds the device's primary context still.
    fn is_active(device: i32) -> bool {
        type GetState = unsafe extern "C-unwind" fn(i32, *mut u32, *mut i32) -> u32;
        let Some(get) = crate::driver::unhooked(c"cuDevicePrimaryCtxGetState") else {
            return true;
        };
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the type is cuda.h's; it writes two values and changes nothing.
        let status = unsafe {
            core::mem::transmute::<*const (), GetState>(get)(device, &mut flags, &mut active)
        };
        status != 0 || active != 0
    }

    fn created(status: u32, context: *const u64, device: i32, flags: u32) {
        if status == 0 && !context.is_null() {
            quietly(|| {
                // SAFETY: the call succeeded and wrote the handle.
                if let Some(place) = place::created(unsafe { *context }, device) {
                    sync_memops::context(place, flags);
                }
            });
        }
        thread::block().forget_place();
    }
}
