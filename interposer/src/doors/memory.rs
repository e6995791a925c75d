//! Allocation and free.

use cudarc::runtime::sys::{cudaExtent, cudaPitchedPtr};
use streamcheck_model::{FreeKind, MemoryKind};

use super::libc_door;
use crate::call::{Call, Free};
use crate::hook::{Hook, hooks, written};
use crate::thread::Origin;
use crate::{coherence, guard, recorder};

/// An allocation of host memory through `real`, which takes its size. Where host memory is
/// guarded, it gets its pages for itself.
fn on_host(
    hook: &'static Hook,
    origin: Origin,
    kind: MemoryKind,
    out: *const u64,
    size: usize,
    real: impl Fn(usize) -> u32,
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        return real(size);
    };
    let mut asked = guard::rounded(size);
    let mut status = real(asked);
    if status != 0 && asked != size {
        asked = size;
        status = real(size);
    }
    if status == 0 {
        call.finish(|call| {
            // SAFETY: the call succeeded and wrote it.
            let address = unsafe { written(out) };
            call.allocated(address, size, kind);
            if guard::on() {
                recorder::allocated_whole(address, address.saturating_add(asked as u64));
                coherence::learn(call);
            }
        });
    }
    status
}

fn registered(call: &Call, address: u64, size: usize) {
    libc_door::watch(call, address, size);
    call.allocated(address, size, MemoryKind::Registered);
    if guard::on() {
        coherence::learn(call);
    }
}

/// An unregistration through `real`. Until it has succeeded, the memory is watched.
fn unregister(
    hook: &'static Hook,
    origin: Origin,
    address: u64,
    real: impl FnOnce() -> u32,
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        return real();
    };
    let begun = call.begin_free(|_| Free::new(address, FreeKind::Unregister));
    let status = real();
    if status == 0 {
        call.finish(|_| libc_door::unwatch(address));
    }
    if begun {
        call.end_free(status);
    }
    status
}

hooks! { Runtime:
    /// Memory that is allocated
    fn cudaMalloc: (out: *mut u64, size: usize) after(call) {
        // SAFETY: the call succeeded and wrote it.
        call.allocated(unsafe { written(out) }, size, MemoryKind::Device);
    }
    /// Memory that is allocated, with its padding
    fn cudaMallocPitch: (out: *mut u64, pitch: *mut usize, width: usize, height: usize) after(call) {
        let _ = width;
        // SAFETY: the call succeeded and wrote both.
        let (address, pitch) = unsafe { (written(out), written(pitch)) };
        call.allocated(address, pitch.saturating_mul(height), MemoryKind::Device);
    }
    /// Memory that is allocated, with its padding
    fn cudaMalloc3D: (out: *mut cudaPitchedPtr, extent: cudaExtent) after(call) {
        // SAFETY: the call succeeded and wrote it.
        let made = unsafe { *out };
        let size = made.pitch.saturating_mul(extent.height).saturating_mul(extent.depth);
        call.allocated(made.ptr as u64, size, MemoryKind::Device);
    }
    /// Managed memory
    fn cudaMallocManaged: (out: *mut u64, size: usize, flags: u32) whole(hook, real, origin) {
        on_host(hook, origin, MemoryKind::Managed, out, size, |size| real(out, size, flags))
    }
    /// Pinned memory
    fn cudaMallocHost: (out: *mut u64, size: usize) whole(hook, real, origin) {
        on_host(hook, origin, MemoryKind::Pinned, out, size, |size| real(out, size))
    }
    /// Pinned memory
    fn cudaHostAlloc: (out: *mut u64, size: usize, flags: u32) whole(hook, real, origin) {
        on_host(hook, origin, MemoryKind::Pinned, out, size, |size| real(out, size, flags))
    }
    /// Registered memory; the C library's frees of it are watched
    fn cudaHostRegister: (address: u64, size: usize, flags: u32) after(call) {
        let _ = flags;
        registered(call, address, size);
    }
    /// Memory that is valid in stream order only
    fn cudaMallocAsync | cudaMallocAsync_ptsz: (out: *mut u64, size: usize, stream: usize) after(call) {
        // SAFETY: the call succeeded and wrote it.
        call.allocated_on(stream, unsafe { written(out) }, size, 0);
    }
    /// Memory of that pool, valid in stream order only
    fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz: (
        out: *mut u64, size: usize, pool: usize, stream: usize,
    ) after(call) {
        // SAFETY: the call succeeded and wrote it.
        call.allocated_on(stream, unsafe { written(out) }, size, pool);
    }
    /// Frees; the host waits for the device, unless the memory is stream-ordered
    fn cudaFree: (address: u64) free(call) {
        let _ = call;
        Free::new(address, FreeKind::Sync)
    }
    /// Frees in stream order; nothing issued later may use the memory
    fn cudaFreeAsync | cudaFreeAsync_ptsz: (address: u64, stream: usize) free(call) {
        let _ = call;
        Free::on_stream(address, stream)
    }
    /// Frees pinned memory; the host waits for the device, which is not promised
    fn cudaFreeHost: (address: u64) free(call) {
        let _ = call;
        Free::new(address, FreeKind::Host)
    }
    /// The memory is registered no longer; the host waits for the device, which is not promised
    fn cudaHostUnregister: (address: u64) whole(hook, real, origin) {
        unregister(hook, origin, address, || real(address))
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

pub(crate) use driver::before_fork;

mod driver {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Sizes of what `cuMemMap` mapped, by address.
    static MAPPINGS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

    fn mappings() -> MutexGuard<'static, BTreeMap<u64, usize>> {
        MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The locks of this file, for a process that forks.
    pub(crate) fn before_fork() -> [crate::life::Held; 1] {
        [crate::life::hold(&MAPPINGS)]
    }

    /// An unmapping through `real`: it takes every mapping in its range.
    fn unmap(
        hook: &'static Hook,
        origin: Origin,
        address: u64,
        size: usize,
        real: impl FnOnce() -> u32,
    ) -> u32 {
        let Some(call) = Call::enter(hook, origin) else {
            return real();
        };
        let mut gone = Vec::new();
        // One free of a thread can be open at a time. The first is settled by the call's
        // outcome; the others are taken as made, and made again if the call fails.
        call.finish(|_| {
            let mut mappings = mappings();
            let range = address..address.saturating_add(size as u64);
            gone.extend(mappings.range(range).map(|(&start, &size)| (start, size)));
            for (start, _) in &gone {
                mappings.remove(start);
            }
        });
        let free = |address| call.begin_free(|_| Free::new(address, FreeKind::Unmap));
        for &(start, _) in gone.iter().filter(|(start, _)| *start != address) {
            if free(start) {
                call.end_free(0);
            }
        }
        let begun = free(address);
        let status = real();
        if begun {
            call.end_free(status);
        }
        if status != 0 {
            call.finish(|call| {
                for &(start, size) in &gone {
                    if start != address {
                        call.allocated(start, size, MemoryKind::Mapped);
                    }
                    mappings().insert(start, size);
                }
            });
        }
        status
    }

    hooks! { Driver:
        /// Memory that is allocated
        fn cuMemAlloc_v2: (out: *mut u64, size: usize) after(call) {
            // SAFETY: the call succeeded and wrote it.
            call.allocated(unsafe { written(out) }, size, MemoryKind::Device);
        }
        /// Memory that is allocated, with its padding
        fn cuMemAllocPitch_v2: (
            out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32,
        ) after(call) {
            let _ = (width, element);
            // SAFETY: the call succeeded and wrote both.
            let (address, pitch) = unsafe { (written(out), written(pitch)) };
            call.allocated(address, pitch.saturating_mul(height), MemoryKind::Device);
        }
        /// Managed memory
        fn cuMemAllocManaged: (out: *mut u64, size: usize, flags: u32) whole(hook, real, origin) {
            on_host(hook, origin, MemoryKind::Managed, out, size, |size| real(out, size, flags))
        }
        /// Pinned memory
        fn cuMemAllocHost_v2: (out: *mut u64, size: usize) whole(hook, real, origin) {
            on_host(hook, origin, MemoryKind::Pinned, out, size, |size| real(out, size))
        }
        /// Pinned memory
        fn cuMemHostAlloc: (out: *mut u64, size: usize, flags: u32) whole(hook, real, origin) {
            on_host(hook, origin, MemoryKind::Pinned, out, size, |size| real(out, size, flags))
        }
        /// Registered memory; the C library's frees of it are watched
        fn cuMemHostRegister_v2: (address: u64, size: usize, flags: u32) after(call) {
            let _ = flags;
            registered(call, address, size);
        }
        /// Memory that is valid in stream order only
        fn cuMemAllocAsync | cuMemAllocAsync_ptsz: (out: *mut u64, size: usize, stream: usize) after(call) {
            // SAFETY: the call succeeded and wrote it.
            call.allocated_on(stream, unsafe { written(out) }, size, 0);
        }
        /// Memory of that pool, valid in stream order only
        fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz: (
            out: *mut u64, size: usize, pool: usize, stream: usize,
        ) after(call) {
            // SAFETY: the call succeeded and wrote it.
            call.allocated_on(stream, unsafe { written(out) }, size, pool);
        }
        /// A mapping; a later one may lie next to it
        fn cuMemMap: (address: u64, size: usize, offset: usize, handle: u64, flags: u64) after(call) {
            let _ = (offset, handle, flags);
            mappings().insert(address, size);
            call.allocated(address, size, MemoryKind::Mapped);
        }
        /// Frees; the host waits for the device, unless the memory is stream-ordered
        fn cuMemFree_v2: (address: u64) free(call) {
            let _ = call;
            Free::new(address, FreeKind::Sync)
        }
        /// Frees in stream order; nothing issued later may use the memory
        fn cuMemFreeAsync | cuMemFreeAsync_ptsz: (address: u64, stream: usize) free(call) {
            let _ = call;
            Free::on_stream(address, stream)
        }
        /// Frees pinned memory; the host waits for the device, which is not promised
        fn cuMemFreeHost: (address: u64) free(call) {
            let _ = call;
            Free::new(address, FreeKind::Host)
        }
        /// The memory is registered no longer; the host waits for the device, which is not promised
        fn cuMemHostUnregister: (address: u64) whole(hook, real, origin) {
            unregister(hook, origin, address, || real(address))
        }
        /// Frees every mapping in the range; nothing is waited for
        fn cuMemUnmap: (address: u64, size: usize) whole(hook, real, origin) {
            unmap(hook, origin, address, size, || real(address, size))
        }
    }
}
