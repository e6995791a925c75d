//! Ends at awkward times: the verdict stands.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use crate::common::{preloaded, program, run};

#[test]
fn a_handler_may_exit_while_a_call_waits() {
    for kind in ["leave", "hurry"] {
        let result = run(preloaded(program("exits"))
            .arg(kind)
            .env("STANDIN_WAITS_FOREVER", "1"));
        assert_eq!(result.code, Some(66), "{kind}: {}", result.stderr);
        assert!(
            result.stderr.contains("streamcheck: 1 error in "),
            "{kind}: {}",
            result.stderr
        );
    }
}

#[test]
fn an_exit_waits_for_a_finding_that_another_thread_tells() {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // A full pipe keeps the finding's thread at its work.
    // SAFETY: our own descriptor.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    let filling = vec![b'x'; usize::try_from(size).expect("a pipe's size can be set")];
    writer.write_all(&filling).expect("it fits");
    let mut child = preloaded(program("exits"))
        .arg("busy")
        .stderr(OwnedFd::from(writer))
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(1200));
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("what was said");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(66), "{text}");
    assert!(text.contains("SC101"), "{text}");
}
