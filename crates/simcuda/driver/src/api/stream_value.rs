//! Stream memory operations: a stream writes a value, or waits until memory holds one.
//!
//! As `cuda.h` says of `cuStreamWaitValue32`: a wait blocks the work after it, and the order that comes of it is not
//! known to CUDA; so no dependency is made here, and only the bytes decide.

use crate::abi::{In, Status};
use crate::error::INVALID_VALUE;
use crate::sim::dma;
use crate::sim::memory::Place;
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::State;

/// `CUstreamWaitValue_flags`: the condition, and a flush that has no effect here.
const CONDITION: u32 = 3;
const FLUSH: u32 = 1 << 30;

/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
const NO_BARRIER: u32 = 1;

/// `CUstreamBatchMemOpType`.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;
const REDUCTION: u32 = 8;

/// How much of memory an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Word,
    Double,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Self::Word => 4,
            Self::Double => 8,
        }
    }

    /// The value in memory; `None` where nothing is mapped.
    fn read(self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        dma::read(&mut bytes[..self.bytes()], address).then(|| u64::from_le_bytes(bytes))
    }

    fn write(self, address: u64, value: u64) {
        dma::write(address, &value.to_le_bytes()[..self.bytes()]);
    }

    /// Whether memory that holds `found` lets a wait for `value` pass.
    fn passes(self, found: u64, value: u64, flags: u32) -> bool {
        match (flags & CONDITION, self) {
            (0, Self::Word) => (found as u32).wrapping_sub(value as u32) as i32 >= 0,
            (0, Self::Double) => found.wrapping_sub(value) as i64 >= 0,
            (1, Self::Word) => found as u32 == value as u32,
            (1, Self::Double) => found == value,
            (2, Self::Word) => (found & value) as u32 != 0,
            (2, Self::Double) => found & value != 0,
            (_, Self::Word) => !(found as u32 | value as u32) != 0,
            (_, Self::Double) => !(found | value) != 0,
        }
    }
}

/// What a value does to the one in memory; numbered as `CUatomicOperation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set,
    Or,
    And,
    Add,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Wait(Width, u64, u64, u32),
    Change(Width, u64, u64, Change),
    /// A barrier or a flush: nothing to do where memory is the host's.
    Nothing,
}

/// `CUstreamBatchMemOpParams`, which is 48 bytes: each kind has its address third and its value after that.
#[repr(C)]
#[derive(Clone, Copy)]
struct Params([u64; 6]);

impl Params {
    fn word(self, index: usize) -> u32 {
        (self.0[index / 2] >> (32 * (index % 2))) as u32
    }

    fn decode(self) -> Status<Operation> {
        let [_, second, third, fourth, ..] = self.0;
        let flags = self.word(6);
        let wait = |width, value| {
            if flags & !(CONDITION | FLUSH) == 0 {
                Ok(Operation::Wait(width, second, value, flags))
            } else {
                Err(INVALID_VALUE)
            }
        };
        let write = |width, value| {
            if flags & !NO_BARRIER == 0 {
                Ok(Operation::Change(width, second, value, Change::Set))
            } else {
                Err(INVALID_VALUE)
            }
        };
        match self.word(0) {
            WAIT_32 => wait(Width::Word, u64::from(third as u32)),
            WAIT_64 => wait(Width::Double, third),
            WRITE_32 => write(Width::Word, u64::from(third as u32)),
            WRITE_64 => write(Width::Double, third),
            FLUSH_REMOTE_WRITES | BARRIER => Ok(Operation::Nothing),
            REDUCTION => {
                // Operation, flags, reduction, type; then the address and the value.
                let change = match self.word(2) {
                    0 => Change::Add,
                    5 => Change::And,
                    6 => Change::Or,
                    _ => return Err(INVALID_VALUE),
                };
                match self.word(3) {
                    14 => Ok(Operation::Change(
                        Width::Word,
                        third,
                        u64::from(fourth as u32),
                        change,
                    )),
                    22 => Ok(Operation::Change(Width::Double, third, fourth, change)),
                    _ => Err(INVALID_VALUE),
                }
            }
            _ => Err(INVALID_VALUE),
        }
    }
}

/// The address must be aligned, and memory of the device or pinned; managed memory will not do.
fn check(s: &State, operation: Operation) -> Status {
    let (width, address) = match operation {
        Operation::Wait(width, address, ..) | Operation::Change(width, address, ..) => {
            (width, address)
        }
        Operation::Nothing => return Ok(()),
    };
    let length = width.bytes() as u64;
    match s.place(address, length)? {
        Place::Device | Place::Pinned if address.is_multiple_of(length) => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

fn work(operation: Operation) -> Work {
    match operation {
        Operation::Nothing => Work::Marker,
        // Memory that is gone holds nobody up: a real device would have faulted.
        Operation::Wait(width, address, value, flags) => Work::Wait(Box::new(move || {
            width
                .read(address)
                .is_none_or(|found| width.passes(found, value, flags))
        })),
        Operation::Change(width, address, value, change) => Work::Value(Box::new(move || {
            let Some(found) = width.read(address) else {
                return;
            };
            let value = match change {
                Change::Set => value,
                Change::Or => found | value,
                Change::And => found & value,
                Change::Add => found.wrapping_add(value),
            };
            width.write(address, value);
        })),
    }
}

/// Appends operations, all or none.
fn enqueue(operations: &[Operation], stream: u64, per_thread: bool) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        operations
            .iter()
            .try_for_each(|&operation| check(s, operation))?;
        for &operation in operations {
            s.submit(lane, Vec::new(), work(operation));
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

fn batch(params: In<Params>, (count, flags): (u32, u32), stream: u64, per_thread: bool) -> Status {
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
                                 (stream: u64, count: u32, params: In<Params>, flags: u32) {
        batch(params, (count, flags), stream, per_thread)
    }
    "cuStreamBatchMemOp" 11070 => cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz |per_thread|
                                  (stream: u64, count: u32, params: In<Params>, flags: u32) {
        batch(params, (count, flags), stream, per_thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{
        CUstreamBatchMemOpParams_union as Theirs,
        CUstreamBatchMemOpParams_union_CUstreamMemOpAtomicReductionParams_st as Reduction,
        CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as Wait,
    };
    use std::mem::{offset_of, size_of};

    #[test]
    fn params_are_laid_out_as_nvidias() {
        assert_eq!(size_of::<Params>(), size_of::<Theirs>());
        assert_eq!(
            (offset_of!(Wait, address), offset_of!(Wait, flags)),
            (8, 24)
        );
        assert_eq!(
            (
                offset_of!(Reduction, dataType),
                offset_of!(Reduction, address)
            ),
            (12, 16)
        );
        let params = Params([WAIT_64 as u64, 16, u64::MAX, 1, 0, 0]);
        assert_eq!(
            params.decode(),
            Ok(Operation::Wait(Width::Double, 16, u64::MAX, 1))
        );
        let params = Params([REDUCTION as u64, 14 << 32 | 6, 16, 7, 0, 0]);
        assert_eq!(
            params.decode(),
            Ok(Operation::Change(Width::Word, 16, 7, Change::Or))
        );
        assert_eq!(Params([7, 16, 0, 0, 0, 0]).decode(), Err(INVALID_VALUE));
        assert_eq!(
            Params([WRITE_32 as u64, 16, 0, 2, 0, 0]).decode(),
            Err(INVALID_VALUE)
        );
    }

    #[test]
    fn conditions_are_cuda_hs() {
        let word =
            |found: u32, value: u32, flags| Width::Word.passes(found.into(), value.into(), flags);
        assert!(word(5, 5, 0) && word(6, 5, 0) && !word(4, 5, 0));
        assert!(word(1, u32::MAX, 0) && !word(u32::MAX, 1, 0), "cyclic");
        assert!(word(5, 5, 1) && !word(6, 5, 1));
        assert!(word(6, 2, 2) && !word(6, 1, 2));
        assert!(word(6, 1, 3) && !word(0xffff_0000, 0xffff, 3));
        let double = |found, value, flags| Width::Double.passes(found, value, flags);
        assert!(double(1, u64::MAX, 0) && !double(u64::MAX, 1, 0) && !double(1 << 32, 0, 1));
    }
}
