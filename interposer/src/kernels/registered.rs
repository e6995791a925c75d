//! What nvcc's start-up code registers, and whether it is still there.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::{images, objects};

/// A kernel that nvcc's start-up code registered.
#[derive(Clone, Copy)]
pub(super) struct Registration {
    /// The fat binary's handle.
    image: u64,
    /// The address of the wrapper that points to it, or 0.
    pub(super) wrapper: u64,
    /// The address of a text in the registering module, read when its kernel is
    /// launched, as there may be tens of thousands.
    pub(super) name: u64,
    /// Whether the fat binary was unregistered, or another under the same handle.
    over: bool,
}

/// What nvcc's start-up code registered.
#[derive(Default)]
struct Registered {
    /// By host function.
    kernels: FxHashMap<u64, Registration>,
    /// The newest wrapper that each handle was given for: its kernels are registered
    /// right after it.
    wrappers: FxHashMap<u64, u64>,
    /// Kernel handles and the host functions that they were made from.
    handles: FxHashMap<u64, u64>,
}

static REGISTERED: Mutex<Option<Registered>> = Mutex::new(None);

fn with_registered<R>(f: impl FnOnce(&mut Registered) -> R) -> R {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    f(registered.get_or_insert_default())
}

/// Notes `__cudaRegisterFatBinary`.
pub(crate) fn fat_binary(image: u64, wrapper: u64) {
    with_registered(|registered| registered.wrappers.insert(image, wrapper));
}

/// Notes `__cudaRegisterFunction`.
pub(crate) fn registered(image: u64, host_function: u64, name: u64) {
    with_registered(|registered| {
        let registration = Registration {
            image,
            wrapper: registered.wrappers.get(&image).copied().unwrap_or(0),
            name,
            over: false,
        };
        registered.kernels.insert(host_function, registration);
    });
}

/// Notes `__cudaUnregisterFatBinary`. The entries stay, as a cudart may give every
/// module the same handle.
pub(crate) fn unregistered(image: u64) {
    let wrappers = with_registered(|registered| {
        let mut wrappers = Vec::from_iter(registered.wrappers.remove(&image));
        for registration in registered.kernels.values_mut() {
            if registration.image == image {
                registration.over = true;
                wrappers.push(registration.wrapper);
            }
        }
        wrappers.sort_unstable();
        wrappers.dedup();
        wrappers
    });
    images::unregistering(&wrappers);
}

/// Whether what the recorder remembers under `key` is known to be a kernel whose module is
/// still loaded.
pub(crate) fn is_loaded(key: u64) -> bool {
    let registered = with_registered(|known| {
        let host_function = known.handles.get(&key).unwrap_or(&key);
        let registration = known.kernels.get(host_function);
        registration.is_some_and(|registration| !registration.over)
    });
    registered || images::is_loaded(key)
}

/// Notes `__cudaGetKernel`.
pub(crate) fn handle_made(handle: u64, host_function: u64) {
    with_registered(|registered| registered.handles.insert(handle, host_function));
}

/// The registration of the kernel that was just launched as `host_function`, if what
/// it points to is still there.
pub(super) fn registration(host_function: u64) -> Option<Registration> {
    let registration = with_registered(|known| known.kernels.get(&host_function).copied())?;
    if registration.over {
        let object = objects::containing(host_function)?;
        if !object.holds(registration.name) {
            return None;
        }
        // Another fat binary may be at the wrapper's address.
        return Some(Registration {
            wrapper: 0,
            ..registration
        });
    }
    Some(registration)
}

/// The host function that a kernel's handle was made from; the handle itself where it is one.
pub(super) fn host_function(handle: u64) -> u64 {
    with_registered(|known| known.handles.get(&handle).copied()).unwrap_or(handle)
}

/// The locks of this file, for a process that forks.
pub(super) fn before_fork() -> crate::life::Held {
    crate::life::hold(&REGISTERED)
}
