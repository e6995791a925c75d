//! What a rule's check hands to its description.

use smallvec::SmallVec;
use streamcheck_model::{FreeKind, MemoryKind, Mode, Region, StackId};

use super::RuleCode;
use crate::clock::Horizon;
use crate::memory::{Allocation, Past};
use crate::op::{Access, OpRef};
use crate::order::{Gap, Order, StreamId};
use crate::shadow::Footprint;
use crate::{AllocationFacts, Role};

/// The block that a finding is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) birth: Access,
}

impl Block {
    pub(crate) fn facts(&self) -> AllocationFacts {
        AllocationFacts {
            address: self.address,
            size: self.size,
            kind: self.kind,
        }
    }
}

impl From<&Allocation> for Block {
    fn from(allocation: &Allocation) -> Self {
        Self {
            address: allocation.address,
            size: allocation.size,
            kind: allocation.kind,
            birth: allocation.birth,
        }
    }
}

impl From<&Past> for Block {
    fn from(past: &Past) -> Self {
        Self {
            address: past.address,
            size: past.size,
            kind: past.kind,
            birth: past.birth,
        }
    }
}

/// A rule broken. Small and copied out of the state, so that describing it can
/// wait until it is known to be new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: RuleCode,
    /// The call at fault.
    pub(crate) at: OpRef,
    /// The memory concerned.
    pub(crate) block: Option<Block>,
    /// What `at` should have come after, if that is the fault.
    pub(crate) after: Option<Access>,
    /// How far it does, as of the call.
    pub(crate) gap: Option<Gap>,
    /// The earlier owner of the block's address: its last use and its free.
    pub(crate) earlier: Option<(Option<OpRef>, OpRef)>,
    /// The address that was given.
    pub(crate) address: u64,
    /// Bytes concerned, where the call says so.
    pub(crate) bytes: u64,
    /// The device copies to pageable memory by itself.
    pub(crate) direct: bool,
    /// What the CPU does, where that is the fault.
    pub(crate) host: Option<Mode>,
    /// Which call tried to free.
    pub(crate) free: Option<FreeKind>,
    /// The node of a launched graph that is at fault: the call that made it.
    pub(crate) node: Option<OpRef>,
    /// `at` and `after` are nodes of one graph, which only its edges order.
    pub(crate) inside: bool,
}

impl Violation {
    pub(crate) fn new(rule: RuleCode, at: OpRef) -> Self {
        Self {
            rule,
            at,
            block: None,
            after: None,
            gap: None,
            earlier: None,
            address: 0,
            bytes: 0,
            direct: false,
            host: None,
            free: None,
            node: None,
            inside: false,
        }
    }

    /// `at`, on a stream or on the host, should have come after `after`.
    pub(crate) fn unordered(
        rule: RuleCode,
        at: OpRef,
        block: &Allocation,
        after: Access,
        gap: Gap,
    ) -> Self {
        Self {
            block: Some(block.into()),
            after: Some(after),
            gap: Some(gap),
            ..Self::new(rule, at)
        }
    }

    /// The use concerned, for telling findings apart: of a free in flight, the use
    /// that it cuts short.
    pub(crate) fn used_by(&self) -> OpRef {
        match (self.rule, self.after) {
            (RuleCode::SC103 | RuleCode::SC107, Some(last)) => last.op,
            _ => self.at,
        }
    }

    /// The same order, kept only by a wait that is not promised.
    pub(crate) fn leaning(self) -> Self {
        Self {
            rule: RuleCode::SC203,
            ..self
        }
    }

    /// The site of the allocation, for telling findings apart.
    pub(crate) fn allocation_site(&self) -> StackId {
        self.block
            .map_or(StackId::default(), |block| block.birth.op.stack)
    }
}

/// A use about to be checked.
pub(crate) struct Use<'a> {
    pub(crate) order: &'a Order,
    pub(crate) stream: StreamId,
    pub(crate) op: OpRef,
    pub(crate) footprint: Footprint,
    pub(crate) mode: Mode,
    /// It may come before earlier work of its own stream: only what the host knew
    /// complete comes before it for sure.
    pub(crate) early: bool,
    /// What it comes after.
    pub(crate) horizon: Horizon<'a>,
}

impl Use<'_> {
    /// How far the use is ordered after the timeline of `access`.
    pub(crate) fn gap(&self, access: &Access) -> Gap {
        let stream = (!self.early).then_some(self.stream);
        self.order.gap(stream, access.epoch.slot)
    }

    /// Whether `access` happens before the use, or may for all one knows.
    #[inline]
    pub(crate) fn is_after(&self, access: &Access) -> bool {
        access.op.order_unknown
            || (self.op.order_unknown && !self.early)
            || self.horizon.knows(access.epoch)
    }
}

/// A free about to be checked.
pub(crate) struct Free<'a> {
    pub(crate) order: &'a Order,
    /// The stream of an asynchronous free; otherwise the host frees at once.
    pub(crate) stream: Option<StreamId>,
    pub(crate) op: OpRef,
    pub(crate) kind: FreeKind,
    pub(crate) address: u64,
    /// The bytes that go, if that is not all of the allocation.
    pub(crate) part: Option<Region>,
    /// Judge by what NVIDIA promises alone.
    pub(crate) strict: bool,
}

impl Free<'_> {
    /// How far the free is ordered after the timeline of `access`.
    pub(crate) fn gap(&self, access: &Access) -> Gap {
        match self.stream {
            Some(stream) => self.order.would_gap(stream, access.epoch.slot),
            None => self.order.gap(None, access.epoch.slot),
        }
    }

    /// A violation for each use of the allocation that the free does not come after.
    pub(crate) fn cuts_short(
        &self,
        rule: RuleCode,
        allocation: &Allocation,
        found: &mut Vec<Violation>,
    ) {
        if let Some(part) = self.part {
            let last = allocation
                .shadow
                .in_flight(part, Mode::Write, &[], |access| self.is_after(access));
            found.extend(last.map(|last| Violation {
                address: part.address,
                bytes: part.bytes(),
                ..Violation::unordered(rule, self.op, allocation, last, self.gap(&last))
            }));
            return;
        }
        let pending = allocation.uses.iter().filter(|last| !self.is_after(last));
        found
            .extend(pending.map(|last| {
                Violation::unordered(rule, self.op, allocation, *last, self.gap(last))
            }));
    }

    /// Whether `access` happens before the free, or may for all one knows.
    pub(crate) fn is_after(&self, access: &Access) -> bool {
        access.op.order_unknown
            || self.stream.is_none() && self.order.host_may_have_seen(access.epoch)
            || match (self.stream, self.strict) {
                (Some(stream), _) if self.order.would_await(stream) => true,
                (Some(stream), false) => self.order.would_know(stream, access.epoch),
                (Some(stream), true) => self.order.would_be_promised(stream, access.epoch),
                (None, false) => self.order.host_knows(access.epoch),
                (None, true) => self.order.host_is_promised(access.epoch),
            }
    }
}

/// A finding's texts.
pub(crate) struct Text {
    pub(crate) message: String,
    pub(crate) ordering: String,
    pub(crate) help: String,
    pub(crate) events: SmallVec<[(Role, OpRef); 4]>,
}
