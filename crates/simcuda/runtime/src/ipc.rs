//! Handles for other processes.

use crate::abi::Out;
use crate::device::ready;
use crate::driver::IpcHandle;

export! {
    cudaIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) { ready()?.cuIpcGetMemHandle(false, handle, address) }
    cudaIpcOpenMemHandle(pointer: Out<u64>, handle: IpcHandle, flags: u32) {
        ready()?.cuIpcOpenMemHandle(false, pointer, handle, flags)
    }
    cudaIpcCloseMemHandle(address: u64) { ready()?.cuIpcCloseMemHandle(false, address) }
    cudaIpcGetEventHandle(handle: Out<IpcHandle>, event: u64) { ready()?.cuIpcGetEventHandle(false, handle, event) }
    cudaIpcOpenEventHandle(event: Out<u64>, handle: IpcHandle) { ready()?.cuIpcOpenEventHandle(false, event, handle) }
}
