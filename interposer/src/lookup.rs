//! The `dlsym` family, and how CUDA's own look-ups are answered.
//!
//! A look-up by exact name of a hooked function gets the hook; every other one
//! tail-jumps to the C library's function, so that `RTLD_NEXT` and
//! `RTLD_DEFAULT` still mean the application's caller. A prefix match would not
//! do: cuDNN exports names that begin with `cu`, too.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::ffi::CString;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::hook::{Door, Hook};
use crate::thread::{Inside, keeping_errno};
use crate::{doors, driver, objects, provider, recorder};

/// The C library's own functions, found on first use.
static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
static REAL_DLVSYM: AtomicUsize = AtomicUsize::new(0);

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Looks a function up with the C library's `dlsym`, past our hook, for ourselves:
/// the thread's `dlerror` and `errno` stay. `RTLD_NEXT` means the objects after
/// this library.
pub(crate) fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    keeping_dlerror(|| plain_dlsym(handle, name))
}

/// The same on the application's behalf: `dlerror` tells of this look-up then. Also
/// for `realloc` and `free`, which `dlerror` itself calls.
pub(crate) fn plain_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    find_real();
    let address = REAL_DLSYM.load(Relaxed);
    // SAFETY: the address is that of a function of this type (`find_real`).
    let function = unsafe { core::mem::transmute::<usize, Dlsym>(address) };
    // SAFETY: `name` is null-terminated; `handle` is the caller's to vouch for.
    unsafe { function(handle, name.as_ptr()) }
}

fn find_real() {
    if REAL_DLSYM.load(Relaxed) != 0 {
        return;
    }
    // Our own export shadows the name `dlvsym`, so the first step reads the C
    // library's symbol table; from there on the loader itself answers.
    let found = objects::c_library_function(c"dlvsym");
    let Some(dlvsym) = found else {
        // Without it no look-up can be answered at all.
        // SAFETY: ends the process; nothing of ours is needed after.
        unsafe { libc::abort() }
    };
    REAL_DLVSYM.store(dlvsym as usize, Relaxed);
    // SAFETY: the C library's `dlvsym` has this type.
    let function = unsafe { core::mem::transmute::<usize, Dlvsym>(dlvsym as usize) };
    // The versions under which glibc has exported `dlsym`: since it moved into
    // libc, before that on x86-64, before that on aarch64.
    for version in [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"] {
        // SAFETY: both texts are null-terminated.
        let dlsym = unsafe { function(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !dlsym.is_null() {
            REAL_DLSYM.store(dlsym as usize, Relaxed);
            return;
        }
    }
    // SAFETY: as above.
    unsafe { libc::abort() }
}

/// Runs `f`, which asks the loader, so that the thread's `dlerror` afterwards says
/// what it would have said before. There is no way to put a text back as it was: one
/// that was waiting comes again inside the text of a look-up that fails.
fn keeping_dlerror<R>(f: impl FnOnce() -> R) -> R {
    keeping_errno(|| {
        let waiting = take_dlerror();
        let result = f();
        take_dlerror();
        if let Some(text) = waiting {
            plain_dlsym(libc::RTLD_NEXT, &text);
        }
        result
    })
}

/// Reads the thread's `dlerror`, which clears it.
fn take_dlerror() -> Option<CString> {
    // SAFETY: no conditions; the text lives until the thread's next call.
    unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_owned())
    }
}

/// What a hook says about a look-up.
#[repr(C)]
struct Answer {
    value: *mut c_void,
    /// 0: not ours, ask the real function on the caller's behalf.
    decided: usize,
}

const NOT_OURS: Answer = Answer {
    value: core::ptr::null_mut(),
    decided: 0,
};

#[cfg(target_arch = "x86_64")]
macro_rules! look_up_asm {
    ($decide:path, $real:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "push rdi",
            "push rsi",
            "push rdx",
            "mov rcx, qword ptr [rsp + 24]",
            "call {decide}",
            "mov rcx, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test rcx, rcx",
            "jne 2f",
            "jmp qword ptr [rip + {real}]",
            "2: ret",
            decide = sym $decide,
            real = sym $real,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! look_up_asm {
    ($decide:path, $real:path) => {
        core::arch::naked_asm!(
            "hint #34",
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x29, sp",
            "mov x3, x30",
            "bl {decide}",
            "cbnz x1, 2f",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "br x16",
            "2: ldp x29, x30, [sp], #48",
            "ret",
            decide = sym $decide,
            real = sym $real,
        )
    };
}

/// The C library's `dlsym`, for everyone in the process.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    look_up_asm!(decide_dlsym, REAL_DLSYM)
}

/// The C library's `dlvsym`, for everyone in the process.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    look_up_asm!(decide_dlvsym, REAL_DLVSYM)
}

unsafe extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    _unused: usize,
    return_address: u64,
) -> Answer {
    find_real();
    // SAFETY: `name` is the caller's, as for `dlsym` itself.
    unsafe {
        decide(name, handle, return_address, |name| {
            plain_dlsym(handle, name)
        })
    }
}

unsafe extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    return_address: u64,
) -> Answer {
    find_real();
    let real = |name: &CStr| {
        let address = REAL_DLVSYM.load(Relaxed);
        // SAFETY: `find_real` stored the C library's function.
        let function = unsafe { core::mem::transmute::<usize, Dlvsym>(address) };
        // SAFETY: the arguments are the caller's, as for `dlvsym` itself.
        unsafe { function(handle, name.as_ptr(), version) }
    };
    // SAFETY: `name` is the caller's.
    unsafe { decide(name, handle, return_address, real) }
}

/// # Safety
/// `name` is null or a null-terminated text.
unsafe fn decide(
    name: *const c_char,
    handle: *mut c_void,
    return_address: u64,
    real: impl Fn(&CStr) -> *mut c_void,
) -> Answer {
    if name.is_null() {
        return NOT_OURS;
    }
    // SAFETY: not null, so a text.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if !(bytes.starts_with(b"cu") || bytes.starts_with(b"__cuda")) {
        return NOT_OURS;
    }
    // A library between us and CUDA that asks for the next function wants the
    // real one: handing it a hook would send its calls in a circle.
    if handle == libc::RTLD_NEXT {
        return NOT_OURS;
    }
    let _inside = Inside::nest();
    let answer = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let Some(hook) = by_name(bytes) else {
            return NOT_OURS;
        };
        let found = real(name);
        if found.is_null() {
            return NOT_OURS;
        }
        let value = keeping_errno(|| hook_for(hook, found, return_address));
        if value.is_null() {
            // A failed look-up's text is waiting now, as after the real one.
            plain_dlsym(libc::RTLD_NEXT, name);
        }
        Answer { value, decided: 1 }
    }));
    answer.unwrap_or_else(|_| {
        recorder::give_up("a look-up failed inside the library");
        NOT_OURS
    })
}

/// Which function to hand out where the real look-up of `hook`'s name found `found`.
fn hook_for(hook: &'static Hook, found: *mut c_void, return_address: u64) -> *mut c_void {
    if found == hook.address() {
        // The application found our export. It is an answer only if a real
        // function stands behind it.
        let exists = match hook.door {
            Door::Runtime => provider::runtime_function(hook, return_address).is_some(),
            Door::Driver => driver::function(hook).is_some(),
        };
        return if exists { found } else { core::ptr::null_mut() };
    }
    match hook.door {
        Door::Runtime => {
            // A caller has one cudart through its hooks: of another it gets the
            // functions themselves, whose work the driver's door still sees.
            if provider::learn(hook, found, return_address) {
                hook.address()
            } else {
                found
            }
        }
        Door::Driver => {
            driver::learn(found);
            driver::swap(found, None)
        }
    }
}

fn by_name(name: &[u8]) -> Option<&'static Hook> {
    static TABLE: OnceLock<FxHashMap<&'static [u8], &'static Hook>> = OnceLock::new();
    TABLE
        .get_or_init(|| {
            doors::all()
                .map(|hook| (hook.name.to_bytes(), hook))
                .collect()
        })
        .get(name)
        .copied()
}

/// Opens a library that is loaded already, without loading it.
/// The handle is never closed, which keeps the library where it is.
pub(crate) fn open_loaded(name: &str) -> Option<*mut c_void> {
    const FLAGS: c_int = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    keeping_dlerror(|| {
        // SAFETY: the library is loaded, so no constructor of it runs.
        let library = unsafe { libloading::os::unix::Library::open(Some(name), FLAGS) }.ok()?;
        Some(library.into_raw())
    })
}
