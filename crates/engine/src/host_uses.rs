//! What device work does to host memory: told to whoever guards it, and judged where the
//! CPU touches it.
//!
//! An operation's uses are put down as it is taken in, and only where somebody asked for
//! them ([`Engine::watch_host`]).

use streamcheck_model::{Call, Element, MemoryKind, Mode, Pointer, Region};

use crate::clock::Epoch;
use crate::engine::{Engine, Touch};
use crate::memory::BlockId;
use crate::op::Access;
use crate::rules::sc108_host_access_in_flight::{self, HostAccess};
use crate::rules::violation::Violation;
use crate::shadow::Footprint;

/// A use of pinned, registered or managed memory by work that has been submitted.
#[derive(Clone, Copy, Debug)]
pub struct HostUse {
    /// The bytes; of a kernel, the one at the address that it was given.
    pub region: Region,
    /// A kernel does it, and how far it reaches is not known.
    pub pointer: bool,
    /// What the kernel uses from the pointer on.
    pub element: Element,
    /// First byte and bytes of the allocation or registration.
    pub block: (u64, u64),
    /// How that was obtained.
    pub kind: MemoryKind,
    /// Whether it writes, or may by its declaration; else it reads.
    pub writes: bool,
    /// Whether what a kernel does through the pointer is not known, nor from where on.
    pub unknown: bool,
    epoch: Epoch,
}

impl Engine {
    /// From now on [`Engine::take_host_uses`] tells what operations do to host memory.
    pub fn watch_host(&mut self) {
        self.host_uses.get_or_insert_default();
    }

    /// What the operations taken in since the last call do to pinned, registered and
    /// managed memory, as far as the host does not know it complete.
    pub fn take_host_uses(&mut self) -> Vec<HostUse> {
        let mut uses = match &mut self.host_uses {
            Some(uses) => std::mem::take(uses),
            None => Vec::new(),
        };
        uses.retain(|used| !self.is_over(used));
        uses
    }

    /// Whether the host knows the use complete on NVIDIA's word, or may have seen it so.
    #[must_use]
    pub fn is_over(&self, used: &HostUse) -> bool {
        self.order.is_over_for_host(used.epoch)
    }

    /// A number that changes whenever [`Engine::is_over`] may have become true of a use.
    #[must_use]
    pub fn host_version(&self) -> u64 {
        self.order.host_news
    }

    /// Puts down what a kernel does through its parameters.
    #[cold]
    pub(crate) fn note_pointers(&mut self, access: Access, pointers: &[Pointer]) {
        for (place, pointer) in pointers.iter().enumerate() {
            let block = self.memory.find(pointer.address);
            if !self.ends_a_range(place, pointers, block) {
                let footprint = Footprint::Pointer(pointer.address, pointer.shift);
                let touch = Touch::new(footprint, pointer.mode);
                self.note(access, &touch, pointer.element, block);
            }
        }
    }

    /// Puts down what an operation that is no kernel, or a node of a launched graph, does.
    #[cold]
    pub(crate) fn note_touch(&mut self, access: Access, touch: &Touch, element: Element) {
        let block = self.memory.find(touch.footprint.address());
        self.note(access, touch, element, block);
    }

    /// The CPU touches memory. That changes nothing: it is only judged.
    pub(crate) fn host_accessed(
        &mut self,
        call: &Call,
        region: Region,
        mode: Mode,
        through: &[u64],
        found: &mut Vec<Violation>,
    ) {
        let op = self.on_host(call);
        let before = self.order.within_host_function(op.thread);
        for id in self.memory.live_in(region.address, region.end()) {
            self.end_lease(Some(id));
            let Some(allocation) = self.memory.as_live(id) else {
                continue;
            };
            let mut host = HostAccess {
                order: &self.order,
                op,
                region,
                mode,
                through,
                before,
                horizon: self.order.horizon(None, false),
            };
            if let Some(violation) = sc108_host_access_in_flight::check(&host, allocation) {
                found.push(violation);
            } else if self.order.leans() {
                host.horizon = self.order.horizon(None, true);
                let leans = sc108_host_access_in_flight::check(&host, allocation);
                found.extend(leans.map(Violation::leaning));
            }
        }
    }

    fn note(&mut self, access: Access, touch: &Touch, element: Element, block: Option<BlockId>) {
        if touch.signals || touch.over || access.op.order_unknown {
            return;
        }
        let (writes, known) = match touch.mode {
            Mode::Read => (false, true),
            Mode::Write => (true, true),
            Mode::Unknown => (false, false),
            Mode::Update | Mode::Doubtful => return,
        };
        let (region, pointer, known) = match touch.footprint {
            Footprint::Exact(region) => (region, false, known),
            Footprint::Pointer(address, shift) => {
                (Region::linear(address, 1), true, known && shift == 0)
            }
        };
        let Some(allocation) = block.and_then(|block| self.memory.as_live(block)) else {
            return;
        };
        let kind = allocation.kind;
        if !is_guarded(kind) {
            return;
        }
        let used = HostUse {
            region,
            pointer,
            element,
            block: (allocation.address, allocation.size),
            kind,
            writes,
            unknown: !known,
            epoch: access.epoch,
        };
        if let Some(uses) = &mut self.host_uses {
            uses.push(used);
        }
    }
}

/// Whether it is memory that the CPU and the device both reach by its addresses, and that
/// CUDA was told of.
fn is_guarded(kind: MemoryKind) -> bool {
    matches!(
        kind,
        MemoryKind::Pinned | MemoryKind::Registered | MemoryKind::Managed
    )
}
