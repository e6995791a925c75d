//! The look-up of driver functions: the functions that hand out driver functions.
//!
//! The real one is called first and unchanged; then the pointer that it gave is
//! exchanged for its hook. This happens at any depth, as cudart fetches its table
//! inside the first runtime call.

use core::ffi::{c_char, c_void};

use crate::hook::hooks;
use crate::{call, driver, thread};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`, `cudaEnablePerThreadDefaultStream`.
const PER_THREAD: u64 = 2;

fn swap(status: u32, pointer: *mut *mut c_void, flags: u64) {
    if status != 0 || pointer.is_null() {
        return;
    }
    let _inside = thread::Inside::nest();
    thread::keeping_errno(|| {
        call::guarded(|| {
            // SAFETY: the call succeeded, so it wrote a pointer there.
            let place = unsafe { &mut *pointer };
            if !place.is_null() {
                *place = driver::swap(*place, Some(flags & PER_THREAD != 0));
            }
        })
    });
}

/// Code that looks driver functions up has loaded the driver.
fn met() {
    if !driver::visible() {
        let _inside = thread::Inside::nest();
        thread::keeping_errno(|| call::guarded(driver::meet));
    }
}

hooks! { Runtime:
    /// Nothing: the function it gives is watched if it is in these tables
    fn cudaGetDriverEntryPoint | cudaGetDriverEntryPoint_ptsz: (
        symbol: *const c_char, pointer: *mut *mut c_void, flags: u64, found: *mut u32,
    ) whole(hook, real, origin) {
        let status = real(symbol, pointer, flags, found);
        met();
        swap(status, pointer, if hook.per_thread { flags | PER_THREAD } else { flags });
        status
    }
    /// Nothing: the function it gives is watched if it is in these tables
    fn cudaGetDriverEntryPointByVersion | cudaGetDriverEntryPointByVersion_ptsz: (
        symbol: *const c_char, pointer: *mut *mut c_void, version: u32, flags: u64, found: *mut u32,
    ) whole(hook, real, origin) {
        let status = real(symbol, pointer, version, flags, found);
        met();
        swap(status, pointer, if hook.per_thread { flags | PER_THREAD } else { flags });
        status
    }
}

/// The driver's half.
pub(super) use driver_half::HOOKS as DRIVER;

mod driver_half {
    use super::*;

    hooks! { Driver:
        /// Nothing: the function it gives is watched if it is in these tables
        fn cuGetProcAddress: (
            symbol: *const c_char, pointer: *mut *mut c_void, version: i32, flags: u64,
        ) whole(hook, real, origin) {
            let status = real(symbol, pointer, version, flags);
            swap(status, pointer, flags);
            status
        }
        /// Nothing: the function it gives is watched if it is in these tables
        fn cuGetProcAddress_v2 | cuGetProcAddress_v2_ptsz: (
            symbol: *const c_char, pointer: *mut *mut c_void, version: i32, flags: u64, found: *mut u32,
        ) whole(hook, real, origin) {
            let status = real(symbol, pointer, version, flags, found);
            swap(status, pointer, if hook.per_thread { flags | PER_THREAD } else { flags });
            status
        }
    }
}
