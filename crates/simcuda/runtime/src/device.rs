//! Devices and the calling thread's choice of one; versions; entry points into the driver.

use crate::abi::{Out, Status, Text};
use crate::driver::{Driver, VERSION, driver};
use crate::error::{INVALID_DEVICE, INVALID_VALUE, NOT_FOUND};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// The primary contexts retained so far, by device; 0 for none.
static PRIMARY: Mutex<[u64; 64]> = Mutex::new([0; 64]);

/// A device's primary context, retained at the first use.
pub(crate) fn primary(driver: &Driver, device: i32) -> Status<u64> {
    let mut contexts = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    let context = usize::try_from(device)
        .ok()
        .and_then(|index| contexts.get_mut(index))
        .ok_or(INVALID_DEVICE)?;
    if *context == 0 {
        driver.cuDevicePrimaryCtxRetain(false, Out(&mut *context), device)?;
    }
    Ok(*context)
}

/// The driver, with a current context: the calling thread's own, or its device's primary one.
pub(crate) fn ready() -> Status<&'static Driver> {
    let driver = driver()?;
    let mut current = 0;
    driver.cuCtxGetCurrent(false, Out(&mut current))?;
    if current == 0 {
        driver.cuCtxSetCurrent(false, primary(driver, DEVICE.get())?)?;
    }
    Ok(driver)
}

/// The device of the calling thread's context, or the one it chose.
pub(crate) fn current(driver: &Driver) -> Status<i32> {
    let (mut context, mut device) = (0, DEVICE.get());
    driver.cuCtxGetCurrent(false, Out(&mut context))?;
    if context != 0 {
        driver.cuCtxGetDevice(false, Out(&mut device), context)?;
    }
    Ok(device)
}

fn check(driver: &Driver, device: i32) -> Status {
    let mut count = 0;
    driver.cuDeviceGetCount(false, Out(&mut count))?;
    if (0..count).contains(&device) {
        Ok(())
    } else {
        Err(INVALID_DEVICE)
    }
}

/// Size of `cudaDeviceProp` as of CUDA 13, in bytes.
const PROPERTIES: usize = 1008;

/// Where `cudaDeviceProp` keeps the `int`s and `size_t`s that are device attributes: offset and attribute.
#[rustfmt::skip]
const INTS: &[(usize, u32)] = &[
    (304, 12), (308, 10), (320, 1), (324, 2), (328, 3), (332, 4), (336, 5), (340, 6), (344, 7), (360, 75), (364, 76),
    (384, 16), (388, 18), (392, 19), (560, 31), (568, 33), (584, 40), (588, 41), (592, 37), (596, 38), (604, 39),
    (608, 78), (612, 79), (616, 80), (632, 82), (636, 83), (656, 89), (660, 90), (664, 91), (668, 95), (688, 106),
    (704, 99), (720, 115), (768, 134),
];
#[rustfmt::skip]
const SIZES: &[(usize, u32)] = &[
    (296, 8), (312, 11), (352, 9), (368, 14), (376, 51), (552, 30), (624, 81), (672, 97), (696, 111),
];

fn properties(driver: &Driver, device: i32) -> Status<[u8; PROPERTIES]> {
    let mut bytes = [0; PROPERTIES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let mut name = [0; 256];
    driver.cuDeviceGetName(false, Out(name.as_mut_ptr().cast()), 256, device)?;
    put(0, &name);
    let mut uuid = [0; 16];
    driver.cuDeviceGetUuid(false, Out(&mut uuid), device)?;
    put(256, &uuid);
    let mut memory = 0;
    driver.cuDeviceTotalMem(false, Out(&mut memory), device)?;
    put(288, &memory.to_ne_bytes());
    let get = |attribute| -> Status<i32> {
        let mut value = 0;
        driver.cuDeviceGetAttribute(false, Out(&mut value), attribute, device)?;
        Ok(value)
    };
    for &(at, attribute) in INTS {
        put(at, &get(attribute)?.to_ne_bytes());
    }
    for &(at, attribute) in SIZES {
        put(at, &(get(attribute)? as usize).to_ne_bytes());
    }
    Ok(bytes)
}

/// Asks the driver for a function; the flag's default is the caller's stream flavour.
fn entry_point(
    symbol: Text,
    function: Out<*mut c_void>,
    (version, flags, per_thread): (i32, u64, bool),
    result: Out<u32>,
) -> Status {
    symbol.get()?;
    let flags = match flags {
        0 if per_thread => 2,
        flags @ 0..=2 => flags,
        _ => return Err(INVALID_VALUE),
    };
    let (mut found, mut how) = (std::ptr::null_mut(), 0);
    let code = (driver()?.get_proc_address)(symbol.0, &mut found, version, flags, &mut how);
    function.put(if code == 0 {
        found
    } else {
        std::ptr::null_mut()
    })?;
    // Where the caller asks how it went, "not found" is an answer and no error.
    match code {
        NOT_FOUND if result.put(how).is_err() => Err(NOT_FOUND),
        0 => {
            result.put_if_wanted(how);
            Ok(())
        }
        NOT_FOUND => Ok(()),
        code => Err(code),
    }
}

export! {
    cudaGetDeviceCount(count: Out<i32>) { driver()?.cuDeviceGetCount(false, count) }
    cudaSetDevice(device: i32) {
        let driver = driver()?;
        check(driver, device)?;
        driver.cuCtxSetCurrent(false, primary(driver, device)?)?;
        DEVICE.set(device);
        Ok(())
    }
    cudaInitDevice(device: i32, _device_flags: u32, _flags: u32) {
        let driver = driver()?;
        check(driver, device)?;
        primary(driver, device).map(|_| ())
    }
    cudaGetDevice(device: Out<i32>) { device.put(current(driver()?)?) }
    cudaSetValidDevices(_devices: *const i32, _count: i32) { driver().map(|_| ()) }
    cudaChooseDevice(device: Out<i32>, _properties: *const c_void) {
        driver()?;
        device.put(0)
    }
    cudaSetDeviceFlags(flags: u32) {
        let driver = driver()?;
        driver.cuDevicePrimaryCtxSetFlags(false, current(driver)?, flags)
    }
    cudaGetDeviceFlags(flags: Out<u32>) {
        let driver = driver()?;
        let mut active = 0;
        driver.cuDevicePrimaryCtxGetState(false, current(driver)?, flags, Out(&mut active))
    }
    cudaDeviceSynchronize() {
        let driver = ready()?;
        let mut context = 0;
        driver.cuCtxGetCurrent(false, Out(&mut context))?;
        driver.cuCtxSynchronize(false, context)
    }
    cudaDeviceReset() {
        let driver = driver()?;
        let device = current(driver)?;
        crate::registry::forget_loaded(driver);
        let mut contexts = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
        driver.cuDevicePrimaryCtxReset(false, device)?;
        if let Some(context) = contexts.get_mut(device as usize) {
            *context = 0;
        }
        driver.cuCtxSetCurrent(false, 0)
    }
    cudaDeviceGetAttribute(value: Out<i32>, which: u32, device: i32) {
        let driver = driver()?;
        check(driver, device)?;
        driver.cuDeviceGetAttribute(false, value, which, device)
    }
    cudaGetDeviceProperties(out: Out<[u8; PROPERTIES]>, device: i32) {
        let driver = driver()?;
        check(driver, device)?;
        out.put(properties(driver, device)?)
    }
    cudaDeviceGetPCIBusId(text: Out<c_char>, length: i32, device: i32) {
        driver()?.cuDeviceGetPCIBusId(false, text, length, device)
    }
    cudaDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        driver()?.cuDeviceCanAccessPeer(false, can, device, peer)
    }
    cudaDeviceGetP2PAttribute(value: Out<i32>, which: u32, device: i32, peer: i32) {
        driver()?.cuDeviceGetP2PAttribute(false, value, which, device, peer)
    }
    cudaDeviceEnablePeerAccess(peer: i32, flags: u32) {
        let driver = ready()?;
        driver.cuCtxEnablePeerAccess(false, primary(driver, peer)?, flags)
    }
    cudaDeviceDisablePeerAccess(peer: i32) {
        let driver = ready()?;
        driver.cuCtxDisablePeerAccess(false, primary(driver, peer)?)
    }
    cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        ready()?.cuCtxGetStreamPriorityRange(false, least, greatest)
    }
    cudaDeviceGetLimit(value: Out<usize>, which: u32) { ready()?.cuCtxGetLimit(false, value, which) }
    cudaDeviceSetLimit(which: u32, value: usize) { ready()?.cuCtxSetLimit(false, which, value) }
    cudaDeviceGetCacheConfig(config: Out<u32>) { config.put(0) }
    cudaDeviceSetCacheConfig(config: u32) { if config > 3 { Err(INVALID_VALUE) } else { Ok(()) } }
    cudaCtxResetPersistingL2Cache() { ready().map(|_| ()) }
    cudaProfilerStart() { Ok(()) }
    cudaProfilerStop() { Ok(()) }
    cudaDriverGetVersion(version: Out<i32>) {
        // The one question that has an answer without a driver: 0.
        match driver() {
            Ok(driver) => driver.cuDriverGetVersion(false, version),
            Err(_) => version.put(0),
        }
    }
    cudaRuntimeGetVersion(version: Out<i32>) { version.put(VERSION) }
    cudaGetDriverEntryPoint / cudaGetDriverEntryPoint_ptsz |per_thread|
        (symbol: Text, function: Out<*mut c_void>, flags: u64, result: Out<u32>) {
        entry_point(symbol, function, (VERSION, flags, per_thread), result)
    }
    cudaGetDriverEntryPointByVersion / cudaGetDriverEntryPointByVersion_ptsz |per_thread|
        (symbol: Text, function: Out<*mut c_void>, version: u32, flags: u64, result: Out<u32>) {
        entry_point(symbol, function, (version as i32, flags, per_thread), result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUdevice_attribute as A;
    use cudarc::runtime::sys::cudaDeviceProp as Theirs;
    use std::mem::offset_of;

    #[test]
    fn properties_lie_where_nvidias_do() {
        assert_eq!(offset_of!(Theirs, totalGlobalMem), 288);
        for (offset, attribute) in [
            (
                offset_of!(Theirs, warpSize),
                A::CU_DEVICE_ATTRIBUTE_WARP_SIZE,
            ),
            (
                offset_of!(Theirs, major),
                A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            ),
            (
                offset_of!(Theirs, multiProcessorCount),
                A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            ),
            (
                offset_of!(Theirs, asyncEngineCount),
                A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
            ),
            (
                offset_of!(Theirs, maxBlocksPerMultiProcessor),
                A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
            ),
        ] {
            assert!(INTS.contains(&(offset, attribute as u32)), "{attribute:?}");
        }
        for (offset, attribute) in [
            (
                offset_of!(Theirs, sharedMemPerBlock),
                A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
            ),
            (
                offset_of!(Theirs, reservedSharedMemPerBlock),
                A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
            ),
        ] {
            assert!(SIZES.contains(&(offset, attribute as u32)), "{attribute:?}");
        }
    }
}
