//! Events.

use crate::abi::Out;
use crate::device::ready;

export! {
    cudaEventCreate(event: Out<u64>) { ready()?.cuEventCreate(false, event, 0) }
    cudaEventCreateWithFlags(event: Out<u64>, flags: u32) { ready()?.cuEventCreate(false, event, flags) }
    cudaEventDestroy(event: u64) { ready()?.cuEventDestroy(false, event) }
    cudaEventRecord / cudaEventRecord_ptsz |per_thread| (event: u64, stream: u64) {
        ready()?.cuEventRecord(per_thread, event, stream)
    }
    cudaEventRecordWithFlags / cudaEventRecordWithFlags_ptsz |per_thread| (event: u64, stream: u64, flags: u32) {
        ready()?.cuEventRecordWithFlags(per_thread, event, stream, flags)
    }
    cudaEventQuery(event: u64) { ready()?.cuEventQuery(false, event) }
    cudaEventSynchronize(event: u64) { ready()?.cuEventSynchronize(false, event) }
    cudaEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) {
        ready()?.cuEventElapsedTime(false, milliseconds, start, end)
    }
}
