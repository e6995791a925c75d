//! The nodes of graphs: adding them, and what they do.

use super::capture::edges;
use super::graph_params::{
    AllocateParams, Awaits, CopyIn, Describes, FillIn, FillParams1, HostParams1, KernelParams,
    KernelParams1, NodeParams, SemaphoresParams, Signals, ValuesParams, allocate_params, allocated,
    allocation, answered, described, fill_params, host_params, kernel_params, kernel_params_1,
    params_of,
};
use crate::abi::{Copy3d, In, Out, Status};
use crate::error::{INVALID_CONTEXT, INVALID_VALUE};
use crate::sim::capture::Tips;
use crate::sim::conditional::{self, Condition};
use crate::sim::graph::{Action, Edge, Owner};
use crate::sim::session::{Session, session};
use crate::sim::state::{Attribute, State};

/// Where a node is to be: the graph, and the nodes that it comes after.
#[derive(Clone, Copy)]
struct Spot {
    graph: u64,
    nodes: In<u64>,
    edges: In<Edge>,
    count: usize,
}

/// Adds what `make` makes; what that made for the node is taken back where the node cannot be.
fn add(
    out: Out<u64>,
    spot: Spot,
    make: impl FnOnce(&mut Session, &Tips) -> Status<Action>,
) -> Status<Action> {
    session(|s| {
        out.wanted()?;
        s.graph(spot.graph)?;
        let needs = edges(spot.nodes, spot.edges, spot.count)?;
        s.check_edges(spot.graph, &needs)?;
        let action = make(s, &needs)?;
        let node = s
            .add_node(spot.graph, &needs, action.clone())
            .inspect_err(|_| abandon(s, &action))?;
        if let Action::Free(address) = action {
            s.add_graph_free(spot.graph, address, node);
        }
        out.put(node)?;
        Ok(action)
    })
}

fn abandon(s: &mut State, action: &Action) {
    match action {
        Action::Allocate(address, ..) => s.drop_graph_memory(*address, None),
        // A graph that was to be moved stays the application's.
        Action::Child(graph)
            if s.graph(*graph)
                .is_ok_and(|graph| graph.owner == Owner::Capture) =>
        {
            s.remove_graph(*graph);
        }
        Action::Conditional(conditional) => {
            if let Some(condition) = s.conditions.get_mut(&conditional.handle) {
                condition.used = false;
            }
            conditional
                .bodies
                .iter()
                .for_each(|&body| s.remove_graph(body));
        }
        _ => {}
    }
}

fn add_described(out: Out<u64>, spot: Spot, params: In<impl Describes>) -> Status {
    let params = params.get()?;
    add(out, spot, |s, _| params.action(s)).map(|_| ())
}

fn add_any(out: Out<u64>, spot: Spot, params: Out<NodeParams>) -> Status {
    let given = In(params.0.cast_const()).get()?;
    let added = add(out, spot, |s, needs| {
        described(s, spot.graph, needs, &given)
    })?;
    answered(params, &added)
}

fn add_event(out: Out<u64>, spot: Spot, event: u64, action: fn(u64) -> Action) -> Status {
    add(out, spot, |s, _| {
        s.check_event(event).map(|()| action(event))
    })
    .map(|_| ())
}

/// Gives out what `read` finds in the node, if that is its kind.
fn get<T>(node: u64, out: Out<T>, read: impl FnOnce(&State, &Action) -> Option<T>) -> Status {
    session(|s| {
        let action = &s.node(node)?.action;
        out.put(read(s, action).ok_or(INVALID_VALUE)?)
    })
}

/// Replaces what the node does by something of its kind.
fn set(node: u64, make: impl FnOnce(&State) -> Status<Action>) -> Status {
    session(|s| {
        let action = make(s)?;
        let node = s.nodes.get_mut(node).ok_or(INVALID_VALUE)?;
        if node.action.kind() != action.kind() {
            return Err(INVALID_VALUE);
        }
        node.action = action;
        Ok(())
    })
}

fn set_described(node: u64, params: In<impl Describes>) -> Status {
    let params = params.get()?;
    set(node, |s| params.action(s))
}

fn set_event(node: u64, event: u64, action: fn(u64) -> Action) -> Status {
    set(node, |s| s.check_event(event).map(|()| action(event)))
}

/// Attributes of kernel nodes: kept and given back, without effect.
fn attributes<T>(
    node: u64,
    use_them: impl FnOnce(&mut std::collections::HashMap<u32, Attribute>) -> Status<T>,
) -> Status<T> {
    session(|s| {
        let node = s.nodes.get_mut(node).ok_or(INVALID_VALUE)?;
        match node.action {
            Action::Kernel(_) => use_them(&mut node.attributes),
            _ => Err(INVALID_VALUE),
        }
    })
}

const NO_EDGES: In<Edge> = In(std::ptr::null());

fn spot(graph: u64, nodes: In<u64>, count: usize) -> Spot {
    Spot {
        graph,
        nodes,
        edges: NO_EDGES,
        count,
    }
}

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: u32 = 1;

/// Of this library only: what `cudaGraphSetConditional` is to a kernel, for the host functions that stand in for kernels.
// SAFETY: the name is of a form that nobody else uses.
#[unsafe(no_mangle)]
extern "C" fn cuSimcudaGraphSetConditional(handle: u64, value: u32) {
    conditional::set_value(handle, value);
}

api! {
    "cuGraphAddNode" 12020 => cuGraphAddNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                             params: Out<NodeParams>) {
        add_any(node, spot(graph, nodes, count), params)
    }
    "cuGraphAddNode" 12030 => cuGraphAddNode_v2(node: Out<u64>, graph: u64, nodes: In<u64>, edges: In<Edge>,
                                                count: usize, params: Out<NodeParams>) {
        add_any(node, Spot { graph, nodes, edges, count }, params)
    }
    "cuGraphAddNode" 13040 => cuGraphAddNode_v3(node: Out<u64>, graph: u64, nodes: In<u64>, edges: In<Edge>,
                                                count: usize, params: Out<NodeParams>) {
        add_any(node, Spot { graph, nodes, edges, count }, params)
    }
    "cuGraphNodeSetParams" 12020 => cuGraphNodeSetParams(node: u64, params: In<NodeParams>) {
        set_described(node, params)
    }
    "cuGraphNodeSetParams" 13040 => cuGraphNodeSetParams_v2(node: u64, params: In<NodeParams>) {
        set_described(node, params)
    }
    "cuGraphNodeGetParams" 13020 => cuGraphNodeGetParams(node: u64, params: Out<NodeParams>) {
        get(node, params, |s, action| params_of(s, action).ok())
    }

    "cuGraphAddKernelNode" 10000 => cuGraphAddKernelNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                                         params: In<KernelParams1>) {
        add_described(node, spot(graph, nodes, count), params)
    }
    "cuGraphAddKernelNode" 12000 => cuGraphAddKernelNode_v2(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                                            params: In<KernelParams>) {
        add_described(node, spot(graph, nodes, count), params)
    }
    "cuGraphKernelNodeGetParams" 10000 => cuGraphKernelNodeGetParams(node: u64, params: Out<KernelParams1>) {
        get(node, params, |s, action| match action {
            Action::Kernel(kernel) => Some(kernel_params_1(s, kernel)),
            _ => None,
        })
    }
    "cuGraphKernelNodeGetParams" 12000 => cuGraphKernelNodeGetParams_v2(node: u64, params: Out<KernelParams>) {
        get(node, params, |s, action| match action {
            Action::Kernel(kernel) => Some(kernel_params(s, kernel)),
            _ => None,
        })
    }
    "cuGraphKernelNodeSetParams" 10000 => cuGraphKernelNodeSetParams(node: u64, params: In<KernelParams1>) {
        set_described(node, params)
    }
    "cuGraphKernelNodeSetParams" 12000 => cuGraphKernelNodeSetParams_v2(node: u64, params: In<KernelParams>) {
        set_described(node, params)
    }
    "cuGraphKernelNodeGetAttribute" 11000 => cuGraphKernelNodeGetAttribute(node: u64, which: u32,
                                                                           value: Out<Attribute>) {
        attributes(node, |set| value.put(set.get(&which).copied().unwrap_or([0; 64])))
    }
    "cuGraphKernelNodeSetAttribute" 11000 => cuGraphKernelNodeSetAttribute(node: u64, which: u32,
                                                                           value: In<Attribute>) {
        let value = value.get()?;
        attributes(node, |set| {
            set.insert(which, value);
            Ok(())
        })
    }
    "cuGraphKernelNodeCopyAttributes" 11000 => cuGraphKernelNodeCopyAttributes(target: u64, source: u64) {
        let all = attributes(source, |set| Ok(set.clone()))?;
        attributes(target, |set| {
            *set = all;
            Ok(())
        })
    }

    "cuGraphAddMemcpyNode" 10000 => cuGraphAddMemcpyNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                                         params: In<Copy3d>, context: u64) {
        add_described(node, spot(graph, nodes, count), In(&CopyIn(params.get()?, context)))
    }
    "cuGraphMemcpyNodeGetParams" 10000 => cuGraphMemcpyNodeGetParams(node: u64, params: Out<Copy3d>) {
        get(node, params, |_, action| match action {
            Action::Copy(copy) => Some(copy.params),
            _ => None,
        })
    }
    "cuGraphMemcpyNodeSetParams" 10000 => cuGraphMemcpyNodeSetParams(node: u64, params: In<Copy3d>) {
        let params = params.get()?;
        set(node, |s| match &s.node(node)?.action {
            Action::Copy(copy) => CopyIn(params, copy.context).action(s),
            _ => Err(INVALID_VALUE),
        })
    }

    "cuGraphAddMemsetNode" 10000 => cuGraphAddMemsetNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                                         params: In<FillParams1>, context: u64) {
        add_described(node, spot(graph, nodes, count), In(&FillIn(params.get()?, context)))
    }
    "cuGraphMemsetNodeGetParams" 10000 => cuGraphMemsetNodeGetParams(node: u64, params: Out<FillParams1>) {
        get(node, params, |_, action| match action {
            Action::Fill(fill) => Some(fill_params(fill)),
            _ => None,
        })
    }
    "cuGraphMemsetNodeSetParams" 10000 => cuGraphMemsetNodeSetParams(node: u64, params: In<FillParams1>) {
        let params = params.get()?;
        set(node, |s| match &s.node(node)?.action {
            Action::Fill(fill) => FillIn(params, fill.context).action(s),
            _ => Err(INVALID_VALUE),
        })
    }

    "cuGraphAddHostNode" 10000 => cuGraphAddHostNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                                     params: In<HostParams1>) {
        add_described(node, spot(graph, nodes, count), params)
    }
    "cuGraphHostNodeGetParams" 10000 => cuGraphHostNodeGetParams(node: u64, params: Out<HostParams1>) {
        get(node, params, |_, action| match action {
            Action::Host(call) => Some(host_params(call)),
            _ => None,
        })
    }
    "cuGraphHostNodeSetParams" 10000 => cuGraphHostNodeSetParams(node: u64, params: In<HostParams1>) {
        set_described(node, params)
    }

    "cuGraphAddChildGraphNode" 10000 => cuGraphAddChildGraphNode(node: Out<u64>, graph: u64, nodes: In<u64>,
                                                                 count: usize, child: u64) {
        add(node, spot(graph, nodes, count), |s, _| s.clone_graph(child, Owner::Capture).map(Action::Child)).map(|_| ())
    }
    "cuGraphChildGraphNodeGetGraph" 10000 => cuGraphChildGraphNodeGetGraph(node: u64, graph: Out<u64>) {
        get(node, graph, |_, action| match action {
            Action::Child(graph) => Some(*graph),
            _ => None,
        })
    }
    "cuGraphAddEmptyNode" 10000 => cuGraphAddEmptyNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize) {
        add(node, spot(graph, nodes, count), |_, _| Ok(Action::Empty)).map(|_| ())
    }

    "cuGraphAddEventRecordNode" 11010 => cuGraphAddEventRecordNode(node: Out<u64>, graph: u64, nodes: In<u64>,
                                                                   count: usize, event: u64) {
        add_event(node, spot(graph, nodes, count), event, Action::RecordEvent)
    }
    "cuGraphEventRecordNodeGetEvent" 11010 => cuGraphEventRecordNodeGetEvent(node: u64, event: Out<u64>) {
        get(node, event, |_, action| match action {
            Action::RecordEvent(event) => Some(*event),
            _ => None,
        })
    }
    "cuGraphEventRecordNodeSetEvent" 11010 => cuGraphEventRecordNodeSetEvent(node: u64, event: u64) {
        set_event(node, event, Action::RecordEvent)
    }
    "cuGraphAddEventWaitNode" 11010 => cuGraphAddEventWaitNode(node: Out<u64>, graph: u64, nodes: In<u64>,
                                                               count: usize, event: u64) {
        add_event(node, spot(graph, nodes, count), event, Action::WaitEvent)
    }
    "cuGraphEventWaitNodeGetEvent" 11010 => cuGraphEventWaitNodeGetEvent(node: u64, event: Out<u64>) {
        get(node, event, |_, action| match action {
            Action::WaitEvent(event) => Some(*event),
            _ => None,
        })
    }
    "cuGraphEventWaitNodeSetEvent" 11010 => cuGraphEventWaitNodeSetEvent(node: u64, event: u64) {
        set_event(node, event, Action::WaitEvent)
    }

    "cuGraphAddExternalSemaphoresSignalNode" 11020 => cuGraphAddExternalSemaphoresSignalNode(
        node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: In<SemaphoresParams>) {
        add_described(node, spot(graph, nodes, count), In(&Signals(params.get()?)))
    }
    "cuGraphExternalSemaphoresSignalNodeGetParams" 11020 => cuGraphExternalSemaphoresSignalNodeGetParams(
        node: u64, params: Out<SemaphoresParams>) {
        get(node, params, |_, action| match action {
            Action::Signal(semaphores) => Some(SemaphoresParams::of(semaphores)),
            _ => None,
        })
    }
    "cuGraphExternalSemaphoresSignalNodeSetParams" 11020 => cuGraphExternalSemaphoresSignalNodeSetParams(
        node: u64, params: In<SemaphoresParams>) {
        set_described(node, In(&Signals(params.get()?)))
    }
    "cuGraphAddExternalSemaphoresWaitNode" 11020 => cuGraphAddExternalSemaphoresWaitNode(
        node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: In<SemaphoresParams>) {
        add_described(node, spot(graph, nodes, count), In(&Awaits(params.get()?)))
    }
    "cuGraphExternalSemaphoresWaitNodeGetParams" 11020 => cuGraphExternalSemaphoresWaitNodeGetParams(
        node: u64, params: Out<SemaphoresParams>) {
        get(node, params, |_, action| match action {
            Action::AwaitSignal(semaphores) => Some(SemaphoresParams::of(semaphores)),
            _ => None,
        })
    }
    "cuGraphExternalSemaphoresWaitNodeSetParams" 11020 => cuGraphExternalSemaphoresWaitNodeSetParams(
        node: u64, params: In<SemaphoresParams>) {
        set_described(node, In(&Awaits(params.get()?)))
    }

    "cuGraphAddBatchMemOpNode" 11070 => cuGraphAddBatchMemOpNode(node: Out<u64>, graph: u64, nodes: In<u64>,
                                                                 count: usize, params: In<ValuesParams>) {
        add_described(node, spot(graph, nodes, count), params)
    }
    "cuGraphBatchMemOpNodeGetParams" 11070 => cuGraphBatchMemOpNodeGetParams(node: u64, params: Out<ValuesParams>) {
        get(node, params, |_, action| match action {
            Action::Values(values) => Some(ValuesParams::of(values)),
            _ => None,
        })
    }
    "cuGraphBatchMemOpNodeSetParams" 11070 => cuGraphBatchMemOpNodeSetParams(node: u64, params: In<ValuesParams>) {
        set_described(node, params)
    }

    "cuGraphAddMemAllocNode" 11040 => cuGraphAddMemAllocNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                                             params: Out<AllocateParams>) {
        let given = In(params.0.cast_const()).get()?;
        let added = add(node, spot(graph, nodes, count), |s, needs| allocation(s, graph, needs, &given))?;
        allocated(params, &added)
    }
    "cuGraphMemAllocNodeGetParams" 11040 => cuGraphMemAllocNodeGetParams(node: u64, params: Out<AllocateParams>) {
        get(node, params, |_, action| match *action {
            Action::Allocate(address, size, device) => Some(allocate_params(address, size, device)),
            _ => None,
        })
    }
    "cuGraphAddMemFreeNode" 11040 => cuGraphAddMemFreeNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize,
                                                           address: u64) {
        let free = |s: &mut Session, _: &Tips| s.check_graph_free(graph, address).map(|()| Action::Free(address));
        add(node, spot(graph, nodes, count), free).map(|_| ())
    }
    "cuGraphMemFreeNodeGetParams" 11040 => cuGraphMemFreeNodeGetParams(node: u64, address: Out<u64>) {
        get(node, address, |_, action| match action {
            Action::Free(address) => Some(*address),
            _ => None,
        })
    }

    "cuGraphConditionalHandleCreate" 12030 => cuGraphConditionalHandleCreate(handle: Out<u64>, graph: u64, context: u64,
                                                                             default: u32, flags: u32) {
        session(|s| {
            handle.wanted()?;
            if flags & !ASSIGN_DEFAULT != 0 {
                return Err(INVALID_VALUE);
            }
            s.context(context).map_err(|_| INVALID_CONTEXT)?;
            let graph = s.graph(graph)?.id;
            let default = (flags == ASSIGN_DEFAULT).then_some(default);
            let made = s.fresh_id();
            s.conditions.insert(made, Condition { graph, default, used: false });
            handle.put(made)
        })
    }
}
