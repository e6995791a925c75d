//! Memory that another process, or another interface, allocated. It may lie where the
//! program has freed memory of its own. What the other process does with it is not
//! seen.

use cudarc::driver::sys::{CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUipcMemHandle};
use cudarc::runtime::sys::{cudaExternalMemoryBufferDesc, cudaIpcMemHandle_t};
use streamcheck_model::{Action, FreeKind, Handle, MemoryKind};

use crate::call::{Call, Free};
use crate::hook::{hooks, written};
use crate::{capture, driver, sync_memops};

/// Records memory whose size only the driver knows. Where it does not say, the first
/// byte stands for all.
fn imported(call: &Call, address: u64) {
    let size = size_from(address).unwrap_or(1);
    call.allocated(address, size, MemoryKind::Device);
}

/// Records an allocation of another process's pool: it became valid in an order that
/// is that process's.
fn imported_from_pool(call: &Call, pool: usize, address: u64) {
    if address != 0 {
        let size = size_from(address).unwrap_or(1) as u64;
        sync_memops::allocated(address, size);
        call.record(Action::Allocated {
            address,
            size,
            kind: MemoryKind::StreamOrdered,
            stream: None,
            pool: Handle(pool as u64),
        });
    }
}

/// How many bytes the allocation around `address` has from there on.
fn size_from(address: u64) -> Option<usize> {
    type GetRange = unsafe extern "C-unwind" fn(*mut u64, *mut usize, u64) -> u32;
    // While a stream captures, no question may be put to CUDA.
    if capture::any() {
        return None;
    }
    let get = driver::unhooked(c"cuMemGetAddressRange_v2")?;
    let (mut base, mut size) = (0, 0);
    // SAFETY: the type is cuda.h's; it writes both.
    let status =
        unsafe { core::mem::transmute::<*const (), GetRange>(get)(&mut base, &mut size, address) };
    if status != 0 {
        return None;
    }
    let before = usize::try_from(address.checked_sub(base)?).ok()?;
    size.checked_sub(before).filter(|&size| size != 0)
}

hooks! { Runtime:
    /// Memory that is allocated, of the size that the driver says
    fn cudaIpcOpenMemHandle: (out: *mut u64, handle: cudaIpcMemHandle_t, flags: u32) after(call) {
        let _ = (handle, flags);
        // SAFETY: the call succeeded and wrote it.
        imported(call, unsafe { written(out) });
    }
    /// Frees this process's access to the memory
    fn cudaIpcCloseMemHandle: (address: u64) free(call) {
        let _ = call;
        Free::new(address, FreeKind::Import)
    }
    /// Stream-ordered memory of another process, valid in that process's order
    fn cudaMemPoolImportPointer: (out: *mut u64, pool: usize, data: usize) after(call) {
        let _ = data;
        // SAFETY: the call succeeded and wrote it.
        imported_from_pool(call, pool, unsafe { written(out) });
    }
    /// Memory that is allocated
    fn cudaExternalMemoryGetMappedBuffer: (
        out: *mut u64, memory: usize, buffer: *const cudaExternalMemoryBufferDesc,
    ) after(call) {
        let _ = memory;
        // SAFETY: the call succeeded with the description, and wrote the address.
        let (address, size) = unsafe { (written(out), (*buffer).size) };
        call.allocated(address, size as usize, MemoryKind::Device);
    }
}

/// The driver's half.
pub(super) use of_driver::HOOKS as DRIVER;

mod of_driver {
    use super::*;

    hooks! { Driver:
        /// Memory that is allocated, of the size that the driver says
        fn cuIpcOpenMemHandle | cuIpcOpenMemHandle_v2: (out: *mut u64, handle: CUipcMemHandle, flags: u32) after(call) {
            let _ = (handle, flags);
            // SAFETY: the call succeeded and wrote it.
            imported(call, unsafe { written(out) });
        }
        /// Frees this process's access to the memory
        fn cuIpcCloseMemHandle: (address: u64) free(call) {
            let _ = call;
            Free::new(address, FreeKind::Import)
        }
        /// Stream-ordered memory of another process, valid in that process's order
        fn cuMemPoolImportPointer: (out: *mut u64, pool: usize, data: usize) after(call) {
            let _ = data;
            // SAFETY: the call succeeded and wrote it.
            imported_from_pool(call, pool, unsafe { written(out) });
        }
        /// Memory that is allocated
        fn cuExternalMemoryGetMappedBuffer: (
            out: *mut u64, memory: usize, buffer: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
        ) after(call) {
            let _ = memory;
            // SAFETY: the call succeeded with the description, and wrote the address.
            let (address, size) = unsafe { (written(out), (*buffer).size) };
            call.allocated(address, size as usize, MemoryKind::Device);
        }
    }
}
