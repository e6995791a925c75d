//! SC107: host memory is released while the device works on it.
//!
//! NVIDIA promises no wait in `cudaHostUnregister` or `cudaFreeHost`; the C
//! library's `free` knows nothing of the device.

use smallvec::smallvec;
use streamcheck_model::{FUNCTION_RETURN, FreeKind, MemoryKind};

use super::RuleCode;
use super::violation::{Free, Text, Violation};
use crate::Role;
use crate::memory::Allocation;
use crate::view::{View, bytes};

pub(crate) fn check(free: &Free<'_>, allocation: &Allocation, found: &mut Vec<Violation>) {
    let releases = matches!(
        free.kind,
        FreeKind::Host | FreeKind::Unregister | FreeKind::Libc
    );
    if releases && allocation.kind.is_host() {
        free.cuts_short(RuleCode::SC107, allocation, found);
    }
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, last) = (violation.block?, violation.after?);
    let (size, address) = match violation.bytes {
        0 => (block.size, block.address),
        part => (part, violation.address),
    };
    let returned = view.name(violation.at) == FUNCTION_RETURN;
    let mut help = match returned {
        true => view.wait_before("the function returns", last.op, violation.at),
        false => view.missing_edge(last.op, violation.at, violation.gap),
    };
    if block.kind == MemoryKind::Registered && !view.name(violation.at).starts_with("cu") {
        help.push_str(&format!(
            " Registered memory also needs {} before it is released.",
            view.spell(block.birth.op, "cudaHostUnregister", "cuMemHostUnregister")
        ));
    }
    Some(Text {
        message: format!(
            "{} {} of {} host memory at {:#x} while {} may still use them",
            match returned {
                true => "a function has returned, and with it went".to_owned(),
                false => format!("{} releases", view.call(violation.at)),
            },
            bytes(size),
            block.kind.label(),
            address,
            view.work_at(last.op),
        ),
        ordering: view.ordering(violation.gap, &last),
        help,
        events: smallvec![
            (Role::Allocation, block.birth.op),
            (Role::Copy, last.op),
            (Role::Free, violation.at)
        ],
    })
}
