//! The operations.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{
    BatchCopy, Condition, ContextId, DeviceId, Direction, Flag, FreeKind, Handle, HostMemory,
    MemoryKind, Mode, NameId, NodeWork, Pointer, Region, StackId, StreamRef, ThreadId,
};

/// The call that an operation came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The entry point as the application wrote it (`cudaMallocAsync`).
    pub api: NameId,
    /// The calling host thread.
    pub thread: ThreadId,
    /// The device current at the call.
    pub device: DeviceId,
    /// The context current at the call.
    pub context: ContextId,
    /// Where in the application the call stands.
    pub stack: StackId,
}

/// One thing that happened.
///
/// Operations are recorded in the order in which their calls returned to the
/// application, which is the host's timeline. A free is the exception: it is
/// recorded before the real call ([`Action::FreeBegun`]), as another thread may be
/// handed the address before the call returns, and settled after it
/// ([`Action::FreeEnded`]). A call that failed is not recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Who and where.
    pub call: Call,
    /// What.
    pub action: Action,
}

/// The name of an instruction that reads memory; see [`Action::HostAccessed`].
pub const HOST_READ: &str = "host read";

/// The name of an instruction that writes memory; see [`Action::HostAccessed`].
pub const HOST_WRITE: &str = "host write";

/// What takes a local variable that pending copies use: its function has returned. It shows
/// at the thread's next call, whose stack the operation has.
pub const FUNCTION_RETURN: &str = "return";

/// How a free ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The memory is given back.
    Succeeded,
    /// CUDA refused the pointer (`cudaErrorInvalidValue` and the like); nothing changed.
    Refused,
    /// The call failed for a reason that says nothing about the pointer; nothing changed.
    Failed,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// A stream was created in the call's context.
    StreamCreated {
        /// Its handle.
        stream: Handle,
        /// False for `cudaStreamNonBlocking`: it takes no part in the legacy
        /// stream's barriers.
        blocking: bool,
    },
    /// A stream was destroyed. Its pending work goes on.
    StreamDestroyed {
        /// Its handle.
        stream: Handle,
    },
    /// The application gave a stream a name (NVTX).
    StreamNamed {
        /// The stream.
        stream: StreamRef,
        /// Its name.
        name: NameId,
    },
    /// An event was created.
    EventCreated {
        /// Its handle.
        event: Handle,
    },
    /// An event was destroyed. Waits already made on it stand.
    EventDestroyed {
        /// Its handle.
        event: Handle,
    },
    /// The event's newest record is now this stream's past.
    EventRecorded {
        /// The event.
        event: Handle,
        /// The stream.
        stream: StreamRef,
    },
    /// The stream's later work waits for the event's newest record.
    StreamWaited {
        /// The stream that waits.
        stream: StreamRef,
        /// The event.
        event: Handle,
    },
    /// The host knows the event's newest record complete: a synchronize, or a
    /// query that said so.
    EventSynchronized {
        /// The event.
        event: Handle,
        /// Whether it was a query, which does not wait.
        polled: bool,
    },
    /// The host knows the stream's past complete: a synchronize, or a query that
    /// said so.
    StreamSynchronized {
        /// The stream.
        stream: StreamRef,
        /// Whether it was a query, which does not wait.
        polled: bool,
    },
    /// The host knows all work of the call's device complete.
    DeviceSynchronized,
    /// The host knows all work of the call's context complete, and of its green
    /// contexts if it is a device's primary one.
    ContextSynchronized,
    /// The event's newest record is now the past of all of the call's context's streams.
    ContextRecorded {
        /// The event.
        event: Handle,
    },
    /// All later work of the call's context waits for the event's newest record.
    ContextWaited {
        /// The event.
        event: Handle,
    },
    /// The call's context ended: its work is complete, its streams and its memory are gone.
    ContextDestroyed,
    /// All earlier work of the legacy and blocking streams of these devices comes before
    /// all their later work.
    Barrier {
        /// The devices.
        devices: SmallVec<[DeviceId; 3]>,
    },
    /// Something took its place in a stream whose accesses are not known, or of no
    /// account: a prefetch.
    Enqueued {
        /// The stream.
        stream: StreamRef,
    },
    /// The stream writes a value that others may wait for.
    ValueWritten {
        /// The stream.
        stream: StreamRef,
        /// Where.
        flag: Flag,
        /// The value.
        value: u64,
    },
    /// The stream's later work waits until a value is as it should be.
    ValueWaited {
        /// The stream.
        stream: StreamRef,
        /// Where the value is.
        flag: Flag,
        /// What it is compared with.
        value: u64,
        /// How.
        condition: Condition,
    },
    /// A pool was destroyed. Its outstanding allocations stay valid.
    PoolDestroyed {
        /// The pool.
        pool: Handle,
    },
    /// Memory was allocated, registered or mapped.
    Allocated {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u64,
        /// How it was obtained.
        kind: MemoryKind,
        /// For stream-ordered memory, the stream on which it becomes valid; `None` if
        /// that is another process's.
        stream: Option<StreamRef>,
        /// For stream-ordered memory, the pool that the call named; 0 for the device's.
        pool: Handle,
    },
    /// A free is about to be made; its outcome follows from the same thread.
    FreeBegun {
        /// The pointer given.
        address: u64,
        /// Which call.
        kind: FreeKind,
        /// The stream of an asynchronous free.
        stream: Option<StreamRef>,
        /// The bytes that go, where the C library takes a part alone of what begins at
        /// `address`.
        part: Option<Region>,
    },
    /// The free that this thread began has ended.
    FreeEnded {
        /// How.
        outcome: Outcome,
    },
    /// A kernel was launched.
    Launched {
        /// The stream.
        stream: StreamRef,
        /// The kernel's (mangled) name.
        kernel: NameId,
        /// The parameters that are used as pointers, or may be.
        pointers: SmallVec<[Pointer; 6]>,
        /// Whether the parameters' layout was known; if not, `pointers` is empty.
        layout_known: bool,
    },
    /// A copy was submitted or made.
    Copied {
        /// The stream; the legacy (or per-thread) one for calls that take none.
        stream: StreamRef,
        /// Bytes written.
        to: Region,
        /// Bytes read.
        from: Region,
        /// As the call states it.
        direction: Direction,
        /// What the driver says of a host side that no recorded call explains.
        host: HostMemory,
        /// False for the `Async` calls.
        synchronous: bool,
    },
    /// A copy of a volume whose layers do not lie as one region would.
    CopiedInLayers {
        /// The stream; the legacy (or per-thread) one for calls that take none.
        stream: StreamRef,
        /// Bytes written and bytes read, layer by layer.
        layers: Vec<(Region, Region)>,
        /// As the call states it.
        direction: Direction,
        /// What the driver says of a host side that no recorded call explains.
        host: HostMemory,
        /// False for the `Async` calls.
        synchronous: bool,
    },
    /// Copies that have no order among themselves were submitted by one call.
    CopiedTogether {
        /// The stream.
        stream: StreamRef,
        /// The copies.
        copies: Vec<BatchCopy>,
    },
    /// A fill was submitted.
    Filled {
        /// The stream; the legacy (or per-thread) one for calls that take none.
        stream: StreamRef,
        /// Bytes written.
        to: Region,
        /// False for the `Async` calls.
        synchronous: bool,
    },
    /// The CPU read or wrote memory: an instruction, or a system call on the
    /// application's behalf. The call's name is [`crate::HOST_READ`] or
    /// [`crate::HOST_WRITE`] for an instruction, else that of the system call or the C
    /// library's function.
    HostAccessed {
        /// The bytes.
        region: Region,
        /// `Read` or `Write`; others count as neither.
        mode: Mode,
        /// Pointers that kernels were given, from which they are known to reach the region.
        through: SmallVec<[u64; 2]>,
    },
    /// What a device is like. Told once, when it first matters.
    DeviceDescribed {
        /// The device.
        device: DeviceId,
        /// It uses the host's page tables, so that it reads and writes pageable host memory
        /// in place: the attributes `pageableMemoryAccess` and
        /// `pageableMemoryAccessUsesHostPageTables` are both 1.
        coherent: bool,
    },
    /// A host function was put into a stream.
    HostFunctionEnqueued {
        /// The stream.
        stream: StreamRef,
        /// Names this submission; see [`Action::HostFunctionStarted`].
        token: u64,
    },
    /// A host function began to run: the host knows the stream's past up to it.
    HostFunctionStarted {
        /// The submission's token.
        token: u64,
    },
    /// The process ends in order: what is allocated now was never freed.
    Ended,
    /// Something happened that cannot be seen into. Counted, never guessed.
    BlindSpot {
        /// Its kind, such as `unknown-kernel-parameters`.
        kind: NameId,
        /// An example, such as the kernel's name.
        example: NameId,
    },
    /// A stream began to capture. Until the end, what it is given becomes nodes of a
    /// graph instead of work, and so does what other streams are given once they wait for
    /// an event that was recorded in the capture.
    CaptureBegun {
        /// The stream.
        stream: StreamRef,
        /// The graph that the nodes are added to; 0 for a new one.
        graph: Handle,
        /// The nodes of that graph that the first captured ones depend on.
        dependencies: Vec<Handle>,
    },
    /// The capture that began on this stream ended.
    CaptureEnded {
        /// The stream.
        stream: StreamRef,
        /// The graph; 0 if the capture was invalid, and nothing is left of it.
        graph: Handle,
    },
    /// The capture of this stream got a node that no other action tells of: an external
    /// event record or wait. On a stream that captures nothing, the event is recorded or
    /// waited for as usual.
    NodeCaptured {
        /// The stream.
        stream: StreamRef,
        /// What it does.
        work: NodeWork,
    },
    /// The application changed which nodes a capturing stream's next node depends on.
    CaptureDependencies {
        /// The stream.
        stream: StreamRef,
        /// Nodes of the capture's graph.
        nodes: Vec<Handle>,
        /// Whether they replace what there is; else they are added.
        replace: bool,
    },
    /// A graph was created, without nodes.
    GraphCreated {
        /// Its handle.
        graph: Handle,
    },
    /// A graph was destroyed, and with it its nodes. Executable graphs made of it stay.
    GraphDestroyed {
        /// Its handle.
        graph: Handle,
    },
    /// A graph was made as a copy of another.
    GraphCloned {
        /// Its handle.
        graph: Handle,
        /// The other.
        from: Handle,
    },
    /// A node of the copy stands for a node of the graph that was copied.
    NodeFoundInClone {
        /// The copy.
        graph: Handle,
        /// Its node.
        node: Handle,
        /// The node of the other graph.
        original: Handle,
    },
    /// A node was added to a graph.
    NodeAdded {
        /// The graph.
        graph: Handle,
        /// The node's handle.
        node: Handle,
        /// The nodes that it comes after.
        dependencies: Vec<Handle>,
        /// What it does.
        work: NodeWork,
    },
    /// A node was taken out of its graph, with its edges.
    NodeRemoved {
        /// The node.
        node: Handle,
    },
    /// A node does something else from now on.
    NodeChanged {
        /// The executable graph whose later launches do so; 0 for the graph itself.
        exec: Handle,
        /// The node, of the graph in either case.
        node: Handle,
        /// What it does.
        work: NodeWork,
    },
    /// Edges were added to a graph, or taken out.
    EdgesChanged {
        /// The graph.
        graph: Handle,
        /// Each from the node that comes first.
        pairs: Vec<(Handle, Handle)>,
        /// Whether they were added.
        added: bool,
    },
    /// An executable graph was made of a graph as it was then.
    GraphInstantiated {
        /// Its handle.
        exec: Handle,
        /// The graph.
        graph: Handle,
        /// Whether a launch frees first what earlier ones allocated and left.
        auto_free: bool,
    },
    /// An executable graph does what this graph does from now on.
    ExecUpdated {
        /// The executable graph.
        exec: Handle,
        /// The graph.
        graph: Handle,
    },
    /// An executable graph was destroyed. Launches that are under way go on.
    ExecDestroyed {
        /// Its handle.
        exec: Handle,
    },
    /// A node of an executable graph was switched on or off.
    NodeEnabled {
        /// The executable graph.
        exec: Handle,
        /// The node, of the graph that it was made of.
        node: Handle,
        /// Whether later launches do what the node does.
        enabled: bool,
    },
    /// An executable graph was launched, or became a child of a stream's capture.
    GraphLaunched {
        /// The stream.
        stream: StreamRef,
        /// The executable graph.
        exec: Handle,
    },
}
