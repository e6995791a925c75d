//! Standard error, one `write` for each message, so that messages of several
//! processes and threads do not mix.

/// Writes a text as it is.
pub(crate) fn text(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the buffer is `rest`.
        let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => rest = &rest[written..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {
            }
            Err(_) => return,
        }
    }
}

/// Writes a line of the tool's own.
pub(crate) fn line(message: &str) {
    text(&format!("streamcheck: {message}\n"));
}
