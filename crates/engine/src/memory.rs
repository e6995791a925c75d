//! Allocations by address: the live ones, and what is remembered of freed ones.

use std::collections::VecDeque;

use smallvec::SmallVec;
use streamcheck_model::{ContextId, Handle, MemoryKind};

use crate::address_map::AddressMap;
use crate::op::Access;
use crate::shadow::Shadow;

/// Memory that the application was given.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: MemoryKind,
    /// The context of the allocating call.
    pub(crate) context: ContextId,
    /// The pool that it named, or 0.
    pub(crate) pool: Handle,
    /// It was found never to be freed.
    pub(crate) leaked: bool,
    /// The allocating call, and for stream-ordered memory when it happens.
    pub(crate) birth: Access,
    /// The last use on each timeline.
    pub(crate) uses: SmallVec<[Access; 2]>,
    /// What a later access could race with.
    pub(crate) shadow: Shadow,
    /// The block that the pool recycled to make this one.
    pub(crate) recycled: Option<Box<Past>>,
}

/// What is left of a freed block: enough to tell who may still use it.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) birth: Access,
    pub(crate) uses: SmallVec<[Access; 2]>,
    /// The free, and when it happens.
    pub(crate) free: Access,
}

impl Allocation {
    /// Memory of which nothing has been used yet, by its first byte and its size.
    pub(crate) fn new(
        (address, size): (u64, u64),
        kind: MemoryKind,
        birth: Access,
        context: ContextId,
    ) -> Self {
        Self {
            address,
            size,
            kind,
            context,
            pool: Handle::default(),
            leaked: false,
            birth,
            uses: SmallVec::new(),
            shadow: Shadow::default(),
            recycled: None,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.address.saturating_add(self.size.max(1))
    }

    /// A use supersedes the last one on the same timeline, unless nothing can be said
    /// of it: its order to what follows is not known.
    pub(crate) fn used(&mut self, access: Access) {
        match self
            .uses
            .iter_mut()
            .find(|known| known.epoch.slot == access.epoch.slot)
        {
            Some(known) if access.op.order_unknown && !known.op.order_unknown => {}
            Some(known) => *known = access,
            None => self.uses.push(access),
        }
    }

    pub(crate) fn into_past(self, free: Access) -> Past {
        Past {
            address: self.address,
            size: self.size,
            kind: self.kind,
            birth: self.birth,
            uses: self.uses,
            free,
        }
    }
}

/// All memory known.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    live: AddressMap<Box<Allocation>>,
    freed: AddressMap<Box<Past>>,
    /// Freed blocks, oldest first, with the sequence of their free.
    oldest: VecDeque<(u64, u64)>,
    /// Freed blocks forgotten to stay within [`Memory::CAP`].
    pub(crate) evicted: u64,
}

impl Memory {
    /// Freed blocks remembered.
    const CAP: usize = 1 << 16;

    /// The live allocation that holds `address`.
    pub(crate) fn live(&self, address: u64) -> Option<&Allocation> {
        self.live.at(address).map(|block| &**block)
    }

    pub(crate) fn live_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        self.live.at_mut(address).map(|block| &mut **block)
    }

    /// The freed block that holds `address`, if no live one does.
    pub(crate) fn freed(&self, address: u64) -> Option<&Past> {
        self.freed.at(address).map(|block| &**block)
    }

    /// The live allocations that share a byte with `start..end`.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Allocation> {
        self.live.overlapping(start, end).map(|block| &**block)
    }

    /// The live allocation that ends at `address`, where another block begins.
    pub(crate) fn ending_at(&self, address: u64) -> Option<&Allocation> {
        let before = self.live(address.checked_sub(1)?)?;
        (before.end() == address).then_some(before)
    }

    /// Takes in a new allocation. What it overlaps is gone: freed blocks are its
    /// past, live ones were freed out of sight.
    pub(crate) fn insert(&mut self, mut allocation: Box<Allocation>) {
        let (start, end) = (allocation.address, allocation.end());
        self.live.remove_overlapping(start, end);
        let newest = self
            .freed
            .remove_overlapping(start, end)
            .into_iter()
            .max_by_key(|past| past.free.op.sequence);
        if allocation.kind == MemoryKind::StreamOrdered {
            allocation.recycled = newest.filter(|past| past.kind == MemoryKind::StreamOrdered);
        }
        self.live.insert(start, end, allocation);
    }

    /// The live allocations.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Allocation> {
        self.live.values_mut().map(|block| &mut **block)
    }

    /// The mapping that begins where the one at `address` ends: a buffer may lie over
    /// several.
    pub(crate) fn next_mapping(&self, address: u64) -> Option<u64> {
        let here = self.live(address)?;
        let next = self.live(here.end())?;
        (here.kind == MemoryKind::Mapped && next.kind == MemoryKind::Mapped).then_some(next.address)
    }

    /// Takes the live allocation that begins at `address` away.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Box<Allocation>> {
        self.live.remove(address)
    }

    /// Puts back an allocation whose free failed, unless its place was taken.
    pub(crate) fn restore(&mut self, allocation: Box<Allocation>) {
        let (start, end) = (allocation.address, allocation.end());
        if self.overlapping(start, end).next().is_none() {
            self.freed.remove_overlapping(start, end);
            self.live.insert(start, end, allocation);
        }
    }

    /// Remembers a freed block until its address returns. If another thread was
    /// handed the address already, the block is the past of that allocation.
    pub(crate) fn bury(&mut self, past: Past) {
        let (start, end) = (past.address, past.address.saturating_add(past.size.max(1)));
        let taken = self
            .overlapping(start, end)
            .next()
            .map(|owner| owner.address);
        if let Some(taken) = taken {
            if let Some(owner) = self.live_mut(taken)
                && owner.kind == MemoryKind::StreamOrdered
                && past.kind == MemoryKind::StreamOrdered
                && owner.recycled.is_none()
            {
                owner.recycled = Some(Box::new(past));
            }
            return;
        }
        self.freed.remove_overlapping(start, end);
        self.oldest.push_back((start, past.free.op.sequence));
        self.freed.insert(start, end, Box::new(past));
        while self.oldest.len() > Self::CAP {
            let Some((address, sequence)) = self.oldest.pop_front() else {
                break;
            };
            if self
                .freed
                .starting_at(address)
                .is_some_and(|past| past.free.op.sequence == sequence)
            {
                self.freed.remove(address);
                self.evicted += 1;
            }
        }
    }

    /// The freed block that began at exactly this address.
    pub(crate) fn freed_base(&self, address: u64) -> Option<&Past> {
        self.freed(address).filter(|past| past.address == address)
    }
}
