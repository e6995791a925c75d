//! The engine itself: what each operation does to the state.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::{
    Action, Call, DeviceId, Element, Flag, FreeKind, Handle, MemoryKind, Mode, NameId, Names,
    NodeWork, Operation, Outcome, Pointer, Region, StackId, StreamRef, ThreadId, Used,
};

use crate::captures::Captures;
use crate::copies::SystemMemory;
use crate::graph::Reason;
use crate::graphs::Graphs;
use crate::memory::{Allocation, BlockId, Memory};
use crate::op::{Access, OpRef};
use crate::order::{Order, Scope, StreamId, StreamKind, Waited};
use crate::recent::Part;
use crate::rules::violation::{Free, Use, Violation};
use crate::rules::{
    self, Level, Levels, RuleCode, sc102_use_after_free, sc106_invalid_free, sc109_data_race,
    sc111_leaked_allocation, sc112_wait_on_unrecorded_event, sc202_default_stream_serialization,
    sc204_redundant_sync,
};
use crate::shadow::Footprint;
use crate::timeline;
use crate::view::View;
use crate::{BlindSpot, EventFacts, Finding, HostUse, Summary, Timeline};

/// Findings are told apart by rule, allocation site, use site and kernel.
type FindingKey = (RuleCode, StackId, StackId, NameId);

/// Findings with a timeline: the first of a run tell what is to be told, and a report
/// of thousands stays readable by machines.
const TIMELINES: usize = 256;

/// Findings of a run. More are counted; nobody reads them, and memory has an end.
const MOST_FINDINGS: usize = 1 << 16;

/// A free whose real call has not returned yet.
#[derive(Debug)]
struct PendingFree {
    op: OpRef,
    kind: FreeKind,
    address: u64,
    stream: Option<StreamId>,
    /// What it frees, which is not live meanwhile.
    allocation: Option<BlockId>,
    found: Vec<Violation>,
}

/// What an operation does to one piece of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) footprint: Footprint,
    pub(crate) mode: Mode,
    /// It may happen before earlier work of its stream does.
    pub(crate) early: bool,
    /// Streams signal each other with it: it has to be there, and races with nothing.
    pub(crate) signals: bool,
    /// It is over when the call returns.
    pub(crate) over: bool,
}

impl Touch {
    pub(crate) fn new(footprint: Footprint, mode: Mode) -> Self {
        Self {
            footprint,
            mode,
            early: false,
            signals: false,
            over: false,
        }
    }
}

/// Checks a stream of operations.
#[derive(Debug)]
pub struct Engine {
    levels: Levels,
    names: Names,
    pub(crate) order: Order,
    pub(crate) memory: Memory,
    pub(crate) system: SystemMemory,
    pub(crate) captures: Captures,
    pub(crate) graphs: Graphs,
    /// The free that each thread is in.
    pending: Vec<(ThreadId, PendingFree)>,
    known: FxHashMap<FindingKey, usize>,
    counts: Vec<u64>,
    sequence: u64,
    pub(crate) launches: u64,
    pub(crate) copies: u64,
    pub(crate) allocations: u64,
    blind_spots: Vec<(NameId, u64, NameId)>,
    pub(crate) evicted_accesses: u64,
    /// Violations, repeated ones among them, that no finding tells of past [`MOST_FINDINGS`].
    unreported: u64,
    /// What was done to host memory and not asked for yet, if anybody asks.
    pub(crate) host_uses: Option<Vec<HostUse>>,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(levels: Levels) -> Self {
        let mut order = Order::default();
        if levels.of(RuleCode::SC204) != Level::Off {
            order.judge_waits();
        }
        Self {
            levels,
            names: Names::default(),
            order,
            memory: Memory::default(),
            system: SystemMemory::default(),
            captures: Captures::default(),
            graphs: Graphs::default(),
            pending: Vec::new(),
            known: FxHashMap::default(),
            counts: Vec::new(),
            sequence: 0,
            launches: 0,
            copies: 0,
            allocations: 0,
            blind_spots: Vec::new(),
            evicted_accesses: 0,
            unreported: 0,
            host_uses: None,
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

    /// Whether any byte of `start..end` is in memory that is known.
    #[must_use]
    pub fn knows_memory_in(&self, start: u64, end: u64) -> bool {
        !self.memory.live_in(start, end).is_empty()
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
            ("forgotten-sources", self.system.forgotten),
            ("forgotten-streams", self.order.forgotten_streams),
            (
                "forgotten-host-functions",
                self.order.forgotten_host_functions(),
            ),
            ("findings-not-told", self.unreported),
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
            streams: self.order.stream_count(),
            blind_spots,
        }
    }

    /// The happens-before graph of stream segments, in Graphviz's language.
    #[must_use]
    pub fn dot(&self) -> String {
        let view = View::new(&self.names, &self.order);
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
                | Action::Barrier { .. }
                | Action::Ended
                | Action::BlindSpot { .. }
                | Action::DeviceDescribed { .. }
        );
        if !silent {
            if !matches!(action, Action::HostAccessed { .. }) {
                self.order.end_host_function(call.thread.0);
            }
            self.sequence += 1;
            self.order
                .recent
                .begin(self.sequence, call, Part::of(action));
        }
        let mut found = Vec::new();
        self.take_in(call, action, &mut found);
        if !silent {
            let host = self.order.host_now();
            self.order.recent.settle(self.sequence, host);
        }
        if found.is_empty() {
            return Vec::new();
        }
        let new = found.iter();
        new.filter_map(|violation| self.report(violation)).collect()
    }

    fn take_in(&mut self, call: &Call, action: &Action, found: &mut Vec<Violation>) {
        if self.captured(call, action) {
            return;
        }
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
                let waited = self.order.wait(id, event, op);
                self.waited(waited, op, found);
            }
            Action::EventSynchronized { event, polled } => {
                let op = self.on_host(call);
                match self.order.synchronize_event(event, op) {
                    // Seen to do nothing, as a wait on the device; often a first round's.
                    Waited::Unrecorded => {}
                    Waited::Redundant if polled => {}
                    waited => self.waited(waited, op, found),
                }
            }
            Action::StreamSynchronized { stream, polled } => {
                let (id, op) = self.on_stream(stream, call);
                if self.order.synchronize_stream(id, Reason::HostSync, op) && !polled {
                    found.push(sc204_redundant_sync::check(op));
                }
            }
            Action::DeviceSynchronized => {
                self.synchronized(Scope::Device(call.device), call, found);
            }
            Action::ContextSynchronized => self.synchronized(here(call), call, found),
            Action::ContextRecorded { event } => {
                let op = self.on_host(call);
                self.order.record_scope(event, here(call), call, op);
            }
            Action::ContextWaited { event } => {
                let op = self.on_host(call);
                let waited = self.order.wait_scope(event, here(call), call, op);
                self.waited(waited, op, found);
            }
            Action::ContextDestroyed => self.context_destroyed(call, found),
            Action::Barrier { ref devices } => {
                let op = self.on_host(call);
                self.order.barrier(devices, call, op);
            }
            Action::Enqueued { stream } => {
                let (id, op) = self.on_stream(stream, call);
                self.order.submit(id, op);
            }
            Action::ValueWritten {
                stream,
                flag,
                value,
            } => {
                let (id, op) = self.on_stream(stream, call);
                let access = self.order.write_value(id, flag, value, op);
                self.signals_with(id, flag, access, found);
                if self.host_sees(flag) {
                    self.order.shows_host(id);
                }
            }
            Action::ValueWaited {
                stream,
                flag,
                value,
                condition,
            } => {
                let (id, op) = self.on_stream(stream, call);
                let (access, ordered) = self.order.wait_for_value(id, flag, value, condition, op);
                if !ordered {
                    self.blind_spot("value-wait-of-unseen-end", call.api);
                }
                self.signals_with(id, flag, access, found);
            }
            Action::PoolDestroyed { pool } => {
                let op = self.on_host(call);
                self.leaked(
                    op,
                    |block| block.pool == pool && pool != Handle::default(),
                    found,
                );
            }
            Action::Ended => {
                let op = self.on_host(call);
                self.leaked(op, |_| true, found);
            }
            Action::Allocated {
                address,
                size,
                kind,
                stream,
                pool,
            } => self.allocated(call, address, size, kind, stream, pool),
            Action::FreeBegun {
                address,
                kind,
                stream,
                part,
            } => self.free_begun(call, address, kind, stream, part),
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
                let layers = [(to, from)];
                self.copied(call, stream, &layers, direction, host, synchronous, found);
            }
            Action::CopiedInLayers {
                stream,
                ref layers,
                direction,
                host,
                synchronous,
            } => {
                self.copied(call, stream, layers, direction, host, synchronous, found);
            }
            Action::CopiedTogether { stream, ref copies } => {
                self.copied_together(call, stream, copies, found);
            }
            Action::Filled {
                stream,
                to,
                synchronous,
            } => self.filled(call, stream, to, synchronous, found),
            Action::HostAccessed {
                region,
                mode,
                ref through,
            } => self.host_accessed(call, region, mode, through, found),
            Action::DeviceDescribed { device, coherent } => self.system.describe(device, coherent),
            Action::HostFunctionEnqueued { stream, token } => {
                let (id, op) = self.on_stream(stream, call);
                self.order.enqueue_host_function(token, id, op);
            }
            Action::HostFunctionStarted { token } => {
                let op = self.on_host(call);
                self.order.start_host_function(token, op);
            }
            Action::BlindSpot { kind, example } => self.count_blind_spot(kind, example),
            Action::CaptureBegun { .. }
            | Action::CaptureEnded { .. }
            | Action::NodeCaptured { .. }
            | Action::CaptureDependencies { .. }
            | Action::GraphCreated { .. }
            | Action::GraphDestroyed { .. }
            | Action::GraphCloned { .. }
            | Action::NodeFoundInClone { .. }
            | Action::NodeAdded { .. }
            | Action::NodeRemoved { .. }
            | Action::NodeChanged { .. }
            | Action::EdgesChanged { .. }
            | Action::GraphInstantiated { .. }
            | Action::ExecUpdated { .. }
            | Action::ExecDestroyed { .. }
            | Action::NodeEnabled { .. }
            | Action::GraphLaunched { .. } => self.take_in_graphs(call, action, found),
        }
    }

    /// The actions about captures and graphs.
    fn take_in_graphs(&mut self, call: &Call, action: &Action, found: &mut Vec<Violation>) {
        let op = self.on_host(call);
        match *action {
            Action::CaptureBegun {
                stream,
                graph,
                ref dependencies,
            } => self.capture_begun(call, stream, graph, dependencies),
            Action::CaptureEnded { stream, graph } => self.capture_ended(call, stream, graph),
            Action::NodeCaptured { stream, ref work } => match *work {
                NodeWork::EventRecord { event } => {
                    let action = Action::EventRecorded { event, stream };
                    self.take_in(call, &action, found);
                }
                NodeWork::EventWait { event } => {
                    let action = Action::StreamWaited { stream, event };
                    self.take_in(call, &action, found);
                }
                _ => self.take_in(call, &Action::Enqueued { stream }, found),
            },
            Action::CaptureDependencies {
                stream,
                ref nodes,
                replace,
            } => self.capture_dependencies(call, stream, nodes, replace),
            Action::GraphCreated { graph } => self.graph_created(graph, call),
            Action::GraphDestroyed { graph } => self.graphs.remove(graph),
            Action::GraphCloned { graph, from } => self.graph_cloned(graph, from, call),
            Action::NodeFoundInClone {
                graph,
                node,
                original,
            } => self.found_in_clone(graph, node, original),
            Action::NodeAdded {
                graph,
                node,
                ref dependencies,
                ref work,
            } => self.node_added((graph, node), dependencies, work, op, call),
            Action::NodeRemoved { node } => self.node_removed(node, call),
            Action::NodeChanged {
                exec: Handle(0),
                node,
                ref work,
            } => self.node_changed(node, work, op, call),
            Action::NodeChanged {
                exec,
                node,
                ref work,
            } => self.exec_node_changed(call, (exec, node), work, op),
            Action::EdgesChanged {
                graph,
                ref pairs,
                added,
            } => self.edges_changed(graph, pairs, added, call),
            Action::GraphInstantiated {
                exec,
                graph,
                auto_free,
            } => self.graph_instantiated(call, (exec, graph), auto_free, found),
            Action::ExecUpdated { exec, graph } => self.exec_updated(call, (exec, graph), found),
            Action::ExecDestroyed { exec } => self.exec_destroyed(exec),
            Action::NodeEnabled {
                exec,
                node,
                enabled,
            } => self.node_enabled(call, exec, node, enabled),
            Action::GraphLaunched { stream, exec } => {
                self.graph_launched(call, stream, exec, found);
            }
            _ => {}
        }
    }

    pub(crate) fn on_stream(&mut self, stream: StreamRef, call: &Call) -> (StreamId, OpRef) {
        let id = self.order.resolve(stream, call);
        (id, OpRef::new(self.sequence, call, Some(id)))
    }

    pub(crate) fn on_host(&self, call: &Call) -> OpRef {
        OpRef::new(self.sequence, call, None)
    }

    /// What a wait came to.
    pub(crate) fn waited(&mut self, waited: Waited, op: OpRef, found: &mut Vec<Violation>) {
        match waited {
            Waited::Ordered => {}
            Waited::Redundant => found.push(sc204_redundant_sync::check(op)),
            Waited::Unrecorded => found.push(sc112_wait_on_unrecorded_event::check(op)),
            Waited::Unknown => self.blind_spot("event-of-unknown-origin", NameId::default()),
        }
    }

    fn synchronized(&mut self, scope: Scope, call: &Call, found: &mut Vec<Violation>) {
        let op = self.on_host(call);
        if self.order.synchronize(scope, Reason::HostSync, op) {
            found.push(sc204_redundant_sync::check(op));
        }
    }

    /// What ends with its context: its streams, and its memory, of which nothing is
    /// known from now on.
    fn context_destroyed(&mut self, call: &Call, found: &mut Vec<Violation>) {
        let (scope, op) = (here(call), self.on_host(call));
        self.order.synchronize(scope, Reason::HostSync, op);
        let inside = |block: &Allocation| scope.holds(block.birth.op.device, block.context);
        self.leaked(op, inside, found);
        let gone: Vec<u64> = self
            .memory
            .all_mut()
            .filter(|block| inside(block) && block.kind != MemoryKind::System)
            .map(|block| block.address)
            .collect();
        for address in gone {
            self.memory.remove(address);
        }
        self.order.destroy_context(scope);
    }

    /// Reports the stream-ordered memory among `concerned` that is not freed.
    fn leaked(
        &mut self,
        op: OpRef,
        concerned: impl Fn(&Allocation) -> bool,
        found: &mut Vec<Violation>,
    ) {
        if self.levels.of(RuleCode::SC111) == Level::Off {
            return;
        }
        for block in self.memory.all_mut().filter(|block| concerned(block)) {
            found.extend(sc111_leaked_allocation::check(op, block));
        }
    }

    /// A stream works on a flag. Streams do so to signal each other, so that is no race;
    /// the memory has to be there, though.
    fn signals_with(
        &mut self,
        id: StreamId,
        flag: Flag,
        access: Access,
        found: &mut Vec<Violation>,
    ) {
        if let Flag::Memory(address) = flag {
            let word = Footprint::Exact(Region::linear(address, 4));
            let touch = Touch {
                signals: true,
                ..Touch::new(word, Mode::Unknown)
            };
            self.touch(id, access, &[touch], found);
        }
    }

    /// Whether the CPU may poll the flag.
    fn host_sees(&mut self, flag: Flag) -> bool {
        let Flag::Memory(address) = flag else {
            return true;
        };
        let block = self.memory.find(address);
        let block = block.and_then(|block| self.memory.as_live(block));
        block.is_none_or(|block| block.kind.is_host() || block.kind == MemoryKind::Managed)
    }

    pub(crate) fn blind_spot(&mut self, kind: &str, example: NameId) {
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
        pool: Handle,
    ) {
        self.allocations += 1;
        if address == 0 {
            return;
        }
        let birth = match stream {
            Some(stream) => {
                let (id, op) = self.on_stream(stream, call);
                self.order.submit(id, op)
            }
            None => Access {
                epoch: self.order.host_now(),
                op: OpRef::new(self.sequence, call, None),
            },
        };
        self.order
            .overwritten(address, address.saturating_add(size));
        let mut block = Allocation::new((address, size), kind, birth, call.context);
        block.pool = pool;
        self.memory.insert(block);
    }

    fn free_begun(
        &mut self,
        call: &Call,
        address: u64,
        kind: FreeKind,
        stream: Option<StreamRef>,
        part: Option<Region>,
    ) {
        if address == 0 {
            return;
        }
        let (stream, op) = match stream {
            Some(stream) => {
                let (id, op) = self.on_stream(stream, call);
                self.order.recent.pends(op);
                (Some(id), op)
            }
            None => (None, OpRef::new(self.sequence, call, None)),
        };
        let holder = self.memory.find(address);
        self.end_lease(holder);
        let free = Free {
            order: &self.order,
            stream,
            op,
            kind,
            address,
            part,
            strict: false,
        };
        let live = holder.and_then(|id| self.memory.as_live(id));
        let invalid = sc106_invalid_free::check(&free, live, &self.memory);
        let mut found: Vec<Violation> = invalid.into_iter().collect();
        let mut allocation = None;
        if found.is_empty()
            && let (Some(id), Some(live)) = (holder, live)
        {
            rules::judge_free(free, live, &mut found);
            // The C library's free takes the pages, not the registration.
            if kind != FreeKind::Libc {
                self.memory.leave(id);
                allocation = Some(id);
            } else if part.is_none() && live.address == address && self.graphs.uses(live) {
                let free = Access {
                    epoch: self.order.host_now(),
                    op,
                };
                self.graphs.freed(live, free);
                if live.kind == MemoryKind::System {
                    self.memory.remove(address);
                }
            }
        }
        self.drop_pending(call.thread);
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

    /// A free of this thread whose end was not seen, if any, has ended somehow.
    fn drop_pending(&mut self, thread: ThreadId) {
        let mut pending = self.pending.iter();
        if let Some(place) = pending.position(|(freeing, _)| *freeing == thread) {
            let (_, pending) = self.pending.swap_remove(place);
            if let Some(block) = pending.allocation {
                self.memory.forget(block);
            }
        }
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
        let free = match stream {
            Some(id) if outcome == Outcome::Succeeded && self.order.is_here(id) => {
                self.order.submit(id, op)
            }
            _ => Access {
                epoch: self.order.host_now(),
                op,
            },
        };
        let freed = allocation.and_then(|id| Some((id, self.memory.leaving(id)?)));
        match (outcome, freed) {
            (Outcome::Succeeded, Some((block, allocation))) => {
                let memory = allocation.kind;
                self.graphs.freed(allocation, free);
                found.extend(judged);
                // Host addresses go back to the C library, which may hand them out
                // for anything; only device addresses are CUDA's alone.
                // Not of the device's other contexts, and of host memory where it is
                // freed (both seen).
                let scope = if memory.is_host() {
                    here(call)
                } else {
                    Scope::Context(DeviceId(allocation.birth.op.device), allocation.context)
                };
                if kind != FreeKind::Import
                    && matches!(
                        memory,
                        MemoryKind::StreamOrdered | MemoryKind::Device | MemoryKind::Mapped
                    )
                {
                    self.memory.bury(block, free);
                } else {
                    self.memory.forget(block);
                }
                let waits = match kind {
                    FreeKind::Sync => memory != MemoryKind::StreamOrdered,
                    // Seen on driver 580 for both; NVIDIA promises neither.
                    FreeKind::Host | FreeKind::Unregister => true,
                    _ => false,
                };
                if waits {
                    self.order.synchronize(scope, Reason::ImplicitSync, op);
                }
            }
            (Outcome::Succeeded, None) => found.extend(judged),
            (Outcome::Refused | Outcome::Failed, Some((block, _))) => self.memory.restore(block),
            (Outcome::Refused, None) => {
                let free = Free {
                    order: &self.order,
                    stream,
                    op,
                    kind,
                    address,
                    part: None,
                    strict: false,
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
        if self.may_serialize(id) {
            let addresses = self.used_addresses(pointers);
            self.serializes(id, op, addresses.into_iter(), found);
        }
        let access = self.order.submit(id, op);
        // Nothing but the shadow is to be looked at where a stream does again what was
        // found to be right: it has only learned since.
        let plain =
            !(access.op.order_unknown || self.order.leans() || self.order.remembers_values());
        let reported = found.len();
        let mut doubtful = false;
        for (place, pointer) in pointers.iter().enumerate() {
            let Pointer {
                address,
                mode,
                shift,
                ..
            } = *pointer;
            let block = self.memory.find(address);
            if mode == Mode::Doubtful {
                doubtful |= block.is_some();
                continue;
            }
            if self.ends_a_range(place, pointers, block) {
                continue;
            }
            if plain
                && let Some(allocation) = block.and_then(|id| self.memory.as_live_mut(id))
                && allocation.lease.is_none()
                && allocation.shadow.again(address, shift, mode, access)
            {
                allocation.used(access);
                continue;
            }
            let touch = Touch::new(Footprint::Pointer(address, shift), mode);
            self.overwritten(&touch);
            self.touch_block(id, access, &touch, block, reported, found);
        }
        if self.host_uses.is_some() {
            self.note_pointers(access, pointers);
        }
        if doubtful {
            self.blind_spot("pointers-in-large-structs", kernel);
        }
    }

    /// The addresses that a launch uses.
    fn used_addresses(&mut self, pointers: &[Pointer]) -> SmallVec<[u64; 8]> {
        let mut used = SmallVec::new();
        for (place, pointer) in pointers.iter().enumerate() {
            let block = self.memory.find(pointer.address);
            if pointer.mode != Mode::Doubtful && !self.ends_a_range(place, pointers, block) {
                used.push(pointer.address);
            }
        }
        used
    }

    /// Whether the pointer at `place` begins one block only because another, which
    /// the launch points into as well, ends there: the end of a range of iterators.
    /// Where the block that begins is live, only the pointer just before counts, and
    /// two that may be written are two buffers, which a pool often places side by
    /// side. What the kernel's code is known to use is no end, unless it may use what
    /// lies before.
    #[inline]
    pub(crate) fn ends_a_range(
        &self,
        place: usize,
        pointers: &[Pointer],
        holder: Option<BlockId>,
    ) -> bool {
        let end = &pointers[place];
        if end.used == Used::Surely || !self.memory.ends_at(end.address, holder) {
            return false;
        }
        end.used == Used::Before || self.ends_range_of(place, pointers, holder)
    }

    /// The same for a pointer to where a live block ends.
    fn ends_range_of(&self, place: usize, pointers: &[Pointer], holder: Option<BlockId>) -> bool {
        let end = pointers[place];
        let Some(block) = self.memory.ending_at(end.address) else {
            return false;
        };
        let within = |begin: &Pointer| (block.address..end.address).contains(&begin.address);
        if holder.is_none() {
            return pointers.iter().any(within);
        }
        let begin = place.checked_sub(1).map(|before| pointers[before]);
        begin.is_some_and(|begin| {
            begin.mode == end.mode && end.mode != Mode::Write && within(&begin)
        })
    }

    /// Reports work on the legacy stream that holds up others.
    pub(crate) fn serializes(
        &mut self,
        id: StreamId,
        op: OpRef,
        addresses: impl Iterator<Item = u64>,
        found: &mut Vec<Violation>,
    ) {
        if !self.may_serialize(id) {
            return;
        }
        let addresses: SmallVec<[u64; 8]> = addresses.collect();
        for address in &addresses {
            let block = self.memory.find(*address);
            self.end_lease(block);
        }
        found.extend(sc202_default_stream_serialization::check(
            &self.order,
            &self.memory,
            op,
            &addresses,
        ));
    }

    /// Whether work on this stream holds up others, which is looked for.
    #[inline]
    pub(crate) fn may_serialize(&self, id: StreamId) -> bool {
        self.order.kind(id) == StreamKind::Legacy
            && self.levels.of(RuleCode::SC202) != Level::Off
            && self
                .order
                .pending_before_legacy(self.order.context(id))
                .next()
                .is_some()
    }

    /// Checks and remembers what an operation touches.
    pub(crate) fn touch(
        &mut self,
        id: StreamId,
        access: Access,
        touched: &[Touch],
        found: &mut Vec<Violation>,
    ) {
        let reported = found.len();
        for touch in touched {
            self.touch_from(id, access, touch, reported, found);
            if self.host_uses.is_some() {
                self.note_touch(access, touch, Element::default());
            }
        }
    }

    /// Checks and remembers one touch of an operation whose violations begin at `reported`.
    pub(crate) fn touch_from(
        &mut self,
        id: StreamId,
        access: Access,
        touch: &Touch,
        reported: usize,
        found: &mut Vec<Violation>,
    ) {
        self.overwritten(touch);
        let mut address = touch.footprint.address();
        let block = self.memory.find(address);
        self.touch_block(id, access, touch, block, reported, found);
        if let Footprint::Exact(region) = touch.footprint {
            while let Some(next) = self.memory.next_mapping(address)
                && next < region.end()
            {
                let block = self.memory.find(next);
                self.touch_block(id, access, touch, block, reported, found);
                address = next;
            }
        }
    }

    /// What is written by other means ends no wait for a value.
    #[inline]
    fn overwritten(&mut self, touch: &Touch) {
        if touch.signals || touch.mode == Mode::Read || !self.order.remembers_values() {
            return;
        }
        match touch.footprint {
            Footprint::Exact(region) => self.order.overwritten(region.address, region.end()),
            Footprint::Pointer(address, _) => {
                let end = self.memory.live(address).map(Allocation::end);
                self.order.overwritten(address, end.unwrap_or(address));
            }
        }
    }

    /// Checks and remembers what an operation does to a block; if it is to no live one,
    /// at the touch's address.
    fn touch_block(
        &mut self,
        id: StreamId,
        access: Access,
        touch: &Touch,
        block: Option<BlockId>,
        reported: usize,
        found: &mut Vec<Violation>,
    ) {
        let Touch {
            footprint,
            mode,
            early,
            signals,
            over,
        } = *touch;
        self.end_lease(block);
        let plain = !(early || signals || over || access.op.order_unknown || self.order.leans());
        if plain
            && let Footprint::Exact(region) = footprint
            && let Some(allocation) = block.and_then(|id| self.memory.as_live_mut(id))
            && allocation.shadow.again_at(region, mode, access)
        {
            allocation.used(access);
            return;
        }
        let used = Use {
            order: &self.order,
            stream: id,
            op: access.op,
            footprint,
            mode,
            early,
            horizon: self.order.horizon((!early).then_some(id), false),
        };
        let Some(allocation) = block.and_then(|id| self.memory.as_live_mut(id)) else {
            match self.memory.freed(footprint.address()) {
                // The part of a union that is not in use, or of a structure, may hold
                // what was there before; of two pointers a kernel may choose the other.
                Some(_) if mode == Mode::Unknown && !signals => {
                    self.blind_spot("uncertain-use-after-free", access.op.kernel);
                }
                Some(past) => {
                    push_once(found, reported, sc102_use_after_free::check(&used, past));
                }
                None => {}
            }
            return;
        };
        if let Some(violation) = rules::check_lifetime(&used, allocation) {
            push_once(found, reported, violation);
            if !over {
                allocation.used(access);
            }
            return;
        }
        let race = |used: &Use<'_>| match signals {
            true => None,
            false => sc109_data_race::check(used, allocation),
        };
        if let Some(violation) = race(&used) {
            push_once(found, reported, violation);
        } else if self.order.leans() {
            let strict = Use {
                horizon: self.order.horizon((!early).then_some(id), true),
                ..used
            };
            let leans = rules::check_lifetime(&strict, allocation).or_else(|| race(&strict));
            if let Some(violation) = leans {
                push_once(found, reported, violation.leaning());
            }
        }
        if over {
            return;
        }
        allocation.used(access);
        // What an access of unknown order would supersede can still race.
        if signals || access.op.order_unknown {
            return;
        }
        let order = &self.order;
        self.evicted_accesses += allocation.shadow.add(
            footprint,
            mode,
            access,
            |old| order.stream_is_promised(id, old.epoch),
            |old| order.host_knows(old.epoch),
        );
    }

    /// Counts a violation, and puts it into words if it is new.
    fn report(&mut self, violation: &Violation) -> Option<Finding> {
        let level = self.levels.of(violation.rule);
        if level == Level::Off {
            return None;
        }
        let used_by = violation.used_by();
        let kernel = match (violation.rule, violation.after) {
            // The CPU runs none.
            (RuleCode::SC108, Some(after)) => after.op.kernel,
            _ => used_by.kernel,
        };
        let key = (
            violation.rule,
            violation.allocation_site(),
            used_by.stack,
            kernel,
        );
        if let Some(&number) = self.known.get(&key) {
            self.counts[number] += 1;
            return None;
        }
        if self.counts.len() >= MOST_FINDINGS {
            self.unreported += 1;
            return None;
        }
        let number = self.counts.len();
        let view = View::new(&self.names, &self.order);
        let mut text = rules::describe(violation, &view)?;
        view.tell_graph(violation, &mut text);
        let timeline = if number < TIMELINES {
            timeline::cut(&view, &text.events, violation.gap)
        } else {
            Timeline::default()
        };
        let mentioned = view.mentioned(&text.events);
        let streams = view.streams(text.events.iter().map(|(_, op)| *op));
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
            streams,
            mentioned,
            timeline,
        };
        self.known.insert(key, number);
        self.counts.push(1);
        Some(finding)
    }
}

/// The context of a call.
fn here(call: &Call) -> Scope {
    Scope::Context(call.device, call.context)
}

/// Adds a violation unless its operation broke the same rule on the same block.
pub(crate) fn push_once(found: &mut Vec<Violation>, reported: usize, violation: Violation) {
    let base = |violation: &Violation| violation.block.map(|block| block.address);
    let same = |known: &Violation| {
        known.rule == violation.rule
            && known.at.sequence == violation.at.sequence
            && base(known) == base(&violation)
    };
    if !found[reported..].iter().any(same) {
        found.push(violation);
    }
}
