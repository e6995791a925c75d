//! The C library's functions that set what is done on a signal, and which are blocked.
//!
//! They matter where host memory is guarded (see [`crate::guard::signals`]); elsewhere each
//! is one jump.

use core::ffi::{c_int, c_ulong, c_void};

use libc::{epoll_event, fd_set, pollfd, sighandler_t, sigset_t, timespec, ucontext_t};

use super::passing::passing;
use crate::guard::signals;

passing! {
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::sigaction(signal, new, old, |signal, new, old| real(signal, new, old))
        }
    }
    fn __sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::sigaction(signal, new, old, |signal, new, old| real(signal, new, old))
        }
    }
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t, failed(libc::SIG_ERR), |real| {
        simple(signal, handler, libc::SA_RESTART, true)
            // SAFETY: the application's own call.
            .unwrap_or_else(|| unsafe { real(signal, handler) })
    }
    fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, failed(libc::SIG_ERR), |real| {
        simple(signal, handler, libc::SA_RESTART, true)
            // SAFETY: the application's own call.
            .unwrap_or_else(|| unsafe { real(signal, handler) })
    }
    fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t, failed(libc::SIG_ERR), |real| {
        simple(signal, handler, libc::SA_RESTART, true)
            // SAFETY: the application's own call.
            .unwrap_or_else(|| unsafe { real(signal, handler) })
    }
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, failed(libc::SIG_ERR), |real| {
        simple(signal, handler, ONCE, false)
            // SAFETY: the application's own call.
            .unwrap_or_else(|| unsafe { real(signal, handler) })
    }
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, failed(libc::SIG_ERR), |real| {
        simple(signal, handler, ONCE, false)
            // SAFETY: the application's own call.
            .unwrap_or_else(|| unsafe { real(signal, handler) })
    }
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t, failed(libc::SIG_ERR), |real| {
        /// `SIG_HOLD` (signal.h).
        const HOLD: sighandler_t = 2;
        // Neither of our signals is held in truth.
        let was_held = if handler == libc::SIG_ERR { None } else { signals::hold(signal, handler == HOLD) };
        let before = if was_held.is_some() && handler == HOLD {
            told(signal)
        } else {
            simple(signal, handler, 0, false)
                // SAFETY: the application's own call.
                .unwrap_or_else(|| unsafe { real(signal, handler) })
        };
        if was_held == Some(true) { HOLD } else { before }
    }
    fn longjmp(place: *mut c_void, value: c_int) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::jumps(place);
            real(place, value)
        }
    }
    fn _longjmp(place: *mut c_void, value: c_int) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::jumps(place);
            real(place, value)
        }
    }
    fn siglongjmp(place: *mut c_void, value: c_int) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::jumps(place);
            real(place, value)
        }
    }
    fn __longjmp_chk(place: *mut c_void, value: c_int) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::jumps(place);
            real(place, value)
        }
    }
    fn setcontext(to: *mut ucontext_t) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::switches(to);
            real(to)
        }
    }
    fn swapcontext(from: *mut ucontext_t, to: *mut ucontext_t) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            signals::switches(to);
            real(from, to)
        }
    }
    fn timer_create(clock: c_int, event: *const ThreadEvent, timer: *mut *mut c_void) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe {
            let unblocked = unblocked(event);
            real(clock, unblocked.as_ref().map_or(event, core::ptr::from_ref), timer)
        }
    }
    fn pthread_attr_setsigmask_np(attributes: *mut c_void, set: *const sigset_t) -> c_int, failed(libc::ENOSYS), |real| {
        // SAFETY: the application's own call.
        unsafe { within(set, |set| real(attributes, set)) }
    }
    fn sighold(signal: c_int) -> c_int, failed(-1), |real| {
        match signals::hold(signal, true) {
            Some(_) => 0,
            // SAFETY: the application's own call.
            None => unsafe { real(signal) },
        }
    }
    fn sigrelse(signal: c_int) -> c_int, failed(-1), |real| {
        match signals::hold(signal, false) {
            Some(_) => 0,
            // SAFETY: the application's own call.
            None => unsafe { real(signal) },
        }
    }
    fn sigblock(set: c_int) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        signals::word(libc::SIG_BLOCK, set as u32 as u64, |set| unsafe { real(set as c_int) as u32 as u64 }) as c_int
    }
    fn sigsetmask(set: c_int) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        signals::word(libc::SIG_SETMASK, set as u32 as u64, |set| unsafe { real(set as c_int) as u32 as u64 }) as c_int
    }
    fn sigignore(signal: c_int) -> c_int, failed(-1), |real| {
        match simple(signal, libc::SIG_IGN, 0, false) {
            Some(_) => 0,
            // SAFETY: the application's own call.
            None => unsafe { real(signal) },
        }
    }
    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe { signals::mask(how, set, old, |how, set, old| real(how, set, old)) }
    }
    fn sigsuspend(set: *const sigset_t) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe { within(set, |set| real(set)) }
    }
    fn ppoll(
        files: *mut pollfd, count: c_ulong, timeout: *const timespec, set: *const sigset_t,
    ) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe { within(set, |set| real(files, count, timeout, set)) }
    }
    fn __ppoll_chk(
        files: *mut pollfd, count: c_ulong, timeout: *const timespec, set: *const sigset_t, size: usize,
    ) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe { within(set, |set| real(files, count, timeout, set, size)) }
    }
    fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        set: *const sigset_t,
    ) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe { within(set, |set| real(count, read, write, except, timeout, set)) }
    }
    fn epoll_pwait(
        file: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, set: *const sigset_t,
    ) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe { within(set, |set| real(file, events, count, timeout, set)) }
    }
    fn epoll_pwait2(
        file: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, set: *const sigset_t,
    ) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        unsafe { within(set, |set| real(file, events, count, timeout, set)) }
    }
    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int, failed(libc::ENOSYS), |real| {
        // SAFETY: the application's own call.
        unsafe { signals::mask(how, set, old, |how, set, old| real(how, set, old)) }
    }
}

/// A `struct sigevent` that names a function (signal.h).
#[derive(Clone, Copy)]
#[repr(C)]
struct ThreadEvent {
    value: usize,
    signal: c_int,
    notify: c_int,
    function: usize,
    attributes: usize,
    rest: [usize; 4],
}

const _: () = assert!(size_of::<ThreadEvent>() == size_of::<libc::sigevent>());

/// What a thread of the C library's runs, which has all signals blocked.
struct Notified {
    function: usize,
    value: usize,
}

/// An event whose function finds SIGSEGV unblocked, if `event` is one of that kind.
///
/// # Safety
/// `event` is null or the application's.
unsafe fn unblocked(event: *const ThreadEvent) -> Option<ThreadEvent> {
    const SIGEV_THREAD: c_int = 2;
    if event.is_null() || !signals::are_watched() {
        return None;
    }
    // SAFETY: the caller's promise.
    let event = unsafe { *event };
    // Kept for good: when the last call of it is over, nobody tells.
    (event.notify == SIGEV_THREAD && event.function != 0).then(|| ThreadEvent {
        value: Box::into_raw(Box::new(Notified {
            function: event.function,
            value: event.value,
        })) as usize,
        function: notify as *const () as usize,
        ..event
    })
}

unsafe extern "C-unwind" fn notify(value: usize) {
    // SAFETY: what `unblocked` has made.
    let notified = unsafe { &*(value as *const Notified) };
    signals::unblock();
    // SAFETY: the application's function, which takes a word.
    unsafe {
        core::mem::transmute::<usize, unsafe extern "C-unwind" fn(usize)>(notified.function)(
            notified.value,
        )
    }
}

/// A mask for the time of a call, without the signals that guarding needs: a handler that
/// runs meanwhile has it.
///
/// # Safety
/// `set` is null or the application's.
unsafe fn within<R>(set: *const sigset_t, real: impl FnOnce(*const sigset_t) -> R) -> R {
    // SAFETY: the caller's promise.
    let stripped = unsafe { signals::stripped(set) };
    real(stripped.as_ref().map_or(set, core::ptr::from_ref))
}

/// What System V's `signal` sets: the action is for one signal, which it does not block.
const ONCE: c_int = libc::SA_RESETHAND | libc::SA_NODEFER | 0x2000_0000;

/// The handler of a signal.
fn told(signal: c_int) -> sighandler_t {
    // SAFETY: plain data, for which zero is a value.
    let mut old = unsafe { core::mem::zeroed::<libc::sigaction>() };
    // SAFETY: our own door, which writes what the application is told.
    unsafe { libc::sigaction(signal, core::ptr::null(), &mut old) };
    old.sa_sigaction
}

/// Sets a handler that takes the signal alone, if the signal is one of those that guarding
/// needs. Returns the one before.
fn simple(
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    blocks_itself: bool,
) -> Option<sighandler_t> {
    if handler == libc::SIG_ERR || !signals::takes(signal) {
        return None;
    }
    // SAFETY: plain data, for which zero is a value.
    let (mut new, mut old) = unsafe {
        (
            core::mem::zeroed::<libc::sigaction>(),
            core::mem::zeroed::<libc::sigaction>(),
        )
    };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    if blocks_itself {
        // SAFETY: a set of our own.
        unsafe { libc::sigaddset(&mut new.sa_mask, signal) };
    }
    // SAFETY: both live; the kernel is not asked, as the signal is one of ours.
    unsafe { signals::sigaction(signal, &new, &mut old, |_, _, _| -1) };
    Some(old.sa_sigaction)
}
