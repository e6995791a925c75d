//! Graphs: their nodes, and what those touch.
//!
//! A node's work is put down when the node is made, with the memory that its addresses
//! belonged to then: every launch uses the same addresses, whoever owns them by that time.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use streamcheck_model::{
    Call, Element, Handle, MemoryKind, Mode, NameId, NodeWork, Pointer, Region, Used,
};

use crate::engine::Engine;
use crate::memory::Allocation;
use crate::op::{Access, OpRef};
use crate::replays::Exec;
use crate::rules::violation::Block;
use crate::shadow::Footprint;

/// An allocation's identity: the number of the call that made it, and its address.
pub(crate) type Owner = (u64, u64);

/// What memory an address belonged to when a node was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bound {
    /// None that is known, or one whose identity does not matter: whatever is there at a
    /// launch.
    Nothing,
    /// An allocation made outside of graphs.
    Outside(Owner),
    /// An allocation node's, by its place in [`Graph::allocations`].
    Inside(u32),
}

/// What a node does to one piece of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeTouch {
    pub(crate) footprint: Footprint,
    pub(crate) mode: Mode,
    pub(crate) bound: Bound,
    /// Of a pointer: see [`Pointer::element`].
    pub(crate) element: Element,
}

/// Which sort of node it is, of those that touch memory or tell the host something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Kernel,
    Copy,
    Fill,
    Host,
}

impl Sort {
    pub(crate) const ALL: [Self; 4] = [Self::Kernel, Self::Copy, Self::Fill, Self::Host];
}

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Touches(Sort, SmallVec<[NodeTouch; 2]>),
    /// A host function, by its token if that is known.
    Host(Option<u64>),
    Empty,
    Record(Handle),
    Wait(Handle),
    /// The place of what it allocates in [`Graph::allocations`].
    Allocate(u32),
    Free {
        address: u64,
        bound: Bound,
    },
    Child(Arc<Graph>),
    Conditional(Vec<Handle>),
    Unknown,
}

impl Work {
    /// Of which sort it is.
    pub(crate) fn sort(&self) -> Option<Sort> {
        match self {
            Self::Touches(sort, _) => Some(*sort),
            Self::Host(_) => Some(Sort::Host),
            _ => None,
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The call that captured or added it, or changed it last.
    pub(crate) op: OpRef,
    pub(crate) work: Arc<Work>,
    /// The nodes that it comes after, and maybe some that are gone.
    pub(crate) before: SmallVec<[u32; 2]>,
    /// Its place among the others is not known.
    pub(crate) loose: bool,
    /// It was removed.
    pub(crate) gone: bool,
}

/// What an allocation node allocates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphAllocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) op: OpRef,
}

/// A graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// Never given out twice.
    pub(crate) id: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) allocations: Vec<GraphAllocation>,
    /// The handles of its nodes, as far as they are known.
    handles: Vec<Handle>,
    /// How deep child graphs lie in each other in it.
    pub(crate) depth: u32,
    /// Its edges are not all known.
    pub(crate) loose: bool,
    /// Not all of its nodes are known.
    pub(crate) unknown: bool,
    /// What its nodes of these sorts touch is not known any more.
    pub(crate) doubted: SmallVec<[Sort; 4]>,
}

impl Graph {
    fn new(id: u64) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// Adds a node; its place.
    pub(crate) fn push(&mut self, op: OpRef, work: Work, before: SmallVec<[u32; 2]>) -> u32 {
        let place = self.nodes.len() as u32;
        self.nodes.push(Node {
            op,
            work: Arc::new(work),
            before,
            loose: false,
            gone: false,
        });
        place
    }

    /// A graph of this number with the same nodes, whose handles are not known.
    pub(crate) fn as_another(&self, id: u64) -> Self {
        Self {
            id,
            handles: Vec::new(),
            ..self.clone()
        }
    }

    /// Takes in the nodes of another graph, in an order that nobody knows.
    pub(crate) fn take_in(&mut self, other: &Self) {
        let base = self.allocations.len() as u32;
        let behind = |bound: Bound| match bound {
            Bound::Inside(place) => Bound::Inside(place + base),
            bound => bound,
        };
        self.allocations.extend_from_slice(&other.allocations);
        self.depth = self.depth.max(other.depth);
        for sort in &other.doubted {
            if !self.doubted.contains(sort) {
                self.doubted.push(*sort);
            }
        }
        for node in &other.nodes {
            let mut node = Node {
                before: SmallVec::new(),
                loose: true,
                ..node.clone()
            };
            match Arc::make_mut(&mut node.work) {
                Work::Allocate(place) => *place += base,
                Work::Free { bound, .. } => *bound = behind(*bound),
                Work::Touches(_, touches) => {
                    for touch in touches {
                        touch.bound = behind(touch.bound);
                    }
                }
                _ => {}
            }
            self.nodes.push(node);
        }
    }

    /// All nodes so far, for one that comes after nobody knows which.
    pub(crate) fn everything(&self) -> SmallVec<[u32; 2]> {
        let mut last: Vec<bool> = self.nodes.iter().map(|node| !node.gone).collect();
        for before in self.nodes.iter().flat_map(|node| &node.before) {
            last[*before as usize] = false;
        }
        let places = (0..).zip(last).filter(|(_, last)| *last);
        places.map(|(place, _)| place).collect()
    }

    /// Whether the two have nodes of the same sorts with the same edges, place by place.
    pub(crate) fn is_like(&self, other_graph: &Self) -> bool {
        let alike = |(one, other): (&Node, &Node)| {
            self.edges(one).eq(other_graph.edges(other))
                && one.gone == other.gone
                && std::mem::discriminant(&*one.work) == std::mem::discriminant(&*other.work)
                && one.work.sort() == other.work.sort()
        };
        self.nodes.len() == other_graph.nodes.len()
            && self.nodes.iter().zip(&other_graph.nodes).all(alike)
    }

    /// The nodes right before one of this graph that are there.
    fn edges<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a u32> {
        let there = |before: &&u32| !self.nodes[**before as usize].gone;
        node.before.iter().filter(there)
    }

    fn has(&self, sort: Sort) -> bool {
        self.nodes.iter().any(|node| node.work.sort() == Some(sort))
    }

    /// Some node of this sort may do something else.
    pub(crate) fn doubt(&mut self, sort: Sort) {
        if self.has(sort) && !self.doubted.contains(&sort) {
            self.doubted.push(sort);
        }
    }

    /// The newest allocation of the graph's own that holds `address`.
    pub(crate) fn allocation_at(&self, address: u64) -> Option<u32> {
        holding(&self.allocations, address)
    }
}

impl GraphAllocation {
    pub(crate) fn holds(&self, address: u64) -> bool {
        let end = self.address.saturating_add(self.size.max(1));
        (self.address..end).contains(&address)
    }
}

/// The newest of the allocations that holds `address`.
pub(crate) fn holding(allocations: &[GraphAllocation], address: u64) -> Option<u32> {
    let place = allocations.iter().rposition(|made| made.holds(address))?;
    Some(place as u32)
}

/// Memory outside of graphs that nodes use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) block: Block,
    /// What gave it back.
    pub(crate) freed: Option<Access>,
}

/// All graphs known.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    graphs: FxHashMap<Handle, Arc<Graph>>,
    /// The known nodes: their graph's handle and identity, and their place in it.
    nodes: FxHashMap<Handle, (Handle, u64, u32)>,
    pub(crate) execs: FxHashMap<Handle, Option<Box<Exec>>>,
    owners: FxHashMap<Owner, Owned>,
    /// How many owners there are when the unused are looked for.
    sweep_at: usize,
    made: u64,
    /// Host memory that nodes use was given back at some time.
    pub(crate) lost_host_memory: bool,
    /// The last launch of what is not all known, which may have allocated anything.
    pub(crate) unknown_launch: u64,
}

impl Graphs {
    /// Nodes that a graph may have, with those of its child graphs.
    pub(crate) const MOST_NODES: usize = 1 << 18;
    /// Graphs kept, and executable ones.
    const MOST: usize = 1 << 12;
    /// Nodes kept of them all.
    const MOST_KEPT: usize = 1 << 20;
    /// How deep child graphs may lie in each other: they are gone through, and dropped, by
    /// recursion.
    const DEEPEST: u32 = 64;
    const LEAST_SWEPT: usize = 1 << 10;

    /// A number that is given out once.
    pub(crate) fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    pub(crate) fn new_graph(&mut self) -> Graph {
        Graph::new(self.number())
    }

    pub(crate) fn get(&self, graph: Handle) -> Option<&Arc<Graph>> {
        self.graphs.get(&graph)
    }

    /// Whether so much is kept that no more is to be.
    pub(crate) fn full(&self) -> bool {
        let graphs = self.graphs.values().map(|graph| graph.nodes.len());
        let execs = self.execs.values().flatten().map(|exec| exec.len());
        self.graphs.len() >= Self::MOST
            || self.execs.len() >= Self::MOST
            || graphs.chain(execs).sum::<usize>() >= Self::MOST_KEPT
    }

    /// Takes in a graph under its handle; what had the handle before is gone.
    pub(crate) fn put(&mut self, handle: Handle, graph: Graph) {
        self.remove_except(handle, graph.id);
        self.graphs.insert(handle, Arc::new(graph));
    }

    pub(crate) fn remove(&mut self, handle: Handle) {
        self.remove_except(handle, 0);
    }

    fn remove_except(&mut self, handle: Handle, id: u64) {
        if let Some(old) = self.graphs.remove(&handle)
            && old.id != id
        {
            for node in &old.handles {
                if self.nodes.get(node).is_some_and(|of| of.1 == old.id) {
                    self.nodes.remove(node);
                }
            }
        }
    }

    /// The graph, its identity and the place of a known node.
    pub(crate) fn node(&self, node: Handle) -> Option<(Handle, u64, u32)> {
        let &(graph, id, place) = self.nodes.get(&node)?;
        (self.graphs.get(&graph)?.id == id).then_some((graph, id, place))
    }

    pub(crate) fn change(&mut self, graph: Handle) -> Option<&mut Graph> {
        self.graphs.get_mut(&graph).map(Arc::make_mut)
    }

    /// The known nodes of a graph, with their places.
    pub(crate) fn named(&self, graph: &Graph) -> Vec<(Handle, u32)> {
        let place = |node: &Handle| {
            let &(_, id, place) = self.nodes.get(node)?;
            (id == graph.id).then_some((*node, place))
        };
        graph.handles.iter().filter_map(place).collect()
    }

    /// The graph of this handle, if it is still the one of this identity.
    pub(crate) fn change_known(&mut self, graph: Handle, id: u64) -> Option<&mut Graph> {
        let graph = self.graphs.get_mut(&graph)?;
        (graph.id == id).then(|| Arc::make_mut(graph))
    }

    pub(crate) fn name(&mut self, node: Handle, graph: Handle, place: u32) {
        if let Some(of) = self.graphs.get_mut(&graph) {
            let of = Arc::make_mut(of);
            of.handles.push(node);
            self.nodes.insert(node, (graph, of.id, place));
        }
    }

    /// The executable graph of this identity, if it is in the table.
    pub(crate) fn exec_by_id(&mut self, id: (Handle, u64)) -> Option<&mut Exec> {
        let exec = self.execs.get_mut(&id.0)?.as_deref_mut()?;
        (exec.id == id).then_some(exec)
    }

    pub(crate) fn owner(&self, owner: Owner) -> Option<&Owned> {
        self.owners.get(&owner)
    }

    fn own(&mut self, allocation: &Allocation) -> Owner {
        let owner = owner_of(allocation);
        self.owners.entry(owner).or_insert_with(|| Owned {
            block: allocation.into(),
            freed: None,
        });
        owner
    }

    /// Forgets the owners that neither these nor any kept node names.
    fn sweep(&mut self, mut used: UsedOwners) {
        let graphs = self.graphs.values().flat_map(|graph| &graph.nodes);
        let execs = self.execs.values().flatten().flat_map(|exec| exec.works());
        for work in graphs.map(|node| &node.work).chain(execs) {
            used.add(work);
        }
        let used = used.owners;
        self.owners.retain(|owner, _| used.contains(owner));
        self.sweep_at = 2 * self.owners.len();
    }

    /// Some node of some graph does something else, nobody knows which.
    fn doubt(&mut self, sort: Sort) {
        for graph in self.graphs.values_mut() {
            if graph.has(sort) {
                Arc::make_mut(graph).doubt(sort);
            }
        }
    }

    /// Whether nodes use this memory.
    pub(crate) fn uses(&self, allocation: &Allocation) -> bool {
        allocation.in_graphs && self.owners.contains_key(&owner_of(allocation))
    }

    /// The memory was given back.
    pub(crate) fn freed(&mut self, allocation: &Allocation, free: Access) {
        if allocation.in_graphs
            && let Some(owned) = self.owners.get_mut(&owner_of(allocation))
        {
            owned.freed.get_or_insert(free);
            self.lost_host_memory |= allocation.kind.is_host();
        }
    }
}

fn owner_of(allocation: &Allocation) -> Owner {
    (allocation.birth.op.sequence, allocation.address)
}

/// The owners that nodes name.
#[derive(Debug, Default)]
struct UsedOwners {
    owners: FxHashSet<Owner>,
    /// The child graphs gone through: one may be the child of many.
    children: FxHashSet<*const Graph>,
}

impl UsedOwners {
    fn add(&mut self, work: &Work) {
        match work {
            Work::Touches(_, touches) => {
                (self.owners).extend(touches.iter().filter_map(|touch| match touch.bound {
                    Bound::Outside(owner) => Some(owner),
                    Bound::Nothing | Bound::Inside(_) => None,
                }));
            }
            Work::Child(graph) if self.children.insert(Arc::as_ptr(graph)) => {
                for node in &graph.nodes {
                    self.add(&node.work);
                }
            }
            _ => {}
        }
    }
}

impl Engine {
    /// What the memory at an address is to a node that is added to `graph` now.
    pub(crate) fn bind(&mut self, graph: &Graph, address: u64) -> Bound {
        if let Some(place) = graph.allocation_at(address) {
            return Bound::Inside(place);
        }
        let Some(id) = self.memory.find(address) else {
            return Bound::Nothing;
        };
        match self.memory.as_live_mut(id) {
            // An address range stays the application's when other memory is mapped there;
            // and what a launch allocates is another allocation at every launch.
            Some(block) if block.kind == MemoryKind::Mapped || block.by_graph => Bound::Nothing,
            Some(block) => {
                block.in_graphs = true;
                Bound::Outside(self.graphs.own(block))
            }
            None => Bound::Nothing,
        }
    }

    fn bound_touch(&mut self, graph: &Graph, footprint: Footprint, mode: Mode) -> NodeTouch {
        NodeTouch {
            footprint,
            mode,
            bound: self.bind(graph, footprint.address()),
            element: Element::default(),
        }
    }

    pub(crate) fn kernel_work(
        &mut self,
        graph: &Graph,
        kernel: NameId,
        pointers: &[Pointer],
        layout_known: bool,
    ) -> Work {
        if !layout_known {
            self.blind_spot("unknown-kernel-parameters", kernel);
        }
        let mut touches = SmallVec::new();
        let mut doubtful = false;
        for (place, pointer) in pointers.iter().enumerate() {
            let block = self.memory.find(pointer.address);
            if pointer.mode == Mode::Doubtful {
                doubtful |= block.is_some();
                continue;
            }
            if self.ends_a_range(place, pointers, block) || ends_inside(graph, place, pointers) {
                continue;
            }
            let footprint = Footprint::Pointer(pointer.address, pointer.shift);
            touches.push(NodeTouch {
                element: pointer.element,
                ..self.bound_touch(graph, footprint, pointer.mode)
            });
        }
        if doubtful {
            self.blind_spot("pointers-in-large-structs", kernel);
        }
        Work::Touches(Sort::Kernel, touches)
    }

    pub(crate) fn regions_work(
        &mut self,
        graph: &Graph,
        sort: Sort,
        regions: &[(Region, Mode)],
    ) -> Work {
        let touches = regions
            .iter()
            .filter(|(region, _)| region.bytes() != 0)
            .map(|&(region, mode)| self.bound_touch(graph, Footprint::Exact(region), mode))
            .collect();
        Work::Touches(sort, touches)
    }

    /// What a node does that a call describes.
    pub(crate) fn work_of(
        &mut self,
        graph: &mut Graph,
        work: &NodeWork,
        op: OpRef,
        call: &Call,
    ) -> Work {
        match work {
            NodeWork::Kernel {
                kernel,
                pointers,
                layout_known,
            } => self.kernel_work(graph, *kernel, pointers, *layout_known),
            NodeWork::Copy {
                layers,
                direction,
                host,
            } => {
                let regions = self.copied_by_node(layers, *direction, *host, op, call);
                self.regions_work(graph, Sort::Copy, &regions)
            }
            NodeWork::Fill { to } => self.regions_work(graph, Sort::Fill, &[(*to, Mode::Write)]),
            NodeWork::Host => Work::Host(None),
            NodeWork::Empty => Work::Empty,
            NodeWork::EventRecord { event } => Work::Record(*event),
            NodeWork::EventWait { event } => Work::Wait(*event),
            NodeWork::Allocate { address, size } => allocate(graph, *address, *size, op),
            NodeWork::Free { address } => self.free_work(graph, *address),
            NodeWork::Child { graph: child } => match self.graphs.get(*child).cloned() {
                Some(child) => self.child_work(graph, child, call),
                None => {
                    self.blind_spot("graph-of-unknown-origin", call.api);
                    Work::Unknown
                }
            },
            NodeWork::Conditional { bodies } => {
                self.blind_spot("graph-conditional", call.api);
                Work::Conditional(bodies.clone())
            }
            NodeWork::Unknown => {
                self.blind_spot("graph-node-of-unknown-kind", call.api);
                Work::Unknown
            }
        }
    }

    /// What a node of `graph` does that another graph is put into as it is now.
    pub(crate) fn child_work(&mut self, graph: &mut Graph, child: Arc<Graph>, call: &Call) -> Work {
        let depth = child.depth + 1;
        if depth > Graphs::DEEPEST {
            self.blind_spot("graph-too-deep", call.api);
            return Work::Unknown;
        }
        graph.depth = graph.depth.max(depth);
        Work::Child(child)
    }

    pub(crate) fn free_work(&mut self, graph: &Graph, address: u64) -> Work {
        let bound = match graph.allocation_at(address) {
            Some(place) => Bound::Inside(place),
            None => Bound::Nothing,
        };
        Work::Free { address, bound }
    }

    /// The places of nodes in a graph; all of its nodes if one is not known.
    pub(crate) fn places(
        &mut self,
        graph: &Graph,
        nodes: &[Handle],
        call: &Call,
    ) -> SmallVec<[u32; 2]> {
        let mut places = SmallVec::new();
        for node in nodes {
            // `graph` may be out of the table.
            match self.graphs.nodes.get(node) {
                Some(&(_, id, place)) if id == graph.id => places.push(place),
                _ => {
                    self.blind_spot("graph-node-of-unknown-origin", call.api);
                    return graph.everything();
                }
            }
        }
        places
    }

    /// Whether one more graph may be kept; if not, what had the handle is forgotten.
    pub(crate) fn has_room(&mut self, handle: Handle, call: &Call) -> bool {
        let full = self.graphs.full();
        if full {
            self.graphs.remove(handle);
            self.blind_spot("graphs-beyond-the-limit", call.api);
        }
        !full
    }

    pub(crate) fn graph_created(&mut self, handle: Handle, call: &Call) {
        if !self.has_room(handle, call) {
            return;
        }
        let graph = self.graphs.new_graph();
        self.graphs.put(handle, graph);
    }

    pub(crate) fn graph_cloned(&mut self, handle: Handle, from: Handle, call: &Call) {
        let Some(from) = self.graphs.get(from).cloned() else {
            self.graphs.remove(handle);
            self.blind_spot("graph-of-unknown-origin", call.api);
            return;
        };
        if !self.has_room(handle, call) {
            return;
        }
        let graph = from.as_another(self.graphs.number());
        self.graphs.put(handle, graph);
    }

    /// The node of a clone at the place that `original` has in the other graph.
    pub(crate) fn found_in_clone(&mut self, graph: Handle, node: Handle, original: Handle) {
        let Some((_, _, place)) = self.graphs.node(original) else {
            return;
        };
        let has = |graph: &Arc<Graph>| (place as usize) < graph.nodes.len();
        if self.graphs.get(graph).is_some_and(has) {
            self.graphs.name(node, graph, place);
        }
    }

    pub(crate) fn node_added(
        &mut self,
        (handle, node): (Handle, Handle),
        dependencies: &[Handle],
        work: &NodeWork,
        op: OpRef,
        call: &Call,
    ) {
        let Some(known) = self.graph_to_build(handle, call) else {
            return;
        };
        let before = self.places(&known, dependencies, call);
        drop(known);
        // Out of the table, as its nodes' work is found out by looking at memory.
        let Some(mut graph) = self.graphs.change(handle).map(std::mem::take) else {
            return;
        };
        let mut place = None;
        if graph.nodes.len() < Graphs::MOST_NODES {
            let op = node_op(op, work);
            let work = self.work_of(&mut graph, work, op, call);
            place = Some(graph.push(op, work, before));
        } else {
            graph.unknown = true;
            self.blind_spot("graphs-beyond-the-limit", call.api);
        }
        if let Some(of) = self.graphs.change(handle) {
            *of = graph;
        }
        if let Some(place) = place {
            self.graphs.name(node, handle, place);
        }
    }

    /// The graph of this handle. One that was not seen to be made is that of a capture that
    /// has not ended, or of a child node.
    pub(crate) fn graph_to_build(&mut self, handle: Handle, call: &Call) -> Option<Arc<Graph>> {
        self.sweep_owners();
        if self.graphs.get(handle).is_none() {
            self.blind_spot("graph-of-unknown-origin", call.api);
            self.graph_created(handle, call);
            let graph = self.graphs.change(handle)?;
            graph.unknown = true;
            graph.loose = true;
        }
        self.graphs.get(handle).cloned()
    }

    pub(crate) fn node_removed(&mut self, node: Handle, call: &Call) {
        let Some((graph, _, place)) = self.graphs.node(node) else {
            self.blind_spot("graph-node-of-unknown-origin", call.api);
            return;
        };
        if let Some(graph) = self.graphs.change(graph) {
            // Its edges go with it, and order nothing; those from it are passed over from now
            // on.
            let removed = &mut graph.nodes[place as usize];
            removed.gone = true;
            removed.before.clear();
        }
        self.graphs.nodes.remove(&node);
    }

    /// A node of a graph does something else.
    pub(crate) fn node_changed(&mut self, node: Handle, work: &NodeWork, op: OpRef, call: &Call) {
        let Some((handle, _, place)) = self.graphs.node(node) else {
            // Of whichever graph it is, this is what it does no more.
            self.blind_spot("graph-node-of-unknown-origin", call.api);
            if let Some(sort) = sort_of(work) {
                self.graphs.doubt(sort);
                self.captures.doubt(sort);
            }
            return;
        };
        let Some(mut graph) = self.graphs.change(handle).map(std::mem::take) else {
            return;
        };
        let op = node_op(op, work);
        let work = self.work_of(&mut graph, work, op, call);
        let changed = &mut graph.nodes[place as usize];
        changed.op = op;
        changed.work = Arc::new(work);
        if let Some(of) = self.graphs.change(handle) {
            *of = graph;
        }
    }

    pub(crate) fn edges_changed(
        &mut self,
        handle: Handle,
        pairs: &[(Handle, Handle)],
        added: bool,
        call: &Call,
    ) {
        let Some(graph) = self.graph_to_build(handle, call) else {
            return;
        };
        let id = graph.id;
        drop(graph);
        for (from, to) in pairs {
            let place = |node: &Handle| {
                let (_, of, place) = self.graphs.node(*node)?;
                (of == id).then_some(place)
            };
            let (Some(from), Some(to)) = (place(from), place(to)) else {
                self.blind_spot("graph-node-of-unknown-origin", call.api);
                if let Some(graph) = self.graphs.change(handle) {
                    graph.loose = true;
                }
                continue;
            };
            if let Some(graph) = self.graphs.change(handle) {
                let before = &mut graph.nodes[to as usize].before;
                before.retain(|known| *known != from);
                if added {
                    before.push(from);
                }
            }
        }
    }

    /// Forgets memory that no node names any more, whenever there is twice as much as was
    /// left the last time.
    pub(crate) fn sweep_owners(&mut self) {
        if self.graphs.owners.len() <= self.graphs.sweep_at.max(Graphs::LEAST_SWEPT) {
            return;
        }
        let mut used = UsedOwners::default();
        for node in self.captures.nodes() {
            used.add(&node.work);
        }
        self.graphs.sweep(used);
    }
}

/// What an allocation node does.
pub(crate) fn allocate(graph: &mut Graph, address: u64, size: u64, op: OpRef) -> Work {
    graph
        .allocations
        .push(GraphAllocation { address, size, op });
    Work::Allocate(graph.allocations.len() as u32 - 1)
}

/// The call that made a node, with the kernel's name.
pub(crate) fn node_op(op: OpRef, work: &NodeWork) -> OpRef {
    let kernel = match work {
        NodeWork::Kernel { kernel, .. } => *kernel,
        _ => NameId::default(),
    };
    OpRef { kernel, ..op }
}

/// Which sort of nodes are in doubt once a node of unknown origin gets this work: a
/// node's type never changes.
pub(crate) fn sort_of(work: &NodeWork) -> Option<Sort> {
    match work {
        NodeWork::Kernel { .. } => Some(Sort::Kernel),
        NodeWork::Copy { .. } => Some(Sort::Copy),
        NodeWork::Fill { .. } => Some(Sort::Fill),
        NodeWork::Host => Some(Sort::Host),
        _ => None,
    }
}

/// Whether the pointer at `place` begins one of the graph's own allocations only because
/// another, into which the launch points as well, ends there.
fn ends_inside(graph: &Graph, place: usize, pointers: &[Pointer]) -> bool {
    let end = &pointers[place];
    let ends = |allocation: &&GraphAllocation| {
        allocation.address.checked_add(allocation.size) == Some(end.address)
    };
    if end.used == Used::Surely {
        return false;
    }
    let Some(before) = graph.allocations.iter().rfind(ends) else {
        return false;
    };
    let within = |begin: &Pointer| (before.address..end.address).contains(&begin.address);
    end.used == Used::Before
        || end.mode != Mode::Write && place.checked_sub(1).is_some_and(|p| within(&pointers[p]))
}
