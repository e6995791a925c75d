//! Handing signals on to the application.

use std::io;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

/// Signals are caught from its creation on, and kept for the application.
pub(crate) struct Signals(SignalsInfo<WithOrigin>);

/// While it lives, signals go to the application.
pub(crate) struct Forwarding {
    handle: Handle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Signals {
    /// From here on the signals no longer end this process.
    pub(crate) fn catch() -> io::Result<Self> {
        SignalsInfo::<WithOrigin>::new([SIGINT, SIGTERM, SIGHUP]).map(Self)
    }

    /// Hands signals to the process `pid`, those included that came before it was started.
    pub(crate) fn forward_to(self, pid: u32) -> Forwarding {
        let mut signals = self.0;
        let handle = signals.handle();
        let thread = thread::spawn(move || {
            for origin in signals.forever() {
                // A terminal's Ctrl-C went to the whole process group already.
                if origin.cause == Cause::Kernel {
                    continue;
                }
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                let signal = match origin.signal {
                    SIGINT => Signal::INT,
                    SIGHUP => Signal::HUP,
                    _ => Signal::TERM,
                };
                if let Some(pid) = pid {
                    // It may have ended in this moment.
                    let _ = kill_process(pid, signal);
                }
            }
        });
        Forwarding {
            handle,
            thread: Some(thread),
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
