//! Executable graphs: how they are made and changed, and when they go.

use cudarc::driver::sys::{CUDA_MEMCPY3D, CUgraphNodeParams};
use cudarc::runtime::sys::{cudaGraphNodeParams, cudaMemcpy3DParms};
use streamcheck_model::{Action, Handle};

use super::graph_building::{changed, with_kernel};
use super::launches::runtime_launch;
use super::node_work::{self, FillNode, KernelNode};
use crate::call::Call;
use crate::hook::{hooks, written};
use crate::provider;

/// `cudaGraphInstantiateFlagAutoFreeOnLaunch` (driver_types.h; the driver's is the same).
const AUTO_FREE: u64 = 1;

fn instantiated(call: &Call, exec: *const usize, graph: usize, flags: u64) {
    // SAFETY: the call succeeded and wrote the handle.
    let exec = unsafe { written(exec) };
    call.record(Action::GraphInstantiated {
        exec: Handle(exec as u64),
        graph: Handle(graph as u64),
        auto_free: flags & AUTO_FREE != 0,
    });
}

fn updated(call: &Call, exec: usize, graph: usize) {
    call.record(Action::ExecUpdated {
        exec: Handle(exec as u64),
        graph: Handle(graph as u64),
    });
}

/// Recorded ahead of the real call: see [`Call::ahead`].
fn destroyed(call: &Call, exec: usize) {
    call.record(Action::ExecDestroyed {
        exec: Handle(exec as u64),
    });
}

fn enabled(call: &Call, exec: usize, node: usize, enabled: u32) {
    call.record(Action::NodeEnabled {
        exec: Handle(exec as u64),
        node: Handle(node as u64),
        enabled: enabled != 0,
    });
}

hooks! { Runtime:
    // Before CUDA 12 it took no flags, but where to write errors.
    /// An executable graph that does what the graph does now
    fn cudaGraphInstantiate: (
        exec: *mut usize, graph: usize, third: u64, fourth: usize, fifth: usize,
    ) after(call) {
        let _ = (fourth, fifth);
        let has_flags = provider::runtime_version().is_none_or(|version| version >= 12000);
        instantiated(call, exec, graph, if has_flags { third } else { 0 });
    }
    /// An executable graph that does what the graph does now
    fn cudaGraphInstantiateWithFlags: (exec: *mut usize, graph: usize, flags: u64) after(call) {
        instantiated(call, exec, graph, flags);
    }
    /// An executable graph that does what the graph does now
    fn cudaGraphInstantiateWithParams | cudaGraphInstantiateWithParams_ptsz: (
        exec: *mut usize, graph: usize, parameters: *const u64,
    ) after(call) {
        // SAFETY: the call succeeded with them; they begin with the flags.
        instantiated(call, exec, graph, unsafe { written(parameters) });
    }
    // Before CUDA 12 it took two places to write errors to.
    /// The executable graph does what that graph does now
    fn cudaGraphExecUpdate: (exec: usize, graph: usize, third: usize, fourth: usize) after(call) {
        let _ = (third, fourth);
        updated(call, exec, graph);
    }
    /// The handle is free; launches under way go on
    fn cudaGraphExecDestroy: (exec: usize) whole(hook, real, origin) {
        Call::ahead(hook, origin, |call| destroyed(call, exec), || real(exec))
    }
    /// Later launches do what the node does, or do not
    fn cudaGraphNodeSetEnabled: (exec: usize, node: usize, on: u32) after(call) {
        enabled(call, exec, node, on);
    }
    /// In later launches the node does this instead
    fn cudaGraphExecNodeSetParams: (
        exec: usize, node: usize, parameters: *const cudaGraphNodeParams,
    ) whole(hook, real, origin) {
        runtime_launch(hook, origin, || real(exec, node, parameters), |call| {
            // SAFETY: the call succeeded with them.
            let work = unsafe { node_work::any(call, parameters) };
            changed(call, exec, node, work);
        })
    }
    /// In later launches the node uses what these parameters point into
    fn cudaGraphExecKernelNodeSetParams: (
        exec: usize, node: usize, parameters: *const KernelNode,
    ) whole(hook, real, origin) {
        runtime_launch(hook, origin, || real(exec, node, parameters), |call| {
            // SAFETY: the call succeeded with them.
            let work = unsafe { KernelNode::runtime(parameters) };
            changed(call, exec, node, work);
        })
    }
    /// In later launches the node reads and writes the bytes of this volume
    fn cudaGraphExecMemcpyNodeSetParams: (
        exec: usize, node: usize, parameters: *const cudaMemcpy3DParms,
    ) after(call) {
        // SAFETY: the call succeeded with them.
        let work = unsafe { node_work::runtime_copy(call, parameters) };
        changed(call, exec, node, work);
    }
    /// In later launches the node reads and writes these bytes
    fn cudaGraphExecMemcpyNodeSetParams1D: (
        exec: usize, node: usize, to: u64, from: u64, bytes: usize, kind: u32,
    ) after(call) {
        changed(call, exec, node, node_work::linear(to, from, bytes, kind));
    }
    /// In later launches the node reads these bytes and writes the variable's
    fn cudaGraphExecMemcpyNodeSetParamsToSymbol: (
        exec: usize, node: usize, variable: u64, from: u64, bytes: usize, offset: usize, kind: u32,
    ) after(call) {
        let work = node_work::variable(call, variable, offset, from, bytes, kind, true);
        changed(call, exec, node, work);
    }
    /// In later launches the node reads the variable's bytes and writes these
    fn cudaGraphExecMemcpyNodeSetParamsFromSymbol: (
        exec: usize, node: usize, to: u64, variable: u64, bytes: usize, offset: usize, kind: u32,
    ) after(call) {
        let work = node_work::variable(call, variable, offset, to, bytes, kind, false);
        changed(call, exec, node, work);
    }
    /// In later launches the node writes these rows
    fn cudaGraphExecMemsetNodeSetParams: (exec: usize, node: usize, parameters: *const FillNode) after(call) {
        // SAFETY: the call succeeded with them.
        changed(call, exec, node, unsafe { FillNode::work(parameters) });
    }
    /// In later launches the node does what that graph does now
    fn cudaGraphExecChildGraphNodeSetParams: (exec: usize, node: usize, child: usize) after(call) {
        changed(call, exec, node, node_work::child(child));
    }
    /// In later launches the node calls this host function; when it does is not seen
    fn cudaGraphExecHostNodeSetParams: (exec: usize, node: usize, parameters: usize) after(call) {
        let _ = parameters;
        changed(call, exec, node, node_work::host(call));
    }
    /// In later launches the node records this event
    fn cudaGraphExecEventRecordNodeSetEvent: (exec: usize, node: usize, event: usize) after(call) {
        changed(call, exec, node, node_work::records(event));
    }
    /// In later launches the node waits for this event
    fn cudaGraphExecEventWaitNodeSetEvent: (exec: usize, node: usize, event: usize) after(call) {
        changed(call, exec, node, node_work::waits_for(event));
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        // Where the runtime's of CUDA 12 takes flags, these take where to write errors.
        /// An executable graph that does what the graph does now
        fn cuGraphInstantiate | cuGraphInstantiate_v2: (
            exec: *mut usize, graph: usize, node: usize, text: usize, size: usize,
        ) after(call) {
            let _ = (node, text, size);
            instantiated(call, exec, graph, 0);
        }
        /// An executable graph that does what the graph does now
        fn cuGraphInstantiateWithFlags: (exec: *mut usize, graph: usize, flags: u64) after(call) {
            instantiated(call, exec, graph, flags);
        }
        /// An executable graph that does what the graph does now
        fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz: (
            exec: *mut usize, graph: usize, parameters: *const u64,
        ) after(call) {
            // SAFETY: the call succeeded with them; they begin with the flags.
            instantiated(call, exec, graph, unsafe { written(parameters) });
        }
        /// The executable graph does what that graph does now
        fn cuGraphExecUpdate: (exec: usize, graph: usize, node: usize, result: usize) after(call) {
            let _ = (node, result);
            updated(call, exec, graph);
        }
        /// The executable graph does what that graph does now
        fn cuGraphExecUpdate_v2: (exec: usize, graph: usize, result: usize) after(call) {
            let _ = result;
            updated(call, exec, graph);
        }
        /// The handle is free; launches under way go on
        fn cuGraphExecDestroy: (exec: usize) whole(hook, real, origin) {
            Call::ahead(hook, origin, |call| destroyed(call, exec), || real(exec))
        }
        /// Later launches do what the node does, or do not
        fn cuGraphNodeSetEnabled: (exec: usize, node: usize, on: u32) after(call) {
            enabled(call, exec, node, on);
        }
        /// In later launches the node does this instead
        fn cuGraphExecNodeSetParams | cuGraphExecNodeSetParams_v2: (
            exec: usize, node: usize, parameters: *const CUgraphNodeParams,
        ) whole(hook, real, origin) {
            // SAFETY: the application's or the runtime's parameters.
            let function = unsafe { node_work::function(parameters) };
            with_kernel(hook, origin, function, || real(exec, node, parameters), |call| {
                // SAFETY: the call succeeded with them.
                let work = unsafe { node_work::any(call, parameters) };
                changed(call, exec, node, work);
            })
        }
        // Without `_v2` it takes no `CUkernel`.
        /// In later launches the node uses what these parameters point into
        fn cuGraphExecKernelNodeSetParams | cuGraphExecKernelNodeSetParams_v2: (
            exec: usize, node: usize, parameters: *const KernelNode,
        ) whole(hook, real, origin) {
            let second = hook.name.to_bytes().ends_with(b"_v2");
            // SAFETY: the application's or the runtime's parameters.
            let function = unsafe { KernelNode::function(parameters, second) };
            with_kernel(hook, origin, function, || real(exec, node, parameters), |call| {
                // SAFETY: the call succeeded with them.
                let work = unsafe { KernelNode::driver(parameters, second) };
                changed(call, exec, node, work);
            })
        }
        /// In later launches the node reads and writes the bytes of this volume
        fn cuGraphExecMemcpyNodeSetParams: (
            exec: usize, node: usize, parameters: *const CUDA_MEMCPY3D, context: usize,
        ) after(call) {
            let _ = context;
            // SAFETY: the call succeeded with them.
            let work = unsafe { node_work::driver_copy(call, parameters) };
            changed(call, exec, node, work);
        }
        /// In later launches the node writes these rows
        fn cuGraphExecMemsetNodeSetParams: (
            exec: usize, node: usize, parameters: *const FillNode, context: usize,
        ) after(call) {
            let _ = context;
            // SAFETY: the call succeeded with them.
            changed(call, exec, node, unsafe { FillNode::work(parameters) });
        }
        /// In later launches the node does what that graph does now
        fn cuGraphExecChildGraphNodeSetParams: (exec: usize, node: usize, child: usize) after(call) {
            changed(call, exec, node, node_work::child(child));
        }
        /// In later launches the node calls this host function; when it does is not seen
        fn cuGraphExecHostNodeSetParams: (exec: usize, node: usize, parameters: usize) after(call) {
            let _ = parameters;
            changed(call, exec, node, node_work::host(call));
        }
        /// In later launches the node records this event
        fn cuGraphExecEventRecordNodeSetEvent: (exec: usize, node: usize, event: usize) after(call) {
            changed(call, exec, node, node_work::records(event));
        }
        /// In later launches the node waits for this event
        fn cuGraphExecEventWaitNodeSetEvent: (exec: usize, node: usize, event: usize) after(call) {
            changed(call, exec, node, node_work::waits_for(event));
        }
    }
}
