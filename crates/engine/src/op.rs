//! What is remembered of an operation, so that a finding can name it.

use streamcheck_model::{Call, NameId, StackId};

use crate::clock::Epoch;
use crate::order::StreamId;

/// A past call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpRef {
    /// Its place in the run, from 1.
    pub(crate) sequence: u64,
    pub(crate) api: NameId,
    /// The kernel, for a launch; else the empty name.
    pub(crate) kernel: NameId,
    pub(crate) stack: StackId,
    pub(crate) thread: u32,
    pub(crate) device: u16,
    /// The stream, if it went to one.
    pub(crate) stream: Option<StreamId>,
    /// A copy from pageable memory that the call staged and did not wait for,
    /// although it looks synchronous.
    pub(crate) staged: bool,
    /// It comes after a wait whose end was not seen, so that its order to what is
    /// submitted later is not known.
    pub(crate) order_unknown: bool,
    /// It is what a node does in a launch of its graph, which is the call.
    pub(crate) replayed: bool,
}

impl OpRef {
    pub(crate) fn new(sequence: u64, call: &Call, stream: Option<StreamId>) -> Self {
        Self {
            sequence,
            api: call.api,
            kernel: NameId::default(),
            stack: call.stack,
            thread: call.thread.0,
            device: call.device.0,
            stream,
            staged: false,
            order_unknown: false,
            replayed: false,
        }
    }
}

/// A past call that touched memory, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) epoch: Epoch,
    pub(crate) op: OpRef,
}
