//! Fills.

use crate::abi::Status;
use crate::copy_box::{Extent, Pitched};
use crate::device::ready;

/// Fills a box: the driver has rows only, so layers that have none between them are one call, and others one each.
fn fill_box(
    per_thread: bool,
    to: Pitched,
    value: i32,
    extent: Extent,
    stream: Option<u64>,
) -> Status {
    let driver = ready()?;
    let [width, height, depth] = extent.0;
    let fill = |address, rows| match stream {
        None => driver.cuMemsetD2D8(per_thread, address, to.pitch, value as u8, width, rows),
        Some(stream) => driver.cuMemsetD2D8Async(
            per_thread,
            address,
            to.pitch,
            value as u8,
            width,
            rows,
            stream,
        ),
    };
    if to.height == height || depth <= 1 {
        return fill(to.address, height.saturating_mul(depth));
    }
    (0..depth)
        .try_for_each(|layer| fill(to.address + (layer * to.height * to.pitch) as u64, height))
}

export! {
    cudaMemset / cudaMemset_ptds |per_thread| (to: u64, value: i32, count: usize) {
        ready()?.cuMemsetD8(per_thread, to, value as u8, count)
    }
    cudaMemsetAsync / cudaMemsetAsync_ptsz |per_thread| (to: u64, value: i32, count: usize, stream: u64) {
        ready()?.cuMemsetD8Async(per_thread, to, value as u8, count, stream)
    }
    cudaMemset2D / cudaMemset2D_ptds |per_thread| (to: u64, pitch: usize, value: i32, width: usize, height: usize) {
        ready()?.cuMemsetD2D8(per_thread, to, pitch, value as u8, width, height)
    }
    cudaMemset2DAsync / cudaMemset2DAsync_ptsz |per_thread|
        (to: u64, pitch: usize, value: i32, width: usize, height: usize, stream: u64) {
        ready()?.cuMemsetD2D8Async(per_thread, to, pitch, value as u8, width, height, stream)
    }
    cudaMemset3D / cudaMemset3D_ptds |per_thread| (to: Pitched, value: i32, extent: Extent) {
        fill_box(per_thread, to, value, extent, None)
    }
    cudaMemset3DAsync / cudaMemset3DAsync_ptsz |per_thread| (to: Pitched, value: i32, extent: Extent, stream: u64) {
        fill_box(per_thread, to, value, extent, Some(stream))
    }
}
