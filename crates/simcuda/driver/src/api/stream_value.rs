//! Stream memory operations: a stream writes a value, or waits until memory holds one.

use crate::abi::{In, Status};
use crate::error::INVALID_VALUE;
use crate::sim::graph::Action;
use crate::sim::session::session;
use crate::sim::value::{
    CONDITION, Change, FLUSH, NO_BARRIER, Operation, ValueParams, Values, Width,
};
use std::sync::Arc;

/// Appends operations, all or none.
fn enqueue(operations: &[Operation], stream: u64, per_thread: bool) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        operations
            .iter()
            .try_for_each(|&operation| operation.check(s))?;
        if let Some(capture) = s.capturing(lane)? {
            let values = Values::of_operations(operations, lane.context);
            return s
                .capture_node(capture, lane, Action::Values(Arc::new(values)))
                .map(|_| ());
        }
        for &operation in operations {
            s.submit(lane, Vec::new(), operation.work());
        }
        s.submitted();
        Ok(())
    })
}

fn wait(
    width: Width,
    (address, value, flags): (u64, u64, u32),
    stream: u64,
    per_thread: bool,
) -> Status {
    if flags & !(CONDITION | FLUSH) != 0 {
        return Err(INVALID_VALUE);
    }
    enqueue(
        &[Operation::Wait(width, address, value, flags)],
        stream,
        per_thread,
    )
}

fn write(
    width: Width,
    (address, value, flags): (u64, u64, u32),
    stream: u64,
    per_thread: bool,
) -> Status {
    if flags & !NO_BARRIER != 0 {
        return Err(INVALID_VALUE);
    }
    enqueue(
        &[Operation::Change(width, address, value, Change::Set)],
        stream,
        per_thread,
    )
}

fn batch(
    params: In<ValueParams>,
    (count, flags): (u32, u32),
    stream: u64,
    per_thread: bool,
) -> Status {
    // As `cuda.h` says: at most 256 operations, and no flags.
    if count > 256 || flags != 0 {
        return Err(INVALID_VALUE);
    }
    let operations: Status<Vec<Operation>> = (0..count as usize)
        .map(|index| params.at(index)?.decode())
        .collect();
    enqueue(&operations?, stream, per_thread)
}

api! {
    // The first versions needed a driver option that NVIDIA has since dropped; here they are the same.
    "cuStreamWaitValue32" 8000 => cuStreamWaitValue32 / cuStreamWaitValue32_ptsz |per_thread|
                                  (stream: u64, address: u64, value: u32, flags: u32) {
        wait(Width::Word, (address, u64::from(value), flags), stream, per_thread)
    }
    "cuStreamWaitValue32" 11070 => cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz |per_thread|
                                   (stream: u64, address: u64, value: u32, flags: u32) {
        wait(Width::Word, (address, u64::from(value), flags), stream, per_thread)
    }
    "cuStreamWaitValue64" 9000 => cuStreamWaitValue64 / cuStreamWaitValue64_ptsz |per_thread|
                                  (stream: u64, address: u64, value: u64, flags: u32) {
        wait(Width::Double, (address, value, flags), stream, per_thread)
    }
    "cuStreamWaitValue64" 11070 => cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz |per_thread|
                                   (stream: u64, address: u64, value: u64, flags: u32) {
        wait(Width::Double, (address, value, flags), stream, per_thread)
    }
    "cuStreamWriteValue32" 8000 => cuStreamWriteValue32 / cuStreamWriteValue32_ptsz |per_thread|
                                   (stream: u64, address: u64, value: u32, flags: u32) {
        write(Width::Word, (address, u64::from(value), flags), stream, per_thread)
    }
    "cuStreamWriteValue32" 11070 => cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz |per_thread|
                                    (stream: u64, address: u64, value: u32, flags: u32) {
        write(Width::Word, (address, u64::from(value), flags), stream, per_thread)
    }
    "cuStreamWriteValue64" 9000 => cuStreamWriteValue64 / cuStreamWriteValue64_ptsz |per_thread|
                                   (stream: u64, address: u64, value: u64, flags: u32) {
        write(Width::Double, (address, value, flags), stream, per_thread)
    }
    "cuStreamWriteValue64" 11070 => cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz |per_thread|
                                    (stream: u64, address: u64, value: u64, flags: u32) {
        write(Width::Double, (address, value, flags), stream, per_thread)
    }
    "cuStreamBatchMemOp" 8000 => cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz |per_thread|
                                 (stream: u64, count: u32, params: In<ValueParams>, flags: u32) {
        batch(params, (count, flags), stream, per_thread)
    }
    "cuStreamBatchMemOp" 11070 => cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz |per_thread|
                                  (stream: u64, count: u32, params: In<ValueParams>, flags: u32) {
        batch(params, (count, flags), stream, per_thread)
    }
}
