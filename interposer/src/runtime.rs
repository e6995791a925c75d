//! Questions to the runtime that leave the thread's last error as it was.

use streamcheck_model::HostMemory;

use crate::provider;

/// An error of the application's is waiting to be read.
pub(crate) struct ErrorPending;

/// Asks the runtime, unless an error of the application's is waiting to be read:
/// our own failure must be cleared, and would take that with it.
pub(crate) fn ask<R>(question: impl FnOnce() -> R) -> Result<R, ErrorPending> {
    type LastError = unsafe extern "C-unwind" fn() -> u32;
    let of = |name| -> Option<LastError> {
        // SAFETY: both have this type and take nothing.
        provider::unhooked(name)
            .map(|real| unsafe { core::mem::transmute::<*const (), LastError>(real) })
    };
    // SAFETY: reads the thread's last error.
    if of(c"cudaPeekAtLastError").is_some_and(|peek| unsafe { peek() } != 0) {
        return Err(ErrorPending);
    }
    let answer = question();
    if let Some(clear) = of(c"cudaGetLastError") {
        // SAFETY: clears what our question left.
        unsafe { clear() };
    }
    Ok(answer)
}

/// What the runtime knows of a host address that the application just copied from
/// or to.
pub(crate) fn host_memory(address: u64) -> HostMemory {
    type GetAttributes = unsafe extern "C-unwind" fn(*mut i32, u64) -> u32;
    // `cudaMemoryType` (driver_types.h), the attributes' first member.
    const UNREGISTERED: i32 = 0;
    const HOST: i32 = 1;
    let Some(get) = provider::unhooked(c"cudaPointerGetAttributes") else {
        return HostMemory::Unasked;
    };
    // `cudaPointerAttributes` has at most 88 bytes. Before CUDA 11 the call fails for
    // memory that was never registered.
    let mut attributes = [-1; 64];
    let status = ask(|| {
        // SAFETY: the type is cuda_runtime_api.h's; it writes the attributes.
        unsafe {
            core::mem::transmute::<*const (), GetAttributes>(get)(attributes.as_mut_ptr(), address)
        }
    });
    match (status, attributes[0]) {
        (Ok(0), UNREGISTERED) => HostMemory::Pageable,
        (Ok(0), HOST) => HostMemory::Pinned,
        _ => HostMemory::Unasked,
    }
}
