//! Memory that another process, or another interface, allocated. It may lie where the
//! program has freed memory of its own.
//!
//! A closed import stays as it is: its end is judged by no rule, and what comes to lie
//! there next replaces it.

use cudarc::driver::sys::{CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUipcMemHandle};
use cudarc::runtime::sys::{cudaExternalMemoryBufferDesc, cudaIpcMemHandle_t};
use streamcheck_model::MemoryKind;

use super::memory::written;
use crate::call::Call;
use crate::hook::hooks;
use crate::{capture, driver};

/// Records memory whose size only the driver knows. Where it does not say, the first
/// byte stands for all.
fn imported(call: &Call, address: u64) {
    let size = size_from(address).unwrap_or(1);
    call.allocated(address, size, MemoryKind::Device);
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
    fn cudaIpcOpenMemHandle: (out: *mut u64, handle: cudaIpcMemHandle_t, flags: u32) after(call) {
        let _ = (handle, flags);
        // SAFETY: the call succeeded and wrote it.
        imported(call, unsafe { written(out) });
    }
    fn cudaMemPoolImportPointer: (out: *mut u64, pool: usize, data: usize) after(call) {
        let _ = (pool, data);
        // SAFETY: the call succeeded and wrote it.
        imported(call, unsafe { written(out) });
    }
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
        fn cuIpcOpenMemHandle | cuIpcOpenMemHandle_v2: (out: *mut u64, handle: CUipcMemHandle, flags: u32) after(call) {
            let _ = (handle, flags);
            // SAFETY: the call succeeded and wrote it.
            imported(call, unsafe { written(out) });
        }
        fn cuMemPoolImportPointer: (out: *mut u64, pool: usize, data: usize) after(call) {
            let _ = (pool, data);
            // SAFETY: the call succeeded and wrote it.
            imported(call, unsafe { written(out) });
        }
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
