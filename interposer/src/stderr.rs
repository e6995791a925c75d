//! Standard error, one `write` for each message, so that messages of several
//! processes and threads do not mix.
//!
//! A program may close it and get its number for a file of its own: a descriptor is
//! written to only while it stands for the file that standard error was when the
//! library was loaded.

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::OnceLock;

use crate::thread::keeping_errno;

/// The device and the number of a file, and the device that it is.
type Identity = (u64, u64, u64);

/// What standard error was at first. `None` if it was closed.
static AT_LOAD: OnceLock<Option<Identity>> = OnceLock::new();
/// Our own descriptor of that file, or -1. A forked child has it too.
static KEPT: AtomicI32 = AtomicI32::new(-1);

/// Numbers that programs do not expect to get, below the usual limits of 1,024 and 256.
const HIGH: [i32; 2] = [768, 192];
/// How many descriptors are looked at for one that a program kept.
const SEARCHED: i32 = 256;

fn identity(fd: i32) -> Option<Identity> {
    // SAFETY: plain data, read only if the call has filled it in.
    unsafe {
        let mut facts = core::mem::zeroed::<libc::stat64>();
        (libc::fstat64(fd, &mut facts) == 0).then_some((facts.st_dev, facts.st_ino, facts.st_rdev))
    }
}

fn original() -> Option<Identity> {
    *AT_LOAD.get_or_init(|| identity(2))
}

/// Remembers what standard error is. No descriptor is taken: most programs that the
/// library is loaded into never call CUDA.
pub(crate) fn remember() {
    keeping_errno(original);
}

/// Keeps standard error for the case that the program closes it. Whoever put another
/// file in its place before, as test runners do, has mostly kept it elsewhere.
pub(crate) fn keep() {
    keeping_errno(|| {
        let Some(original) = original() else {
            return;
        };
        let stands = |fd: i32| identity(fd) == Some(original);
        if stands(KEPT.load(Relaxed)) {
            return;
        }
        let mut all = core::iter::once(2).chain(0..SEARCHED);
        let Some(from) = all.find(|&fd| stands(fd) && is_written_to(fd)) else {
            return;
        };
        // SAFETY: makes a descriptor, and closes none.
        let high = |&least: &i32| unsafe { libc::fcntl(from, libc::F_DUPFD_CLOEXEC, least) };
        let kept = HIGH.iter().map(high).find(|&fd| fd >= 0);
        KEPT.store(kept.unwrap_or(-1), Relaxed);
    });
}

fn is_written_to(fd: i32) -> bool {
    // SAFETY: asks about a number, which may be no descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Where messages go, if anywhere.
fn descriptor() -> Option<i32> {
    let original = original()?;
    [2, KEPT.load(Relaxed)]
        .into_iter()
        .find(|&fd| identity(fd) == Some(original))
}

/// Writes a text as it is. A reader that has gone away must not end the program
/// that is checked, so the signal that this would raise is taken back.
pub(crate) fn text(text: &str) {
    keeping_errno(|| {
        let Some(fd) = descriptor() else {
            return;
        };
        let Some(shield) = Shield::raise() else {
            return;
        };
        if write(fd, text.as_bytes()) == Some(libc::EPIPE) {
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
fn write(fd: i32, mut rest: &[u8]) -> Option<i32> {
    while !rest.is_empty() {
        // SAFETY: the buffer is `rest`.
        let written = unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) };
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
