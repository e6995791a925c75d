//! SC111: stream-ordered memory that is never freed.
//!
//! Judged when the process ends in order, when its context ends, and when its pool is
//! destroyed: whoever does that is done with its memory.

use smallvec::smallvec;
use streamcheck_model::MemoryKind;

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::memory::Allocation;
use crate::op::OpRef;
use crate::view::{View, bytes};

/// Another process's memory (`birth` on no stream) is that process's to free.
pub(crate) fn check(end: OpRef, block: &mut Allocation) -> Option<Violation> {
    let leaks = block.kind == MemoryKind::StreamOrdered
        && block.birth.op.stream.is_some()
        && !std::mem::replace(&mut block.leaked, true);
    leaks.then(|| Violation {
        block: Some((&*block).into()),
        ..Violation::new(RuleCode::SC111, end)
    })
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let block = violation.block?;
    let end = view.call(violation.at);
    let when = if end.is_empty() {
        "when the process ends".to_owned()
    } else {
        format!("at {end}")
    };
    Some(Text {
        message: format!(
            "{} at {:#x} that {} allocated are not freed {when}",
            bytes(block.size),
            block.address,
            view.work_at(block.birth.op),
        ),
        ordering: String::new(),
        help: format!(
            "Call {} after the last use of what {} returns.",
            view.spell(
                block.birth.op,
                "cudaFreeAsync(pointer, stream)",
                "cuMemFreeAsync(pointer, stream)"
            ),
            view.call_at(block.birth.op),
        ),
        events: smallvec![(Role::Allocation, block.birth.op)],
    })
}
