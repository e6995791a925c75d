//! Copies of bytes and of rows.

use cudarc::driver::sys::CUDA_MEMCPY2D;
use streamcheck_model::{Direction, Region};

use crate::call::{Call, Copy};
use crate::hook::hooks;
use crate::{capture, provider};

use super::arrays::{ARRAY, unseen};

/// `cudaMemcpyKind`'s values (driver_types.h).
pub(super) fn direction(kind: u32) -> Direction {
    match kind {
        0 => Direction::HostToHost,
        1 => Direction::HostToDevice,
        2 => Direction::DeviceToHost,
        3 => Direction::DeviceToDevice,
        _ => Direction::Inferred,
    }
}

/// Whether a call returns before the copy is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Now,
    Later,
}

fn linear(
    call: &Call,
    stream: usize,
    to: u64,
    from: u64,
    bytes: usize,
    direction: Direction,
    when: When,
) {
    call.copied(&Copy {
        stream,
        to: Region::linear(to, bytes as u64),
        from: Region::linear(from, bytes as u64),
        direction,
        synchronous: when == When::Now,
    });
}

/// One side of a pitched copy: address and pitch.
type Side = (u64, usize);

#[expect(clippy::too_many_arguments, reason = "as many as the copy has")]
fn pitched(
    call: &Call,
    stream: usize,
    to: Side,
    from: Side,
    width: usize,
    rows: usize,
    direction: Direction,
    when: When,
) {
    let region =
        |(address, pitch): Side| Region::pitched(address, width as u64, rows as u64, pitch as u64);
    call.copied(&Copy {
        stream,
        to: region(to),
        from: region(from),
        direction,
        synchronous: when == When::Now,
    });
}

/// A copy whose one side is a device variable, `offset` bytes into it.
#[expect(clippy::too_many_arguments, reason = "as many as the copy has")]
fn symbol(
    call: &Call,
    stream: usize,
    symbol: u64,
    offset: usize,
    other: u64,
    bytes: usize,
    kind: u32,
    to_symbol: bool,
    when: When,
) {
    let Some(address) = symbol_address(symbol) else {
        // Kinds 1 and 3 go to the device.
        let waits = when == When::Now && !to_symbol && !matches!(kind, 1 | 3);
        unseen(call, stream, "symbol-copy", waits);
        return;
    };
    let inside = address.wrapping_add(offset as u64);
    let (to, from) = if to_symbol {
        (inside, other)
    } else {
        (other, inside)
    };
    linear(call, stream, to, from, bytes, direction(kind), when);
}

/// Where a device variable lies, if that may be asked now.
pub(super) fn symbol_address(symbol: u64) -> Option<u64> {
    // While a stream captures, no question may be put to CUDA.
    if capture::any() {
        return None;
    }
    let function = provider::unhooked(c"cudaGetSymbolAddress")?;
    type GetAddress = unsafe extern "C-unwind" fn(*mut u64, u64) -> u32;
    let mut address = 0;
    // SAFETY: the type is cuda_runtime_api.h's; the symbol was just copied to or
    // from with success, so this succeeds and leaves the last error alone.
    let status =
        unsafe { core::mem::transmute::<*const (), GetAddress>(function)(&mut address, symbol) };
    (status == 0).then_some(address)
}

hooks! { Runtime:
    /// Reads and writes the bytes on the legacy stream; whether the host waits depends on the memory
    fn cudaMemcpy | cudaMemcpy_ptds: (to: u64, from: u64, count: usize, kind: u32) after(call) {
        linear(call, 0, to, from, count, direction(kind), When::Now);
    }
    /// Reads and writes the bytes, in stream order
    fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz: (to: u64, from: u64, count: usize, kind: u32, stream: usize) after(call) {
        linear(call, stream, to, from, count, direction(kind), When::Later);
    }
    /// Reads and writes rows on the legacy stream; whether the host waits depends on the memory
    fn cudaMemcpy2D | cudaMemcpy2D_ptds: (
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        pitched(call, 0, (to, to_pitch), (from, from_pitch), width, height, direction(kind), When::Now);
    }
    /// Reads and writes rows, in stream order
    fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz: (
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32, stream: usize,
    ) after(call) {
        pitched(call, stream, (to, to_pitch), (from, from_pitch), width, height, direction(kind), When::Later);
    }
    /// Reads the bytes and writes the variable's
    fn cudaMemcpyToSymbol | cudaMemcpyToSymbol_ptds: (
        variable: u64, from: u64, count: usize, offset: usize, kind: u32,
    ) after(call) {
        symbol(call, 0, variable, offset, from, count, kind, true, When::Now);
    }
    /// Reads the variable's bytes and writes the others
    fn cudaMemcpyFromSymbol | cudaMemcpyFromSymbol_ptds: (
        to: u64, variable: u64, count: usize, offset: usize, kind: u32,
    ) after(call) {
        symbol(call, 0, variable, offset, to, count, kind, false, When::Now);
    }
    /// Reads the bytes and writes the variable's, in stream order
    fn cudaMemcpyToSymbolAsync | cudaMemcpyToSymbolAsync_ptsz: (
        variable: u64, from: u64, count: usize, offset: usize, kind: u32, stream: usize,
    ) after(call) {
        symbol(call, stream, variable, offset, from, count, kind, true, When::Later);
    }
    /// Reads the variable's bytes and writes the others, in stream order
    fn cudaMemcpyFromSymbolAsync | cudaMemcpyFromSymbolAsync_ptsz: (
        to: u64, variable: u64, count: usize, offset: usize, kind: u32, stream: usize,
    ) after(call) {
        symbol(call, stream, variable, offset, to, count, kind, false, When::Later);
    }
}

/// The sides of a driver's copy, by `CUmemorytype` (cuda.h).
pub(super) mod sides {
    use streamcheck_model::Direction;

    const HOST: u32 = 1;
    const ARRAY: u32 = 3;
    const UNIFIED: u32 = 4;

    /// Where one side begins; `None` for an array.
    pub(in super::super) fn address(kind: u32, host: u64, device: u64) -> Option<u64> {
        match kind {
            ARRAY => None,
            HOST => Some(host),
            _ => Some(device),
        }
    }

    pub(in super::super) fn direction(from: u32, to: u32) -> Direction {
        match (from, to) {
            (UNIFIED, _) | (_, UNIFIED) => Direction::Inferred,
            (HOST, HOST) => Direction::HostToHost,
            (HOST, _) => Direction::HostToDevice,
            (_, HOST) => Direction::DeviceToHost,
            _ => Direction::DeviceToDevice,
        }
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    /// # Safety
    /// `copy` describes a copy that succeeded.
    unsafe fn two_d(call: &Call, stream: usize, copy: *const CUDA_MEMCPY2D, when: When) {
        // SAFETY: enums are read as integers, the rest is plain numbers and pointers,
        // each field for itself.
        let (from_kind, to_kind, from, to, width, rows) = unsafe {
            let from_kind = (&raw const (*copy).srcMemoryType).cast::<u32>().read();
            let to_kind = (&raw const (*copy).dstMemoryType).cast::<u32>().read();
            let from = sides::address(from_kind, (*copy).srcHost as u64, (*copy).srcDevice);
            let to = sides::address(to_kind, (*copy).dstHost as u64, (*copy).dstDevice);
            let inside = |address: u64, x: usize, y: usize, pitch: usize| {
                let offset = pitch.wrapping_mul(y).wrapping_add(x);
                (address.wrapping_add(offset as u64), pitch as u64)
            };
            (
                from_kind,
                to_kind,
                from.map(|at| inside(at, (*copy).srcXInBytes, (*copy).srcY, (*copy).srcPitch)),
                to.map(|at| inside(at, (*copy).dstXInBytes, (*copy).dstY, (*copy).dstPitch)),
                (*copy).WidthInBytes as u64,
                (*copy).Height as u64,
            )
        };
        if from.is_none() && to.is_none() {
            unseen(call, stream, "array-copy", false);
            return;
        }
        let region = |side: Option<(u64, u64)>| {
            side.map_or(ARRAY, |(address, pitch)| {
                Region::pitched(address, width, rows, pitch)
            })
        };
        call.copied(&Copy {
            stream,
            to: region(to),
            from: region(from),
            direction: sides::direction(from_kind, to_kind),
            synchronous: when == When::Now,
        });
    }

    hooks! { Driver:
        /// Reads and writes the bytes on the legacy stream; whether the host waits depends on the memory
        fn cuMemcpy | cuMemcpy_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::Inferred, When::Now);
        }
        /// Reads and writes the bytes, in stream order
        fn cuMemcpyAsync | cuMemcpyAsync_ptsz: (to: u64, from: u64, count: usize, stream: usize) after(call) {
            linear(call, stream, to, from, count, Direction::Inferred, When::Later);
        }
        /// Reads and writes the bytes on the legacy stream; the host waits, unless the source is pageable
        fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::HostToDevice, When::Now);
        }
        /// Reads and writes the bytes on the legacy stream; the host waits
        fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::DeviceToHost, When::Now);
        }
        /// Reads and writes the bytes on the legacy stream
        fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::DeviceToDevice, When::Now);
        }
        /// Reads and writes the bytes, in stream order
        fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz: (
            to: u64, from: u64, count: usize, stream: usize,
        ) after(call) {
            linear(call, stream, to, from, count, Direction::HostToDevice, When::Later);
        }
        /// Reads and writes the bytes, in stream order
        fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz: (
            to: u64, from: u64, count: usize, stream: usize,
        ) after(call) {
            linear(call, stream, to, from, count, Direction::DeviceToHost, When::Later);
        }
        /// Reads and writes the bytes, in stream order
        fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz: (
            to: u64, from: u64, count: usize, stream: usize,
        ) after(call) {
            linear(call, stream, to, from, count, Direction::DeviceToDevice, When::Later);
        }
        /// Reads and writes rows on the legacy stream; whether the host waits depends on the memory
        fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds: (copy: *const CUDA_MEMCPY2D) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { two_d(call, 0, copy, When::Now) };
        }
        /// Reads and writes rows on the legacy stream; whether the host waits depends on the memory
        fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds: (copy: *const CUDA_MEMCPY2D) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { two_d(call, 0, copy, When::Now) };
        }
        /// Reads and writes rows, in stream order
        fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz: (copy: *const CUDA_MEMCPY2D, stream: usize) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { two_d(call, stream, copy, When::Later) };
        }
    }
}
