//! The structs by which a program describes the nodes of graphs, and what they describe.

use super::copy_box::transfer;
use crate::abi::{AccessDesc, Copy3d, In, Out, PoolProps, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::fill::Fill;
use crate::sim::graph::{Action, Conditional, CopyNode, Edge, HostCall, Owner, When};
use crate::sim::kernel::{Kernel, KernelCall, Params, Shape};
use crate::sim::semaphore::{SemaphoreParams, Semaphores};
use crate::sim::state::State;
use crate::sim::value::{ValueParams, Values};
use std::ffi::c_void;
use std::sync::Arc;

/// `CUgraphNodeType`.
pub(super) const KERNEL: u32 = 0;
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const HOST: u32 = 3;
pub(super) const GRAPH: u32 = 4;
const EMPTY: u32 = 5;
const WAIT_EVENT: u32 = 6;
const RECORD_EVENT: u32 = 7;
const SIGNAL: u32 = 8;
const AWAIT_SIGNAL: u32 = 9;
const ALLOCATE: u32 = 10;
const FREE: u32 = 11;
const VALUES: u32 = 12;
const CONDITIONAL: u32 = 13;

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelParams1 {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: Params,
    extra: In<usize>,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `…_v3`; the kernel counts where there is no function.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelParams {
    first: KernelParams1,
    kernel: u64,
    context: u64,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FillParams1 {
    target: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FillParams {
    first: FillParams1,
    context: u64,
}

type HostFunction = extern "C" fn(*mut c_void);

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HostParams1 {
    function: Option<HostFunction>,
    data: usize,
}

/// `CUDA_HOST_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostParams {
    first: HostParams1,
    sync_mode: u32,
    context: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyParams {
    flags: i32,
    reserved: i32,
    context: u64,
    copy: Copy3d,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`; cloned 0, moved 1.
#[repr(C)]
#[derive(Clone, Copy)]
struct ChildParams {
    graph: u64,
    ownership: i32,
}

/// `CUDA_EVENT_RECORD_NODE_PARAMS`; `CUDA_EVENT_WAIT_NODE_PARAMS` is its beginning.
#[repr(C)]
#[derive(Clone, Copy)]
struct EventParams {
    event: u64,
    context: u64,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`; the address is the driver's answer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AllocateParams {
    props: PoolProps,
    access: *const AccessDesc,
    access_count: usize,
    size: usize,
    address: u64,
}

/// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS` and `…_WAIT_…`; the second versions have a context after the count.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SemaphoresParams {
    handles: In<u64>,
    params: In<SemaphoreParams>,
    count: u32,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`, each version.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ValuesParams {
    context: u64,
    count: u32,
    params: In<ValueParams>,
    flags: u32,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`; the bodies are the driver's answer.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConditionalParams {
    handle: u64,
    kind: u32,
    size: u32,
    bodies: *const u64,
    context: u64,
}

/// `CUgraphNodeParams`: a type, and the struct of that type.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NodeParams {
    pub(super) kind: u32,
    reserved: [i32; 3],
    body: [u64; 29],
    reserved_too: u64,
}

impl NodeParams {
    const ZERO: Self = Self {
        kind: 0,
        reserved: [0; 3],
        body: [0; 29],
        reserved_too: 0,
    };

    fn read<T: Copy>(&self) -> Status<T> {
        const { assert!(size_of::<T>() <= 29 * 8) };
        In((&raw const self.body).cast::<T>()).get()
    }

    fn write<T>(&mut self, value: T) -> Status {
        const { assert!(size_of::<T>() <= 29 * 8) };
        Out((&raw mut self.body).cast::<T>()).put(value)
    }

    /// The graph that a child node is to be.
    pub(super) fn child(&self) -> Status<u64> {
        Ok(self.read::<ChildParams>()?.graph)
    }
}

/// A struct that describes a node of its own kind.
pub(super) trait Describes: Copy {
    fn action(self, s: &State) -> Status<Action>;
}

impl Describes for KernelParams1 {
    fn action(self, s: &State) -> Status<Action> {
        let (first, kernel, context) = (self, 0, 0);
        KernelParams {
            first,
            kernel,
            context,
        }
        .action(s)
    }
}

impl Describes for KernelParams {
    fn action(self, s: &State) -> Status<Action> {
        let first = self.first;
        let function = if first.function == 0 {
            self.kernel
        } else {
            first.function
        };
        let current = s.context(self.context)?.0;
        let loaded = s.functions.get(function).ok_or(INVALID_HANDLE)?.loaded_from;
        let home = s.libraries.get(loaded).ok_or(INVALID_HANDLE)?.context;
        let call = KernelCall {
            function,
            shape: Shape {
                grid: first.grid,
                block: first.block,
                shared: first.shared,
            },
            params: first.params,
            extra: first.extra,
        };
        let kernel = call.prepare(s, home.unwrap_or(current), current)?;
        Ok(Action::Kernel(Arc::new(kernel)))
    }
}

/// A copy and its context.
#[derive(Clone, Copy)]
pub(super) struct CopyIn(pub(super) Copy3d, pub(super) u64);

impl Describes for CopyIn {
    fn action(self, s: &State) -> Status<Action> {
        let Self(params, context) = self;
        let context = s.context(context)?.0;
        let transfer = transfer(s, &params)?;
        for side in [transfer.target, transfer.source] {
            s.place(side.address, transfer.extent(side))?;
        }
        Ok(Action::Copy(Box::new(CopyNode {
            transfer,
            params,
            context,
        })))
    }
}

/// A fill and its context.
#[derive(Clone, Copy)]
pub(super) struct FillIn(pub(super) FillParams1, pub(super) u64);

impl Describes for FillIn {
    fn action(self, s: &State) -> Status<Action> {
        let Self(params, context) = self;
        let fill = Fill {
            target: params.target,
            pitch: params.pitch,
            value: params.value,
            element: params.element,
            width: params.width,
            height: params.height,
            context: s.context(context)?.0,
        };
        fill.check(s)?;
        Ok(Action::Fill(fill))
    }
}

impl Describes for HostParams1 {
    fn action(self, _: &State) -> Status<Action> {
        let function = self.function.ok_or(INVALID_VALUE)?;
        let data = self.data;
        Ok(Action::Host(HostCall { function, data }))
    }
}

/// What signals.
#[derive(Clone, Copy)]
pub(super) struct Signals(pub(super) SemaphoresParams);

/// What waits for signals.
#[derive(Clone, Copy)]
pub(super) struct Awaits(pub(super) SemaphoresParams);

impl SemaphoresParams {
    fn semaphores(self, s: &State) -> Status<Arc<Semaphores>> {
        let handles = self.handles.list(self.count as usize)?;
        if handles
            .iter()
            .any(|&handle| s.semaphores.get(handle).is_none())
        {
            return Err(INVALID_HANDLE);
        }
        let params = self.params.list(self.count as usize)?;
        Ok(Arc::new(Semaphores { handles, params }))
    }

    /// The node's own arrays.
    pub(super) fn of(semaphores: &Semaphores) -> Self {
        Self {
            handles: In(semaphores.handles.as_ptr()),
            params: In(semaphores.params.as_ptr()),
            count: semaphores.handles.len() as u32,
        }
    }
}

impl Describes for Signals {
    fn action(self, s: &State) -> Status<Action> {
        self.0.semaphores(s).map(Action::Signal)
    }
}

impl Describes for Awaits {
    fn action(self, s: &State) -> Status<Action> {
        self.0.semaphores(s).map(Action::AwaitSignal)
    }
}

impl Describes for ValuesParams {
    fn action(self, s: &State) -> Status<Action> {
        if self.count == 0 || self.count > 256 || self.flags != 0 {
            return Err(INVALID_VALUE);
        }
        let context = s.context(self.context)?.0;
        let values = Values::new(self.params.list(self.count as usize)?, context)?;
        values
            .operations
            .iter()
            .try_for_each(|operation| operation.check(s))?;
        Ok(Action::Values(Arc::new(values)))
    }
}

impl ValuesParams {
    /// The node's own array.
    pub(super) fn of(values: &Values) -> Self {
        Self {
            context: values.context,
            count: values.params.len() as u32,
            params: In(values.params.as_ptr()),
            flags: 0,
        }
    }
}

impl Describes for NodeParams {
    /// What may also be set later: all but the graphs inside, and memory.
    fn action(self, s: &State) -> Status<Action> {
        let event = || -> Status<u64> {
            let event = self.read::<EventParams>()?.event;
            s.check_event(event).map(|()| event)
        };
        match self.kind {
            KERNEL => self.read::<KernelParams>()?.action(s),
            MEMCPY => {
                let params: CopyParams = self.read()?;
                if params.flags != 0 {
                    return Err(INVALID_VALUE);
                }
                CopyIn(params.copy, params.context).action(s)
            }
            MEMSET => {
                let params: FillParams = self.read()?;
                FillIn(params.first, params.context).action(s)
            }
            HOST => self.read::<HostParams>()?.first.action(s),
            EMPTY => Ok(Action::Empty),
            WAIT_EVENT => event().map(Action::WaitEvent),
            RECORD_EVENT => event().map(Action::RecordEvent),
            SIGNAL => Signals(self.read()?).action(s),
            AWAIT_SIGNAL => Awaits(self.read()?).action(s),
            VALUES => self.read::<ValuesParams>()?.action(s),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// What an allocation node allocates, for `graph` after `needs`.
pub(super) fn allocation(
    s: &mut State,
    graph: u64,
    needs: &[(u64, Edge)],
    params: &AllocateParams,
) -> Status<Action> {
    let location = params.props.location;
    if params.props.alloc_type != 1 || params.props.handle_types != 0 {
        return Err(INVALID_VALUE);
    }
    if location.kind != 1 {
        return Err(NOT_SUPPORTED);
    }
    s.device(location.id)?;
    let size = params.size as u64;
    let address = s.add_graph_memory(graph, needs, size, location.id)?;
    Ok(Action::Allocate(address, size, location.id))
}

/// Tells the address.
pub(super) fn allocated(params: Out<AllocateParams>, action: &Action) -> Status {
    let Action::Allocate(address, ..) = *action else {
        return Err(INVALID_VALUE);
    };
    let given = In(params.0.cast_const()).get()?;
    params.put(AllocateParams { address, ..given })
}

fn child(s: &mut State, graph: u64, params: ChildParams) -> Status<Action> {
    match params.ownership {
        0 => s
            .clone_graph(params.graph, Owner::Capture)
            .map(Action::Child),
        1 => {
            let given = s.graph(params.graph)?;
            let (id, free) = (given.id, given.executables == 0);
            let own = given.owner == Owner::Application && s.outermost(graph) != params.graph;
            if !own || !free || s.is_being_captured(params.graph) {
                return Err(INVALID_VALUE);
            }
            s.move_graph_memory(id, graph);
            Ok(Action::Child(params.graph))
        }
        _ => Err(INVALID_VALUE),
    }
}

fn conditional(s: &mut State, graph: u64, params: ConditionalParams) -> Status<Action> {
    let (when, sizes) = match params.kind {
        0 => (When::If, 1..=2),
        1 => (When::While, 1..=1),
        2 => (When::Switch, 1..=u32::MAX),
        _ => return Err(INVALID_VALUE),
    };
    let outermost = s.graph(s.outermost(graph))?.id;
    let made_for = s.graph(graph)?.id;
    let context = s.context(params.context)?.0;
    let condition = s.conditions.get_mut(&params.handle).ok_or(INVALID_VALUE)?;
    let ours = condition.graph == made_for || condition.graph == outermost;
    if condition.used || !ours || !sizes.contains(&params.size) {
        return Err(INVALID_VALUE);
    }
    condition.used = true;
    let bodies = (0..params.size).map(|_| s.add_graph(Owner::Capture));
    Ok(Action::Conditional(Arc::new(Conditional {
        handle: params.handle,
        when,
        bodies: bodies.collect(),
        context,
    })))
}

/// What a node of `graph` after `needs` is to do.
pub(super) fn described(
    s: &mut State,
    graph: u64,
    needs: &[(u64, Edge)],
    params: &NodeParams,
) -> Status<Action> {
    match params.kind {
        GRAPH => child(s, graph, params.read()?),
        ALLOCATE => allocation(s, graph, needs, &params.read()?),
        FREE => {
            let address = params.read()?;
            s.check_graph_free(graph, address)?;
            Ok(Action::Free(address))
        }
        CONDITIONAL => conditional(s, graph, params.read()?),
        _ => params.action(s),
    }
}

/// Tells what only the driver knows: addresses, and the graphs inside.
pub(super) fn answered(params: Out<NodeParams>, action: &Action) -> Status {
    let mut given = In(params.0.cast_const()).get()?;
    match action {
        Action::Allocate(address, ..) => {
            let address = *address;
            given.write(AllocateParams {
                address,
                ..given.read()?
            })?;
        }
        Action::Conditional(conditional) => given.write(ConditionalParams {
            bodies: conditional.bodies.as_ptr(),
            ..given.read()?
        })?,
        _ => return Ok(()),
    }
    params.put(given)
}

pub(super) fn kernel_params(s: &State, kernel: &Kernel) -> KernelParams {
    let loaded = s.functions.get(kernel.function).map(|of| of.loaded_from);
    let library = loaded.and_then(|loaded| s.libraries.get(loaded));
    let of_module = library.is_some_and(|library| library.context.is_some());
    let Shape {
        grid,
        block,
        shared,
    } = kernel.shape;
    KernelParams {
        first: KernelParams1 {
            function: if of_module { kernel.function } else { 0 },
            grid,
            block,
            shared,
            params: In(kernel.params() as *const *const u8),
            extra: In(std::ptr::null()),
        },
        kernel: if of_module { 0 } else { kernel.function },
        context: kernel.context,
    }
}

/// As before kernels had handles of their own: they are functions too.
pub(super) fn kernel_params_1(s: &State, kernel: &Kernel) -> KernelParams1 {
    let function = kernel.function;
    KernelParams1 {
        function,
        ..kernel_params(s, kernel).first
    }
}

pub(super) fn fill_params(fill: &Fill) -> FillParams1 {
    FillParams1 {
        target: fill.target,
        pitch: fill.pitch,
        value: fill.value,
        element: fill.element,
        width: fill.width,
        height: fill.height,
    }
}

pub(super) fn host_params(call: &HostCall) -> HostParams1 {
    HostParams1 {
        function: Some(call.function),
        data: call.data,
    }
}

pub(super) fn allocate_params(address: u64, size: u64, device: i32) -> AllocateParams {
    AllocateParams {
        props: PoolProps {
            alloc_type: 1,
            handle_types: 0,
            location: crate::abi::Location {
                kind: 1,
                id: device,
            },
            security: std::ptr::null_mut(),
            rest: [0; 64],
        },
        access: std::ptr::null(),
        access_count: 0,
        size: size as usize,
        address,
    }
}

/// A node's description.
pub(super) fn params_of(s: &State, action: &Action) -> Status<NodeParams> {
    let mut params = NodeParams {
        kind: action.kind(),
        ..NodeParams::ZERO
    };
    match action {
        Action::Kernel(kernel) => params.write(kernel_params(s, kernel))?,
        Action::Copy(copy) => params.write(CopyParams {
            flags: 0,
            reserved: 0,
            context: copy.context,
            copy: copy.params,
        })?,
        Action::Fill(fill) => params.write(FillParams {
            first: fill_params(fill),
            context: fill.context,
        })?,
        Action::Host(call) => params.write(HostParams {
            first: host_params(call),
            sync_mode: 0,
            context: 0,
        })?,
        // The ownership is none that could be used again by mistake.
        &Action::Child(graph) => params.write(ChildParams {
            graph,
            ownership: -1,
        })?,
        Action::Empty => {}
        &Action::WaitEvent(event) | &Action::RecordEvent(event) => {
            params.write(EventParams { event, context: 0 })?
        }
        Action::Signal(semaphores) | Action::AwaitSignal(semaphores) => {
            params.write(SemaphoresParams::of(semaphores))?
        }
        &Action::Allocate(address, size, device) => {
            params.write(allocate_params(address, size, device))?
        }
        &Action::Free(address) => params.write(address)?,
        Action::Values(values) => params.write(ValuesParams::of(values))?,
        Action::Conditional(conditional) => params.write(ConditionalParams {
            handle: conditional.handle,
            kind: match conditional.when {
                When::If => 0,
                When::While => 1,
                When::Switch => 2,
            },
            size: conditional.bodies.len() as u32,
            bodies: conditional.bodies.as_ptr(),
            context: conditional.context,
        })?,
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys as theirs;
    use std::mem::{offset_of, size_of};

    #[test]
    fn params_are_laid_out_as_nvidias() {
        assert_eq!(
            size_of::<KernelParams1>(),
            size_of::<theirs::CUDA_KERNEL_NODE_PARAMS_st>()
        );
        type Kernel = theirs::CUDA_KERNEL_NODE_PARAMS_v2_st;
        assert_eq!(size_of::<KernelParams>(), size_of::<Kernel>());
        assert_eq!(offset_of!(KernelParams, kernel), offset_of!(Kernel, kern));
        assert_eq!(
            offset_of!(KernelParams1, params),
            offset_of!(Kernel, kernelParams)
        );
        assert_eq!(
            size_of::<FillParams1>(),
            size_of::<theirs::CUDA_MEMSET_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<FillParams>(),
            size_of::<theirs::CUDA_MEMSET_NODE_PARAMS_v2_st>()
        );
        assert_eq!(
            size_of::<HostParams1>(),
            size_of::<theirs::CUDA_HOST_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<HostParams>(),
            size_of::<theirs::CUDA_HOST_NODE_PARAMS_v2_st>()
        );
        assert_eq!(
            size_of::<CopyParams>(),
            size_of::<theirs::CUDA_MEMCPY_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<ChildParams>(),
            size_of::<theirs::CUDA_CHILD_GRAPH_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<EventParams>(),
            size_of::<theirs::CUDA_EVENT_RECORD_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<AllocateParams>(),
            size_of::<theirs::CUDA_MEM_ALLOC_NODE_PARAMS_v1_st>()
        );
        assert_eq!(
            offset_of!(AllocateParams, size),
            offset_of!(theirs::CUDA_MEM_ALLOC_NODE_PARAMS_v1_st, bytesize)
        );
        assert_eq!(
            size_of::<SemaphoresParams>(),
            size_of::<theirs::CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_st>()
        );
        assert_eq!(
            size_of::<ValuesParams>(),
            size_of::<theirs::CUDA_BATCH_MEM_OP_NODE_PARAMS_v2_st>()
        );
        assert_eq!(
            size_of::<ConditionalParams>(),
            size_of::<theirs::CUDA_CONDITIONAL_NODE_PARAMS>()
        );
        assert_eq!(
            size_of::<NodeParams>(),
            size_of::<theirs::CUgraphNodeParams_st>()
        );
        assert_eq!(
            offset_of!(NodeParams, body),
            offset_of!(theirs::CUgraphNodeParams_st, __bindgen_anon_1)
        );
    }
}
