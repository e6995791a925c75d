//! External semaphores: signalled and waited for in streams of this process.

use crate::abi::{In, Out, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::graph::Action;
use crate::sim::sched::Work;
use crate::sim::semaphore::{Semaphore, SemaphoreParams, Semaphores};
use crate::sim::session::session;
use std::sync::Arc;

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

fn given(semaphores: In<u64>, params: In<SemaphoreParams>, count: u32) -> Status<Semaphores> {
    Ok(Semaphores {
        handles: semaphores.list(count as usize)?,
        params: params.list(count as usize)?,
    })
}

/// Appends one operation for each semaphore, all or none.
fn enqueue(
    given: Semaphores,
    (stream, per_thread): (u64, bool),
    action: impl FnOnce(Arc<Semaphores>) -> Action,
    work: impl Fn(&mut Semaphore, u64) -> Work,
) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        if given
            .handles
            .iter()
            .any(|&handle| s.semaphores.get(handle).is_none())
        {
            return Err(INVALID_HANDLE);
        }
        if let Some(capture) = s.capturing(lane)? {
            return s
                .capture_node(capture, lane, action(Arc::new(given)))
                .map(|_| ());
        }
        for (handle, value) in given.each() {
            let semaphore = s.semaphores.get_mut(handle).ok_or(INVALID_HANDLE)?;
            let work = work(semaphore, value);
            s.submit(lane, Vec::new(), work);
        }
        s.submitted();
        Ok(())
    })
}

fn signal(semaphore: &mut Semaphore, value: u64) -> Work {
    Work::Value(Box::new(semaphore.signal(value)))
}

fn wait(semaphore: &mut Semaphore, value: u64) -> Work {
    Work::Wait(Box::new(semaphore.wait(value)))
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
            let handle = s.semaphores.insert(Semaphore::new(timeline));
            semaphore.put(handle)
        })
    }
    "cuDestroyExternalSemaphore" 10000 => cuDestroyExternalSemaphore(semaphore: u64) {
        session(|s| s.semaphores.remove(semaphore).map(|_| ()).ok_or(INVALID_HANDLE))
    }
    "cuSignalExternalSemaphoresAsync" 10000 =>
        cuSignalExternalSemaphoresAsync / cuSignalExternalSemaphoresAsync_ptsz |per_thread|
        (semaphores: In<u64>, params: In<SemaphoreParams>, count: u32, stream: u64) {
        enqueue(given(semaphores, params, count)?, (stream, per_thread), Action::Signal, signal)
    }
    "cuWaitExternalSemaphoresAsync" 10000 =>
        cuWaitExternalSemaphoresAsync / cuWaitExternalSemaphoresAsync_ptsz |per_thread|
        (semaphores: In<u64>, params: In<SemaphoreParams>, count: u32, stream: u64) {
        enqueue(given(semaphores, params, count)?, (stream, per_thread), Action::AwaitSignal, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys as theirs;

    #[test]
    fn a_descriptor_is_as_large_as_nvidias() {
        assert_eq!(
            size_of::<Descriptor>(),
            size_of::<theirs::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st>()
        );
    }
}
