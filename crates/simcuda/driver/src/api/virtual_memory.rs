//! Virtual memory management: reserved addresses, physical memory, mappings.

use super::memory::synchronize_device;
use crate::abi::{AccessDesc, In, Location, Out, Status};
use crate::error::{INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY};
use crate::sim::mapping::map;
use crate::sim::memory::{Mapping, Physical};
use crate::sim::session::session;
use crate::sim::state::GRANULARITY;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AllocationProp {
    kind: u32,
    handle_types: u32,
    location: Location,
    security: u64,
    flags: [u8; 8],
}

fn whole_granules(sizes: &[u64]) -> Status {
    if sizes.iter().all(|size| size.is_multiple_of(GRANULARITY)) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

api! {
    "cuMemGetAllocationGranularity" 10020 => cuMemGetAllocationGranularity(granularity: Out<usize>,
                                                                          prop: In<AllocationProp>, _option: u32) {
        prop.get()?;
        granularity.put(GRANULARITY as usize)
    }
    "cuMemAddressReserve" 10020 => cuMemAddressReserve(pointer: Out<u64>, size: usize, alignment: usize, _hint: u64,
                                                       flags: u64) {
        session(|s| {
            pointer.wanted()?;
            whole_granules(&[size as u64])?;
            if size == 0 || flags != 0 || alignment as u64 > GRANULARITY {
                return Err(INVALID_VALUE);
            }
            let address = s.spaces.take(size as u64).ok_or(OUT_OF_MEMORY)?;
            s.reservations.insert(address, size as u64);
            pointer.put(address)
        })
    }
    "cuMemAddressFree" 10020 => cuMemAddressFree(address: u64, size: usize) {
        session(|s| {
            let end = address.saturating_add(size as u64);
            if s.reservations.get(&address) != Some(&(size as u64)) || s.mappings.range(address..end).next().is_some() {
                return Err(INVALID_VALUE);
            }
            s.reservations.remove(&address);
            s.spaces.give(address, size as u64);
            Ok(())
        })
    }
    "cuMemCreate" 10020 => cuMemCreate(handle: Out<u64>, size: usize, prop: In<AllocationProp>, _flags: u64) {
        session(|s| {
            handle.wanted()?;
            let prop = prop.get()?;
            whole_granules(&[size as u64])?;
            if size == 0 || prop.kind != 1 || prop.location.kind != 1 {
                return Err(INVALID_VALUE);
            }
            s.device(prop.location.id).map_err(|_| INVALID_DEVICE)?;
            // SAFETY: creates a descriptor from a literal name.
            let fd = unsafe { libc::memfd_create(c"simcuda".as_ptr(), libc::MFD_CLOEXEC) };
            if fd < 0 {
                return Err(OUT_OF_MEMORY);
            }
            // SAFETY: the descriptor was just created and nothing else owns it.
            let memory = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: sets the length of that file.
            if unsafe { libc::ftruncate(memory.as_raw_fd(), size as libc::off_t) } != 0 {
                return Err(OUT_OF_MEMORY);
            }
            let physical = Physical { memory: Arc::new(memory), size: size as u64, device: prop.location.id };
            let created = s.physical.insert(physical);
            handle.put(created)
        })
    }
    "cuMemRelease" 10020 => cuMemRelease(handle: u64) {
        session(|s| s.physical.remove(handle).map(|_| ()).ok_or(INVALID_VALUE))
    }
    "cuMemMap" 10020 => cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) {
        session(|s| {
            let (size, offset) = (size as u64, offset as u64);
            whole_granules(&[size, offset, address])?;
            let end = address.checked_add(size).filter(|_| size > 0 && flags == 0).ok_or(INVALID_VALUE)?;
            let reserved = s.reservations.range(..=address).next_back();
            if reserved.is_none_or(|(&base, &length)| end > base + length) {
                return Err(INVALID_VALUE);
            }
            let taken = s.mappings.range(..end).next_back();
            if taken.is_some_and(|(&base, mapping)| base + mapping.size > address) {
                return Err(INVALID_VALUE);
            }
            let physical = s.physical.get(handle).ok_or(INVALID_VALUE)?;
            if offset.checked_add(size).is_none_or(|end| end > physical.size) {
                return Err(INVALID_VALUE);
            }
            let (memory, device) = (physical.memory.clone(), physical.device);
            map(address, size, Some((&memory, offset)), libc::PROT_NONE)?;
            s.mappings.insert(address, Mapping { size, device, _memory: memory });
            Ok(())
        })
    }
    "cuMemSetAccess" 10020 => cuMemSetAccess(address: u64, size: usize, access: In<AccessDesc>, count: usize) {
        session(|s| {
            let mut protection = libc::PROT_NONE;
            for index in 0..count {
                let AccessDesc { location, flags } = access.at(index)?;
                s.device(location.id).map_err(|_| INVALID_DEVICE)?;
                protection |= match flags {
                    0 => libc::PROT_NONE,
                    1 => libc::PROT_READ,
                    3 => libc::PROT_READ | libc::PROT_WRITE,
                    _ => return Err(INVALID_VALUE),
                };
            }
            let end = address.checked_add(size as u64).ok_or(INVALID_VALUE)?;
            let covered: u64 = s.mappings.range(address..end).map(|(_, mapping)| mapping.size).sum();
            if covered != size as u64 || size == 0 {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the range is exactly that of mappings made by `cuMemMap`.
            let failed = unsafe { libc::mprotect(address as *mut _, size, protection) };
            if failed != 0 { Err(INVALID_VALUE) } else { Ok(()) }
        })
    }
    "cuMemGetAccess" 10020 => cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) {
        session(|s| {
            location.get()?;
            s.mapping(address).ok_or(INVALID_VALUE)?;
            flags.put(3)
        })
    }
    "cuMemUnmap" 10020 => cuMemUnmap(address: u64, size: usize) {
        session(|s| {
            let end = address.checked_add(size as u64).filter(|_| size > 0).ok_or(INVALID_VALUE)?;
            let doomed: Vec<u64> = s.mappings.range(address..end).map(|(&base, _)| base).collect();
            let covered: u64 = doomed.iter().map(|base| s.mappings[base].size).sum();
            if covered != size as u64 {
                return Err(INVALID_VALUE);
            }
            // A real device would fault at work that is still pending; here it would be the application.
            let devices: Vec<i32> = doomed.iter().map(|base| s.mappings[base].device).collect();
            for base in doomed {
                s.mappings.remove(&base);
            }
            for device in devices {
                synchronize_device(s, device);
            }
            map(address, size as u64, None, libc::PROT_READ | libc::PROT_WRITE)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUmemAccessDesc_st, CUmemAllocationProp_st};
    use std::mem::size_of;

    #[test]
    fn structs_are_as_large_as_nvidias() {
        assert_eq!(
            size_of::<AllocationProp>(),
            size_of::<CUmemAllocationProp_st>()
        );
        assert_eq!(size_of::<AccessDesc>(), size_of::<CUmemAccessDesc_st>());
    }
}
