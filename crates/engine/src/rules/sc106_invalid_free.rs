//! SC106: a free of what cannot be freed so.
//!
//! Double frees, pointers into a block, and the wrong call for the memory. A
//! pointer that no recorded call explains counts only if CUDA refused it: memory
//! from before the tool was there is unknown, not invalid.

use smallvec::{SmallVec, smallvec};
use streamcheck_model::{FreeKind, MemoryKind};

use super::RuleCode;
use super::violation::{Free, Text, Violation};
use crate::Role;
use crate::memory::{Allocation, Memory};
use crate::view::{View, bytes};

/// Whether the call may free the memory at all.
pub(crate) fn is_right(kind: FreeKind, memory: MemoryKind) -> bool {
    use MemoryKind::{Device, Managed, Mapped, Pinned, Registered, StreamOrdered};
    match kind {
        FreeKind::Async | FreeKind::Sync => matches!(memory, StreamOrdered | Device | Managed),
        FreeKind::Host => memory == Pinned,
        FreeKind::Unregister => memory == Registered,
        FreeKind::Unmap => memory == Mapped,
        FreeKind::Libc => memory.is_host(),
        FreeKind::Import => true,
    }
}

/// `live` is the live allocation that holds the address.
pub(crate) fn check(
    free: &Free<'_>,
    live: Option<&Allocation>,
    memory: &Memory,
) -> Option<Violation> {
    let violation = Violation {
        address: free.address,
        free: Some(free.kind),
        ..Violation::new(RuleCode::SC106, free.op)
    };
    if let Some(allocation) = live {
        let right = allocation.address == free.address && is_right(free.kind, allocation.kind);
        return (!right).then_some(Violation {
            block: Some(allocation.into()),
            ..violation
        });
    }
    let device = matches!(free.kind, FreeKind::Async | FreeKind::Sync);
    let past = memory.freed_base(free.address).filter(|_| device)?;
    Some(Violation {
        block: Some(past.into()),
        after: Some(past.free),
        ..violation
    })
}

/// CUDA refused a pointer of which nothing is known.
pub(crate) fn refused(free: &Free<'_>) -> Violation {
    Violation {
        address: free.address,
        free: Some(free.kind),
        ..Violation::new(RuleCode::SC106, free.op)
    }
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (kind, address) = (violation.free?, violation.address);
    let work = view.work(violation.at);
    let mut events: SmallVec<_> = smallvec![];
    if let Some(block) = violation.block {
        events.push((Role::Allocation, block.birth.op));
    }
    let (message, help) = match (violation.block, violation.after) {
        (_, Some(first)) => {
            events.push((Role::Free, first.op));
            (
                format!(
                    "{work} frees {address:#x}, which {} has freed already",
                    view.work_at(first.op)
                ),
                format!(
                    "Remove one of the two frees, {} or {}, and clear the pointer after the free.",
                    view.call_at(first.op),
                    view.call_at(violation.at),
                ),
            )
        }
        (Some(block), None) if block.address != address && is_right(kind, block.kind) => (
            format!(
                "{work} frees {address:#x}, which lies {} inside the block of {} at {:#x}",
                bytes(address - block.address),
                bytes(block.size),
                block.address,
            ),
            format!(
                "Give {} the pointer that {} returned, {:#x}.",
                view.call_at(violation.at),
                view.call_at(block.birth.op),
                block.address
            ),
        ),
        (Some(block), None) => (
            format!(
                "{work} frees {address:#x}, which is {} memory from {}",
                block.kind.label(),
                view.work_at(block.birth.op)
            ),
            format!(
                "Instead of {}, call {}.",
                view.call_at(violation.at),
                right_call(block.kind, |runtime, driver| view.spell(
                    violation.at,
                    runtime,
                    driver
                ))
            ),
        ),
        (None, None) => (
            format!("{work} frees {address:#x}, which is no allocation that CUDA knows"),
            format!(
                "Give {} only what a CUDA allocation returned, and only to the call that belongs to it.",
                view.call_at(violation.at)
            ),
        ),
    };
    events.push((Role::Free, violation.at));
    Some(Text {
        message,
        ordering: String::new(),
        help,
        events,
    })
}

/// The call that gives such memory back.
fn right_call(
    kind: MemoryKind,
    spell: impl Fn(&'static str, &'static str) -> &'static str,
) -> &'static str {
    match kind {
        MemoryKind::StreamOrdered => {
            spell("cudaFreeAsync or cudaFree", "cuMemFreeAsync or cuMemFree")
        }
        MemoryKind::Device | MemoryKind::Managed => spell("cudaFree", "cuMemFree"),
        MemoryKind::Pinned => spell("cudaFreeHost", "cuMemFreeHost"),
        MemoryKind::Registered => spell(
            "cudaHostUnregister, and then what gives back what allocated it",
            "cuMemHostUnregister, and then what gives back what allocated it",
        ),
        MemoryKind::Mapped => "cuMemUnmap",
        MemoryKind::System => "what gives back what allocated it",
    }
}
