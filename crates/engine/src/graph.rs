//! The segment graph: who is ordered after whom, and why.
//!
//! A node is a *segment*, a run of operations of one timeline between two changes
//! of what it knows; an edge says what ordered the two ends. The clocks decide;
//! the graph explains, and the two always agree (`agreement`). As explanations are
//! rare, links are only written down as they come, and put into the graph when someone
//! asks.

use std::cell::{Ref, RefCell};
use std::collections::VecDeque;
use std::fmt::Write as _;

use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use rustc_hash::FxHashMap;

use crate::clock::Epoch;
use crate::op::OpRef;

/// What an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The next segment of the same timeline.
    Program,
    /// An event record that a stream waited for.
    EventWait,
    /// An event, stream or device synchronize, or a query that said "complete".
    HostSync,
    /// Work is submitted after what the host knows complete.
    Submission,
    /// The legacy default stream's barrier.
    LegacyStream,
    /// A value that a stream wrote ended another's wait.
    ValueWait,
    /// A context's or a device's streams all wait, or are waited for.
    Scope,
    /// A host function ran.
    HostFunction,
    /// An executable graph's launches come one after the other.
    EarlierLaunch,
    /// A call that happens to wait, though NVIDIA does not say so.
    ImplicitSync,
    /// Something outside the process or out of sight, taken as ordered.
    Unseen,
}

impl Reason {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Program => "program order",
            Self::EventWait => "event wait",
            Self::HostSync => "host synchronize",
            Self::Submission => "submission after what the host knows complete",
            Self::LegacyStream => "legacy default stream",
            Self::ValueWait => "value wait",
            Self::Scope => "all streams of a context or device",
            Self::HostFunction => "host function",
            Self::EarlierLaunch => "earlier launch of the graph",
            Self::ImplicitSync => "implicit synchronize",
            Self::Unseen => "unseen, taken as ordered",
        }
    }
}

/// An edge's reason and the call that made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) reason: Reason,
    pub(crate) call: Option<OpRef>,
}

/// A link as it was written down.
#[derive(Clone, Copy, Debug)]
struct Entry {
    from: Epoch,
    to: Epoch,
    link: Link,
}

#[derive(Debug, Default)]
pub(crate) struct SegmentGraph {
    built: RefCell<Built>,
}

#[derive(Debug, Default)]
struct Built {
    /// Links that are not in the graph yet.
    new: VecDeque<Entry>,
    graph: StableDiGraph<Epoch, Link>,
    nodes: FxHashMap<Epoch, NodeIndex>,
    oldest: VecDeque<Epoch>,
}

impl Built {
    fn node(&mut self, epoch: Epoch) -> NodeIndex {
        if let Some(&node) = self.nodes.get(&epoch) {
            return node;
        }
        let node = self.graph.add_node(epoch);
        self.nodes.insert(epoch, node);
        self.oldest.push_back(epoch);
        node
    }

    /// Forgets the oldest segments until two more have room.
    fn make_room(&mut self) {
        while self.nodes.len() + 2 > SegmentGraph::CAP
            && let Some(old) = self.oldest.pop_front()
        {
            if let Some(node) = self.nodes.remove(&old) {
                self.graph.remove_node(node);
            }
        }
    }

    fn take_in(&mut self, entry: &Entry) {
        // Before the lookups: what they find must still be there for the edge.
        self.make_room();
        let (from, to) = (self.node(entry.from), self.node(entry.to));
        self.graph.add_edge(from, to, entry.link);
    }
}

impl SegmentGraph {
    /// Segments and new links kept. Past it the oldest go: explanations get shorter,
    /// verdicts stay, as they come from the clocks.
    const CAP: usize = 1 << 13;

    /// `to` is the segment after `from` in one timeline.
    #[inline]
    pub(crate) fn continues(&mut self, from: Epoch, to: Epoch) {
        self.link(from, to, Reason::Program, None);
    }

    /// `from` happens before `to`.
    #[inline]
    pub(crate) fn link(&mut self, from: Epoch, to: Epoch, reason: Reason, call: Option<OpRef>) {
        let new = &mut self.built.get_mut().new;
        if new.len() == Self::CAP {
            new.pop_front();
        }
        let link = Link { reason, call };
        new.push_back(Entry { from, to, link });
    }

    /// The graph with all links in it.
    fn built(&self) -> Ref<'_, Built> {
        {
            let mut built = self.built.borrow_mut();
            while let Some(entry) = built.new.pop_front() {
                built.take_in(&entry);
            }
        }
        self.built.borrow()
    }

    /// The links of a shortest path from `from` to `to`, first link first, without
    /// program order; each with its two ends.
    pub(crate) fn path(&self, from: Epoch, to: Epoch) -> Vec<(Epoch, Epoch, Link)> {
        let built = self.built();
        let Built { graph, nodes, .. } = &*built;
        let (Some(&start), Some(&goal)) = (nodes.get(&from), nodes.get(&to)) else {
            return Vec::new();
        };
        let found = petgraph::algo::astar(graph, start, |node| node == goal, |_| 1u32, |_| 0);
        let Some((_, nodes)) = found else {
            return Vec::new();
        };
        nodes
            .windows(2)
            .filter_map(|pair| {
                let edge = graph.find_edge(pair[0], pair[1])?;
                Some((graph[pair[0]], graph[pair[1]], graph[edge]))
            })
            .filter(|(.., link)| link.reason != Reason::Program)
            .collect()
    }

    /// Every link with its two ends, without program order.
    pub(crate) fn links(&self) -> Vec<(Epoch, Epoch, Link)> {
        let built = self.built();
        let graph = &built.graph;
        graph
            .edge_references()
            .filter(|edge| edge.weight().reason != Reason::Program)
            .map(|edge| (graph[edge.source()], graph[edge.target()], *edge.weight()))
            .collect()
    }

    /// Whether a path leads from `from` to `to`.
    #[cfg(test)]
    pub(crate) fn reaches(&self, from: Epoch, to: Epoch) -> bool {
        let built = self.built();
        match (built.nodes.get(&from), built.nodes.get(&to)) {
            (Some(&a), Some(&b)) => petgraph::algo::has_path_connecting(&built.graph, a, b, None),
            _ => from == to,
        }
    }

    /// The graph in Graphviz's language; `name` names a timeline.
    pub(crate) fn dot(&self, name: impl Fn(u32) -> String) -> String {
        let graph = &self.built().graph;
        let mut text = String::from("digraph order {\n  rankdir=LR;\n");
        for node in graph.node_indices() {
            let epoch = graph[node];
            let _ = writeln!(
                text,
                "  n{} [label={:?}];",
                node.index(),
                format!("{} @{}", name(epoch.slot), epoch.time)
            );
        }
        for edge in graph.edge_indices() {
            if let Some((a, b)) = graph.edge_endpoints(edge) {
                let label = graph[edge].reason.label();
                let _ = writeln!(
                    text,
                    "  n{} -> n{} [label={label:?}];",
                    a.index(),
                    b.index()
                );
            }
        }
        text.push_str("}\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_segment_can_be_linked_while_the_oldest_go() {
        let epoch = |time| Epoch { slot: 1, time };
        let mut graph = SegmentGraph::default();
        for time in 1..4 * SegmentGraph::CAP as u64 {
            graph.continues(epoch(time), epoch(time + 1));
            // Whichever segment is the oldest now is also one end of an edge.
            let oldest = *graph.built().oldest.front().unwrap();
            graph.link(oldest, Epoch { slot: 2, time }, Reason::EventWait, None);
            assert!(graph.built().nodes.len() <= SegmentGraph::CAP);
        }
        let built = graph.built();
        assert!(!built.nodes.contains_key(&epoch(1)));
        assert_eq!(built.nodes.len(), built.graph.node_count());
    }

    #[test]
    fn links_that_nobody_asked_for_are_forgotten_from_the_oldest_on() {
        let epoch = |time| Epoch { slot: 1, time };
        let mut graph = SegmentGraph::default();
        let last = 3 * SegmentGraph::CAP as u64;
        for time in 1..last {
            graph.continues(epoch(time), epoch(time + 1));
            assert!(graph.built.get_mut().new.len() <= SegmentGraph::CAP);
        }
        assert!(graph.reaches(epoch(last - 100), epoch(last)));
        assert!(!graph.reaches(epoch(1), epoch(last)));
    }
}
