//! Stream capture: when it begins and ends, and what the application changes of it.

use streamcheck_model::{Action, Handle};

use super::node_work::{count_early, handles};
use crate::call::Call;
use crate::hook::{Hook, hooks, written};
use crate::thread::Origin;
use crate::{capture, provider};

/// What a capture begins with: a stream, the graph that it is added to or 0, and the nodes
/// there that the first captured ones come after, with data of the edges.
struct Beginning {
    stream: usize,
    graph: usize,
    dependencies: (*const usize, EdgeData, usize),
}

impl Beginning {
    /// A capture into a new graph.
    fn new(stream: usize) -> Self {
        Self {
            stream,
            graph: 0,
            dependencies: (core::ptr::null(), core::ptr::null(), 0),
        }
    }

    /// The beginning of a capture, through `real`.
    fn through(self, hook: &'static Hook, origin: Origin, real: impl FnOnce() -> u32) -> u32 {
        let Some(call) = Call::enter(hook, origin) else {
            return real();
        };
        capture::begins();
        let status = real();
        if status != 0 {
            capture::did_not_begin();
            return status;
        }
        call.finish(|call| {
            capture::begun(call, self.stream);
            let (list, data, count) = self.dependencies;
            // SAFETY: the call succeeded with them.
            let dependencies = unsafe {
                count_early(call, data, count);
                handles(list, count)
            };
            call.record_on(self.stream, |stream| Action::CaptureBegun {
                stream,
                graph: Handle(self.graph as u64),
                dependencies,
            });
        });
        status
    }
}

/// The beginning of a capture that takes the place of what is in `graph`, which its end gives
/// again.
fn begin_again(
    hook: &'static Hook,
    origin: Origin,
    stream: usize,
    graph: usize,
    real: impl FnOnce() -> u32,
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        return real();
    };
    capture::begins();
    let status = real();
    if status != 0 {
        capture::did_not_begin();
        return status;
    }
    call.finish(|call| {
        capture::begun(call, stream);
        call.record(Action::GraphDestroyed {
            graph: Handle(graph as u64),
        });
        call.record_on(stream, |stream| Action::CaptureBegun {
            stream,
            graph: Handle::default(),
            dependencies: Vec::new(),
        });
    });
    status
}

/// The end of a capture, through `real`.
fn end(
    hook: &'static Hook,
    origin: Origin,
    stream: usize,
    graph: *const usize,
    real: impl FnOnce() -> u32,
) -> u32 {
    let Some(call) = Call::enter(hook, origin) else {
        return real();
    };
    let status = real();
    if capture::is_over(status) {
        call.finish(|call| {
            let graph = if status == 0 {
                // SAFETY: the call succeeded and wrote the handle.
                unsafe { written(graph) }
            } else {
                0
            };
            call.record_on(stream, |stream| Action::CaptureEnded {
                stream,
                graph: Handle(graph as u64),
            });
            capture::ended(call, stream);
        });
    }
    status
}

/// The next captured node comes after these as well, or after these only.
///
/// # Safety
/// `nodes` are the `count` ones of a call that succeeded, and `data` that of the edges or null.
unsafe fn dependencies(
    call: &Call,
    stream: usize,
    nodes: *const usize,
    (data, count): (EdgeData, usize),
    flags: u32,
) {
    /// `cudaStreamSetCaptureDependencies` (driver_types.h; the driver's is the same).
    const SET: u32 = 1;
    // SAFETY: the caller's promise.
    let nodes = unsafe {
        count_early(call, data, count);
        handles(nodes, count)
    };
    call.record_on(stream, |stream| Action::CaptureDependencies {
        stream,
        nodes,
        replace: flags & SET != 0,
    });
}

/// Data of edges: of each, the ports, the type, and five bytes without meaning.
pub(super) type EdgeData = *const [u8; 8];

/// Whether the runtime's calls that take edges take data of each edge, as since CUDA 13, which
/// before had names with `_v2` that do.
pub(super) fn takes_edge_data(call: &Call) -> bool {
    let mut parts = call.hook.name.to_bytes().windows(3);
    parts.any(|part| part == b"_v2")
        || provider::runtime_version().is_none_or(|version| version >= 13000)
}

hooks! { Runtime:
    /// The stream's work is nodes of a graph until the capture ends
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz: (stream: usize, mode: u32) whole(hook, real, origin) {
        Beginning::new(stream).through(hook, origin, || real(stream, mode))
    }
    /// The stream's work is nodes of that graph until the capture ends
    fn cudaStreamBeginCaptureToGraph | cudaStreamBeginCaptureToGraph_ptsz: (
        stream: usize, graph: usize, dependencies: *const usize, data: EdgeData, count: usize, mode: u32,
    ) whole(hook, real, origin) {
        let beginning = Beginning { stream, graph, dependencies: (dependencies, data, count) };
        beginning.through(hook, origin, || real(stream, graph, dependencies, data, count, mode))
    }
    /// The stream's work is the nodes of that graph until the capture ends
    fn cudaStreamBeginRecaptureToGraph | cudaStreamBeginRecaptureToGraph_ptsz: (
        stream: usize, mode: u32, graph: usize, data: usize,
    ) whole(hook, real, origin) {
        begin_again(hook, origin, stream, graph, || real(stream, mode, graph, data))
    }
    /// The stream's work is its own again, and the graph is made
    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz: (stream: usize, graph: *mut usize) whole(hook, real, origin) {
        end(hook, origin, stream, graph, || real(stream, graph))
    }
    // Before CUDA 13, the one without `_v2` took no data of edges.
    /// The stream's next node comes after these nodes
    fn cudaStreamUpdateCaptureDependencies | cudaStreamUpdateCaptureDependencies_ptsz
        | cudaStreamUpdateCaptureDependencies_v2 | cudaStreamUpdateCaptureDependencies_v2_ptsz: (
        stream: usize, nodes: *const usize, third: usize, fourth: usize, fifth: u32,
    ) after(call) {
        let (edges, flags) = if takes_edge_data(call) {
            ((third as EdgeData, fourth), fifth)
        } else {
            ((core::ptr::null(), third), fourth as u32)
        };
        // SAFETY: the call succeeded with them.
        unsafe { dependencies(call, stream, nodes, edges, flags) };
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        // Before CUDA 10.1 it took no mode.
        /// The stream's work is nodes of a graph until the capture ends
        fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz: (stream: usize) whole(hook, real, origin) {
            Beginning::new(stream).through(hook, origin, || real(stream))
        }
        /// The stream's work is nodes of a graph until the capture ends
        fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz: (stream: usize, mode: u32) whole(hook, real, origin) {
            Beginning::new(stream).through(hook, origin, || real(stream, mode))
        }
        /// The stream's work is nodes of that graph until the capture ends
        fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz: (
            stream: usize, graph: usize, dependencies: *const usize, data: EdgeData, count: usize, mode: u32,
        ) whole(hook, real, origin) {
            let beginning = Beginning { stream, graph, dependencies: (dependencies, data, count) };
            beginning.through(hook, origin, || real(stream, graph, dependencies, data, count, mode))
        }
        /// The stream's work is the nodes of that graph until the capture ends
        fn cuStreamBeginRecaptureToGraph | cuStreamBeginRecaptureToGraph_ptsz: (
            stream: usize, mode: u32, graph: usize, callback: usize, data: usize,
        ) whole(hook, real, origin) {
            begin_again(hook, origin, stream, graph, || real(stream, mode, graph, callback, data))
        }
        /// The stream's work is a graphics interface's until the capture ends, and forgotten
        fn cuStreamBeginCaptureToCig | cuStreamBeginCaptureToCig_ptsz: (stream: usize, parameters: usize) whole(hook, real, origin) {
            Beginning::new(stream).through(hook, origin, || real(stream, parameters))
        }
        /// The stream's work is its own again, and the graph is made
        fn cuStreamEndCapture | cuStreamEndCapture_ptsz: (stream: usize, graph: *mut usize) whole(hook, real, origin) {
            end(hook, origin, stream, graph, || real(stream, graph))
        }
        /// The stream's work is its own again
        fn cuStreamEndCaptureToCig | cuStreamEndCaptureToCig_ptsz: (stream: usize) whole(hook, real, origin) {
            end(hook, origin, stream, core::ptr::null(), || real(stream))
        }
        /// The stream's next node comes after these nodes
        fn cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz: (
            stream: usize, nodes: *const usize, count: usize, flags: u32,
        ) after(call) {
            // SAFETY: the call succeeded with them.
            unsafe { dependencies(call, stream, nodes, (core::ptr::null(), count), flags) };
        }
        /// The stream's next node comes after these nodes
        fn cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz: (
            stream: usize, nodes: *const usize, data: EdgeData, count: usize, flags: u32,
        ) after(call) {
            // SAFETY: the call succeeded with them.
            unsafe { dependencies(call, stream, nodes, (data, count), flags) };
        }
    }
}
