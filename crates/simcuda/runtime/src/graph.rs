//! Graphs, their nodes and edges, and executables made of them.

use crate::abi::{In, Out, Text};
use crate::device::ready;
use crate::driver::driver;
use std::ffi::c_void;

type Edges = In<[u8; 8]>;
type Place = *mut c_void;

export! {
    cudaGraphCreate(graph: Out<u64>, flags: u32) { ready()?.cuGraphCreate(false, graph, flags) }
    cudaGraphDestroy(graph: u64) { ready()?.cuGraphDestroy(false, graph) }
    cudaGraphClone(clone: Out<u64>, graph: u64) { ready()?.cuGraphClone(false, clone, graph) }
    cudaGraphNodeFindInClone(node: Out<u64>, original: u64, clone: u64) {
        ready()?.cuGraphNodeFindInClone(false, node, original, clone)
    }
    cudaGraphNodeGetType(node: u64, kind: Out<u32>) { ready()?.cuGraphNodeGetType(false, node, kind) }
    cudaGraphNodeGetContainingGraph(node: u64, graph: Out<u64>) {
        ready()?.cuGraphNodeGetContainingGraph(false, node, graph)
    }
    cudaGraphNodeGetLocalId(node: u64, id: Out<u32>) { ready()?.cuGraphNodeGetLocalId(false, node, id) }
    cudaGraphNodeGetToolsId(node: u64, id: Out<u64>) { ready()?.cuGraphNodeGetToolsId(false, node, id) }
    cudaGraphGetId(graph: u64, id: Out<u32>) { ready()?.cuGraphGetId(false, graph, id) }
    cudaGraphGetNodes(graph: u64, nodes: Place, count: Place) { ready()?.cuGraphGetNodes(false, graph, nodes, count) }
    cudaGraphGetRootNodes(graph: u64, nodes: Place, count: Place) {
        ready()?.cuGraphGetRootNodes(false, graph, nodes, count)
    }
    cudaGraphGetEdges(graph: u64, from: Place, to: Place, edges: Place, count: Place) {
        ready()?.cuGraphGetEdges(false, graph, from, to, edges, count)
    }
    cudaGraphNodeGetDependencies(node: u64, nodes: Place, edges: Place, count: Place) {
        ready()?.cuGraphNodeGetDependencies(false, node, nodes, edges, count)
    }
    cudaGraphNodeGetDependentNodes(node: u64, nodes: Place, edges: Place, count: Place) {
        ready()?.cuGraphNodeGetDependentNodes(false, node, nodes, edges, count)
    }
    cudaGraphAddDependencies(graph: u64, from: In<u64>, to: In<u64>, edges: Edges, count: usize) {
        ready()?.cuGraphAddDependencies(false, graph, from, to, edges, count)
    }
    cudaGraphRemoveDependencies(graph: u64, from: In<u64>, to: In<u64>, edges: Edges, count: usize) {
        ready()?.cuGraphRemoveDependencies(false, graph, from, to, edges, count)
    }
    cudaGraphDestroyNode(node: u64) { ready()?.cuGraphDestroyNode(false, node) }
    cudaGraphDebugDotPrint(graph: u64, path: Text, flags: u32) {
        ready()?.cuGraphDebugDotPrint(false, graph, path, flags)
    }

    cudaGraphInstantiate(exec: Out<u64>, graph: u64, flags: u64) {
        ready()?.cuGraphInstantiateWithFlags(false, exec, graph, flags)
    }
    cudaGraphInstantiateWithFlags(exec: Out<u64>, graph: u64, flags: u64) {
        ready()?.cuGraphInstantiateWithFlags(false, exec, graph, flags)
    }
    cudaGraphInstantiateWithParams / cudaGraphInstantiateWithParams_ptsz |per_thread|
        (exec: Out<u64>, graph: u64, params: Place) {
        ready()?.cuGraphInstantiateWithParams(per_thread, exec, graph, params)
    }
    cudaGraphExecDestroy(exec: u64) { ready()?.cuGraphExecDestroy(false, exec) }
    cudaGraphExecGetFlags(exec: u64, flags: Out<u64>) { ready()?.cuGraphExecGetFlags(false, exec, flags) }
    cudaGraphExecGetId(exec: u64, id: Out<u32>) { ready()?.cuGraphExecGetId(false, exec, id) }
    cudaGraphExecUpdate(exec: u64, graph: u64, result: Place) { ready()?.cuGraphExecUpdate(false, exec, graph, result) }
    cudaGraphNodeSetEnabled(exec: u64, node: u64, enabled: u32) {
        ready()?.cuGraphNodeSetEnabled(false, exec, node, enabled)
    }
    cudaGraphNodeGetEnabled(exec: u64, node: u64, enabled: Out<u32>) {
        ready()?.cuGraphNodeGetEnabled(false, exec, node, enabled)
    }
    cudaGraphUpload / cudaGraphUpload_ptsz |per_thread| (exec: u64, stream: u64) {
        ready()?.cuGraphUpload(per_thread, exec, stream)
    }
    cudaGraphLaunch / cudaGraphLaunch_ptsz |per_thread| (exec: u64, stream: u64) {
        ready()?.cuGraphLaunch(per_thread, exec, stream)
    }

    cudaUserObjectCreate(object: Out<u64>, data: Place, destroy: Option<extern "C" fn(*mut c_void)>, count: u32, flags: u32) {
        ready()?.cuUserObjectCreate(false, object, data, destroy, count, flags)
    }
    cudaUserObjectRetain(object: u64, count: u32) { ready()?.cuUserObjectRetain(false, object, count) }
    cudaUserObjectRelease(object: u64, count: u32) { ready()?.cuUserObjectRelease(false, object, count) }
    cudaGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) {
        ready()?.cuGraphRetainUserObject(false, graph, object, count, flags)
    }
    cudaGraphReleaseUserObject(graph: u64, object: u64, count: u32) {
        ready()?.cuGraphReleaseUserObject(false, graph, object, count)
    }

    cudaDeviceGraphMemTrim(device: i32) { driver()?.cuDeviceGraphMemTrim(false, device) }
    cudaDeviceGetGraphMemAttribute(device: i32, which: u32, value: Place) {
        driver()?.cuDeviceGetGraphMemAttribute(false, device, which, value)
    }
    cudaDeviceSetGraphMemAttribute(device: i32, which: u32, value: Place) {
        driver()?.cuDeviceSetGraphMemAttribute(false, device, which, value)
    }
}
