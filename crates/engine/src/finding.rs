//! What the engine reports.

use serde::{Deserialize, Serialize};
use streamcheck_model::{MemoryKind, StackId};

use crate::rules::{Level, RuleCode};

/// One misuse, found once; repetitions only raise its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its number in this run, from 0; the index into [`crate::Engine::counts`].
    pub number: usize,
    /// The rule that it breaks.
    pub rule: RuleCode,
    /// The rule's level in this run, never `Off`.
    pub level: Level,
    /// One sentence with the names in it.
    pub message: String,
    /// The ordering that does exist, as far as it goes; may be empty.
    pub ordering: String,
    /// The missing edge, as the calls to add and where.
    pub help: String,
    /// The memory concerned, where there is one.
    pub allocation: Option<AllocationFacts>,
    /// The calls that tell the story, in the order in which they were made.
    pub events: Vec<EventFacts>,
    /// The streams of these calls, each once, in the order of the calls.
    pub streams: Vec<StreamFacts>,
    /// Operations that the words name by their number and that are none of `events`.
    pub mentioned: Vec<CallSite>,
    /// What else happened around these calls; without operations if it is not remembered.
    pub timeline: Timeline,
}

impl Finding {
    /// The stacks that tell all of it: those of the events, of the streams, of what is
    /// mentioned and of the timeline's operations, each in their order.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        let events = self.events.iter().map(|event| event.stack);
        let streams = self.streams.iter().map(|stream| stream.created);
        let mentioned = self.mentioned.iter().map(|call| call.stack);
        let operations = self.timeline.operations.iter().map(|op| op.stack);
        events.chain(streams).chain(mentioned).chain(operations)
    }
}

/// A stream, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// As in [`EventFacts::stream`].
    pub name: String,
    /// How it orders itself: `non-blocking`, `blocking`, `legacy default`,
    /// `per-thread default`.
    pub flags: &'static str,
    /// The device.
    pub device: u16,
    /// The host stack of the call that created it; 0 for default streams and for those
    /// that were there before.
    pub created: StackId,
}

/// Where an operation was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The operation's place in the run, from 1.
    pub sequence: u64,
    /// The kernel's demangled name.
    pub kernel: Option<String>,
    /// The host stack.
    pub stack: StackId,
}

/// The operations around a finding's calls, in the order in which they were submitted.
///
/// Operations that are left out show as a gap between two sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The streams, and the host where it waits; an operation names its lane by its place here.
    pub lanes: Vec<Lane>,
    /// The operations, by rising sequence.
    pub operations: Vec<TimelineOperation>,
    /// What orders them across lanes.
    pub edges: Vec<TimelineEdge>,
}

impl Timeline {
    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

/// A stream of a timeline, or the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// The stream as a person would name it, as in [`EventFacts::stream`], or `host`.
    pub name: String,
    /// The device.
    pub device: u16,
}

/// One operation of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineOperation {
    /// Its place in the run, from 1.
    pub sequence: u64,
    /// The index of its lane.
    pub lane: usize,
    /// The entry point.
    pub api: String,
    /// The kernel's demangled name.
    pub kernel: Option<String>,
    /// Where it stands in the source, such as `a.cu:12`; the engine does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The host stack.
    #[serde(skip)]
    pub stack: StackId,
}

/// An ordering between two operations of different lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEdge {
    /// The sequence of the operation that comes before.
    pub from: u64,
    /// The sequence of the operation that comes after.
    pub to: u64,
    /// What orders them, such as `event wait`.
    pub reason: String,
}

/// The memory that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationFacts {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// How it was obtained.
    pub kind: MemoryKind,
}

/// The part that a call plays in a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It allocated the memory.
    Allocation,
    /// It used the memory: the access at fault.
    Use,
    /// It freed the memory.
    Free,
    /// It copied from or to the memory.
    Copy,
    /// An event record or wait.
    Event,
    /// The access on the other side.
    OtherAccess,
    /// It made the node of a graph that is at fault when launched.
    Node,
}

/// One call in a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFacts {
    /// Its part.
    pub role: Role,
    /// The entry point (`cudaMallocAsync`).
    pub api: String,
    /// The stream as a person would name it, such as `stream 2 (0x55d0, non-blocking)`.
    pub stream: Option<String>,
    /// The kernel's demangled name.
    pub kernel: Option<String>,
    /// The device.
    pub device: u16,
    /// The host thread, from 1.
    pub thread: u32,
    /// The operation's place in the run, from 1.
    pub sequence: u64,
    /// The host stack.
    pub stack: StackId,
}

/// Counts of what was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Operations in all.
    pub operations: u64,
    /// Kernel launches.
    pub launches: u64,
    /// Copies and fills.
    pub copies: u64,
    /// Allocations of any kind.
    pub allocations: u64,
    /// Streams seen, default streams included.
    pub streams: u64,
    /// What could not be seen into: kind, count, one example.
    pub blind_spots: Vec<BlindSpot>,
}

/// Something that could not be seen into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlindSpot {
    /// Its kind, such as `unknown-kernel-parameters`.
    pub kind: String,
    /// How often.
    pub count: u64,
    /// The first example.
    pub example: String,
}
