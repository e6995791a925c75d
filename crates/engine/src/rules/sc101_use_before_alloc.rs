//! SC101: a use that does not come after the allocation.
//!
//! `cudaMallocAsync` returns a pointer at once, but "the allocation … becomes
//! available … in stream order": another stream needs an edge from it.

use smallvec::smallvec;
use streamcheck_model::MemoryKind;

use super::violation::{Text, Use, Violation};
use super::{RuleCode, sc105_reuse_race};
use crate::Role;
use crate::memory::Allocation;
use crate::view::{View, bytes};

pub(crate) fn check(used: &Use<'_>, allocation: &Allocation) -> Option<Violation> {
    if used.is_after(&allocation.birth)
        || allocation.kind != MemoryKind::StreamOrdered
        || sc105_reuse_race::recycled_in_flight(used, allocation)
    {
        return None;
    }
    let gap = used.gap(&allocation.birth);
    Some(Violation::unordered(
        RuleCode::SC101,
        used.op,
        allocation,
        allocation.birth,
        gap,
    ))
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, birth) = (violation.block?, violation.after?);
    Some(Text {
        message: format!(
            "{} uses {} at {:#x} that {} allocates, without waiting for the allocation",
            view.work(violation.at),
            bytes(block.size),
            block.address,
            view.work_at(birth.op),
        ),
        ordering: view.ordering(violation.gap, &birth),
        help: view.missing_edge(birth.op, violation.at, violation.gap),
        events: smallvec![(Role::Allocation, birth.op), (Role::Use, violation.at)],
    })
}
