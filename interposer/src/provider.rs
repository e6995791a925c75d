//! The real runtime functions.
//!
//! A process may hold more than one cudart: the program's, and others that
//! Python modules bring along with `RTLD_LOCAL`. Each caller's calls go to the one
//! that the caller links to or looked its functions up in; these are the
//! *providers*, numbered in the order in which they are met.

use core::ffi::c_void;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

use crate::call;
use crate::hook::Hook;
use crate::lookup::{open_loaded, real_dlsym};
use crate::objects::{self, Object};
use crate::thread::{self, CallerRange, Inside, keeping_errno};

/// How many providers' functions a hook remembers.
pub(crate) const PROVIDERS: usize = 4;

struct Provider {
    base: u64,
    handle: *mut c_void,
}

struct Registry {
    providers: Vec<Provider>,
    callers: Vec<CallerRange>,
}

// SAFETY: the handles are the loader's, usable from any thread.
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    providers: Vec::new(),
    callers: Vec::new(),
});

fn registry() -> std::sync::MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The real function for a call from `return_address`.
#[inline]
pub(crate) fn runtime_function(hook: &'static Hook, return_address: u64) -> Option<*const ()> {
    let caller = thread::block().caller();
    let caller = if (caller.start..caller.end).contains(&return_address) {
        caller
    } else {
        match find_caller(hook, return_address) {
            Ok(caller) => {
                thread::block().set_caller(caller);
                caller
            }
            // Nothing to remember: cudart may be loaded later.
            Err(unnumbered) => return unnumbered,
        }
    };
    let known = hook.reals[caller.provider as usize].load(Acquire);
    if known.is_null() {
        return resolve(hook, caller.provider);
    }
    Some(known)
}

/// Runs what is rare on the way to a real function: nothing of it reaches the
/// application, and should it fail, the loader's own order decides.
fn sheltered<R>(f: impl FnOnce() -> R, otherwise: impl FnOnce() -> R) -> R {
    let _inside = Inside::nest();
    keeping_errno(|| call::guarded(f).unwrap_or_else(otherwise))
}

fn next(hook: &Hook) -> Option<*const ()> {
    let found = real_dlsym(libc::RTLD_NEXT, hook.name);
    (!found.is_null()).then_some(found.cast_const().cast())
}

#[cold]
fn resolve(hook: &'static Hook, provider: u32) -> Option<*const ()> {
    let ask = || {
        let handle = registry().providers.get(provider as usize)?.handle;
        let found = real_dlsym(handle, hook.name);
        if found.is_null() {
            return next(hook);
        }
        let found = in_front(hook, found).cast_const().cast::<()>();
        hook.reals[provider as usize].store(found.cast_mut(), Release);
        Some(found)
    };
    sheltered(ask, || next(hook))
}

/// The function of another library that stands in front of cudart, as this one does, and would
/// have been called without us; else the `found` one.
fn in_front(hook: &Hook, found: *mut c_void) -> *mut c_void {
    let next = real_dlsym(libc::RTLD_NEXT, hook.name);
    if next.is_null() || next == found {
        return found;
    }
    // The main program's, or another cudart's, is for those who ask for it.
    let stands = |object: &Object| !object.path.is_empty() && !is_cudart(object.file_name());
    match objects::containing(next as u64).filter(stands) {
        Some(_) => next,
        None => found,
    }
}

/// Where the caller's calls go. `Err` with the function itself, if there is one,
/// where no number is left for its provider or nothing is known of it.
#[cold]
fn find_caller(hook: &'static Hook, return_address: u64) -> Result<CallerRange, Option<*const ()>> {
    sheltered(|| look_for(hook, return_address), || Err(next(hook)))
}

fn look_for(hook: &'static Hook, return_address: u64) -> Result<CallerRange, Option<*const ()>> {
    let known = registry()
        .callers
        .iter()
        .find(|range| (range.start..range.end).contains(&return_address))
        .copied();
    if let Some(known) = known {
        return Ok(known);
    }
    let objects = objects::list();
    let caller = objects.iter().find(|object| object.holds(return_address));
    let (base, handle) = linked_cudart(caller, &objects)
        .or_else(|| next_cudart(hook, &objects))
        .or_else(|| any_cudart(&objects))
        .or_else(known_provider)
        .ok_or(None)?;
    let Some(provider) = number_of(base, || Some(handle)) else {
        let found = real_dlsym(handle, hook.name);
        return Err((!found.is_null()).then_some(found.cast_const().cast()));
    };
    // Code outside every object (a JIT's) is not remembered as a range.
    let (start, end) = caller.map_or((0, 0), |object| (object.start, object.end));
    let range = CallerRange {
        start,
        end,
        provider,
    };
    if caller.is_some() {
        registry().callers.push(range);
    }
    Ok(range)
}

/// The number of the provider at `base`, which `open` gives a handle of our own to
/// where it is new. `None` once all numbers are given.
fn number_of(base: u64, open: impl FnOnce() -> Option<*mut c_void>) -> Option<u32> {
    let place = |registry: &Registry| {
        registry
            .providers
            .iter()
            .position(|provider| provider.base == base)
    };
    let (known, count) = {
        let registry = registry();
        (place(&registry), registry.providers.len())
    };
    if let Some(known) = known {
        return Some(known as u32);
    }
    if count >= PROVIDERS {
        return None;
    }
    // Outside of the lock, as the loader's own may be held by a thread that waits
    // for ours in a constructor.
    let handle = open()?;
    let mut registry = registry();
    if let Some(known) = place(&registry) {
        return Some(known as u32);
    }
    if registry.providers.len() >= PROVIDERS {
        return None;
    }
    registry.providers.push(Provider { base, handle });
    let number = registry.providers.len() as u32 - 1;
    drop(registry);
    if tracing::enabled!(tracing::Level::INFO) {
        let object = objects::list()
            .into_iter()
            .find(|object| object.base == base);
        tracing::info!(
            "cudart number {} is {}",
            number + 1,
            object.map_or_else(String::new, |object| object.path)
        );
    }
    Some(number)
}

fn is_cudart(file_name: &str) -> bool {
    file_name.starts_with("libcudart")
}

/// The cudart that the caller names among its needed libraries.
fn linked_cudart(caller: Option<&Object>, objects: &[Object]) -> Option<(u64, *mut c_void)> {
    let needed = caller?.needed();
    let name = needed.iter().find(|name| is_cudart(name))?;
    let handle = open_loaded(name)?;
    Some((base_of(handle, objects)?, handle))
}

/// Where the loader finds the function after this library in the global scope.
fn next_cudart(hook: &Hook, objects: &[Object]) -> Option<(u64, *mut c_void)> {
    let found = real_dlsym(libc::RTLD_NEXT, hook.name);
    if found.is_null() {
        return None;
    }
    let object = objects.iter().find(|object| object.holds(found as u64))?;
    // The main program has no path of its own to open.
    let handle = if object.path.is_empty() {
        libc::RTLD_NEXT
    } else {
        open_loaded(&object.path)?
    };
    Some((object.base, handle))
}

fn any_cudart(objects: &[Object]) -> Option<(u64, *mut c_void)> {
    let object = objects
        .iter()
        .find(|object| is_cudart(object.file_name()))?;
    Some((object.base, open_loaded(&object.path)?))
}

/// For callers that got their pointers from someone else's look-up.
fn known_provider() -> Option<(u64, *mut c_void)> {
    let registry = registry();
    let provider = registry.providers.first()?;
    Some((provider.base, provider.handle))
}

fn base_of(handle: *mut c_void, objects: &[Object]) -> Option<u64> {
    // Any function that every cudart has tells where the handle's object lies.
    let function = real_dlsym(handle, c"cudaGetDevice");
    let function = if function.is_null() {
        real_dlsym(handle, c"cudaMalloc")
    } else {
        function
    };
    objects
        .iter()
        .find(|object| object.holds(function as u64))
        .map(|object| object.base)
}

/// Notes that the caller at `return_address` looked `hook`'s function up and found
/// `found`. False if its calls through the hook would go elsewhere.
pub(crate) fn learn(hook: &'static Hook, found: *mut c_void, return_address: u64) -> bool {
    let objects = objects::list();
    let Some(object) = objects.iter().find(|object| object.holds(found as u64)) else {
        return false;
    };
    let caller = objects.iter().find(|object| object.holds(return_address));
    let known = registry()
        .callers
        .iter()
        .find(|range| (range.start..range.end).contains(&return_address))
        .map(|range| range.provider);
    // What it links to is called through the same hooks.
    let linked = if known.is_none() {
        linked_cudart(caller, &objects)
    } else {
        None
    };
    if linked.is_some_and(|(base, _)| base != object.base) {
        return false;
    }
    // Opened once more, so that it stays when the application closes it.
    let open = || {
        if object.path.is_empty() {
            Some(libc::RTLD_NEXT)
        } else {
            open_loaded(&object.path)
        }
    };
    let Some(provider) = number_of(object.base, open) else {
        return false;
    };
    if known.is_some_and(|known| known != provider) {
        return false;
    }
    hook.reals[provider as usize].store(found.cast(), Release);
    if known.is_none()
        && let Some(caller) = caller
    {
        registry().callers.push(CallerRange {
            start: caller.start,
            end: caller.end,
            provider,
        });
    }
    true
}

/// A runtime function that is not hooked, for our own questions, from the
/// provider that the current thread called last.
pub(crate) fn unhooked(name: &core::ffi::CStr) -> Option<*const ()> {
    let provider = thread::block().caller().provider;
    let handle = registry().providers.get(provider as usize)?.handle;
    let found = real_dlsym(handle, name);
    (!found.is_null()).then_some(found.cast_const().cast())
}

/// The version of the runtime that the current thread called last, as in 13000.
pub(crate) fn runtime_version() -> Option<i32> {
    type GetVersion = unsafe extern "C-unwind" fn(*mut i32) -> u32;
    let get = unhooked(c"cudaRuntimeGetVersion")?;
    let mut version = 0;
    // SAFETY: the type is cuda_runtime_api.h's; it writes one value and cannot fail.
    unsafe { core::mem::transmute::<*const (), GetVersion>(get)(&mut version) };
    (version > 0).then_some(version)
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&REGISTRY)]
}
