//! Fills.

use streamcheck_model::Region;

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

hooks! { Runtime:
    /// Writes the bytes on the legacy stream; the host waits where they are host or managed memory
    fn cudaMemset | cudaMemset_ptds: (address: u64, value: i32, count: usize) after(call) {
        let _ = value;
        linear(call, 0, address, count, true);
    }
    /// Writes the bytes, in stream order
    fn cudaMemsetAsync | cudaMemsetAsync_ptsz: (address: u64, value: i32, count: usize, stream: usize) after(call) {
        let _ = value;
        linear(call, stream, address, count, false);
    }
    /// Writes rows on the legacy stream; the host waits where they are host or managed memory
    fn cudaMemset2D | cudaMemset2D_ptds: (
        address: u64, pitch: usize, value: i32, width: usize, height: usize,
    ) after(call) {
        let _ = value;
        pitched(call, 0, address, pitch, width, height, true);
    }
    /// Writes rows, in stream order
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
        /// Writes the bytes on the legacy stream; the host waits where they are host or managed memory
        fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds: (address: u64, value: u8, count: usize) after(call) {
            let _ = value;
            linear(call, 0, address, count, true);
        }
        /// Writes the bytes on the legacy stream; the host waits where they are host or managed memory
        fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds: (address: u64, value: u16, count: usize) after(call) {
            let _ = value;
            linear(call, 0, address, count.saturating_mul(2), true);
        }
        /// Writes the bytes on the legacy stream; the host waits where they are host or managed memory
        fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds: (address: u64, value: u32, count: usize) after(call) {
            let _ = value;
            linear(call, 0, address, count.saturating_mul(4), true);
        }
        /// Writes the bytes, in stream order
        fn cuMemsetD8Async | cuMemsetD8Async_ptsz: (address: u64, value: u8, count: usize, stream: usize) after(call) {
            let _ = value;
            linear(call, stream, address, count, false);
        }
        /// Writes the bytes, in stream order
        fn cuMemsetD16Async | cuMemsetD16Async_ptsz: (address: u64, value: u16, count: usize, stream: usize) after(call) {
            let _ = value;
            linear(call, stream, address, count.saturating_mul(2), false);
        }
        /// Writes the bytes, in stream order
        fn cuMemsetD32Async | cuMemsetD32Async_ptsz: (address: u64, value: u32, count: usize, stream: usize) after(call) {
            let _ = value;
            linear(call, stream, address, count.saturating_mul(4), false);
        }
        /// Writes rows on the legacy stream; the host waits where they are host or managed memory
        fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds: (
            address: u64, pitch: usize, value: u8, width: usize, height: usize,
        ) after(call) {
            let _ = value;
            pitched(call, 0, address, pitch, width, height, true);
        }
        /// Writes rows on the legacy stream; the host waits where they are host or managed memory
        fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds: (
            address: u64, pitch: usize, value: u16, width: usize, height: usize,
        ) after(call) {
            let _ = value;
            pitched(call, 0, address, pitch, width.saturating_mul(2), height, true);
        }
        /// Writes rows on the legacy stream; the host waits where they are host or managed memory
        fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds: (
            address: u64, pitch: usize, value: u32, width: usize, height: usize,
        ) after(call) {
            let _ = value;
            pitched(call, 0, address, pitch, width.saturating_mul(4), height, true);
        }
        /// Writes rows, in stream order
        fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz: (
            address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: usize,
        ) after(call) {
            let _ = value;
            pitched(call, stream, address, pitch, width, height, false);
        }
        /// Writes rows, in stream order
        fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz: (
            address: u64, pitch: usize, value: u16, width: usize, height: usize, stream: usize,
        ) after(call) {
            let _ = value;
            pitched(call, stream, address, pitch, width.saturating_mul(2), height, false);
        }
        /// Writes rows, in stream order
        fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz: (
            address: u64, pitch: usize, value: u32, width: usize, height: usize, stream: usize,
        ) after(call) {
            let _ = value;
            pitched(call, stream, address, pitch, width.saturating_mul(4), height, false);
        }
    }
}
