//! Values in memory that streams write, and wait for.
//!
//! As `cuda.h` says of `cuStreamWaitValue32`: a wait blocks the work after it, and the order that comes of it is not
//! known to CUDA; so no dependency is made here, and only the bytes decide.

use super::dma;
use super::memory::Place;
use super::plan::Task;
use super::sched::Work;
use super::state::State;
use crate::abi::Status;
use crate::error::INVALID_VALUE;
use std::sync::Arc;

/// `CUstreamWaitValue_flags`: the condition, and a flush that has no effect here.
pub(crate) const CONDITION: u32 = 3;
pub(crate) const FLUSH: u32 = 1 << 30;

/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
pub(crate) const NO_BARRIER: u32 = 1;

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
pub(crate) enum Width {
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
pub(crate) enum Change {
    Set,
    Or,
    And,
    Add,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Wait(Width, u64, u64, u32),
    Change(Width, u64, u64, Change),
    /// A barrier or a flush: nothing to do where memory is the host's.
    Nothing,
}

/// `CUstreamBatchMemOpParams`, which is 48 bytes: each kind has its address third and its value after that.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ValueParams([u64; 6]);

impl ValueParams {
    fn word(self, index: usize) -> u32 {
        (self.0[index / 2] >> (32 * (index % 2))) as u32
    }

    pub(crate) fn decode(self) -> Status<Operation> {
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

/// Writes the value if something is mapped there.
fn change(width: Width, address: u64, value: u64, change: Change) {
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
}

impl Operation {
    /// The opposite of [`ValueParams::decode`], as far as an operation can be told.
    fn encode(self) -> ValueParams {
        let double = |width| width == Width::Double;
        ValueParams(match self {
            Self::Nothing => [u64::from(BARRIER), 0, 0, 0, 0, 0],
            Self::Wait(width, address, value, flags) => {
                let kind = if double(width) { WAIT_64 } else { WAIT_32 };
                [u64::from(kind), address, value, u64::from(flags), 0, 0]
            }
            Self::Change(width, address, value, Change::Set) => {
                let kind = if double(width) { WRITE_64 } else { WRITE_32 };
                [u64::from(kind), address, value, 0, 0, 0]
            }
            Self::Change(width, address, value, change) => {
                let how: u64 = match change {
                    Change::And => 5,
                    Change::Or => 6,
                    Change::Set | Change::Add => 0,
                };
                let data: u64 = if double(width) { 22 } else { 14 };
                [u64::from(REDUCTION), data << 32 | how, address, value, 0, 0]
            }
        })
    }

    /// The address must be aligned, and memory of the device or pinned; managed memory will not do.
    pub(crate) fn check(self, s: &State) -> Status {
        let (width, address) = match self {
            Self::Wait(width, address, ..) | Self::Change(width, address, ..) => (width, address),
            Self::Nothing => return Ok(()),
        };
        let length = width.bytes() as u64;
        match s.place(address, length)? {
            Place::Device | Place::Pinned if address.is_multiple_of(length) => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Memory lets a wait pass. Memory that is gone holds nobody up: a real device would have faulted.
    fn holds(self) -> bool {
        match self {
            Self::Wait(width, address, value, flags) => width
                .read(address)
                .is_none_or(|found| width.passes(found, value, flags)),
            _ => true,
        }
    }

    pub(crate) fn work(self) -> Work {
        match self {
            Self::Nothing => Work::Marker,
            Self::Wait(..) => Work::Wait(Box::new(move || self.holds())),
            Self::Change(width, address, value, how) => {
                Work::Value(Box::new(move || change(width, address, value, how)))
            }
        }
    }

    /// The same for a node of a graph.
    pub(crate) fn task(self) -> Task {
        match self {
            Self::Wait(..) => Task::Until(Arc::new(move || self.holds())),
            _ => Task::Same(Arc::new(move || self.work())),
        }
    }
}

/// Operations in a row, as a node of a graph has them.
pub(crate) struct Values {
    pub(crate) context: u64,
    pub(crate) params: Vec<ValueParams>,
    pub(crate) operations: Vec<Operation>,
}

impl Values {
    pub(crate) fn new(params: Vec<ValueParams>, context: u64) -> Status<Self> {
        let operations: Status<Vec<Operation>> =
            params.iter().map(|params| params.decode()).collect();
        Ok(Self {
            context,
            operations: operations?,
            params,
        })
    }

    pub(crate) fn of_operations(operations: &[Operation], context: u64) -> Self {
        Self {
            context,
            params: operations.iter().map(|op| op.encode()).collect(),
            operations: operations.to_vec(),
        }
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
        assert_eq!(size_of::<ValueParams>(), size_of::<Theirs>());
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
        let params = ValueParams([WAIT_64 as u64, 16, u64::MAX, 1, 0, 0]);
        assert_eq!(
            params.decode(),
            Ok(Operation::Wait(Width::Double, 16, u64::MAX, 1))
        );
        let params = ValueParams([REDUCTION as u64, 14 << 32 | 6, 16, 7, 0, 0]);
        assert_eq!(
            params.decode(),
            Ok(Operation::Change(Width::Word, 16, 7, Change::Or))
        );
        for operation in [
            Operation::Wait(Width::Word, 16, 3, 1),
            Operation::Change(Width::Double, 16, 3, Change::Set),
            Operation::Change(Width::Double, 16, 3, Change::And),
            Operation::Nothing,
        ] {
            assert_eq!(operation.encode().decode(), Ok(operation));
        }
        assert_eq!(
            ValueParams([7, 16, 0, 0, 0, 0]).decode(),
            Err(INVALID_VALUE)
        );
        assert_eq!(
            ValueParams([WRITE_32 as u64, 16, 0, 2, 0, 0]).decode(),
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
