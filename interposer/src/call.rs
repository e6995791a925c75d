//! A call that the application made, from the hook's first line to its last.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use streamcheck_model::{
    Action, BatchCopy, DeviceId, Direction, FreeKind, Handle, HostMemory, MemoryKind, NodeWork,
    Outcome, Region, StreamRef,
};

use crate::doors::locals;
use crate::hook::Hook;
use crate::recorder;
use crate::room::uncancelled;
use crate::thread::{self, Inside, Origin, keeping_errno};
use crate::{coherence, place, sync_memops};

/// Whether host memory was given back at some time.
static HOST_MEMORY_RELEASED: AtomicBool = AtomicBool::new(false);

/// Whether host memory was given back at some time, of which graphs may still know.
pub(crate) fn host_memory_was_released() -> bool {
    HOST_MEMORY_RELEASED.load(Relaxed)
}

/// An outermost call: calls made while it lasts pass through their hooks.
pub(crate) struct Call {
    pub(crate) hook: &'static Hook,
    pub(crate) origin: Origin,
    _inside: Inside,
}

/// A free that is about to be made.
pub(crate) struct Free {
    pub(crate) address: u64,
    pub(crate) kind: FreeKind,
    /// The raw stream of an asynchronous free.
    pub(crate) stream: Option<usize>,
    /// What goes of it, if that is not all.
    pub(crate) part: Option<Region>,
}

impl Free {
    /// Freeing null is nothing.
    pub(crate) fn new(address: u64, kind: FreeKind) -> Option<Self> {
        (address != 0).then_some(Self {
            address,
            kind,
            stream: None,
            part: None,
        })
    }

    pub(crate) fn on_stream(address: u64, stream: usize) -> Option<Self> {
        (address != 0).then_some(Self {
            address,
            kind: FreeKind::Async,
            stream: Some(stream),
            part: None,
        })
    }

    /// Of what begins at `address` the C library takes these bytes.
    pub(crate) fn of_libc(address: u64, part: Option<Region>) -> Option<Self> {
        Self::new(address, FreeKind::Libc).map(|free| Self { part, ..free })
    }
}

impl Call {
    /// `None` when the call is another hook's own, or the tool is not at work.
    #[inline]
    pub(crate) fn enter(hook: &'static Hook, origin: Origin) -> Option<Self> {
        if recorder::dormant() {
            return None;
        }
        let inside = Inside::enter()?;
        if !recorder::running() && !begin() {
            return None;
        }
        let call = Self {
            hook,
            origin,
            _inside: inside,
        };
        locals::look(&call);
        Some(call)
    }

    /// Records something else that shows at the same place.
    pub(crate) fn aside(&self, hook: &'static Hook, f: impl FnOnce(&Self)) {
        f(&Self {
            hook,
            origin: self.origin,
            _inside: Inside::nest(),
        });
    }

    /// Runs what is to be recorded.
    #[inline]
    pub(crate) fn finish(&self, f: impl FnOnce(&Self)) {
        keeping_errno(|| guarded(|| f(self)));
    }

    /// Makes a call that gives a handle back, recorded before it: another thread may be
    /// handed the same handle before the call returns. A call that fails is not taken
    /// back: either the handle stood for nothing, or CUDA is in an error that sticks.
    pub(crate) fn ahead(
        hook: &'static Hook,
        origin: Origin,
        before: impl FnOnce(&Self),
        real: impl FnOnce() -> u32,
    ) -> u32 {
        let Some(call) = Self::enter(hook, origin) else {
            return real();
        };
        call.finish(before);
        real()
    }

    /// Records a free before the real call. False if there is nothing to settle.
    pub(crate) fn begin_free(&self, f: impl FnOnce(&Self) -> Option<Free>) -> bool {
        keeping_errno(|| {
            guarded(|| {
                let Some(free) = f(self) else { return false };
                if let FreeKind::Host | FreeKind::Unregister | FreeKind::Libc = free.kind {
                    HOST_MEMORY_RELEASED.store(true, Relaxed);
                }
                let stream = free.stream.map(|raw| self.stream(raw));
                place::learn();
                recorder::record(
                    self,
                    Action::FreeBegun {
                        address: free.address,
                        kind: free.kind,
                        stream,
                        part: free.part,
                    },
                );
                true
            })
            .unwrap_or(false)
        })
    }

    /// Host memory that begins there is gone, or a part of it.
    pub(crate) fn released(&self, address: u64, part: Option<Region>) {
        if self.begin_free(|_| Free::of_libc(address, part)) {
            self.end_free(0);
        }
    }

    pub(crate) fn end_free(&self, status: u32) {
        self.finish(|call| {
            call.record(Action::FreeEnded {
                outcome: outcome(status),
            });
        });
    }

    /// Which stream a raw handle names in this call.
    pub(crate) fn stream(&self, raw: usize) -> StreamRef {
        match raw {
            0 if self.hook.per_thread => StreamRef::PerThread,
            // `cudaStreamLegacy` and `cudaStreamPerThread` (driver_types.h).
            0 | 1 => StreamRef::Legacy,
            2 => StreamRef::PerThread,
            handle => StreamRef::Created(Handle(handle as u64)),
        }
    }

    /// Records what happened outside of any stream.
    #[inline]
    pub(crate) fn record(&self, action: Action) {
        place::learn();
        recorder::record(self, action);
    }

    /// Records work put into a stream, or captured by it.
    #[inline]
    pub(crate) fn record_on(&self, raw: usize, action: impl FnOnce(StreamRef) -> Action) {
        self.record(action(self.stream(raw)));
    }

    /// Records a copy, `sides` being where it reads and writes first.
    fn record_copy_on(
        &self,
        raw: usize,
        sides: (u64, u64),
        direction: Direction,
        action: impl FnOnce(StreamRef, HostMemory) -> Action,
    ) {
        place::learn();
        let stream = self.stream(raw);
        recorder::record_copy(self, sides, direction, |host| action(stream, host));
    }

    pub(crate) fn allocated(&self, address: u64, size: usize, kind: MemoryKind) {
        if address != 0 && size != 0 {
            sync_memops::allocated(address, size as u64);
            self.record(Action::Allocated {
                address,
                size: size as u64,
                kind,
                stream: None,
                pool: Handle::default(),
            });
        }
    }

    /// `pool` is the one that the call named, 0 for the device's own.
    pub(crate) fn allocated_on(&self, raw: usize, address: u64, size: usize, pool: usize) {
        if address != 0 && size != 0 {
            sync_memops::allocated(address, size as u64);
            self.record_on(raw, |stream| Action::Allocated {
                address,
                size: size as u64,
                kind: MemoryKind::StreamOrdered,
                stream: Some(stream),
                pool: Handle(pool as u64),
            });
        }
    }

    pub(crate) fn copied(&self, copy: &Copy) {
        let sides = (copy.from.address, copy.to.address);
        let record = || {
            self.record_copy_on(copy.stream, sides, copy.direction, |stream, host| {
                Action::Copied {
                    stream,
                    to: copy.to,
                    from: copy.from,
                    direction: copy.direction,
                    host,
                    synchronous: copy.synchronous,
                }
            });
        };
        match copy.synchronous {
            true => record(),
            false => coherence::copied(self, copy.to, copy.direction, record),
        }
        if copy.synchronous && sync_memops::wait(&[copy.to, copy.from]) {
            self.waited(copy.stream);
        }
    }

    /// A copy of a volume: bytes written and bytes read, layer by layer.
    pub(crate) fn copied_in_layers(
        &self,
        raw: usize,
        layers: Vec<(Region, Region)>,
        direction: Direction,
        synchronous: bool,
    ) {
        let Some(&(to, from)) = layers.first() else {
            return;
        };
        let waits = synchronous
            && layers
                .iter()
                .any(|&(to, from)| sync_memops::wait(&[to, from]));
        let sides = (from.address, to.address);
        let end = layers.iter().map(|(to, _)| to.end()).max();
        let all = Region::linear(to.address, end.unwrap_or(0).saturating_sub(to.address));
        let record = || {
            self.record_copy_on(raw, sides, direction, |stream, host| {
                Action::CopiedInLayers {
                    stream,
                    layers,
                    direction,
                    host,
                    synchronous,
                }
            });
        };
        match synchronous {
            true => record(),
            false => coherence::copied(self, all, direction, record),
        }
        if waits {
            self.waited(raw);
        }
    }

    pub(crate) fn copied_together(&self, raw: usize, copies: Vec<BatchCopy>) {
        if !copies.is_empty() {
            self.record_on(raw, |stream| Action::CopiedTogether { stream, copies });
        }
    }

    pub(crate) fn filled(&self, raw: usize, to: Region, synchronous: bool) {
        self.record_on(raw, |stream| Action::Filled {
            stream,
            to,
            synchronous,
        });
        if synchronous && sync_memops::wait(&[to]) {
            self.waited(raw);
        }
    }

    /// The call waited for its stream.
    pub(crate) fn waited(&self, raw: usize) {
        self.record_on(raw, |stream| Action::StreamSynchronized {
            stream,
            polled: false,
        });
    }

    /// All earlier work of these devices, and of the current one, comes before all
    /// later work of theirs.
    pub(crate) fn barrier(&self, devices: impl IntoIterator<Item = u16>) {
        place::learn();
        let (here, _) = place::current();
        let mut all = smallvec::smallvec![here];
        for device in devices.into_iter().map(DeviceId) {
            if !all.contains(&device) {
                all.push(device);
            }
        }
        self.record(Action::Barrier { devices: all });
    }

    /// Records work whose accesses cannot be told, or are of no account: it only takes
    /// its place in its stream.
    pub(crate) fn unseen_work(&self, raw: usize) {
        self.record_on(raw, |stream| Action::Enqueued { stream });
    }

    /// Records a node that the stream's capture got and that is no work of a stream's.
    pub(crate) fn captured(&self, raw: usize, work: NodeWork) {
        self.record_on(raw, |stream| Action::NodeCaptured { stream, work });
    }

    /// Counts something that cannot be seen into.
    pub(crate) fn blind_spot(&self, kind: &str, example: &str) {
        recorder::blind_spot(self, kind, example);
    }
}

/// A copy as a call states it.
pub(crate) struct Copy {
    pub(crate) stream: usize,
    pub(crate) to: Region,
    pub(crate) from: Region,
    pub(crate) direction: Direction,
    pub(crate) synchronous: bool,
}

fn outcome(status: u32) -> Outcome {
    match status {
        0 => Outcome::Succeeded,
        // Invalid value, host pointer, device pointer; symbol not found; host
        // memory not registered (driver_types.h; the driver's codes are the same).
        1 | 16 | 17 | 500 | 713 => Outcome::Refused,
        _ => Outcome::Failed,
    }
}

/// Runs our own code at any depth of calls, unless a signal's handler interrupted such code,
/// as there may be a lock in its hands.
pub(crate) fn quietly<R>(f: impl FnOnce() -> R) -> Option<R> {
    if thread::block().in_own_code() {
        return None;
    }
    let _inside = Inside::nest();
    keeping_errno(|| guarded(f))
}

#[cold]
fn begin() -> bool {
    keeping_errno(|| guarded(|| uncancelled(recorder::start)).unwrap_or(false))
}

/// Runs our own code so that no panic reaches the application.
pub(crate) fn guarded<R>(f: impl FnOnce() -> R) -> Option<R> {
    match std::panic::catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(_) => {
            recorder::give_up("an internal error");
            None
        }
    }
}
