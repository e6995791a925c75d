//! SC109: two unordered accesses to the same bytes, at least one a write.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Use, Violation};
use crate::Role;
use crate::memory::Allocation;
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

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, other) = (violation.block?, violation.after?);
    Some(Text {
        message: format!(
            "{} and {} access the same memory at {:#x} ({} of {} memory), in no order, and one may write",
            view.work(violation.at),
            view.work_at(other.op),
            violation.address,
            bytes(block.size),
            block.kind.label(),
        ),
        ordering: view.ordering(violation.gap, &other),
        help: view.missing_edge(other.op, violation.at),
        events: smallvec![
            (Role::Allocation, block.birth.op),
            (Role::OtherAccess, other.op),
            (Role::Use, violation.at)
        ],
    })
}
