//! External semaphores. Nothing outside of this process reaches them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Semaphore {
    /// It has values of the caller's choice; without them, each wait takes one signal, first come first served.
    pub(crate) timeline: bool,
    /// The newest value, or the number of signals.
    pub(crate) reached: Arc<AtomicU64>,
    /// Waits submitted so far.
    pub(crate) waits: u64,
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `…_WAIT_PARAMS`: a fence's value first, then what other kinds need.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SemaphoreParams {
    pub(crate) value: u64,
    rest: [u32; 16],
    flags: u32,
    reserved: [u32; 16],
}

/// Semaphores of one operation.
pub(crate) struct Semaphores {
    pub(crate) handles: Vec<u64>,
    pub(crate) params: Vec<SemaphoreParams>,
}

impl Semaphores {
    /// Each handle, and the value that is wanted of it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.handles
            .iter()
            .zip(&self.params)
            .map(|(&handle, params)| (handle, params.value))
    }
}

impl Semaphore {
    pub(crate) fn new(timeline: bool) -> Self {
        Self {
            timeline,
            reached: Arc::new(AtomicU64::new(0)),
            waits: 0,
        }
    }

    /// What signals it.
    pub(crate) fn signal(&self, value: u64) -> impl Fn() + Send + Sync + use<> {
        let (reached, timeline) = (self.reached.clone(), self.timeline);
        move || {
            if timeline {
                reached.fetch_max(value, Ordering::AcqRel);
            } else {
                reached.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// One more wait for it: whether it is over.
    pub(crate) fn wait(&mut self, value: u64) -> impl Fn() -> bool + Send + Sync + use<> {
        self.waits += 1;
        let wanted = if self.timeline { value } else { self.waits };
        let reached = self.reached.clone();
        move || reached.load(Ordering::Acquire) >= wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys as theirs;
    use std::mem::{offset_of, size_of};

    #[test]
    fn params_are_laid_out_as_nvidias() {
        type Signal = theirs::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st;
        assert_eq!(size_of::<SemaphoreParams>(), size_of::<Signal>());
        assert_eq!(
            size_of::<SemaphoreParams>(),
            size_of::<theirs::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st>()
        );
        assert_eq!(
            offset_of!(SemaphoreParams, flags),
            offset_of!(Signal, flags)
        );
    }

    #[test]
    fn without_a_timeline_each_wait_takes_a_signal() {
        let mut semaphore = Semaphore::new(false);
        let waits = [semaphore.wait(0), semaphore.wait(0)];
        assert_eq!([waits[0](), waits[1]()], [false, false]);
        semaphore.signal(7)();
        assert_eq!([waits[0](), waits[1]()], [true, false]);
    }
}
