//! What the nodes of graphs do, read from the parameters that calls give them.

use cudarc::driver::sys::{CUDA_MEMCPY3D, CUgraphNodeParams};
use cudarc::runtime::sys::{cudaGraphNodeParams, cudaMemAllocNodeParams, cudaMemcpy3DParms};
use streamcheck_model::{Direction, Handle, NodeWork, Region};

use super::captures::EdgeData;
use super::copies::{direction, symbol_address};
use super::host_functions;
use super::launches::{Arguments, Extra};
use super::volumes::{self, Described};
use crate::call::Call;
use crate::kernels::{self, Parameters};
use crate::{recorder, thread};

/// A node of which the order counts, and the bytes cannot be told.
fn unseen(call: &Call, kind: &str) -> NodeWork {
    call.blind_spot(kind, call.hook.api());
    NodeWork::Empty
}

/// A node that calls a host function.
pub(super) fn host(call: &Call) -> NodeWork {
    host_functions::unseen(call);
    NodeWork::Host
}

pub(super) fn records(event: usize) -> NodeWork {
    NodeWork::EventRecord {
        event: Handle(event as u64),
    }
}

pub(super) fn waits_for(event: usize) -> NodeWork {
    NodeWork::EventWait {
        event: Handle(event as u64),
    }
}

pub(super) fn child(graph: usize) -> NodeWork {
    NodeWork::Child {
        graph: Handle(graph as u64),
    }
}

/// What all versions of a kernel node's parameters begin with (driver_types.h, cuda.h).
#[repr(C)]
pub(super) struct KernelNode {
    /// A host function or a `cudaKernel_t`; for the driver a `CUfunction`.
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: Arguments,
    extra: Extra,
    /// A `CUkernel`, in place of a null function: in the driver's since CUDA 12.
    kernel: u64,
}

const _: () = {
    use core::mem::offset_of;
    use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS_v2 as Driver;
    use cudarc::runtime::sys::cudaKernelNodeParams as Runtime;
    assert!(offset_of!(KernelNode, arguments) == offset_of!(Driver, kernelParams));
    assert!(offset_of!(KernelNode, kernel) == offset_of!(Driver, kern));
    assert!(offset_of!(KernelNode, arguments) == offset_of!(Runtime, kernelParams));
    assert!(offset_of!(KernelNode, extra) == offset_of!(Runtime, extra));
};

impl KernelNode {
    /// The driver's function or kernel; 0 for none.
    ///
    /// # Safety
    /// `node` is null or points to a driver's parameters, those of CUDA 12 if `may_be_kernel`.
    pub(super) unsafe fn function(node: *const Self, may_be_kernel: bool) -> u64 {
        if node.is_null() {
            return 0;
        }
        // SAFETY: the caller's promise; field by field, as older ones are shorter.
        unsafe {
            let function = (&raw const (*node).function).read();
            if function == 0 && may_be_kernel {
                (&raw const (*node).kernel).read()
            } else {
                function
            }
        }
    }

    /// # Safety
    /// `node` points to parameters that a call took with success.
    unsafe fn parameters(node: *const Self) -> Parameters {
        // SAFETY: the caller's promise; field by field, as older ones are shorter.
        unsafe { Parameters::of_launch((*node).arguments, (*node).extra) }
    }

    /// A runtime's node. The driver's function for it was noted by the driver hook that the
    /// runtime's own call passed through.
    ///
    /// # Safety
    /// `node` points to parameters that a call took with success.
    pub(super) unsafe fn runtime(node: *const Self) -> NodeWork {
        let function = thread::block().take_inner_function();
        // SAFETY: the caller's promise.
        unsafe {
            let handle = (&raw const (*node).function).read();
            recorder::kernel_node(handle, Self::parameters(node), || {
                kernels::learn(handle, function)
            })
        }
    }

    /// # Safety
    /// As for [`Self::function`], and a call took the parameters with success.
    pub(super) unsafe fn driver(node: *const Self, may_be_kernel: bool) -> NodeWork {
        // SAFETY: the caller's promise.
        unsafe {
            let function = Self::function(node, may_be_kernel);
            if function == 0 {
                return NodeWork::Unknown;
            }
            recorder::kernel_node(function, Self::parameters(node), || {
                kernels::learn(0, function)
            })
        }
    }
}

/// A fill's parameters (driver_types.h; the driver's begin the same).
#[repr(C)]
pub(super) struct FillNode {
    to: u64,
    pitch: usize,
    value: u32,
    /// Bytes.
    element: u32,
    /// Elements in a row.
    width: usize,
    height: usize,
}

const _: () = {
    use core::mem::offset_of;
    use cudarc::driver::sys::CUDA_MEMSET_NODE_PARAMS as Driver;
    use cudarc::runtime::sys::cudaMemsetParams as Runtime;
    assert!(offset_of!(FillNode, element) == offset_of!(Driver, elementSize));
    assert!(offset_of!(FillNode, height) == offset_of!(Driver, height));
    assert!(offset_of!(FillNode, element) == offset_of!(Runtime, elementSize));
    assert!(offset_of!(FillNode, height) == offset_of!(Runtime, height));
};

impl FillNode {
    /// # Safety
    /// `node` points to parameters that a call took with success.
    pub(super) unsafe fn work(node: *const Self) -> NodeWork {
        // SAFETY: the caller's promise.
        let node = unsafe { &*node };
        let width = (node.width as u64).saturating_mul(node.element.into());
        NodeWork::Fill {
            to: Region::pitched(node.to, width, node.height as u64, node.pitch as u64),
        }
    }
}

fn copy(layers: Vec<(Region, Region)>, direction: Direction) -> NodeWork {
    let Some((to, from)) = layers.first() else {
        return NodeWork::Empty;
    };
    NodeWork::Copy {
        host: recorder::host_memory(from.address, to.address, direction),
        layers,
        direction,
    }
}

/// A copy of bytes; `kind` is a `cudaMemcpyKind`.
pub(super) fn linear(to: u64, from: u64, bytes: usize, kind: u32) -> NodeWork {
    let region = |address| Region::linear(address, bytes as u64);
    copy(vec![(region(to), region(from))], direction(kind))
}

/// A copy whose one side is a device variable, `offset` bytes into it.
pub(super) fn variable(
    call: &Call,
    variable: u64,
    offset: usize,
    other: u64,
    bytes: usize,
    kind: u32,
    to_variable: bool,
) -> NodeWork {
    match symbol_address(variable).map(|address| address.wrapping_add(offset as u64)) {
        Some(inside) if to_variable => linear(inside, other, bytes, kind),
        Some(inside) => linear(other, inside, bytes, kind),
        None => unseen(call, "symbol-copy"),
    }
}

fn volume(call: &Call, (to, from, extent, direction): Described) -> NodeWork {
    match extent {
        Some(extent) if to.is_some() || from.is_some() => match volumes::parts(to, from, extent) {
            Some(parts) => copy(parts, direction),
            None => unseen(call, "volume-copy"),
        },
        _ => unseen(call, "array-copy"),
    }
}

/// # Safety
/// `parameters` are those that a call took with success.
pub(super) unsafe fn runtime_copy(call: &Call, parameters: *const cudaMemcpy3DParms) -> NodeWork {
    // SAFETY: the caller's promise.
    volume(call, unsafe { volumes::runtime_copy(parameters) })
}

/// # Safety
/// `parameters` are those that a call took with success.
pub(super) unsafe fn driver_copy(call: &Call, parameters: *const CUDA_MEMCPY3D) -> NodeWork {
    // SAFETY: the caller's promise.
    volume(call, unsafe { volumes::driver_copy(parameters) })
}

const _: () = {
    use core::mem::offset_of;
    use cudarc::driver::sys::CUDA_MEM_ALLOC_NODE_PARAMS as Driver;
    use cudarc::runtime::sys::cudaMemAllocNodeParams as Runtime;
    assert!(offset_of!(Runtime, bytesize) == offset_of!(Driver, bytesize));
    assert!(offset_of!(Runtime, dptr) == offset_of!(Driver, dptr));
};

/// An allocation; the driver's parameters are laid out as the runtime's.
///
/// # Safety
/// `parameters` are those that a call took with success, and wrote the address to.
pub(super) unsafe fn allocation(parameters: *const cudaMemAllocNodeParams) -> NodeWork {
    // SAFETY: the caller's promise; field by field, as there are enums.
    unsafe {
        NodeWork::Allocate {
            address: (&raw const (*parameters).dptr).read() as u64,
            size: (&raw const (*parameters).bytesize).read() as u64,
        }
    }
}

pub(super) fn free(address: u64) -> NodeWork {
    NodeWork::Free { address }
}

/// What a node of any type is given.
pub(super) trait AnyNode {
    /// Whether the driver takes it.
    const DRIVER: bool;
}

impl AnyNode for cudaGraphNodeParams {
    const DRIVER: bool = false;
}

impl AnyNode for CUgraphNodeParams {
    const DRIVER: bool = true;
}

/// `cudaGraphNodeTypeKernel` (driver_types.h; the driver's numbers are the same).
const KERNEL: u32 = 0;

/// A node's type and what belongs to it. In both libraries a node's parameters begin with a
/// type, and a union of each type's follows after 16 bytes.
///
/// # Safety
/// `parameters` point to such ones.
unsafe fn typed<P: AnyNode>(parameters: *const P) -> (u32, *const u8) {
    let start = parameters.cast::<u8>();
    // SAFETY: the caller's promise.
    unsafe { (start.cast::<u32>().read(), start.add(16)) }
}

/// The driver's function or kernel in a node's parameters; 0 for none.
///
/// # Safety
/// `parameters` are null or point to such ones.
pub(super) unsafe fn function(parameters: *const CUgraphNodeParams) -> u64 {
    if parameters.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise; a kernel node's have room for all fields.
    unsafe {
        match typed(parameters) {
            (KERNEL, inside) => KernelNode::function(inside.cast(), true),
            _ => 0,
        }
    }
}

/// What a node of any type does.
///
/// # Safety
/// `parameters` are those that a call took with success.
pub(super) unsafe fn any<P: AnyNode>(call: &Call, parameters: *const P) -> NodeWork {
    // SAFETY: the caller's promise.
    let (kind, inside) = unsafe { typed(parameters) };
    // SAFETY: as above; each type's parameters are laid out as in its own calls (driver_types.h,
    // cuda.h), but for the copy's, which come after 16 bytes, and the child's and events', which
    // begin with the handle.
    unsafe {
        let first = inside.cast::<usize>();
        match kind {
            KERNEL if P::DRIVER => KernelNode::driver(inside.cast(), true),
            KERNEL => KernelNode::runtime(inside.cast()),
            1 if P::DRIVER => driver_copy(call, inside.add(16).cast()),
            1 => runtime_copy(call, inside.add(16).cast()),
            2 => FillNode::work(inside.cast()),
            3 => host(call),
            4 => child_or_moved(first),
            5 => NodeWork::Empty,
            6 => waits_for(first.read()),
            7 => records(first.read()),

            10 => allocation(inside.cast()),
            11 => free(first.read() as u64),

            13 => conditional(first),
            // Semaphores, values, and what there may be in time to come.
            _ => NodeWork::Unknown,
        }
    }
}

const _: () = {
    use core::mem::offset_of;
    use cudarc::driver::sys::CUDA_CONDITIONAL_NODE_PARAMS as Conditional;
    use cudarc::driver::sys::CUDA_MEMCPY_NODE_PARAMS as DriverCopy;
    use cudarc::runtime::sys::cudaMemcpyNodeParams as RuntimeCopy;
    assert!(offset_of!(CUgraphNodeParams, __bindgen_anon_1) == 16);
    assert!(offset_of!(cudaGraphNodeParams, __bindgen_anon_1) == 16);
    assert!(offset_of!(DriverCopy, copyParams) == 16);
    assert!(offset_of!(RuntimeCopy, copyParams) == 16);
    assert!(offset_of!(Conditional, size) == 12);
    assert!(offset_of!(Conditional, phGraph_out) == 16);
};

/// # Safety
/// `parameters` are those of a child node that was made: a graph, and whether it is cloned
/// or moved, which is 0 where CUDA knows nothing of that yet.
unsafe fn child_or_moved(parameters: *const usize) -> NodeWork {
    /// `cudaGraphChildGraphOwnershipMove`, `CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`
    const MOVED: u32 = 1;
    // SAFETY: the caller's promise; all types have room for as much.
    let (graph, ownership) = unsafe { (parameters.read(), parameters.add(1).cast::<u32>().read()) };
    match ownership {
        // Its nodes may be changed after it, and are the parent's.
        MOVED => NodeWork::Unknown,
        _ => child(graph),
    }
}

/// # Safety
/// `parameters` are those of a conditional node that was made: a handle, a type, how many
/// bodies there are, and where CUDA has put their handles.
unsafe fn conditional(parameters: *const usize) -> NodeWork {
    // SAFETY: the caller's promise.
    let bodies = unsafe {
        let count = parameters.cast::<u32>().add(3).read();
        let graphs = parameters.add(2).cast::<*const usize>().read();
        handles(graphs, count as usize)
    };
    NodeWork::Conditional { bodies }
}

/// # Safety
/// `list` is null or has `count` handles.
pub(super) unsafe fn handles(list: *const usize, count: usize) -> Vec<Handle> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let one = |index| Handle(unsafe { list.add(index).read() } as u64);
    (0..count).map(one).collect()
}

/// Counts edges between kernels of which the later one may begin before the earlier one ends
/// (`cudaGraphDependencyTypeProgrammatic`, driver_types.h; the driver's is the same). They are
/// taken for whole ones.
///
/// # Safety
/// `data` is null or has that of `count` edges.
pub(super) unsafe fn count_early(call: &Call, data: EdgeData, count: usize) {
    const PROGRAMMATIC: u8 = 1;
    if data.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    if (0..count).any(|index| unsafe { (*data.add(index))[2] } == PROGRAMMATIC) {
        call.blind_spot("programmatic-dependent-launch", call.hook.api());
    }
}

/// # Safety
/// As for [`handles`], of both lists.
pub(super) unsafe fn pairs(
    from: *const usize,
    to: *const usize,
    count: usize,
) -> Vec<(Handle, Handle)> {
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (handles(from, count), handles(to, count)) };
    from.into_iter().zip(to).collect()
}
