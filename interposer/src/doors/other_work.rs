//! Work that is neither a copy, a fill, a launch nor an allocation; of most of it the
//! accesses are not told.

use streamcheck_model::{BatchCopy, HostMemory, Region, SourceOrder};

use crate::call::Call;
use crate::hook::hooks;

hooks! { Runtime:
    /// Takes its place in its stream; shared memory is not seen into
    fn cudaGraphicsMapResources | cudaGraphicsMapResources_ptsz: (
        count: i32, resources: usize, stream: usize,
    ) after(call) {
        let _ = (count, resources);
        call.unseen_work(stream);
    }
    /// Takes its place in its stream; shared memory is not seen into
    fn cudaGraphicsUnmapResources | cudaGraphicsUnmapResources_ptsz: (
        count: i32, resources: usize, stream: usize,
    ) after(call) {
        let _ = (count, resources);
        call.unseen_work(stream);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    /// `CUmemDecompressParams` (cuda.h).
    #[repr(C)]
    struct Decompression {
        from_bytes: usize,
        to_bytes: usize,
        actual: usize,
        from: u64,
        to: u64,
        algorithm: u32,
        padding: [u8; 20],
    }

    const _: () = assert!(
        size_of::<Decompression>() == size_of::<cudarc::driver::sys::CUmemDecompressParams>()
    );

    /// # Safety
    /// `list` is that of a call that succeeded.
    unsafe fn decompressed(call: &Call, stream: usize, list: *const Decompression, count: usize) {
        let copies = (0..count).map(|index| {
            // SAFETY: the caller's promise.
            let one = unsafe { &*list.add(index) };
            BatchCopy {
                // How much is written only the data says: at least a byte.
                to: Region::linear(one.to, u64::from(one.to_bytes != 0)),
                from: Region::linear(one.from, one.from_bytes as u64),
                host: HostMemory::Unasked,
                order: SourceOrder::Stream,
            }
        });
        call.copied_together(stream, copies.collect());
    }

    hooks! { Driver:
        /// Reads each source and writes each destination, in stream order
        fn cuMemBatchDecompressAsync | cuMemBatchDecompressAsync_ptsz: (
            list: *const Decompression, count: usize, flags: u32, failed: usize, stream: usize,
        ) after(call) {
            let _ = (flags, failed);
            // SAFETY: the call succeeded with it.
            unsafe { decompressed(call, stream, list, count) };
        }
        /// Takes its place in its stream; arrays have no bytes in the model
        fn cuMemMapArrayAsync | cuMemMapArrayAsync_ptsz: (list: usize, count: u32, stream: usize) after(call) {
            let _ = (list, count);
            call.unseen_work(stream);
        }
        /// Takes its place in its stream; shared memory is not seen into
        fn cuGraphicsMapResources | cuGraphicsMapResources_ptsz: (
            count: u32, resources: usize, stream: usize,
        ) after(call) {
            let _ = (count, resources);
            call.unseen_work(stream);
        }
        /// Takes its place in its stream; shared memory is not seen into
        fn cuGraphicsUnmapResources | cuGraphicsUnmapResources_ptsz: (
            count: u32, resources: usize, stream: usize,
        ) after(call) {
            let _ = (count, resources);
            call.unseen_work(stream);
        }
    }
}
