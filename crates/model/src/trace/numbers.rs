//! The numbers in an operation that are large and often near those of an earlier one:
//! addresses, sizes, handles, values.

use smallvec::SmallVec;

use crate::{Action, Flag, NodeWork, Operation, StreamRef};

/// An operation's numbers.
pub(super) type Numbers = SmallVec<[u64; 12]>;

macro_rules! visitor {
    ($(#[$doc:meta])* $name:ident $(, $mut:ident)?) => {
        $(#[$doc])*
        #[inline]
        pub(super) fn $name(operation: &$($mut)? Operation, mut each: impl FnMut(&$($mut)? u64)) {
            macro_rules! stream {
                ($stream:expr) => {
                    if let StreamRef::Created(handle) = $stream {
                        each(&$($mut)? handle.0);
                    }
                };
            }
            macro_rules! region {
                ($region:expr) => {{
                    let region = $region;
                    each(&$($mut)? region.address);
                    each(&$($mut)? region.width);
                    each(&$($mut)? region.rows);
                    each(&$($mut)? region.pitch);
                }};
            }
            macro_rules! flag {
                ($flag:expr) => {
                    match $flag {
                        Flag::Memory(address) => each(address),
                        Flag::Semaphore(handle) => each(&$($mut)? handle.0),
                    }
                };
            }
            macro_rules! work {
                ($work:expr) => {
                    match $work {
                        NodeWork::Kernel { pointers, .. } => {
                            for pointer in pointers {
                                each(&$($mut)? pointer.address);
                            }
                        }
                        NodeWork::Copy { layers, .. } => {
                            for (to, from) in layers {
                                region!(to);
                                region!(from);
                            }
                        }
                        NodeWork::Fill { to } => region!(to),
                        NodeWork::Allocate { address, size } => {
                            each(address);
                            each(size);
                        }
                        NodeWork::Free { address } => each(address),
                        NodeWork::EventRecord { event: handle }
                        | NodeWork::EventWait { event: handle }
                        | NodeWork::Child { graph: handle } => each(&$($mut)? handle.0),
                        NodeWork::Conditional { bodies } => {
                            for body in bodies {
                                each(&$($mut)? body.0);
                            }
                        }
                        NodeWork::Host | NodeWork::Empty | NodeWork::Unknown => {}
                    }
                };
            }
            macro_rules! handles {
                ($handles:expr) => {
                    for handle in $handles {
                        each(&$($mut)? handle.0);
                    }
                };
            }
            match &$($mut)? operation.action {
                Action::Launched { stream, pointers, .. } => {
                    stream!(stream);
                    for pointer in pointers {
                        each(&$($mut)? pointer.address);
                    }
                }
                Action::StreamCreated { stream: handle, .. }
                | Action::StreamDestroyed { stream: handle }
                | Action::EventCreated { event: handle }
                | Action::EventDestroyed { event: handle }
                | Action::EventSynchronized { event: handle, .. }
                | Action::ContextRecorded { event: handle }
                | Action::ContextWaited { event: handle }
                | Action::PoolDestroyed { pool: handle } => each(&$($mut)? handle.0),
                Action::StreamNamed { stream, .. }
                | Action::StreamSynchronized { stream, .. }
                | Action::Enqueued { stream } => stream!(stream),
                Action::EventRecorded { event, stream } | Action::StreamWaited { stream, event } => {
                    stream!(stream);
                    each(&$($mut)? event.0);
                }
                Action::ValueWritten { stream, flag, value }
                | Action::ValueWaited { stream, flag, value, .. } => {
                    stream!(stream);
                    flag!(flag);
                    each(value);
                }
                Action::Allocated { address, size, stream, pool, .. } => {
                    each(address);
                    each(size);
                    if let Some(StreamRef::Created(handle)) = stream {
                        each(&$($mut)? handle.0);
                    }
                    each(&$($mut)? pool.0);
                }
                Action::FreeBegun { address, stream, part, .. } => {
                    each(address);
                    if let Some(part) = part {
                        region!(part);
                    }
                    if let Some(StreamRef::Created(handle)) = stream {
                        each(&$($mut)? handle.0);
                    }
                }
                Action::Copied { stream, to, from, .. } => {
                    stream!(stream);
                    region!(to);
                    region!(from);
                }
                Action::CopiedInLayers { stream, layers, .. } => {
                    stream!(stream);
                    for (to, from) in layers {
                        region!(to);
                        region!(from);
                    }
                }
                Action::CopiedTogether { stream, copies } => {
                    stream!(stream);
                    for copy in copies {
                        region!(&$($mut)? copy.to);
                        region!(&$($mut)? copy.from);
                    }
                }
                Action::Filled { stream, to, .. } => {
                    stream!(stream);
                    region!(to);
                }
                Action::HostAccessed { region, through, .. } => {
                    region!(region);
                    for address in through {
                        each(address);
                    }
                }
                Action::HostFunctionEnqueued { stream, token } => {
                    stream!(stream);
                    each(token);
                }
                Action::HostFunctionStarted { token } => each(token),
                Action::GraphLaunched { stream, exec } => {
                    stream!(stream);
                    each(&$($mut)? exec.0);
                }
                Action::CaptureBegun { stream, graph, dependencies } => {
                    stream!(stream);
                    each(&$($mut)? graph.0);
                    handles!(dependencies);
                }
                Action::CaptureEnded { stream, graph } => {
                    stream!(stream);
                    each(&$($mut)? graph.0);
                }
                Action::NodeCaptured { stream, work } => {
                    stream!(stream);
                    work!(work);
                }
                Action::CaptureDependencies { stream, nodes, .. } => {
                    stream!(stream);
                    handles!(nodes);
                }
                Action::GraphCreated { graph: handle }
                | Action::GraphDestroyed { graph: handle }
                | Action::NodeRemoved { node: handle }
                | Action::ExecDestroyed { exec: handle } => each(&$($mut)? handle.0),
                Action::GraphCloned { graph: one, from: other }
                | Action::GraphInstantiated { exec: one, graph: other, .. }
                | Action::ExecUpdated { exec: one, graph: other }
                | Action::NodeEnabled { exec: one, node: other, .. } => {
                    each(&$($mut)? one.0);
                    each(&$($mut)? other.0);
                }
                Action::NodeFoundInClone { graph, node, original } => {
                    each(&$($mut)? graph.0);
                    each(&$($mut)? node.0);
                    each(&$($mut)? original.0);
                }
                Action::NodeAdded { graph, node, dependencies, work } => {
                    each(&$($mut)? graph.0);
                    each(&$($mut)? node.0);
                    handles!(dependencies);
                    work!(work);
                }
                Action::NodeChanged { exec, node, work } => {
                    each(&$($mut)? exec.0);
                    each(&$($mut)? node.0);
                    work!(work);
                }
                Action::EdgesChanged { graph, pairs, .. } => {
                    each(&$($mut)? graph.0);
                    for (from, to) in pairs {
                        each(&$($mut)? from.0);
                        each(&$($mut)? to.0);
                    }
                }
                Action::DeviceSynchronized
                | Action::ContextSynchronized
                | Action::ContextDestroyed
                | Action::Barrier { .. }
                | Action::FreeEnded { .. }
                | Action::DeviceDescribed { .. }
                | Action::Ended
                | Action::BlindSpot { .. } => {}
            }
        }
    };
}

visitor!(
    /// Hands `each` the operation's numbers, always in the same order.
    visit
);
visitor!(
    /// [`visit`] for changing them.
    visit_mut,
    mut
);

fn of(operation: &Operation) -> Numbers {
    let mut numbers = Numbers::new();
    visit(operation, |&number| numbers.push(number));
    numbers
}

/// How much the numbers of `operation` are more than those of `base`, if nothing else
/// tells them apart.
pub(super) fn differences(operation: &Operation, base: &Operation) -> Option<Numbers> {
    let mut differences = Numbers::new();
    let mut same = operation.clone();
    let mut theirs = of(base).into_iter();
    visit_mut(&mut same, |number| {
        let other = theirs.next().unwrap_or(0);
        differences.push(difference(*number, other));
        *number = other;
    });
    (same == *base).then_some(differences)
}

/// Undoes [`differences`]; `None` if they are too many or too few.
pub(super) fn vary(base: &Operation, differences: &[u64]) -> Option<Operation> {
    let mut operation = base.clone();
    let mut differences = differences.iter();
    let mut enough = true;
    visit_mut(&mut operation, |number| match differences.next() {
        Some(&difference) => *number = sum(difference, *number),
        None => enough = false,
    });
    (enough && differences.next().is_none()).then_some(operation)
}

/// The zigzag-coded difference: small ones of both signs become small numbers.
fn difference(number: u64, other: u64) -> u64 {
    let difference = number.wrapping_sub(other) as i64;
    (difference << 1 ^ difference >> 63) as u64
}

/// Undoes [`difference`].
fn sum(difference: u64, other: u64) -> u64 {
    (difference >> 1 ^ (difference & 1).wrapping_neg()).wrapping_add(other)
}

/// Takes the numbers of `base` off those of `operation`, one by one.
pub(super) fn subtract(operation: &mut Operation, base: &Operation) {
    let mut base = of(base).into_iter();
    visit_mut(operation, |number| {
        *number = difference(*number, base.next().unwrap_or(0));
    });
}

/// Undoes [`subtract`].
pub(super) fn add(operation: &mut Operation, base: &Operation) {
    let mut base = of(base).into_iter();
    visit_mut(operation, |number| {
        *number = sum(*number, base.next().unwrap_or(0));
    });
}
