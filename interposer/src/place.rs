//! The device and context that are current at a call.

use std::sync::{Mutex, PoisonError};

use streamcheck_model::{ContextId, DeviceId};

use crate::thread::{self, Place};
use crate::{driver, provider};

/// Contexts that the application created itself, in order. Every other context
/// is some device's primary one.
static CREATED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Every context that was current at a call, and where that is.
static KNOWN: Mutex<Vec<(u64, Place)>> = Mutex::new(Vec::new());

/// Where a context is, if it was ever current at a call.
pub(crate) fn of(context: u64) -> Option<Place> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .iter()
        .find(|(known, _)| *known == context)
        .map(|(_, place)| *place)
}

/// A device's primary context.
pub(crate) fn primary(device: i32) -> Option<Place> {
    let device = u16::try_from(device).ok()?;
    Some(Place {
        known: true,
        device,
        context: u32::from(device),
    })
}

/// Runs `f` as if `place` were current.
pub(crate) fn at(place: Place, f: impl FnOnce()) {
    let block = thread::block();
    let here = block.place();
    block.set_place(place);
    f();
    block.set_place(here);
}

/// Notes a context made by `cuCtxCreate`.
pub(crate) fn created(context: u64) {
    let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
    if !created.contains(&context) {
        created.push(context);
    }
}

/// Notes that a context's handle stands for it no longer. Its number is not given out
/// again.
pub(crate) fn destroyed(context: u64) {
    let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
    for known in created.iter_mut().filter(|known| **known == context) {
        *known = 0;
    }
    drop(created);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(known, _)| *known != context);
}

/// What was learned last on this thread.
pub(crate) fn current() -> (DeviceId, ContextId) {
    let place = thread::block().place();
    (DeviceId(place.device), ContextId(place.context))
}

/// Asks CUDA, if nothing is known on this thread since the last change.
#[inline]
pub(crate) fn learn() {
    if !thread::block().place().known {
        ask();
    }
}

#[cold]
fn ask() {
    if let Some(place) = ask_driver().or_else(ask_runtime) {
        thread::block().set_place(place);
    }
}

fn ask_driver() -> Option<Place> {
    let current = driver::unhooked(c"cuCtxGetCurrent")?;
    let device = driver::unhooked(c"cuCtxGetDevice")?;
    // SAFETY: types from cuda.h, enums as integers.
    let (current, device) = unsafe {
        (
            core::mem::transmute::<*const (), unsafe extern "C-unwind" fn(*mut u64) -> u32>(
                current,
            ),
            core::mem::transmute::<*const (), unsafe extern "C-unwind" fn(*mut i32) -> u32>(device),
        )
    };
    let (mut context, mut ordinal) = (0, 0);
    // SAFETY: both write one value and change nothing.
    let status = unsafe {
        match current(&mut context) {
            0 if context != 0 => device(&mut ordinal),
            other => other.max(1),
        }
    };
    if status != 0 {
        return None;
    }
    let device = u16::try_from(ordinal).ok()?;
    let created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
    let number = match created.iter().position(|&known| known == context) {
        Some(place) => 0x1_0000 + place as u32,
        None => u32::from(device),
    };
    let place = Place {
        known: true,
        device,
        context: number,
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(known, _)| *known != context);
    known.push((context, place));
    Some(place)
}

fn ask_runtime() -> Option<Place> {
    let function = provider::unhooked(c"cudaGetDevice")?;
    // SAFETY: type from cuda_runtime_api.h.
    let function = unsafe {
        core::mem::transmute::<*const (), unsafe extern "C-unwind" fn(*mut i32) -> u32>(function)
    };
    let mut ordinal = 0;
    // SAFETY: writes one value; a success leaves the last error alone.
    let status = unsafe { function(&mut ordinal) };
    let device = u16::try_from(ordinal).ok()?;
    (status == 0).then_some(Place {
        known: true,
        device,
        context: u32::from(device),
    })
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 2] {
    [crate::life::hold(&CREATED), crate::life::hold(&KNOWN)]
}
