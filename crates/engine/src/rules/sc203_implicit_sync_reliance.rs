//! SC203: an order that only a wait keeps which NVIDIA does not promise.
//!
//! `cudaFree` of `cudaMalloc` memory "may perform implicit synchronization", a copy to
//! pageable memory "might be synchronous". The clocks keep both answers (`clock`): what
//! is seen to be ordered, and what is promised. Where a rule would speak by the second
//! and not by the first, this one does.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::graph::Reason;
use crate::view::{View, bytes};

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    debug_assert_eq!(violation.rule, RuleCode::SC203);
    let (block, before) = (violation.block?, violation.after?);
    let path = view.order.path(violation.gap?);
    let wait = path
        .iter()
        .find(|link| link.reason == Reason::ImplicitSync)
        .and_then(|link| link.call);
    let whose = wait.map_or_else(
        || "a call that happened to wait".to_owned(),
        |wait| view.work_at(wait),
    );
    let mut events = smallvec![
        (Role::Allocation, block.birth.op),
        (Role::OtherAccess, before.op)
    ];
    events.extend(wait.map(|wait| (Role::Event, wait)));
    events.push((Role::Use, violation.at));
    Some(Text {
        message: format!(
            "only a wait that CUDA does not promise, in {whose}, orders {} after {} ({} of {} memory at {:#x})",
            view.work(violation.at),
            view.work_at(before.op),
            bytes(block.size),
            block.kind.label(),
            block.address,
        ),
        ordering: "The call is seen to wait for the device, but its documentation does not say so; another driver \
                   need not."
            .into(),
        help: view.missing_edge(before.op, violation.at, None),
        events,
    })
}
