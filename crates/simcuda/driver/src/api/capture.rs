//! Stream capture.

use crate::abi::{In, Out, Status};
use crate::error::{ILLEGAL_STATE, INVALID_VALUE, LOSSY_QUERY};
use crate::sim::capture::{CaptureState, RELAXED, Tips};
use crate::sim::graph::{Edge, WHOLE};
use crate::sim::session::{self, session};

/// `CUstreamCaptureStatus`.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

/// `CUstreamUpdateCaptureDependencies_flags`.
const ADD: u32 = 0;
const SET: u32 = 1;

fn status_of(state: CaptureState) -> u32 {
    match state {
        CaptureState::No => NONE,
        CaptureState::Active(_) => ACTIVE,
        CaptureState::Invalid => INVALIDATED,
    }
}

/// Nodes, each with the edge from it; whole ones where the caller names none.
pub(super) fn edges(nodes: In<u64>, edges: In<Edge>, count: usize) -> Status<Tips> {
    let nodes = nodes.list(count)?;
    let edges = if edges.0.is_null() {
        vec![WHOLE; count]
    } else {
        edges.list(count)?
    };
    Ok(nodes.into_iter().zip(edges).collect())
}

/// Where a caller wants to know about a capture.
struct Info {
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<*const u64>,
    edges: Out<*const Edge>,
    count: Out<usize>,
}

impl Info {
    const NONE: Self = Self {
        id: Out(std::ptr::null_mut()),
        graph: Out(std::ptr::null_mut()),
        nodes: Out(std::ptr::null_mut()),
        edges: Out(std::ptr::null_mut()),
        count: Out(std::ptr::null_mut()),
    };
}

fn info(stream: u64, per_thread: bool, status: Out<u32>, info: Info) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        let state = s.capture_state(lane)?;
        status.put(status_of(state))?;
        let CaptureState::Active(id) = state else {
            return Ok(());
        };
        if !info.edges.0.is_null() && info.nodes.0.is_null() {
            return Err(INVALID_VALUE);
        }
        let tips = s.capture_tips(id, lane.id);
        let told = info.nodes.0.is_null() || !info.edges.0.is_null();
        if !told && tips.iter().any(|&(_, edge)| edge != WHOLE) {
            return Err(LOSSY_QUERY);
        }
        info.id.put_if_wanted(id);
        info.graph.put_if_wanted(s.captured_graph(id)?);
        let (nodes, edges, count) = s.show_tips(id, lane.id)?;
        info.nodes.put_if_wanted(nodes);
        info.edges.put_if_wanted(edges);
        info.count.put_if_wanted(count);
        Ok(())
    })
}

fn update(stream: u64, per_thread: bool, given: Tips, flags: u32) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        let id = s.capturing(lane)?.ok_or(ILLEGAL_STATE)?;
        s.check_edges(s.captured_graph(id)?, &given)?;
        let mut tips = match flags {
            ADD => s.capture_tips(id, lane.id),
            SET => Vec::new(),
            _ => return Err(INVALID_VALUE),
        };
        for (node, edge) in given {
            tips.retain(|&(tip, _)| tip != node);
            tips.push((node, edge));
        }
        s.set_tips(id, lane.id, tips);
        Ok(())
    })
}

fn begin(stream: u64, per_thread: bool, mode: u32, graph: Option<(u64, Tips)>) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        s.begin_capture(lane, mode, graph)
    })
}

api! {
    "cuStreamBeginCapture" 10000 => cuStreamBeginCapture / cuStreamBeginCapture_ptsz |per_thread| (stream: u64) {
        begin(stream, per_thread, 0, None)
    }
    "cuStreamBeginCapture" 10010 => cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz |per_thread|
                                    (stream: u64, mode: u32) {
        begin(stream, per_thread, mode, None)
    }
    "cuStreamBeginCaptureToGraph" 12030 => cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz |per_thread|
                                           (stream: u64, graph: u64, nodes: In<u64>, data: In<Edge>, count: usize,
                                            mode: u32) {
        begin(stream, per_thread, mode, Some((graph, edges(nodes, data, count)?)))
    }
    "cuStreamEndCapture" 10000 => cuStreamEndCapture / cuStreamEndCapture_ptsz |per_thread|
                                  (stream: u64, graph: Out<u64>) {
        session(|s| {
            let lane = s.lane(stream, per_thread)?;
            let ended = s.end_capture(lane);
            graph.put_if_wanted(ended.unwrap_or(0));
            ended.map(|_| ())
        })
    }
    "cuStreamIsCapturing" 10000 => cuStreamIsCapturing / cuStreamIsCapturing_ptsz |per_thread|
                                   (stream: u64, status: Out<u32>) {
        info(stream, per_thread, status, Info::NONE)
    }
    "cuStreamGetCaptureInfo" 10010 => cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz |per_thread|
                                      (stream: u64, status: Out<u32>, id: Out<u64>) {
        info(stream, per_thread, status, Info { id, ..Info::NONE })
    }
    "cuStreamGetCaptureInfo" 11030 => cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz |per_thread|
                                      (stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>,
                                       nodes: Out<*const u64>, count: Out<usize>) {
        info(stream, per_thread, status, Info { id, graph, nodes, count, ..Info::NONE })
    }
    "cuStreamGetCaptureInfo" 12030 => cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz |per_thread|
                                      (stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>,
                                       nodes: Out<*const u64>, edges: Out<*const Edge>, count: Out<usize>) {
        info(stream, per_thread, status, Info { id, graph, nodes, edges, count })
    }
    "cuStreamUpdateCaptureDependencies" 11030 =>
        cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz |per_thread|
        (stream: u64, nodes: In<u64>, count: usize, flags: u32) {
        update(stream, per_thread, edges(nodes, In(std::ptr::null()), count)?, flags)
    }
    "cuStreamUpdateCaptureDependencies" 12030 =>
        cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz |per_thread|
        (stream: u64, nodes: In<u64>, data: In<Edge>, count: usize, flags: u32) {
        update(stream, per_thread, edges(nodes, data, count)?, flags)
    }
    "cuThreadExchangeStreamCaptureMode" 10010 => cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        let wanted = In(mode.0.cast_const()).get()?;
        if wanted > RELAXED {
            return Err(INVALID_VALUE);
        }
        mode.put(session::exchange_capture_mode(wanted))
    }
}
