//! Stream-ordered allocation and memory pools.

use crate::abi::{AccessDesc, In, Location, Out, PoolProps, Status};
use crate::error::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::dma;
use crate::sim::memory::Kind;
use crate::sim::pool::Pool;
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::State;
use std::ffi::c_void;

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: u32 = 1;
const DEVICE: u32 = 1;

/// Allocates for `stream` from `pool`, or from the current pool of the stream's device.
fn allocate(
    pointer: Out<u64>,
    size: usize,
    pool: Option<u64>,
    stream: u64,
    per_thread: bool,
) -> Status {
    session(|s| {
        pointer.wanted()?;
        let lane = s.lane(stream, per_thread)?;
        let handle = match pool {
            Some(handle) => handle,
            None => {
                let device = s.context(lane.context)?.1.device;
                s.device(device)?.current_pool
            }
        };
        let (pool, of) = s.pool(handle)?;
        let device = of.device;
        if let Some(capture) = s.capturing(lane)? {
            let address = s.capture_allocation(capture, lane, size as u64, device)?;
            return pointer.put(address);
        }
        let (address, after) = s.allocate_pooled(pool, size as u64, lane.id, lane.context)?;
        let poison = move || dma::poison(address, size as u64);
        s.submit(
            lane,
            after.into_iter().collect(),
            Work::Device(Box::new(poison)),
        );
        pointer.put(address)?;
        s.submitted();
        Ok(())
    })
}

fn free(address: u64, stream: u64, per_thread: bool) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        if let Some(capture) = s.capturing(lane)? {
            // As `cuda.h` says: it "must therefore be passed the address of a graph allocation".
            return s.capture_free(capture, lane, address);
        }
        let freed = s.free_graph_memory(address, |s| {
            s.submit(lane, Vec::new(), Work::Marker);
            Some(s.sched.past(lane.id))
        });
        if let Some(freed) = freed {
            freed?;
            s.submitted();
            return Ok(());
        }
        let allocation = s.forget(address, |kind| {
            matches!(kind, Kind::Pooled(_) | Kind::Device | Kind::Managed)
        })?;
        if matches!(allocation.kind, Kind::Pooled(_)) {
            s.submit(lane, Vec::new(), Work::Marker);
            let freed = s.sched.past(lane.id);
            s.release(address, &allocation, Some(freed));
        } else {
            // The address stays taken until the stream gets there.
            let mut leaving = allocation;
            leaving.kind = Kind::Leaving;
            s.allocations.insert(address, leaving);
            s.submit(lane, Vec::new(), Work::Release(address));
        }
        s.submitted();
        Ok(())
    })
}

/// A location that names one of the devices.
fn device_of(location: Location, devices: usize) -> Status<i32> {
    match location.kind {
        DEVICE if (0..devices as i32).contains(&location.id) => Ok(location.id),
        DEVICE => Err(INVALID_DEVICE),
        _ => Err(NOT_SUPPORTED),
    }
}

/// The device that a location names where pools are asked for by kind of allocation.
fn pooled(location: In<Location>, kind: u32, devices: usize) -> Status<i32> {
    match kind {
        PINNED => device_of(location.get()?, devices),
        _ => Err(NOT_SUPPORTED),
    }
}

fn set_current(s: &mut State, device: i32, pool: u64) -> Status {
    s.device(device)?;
    if s.pool(pool)?.1.device != device {
        return Err(INVALID_VALUE);
    }
    s.device(device)?.current_pool = pool;
    Ok(())
}

api! {
    "cuMemAllocAsync" 11020 => cuMemAllocAsync / cuMemAllocAsync_ptsz |per_thread|
                               (pointer: Out<u64>, size: usize, stream: u64) {
        allocate(pointer, size, None, stream, per_thread)
    }
    "cuMemAllocFromPoolAsync" 11020 => cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz |per_thread|
                                       (pointer: Out<u64>, size: usize, pool: u64, stream: u64) {
        allocate(pointer, size, Some(pool), stream, per_thread)
    }
    "cuMemFreeAsync" 11020 => cuMemFreeAsync / cuMemFreeAsync_ptsz |per_thread| (address: u64, stream: u64) {
        free(address, stream, per_thread)
    }

    "cuDeviceGetDefaultMemPool" 11020 => cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) {
        session(|s| pool.put(s.device(device)?.default_pool))
    }
    "cuDeviceGetMemPool" 11020 => cuDeviceGetMemPool(pool: Out<u64>, device: i32) {
        session(|s| pool.put(s.device(device)?.current_pool))
    }
    "cuDeviceSetMemPool" 11020 => cuDeviceSetMemPool(device: i32, pool: u64) {
        session(|s| set_current(s, device, pool))
    }
    "cuMemGetDefaultMemPool" 13000 => cuMemGetDefaultMemPool(pool: Out<u64>, location: In<Location>, kind: u32) {
        session(|s| {
            let device = pooled(location, kind, s.devices.len())?;
            pool.put(s.device(device)?.default_pool)
        })
    }
    "cuMemGetMemPool" 13000 => cuMemGetMemPool(pool: Out<u64>, location: In<Location>, kind: u32) {
        session(|s| {
            let device = pooled(location, kind, s.devices.len())?;
            pool.put(s.device(device)?.current_pool)
        })
    }
    "cuMemSetMemPool" 13000 => cuMemSetMemPool(location: In<Location>, kind: u32, pool: u64) {
        session(|s| {
            let device = pooled(location, kind, s.devices.len())?;
            set_current(s, device, pool)
        })
    }
    "cuMemPoolCreate" 11020 => cuMemPoolCreate(pool: Out<u64>, props: In<PoolProps>) {
        session(|s| {
            pool.wanted()?;
            let props = props.get()?;
            if props.alloc_type != PINNED {
                return Err(INVALID_VALUE);
            }
            let device = device_of(props.location, s.devices.len())?;
            let max_size = usize::from_ne_bytes(props.rest[..8].try_into().unwrap_or_default());
            let handle = s.add_pool(Pool::new(device, max_size as u64));
            pool.put(handle)
        })
    }
    "cuMemPoolDestroy" 11020 => cuMemPoolDestroy(handle: u64) {
        session(|s| {
            let (id, _) = s.pool(handle)?;
            for device in &mut s.devices {
                if device.default_pool == handle {
                    return Err(INVALID_VALUE);
                }
                if device.current_pool == handle {
                    device.current_pool = device.default_pool;
                }
            }
            s.pool_handles.remove(handle);
            if let Some(pool) = s.pools.get_mut(&id) {
                pool.destroyed = true;
            }
            s.trim_pool(id, 0);
            Ok(())
        })
    }
    "cuMemPoolTrimTo" 11020 => cuMemPoolTrimTo(handle: u64, keep: usize) {
        session(|s| {
            let (id, _) = s.pool(handle)?;
            s.trim_pool(id, keep as u64);
            Ok(())
        })
    }
    "cuMemPoolGetAttribute" 11020 => cuMemPoolGetAttribute(handle: u64, which: u32, value: *mut c_void) {
        session(|s| {
            let (_, pool) = s.pool(handle)?;
            let word = Out(value.cast::<i32>());
            let number = Out(value.cast::<u64>());
            match which {
                1 => word.put(i32::from(pool.follow_events)),
                2 => word.put(i32::from(pool.opportunistic)),
                3 => word.put(i32::from(pool.internal_dependencies)),
                4 => number.put(pool.release_threshold),
                5 => number.put(pool.reserved),
                6 => number.put(pool.reserved_high),
                7 => number.put(pool.used),
                8 => number.put(pool.used_high),
                _ => Err(INVALID_VALUE),
            }
        })
    }
    "cuMemPoolSetAttribute" 11020 => cuMemPoolSetAttribute(handle: u64, which: u32, value: *const c_void) {
        session(|s| {
            let (_, pool) = s.pool(handle)?;
            let word = || In(value.cast::<i32>()).get();
            let number = || In(value.cast::<u64>()).get();
            match which {
                1 => pool.follow_events = word()? != 0,
                2 => pool.opportunistic = word()? != 0,
                3 => pool.internal_dependencies = word()? != 0,
                4 => pool.release_threshold = number()?,
                // The high-water marks can only be reset.
                6 if number()? == 0 => pool.reserved_high = pool.reserved,
                8 if number()? == 0 => pool.used_high = pool.used,
                _ => return Err(INVALID_VALUE),
            }
            Ok(())
        })
    }
    "cuMemPoolSetAccess" 11020 => cuMemPoolSetAccess(handle: u64, map: In<AccessDesc>, count: usize) {
        session(|s| {
            let devices = s.devices.len();
            let (_, pool) = s.pool(handle)?;
            let changes: Status<Vec<(i32, u32)>> = (0..count)
                .map(|index| {
                    let AccessDesc { location, flags } = map.at(index)?;
                    let device = device_of(location, devices)?;
                    // "The memory must always be accessible from the device that it was created on."
                    let allowed = matches!(flags, 0 | 1 | 3) && (device != pool.device || flags == 3);
                    if allowed { Ok((device, flags)) } else { Err(INVALID_VALUE) }
                })
                .collect();
            pool.access.extend(changes?);
            Ok(())
        })
    }
    "cuMemPoolGetAccess" 11020 => cuMemPoolGetAccess(flags: Out<u32>, handle: u64, location: In<Location>) {
        session(|s| {
            let device = device_of(location.get()?, s.devices.len())?;
            flags.put(s.pool(handle)?.1.access(device))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUmemPoolProps_st as Theirs;
    use std::mem::{offset_of, size_of};

    #[test]
    fn pool_props_are_laid_out_as_nvidias() {
        assert_eq!(size_of::<PoolProps>(), size_of::<Theirs>());
        assert_eq!(
            offset_of!(PoolProps, location),
            offset_of!(Theirs, location)
        );
        assert_eq!(
            offset_of!(PoolProps, rest),
            offset_of!(Theirs, win32SecurityAttributes) + 8
        );
    }
}
