//! Execution contexts: a device's primary context or a green one, named by the driver's handle.

use crate::abi::{Out, Status};
use crate::device::{primary, ready};
use crate::driver::{Driver, driver};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The green ones among the handles that this runtime gave out.
static GREEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn green() -> MutexGuard<'static, BTreeSet<u64>> {
    GREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_green(context: u64) -> bool {
    green().contains(&context)
}

/// The context as the driver's context functions take it.
fn plain(driver: &Driver, context: u64) -> Status<u64> {
    if !is_green(context) {
        return Ok(context);
    }
    let mut plain = 0;
    driver.cuCtxFromGreenCtx(false, Out(&mut plain), context)?;
    Ok(plain)
}

/// A stream of another context than the current one.
fn create_in(driver: &Driver, context: u64, stream: Out<u64>, flags: u32, priority: i32) -> Status {
    driver.cuCtxPushCurrent(false, context)?;
    let created = driver.cuStreamCreateWithPriority(false, stream, flags, priority);
    driver.cuCtxPopCurrent(false, Out(std::ptr::null_mut()))?;
    created
}

export! {
    cudaDeviceGetExecutionCtx(context: Out<u64>, device: i32) { context.put(primary(driver()?, device)?) }
    cudaGreenCtxCreate(context: Out<u64>, resources: u64, device: i32, flags: u32) {
        let mut made = 0;
        context.wanted()?;
        ready()?.cuGreenCtxCreate(false, Out(&mut made), resources, device, flags)?;
        green().insert(made);
        context.put(made)
    }
    cudaExecutionCtxDestroy(context: u64) {
        ready()?.cuGreenCtxDestroy(false, context)?;
        green().remove(&context);
        Ok(())
    }
    cudaExecutionCtxStreamCreate(stream: Out<u64>, context: u64, flags: u32, priority: i32) {
        let driver = ready()?;
        if is_green(context) {
            driver.cuGreenCtxStreamCreate(false, stream, context, flags, priority)
        } else {
            create_in(driver, context, stream, flags, priority)
        }
    }
    cudaExecutionCtxSynchronize(context: u64) {
        let driver = ready()?;
        driver.cuCtxSynchronize(false, plain(driver, context)?)
    }
    cudaExecutionCtxRecordEvent(context: u64, event: u64) {
        let driver = ready()?;
        if is_green(context) {
            driver.cuGreenCtxRecordEvent(false, context, event)
        } else {
            driver.cuCtxRecordEvent(false, context, event)
        }
    }
    cudaExecutionCtxWaitEvent(context: u64, event: u64) {
        let driver = ready()?;
        if is_green(context) {
            driver.cuGreenCtxWaitEvent(false, context, event)
        } else {
            driver.cuCtxWaitEvent(false, context, event)
        }
    }
    cudaExecutionCtxGetDevice(device: Out<i32>, context: u64) {
        let driver = ready()?;
        driver.cuCtxGetDevice(false, device, plain(driver, context)?)
    }
    cudaExecutionCtxGetId(context: u64, id: Out<u64>) {
        let driver = ready()?;
        if is_green(context) {
            driver.cuGreenCtxGetId(false, context, id)
        } else {
            driver.cuCtxGetId(false, context, id)
        }
    }
    cudaExecutionCtxGetDevResource(context: u64, resource: *mut c_void, kind: u32) {
        let driver = ready()?;
        if is_green(context) {
            driver.cuGreenCtxGetDevResource(false, context, resource, kind)
        } else {
            driver.cuCtxGetDevResource(false, context, resource, kind)
        }
    }
    cudaDeviceGetDevResource(device: i32, resource: *mut c_void, kind: u32) {
        driver()?.cuDeviceGetDevResource(false, device, resource, kind)
    }
    cudaStreamGetDevResource / cudaStreamGetDevResource_ptsz |per_thread|
        (stream: u64, resource: *mut c_void, kind: u32) {
        ready()?.cuStreamGetDevResource(per_thread, stream, resource, kind)
    }
    cudaDevSmResourceSplitByCount(groups: *mut c_void, count: Out<u32>, input: *const c_void, remaining: *mut c_void,
                                  flags: u32, least: u32) {
        driver()?.cuDevSmResourceSplitByCount(false, groups, count, input, remaining, flags, least)
    }
    cudaDevResourceGenerateDesc(descriptor: Out<u64>, resources: *const c_void, count: u32) {
        driver()?.cuDevResourceGenerateDesc(false, descriptor, resources, count)
    }
}
