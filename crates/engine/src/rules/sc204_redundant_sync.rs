//! SC204: a wait or synchronize that adds no ordering.
//!
//! Judged by what NVIDIA promises, so that a wait is not called redundant because a
//! call happens to block. Queries are no waits.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::op::OpRef;
use crate::view::View;

pub(crate) fn check(wait: OpRef) -> Violation {
    Violation::new(RuleCode::SC204, wait)
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    Some(Text {
        message: format!(
            "{} adds no ordering: all the work that it waits for was known complete, or ordered before, already",
            view.work(violation.at)
        ),
        ordering: String::new(),
        help: format!("Remove {}.", view.work_at(violation.at)),
        events: smallvec![(Role::Event, violation.at)],
    })
}
