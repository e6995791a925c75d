//! Copies from and to CUDA arrays, which have no addresses: the other side's bytes
//! are told exactly, and the array's are none. A copy between two arrays only keeps
//! its place in its stream.

use streamcheck_model::{Direction, Region};

use super::copies::{When, direction};
use crate::call::{Call, Copy};
use crate::hook::hooks;

/// The side of a copy that is an array.
pub(super) const ARRAY: Region = Region {
    address: 0,
    width: 0,
    rows: 1,
    pitch: 0,
};

/// Records a copy between arrays, or one whose bytes cannot be told. `waits` says that
/// the call returns when the copy is made, as a synchronous one to host memory does
/// ("API synchronization behavior" in the runtime's reference).
pub(super) fn unseen(call: &Call, stream: usize, kind: &str, waits: bool) {
    call.blind_spot(kind, call.hook.api());
    call.unseen_work(stream);
    if waits {
        call.waited(stream);
    }
}

fn between(call: &Call, stream: usize) {
    unseen(call, stream, "array-copy", false);
}

fn to_array(call: &Call, stream: usize, from: Region, direction: Direction, when: When) {
    copied(call, stream, ARRAY, from, direction, when);
}

fn from_array(call: &Call, stream: usize, to: Region, direction: Direction, when: When) {
    copied(call, stream, to, ARRAY, direction, when);
}

/// A copy whose bytes are told.
pub(super) fn copied(
    call: &Call,
    stream: usize,
    to: Region,
    from: Region,
    direction: Direction,
    when: When,
) {
    call.copied(&Copy {
        stream,
        to,
        from,
        direction,
        synchronous: when == When::Now,
    });
}

fn linear(address: u64, bytes: usize) -> Region {
    Region::linear(address, bytes as u64)
}

fn rows(address: u64, pitch: usize, width: usize, height: usize) -> Region {
    Region::pitched(address, width as u64, height as u64, pitch as u64)
}

hooks! { Runtime:
    /// Reads the bytes outside of the array
    fn cudaMemcpyToArray | cudaMemcpyToArray_ptds: (
        to: usize, x: usize, y: usize, from: u64, count: usize, kind: u32,
    ) after(call) {
        let _ = (to, x, y);
        to_array(call, 0, linear(from, count), direction(kind), When::Now);
    }
    /// Writes the bytes outside of the array
    fn cudaMemcpyFromArray | cudaMemcpyFromArray_ptds: (
        to: u64, from: usize, x: usize, y: usize, count: usize, kind: u32,
    ) after(call) {
        let _ = (from, x, y);
        from_array(call, 0, linear(to, count), direction(kind), When::Now);
    }
    /// Takes its place in its stream; arrays have no bytes in the model
    fn cudaMemcpyArrayToArray | cudaMemcpyArrayToArray_ptds: (
        to: usize, to_x: usize, to_y: usize, from: usize, x: usize, y: usize, count: usize, kind: u32,
    ) after(call) {
        let _ = (to, to_x, to_y, from, x, y, count, kind);
        between(call, 0);
    }
    /// Reads the rows outside of the array
    fn cudaMemcpy2DToArray | cudaMemcpy2DToArray_ptds: (
        to: usize, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        let _ = (to, x, y);
        to_array(call, 0, rows(from, pitch, width, height), direction(kind), When::Now);
    }
    /// Writes the rows outside of the array
    fn cudaMemcpy2DFromArray | cudaMemcpy2DFromArray_ptds: (
        to: u64, pitch: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        let _ = (from, x, y);
        from_array(call, 0, rows(to, pitch, width, height), direction(kind), When::Now);
    }
    /// Takes its place in its stream; arrays have no bytes in the model
    fn cudaMemcpy2DArrayToArray | cudaMemcpy2DArrayToArray_ptds: (
        to: usize, to_x: usize, to_y: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        let _ = (to, to_x, to_y, from, x, y, width, height, kind);
        between(call, 0);
    }
    /// Reads the bytes outside of the array, in stream order
    fn cudaMemcpyToArrayAsync | cudaMemcpyToArrayAsync_ptsz: (
        to: usize, x: usize, y: usize, from: u64, count: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (to, x, y);
        to_array(call, stream, linear(from, count), direction(kind), When::Later);
    }
    /// Writes the bytes outside of the array, in stream order
    fn cudaMemcpyFromArrayAsync | cudaMemcpyFromArrayAsync_ptsz: (
        to: u64, from: usize, x: usize, y: usize, count: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (from, x, y);
        from_array(call, stream, linear(to, count), direction(kind), When::Later);
    }
    /// Reads the rows outside of the array, in stream order
    fn cudaMemcpy2DToArrayAsync | cudaMemcpy2DToArrayAsync_ptsz: (
        to: usize, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (to, x, y);
        to_array(call, stream, rows(from, pitch, width, height), direction(kind), When::Later);
    }
    /// Writes the rows outside of the array, in stream order
    fn cudaMemcpy2DFromArrayAsync | cudaMemcpy2DFromArrayAsync_ptsz: (
        to: u64, pitch: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32, stream: usize,
    ) after(call) {
        let _ = (from, x, y);
        from_array(call, stream, rows(to, pitch, width, height), direction(kind), When::Later);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// Reads the bytes outside of the array
        fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds: (to: usize, offset: usize, from: u64, count: usize) after(call) {
            let _ = (to, offset);
            to_array(call, 0, linear(from, count), Direction::DeviceToDevice, When::Now);
        }
        /// Writes the bytes outside of the array
        fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds: (to: u64, from: usize, offset: usize, count: usize) after(call) {
            let _ = (from, offset);
            from_array(call, 0, linear(to, count), Direction::DeviceToDevice, When::Now);
        }
        /// Reads the bytes outside of the array
        fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds: (to: usize, offset: usize, from: u64, count: usize) after(call) {
            let _ = (to, offset);
            to_array(call, 0, linear(from, count), Direction::HostToDevice, When::Now);
        }
        /// Writes the bytes outside of the array
        fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds: (to: u64, from: usize, offset: usize, count: usize) after(call) {
            let _ = (from, offset);
            from_array(call, 0, linear(to, count), Direction::DeviceToHost, When::Now);
        }
        /// Takes its place in its stream; arrays have no bytes in the model
        fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds: (
            to: usize, to_offset: usize, from: usize, offset: usize, count: usize,
        ) after(call) {
            let _ = (to, to_offset, from, offset, count);
            between(call, 0);
        }
        /// Reads the bytes outside of the array, in stream order
        fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz: (
            to: usize, offset: usize, from: u64, count: usize, stream: usize,
        ) after(call) {
            let _ = (to, offset);
            to_array(call, stream, linear(from, count), Direction::HostToDevice, When::Later);
        }
        /// Writes the bytes outside of the array, in stream order
        fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz: (
            to: u64, from: usize, offset: usize, count: usize, stream: usize,
        ) after(call) {
            let _ = (from, offset);
            from_array(call, stream, linear(to, count), Direction::DeviceToHost, When::Later);
        }
    }
}
