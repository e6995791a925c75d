//! Allocation, pinned host memory, and what a pointer is.

use crate::abi::{In, Out, Status};
use crate::device::ready;
use crate::registry::variable;
use std::ffi::c_void;

/// `cudaPointerAttributes`; the type is unregistered 0, host 1, device 2, managed 3.
#[repr(C)]
struct PointerAttributes {
    kind: u32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
}

/// An allocation of nothing is a null pointer and no error, unlike the driver's.
pub(crate) fn allocate(pointer: Out<u64>, size: usize, call: impl FnOnce() -> Status) -> Status {
    ready()?;
    pointer.wanted()?;
    if size == 0 { pointer.put(0) } else { call() }
}

export! {
    cudaMalloc(pointer: Out<u64>, size: usize) { allocate(pointer, size, || ready()?.cuMemAlloc(false, pointer, size)) }
    cudaMallocPitch(pointer: Out<u64>, pitch: Out<usize>, width: usize, height: usize) {
        allocate(pointer, width * height, || ready()?.cuMemAllocPitch(false, pointer, pitch, width, height, 4))
    }
    cudaFree(address: u64) {
        let driver = ready()?;
        if address == 0 { Ok(()) } else { driver.cuMemFree(false, address) }
    }
    cudaMallocHost(pointer: Out<u64>, size: usize) {
        allocate(pointer, size, || ready()?.cuMemHostAlloc(false, pointer, size, 0))
    }
    cudaHostAlloc(pointer: Out<u64>, size: usize, flags: u32) {
        allocate(pointer, size, || ready()?.cuMemHostAlloc(false, pointer, size, flags))
    }
    cudaFreeHost(address: u64) {
        let driver = ready()?;
        if address == 0 { Ok(()) } else { driver.cuMemFreeHost(false, address) }
    }
    cudaHostRegister(address: u64, size: usize, flags: u32) { ready()?.cuMemHostRegister(false, address, size, flags) }
    cudaHostUnregister(address: u64) { ready()?.cuMemHostUnregister(false, address) }
    cudaHostGetDevicePointer(pointer: Out<u64>, address: u64, flags: u32) {
        ready()?.cuMemHostGetDevicePointer(false, pointer, address, flags)
    }
    cudaHostGetFlags(flags: Out<u32>, address: u64) { ready()?.cuMemHostGetFlags(false, flags, address) }
    cudaMemGetInfo(free: Out<usize>, total: Out<usize>) { ready()?.cuMemGetInfo(false, free, total) }
    cudaPointerGetAttributes(out: Out<PointerAttributes>, address: u64) {
        let (mut kind, mut managed, mut device, mut device_pointer, mut host_pointer) = (0u32, 0u8, 0i32, 0u64, 0u64);
        // Memory type, managed, ordinal, device pointer, host pointer.
        let which = [2, 8, 9, 3, 4];
        let values: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut managed).cast(),
            (&raw mut device).cast(),
            (&raw mut device_pointer).cast(),
            (&raw mut host_pointer).cast(),
        ];
        ready()?.cuPointerGetAttributes(false, 5, In(which.as_ptr()), In(values.as_ptr()), address)?;
        if kind == 0 {
            host_pointer = address;
        }
        out.put(PointerAttributes { kind: if managed != 0 { 3 } else { kind }, device, device_pointer, host_pointer })
    }
    cudaGetSymbolAddress(pointer: Out<u64>, symbol: usize) { pointer.put(variable(ready()?, symbol)?.0) }
    cudaGetSymbolSize(size: Out<usize>, symbol: usize) { size.put(variable(ready()?, symbol)?.1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::runtime::sys::cudaPointerAttributes as Theirs;
    use std::mem::offset_of;

    #[test]
    fn pointer_attributes_are_laid_out_as_nvidias() {
        assert_eq!(
            offset_of!(PointerAttributes, device),
            offset_of!(Theirs, device)
        );
        assert_eq!(
            offset_of!(PointerAttributes, host_pointer),
            offset_of!(Theirs, hostPointer)
        );
    }
}
