//! Order that no event of the application's tells of: waits for a value in memory
//! or for another API's semaphore, and events of whole contexts. What such a wait
//! stands for cannot be known, so it is taken to order after everything; each is
//! counted.

use streamcheck_model::{Action, Handle};

use crate::call::Call;
use crate::hook::hooks;

/// An event that is never created, whose history is thus never known.
const UNSEEN: Handle = Handle(u64::MAX);

/// The stream's later work waits for something out of sight.
pub(super) fn stream_waits(call: &Call, stream: usize) {
    call.record_on(stream, |stream| Action::StreamWaited {
        stream,
        event: UNSEEN,
    });
}

/// The event was, or will be, recorded out of sight: waits for it are waits for
/// something unknown, and not waits for an event without a record.
pub(super) fn event_recorded(call: &Call, event: usize) {
    call.record(Action::EventDestroyed {
        event: Handle(event as u64),
    });
}

fn waits(call: &Call, stream: usize, kind: &str) {
    call.blind_spot(kind, call.hook.api());
    stream_waits(call, stream);
}

fn signals(call: &Call, kind: &str) {
    call.blind_spot(kind, call.hook.api());
}

fn context_recorded(call: &Call, event: usize) {
    call.blind_spot("context-event", call.hook.api());
    event_recorded(call, event);
}

/// All later work of a context waits. Its streams are not known, so the host is taken
/// to have waited, which orders more.
fn context_waits(call: &Call, event: usize) {
    call.blind_spot("context-event", call.hook.api());
    call.record(Action::EventSynchronized {
        event: Handle(event as u64),
    });
}

const SEMAPHORE: &str = "external-semaphore";

hooks! { Runtime:
    fn cudaSignalExternalSemaphoresAsync | cudaSignalExternalSemaphoresAsync_ptsz
        | cudaSignalExternalSemaphoresAsync_v2 | cudaSignalExternalSemaphoresAsync_v2_ptsz: (
        semaphores: usize, parameters: usize, count: u32, stream: usize,
    ) after(call) {
        let _ = (semaphores, parameters, count, stream);
        signals(call, SEMAPHORE);
    }
    fn cudaWaitExternalSemaphoresAsync | cudaWaitExternalSemaphoresAsync_ptsz
        | cudaWaitExternalSemaphoresAsync_v2 | cudaWaitExternalSemaphoresAsync_v2_ptsz: (
        semaphores: usize, parameters: usize, count: u32, stream: usize,
    ) after(call) {
        let _ = (semaphores, parameters, count);
        waits(call, stream, SEMAPHORE);
    }
    fn cudaExecutionCtxRecordEvent: (context: usize, event: usize) after(call) {
        let _ = context;
        context_recorded(call, event);
    }
    // Which of the device's streams are the context's is not known either.
    fn cudaExecutionCtxSynchronize: (context: usize) after(call) {
        let _ = context;
        call.blind_spot("context-event", call.hook.api());
        call.record(Action::EventSynchronized { event: UNSEEN });
    }
    fn cudaExecutionCtxWaitEvent: (context: usize, event: usize) after(call) {
        let _ = context;
        context_waits(call, event);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    const MEMORY: &str = "stream-memory-operation";

    hooks! { Driver:
        fn cuStreamWaitValue32 | cuStreamWaitValue32_ptsz | cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz: (
            stream: usize, address: u64, value: u32, flags: u32,
        ) after(call) {
            let _ = (address, value, flags);
            waits(call, stream, MEMORY);
        }
        fn cuStreamWaitValue64 | cuStreamWaitValue64_ptsz | cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz: (
            stream: usize, address: u64, value: u64, flags: u32,
        ) after(call) {
            let _ = (address, value, flags);
            waits(call, stream, MEMORY);
        }
        fn cuStreamWriteValue32 | cuStreamWriteValue32_ptsz | cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz: (
            stream: usize, address: u64, value: u32, flags: u32,
        ) after(call) {
            let _ = (stream, address, value, flags);
            signals(call, MEMORY);
        }
        fn cuStreamWriteValue64 | cuStreamWriteValue64_ptsz | cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz: (
            stream: usize, address: u64, value: u64, flags: u32,
        ) after(call) {
            let _ = (stream, address, value, flags);
            signals(call, MEMORY);
        }
        // Any of the operations may be a wait.
        fn cuStreamBatchMemOp | cuStreamBatchMemOp_ptsz | cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz: (
            stream: usize, count: u32, operations: usize, flags: u32,
        ) after(call) {
            let _ = (count, operations, flags);
            waits(call, stream, MEMORY);
        }
        fn cuSignalExternalSemaphoresAsync | cuSignalExternalSemaphoresAsync_ptsz: (
            semaphores: usize, parameters: usize, count: u32, stream: usize,
        ) after(call) {
            let _ = (semaphores, parameters, count, stream);
            signals(call, SEMAPHORE);
        }
        fn cuWaitExternalSemaphoresAsync | cuWaitExternalSemaphoresAsync_ptsz: (
            semaphores: usize, parameters: usize, count: u32, stream: usize,
        ) after(call) {
            let _ = (semaphores, parameters, count);
            waits(call, stream, SEMAPHORE);
        }
        fn cuCtxRecordEvent | cuGreenCtxRecordEvent: (context: usize, event: usize) after(call) {
            let _ = context;
            context_recorded(call, event);
        }
        fn cuCtxWaitEvent | cuGreenCtxWaitEvent: (context: usize, event: usize) after(call) {
            let _ = context;
            context_waits(call, event);
        }
    }
}
