//! Executable graphs and their launches.
//!
//! A launch is one operation of its stream, after every earlier launch of the same
//! executable graph. What its nodes touch is checked against everything outside there.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use streamcheck_model::{
    Call, Element, FreeKind, Handle, MemoryKind, Mode, NodeWork, StackId, StreamRef,
};

use crate::clock::Frontier;
use crate::engine::{Engine, Touch, push_once};
use crate::graphs::{Bound, Graph, GraphAllocation, Graphs, Owner, Sort, Work, node_op, sort_of};
use crate::memory::{Allocation, BlockId, Lease, Memory};
use crate::nodes::Nodes;
use crate::op::{Access, OpRef};
use crate::order::{Order, StreamId, Waited};
use crate::rules::violation::{Free, Violation};
use crate::rules::{self, RuleCode, sc106_invalid_free, sc110_graph_lifetime};
use crate::shadow::Footprint;

/// What the nodes of an executable graph do to one piece of memory, taken together.
#[derive(Clone, Copy, Debug)]
struct ExecTouch {
    footprint: Footprint,
    mode: Mode,
    bound: Bound,
    sort: Sort,
    possible: bool,
    /// Of a pointer: see [`NodeTouch`](crate::graphs::NodeTouch).
    element: Element,
    /// The first node that does so.
    node: OpRef,
}

impl ExecTouch {
    fn does(&self) -> Touch {
        Touch {
            signals: self.possible,
            ..Touch::new(self.footprint, self.mode)
        }
    }

    /// A launch, as what this node does in it.
    fn at(&self, launch: Access) -> Access {
        let op = OpRef {
            kernel: self.node.kernel,
            replayed: true,
            ..launch.op
        };
        Access { op, ..launch }
    }
}

/// Puts the newest launch down in a block of which a lease ends; how many accesses had to be
/// forgotten for it.
fn put_down(order: &Order, block: &mut Allocation, exec: &Exec, lease: &Lease) -> u64 {
    let (Some(frontier), Some(newest)) = (&exec.last, exec.launches.last()) else {
        return 0;
    };
    let since = |launch: &&Access| launch.op.sequence > lease.launch;
    let mut forgotten = 0;
    for touch in &lease.touches {
        let Some(touch) = exec.plan.touches.get(*touch as usize) else {
            continue;
        };
        for launch in exec.launches.iter().filter(since) {
            block.used(touch.at(*launch));
        }
        if since(&newest) && !touch.possible {
            // The launches before it are in order, and conflict with nothing more.
            let access = touch.at(*newest);
            forgotten += block.shadow.add(
                touch.footprint,
                touch.mode,
                access,
                |old| frontier.promises(old.epoch),
                |old| order.host_knows(old.epoch),
            );
        }
    }
    forgotten
}

/// Whether there is no memory at an address, nor was.
fn live_nowhere(memory: &Memory, block: Option<BlockId>, address: u64) -> bool {
    block.is_none() && memory.freed(address).is_none()
}

/// What a launch does.
#[derive(Debug, Default)]
struct Plan {
    touches: Vec<ExecTouch>,
    /// What is allocated, and whether some node frees it.
    allocations: Vec<(GraphAllocation, bool)>,
    /// What is freed that the graph did not allocate.
    frees: Vec<(u64, OpRef)>,
    waits: Vec<Handle>,
    records: Vec<Handle>,
    hosts: Vec<u64>,
    /// It calls a host function of which it is not seen when it runs.
    unseen_host: bool,
    kernels: u64,
    copies: u64,
    /// Some of it is not known, and may be a wait.
    unknown: bool,
}

impl Plan {
    /// What a touch begins at.
    fn address(&self, touch: u32) -> Option<u64> {
        let touch = self.touches.get(touch as usize)?;
        Some(touch.footprint.address())
    }
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    /// The graph that it was made of, as it was then but for nodes changed since.
    source: Arc<Graph>,
    nodes: Nodes,
    auto_free: bool,
    /// It does not do what `source` does.
    changed: bool,
    /// Nodes changed since the last launch.
    stale: bool,
    plan: Plan,
    /// Its handle, and its plan's number, which is never given out twice: a lease of another
    /// plan is none of this.
    pub(crate) id: (Handle, u64),
    /// All up to its last launch.
    last: Option<Frontier>,
    /// The last launch on each timeline, the newest last.
    launches: SmallVec<[Access; 1]>,
    /// The touches to look at in the next launch, those elsewhere having found nothing and
    /// being leased; see [`Lease`].
    dirty: Vec<u32>,
    /// Touches of no memory, and [`Memory::extents`](crate::memory::Memory) then.
    nowhere: (Vec<u32>, u64),
}

impl Exec {
    pub(crate) fn len(&self) -> usize {
        self.nodes.list.len()
    }

    pub(crate) fn works(&self) -> impl Iterator<Item = &Arc<Work>> {
        let source = self.source.nodes.iter().map(|node| &node.work);
        self.nodes.list.iter().map(|node| &node.work).chain(source)
    }

    fn new(graphs: &mut Graphs, handle: Handle, source: Arc<Graph>, auto_free: bool) -> Self {
        Self {
            id: (handle, 0),
            nodes: Nodes::of(graphs, &source),
            source,
            auto_free,
            changed: false,
            stale: false,
            plan: Plan::default(),
            last: None,
            launches: SmallVec::new(),
            dirty: Vec::new(),
            nowhere: (Vec::new(), 0),
        }
    }

    /// Puts the nodes in a row again; those switched off stay so.
    fn lay_again(&mut self, graphs: &Graphs) {
        let old = std::mem::replace(&mut self.nodes, Nodes::of(graphs, &self.source));
        for sort in old.doubted {
            self.nodes.doubt(sort);
        }
        for (before, now) in old.places.iter().zip(&self.nodes.places) {
            if let (Some(before), Some(now)) = (before, now) {
                let enabled = old.list[*before as usize].enabled;
                self.nodes.list[*now as usize].enabled = enabled;
            }
        }
    }

    fn plan(&mut self, graphs: &mut Graphs) {
        self.id.1 = graphs.number();
        let mut plan = Plan {
            unknown: self.nodes.unknown,
            unseen_host: self.nodes.doubted.contains(&Sort::Host),
            ..Plan::default()
        };
        let all = &self.nodes.allocations;
        let mut freed = vec![false; all.len()];
        let mut made: Vec<u32> = Vec::new();
        let mut seen: FxHashSet<(Footprint, Bound, Mode, bool)> = FxHashSet::default();
        for node in self.nodes.list.iter().filter(|node| node.enabled) {
            match &*node.work {
                Work::Touches(sort, touches) => {
                    match sort {
                        Sort::Kernel => plan.kernels += 1,
                        _ => plan.copies += 1,
                    }
                    if self.nodes.doubted.contains(sort) {
                        continue;
                    }
                    for touch in touches {
                        let bound = node.bound(touch.bound, touch.footprint.address(), all);
                        let key = |mode| (touch.footprint, bound, mode, node.possible);
                        if seen.contains(&key(Mode::Write)) || !seen.insert(key(touch.mode)) {
                            continue;
                        }
                        plan.touches.push(ExecTouch {
                            footprint: touch.footprint,
                            mode: touch.mode,
                            bound,
                            sort: *sort,
                            possible: node.possible,
                            element: touch.element,
                            node: node.op,
                        });
                    }
                }
                Work::Allocate(_) => {
                    made.extend(node.allocates().filter(|_| !node.possible));
                }
                Work::Free { address, bound } if !node.possible => {
                    match node.bound(*bound, *address, all) {
                        Bound::Inside(place) => freed[place as usize] = true,
                        _ => plan.frees.push((*address, node.op)),
                    }
                }
                Work::Record(event) => plan.records.push(*event),
                Work::Wait(event) => plan.waits.push(*event),
                Work::Host(Some(token)) => plan.hosts.push(*token),
                Work::Host(None) => plan.unseen_host = true,
                Work::Unknown => plan.unknown = true,
                _ => {}
            }
        }
        // What is freed inside is nobody else's.
        plan.touches.retain(|touch| match touch.bound {
            Bound::Inside(place) => !freed[place as usize],
            Bound::Nothing | Bound::Outside(_) => true,
        });
        plan.allocations = made
            .into_iter()
            .map(|place| (all[place as usize], freed[place as usize]))
            .collect();
        plan.touches.sort_by_key(|touch| touch.footprint.address());
        self.dirty = (0..plan.touches.len() as u32).collect();
        self.nowhere = (Vec::new(), 0);
        self.plan = plan;
        self.stale = false;
    }
}

impl Engine {
    pub(crate) fn graph_instantiated(
        &mut self,
        call: &Call,
        (exec, graph): (Handle, Handle),
        auto_free: bool,
        found: &mut Vec<Violation>,
    ) {
        self.sweep_owners();
        self.exec_destroyed(exec);
        let Some(graph) = self.graphs.get(graph).cloned() else {
            self.blind_spot("graph-of-unknown-origin", call.api);
            return;
        };
        if self.graphs.full() {
            self.blind_spot("graphs-beyond-the-limit", call.api);
            return;
        }
        let made = Exec::new(&mut self.graphs, exec, graph, auto_free);
        let made = self.judged(made, found);
        self.graphs.execs.insert(exec, Some(Box::new(made)));
    }

    fn judged(&mut self, mut exec: Exec, found: &mut Vec<Violation>) -> Exec {
        self.judge_inside(&exec.nodes, found);
        exec.plan(&mut self.graphs);
        exec
    }

    pub(crate) fn exec_updated(
        &mut self,
        call: &Call,
        (exec, graph): (Handle, Handle),
        found: &mut Vec<Violation>,
    ) {
        self.sweep_owners();
        let known = self.take_out(exec);
        let (Some(old), Some(graph)) = (known, self.graphs.get(graph).cloned()) else {
            // What it does now nobody knows.
            self.graphs.execs.remove(&exec);
            self.blind_spot("graph-of-unknown-origin", call.api);
            return;
        };
        let mut new = Exec::new(&mut self.graphs, exec, graph, old.auto_free);
        // Its nodes are still named by the handles of the graph that it was made of.
        // CUDA pairs them by their edges; here they go by their places.
        if new.source.id != old.source.id {
            let id = match new.source.is_like(&old.source) {
                true => old.source.id,
                false => self.graphs.number(),
            };
            Arc::make_mut(&mut new.source).id = id;
        }
        new.last = old.last;
        new.launches = old.launches;
        let new = self.judged(new, found);
        self.graphs.execs.insert(exec, Some(Box::new(new)));
    }

    /// The places of a node in the graph that an executable one was made of, and in that.
    fn exec_node(&self, exec: Handle, node: Handle) -> Option<(u32, u32)> {
        let (_, id, place) = self.graphs.node(node)?;
        let exec = self.graphs.execs.get(&exec)?.as_ref()?;
        if exec.source.id != id {
            return None;
        }
        let listed = exec.nodes.places.get(place as usize).copied().flatten()?;
        Some((place, listed))
    }

    /// What a node of unknown origin does from now on is not known, nor what it does no more.
    pub(crate) fn exec_node_changed(
        &mut self,
        call: &Call,
        (handle, node): (Handle, Handle),
        work: &NodeWork,
        op: OpRef,
    ) {
        let place = self.exec_node(handle, node);
        let Some(mut exec) = self.graphs.execs.get_mut(&handle).and_then(Option::take) else {
            self.blind_spot("graph-of-unknown-origin", call.api);
            return;
        };
        let op = node_op(op, work);
        exec.stale = true;
        match place {
            Some((place, listed)) => {
                // What it allocates itself is found by the executable graph's own list.
                let mut alone = Graph::default();
                let mut work = self.work_of(&mut alone, work, op, call);
                if matches!(work, Work::Allocate(_) | Work::Free { .. }) {
                    work = Work::Unknown;
                }
                let child = matches!(work, Work::Child(_));
                let work = Arc::new(work);
                let source = Arc::make_mut(&mut exec.source);
                source.depth = source.depth.max(alone.depth);
                let node = &mut source.nodes[place as usize];
                node.work = work.clone();
                node.op = op;
                if child {
                    exec.lay_again(&self.graphs);
                } else {
                    let listed = &mut exec.nodes.list[listed as usize];
                    listed.work = work;
                    listed.op = op;
                }
            }
            None => {
                exec.changed = true;
                self.blind_spot("graph-node-of-unknown-origin", call.api);
                if let Some(sort) = sort_of(work) {
                    exec.nodes.doubt(sort);
                }
            }
        }
        self.graphs.execs.insert(handle, Some(exec));
    }

    pub(crate) fn node_enabled(&mut self, call: &Call, handle: Handle, node: Handle, on: bool) {
        let place = self.exec_node(handle, node);
        let Some(exec) = self.graphs.execs.get_mut(&handle).and_then(Option::as_mut) else {
            self.blind_spot("graph-of-unknown-origin", call.api);
            return;
        };
        exec.changed = true;
        let Some((_, listed)) = place else {
            if !on {
                // Some kernel, copy or fill does nothing any more.
                exec.nodes.doubted = Sort::ALL.into();
                exec.stale = true;
            }
            self.blind_spot("graph-node-of-unknown-origin", call.api);
            return;
        };
        let node = &mut exec.nodes.list[listed as usize];
        exec.stale |= node.enabled != on;
        node.enabled = on;
    }

    pub(crate) fn exec_destroyed(&mut self, exec: Handle) {
        self.take_out(exec);
        self.graphs.execs.remove(&exec);
    }

    /// Takes an executable graph out of the table, with no lease left.
    fn take_out(&mut self, handle: Handle) -> Option<Box<Exec>> {
        let mut exec = self.graphs.execs.get_mut(&handle)?.take()?;
        self.end_leases(&mut exec);
        Some(exec)
    }

    /// Ends all leases of an executable graph that is out of the table.
    fn end_leases(&mut self, exec: &mut Exec) {
        for touch in 0..exec.plan.touches.len() {
            let address = exec.plan.touches[touch].footprint.address();
            let Some(block) = self.memory.find(address) else {
                continue;
            };
            let leased = self.memory.as_live_mut(block);
            let leased = leased.filter(|block| {
                block
                    .lease
                    .as_ref()
                    .is_some_and(|lease| lease.exec == exec.id)
            });
            if let Some(leased) = leased
                && let Some(lease) = leased.lease.take()
            {
                self.evicted_accesses += put_down(&self.order, leased, exec, &lease);
                exec.dirty.extend_from_slice(&lease.touches);
            }
        }
    }

    /// Somebody comes to a block, so it is nobody's alone any more.
    #[inline]
    pub(crate) fn end_lease(&mut self, block: Option<BlockId>) {
        if let Some(id) = block
            && let Some(allocation) = self.memory.as_live_mut(id)
            && allocation.lease.is_some()
        {
            self.end_lease_of(id);
        }
    }

    #[cold]
    fn end_lease_of(&mut self, block: BlockId) {
        let Some(allocation) = self.memory.as_live_mut(block) else {
            return;
        };
        let Some(lease) = allocation.lease.take() else {
            return;
        };
        if let Some(exec) = self.graphs.exec_by_id(lease.exec) {
            self.evicted_accesses += put_down(&self.order, allocation, exec, &lease);
        }
        self.memory.ended.push(*lease);
    }

    /// Hands the leases that have ended to their executable graphs, of which `exec` is out of
    /// the table.
    fn take_in_ended(&mut self, exec: &mut Exec) {
        for lease in self.memory.ended.drain(..) {
            let of = match lease.exec == exec.id {
                true => Some(&mut *exec),
                false => self.graphs.exec_by_id(lease.exec),
            };
            if let Some(of) = of {
                of.dirty.extend_from_slice(&lease.touches);
            }
        }
    }

    /// A launch that is captured is a child of the capture's graph.
    pub(crate) fn launched_in_capture(
        &mut self,
        graph: &mut Graph,
        exec: Handle,
        call: &Call,
    ) -> Work {
        match self.graphs.execs.get(&exec).and_then(Option::as_ref) {
            Some(exec) if !exec.changed => {
                let child = exec.source.clone();
                self.child_work(graph, child, call)
            }
            _ => {
                self.blind_spot("graph-of-unknown-origin", call.api);
                Work::Unknown
            }
        }
    }

    pub(crate) fn graph_launched(
        &mut self,
        call: &Call,
        stream: StreamRef,
        handle: Handle,
        found: &mut Vec<Violation>,
    ) {
        let (id, mut op) = self.on_stream(stream, call);
        let Some(mut exec) = self.graphs.execs.get_mut(&handle).and_then(Option::take) else {
            self.blind_spot("graph-of-unknown-origin", call.api);
            self.graphs.unknown_launch = op.sequence;
            self.order.submit(id, op);
            return;
        };
        if exec.stale {
            self.end_leases(&mut exec);
            self.judge_inside(&exec.nodes, found);
            exec.plan(&mut self.graphs);
        }
        if exec.plan.unknown {
            self.blind_spot("graph-with-unknown-nodes", call.api);
            self.graphs.unknown_launch = op.sequence;
            self.order.come_after_everything(id);
        }
        self.launches += exec.plan.kernels;
        self.copies += exec.plan.copies;
        for event in &exec.plan.waits {
            let waited = self.order.wait(id, *event, op);
            // What the launch itself records, its wait may be for.
            if !(matches!(waited, Waited::Unrecorded) && exec.plan.records.contains(event)) {
                self.waited(waited, op, found);
            }
        }
        if self.may_serialize(id) {
            self.end_leases(&mut exec);
        }
        let addresses = exec
            .plan
            .touches
            .iter()
            .map(|touch| touch.footprint.address());
        self.serializes(id, op, addresses, found);
        let access = self.order.submit_launch(id, exec.last.as_ref(), op);
        op = access.op;
        let replayed = Access {
            op: OpRef {
                replayed: true,
                ..op
            },
            ..access
        };
        self.launch_allocates(call, id, replayed, &exec, found);
        self.launch_touches(id, access, &mut exec, found);
        if self.host_uses.is_some() {
            self.note_launch(access, &exec);
        }
        for (address, node) in &exec.plan.frees {
            self.free_by_launch(id, replayed, *address, Some(*node), found);
        }
        for token in &exec.plan.hosts {
            self.order.enqueue_host_function(*token, id, op);
        }
        // Who it tells of the launch, and when, is not known.
        if exec.plan.unseen_host {
            self.order.shows_host(id);
        }
        for event in &exec.plan.records {
            self.captures.recorded_elsewhere(*event);
            self.order.record(*event, id, op);
        }
        let last = self.order.frontier(id);
        if let Some(old) = exec.last.replace(last) {
            self.order.spare(old);
        }
        exec.launches
            .retain(|launch| launch.epoch.slot != access.epoch.slot);
        exec.launches.push(access);
        self.graphs.execs.insert(handle, Some(exec));
    }

    /// What a launch's allocation nodes allocate. What an earlier launch left is freed
    /// first, by the launch or out of sight.
    fn launch_allocates(
        &mut self,
        call: &Call,
        id: StreamId,
        replayed: Access,
        exec: &Exec,
        found: &mut Vec<Violation>,
    ) {
        for &(made, freed) in &exec.plan.allocations {
            let GraphAllocation { address, size, op } = made;
            self.allocations += 1;
            if address == 0 {
                continue;
            }
            if exec.auto_free {
                self.free_by_launch(id, replayed, address, None, found);
            } else {
                let old = self.memory.find(address);
                self.end_lease(old);
                self.bury_block_at(address, replayed);
            }
            self.order
                .overwritten(address, address.saturating_add(size));
            // By where its node was made: a launch may allocate much.
            let birth = Access {
                op: OpRef {
                    stack: op.stack,
                    ..replayed.op
                },
                ..replayed
            };
            let kind = MemoryKind::StreamOrdered;
            let mut block = Allocation::new((address, size), kind, birth, call.context);
            block.by_graph = true;
            self.memory.insert(block);
            if freed {
                self.bury_block_at(address, replayed);
            }
        }
    }

    fn free_by_launch(
        &mut self,
        id: StreamId,
        free: Access,
        address: u64,
        node: Option<OpRef>,
        found: &mut Vec<Violation>,
    ) {
        let first = found.len();
        let block = self.memory.find(address);
        self.end_lease(block);
        let judged = Free {
            order: &self.order,
            stream: Some(id),
            op: free.op,
            kind: FreeKind::Async,
            address,
            part: None,
            strict: false,
        };
        if let Some(live) = block.and_then(|block| self.memory.as_live(block)) {
            rules::judge_free(judged, live, found);
            self.graphs.freed(live, free);
        } else if node.is_some()
            && let Some(twice) = sc106_invalid_free::check(&judged, None, &self.memory)
            && (twice.after).is_some_and(|free| free.op.sequence > self.graphs.unknown_launch)
        {
            found.push(twice);
        }
        for violation in &mut found[first..] {
            violation.node = node;
        }
        self.bury_block_at(address, free);
    }

    /// The allocation that begins at `address`, where there is one, is freed by a launch.
    fn bury_block_at(&mut self, address: u64, free: Access) {
        if let Some(block) = self.memory.find(address)
            && (self.memory.as_live(block)).is_some_and(|live| live.address == address)
        {
            self.memory.leave(block);
            self.memory.bury(block, free);
        }
    }

    /// Checks what a launch touches. A block that nobody else has touched since an earlier
    /// launch found nothing there is passed over: this launch comes after that one, and knows
    /// all that it knew.
    fn launch_touches(
        &mut self,
        id: StreamId,
        access: Access,
        exec: &mut Exec,
        found: &mut Vec<Violation>,
    ) {
        self.take_in_ended(exec);
        // What an access of unknown order leaves behind is less than what others do.
        let leases = !access.op.order_unknown && !self.order.remembers_values();
        if !leases {
            self.end_leases(exec);
        }
        if exec.nowhere.1 != self.memory.extents {
            exec.dirty.append(&mut exec.nowhere.0);
            exec.nowhere.1 = self.memory.extents;
        }
        if exec.dirty.is_empty() {
            return;
        }
        let mut dirty = std::mem::take(&mut exec.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        let reported = found.len();
        let mut rest = &dirty[..];
        while let Some((first, others)) = rest.split_first() {
            let Some(address) = exec.plan.address(*first) else {
                rest = others;
                continue;
            };
            let block = self.memory.find(address);
            self.end_lease(block);
            let live = block.and_then(|block| self.memory.as_live(block));
            let end = live.map_or(address, Allocation::end);
            let inside = |touch: &&u32| exec.plan.address(**touch).is_some_and(|at| at < end);
            let count = rest.iter().take_while(inside).count().max(1);
            let (group, others) = rest.split_at(count);
            rest = others;
            let before = found.len();
            let mut alone = leases && live.is_some();
            for touch in group {
                let Some(touch) = exec.plan.touches.get(*touch as usize).copied() else {
                    continue;
                };
                alone &= self.launch_touch(id, access, exec, touch, end, reported, found);
            }
            alone &= found.len() == before;
            if alone
                && let Some(block) = block
                && let Some(allocation) = self.memory.as_live_mut(block)
            {
                allocation.lease = Some(Box::new(Lease {
                    exec: exec.id,
                    launch: access.op.sequence,
                    touches: SmallVec::from_slice(group),
                }));
            } else if live_nowhere(&self.memory, block, address) && found.len() == before {
                exec.nowhere.0.extend_from_slice(group);
            } else {
                exec.dirty.extend_from_slice(group);
            }
        }
        // Freed before the launch, and maybe after the node was made.
        for violation in &mut found[reported..] {
            if violation.rule == RuleCode::SC102 {
                violation.rule = RuleCode::SC110;
            }
        }
    }

    /// Tells what a launch does to host memory, whether it was looked at or passed over.
    #[cold]
    fn note_launch(&mut self, access: Access, exec: &Exec) {
        for touch in &exec.plan.touches {
            let gone = matches!(touch.bound, Bound::Outside(owner) if self.is_gone(owner));
            if !gone && !exec.nodes.doubted.contains(&touch.sort) {
                self.note_touch(touch.at(access), &touch.does(), touch.element);
            }
        }
    }

    /// Checks and remembers one touch. False if the next launch has to look at it again
    /// whatever happens.
    #[expect(
        clippy::too_many_arguments,
        reason = "a touch, of a launch, in a block, with what was found"
    )]
    fn launch_touch(
        &mut self,
        id: StreamId,
        access: Access,
        exec: &Exec,
        touch: ExecTouch,
        end: u64,
        reported: usize,
        found: &mut Vec<Violation>,
    ) -> bool {
        if exec.nodes.doubted.contains(&touch.sort) {
            return false;
        }
        let access = touch.at(access);
        let first = found.len();
        let again = match touch.bound {
            Bound::Outside(owner) if self.is_gone(owner) && !self.is_renewed(owner, touch.node) => {
                self.uses_freed(access, owner, &touch, reported, found);
                false
            }
            _ => {
                self.touch_from(id, access, &touch.does(), reported, found);
                match touch.footprint {
                    Footprint::Pointer(..) => true,
                    Footprint::Exact(region) => region.end() <= end,
                }
            }
        };
        for violation in &mut found[first..] {
            violation.node = Some(touch.node);
        }
        again
    }

    /// Whether the executable graph calls host functions that are seen to begin, which may be
    /// before its launch returns.
    #[must_use]
    pub fn calls_host_functions(&self, exec: Handle) -> bool {
        let exec = self.graphs.execs.get(&exec).and_then(Option::as_ref);
        exec.is_some_and(|exec| {
            let mut works = exec.works();
            // Once launched, its plan tells.
            !exec.plan.hosts.is_empty()
                || exec.stale && works.any(|work| matches!(**work, Work::Host(Some(_))))
        })
    }

    /// Whether the executable graph uses host memory that was given back. Its launch may never
    /// return: the driver was seen to read what a copy node reads, and to fault.
    #[must_use]
    pub fn uses_released_host_memory(&self, exec: Handle) -> bool {
        let released = |touch: &ExecTouch| match touch.bound {
            Bound::Outside(owner) if self.is_gone(owner) => self
                .graphs
                .owner(owner)
                .is_some_and(|owned| owned.block.kind.is_host()),
            _ => false,
        };
        self.graphs.lost_host_memory
            && (self.graphs.execs.get(&exec))
                .and_then(Option::as_ref)
                .is_some_and(|exec| exec.plan.touches.iter().any(released))
    }

    /// Whether memory that a node was made with was given back, and is not there again as
    /// the same.
    fn is_gone(&self, owner: Owner) -> bool {
        let Some(owned) = self.graphs.owner(owner) else {
            return false;
        };
        // Registering again what is registered no more changes nothing about the memory.
        let again = || {
            owned.block.kind == MemoryKind::Registered
                && self.memory_kind(owned.block.address) == Some(MemoryKind::Registered)
        };
        owned.freed.is_some() && !again()
    }

    /// Whether the same range was allocated again, and may be what the node is meant to use.
    /// Who adds nodes by hand gave their addresses, and may compare them with those that a
    /// pool gives before a launch, as XLA does: a node whose address came back needs no
    /// update. What was captured may be meant where the same call allocated again.
    fn is_renewed(&mut self, owner: Owner, node: OpRef) -> bool {
        let Some(old) = self.graphs.owner(owner).map(|owned| owned.block) else {
            return false;
        };
        let by_hand = node.stream.is_none();
        let site = old.birth.op.stack;
        let renewed = self.memory.live(old.address).is_some_and(|new| {
            (new.address, new.size, new.kind) == (old.address, old.size, old.kind)
                && (by_hand || (site != StackId::default() && new.birth.op.stack == site))
        });
        if renewed {
            self.blind_spot("graph-of-renewed-memory", old.birth.op.api);
        }
        renewed
    }

    fn uses_freed(
        &self,
        access: Access,
        owner: Owner,
        touch: &ExecTouch,
        reported: usize,
        found: &mut Vec<Violation>,
    ) {
        // A value in a by-value struct counts too: unlike one that is found among the
        // parameters when the memory is freed already, it pointed into what was there.
        if let Some(owned) = self.graphs.owner(owner)
            && let Some(violation) =
                sc110_graph_lifetime::check(access.op, owned, touch.footprint.address())
        {
            push_once(found, reported, violation);
        }
    }
}
