//! Devices that use the host's page tables: they read and write pageable memory where it lies,
//! so that a copy to it need not be complete when its call returns.
//!
//! A device is asked when its first asynchronous copy that may go to host memory is made, and
//! never while any stream captures.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use streamcheck_model::{Action, DeviceId, Direction, Region};

use crate::call::Call;
use crate::doors::libc_door;
use crate::{capture, driver, place, provider, recorder, runtime};

/// The devices that were asked, a bit each, and those that said so.
static ASKED: AtomicU64 = AtomicU64::new(0);
static COHERENT: AtomicU64 = AtomicU64::new(0);

/// Records an asynchronous copy, and has the C library's releases of what it writes watched
/// if that is pageable memory which a coherent device writes.
pub(crate) fn copied(call: &Call, to: Region, direction: Direction, record: impl FnOnce()) {
    let to_host = matches!(direction, Direction::DeviceToHost | Direction::Inferred);
    if !to_host || capture::any() || !is_coherent(call) {
        return record();
    }
    libc_door::make_room(1);
    record();
    if recorder::begins_system_memory(to.address) {
        for _ in 0..libc_door::watch_pageable(call, &[to]) {
            call.blind_spot("forgotten-sources", call.hook.api());
        }
    }
}

/// Has the current device asked, unless a stream captures.
pub(crate) fn learn(call: &Call) {
    if !capture::any() {
        is_coherent(call);
    }
}

/// Whether the current device is one; the first time that is told.
#[inline]
fn is_coherent(call: &Call) -> bool {
    place::learn();
    let (device, _) = place::current();
    let Some(bit) = 1_u64.checked_shl(device.0.into()) else {
        return false;
    };
    if ASKED.load(Acquire) & bit == 0 {
        ask(call, device, bit);
    }
    COHERENT.load(Relaxed) & bit != 0
}

#[cold]
fn ask(call: &Call, device: DeviceId, bit: u64) {
    // CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS and …_USES_HOST_PAGE_TABLES (cuda.h); the
    // runtime's numbers are the same.
    const PAGEABLE_MEMORY_ACCESS: u32 = 88;
    const USES_HOST_PAGE_TABLES: u32 = 100;
    let has = |attribute| attribute_of(device, attribute) == Some(1);
    let coherent = has(PAGEABLE_MEMORY_ACCESS) && has(USES_HOST_PAGE_TABLES);
    // Who finds that it was asked finds the answer, too, and the engine has it.
    if coherent && COHERENT.fetch_or(bit, Relaxed) & bit == 0 {
        call.record(Action::DeviceDescribed { device, coherent });
    }
    ASKED.fetch_or(bit, Release);
}

fn attribute_of(device: DeviceId, attribute: u32) -> Option<i32> {
    type GetDevice = unsafe extern "C-unwind" fn(*mut i32, i32) -> u32;
    type GetAttribute = unsafe extern "C-unwind" fn(*mut i32, u32, i32) -> u32;
    let ordinal = i32::from(device.0);
    let mut value = 0;
    if driver::visible() {
        let handle = driver::unhooked(c"cuDeviceGet")?;
        let get = driver::unhooked(c"cuDeviceGetAttribute")?;
        let mut device = 0;
        // SAFETY: types from cuda.h; each writes one value and changes nothing.
        let status = unsafe {
            match core::mem::transmute::<*const (), GetDevice>(handle)(&mut device, ordinal) {
                0 => core::mem::transmute::<*const (), GetAttribute>(get)(
                    &mut value, attribute, device,
                ),
                failed => failed,
            }
        };
        return (status == 0).then_some(value);
    }
    let get = provider::unhooked(c"cudaDeviceGetAttribute")?;
    // SAFETY: the type is cuda_runtime_api.h's; it writes one value.
    let status = runtime::ask(|| unsafe {
        core::mem::transmute::<*const (), GetAttribute>(get)(&mut value, attribute, ordinal)
    });
    matches!(status, Ok(0)).then_some(value)
}
