//! Copies and fills that are not described byte by byte: those with arrays, which
//! have no addresses, those of volumes with gaps, and batches. They keep their place
//! in their stream.

use cudarc::driver::sys::CUDA_MEMCPY3D_PEER;
use streamcheck_model::Action;

use crate::call::Call;
use crate::hook::hooks;
use crate::provider;

/// Records such a copy. `waits` says that the call returns when the copy is made, as a
/// synchronous one to host memory does ("API synchronization behavior" in the
/// runtime's reference).
pub(super) fn unseen(call: &Call, stream: usize, kind: &str, waits: bool) {
    call.blind_spot(kind, call.hook.api());
    call.unseen_work(stream);
    if waits {
        call.record_on(stream, |stream| Action::StreamSynchronized { stream });
    }
}

fn array(call: &Call, stream: usize) {
    unseen(call, stream, "array-copy", false);
}

fn array_now(call: &Call, to_host: bool) {
    unseen(call, 0, "array-copy", to_host);
}

/// Whether a synchronous copy of this `cudaMemcpyKind` (driver_types.h) may have host
/// memory as its destination.
pub(super) fn may_reach_host(kind: u32) -> bool {
    !matches!(kind, 1 | 3)
}

/// Where a batch call's stream is: CUDA 13 took a parameter out before it.
fn batch_stream(before: usize, since: usize) -> usize {
    type GetVersion = unsafe extern "C-unwind" fn(*mut i32) -> u32;
    let mut version = 0;
    if let Some(get) = provider::unhooked(c"cudaRuntimeGetVersion") {
        // SAFETY: the type is cuda_runtime_api.h's; it writes one value.
        unsafe { core::mem::transmute::<*const (), GetVersion>(get)(&mut version) };
    }
    if (1..13000).contains(&version) {
        before
    } else {
        since
    }
}

hooks! { Runtime:
    fn cudaMemcpyToArray | cudaMemcpyToArray_ptds: (
        to: usize, x: usize, y: usize, from: u64, count: usize, kind: u32,
    ) after(call) {
        let _ = (to, x, y, from, count, kind);
        array_now(call, false);
    }
    fn cudaMemcpyFromArray | cudaMemcpyFromArray_ptds: (
        to: u64, from: usize, x: usize, y: usize, count: usize, kind: u32,
    ) after(call) {
        let _ = (to, from, x, y, count);
        array_now(call, may_reach_host(kind));
    }
    fn cudaMemcpyArrayToArray | cudaMemcpyArrayToArray_ptds: (
        to: usize, to_x: usize, to_y: usize, from: usize, x: usize, y: usize, count: usize, kind: u32,
    ) after(call) {
        let _ = (to, to_x, to_y, from, x, y, count, kind);
        array_now(call, false);
    }
    fn cudaMemcpy2DToArray | cudaMemcpy2DToArray_ptds: (
        to: usize, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        let _ = (to, x, y, from, pitch, width, height, kind);
        array_now(call, false);
    }
    fn cudaMemcpy2DFromArray | cudaMemcpy2DFromArray_ptds: (
        to: u64, pitch: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        let _ = (to, pitch, from, x, y, width, height);
        array_now(call, may_reach_host(kind));
    }
    fn cudaMemcpy2DArrayToArray | cudaMemcpy2DArrayToArray_ptds: (
        to: usize, to_x: usize, to_y: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        let _ = (to, to_x, to_y, from, x, y, width, height, kind);
        array_now(call, false);
    }
    fn cudaMemcpyToArrayAsync | cudaMemcpyToArrayAsync_ptsz: (
        to: usize, x: usize, y: usize, from: u64, count: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (to, x, y, from, count, kind);
        array(call, stream);
    }
    fn cudaMemcpyFromArrayAsync | cudaMemcpyFromArrayAsync_ptsz: (
        to: u64, from: usize, x: usize, y: usize, count: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (to, from, x, y, count, kind);
        array(call, stream);
    }
    fn cudaMemcpy2DToArrayAsync | cudaMemcpy2DToArrayAsync_ptsz: (
        to: usize, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (to, x, y, from, pitch, width, height, kind);
        array(call, stream);
    }
    fn cudaMemcpy2DFromArrayAsync | cudaMemcpy2DFromArrayAsync_ptsz: (
        to: u64, pitch: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (to, pitch, from, x, y, width, height, kind);
        array(call, stream);
    }
    fn cudaMemcpy3DPeer | cudaMemcpy3DPeer_ptds: (parameters: usize) after(call) {
        let _ = parameters;
        unseen(call, 0, "volume-copy", false);
    }
    fn cudaMemcpy3DPeerAsync | cudaMemcpy3DPeerAsync_ptsz: (parameters: usize, stream: usize) after(call) {
        let _ = parameters;
        unseen(call, stream, "volume-copy", false);
    }
    // CUDA 12 had `failIdx` before the stream; a 9th argument that was not given is
    // never looked at by CUDA 13's.
    fn cudaMemcpyBatchAsync | cudaMemcpyBatchAsync_ptsz: (
        to: usize, from: usize, sizes: usize, count: usize, attributes: usize, indices: usize, attribute_count: usize,
        eighth: usize, ninth: usize,
    ) after(call) {
        let _ = (to, from, sizes, count, attributes, indices, attribute_count);
        unseen(call, batch_stream(ninth, eighth), "batch-copy", false);
    }
    fn cudaMemcpy3DBatchAsync | cudaMemcpy3DBatchAsync_ptsz: (
        count: usize, list: usize, third: usize, fourth: usize, fifth: usize,
    ) after(call) {
        let _ = (count, list, third);
        unseen(call, batch_stream(fifth, fourth), "batch-copy", false);
    }
    fn cudaMemcpyWithAttributesAsync | cudaMemcpyWithAttributesAsync_ptsz: (
        to: u64, from: u64, size: usize, attributes: usize, stream: usize,
    ) after(call) {
        let _ = (to, from, size, attributes);
        unseen(call, stream, "batch-copy", false);
    }
    fn cudaMemcpy3DWithAttributesAsync | cudaMemcpy3DWithAttributesAsync_ptsz: (
        operation: usize, flags: u64, stream: usize,
    ) after(call) {
        let _ = (operation, flags);
        unseen(call, stream, "batch-copy", false);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    /// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_UNIFIED` (cuda.h).
    const HOST: u32 = 1;
    const UNIFIED: u32 = 4;

    /// # Safety
    /// `copy` describes a copy that succeeded.
    unsafe fn peer_reaches_host(copy: *const CUDA_MEMCPY3D_PEER) -> bool {
        // SAFETY: an enum, read as an integer.
        let kind = unsafe { (&raw const (*copy).dstMemoryType).cast::<u32>().read() };
        kind == HOST || kind == UNIFIED
    }

    hooks! { Driver:
        fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds: (to: usize, offset: usize, from: u64, count: usize) after(call) {
            let _ = (to, offset, from, count);
            array_now(call, false);
        }
        fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds: (to: u64, from: usize, offset: usize, count: usize) after(call) {
            let _ = (to, from, offset, count);
            array_now(call, false);
        }
        fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds: (to: usize, offset: usize, from: u64, count: usize) after(call) {
            let _ = (to, offset, from, count);
            array_now(call, false);
        }
        fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds: (to: u64, from: usize, offset: usize, count: usize) after(call) {
            let _ = (to, from, offset, count);
            array_now(call, true);
        }
        fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds: (
            to: usize, to_offset: usize, from: usize, offset: usize, count: usize,
        ) after(call) {
            let _ = (to, to_offset, from, offset, count);
            array_now(call, false);
        }
        fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz: (
            to: usize, offset: usize, from: u64, count: usize, stream: usize,
        ) after(call) {
            let _ = (to, offset, from, count);
            array(call, stream);
        }
        fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz: (
            to: u64, from: usize, offset: usize, count: usize, stream: usize,
        ) after(call) {
            let _ = (to, from, offset, count);
            array(call, stream);
        }
        fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds: (copy: *const CUDA_MEMCPY3D_PEER) after(call) {
            // SAFETY: the call succeeded with it.
            unseen(call, 0, "volume-copy", unsafe { peer_reaches_host(copy) });
        }
        fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz: (copy: usize, stream: usize) after(call) {
            let _ = copy;
            unseen(call, stream, "volume-copy", false);
        }
        fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz: (
            to: usize, from: usize, sizes: usize, count: usize, attributes: usize, indices: usize,
            attribute_count: usize, failed: usize, stream: usize,
        ) after(call) {
            let _ = (to, from, sizes, count, attributes, indices, attribute_count, failed);
            unseen(call, stream, "batch-copy", false);
        }
        fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz: (
            to: usize, from: usize, sizes: usize, count: usize, attributes: usize, indices: usize,
            attribute_count: usize, stream: usize,
        ) after(call) {
            let _ = (to, from, sizes, count, attributes, indices, attribute_count);
            unseen(call, stream, "batch-copy", false);
        }
        fn cuMemcpy3DBatchAsync | cuMemcpy3DBatchAsync_ptsz: (
            count: usize, list: usize, failed: usize, flags: u64, stream: usize,
        ) after(call) {
            let _ = (count, list, failed, flags);
            unseen(call, stream, "batch-copy", false);
        }
        fn cuMemcpy3DBatchAsync_v2 | cuMemcpy3DBatchAsync_v2_ptsz: (
            count: usize, list: usize, flags: u64, stream: usize,
        ) after(call) {
            let _ = (count, list, flags);
            unseen(call, stream, "batch-copy", false);
        }
        fn cuMemcpyWithAttributesAsync | cuMemcpyWithAttributesAsync_ptsz: (
            to: u64, from: u64, size: usize, attributes: usize, stream: usize,
        ) after(call) {
            let _ = (to, from, size, attributes);
            unseen(call, stream, "batch-copy", false);
        }
        fn cuMemcpy3DWithAttributesAsync | cuMemcpy3DWithAttributesAsync_ptsz: (
            operation: usize, flags: u64, stream: usize,
        ) after(call) {
            let _ = (operation, flags);
            unseen(call, stream, "batch-copy", false);
        }
    }
}
