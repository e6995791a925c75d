//! SC112: a wait on an event that has no record does nothing.
//!
//! "If cudaEventRecord() has not been called on event, this call acts as if the
//! record had already completed."

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::op::OpRef;
use crate::view::View;

pub(crate) fn check(wait: OpRef) -> Violation {
    Violation::new(RuleCode::SC112, wait)
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let record = view.spell(violation.at, "cudaEventRecord", "cuEventRecord");
    Some(Text {
        message: format!(
            "{} waits on an event that was never recorded, so it waits for nothing",
            view.work(violation.at)
        ),
        ordering: String::new(),
        help: format!(
            "Before {}, call {record}(event, stream) with the stream that is to be waited for.",
            view.work_at(violation.at)
        ),
        events: smallvec![(Role::Event, violation.at)],
    })
}
