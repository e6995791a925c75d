//! SC102: work issued after the free call returned uses the memory.
//!
//! After `cudaFreeAsync` returns, no new work may use the pointer, on any stream,
//! not even the one that the free is in.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Use, Violation};
use crate::Role;
use crate::memory::Past;
use crate::view::{View, bytes};

pub(crate) fn check(used: &Use<'_>, past: &Past) -> Violation {
    Violation {
        block: Some(past.into()),
        after: Some(past.free),
        address: used.footprint.address(),
        ..Violation::new(RuleCode::SC102, used.op)
    }
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, free) = (violation.block?, violation.after?);
    Some(Text {
        message: format!(
            "{} uses {:#x}, inside {} that {} has freed",
            view.work(violation.at),
            violation.address,
            bytes(block.size),
            view.work_at(free.op),
        ),
        ordering: "The call that frees had returned before this work was issued; from then on no stream may be given \
                   work on the memory, not even the one that the free is in."
            .into(),
        help: format!(
            "Move {} behind {}, or leave that use out: once the free is called the pointer is not to be used.",
            view.call_at(free.op),
            view.work_at(violation.at),
        ),
        events: smallvec![(Role::Allocation, block.birth.op), (Role::Free, free.op), (Role::Use, violation.at)],
    })
}
