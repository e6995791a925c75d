//! Libraries loaded by hand: `cudaLibrary…`.

use crate::abi::{Out, Text};
use crate::device::ready;
use std::ffi::c_void;

export! {
    cudaLibraryLoadData(library: Out<u64>, code: *const c_void, jit: *const c_void, jit_values: *const c_void,
                        jit_count: u32, options: *const c_void, values: *const c_void, count: u32) {
        ready()?.cuLibraryLoadData(false, library, code, jit, jit_values, jit_count, options, values, count)
    }
    cudaLibraryLoadFromFile(library: Out<u64>, path: Text, jit: *const c_void, jit_values: *const c_void,
                            jit_count: u32, options: *const c_void, values: *const c_void, count: u32) {
        ready()?.cuLibraryLoadFromFile(false, library, path, jit, jit_values, jit_count, options, values, count)
    }
    cudaLibraryUnload(library: u64) { ready()?.cuLibraryUnload(false, library) }
    cudaLibraryGetKernel(kernel: Out<u64>, library: u64, name: Text) {
        ready()?.cuLibraryGetKernel(false, kernel, library, name)
    }
    cudaLibraryGetGlobal(address: Out<u64>, size: Out<usize>, library: u64, name: Text) {
        ready()?.cuLibraryGetGlobal(false, address, size, library, name)
    }
    cudaLibraryGetManaged(address: Out<u64>, size: Out<usize>, library: u64, name: Text) {
        ready()?.cuLibraryGetManaged(false, address, size, library, name)
    }
    cudaLibraryGetKernelCount(count: Out<u32>, library: u64) {
        ready()?.cuLibraryGetKernelCount(false, count, library)
    }
}
