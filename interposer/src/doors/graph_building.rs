//! Graphs that are built and changed by calls: their nodes and edges.

use cudarc::driver::sys::{CUDA_MEMCPY3D, CUgraphNodeParams};
use cudarc::runtime::sys::{cudaGraphNodeParams, cudaMemAllocNodeParams, cudaMemcpy3DParms};
use streamcheck_model::{Action, Handle, NodeWork};

use super::captures::{EdgeData, takes_edge_data};
use super::launches::runtime_launch;
use super::node_work::{self, FillNode, KernelNode, handles, pairs};
use crate::call::Call;
use crate::hook::{Hook, hooks, written};
use crate::thread::{self, Origin};

/// A handle as a call that succeeded wrote it.
fn given(out: *const usize) -> Handle {
    // SAFETY: the call succeeded and wrote the handle.
    Handle(unsafe { written(out) } as u64)
}

fn created(call: &Call, graph: *const usize) {
    call.record(Action::GraphCreated {
        graph: given(graph),
    });
}

fn cloned(call: &Call, graph: *const usize, from: usize) {
    call.record(Action::GraphCloned {
        graph: given(graph),
        from: Handle(from as u64),
    });
}

fn found_in_clone(call: &Call, node: *const usize, original: usize, graph: usize) {
    call.record(Action::NodeFoundInClone {
        graph: Handle(graph as u64),
        node: given(node),
        original: Handle(original as u64),
    });
}

/// Recorded ahead of the real call: see [`Call::ahead`].
fn destroyed(call: &Call, graph: usize) {
    call.record(Action::GraphDestroyed {
        graph: Handle(graph as u64),
    });
}

/// Recorded ahead of the real call: see [`Call::ahead`].
fn removed(call: &Call, node: usize) {
    call.record(Action::NodeRemoved {
        node: Handle(node as u64),
    });
}

/// A node that was added to `graph` behind the `count` ones of `after`.
fn added(
    call: &Call,
    node: *const usize,
    graph: usize,
    (after, count): (*const usize, usize),
    work: NodeWork,
) {
    call.record(Action::NodeAdded {
        graph: Handle(graph as u64),
        node: given(node),
        // SAFETY: the call succeeded with them.
        dependencies: unsafe { handles(after, count) },
        work,
    });
}

/// A node does something else from now on: in its graph, or in the later launches of `exec`
/// if that is not 0.
pub(super) fn changed(call: &Call, exec: usize, node: usize, work: NodeWork) {
    call.record(Action::NodeChanged {
        exec: Handle(exec as u64),
        node: Handle(node as u64),
        work,
    });
}

/// # Safety
/// The lists are those of a call that succeeded.
unsafe fn edges(
    call: &Call,
    graph: usize,
    from: *const usize,
    to: *const usize,
    (data, count): (EdgeData, usize),
    added: bool,
) {
    if added {
        // SAFETY: the caller's promise.
        unsafe { node_work::count_early(call, data, count) };
    }
    call.record(Action::EdgesChanged {
        graph: Handle(graph as u64),
        // SAFETY: the caller's promise.
        pairs: unsafe { pairs(from, to, count) },
        added,
    });
}

/// The data of the edges of a runtime call, if it takes any, and how many there are.
fn edge_data(call: &Call, fourth: usize, fifth: usize) -> (EdgeData, usize) {
    if takes_edge_data(call) {
        (fourth as EdgeData, fifth)
    } else {
        (core::ptr::null(), fourth)
    }
}

/// The graph inside a node was handed out, and may be changed from now on in ways that are
/// not told of this one.
fn child_handed_out(call: &Call, node: usize) {
    changed(call, 0, node, NodeWork::Unknown);
}

/// A driver's call that gives a node a kernel, through `real`: recorded if the application
/// made it, noted for the runtime's hook if the runtime did.
pub(super) fn with_kernel(
    hook: &'static Hook,
    origin: Origin,
    function: u64,
    real: impl FnOnce() -> u32,
    after: impl FnOnce(&Call),
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        thread::block().set_inner_function(function);
        return real();
    };
    let status = real();
    if status == 0 {
        call.finish(after);
    }
    status
}

hooks! { Runtime:
    /// A graph without nodes
    fn cudaGraphCreate: (graph: *mut usize, flags: u32) after(call) {
        let _ = flags;
        created(call, graph);
    }
    /// A graph with the same nodes and edges
    fn cudaGraphClone: (graph: *mut usize, from: usize) after(call) {
        cloned(call, graph, from);
    }
    /// Says which node of the copy that is
    fn cudaGraphNodeFindInClone: (node: *mut usize, original: usize, graph: usize) after(call) {
        found_in_clone(call, node, original, graph);
    }
    /// The handle is free; executable graphs stay
    fn cudaGraphDestroy: (graph: usize) whole(hook, real, origin) {
        Call::ahead(hook, origin, |call| destroyed(call, graph), || real(graph))
    }
    /// The node and its edges are gone
    fn cudaGraphDestroyNode: (node: usize) whole(hook, real, origin) {
        Call::ahead(hook, origin, |call| removed(call, node), || real(node))
    }
    // Before CUDA 13, the one without `_v2` took no data of edges.
    /// A node of any type
    fn cudaGraphAddNode | cudaGraphAddNode_v2: (
        node: *mut usize, graph: usize, after: *const usize, fourth: usize, fifth: usize, sixth: usize,
    ) whole(hook, real, origin) {
        runtime_launch(hook, origin, || real(node, graph, after, fourth, fifth, sixth), |call| {
            let (data, count, parameters) = if takes_edge_data(call) {
                (fourth as EdgeData, fifth, sixth)
            } else {
                (core::ptr::null(), fourth, fifth)
            };
            // SAFETY: the call succeeded with them.
            let work = unsafe {
                node_work::count_early(call, data, count);
                node_work::any(call, parameters as *const cudaGraphNodeParams)
            };
            added(call, node, graph, (after, count), work);
        })
    }
    /// A node that uses what the kernel's parameters point into
    fn cudaGraphAddKernelNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const KernelNode,
    ) whole(hook, real, origin) {
        runtime_launch(hook, origin, || real(node, graph, after, count, parameters), |call| {
            // SAFETY: the call succeeded with them.
            let work = unsafe { KernelNode::runtime(parameters) };
            added(call, node, graph, (after, count), work);
        })
    }
    /// A node that reads and writes the bytes of a volume
    fn cudaGraphAddMemcpyNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const cudaMemcpy3DParms,
    ) after(call) {
        // SAFETY: the call succeeded with them.
        let work = unsafe { node_work::runtime_copy(call, parameters) };
        added(call, node, graph, (after, count), work);
    }
    /// A node that reads and writes the bytes
    fn cudaGraphAddMemcpyNode1D: (
        node: *mut usize, graph: usize, after: *const usize, count: usize,
        to: u64, from: u64, bytes: usize, kind: u32,
    ) after(call) {
        added(call, node, graph, (after, count), node_work::linear(to, from, bytes, kind));
    }
    /// A node that reads the bytes and writes the variable's
    fn cudaGraphAddMemcpyNodeToSymbol: (
        node: *mut usize, graph: usize, after: *const usize, count: usize,
        variable: u64, from: u64, bytes: usize, offset: usize, kind: u32,
    ) after(call) {
        let work = node_work::variable(call, variable, offset, from, bytes, kind, true);
        added(call, node, graph, (after, count), work);
    }
    /// A node that reads the variable's bytes and writes the others
    fn cudaGraphAddMemcpyNodeFromSymbol: (
        node: *mut usize, graph: usize, after: *const usize, count: usize,
        to: u64, variable: u64, bytes: usize, offset: usize, kind: u32,
    ) after(call) {
        let work = node_work::variable(call, variable, offset, to, bytes, kind, false);
        added(call, node, graph, (after, count), work);
    }
    /// A node that writes rows
    fn cudaGraphAddMemsetNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const FillNode,
    ) after(call) {
        // SAFETY: the call succeeded with them.
        added(call, node, graph, (after, count), unsafe { FillNode::work(parameters) });
    }
    /// A node that calls a host function; when it does is not seen
    fn cudaGraphAddHostNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: usize,
    ) after(call) {
        let _ = parameters;
        added(call, node, graph, (after, count), node_work::host(call));
    }
    /// A node that does what that graph does now
    fn cudaGraphAddChildGraphNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, child: usize,
    ) after(call) {
        added(call, node, graph, (after, count), node_work::child(child));
    }
    /// The child may be changed from here on: what the node does is a blind spot
    fn cudaGraphChildGraphNodeGetGraph: (node: usize, graph: usize) after(call) {
        let _ = graph;
        child_handed_out(call, node);
    }
    /// A node where edges meet
    fn cudaGraphAddEmptyNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize,
    ) after(call) {
        added(call, node, graph, (after, count), NodeWork::Empty);
    }
    /// A node that records the event at every launch
    fn cudaGraphAddEventRecordNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, event: usize,
    ) after(call) {
        added(call, node, graph, (after, count), node_work::records(event));
    }
    /// A node that waits for the event at every launch
    fn cudaGraphAddEventWaitNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, event: usize,
    ) after(call) {
        added(call, node, graph, (after, count), node_work::waits_for(event));
    }
    /// A node that is a blind spot; launches come after everything
    fn cudaGraphAddExternalSemaphoresSignalNode | cudaGraphAddExternalSemaphoresWaitNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: usize,
    ) after(call) {
        let _ = parameters;
        added(call, node, graph, (after, count), NodeWork::Unknown);
    }
    /// A node that allocates memory, which is valid behind it only
    fn cudaGraphAddMemAllocNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize,
        parameters: *mut cudaMemAllocNodeParams,
    ) after(call) {
        // SAFETY: the call succeeded with them, and wrote the address.
        added(call, node, graph, (after, count), unsafe { node_work::allocation(parameters) });
    }
    /// A node that frees; no node may use the memory that is not before it
    fn cudaGraphAddMemFreeNode: (
        node: *mut usize, graph: usize, after: *const usize, count: usize, address: u64,
    ) after(call) {
        added(call, node, graph, (after, count), node_work::free(address));
    }
    // Before CUDA 13, the one without `_v2` took no data of edges.
    /// Each of the second nodes comes after one of the first
    fn cudaGraphAddDependencies | cudaGraphAddDependencies_v2: (
        graph: usize, from: *const usize, to: *const usize, fourth: usize, fifth: usize,
    ) after(call) {
        let (data, count) = edge_data(call, fourth, fifth);
        // SAFETY: the call succeeded with them.
        unsafe { edges(call, graph, from, to, (data, count), true) };
    }
    /// None of the second nodes comes after one of the first by itself
    fn cudaGraphRemoveDependencies | cudaGraphRemoveDependencies_v2: (
        graph: usize, from: *const usize, to: *const usize, fourth: usize, fifth: usize,
    ) after(call) {
        let (data, count) = edge_data(call, fourth, fifth);
        // SAFETY: the call succeeded with them.
        unsafe { edges(call, graph, from, to, (data, count), false) };
    }
    /// The node does this instead
    fn cudaGraphNodeSetParams: (node: usize, parameters: *const cudaGraphNodeParams) whole(hook, real, origin) {
        runtime_launch(hook, origin, || real(node, parameters), |call| {
            // SAFETY: the call succeeded with them.
            let work = unsafe { node_work::any(call, parameters) };
            changed(call, 0, node, work);
        })
    }
    /// The node uses what these parameters point into
    fn cudaGraphKernelNodeSetParams: (node: usize, parameters: *const KernelNode) whole(hook, real, origin) {
        runtime_launch(hook, origin, || real(node, parameters), |call| {
            // SAFETY: the call succeeded with them.
            let work = unsafe { KernelNode::runtime(parameters) };
            changed(call, 0, node, work);
        })
    }
    /// The node reads and writes the bytes of this volume
    fn cudaGraphMemcpyNodeSetParams: (node: usize, parameters: *const cudaMemcpy3DParms) after(call) {
        // SAFETY: the call succeeded with them.
        let work = unsafe { node_work::runtime_copy(call, parameters) };
        changed(call, 0, node, work);
    }
    /// The node reads and writes these bytes
    fn cudaGraphMemcpyNodeSetParams1D: (node: usize, to: u64, from: u64, bytes: usize, kind: u32) after(call) {
        changed(call, 0, node, node_work::linear(to, from, bytes, kind));
    }
    /// The node reads these bytes and writes the variable's
    fn cudaGraphMemcpyNodeSetParamsToSymbol: (
        node: usize, variable: u64, from: u64, bytes: usize, offset: usize, kind: u32,
    ) after(call) {
        let work = node_work::variable(call, variable, offset, from, bytes, kind, true);
        changed(call, 0, node, work);
    }
    /// The node reads the variable's bytes and writes these
    fn cudaGraphMemcpyNodeSetParamsFromSymbol: (
        node: usize, to: u64, variable: u64, bytes: usize, offset: usize, kind: u32,
    ) after(call) {
        let work = node_work::variable(call, variable, offset, to, bytes, kind, false);
        changed(call, 0, node, work);
    }
    /// The node writes these rows
    fn cudaGraphMemsetNodeSetParams: (node: usize, parameters: *const FillNode) after(call) {
        // SAFETY: the call succeeded with them.
        changed(call, 0, node, unsafe { FillNode::work(parameters) });
    }
    /// The node calls this host function; when it does is not seen
    fn cudaGraphHostNodeSetParams: (node: usize, parameters: usize) after(call) {
        let _ = parameters;
        changed(call, 0, node, node_work::host(call));
    }
    /// The node records this event
    fn cudaGraphEventRecordNodeSetEvent: (node: usize, event: usize) after(call) {
        changed(call, 0, node, node_work::records(event));
    }
    /// The node waits for this event
    fn cudaGraphEventWaitNodeSetEvent: (node: usize, event: usize) after(call) {
        changed(call, 0, node, node_work::waits_for(event));
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// A graph without nodes
        fn cuGraphCreate: (graph: *mut usize, flags: u32) after(call) {
            let _ = flags;
            created(call, graph);
        }
        /// A graph with the same nodes and edges
        fn cuGraphClone: (graph: *mut usize, from: usize) after(call) {
            cloned(call, graph, from);
        }
        /// Says which node of the copy that is
        fn cuGraphNodeFindInClone: (node: *mut usize, original: usize, graph: usize) after(call) {
            found_in_clone(call, node, original, graph);
        }
        /// The handle is free; executable graphs stay
        fn cuGraphDestroy: (graph: usize) whole(hook, real, origin) {
            Call::ahead(hook, origin, |call| destroyed(call, graph), || real(graph))
        }
        /// The node and its edges are gone
        fn cuGraphDestroyNode: (node: usize) whole(hook, real, origin) {
            Call::ahead(hook, origin, |call| removed(call, node), || real(node))
        }
        /// A node of any type
        fn cuGraphAddNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const CUgraphNodeParams,
        ) whole(hook, real, origin) {
            // SAFETY: the application's or the runtime's parameters.
            let function = unsafe { node_work::function(parameters) };
            with_kernel(hook, origin, function, || real(node, graph, after, count, parameters), |call| {
                // SAFETY: the call succeeded with them.
                let work = unsafe { node_work::any(call, parameters) };
                added(call, node, graph, (after, count), work);
            })
        }
        /// A node of any type
        fn cuGraphAddNode_v2 | cuGraphAddNode_v3: (
            node: *mut usize, graph: usize, after: *const usize, data: EdgeData, count: usize,
            parameters: *const CUgraphNodeParams,
        ) whole(hook, real, origin) {
            // SAFETY: the application's or the runtime's parameters.
            let function = unsafe { node_work::function(parameters) };
            with_kernel(hook, origin, function, || real(node, graph, after, data, count, parameters), |call| {
                // SAFETY: the call succeeded with them.
                let work = unsafe {
                    node_work::count_early(call, data, count);
                    node_work::any(call, parameters)
                };
                added(call, node, graph, (after, count), work);
            })
        }
        // Without `_v2` it takes no `CUkernel`.
        /// A node that uses what the kernel's parameters point into
        fn cuGraphAddKernelNode | cuGraphAddKernelNode_v2: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const KernelNode,
        ) whole(hook, real, origin) {
            let second = hook.name.to_bytes().ends_with(b"_v2");
            // SAFETY: the application's or the runtime's parameters.
            let function = unsafe { KernelNode::function(parameters, second) };
            with_kernel(hook, origin, function, || real(node, graph, after, count, parameters), |call| {
                // SAFETY: the call succeeded with them.
                let work = unsafe { KernelNode::driver(parameters, second) };
                added(call, node, graph, (after, count), work);
            })
        }
        /// A node that reads and writes the bytes of a volume
        fn cuGraphAddMemcpyNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const CUDA_MEMCPY3D,
            context: usize,
        ) after(call) {
            let _ = context;
            // SAFETY: the call succeeded with them.
            let work = unsafe { node_work::driver_copy(call, parameters) };
            added(call, node, graph, (after, count), work);
        }
        /// A node that writes rows
        fn cuGraphAddMemsetNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const FillNode,
            context: usize,
        ) after(call) {
            let _ = context;
            // SAFETY: the call succeeded with them.
            added(call, node, graph, (after, count), unsafe { FillNode::work(parameters) });
        }
        /// A node that calls a host function; when it does is not seen
        fn cuGraphAddHostNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: usize,
        ) after(call) {
            let _ = parameters;
            added(call, node, graph, (after, count), node_work::host(call));
        }
        /// A node that does what that graph does now
        fn cuGraphAddChildGraphNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, child: usize,
        ) after(call) {
            added(call, node, graph, (after, count), node_work::child(child));
        }
        /// The child may be changed from here on: what the node does is a blind spot
        fn cuGraphChildGraphNodeGetGraph: (node: usize, graph: usize) after(call) {
            let _ = graph;
            child_handed_out(call, node);
        }
        /// A node where edges meet
        fn cuGraphAddEmptyNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize,
        ) after(call) {
            added(call, node, graph, (after, count), NodeWork::Empty);
        }
        /// A node that records the event at every launch
        fn cuGraphAddEventRecordNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, event: usize,
        ) after(call) {
            added(call, node, graph, (after, count), node_work::records(event));
        }
        /// A node that waits for the event at every launch
        fn cuGraphAddEventWaitNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, event: usize,
        ) after(call) {
            added(call, node, graph, (after, count), node_work::waits_for(event));
        }
        /// A node that is a blind spot; launches come after everything
        fn cuGraphAddExternalSemaphoresSignalNode | cuGraphAddExternalSemaphoresWaitNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: usize,
        ) after(call) {
            let _ = parameters;
            added(call, node, graph, (after, count), NodeWork::Unknown);
        }
        /// A node that is a blind spot; launches come after everything
        fn cuGraphAddBatchMemOpNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: usize,
        ) after(call) {
            let _ = parameters;
            added(call, node, graph, (after, count), NodeWork::Unknown);
        }
        /// A node that allocates memory, which is valid behind it only
        fn cuGraphAddMemAllocNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize,
            parameters: *mut cudaMemAllocNodeParams,
        ) after(call) {
            // SAFETY: the call succeeded with them, and wrote the address.
            added(call, node, graph, (after, count), unsafe { node_work::allocation(parameters) });
        }
        /// A node that frees; no node may use the memory that is not before it
        fn cuGraphAddMemFreeNode: (
            node: *mut usize, graph: usize, after: *const usize, count: usize, address: u64,
        ) after(call) {
            added(call, node, graph, (after, count), node_work::free(address));
        }
        /// Each of the second nodes comes after one of the first
        fn cuGraphAddDependencies: (
            graph: usize, from: *const usize, to: *const usize, count: usize,
        ) after(call) {
            // SAFETY: the call succeeded with them.
            unsafe { edges(call, graph, from, to, (core::ptr::null(), count), true) };
        }
        /// Each of the second nodes comes after one of the first
        fn cuGraphAddDependencies_v2: (
            graph: usize, from: *const usize, to: *const usize, data: EdgeData, count: usize,
        ) after(call) {
            // SAFETY: the call succeeded with them.
            unsafe { edges(call, graph, from, to, (data, count), true) };
        }
        /// None of the second nodes comes after one of the first by itself
        fn cuGraphRemoveDependencies: (
            graph: usize, from: *const usize, to: *const usize, count: usize,
        ) after(call) {
            // SAFETY: the call succeeded with them.
            unsafe { edges(call, graph, from, to, (core::ptr::null(), count), false) };
        }
        /// None of the second nodes comes after one of the first by itself
        fn cuGraphRemoveDependencies_v2: (
            graph: usize, from: *const usize, to: *const usize, data: EdgeData, count: usize,
        ) after(call) {
            // SAFETY: the call succeeded with them.
            unsafe { edges(call, graph, from, to, (data, count), false) };
        }
        /// The node does this instead
        fn cuGraphNodeSetParams | cuGraphNodeSetParams_v2: (
            node: usize, parameters: *const CUgraphNodeParams,
        ) whole(hook, real, origin) {
            // SAFETY: the application's or the runtime's parameters.
            let function = unsafe { node_work::function(parameters) };
            with_kernel(hook, origin, function, || real(node, parameters), |call| {
                // SAFETY: the call succeeded with them.
                let work = unsafe { node_work::any(call, parameters) };
                changed(call, 0, node, work);
            })
        }
        // Without `_v2` it takes no `CUkernel`.
        /// The node uses what these parameters point into
        fn cuGraphKernelNodeSetParams | cuGraphKernelNodeSetParams_v2: (
            node: usize, parameters: *const KernelNode,
        ) whole(hook, real, origin) {
            let second = hook.name.to_bytes().ends_with(b"_v2");
            // SAFETY: the application's or the runtime's parameters.
            let function = unsafe { KernelNode::function(parameters, second) };
            with_kernel(hook, origin, function, || real(node, parameters), |call| {
                // SAFETY: the call succeeded with them.
                let work = unsafe { KernelNode::driver(parameters, second) };
                changed(call, 0, node, work);
            })
        }
        /// The node reads and writes the bytes of this volume
        fn cuGraphMemcpyNodeSetParams: (node: usize, parameters: *const CUDA_MEMCPY3D) after(call) {
            // SAFETY: the call succeeded with them.
            let work = unsafe { node_work::driver_copy(call, parameters) };
            changed(call, 0, node, work);
        }
        /// The node writes these rows
        fn cuGraphMemsetNodeSetParams: (node: usize, parameters: *const FillNode) after(call) {
            // SAFETY: the call succeeded with them.
            changed(call, 0, node, unsafe { FillNode::work(parameters) });
        }
        /// The node calls this host function; when it does is not seen
        fn cuGraphHostNodeSetParams: (node: usize, parameters: usize) after(call) {
            let _ = parameters;
            changed(call, 0, node, node_work::host(call));
        }
        /// The node records this event
        fn cuGraphEventRecordNodeSetEvent: (node: usize, event: usize) after(call) {
            changed(call, 0, node, node_work::records(event));
        }
        /// The node waits for this event
        fn cuGraphEventWaitNodeSetEvent: (node: usize, event: usize) after(call) {
            changed(call, 0, node, node_work::waits_for(event));
        }
    }
}
