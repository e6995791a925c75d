//! CUDA arrays, and linear copies into, out of and between them.

use super::copy::copy;
use super::memory::synchronize_device;
use crate::abi::{Array3dDescriptor, In, Out, Status};
use crate::error::INVALID_HANDLE;
use crate::sim::memory::Kind;
use crate::sim::session::session;
use crate::sim::state::State;
use crate::sim::transfer::Transfer;

/// `CUDA_ARRAY_DESCRIPTOR`; extents in elements.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArrayDescriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

fn create(array: Out<u64>, extents: [usize; 3], format: (u32, u32, u32)) -> Status {
    session(|s| {
        s.safe()?;
        array.wanted()?;
        let handle = s.add_array(extents, format)?;
        array.put(handle)
    })
}

/// One side of a linear copy.
#[derive(Clone, Copy)]
enum End {
    Address(u64),
    /// An array, and bytes into it.
    Array(u64, usize),
}

impl End {
    fn address(self, s: &State, length: usize) -> Status<u64> {
        match self {
            Self::Address(address) => Ok(address),
            Self::Array(array, offset) => Ok(s
                .array(array)?
                .side([offset, 0, 0], [length, 1, 1])?
                .address),
        }
    }
}

fn linear(
    target: End,
    source: End,
    length: usize,
    (stream, per_thread, waits): (u64, bool, bool),
) -> Status {
    session(|s| {
        let (target, source) = (target.address(s, length)?, source.address(s, length)?);
        let lane = s.lane(stream, per_thread)?;
        copy(
            s,
            lane,
            Transfer::linear(target, source, length),
            waits,
            None,
        )
    })
}

api! {
    "cuArrayCreate" 3020 => cuArrayCreate_v2(array: Out<u64>, descriptor: In<ArrayDescriptor>) {
        let d = descriptor.get()?;
        create(array, [d.width, d.height, 0], (d.format, d.channels, 0))
    }
    "cuArray3DCreate" 3020 => cuArray3DCreate_v2(array: Out<u64>, descriptor: In<Array3dDescriptor>) {
        let d = descriptor.get()?;
        create(array, [d.width, d.height, d.depth], (d.format, d.channels, d.flags))
    }
    "cuArrayDestroy" 2000 => cuArrayDestroy(array: u64) {
        session(|s| {
            s.safe()?;
            let array = s.arrays.remove(array).ok_or(INVALID_HANDLE)?;
            // Taken out first, as for any memory; then as a plain free in practice: the device is waited for.
            let allocation = s.forget(array.address, |kind| kind == Kind::Array)?;
            synchronize_device(s, allocation.device);
            s.release(array.address, &allocation, None);
            Ok(())
        })
    }
    "cuArrayGetDescriptor" 3020 => cuArrayGetDescriptor_v2(descriptor: Out<ArrayDescriptor>, array: u64) {
        session(|s| {
            let array = s.array(array)?;
            let [width, height, _] = array.extents;
            descriptor.put(ArrayDescriptor { width, height, format: array.format, channels: array.channels })
        })
    }
    "cuArray3DGetDescriptor" 3020 => cuArray3DGetDescriptor_v2(descriptor: Out<Array3dDescriptor>, array: u64) {
        session(|s| {
            let array = s.array(array)?;
            let [width, height, depth] = array.extents;
            let (format, channels, flags) = (array.format, array.channels, array.flags);
            descriptor.put(Array3dDescriptor { width, height, depth, format, channels, flags })
        })
    }

    "cuMemcpyHtoA" 3020 => cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds |per_thread|
                           (array: u64, offset: usize, source: u64, length: usize) {
        linear(End::Array(array, offset), End::Address(source), length, (0, per_thread, true))
    }
    "cuMemcpyAtoH" 3020 => cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds |per_thread|
                           (target: u64, array: u64, offset: usize, length: usize) {
        linear(End::Address(target), End::Array(array, offset), length, (0, per_thread, true))
    }
    "cuMemcpyDtoA" 3020 => cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds |per_thread|
                           (array: u64, offset: usize, source: u64, length: usize) {
        linear(End::Array(array, offset), End::Address(source), length, (0, per_thread, true))
    }
    "cuMemcpyAtoD" 3020 => cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds |per_thread|
                           (target: u64, array: u64, offset: usize, length: usize) {
        linear(End::Address(target), End::Array(array, offset), length, (0, per_thread, true))
    }
    "cuMemcpyAtoA" 3020 => cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds |per_thread|
                           (target: u64, target_offset: usize, source: u64, source_offset: usize, length: usize) {
        linear(End::Array(target, target_offset), End::Array(source, source_offset), length, (0, per_thread, true))
    }
    "cuMemcpyHtoAAsync" 3020 => cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz |per_thread|
                                (array: u64, offset: usize, source: u64, length: usize, stream: u64) {
        linear(End::Array(array, offset), End::Address(source), length, (stream, per_thread, false))
    }
    "cuMemcpyAtoHAsync" 3020 => cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz |per_thread|
                                (target: u64, array: u64, offset: usize, length: usize, stream: u64) {
        linear(End::Address(target), End::Array(array, offset), length, (stream, per_thread, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUDA_ARRAY_DESCRIPTOR_st, CUDA_ARRAY3D_DESCRIPTOR_st};
    use std::mem::size_of;

    #[test]
    fn descriptors_are_as_large_as_nvidias() {
        assert_eq!(
            size_of::<ArrayDescriptor>(),
            size_of::<CUDA_ARRAY_DESCRIPTOR_st>()
        );
        assert_eq!(
            size_of::<Array3dDescriptor>(),
            size_of::<CUDA_ARRAY3D_DESCRIPTOR_st>()
        );
    }
}
