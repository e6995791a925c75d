//! Processes of a run that outlive the application: daemons, and background jobs of a
//! shell that did not wait.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::collect::Collection;

/// How long the run waits for processes that are about to end.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits a moment for the processes that called CUDA and have not ended, and says which
/// are still there then.
pub(crate) fn after(collection: &Collection) -> Option<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let alive: Vec<String> = collection
            .writers()
            .into_iter()
            .filter(|(path, pid)| is_alive(pid) && is_locked(path))
            .map(|(_, pid)| pid)
            .collect();
        if alive.is_empty() {
            return None;
        }
        if Instant::now() < end {
            thread::sleep(PAUSE);
            continue;
        }
        return Some(match &alive[..] {
            [pid] => {
                format!("process {pid} still runs; what it finds from now on is not in the report")
            }
            all => format!(
                "processes {} still run; what they find from now on is not in the report",
                all.join(", ")
            ),
        });
    }
}

/// Whether the process has not ended: one that only waits to be collected has.
fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        // The program's name, in brackets, may hold anything.
        let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
        !state.starts_with(['Z', 'X'])
    })
}

/// Whether the writer of a report holds on to it. A number alone may be another
/// process's by now.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| {
        file.try_lock_shared()
            .is_err_and(|error| matches!(error, TryLockError::WouldBlock))
    })
}
