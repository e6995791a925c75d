//! SC201: an async copy whose host memory is pageable.
//!
//! The driver stages such a copy through its own pinned buffer on the calling
//! thread, so the call may block and the transfer does not overlap.

use smallvec::smallvec;

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::op::OpRef;
use crate::view::{View, bytes};

pub(crate) fn check(copy: OpRef, address: u64, size: u64) -> Violation {
    Violation {
        address,
        bytes: size,
        ..Violation::new(RuleCode::SC201, copy)
    }
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let what = match violation.direct {
        // Such a device writes the memory itself.
        true => "it may be staged, or still be pending when the call returns",
        false => "the copy is staged and does not overlap",
    };
    Some(Text {
        message: format!(
            "{} copies {} with pageable host memory at {:#x}: {what}",
            view.work(violation.at),
            bytes(violation.bytes),
            violation.address,
        ),
        ordering: String::new(),
        help: format!(
            "Allocate the host buffer of {}, {}, with {}, or page-lock it once with {}.",
            view.call_at(violation.at),
            bytes(violation.bytes),
            view.spell(violation.at, "cudaMallocHost", "cuMemAllocHost"),
            view.spell(violation.at, "cudaHostRegister", "cuMemHostRegister"),
        ),
        events: smallvec![(Role::Copy, violation.at)],
    })
}
