//! Kernel launches.

use core::ffi::{c_char, c_void};

use cudarc::driver::sys::CUlaunchConfig;
use cudarc::runtime::sys::{cudaLaunchConfig_t, dim3};

use crate::call::Call;
use crate::hook::hooks;
use crate::kernels::{self, Parameters};
use crate::{call, capture, recorder, thread};

type Arguments = *const *const u8;
type Extra = *const *const c_void;

/// A runtime launch. The driver's function for it was noted by the driver hook
/// that the runtime's own launch passed through.
fn launched(call: &Call, kernel: u64, arguments: Arguments, stream: usize) {
    let function = thread::block().take_inner_function();
    if capture::holds(call, stream) {
        return;
    }
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

/// Whether an attribute lets the kernel start before the one before it ends:
/// `cudaLaunchAttributeProgrammaticStreamSerialization`, `…ProgrammaticEvent`
/// (driver_types.h; the driver's numbers are the same).
fn programmatic(call: &Call, ids: impl Iterator<Item = u32>) {
    for id in ids {
        if id == 6 || id == 7 {
            call.blind_spot("programmatic-dependent-launch", call.hook.api());
        }
    }
}

hooks! { Runtime:
    fn cudaLaunchKernel | cudaLaunchKernel_ptsz | __cudaLaunchKernel | __cudaLaunchKernel_ptsz
        | cudaLaunchCooperativeKernel | cudaLaunchCooperativeKernel_ptsz: (
        kernel: u64, grid: dim3, block: dim3, arguments: Arguments, shared: usize, stream: usize,
    ) after(call) {
        let _ = (grid, block, shared);
        launched(call, kernel, arguments, stream);
    }
    fn cudaLaunchKernelExC | cudaLaunchKernelExC_ptsz: (
        config: *const cudaLaunchConfig_t, kernel: u64, arguments: Arguments,
    ) after(call) {
        // SAFETY: the launch succeeded with this configuration; attribute numbers
        // are read as integers.
        let stream = unsafe {
            programmatic(call, (0..(*config).numAttrs as usize).map(|index| {
                (&raw const (*(*config).attrs.add(index)).id).cast::<u32>().read()
            }));
            (*config).stream as usize
        };
        launched(call, kernel, arguments, stream);
    }
    fn __cudaRegisterFunction: (
        image: usize, host_function: u64, device_function: usize, name: *const c_char, threads: i32,
        thread_id: usize, block_id: usize, block: usize, grid: usize, warp: usize,
    ) whole(hook, real, origin) {
        // Registration happens before main and is no use of CUDA: it starts nothing.
        let _inside = thread::Inside::nest();
        thread::keeping_errno(|| call::guarded(|| kernels::registered(host_function, name as u64)));
        real(image, host_function, device_function, name, threads, thread_id, block_id, block, grid, warp)
    }
    fn __cudaGetKernel: (kernel: *mut u64, host_function: u64) whole(hook, real, origin) {
        let status = real(kernel, host_function);
        if status == 0 && !kernel.is_null() {
            let _inside = thread::Inside::nest();
            // SAFETY: the call succeeded and wrote the handle.
            let handle = unsafe { *kernel };
            thread::keeping_errno(|| call::guarded(|| kernels::handle_made(handle, host_function)));
        }
        status
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

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
    unsafe fn launched(call: &Call, function: u64, params: Arguments, extra: Extra, stream: usize) {
        if capture::holds(call, stream) {
            return;
        }
        crate::place::learn();
        // SAFETY: the caller's promise.
        let parameters = unsafe { Parameters::of_launch(params, extra) };
        recorder::launched(call, call.stream(stream), function, parameters, || {
            kernels::learn(0, function)
        });
    }

    hooks! { Driver:
        fn cuLaunchKernel | cuLaunchKernel_ptsz: (
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: usize, params: Arguments, extra: Extra,
        ) whole(hook, real, origin) {
            driver_launch!(
                hook, origin, function,
                real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra),
                // SAFETY: the launch succeeded with these.
                |call| unsafe { launched(call, function, params, extra, stream) }
            )
        }
        fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz: (
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: usize, params: Arguments,
        ) whole(hook, real, origin) {
            driver_launch!(
                hook, origin, function,
                real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params),
                // SAFETY: the launch succeeded with these.
                |call| unsafe { launched(call, function, params, core::ptr::null(), stream) }
            )
        }
        fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz: (
            config: *const CUlaunchConfig, function: u64, params: Arguments, extra: Extra,
        ) whole(hook, real, origin) {
            driver_launch!(
                hook, origin, function,
                real(config, function, params, extra),
                // SAFETY: the launch succeeded with these; attribute numbers are read
                // as integers.
                |call| unsafe {
                    programmatic(call, (0..(*config).numAttrs as usize).map(|index| {
                        (&raw const (*(*config).attrs.add(index)).id).cast::<u32>().read()
                    }));
                    launched(call, function, params, extra, (*config).hStream as usize)
                }
            )
        }
    }
}
