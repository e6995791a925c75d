//! Stream memory operations and external semaphores: values that streams write and
//! wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use streamcheck_model::{Action, Condition, Flag, Handle};

use crate::call::Call;
use crate::hook::{hooks, written};
use crate::provider;

fn writes(call: &Call, stream: usize, flag: Flag, value: u64) {
    call.record_on(stream, |stream| Action::ValueWritten {
        stream,
        flag,
        value,
    });
}

fn waits(call: &Call, stream: usize, flag: Flag, value: u64, condition: Condition) {
    call.record_on(stream, |stream| Action::ValueWaited {
        stream,
        flag,
        value,
        condition,
    });
}

/// An external semaphore. Handles come back, so each has a number of its own.
#[derive(Clone, Copy)]
struct Semaphore {
    number: u64,
    /// Whether a signal sets it to a value.
    valued: bool,
}

static SEMAPHORES: Mutex<Option<FxHashMap<usize, Semaphore>>> = Mutex::new(None);
static NUMBERS: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);

fn semaphores() -> MutexGuard<'static, Option<FxHashMap<usize, Semaphore>>> {
    SEMAPHORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `cudaExternalSemaphoreHandleType` (driver_types.h; the driver's numbers are the
/// same): fences of Direct3D 12 and 11 and timeline semaphores have a value, which a
/// signal sets.
fn has_value(kind: u32) -> bool {
    matches!(kind, 4 | 5 | 9 | 10)
}

/// # Safety
/// `description` is that of an import that succeeded, and begins with its type.
unsafe fn imported(semaphore: usize, description: *const u32) {
    // SAFETY: the caller's promise.
    let valued = has_value(unsafe { *description });
    let number = NUMBERS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    semaphores()
        .get_or_insert_default()
        .insert(semaphore, Semaphore { number, valued });
}

fn destroyed(semaphore: usize) {
    if let Some(known) = semaphores().as_mut() {
        known.remove(&semaphore);
    }
}

/// One imported before anything was seen is of a type that is not known.
fn semaphore(handle: usize) -> Semaphore {
    let known = semaphores()
        .as_ref()
        .and_then(|all| all.get(&handle).copied());
    known.unwrap_or(Semaphore {
        number: handle as u64,
        valued: false,
    })
}

/// A list of semaphores and of their parameters, which begin with the fence's value.
#[derive(Clone, Copy)]
struct List {
    semaphores: *const usize,
    parameters: *const u8,
    /// Bytes from one semaphore's parameters to the next.
    stride: usize,
    count: u32,
}

/// Sizes of a semaphore's parameters (driver_types.h): since CUDA 11.2, and before
/// that, which the entry points without `_v2` took until CUDA 13.
const SIGNAL: (usize, usize) = (144, 32);
const WAIT: (usize, usize) = (144, 40);

const _: () = assert!(
    size_of::<cudarc::driver::sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>() == SIGNAL.0
        && size_of::<cudarc::driver::sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>() == WAIT.0
);

/// The parameters' size for a runtime call.
fn stride(call: &Call, (now, before): (usize, usize)) -> usize {
    let name = call.hook.name.to_bytes();
    let second = name.windows(3).any(|part| part == b"_v2");
    if second || provider::runtime_version().is_none_or(|version| version >= 13000) {
        now
    } else {
        before
    }
}

impl List {
    /// # Safety
    /// The list is that of a call that succeeded.
    unsafe fn each(self, mut f: impl FnMut(Semaphore, u64)) {
        if self.semaphores.is_null() || self.parameters.is_null() {
            return;
        }
        for index in 0..self.count as usize {
            // SAFETY: the caller's promise.
            let (handle, value) = unsafe {
                (
                    self.semaphores.add(index).read(),
                    self.parameters
                        .add(index * self.stride)
                        .cast::<u64>()
                        .read_unaligned(),
                )
            };
            f(semaphore(handle), value);
        }
    }

    /// # Safety
    /// As for [`Self::each`].
    unsafe fn signalled(self, call: &Call, stream: usize) {
        let signal = |semaphore: Semaphore, value| {
            let value = if semaphore.valued { value } else { 0 };
            writes(
                call,
                stream,
                Flag::Semaphore(Handle(semaphore.number)),
                value,
            );
        };
        // SAFETY: the caller's promise.
        unsafe { self.each(signal) };
    }

    /// # Safety
    /// As for [`Self::each`].
    unsafe fn waited(self, call: &Call, stream: usize) {
        let wait = |semaphore: Semaphore, value| {
            let (value, condition) = if semaphore.valued {
                (value, Condition::Reached64)
            } else {
                (0, Condition::Signalled)
            };
            let flag = Flag::Semaphore(Handle(semaphore.number));
            waits(call, stream, flag, value, condition);
        };
        // SAFETY: the caller's promise.
        unsafe { self.each(wait) };
    }
}

hooks! { Runtime:
    /// The semaphore's values are its own from here on
    fn cudaImportExternalSemaphore: (out: *const usize, description: *const u32) after(call) {
        let _ = call;
        // SAFETY: the call succeeded with the description, and wrote the handle.
        unsafe { imported(written(out), description) };
    }
    /// The semaphore's handle may stand for another from here on
    fn cudaDestroyExternalSemaphore: (handle: usize) whole(hook, real, origin) {
        Call::ahead(hook, origin, |_| destroyed(handle), || real(handle))
    }
    /// The stream signals each semaphore: to a value where the semaphore has one
    fn cudaSignalExternalSemaphoresAsync | cudaSignalExternalSemaphoresAsync_ptsz
        | cudaSignalExternalSemaphoresAsync_v2 | cudaSignalExternalSemaphoresAsync_v2_ptsz: (
        semaphores: *const usize, parameters: *const u8, count: u32, stream: usize,
    ) after(call) {
        let list = List { semaphores, parameters, stride: stride(call, SIGNAL), count };
        // SAFETY: the call succeeded with them.
        unsafe { list.signalled(call, stream) };
    }
    /// The stream's later work comes after the signals that each semaphore's wait needs
    fn cudaWaitExternalSemaphoresAsync | cudaWaitExternalSemaphoresAsync_ptsz
        | cudaWaitExternalSemaphoresAsync_v2 | cudaWaitExternalSemaphoresAsync_v2_ptsz: (
        semaphores: *const usize, parameters: *const u8, count: u32, stream: usize,
    ) after(call) {
        let list = List { semaphores, parameters, stride: stride(call, WAIT), count };
        // SAFETY: the call succeeded with them.
        unsafe { list.waited(call, stream) };
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use cudarc::driver::sys::CUstreamBatchMemOpParams;

    use super::super::unseen_order::stream_waits;
    use super::*;

    /// What `CUstreamWaitValue_flags` (cuda.h) say, apart from the flush.
    fn condition(flags: u32, bits: u32) -> Condition {
        match (flags & 3, bits) {
            (0, 32) => Condition::Reached32,
            (0, _) => Condition::Reached64,
            (1, _) => Condition::Equal,
            (2, _) => Condition::And,
            (_, 32) => Condition::Nor32,
            (_, _) => Condition::Nor64,
        }
    }

    /// # Safety
    /// `operations` are the `count` ones of a call that succeeded.
    unsafe fn batch(
        call: &Call,
        stream: usize,
        operations: *const CUstreamBatchMemOpParams,
        count: u32,
    ) {
        /// `CUstreamBatchMemOpType` (cuda.h).
        const WAIT_32: u32 = 1;
        const WRITE_32: u32 = 2;
        const FLUSH: u32 = 3;
        const WAIT_64: u32 = 4;
        const WRITE_64: u32 = 5;
        const BARRIER: u32 = 6;
        for index in 0..count as usize {
            // SAFETY: the caller's promise. Waits and writes are laid out alike: the
            // operation, the address, the value and the flags, of 4, 8, 8 and 4 bytes.
            let (kind, address, value, flags) = unsafe {
                let words = operations.add(index).cast::<u64>();
                (
                    words.cast::<u32>().read(),
                    words.add(1).read(),
                    words.add(2),
                    words.add(3).cast::<u32>().read(),
                )
            };
            // SAFETY: as above; which half of a 64-bit value is set depends on the kind.
            let (short, long) = unsafe { (u64::from(value.cast::<u32>().read()), value.read()) };
            let flag = Flag::Memory(address);
            match kind {
                WAIT_32 => waits(call, stream, flag, short, condition(flags, 32)),
                WAIT_64 => waits(call, stream, flag, long, condition(flags, 64)),
                WRITE_32 => writes(call, stream, flag, short),
                WRITE_64 => writes(call, stream, flag, long),
                FLUSH | BARRIER => {}
                _ => {
                    call.blind_spot("stream-memory-operation", call.hook.api());
                    stream_waits(call, stream);
                }
            }
        }
    }

    hooks! { Driver:
        /// The stream's later work comes after the writes that could end the wait
        fn cuStreamWaitValue32 | cuStreamWaitValue32_ptsz | cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz: (
            stream: usize, address: u64, value: u32, flags: u32,
        ) after(call) {
            waits(call, stream, Flag::Memory(address), value.into(), condition(flags, 32));
        }
        /// The stream's later work comes after the writes that could end the wait
        fn cuStreamWaitValue64 | cuStreamWaitValue64_ptsz | cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz: (
            stream: usize, address: u64, value: u64, flags: u32,
        ) after(call) {
            waits(call, stream, Flag::Memory(address), value, condition(flags, 64));
        }
        /// The stream writes a value that others may wait for
        fn cuStreamWriteValue32 | cuStreamWriteValue32_ptsz | cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz: (
            stream: usize, address: u64, value: u32, flags: u32,
        ) after(call) {
            let _ = flags;
            writes(call, stream, Flag::Memory(address), value.into());
        }
        /// The stream writes a value that others may wait for
        fn cuStreamWriteValue64 | cuStreamWriteValue64_ptsz | cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz: (
            stream: usize, address: u64, value: u64, flags: u32,
        ) after(call) {
            let _ = flags;
            writes(call, stream, Flag::Memory(address), value);
        }
        /// Each wait and each write, in their order
        fn cuStreamBatchMemOp | cuStreamBatchMemOp_ptsz | cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz: (
            stream: usize, count: u32, operations: *const CUstreamBatchMemOpParams, flags: u32,
        ) after(call) {
            let _ = flags;
            // SAFETY: the call succeeded with them.
            unsafe { batch(call, stream, operations, count) };
        }
        /// The semaphore's values are its own from here on
        fn cuImportExternalSemaphore: (out: *const usize, description: *const u32) after(call) {
            let _ = call;
            // SAFETY: the call succeeded with the description, and wrote the handle.
            unsafe { imported(written(out), description) };
        }
        /// The semaphore's handle may stand for another from here on
        fn cuDestroyExternalSemaphore: (handle: usize) whole(hook, real, origin) {
            Call::ahead(hook, origin, |_| destroyed(handle), || real(handle))
        }
        /// The stream signals each semaphore: to a value where the semaphore has one
        fn cuSignalExternalSemaphoresAsync | cuSignalExternalSemaphoresAsync_ptsz: (
            semaphores: *const usize, parameters: *const u8, count: u32, stream: usize,
        ) after(call) {
            let list = List { semaphores, parameters, stride: SIGNAL.0, count };
            // SAFETY: the call succeeded with them.
            unsafe { list.signalled(call, stream) };
        }
        /// The stream's later work comes after the signals that each semaphore's wait needs
        fn cuWaitExternalSemaphoresAsync | cuWaitExternalSemaphoresAsync_ptsz: (
            semaphores: *const usize, parameters: *const u8, count: u32, stream: usize,
        ) after(call) {
            let list = List { semaphores, parameters, stride: WAIT.0, count };
            // SAFETY: the call succeeded with them.
            unsafe { list.waited(call, stream) };
        }
    }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&SEMAPHORES)]
}
