//! Managed memory: where it lies is of no account, what is discarded is.

use cudarc::driver::sys::CUmemLocation;
use cudarc::runtime::sys::cudaMemLocation;
use streamcheck_model::Region;

use crate::call::Call;
use crate::hook::hooks;

// It fits in a register.
const _: () = assert!(size_of::<cudaMemLocation>() == 8 && size_of::<CUmemLocation>() == 8);

/// Discarded bytes hold anything afterwards, as if they had been written.
///
/// # Safety
/// The lists are the `count` ranges of a call that succeeded.
unsafe fn discarded(
    call: &Call,
    stream: usize,
    starts: *const u64,
    sizes: *const usize,
    count: usize,
) {
    for index in 0..count {
        // SAFETY: the caller's promise.
        let (start, size) = unsafe { (starts.add(index).read(), sizes.add(index).read()) };
        call.filled(stream, Region::linear(start, size as u64), false);
    }
}

hooks! { Runtime:
    // CUDA 13's entry point of this name takes what `_v2` takes: a location, which is
    // passed in one register as a device's number is, and flags before the stream.
    /// Takes its place in its stream
    fn cudaMemPrefetchAsync | cudaMemPrefetchAsync_ptsz: (
        address: u64, count: usize, third: u64, fourth: usize, fifth: usize,
    ) after(call) {
        let _ = (address, count, third);
        let newer = crate::provider::runtime_version().is_none_or(|version| version >= 13000);
        call.unseen_work(if newer { fifth } else { fourth });
    }
    /// Takes its place in its stream
    fn cudaMemPrefetchAsync_v2 | cudaMemPrefetchAsync_v2_ptsz: (
        address: u64, count: usize, location: cudaMemLocation, flags: u32, stream: usize,
    ) after(call) {
        let _ = (address, count, location, flags);
        call.unseen_work(stream);
    }
    /// Takes its place in its stream
    fn cudaMemPrefetchBatchAsync | cudaMemPrefetchBatchAsync_ptsz: (
        starts: usize, sizes: usize, count: usize, locations: usize, indices: usize, location_count: usize,
        flags: u64, stream: usize,
    ) after(call) {
        let _ = (starts, sizes, count, locations, indices, location_count, flags);
        call.unseen_work(stream);
    }
    /// Writes each range, whose contents are undefined afterwards
    fn cudaMemDiscardBatchAsync | cudaMemDiscardBatchAsync_ptsz: (
        starts: *const u64, sizes: *const usize, count: usize, flags: u64, stream: usize,
    ) after(call) {
        let _ = flags;
        // SAFETY: the call succeeded with them.
        unsafe { discarded(call, stream, starts, sizes, count) };
    }
    /// Writes each range, whose contents are undefined afterwards
    fn cudaMemDiscardAndPrefetchBatchAsync | cudaMemDiscardAndPrefetchBatchAsync_ptsz: (
        starts: *const u64, sizes: *const usize, count: usize, locations: usize, indices: usize,
        location_count: usize, flags: u64, stream: usize,
    ) after(call) {
        let _ = (locations, indices, location_count, flags);
        // SAFETY: the call succeeded with them.
        unsafe { discarded(call, stream, starts, sizes, count) };
    }
    /// Takes its place in its stream
    fn cudaStreamAttachMemAsync | cudaStreamAttachMemAsync_ptsz: (
        stream: usize, address: u64, length: usize, flags: u32,
    ) after(call) {
        let _ = (address, length, flags);
        call.unseen_work(stream);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// Takes its place in its stream
        fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz: (
            address: u64, count: usize, device: i32, stream: usize,
        ) after(call) {
            let _ = (address, count, device);
            call.unseen_work(stream);
        }
        /// Takes its place in its stream
        fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz: (
            address: u64, count: usize, location: CUmemLocation, flags: u32, stream: usize,
        ) after(call) {
            let _ = (address, count, location, flags);
            call.unseen_work(stream);
        }
        /// Takes its place in its stream
        fn cuMemPrefetchBatchAsync | cuMemPrefetchBatchAsync_ptsz: (
            starts: usize, sizes: usize, count: usize, locations: usize, indices: usize, location_count: usize,
            flags: u64, stream: usize,
        ) after(call) {
            let _ = (starts, sizes, count, locations, indices, location_count, flags);
            call.unseen_work(stream);
        }
        /// Writes each range, whose contents are undefined afterwards
        fn cuMemDiscardBatchAsync | cuMemDiscardBatchAsync_ptsz: (
            starts: *const u64, sizes: *const usize, count: usize, flags: u64, stream: usize,
        ) after(call) {
            let _ = flags;
            // SAFETY: the call succeeded with them.
            unsafe { discarded(call, stream, starts, sizes, count) };
        }
        /// Writes each range, whose contents are undefined afterwards
        fn cuMemDiscardAndPrefetchBatchAsync | cuMemDiscardAndPrefetchBatchAsync_ptsz: (
            starts: *const u64, sizes: *const usize, count: usize, locations: usize, indices: usize,
            location_count: usize, flags: u64, stream: usize,
        ) after(call) {
            let _ = (locations, indices, location_count, flags);
            // SAFETY: the call succeeded with them.
            unsafe { discarded(call, stream, starts, sizes, count) };
        }
        /// Takes its place in its stream
        fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz: (
            stream: usize, address: u64, length: usize, flags: u32,
        ) after(call) {
            let _ = (address, length, flags);
            call.unseen_work(stream);
        }
    }
}
