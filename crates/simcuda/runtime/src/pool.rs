//! Stream-ordered allocation and memory pools.

use crate::abi::{AccessDesc, In, Location, Out, PoolProps};
use crate::device::ready;
use crate::driver::driver;
use crate::memory::allocate;
use std::ffi::c_void;

export! {
    cudaMallocAsync / cudaMallocAsync_ptsz |per_thread| (pointer: Out<u64>, size: usize, stream: u64) {
        allocate(pointer, size, || ready()?.cuMemAllocAsync(per_thread, pointer, size, stream))
    }
    cudaMallocFromPoolAsync / cudaMallocFromPoolAsync_ptsz |per_thread|
        (pointer: Out<u64>, size: usize, pool: u64, stream: u64) {
        allocate(pointer, size, || ready()?.cuMemAllocFromPoolAsync(per_thread, pointer, size, pool, stream))
    }
    cudaFreeAsync / cudaFreeAsync_ptsz |per_thread| (address: u64, stream: u64) {
        ready()?.cuMemFreeAsync(per_thread, address, stream)
    }
    cudaDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) {
        driver()?.cuDeviceGetDefaultMemPool(false, pool, device)
    }
    cudaDeviceGetMemPool(pool: Out<u64>, device: i32) { driver()?.cuDeviceGetMemPool(false, pool, device) }
    cudaDeviceSetMemPool(device: i32, pool: u64) { driver()?.cuDeviceSetMemPool(false, device, pool) }
    cudaMemGetDefaultMemPool(pool: Out<u64>, location: In<Location>, kind: u32) {
        driver()?.cuMemGetDefaultMemPool(false, pool, location, kind)
    }
    cudaMemGetMemPool(pool: Out<u64>, location: In<Location>, kind: u32) {
        driver()?.cuMemGetMemPool(false, pool, location, kind)
    }
    cudaMemSetMemPool(location: In<Location>, kind: u32, pool: u64) {
        driver()?.cuMemSetMemPool(false, location, kind, pool)
    }
    cudaMemPoolCreate(pool: Out<u64>, props: In<PoolProps>) { ready()?.cuMemPoolCreate(false, pool, props) }
    cudaMemPoolDestroy(pool: u64) { ready()?.cuMemPoolDestroy(false, pool) }
    cudaMemPoolTrimTo(pool: u64, keep: usize) { ready()?.cuMemPoolTrimTo(false, pool, keep) }
    cudaMemPoolGetAttribute(pool: u64, which: u32, value: *mut c_void) {
        ready()?.cuMemPoolGetAttribute(false, pool, which, value)
    }
    cudaMemPoolSetAttribute(pool: u64, which: u32, value: *mut c_void) {
        ready()?.cuMemPoolSetAttribute(false, pool, which, value)
    }
    cudaMemPoolSetAccess(pool: u64, map: In<AccessDesc>, count: usize) {
        ready()?.cuMemPoolSetAccess(false, pool, map, count)
    }
    cudaMemPoolGetAccess(flags: Out<u32>, pool: u64, location: In<Location>) {
        ready()?.cuMemPoolGetAccess(false, flags, pool, location)
    }
}
