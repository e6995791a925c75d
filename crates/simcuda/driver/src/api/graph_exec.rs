//! Executable graphs: making, changing and launching them.

use super::graph_params::{
    Awaits, CopyIn, Describes, FillIn, FillParams1, GRAPH, HostParams1, KernelParams,
    KernelParams1, NodeParams, SemaphoresParams, Signals, ValuesParams,
};
use crate::abi::{Copy3d, In, Out, Status};
use crate::error::{GRAPH_UPDATE_FAILURE, INVALID_VALUE};
use crate::sim::executable::{AUTO_FREE, Cycle, Part, Snapshot};
use crate::sim::graph::{Action, Owner};
use crate::sim::sched::Work;
use crate::sim::session::{Session, session};
use crate::sim::state::State;
use std::ffi::c_char;

/// `CUgraphInstantiate_flags`, but for freeing.
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const NODE_PRIORITY: u64 = 8;

/// `CUgraphInstantiateResult`.
const SUCCESS: u32 = 0;
const ERROR: u32 = 1;
const INVALID_STRUCTURE: u32 = 2;
const NOT_FOR_DEVICE: u32 = 3;
const HANDLE_UNUSED: u32 = 5;

/// `CUgraphExecUpdateResult`.
const TOPOLOGY_CHANGED: u32 = 2;
const TYPE_CHANGED: u32 = 3;
const PARAMETERS_CHANGED: u32 = 5;
const UPDATE_NOT_SUPPORTED: u32 = 6;
const FUNCTION_CHANGED: u32 = 7;

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`; the last two are the driver's answer.
#[repr(C)]
#[derive(Clone, Copy)]
struct InstantiateParams {
    flags: u64,
    stream: u64,
    node: u64,
    result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UpdateResult {
    result: u32,
    node: u64,
    from: u64,
}

/// Why there is no executable: a `CUgraphInstantiateResult`, and the node at fault.
struct Refusal(u32, u64);

fn make(s: &mut Session, graph: u64, flags: u64) -> Result<u64, Refusal> {
    let given = s.graph(graph).map_err(|_| Refusal(ERROR, 0))?;
    let (id, others) = (given.id, given.executables);
    let known = AUTO_FREE | DEVICE_LAUNCH | NODE_PRIORITY;
    let both = AUTO_FREE | DEVICE_LAUNCH;
    if given.owner != Owner::Application
        || s.is_being_captured(graph)
        || flags & !known != 0
        || flags & both == both
    {
        return Err(Refusal(ERROR, 0));
    }
    let single = |action: &Action| action.is_memory() || matches!(action, Action::Conditional(_));
    if others > 0 && s.any_node(graph, &single) {
        return Err(Refusal(ERROR, 0));
    }
    if flags & DEVICE_LAUNCH != 0
        && let Some(node) = s
            .graph(graph)
            .ok()
            .and_then(|given| not_for_device(s, &given.nodes))
    {
        return Err(Refusal(NOT_FOR_DEVICE, node));
    }
    if s.conditions
        .values()
        .any(|condition| condition.graph == id && !condition.used)
    {
        return Err(Refusal(HANDLE_UNUSED, 0));
    }
    s.instantiate(graph, flags)
        .map_err(|Cycle(node)| Refusal(INVALID_STRUCTURE, node))
}

/// As `cuda.h` says of graphs for launches by the device: kernels, copies, fills and child graphs only.
fn not_for_device(s: &State, nodes: &[u64]) -> Option<u64> {
    let fits = |node: &&u64| {
        s.node(**node)
            .is_ok_and(|node| node.action.kind() <= GRAPH && node.action.kind() != 3)
    };
    nodes.iter().find(|node| !fits(node)).copied()
}

fn instantiate(exec: Out<u64>, graph: u64, flags: u64) -> Status {
    session(|s| {
        exec.wanted()?;
        let made = make(s, graph, flags).map_err(|_| INVALID_VALUE)?;
        exec.put(made)
    })
}

/// The first interface, which has a place for a node at fault and for text.
fn instantiate_told(
    exec: Out<u64>,
    graph: u64,
    node: Out<u64>,
    log: Out<c_char>,
    size: usize,
) -> Status {
    session(|s| {
        exec.wanted()?;
        if size > 0 {
            log.put_if_wanted(0);
        }
        match make(s, graph, 0) {
            Ok(made) => exec.put(made),
            Err(Refusal(_, at)) => {
                node.put_if_wanted(at);
                Err(INVALID_VALUE)
            }
        }
    })
}

fn instantiate_with(
    exec: Out<u64>,
    graph: u64,
    params: Out<InstantiateParams>,
    per_thread: bool,
) -> Status {
    let given = In(params.0.cast_const()).get()?;
    session(|s| {
        exec.wanted()?;
        let (code, node, result) = match make(s, graph, given.flags & !UPLOAD) {
            Ok(made) => {
                exec.put(made)?;
                (Ok(()), 0, SUCCESS)
            }
            Err(Refusal(result, node)) => (Err(INVALID_VALUE), node, result),
        };
        params.put(InstantiateParams {
            node,
            result,
            ..given
        })?;
        code?;
        if given.flags & UPLOAD != 0 {
            upload(s, given.stream, per_thread)?;
        }
        Ok(())
    })
}

/// An upload takes its place in the stream; there is nothing to be brought anywhere.
fn upload(s: &mut Session, stream: u64, per_thread: bool) -> Status {
    let lane = s.lane(stream, per_thread)?;
    s.not_captured(lane)?;
    s.submit(lane, Vec::new(), Work::Marker);
    s.submitted();
    Ok(())
}

fn launch(exec: u64, stream: u64, per_thread: bool) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        s.executable(exec)?;
        if let Some(capture) = s.capturing(lane)? {
            let snapshot = s.executable(exec)?.snapshot.clone();
            let graph = s.graph_of(&snapshot)?;
            return s
                .capture_node(capture, lane, Action::Child(graph))
                .map(|_| ());
        }
        s.launch(exec, lane)?;
        s.submitted();
        Ok(())
    })
}

/// The part of an executable that was made of a node which is still there.
fn part<T>(exec: u64, node: u64, act: impl FnOnce(&mut Session, &Part) -> Status<T>) -> Status<T> {
    session(|s| {
        let id = s.node(node)?.id;
        let part = s
            .executable(exec)?
            .snapshot
            .part(id)
            .ok_or(INVALID_VALUE)?
            .clone();
        act(s, &part)
    })
}

fn change(exec: u64, node: u64, act: impl FnOnce(&mut Part)) -> Status {
    session(|s| {
        let id = s.node(node)?.id;
        act(s
            .executable(exec)?
            .change()
            .part_mut(id)
            .ok_or(INVALID_VALUE)?);
        Ok(())
    })
}

/// Replaces what a node does in later launches.
fn set(exec: u64, node: u64, make: impl FnOnce(&State) -> Status<Action>) -> Status {
    let action = part(exec, node, |s, part| {
        let action = make(s)?;
        compatible(&part.action, &action).map_err(|_| INVALID_VALUE)?;
        Ok(action)
    })?;
    change(exec, node, |part| part.action = action)
}

fn set_described(exec: u64, node: u64, params: In<impl Describes>) -> Status {
    let params = params.get()?;
    set(exec, node, |s| params.action(s))
}

fn set_event(exec: u64, node: u64, event: u64, action: fn(u64) -> Action) -> Status {
    set(exec, node, |s| s.check_event(event).map(|()| action(event)))
}

fn set_child(exec: u64, node: u64, child: u64) -> Status {
    session(|s| {
        let id = s.node(node)?.id;
        s.graph(child)?;
        let new = s.snapshot(child).map_err(|_| INVALID_VALUE)?;
        let part = s
            .executable(exec)?
            .change()
            .part_mut(id)
            .ok_or(INVALID_VALUE)?;
        match part.inside.as_mut_slice() {
            [old] if matches!(part.action, Action::Child(_)) => {
                update(old, &new).map_err(|_| INVALID_VALUE)
            }
            _ => Err(INVALID_VALUE),
        }
    })
}

/// Whether an executable's node may do `new` instead: a `CUgraphExecUpdateResult`.
fn compatible(old: &Action, new: &Action) -> Result<(), u32> {
    match (old, new) {
        (old, new) if old.kind() != new.kind() => Err(TYPE_CHANGED),
        (Action::Kernel(old), Action::Kernel(new)) if old.context != new.context => {
            Err(FUNCTION_CHANGED)
        }
        (Action::Copy(old), Action::Copy(new)) => {
            // Arrays stay arrays, and other memory stays that.
            let arrays = |copy: &Copy3d| [copy.source.kind, copy.target.kind].map(|kind| kind == 3);
            if arrays(&old.params) == arrays(&new.params) {
                Ok(())
            } else {
                Err(PARAMETERS_CHANGED)
            }
        }
        (Action::Signal(old), Action::Signal(new))
        | (Action::AwaitSignal(old), Action::AwaitSignal(new))
            if old.handles.len() != new.handles.len() =>
        {
            Err(PARAMETERS_CHANGED)
        }
        (Action::Allocate(old, ..), Action::Allocate(new, ..))
        | (Action::Free(old), Action::Free(new))
            if old != new =>
        {
            Err(UPDATE_NOT_SUPPORTED)
        }
        (Action::Conditional(old), Action::Conditional(new))
            if (old.when, old.handle, old.bodies.len())
                != (new.when, new.handle, new.bodies.len()) =>
        {
            Err(PARAMETERS_CHANGED)
        }
        _ => Ok(()),
    }
}

/// Why an update is refused: the result, the identity of the new graph's node, and of the one that an edge comes from.
type Mismatch = (u32, Option<u64>, Option<u64>);

/// The two graphs have the same shape, and each node may do what its counterpart does. Nodes are paired in the order in
/// which they were added.
fn matches(old: &Snapshot, new: &Snapshot) -> Result<(), Mismatch> {
    if old.parts.len() != new.parts.len() {
        return Err((TOPOLOGY_CHANGED, None, None));
    }
    for (before, after) in old.parts.iter().zip(&new.parts) {
        let id = Some(after.id);
        compatible(&before.action, &after.action).map_err(|result| (result, id, None))?;
        let sorted = |part: &Part| {
            let mut needs = part.needs.clone();
            needs.sort_unstable();
            needs
        };
        let (needed, needs) = (sorted(before), sorted(after));
        if needed != needs {
            let odd = needs
                .iter()
                .find(|need| needed.len() == needs.len() && !needed.contains(need));
            let from = odd.and_then(|&(from, _)| new.parts.get(from));
            return Err((TOPOLOGY_CHANGED, id, from.map(|from| from.id)));
        }
        before
            .inside
            .iter()
            .zip(&after.inside)
            .try_for_each(|(old, new)| matches(old, new))?;
    }
    Ok(())
}

fn take_over(old: &mut Snapshot, new: &Snapshot) {
    for (old, new) in old.parts.iter_mut().zip(&new.parts) {
        // The graphs inside are updated node by node; the executable's own stay named as they are.
        if old.inside.is_empty() {
            old.action = new.action.clone();
        }
        for (old, new) in old.inside.iter_mut().zip(&new.inside) {
            take_over(old, new);
        }
    }
}

/// Makes an executable do what a graph of the same shape does, or leaves it as it is.
fn update(old: &mut Snapshot, new: &Snapshot) -> Result<(), Mismatch> {
    matches(old, new)?;
    take_over(old, new);
    Ok(())
}

fn update_all(exec: u64, graph: u64) -> Status<UpdateResult> {
    session(|s| {
        s.graph(graph)?;
        let refused = UpdateResult {
            result: 1,
            node: 0,
            from: 0,
        };
        s.executable(exec)?;
        let Ok(new) = s.snapshot(graph) else {
            return Ok(refused);
        };
        Ok(match update(s.executable(exec)?.change(), &new) {
            Ok(()) => UpdateResult {
                result: 0,
                ..refused
            },
            Err((result, node, from)) => {
                let handle = |id: Option<u64>| {
                    let mut nodes = s.nodes.iter().filter(|(_, node)| Some(node.id) == id);
                    nodes.next().map_or(0, |(handle, _)| handle)
                };
                UpdateResult {
                    result,
                    node: handle(node),
                    from: handle(from),
                }
            }
        })
    })
}

fn outcome(result: u32) -> Status {
    if result == 0 {
        Ok(())
    } else {
        Err(GRAPH_UPDATE_FAILURE)
    }
}

api! {
    "cuGraphInstantiate" 10000 => cuGraphInstantiate(exec: Out<u64>, graph: u64, node: Out<u64>, log: Out<c_char>,
                                                     size: usize) {
        instantiate_told(exec, graph, node, log, size)
    }
    "cuGraphInstantiate" 11000 => cuGraphInstantiate_v2(exec: Out<u64>, graph: u64, node: Out<u64>, log: Out<c_char>,
                                                        size: usize) {
        instantiate_told(exec, graph, node, log, size)
    }
    "cuGraphInstantiateWithFlags" 11040 => cuGraphInstantiateWithFlags(exec: Out<u64>, graph: u64, flags: u64) {
        instantiate(exec, graph, flags)
    }
    "cuGraphInstantiateWithParams" 12000 => cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz |per_thread|
                                            (exec: Out<u64>, graph: u64, params: Out<InstantiateParams>) {
        instantiate_with(exec, graph, params, per_thread)
    }
    "cuGraphExecDestroy" 10000 => cuGraphExecDestroy(exec: u64) {
        session(|s| {
            s.remove_executable(exec)?;
            // A user object may be due to be destroyed.
            s.submitted();
            Ok(())
        })
    }
    "cuGraphExecGetFlags" 12000 => cuGraphExecGetFlags(exec: u64, flags: Out<u64>) {
        session(|s| flags.put(s.executable(exec)?.flags))
    }
    "cuGraphExecGetId" 13010 => cuGraphExecGetId(exec: u64, id: Out<u32>) {
        session(|s| id.put(s.executable(exec)?.id as u32))
    }
    "cuGraphUpload" 11010 => cuGraphUpload / cuGraphUpload_ptsz |per_thread| (exec: u64, stream: u64) {
        session(|s| {
            s.executable(exec)?;
            upload(s, stream, per_thread)
        })
    }
    "cuGraphLaunch" 10000 => cuGraphLaunch / cuGraphLaunch_ptsz |per_thread| (exec: u64, stream: u64) {
        launch(exec, stream, per_thread)
    }

    "cuGraphExecUpdate" 10020 => cuGraphExecUpdate(exec: u64, graph: u64, node: Out<u64>, result: Out<u32>) {
        let told = update_all(exec, graph)?;
        node.put_if_wanted(told.node);
        result.put_if_wanted(told.result);
        outcome(told.result)
    }
    "cuGraphExecUpdate" 12000 => cuGraphExecUpdate_v2(exec: u64, graph: u64, result: Out<UpdateResult>) {
        let told = update_all(exec, graph)?;
        result.put_if_wanted(told);
        outcome(told.result)
    }
    "cuGraphExecNodeSetParams" 12020 => cuGraphExecNodeSetParams(exec: u64, node: u64, params: In<NodeParams>) {
        let given = params.get()?;
        if given.kind == GRAPH {
            return set_child(exec, node, given.child()?);
        }
        set_described(exec, node, params)
    }
    "cuGraphExecKernelNodeSetParams" 10010 => cuGraphExecKernelNodeSetParams(exec: u64, node: u64,
                                                                             params: In<KernelParams1>) {
        set_described(exec, node, params)
    }
    "cuGraphExecKernelNodeSetParams" 12000 => cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64,
                                                                                params: In<KernelParams>) {
        set_described(exec, node, params)
    }
    "cuGraphExecMemcpyNodeSetParams" 10020 => cuGraphExecMemcpyNodeSetParams(exec: u64, node: u64, params: In<Copy3d>,
                                                                             context: u64) {
        set_described(exec, node, In(&CopyIn(params.get()?, context)))
    }
    "cuGraphExecMemsetNodeSetParams" 10020 => cuGraphExecMemsetNodeSetParams(exec: u64, node: u64,
                                                                             params: In<FillParams1>, context: u64) {
        set_described(exec, node, In(&FillIn(params.get()?, context)))
    }
    "cuGraphExecHostNodeSetParams" 10020 => cuGraphExecHostNodeSetParams(exec: u64, node: u64, params: In<HostParams1>) {
        set_described(exec, node, params)
    }
    "cuGraphExecChildGraphNodeSetParams" 11010 => cuGraphExecChildGraphNodeSetParams(exec: u64, node: u64, child: u64) {
        set_child(exec, node, child)
    }
    "cuGraphExecEventRecordNodeSetEvent" 11010 => cuGraphExecEventRecordNodeSetEvent(exec: u64, node: u64, event: u64) {
        set_event(exec, node, event, Action::RecordEvent)
    }
    "cuGraphExecEventWaitNodeSetEvent" 11010 => cuGraphExecEventWaitNodeSetEvent(exec: u64, node: u64, event: u64) {
        set_event(exec, node, event, Action::WaitEvent)
    }
    "cuGraphExecExternalSemaphoresSignalNodeSetParams" 11020 => cuGraphExecExternalSemaphoresSignalNodeSetParams(
        exec: u64, node: u64, params: In<SemaphoresParams>) {
        set_described(exec, node, In(&Signals(params.get()?)))
    }
    "cuGraphExecExternalSemaphoresWaitNodeSetParams" 11020 => cuGraphExecExternalSemaphoresWaitNodeSetParams(
        exec: u64, node: u64, params: In<SemaphoresParams>) {
        set_described(exec, node, In(&Awaits(params.get()?)))
    }
    "cuGraphExecBatchMemOpNodeSetParams" 11070 => cuGraphExecBatchMemOpNodeSetParams(exec: u64, node: u64,
                                                                                     params: In<ValuesParams>) {
        set_described(exec, node, params)
    }
    "cuGraphNodeSetEnabled" 11060 => cuGraphNodeSetEnabled(exec: u64, node: u64, enabled: u32) {
        // "The following node types are currently supported: Kernel, Memset, Memcpy".
        part(exec, node, |_, part| if part.action.kind() < 3 { Ok(()) } else { Err(INVALID_VALUE) })?;
        change(exec, node, |part| part.enabled = enabled != 0)
    }
    "cuGraphNodeGetEnabled" 11060 => cuGraphNodeGetEnabled(exec: u64, node: u64, enabled: Out<u32>) {
        part(exec, node, |_, part| match part.action.kind() {
            0..3 => enabled.put(u32::from(part.enabled)),
            _ => Err(INVALID_VALUE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys as theirs;
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_nvidias() {
        type Instantiate = theirs::CUDA_GRAPH_INSTANTIATE_PARAMS_st;
        assert_eq!(size_of::<InstantiateParams>(), size_of::<Instantiate>());
        assert_eq!(
            offset_of!(InstantiateParams, result),
            offset_of!(Instantiate, result_out)
        );
        type Update = theirs::CUgraphExecUpdateResultInfo_st;
        assert_eq!(size_of::<UpdateResult>(), size_of::<Update>());
        assert_eq!(
            offset_of!(UpdateResult, from),
            offset_of!(Update, errorFromNode)
        );
    }
}
