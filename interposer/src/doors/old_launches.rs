//! Entry points for launches that CUDA 13 no longer has, or that came before
//! `cuLaunchKernel`.

use super::launches::launched;
use super::unseen_order;
use crate::call::Call;
use crate::hook::hooks;

/// `cudaLaunchParams` (driver_types.h of CUDA 9 to 12).
#[repr(C)]
struct RuntimeLaunch {
    kernel: u64,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: *const *const u8,
    shared: usize,
    stream: usize,
}

/// Records launches that come after all earlier and before all later work of their
/// streams, whatever those are: more is taken as ordered, which never makes up a race.
fn apart(call: &Call, launches: impl FnOnce()) {
    unseen_order::host_waits(call);
    launches();
    unseen_order::host_waits(call);
}

hooks! { Runtime:
    /// Each kernel is launched, taken as ordered with everything
    fn cudaLaunchCooperativeKernelMultiDevice: (
        list: *const RuntimeLaunch, count: u32, flags: u32,
    ) after(call) {
        let _ = flags;
        // The flags may waive this order of the kernels among their streams' work;
        // taking it as kept never makes up a race.
        apart(call, || {
            for index in 0..count as usize {
                // SAFETY: the call succeeded with them.
                let one = unsafe { &*list.add(index) };
                launched(call, one.kernel, one.arguments, one.stream);
            }
        });
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::super::launches::driver_launched;
    use super::*;

    /// `CUDA_LAUNCH_PARAMS` (cuda.h).
    #[repr(C)]
    struct Launch {
        function: u64,
        sizes: [u32; 7],
        stream: usize,
        arguments: *const *const u8,
    }

    /// A launch whose arguments were set by earlier calls, which are not seen.
    fn unknown(call: &Call, stream: usize) {
        call.blind_spot("unknown-kernel-parameters", call.hook.api());
        call.unseen_work(stream);
    }

    hooks! { Driver:
        /// Each kernel is launched, taken as ordered with everything
        fn cuLaunchCooperativeKernelMultiDevice: (list: *const Launch, count: u32, flags: u32) after(call) {
            let _ = flags;
            apart(call, || {
                for index in 0..count as usize {
                    // SAFETY: the call succeeded with them.
                    unsafe {
                        let one = &*list.add(index);
                        driver_launched(call, one.function, one.arguments, core::ptr::null(), one.stream);
                    }
                }
            });
        }
        /// Takes its place in the legacy stream; the kernel's arguments are not seen
        fn cuLaunch: (function: u64) after(call) {
            let _ = function;
            unknown(call, 0);
        }
        /// Takes its place in the legacy stream; the kernel's arguments are not seen
        fn cuLaunchGrid: (function: u64, width: i32, height: i32) after(call) {
            let _ = (function, width, height);
            unknown(call, 0);
        }
        /// Takes its place in its stream; the kernel's arguments are not seen
        fn cuLaunchGridAsync: (function: u64, width: i32, height: i32, stream: usize) after(call) {
            let _ = (function, width, height);
            unknown(call, stream);
        }
    }
}
