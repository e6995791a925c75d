//! Kernel launches, nvcc's launch stubs, and what is known of a kernel.

use crate::abi::{In, LaunchConfig, Out, Status};
use crate::device::{current, ready};
use crate::driver::Driver;
use crate::error::{INVALID_CONFIGURATION, INVALID_DEVICE_FUNCTION, INVALID_VALUE};
use crate::registry::kernel;
use std::cell::Cell;
use std::ffi::{c_char, c_void};

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
    attrs: *mut c_void,
    num_attrs: u32,
}

/// `cudaFuncAttributes`: the fields up to the shared memory carve-out, then 72 bytes that are zero here.
#[repr(C)]
struct Attributes {
    shared: usize,
    constant: usize,
    local: usize,
    max_threads: i32,
    registers: i32,
    ptx: i32,
    binary: i32,
    cache: i32,
    max_dynamic_shared: i32,
    carve_out: i32,
    rest: [i32; 22],
}

type Args = *mut *mut c_void;
type Call = (Dim3, Dim3, usize, u64);

/// Launch configurations between `<<<` and the stub; they nest where an argument itself launches.
const NESTING: usize = 8;

thread_local! {
    static CALLS: Cell<([Option<Call>; NESTING], usize)> = const { Cell::new(([None; NESTING], 0)) };
}

/// The driver calls a bad grid or block an invalid value; the runtime has a word of its own.
fn refused(code: u32) -> u32 {
    match code {
        INVALID_VALUE => INVALID_CONFIGURATION,
        code => code,
    }
}

fn launch(
    driver: &Driver,
    per_thread: bool,
    kernel: u64,
    (grid, block, shared, stream): Call,
    args: Args,
) -> Status {
    let shared = u32::try_from(shared).map_err(|_| INVALID_VALUE)?;
    let (Dim3 { x, y, z }, b) = (grid, block);
    let none = std::ptr::null_mut();
    driver
        .cuLaunchKernel(
            per_thread, kernel, x, y, z, b.x, b.y, b.z, shared, stream, args, none,
        )
        .map_err(refused)
}

fn launch_registered(per_thread: bool, function: usize, call: Call, args: Args) -> Status {
    let driver = ready()?;
    launch(driver, per_thread, kernel(driver, function)?, call, args)
}

fn launch_kernel(per_thread: bool, kernel: u64, call: Call, args: Args) -> Status {
    let driver = ready()?;
    // The stub keeps a null handle where its lookup failed.
    if kernel == 0 {
        return Err(INVALID_DEVICE_FUNCTION);
    }
    launch(driver, per_thread, kernel, call, args)
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
) -> u32 {
    let (mut calls, depth) = CALLS.get();
    let Some(place) = calls.get_mut(depth) else {
        return INVALID_CONFIGURATION;
    };
    *place = Some((grid, block, shared, stream));
    CALLS.set((calls, depth + 1));
    0
}

export! {
    __cudaPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<u64>) {
        let (calls, depth) = CALLS.get();
        let top = depth.checked_sub(1).ok_or(INVALID_CONFIGURATION)?;
        CALLS.set((calls, top));
        let call = calls[top].ok_or(INVALID_CONFIGURATION)?;
        grid.put(call.0)?;
        block.put(call.1)?;
        shared.put(call.2)?;
        stream.put(call.3)
    }
    __cudaGetKernel(out: Out<u64>, function: usize) { out.put(kernel(ready()?, function)?) }
    __cudaLaunchKernel / __cudaLaunchKernel_ptsz |per_thread|
        (kernel: u64, grid: Dim3, block: Dim3, args: Args, shared: usize, stream: u64) {
        launch_kernel(per_thread, kernel, (grid, block, shared, stream), args)
    }
    cudaLaunchKernel / cudaLaunchKernel_ptsz |per_thread|
        (function: usize, grid: Dim3, block: Dim3, args: Args, shared: usize, stream: u64) {
        launch_registered(per_thread, function, (grid, block, shared, stream), args)
    }
    cudaLaunchCooperativeKernel / cudaLaunchCooperativeKernel_ptsz |per_thread|
        (function: usize, grid: Dim3, block: Dim3, args: Args, shared: usize, stream: u64) {
        let driver = ready()?;
        let kernel = kernel(driver, function)?;
        let shared = u32::try_from(shared).map_err(|_| INVALID_VALUE)?;
        driver
            .cuLaunchCooperativeKernel(per_thread, kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                                       stream, args)
            .map_err(refused)
    }
    cudaLaunchKernelExC / cudaLaunchKernelExC_ptsz |per_thread| (config: In<Config>, function: usize, args: Args) {
        let driver = ready()?;
        let config = config.get()?;
        let kernel = kernel(driver, function)?;
        let config = LaunchConfig {
            grid: [config.grid.x, config.grid.y, config.grid.z],
            block: [config.block.x, config.block.y, config.block.z],
            shared: u32::try_from(config.shared).map_err(|_| INVALID_VALUE)?,
            stream: config.stream,
            attrs: config.attrs,
            num_attrs: config.num_attrs,
        };
        driver.cuLaunchKernelEx(per_thread, In(&config), kernel, args, std::ptr::null_mut()).map_err(refused)
    }

    cudaGetKernel(out: Out<u64>, function: usize) { out.put(kernel(ready()?, function)?) }
    cudaGetFuncBySymbol(out: Out<u64>, function: usize) {
        let driver = ready()?;
        driver.cuKernelGetFunction(false, out, kernel(driver, function)?)
    }
    cudaFuncGetName(name: Out<*const c_char>, function: usize) {
        let driver = ready()?;
        driver.cuKernelGetName(false, name, kernel(driver, function)?)
    }
    cudaFuncGetParamInfo(function: usize, index: usize, offset: Out<usize>, size: Out<usize>) {
        let driver = ready()?;
        driver.cuKernelGetParamInfo(false, kernel(driver, function)?, index, offset, size)
    }
    cudaFuncGetParamCount(function: usize, count: Out<usize>) {
        let driver = ready()?;
        driver.cuKernelGetParamCount(false, kernel(driver, function)?, count)
    }
    cudaFuncGetAttributes(out: Out<Attributes>, function: usize) {
        let driver = ready()?;
        let (kernel, device) = (kernel(driver, function)?, current(driver)?);
        let get = |which| -> Status<i32> {
            let mut value = 0;
            driver.cuKernelGetAttribute(false, Out(&mut value), which, kernel, device)?;
            Ok(value)
        };
        out.put(Attributes {
            shared: get(1)? as usize,
            constant: get(2)? as usize,
            local: get(3)? as usize,
            max_threads: get(0)?,
            registers: get(4)?,
            ptx: get(5)?,
            binary: get(6)?,
            cache: get(7)?,
            max_dynamic_shared: get(8)?,
            carve_out: get(9)?,
            rest: [0; 22],
        })
    }
    cudaFuncSetAttribute(function: usize, which: u32, value: i32) {
        let driver = ready()?;
        driver.cuKernelSetAttribute(false, which, value, kernel(driver, function)?, current(driver)?)
    }
    cudaKernelSetAttributeForDevice(kernel: u64, which: u32, value: i32, device: i32) {
        ready()?.cuKernelSetAttribute(false, which, value, kernel, device)
    }
    cudaFuncSetCacheConfig(function: usize, config: u32) {
        kernel(ready()?, function)?;
        if config > 3 { Err(INVALID_VALUE) } else { Ok(()) }
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: usize, threads: i32, shared: usize) {
        resident(blocks, function, threads, shared, 0)
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, function: usize, threads: i32,
                                                           shared: usize, flags: u32) {
        resident(blocks, function, threads, shared, flags)
    }
}

fn resident(blocks: Out<i32>, function: usize, threads: i32, shared: usize, flags: u32) -> Status {
    let driver = ready()?;
    let kernel = kernel(driver, function)?;
    driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        false, blocks, kernel, threads, shared, flags,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::runtime::sys::{cudaFuncAttributes, cudaLaunchConfig_st};
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_nvidias() {
        assert_eq!(size_of::<Config>(), size_of::<cudaLaunchConfig_st>());
        assert_eq!(
            offset_of!(Config, attrs),
            offset_of!(cudaLaunchConfig_st, attrs)
        );
        assert_eq!(
            offset_of!(Attributes, carve_out),
            offset_of!(cudaFuncAttributes, preferredShmemCarveout)
        );
        assert_eq!(size_of::<Attributes>(), size_of::<cudaFuncAttributes>());
    }

    #[test]
    fn call_configurations_nest() {
        let at = |x| Dim3 { x, y: 1, z: 1 };
        assert_eq!(__cudaPushCallConfiguration(at(1), at(2), 3, 4), 0);
        assert_eq!(__cudaPushCallConfiguration(at(5), at(6), 7, 8), 0);
        for expected in [(5, 6, 7, 8), (1, 2, 3, 4)] {
            let (mut grid, mut block, mut shared, mut stream) = (at(0), at(0), 0, 0);
            let out = (
                Out(&mut grid),
                Out(&mut block),
                Out(&mut shared),
                Out(&mut stream),
            );
            assert_eq!(__cudaPopCallConfiguration(out.0, out.1, out.2, out.3), 0);
            assert_eq!((grid.x, block.x, shared, stream), expected);
        }
        let none = (Out(std::ptr::null_mut()), Out(std::ptr::null_mut()));
        let (mut grid, mut block) = (at(0), at(0));
        assert_eq!(
            __cudaPopCallConfiguration(Out(&mut grid), Out(&mut block), none.0, none.1),
            INVALID_CONFIGURATION
        );
    }
}
