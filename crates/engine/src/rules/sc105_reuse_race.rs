//! SC105: a use that reaches the new owner of a recycled address unordered.
//!
//! When a pool hands a freed block out again, it orders the new allocation after
//! the free for that block only. A pointer from before, or one passed on without
//! an edge, touches the new owner's memory while the old one may still be in use.

use smallvec::smallvec;
use streamcheck_model::MemoryKind;

use super::RuleCode;
use super::violation::{Text, Use, Violation};
use crate::Role;
use crate::memory::{Allocation, Past};
use crate::op::Access;
use crate::view::{View, bytes};

/// Whether the allocation's address was another block's whose last uses or free
/// this use does not come after.
pub(super) fn recycled_in_flight(used: &Use<'_>, allocation: &Allocation) -> bool {
    let pending = |past: &Past| {
        !used.is_after(&past.free) || past.uses.iter().any(|last| !used.is_after(last))
    };
    allocation.recycled.as_deref().is_some_and(pending)
}

pub(crate) fn check(used: &Use<'_>, allocation: &Allocation) -> Option<Violation> {
    if used.is_after(&allocation.birth)
        || allocation.kind != MemoryKind::StreamOrdered
        || !recycled_in_flight(used, allocation)
    {
        return None;
    }
    let past = allocation.recycled.as_deref()?;
    let last = past
        .uses
        .iter()
        .max_by_key(|last| last.op.sequence)
        .map(|last: &Access| last.op);
    let gap = used.gap(&allocation.birth);
    Some(Violation {
        earlier: Some((last, past.free.op)),
        ..Violation::unordered(RuleCode::SC105, used.op, allocation, allocation.birth, gap)
    })
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, birth, (last, free)) = (violation.block?, violation.after?, violation.earlier?);
    let before = last.map_or_else(String::new, |last| {
        format!(", last used by {}", view.work_at(last))
    });
    let mut events = smallvec![
        (Role::Allocation, birth.op),
        (Role::Use, violation.at),
        (Role::Free, free)
    ];
    if let Some(last) = last {
        events.push((Role::OtherAccess, last));
    }
    Some(Text {
        message: format!(
            "{} uses {} at {:#x} that the pool recycled for {}, without waiting for that allocation; the block was \
             freed by {}{before}",
            view.work(violation.at),
            bytes(block.size),
            block.address,
            view.work_at(birth.op),
            view.work_at(free),
        ),
        ordering: view.ordering(violation.gap, &birth),
        help: format!(
            "{} If the pointer is meant for the freed block, it is stale: use the memory before it is freed.",
            view.missing_edge(birth.op, violation.at, violation.gap)
        ),
        events,
    })
}
