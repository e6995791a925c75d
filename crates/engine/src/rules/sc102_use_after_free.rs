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
        ordering: format!(
            "Once {} has returned, no work that is submitted later may use the memory, not even on the stream of the free.",
            view.name(free.op)
        ),
        help: format!(
            "Move {} after {}, or remove that use.",
            view.call_at(free.op),
            view.work_at(violation.at),
        ),
        events: smallvec![
            (Role::Allocation, block.birth.op),
            (Role::Free, free.op),
            (Role::Use, violation.at)
        ],
    })
}
