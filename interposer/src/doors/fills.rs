//! Fills.

use cudarc::runtime::sys::{cudaExtent, cudaPitchedPtr};
use streamcheck_model::Region;

use super::unseen_copies::unseen;
use crate::call::Call;
use crate::hook::hooks;

fn linear(call: &Call, stream: usize, address: u64, bytes: usize, synchronous: bool) {
    call.filled(stream, Region::linear(address, bytes as u64), synchronous);
}

fn pitched(
    call: &Call,
    stream: usize,
    address: u64,
    pitch: usize,
    width: usize,
    rows: usize,
    synchronous: bool,
) {
    let region = Region::pitched(address, width as u64, rows as u64, pitch as u64);
    call.filled(stream, region, synchronous);
}

/// A fill of a volume, where rows can tell it exactly.
fn volume(call: &Call, stream: usize, to: cudaPitchedPtr, extent: cudaExtent, synchronous: bool) {
    if to.ysize != extent.height && extent.depth > 1 {
        unseen(call, stream, "volume-fill", false);
        return;
    }
    let rows = extent.height.saturating_mul(extent.depth);
    let address = to.ptr as u64;
    pitched(
        call,
        stream,
        address,
        to.pitch,
        extent.width,
        rows,
        synchronous,
    );
}

hooks! { Runtime:
    fn cudaMemset3D | cudaMemset3D_ptds: (to: cudaPitchedPtr, value: i32, extent: cudaExtent) after(call) {
        let _ = value;
        volume(call, 0, to, extent, true);
    }
    fn cudaMemset3DAsync | cudaMemset3DAsync_ptsz: (
        to: cudaPitchedPtr, value: i32, extent: cudaExtent, stream: usize,
    ) after(call) {
        let _ = value;
        volume(call, stream, to, extent, false);
    }
    fn cudaMemset | cudaMemset_ptds: (address: u64, value: i32, count: usize) after(call) {
        let _ = value;
        linear(call, 0, address, count, true);
    }
    fn cudaMemsetAsync | cudaMemsetAsync_ptsz: (address: u64, value: i32, count: usize, stream: usize) after(call) {
        let _ = value;
        linear(call, stream, address, count, false);
    }
    fn cudaMemset2D | cudaMemset2D_ptds: (
        address: u64, pitch: usize, value: i32, width: usize, height: usize,
    ) after(call) {
        let _ = value;
        pitched(call, 0, address, pitch, width, height, true);
    }
    fn cudaMemset2DAsync | cudaMemset2DAsync_ptsz: (
        address: u64, pitch: usize, value: i32, width: usize, height: usize, stream: usize,
    ) after(call) {
        let _ = value;
        pitched(call, stream, address, pitch, width, height, false);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds: (address: u64, value: u8, count: usize) after(call) {
            let _ = value;
            linear(call, 0, address, count, true);
        }
        fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds: (address: u64, value: u16, count: usize) after(call) {
            let _ = value;
            linear(call, 0, address, count.saturating_mul(2), true);
        }
        fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds: (address: u64, value: u32, count: usize) after(call) {
            let _ = value;
            linear(call, 0, address, count.saturating_mul(4), true);
        }
        fn cuMemsetD8Async | cuMemsetD8Async_ptsz: (address: u64, value: u8, count: usize, stream: usize) after(call) {
            let _ = value;
            linear(call, stream, address, count, false);
        }
        fn cuMemsetD16Async | cuMemsetD16Async_ptsz: (address: u64, value: u16, count: usize, stream: usize) after(call) {
            let _ = value;
            linear(call, stream, address, count.saturating_mul(2), false);
        }
        fn cuMemsetD32Async | cuMemsetD32Async_ptsz: (address: u64, value: u32, count: usize, stream: usize) after(call) {
            let _ = value;
            linear(call, stream, address, count.saturating_mul(4), false);
        }
        fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds: (
            address: u64, pitch: usize, value: u8, width: usize, height: usize,
        ) after(call) {
            let _ = value;
            pitched(call, 0, address, pitch, width, height, true);
        }
        fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds: (
            address: u64, pitch: usize, value: u16, width: usize, height: usize,
        ) after(call) {
            let _ = value;
            pitched(call, 0, address, pitch, width.saturating_mul(2), height, true);
        }
        fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds: (
            address: u64, pitch: usize, value: u32, width: usize, height: usize,
        ) after(call) {
            let _ = value;
            pitched(call, 0, address, pitch, width.saturating_mul(4), height, true);
        }
        fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz: (
            address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: usize,
        ) after(call) {
            let _ = value;
            pitched(call, stream, address, pitch, width, height, false);
        }
        fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz: (
            address: u64, pitch: usize, value: u16, width: usize, height: usize, stream: usize,
        ) after(call) {
            let _ = value;
            pitched(call, stream, address, pitch, width.saturating_mul(2), height, false);
        }
        fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz: (
            address: u64, pitch: usize, value: u32, width: usize, height: usize, stream: usize,
        ) after(call) {
            let _ = value;
            pitched(call, stream, address, pitch, width.saturating_mul(4), height, false);
        }
    }
}
