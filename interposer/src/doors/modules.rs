//! Modules and the look-up of their kernels: where a kernel's device code is (see [`images`]). These
//! calls change no memory and no order.
//!
//! They are seen at any depth, as the runtime loads its programs' device code itself.

use core::ffi::{c_char, c_void};

use crate::hook::hooks;
use crate::{call, images, kernels, recorder};

/// Makes a call that unloads kernels, those whose keys are `gone`. They are forgotten before it,
/// as another thread may load a kernel under the same handle before it returns, and after it, as
/// another thread may have launched one of them until then. A stale layout would have more
/// parameters read than a launch has.
///
/// At any depth, as the runtime unloads too: the recorder's lock is never held across a real
/// call.
pub(super) fn forgetting(gone: impl Fn(u64) -> bool, real: impl FnOnce() -> u32) -> u32 {
    let forget = || call::quietly(|| recorder::forget_kernels(&gone));
    forget();
    let status = real();
    forget();
    status
}

/// An unload of a module or library through `real`. A kernel that may be of it goes too.
fn unloading(module: usize, real: impl FnOnce() -> u32) -> u32 {
    let functions = images::unloading(module as u64);
    let gone = |key| functions.contains(&key) || !kernels::is_loaded(key);
    forgetting(gone, real)
}

hooks! { Runtime:
    /// The device code of the kernels that are registered next
    fn __cudaRegisterFatBinary: (wrapper: u64) address(hook, real, origin) {
        let image = real(wrapper);
        // Registration happens before main and is no use of CUDA: it starts nothing.
        call::quietly(|| kernels::fat_binary(image, wrapper));
        image
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// Keeps the device code, which tells what kernels do with their pointers and, before CUDA 12.4, how parameters lie
        fn cuModuleLoad: (module: *mut u64, path: *const c_char) whole(hook, real, origin) {
            let status = real(module, path);
            // SAFETY: the call's own arguments and answer.
            unsafe { images::file_loaded(status, module, path, false) };
            status
        }
        /// Keeps the device code, which tells what kernels do with their pointers and, before CUDA 12.4, how parameters lie
        fn cuModuleLoadData: (module: *mut u64, code: *const c_void) whole(hook, real, origin) {
            let status = real(module, code);
            // SAFETY: as above.
            unsafe { images::loaded(status, module, code, false) };
            status
        }
        /// Keeps the device code, which tells what kernels do with their pointers and, before CUDA 12.4, how parameters lie
        fn cuModuleLoadDataEx: (
            module: *mut u64, code: *const c_void, count: u32, options: usize, values: usize,
        ) whole(hook, real, origin) {
            let status = real(module, code, count, options, values);
            // SAFETY: as above.
            unsafe { images::loaded(status, module, code, false) };
            status
        }
        /// Keeps the device code, which tells what kernels do with their pointers and, before CUDA 12.4, how parameters lie
        fn cuModuleLoadFatBinary: (module: *mut u64, code: *const c_void) whole(hook, real, origin) {
            let status = real(module, code);
            // SAFETY: as above.
            unsafe { images::loaded(status, module, code, false) };
            status
        }
        /// Keeps the device code, which tells what kernels do with their pointers and, before CUDA 12.4, how parameters lie
        fn cuLibraryLoadData: (
            library: *mut u64, code: *const c_void, jit: usize, jit_values: usize, jit_count: u32,
            options: usize, values: usize, count: u32,
        ) whole(hook, real, origin) {
            let status = real(library, code, jit, jit_values, jit_count, options, values, count);
            // SAFETY: as above.
            unsafe { images::loaded(status, library, code, true) };
            status
        }
        /// Keeps the device code, which tells what kernels do with their pointers and, before CUDA 12.4, how parameters lie
        fn cuLibraryLoadFromFile: (
            library: *mut u64, path: *const c_char, jit: usize, jit_values: usize, jit_count: u32,
            options: usize, values: usize, count: u32,
        ) whole(hook, real, origin) {
            let status = real(library, path, jit, jit_values, jit_count, options, values, count);
            // SAFETY: as above.
            unsafe { images::file_loaded(status, library, path, true) };
            status
        }
        /// Forgets its kernels, whose handles may come back for others
        fn cuModuleUnload: (module: usize) whole(hook, real, origin) {
            unloading(module, || real(module))
        }
        /// Forgets its kernels, whose handles may come back for others
        fn cuLibraryUnload: (library: usize) whole(hook, real, origin) {
            unloading(library, || real(library))
        }
        /// Keeps the device code, which tells what kernels do with their pointers and, before CUDA 12.4, how parameters lie
        fn cuLibraryGetModule: (module: *mut u64, library: u64) whole(hook, real, origin) {
            let status = real(module, library);
            // SAFETY: as above.
            unsafe { images::module_of_library(status, module, library) };
            status
        }
        /// Keeps the kernel's name and module, for the same
        fn cuModuleGetFunction: (function: *mut u64, module: u64, name: *const c_char) whole(hook, real, origin) {
            let status = real(function, module, name);
            // SAFETY: as above.
            unsafe { images::found(status, function, module, name, false) };
            status
        }
        /// Keeps the kernel's name and module, for the same
        fn cuLibraryGetKernel: (kernel: *mut u64, library: u64, name: *const c_char) whole(hook, real, origin) {
            let status = real(kernel, library, name);
            // SAFETY: as above.
            unsafe { images::found(status, kernel, library, name, true) };
            status
        }
        /// Keeps the kernel's name and module, for the same
        fn cuKernelGetFunction: (function: *mut u64, kernel: u64) whole(hook, real, origin) {
            let status = real(function, kernel);
            // SAFETY: as above.
            unsafe { images::function_of_kernel(status, function, kernel) };
            status
        }
    }
}
