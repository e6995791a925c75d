//! The real runtime functions.
//!
//! A process may hold more than one cudart: the program's, and others that
//! Python modules bring along with `RTLD_LOCAL`. Each caller's calls go to the one
//! that the caller links to or looked its functions up in; these are the
//! *providers*, numbered in the order in which they are met.

use core::ffi::c_void;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

use crate::hook::Hook;
use crate::lookup::{open_loaded, real_dlsym};
use crate::objects::{self, Object};
use crate::thread::{self, CallerRange, Inside};

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
            Some(caller) => {
                thread::block().set_caller(caller);
                caller
            }
            // Nothing to remember: cudart may be loaded later.
            None => return None,
        }
    };
    let place = hook.reals.get(caller.provider as usize)?;
    let known = place.load(Acquire);
    if known.is_null() {
        return resolve(hook, caller.provider);
    }
    Some(known)
}

#[cold]
fn resolve(hook: &'static Hook, provider: u32) -> Option<*const ()> {
    let _inside = Inside::nest();
    let handle = registry().providers.get(provider as usize)?.handle;
    let found = real_dlsym(handle, hook.name).cast_const().cast::<()>();
    if found.is_null() {
        return None;
    }
    hook.reals[provider as usize].store(found.cast_mut(), Release);
    Some(found)
}

#[cold]
fn find_caller(hook: &'static Hook, return_address: u64) -> Option<CallerRange> {
    let _inside = Inside::nest();
    let known = registry()
        .callers
        .iter()
        .find(|range| (range.start..range.end).contains(&return_address))
        .copied();
    if known.is_some() {
        return known;
    }
    let objects = objects::list();
    let caller = objects.iter().find(|object| object.holds(return_address));
    let (base, handle) = linked_cudart(caller, &objects)
        .or_else(|| next_cudart(hook, &objects))
        .or_else(|| any_cudart(&objects))
        .or_else(known_provider)?;
    let mut registry = registry();
    let provider = number_of(&mut registry, base, handle)?;
    // Code outside every object (a JIT's) is not remembered as a range.
    let (start, end) = caller.map_or((0, 0), |object| (object.start, object.end));
    let range = CallerRange {
        start,
        end,
        provider,
    };
    if caller.is_some() {
        registry.callers.push(range);
    }
    Some(range)
}

fn number_of(registry: &mut Registry, base: u64, handle: *mut c_void) -> Option<u32> {
    let known = registry
        .providers
        .iter()
        .position(|provider| provider.base == base);
    let number = known.unwrap_or_else(|| {
        tracing::info!(
            "cudart number {} is at {base:#x}",
            registry.providers.len() + 1
        );
        registry.providers.push(Provider { base, handle });
        registry.providers.len() - 1
    });
    (number < PROVIDERS).then_some(number as u32)
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

/// Notes that the caller at `return_address` looked `hook`'s function up with
/// `handle` and found `found`.
pub(crate) fn learn(
    hook: &'static Hook,
    handle: *mut c_void,
    found: *mut c_void,
    return_address: u64,
) {
    let objects = objects::list();
    let Some(object) = objects.iter().find(|object| object.holds(found as u64)) else {
        return;
    };
    let mut registry = registry();
    let Some(provider) = number_of(&mut registry, object.base, handle) else {
        return;
    };
    hook.reals[provider as usize].store(found.cast(), Release);
    let caller = objects.iter().find(|object| object.holds(return_address));
    if let Some(caller) = caller
        && !registry
            .callers
            .iter()
            .any(|range| (range.start..range.end).contains(&return_address))
    {
        registry.callers.push(CallerRange {
            start: caller.start,
            end: caller.end,
            provider,
        });
    }
}

/// A runtime function that is not hooked, for our own questions, from the
/// provider that the current thread called last.
pub(crate) fn unhooked(name: &core::ffi::CStr) -> Option<*const ()> {
    let provider = thread::block().caller().provider;
    let handle = registry().providers.get(provider as usize)?.handle;
    let found = real_dlsym(handle, name);
    (!found.is_null()).then_some(found.cast_const().cast())
}
