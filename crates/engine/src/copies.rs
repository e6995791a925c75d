//! Copies and fills: what they touch, and what they wait for.

use smallvec::SmallVec;
use streamcheck_model::{
    BatchCopy, Call, DeviceId, Direction, HostMemory, MemoryKind, Mode, Region, SourceOrder,
    StreamRef,
};

use crate::engine::{Engine, Touch};
use crate::graph::Reason;
use crate::memory::Allocation;
use crate::op::{Access, OpRef};
use crate::order::{StreamId, StreamKind};
use crate::rules::violation::Violation;
use crate::rules::{sc109_data_race, sc201_pageable_async_copy};
use crate::shadow::Footprint;

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Device or managed memory.
    Device,
    /// Page-locked host memory.
    Pinned,
    /// Host memory that is not page-locked.
    Pageable,
    /// No telling.
    Unknown,
}

/// Host memory that pending copies use and CUDA was never told of.
#[derive(Debug)]
pub(crate) struct SystemMemory {
    blocks: Vec<u64>,
    /// How much there is when the completed is looked for.
    sweep_at: usize,
    /// Blocks forgotten to stay within [`SystemMemory::CAP`].
    pub(crate) forgotten: u64,
    /// The devices that reach pageable memory in place.
    coherent: SmallVec<[DeviceId; 2]>,
}

impl SystemMemory {
    /// Blocks remembered after a sweep.
    const CAP: usize = 1 << 12;
    const LEAST: usize = 64;

    /// What a device is like.
    pub(crate) fn describe(&mut self, device: DeviceId, coherent: bool) {
        self.coherent.retain(|known| *known != device);
        if coherent {
            self.coherent.push(device);
        }
    }
}

impl Default for SystemMemory {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            sweep_at: Self::LEAST,
            forgotten: 0,
            coherent: SmallVec::new(),
        }
    }
}

impl Engine {
    /// What a side of a copy is, given what the call states.
    fn side(&self, region: Region, stated_host: Option<bool>, host: HostMemory) -> Side {
        // An array has no address.
        if region.address == 0 && region.bytes() == 0 {
            return Side::Device;
        }
        match (
            self.memory.live(region.address).map(|block| block.kind),
            stated_host,
        ) {
            (Some(MemoryKind::System), _) => Side::Pageable,
            (Some(kind), Some(true)) if !kind.is_host() && kind != MemoryKind::Managed => {
                Side::Pageable
            }
            (Some(kind), _) if kind.is_host() => Side::Pinned,
            (Some(_), _) | (None, Some(false)) => Side::Device,
            (None, stated) => match (host, stated) {
                (HostMemory::Pinned, _) => Side::Pinned,
                (HostMemory::Pageable, _) | (HostMemory::Unasked, Some(true)) => Side::Pageable,
                (HostMemory::Unasked, _) => Side::Unknown,
            },
        }
    }

    /// The devices of which a copy between two in the legacy stream holds up the blocking
    /// streams: it "does not start until all commands previously issued to either device
    /// have completed and runs to completion before any commands issued after the copy to
    /// either device can start" (CUDA C++ Programming Guide, "Peer-to-Peer Memory Copy").
    /// Non-blocking streams were seen to take no part, as with the legacy stream itself.
    fn devices_met(
        &self,
        id: StreamId,
        call: &Call,
        from: Region,
        to: Region,
    ) -> SmallVec<[DeviceId; 3]> {
        let device = |region: Region| {
            let block = self.memory.live(region.address)?;
            let on_device = matches!(block.kind, MemoryKind::Device | MemoryKind::StreamOrdered);
            on_device.then_some(DeviceId(block.birth.op.device))
        };
        let mut devices = SmallVec::new();
        if self.order.kind(id) == StreamKind::Legacy
            && let (Some(from), Some(to)) = (device(from), device(to))
            && from != to
        {
            devices.extend([from, to]);
            if !devices.contains(&call.device) {
                devices.push(call.device);
            }
        }
        devices
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a copy is described by that many things"
    )]
    pub(crate) fn copied(
        &mut self,
        call: &Call,
        stream: StreamRef,
        layers: &[(Region, Region)],
        direction: Direction,
        host: HostMemory,
        synchronous: bool,
        found: &mut Vec<Violation>,
    ) {
        self.copies += 1;
        // One layer stands for all: they lie in the same memory.
        let nothing = Region::linear(0, 0);
        let (to, from) = layers.first().copied().unwrap_or((nothing, nothing));
        let (from_host, to_host) = stated(direction);
        let (source, target) = (
            self.side(from, from_host, host),
            self.side(to, to_host, host),
        );
        let (id, mut op) = self.on_stream(stream, call);
        if to.bytes() == 0 && from.bytes() == 0 {
            self.order.submit(id, op);
            return;
        }
        op.staged = synchronous && source == Side::Pageable;
        self.serializes(id, op, [to.address, from.address].into_iter(), found);
        let devices = self.devices_met(id, call, from, to);
        self.order.barrier(&devices, call, op);
        let access = self.order.submit(id, op);
        self.order.barrier(&devices, call, op);
        let op = access.op;
        // The device writes such memory itself, and nothing has to wait for it.
        let direct = !synchronous
            && (source, target) == (Side::Device, Side::Pageable)
            && self.system.coherent.contains(&call.device)
            && matches!(
                self.memory_kind(to.address),
                None | Some(MemoryKind::System)
            );
        if direct {
            self.forget_system_memory();
        }
        let mut uses: SmallVec<[Touch; 2]> = SmallVec::new();
        // Pageable memory is the C library's: what is remembered of its address
        // says nothing, and the call is done with it when it returns. An array has no
        // address.
        for &(to, from) in layers {
            for (side, region, mode) in [(source, from, Mode::Read), (target, to, Mode::Write)] {
                if direct && mode == Mode::Write && region.bytes() != 0 {
                    self.system_memory(region, access, call);
                }
                if (side != Side::Pageable || direct) && region.bytes() != 0 {
                    uses.push(Touch::new(Footprint::Exact(region), mode));
                }
            }
        }
        self.touch(id, access, &uses, found);
        if !synchronous {
            for (side, region) in [(source, from), (target, to)] {
                if side == Side::Pageable {
                    let bytes = region.bytes().saturating_mul(layers.len() as u64);
                    let copied = sc201_pageable_async_copy::check(op, region.address, bytes);
                    found.push(Violation { direct, ..copied });
                    break;
                }
            }
        }
        // What the call itself waits for ("API synchronization behavior" in the
        // runtime's reference).
        let managed =
            |region: &Region| self.memory_kind(region.address) == Some(MemoryKind::Managed);
        let both_host = source != Side::Device && target != Side::Device;
        let waits = match (source, target) {
            _ if both_host && direction != Direction::Inferred => Some(Reason::HostSync),
            (Side::Pageable | Side::Pinned, Side::Pageable | Side::Pinned) => {
                Some(Reason::HostSync)
            }
            (_, Side::Pageable) if direct => None,
            (_, Side::Pageable) if !synchronous => Some(Reason::ImplicitSync),
            (_, Side::Pageable | Side::Pinned) if synchronous => Some(Reason::HostSync),
            (Side::Pinned, Side::Device) if synchronous => Some(Reason::HostSync),
            (Side::Unknown, _) | (_, Side::Unknown) if synchronous => Some(Reason::Unseen),
            // Managed memory may be on either side.
            _ if synchronous && [from, to].iter().any(managed) => Some(Reason::Unseen),
            _ => None,
        };
        if let Some(reason) = waits {
            self.order.synchronize_stream(id, reason, op);
        }
    }

    /// What a graph's copy touches. Pageable memory is read or written when the graph
    /// runs, so it has to be there at every launch.
    pub(crate) fn copied_by_node(
        &mut self,
        layers: &[(Region, Region)],
        direction: Direction,
        host: HostMemory,
        op: OpRef,
        call: &Call,
    ) -> Vec<(Region, Mode)> {
        let (from_host, to_host) = stated(direction);
        let mut touched = Vec::with_capacity(2 * layers.len());
        for &(to, from) in layers {
            for (region, stated, mode) in
                [(from, from_host, Mode::Read), (to, to_host, Mode::Write)]
            {
                if self.side(region, stated, host) == Side::Pageable && region.bytes() != 0 {
                    match self.memory_kind(region.address) {
                        None => {
                            let epoch = self.order.host_now();
                            self.system_memory(region, Access { epoch, op }, call);
                        }
                        Some(kind) if kind.is_host() => {}
                        // What is known of the address says nothing of such memory.
                        Some(_) => continue,
                    }
                }
                touched.push((region, mode));
            }
        }
        touched
    }

    pub(crate) fn filled(
        &mut self,
        call: &Call,
        stream: StreamRef,
        to: Region,
        synchronous: bool,
        found: &mut Vec<Violation>,
    ) {
        self.copies += 1;
        let (id, op) = self.on_stream(stream, call);
        self.serializes(id, op, [to.address].into_iter(), found);
        let access = self.order.submit(id, op);
        if to.bytes() == 0 {
            return;
        }
        self.touch(
            id,
            access,
            &[Touch::new(Footprint::Exact(to), Mode::Write)],
            found,
        );
        let op = access.op;
        let kind = self.memory_kind(to.address);
        if synchronous && kind.is_some_and(|kind| kind.is_host() || kind == MemoryKind::Managed) {
            self.order.synchronize_stream(id, Reason::HostSync, op);
        }
    }

    /// Several copies of one call, which have no order among themselves
    /// (`cudaMemcpyBatchAsync`). Each says when its source is read.
    pub(crate) fn copied_together(
        &mut self,
        call: &Call,
        stream: StreamRef,
        copies: &[BatchCopy],
        found: &mut Vec<Violation>,
    ) {
        self.copies += copies.len() as u64;
        self.forget_system_memory();
        let (id, op) = self.on_stream(stream, call);
        let addresses = copies
            .iter()
            .flat_map(|copy| [copy.to.address, copy.from.address]);
        self.serializes(id, op, addresses, found);
        let access = self.order.submit(id, op);
        let mut touched: Vec<Touch> = Vec::with_capacity(copies.len() * 2);
        for copy in copies {
            let source = self.side(copy.from, None, copy.host);
            let target = self.side(copy.to, None, copy.host);
            if copy.from.bytes() != 0 {
                let during = copy.order == SourceOrder::DuringCall;
                if during && source == Side::Pageable {
                    found.push(sc201_pageable_async_copy::check(
                        access.op,
                        copy.from.address,
                        copy.from.bytes(),
                    ));
                } else if source == Side::Pageable {
                    self.system_memory(copy.from, access, call);
                }
                if source != Side::Pageable || self.memory.live(copy.from.address).is_some() {
                    touched.push(Touch {
                        early: copy.order != SourceOrder::Stream,
                        over: during,
                        ..Touch::new(Footprint::Exact(copy.from), Mode::Read)
                    });
                }
            }
            if copy.to.bytes() != 0 {
                if target == Side::Pageable {
                    self.system_memory(copy.to, access, call);
                }
                touched.push(Touch::new(Footprint::Exact(copy.to), Mode::Write));
            }
        }
        self.race_among(access.op, &touched, found);
        self.touch(id, access, &touched, found);
    }

    /// Two copies of one call, one of which writes what the other touches.
    fn race_among(&self, op: OpRef, touched: &[Touch], found: &mut Vec<Violation>) {
        let mut regions: Vec<(Region, Mode)> = touched
            .iter()
            .filter_map(|touch| match touch.footprint {
                Footprint::Exact(region) => Some((region, touch.mode)),
                Footprint::Pointer(..) => None,
            })
            .collect();
        regions.sort_unstable_by_key(|(region, _)| region.address);
        // Those seen so far that reach furthest, writing and at all.
        let mut furthest: [Option<Region>; 2] = [None, None];
        for (region, mode) in regions {
            let against = if mode == Mode::Write { 1 } else { 0 };
            let other = furthest[against].filter(|other| other.overlaps(&region));
            if other.is_some()
                && let Some(block) = self.memory.live(region.address)
            {
                found.push(sc109_data_race::within_a_batch(op, block, region.address));
                return;
            }
            let further =
                |known: Option<Region>| known.is_none_or(|known| known.end() < region.end());
            if mode == Mode::Write && further(furthest[0]) {
                furthest[0] = Some(region);
            }
            if further(furthest[1]) {
                furthest[1] = Some(region);
            }
        }
    }

    /// Whether host memory that CUDA was never told of, and that copies use, is known to
    /// begin at `address`.
    #[must_use]
    pub fn begins_system_memory(&self, address: u64) -> bool {
        self.memory
            .live(address)
            .is_some_and(|block| block.kind == MemoryKind::System && block.address == address)
    }

    /// Host memory that CUDA was never told of is in use until the copy is complete.
    fn system_memory(&mut self, region: Region, birth: Access, call: &Call) {
        let (start, end) = (region.address, region.end());
        let known = self
            .memory
            .live(start)
            .filter(|block| block.kind == MemoryKind::System);
        if known.is_some_and(|block| end <= block.end()) {
            return;
        }
        if known.is_none_or(|block| block.address != start) {
            self.system.blocks.push(start);
        }
        self.memory.insert(Allocation::new(
            (start, end - start),
            MemoryKind::System,
            Access {
                epoch: self.order.host_now(),
                op: birth.op,
            },
            call.context,
        ));
    }

    /// Drops such memory once the host knows its copies complete, whenever there is twice
    /// as much as was left the last time.
    fn forget_system_memory(&mut self) {
        if self.system.blocks.len() < self.system.sweep_at {
            return;
        }
        let (memory, order, graphs) = (&mut self.memory, &self.order, &self.graphs);
        self.system.blocks.retain(|&address| {
            let Some(block) = memory.live(address) else {
                return false;
            };
            if block.kind != MemoryKind::System || block.address != address {
                return false;
            }
            let pending =
                graphs.uses(block) || block.uses.iter().any(|last| !order.host_knows(last.epoch));
            if !pending {
                memory.remove(address);
            }
            pending
        });
        let excess = self.system.blocks.len().saturating_sub(SystemMemory::CAP);
        for address in self.system.blocks.drain(..excess) {
            self.memory.remove(address);
            self.system.forgotten += 1;
        }
        self.system.sweep_at = (self.system.blocks.len() * 2).max(SystemMemory::LEAST);
    }
}

/// Whether the source and the target are host memory, as far as the direction says.
fn stated(direction: Direction) -> (Option<bool>, Option<bool>) {
    match direction {
        Direction::HostToHost => (Some(true), Some(true)),
        Direction::HostToDevice => (Some(true), Some(false)),
        Direction::DeviceToHost => (Some(false), Some(true)),
        Direction::DeviceToDevice => (Some(false), Some(false)),
        Direction::Inferred => (None, None),
    }
}
