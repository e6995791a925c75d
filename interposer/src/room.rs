//! Room on the stack for the cold paths.
//!
//! The application's stack may be a fiber's, a signal handler's or a thread's of
//! 16 KiB. Starting up, reading debug information and rendering a finding need
//! more, so they get a stack of their own, on the same thread.

/// Address space for the cold paths' stack; pages are taken as they are touched.
const BYTES: usize = 4 << 20;

/// Runs `f` with room to spare.
#[cold]
pub(crate) fn with_room<R>(f: impl FnOnce() -> R) -> R {
    stacker::grow(BYTES, f)
}
