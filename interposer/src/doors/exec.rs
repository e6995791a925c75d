//! The C library's functions that put another program in this one's place.
//!
//! No exit handler runs then, so what the reports and the trace still lack is written
//! before. The functions are entered and left by a jump: those that take a list of
//! arguments cannot be called on, and an image that goes must not be held up by a frame
//! of ours. If the program cannot be run after all, the process goes on, and so does
//! the tool: nothing that was done here needs to be undone.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::{life, lookup};

/// The program that is to be run, as far as a function's first argument tells.
#[derive(Clone, Copy)]
pub(crate) enum Program<'a> {
    /// A path.
    At(&'a CStr),
    /// A path, or a name that is looked for along `PATH`.
    Named(&'a CStr),
    /// What a descriptor stands for.
    Open,
}

impl Program<'_> {
    /// Whether it can be run, for all that is easily seen: who looks for a program tries
    /// one place after the other.
    pub(crate) fn is_there(self) -> bool {
        match self {
            Self::Open => true,
            Self::At(path) => is_executable(path),
            Self::Named(name) if name.to_bytes().contains(&b'/') => is_executable(name),
            Self::Named(name) => {
                let places = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
                let name = OsStr::from_bytes(name.to_bytes());
                std::env::split_paths(&places)
                    .filter_map(|folder| {
                        let path = Path::new(&folder).join(name);
                        std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).ok()
                    })
                    .any(|path| is_executable(&path))
            }
        }
    }
}

fn is_executable(path: &CStr) -> bool {
    // SAFETY: a null-terminated path.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

#[cfg(target_arch = "x86_64")]
macro_rules! exec_asm {
    ($before:path, $real:path) => {
        core::arch::naked_asm!(
            "endbr64",
            // The arguments; `al` counts the vector registers among them.
            "push rax",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "call {before}",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "pop rax",
            "jmp qword ptr [rip + {real}]",
            before = sym $before,
            real = sym $real,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! exec_asm {
    ($before:path, $real:path) => {
        core::arch::naked_asm!(
            "hint #34",
            "stp x29, x30, [sp, #-80]!",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "mov x29, sp",
            "bl {before}",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldp x29, x30, [sp], #80",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "br x16",
            before = sym $before,
            real = sym $real,
        )
    };
}

/// Declares the functions, each with what its first argument is.
macro_rules! programs {
    ($( $name:ident $kind:ident )*) => {
        $(
            mod $name {
                use super::*;

                /// The next function of this name in the loader's order.
                pub(super) static REAL: AtomicUsize = AtomicUsize::new(0);

                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    exec_asm!(before, REAL)
                }

                unsafe extern "C" fn before(first: *const c_char) {
                    find(&REAL, concat!(stringify!($name), "\0"));
                    programs!(@$kind first)
                }
            }
        )*

        /// Finds the real functions: in a child of a process with threads, where they
        /// are mostly called, the loader must not be asked.
        pub(crate) fn prepare() {
            $( find(&$name::REAL, concat!(stringify!($name), "\0")); )*
        }
    };
    (@path $first:ident) => {{
        // SAFETY: the argument is the caller's, as for the function itself.
        unsafe { about_to_run($first, Program::At) }
    }};
    (@name $first:ident) => {{
        // SAFETY: as above.
        unsafe { about_to_run($first, Program::Named) }
    }};
    (@descriptor $first:ident) => {{
        let _ = $first;
        life::image_goes(Program::Open)
    }};
}

programs! {
    execve path
    execv path
    execl path
    execle path
    execvp name
    execvpe name
    execlp name
    fexecve descriptor
    execveat descriptor
}

/// # Safety
/// `first` is null or a null-terminated text.
unsafe fn about_to_run<'a>(first: *const c_char, kind: fn(&'a CStr) -> Program<'a>) {
    if !first.is_null() {
        // SAFETY: the caller's promise; the text outlives the call.
        life::image_goes(kind(unsafe { CStr::from_ptr(first) }));
    }
}

fn find(real: &AtomicUsize, name: &'static str) {
    if real.load(Relaxed) != 0 {
        return;
    }
    let found = CStr::from_bytes_with_nul(name.as_bytes()).map_or(core::ptr::null_mut(), |name| {
        lookup::real_dlsym(libc::RTLD_NEXT, name)
    });
    let found = if found.is_null() {
        missing as *const () as usize
    } else {
        found as usize
    };
    real.store(found, Relaxed);
}

/// What stands for a function that the C library does not have.
unsafe extern "C" fn missing() -> c_int {
    // SAFETY: the C library's own slot for this thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
