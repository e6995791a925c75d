//! Copies.

use core::ffi::c_void;

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D};
use cudarc::runtime::sys::cudaMemcpy3DParms;
use streamcheck_model::{Direction, Region};

use crate::call::{Call, Copy};
use crate::hook::hooks;
use crate::{capture, provider};

use super::unseen_copies::{may_reach_host, unseen};

/// `cudaMemcpyKind`'s values (driver_types.h).
fn direction(kind: u32) -> Direction {
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
enum When {
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
        let waits = when == When::Now && !to_symbol && may_reach_host(kind);
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
fn symbol_address(symbol: u64) -> Option<u64> {
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

/// A 3D runtime copy, where rows can tell it exactly.
///
/// # Safety
/// `parameters` are those of a copy that succeeded.
unsafe fn runtime_3d(call: &Call, stream: usize, parameters: *const cudaMemcpy3DParms, when: When) {
    // SAFETY: read as raw memory, as the kind may be a value that Rust's enum lacks.
    let (source, target, extent, kind, arrays, to_memory) = unsafe {
        (
            (&raw const (*parameters).srcPtr).read(),
            (&raw const (*parameters).dstPtr).read(),
            (&raw const (*parameters).extent).read(),
            (&raw const (*parameters).kind).cast::<u32>().read(),
            !(*parameters).srcArray.is_null() || !(*parameters).dstArray.is_null(),
            (*parameters).dstArray.is_null(),
        )
    };
    if arrays {
        let waits = when == When::Now && to_memory && may_reach_host(kind);
        unseen(call, stream, "array-copy", waits);
        return;
    }
    // SAFETY: as above.
    let (from_place, to_place) = unsafe { ((*parameters).srcPos, (*parameters).dstPos) };
    let start =
        |pointer: *mut c_void, pitch: usize, height: usize, x: usize, y: usize, z: usize| {
            pointer as u64 + (x + pitch * (y + height * z)) as u64
        };
    let slices = |height: usize| height == extent.height || extent.depth == 1;
    if !slices(source.ysize) || !slices(target.ysize) {
        let waits = when == When::Now && may_reach_host(kind);
        unseen(call, stream, "volume-copy", waits);
        return;
    }
    let rows = extent.height * extent.depth;
    pitched(
        call,
        stream,
        (
            start(
                target.ptr,
                target.pitch,
                target.ysize,
                to_place.x,
                to_place.y,
                to_place.z,
            ),
            target.pitch,
        ),
        (
            start(
                source.ptr,
                source.pitch,
                source.ysize,
                from_place.x,
                from_place.y,
                from_place.z,
            ),
            source.pitch,
        ),
        extent.width,
        rows,
        direction(kind),
        when,
    );
}

hooks! { Runtime:
    fn cudaMemcpy | cudaMemcpy_ptds: (to: u64, from: u64, count: usize, kind: u32) after(call) {
        linear(call, 0, to, from, count, direction(kind), When::Now);
    }
    fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz: (to: u64, from: u64, count: usize, kind: u32, stream: usize) after(call) {
        linear(call, stream, to, from, count, direction(kind), When::Later);
    }
    fn cudaMemcpy2D | cudaMemcpy2D_ptds: (
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32,
    ) after(call) {
        pitched(call, 0, (to, to_pitch), (from, from_pitch), width, height, direction(kind), When::Now);
    }
    fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz: (
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32, stream: usize,
    ) after(call) {
        pitched(call, stream, (to, to_pitch), (from, from_pitch), width, height, direction(kind), When::Later);
    }
    fn cudaMemcpy3D | cudaMemcpy3D_ptds: (parameters: *const cudaMemcpy3DParms) after(call) {
        // SAFETY: the call succeeded with them.
        unsafe { runtime_3d(call, 0, parameters, When::Now) };
    }
    fn cudaMemcpy3DAsync | cudaMemcpy3DAsync_ptsz: (parameters: *const cudaMemcpy3DParms, stream: usize) after(call) {
        // SAFETY: the call succeeded with them.
        unsafe { runtime_3d(call, stream, parameters, When::Later) };
    }
    fn cudaMemcpyPeer: (to: u64, to_device: i32, from: u64, from_device: i32, count: usize) after(call) {
        let _ = (to_device, from_device);
        linear(call, 0, to, from, count, Direction::DeviceToDevice, When::Now);
    }
    fn cudaMemcpyPeerAsync: (
        to: u64, to_device: i32, from: u64, from_device: i32, count: usize, stream: usize,
    ) after(call) {
        let _ = (to_device, from_device);
        linear(call, stream, to, from, count, Direction::DeviceToDevice, When::Later);
    }
    fn cudaMemcpyToSymbol | cudaMemcpyToSymbol_ptds: (
        variable: u64, from: u64, count: usize, offset: usize, kind: u32,
    ) after(call) {
        symbol(call, 0, variable, offset, from, count, kind, true, When::Now);
    }
    fn cudaMemcpyFromSymbol | cudaMemcpyFromSymbol_ptds: (
        to: u64, variable: u64, count: usize, offset: usize, kind: u32,
    ) after(call) {
        symbol(call, 0, variable, offset, to, count, kind, false, When::Now);
    }
    fn cudaMemcpyToSymbolAsync | cudaMemcpyToSymbolAsync_ptsz: (
        variable: u64, from: u64, count: usize, offset: usize, kind: u32, stream: usize,
    ) after(call) {
        symbol(call, stream, variable, offset, from, count, kind, true, When::Later);
    }
    fn cudaMemcpyFromSymbolAsync | cudaMemcpyFromSymbolAsync_ptsz: (
        to: u64, variable: u64, count: usize, offset: usize, kind: u32, stream: usize,
    ) after(call) {
        symbol(call, stream, variable, offset, to, count, kind, false, When::Later);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    /// `CUmemorytype` (cuda.h): where one side of a copy lies.
    const HOST: u32 = 1;
    const ARRAY: u32 = 3;
    const UNIFIED: u32 = 4;

    fn side(kind: u32, host: u64, device: u64) -> u64 {
        if kind == HOST { host } else { device }
    }

    /// Whether the call returns when a copy to that kind of memory is made.
    fn waits(to: u32, when: When) -> bool {
        when == When::Now && (to == HOST || to == UNIFIED)
    }

    fn direction_of(from: u32, to: u32) -> Direction {
        match (from, to) {
            (UNIFIED, _) | (_, UNIFIED) => Direction::Inferred,
            (HOST, HOST) => Direction::HostToHost,
            (HOST, _) => Direction::HostToDevice,
            (_, HOST) => Direction::DeviceToHost,
            _ => Direction::DeviceToDevice,
        }
    }

    /// # Safety
    /// `copy` describes a copy that succeeded.
    unsafe fn two_d(call: &Call, stream: usize, copy: *const CUDA_MEMCPY2D, when: When) {
        // SAFETY: enums are read as integers, the rest as it is.
        let (from_kind, to_kind) = unsafe {
            (
                (&raw const (*copy).srcMemoryType).cast::<u32>().read(),
                (&raw const (*copy).dstMemoryType).cast::<u32>().read(),
            )
        };
        if from_kind == ARRAY || to_kind == ARRAY {
            unseen(call, stream, "array-copy", waits(to_kind, when));
            return;
        }
        // SAFETY: plain numbers and pointers, each field for itself.
        let (from, to, width, rows) = unsafe {
            let from = side(from_kind, (*copy).srcHost as u64, (*copy).srcDevice)
                + ((*copy).srcY * (*copy).srcPitch + (*copy).srcXInBytes) as u64;
            let to = side(to_kind, (*copy).dstHost as u64, (*copy).dstDevice)
                + ((*copy).dstY * (*copy).dstPitch + (*copy).dstXInBytes) as u64;
            (
                (from, (*copy).srcPitch),
                (to, (*copy).dstPitch),
                (*copy).WidthInBytes,
                (*copy).Height,
            )
        };
        pitched(
            call,
            stream,
            to,
            from,
            width,
            rows,
            direction_of(from_kind, to_kind),
            when,
        );
    }

    /// # Safety
    /// `copy` describes a copy that succeeded.
    unsafe fn three_d(call: &Call, stream: usize, copy: *const CUDA_MEMCPY3D, when: When) {
        // SAFETY: enums are read as integers.
        let (from_kind, to_kind) = unsafe {
            (
                (&raw const (*copy).srcMemoryType).cast::<u32>().read(),
                (&raw const (*copy).dstMemoryType).cast::<u32>().read(),
            )
        };
        if from_kind == ARRAY || to_kind == ARRAY {
            unseen(call, stream, "array-copy", waits(to_kind, when));
            return;
        }
        // SAFETY: plain numbers and pointers, each field for itself.
        let (from, to, from_height, to_height, width, height, depth) = unsafe {
            let c = copy;
            let from = side(from_kind, (*c).srcHost as u64, (*c).srcDevice)
                + (((*c).srcZ * (*c).srcHeight + (*c).srcY) * (*c).srcPitch + (*c).srcXInBytes)
                    as u64;
            let to = side(to_kind, (*c).dstHost as u64, (*c).dstDevice)
                + (((*c).dstZ * (*c).dstHeight + (*c).dstY) * (*c).dstPitch + (*c).dstXInBytes)
                    as u64;
            (
                (from, (*c).srcPitch),
                (to, (*c).dstPitch),
                (*c).srcHeight,
                (*c).dstHeight,
                (*c).WidthInBytes,
                (*c).Height,
                (*c).Depth,
            )
        };
        if depth != 1 && (from_height != height || to_height != height) {
            unseen(call, stream, "volume-copy", waits(to_kind, when));
            return;
        }
        pitched(
            call,
            stream,
            to,
            from,
            width,
            height * depth,
            direction_of(from_kind, to_kind),
            when,
        );
    }

    hooks! { Driver:
        fn cuMemcpy | cuMemcpy_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::Inferred, When::Now);
        }
        fn cuMemcpyAsync | cuMemcpyAsync_ptsz: (to: u64, from: u64, count: usize, stream: usize) after(call) {
            linear(call, stream, to, from, count, Direction::Inferred, When::Later);
        }
        fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::HostToDevice, When::Now);
        }
        fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::DeviceToHost, When::Now);
        }
        fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds: (to: u64, from: u64, count: usize) after(call) {
            linear(call, 0, to, from, count, Direction::DeviceToDevice, When::Now);
        }
        fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz: (
            to: u64, from: u64, count: usize, stream: usize,
        ) after(call) {
            linear(call, stream, to, from, count, Direction::HostToDevice, When::Later);
        }
        fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz: (
            to: u64, from: u64, count: usize, stream: usize,
        ) after(call) {
            linear(call, stream, to, from, count, Direction::DeviceToHost, When::Later);
        }
        fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz: (
            to: u64, from: u64, count: usize, stream: usize,
        ) after(call) {
            linear(call, stream, to, from, count, Direction::DeviceToDevice, When::Later);
        }
        fn cuMemcpyPeer | cuMemcpyPeer_ptds: (
            to: u64, to_context: usize, from: u64, from_context: usize, count: usize,
        ) after(call) {
            let _ = (to_context, from_context);
            linear(call, 0, to, from, count, Direction::DeviceToDevice, When::Now);
        }
        fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz: (
            to: u64, to_context: usize, from: u64, from_context: usize, count: usize, stream: usize,
        ) after(call) {
            let _ = (to_context, from_context);
            linear(call, stream, to, from, count, Direction::DeviceToDevice, When::Later);
        }
        fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds: (copy: *const CUDA_MEMCPY2D) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { two_d(call, 0, copy, When::Now) };
        }
        fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds: (copy: *const CUDA_MEMCPY2D) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { two_d(call, 0, copy, When::Now) };
        }
        fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz: (copy: *const CUDA_MEMCPY2D, stream: usize) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { two_d(call, stream, copy, When::Later) };
        }
        fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds: (copy: *const CUDA_MEMCPY3D) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { three_d(call, 0, copy, When::Now) };
        }
        fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz: (copy: *const CUDA_MEMCPY3D, stream: usize) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { three_d(call, stream, copy, When::Later) };
        }
    }
}
