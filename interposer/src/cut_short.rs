//! Writing through a mapping of a file that somebody cuts short: the kernel answers with
//! `SIGBUS`, which must not end the program.
//!
//! A handler of ours puts memory under the mapping, and the write goes on into nothing.
//! Every other `SIGBUS` is whose it was before: the action that was there is put back, and
//! the signal comes again.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::cell::UnsafeCell;

/// The mapping's first address and the one after its last; 0 and 0 while there is none.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Whether the file was found to be cut short.
static CUT: AtomicBool = AtomicBool::new(false);
static INSTALLED: AtomicBool = AtomicBool::new(false);

struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written before the handler is there, and only read by it.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::uninit()));

/// Begins to watch the mapping of the one file that this process writes so.
pub(crate) fn watch(start: *mut u8, size: usize) {
    START.store(start as usize, Relaxed);
    END.store(start as usize + size, Release);
    if !INSTALLED.swap(true, Relaxed) {
        // SAFETY: plain data, filled in before use; the handler has the type that
        // SA_SIGINFO asks for. The old action is stored before the new one is there.
        unsafe {
            let mut ours = core::mem::zeroed::<libc::sigaction>();
            ours.sa_sigaction = handle as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let before = (*BEFORE.0.get()).as_mut_ptr();
            if libc::sigaction(libc::SIGBUS, core::ptr::null(), before) == 0 {
                libc::sigaction(libc::SIGBUS, &ours, core::ptr::null_mut());
            }
        }
    }
}

/// Ends the watch, before the mapping goes.
pub(crate) fn forget() {
    END.store(0, Release);
    START.store(0, Relaxed);
}

/// Whether the file was cut short below its mapping.
pub(crate) fn happened() -> bool {
    CUT.load(Relaxed)
}

unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let (start, end) = (START.load(Acquire), END.load(Acquire));
    // SAFETY: the kernel passes what it knows of the signal.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    crate::thread::keeping_errno(|| {
        if code > 0 && (start..end).contains(&address) {
            // SAFETY: takes the place of our own mapping, and of nothing else.
            let memory = unsafe {
                libc::mmap(
                    start as *mut c_void,
                    end - start,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            if memory != libc::MAP_FAILED {
                CUT.store(true, Relaxed);
                return;
            }
        }
        // SAFETY: `BEFORE` was filled in before this handler was there. A fault comes
        // again by itself; what was sent is sent again, and waits until the return.
        unsafe {
            libc::sigaction(signal, (*BEFORE.0.get()).as_ptr(), core::ptr::null_mut());
            if code <= 0 {
                libc::syscall(
                    libc::SYS_tgkill,
                    libc::getpid(),
                    libc::syscall(libc::SYS_gettid),
                    signal,
                );
            }
        }
    });
}
