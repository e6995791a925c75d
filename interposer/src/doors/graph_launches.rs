//! Launches of executable graphs.

use streamcheck_model::{Action, Handle};

use super::host_functions;
use crate::call::{Call, host_memory_was_released};
use crate::hook::{Hook, hooks};
use crate::recorder;
use crate::thread::Origin;

/// A launch. It is recorded before the real call where that may not return, or where its host
/// functions may begin ahead of its return. If it returns
/// without success, nothing is taken back.
fn launch(
    hook: &'static Hook,
    origin: Origin,
    (exec, stream): (usize, usize),
    real: impl FnOnce() -> u32,
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        return real();
    };
    let mut recorded = false;
    call.finish(|call| {
        let exec = Handle(exec as u64);
        // Only then is there anything to ask under the lock.
        recorded = host_memory_was_released() && recorder::uses_released_host_memory(exec)
            || host_functions::any_captured() && recorder::calls_host_functions(exec);
        if recorded {
            launched(call, exec, stream);
        }
    });
    let status = real();
    if status == 0 && !recorded {
        call.finish(|call| launched(call, Handle(exec as u64), stream));
    }
    status
}

fn launched(call: &Call, exec: Handle, stream: usize) {
    call.record_on(stream, |stream| Action::GraphLaunched { stream, exec });
}

hooks! { Runtime:
    /// Does what the nodes do, in stream order and behind the graph's earlier launches
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz: (exec: usize, stream: usize) whole(hook, real, origin) {
        launch(hook, origin, (exec, stream), || real(exec, stream))
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
        fn cuGraphLaunch | cuGraphLaunch_ptsz: (exec: usize, stream: usize) whole(hook, real, origin) {
            launch(hook, origin, (exec, stream), || real(exec, stream))
        }
        /// Takes its place in its stream
        fn cuGraphUpload | cuGraphUpload_ptsz: (exec: usize, stream: usize) after(call) {
            let _ = exec;
            call.unseen_work(stream);
        }
    }
}
