//! Writing to standard output and standard error.

use std::io::{self, Write};

use crate::failure::{Failure, reason};

/// Writes a line to standard error, marked as the tool's own. One write, so that
/// it stays whole beside the application's output.
pub(crate) fn say(line: &str) {
    err(&format!("streamcheck: {line}\n"));
}

/// Writes text to standard error as it is.
pub(crate) fn err(text: &str) {
    // Nobody is left to tell if standard error is closed.
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

/// Writes text to standard output. A reader that has gone away has read enough.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            crate::USAGE,
            format!("standard output cannot be written: {}", reason(&error)),
        )),
        _ => Ok(()),
    }
}
