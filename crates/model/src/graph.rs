//! Graphs as operations speak of them: what a node does.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Direction, Handle, HostMemory, NameId, Pointer, Region};

/// What a node of a graph does at every launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeWork {
    /// It launches a kernel.
    Kernel {
        /// The kernel's (mangled) name.
        kernel: NameId,
        /// As in [`Action::Launched`](crate::Action::Launched).
        pointers: SmallVec<[Pointer; 6]>,
        /// Whether the parameters' layout was known; if not, `pointers` is empty.
        layout_known: bool,
    },
    /// It copies.
    Copy {
        /// Bytes written and bytes read, layer by layer; one layer for a plain copy.
        layers: Vec<(Region, Region)>,
        /// As the call states it.
        direction: Direction,
        /// What the driver says of a host side that no recorded call explains.
        host: HostMemory,
    },
    /// It fills.
    Fill {
        /// Bytes written.
        to: Region,
    },
    /// It calls a host function.
    Host,
    /// It does nothing; edges meet in it.
    Empty,
    /// It records an event, for work outside the graph.
    EventRecord {
        /// The event.
        event: Handle,
    },
    /// It waits for an event that was recorded outside the graph.
    EventWait {
        /// The event.
        event: Handle,
    },
    /// It allocates memory, at an address that is the same at every launch.
    Allocate {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// It frees what some node allocated.
    Free {
        /// First byte.
        address: u64,
    },
    /// It does what a copy of another graph does.
    Child {
        /// The graph as it was when the node was made or changed.
        graph: Handle,
    },
    /// It does what the bodies do, never, once or many times.
    Conditional {
        /// The bodies, which belong to the node and are built after it.
        bodies: Vec<Handle>,
    },
    /// It cannot be seen into.
    Unknown,
}
