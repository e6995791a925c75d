//! Allocation, pinned host memory, and what a pointer is.

use crate::abi::{In, Out, Status};
use crate::error::{
    HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, NOT_SUPPORTED,
};
use crate::sim::memory::{Kind, Registered};
use crate::sim::session::{Session, session};
use crate::sim::state::{DEVICE_MEMORY, State};

/// What `cuMemAllocPitch` pads rows to.
const PITCH: usize = 512;

/// Waits for everything on a device, as freeing does in practice.
pub(super) fn synchronize_device(s: &mut Session, device: i32) {
    let streams = s.streams_of(|_, context| context.device == device);
    s.run_until(|state| streams.iter().all(|&stream| state.sched.is_idle(stream)));
}

fn free_device(s: &mut Session, address: u64) -> Status {
    s.safe()?;
    if let Some(freed) = s.free_graph_memory(address, |_| None) {
        return freed;
    }
    let freeable = |kind| {
        matches!(
            kind,
            Kind::Device | Kind::Managed | Kind::Pooled(_) | Kind::Imported
        )
    };
    // Taken out first: while this call waits, another thread's free of the same pointer must fail.
    let allocation = s.forget(address, freeable)?;
    // A plain free of a pool's memory waits for nothing: the driver assumes that all uses are complete.
    if !matches!(allocation.kind, Kind::Pooled(_)) {
        synchronize_device(s, allocation.device);
    }
    s.release(address, &allocation, None);
    if let Kind::Pooled(pool) = allocation.kind
        && s.pools.get(&pool).is_some_and(|pool| pool.destroyed)
    {
        s.trim_pool(pool, 0);
    }
    Ok(())
}

fn host_alloc(pointer: Out<u64>, size: usize, flags: u32) -> Status {
    session(|s| {
        pointer.wanted()?;
        s.safe()?;
        if flags & !7 != 0 {
            return Err(INVALID_VALUE);
        }
        let address = s.allocate_host(size as u64, flags)?;
        pointer.put(address)
    })
}

fn host_register(address: u64, size: usize, flags: u32) -> Status {
    session(|s| {
        let (context, _) = s.context(0)?;
        s.safe()?;
        let size = size as u64;
        let end = address
            .checked_add(size)
            .filter(|_| address != 0 && size != 0)
            .ok_or(INVALID_VALUE)?;
        if flags & !15 != 0 {
            return Err(INVALID_VALUE);
        }
        let before = s.registered.range(..end).next_back();
        if before.is_some_and(|(&base, registered)| base + registered.size > address)
            || pinned(s, address).is_ok()
        {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        s.registered.insert(
            address,
            Registered {
                size,
                flags,
                context,
            },
        );
        Ok(())
    })
}

/// The base, size and flags of pinned host memory at `address`.
fn pinned(s: &State, address: u64) -> Status<(u64, u64, u32)> {
    if let Some((base, allocation)) = s.allocation(address)
        && let Kind::Host(flags) = allocation.kind
    {
        return Ok((base, allocation.size, flags));
    }
    let (base, registered) = s.registration(address).ok_or(INVALID_VALUE)?;
    Ok((base, registered.size, registered.flags))
}

/// `CUpointer_attribute` values by which a pointer is described.
struct Pointer {
    context: u64,
    /// `CU_MEMORYTYPE_HOST` is 1, `CU_MEMORYTYPE_DEVICE` 2.
    memory_type: u32,
    host: bool,
    managed: bool,
    device: i32,
    base: u64,
    size: u64,
    id: u64,
    pool: u64,
}

fn pointer(s: &State, address: u64) -> Option<Pointer> {
    if let Some((base, allocation)) = s.allocation(address) {
        let managed = allocation.kind == Kind::Managed;
        let host = matches!(allocation.kind, Kind::Host(_));
        let pool = match allocation.kind {
            Kind::Pooled(id) => s.pools.get(&id).map_or(0, |pool| pool.handle),
            _ => 0,
        };
        return Some(Pointer {
            context: allocation.context,
            memory_type: if host { 1 } else { 2 },
            host: host || managed,
            managed,
            device: allocation.device,
            base,
            size: allocation.size,
            id: allocation.id,
            pool,
        });
    }
    let plain = |context, memory_type, device, base, size| Pointer {
        context,
        memory_type,
        host: memory_type == 1,
        managed: false,
        device,
        base,
        size,
        id: base,
        pool: 0,
    };
    if let Some((base, mapping)) = s.mapping(address) {
        return Some(plain(0, 2, mapping.device, base, mapping.size));
    }
    let (base, registered) = s.registration(address)?;
    let device = s
        .contexts
        .get(registered.context)
        .map_or(0, |context| context.device);
    Some(plain(registered.context, 1, device, base, registered.size))
}

/// Writes one attribute of a known pointer.
fn put_attribute(out: *mut u8, which: u32, address: u64, pointer: &Pointer) -> Status {
    let number = |value: u64| Out(out.cast::<u64>()).put(value);
    let word = |value: u32| Out(out.cast::<u32>()).put(value);
    match which {
        1 => number(pointer.context),
        2 => word(pointer.memory_type),
        3 => number(address),
        4 if pointer.host => number(address),
        6 => Out(out.cast::<u32>()).put(0),
        7 => number(pointer.id),
        8 => Out(out.cast::<u8>()).put(u8::from(pointer.managed)),
        9 => word(pointer.device as u32),
        10 => Out(out.cast::<u8>()).put(0),
        11 => number(pointer.base),
        12 => number(pointer.size),
        13 => Out(out.cast::<u8>()).put(1),
        14 => number(0),
        15 => Out(out.cast::<u8>()).put(0),
        16 => word(3),
        17 => number(pointer.pool),
        18 => number(pointer.size),
        19 => number(pointer.base),
        20 => number(pointer.id),
        _ => Err(INVALID_VALUE),
    }
}

/// What the plural query says of a pointer that CUDA does not know: null, and no device.
fn put_unknown(out: *mut u8, which: u32) -> Status {
    match which {
        2 | 6 | 16 => Out(out.cast::<u32>()).put(0),
        8 | 10 | 13 | 15 => Out(out.cast::<u8>()).put(0),
        9 => Out(out.cast::<i32>()).put(-2),
        1 | 3 | 4 | 5 | 7 | 11 | 12 | 14 | 17..=20 => Out(out.cast::<u64>()).put(0),
        _ => Err(INVALID_VALUE),
    }
}

api! {
    "cuMemAlloc" 3020 => cuMemAlloc_v2(pointer: Out<u64>, size: usize) {
        session(|s| {
            pointer.wanted()?;
            s.safe()?;
            let address = s.allocate(size as u64, Kind::Device)?;
            pointer.put(address)
        })
    }
    "cuMemAllocPitch" 3020 => cuMemAllocPitch_v2(pointer: Out<u64>, pitch: Out<usize>, width: usize, height: usize,
                                                element: u32) {
        session(|s| {
            pointer.wanted()?;
            pitch.wanted()?;
            s.safe()?;
            let row = width.checked_next_multiple_of(PITCH).filter(|_| matches!(element, 4 | 8 | 16)).ok_or(INVALID_VALUE)?;
            let size = row.checked_mul(height).ok_or(INVALID_VALUE)?;
            let address = s.allocate(size as u64, Kind::Device)?;
            pitch.put(row)?;
            pointer.put(address)
        })
    }
    "cuMemAllocManaged" 6000 => cuMemAllocManaged(pointer: Out<u64>, size: usize, flags: u32) {
        session(|s| {
            pointer.wanted()?;
            s.safe()?;
            if !matches!(flags & 3, 1 | 2) || flags & !7 != 0 {
                return Err(INVALID_VALUE);
            }
            let address = s.allocate(size as u64, Kind::Managed)?;
            pointer.put(address)
        })
    }
    "cuMemFree" 3020 => cuMemFree_v2(address: u64) {
        if address == 0 {
            return Ok(());
        }
        session(|s| free_device(s, address))
    }
    "cuMemGetInfo" 3020 => cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        session(|s| {
            let device = s.current_device()?;
            let used = s.device(device)?.used;
            free.put((DEVICE_MEMORY - used) as usize)?;
            total.put(DEVICE_MEMORY as usize)
        })
    }
    "cuMemGetAddressRange" 3020 => cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) {
        session(|s| {
            let (start, allocation) = s.allocation(address).ok_or(crate::error::NOT_FOUND)?;
            base.put_if_wanted(start);
            size.put_if_wanted(allocation.size as usize);
            Ok(())
        })
    }

    "cuMemAllocHost" 3020 => cuMemAllocHost_v2(pointer: Out<u64>, size: usize) { host_alloc(pointer, size, 0) }
    "cuMemHostAlloc" 2020 => cuMemHostAlloc(pointer: Out<u64>, size: usize, flags: u32) {
        host_alloc(pointer, size, flags)
    }
    "cuMemFreeHost" 2000 => cuMemFreeHost(address: u64) {
        if address == 0 {
            return Ok(());
        }
        session(|s| {
            s.safe()?;
            let allocation = s.forget(address, |kind| matches!(kind, Kind::Host(_)))?;
            synchronize_device(s, allocation.device);
            s.release(address, &allocation, None);
            Ok(())
        })
    }
    "cuMemHostRegister" 4000 => cuMemHostRegister(address: u64, size: usize, flags: u32) {
        host_register(address, size, flags)
    }
    "cuMemHostRegister" 6050 => cuMemHostRegister_v2(address: u64, size: usize, flags: u32) {
        host_register(address, size, flags)
    }
    "cuMemHostUnregister" 4000 => cuMemHostUnregister(address: u64) {
        session(|s| {
            s.context(0)?;
            s.safe()?;
            let registered = s.registered.remove(&address).ok_or(HOST_MEMORY_NOT_REGISTERED)?;
            let device = s.contexts.get(registered.context).map_or(0, |context| context.device);
            synchronize_device(s, device);
            Ok(())
        })
    }
    "cuMemHostGetDevicePointer" 3020 => cuMemHostGetDevicePointer_v2(pointer: Out<u64>, address: u64, flags: u32) {
        session(|s| {
            pinned(s, address)?;
            if flags != 0 { Err(INVALID_VALUE) } else { pointer.put(address) }
        })
    }
    "cuMemHostGetFlags" 2030 => cuMemHostGetFlags(flags: Out<u32>, address: u64) {
        session(|s| flags.put(pinned(s, address)?.2))
    }

    "cuPointerGetAttribute" 4000 => cuPointerGetAttribute(out: *mut u8, which: u32, address: u64) {
        session(|s| put_attribute(out, which, address, &pointer(s, address).ok_or(INVALID_VALUE)?))
    }
    "cuPointerGetAttributes" 7000 => cuPointerGetAttributes(count: u32, which: In<u32>, out: In<*mut u8>, address: u64) {
        session(|s| {
            let pointer = pointer(s, address);
            for index in 0..count as usize {
                let (which, out) = (which.at(index)?, out.at(index)?);
                match &pointer {
                    // A host pointer that there is none of is null here, no error.
                    Some(pointer) if which != 4 || pointer.host => put_attribute(out, which, address, pointer)?,
                    _ => put_unknown(out, which)?,
                }
            }
            Ok(())
        })
    }
    "cuPointerSetAttribute" 6000 => cuPointerSetAttribute(value: In<u32>, which: u32, address: u64) {
        session(|s| {
            pointer(s, address).ok_or(INVALID_VALUE)?;
            value.get()?;
            // Synchronous memory operations are the only settable attribute, and ours wait or not as documented.
            if which == 6 { Err(NOT_SUPPORTED) } else { Err(INVALID_VALUE) }
        })
    }
}
