//! Launches of executable graphs.

use streamcheck_model::{Action, Handle};

use crate::call::Call;
use crate::hook::hooks;

fn launched(call: &Call, exec: usize, stream: usize) {
    call.record_on(stream, |stream| Action::GraphLaunched {
        stream,
        exec: Handle(exec as u64),
    });
}

hooks! { Runtime:
    /// Does what the nodes do, in stream order and behind the graph's earlier launches
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz: (exec: usize, stream: usize) after(call) {
        launched(call, exec, stream);
    }
    /// Takes its place in its stream
    fn cudaGraphUpload | cudaGraphUpload_ptsz: (exec: usize, stream: usize) after(call) {
        let _ = exec;
        call.unseen_work(stream);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// Does what the nodes do, in stream order and behind the graph's earlier launches
        fn cuGraphLaunch | cuGraphLaunch_ptsz: (exec: usize, stream: usize) after(call) {
            launched(call, exec, stream);
        }
        /// Takes its place in its stream
        fn cuGraphUpload | cuGraphUpload_ptsz: (exec: usize, stream: usize) after(call) {
            let _ = exec;
            call.unseen_work(stream);
        }
    }
}
