//! Kernel launches.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::{CUlaunchAttribute, CUlaunchConfig};
use cudarc::runtime::sys::{cudaLaunchAttribute, cudaLaunchConfig_t, dim3};

use super::events;
use super::modules::forgetting;
use super::unseen_order::event_recorded;
use crate::call::Call;
use crate::hook::{Hook, hooks};
use crate::kernels::{self, Parameters};
use crate::thread::{self, Origin};
use crate::{call, capture, guard, recorder};

pub(super) type Arguments = *const *const u8;
pub(super) type Extra = *const *const c_void;

/// A runtime launch. The driver's function for it was noted by the driver hook
/// that the runtime's own launch passed through.
pub(super) fn launched(call: &Call, kernel: u64, arguments: Arguments, stream: usize) {
    let function = thread::block().take_inner_function();
    crate::place::learn();
    let parameters = if arguments.is_null() {
        Parameters::None
    } else {
        Parameters::Array(arguments)
    };
    recorder::launched(call, call.stream(stream), kernel, parameters, || {
        kernels::learn(kernel, function)
    });
}

/// The sides of a grid or a block.
fn sides(dimensions: dim3) -> [u32; 3] {
    [dimensions.x, dimensions.y, dimensions.z]
}

/// `cudaLaunchAttribute` (driver_types.h); the driver's is laid out the same.
#[repr(C)]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u64; 8],
}

const _: () = assert!(size_of::<Attribute>() == size_of::<CUlaunchAttribute>());
const _: () = assert!(size_of::<Attribute>() == size_of::<cudaLaunchAttribute>());

/// Attributes that order work otherwise than streams do (driver_types.h; the driver's
/// numbers are the same).
///
/// # Safety
/// `attributes` are the `count` ones of a launch that succeeded.
unsafe fn attributes(call: &Call, attributes: *const Attribute, count: u32, stream: usize) {
    const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;
    const PROGRAMMATIC_EVENT: u32 = 7;
    const LAUNCH_COMPLETION_EVENT: u32 = 12;
    const EARLY: &str = "programmatic-dependent-launch";
    for index in 0..count as usize {
        // SAFETY: the caller's promise. Only the value's first 8 bytes are read, which
        // all attributes used here have written: an `int`, taken for itself, or an event.
        let (id, first) = unsafe {
            let attribute = attributes.add(index);
            (
                (*attribute).id,
                (&raw const (*attribute).value).cast::<u64>(),
            )
        };
        match id {
            // SAFETY: as above.
            PROGRAMMATIC_STREAM_SERIALIZATION if unsafe { first.cast::<i32>().read() } != 0 => {
                call.blind_spot(EARLY, call.hook.api());
            }
            PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT => {
                call.blind_spot(
                    if id == PROGRAMMATIC_EVENT {
                        EARLY
                    } else {
                        "launch-completion-event"
                    },
                    call.hook.api(),
                );
                // SAFETY: as above.
                let event = unsafe { first.read() } as usize;
                if capture::holds(call, stream) {
                    events::recorded(call, event, stream);
                } else {
                    event_recorded(call, event);
                }
            }
            _ => {}
        }
    }
}

/// A launch through the runtime. What an earlier one that failed left of the driver's
/// function is not this one's.
#[inline(always)]
pub(super) fn runtime_launch(
    hook: &'static Hook,
    origin: Origin,
    real: impl FnOnce() -> u32,
    after: impl FnOnce(&Call),
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        return real();
    };
    thread::block().take_inner_function();
    let status = real();
    if status == 0 {
        call.finish(after);
    }
    status
}

hooks! { Runtime:
    /// Uses what the kernel's parameters point into, in stream order
    fn cudaLaunchKernel | cudaLaunchKernel_ptsz | __cudaLaunchKernel | __cudaLaunchKernel_ptsz
        | cudaLaunchCooperativeKernel | cudaLaunchCooperativeKernel_ptsz: (
        kernel: u64, grid: dim3, block: dim3, arguments: Arguments, shared: usize, stream: usize,
    ) whole(hook, real, origin) {
        runtime_launch(
            hook,
            origin,
            || real(kernel, grid, block, arguments, shared, stream),
            |call| {
                guard::launching(|| (sides(grid), sides(block)));
                launched(call, kernel, arguments, stream)
            },
        )
    }
    /// Uses what the kernel's parameters point into, in stream order; attributes may record events
    fn cudaLaunchKernelExC | cudaLaunchKernelExC_ptsz: (
        config: *const cudaLaunchConfig_t, kernel: u64, arguments: Arguments,
    ) whole(hook, real, origin) {
        runtime_launch(hook, origin, || real(config, kernel, arguments), |call| {
            // SAFETY: the launch succeeded with this configuration.
            let stream = unsafe { (*config).stream } as usize;
            // SAFETY: as above.
            guard::launching(|| unsafe { (sides((*config).gridDim), sides((*config).blockDim)) });
            launched(call, kernel, arguments, stream);
            // SAFETY: as above.
            unsafe { attributes(call, (*config).attrs.cast(), (*config).numAttrs, stream) };
        })
    }
    /// Nothing: it tells the kernel's name
    fn __cudaRegisterFunction: (
        image: usize, host_function: u64, device_function: usize, name: *const c_char, threads: i32,
        thread_id: usize, block_id: usize, block: usize, grid: usize, warp: usize,
    ) whole(hook, real, origin) {
        // Registration happens before main and is no use of CUDA: it starts nothing.
        call::quietly(|| {
            kernels::registered(image as u64, host_function, name as u64);
            // A module that was unloaded may have had another kernel there.
            recorder::forget_kernel(host_function);
        });
        real(image, host_function, device_function, name, threads, thread_id, block_id, block, grid, warp)
    }
    /// Forgets kernels, whose addresses may come back for others
    fn __cudaUnregisterFatBinary: (image: usize) whole(hook, real, origin) {
        call::quietly(|| kernels::unregistered(image as u64));
        forgetting(|key| !kernels::is_loaded(key), || real(image))
    }
    /// Nothing: it tells the kernel's handle
    fn __cudaGetKernel: (kernel: *mut u64, host_function: u64) whole(hook, real, origin) {
        let status = real(kernel, host_function);
        if status == 0 && !kernel.is_null() {
            // SAFETY: the call succeeded and wrote the handle.
            let handle = unsafe { *kernel };
            call::quietly(|| kernels::handle_made(handle, host_function));
        }
        status
    }
}

/// The driver's half.
pub(super) use driver::{HOOKS as DRIVER, launched as driver_launched};

mod driver {
    use super::*;

    /// A launch through the driver: recorded if the application made it, noted for
    /// the runtime's hook if the runtime did.
    macro_rules! driver_launch {
        ($hook:ident, $origin:ident, $function:ident, $status:expr, |$call:ident| $record:expr) => {{
            let Some($call) = Call::enter($hook, $origin) else {
                thread::block().set_inner_function($function);
                return $status;
            };
            let status = $status;
            if status == 0 {
                $call.finish(|$call| $record);
            }
            status
        }};
    }

    /// # Safety
    /// The arguments are those of a launch that succeeded.
    pub(in super::super) unsafe fn launched(
        call: &Call,
        function: u64,
        params: Arguments,
        extra: Extra,
        stream: usize,
    ) {
        crate::place::learn();
        // SAFETY: the caller's promise.
        let parameters = unsafe { Parameters::of_launch(params, extra) };
        recorder::launched(call, call.stream(stream), function, parameters, || {
            kernels::learn(0, function)
        });
    }

    hooks! { Driver:
        /// Uses what the kernel's parameters point into, in stream order
        fn cuLaunchKernel | cuLaunchKernel_ptsz: (
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: usize, params: Arguments, extra: Extra,
        ) whole(hook, real, origin) {
            driver_launch!(
                hook, origin, function,
                real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra),
                |call| {
                    guard::launching(|| ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]));
                    // SAFETY: the launch succeeded with these.
                    unsafe { launched(call, function, params, extra, stream) }
                }
            )
        }
        /// Uses what the kernel's parameters point into, in stream order
        fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz: (
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: usize, params: Arguments,
        ) whole(hook, real, origin) {
            driver_launch!(
                hook, origin, function,
                real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params),
                |call| {
                    guard::launching(|| ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]));
                    // SAFETY: the launch succeeded with these.
                    unsafe { launched(call, function, params, core::ptr::null(), stream) }
                }
            )
        }
        /// Uses what the kernel's parameters point into, in stream order; attributes may record events
        fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz: (
            config: *const CUlaunchConfig, function: u64, params: Arguments, extra: Extra,
        ) whole(hook, real, origin) {
            driver_launch!(
                hook, origin, function,
                real(config, function, params, extra),
                // SAFETY: the launch succeeded with these.
                |call| unsafe {
                    let stream = (*config).hStream as usize;
                    guard::launching(|| {
                        let config = &*config;
                        (
                            [config.gridDimX, config.gridDimY, config.gridDimZ],
                            [config.blockDimX, config.blockDimY, config.blockDimZ],
                        )
                    });
                    launched(call, function, params, extra, stream);
                    attributes(call, (*config).attrs.cast(), (*config).numAttrs, stream)
                }
            )
        }
    }
}
