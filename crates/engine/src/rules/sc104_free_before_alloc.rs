//! SC104: a free that does not come after the allocation itself.
//!
//! With a use in between, SC103 says it all.

use smallvec::smallvec;
use streamcheck_model::MemoryKind;

use super::RuleCode;
use super::sc103_free_in_flight::is_unsynchronized;
use super::violation::{Free, Text, Violation};
use crate::Role;
use crate::memory::Allocation;
use crate::view::{View, bytes};

pub(crate) fn check(free: &Free<'_>, allocation: &Allocation, found: &mut Vec<Violation>) {
    let applies = allocation.kind == MemoryKind::StreamOrdered
        && is_unsynchronized(free.kind, allocation.kind)
        && allocation.uses.is_empty()
        && !free.is_after(&allocation.birth);
    if applies {
        let birth = allocation.birth;
        found.push(Violation::unordered(
            RuleCode::SC104,
            free.op,
            allocation,
            birth,
            free.gap(&birth),
        ));
    }
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, birth) = (violation.block?, violation.after?);
    Some(Text {
        message: format!(
            "{} frees {} at {:#x} without waiting for {}, which allocates them",
            view.work(violation.at),
            bytes(block.size),
            block.address,
            view.work_at(birth.op),
        ),
        ordering: view.ordering(violation.gap, &birth),
        help: view.missing_edge(birth.op, violation.at, violation.gap)
            + &view.or_free_there(birth.op, violation.at),
        events: smallvec![(Role::Allocation, birth.op), (Role::Free, violation.at)],
    })
}
