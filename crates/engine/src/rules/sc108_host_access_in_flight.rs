//! SC108: the CPU touches memory that device work still uses.
//!
//! Page-locked and managed memory has one copy for both, and nothing but a synchronize puts
//! the CPU after the device (CUDA C++ Programming Guide, "Page-Locked Host Memory" and
//! "Coherency and Concurrency" of unified memory).

use smallvec::smallvec;
use streamcheck_model::{HOST_READ, HOST_WRITE, MemoryKind, Mode, Region};

use super::RuleCode;
use super::violation::{Text, Violation};
use crate::Role;
use crate::clock::Horizon;
use crate::memory::Allocation;
use crate::op::OpRef;
use crate::order::Order;
use crate::view::{View, bytes};

/// An access of the CPU's about to be checked.
pub(crate) struct HostAccess<'a> {
    pub(crate) order: &'a Order,
    pub(crate) op: OpRef,
    pub(crate) region: Region,
    pub(crate) mode: Mode,
    /// Pointers from which kernels are known to reach the region.
    pub(crate) through: &'a [u64],
    /// In a host function: the sequence number past which work was submitted after it. What
    /// is behind it in its stream waits for it, and of the rest nothing is said.
    pub(crate) before: Option<u64>,
    /// What the host knows.
    pub(crate) horizon: Horizon<'a>,
}

pub(crate) fn check(host: &HostAccess<'_>, allocation: &Allocation) -> Option<Violation> {
    if !matches!(host.mode, Mode::Read | Mode::Write) || !is_shared(allocation.kind) {
        return None;
    }
    let last = allocation
        .shadow
        .in_flight(host.region, host.mode, host.through, |access| {
            access.op.order_unknown
                || host.horizon.knows(access.epoch)
                || host.order.host_may_have_seen(access.epoch)
                || host.before.is_some_and(|last| access.op.sequence > last)
        })?;
    let gap = host.order.gap(None, last.epoch.slot);
    Some(Violation {
        address: host.region.address,
        bytes: host.region.bytes(),
        host: Some(host.mode),
        ..Violation::unordered(RuleCode::SC108, host.op, allocation, last, gap)
    })
}

/// Whether the CPU's and the device's accesses meet in it.
fn is_shared(kind: MemoryKind) -> bool {
    kind.is_host() || kind == MemoryKind::Managed
}

pub(crate) fn describe(violation: &Violation, view: &View<'_>) -> Option<Text> {
    let (block, last) = (violation.block?, violation.after?);
    let who = match view.name(violation.at) {
        HOST_READ | HOST_WRITE => "the host",
        call => call,
    };
    let (does, device) = match violation.host {
        Some(Mode::Write) => ("writes", "use"),
        _ => ("reads", "write"),
    };
    let mut help = view.missing_edge(last.op, violation.at, violation.gap);
    if violation.host == Some(Mode::Read) && view.kernel(last.op).is_some() {
        help.push_str(" If the kernel only reads there, declare its parameter `const`.");
    }
    Some(Text {
        message: format!(
            "{who} {does} {} at {:#x}, inside {} of {} memory, while {} may still {device} them",
            bytes(violation.bytes),
            violation.address,
            bytes(block.size),
            block.kind.label(),
            view.work_at(last.op),
        ),
        ordering: view.ordering(violation.gap, &last),
        help,
        events: smallvec![
            (Role::Allocation, block.birth.op),
            (Role::OtherAccess, last.op),
            (Role::Use, violation.at)
        ],
    })
}
