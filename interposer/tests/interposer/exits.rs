//! Ends at awkward times: the verdict stands.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use crate::common::{preloaded, program, run};
use crate::preload::{report, rules};

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

#[test]
fn however_a_process_ends_its_findings_are_told_and_written() {
    use std::os::unix::process::ExitStatusExt as _;
    for (how, code, signal) in [
        ("segv", None, Some(libc::SIGSEGV)),
        ("abort", None, Some(libc::SIGABRT)),
        ("kill", None, Some(libc::SIGKILL)),
        ("terminate", None, Some(libc::SIGTERM)),
        ("late_abort", None, Some(libc::SIGABRT)),
        ("_exit", Some(66), None),
        ("_Exit", Some(66), None),
        ("quick_exit", Some(66), None),
        ("blocked", Some(66), None),
        ("thread", Some(66), None),
    ] {
        let name = format!("ends-{how}.json");
        let output = preloaded(program("exits"))
            .arg(how)
            .env("STANDIN_WAITS_FOREVER", "1")
            .env("STREAMCHECK_JSON", &name)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{how}: {said}");
        assert_eq!(output.status.signal(), signal, "{how}: {said}");
        assert!(said.contains("SC101"), "{how}: {said}");
        let summaries = said.matches("streamcheck: 1 error in ").count();
        assert_eq!(summaries, usize::from(code.is_some()), "{how}: {said}");
        assert_eq!(rules(&report(&name)), ["SC101"], "{how}");
    }
}
