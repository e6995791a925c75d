//! Room on the stack for the cold paths.
//!
//! The application's stack may be a fiber's, a signal handler's or a thread's of
//! 16 KiB. Starting up, reading debug information and rendering a finding need
//! more, so they get a stack of their own, on the same thread.

use core::ffi::c_int;

/// Address space for the cold paths' stack; pages are taken as they are touched.
const BYTES: usize = 4 << 20;

/// Runs `f` with room to spare, [`uncancelled`].
#[cold]
pub(crate) fn with_room<R>(f: impl FnOnce() -> R) -> R {
    uncancelled(|| stacker::grow(BYTES, f))
}

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` (pthread.h).
const DISABLED: c_int = 1;

/// From now on this thread is not cancelled, until [`cancelled_as`] is given the answer.
pub(crate) fn not_cancelled() -> c_int {
    let mut before = 0;
    // SAFETY: a state that there is, and room for the one before.
    unsafe { pthread_setcancelstate(DISABLED, &mut before) };
    before
}

/// The thread may be cancelled again, at once if its type is asynchronous: then this does not
/// return, and unwinds its caller.
pub(crate) fn cancelled_as(before: c_int) {
    let mut ours = 0;
    // SAFETY: the state that the thread had before.
    unsafe { pthread_setcancelstate(before, &mut ours) };
}

/// Runs `f`, which reads or writes files, so that the thread is not cancelled there: what
/// unwinds it must not pass through our frames, where a lock may be held.
#[cold]
pub(crate) fn uncancelled<R>(f: impl FnOnce() -> R) -> R {
    struct Restored(c_int);
    impl Drop for Restored {
        fn drop(&mut self) {
            cancelled_as(self.0);
        }
    }
    let _restored = Restored(not_cancelled());
    f()
}
