//! Copies that one call submits together, which have no order among themselves, and
//! copies with attributes. When each source is read is its attribute's to say
//! (`cudaMemcpyAttributes` in the runtime's reference; the driver's are the same).

use cudarc::driver::sys::{CUDA_MEMCPY3D_BATCH_OP, CUmemcpyAttributes};
use cudarc::runtime::sys::{cudaMemcpy3DBatchOp, cudaMemcpyAttributes};
use streamcheck_model::{BatchCopy, Direction, HostMemory, Region, SourceOrder};

use super::arrays::unseen;
use super::libc_door;
use super::volumes::{self, Extent, Volume};
use crate::call::Call;
use crate::hook::hooks;
use crate::{provider, recorder};

const _: () = assert!(size_of::<CUmemcpyAttributes>() == size_of::<cudaMemcpyAttributes>());
const _: () = assert!(size_of::<CUDA_MEMCPY3D_BATCH_OP>() == size_of::<cudaMemcpy3DBatchOp>());

/// `cudaMemcpySrcAccessOrder` (driver_types.h).
fn order(value: u32) -> SourceOrder {
    match value {
        2 => SourceOrder::DuringCall,
        3 => SourceOrder::Any,
        _ => SourceOrder::Stream,
    }
}

/// Where a runtime's batch call has its stream: CUDA 13 took a parameter out before it.
fn batch_stream(before: usize, since: usize) -> usize {
    if provider::runtime_version().is_some_and(|version| version < 13000) {
        before
    } else {
        since
    }
}

/// What is known of a copy's sides, one of which may be host memory.
fn copy(to: Region, from: Region, order: SourceOrder) -> BatchCopy {
    BatchCopy {
        to,
        from,
        host: recorder::host_memory(from.address, to.address, Direction::Inferred),
        order,
    }
}

fn together(call: &Call, stream: usize, copies: Vec<BatchCopy>) {
    // The C library may take memory away that the copies still read or write.
    let pageable = copies
        .iter()
        .filter(|copy| copy.host == HostMemory::Pageable);
    let mut pageable: Vec<Region> = pageable
        .flat_map(|copy| {
            let from = (copy.order != SourceOrder::DuringCall).then_some(copy.from);
            from.into_iter().chain([copy.to])
        })
        .collect();
    if pageable.is_empty() {
        call.copied_together(stream, copies);
        return;
    }
    let addresses: Vec<u64> = pageable.iter().map(|side| side.address).collect();
    let mut unknown = recorder::are_unknown(&addresses).into_iter();
    pageable.retain(|side| unknown.next() == Some(true) && side.bytes() != 0);
    libc_door::make_room(pageable.len());
    call.copied_together(stream, copies);
    for _ in 0..libc_door::watch_pageable(call, &pageable) {
        call.blind_spot("forgotten-sources", call.hook.api());
    }
}

/// The lists of a batch call.
#[derive(Clone, Copy)]
struct Lists {
    to: *const u64,
    from: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const CUmemcpyAttributes,
    /// The first copy that each of the attributes is for.
    indices: *const usize,
    attribute_count: usize,
}

impl Lists {
    /// # Safety
    /// The lists are those of a call that succeeded.
    unsafe fn copied(self, call: &Call, stream: usize) {
        // SAFETY: the caller's promise; lists that a call took with success are no
        // null pointers, unless they are empty.
        let copies = unsafe {
            let attributes: Vec<(usize, SourceOrder)> = (0..self.attribute_count)
                .map(|index| {
                    // An enum, read as an integer.
                    let order = &raw const (*self.attributes.add(index)).srcAccessOrder;
                    (self.indices.add(index).read(), order.cast::<u32>().read())
                })
                .map(|(first, value)| (first, order(value)))
                .collect();
            (0..self.count)
                .map(|index| {
                    let after = attributes.partition_point(|(first, _)| *first <= index);
                    let order = after
                        .checked_sub(1)
                        .map_or(SourceOrder::Stream, |own| attributes[own].1);
                    let bytes = self.sizes.add(index).read() as u64;
                    copy(
                        Region::linear(self.to.add(index).read(), bytes),
                        Region::linear(self.from.add(index).read(), bytes),
                        order,
                    )
                })
                .collect()
        };
        together(call, stream, copies);
    }
}

/// # Safety
/// `attributes` are those of a copy that succeeded.
unsafe fn with_attributes(
    call: &Call,
    stream: usize,
    to: u64,
    from: u64,
    size: usize,
    attributes: *const CUmemcpyAttributes,
) {
    let order = if attributes.is_null() {
        SourceOrder::Stream
    } else {
        // SAFETY: the caller's promise; an enum, read as an integer.
        order(unsafe {
            (&raw const (*attributes).srcAccessOrder)
                .cast::<u32>()
                .read()
        })
    };
    let (to, from) = (
        Region::linear(to, size as u64),
        Region::linear(from, size as u64),
    );
    together(call, stream, vec![copy(to, from, order)]);
}

/// # Safety
/// `operations` are the `count` ones of a call that succeeded.
unsafe fn volumes(
    call: &Call,
    stream: usize,
    operations: *const CUDA_MEMCPY3D_BATCH_OP,
    count: usize,
) {
    let mut copies = Vec::new();
    let mut all = true;
    for index in 0..count {
        // SAFETY: the caller's promise; enums are read as integers, and of a union the
        // part that its type names.
        let (to, from, extent, order) = unsafe {
            let operation = operations.add(index);
            let extent = (*operation).extent;
            (
                Operand::of(&raw const (*operation).dst),
                Operand::of(&raw const (*operation).src),
                [extent.width, extent.height, extent.depth].map(|size| size as u64),
                order(
                    (&raw const (*operation).srcAccessOrder)
                        .cast::<u32>()
                        .read(),
                ),
            )
        };
        match parts(to, from, extent) {
            Some(parts) => {
                copies.extend(parts.into_iter().map(|(to, from)| copy(to, from, order)));
            }
            None => all = false,
        }
    }
    if !all {
        unseen(call, stream, "batch-copy", false);
    }
    together(call, stream, copies);
}

/// One side of a copy of a volume.
#[derive(Clone, Copy)]
enum Operand {
    /// Memory: its address, and elements in a row and rows in a layer, 0 where they
    /// are the copy's own.
    Memory(u64, u64, u64),
    /// An array.
    Array(usize),
}

impl Operand {
    /// # Safety
    /// `operand` is one of a copy that succeeded.
    unsafe fn of(operand: *const cudarc::driver::sys::CUmemcpy3DOperand) -> Self {
        const ARRAY: u32 = 2;
        // SAFETY: the caller's promise; the type is read as an integer, and of the
        // union the part that it names.
        unsafe {
            if (&raw const (*operand).type_).cast::<u32>().read() == ARRAY {
                return Self::Array((*operand).op.array.array as usize);
            }
            let memory = (&raw const (*operand).op.ptr).cast::<u64>();
            // The address, the row's length and the layer's height; a location follows.
            Self::Memory(memory.read(), memory.add(1).read(), memory.add(2).read())
        }
    }

    /// Bytes in one of its elements. Memory's are the array's on the other side.
    fn element(self) -> Option<Option<u64>> {
        match self {
            Self::Memory(..) => Some(None),
            Self::Array(array) => volumes::element_size(array).map(Some),
        }
    }
}

/// What one copy of a batch reads and writes, if it can be told.
fn parts(to: Operand, from: Operand, extent: [u64; 3]) -> Option<Vec<(Region, Region)>> {
    let [width, height, depth] = extent;
    let element = match (to, from) {
        (Operand::Array(_), Operand::Array(_)) => return None,
        _ => to.element()?.or(from.element()?).unwrap_or(1),
    };
    let side = |operand| match operand {
        Operand::Array(_) => None,
        Operand::Memory(address, row, layer) => Some(Volume {
            address,
            pitch: element.saturating_mul(if row == 0 { width } else { row }),
            height: if layer == 0 { height } else { layer },
        }),
    };
    let extent = Extent {
        width: element.saturating_mul(width),
        height,
        depth,
    };
    volumes::parts(side(to), side(from), extent)
}

hooks! { Runtime:
    // CUDA 12 had `failIdx` before the stream; a 9th argument that was not given is
    // never looked at by CUDA 13's.
    /// Reads and writes each copy's bytes, in stream order but in none among themselves
    fn cudaMemcpyBatchAsync | cudaMemcpyBatchAsync_ptsz: (
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *const CUmemcpyAttributes,
        indices: *const usize, attribute_count: usize, eighth: usize, ninth: usize,
    ) after(call) {
        let lists = Lists { to, from, sizes, count, attributes, indices, attribute_count };
        // SAFETY: the call succeeded with them.
        unsafe { lists.copied(call, batch_stream(ninth, eighth)) };
    }
    /// Reads and writes each volume's bytes, in stream order but in none among themselves
    fn cudaMemcpy3DBatchAsync | cudaMemcpy3DBatchAsync_ptsz: (
        count: usize, list: *const CUDA_MEMCPY3D_BATCH_OP, third: usize, fourth: usize, fifth: usize,
    ) after(call) {
        let _ = third;
        // SAFETY: the call succeeded with them.
        unsafe { volumes(call, batch_stream(fifth, fourth), list, count) };
    }
    /// Reads and writes the bytes, the source when its attribute says
    fn cudaMemcpyWithAttributesAsync | cudaMemcpyWithAttributesAsync_ptsz: (
        to: u64, from: u64, size: usize, attributes: *const CUmemcpyAttributes, stream: usize,
    ) after(call) {
        // SAFETY: the call succeeded with them.
        unsafe { with_attributes(call, stream, to, from, size, attributes) };
    }
    /// Reads and writes the volume's bytes, the source when its attribute says
    fn cudaMemcpy3DWithAttributesAsync | cudaMemcpy3DWithAttributesAsync_ptsz: (
        operation: *const CUDA_MEMCPY3D_BATCH_OP, flags: u64, stream: usize,
    ) after(call) {
        let _ = flags;
        // SAFETY: the call succeeded with it.
        unsafe { volumes(call, stream, operation, 1) };
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// Reads and writes each copy's bytes, in stream order but in none among themselves
        fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz: (
            to: *const u64, from: *const u64, sizes: *const usize, count: usize,
            attributes: *const CUmemcpyAttributes, indices: *const usize, attribute_count: usize, failed: usize,
            stream: usize,
        ) after(call) {
            let _ = failed;
            let lists = Lists { to, from, sizes, count, attributes, indices, attribute_count };
            // SAFETY: the call succeeded with them.
            unsafe { lists.copied(call, stream) };
        }
        /// Reads and writes each copy's bytes, in stream order but in none among themselves
        fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz: (
            to: *const u64, from: *const u64, sizes: *const usize, count: usize,
            attributes: *const CUmemcpyAttributes, indices: *const usize, attribute_count: usize, stream: usize,
        ) after(call) {
            let lists = Lists { to, from, sizes, count, attributes, indices, attribute_count };
            // SAFETY: the call succeeded with them.
            unsafe { lists.copied(call, stream) };
        }
        /// Reads and writes each volume's bytes, in stream order but in none among themselves
        fn cuMemcpy3DBatchAsync | cuMemcpy3DBatchAsync_ptsz: (
            count: usize, list: *const CUDA_MEMCPY3D_BATCH_OP, failed: usize, flags: u64, stream: usize,
        ) after(call) {
            let _ = (failed, flags);
            // SAFETY: the call succeeded with them.
            unsafe { volumes(call, stream, list, count) };
        }
        /// Reads and writes each volume's bytes, in stream order but in none among themselves
        fn cuMemcpy3DBatchAsync_v2 | cuMemcpy3DBatchAsync_v2_ptsz: (
            count: usize, list: *const CUDA_MEMCPY3D_BATCH_OP, flags: u64, stream: usize,
        ) after(call) {
            let _ = flags;
            // SAFETY: the call succeeded with them.
            unsafe { volumes(call, stream, list, count) };
        }
        /// Reads and writes the bytes, the source when its attribute says
        fn cuMemcpyWithAttributesAsync | cuMemcpyWithAttributesAsync_ptsz: (
            to: u64, from: u64, size: usize, attributes: *const CUmemcpyAttributes, stream: usize,
        ) after(call) {
            // SAFETY: the call succeeded with them.
            unsafe { with_attributes(call, stream, to, from, size, attributes) };
        }
        /// Reads and writes the volume's bytes, the source when its attribute says
        fn cuMemcpy3DWithAttributesAsync | cuMemcpy3DWithAttributesAsync_ptsz: (
            operation: *const CUDA_MEMCPY3D_BATCH_OP, flags: u64, stream: usize,
        ) after(call) {
            let _ = flags;
            // SAFETY: the call succeeded with it.
            unsafe { volumes(call, stream, operation, 1) };
        }
    }
}
