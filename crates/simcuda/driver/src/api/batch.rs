//! Copies with attributes, one by one and in batches: who reads the source, and when, is the caller's choice.

use crate::abi::{BatchOperand, BatchOperation, CopyAttributes, In, Out, Status};
use crate::error::INVALID_VALUE;
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::{Barrier, State};
use crate::sim::transfer::{Side, Transfer};

/// `CUmemcpySrcAccessOrder`.
const IN_STREAM_ORDER: u32 = 1;
const DURING_CALL: u32 = 2;
const ANY: u32 = 3;

/// `CUmemcpy3DOperandType`.
const POINTER: u32 = 1;
const ARRAY: u32 = 2;

/// Which of a batch's copies is at fault, for callers that ask; all ones where none is.
struct Fault(usize, u32);

impl Fault {
    fn none(code: u32) -> Self {
        Self(usize::MAX, code)
    }
}

/// A copy, and the order of access to its source.
type Ordered = (Transfer, u32);

fn check(s: &State, (transfer, order): &Ordered) -> Status {
    if !matches!(*order, IN_STREAM_ORDER | DURING_CALL | ANY) {
        return Err(INVALID_VALUE);
    }
    s.place(transfer.target.address, transfer.extent(transfer.target))?;
    s.place(transfer.source.address, transfer.extent(transfer.source))
        .map(|_| ())
}

/// Submits the copies as one operation of the stream: within a batch there is no order.
fn submit(
    stream: u64,
    per_thread: bool,
    copies: impl FnOnce(&State) -> Result<Vec<Ordered>, Fault>,
) -> Result<(), Fault> {
    let mut fault = usize::MAX;
    let done = session(|s| {
        let lane = s.lane(stream, per_thread)?;
        // As `cuda.h` says of each of these calls: "must not be legacy NULL stream".
        if lane.barrier == Barrier::Legacy {
            return Err(INVALID_VALUE);
        }
        s.not_captured(lane)?;
        let mut works: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        let copies = copies(s).map_err(|Fault(index, code)| {
            fault = index;
            code
        })?;
        for (index, copy) in copies.iter().enumerate() {
            check(s, copy).inspect_err(|_| fault = index)?;
        }
        for (index, (transfer, order)) in copies.into_iter().enumerate() {
            works.push(if order == DURING_CALL {
                Box::new(transfer.stage().inspect_err(|_| fault = index)?)
            } else {
                Box::new(move || transfer.run())
            });
        }
        let run = move || works.into_iter().for_each(|work| work());
        s.submit(lane, Vec::new(), Work::Device(Box::new(run)));
        s.submitted();
        Ok(())
    });
    done.map_err(|code| Fault(fault, code))
}

/// The arrays of a batch of linear copies.
#[derive(Clone, Copy)]
struct Batch {
    targets: In<u64>,
    sources: In<u64>,
    sizes: In<usize>,
    count: usize,
    attributes: In<CopyAttributes>,
    /// The first copy that each of the attributes applies to.
    firsts: In<usize>,
    attributes_count: usize,
}

impl Batch {
    fn copies(self) -> Result<Vec<Ordered>, Fault> {
        let whole = Fault::none;
        if self.attributes_count == 0 || self.attributes_count > self.count {
            return Err(whole(INVALID_VALUE));
        }
        let mut orders = Vec::with_capacity(self.count);
        for index in 0..self.attributes_count {
            let order = self.attributes.at(index).map_err(whole)?.order;
            let first = self.firsts.at(index).map_err(whole)?;
            let end = if index + 1 == self.attributes_count {
                self.count
            } else {
                self.firsts.at(index + 1).map_err(whole)?
            };
            if first != orders.len() || end <= first || end > self.count {
                return Err(whole(INVALID_VALUE));
            }
            orders.resize(end, order);
        }
        let copy = |index: usize, order| -> Status<Ordered> {
            let (target, source) = (self.targets.at(index)?, self.sources.at(index)?);
            Ok((
                Transfer::linear(target, source, self.sizes.at(index)?),
                order,
            ))
        };
        orders
            .into_iter()
            .enumerate()
            .map(|(index, order)| copy(index, order).map_err(|code| Fault(index, code)))
            .collect()
    }

    fn run(self, stream: u64, per_thread: bool) -> Result<(), Fault> {
        submit(stream, per_thread, |_| self.copies())
    }
}

fn side(s: &State, operand: BatchOperand, extent: [usize; 3], element: usize) -> Status<Side> {
    let [width, height, depth] = extent;
    let bytes = width.checked_mul(element).ok_or(INVALID_VALUE)?;
    match operand.kind {
        ARRAY => {
            let [x, y, z] = operand.numbers;
            let x = x.checked_mul(element).ok_or(INVALID_VALUE)?;
            s.array(operand.place)?
                .side([x, y, z], [bytes, height, depth])
        }
        POINTER => {
            let [row, layer, _] = operand.numbers;
            if row != 0 && row < width || layer != 0 && layer < height {
                return Err(INVALID_VALUE);
            }
            let row = if row == 0 { width } else { row };
            let layer = if layer == 0 { height } else { layer };
            let pitch = row.checked_mul(element).ok_or(INVALID_VALUE)?;
            let layer = pitch.checked_mul(layer).ok_or(INVALID_VALUE)?;
            Ok(Side {
                address: operand.place,
                pitch,
                layer,
            })
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Elements are the arrays', or bytes where there is none.
fn box_copy(s: &State, operation: BatchOperation) -> Status<Ordered> {
    let (source, target) = (operation.source, operation.target);
    let elements = [source, target].map(|operand| match operand.kind {
        ARRAY => s.array(operand.place).map(|array| Some(array.element())),
        _ => Ok(None),
    });
    let element = match (elements[0]?, elements[1]?) {
        (Some(a), Some(b)) if a != b => return Err(INVALID_VALUE),
        (a, b) => a.or(b).unwrap_or(1),
    };
    let extent = operation.extent;
    if extent.contains(&0) {
        return Err(INVALID_VALUE);
    }
    let transfer = Transfer {
        target: side(s, target, extent, element)?,
        source: side(s, source, extent, element)?,
        width: extent[0] * element,
        height: extent[1],
        depth: extent[2],
    };
    Ok((transfer, operation.order))
}

fn boxes(
    operations: In<BatchOperation>,
    (count, flags): (usize, u64),
    stream: u64,
    per_thread: bool,
) -> Result<(), Fault> {
    if count == 0 || flags != 0 {
        return Err(Fault::none(INVALID_VALUE));
    }
    submit(stream, per_thread, |s| {
        let one = |index| {
            operations
                .at(index)
                .and_then(|operation| box_copy(s, operation))
        };
        (0..count)
            .map(|index| one(index).map_err(|code| Fault(index, code)))
            .collect()
    })
}

fn plain(result: Result<(), Fault>) -> Status {
    result.map_err(|Fault(_, code)| code)
}

/// The first versions say which copy failed.
fn told(result: Result<(), Fault>, index: Out<usize>) -> Status {
    if let Err(Fault(fault, _)) = &result {
        index.put_if_wanted(*fault);
    }
    plain(result)
}

api! {
    "cuMemcpyBatchAsync" 12080 => cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz |per_thread|
        (targets: In<u64>, sources: In<u64>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>,
         firsts: In<usize>, attributes_count: usize, fault: Out<usize>, stream: u64) {
        let batch = Batch { targets, sources, sizes, count, attributes, firsts, attributes_count };
        told(batch.run(stream, per_thread), fault)
    }
    "cuMemcpyBatchAsync" 13000 => cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz |per_thread|
        (targets: In<u64>, sources: In<u64>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>,
         firsts: In<usize>, attributes_count: usize, stream: u64) {
        let batch = Batch { targets, sources, sizes, count, attributes, firsts, attributes_count };
        plain(batch.run(stream, per_thread))
    }
    "cuMemcpy3DBatchAsync" 12080 => cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz |per_thread|
        (count: usize, operations: In<BatchOperation>, fault: Out<usize>, flags: u64, stream: u64) {
        told(boxes(operations, (count, flags), stream, per_thread), fault)
    }
    "cuMemcpy3DBatchAsync" 13000 => cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz |per_thread|
        (count: usize, operations: In<BatchOperation>, flags: u64, stream: u64) {
        plain(boxes(operations, (count, flags), stream, per_thread))
    }
    "cuMemcpyWithAttributesAsync" 13020 => cuMemcpyWithAttributesAsync / cuMemcpyWithAttributesAsync_ptsz |per_thread|
        (target: u64, source: u64, length: usize, attributes: In<CopyAttributes>, stream: u64) {
        let order = attributes.get()?.order;
        plain(submit(stream, per_thread, |_| Ok(vec![(Transfer::linear(target, source, length), order)])))
    }
    "cuMemcpy3DWithAttributesAsync" 13020 =>
        cuMemcpy3DWithAttributesAsync / cuMemcpy3DWithAttributesAsync_ptsz |per_thread|
        (operation: In<BatchOperation>, flags: u64, stream: u64) {
        plain(boxes(operation, (1, flags), stream, per_thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{
        CUDA_MEMCPY3D_BATCH_OP_st, CUmemcpy3DOperand_st, CUmemcpyAttributes_st,
    };
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_nvidias() {
        assert_eq!(
            size_of::<CopyAttributes>(),
            size_of::<CUmemcpyAttributes_st>()
        );
        assert_eq!(size_of::<BatchOperand>(), size_of::<CUmemcpy3DOperand_st>());
        assert_eq!(
            size_of::<BatchOperation>(),
            size_of::<CUDA_MEMCPY3D_BATCH_OP_st>()
        );
        assert_eq!(
            offset_of!(BatchOperation, order),
            offset_of!(CUDA_MEMCPY3D_BATCH_OP_st, srcAccessOrder)
        );
    }

    fn batch(firsts: &[usize], orders: &[u32], count: usize) -> Result<Vec<u32>, u32> {
        let hint = crate::abi::Location { kind: 0, id: 0 };
        let attributes: Vec<CopyAttributes> = orders
            .iter()
            .map(|&order| CopyAttributes {
                order,
                source_hint: hint,
                target_hint: hint,
                flags: 0,
            })
            .collect();
        let (places, sizes) = (vec![0; count], vec![0; count]);
        let batch = Batch {
            targets: In(places.as_ptr()),
            sources: In(places.as_ptr()),
            sizes: In(sizes.as_ptr()),
            count,
            attributes: In(attributes.as_ptr()),
            firsts: In(firsts.as_ptr()),
            attributes_count: orders.len(),
        };
        let copies = batch.copies().map_err(|Fault(_, code)| code)?;
        Ok(copies.into_iter().map(|(_, order)| order).collect())
    }

    #[test]
    fn attributes_apply_from_their_first_copy_on() {
        assert_eq!(batch(&[0, 2], &[1, 3], 5), Ok(vec![1, 1, 3, 3, 3]));
        assert_eq!(batch(&[0], &[2], 2), Ok(vec![2, 2]));
        for (firsts, orders, count) in [
            (&[1][..], &[1][..], 2),
            (&[0, 0], &[1, 1], 2),
            (&[0, 2], &[1, 1], 2),
            (&[0, 1], &[1, 1], 1),
            (&[0], &[], 1),
        ] {
            assert_eq!(
                batch(firsts, orders, count),
                Err(INVALID_VALUE),
                "{firsts:?} of {count}"
            );
        }
    }
}
