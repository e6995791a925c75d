//! SC110: a launch whose nodes use memory that was given back.
//!
//! A node keeps the addresses that it was made with. What SC102 is to other work, this is
//! to a graph's: the memory was freed before the launch, and may be another owner's by now.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::graphs::Owned;
use crate::op::OpRef;
use crate::view::{View, bytes};

pub(crate) fn check(launch: OpRef, owned: &Owned, address: u64) -> Option<Violation> {
    Some(Violation {
        block: Some(owned.block),
        after: Some(owned.freed?),
        address,
        ..Violation::new(RuleCode::SC110, launch)
    })
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, free) = (violation.block?, violation.after?);
    let what = match block.kind.is_host() {
        true => format!(
            "{} of {} host memory",
            bytes(block.size),
            block.kind.label()
        ),
        false => bytes(block.size),
    };
    Some(Text {
        message: format!(
            "{} uses {:#x}, inside {what} that {} has freed",
            view.work(violation.at),
            violation.address,
            view.work_at(free.op),
        ),
        ordering: "Every launch uses the addresses that the graph's nodes were made with, whoever owns them by then."
            .into(),
        help: format!(
            "Keep the memory for as long as the graph is launched: move {} after {}. Or capture the graph again, or \
             update its node, with memory that is there.",
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
