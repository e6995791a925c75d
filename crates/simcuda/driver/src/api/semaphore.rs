//! External semaphores: signalled and waited for in streams of this process.

use crate::abi::{In, Out, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::Semaphore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `CUexternalSemaphoreHandleType`: the first, the last but one, and the last; those between are other systems'.
const OPAQUE_FD: u32 = 1;
const TIMELINE_FD: u32 = 9;
const LAST: u32 = 10;

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`, as far as it says what kind.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    kind: u32,
    handle: [u64; 2],
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `…_WAIT_PARAMS`: a fence's value first, then what other kinds need.
#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    value: u64,
    rest: [u32; 16],
    flags: u32,
    reserved: [u32; 16],
}

/// Appends one operation for each semaphore, all or none.
fn enqueue(
    semaphores: In<u64>,
    params: In<Params>,
    count: u32,
    (stream, per_thread): (u64, bool),
    work: impl Fn(&mut Semaphore, u64) -> Work,
) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        let all: Status<Vec<(u64, u64)>> = (0..count as usize)
            .map(|index| {
                let (handle, params) = (semaphores.at(index)?, params.at(index)?);
                s.semaphores.get(handle).ok_or(INVALID_HANDLE)?;
                Ok((handle, params.value))
            })
            .collect();
        for (handle, value) in all? {
            let semaphore = s.semaphores.get_mut(handle).ok_or(INVALID_HANDLE)?;
            let work = work(semaphore, value);
            s.submit(lane, Vec::new(), work);
        }
        s.submitted();
        Ok(())
    })
}

fn signal(semaphore: &mut Semaphore, value: u64) -> Work {
    let (reached, timeline) = (semaphore.reached.clone(), semaphore.timeline);
    Work::Value(Box::new(move || {
        if timeline {
            reached.fetch_max(value, Ordering::AcqRel);
        } else {
            reached.fetch_add(1, Ordering::AcqRel);
        }
    }))
}

fn wait(semaphore: &mut Semaphore, value: u64) -> Work {
    semaphore.waits += 1;
    let wanted = if semaphore.timeline {
        value
    } else {
        semaphore.waits
    };
    let reached = semaphore.reached.clone();
    Work::Wait(Box::new(move || reached.load(Ordering::Acquire) >= wanted))
}

api! {
    "cuImportExternalSemaphore" 10000 => cuImportExternalSemaphore(semaphore: Out<u64>, descriptor: In<Descriptor>) {
        session(|s| {
            semaphore.wanted()?;
            s.context(0)?;
            let timeline = match descriptor.get()?.kind {
                OPAQUE_FD => false,
                TIMELINE_FD => true,
                2..TIMELINE_FD | LAST => return Err(NOT_SUPPORTED),
                _ => return Err(INVALID_VALUE),
            };
            let reached = Arc::new(AtomicU64::new(0));
            let handle = s.semaphores.insert(Semaphore { timeline, reached, waits: 0 });
            semaphore.put(handle)
        })
    }
    "cuDestroyExternalSemaphore" 10000 => cuDestroyExternalSemaphore(semaphore: u64) {
        session(|s| s.semaphores.remove(semaphore).map(|_| ()).ok_or(INVALID_HANDLE))
    }
    "cuSignalExternalSemaphoresAsync" 10000 =>
        cuSignalExternalSemaphoresAsync / cuSignalExternalSemaphoresAsync_ptsz |per_thread|
        (semaphores: In<u64>, params: In<Params>, count: u32, stream: u64) {
        enqueue(semaphores, params, count, (stream, per_thread), signal)
    }
    "cuWaitExternalSemaphoresAsync" 10000 =>
        cuWaitExternalSemaphoresAsync / cuWaitExternalSemaphoresAsync_ptsz |per_thread|
        (semaphores: In<u64>, params: In<Params>, count: u32, stream: u64) {
        enqueue(semaphores, params, count, (stream, per_thread), wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys as theirs;
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_nvidias() {
        assert_eq!(
            size_of::<Descriptor>(),
            size_of::<theirs::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st>()
        );
        assert_eq!(
            size_of::<Params>(),
            size_of::<theirs::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st>()
        );
        assert_eq!(
            size_of::<Params>(),
            size_of::<theirs::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st>()
        );
        assert_eq!(
            offset_of!(Params, flags),
            offset_of!(theirs::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st, flags)
        );
    }

    #[test]
    fn without_a_timeline_each_wait_takes_a_signal() {
        let mut semaphore = Semaphore {
            timeline: false,
            reached: Arc::new(AtomicU64::new(0)),
            waits: 0,
        };
        let holds = |work: &Work| matches!(work, Work::Wait(holds) if holds());
        let waits = [wait(&mut semaphore, 0), wait(&mut semaphore, 0)];
        assert_eq!(waits.each_ref().map(holds), [false, false]);
        let Work::Value(run) = signal(&mut semaphore, 7) else {
            panic!("a signal writes")
        };
        run();
        assert_eq!(waits.each_ref().map(holds), [true, false]);
    }
}
