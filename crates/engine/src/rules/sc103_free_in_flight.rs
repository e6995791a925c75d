//! SC103: a free that does not come after a use.
//!
//! `cudaFreeAsync` is ordered in its own stream only, `cudaFree` of pool memory
//! and `cuMemUnmap` wait for nothing.

use smallvec::smallvec;
use streamcheck_model::{FreeKind, MemoryKind};

use super::RuleCode;
use super::violation::{Free, Text, Violation};
use crate::Role;
use crate::memory::Allocation;
use crate::view::{View, bytes};

/// Whether this kind of free leaves it to the application to wait for the uses.
pub(super) fn is_unsynchronized(kind: FreeKind, memory: MemoryKind) -> bool {
    match kind {
        FreeKind::Async | FreeKind::Unmap => true,
        FreeKind::Sync => memory == MemoryKind::StreamOrdered,
        FreeKind::Host | FreeKind::Unregister | FreeKind::Libc | FreeKind::Import => false,
    }
}

pub(crate) fn check(free: &Free<'_>, allocation: &Allocation, found: &mut Vec<Violation>) {
    if is_unsynchronized(free.kind, allocation.kind) {
        free.cuts_short(RuleCode::SC103, allocation, found);
    }
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, last) = (violation.block?, violation.after?);
    Some(Text {
        message: format!(
            "{} frees {} at {:#x} while {} may still use them",
            view.work(violation.at),
            bytes(block.size),
            block.address,
            view.work_at(last.op),
        ),
        ordering: view.ordering(violation.gap, &last),
        help: view.missing_edge(last.op, violation.at, violation.gap)
            + &view.or_free_there(last.op, violation.at),
        events: smallvec![
            (Role::Allocation, block.birth.op),
            (Role::Use, last.op),
            (Role::Free, violation.at)
        ],
    })
}
