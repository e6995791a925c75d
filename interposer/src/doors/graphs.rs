//! CUDA graphs, as far as they are seen into: captures are kept apart from work
//! that runs, launches are counted and take their place in their stream.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::unseen_order::{event_recorded, stream_waits};
use crate::call::Call;
use crate::capture;
use crate::hook::{Hook, hooks};
use crate::thread::Origin;

/// Whether any graph has a node that waits for an event of the outside.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Some graph waits, when launched, for something outside of it.
pub(super) fn graph_waits() {
    WAITS.store(true, Relaxed);
}

fn launched(call: &Call, stream: usize) {
    call.blind_spot("graph-launch", call.hook.api());
    if WAITS.load(Relaxed) {
        stream_waits(call, stream);
    }
    call.unseen_work(stream);
}

/// The end of a capture, through `real`.
fn end(hook: &'static Hook, origin: Origin, real: impl FnOnce() -> u32) -> u32 {
    let call = Call::enter(hook, origin);
    let status = real();
    if call.is_some() && capture::is_over(status) {
        capture::ended();
    }
    status
}

hooks! { Runtime:
    /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz: (stream: usize, mode: u32) after(call) {
        let _ = (call, stream, mode);
        capture::begun();
    }
    /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
    fn cudaStreamBeginCaptureToGraph | cudaStreamBeginCaptureToGraph_ptsz: (
        stream: usize, graph: usize, dependencies: usize, data: usize, count: usize, mode: u32,
    ) after(call) {
        let _ = (call, stream, graph, dependencies, data, count, mode);
        capture::begun();
    }
    /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
    fn cudaStreamBeginRecaptureToGraph | cudaStreamBeginRecaptureToGraph_ptsz: (
        stream: usize, mode: u32, graph: usize, data: usize,
    ) after(call) {
        let _ = (call, stream, mode, graph, data);
        capture::begun();
    }
    /// The stream's work is its own again
    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz: (stream: usize, graph: *mut usize) whole(hook, real, origin) {
        end(hook, origin, || real(stream, graph))
    }
    /// Takes its place in its stream; what it does is a blind spot
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz: (graph: usize, stream: usize) after(call) {
        let _ = graph;
        launched(call, stream);
    }
    /// Takes its place in its stream
    fn cudaGraphUpload | cudaGraphUpload_ptsz: (graph: usize, stream: usize) after(call) {
        let _ = graph;
        call.unseen_work(stream);
    }
    /// The event's record is unknown from here on
    fn cudaGraphAddEventRecordNode: (
        node: usize, graph: usize, dependencies: usize, count: usize, event: usize,
    ) after(call) {
        let _ = (node, graph, dependencies, count);
        event_recorded(call, event);
    }
    /// Later launches of graphs come after everything
    fn cudaGraphAddEventWaitNode: (
        node: usize, graph: usize, dependencies: usize, count: usize, event: usize,
    ) after(call) {
        let _ = (call, node, graph, dependencies, count, event);
        graph_waits();
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        // Before CUDA 10.1 it took no mode.
        /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
        fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz: (stream: usize) after(call) {
            let _ = (call, stream);
            capture::begun();
        }
        /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
        fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz: (stream: usize, mode: u32) after(call) {
            let _ = (call, stream, mode);
            capture::begun();
        }
        /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
        fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz: (
            stream: usize, graph: usize, dependencies: usize, data: usize, count: usize, mode: u32,
        ) after(call) {
            let _ = (call, stream, graph, dependencies, data, count, mode);
            capture::begun();
        }
        /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
        fn cuStreamBeginRecaptureToGraph | cuStreamBeginRecaptureToGraph_ptsz: (
            stream: usize, mode: u32, graph: usize, callback: usize, data: usize,
        ) after(call) {
            let _ = (call, stream, mode, graph, callback, data);
            capture::begun();
        }
        /// The stream's work is a graph's until the capture ends, and is counted as a blind spot
        fn cuStreamBeginCaptureToCig | cuStreamBeginCaptureToCig_ptsz: (stream: usize, parameters: usize) after(call) {
            let _ = (call, stream, parameters);
            capture::begun();
        }
        /// The stream's work is its own again
        fn cuStreamEndCapture | cuStreamEndCapture_ptsz: (stream: usize, graph: *mut usize) whole(hook, real, origin) {
            end(hook, origin, || real(stream, graph))
        }
        /// The stream's work is its own again
        fn cuStreamEndCaptureToCig | cuStreamEndCaptureToCig_ptsz: (stream: usize) whole(hook, real, origin) {
            end(hook, origin, || real(stream))
        }
        /// Takes its place in its stream; what it does is a blind spot
        fn cuGraphLaunch | cuGraphLaunch_ptsz: (graph: usize, stream: usize) after(call) {
            let _ = graph;
            launched(call, stream);
        }
        /// Takes its place in its stream
        fn cuGraphUpload | cuGraphUpload_ptsz: (graph: usize, stream: usize) after(call) {
            let _ = graph;
            call.unseen_work(stream);
        }
        /// The event's record is unknown from here on
        fn cuGraphAddEventRecordNode: (
            node: usize, graph: usize, dependencies: usize, count: usize, event: usize,
        ) after(call) {
            let _ = (node, graph, dependencies, count);
            event_recorded(call, event);
        }
        /// Later launches of graphs come after everything
        fn cuGraphAddEventWaitNode: (
            node: usize, graph: usize, dependencies: usize, count: usize, event: usize,
        ) after(call) {
            let _ = (call, node, graph, dependencies, count, event);
            graph_waits();
        }
    }
}
