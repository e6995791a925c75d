//! SC202: work on the legacy default stream serializes with other streams' work.
//!
//! An operation on the legacy stream waits for all blocking streams of the
//! context, and they wait for it. Where the operation touches memory that the
//! pending work touches too, or touches none at all, the barrier is taken as
//! meant.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::clock::Epoch;
use crate::memory::Memory;
use crate::op::{Access, OpRef};
use crate::order::Order;
use crate::view::View;

pub(crate) fn check(
    order: &Order,
    memory: &Memory,
    work: OpRef,
    addresses: &[u64],
) -> Option<Violation> {
    let touched: Vec<_> = addresses
        .iter()
        .filter_map(|&address| memory.live(address))
        .collect();
    if touched.is_empty() {
        return None;
    }
    let context = order.context(work.stream?);
    let mut pending = order.pending_before_legacy(context);
    let (epoch, op) = pending.find_map(|(stream, epoch, op)| {
        let shared = touched.iter().any(|block| {
            block
                .uses
                .iter()
                .any(|last| last.op.stream == Some(stream) && !order.host_knows(last.epoch))
                || block.birth.op.stream == Some(stream)
        });
        (!shared).then_some::<(Epoch, OpRef)>((epoch, op))
    })?;
    Some(Violation {
        after: Some(Access { epoch, op }),
        ..Violation::new(RuleCode::SC202, work)
    })
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let pending = violation.after?;
    Some(Text {
        message: format!(
            "{} waits for all work of the blocking streams, {} among it, and holds back what they are given next",
            view.work(violation.at),
            view.work_at(pending.op),
        ),
        ordering: "The legacy default stream is a barrier for every stream not created with cudaStreamNonBlocking."
            .into(),
        help: format!(
            "Give {} a stream of its own, or create the streams with {}, and order them by events.",
            view.call_at(violation.at),
            view.spell(violation.at, "cudaStreamNonBlocking", "CU_STREAM_NON_BLOCKING"),
        ),
        events: smallvec![(Role::OtherAccess, pending.op), (Role::Use, violation.at)],
    })
}
