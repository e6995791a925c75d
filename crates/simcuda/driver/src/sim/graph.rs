//! Graphs as programs build them: nodes and edges, and graphs within nodes. What runs is a snapshot of one: see
//! [`super::executable`].

use super::fill::Fill;
use super::kernel::Kernel;
use super::semaphore::Semaphores;
use super::state::{Attribute, State};
use super::transfer::Transfer;
use super::value::Values;
use crate::abi::{Copy3d, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::Arc;

/// `CUgraphEdgeData`: the port that it comes from, the one that it goes to, its type, and zeros.
pub(crate) type Edge = [u8; 8];

/// The edge of a node that waits for all of another.
pub(crate) const WHOLE: Edge = [0; 8];
/// One between kernels of which the second may begin before the first has ended.
pub(crate) const PROGRAMMATIC: Edge = [1, 0, 1, 0, 0, 0, 0, 0];

/// A function of the application's, and its argument.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    pub(crate) function: extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

/// A copy: the bytes that it moves, and how it was described.
#[derive(Clone, Copy)]
pub(crate) struct CopyNode {
    pub(crate) transfer: Transfer,
    pub(crate) params: Copy3d,
    pub(crate) context: u64,
}

/// `CUgraphConditionalNodeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    If,
    While,
    Switch,
}

/// A node that runs bodies as its handle's value demands.
pub(crate) struct Conditional {
    pub(crate) handle: u64,
    pub(crate) when: When,
    /// The graphs that it owns.
    pub(crate) bodies: Vec<u64>,
    pub(crate) context: u64,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Action {
    Kernel(Arc<Kernel>),
    Copy(Box<CopyNode>),
    Fill(Fill),
    Host(HostCall),
    /// Runs the graph that it owns.
    Child(u64),
    Empty,
    WaitEvent(u64),
    RecordEvent(u64),
    Signal(Arc<Semaphores>),
    AwaitSignal(Arc<Semaphores>),
    /// Of so many bytes, at this address, on this device.
    Allocate(u64, u64, i32),
    /// Of what an allocation node allocates at this address.
    Free(u64),
    Values(Arc<Values>),
    Conditional(Arc<Conditional>),
}

impl Action {
    /// `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::WaitEvent(_) => 6,
            Self::RecordEvent(_) => 7,
            Self::Signal(_) => 8,
            Self::AwaitSignal(_) => 9,
            Self::Allocate(..) => 10,
            Self::Free(_) => 11,
            Self::Values(_) => 12,
            Self::Conditional(_) => 13,
        }
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Allocate(..) | Self::Free(_))
    }

    /// The graphs that the node owns.
    pub(crate) fn inside(&self) -> &[u64] {
        match self {
            Self::Child(graph) => std::slice::from_ref(graph),
            Self::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }

    /// As `cuda.h` says of conditional nodes: what their bodies may hold.
    fn may_be_conditional(&self) -> bool {
        matches!(
            self,
            Self::Kernel(_)
                | Self::Copy(_)
                | Self::Fill(_)
                | Self::Child(_)
                | Self::Empty
                | Self::Conditional(_)
        )
    }
}

/// Whose a graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Application,
    /// This node's, which runs it.
    Node(u64),
    /// The capture's that makes it.
    Capture,
}

pub(crate) struct Graph {
    /// Never used twice.
    pub(crate) id: u64,
    pub(crate) owner: Owner,
    /// In the order in which they were added.
    pub(crate) nodes: Vec<u64>,
    pub(crate) next_node: u32,
    /// How many executables have been made of it and are there still.
    pub(crate) executables: usize,
    /// The references that it has to each user object.
    pub(crate) user_objects: BTreeMap<u64, u64>,
}

pub(crate) struct Node {
    /// Never used twice.
    pub(crate) id: u64,
    /// Its number within its graph.
    pub(crate) number: u32,
    pub(crate) graph: u64,
    pub(crate) action: Action,
    pub(crate) needs: Vec<(u64, Edge)>,
    pub(crate) then: Vec<u64>,
    /// The identity of the node that it is a clone of.
    pub(crate) original: Option<u64>,
    /// What was set, by `CUlaunchAttributeID`.
    pub(crate) attributes: HashMap<u32, Attribute>,
}

impl State {
    pub(crate) fn add_graph(&mut self, owner: Owner) -> u64 {
        let id = self.fresh_id();
        self.graphs.insert(Graph {
            id,
            owner,
            nodes: Vec::new(),
            next_node: 0,
            executables: 0,
            user_objects: BTreeMap::new(),
        })
    }

    pub(crate) fn graph(&self, handle: u64) -> Status<&Graph> {
        self.graphs.get(handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn node(&self, handle: u64) -> Status<&Node> {
        self.nodes.get(handle).ok_or(INVALID_VALUE)
    }

    /// The graph that holds all others around `graph`.
    pub(crate) fn outermost(&self, mut graph: u64) -> u64 {
        while let Some(Owner::Node(node)) = self.graphs.get(graph).map(|graph| graph.owner)
            && let Some(node) = self.nodes.get(node)
        {
            graph = node.graph;
        }
        graph
    }

    /// Whether a node of the graph, or of one inside it, is such.
    pub(crate) fn any_node(&self, graph: u64, is: &dyn Fn(&Action) -> bool) -> bool {
        let nodes = self.graphs.get(graph).map_or(&[][..], |graph| &graph.nodes);
        nodes
            .iter()
            .filter_map(|&node| self.nodes.get(node))
            .any(|node| {
                is(&node.action)
                    || node
                        .action
                        .inside()
                        .iter()
                        .any(|&graph| self.any_node(graph, is))
            })
    }

    /// The edges of one node must come from other nodes of its graph, each once, and mean something.
    pub(crate) fn check_edges(&self, graph: u64, needs: &[(u64, Edge)]) -> Status {
        let mut seen = BTreeSet::new();
        for &(from, edge) in needs {
            let node = self.node(from)?;
            let [port, to, kind, rest @ ..] = edge;
            let is_kernel = matches!(node.action, Action::Kernel(_));
            let fits =
                port <= 2 && (port == 0 || is_kernel) && to == 0 && kind <= 1 && rest == [0; 5];
            if node.graph != graph || !seen.insert(from) || !fits {
                return Err(INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Adds a node; its handle.
    pub(crate) fn add_node(
        &mut self,
        graph: u64,
        needs: &[(u64, Edge)],
        action: Action,
    ) -> Status<u64> {
        self.check_edges(graph, needs)?;
        let owner = self.graph(graph)?.owner;
        if let Owner::Node(owner) = owner
            && matches!(self.node(owner)?.action, Action::Conditional(_))
            && !action.may_be_conditional()
        {
            return Err(INVALID_VALUE);
        }
        let id = self.fresh_id();
        let inside = action.inside().to_vec();
        let number = self.graph(graph)?.next_node;
        let handle = self.nodes.insert(Node {
            id,
            number,
            graph,
            action,
            needs: needs.to_vec(),
            then: Vec::new(),
            original: None,
            attributes: HashMap::new(),
        });
        for &(from, _) in needs {
            if let Some(node) = self.nodes.get_mut(from) {
                node.then.push(handle);
            }
        }
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.nodes.push(handle);
            graph.next_node += 1;
        }
        for graph in inside {
            if let Some(graph) = self.graphs.get_mut(graph) {
                graph.owner = Owner::Node(handle);
            }
        }
        Ok(handle)
    }

    /// Takes the node and all that it owns out, with its edges.
    pub(crate) fn remove_node(&mut self, handle: u64) {
        let Some(node) = self.nodes.remove(handle) else {
            return;
        };
        for (from, _) in node.needs {
            if let Some(from) = self.nodes.get_mut(from) {
                from.then.retain(|&other| other != handle);
            }
        }
        for then in node.then {
            if let Some(then) = self.nodes.get_mut(then) {
                then.needs.retain(|&(other, _)| other != handle);
            }
        }
        if let Some(graph) = self.graphs.get_mut(node.graph) {
            graph.nodes.retain(|&other| other != handle);
        }
        for &graph in node.action.inside() {
            self.remove_graph(graph);
        }
        if let Action::Allocate(address, ..) = node.action {
            self.drop_graph_memory(address, None);
        }
    }

    pub(crate) fn remove_graph(&mut self, handle: u64) {
        let Some(graph) = self.graphs.remove(handle) else {
            return;
        };
        let id = graph.id;
        for (object, count) in graph.user_objects {
            // A graph holds what is there.
            let _ = self.release_user_object(object, count, None);
        }
        self.conditions.retain(|_, condition| condition.graph != id);
        // Last first, so that each node's list of what comes after it is short by then.
        for node in graph.nodes.into_iter().rev() {
            self.remove_node(node);
        }
    }

    /// Whether `node`'s graph has no nodes of the kinds that tie it to its memory and handles.
    pub(crate) fn is_free_to_change(&self, graph: u64) -> bool {
        !self.any_node(graph, &Action::is_memory)
    }

    /// A copy of a graph, with copies of the graphs inside it.
    pub(crate) fn clone_graph(&mut self, graph: u64, owner: Owner) -> Status<u64> {
        let tied = |action: &Action| action.is_memory() || matches!(action, Action::Conditional(_));
        if self.any_node(graph, &tied) {
            return Err(INVALID_VALUE);
        }
        let nodes = self.graph(graph)?.nodes.clone();
        let copy = self.add_graph(owner);
        let held: Vec<u64> = self.graph(graph)?.user_objects.keys().copied().collect();
        for object in held {
            self.retain_user_object(object, 1)?;
            if let Some(copy) = self.graphs.get_mut(copy) {
                copy.user_objects.insert(object, 1);
            }
        }
        let mut copies = HashMap::new();
        for handle in &nodes {
            let node = self.node(*handle)?;
            let (id, attributes) = (node.id, node.attributes.clone());
            let action = match node.action {
                Action::Child(inside) => Action::Child(self.clone_graph(inside, Owner::Capture)?),
                ref action => action.clone(),
            };
            let added = self.add_node(copy, &[], action)?;
            if let Some(node) = self.nodes.get_mut(added) {
                node.original = Some(id);
                node.attributes = attributes;
            }
            copies.insert(*handle, added);
        }
        // Edges may lead from later nodes to earlier ones.
        for handle in &nodes {
            let needs = self.node(*handle)?.needs.clone();
            for (from, edge) in needs {
                self.add_edge(copies[&from], copies[handle], edge);
            }
        }
        Ok(copy)
    }

    pub(crate) fn add_edge(&mut self, from: u64, to: u64, edge: Edge) {
        if let Some(node) = self.nodes.get_mut(to) {
            node.needs.push((from, edge));
        }
        if let Some(node) = self.nodes.get_mut(from) {
            node.then.push(to);
        }
    }

    /// `false` if there is no such edge.
    pub(crate) fn remove_edge(&mut self, from: u64, to: u64, edge: Edge) -> bool {
        let Some(node) = self.nodes.get_mut(to) else {
            return false;
        };
        let Some(at) = node.needs.iter().position(|&need| need == (from, edge)) else {
            return false;
        };
        node.needs.remove(at);
        if let Some(node) = self.nodes.get_mut(from) {
            node.then.retain(|&other| other != to);
        }
        true
    }

    /// The nodes, and all that come before them.
    pub(crate) fn with_ancestors(&self, nodes: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
        let mut open: Vec<u64> = nodes.into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(node) = open.pop() {
            if seen.insert(node)
                && let Some(node) = self.nodes.get(node)
            {
                open.extend(node.needs.iter().map(|&(from, _)| from));
            }
        }
        seen
    }

    /// An event must be there for a node to name it.
    pub(crate) fn check_event(&self, event: u64) -> Status {
        self.events.get(event).map(|_| ()).ok_or(INVALID_HANDLE)
    }
}
