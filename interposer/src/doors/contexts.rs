//! Which device and context are current. These calls change no memory and no
//! order; they are hooked so that other calls can say where they were made.

use crate::hook::hooks;
use crate::{place, recorder, thread};

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
    fn cudaDeviceReset: () after(call) {
        // It waits for all work of the device; what it frees is not told one by one.
        call.record(streamcheck_model::Action::DeviceSynchronized);
        thread::block().forget_place();
        recorder::forget_kernels();
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
        fn cuCtxDestroy | cuCtxDestroy_v2: (context: usize) after(call) {
            let _ = context;
            call.record(streamcheck_model::Action::DeviceSynchronized);
            thread::block().forget_place();
        }
        fn cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2: (device: i32) after(call) {
            let _ = device;
            call.record(streamcheck_model::Action::DeviceSynchronized);
            thread::block().forget_place();
        }
        fn cuModuleUnload: (module: usize) whole(hook, real, origin) {
            let status = real(module);
            unloaded();
            status
        }
        fn cuLibraryUnload: (library: usize) whole(hook, real, origin) {
            let status = real(library);
            unloaded();
            status
        }
    }

    fn created(status: u32, context: *const u64) {
        if status == 0 && !context.is_null() {
            // SAFETY: the call succeeded and wrote the handle.
            place::created(unsafe { *context });
        }
        thread::block().forget_place();
    }

    fn unloaded() {
        // At depth the lock is free as well: it is never held across a real call.
        let _inside = thread::Inside::nest();
        thread::keeping_errno(|| crate::call::guarded(recorder::forget_kernels));
    }
}
