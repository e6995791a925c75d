//! A hooked function, declared once.
//!
//! [`hooks!`] takes a function's names (itself and its `_v2`, `_ptsz`, `_ptds`
//! twins), its parameters, and what a call means. From each name come an exported
//! entry stub, a body, and a [`Hook`] in the file's `HOOKS`; the `dlsym` table and the
//! table by which driver pointers are exchanged are made of those. The line of
//! documentation above a function says what it does to the model; `docs/coverage.md`
//! is made of these lines.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::provider::PROVIDERS;
use crate::{driver, provider};

/// What CUDA returns for a function that it does not have
/// (`cudaErrorSymbolNotFound`, `CUDA_ERROR_NOT_FOUND`).
pub(crate) const NOT_FOUND: u32 = 500;

/// Which library a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// cudart.
    Runtime,
    /// libcuda.
    Driver,
}

/// A hooked function under one of its names.
pub(crate) struct Hook {
    /// The exported name.
    pub(crate) name: &'static CStr,
    /// The library that it stands in front of.
    pub(crate) door: Door,
    /// Whether the null stream means the thread's own default stream here.
    pub(crate) per_thread: bool,
    /// The entry stub.
    pub(crate) stub: unsafe extern "C" fn(),
    /// The real function, by provider; the driver's is at 0.
    pub(crate) reals: [AtomicPtr<()>; PROVIDERS],
    /// The name's number in the engine, or 0.
    pub(crate) api: AtomicU32,
}

impl Hook {
    pub(crate) const fn new(name: &'static CStr, door: Door, stub: unsafe extern "C" fn()) -> Self {
        Self {
            name,
            door,
            per_thread: ends_with(name.to_bytes(), b"_ptsz")
                || ends_with(name.to_bytes(), b"_ptds"),
            stub,
            reals: [const { AtomicPtr::new(core::ptr::null_mut()) }; PROVIDERS],
            api: AtomicU32::new(0),
        }
    }

    /// The entry stub's address.
    pub(crate) fn address(&self) -> *mut c_void {
        self.stub as *mut c_void
    }

    /// The real function for a caller.
    #[inline]
    pub(crate) fn real(&'static self, return_address: u64) -> Option<*const ()> {
        match self.door {
            Door::Runtime => provider::runtime_function(self, return_address),
            Door::Driver => driver::function(self),
        }
    }

    /// The name as an application writes it: without twins' endings and without
    /// the underscores of a compiler's helper.
    pub(crate) fn api(&self) -> &'static str {
        let mut name = self.name.to_str().unwrap_or("");
        for ending in ["_ptsz", "_ptds", "_v2", "_v3", "_v4"] {
            name = name.strip_suffix(ending).unwrap_or(name);
        }
        name.trim_start_matches('_')
    }
}

const fn ends_with(text: &[u8], ending: &[u8]) -> bool {
    if text.len() < ending.len() {
        return false;
    }
    let mut index = 0;
    while index < ending.len() {
        if text[text.len() - ending.len() + index] != ending[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// The value behind an output parameter of a call that succeeded.
///
/// # Safety
/// `out` is null or was written to.
pub(crate) unsafe fn written<T: Copy + Default>(out: *const T) -> T {
    if out.is_null() {
        return T::default();
    }
    // SAFETY: the caller's promise.
    unsafe { *out }
}

/// Declares hooked functions. See the module's text; the forms are
///
/// * `after(call) { … }`: the block runs once the real call has succeeded, with
///   `call` a [`crate::call::Call`] and the parameters in scope.
/// * `free(call) { … }`: the block gives `Option<Free>`; the free is recorded before
///   the real call and settled after it.
/// * `whole(hook, real, origin) { … }`: the block is the body;
/// * `address(hook, real, origin) { … }`: the same for a function that gives an
///   address and no status.
macro_rules! hooks {
    ($door:ident: $( $(#[doc = $effect:literal])* fn $($name:ident)|+ : $arguments:tt $form:ident $binding:tt $code:tt )*) => {
        $( $( $crate::hook::hook!(@one $door $name $arguments $form $binding $code); )+ )*
        /// The functions of this file.
        pub(crate) static HOOKS: &[&$crate::hook::Hook] = &[ $( $( &$name::HOOK, )+ )* ];
    };
}

macro_rules! hook {
    (@one $door:ident $name:ident $arguments:tt address $binding:tt $code:tt) => {
        $crate::hook::hook!(@hooked $door $name $arguments u64, 0, whole $binding $code);
    };
    (@one $door:ident $name:ident $arguments:tt $form:ident $binding:tt $code:tt) => {
        $crate::hook::hook!(@hooked $door $name $arguments u32, $crate::hook::NOT_FOUND, $form $binding $code);
    };
    (@hooked $door:ident $name:ident ($($argument:ident: $type:ty),* $(,)?) $answer:ty, $failed:expr, $form:ident $binding:tt $code:tt) => {
        #[allow(non_snake_case, reason = "the module bears CUDA's name")]
        mod $name {
            #[allow(unused_imports, reason = "not every body needs all of them")]
            use super::*;

            pub(super) static HOOK: $crate::hook::Hook = $crate::hook::Hook::new(
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                $crate::hook::Door::$door,
                $name,
            );

            type Real = unsafe extern "C-unwind" fn($($type),*) -> $answer;

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                $crate::thread::stub_asm!(body)
            }

            unsafe extern "C-unwind" fn body($($argument: $type),*) -> $answer {
                let origin = $crate::thread::block().origin();
                let Some(real) = HOOK.real(origin.return_address) else {
                    return $failed;
                };
                // SAFETY: the loader found this function under this hook's name, whose
                // type NVIDIA's headers give.
                let real = unsafe { core::mem::transmute::<*const (), Real>(real) };
                $crate::hook::hook!(@$form $binding $code real origin ($($argument),*))
            }
        }
    };
    (@after ($call:ident) $code:block $real:ident $origin:ident ($($argument:ident),*)) => {{
        let Some($call) = $crate::call::Call::enter(&HOOK, $origin) else {
            // SAFETY: the application's own call, passed on.
            return unsafe { $real($($argument),*) };
        };
        let before = $crate::thread::block().enter_real();
        // SAFETY: the application's own call, passed on.
        let status = unsafe { $real($($argument),*) };
        $crate::thread::block().leave_real(before);
        if status == 0 {
            $call.finish(|$call| $code);
        }
        status
    }};
    (@free ($call:ident) $code:block $real:ident $origin:ident ($($argument:ident),*)) => {{
        let Some($call) = $crate::call::Call::enter(&HOOK, $origin) else {
            // SAFETY: the application's own call, passed on.
            return unsafe { $real($($argument),*) };
        };
        let begun = $call.begin_free(|$call| $code);
        let before = $crate::thread::block().enter_real();
        // SAFETY: the application's own call, passed on.
        let status = unsafe { $real($($argument),*) };
        $crate::thread::block().leave_real(before);
        if begun {
            $call.end_free(status);
        }
        status
    }};
    (@whole ($hook:ident, $realname:ident, $originname:ident) $code:block $real:ident $origin:ident ($($argument:ident),*)) => {{
        let $hook: &'static $crate::hook::Hook = &HOOK;
        let $realname = |$($argument),*| {
            let before = $crate::thread::block().enter_real();
            // SAFETY: the application's own call, passed on.
            let status = unsafe { $real($($argument),*) };
            $crate::thread::block().leave_real(before);
            status
        };
        let $originname = $origin;
        let _ = (&$hook, &$originname);
        $code
    }};
}

pub(crate) use {hook, hooks};
