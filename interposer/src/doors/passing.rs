//! Functions of the C library that the library stands in front of only where something is
//! watched: elsewhere each call of them is one jump.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crate::lookup;

/// A function of the C library's.
pub(super) struct Passing {
    pub(super) name: &'static CStr,
    /// Where its calls go.
    pub(super) target: &'static AtomicPtr<()>,
    /// The next function of this name in the loader's order, or 0.
    pub(super) real: &'static AtomicUsize,
    /// Where its calls go while something is watched.
    pub(super) watched: unsafe extern "C" fn(),
}

impl Passing {
    /// The next function of this name in the loader's order.
    pub(super) fn find(&self) -> usize {
        let known = self.real.load(Relaxed);
        if known != 0 {
            return known;
        }
        let found = lookup::real_dlsym(libc::RTLD_NEXT, self.name) as usize;
        self.real.store(found, Relaxed);
        found
    }

    /// From now on its calls go there at once.
    pub(super) fn pass(&self) {
        let found = self.find();
        if found != 0 && self.target.load(Relaxed) == self.watched as *mut () {
            self.target.store(found as *mut (), Relaxed);
        }
    }

    pub(super) fn watch(&self) {
        self.target.store(self.watched as *mut (), Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! passing_asm {
    (@jump $target:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "jmp qword ptr [rip + {target}]",
            target = sym $target,
        )
    };
    (@watched $slow:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov r11, qword ptr [rip + streamcheck_thread@GOTTPOFF]",
            "cmp dword ptr fs:[r11], 0",
            "jne 3f",
            "mov rax, qword ptr [rsp]",
            "mov qword ptr fs:[r11 + 8], rax",
            "mov qword ptr fs:[r11 + 16], rsp",
            "mov qword ptr fs:[r11 + 24], rbp",
            "3: jmp {slow}",
            slow = sym $slow,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! passing_asm {
    (@jump $target:path) => {
        core::arch::naked_asm!(
            "hint #34",
            "adrp x16, {target}",
            "ldr x16, [x16, :lo12:{target}]",
            "br x16",
            target = sym $target,
        )
    };
    (@watched $slow:path) => {
        core::arch::naked_asm!(
            "hint #34",
            "mrs x16, tpidr_el0",
            "adrp x17, :gottprel:streamcheck_thread",
            "ldr x17, [x17, :gottprel_lo12:streamcheck_thread]",
            "add x16, x16, x17",
            "ldr w17, [x16]",
            "cbnz w17, 3f",
            "mov x17, sp",
            "stp x30, x17, [x16, #8]",
            "str x29, [x16, #24]",
            "3: b {slow}",
            slow = sym $slow,
        )
    };
}

/// Declares such functions: each with its parameters, what it answers where there is no such
/// function, and what a watched call does. `HOOK` in there
/// is what a call is recorded as.
macro_rules! passing {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty, failed($failed:expr), |$real:ident| $code:block )*) => {
        $( mod $name {
            #[allow(unused_imports, reason = "not every function needs all of them")]
            use super::*;

            static TARGET: core::sync::atomic::AtomicPtr<()> =
                core::sync::atomic::AtomicPtr::new(watched as *mut ());
            static REAL: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

            pub(super) static PASSING: $crate::doors::passing::Passing = $crate::doors::passing::Passing {
                name: match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                target: &TARGET,
                real: &REAL,
                watched,
            };

            #[allow(dead_code, reason = "not every function is recorded")]
            static HOOK: $crate::hook::Hook =
                $crate::hook::Hook::new(PASSING.name, $crate::hook::Door::Runtime, watched);

            type Real = unsafe extern "C-unwind" fn($($type),*) -> $answer;

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                $crate::doors::passing::passing_asm!(@jump TARGET)
            }

            #[unsafe(naked)]
            unsafe extern "C" fn watched() {
                $crate::doors::passing::passing_asm!(@watched slow)
            }

            unsafe extern "C-unwind" fn slow($($argument: $type),*) -> $answer {
                let real = PASSING.find();
                if real == 0 {
                    return $failed;
                }
                // SAFETY: the loader found this function under this name.
                let $real = unsafe { core::mem::transmute::<usize, Real>(real) };
                $code
            }
        } )*

        static ALL: &[&$crate::doors::passing::Passing] = &[ $( &$name::PASSING, )* ];

        /// Finds the real functions, to which calls go at once from now on: later on, in a
        /// signal's handler or in the child of a process with threads, the loader must not be
        /// asked.
        pub(crate) fn prepare() {
            for function in ALL {
                function.pass();
            }
        }

        /// From now on calls are looked at.
        pub(crate) fn watch() {
            for function in ALL {
                function.watch();
            }
        }
    };
}

pub(super) use {passing, passing_asm};
