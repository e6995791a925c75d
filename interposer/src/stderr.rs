//! Standard error, one `write` for each message, so that messages of several
//! processes and threads do not mix.

use crate::thread::keeping_errno;

/// Writes a text as it is. A reader that has gone away must not end the program
/// that is checked, so the signal that this would raise is taken back.
pub(crate) fn text(text: &str) {
    keeping_errno(|| {
        let Some(shield) = Shield::raise() else {
            return;
        };
        if write(text.as_bytes()) == Some(libc::EPIPE) {
            shield.take_back();
        }
        shield.lower();
    });
}

/// Writes a line of the tool's own.
pub(crate) fn line(message: &str) {
    text(&format!("streamcheck: {message}\n"));
}

/// The error that ended it early, if any.
fn write(mut rest: &[u8]) -> Option<i32> {
    while !rest.is_empty() {
        // SAFETY: the buffer is `rest`.
        let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(0) => return None,
            Ok(written) => rest = &rest[written..],
            Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                error => return error,
            },
        }
    }
    None
}

/// `SIGPIPE`, blocked on this thread.
struct Shield {
    pipe: libc::sigset_t,
    before: libc::sigset_t,
    was_pending: bool,
}

impl Shield {
    fn raise() -> Option<Self> {
        // SAFETY: plain data, which the calls fill in before it is read.
        unsafe {
            let mut pipe = core::mem::zeroed();
            let mut before = core::mem::zeroed();
            let mut pending = core::mem::zeroed();
            libc::sigemptyset(&mut pipe);
            libc::sigaddset(&mut pipe, libc::SIGPIPE);
            libc::sigpending(&mut pending);
            let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
            (libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before) == 0).then_some(Self {
                pipe,
                before,
                was_pending,
            })
        }
    }

    /// Consumes the signal that our write raised; one that was waiting before stays.
    fn take_back(&self) {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if !self.was_pending {
            // SAFETY: waits not at all, and for a signal that is blocked.
            unsafe { libc::sigtimedwait(&self.pipe, core::ptr::null_mut(), &now) };
        }
    }

    fn lower(self) {
        // SAFETY: the mask that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, core::ptr::null_mut()) };
    }
}
