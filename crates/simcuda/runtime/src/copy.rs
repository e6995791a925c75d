//! Linear and 2D copies, and those of variables.

use crate::abi::{Copy2d, Copy3d, Copy3dSide, In, Status};
use crate::device::{primary, ready};
use crate::driver::Driver;
use crate::error::{INVALID_MEMCPY_DIRECTION, INVALID_VALUE};
use crate::registry::variable;

/// `cudaMemcpyKind`.
const HOST_TO_HOST: u32 = 0;
const HOST_TO_DEVICE: u32 = 1;
const DEVICE_TO_HOST: u32 = 2;
const DEVICE_TO_DEVICE: u32 = 3;
const DEFAULT: u32 = 4;

/// A synchronous copy, or with a stream an asynchronous one.
fn copy(
    driver: &Driver,
    per_thread: bool,
    (to, from, length): (u64, u64, usize),
    kind: u32,
    stream: Option<u64>,
) -> Status {
    let pt = per_thread;
    match (kind, stream) {
        (HOST_TO_HOST | DEFAULT, None) => driver.cuMemcpy(pt, to, from, length),
        (HOST_TO_DEVICE, None) => driver.cuMemcpyHtoD(pt, to, from, length),
        (DEVICE_TO_HOST, None) => driver.cuMemcpyDtoH(pt, to, from, length),
        (DEVICE_TO_DEVICE, None) => driver.cuMemcpyDtoD(pt, to, from, length),
        (HOST_TO_HOST | DEFAULT, Some(stream)) => {
            driver.cuMemcpyAsync(pt, to, from, length, stream)
        }
        (HOST_TO_DEVICE, Some(stream)) => driver.cuMemcpyHtoDAsync(pt, to, from, length, stream),
        (DEVICE_TO_HOST, Some(stream)) => driver.cuMemcpyDtoHAsync(pt, to, from, length, stream),
        (DEVICE_TO_DEVICE, Some(stream)) => driver.cuMemcpyDtoDAsync(pt, to, from, length, stream),
        _ => Err(INVALID_MEMCPY_DIRECTION),
    }
}

/// A side of a 2D copy for the driver: everything by address, so the kind only needs to exist.
fn rows(
    (to, to_pitch): (u64, usize),
    (from, from_pitch): (u64, usize),
    width: usize,
    height: usize,
    kind: u32,
) -> Status<Copy2d> {
    const UNIFIED: u32 = 4;
    if kind > DEFAULT {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    if to_pitch < width || from_pitch < width {
        return Err(12); // cudaErrorInvalidPitchValue
    }
    Ok(Copy2d {
        src_x: 0,
        src_y: 0,
        src_type: UNIFIED,
        src_host: 0,
        src_device: from,
        src_array: 0,
        src_pitch: from_pitch,
        dst_x: 0,
        dst_y: 0,
        dst_type: UNIFIED,
        dst_host: 0,
        dst_device: to,
        dst_array: 0,
        dst_pitch: to_pitch,
        width,
        height,
    })
}

/// The driver's description of a copy of bytes by address.
pub(crate) fn linear(to: u64, from: u64, length: usize, kind: u32) -> Status<Copy3d> {
    const UNIFIED: u32 = 4;
    if kind > DEFAULT {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    let side = |device| Copy3dSide {
        x: 0,
        y: 0,
        z: 0,
        lod: 0,
        kind: UNIFIED,
        host: 0,
        device,
        array: 0,
        context: 0,
        pitch: length,
        height: 1,
    };
    Ok(Copy3d {
        source: side(from),
        target: side(to),
        extent: [length, 1, 1],
    })
}

/// The address of `offset` into a variable, if `length` bytes from there are its own.
pub(crate) fn within(driver: &Driver, symbol: usize, offset: usize, length: usize) -> Status<u64> {
    let (address, size) = variable(driver, symbol)?;
    let fits = offset.checked_add(length).is_some_and(|end| end <= size);
    if fits {
        Ok(address + offset as u64)
    } else {
        Err(INVALID_VALUE)
    }
}

fn to_symbol(
    per_thread: bool,
    symbol: usize,
    from: u64,
    length: usize,
    offset: usize,
    kind: u32,
    stream: Option<u64>,
) -> Status {
    let driver = ready()?;
    if matches!(kind, HOST_TO_HOST | DEVICE_TO_HOST) {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    copy(
        driver,
        per_thread,
        (within(driver, symbol, offset, length)?, from, length),
        kind,
        stream,
    )
}

fn from_symbol(
    per_thread: bool,
    to: u64,
    symbol: usize,
    length: usize,
    offset: usize,
    kind: u32,
    stream: Option<u64>,
) -> Status {
    let driver = ready()?;
    if matches!(kind, HOST_TO_HOST | HOST_TO_DEVICE) {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    copy(
        driver,
        per_thread,
        (to, within(driver, symbol, offset, length)?, length),
        kind,
        stream,
    )
}

export! {
    cudaMemcpy / cudaMemcpy_ptds |per_thread| (to: u64, from: u64, length: usize, kind: u32) {
        copy(ready()?, per_thread, (to, from, length), kind, None)
    }
    cudaMemcpyAsync / cudaMemcpyAsync_ptsz |per_thread| (to: u64, from: u64, length: usize, kind: u32, stream: u64) {
        copy(ready()?, per_thread, (to, from, length), kind, Some(stream))
    }
    cudaMemcpy2D / cudaMemcpy2D_ptds |per_thread|
        (to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32) {
        let rows = rows((to, to_pitch), (from, from_pitch), width, height, kind)?;
        ready()?.cuMemcpy2DUnaligned(per_thread, In(&rows))
    }
    cudaMemcpy2DAsync / cudaMemcpy2DAsync_ptsz |per_thread|
        (to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32, stream: u64) {
        let rows = rows((to, to_pitch), (from, from_pitch), width, height, kind)?;
        ready()?.cuMemcpy2DAsync(per_thread, In(&rows), stream)
    }
    cudaMemcpyPeer(to: u64, to_device: i32, from: u64, from_device: i32, length: usize) {
        let driver = ready()?;
        let (to_context, from_context) = (primary(driver, to_device)?, primary(driver, from_device)?);
        driver.cuMemcpyPeer(false, to, to_context, from, from_context, length)
    }
    cudaMemcpyPeerAsync(to: u64, to_device: i32, from: u64, from_device: i32, length: usize, stream: u64) {
        let driver = ready()?;
        let (to_context, from_context) = (primary(driver, to_device)?, primary(driver, from_device)?);
        driver.cuMemcpyPeerAsync(false, to, to_context, from, from_context, length, stream)
    }
    cudaMemcpyToSymbol / cudaMemcpyToSymbol_ptds |per_thread|
        (symbol: usize, from: u64, length: usize, offset: usize, kind: u32) {
        to_symbol(per_thread, symbol, from, length, offset, kind, None)
    }
    cudaMemcpyToSymbolAsync / cudaMemcpyToSymbolAsync_ptsz |per_thread|
        (symbol: usize, from: u64, length: usize, offset: usize, kind: u32, stream: u64) {
        to_symbol(per_thread, symbol, from, length, offset, kind, Some(stream))
    }
    cudaMemcpyFromSymbol / cudaMemcpyFromSymbol_ptds |per_thread|
        (to: u64, symbol: usize, length: usize, offset: usize, kind: u32) {
        from_symbol(per_thread, to, symbol, length, offset, kind, None)
    }
    cudaMemcpyFromSymbolAsync / cudaMemcpyFromSymbolAsync_ptsz |per_thread|
        (to: u64, symbol: usize, length: usize, offset: usize, kind: u32, stream: u64) {
        from_symbol(per_thread, to, symbol, length, offset, kind, Some(stream))
    }
}
