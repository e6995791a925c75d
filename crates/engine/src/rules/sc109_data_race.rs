//! SC109: two unordered accesses to the same bytes, at least one a write.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Use, Violation};
use crate::Role;
use crate::memory::Allocation;
use crate::op::OpRef;
use crate::view::{View, bytes};

pub(crate) fn check(used: &Use<'_>, allocation: &Allocation) -> Option<Violation> {
    let other = allocation
        .shadow
        .race(used.footprint, used.mode, |access| used.is_after(access))?;
    Some(Violation {
        address: used.footprint.address(),
        ..Violation::unordered(
            RuleCode::SC109,
            used.op,
            allocation,
            other,
            used.gap(&other),
        )
    })
}

/// Copies of one batch call have no order among themselves (CUDA Runtime API,
/// `cudaMemcpyBatchAsync`), and two of them meet at `address`.
pub(crate) fn within_a_batch(op: OpRef, block: &Allocation, address: u64) -> Violation {
    Violation {
        block: Some(block.into()),
        address,
        ..Violation::new(RuleCode::SC109, op)
    }
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let block = violation.block?;
    let Some(other) = violation.after else {
        return Some(Text {
            message: format!(
                "two copies of {} touch the same memory at {:#x} ({} of {} memory), and one writes",
                view.work(violation.at),
                violation.address,
                bytes(block.size),
                block.kind.label(),
            ),
            ordering: "The copies of one call have no order among themselves.".into(),
            help: format!(
                "Take the copies that depend on each other out of {} and make them in calls of their own on {}.",
                view.call_at(violation.at),
                view.timeline(violation.at.stream)
            ),
            events: smallvec![
                (Role::Allocation, block.birth.op),
                (Role::Use, violation.at)
            ],
        });
    };
    let mut help = view.missing_edge(other.op, violation.at, violation.gap);
    // The bytes of copies and fills are known; how far a kernel reaches is not.
    if view.kernel(violation.at).is_none() && view.kernel(other.op).is_none() {
        help.push_str(" If the two are to touch different bytes, check their pointers and sizes.");
    }
    Some(Text {
        message: format!(
            "{} and {} both access {:#x}, inside {} of {} memory, in no order, and one may write",
            view.work(violation.at),
            view.work_at(other.op),
            violation.address,
            bytes(block.size),
            block.kind.label(),
        ),
        ordering: view.ordering(violation.gap, &other),
        help,
        events: smallvec![
            (Role::Allocation, block.birth.op),
            (Role::OtherAccess, other.op),
            (Role::Use, violation.at)
        ],
    })
}
