//! Launches as before CUDA 4: a function keeps the shape of its blocks and its parameters from one call to the next.

use super::launch::run;
use crate::abi::{In, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE};
use crate::sim::kernel::{BUFFER_END, BUFFER_POINTER, BUFFER_SIZE, KernelCall, Shape};
use crate::sim::session::session;
use crate::sim::state::Prepared;

/// More parameters than any kernel takes, in bytes.
const PARAMETERS: usize = 32 << 10;

/// Changes what a function keeps.
fn prepare(function: u64, change: impl FnOnce(&mut Prepared)) -> Status {
    session(|s| {
        let function = s.functions.get_mut(function).ok_or(INVALID_HANDLE)?;
        change(&mut function.prepared);
        Ok(())
    })
}

fn set_parameters(function: u64, offset: i32, bytes: &[u8]) -> Status {
    let offset = usize::try_from(offset).map_err(|_| INVALID_VALUE)?;
    let end = offset + bytes.len();
    if end > PARAMETERS {
        return Err(INVALID_VALUE);
    }
    prepare(function, |kept| {
        if kept.params.len() < end {
            kept.params.resize(end, 0);
        }
        kept.params[offset..end].copy_from_slice(bytes);
    })
}

fn launch(function: u64, grid: [i32; 2], stream: u64) -> Status {
    let kept = session(|s| {
        let function = s.functions.get(function).ok_or(INVALID_HANDLE)?;
        Ok(function.prepared.clone())
    })?;
    let [x, y] = grid.map(|extent| extent.max(0) as u32);
    let shape = Shape {
        grid: [x, y, 1],
        block: kept.block,
        shared: kept.shared,
    };
    let size = kept.params.len();
    let extra = [
        BUFFER_POINTER,
        kept.params.as_ptr() as usize,
        BUFFER_SIZE,
        &raw const size as usize,
        BUFFER_END,
    ];
    let params = In(std::ptr::null());
    let call = KernelCall {
        function,
        shape,
        params,
        extra: In(extra.as_ptr()),
    };
    run(call, stream, false, false)
}

api! {
    "cuFuncSetBlockShape" 2000 => cuFuncSetBlockShape(function: u64, x: i32, y: i32, z: i32) {
        if [x, y, z].iter().any(|&extent| extent <= 0) {
            return Err(INVALID_VALUE);
        }
        prepare(function, |kept| kept.block = [x as u32, y as u32, z as u32])
    }
    "cuFuncSetSharedSize" 2000 => cuFuncSetSharedSize(function: u64, bytes: u32) {
        prepare(function, |kept| kept.shared = bytes)
    }
    "cuParamSetSize" 2000 => cuParamSetSize(function: u64, bytes: u32) {
        if bytes as usize > PARAMETERS {
            return Err(INVALID_VALUE);
        }
        prepare(function, |kept| kept.params.resize(bytes as usize, 0))
    }
    "cuParamSeti" 2000 => cuParamSeti(function: u64, offset: i32, value: u32) {
        set_parameters(function, offset, &value.to_ne_bytes())
    }
    "cuParamSetf" 2000 => cuParamSetf(function: u64, offset: i32, value: f32) {
        set_parameters(function, offset, &value.to_ne_bytes())
    }
    "cuParamSetv" 2000 => cuParamSetv(function: u64, offset: i32, value: In<u8>, bytes: u32) {
        if bytes as usize > PARAMETERS {
            return Err(INVALID_VALUE);
        }
        let bytes: Status<Vec<u8>> = (0..bytes as usize).map(|index| value.at(index)).collect();
        set_parameters(function, offset, &bytes?)
    }
    "cuLaunch" 2000 => cuLaunch(function: u64) { launch(function, [1, 1], 0) }
    "cuLaunchGrid" 2000 => cuLaunchGrid(function: u64, x: i32, y: i32) { launch(function, [x, y], 0) }
    "cuLaunchGridAsync" 2000 => cuLaunchGridAsync(function: u64, x: i32, y: i32, stream: u64) {
        launch(function, [x, y], stream)
    }
}
