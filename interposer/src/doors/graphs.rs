//! CUDA graphs, as far as they are seen into: captures are kept apart from work
//! that runs, launches are counted.

use crate::capture;
use crate::hook::hooks;

hooks! { Runtime:
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz: (stream: usize, mode: u32) after(call) {
        let _ = (call, stream, mode);
        capture::begun();
    }
    fn cudaStreamBeginCaptureToGraph | cudaStreamBeginCaptureToGraph_ptsz: (
        stream: usize, graph: usize, dependencies: usize, data: usize, count: usize, mode: u32,
    ) after(call) {
        let _ = (call, stream, graph, dependencies, data, count, mode);
        capture::begun();
    }
    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz: (stream: usize, graph: *mut usize) whole(hook, real, origin) {
        // A capture that became invalid ends with an error, but it ends.
        let call = crate::call::Call::enter(hook, origin);
        let status = real(stream, graph);
        if call.is_some() {
            capture::ended();
        }
        status
    }
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz: (graph: usize, stream: usize) after(call) {
        let _ = (graph, stream);
        call.blind_spot("graph-launch", call.hook.api());
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz: (stream: usize, mode: u32) after(call) {
            let _ = (call, stream, mode);
            capture::begun();
        }
        fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz: (
            stream: usize, graph: usize, dependencies: usize, data: usize, count: usize, mode: u32,
        ) after(call) {
            let _ = (call, stream, graph, dependencies, data, count, mode);
            capture::begun();
        }
        fn cuStreamEndCapture | cuStreamEndCapture_ptsz: (stream: usize, graph: *mut usize) whole(hook, real, origin) {
            let call = crate::call::Call::enter(hook, origin);
            let status = real(stream, graph);
            if call.is_some() {
                capture::ended();
            }
            status
        }
        fn cuGraphLaunch | cuGraphLaunch_ptsz: (graph: usize, stream: usize) after(call) {
            let _ = (graph, stream);
            call.blind_spot("graph-launch", call.hook.api());
        }
    }
}
