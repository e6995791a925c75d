//! Allocation and free.

use cudarc::runtime::sys::{cudaExtent, cudaPitchedPtr};
use streamcheck_model::{FreeKind, MemoryKind};

use super::libc_door;
use crate::call::Free;
use crate::hook::hooks;

/// The value behind an output parameter of a call that succeeded.
///
/// # Safety
/// `out` is null or was written to.
pub(crate) unsafe fn written<T: Copy + Default>(out: *const T) -> T {
    if out.is_null() {
        return T::default();
    }
    // SAFETY: the caller's promise.
    unsafe { *out }
}

hooks! { Runtime:
    fn cudaMalloc: (out: *mut u64, size: usize) after(call) {
        // SAFETY: the call succeeded and wrote it.
        call.allocated(unsafe { written(out) }, size, MemoryKind::Device);
    }
    fn cudaMallocPitch: (out: *mut u64, pitch: *mut usize, width: usize, height: usize) after(call) {
        let _ = width;
        // SAFETY: the call succeeded and wrote both.
        let (address, pitch) = unsafe { (written(out), written(pitch)) };
        call.allocated(address, pitch.saturating_mul(height), MemoryKind::Device);
    }
    fn cudaMalloc3D: (out: *mut cudaPitchedPtr, extent: cudaExtent) after(call) {
        // SAFETY: the call succeeded and wrote it.
        let made = unsafe { *out };
        let size = made.pitch.saturating_mul(extent.height).saturating_mul(extent.depth);
        call.allocated(made.ptr as u64, size, MemoryKind::Device);
    }
    fn cudaMallocManaged: (out: *mut u64, size: usize, flags: u32) after(call) {
        let _ = flags;
        // SAFETY: the call succeeded and wrote it.
        call.allocated(unsafe { written(out) }, size, MemoryKind::Managed);
    }
    fn cudaMallocHost: (out: *mut u64, size: usize) after(call) {
        // SAFETY: the call succeeded and wrote it.
        call.allocated(unsafe { written(out) }, size, MemoryKind::Pinned);
    }
    fn cudaHostAlloc: (out: *mut u64, size: usize, flags: u32) after(call) {
        let _ = flags;
        // SAFETY: the call succeeded and wrote it.
        call.allocated(unsafe { written(out) }, size, MemoryKind::Pinned);
    }
    fn cudaHostRegister: (address: u64, size: usize, flags: u32) after(call) {
        let _ = flags;
        libc_door::watch(address, size);
        call.allocated(address, size, MemoryKind::Registered);
    }
    fn cudaMallocAsync | cudaMallocAsync_ptsz: (out: *mut u64, size: usize, stream: usize) after(call) {
        // SAFETY: the call succeeded and wrote it.
        call.allocated_on(stream, unsafe { written(out) }, size);
    }
    fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz: (
        out: *mut u64, size: usize, pool: usize, stream: usize,
    ) after(call) {
        let _ = pool;
        // SAFETY: the call succeeded and wrote it.
        call.allocated_on(stream, unsafe { written(out) }, size);
    }
    fn cudaFree: (address: u64) free(call) {
        let _ = call;
        Free::new(address, FreeKind::Sync)
    }
    fn cudaFreeAsync | cudaFreeAsync_ptsz: (address: u64, stream: usize) free(call) {
        let _ = call;
        Free::on_stream(address, stream)
    }
    fn cudaFreeHost: (address: u64) free(call) {
        let _ = call;
        Free::new(address, FreeKind::Host)
    }
    fn cudaHostUnregister: (address: u64) free(call) {
        let _ = call;
        libc_door::unwatch(address);
        Free::new(address, FreeKind::Unregister)
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        fn cuMemAlloc_v2: (out: *mut u64, size: usize) after(call) {
            // SAFETY: the call succeeded and wrote it.
            call.allocated(unsafe { written(out) }, size, MemoryKind::Device);
        }
        fn cuMemAllocPitch_v2: (
            out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32,
        ) after(call) {
            let _ = (width, element);
            // SAFETY: the call succeeded and wrote both.
            let (address, pitch) = unsafe { (written(out), written(pitch)) };
            call.allocated(address, pitch.saturating_mul(height), MemoryKind::Device);
        }
        fn cuMemAllocManaged: (out: *mut u64, size: usize, flags: u32) after(call) {
            let _ = flags;
            // SAFETY: the call succeeded and wrote it.
            call.allocated(unsafe { written(out) }, size, MemoryKind::Managed);
        }
        fn cuMemAllocHost_v2: (out: *mut u64, size: usize) after(call) {
            // SAFETY: the call succeeded and wrote it.
            call.allocated(unsafe { written(out) }, size, MemoryKind::Pinned);
        }
        fn cuMemHostAlloc: (out: *mut u64, size: usize, flags: u32) after(call) {
            let _ = flags;
            // SAFETY: the call succeeded and wrote it.
            call.allocated(unsafe { written(out) }, size, MemoryKind::Pinned);
        }
        fn cuMemHostRegister_v2: (address: u64, size: usize, flags: u32) after(call) {
            let _ = flags;
            libc_door::watch(address, size);
            call.allocated(address, size, MemoryKind::Registered);
        }
        fn cuMemAllocAsync | cuMemAllocAsync_ptsz: (out: *mut u64, size: usize, stream: usize) after(call) {
            // SAFETY: the call succeeded and wrote it.
            call.allocated_on(stream, unsafe { written(out) }, size);
        }
        fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz: (
            out: *mut u64, size: usize, pool: usize, stream: usize,
        ) after(call) {
            let _ = pool;
            // SAFETY: the call succeeded and wrote it.
            call.allocated_on(stream, unsafe { written(out) }, size);
        }
        fn cuMemMap: (address: u64, size: usize, offset: usize, handle: u64, flags: u64) after(call) {
            let _ = (offset, handle, flags);
            call.allocated(address, size, MemoryKind::Mapped);
        }
        fn cuMemFree_v2: (address: u64) free(call) {
            let _ = call;
            Free::new(address, FreeKind::Sync)
        }
        fn cuMemFreeAsync | cuMemFreeAsync_ptsz: (address: u64, stream: usize) free(call) {
            let _ = call;
            Free::on_stream(address, stream)
        }
        fn cuMemFreeHost: (address: u64) free(call) {
            let _ = call;
            Free::new(address, FreeKind::Host)
        }
        fn cuMemHostUnregister: (address: u64) free(call) {
            let _ = call;
            libc_door::unwatch(address);
            Free::new(address, FreeKind::Unregister)
        }
        fn cuMemUnmap: (address: u64, size: usize) free(call) {
            let _ = (call, size);
            Free::new(address, FreeKind::Unmap)
        }
    }
}
