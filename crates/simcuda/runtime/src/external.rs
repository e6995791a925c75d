//! External memory and semaphores: what other interfaces share.

use crate::abi::{In, Out};
use crate::device::ready;
use std::ffi::c_void;

export! {
    cudaImportExternalMemory(memory: Out<u64>, descriptor: *const c_void) {
        ready()?.cuImportExternalMemory(false, memory, descriptor)
    }
    cudaExternalMemoryGetMappedBuffer(pointer: Out<u64>, memory: u64, buffer: *const c_void) {
        ready()?.cuExternalMemoryGetMappedBuffer(false, pointer, memory, buffer)
    }
    cudaDestroyExternalMemory(memory: u64) { ready()?.cuDestroyExternalMemory(false, memory) }
    cudaImportExternalSemaphore(semaphore: Out<u64>, descriptor: *const c_void) {
        ready()?.cuImportExternalSemaphore(false, semaphore, descriptor)
    }
    cudaDestroyExternalSemaphore(semaphore: u64) { ready()?.cuDestroyExternalSemaphore(false, semaphore) }
    cudaSignalExternalSemaphoresAsync / cudaSignalExternalSemaphoresAsync_ptsz |per_thread|
        (semaphores: In<u64>, params: *const c_void, count: u32, stream: u64) {
        ready()?.cuSignalExternalSemaphoresAsync(per_thread, semaphores, params, count, stream)
    }
    cudaWaitExternalSemaphoresAsync / cudaWaitExternalSemaphoresAsync_ptsz |per_thread|
        (semaphores: In<u64>, params: *const c_void, count: u32, stream: u64) {
        ready()?.cuWaitExternalSemaphoresAsync(per_thread, semaphores, params, count, stream)
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys as driver;
    use cudarc::runtime::sys as runtime;

    /// The runtime passes the structs on as they are.
    #[test]
    fn the_drivers_structs_are_as_large() {
        assert_eq!(
            size_of::<runtime::cudaExternalMemoryHandleDesc>(),
            size_of::<driver::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st>()
        );
        assert_eq!(
            size_of::<runtime::cudaExternalMemoryBufferDesc>(),
            size_of::<driver::CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st>()
        );
        assert_eq!(
            size_of::<runtime::cudaExternalSemaphoreHandleDesc>(),
            size_of::<driver::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st>()
        );
        assert_eq!(
            size_of::<runtime::cudaExternalSemaphoreSignalParams>(),
            size_of::<driver::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st>()
        );
        assert_eq!(
            size_of::<runtime::cudaExternalSemaphoreWaitParams>(),
            size_of::<driver::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st>()
        );
    }
}
