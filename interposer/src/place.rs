//! The device and context that are current at a call, and where other contexts are.

use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use streamcheck_model::{ContextId, DeviceId};

use crate::thread::{self, Place};
use crate::{driver, provider};

/// The first numbers of contexts that the application created, and of green ones
/// (see [`ContextId`]).
const CREATED: u32 = 0x1_0000;
const GREEN: u32 = 0x8000_0000;

/// What is known of contexts.
struct Known {
    /// Where each handle's context is: a `CUcontext`, a `CUgreenCtx` or a
    /// `cudaExecutionContext_t`.
    places: Vec<(u64, Place)>,
    /// How many were numbered. No number is given out again.
    created: u32,
    green: u32,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    places: Vec::new(),
    created: 0,
    green: 0,
});

/// How often the places of handles have changed.
static CHANGES: AtomicU32 = AtomicU32::new(1);

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    fn of(&self, handle: u64) -> Option<Place> {
        let mut places = self.places.iter();
        places
            .find(|(known, _)| *known == handle)
            .map(|(_, place)| *place)
    }

    /// What the handle stood for before is gone.
    fn set(&mut self, handle: u64, place: Place) {
        CHANGES.fetch_add(1, Relaxed);
        self.places.retain(|(known, _)| *known != handle);
        self.places.push((handle, place));
    }
}

/// Where a context is, if it was met.
pub(crate) fn of(handle: u64) -> Option<Place> {
    known().of(handle)
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

/// Every device that a known context is on.
pub(crate) fn devices() -> Vec<u16> {
    known()
        .places
        .iter()
        .map(|(_, place)| place.device)
        .collect()
}

/// Runs `f` as if `place` were current.
pub(crate) fn at(place: Place, f: impl FnOnce()) {
    let block = thread::block();
    let here = block.place();
    block.set_place(place);
    f();
    block.set_place(here);
}

/// Notes a context that the application created on a device.
pub(crate) fn created(handle: u64, device: i32) -> Option<Place> {
    let mut place = primary(device)?;
    let mut known = known();
    place.context = CREATED + known.created;
    known.created += 1;
    known.set(handle, place);
    Some(place)
}

/// Whether the application created the context; no other one gets its number.
pub(crate) fn is_created(place: Place) -> bool {
    place.context >= CREATED
}

/// Notes a green context that the application created on a device.
pub(crate) fn created_green(handle: u64, device: i32) {
    if let Some(mut place) = primary(device) {
        let mut known = known();
        place.context = GREEN + known.green;
        known.green += 1;
        known.set(handle, place);
    }
}

/// Notes that a handle stands for the context at `place`.
pub(crate) fn named(handle: u64, place: Place) {
    if handle != 0 {
        known().set(handle, place);
    }
}

/// Notes that a context's handles stand for it no longer.
pub(crate) fn destroyed(handle: u64) {
    let mut known = known();
    CHANGES.fetch_add(1, Relaxed);
    if let Some(gone) = known.of(handle) {
        let shared = ContextId(gone.context).is_primary();
        known
            .places
            .retain(|(other, place)| *other != handle && (shared || place.context != gone.context));
    }
}

/// Notes that a context has ended, whose handle may come to stand for another.
pub(crate) fn ended() {
    CHANGES.fetch_add(1, Relaxed);
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

/// The context that a thread had last, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Met {
    handle: u64,
    place: Place,
    /// [`CHANGES`] at that time.
    changes: u32,
}

type GetCurrent = unsafe extern "C-unwind" fn(*mut u64) -> u32;
type GetDevice = unsafe extern "C-unwind" fn(*mut i32) -> u32;

fn ask_driver() -> Option<Place> {
    static CURRENT: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
    let known_current = CURRENT.load(Acquire).cast_const();
    let current = if known_current.is_null() {
        let found = driver::unhooked(c"cuCtxGetCurrent")?;
        CURRENT.store(found.cast_mut(), Release);
        found
    } else {
        known_current
    };
    // SAFETY: the type is cuda.h's.
    let current = unsafe { core::mem::transmute::<*const (), GetCurrent>(current) };
    let mut context = 0;
    // SAFETY: it writes one value and changes nothing.
    if unsafe { current(&mut context) } != 0 || context == 0 {
        return None;
    }
    let changes = CHANGES.load(Relaxed);
    let met = thread::block().met();
    if met.handle == context && met.changes == changes {
        return Some(met.place);
    }
    let place = ask_device(context)?;
    thread::block().set_met(Met {
        handle: context,
        place,
        // If it has changed meanwhile, it is asked for again.
        changes: if CHANGES.load(Relaxed) == changes {
            changes
        } else {
            0
        },
    });
    Some(place)
}

/// Where the current context is.
fn ask_device(context: u64) -> Option<Place> {
    let device = driver::unhooked(c"cuCtxGetDevice")?;
    // SAFETY: the type is cuda.h's, enums as integers.
    let device = unsafe { core::mem::transmute::<*const (), GetDevice>(device) };
    let mut ordinal = 0;
    // SAFETY: it writes one value and changes nothing.
    if unsafe { device(&mut ordinal) } != 0 {
        return None;
    }
    let primary = primary(ordinal)?;
    let mut known = known();
    // Every context that was not seen to be created is taken for a primary one.
    match known.of(context) {
        Some(place) if place.context >= CREATED || place.device == primary.device => Some(place),
        _ => {
            known.set(context, primary);
            Some(primary)
        }
    }
}

fn ask_runtime() -> Option<Place> {
    static KNOWN: [AtomicPtr<()>; provider::PROVIDERS] =
        [const { AtomicPtr::new(core::ptr::null_mut()) }; provider::PROVIDERS];
    let place = &KNOWN[thread::block().caller().provider as usize];
    let known = place.load(Acquire).cast_const();
    let function = if known.is_null() {
        let found = provider::unhooked(c"cudaGetDevice")?;
        place.store(found.cast_mut(), Release);
        found
    } else {
        known
    };
    // SAFETY: the type is cuda_runtime_api.h's.
    let function = unsafe { core::mem::transmute::<*const (), GetDevice>(function) };
    let mut ordinal = 0;
    // SAFETY: writes one value; a success leaves the last error alone.
    let status = unsafe { function(&mut ordinal) };
    if status == 0 { primary(ordinal) } else { None }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&KNOWN)]
}
