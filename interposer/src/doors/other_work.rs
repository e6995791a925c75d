//! Work whose accesses are not told, and attributes of memory that change how others
//! are: what is neither a copy, a fill, a launch nor an allocation.

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
    use crate::{capture, driver, sync_memops};

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

    /// The allocation around an address: its first byte and the one after its last.
    fn range(address: u64) -> (u64, u64) {
        type GetRange = unsafe extern "C-unwind" fn(*mut u64, *mut usize, u64) -> u32;
        let (mut base, mut size) = (0, 0);
        if let Some(get) = driver::unhooked(c"cuMemGetAddressRange_v2")
            && !capture::any()
        {
            // SAFETY: the type is cuda.h's; it writes both.
            let status = unsafe {
                core::mem::transmute::<*const (), GetRange>(get)(&mut base, &mut size, address)
            };
            if status == 0 && size != 0 {
                return (base, base.saturating_add(size as u64));
            }
        }
        (address, address.saturating_add(1))
    }

    hooks! { Driver:
        /// Synchronous copies and fills of that memory wait, if it sets SYNC_MEMOPS
        fn cuPointerSetAttribute: (value: *const u32, attribute: u32, address: u64) after(call) {
            const SYNC_MEMOPS: u32 = 6;
            let _ = call;
            if attribute == SYNC_MEMOPS && !value.is_null() {
                let (start, end) = range(address);
                // SAFETY: the call succeeded with a value of this attribute, a boolean
                // of four bytes.
                sync_memops::memory(start, end, unsafe { *value } != 0);
            }
        }
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
