//! The real driver functions, and the exchange of their pointers for hooks.
//!
//! `cuGetProcAddress` picks a function by name, version and stream flavour. What it
//! returns is always one of libcuda's exports, so the choice is read off the
//! pointer: the address of every hooked export, twins included, leads to its hook.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use streamcheck_model::HostMemory;

use crate::hook::{Door, Hook};
use crate::lookup::{open_loaded, real_dlsym};
use crate::objects;
use crate::thread::{Inside, keeping_errno};
use crate::{call, doors};

/// What was found in libcuda, once it was met.
struct Driver {
    handle: *mut c_void,
    by_address: FxHashMap<u64, Vec<&'static Hook>>,
}

// SAFETY: the handle is the loader's and usable from any thread.
unsafe impl Sync for Driver {}

/// The driver; set once and never dropped.
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(core::ptr::null_mut());
static LEARNING: Mutex<()> = Mutex::new(());
/// What [`unhooked`] found, by the address of the name: names are few and static.
static KNOWN: Mutex<Option<FxHashMap<usize, usize>>> = Mutex::new(None);

fn driver() -> Option<&'static Driver> {
    let pointer = DRIVER.load(Acquire);
    // SAFETY: only `learn` stores here, a leaked box.
    unsafe { pointer.as_ref() }
}

/// Whether a driver was seen in this process.
pub(crate) fn visible() -> bool {
    driver().is_some()
}

/// Takes in the library in which a driver function was `found`, the first time.
pub(crate) fn learn(found: *mut c_void) {
    if visible() {
        return;
    }
    let _inside = Inside::nest();
    // Opened once more, so that it stays when the application closes it.
    if let Some(object) = objects::containing(found as u64)
        && let Some(handle) = open_loaded(&object.path)
    {
        take_in(handle);
    }
}

/// Takes in the driver if it is loaded, under the name that every program loads it by.
pub(crate) fn meet() {
    if !visible() {
        let _inside = Inside::nest();
        if let Some(handle) = open_loaded("libcuda.so.1") {
            take_in(handle);
        }
    }
}

/// Finds the functions behind `handle`, which is never closed.
fn take_in(handle: *mut c_void) {
    let mut by_address: FxHashMap<u64, Vec<&'static Hook>> = FxHashMap::default();
    for hook in doors::all().filter(|hook| hook.door == Door::Driver) {
        let found = real_dlsym(handle, hook.name);
        if !found.is_null() && found != hook.address() {
            hook.reals[0].store(found.cast(), Release);
            by_address.entry(found as u64).or_default().push(hook);
        }
    }
    if by_address.is_empty() {
        return;
    }
    let _learning = LEARNING.lock();
    if !visible() {
        if tracing::enabled!(tracing::Level::INFO) {
            let object = by_address
                .keys()
                .next()
                .copied()
                .and_then(objects::containing);
            tracing::info!(
                "the driver is {}, {} of whose functions are watched",
                object.map_or_else(String::new, |object| object.path),
                by_address.len()
            );
        }
        let driver = Box::leak(Box::new(Driver { handle, by_address }));
        DRIVER.store(driver, Release);
    }
}

/// The real function behind a driver hook.
#[inline]
pub(crate) fn function(hook: &'static Hook) -> Option<*const ()> {
    let known = hook.reals[0].load(Acquire);
    if known.is_null() {
        return find(hook);
    }
    Some(known)
}

#[cold]
fn find(hook: &'static Hook) -> Option<*const ()> {
    let _inside = Inside::nest();
    keeping_errno(|| {
        call::guarded(|| {
            if !visible() {
                take_in(open_loaded("libcuda.so.1").unwrap_or(libc::RTLD_NEXT));
            }
        });
        let known = hook.reals[0].load(Relaxed);
        (!known.is_null()).then_some(known.cast_const())
    })
}

/// The hook for a driver function's pointer, or the pointer itself.
/// `flavour` tells twins with the same address apart, where it is known.
pub(crate) fn swap(pointer: *mut c_void, flavour: Option<bool>) -> *mut c_void {
    let Some(driver) = driver() else {
        return pointer;
    };
    let Some(hooks) = driver.by_address.get(&(pointer as u64)) else {
        return pointer;
    };
    let fitting = hooks
        .iter()
        .find(|hook| flavour.is_none_or(|per_thread| hook.per_thread == per_thread));
    let hook = fitting.unwrap_or(&hooks[0]);
    tracing::debug!("{} was looked up and is watched", hook.api());
    hook.address()
}

/// A driver function that we ask questions with.
pub(crate) fn unhooked(name: &'static CStr) -> Option<*const ()> {
    let driver = driver()?;
    let place = name.as_ptr() as usize;
    let known = KNOWN
        .lock()
        .ok()?
        .get_or_insert_default()
        .get(&place)
        .copied();
    let address = known.unwrap_or_else(|| {
        // Outside of the lock: the loader's own lock may be held by a thread that
        // waits for ours in a constructor.
        let found = real_dlsym(driver.handle, name) as usize;
        if let Ok(mut known) = KNOWN.lock() {
            known.get_or_insert_default().insert(place, found);
        }
        found
    });
    (address != 0).then_some(address as *const ())
}

/// What the driver knows of a host address that the application just copied from
/// or to.
pub(crate) fn host_memory(address: u64) -> HostMemory {
    const MEMORY_TYPE: u32 = 2;
    const HOST: u32 = 1;
    type GetAttribute = unsafe extern "C-unwind" fn(*mut u32, u32, u64) -> u32;
    let Some(get) = unhooked(c"cuPointerGetAttribute") else {
        return HostMemory::Unasked;
    };
    let mut kind = 0;
    // SAFETY: the type is cuda.h's; the call changes nothing.
    let status = unsafe {
        core::mem::transmute::<*const (), GetAttribute>(get)(&mut kind, MEMORY_TYPE, address)
    };
    match (status, kind) {
        (0, HOST) => HostMemory::Pinned,
        (0, _) => HostMemory::Unasked,
        _ => HostMemory::Pageable,
    }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 2] {
    [crate::life::hold(&LEARNING), crate::life::hold(&KNOWN)]
}
