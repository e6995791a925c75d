//! Allocations by address: the live ones, and what is remembered of freed ones.
//!
//! Blocks lie in a slab and keep their place there while they are known, live or freed.
//! Their ranges never overlap, so one map leads from an address to its block, and a pool
//! that hands out the same block again changes nothing in the map.

use std::collections::VecDeque;

use smallvec::SmallVec;
use streamcheck_model::{ContextId, Handle, MemoryKind};

use crate::address_map::{AddressMap, Place};
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
    /// Nodes of graphs use it.
    pub(crate) in_graphs: bool,
    /// A launch of a graph allocated it.
    pub(crate) by_graph: bool,
    /// The executable graph that alone has used it since its touches were put down here.
    pub(crate) lease: Option<Box<Lease>>,
    /// The block that ended where this one begins when either was placed.
    before: Option<BlockId>,
    /// The allocating call, and for stream-ordered memory when it happens.
    pub(crate) birth: Access,
    /// The last use on each timeline.
    pub(crate) uses: SmallVec<[Access; 2]>,
    /// What a later access could race with.
    pub(crate) shadow: Shadow,
    /// The block that the pool recycled to make this one.
    pub(crate) recycled: Option<Box<Past>>,
}

/// A block that one executable graph alone uses. Its launches touch the block again and
/// again and find what the first of them found, so only the newest counts, and that is put
/// down when somebody else comes.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The executable graph: its handle, and its identity.
    pub(crate) exec: (Handle, u64),
    /// The launch that was put down.
    pub(crate) launch: u64,
    /// Which of its touches are of this block.
    pub(crate) touches: SmallVec<[u32; 4]>,
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

impl Past {
    /// How much room it takes, in accesses.
    fn weight(&self) -> usize {
        2 + self.uses.len()
    }
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
            in_graphs: false,
            by_graph: false,
            lease: None,
            before: None,
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
    #[inline]
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
}

/// A block's place in [`Memory`], given to another once the block is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    /// Its free has begun and not ended.
    Leaving,
    /// The same, and its address was handed out meanwhile.
    Displaced,
    /// `past` tells of it.
    Freed,
    Vacant,
}

#[derive(Debug)]
struct Block {
    state: State,
    /// Of a freed block, what the next one may have its room from.
    allocation: Allocation,
    past: Option<Box<Past>>,
}

impl Block {
    fn live(allocation: Allocation) -> Self {
        Self {
            state: State::Live,
            allocation,
            past: None,
        }
    }

    /// Whether the map leads to it by its range.
    fn is_placed(&self) -> bool {
        matches!(self.state, State::Live | State::Leaving | State::Freed)
    }

    fn spans(&self, start: u64, end: u64) -> bool {
        self.allocation.address == start && self.allocation.end() == end
    }

    /// What is left of the allocation after its free.
    fn become_past(&mut self, free: Access) -> Box<Past> {
        let allocation = &mut self.allocation;
        let past = Past {
            address: allocation.address,
            size: allocation.size,
            kind: allocation.kind,
            birth: allocation.birth,
            uses: std::mem::take(&mut allocation.uses),
            free,
        };
        allocation.shadow = Shadow::default();
        // Its own past ends here, and leaves its room.
        match allocation.recycled.take() {
            Some(mut room) => {
                *room = past;
                room
            }
            None => Box::new(past),
        }
    }
}

/// Blocks that stay where they are.
#[derive(Debug, Default)]
struct Slab {
    chunks: Vec<Vec<Block>>,
    vacant: Vec<BlockId>,
}

impl Slab {
    const CHUNK: usize = 256;

    fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self[id] = block;
            return id;
        }
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.len() == Self::CHUNK)
        {
            self.chunks.push(Vec::with_capacity(Self::CHUNK));
        }
        let full = (self.chunks.len() - 1) * Self::CHUNK;
        let last = self.chunks.last_mut().expect("one was just made sure of");
        let number = u32::try_from(full + last.len()).expect("fewer than 2^32 blocks");
        last.push(block);
        BlockId(number)
    }

    #[inline]
    fn get(&self, id: BlockId) -> Option<&Block> {
        let chunk = self.chunks.get(id.0 as usize / Self::CHUNK)?;
        chunk.get(id.0 as usize % Self::CHUNK)
    }

    /// Gives the place to another; a freed block's past is handed out.
    fn vacate(&mut self, id: BlockId) -> Option<Box<Past>> {
        self.vacant.push(id);
        let block = &mut self[id];
        block.state = State::Vacant;
        block.allocation.uses = SmallVec::new();
        block.allocation.shadow = Shadow::default();
        block.allocation.recycled = None;
        block.past.take()
    }
}

impl std::ops::Index<BlockId> for Slab {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.chunks[id.0 as usize / Self::CHUNK][id.0 as usize % Self::CHUNK]
    }
}

impl std::ops::IndexMut<BlockId> for Slab {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.chunks[id.0 as usize / Self::CHUNK][id.0 as usize % Self::CHUNK]
    }
}

/// The blocks that addresses were found in the last time. An entry is a guess: it holds
/// if its block is live and has the address.
#[derive(Debug)]
struct Guesses(Box<[(u64, BlockId)]>);

impl Guesses {
    const SIZE: usize = 1 << 10;

    #[inline]
    fn place(address: u64) -> usize {
        // The top bits of a product depend on all bits of the address.
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - Self::SIZE.trailing_zeros())) as usize
    }

    #[inline]
    fn get(&self, address: u64) -> Option<BlockId> {
        let (guessed, id) = self.0[Self::place(address)];
        (guessed == address).then_some(id)
    }

    #[inline]
    fn set(&mut self, address: u64, id: BlockId) {
        self.0[Self::place(address)] = (address, id);
    }
}

impl Default for Guesses {
    fn default() -> Self {
        // No block holds the last address.
        Self(vec![(u64::MAX, BlockId(0)); Self::SIZE].into_boxed_slice())
    }
}

/// All memory known.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    places: AddressMap<BlockId>,
    blocks: Slab,
    guesses: Guesses,
    /// Freed blocks, oldest first, with the sequence of their free. Some were handed out
    /// again since.
    oldest: VecDeque<(BlockId, u64)>,
    /// How many of those are freed yet.
    freed: usize,
    /// What is remembered of them all; see [`Past::weight`].
    weight: usize,
    /// Freed blocks forgotten to stay within [`Memory::CAP`].
    pub(crate) evicted: u64,
    /// Rises whenever there may be memory where there was none.
    pub(crate) extents: u64,
    /// Leases that have ended.
    pub(crate) ended: Vec<Lease>,
}

impl Memory {
    /// Freed blocks remembered.
    const CAP: usize = 1 << 15;
    /// What is remembered of them: three timelines' uses of each, if there are that many.
    const WEIGHT: usize = 5 * Self::CAP;

    /// A live allocation that was just found.
    #[inline]
    pub(crate) fn as_live(&self, id: BlockId) -> Option<&Allocation> {
        let block = &self.blocks[id];
        (block.state == State::Live).then_some(&block.allocation)
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn as_live_mut(&mut self, id: BlockId) -> Option<&mut Allocation> {
        let block = &mut self.blocks[id];
        (block.state == State::Live).then_some(&mut block.allocation)
    }

    /// The live allocation that holds `address`, to be named by its id for as long as
    /// nothing is allocated or freed.
    #[inline]
    pub(crate) fn find(&mut self, address: u64) -> Option<BlockId> {
        if let Some(id) = self.guess(address) {
            return Some(id);
        }
        let id = *self.places.at(address)?;
        self.as_live(id)?;
        self.guesses.set(address, id);
        Some(id)
    }

    /// The live allocation that holds `address`, if that was asked lately.
    #[inline]
    fn guess(&self, address: u64) -> Option<BlockId> {
        let id = self.guesses.get(address)?;
        let block = self.blocks.get(id)?;
        let holds = block.state == State::Live
            && (block.allocation.address..block.allocation.end()).contains(&address);
        holds.then_some(id)
    }

    /// The live allocation that holds `address`.
    pub(crate) fn live(&self, address: u64) -> Option<&Allocation> {
        let id = match self.guess(address) {
            Some(id) => id,
            None => *self.places.at(address)?,
        };
        self.as_live(id)
    }

    /// The freed block that holds `address`, if no live one does.
    pub(crate) fn freed(&self, address: u64) -> Option<&Past> {
        self.blocks[*self.places.at(address)?].past.as_deref()
    }

    /// The live allocation that ends at `address`, where another block begins.
    pub(crate) fn ending_at(&self, address: u64) -> Option<&Allocation> {
        let before = self.live(address.checked_sub(1)?)?;
        (before.end() == address).then_some(before)
    }

    /// Whether a live allocation ends at `address`, which lies in `holder` if in any.
    #[inline]
    pub(crate) fn ends_at(&self, address: u64, holder: Option<BlockId>) -> bool {
        match holder.and_then(|id| self.as_live(id)) {
            Some(block) if block.address != address => false,
            Some(block) => {
                let before = block.before.and_then(|id| self.as_live(id));
                before.is_some_and(|before| before.end() == address)
            }
            None => self.ending_at(address).is_some(),
        }
    }

    /// Takes in a new allocation. What it overlaps is gone: freed blocks are its
    /// past, live ones were freed out of sight.
    pub(crate) fn insert(&mut self, mut allocation: Allocation) {
        let (start, end) = (allocation.address, allocation.end());
        let ordered = allocation.kind == MemoryKind::StreamOrdered;
        let recycles = |past: &Past| ordered && past.kind == MemoryKind::StreamOrdered;
        // The whole of one block again, as pools do.
        if let Some(id) = self.whole(start, end) {
            let block = &mut self.blocks[id];
            if block.state != State::Leaving {
                let past = block.past.take();
                allocation.before = block.allocation.before;
                self.ended
                    .extend(block.allocation.lease.take().map(|lease| *lease));
                if let Some(past) = &past {
                    self.freed -= 1;
                    self.weight -= past.weight();
                }
                allocation.recycled = past.filter(|past| recycles(past));
                block.allocation = allocation;
                block.state = State::Live;
                return;
            }
        }
        let mut newest: Option<Box<Past>> = None;
        while let Some(place) = self.places.overlapping(start, end) {
            if let Some(past) = self.drop_at(place)
                && newest
                    .as_ref()
                    .is_none_or(|newest| newest.free.op.sequence <= past.free.op.sequence)
            {
                newest = Some(past);
            }
        }
        allocation.recycled = newest.filter(|past| recycles(past));
        self.extents += 1;
        let id = self.blocks.insert(Block::live(allocation));
        let place = self.places.insert(start, end, id);
        self.guesses.set(start, id);
        let before = self.places.previous(place);
        let before = before.filter(|before| self.places.range(*before).1 == start);
        self.blocks[id].allocation.before = before.map(|before| *self.places.value(before));
        let after = self.places.next(place);
        if let Some(after) = after.filter(|after| self.places.range(*after).0 == end) {
            self.blocks[*self.places.value(after)].allocation.before = Some(id);
        }
    }

    /// The block of exactly this range.
    fn whole(&self, start: u64, end: u64) -> Option<BlockId> {
        if let Some(id) = self.guesses.get(start)
            && let Some(block) = self.blocks.get(id)
            && block.is_placed()
            && block.spans(start, end)
        {
            return Some(id);
        }
        let place = self.places.starting_at(start)?;
        (self.places.range(place).1 == end).then(|| *self.places.value(place))
    }

    /// Takes the block at `place` out of the map; a freed one's past is handed out.
    fn drop_at(&mut self, place: Place) -> Option<Box<Past>> {
        let id = self.places.remove_at(place);
        let block = &mut self.blocks[id];
        self.ended
            .extend(block.allocation.lease.take().map(|lease| *lease));
        if block.state == State::Leaving {
            block.state = State::Displaced;
            return None;
        }
        let past = self.blocks.vacate(id);
        if let Some(past) = &past {
            self.freed -= 1;
            self.weight -= past.weight();
        }
        past
    }

    /// The live allocations.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Allocation> {
        let blocks = self.blocks.chunks.iter_mut().flatten();
        let live = blocks.filter(|block| block.state == State::Live);
        live.map(|block| &mut block.allocation)
    }

    /// The live allocations that share a byte with `start..end`, the last first.
    pub(crate) fn live_in(&self, start: u64, end: u64) -> SmallVec<[BlockId; 2]> {
        let mut found = SmallVec::new();
        let mut next = self.places.overlapping(start, end);
        while let Some(place) = next {
            let id = *self.places.value(place);
            if self.as_live(id).is_some() {
                found.push(id);
            }
            next = self.places.previous(place);
            next = next.filter(|before| self.places.range(*before).1 > start);
        }
        found
    }

    /// The mapping that begins where the one at `address` ends: a buffer may lie over
    /// several.
    pub(crate) fn next_mapping(&self, address: u64) -> Option<u64> {
        let here = self.live(address)?;
        if here.kind != MemoryKind::Mapped {
            return None;
        }
        let next = self.live(here.end())?;
        (next.kind == MemoryKind::Mapped).then_some(next.address)
    }

    /// Forgets the live allocation that begins at `address`.
    pub(crate) fn remove(&mut self, address: u64) {
        if let Some(place) = self.places.starting_at(address)
            && self.as_live(*self.places.value(place)).is_some()
        {
            self.drop_at(place);
        }
    }

    /// The free of a live allocation that was just found has begun: it is not found any
    /// more until [`Memory::restore`], and ends with that, with [`Memory::bury`] or with
    /// [`Memory::forget`].
    pub(crate) fn leave(&mut self, id: BlockId) {
        self.blocks[id].state = State::Leaving;
    }

    /// An allocation whose free has begun.
    pub(crate) fn leaving(&self, id: BlockId) -> Option<&Allocation> {
        let block = &self.blocks[id];
        matches!(block.state, State::Leaving | State::Displaced).then_some(&block.allocation)
    }

    /// Forgets an allocation whose free has begun.
    pub(crate) fn forget(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        if block.state == State::Leaving
            && let Some(place) = self.places.starting_at(block.allocation.address)
        {
            self.places.remove_at(place);
        }
        self.blocks.vacate(id);
    }

    /// The free failed: the allocation is live again, unless its place was taken.
    pub(crate) fn restore(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        if block.state == State::Leaving {
            block.state = State::Live;
            return;
        }
        let (start, end) = (block.allocation.address, block.allocation.end());
        let mut next = self.places.overlapping(start, end);
        let mut taken = false;
        while let Some(place) = next {
            taken |= self.as_live(*self.places.value(place)).is_some();
            next = self.places.previous(place);
            next = next.filter(|before| self.places.range(*before).1 > start);
        }
        if !taken {
            let allocation = &mut self.blocks[id].allocation;
            let nothing = Allocation::new(
                (start, 0),
                allocation.kind,
                allocation.birth,
                allocation.context,
            );
            let allocation = std::mem::replace(allocation, nothing);
            self.insert(allocation);
        }
        self.blocks.vacate(id);
    }

    /// The free succeeded: the block is remembered until its address returns. If another
    /// thread was handed the address already, the block is the past of that allocation.
    pub(crate) fn bury(&mut self, id: BlockId, free: Access) {
        let block = &mut self.blocks[id];
        let past = block.become_past(free);
        if block.state == State::Leaving {
            block.state = State::Freed;
            self.freed += 1;
            self.weight += past.weight();
            block.past = Some(past);
            self.oldest.push_back((id, free.op.sequence));
            self.limit();
            return;
        }
        let (start, end) = (block.allocation.address, block.allocation.end());
        self.blocks.vacate(id);
        if let Some(place) = self.places.overlapping(start, end)
            && let Some(owner) = self.as_live_mut(*self.places.value(place))
            && owner.kind == MemoryKind::StreamOrdered
            && past.kind == MemoryKind::StreamOrdered
            && owner.recycled.is_none()
        {
            owner.recycled = Some(past);
        }
    }

    /// Whether the block is freed, by the free of that sequence.
    fn is_freed(&self, id: BlockId, sequence: u64) -> bool {
        let past = self.blocks[id].past.as_ref();
        past.is_some_and(|past| past.free.op.sequence == sequence)
    }

    /// Forgets the oldest freed blocks beyond the cap.
    fn limit(&mut self) {
        while (self.freed > Self::CAP || self.weight > Self::WEIGHT)
            && let Some((id, sequence)) = self.oldest.pop_front()
        {
            if self.is_freed(id, sequence)
                && let Some(place) = self.places.starting_at(self.blocks[id].allocation.address)
            {
                self.drop_at(place);
                self.evicted += 1;
            }
        }
        // Most were handed out again.
        if self.oldest.len() > 2 * Self::CAP {
            let mut oldest = std::mem::take(&mut self.oldest);
            oldest.retain(|(id, sequence)| self.is_freed(*id, *sequence));
            self.oldest = oldest;
        }
    }

    /// The freed block that began at exactly this address.
    pub(crate) fn freed_base(&self, address: u64) -> Option<&Past> {
        self.freed(address).filter(|past| past.address == address)
    }
}
