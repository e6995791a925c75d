//! The engine itself: what each operation does to the state.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::{
    Action, Call, Direction, FreeKind, HostMemory, MemoryKind, Mode, NameId, Names, Operation,
    Outcome, Pointer, Region, StackId, StreamRef, ThreadId,
};

use crate::graph::Reason;
use crate::memory::{Allocation, Memory};
use crate::op::{Access, OpRef};
use crate::order::{Order, StreamId, StreamKind, Waited};
use crate::rules::violation::{Free, Use, Violation};
use crate::rules::{
    self, Level, Levels, RuleCode, sc102_use_after_free, sc106_invalid_free, sc109_data_race,
    sc112_wait_on_unrecorded_event, sc201_pageable_async_copy, sc202_default_stream_serialization,
};
use crate::shadow::{Footprint, Shadow};
use crate::view::View;
use crate::{BlindSpot, EventFacts, Finding, Summary};

/// Findings are told apart by rule, allocation site, use site and kernel.
type FindingKey = (RuleCode, StackId, StackId, NameId);

/// A free whose real call has not returned yet.
#[derive(Debug)]
struct PendingFree {
    op: OpRef,
    kind: FreeKind,
    address: u64,
    stream: Option<StreamId>,
    /// What it frees, out of the live memory meanwhile.
    allocation: Option<Box<Allocation>>,
    found: Vec<Violation>,
}

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

/// Checks a stream of operations.
#[derive(Debug)]
pub struct Engine {
    levels: Levels,
    names: Names,
    order: Order,
    memory: Memory,
    /// The free that each thread is in.
    pending: Vec<(ThreadId, PendingFree)>,
    known: FxHashMap<FindingKey, usize>,
    counts: Vec<u64>,
    sequence: u64,
    launches: u64,
    copies: u64,
    allocations: u64,
    blind_spots: Vec<(NameId, u64, NameId)>,
    evicted_accesses: u64,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(levels: Levels) -> Self {
        Self {
            levels,
            names: Names::default(),
            order: Order::default(),
            memory: Memory::default(),
            pending: Vec::new(),
            known: FxHashMap::default(),
            counts: Vec::new(),
            sequence: 0,
            launches: 0,
            copies: 0,
            allocations: 0,
            blind_spots: Vec::new(),
            evicted_accesses: 0,
        }
    }

    /// The names that operations refer to.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// For interning the names that the next operations refer to.
    pub fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// How often each finding was made, by its number.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The kind of the live memory at `address`, if the engine knows any there.
    #[must_use]
    pub fn memory_kind(&self, address: u64) -> Option<MemoryKind> {
        self.memory.live(address).map(|allocation| allocation.kind)
    }

    /// What was seen so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut blind_spots: Vec<BlindSpot> = self
            .blind_spots
            .iter()
            .map(|&(kind, count, example)| BlindSpot {
                kind: self.names.text(kind).to_owned(),
                count,
                example: self.names.text(example).to_owned(),
            })
            .collect();
        for (kind, count) in [
            ("forgotten-accesses", self.evicted_accesses),
            ("forgotten-freed-blocks", self.memory.evicted),
        ] {
            if count > 0 {
                blind_spots.push(BlindSpot {
                    kind: kind.into(),
                    count,
                    example: String::new(),
                });
            }
        }
        Summary {
            operations: self.sequence,
            launches: self.launches,
            copies: self.copies,
            allocations: self.allocations,
            streams: self.order.stream_count() as u64,
            blind_spots,
        }
    }

    /// The happens-before graph of stream segments, in Graphviz's language.
    #[must_use]
    pub fn dot(&self) -> String {
        let view = View {
            names: &self.names,
            order: &self.order,
        };
        self.order.dot(|id| view.stream(id))
    }

    #[cfg(test)]
    pub(crate) fn order(&mut self) -> &mut Order {
        &mut self.order
    }

    /// Takes in what happened and returns the findings that are new.
    pub fn apply(&mut self, operation: &Operation) -> Vec<Finding> {
        let Operation { call, action } = operation;
        // The end of a free is no call of its own, and neither is what a host
        // function's start or a name tells.
        let silent = matches!(
            action,
            Action::FreeEnded { .. }
                | Action::HostFunctionStarted { .. }
                | Action::StreamNamed { .. }
                | Action::BlindSpot { .. }
        );
        self.sequence += u64::from(!silent);
        let mut found = Vec::new();
        self.take_in(call, action, &mut found);
        found
            .into_iter()
            .filter_map(|violation| self.report(&violation))
            .collect()
    }

    fn take_in(&mut self, call: &Call, action: &Action, found: &mut Vec<Violation>) {
        match *action {
            Action::StreamCreated { stream, blocking } => {
                self.order.create_stream(stream, blocking, call);
            }
            Action::StreamDestroyed { stream } => self.order.destroy_stream(stream),
            Action::StreamNamed { stream, name } => {
                let id = self.order.resolve(stream, call);
                self.order.name_stream(id, name);
            }
            Action::EventCreated { event } => self.order.create_event(event),
            Action::EventDestroyed { event } => self.order.destroy_event(event),
            Action::EventRecorded { event, stream } => {
                let (id, op) = self.on_stream(stream, call);
                self.order.record(event, id, op);
            }
            Action::StreamWaited { stream, event } => {
                let (id, op) = self.on_stream(stream, call);
                match self.order.wait(id, event, op) {
                    Waited::Ordered => {}
                    Waited::Unrecorded => found.push(sc112_wait_on_unrecorded_event::check(op)),
                    Waited::Unknown => {
                        self.blind_spot("event-of-unknown-origin", NameId::default())
                    }
                }
            }
            Action::EventSynchronized { event } => {
                let op = OpRef::new(self.sequence, call, None);
                if self.order.synchronize_event(event, op) == Waited::Unknown {
                    self.blind_spot("event-of-unknown-origin", NameId::default());
                }
            }
            Action::StreamSynchronized { stream } => {
                let (id, op) = self.on_stream(stream, call);
                self.order.synchronize_stream(id, Reason::HostSync, op);
            }
            Action::DeviceSynchronized => {
                let op = OpRef::new(self.sequence, call, None);
                self.order
                    .synchronize_device(call.device.0, Reason::HostSync, op);
            }
            Action::Allocated {
                address,
                size,
                kind,
                stream,
            } => self.allocated(call, address, size, kind, stream),
            Action::FreeBegun {
                address,
                kind,
                stream,
            } => self.free_begun(call, address, kind, stream),
            Action::FreeEnded { outcome } => self.free_ended(call, outcome, found),
            Action::Launched {
                stream,
                kernel,
                ref pointers,
                layout_known,
            } => {
                self.launched(call, stream, kernel, pointers, layout_known, found);
            }
            Action::Copied {
                stream,
                to,
                from,
                direction,
                host,
                synchronous,
            } => {
                self.copied(call, stream, to, from, direction, host, synchronous, found);
            }
            Action::Filled {
                stream,
                to,
                synchronous,
            } => self.filled(call, stream, to, synchronous, found),
            Action::HostFunctionEnqueued { stream, token } => {
                let (id, op) = self.on_stream(stream, call);
                self.order.enqueue_host_function(token, id, op);
            }
            Action::HostFunctionStarted { token } => {
                let op = OpRef::new(self.sequence, call, None);
                self.order.start_host_function(token, op);
            }
            Action::BlindSpot { kind, example } => self.count_blind_spot(kind, example),
        }
    }

    fn on_stream(&mut self, stream: StreamRef, call: &Call) -> (StreamId, OpRef) {
        let id = self.order.resolve(stream, call);
        (id, OpRef::new(self.sequence, call, Some(id)))
    }

    fn blind_spot(&mut self, kind: &str, example: NameId) {
        let kind = self.names.intern(kind);
        self.count_blind_spot(kind, example);
    }

    fn count_blind_spot(&mut self, kind: NameId, example: NameId) {
        match self
            .blind_spots
            .iter_mut()
            .find(|(known, ..)| *known == kind)
        {
            Some((_, count, _)) => *count += 1,
            None => self.blind_spots.push((kind, 1, example)),
        }
    }

    fn allocated(
        &mut self,
        call: &Call,
        address: u64,
        size: u64,
        kind: MemoryKind,
        stream: Option<StreamRef>,
    ) {
        self.allocations += 1;
        if address == 0 {
            return;
        }
        let birth = match stream {
            Some(stream) => {
                let (id, op) = self.on_stream(stream, call);
                Access {
                    epoch: self.order.submit(id, op),
                    op,
                }
            }
            None => Access {
                epoch: self.order.host_now(),
                op: OpRef::new(self.sequence, call, None),
            },
        };
        self.memory.insert(Box::new(Allocation {
            address,
            size,
            kind,
            birth,
            uses: SmallVec::new(),
            shadow: Shadow::default(),
            recycled: None,
        }));
    }

    fn free_begun(&mut self, call: &Call, address: u64, kind: FreeKind, stream: Option<StreamRef>) {
        if address == 0 {
            return;
        }
        let (stream, op) = match stream {
            Some(stream) => {
                let (id, op) = self.on_stream(stream, call);
                (Some(id), op)
            }
            None => (None, OpRef::new(self.sequence, call, None)),
        };
        let free = Free {
            order: &self.order,
            stream,
            op,
            kind,
            address,
        };
        let mut found: Vec<Violation> = sc106_invalid_free::check(&free, &self.memory)
            .into_iter()
            .collect();
        let mut allocation = None;
        if found.is_empty()
            && let Some(live) = self.memory.live(address)
        {
            rules::check_free(&free, live, &mut found);
            // The C library's free takes the pages, not the registration.
            if kind != FreeKind::Libc {
                allocation = self.memory.remove(address);
            }
        }
        self.pending.retain(|(thread, _)| *thread != call.thread);
        let pending = PendingFree {
            op,
            kind,
            address,
            stream,
            allocation,
            found,
        };
        self.pending.push((call.thread, pending));
    }

    fn free_ended(&mut self, call: &Call, outcome: Outcome, found: &mut Vec<Violation>) {
        let mut pending = self.pending.iter();
        let Some(place) = pending.position(|(thread, _)| *thread == call.thread) else {
            return;
        };
        let (_, pending) = self.pending.swap_remove(place);
        let PendingFree {
            op,
            kind,
            address,
            stream,
            allocation,
            found: judged,
        } = pending;
        let invalid = judged
            .first()
            .is_some_and(|violation| violation.rule == RuleCode::SC106);
        if invalid {
            found.extend(judged);
            return;
        }
        // A call that failed has put nothing into its stream.
        let epoch = match stream {
            Some(id) if outcome == Outcome::Succeeded => self.order.submit(id, op),
            _ => self.order.host_now(),
        };
        match (outcome, allocation) {
            (Outcome::Succeeded, Some(allocation)) => {
                let memory = allocation.kind;
                found.extend(judged);
                // Host addresses go back to the C library, which may hand them out
                // for anything; only device addresses are CUDA's alone.
                if matches!(
                    memory,
                    MemoryKind::StreamOrdered | MemoryKind::Device | MemoryKind::Mapped
                ) {
                    self.memory.bury(allocation.into_past(Access { epoch, op }));
                }
                let waits = match kind {
                    FreeKind::Sync => memory != MemoryKind::StreamOrdered,
                    // Seen on driver 580 for both; NVIDIA promises neither.
                    FreeKind::Host | FreeKind::Unregister => true,
                    _ => false,
                };
                if waits {
                    self.order
                        .synchronize_device(call.device.0, Reason::ImplicitSync, op);
                }
            }
            (Outcome::Succeeded, None) => found.extend(judged),
            (Outcome::Refused | Outcome::Failed, Some(allocation)) => {
                self.memory.restore(allocation)
            }
            (Outcome::Refused, None) => {
                let free = Free {
                    order: &self.order,
                    stream,
                    op,
                    kind,
                    address,
                };
                found.push(sc106_invalid_free::refused(&free));
            }
            (Outcome::Failed, None) => {}
        }
    }

    fn launched(
        &mut self,
        call: &Call,
        stream: StreamRef,
        kernel: NameId,
        pointers: &[Pointer],
        layout_known: bool,
        found: &mut Vec<Violation>,
    ) {
        self.launches += 1;
        if !layout_known {
            self.blind_spot("unknown-kernel-parameters", kernel);
        }
        let (id, mut op) = self.on_stream(stream, call);
        op.kernel = kernel;
        let doubtful = pointers
            .iter()
            .filter(|pointer| pointer.mode == Mode::Doubtful)
            .any(|pointer| self.memory.live(pointer.address).is_some());
        if doubtful {
            self.blind_spot("pointers-in-large-structs", kernel);
        }
        let uses: SmallVec<[(Footprint, Mode); 8]> = pointers
            .iter()
            .enumerate()
            .filter(|(_, pointer)| pointer.mode != Mode::Doubtful)
            .filter(|(place, _)| !self.ends_a_range(*place, pointers))
            .map(|(_, pointer)| (Footprint::Pointer(pointer.address), pointer.mode))
            .collect();
        self.serializes(
            id,
            op,
            uses.iter().map(|(footprint, _)| footprint.address()),
            found,
        );
        let epoch = self.order.submit(id, op);
        self.touch(id, Access { epoch, op }, &uses, found);
    }

    /// Whether the pointer at `place` begins one block only because another, which
    /// the launch points into as well, ends there: the end of a range of iterators.
    /// Where the block that begins is live, only the pointer just before counts, and
    /// two that may be written are two buffers, which a pool often places side by
    /// side.
    fn ends_a_range(&self, place: usize, pointers: &[Pointer]) -> bool {
        let end = pointers[place];
        let Some(block) = self.memory.ending_at(end.address) else {
            return false;
        };
        let within = |begin: &Pointer| (block.address..end.address).contains(&begin.address);
        if self.memory.live(end.address).is_none() {
            return pointers.iter().any(within);
        }
        let begin = place.checked_sub(1).map(|before| pointers[before]);
        begin.is_some_and(|begin| {
            begin.mode == end.mode && end.mode != Mode::Write && within(&begin)
        })
    }

    /// Reports work on the legacy stream that holds up others.
    fn serializes(
        &self,
        id: StreamId,
        op: OpRef,
        addresses: impl Iterator<Item = u64>,
        found: &mut Vec<Violation>,
    ) {
        if self.order.kind(id) == StreamKind::Legacy
            && self.levels.of(RuleCode::SC202) != Level::Off
        {
            let addresses: SmallVec<[u64; 8]> = addresses.collect();
            found.extend(sc202_default_stream_serialization::check(
                &self.order,
                &self.memory,
                op,
                &addresses,
            ));
        }
    }

    /// Checks and remembers what an operation touches.
    fn touch(
        &mut self,
        id: StreamId,
        access: Access,
        uses: &[(Footprint, Mode)],
        found: &mut Vec<Violation>,
    ) {
        let reported = found.len();
        for &(footprint, mode) in uses {
            let used = Use {
                order: &self.order,
                stream: id,
                op: access.op,
                footprint,
                mode,
            };
            let Some(allocation) = self.memory.live_mut(footprint.address()) else {
                if let Some(past) = self.memory.freed(footprint.address()) {
                    push_once(found, reported, sc102_use_after_free::check(&used, past));
                }
                continue;
            };
            if let Some(violation) = rules::check_lifetime(&used, allocation) {
                push_once(found, reported, violation);
                allocation.used(access);
                continue;
            }
            if let Some(violation) = sc109_data_race::check(&used, allocation) {
                push_once(found, reported, violation);
            }
            allocation.used(access);
            let order = &self.order;
            self.evicted_accesses += allocation.shadow.add(
                footprint,
                mode,
                access,
                |old| order.stream_knows(id, old.epoch),
                |old| order.host_knows(old.epoch),
            );
        }
    }

    /// What a side of a copy is, given what the call states.
    fn side(&self, region: Region, stated_host: Option<bool>, host: HostMemory) -> Side {
        match (
            self.memory.live(region.address).map(|block| block.kind),
            stated_host,
        ) {
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

    #[expect(
        clippy::too_many_arguments,
        reason = "a copy is described by that many things"
    )]
    fn copied(
        &mut self,
        call: &Call,
        stream: StreamRef,
        to: Region,
        from: Region,
        direction: Direction,
        host: HostMemory,
        synchronous: bool,
        found: &mut Vec<Violation>,
    ) {
        self.copies += 1;
        let (from_host, to_host) = match direction {
            Direction::HostToHost => (Some(true), Some(true)),
            Direction::HostToDevice => (Some(true), Some(false)),
            Direction::DeviceToHost => (Some(false), Some(true)),
            Direction::DeviceToDevice => (Some(false), Some(false)),
            Direction::Inferred => (None, None),
        };
        let (source, target) = (
            self.side(from, from_host, host),
            self.side(to, to_host, host),
        );
        let (id, mut op) = self.on_stream(stream, call);
        if to.bytes() == 0 {
            self.order.submit(id, op);
            return;
        }
        op.staged = synchronous && source == Side::Pageable;
        self.serializes(id, op, [to.address, from.address].into_iter(), found);
        let epoch = self.order.submit(id, op);
        let mut uses: SmallVec<[(Footprint, Mode); 2]> = SmallVec::new();
        // Pageable memory is the C library's: what is remembered of its address
        // says nothing, and the call is done with it when it returns.
        if matches!(source, Side::Device | Side::Pinned | Side::Unknown) {
            uses.push((Footprint::Exact(from), Mode::Read));
        }
        if matches!(target, Side::Device | Side::Pinned | Side::Unknown) {
            uses.push((Footprint::Exact(to), Mode::Write));
        }
        self.touch(id, Access { epoch, op }, &uses, found);
        if !synchronous {
            for (side, region) in [(source, from), (target, to)] {
                if side == Side::Pageable {
                    found.push(sc201_pageable_async_copy::check(
                        op,
                        region.address,
                        region.bytes(),
                    ));
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

    fn filled(
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
        let epoch = self.order.submit(id, op);
        if to.bytes() == 0 {
            return;
        }
        self.touch(
            id,
            Access { epoch, op },
            &[(Footprint::Exact(to), Mode::Write)],
            found,
        );
        let kind = self.memory_kind(to.address);
        if synchronous && kind.is_some_and(|kind| kind.is_host() || kind == MemoryKind::Managed) {
            self.order.synchronize_stream(id, Reason::HostSync, op);
        }
    }

    /// Counts a violation, and puts it into words if it is new.
    fn report(&mut self, violation: &Violation) -> Option<Finding> {
        let level = self.levels.of(violation.rule);
        if level == Level::Off {
            return None;
        }
        let used_by = violation.used_by();
        let key = (
            violation.rule,
            violation.allocation_site(),
            used_by.stack,
            used_by.kernel,
        );
        if let Some(&number) = self.known.get(&key) {
            self.counts[number] += 1;
            return None;
        }
        let number = self.counts.len();
        let view = View {
            names: &self.names,
            order: &self.order,
        };
        let text = rules::describe(violation, &view)?;
        let events = text.events.iter().map(|&(role, op)| EventFacts {
            role,
            api: self.names.text(op.api).to_owned(),
            stream: op.stream.map(|id| view.stream_in_full(id)),
            kernel: view.kernel(op),
            device: op.device,
            thread: op.thread,
            sequence: op.sequence,
            stack: op.stack,
        });
        let finding = Finding {
            number,
            rule: violation.rule,
            level,
            message: text.message,
            ordering: text.ordering,
            help: text.help,
            allocation: violation.block.map(|block| block.facts()),
            events: events.collect(),
        };
        self.known.insert(key, number);
        self.counts.push(1);
        Some(finding)
    }
}

/// Adds a violation unless this operation broke the same rule on the same block.
fn push_once(found: &mut Vec<Violation>, reported: usize, violation: Violation) {
    let base = |violation: &Violation| violation.block.map(|block| block.address);
    let same = |known: &Violation| known.rule == violation.rule && base(known) == base(&violation);
    if !found[reported..].iter().any(same) {
        found.push(violation);
    }
}
