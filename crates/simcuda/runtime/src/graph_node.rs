//! The nodes of graphs: adding them, what they do, and what they are to do in an executable.

use crate::abi::{Copy3d, In, Out, Status};
use crate::copy::{linear, within};
use crate::copy_box::{Params, plain, told};
use crate::device::ready;
use crate::driver::Driver;
use crate::error::INVALID_MEMCPY_DIRECTION;
use crate::graph_params::{KernelNode, KernelParams, NodeParams};
use std::ffi::c_void;

type Given = *const c_void;
type Place = *mut c_void;

/// `cudaMemcpyKind`.
const HOST_TO_HOST: u32 = 0;
const HOST_TO_DEVICE: u32 = 1;
const DEVICE_TO_HOST: u32 = 2;

/// The context that a node of a copy or fill belongs to: the calling thread's.
fn context(driver: &Driver) -> Status<u64> {
    let mut current = 0;
    driver.cuCtxGetCurrent(false, Out(&mut current))?;
    Ok(current)
}

fn to_symbol(
    driver: &Driver,
    symbol: usize,
    from: u64,
    (length, offset): (usize, usize),
    kind: u32,
) -> Status<Copy3d> {
    if matches!(kind, HOST_TO_HOST | DEVICE_TO_HOST) {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    linear(within(driver, symbol, offset, length)?, from, length, kind)
}

fn from_symbol(
    driver: &Driver,
    to: u64,
    symbol: usize,
    (length, offset): (usize, usize),
    kind: u32,
) -> Status<Copy3d> {
    if matches!(kind, HOST_TO_HOST | HOST_TO_DEVICE) {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    linear(to, within(driver, symbol, offset, length)?, length, kind)
}

fn add_copy(
    driver: &Driver,
    node: Out<u64>,
    graph: u64,
    nodes: In<u64>,
    count: usize,
    copy: Copy3d,
) -> Status {
    driver.cuGraphAddMemcpyNode(
        false,
        node,
        graph,
        nodes,
        count,
        In(&copy),
        context(driver)?,
    )
}

fn set_copy(driver: &Driver, node: u64, copy: Copy3d) -> Status {
    driver.cuGraphMemcpyNodeSetParams(false, node, In(&copy))
}

fn set_copy_later(driver: &Driver, exec: u64, node: u64, copy: Copy3d) -> Status {
    driver.cuGraphExecMemcpyNodeSetParams(false, exec, node, In(&copy), context(driver)?)
}

export! {
    cudaGraphAddNode(node: Out<u64>, graph: u64, nodes: In<u64>, edges: In<[u8; 8]>, count: usize, params: Out<NodeParams>) {
        let driver = ready()?;
        let mut given = In(params.0.cast_const()).get()?.for_driver(driver)?;
        driver.cuGraphAddNode(false, node, graph, nodes, edges, count, (&raw mut given).cast())?;
        if given.is_answer() { params.put(given) } else { Ok(()) }
    }
    cudaGraphNodeSetParams(node: u64, params: In<NodeParams>) {
        let driver = ready()?;
        let given = params.get()?.for_driver(driver)?;
        driver.cuGraphNodeSetParams(false, node, (&raw const given).cast())
    }
    cudaGraphNodeGetParams(node: u64, params: Out<NodeParams>) {
        let driver = ready()?;
        let mut found = NodeParams::NONE;
        driver.cuGraphNodeGetParams(false, node, (&raw mut found).cast())?;
        params.put(found.for_program(driver)?)
    }
    cudaGraphExecNodeSetParams(exec: u64, node: u64, params: In<NodeParams>) {
        let driver = ready()?;
        let given = params.get()?.for_driver(driver)?;
        driver.cuGraphExecNodeSetParams(false, exec, node, (&raw const given).cast())
    }

    cudaGraphAddKernelNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: In<KernelParams>) {
        let driver = ready()?;
        let given = params.get()?.for_driver(driver)?;
        driver.cuGraphAddKernelNode(false, node, graph, nodes, count, In(&given))
    }
    cudaGraphKernelNodeGetParams(node: u64, params: Out<KernelParams>) {
        let mut found = KernelNode::NONE;
        ready()?.cuGraphKernelNodeGetParams(false, node, Out(&mut found))?;
        params.put(found.for_program())
    }
    cudaGraphKernelNodeSetParams(node: u64, params: In<KernelParams>) {
        let driver = ready()?;
        let given = params.get()?.for_driver(driver)?;
        driver.cuGraphKernelNodeSetParams(false, node, In(&given))
    }
    cudaGraphExecKernelNodeSetParams(exec: u64, node: u64, params: In<KernelParams>) {
        let driver = ready()?;
        let given = params.get()?.for_driver(driver)?;
        driver.cuGraphExecKernelNodeSetParams(false, exec, node, In(&given))
    }
    cudaGraphKernelNodeGetAttribute(node: u64, which: u32, value: Place) {
        ready()?.cuGraphKernelNodeGetAttribute(false, node, which, value)
    }
    cudaGraphKernelNodeSetAttribute(node: u64, which: u32, value: Given) {
        ready()?.cuGraphKernelNodeSetAttribute(false, node, which, value)
    }
    cudaGraphKernelNodeCopyAttributes(target: u64, source: u64) {
        ready()?.cuGraphKernelNodeCopyAttributes(false, target, source)
    }

    cudaGraphAddMemcpyNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: In<Params>) {
        let driver = ready()?;
        add_copy(driver, node, graph, nodes, count, plain(driver, params)?)
    }
    cudaGraphAddMemcpyNode1D(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, to: u64, from: u64, length: usize,
                             kind: u32) {
        add_copy(ready()?, node, graph, nodes, count, linear(to, from, length, kind)?)
    }
    cudaGraphAddMemcpyNodeToSymbol(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, symbol: usize, from: u64,
                                   length: usize, offset: usize, kind: u32) {
        let driver = ready()?;
        add_copy(driver, node, graph, nodes, count, to_symbol(driver, symbol, from, (length, offset), kind)?)
    }
    cudaGraphAddMemcpyNodeFromSymbol(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, to: u64, symbol: usize,
                                     length: usize, offset: usize, kind: u32) {
        let driver = ready()?;
        add_copy(driver, node, graph, nodes, count, from_symbol(driver, to, symbol, (length, offset), kind)?)
    }
    cudaGraphMemcpyNodeGetParams(node: u64, params: Out<Params>) {
        let driver = ready()?;
        let mut found = linear(0, 0, 0, HOST_TO_HOST)?;
        driver.cuGraphMemcpyNodeGetParams(false, node, Out(&mut found))?;
        params.put(told(driver, &found)?)
    }
    cudaGraphMemcpyNodeSetParams(node: u64, params: In<Params>) {
        let driver = ready()?;
        set_copy(driver, node, plain(driver, params)?)
    }
    cudaGraphMemcpyNodeSetParams1D(node: u64, to: u64, from: u64, length: usize, kind: u32) {
        set_copy(ready()?, node, linear(to, from, length, kind)?)
    }
    cudaGraphMemcpyNodeSetParamsToSymbol(node: u64, symbol: usize, from: u64, length: usize, offset: usize, kind: u32) {
        let driver = ready()?;
        set_copy(driver, node, to_symbol(driver, symbol, from, (length, offset), kind)?)
    }
    cudaGraphMemcpyNodeSetParamsFromSymbol(node: u64, to: u64, symbol: usize, length: usize, offset: usize, kind: u32) {
        let driver = ready()?;
        set_copy(driver, node, from_symbol(driver, to, symbol, (length, offset), kind)?)
    }
    cudaGraphExecMemcpyNodeSetParams(exec: u64, node: u64, params: In<Params>) {
        let driver = ready()?;
        set_copy_later(driver, exec, node, plain(driver, params)?)
    }
    cudaGraphExecMemcpyNodeSetParams1D(exec: u64, node: u64, to: u64, from: u64, length: usize, kind: u32) {
        set_copy_later(ready()?, exec, node, linear(to, from, length, kind)?)
    }
    cudaGraphExecMemcpyNodeSetParamsToSymbol(exec: u64, node: u64, symbol: usize, from: u64, length: usize, offset: usize,
                                             kind: u32) {
        let driver = ready()?;
        set_copy_later(driver, exec, node, to_symbol(driver, symbol, from, (length, offset), kind)?)
    }
    cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec: u64, node: u64, to: u64, symbol: usize, length: usize, offset: usize,
                                               kind: u32) {
        let driver = ready()?;
        set_copy_later(driver, exec, node, from_symbol(driver, to, symbol, (length, offset), kind)?)
    }

    cudaGraphAddMemsetNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: Given) {
        let driver = ready()?;
        driver.cuGraphAddMemsetNode(false, node, graph, nodes, count, params, context(driver)?)
    }
    cudaGraphMemsetNodeGetParams(node: u64, params: Place) { ready()?.cuGraphMemsetNodeGetParams(false, node, params) }
    cudaGraphMemsetNodeSetParams(node: u64, params: Given) { ready()?.cuGraphMemsetNodeSetParams(false, node, params) }
    cudaGraphExecMemsetNodeSetParams(exec: u64, node: u64, params: Given) {
        let driver = ready()?;
        driver.cuGraphExecMemsetNodeSetParams(false, exec, node, params, context(driver)?)
    }

    cudaGraphAddHostNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: Given) {
        ready()?.cuGraphAddHostNode(false, node, graph, nodes, count, params)
    }
    cudaGraphHostNodeGetParams(node: u64, params: Place) { ready()?.cuGraphHostNodeGetParams(false, node, params) }
    cudaGraphHostNodeSetParams(node: u64, params: Given) { ready()?.cuGraphHostNodeSetParams(false, node, params) }
    cudaGraphExecHostNodeSetParams(exec: u64, node: u64, params: Given) {
        ready()?.cuGraphExecHostNodeSetParams(false, exec, node, params)
    }

    cudaGraphAddChildGraphNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, child: u64) {
        ready()?.cuGraphAddChildGraphNode(false, node, graph, nodes, count, child)
    }
    cudaGraphChildGraphNodeGetGraph(node: u64, graph: Out<u64>) {
        ready()?.cuGraphChildGraphNodeGetGraph(false, node, graph)
    }
    cudaGraphExecChildGraphNodeSetParams(exec: u64, node: u64, child: u64) {
        ready()?.cuGraphExecChildGraphNodeSetParams(false, exec, node, child)
    }
    cudaGraphAddEmptyNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize) {
        ready()?.cuGraphAddEmptyNode(false, node, graph, nodes, count)
    }

    cudaGraphAddEventRecordNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, event: u64) {
        ready()?.cuGraphAddEventRecordNode(false, node, graph, nodes, count, event)
    }
    cudaGraphEventRecordNodeGetEvent(node: u64, event: Out<u64>) {
        ready()?.cuGraphEventRecordNodeGetEvent(false, node, event)
    }
    cudaGraphEventRecordNodeSetEvent(node: u64, event: u64) {
        ready()?.cuGraphEventRecordNodeSetEvent(false, node, event)
    }
    cudaGraphExecEventRecordNodeSetEvent(exec: u64, node: u64, event: u64) {
        ready()?.cuGraphExecEventRecordNodeSetEvent(false, exec, node, event)
    }
    cudaGraphAddEventWaitNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, event: u64) {
        ready()?.cuGraphAddEventWaitNode(false, node, graph, nodes, count, event)
    }
    cudaGraphEventWaitNodeGetEvent(node: u64, event: Out<u64>) {
        ready()?.cuGraphEventWaitNodeGetEvent(false, node, event)
    }
    cudaGraphEventWaitNodeSetEvent(node: u64, event: u64) { ready()?.cuGraphEventWaitNodeSetEvent(false, node, event) }
    cudaGraphExecEventWaitNodeSetEvent(exec: u64, node: u64, event: u64) {
        ready()?.cuGraphExecEventWaitNodeSetEvent(false, exec, node, event)
    }

    cudaGraphAddExternalSemaphoresSignalNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: Given) {
        ready()?.cuGraphAddExternalSemaphoresSignalNode(false, node, graph, nodes, count, params)
    }
    cudaGraphExternalSemaphoresSignalNodeGetParams(node: u64, params: Place) {
        ready()?.cuGraphExternalSemaphoresSignalNodeGetParams(false, node, params)
    }
    cudaGraphExternalSemaphoresSignalNodeSetParams(node: u64, params: Given) {
        ready()?.cuGraphExternalSemaphoresSignalNodeSetParams(false, node, params)
    }
    cudaGraphExecExternalSemaphoresSignalNodeSetParams(exec: u64, node: u64, params: Given) {
        ready()?.cuGraphExecExternalSemaphoresSignalNodeSetParams(false, exec, node, params)
    }
    cudaGraphAddExternalSemaphoresWaitNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: Given) {
        ready()?.cuGraphAddExternalSemaphoresWaitNode(false, node, graph, nodes, count, params)
    }
    cudaGraphExternalSemaphoresWaitNodeGetParams(node: u64, params: Place) {
        ready()?.cuGraphExternalSemaphoresWaitNodeGetParams(false, node, params)
    }
    cudaGraphExternalSemaphoresWaitNodeSetParams(node: u64, params: Given) {
        ready()?.cuGraphExternalSemaphoresWaitNodeSetParams(false, node, params)
    }
    cudaGraphExecExternalSemaphoresWaitNodeSetParams(exec: u64, node: u64, params: Given) {
        ready()?.cuGraphExecExternalSemaphoresWaitNodeSetParams(false, exec, node, params)
    }

    cudaGraphAddMemAllocNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, params: Place) {
        ready()?.cuGraphAddMemAllocNode(false, node, graph, nodes, count, params)
    }
    cudaGraphMemAllocNodeGetParams(node: u64, params: Place) {
        ready()?.cuGraphMemAllocNodeGetParams(false, node, params)
    }
    cudaGraphAddMemFreeNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: usize, address: u64) {
        ready()?.cuGraphAddMemFreeNode(false, node, graph, nodes, count, address)
    }
    cudaGraphMemFreeNodeGetParams(node: u64, address: Place) {
        ready()?.cuGraphMemFreeNodeGetParams(false, node, address)
    }

    cudaGraphConditionalHandleCreate(handle: Out<u64>, graph: u64, value: u32, flags: u32) {
        let driver = ready()?;
        driver.cuGraphConditionalHandleCreate(false, handle, graph, context(driver)?, value, flags)
    }
    cudaGraphConditionalHandleCreate_v2(handle: Out<u64>, graph: u64, within: u64, value: u32, flags: u32) {
        let driver = ready()?;
        let within = if within == 0 { context(driver)? } else { within };
        driver.cuGraphConditionalHandleCreate(false, handle, graph, within, value, flags)
    }
}
