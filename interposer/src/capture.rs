//! Stream capture: work that a capturing stream takes is a graph's, not the
//! stream's, and does not run now.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::call::Call;
use crate::{driver, provider};

/// Captures begun and not ended.
static OPEN: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn begun() {
    OPEN.fetch_add(1, Relaxed);
}

pub(crate) fn ended() {
    let _ = OPEN.fetch_update(Relaxed, Relaxed, |open| open.checked_sub(1));
}

/// Whether `cudaStreamEndCapture` has ended a capture that returned `status`. One that
/// became invalid, was not joined, or does not fit its old graph ends with an error; on a
/// stream that did not begin one, or from the wrong thread (driver_types.h; the driver's
/// codes are the same), nothing ends.
pub(crate) fn is_over(status: u32) -> bool {
    const INVALIDATED: u32 = 901;
    const UNJOINED: u32 = 904;
    const RECAPTURE_FAILURE: u32 = 918;
    matches!(status, 0 | INVALIDATED | UNJOINED | RECAPTURE_FAILURE)
}

/// In a forked child: the captures are the parent's.
pub(crate) fn fresh_after_fork() {
    OPEN.store(0, Relaxed);
}

/// Whether any stream is capturing.
pub(crate) fn any() -> bool {
    OPEN.load(Relaxed) != 0
}

/// Whether the stream that this call names is capturing. Counted as a blind spot.
#[inline]
pub(crate) fn holds(call: &Call, raw: usize) -> bool {
    if !any() || !is_capturing(call, raw) {
        return false;
    }
    call.blind_spot("graph-capture", call.hook.api());
    true
}

#[cold]
fn is_capturing(call: &Call, raw: usize) -> bool {
    // Asking is allowed during every capture, except that for the legacy stream
    // the answer may be an error; it cannot capture itself.
    if raw == 1 || (raw == 0 && !call.hook.per_thread) {
        return false;
    }
    let raw = if raw == 0 { 2 } else { raw };
    let function = driver::unhooked(c"cuStreamIsCapturing")
        .or_else(|| provider::unhooked(c"cudaStreamIsCapturing"));
    let Some(function) = function else {
        return false;
    };
    // SAFETY: both functions have this type; enums are 32-bit integers in C.
    let function = unsafe {
        core::mem::transmute::<*const (), unsafe extern "C-unwind" fn(usize, *mut u32) -> u32>(
            function,
        )
    };
    let mut state = 0;
    // SAFETY: the handle is the one that the application passes to CUDA in this very
    // call, before or after it; a handle that is none is as wrong there as here.
    let status = unsafe { function(raw, &mut state) };
    status == 0 && state != 0
}
