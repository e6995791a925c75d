//! Who owns which bytes: allocations, registered host memory, reserved addresses and what is mapped there.

use super::mapping::{PAGE, map};
use super::pool::Block;
use super::sched::Past;
use super::state::State;
use crate::abi::Status;
use crate::error::{INVALID_VALUE, OUT_OF_MEMORY};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where an allocation came from, which says how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    Managed,
    /// Pinned host memory of `cuMemHostAlloc`, with its flags.
    Host(u32),
    /// Of the pool with this identity.
    Pooled(u64),
    /// A module's variable: no allocation that anyone may free.
    Static,
    /// What a CUDA array keeps its elements in.
    Array,
    /// An allocation node's.
    Graph,
    /// Mapped from an imported descriptor.
    Imported,
    /// On its way out: a plain allocation freed in stream order, until the stream gets there.
    Leaving,
}

#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    pub(crate) device: i32,
    pub(crate) context: u64,
    pub(crate) id: u64,
}

/// Host memory of the application's, pinned by `cuMemHostRegister`.
pub(crate) struct Registered {
    pub(crate) size: u64,
    pub(crate) flags: u32,
    pub(crate) context: u64,
}

/// Physical memory of `cuMemCreate`.
pub(crate) struct Physical {
    pub(crate) memory: Arc<OwnedFd>,
    pub(crate) size: u64,
    pub(crate) device: i32,
}

/// Physical memory mapped at a reserved address.
pub(crate) struct Mapping {
    pub(crate) size: u64,
    pub(crate) device: i32,
    /// Keeps the memory alive after `cuMemRelease`.
    pub(crate) _memory: Arc<OwnedFd>,
}

/// What an address is to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    Managed,
    Pinned,
    Pageable,
}

fn containing<T>(
    map: &BTreeMap<u64, T>,
    address: u64,
    size: impl Fn(&T) -> u64,
) -> Option<(u64, &T)> {
    let (&base, value) = map.range(..=address).next_back()?;
    (address - base < size(value)).then_some((base, value))
}

impl State {
    /// The live allocation that `address` lies in.
    pub(crate) fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        containing(&self.allocations, address, |allocation| allocation.size)
            .filter(|(_, allocation)| allocation.kind != Kind::Leaving)
    }

    pub(crate) fn registration(&self, address: u64) -> Option<(u64, &Registered)> {
        containing(&self.registered, address, |registered| registered.size)
    }

    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        containing(&self.mappings, address, |mapping| mapping.size)
    }

    /// What `length` bytes at `address` are; an invalid value if they are device addresses that hold nothing, or run
    /// past the end of what they start in.
    pub(crate) fn place(&self, address: u64, length: u64) -> Status<Place> {
        if address == 0 {
            return if length == 0 {
                Ok(Place::Pageable)
            } else {
                Err(INVALID_VALUE)
            };
        }
        if let Some((base, allocation)) = self.allocation(address) {
            if address.saturating_add(length) > base + allocation.size {
                return Err(INVALID_VALUE);
            }
            return Ok(match allocation.kind {
                Kind::Host(_) => Place::Pinned,
                Kind::Managed => Place::Managed,
                _ => Place::Device,
            });
        }
        if self.registration(address).is_some() {
            return Ok(Place::Pinned);
        }
        // A pool's memory stays the device's after a stream-ordered free: a stale pointer does not fault.
        let device = self
            .devices
            .iter()
            .any(|device| device.arena.range().contains(&address));
        if self.mapping(address).is_some()
            || device && self.pools.values().any(|pool| pool.keeps(address))
        {
            return Ok(Place::Device);
        }
        let reserved =
            self.spaces.range().contains(&address) || self.host.range().contains(&address);
        if device || reserved {
            Err(INVALID_VALUE)
        } else {
            Ok(Place::Pageable)
        }
    }

    fn remember(&mut self, base: u64, size: u64, kind: Kind, device: i32, context: u64) {
        let id = self.fresh_id();
        self.allocations.insert(
            base,
            Allocation {
                size,
                kind,
                device,
                context,
                id,
            },
        );
    }

    /// Device, managed, static or an array's memory on the current context's device.
    pub(crate) fn allocate(&mut self, size: u64, kind: Kind) -> Status<u64> {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let (context, device) = self
            .context(0)
            .map(|(handle, context)| (handle, context.device))?;
        let address = match kind {
            // The CPU may protect it, so it is no place that copies go to by plain addresses.
            Kind::Managed => self.host.take(size).ok_or(OUT_OF_MEMORY)?,
            _ => self.take_device_memory(device, size)?,
        };
        self.remember(address, size, kind, device, context);
        Ok(address)
    }

    /// Pinned host memory.
    pub(crate) fn allocate_host(&mut self, size: u64, flags: u32) -> Status<u64> {
        let (context, device) = self
            .context(0)
            .map(|(handle, context)| (handle, context.device))?;
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let address = self.host.take(size).ok_or(OUT_OF_MEMORY)?;
        self.remember(address, size, Kind::Host(flags), device, context);
        Ok(address)
    }

    /// Memory of a pool for stream work of `stream`, and what that work must wait for.
    pub(crate) fn allocate_pooled(
        &mut self,
        pool_id: u64,
        size: u64,
        stream: u64,
        context: u64,
    ) -> Status<(u64, Option<Arc<Past>>)> {
        let pool = self.pools.get_mut(&pool_id).ok_or(INVALID_VALUE)?;
        let device = pool.device;
        let arena = &self
            .devices
            .get(device as usize)
            .ok_or(INVALID_VALUE)?
            .arena;
        let rounded = arena
            .rounded(size)
            .filter(|_| size > 0)
            .ok_or(INVALID_VALUE)?;
        let (address, after) = match pool.reuse(rounded, stream, &self.sched) {
            Some(found) => found,
            None => {
                if pool.max_size > 0 && pool.reserved + rounded > pool.max_size {
                    return Err(OUT_OF_MEMORY);
                }
                let address = match self.take_device_memory(device, rounded) {
                    Err(OUT_OF_MEMORY) => {
                        self.trim_pools();
                        self.take_device_memory(device, rounded)
                    }
                    taken => taken,
                }?;
                if let Some(pool) = self.pools.get_mut(&pool_id) {
                    pool.grow(rounded);
                }
                (address, None)
            }
        };
        self.remember(address, size, Kind::Pooled(pool_id), device, context);
        Ok((address, after))
    }

    /// Takes the allocation based at `address` out of the live ones.
    pub(crate) fn forget(
        &mut self,
        address: u64,
        freeable: impl Fn(Kind) -> bool,
    ) -> Status<Allocation> {
        match self.allocations.get(&address) {
            Some(allocation) if freeable(allocation.kind) => {}
            _ => return Err(INVALID_VALUE),
        }
        self.allocations.remove(&address).ok_or(INVALID_VALUE)
    }

    /// Gives the address back to where it came from, after `freed` for a pool.
    pub(crate) fn release(
        &mut self,
        address: u64,
        allocation: &Allocation,
        freed: Option<Arc<Past>>,
    ) {
        match allocation.kind {
            Kind::Host(_) | Kind::Managed => self.host.give(address, allocation.size),
            Kind::Imported => self.unmap_import(address, allocation.size),
            Kind::Pooled(id) => {
                let arena = &self.devices[allocation.device as usize].arena;
                let size = arena.rounded(allocation.size).unwrap_or(0);
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.give(Block {
                        address,
                        size,
                        freed,
                    });
                }
            }
            _ => self.give_device_memory(allocation.device, address, allocation.size),
        }
    }

    /// Maps `size` bytes at `offset` of an imported descriptor, as an allocation of its own.
    pub(crate) fn map_import(&mut self, import: &Physical, offset: u64, size: u64) -> Status<u64> {
        let (context, device) = self
            .context(0)
            .map(|(handle, context)| (handle, context.device))?;
        let end = offset.checked_add(size).ok_or(INVALID_VALUE)?;
        if size == 0 || end > import.size {
            return Err(INVALID_VALUE);
        }
        let inside = offset % PAGE;
        let whole = inside + size;
        let start = self.spaces.take(whole).ok_or(OUT_OF_MEMORY)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        if let Err(code) = map(
            start,
            whole,
            Some((&import.memory, offset - inside)),
            access,
        ) {
            self.spaces.give(start, whole);
            return Err(code);
        }
        let address = start + inside;
        self.remember(address, size, Kind::Imported, device, context);
        Ok(address)
    }

    /// Nothing of the descriptor's is seen there any more, and nothing faults either.
    fn unmap_import(&mut self, address: u64, size: u64) {
        let start = address - address % PAGE;
        let whole = address % PAGE + size;
        // Where that fails the old mapping stays, and so does its address.
        if map(start, whole, None, libc::PROT_READ | libc::PROT_WRITE).is_ok() {
            self.spaces.give(start, whole);
        }
    }

    /// The stream has come to the free of a plain allocation.
    pub(crate) fn release_pending(&mut self, address: u64) {
        if let Ok(allocation) = self.forget(address, |kind| kind == Kind::Leaving) {
            self.release(address, &allocation, None);
        }
    }

    /// Gives completed free blocks back to the device, as a synchronization does, down to each pool's release threshold.
    pub(crate) fn trim_pools(&mut self) {
        for id in self.pools.keys().copied().collect::<Vec<_>>() {
            let threshold = self.pools[&id].release_threshold;
            self.trim_pool(id, threshold);
        }
    }

    /// Gives completed free blocks back until no more than `keep` bytes are reserved.
    pub(crate) fn trim_pool(&mut self, id: u64, keep: u64) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        let keep = if pool.destroyed { 0 } else { keep };
        let device = pool.device;
        let released = pool.trim(keep, &self.sched);
        let over = pool.destroyed && pool.reserved == 0;
        for block in released {
            self.give_device_memory(device, block.address, block.size);
        }
        if over {
            self.pools.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::session;
    use super::super::state::Barrier;
    use super::*;

    /// A machine with a current context. Device ranges are process-wide, so no bytes are moved here.
    fn machine() -> State {
        let mut state = State::new(2, 0).unwrap();
        let context = state.add_context(0, 0);
        session::set_current_context(context);
        state
    }

    #[test]
    fn freed_memory_comes_back_at_its_address() {
        let mut state = machine();
        let a = state.allocate(1000, Kind::Device).unwrap();
        assert_eq!(state.place(a + 999, 1), Ok(Place::Device));
        assert_eq!(state.place(a + 999, 2), Err(INVALID_VALUE), "past its end");
        assert!(
            state.forget(a, |kind| kind == Kind::Managed).is_err(),
            "the wrong kind of free"
        );
        let allocation = state.forget(a, |kind| kind == Kind::Device).unwrap();
        state.release(a, &allocation, None);
        assert!(state.forget(a, |_| true).is_err(), "a double free");
        assert_eq!(state.place(a, 1), Err(INVALID_VALUE));
        assert_eq!(state.allocate(1000, Kind::Device), Ok(a));
        assert_eq!(state.allocate(u64::MAX, Kind::Device), Err(OUT_OF_MEMORY));
    }

    #[test]
    fn places_are_told_apart() {
        let mut state = machine();
        let host = state.allocate_host(100, 0).unwrap();
        let managed = state.allocate(100, Kind::Managed).unwrap();
        assert_eq!(state.place(host, 100), Ok(Place::Pinned));
        assert_eq!(state.place(managed, 100), Ok(Place::Managed));
        let local = [0u8; 64];
        let address = local.as_ptr() as u64;
        assert_eq!(state.place(address, 64), Ok(Place::Pageable));
        state.registered.insert(
            address,
            Registered {
                size: 64,
                flags: 0,
                context: 0,
            },
        );
        assert_eq!(state.place(address + 63, 1), Ok(Place::Pinned));
        assert_eq!(state.place(0, 1), Err(INVALID_VALUE));
    }

    #[test]
    fn a_pool_recycles_and_gives_back_when_trimmed() {
        let mut state = machine();
        let lane = state.lane(0, false).unwrap();
        assert!(lane.barrier == Barrier::Legacy);
        let pool = *state
            .pool_handles
            .get(state.devices[0].current_pool)
            .unwrap();
        let (a, after) = state
            .allocate_pooled(pool, 600, lane.id, lane.context)
            .unwrap();
        assert!(after.is_none());
        let allocation = state.forget(a, |kind| kind == Kind::Pooled(pool)).unwrap();
        state.release(a, &allocation, Some(state.sched.past(lane.id)));
        assert_eq!(
            state.place(a, 600),
            Ok(Place::Device),
            "stale, but still the pool's"
        );
        let (b, _) = state
            .allocate_pooled(pool, 1024, lane.id, lane.context)
            .unwrap();
        assert_eq!(a, b);
        let used = state.devices[0].used;
        let allocation = state.forget(b, |_| true).unwrap();
        state.release(b, &allocation, Some(state.sched.past(lane.id)));
        state.trim_pools();
        assert_eq!(state.devices[0].used, used - 1024);
    }
}
