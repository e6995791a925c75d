//! Executable graphs and their launches.
//!
//! A launch is one operation of its stream, after every earlier launch of the same
//! executable graph. What its nodes touch is checked against everything outside there.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use streamcheck_model::{Call, FreeKind, Handle, MemoryKind, Mode, NodeWork, StreamRef};

use crate::clock::Frontier;
use crate::engine::{Engine, Touch};
use crate::graphs::{Bound, Graph, GraphAllocation, Graphs, Owner, Sort, Work, sort_of};
use crate::memory::Allocation;
use crate::nodes::Nodes;
use crate::op::{Access, OpRef};
use crate::order::StreamId;
use crate::rules::violation::{Free, Violation};
use crate::rules::{self, RuleCode, sc110_graph_lifetime};
use crate::shadow::Footprint;

/// What the nodes of an executable graph do to one piece of memory, taken together.
#[derive(Clone, Copy, Debug)]
struct ExecTouch {
    footprint: Footprint,
    mode: Mode,
    bound: Bound,
    sort: Sort,
    possible: bool,
    /// The first node that does so.
    node: OpRef,
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
    kernels: u64,
    copies: u64,
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    /// The graph that it was made of, as it was then.
    source: Arc<Graph>,
    nodes: Nodes,
    auto_free: bool,
    /// Its nodes are not those of `source` any more.
    changed: bool,
    /// Nodes changed since the last launch.
    stale: bool,
    /// What nodes of these sorts touch is not known.
    doubted: SmallVec<[Sort; 3]>,
    plan: Plan,
    /// All up to its last launch.
    last: Option<Frontier>,
}

impl Exec {
    pub(crate) fn len(&self) -> usize {
        self.nodes.list.len()
    }

    pub(crate) fn works(&self) -> impl Iterator<Item = &Arc<Work>> {
        let source = self.source.nodes.iter().map(|node| &node.work);
        self.nodes.list.iter().map(|node| &node.work).chain(source)
    }

    fn new(graphs: &Graphs, source: Arc<Graph>, auto_free: bool) -> Self {
        Self {
            nodes: Nodes::of(graphs, &source),
            doubted: source.doubted.clone(),
            source,
            auto_free,
            changed: false,
            stale: false,
            plan: Plan::default(),
            last: None,
        }
    }

    fn plan(&mut self) {
        let mut plan = Plan::default();
        let all = &self.nodes.allocations;
        let mut freed = vec![false; all.len()];
        let mut made: Vec<u32> = Vec::new();
        let mut seen: FxHashSet<(Footprint, Bound, Mode, bool)> = FxHashSet::default();
        for node in self.nodes.list.iter().filter(|node| node.enabled) {
            match &*node.work {
                Work::Touches(sort, touches) => {
                    match sort {
                        Sort::Kernel => plan.kernels += 1,
                        Sort::Copy | Sort::Fill => plan.copies += 1,
                    }
                    if self.doubted.contains(sort) {
                        continue;
                    }
                    for touch in touches {
                        let bound = node.bound(touch, all);
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
                            node: node.op,
                        });
                    }
                }
                Work::Allocate(_) => {
                    made.extend(node.allocates().filter(|_| !node.possible));
                }
                Work::Free { address, bound } if !node.possible => {
                    match node.free_bound(*address, *bound, all) {
                        Bound::Inside(place) => freed[place as usize] = true,
                        _ => plan.frees.push((*address, node.op)),
                    }
                }
                Work::Record(event) => plan.records.push(*event),
                Work::Wait(event) => plan.waits.push(*event),
                Work::Host(token) => plan.hosts.extend(*token),
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
        self.graphs.execs.remove(&exec);
        let Some(graph) = self.graphs.get(graph).cloned() else {
            self.blind_spot("graph-of-unknown-origin", call.api);
            return;
        };
        if self.graphs.full() {
            self.blind_spot("graphs-beyond-the-limit", call.api);
            return;
        }
        let made = Exec::new(&self.graphs, graph, auto_free);
        let made = self.judged(made, found);
        self.graphs.execs.insert(exec, Some(Box::new(made)));
    }

    fn judged(&mut self, mut exec: Exec, found: &mut Vec<Violation>) -> Exec {
        self.judge_inside(&exec.nodes, found);
        exec.plan();
        exec
    }

    pub(crate) fn exec_updated(
        &mut self,
        call: &Call,
        (exec, graph): (Handle, Handle),
        found: &mut Vec<Violation>,
    ) {
        self.sweep_owners();
        let known = self.graphs.execs.get_mut(&exec).and_then(Option::take);
        let (Some(old), Some(graph)) = (known, self.graphs.get(graph).cloned()) else {
            // What it does now nobody knows.
            self.graphs.execs.remove(&exec);
            self.blind_spot("graph-of-unknown-origin", call.api);
            return;
        };
        let mut new = Exec::new(&self.graphs, graph.clone(), old.auto_free);
        // Its nodes are still named by the handles of the graph that it was made of.
        if new.nodes.places.len() == old.nodes.places.len() {
            new.source = old.source;
        }
        new.changed = new.source.id != graph.id;
        new.last = old.last;
        let new = self.judged(new, found);
        self.graphs.execs.insert(exec, Some(Box::new(new)));
    }

    /// The place of a node in an executable graph. What a node of unknown origin does from
    /// now on is not known, nor what it does no more.
    fn exec_node(&mut self, exec: Handle, node: Handle) -> Option<u32> {
        let (_, id, place) = self.graphs.node(node)?;
        let exec = self.graphs.execs.get(&exec)?.as_ref()?;
        if exec.source.id != id {
            return None;
        }
        exec.nodes.places.get(place as usize).copied().flatten()
    }

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
        let kernel = match work {
            NodeWork::Kernel { kernel, .. } => *kernel,
            _ => op.kernel,
        };
        let op = OpRef { kernel, ..op };
        exec.changed = true;
        exec.stale = true;
        match place {
            Some(place) => {
                // What it allocates itself is found by the executable graph's own list.
                let mut nothing = Graph::default();
                let work = self.work_of(&mut nothing, work, op, call);
                let changed = &mut exec.nodes.list[place as usize];
                if !matches!(work, Work::Allocate(_) | Work::Free { .. } | Work::Child(_)) {
                    changed.work = Arc::new(work);
                    changed.op = op;
                } else {
                    changed.work = Arc::new(Work::Unknown);
                    exec.nodes.unknown = true;
                }
            }
            None => {
                self.blind_spot("graph-node-of-unknown-origin", call.api);
                if let Some(sort) = sort_of(work)
                    && !exec.doubted.contains(&sort)
                {
                    exec.doubted.push(sort);
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
        match place {
            Some(place) => {
                let node = &mut exec.nodes.list[place as usize];
                exec.stale |= node.enabled != on;
                node.enabled = on;
            }
            None if on => {}
            None => {
                // Some kernel, copy or fill does nothing any more.
                exec.doubted = SmallVec::from_iter([Sort::Kernel, Sort::Copy, Sort::Fill]);
                exec.stale = true;
            }
        }
        if place.is_none() {
            self.blind_spot("graph-node-of-unknown-origin", call.api);
        }
    }

    pub(crate) fn exec_destroyed(&mut self, exec: Handle) {
        self.graphs.execs.remove(&exec);
    }

    /// A launch that is captured is a child of the capture's graph.
    pub(crate) fn launched_in_capture(&mut self, exec: Handle, call: &Call) -> Work {
        match self.graphs.execs.get(&exec).and_then(Option::as_ref) {
            Some(exec) if !exec.changed => Work::Child(exec.source.clone()),
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
            self.order.submit(id, op);
            return;
        };
        if exec.stale {
            self.judge_inside(&exec.nodes, found);
            exec.plan();
        }
        if exec.nodes.unknown {
            self.blind_spot("graph-with-unknown-nodes", call.api);
        }
        self.launches += exec.plan.kernels;
        self.copies += exec.plan.copies;
        for event in &exec.plan.waits {
            let waited = self.order.wait(id, *event, op);
            self.waited(waited, op, found);
        }
        let addresses = exec
            .plan
            .touches
            .iter()
            .map(|touch| touch.footprint.address());
        self.serializes(id, op, addresses, found);
        let access = self.order.submit_launch(id, exec.last.as_ref(), op);
        op = access.op;
        self.launch_allocates(call, id, access, &exec, found);
        self.launch_touches(id, access, &exec, found);
        for (address, node) in &exec.plan.frees {
            self.launch_frees(id, access, *address, *node, found);
        }
        for token in &exec.plan.hosts {
            self.order.enqueue_host_function(*token, id, op);
        }
        for event in &exec.plan.records {
            self.order.record(*event, id, op);
        }
        let last = self.order.frontier(id);
        if let Some(old) = exec.last.replace(last) {
            self.order.spare(old);
        }
        self.graphs.execs.insert(handle, Some(exec));
    }

    /// What a launch's allocation nodes allocate. What an earlier launch left is freed
    /// first, by the launch or out of sight.
    fn launch_allocates(
        &mut self,
        call: &Call,
        id: StreamId,
        access: Access,
        exec: &Exec,
        found: &mut Vec<Violation>,
    ) {
        let replayed = Access {
            op: OpRef {
                replayed: true,
                ..access.op
            },
            ..access
        };
        for &(made, freed) in &exec.plan.allocations {
            let GraphAllocation { address, size, op } = made;
            self.allocations += 1;
            if address == 0 {
                continue;
            }
            if exec.auto_free {
                self.free_by_launch(id, replayed, address, None, found);
            } else if let Some(old) = self.memory.leave(address) {
                self.memory.bury(old, replayed);
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
            if freed && let Some(block) = self.memory.leave(address) {
                self.memory.bury(block, replayed);
            }
        }
    }

    /// A free node whose memory another graph allocated.
    fn launch_frees(
        &mut self,
        id: StreamId,
        access: Access,
        address: u64,
        node: OpRef,
        found: &mut Vec<Violation>,
    ) {
        let op = OpRef {
            replayed: true,
            ..access.op
        };
        self.free_by_launch(id, Access { op, ..access }, address, Some(node), found);
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
        let Some(block) = self.memory.find(address) else {
            return;
        };
        let judged = Free {
            order: &self.order,
            stream: Some(id),
            op: free.op,
            kind: FreeKind::Async,
            address,
            strict: false,
        };
        if let Some(live) = self.memory.as_live(block) {
            rules::check_free(&judged, live, found);
            if found.len() == first && self.order.leans() {
                let strict = Free {
                    strict: true,
                    ..judged
                };
                rules::check_free(&strict, live, found);
                for violation in &mut found[first..] {
                    *violation = violation.leaning();
                }
            }
            self.graphs.freed(live, free);
        }
        for violation in &mut found[first..] {
            violation.node = node;
        }
        if let Some(block) = self.memory.leave(address) {
            self.memory.bury(block, free);
        }
    }

    fn launch_touches(
        &mut self,
        id: StreamId,
        access: Access,
        exec: &Exec,
        found: &mut Vec<Violation>,
    ) {
        let reported = found.len();
        for touch in &exec.plan.touches {
            if exec.doubted.contains(&touch.sort) {
                continue;
            }
            let op = OpRef {
                kernel: touch.node.kernel,
                replayed: true,
                ..access.op
            };
            let access = Access { op, ..access };
            let first = found.len();
            match touch.bound {
                Bound::Outside(owner) if self.is_gone(owner) => {
                    self.uses_freed(access, owner, touch, reported, found);
                }
                _ => {
                    let does = Touch {
                        signals: touch.possible,
                        ..Touch::new(touch.footprint, touch.mode)
                    };
                    self.touch_from(id, access, &does, reported, found);
                }
            }
            for violation in &mut found[first..] {
                violation.node = Some(touch.node);
            }
        }
        // Freed before the launch, and maybe after the node was made.
        for violation in &mut found[reported..] {
            if violation.rule == RuleCode::SC102 {
                violation.rule = RuleCode::SC110;
            }
        }
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

    fn uses_freed(
        &mut self,
        access: Access,
        owner: Owner,
        touch: &ExecTouch,
        reported: usize,
        found: &mut Vec<Violation>,
    ) {
        // As for work outside of graphs.
        if touch.mode == Mode::Unknown {
            self.blind_spot("uncertain-use-after-free", touch.node.kernel);
            return;
        }
        if let Some(owned) = self.graphs.owner(owner)
            && let Some(violation) =
                sc110_graph_lifetime::check(access.op, owned, touch.footprint.address())
        {
            crate::engine::push_once(found, reported, violation);
        }
    }
}
