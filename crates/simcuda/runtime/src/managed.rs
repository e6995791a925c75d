//! Managed memory.

use crate::abi::{In, Location, Out};
use crate::device::ready;
use crate::error::INVALID_VALUE;

export! {
    cudaMallocManaged(pointer: Out<u64>, size: usize, flags: u32) {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        ready()?.cuMemAllocManaged(false, pointer, size, flags)
    }
    cudaMemAdvise(address: u64, length: usize, advice: u32, location: Location) {
        ready()?.cuMemAdvise(false, address, length, advice, location)
    }
    cudaMemPrefetchAsync / cudaMemPrefetchAsync_ptsz |per_thread|
        (address: u64, length: usize, location: Location, flags: u32, stream: u64) {
        ready()?.cuMemPrefetchAsync(per_thread, address, length, location, flags, stream)
    }
    cudaStreamAttachMemAsync / cudaStreamAttachMemAsync_ptsz |per_thread|
        (stream: u64, address: u64, length: usize, flags: u32) {
        ready()?.cuStreamAttachMemAsync(per_thread, stream, address, length, flags)
    }
    cudaMemPrefetchBatchAsync / cudaMemPrefetchBatchAsync_ptsz |per_thread|
        (addresses: In<u64>, sizes: In<usize>, count: usize, locations: In<Location>, firsts: In<usize>,
         locations_count: usize, flags: u64, stream: u64) {
        ready()?.cuMemPrefetchBatchAsync(per_thread, addresses, sizes, count, locations, firsts, locations_count,
                                         flags, stream)
    }
    cudaMemDiscardBatchAsync / cudaMemDiscardBatchAsync_ptsz |per_thread|
        (addresses: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: u64) {
        ready()?.cuMemDiscardBatchAsync(per_thread, addresses, sizes, count, flags, stream)
    }
    cudaMemDiscardAndPrefetchBatchAsync / cudaMemDiscardAndPrefetchBatchAsync_ptsz |per_thread|
        (addresses: In<u64>, sizes: In<usize>, count: usize, locations: In<Location>, firsts: In<usize>,
         locations_count: usize, flags: u64, stream: u64) {
        ready()?.cuMemDiscardAndPrefetchBatchAsync(per_thread, addresses, sizes, count, locations, firsts,
                                                   locations_count, flags, stream)
    }
}
