//! Linear copies, with NVIDIA's rules of which calls wait ("API synchronization behavior" of the driver manual).

use crate::abi::{Copy3d, Copy3dSide, Status};
use crate::error::INVALID_CONTEXT;
use crate::sim::graph::{Action, CopyNode};
use crate::sim::memory::Place;
use crate::sim::sched::Work;
use crate::sim::session::{Session, session};
use crate::sim::state::Lane;
use crate::sim::transfer::{Side, Transfer};

/// `CU_MEMORYTYPE_UNIFIED`: the address tells.
const UNIFIED: u32 = 4;

/// A copy of bytes by address, as a node of a graph is described.
fn described(transfer: Transfer) -> Copy3d {
    let side = |side: Side| Copy3dSide {
        x: 0,
        y: 0,
        z: 0,
        lod: 0,
        kind: UNIFIED,
        host: 0,
        device: side.address,
        array: 0,
        context: 0,
        pitch: side.pitch,
        height: side.layer.checked_div(side.pitch).unwrap_or(0),
    };
    Copy3d {
        source: side(transfer.source),
        target: side(transfer.target),
        extent: [transfer.width, transfer.height, transfer.depth],
    }
}

/// Submits a copy and waits as far as its kind demands. `waits`: the call is the synchronous flavour; `params`: the
/// call's own description, where it has one.
pub(super) fn copy(
    s: &mut Session,
    lane: Lane,
    transfer: Transfer,
    waits: bool,
    params: Option<Copy3d>,
) -> Status {
    let capture = s.capturing_unless(waits, lane)?;
    let target = s.place(transfer.target.address, transfer.extent(transfer.target))?;
    let source = s.place(transfer.source.address, transfer.extent(transfer.source))?;
    if transfer.is_empty() {
        return Ok(());
    }
    let on_device = |place| matches!(place, Place::Device | Place::Managed);
    if let Some(capture) = capture {
        // Nothing is staged, and nobody waits: the graph's launches read and write host memory too.
        let copy = CopyNode {
            transfer,
            params: params.unwrap_or_else(|| described(transfer)),
            context: lane.context,
        };
        return s
            .capture_node(capture, lane, Action::Copy(Box::new(copy)))
            .map(|_| ());
    }
    if source == Place::Pageable && on_device(target) {
        // Staged: the source may be reused on return, and the transfer to the device may still be pending.
        if waits {
            let before = s.sched.past(lane.id);
            s.run_to(before.point);
        }
        let bring = transfer.stage()?;
        s.submit(lane, Vec::new(), Work::Device(Box::new(bring)));
        s.submitted();
        return Ok(());
    }
    let point = s.submit(
        lane,
        Vec::new(),
        Work::Device(Box::new(move || transfer.run())),
    );
    s.submitted();
    let host_waits = match (target, source) {
        (Place::Device, Place::Device) => false,
        (Place::Pageable, _) => waits || !super::device::coherent(),
        (to, from) if !on_device(to) && !on_device(from) => true,
        _ => waits,
    };
    if host_waits {
        s.run_to(point);
    }
    Ok(())
}

/// Both contexts must be there.
pub(super) fn are_contexts(s: &Session, contexts: [u64; 2]) -> Status {
    if contexts
        .iter()
        .all(|&context| s.contexts.get(context).is_some())
    {
        Ok(())
    } else {
        Err(INVALID_CONTEXT)
    }
}

fn linear(
    target: u64,
    source: u64,
    length: usize,
    stream: u64,
    per_thread: bool,
    waits: bool,
) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        copy(
            s,
            lane,
            Transfer::linear(target, source, length),
            waits,
            None,
        )
    })
}

fn between_peers(
    (target, target_context): (u64, u64),
    (source, source_context): (u64, u64),
    length: usize,
    (stream, per_thread, waits): (u64, bool, bool),
) -> Status {
    session(|s| {
        are_contexts(s, [target_context, source_context])?;
        let lane = s.lane(stream, per_thread)?;
        copy(
            s,
            lane,
            Transfer::linear(target, source, length),
            waits,
            None,
        )
    })
}

api! {
    "cuMemcpy" 4000 => cuMemcpy / cuMemcpy_ptds |per_thread| (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyHtoD" 3020 => cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds |per_thread|
                           (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyDtoH" 3020 => cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds |per_thread|
                           (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyDtoD" 3020 => cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds |per_thread|
                           (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyPeer" 4000 => cuMemcpyPeer / cuMemcpyPeer_ptds |per_thread|
                           (target: u64, target_context: u64, source: u64, source_context: u64, length: usize) {
        between_peers((target, target_context), (source, source_context), length, (0, per_thread, true))
    }

    "cuMemcpyAsync" 4000 => cuMemcpyAsync / cuMemcpyAsync_ptsz |per_thread|
                            (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyHtoDAsync" 3020 => cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz |per_thread|
                                (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyDtoHAsync" 3020 => cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz |per_thread|
                                (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyDtoDAsync" 3020 => cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz |per_thread|
                                (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyPeerAsync" 4000 => cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz |per_thread|
                                (target: u64, target_context: u64, source: u64, source_context: u64, length: usize,
                                 stream: u64) {
        between_peers((target, target_context), (source, source_context), length, (stream, per_thread, false))
    }
}
