//! Graphs: making and destroying them, their nodes and edges.

use super::capture::edges;
use crate::abi::{In, Out, Status, Text};
use crate::error::{INVALID_VALUE, LOSSY_QUERY, NOT_FOUND};
use crate::sim::graph::{Edge, Owner, WHOLE};
use crate::sim::session::session;
use crate::sim::state::State;
use std::fmt::Write;

const NO_EDGES: Out<Edge> = Out(std::ptr::null_mut());

/// Gives out as many handles as there is room for; without a place for them, how many there are.
fn give(handles: &[u64], out: Out<u64>, count: Out<usize>) -> Status {
    if out.0.is_null() {
        return count.put(handles.len());
    }
    let room = In(count.0.cast_const()).get()?;
    for at in 0..room {
        Out(out.0.wrapping_add(at)).put(handles.get(at).copied().unwrap_or(0))?;
    }
    count.put(handles.len().min(room))
}

/// The same for edges: where they come from, where they lead, and what they are. `tells`: the caller can be told of
/// edges that are not whole.
fn give_edges(
    all: &[(u64, u64, Edge)],
    (from, to, data): (Out<u64>, Out<u64>, Out<Edge>),
    count: Out<usize>,
) -> Status {
    if from.0.is_null() && to.0.is_null() {
        return count.put(all.len());
    }
    if data.0.is_null() && all.iter().any(|&(.., edge)| edge != WHOLE) {
        return Err(LOSSY_QUERY);
    }
    let room = In(count.0.cast_const()).get()?;
    for at in 0..room {
        let (source, target, edge) = all.get(at).copied().unwrap_or((0, 0, WHOLE));
        for (out, value) in [(from, source), (to, target)] {
            if !out.0.is_null() {
                Out(out.0.wrapping_add(at)).put(value)?;
            }
        }
        if !data.0.is_null() {
            Out(data.0.wrapping_add(at)).put(edge)?;
        }
    }
    count.put(all.len().min(room))
}

fn edges_of(s: &State, graph: u64) -> Status<Vec<(u64, u64, Edge)>> {
    let mut all = Vec::new();
    for &to in &s.graph(graph)?.nodes {
        let needs = &s.node(to)?.needs;
        all.extend(needs.iter().map(|&(from, edge)| (from, to, edge)));
    }
    Ok(all)
}

const NOWHERE: Out<u64> = Out(std::ptr::null_mut());

fn dependencies(node: u64, nodes: Out<u64>, data: Out<Edge>, count: Out<usize>) -> Status {
    session(|s| {
        let needs = &s.node(node)?.needs;
        let all: Vec<_> = needs
            .iter()
            .map(|&(from, edge)| (from, node, edge))
            .collect();
        give_edges(&all, (nodes, NOWHERE, data), count)
    })
}

fn dependents(node: u64, nodes: Out<u64>, data: Out<Edge>, count: Out<usize>) -> Status {
    session(|s| {
        let mut all = Vec::new();
        for &to in &s.node(node)?.then {
            let needs = &s.node(to)?.needs;
            let own = needs.iter().filter(|&&(from, _)| from == node);
            all.extend(own.map(|&(_, edge)| (node, to, edge)));
        }
        give_edges(&all, (NOWHERE, nodes, data), count)
    })
}

fn connect(graph: u64, from: In<u64>, to: In<u64>, data: In<Edge>, count: usize) -> Status {
    session(|s| {
        s.graph(graph)?;
        let (sources, targets) = (edges(from, data, count)?, to.list(count)?);
        for (&(from, edge), &to) in sources.iter().zip(&targets) {
            s.check_edges(graph, &[(from, edge)])?;
            let target = s.node(to)?;
            let there = target.needs.iter().any(|&(other, _)| other == from);
            if target.graph != graph || to == from || there {
                return Err(INVALID_VALUE);
            }
        }
        for ((from, edge), to) in sources.into_iter().zip(targets) {
            s.add_edge(from, to, edge);
        }
        Ok(())
    })
}

fn disconnect(graph: u64, from: In<u64>, to: In<u64>, data: In<Edge>, count: usize) -> Status {
    session(|s| {
        s.graph(graph)?;
        let (sources, targets) = (edges(from, data, count)?, to.list(count)?);
        if count > 0 && !s.is_free_to_change(graph) {
            return Err(INVALID_VALUE);
        }
        for (&(from, edge), &to) in sources.iter().zip(&targets) {
            if s.node(to)?.graph != graph || !s.node(to)?.needs.contains(&(from, edge)) {
                return Err(INVALID_VALUE);
            }
        }
        for ((from, edge), to) in sources.into_iter().zip(targets) {
            s.remove_edge(from, to, edge);
        }
        Ok(())
    })
}

/// `CUgraphNodeType`, in words.
const KINDS: [&str; 14] = [
    "KERNEL",
    "MEMCPY",
    "MEMSET",
    "HOST",
    "GRAPH",
    "EMPTY",
    "WAIT_EVENT",
    "EVENT_RECORD",
    "EXT_SEMAS_SIGNAL",
    "EXT_SEMAS_WAIT",
    "MEM_ALLOC",
    "MEM_FREE",
    "BATCH_MEM_OP",
    "CONDITIONAL",
];

/// The graph in DOT, its nodes by number.
fn dot(s: &State, graph: u64) -> Status<String> {
    let mut text = String::from("digraph dot {\n");
    for &handle in &s.graph(graph)?.nodes {
        let node = s.node(handle)?;
        let kind = KINDS.get(node.action.kind() as usize).unwrap_or(&"UNKNOWN");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  node_{} [label=\"{}\\n{kind}\"];",
            node.number, node.number
        );
    }
    for (from, to, _) in edges_of(s, graph)? {
        let _ = writeln!(
            text,
            "  node_{} -> node_{};",
            s.node(from)?.number,
            s.node(to)?.number
        );
    }
    text.push_str("}\n");
    Ok(text)
}

api! {
    "cuGraphCreate" 10000 => cuGraphCreate(graph: Out<u64>, flags: u32) {
        session(|s| {
            graph.wanted()?;
            if flags != 0 {
                return Err(INVALID_VALUE);
            }
            let handle = s.add_graph(Owner::Application);
            graph.put(handle)
        })
    }
    "cuGraphDestroy" 10000 => cuGraphDestroy(graph: u64) {
        session(|s| {
            if s.graph(graph)?.owner != Owner::Application || s.is_being_captured(graph) {
                return Err(INVALID_VALUE);
            }
            s.remove_graph(graph);
            // A user object may be due to be destroyed.
            s.submitted();
            Ok(())
        })
    }
    "cuGraphClone" 10000 => cuGraphClone(clone: Out<u64>, original: u64) {
        session(|s| {
            clone.wanted()?;
            let handle = s.clone_graph(original, Owner::Application)?;
            clone.put(handle)
        })
    }
    "cuGraphNodeFindInClone" 10000 => cuGraphNodeFindInClone(node: Out<u64>, original: u64, clone: u64) {
        session(|s| {
            let id = s.node(original)?.id;
            let found = s.graph(clone)?.nodes.iter().copied();
            let mut found = found.filter(|&handle| s.node(handle).is_ok_and(|node| node.original == Some(id)));
            node.put(found.next().ok_or(INVALID_VALUE)?)
        })
    }
    "cuGraphNodeGetType" 10000 => cuGraphNodeGetType(node: u64, kind: Out<u32>) {
        session(|s| kind.put(s.node(node)?.action.kind()))
    }
    "cuGraphNodeGetContainingGraph" 13010 => cuGraphNodeGetContainingGraph(node: u64, graph: Out<u64>) {
        session(|s| graph.put(s.node(node)?.graph))
    }
    "cuGraphNodeGetLocalId" 13010 => cuGraphNodeGetLocalId(node: u64, id: Out<u32>) {
        session(|s| id.put(s.node(node)?.number))
    }
    "cuGraphNodeGetToolsId" 13010 => cuGraphNodeGetToolsId(node: u64, id: Out<u64>) {
        session(|s| id.put(s.node(node)?.id))
    }
    "cuGraphGetId" 13010 => cuGraphGetId(graph: u64, id: Out<u32>) {
        session(|s| id.put(s.graph(graph)?.id as u32))
    }
    "cuGraphGetNodes" 10000 => cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        session(|s| give(&s.graph(graph)?.nodes, nodes, count))
    }
    "cuGraphGetRootNodes" 10000 => cuGraphGetRootNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        session(|s| {
            let all = s.graph(graph)?.nodes.iter().copied();
            let roots: Vec<u64> = all.filter(|&node| s.node(node).is_ok_and(|node| node.needs.is_empty())).collect();
            give(&roots, nodes, count)
        })
    }
    "cuGraphGetEdges" 10000 => cuGraphGetEdges(graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) {
        session(|s| give_edges(&edges_of(s, graph)?, (from, to, NO_EDGES), count))
    }
    "cuGraphGetEdges" 12030 => cuGraphGetEdges_v2(graph: u64, from: Out<u64>, to: Out<u64>, data: Out<Edge>,
                                                  count: Out<usize>) {
        session(|s| give_edges(&edges_of(s, graph)?, (from, to, data), count))
    }
    "cuGraphNodeGetDependencies" 10000 => cuGraphNodeGetDependencies(node: u64, nodes: Out<u64>, count: Out<usize>) {
        dependencies(node, nodes, NO_EDGES, count)
    }
    "cuGraphNodeGetDependencies" 12030 => cuGraphNodeGetDependencies_v2(node: u64, nodes: Out<u64>, data: Out<Edge>,
                                                                       count: Out<usize>) {
        dependencies(node, nodes, data, count)
    }
    "cuGraphNodeGetDependentNodes" 10000 => cuGraphNodeGetDependentNodes(node: u64, nodes: Out<u64>,
                                                                         count: Out<usize>) {
        dependents(node, nodes, NO_EDGES, count)
    }
    "cuGraphNodeGetDependentNodes" 12030 => cuGraphNodeGetDependentNodes_v2(node: u64, nodes: Out<u64>,
                                                                           data: Out<Edge>, count: Out<usize>) {
        dependents(node, nodes, data, count)
    }
    "cuGraphAddDependencies" 10000 => cuGraphAddDependencies(graph: u64, from: In<u64>, to: In<u64>, count: usize) {
        connect(graph, from, to, In(std::ptr::null()), count)
    }
    "cuGraphAddDependencies" 12030 => cuGraphAddDependencies_v2(graph: u64, from: In<u64>, to: In<u64>,
                                                                data: In<Edge>, count: usize) {
        connect(graph, from, to, data, count)
    }
    "cuGraphRemoveDependencies" 10000 => cuGraphRemoveDependencies(graph: u64, from: In<u64>, to: In<u64>,
                                                                   count: usize) {
        disconnect(graph, from, to, In(std::ptr::null()), count)
    }
    "cuGraphRemoveDependencies" 12030 => cuGraphRemoveDependencies_v2(graph: u64, from: In<u64>, to: In<u64>,
                                                                      data: In<Edge>, count: usize) {
        disconnect(graph, from, to, data, count)
    }
    "cuGraphDestroyNode" 10000 => cuGraphDestroyNode(node: u64) {
        session(|s| {
            let graph = s.node(node)?.graph;
            if !s.is_free_to_change(graph) || s.is_being_captured(graph) {
                return Err(INVALID_VALUE);
            }
            s.remove_node(node);
            Ok(())
        })
    }
    "cuGraphDebugDotPrint" 11030 => cuGraphDebugDotPrint(graph: u64, path: Text, _flags: u32) {
        let (text, path) = (session(|s| dot(s, graph))?, path.get()?);
        std::fs::write(path, text).map_err(|_| NOT_FOUND)
    }
}
