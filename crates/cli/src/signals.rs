//! Handing signals on to the application.
//!
//! Stopping and continuing (`SIGTSTP`, `SIGCONT`) are left alone: job control sends them to
//! the whole process group, of which the application is a part.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::thread;

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

/// What is handed on.
const FORWARDED: [(c_int, Signal); 6] = [
    (SIGINT, Signal::INT),
    (SIGTERM, Signal::TERM),
    (SIGHUP, Signal::HUP),
    (SIGQUIT, Signal::QUIT),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
];

/// Signals are caught from its creation on, and kept for the application.
pub(crate) struct Signals(SignalsInfo<WithOrigin>);

/// While it lives, signals go to the application.
pub(crate) struct Forwarding {
    handle: Handle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Signals {
    /// From here on the signals no longer end this process. Those that it was started to
    /// ignore (`nohup`, a shell's background jobs) stay ignored, by the application too.
    pub(crate) fn catch() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let caught = FORWARDED.iter().map(|(number, _)| *number);
        SignalsInfo::<WithOrigin>::new(caught.filter(|&number| !is_ignored(&status, number)))
            .map(Self)
    }

    /// Hands signals to the process `pid`, those included that came before it was started.
    pub(crate) fn forward_to(self, pid: u32) -> Forwarding {
        let mut signals = self.0;
        let handle = signals.handle();
        let thread = thread::spawn(move || {
            for origin in signals.forever() {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                let signal = FORWARDED
                    .iter()
                    .find(|(number, _)| *number == origin.signal);
                if let (Some(pid), Some(&(_, signal))) = (pid, signal) {
                    // A terminal's Ctrl-C goes to the whole process group by itself.
                    if origin.cause == Cause::Kernel && getpgid(Some(pid)) == Ok(getpgrp()) {
                        continue;
                    }
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

/// Whether a process ignores a signal, by its `/proc/PID/status`: a mask in hexadecimal,
/// signal 1 being the lowest bit (`proc_pid_status(5)`).
fn is_ignored(status: &str, signal: c_int) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT));
        assert!(!is_ignored("", SIGHUP));
    }
}
