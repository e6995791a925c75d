//! What a person at a terminal sees.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use streamcheck_model::trace::{Header, ProcessFacts, Writer};
use streamcheck_model::{Action, Call, Names, Operation, StackId};
use tempfile::TempDir;

use crate::{streamcheck, wait_for};

/// A command at a terminal of its own.
struct Terminal {
    keyboard: File,
    screen: JoinHandle<String>,
    child: Child,
}

impl Terminal {
    /// Runs the command in a session of its own, which the terminal controls.
    fn run(command: &Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a terminal");
        grantpt(&ours).expect("access to it");
        unlockpt(&ours).expect("it can be used");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let theirs = PathBuf::from(name.into_string().expect("UTF-8"));
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(&theirs)
                .expect("it opens")
        };
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args())
            .envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env_remove("NO_COLOR")
            .current_dir(command.get_current_dir().expect("a folder"))
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("setsid of util-linux");
        let keyboard = File::from(ours);
        let mut screen = keyboard.try_clone().expect("a second handle");
        let screen = std::thread::spawn(move || {
            let mut seen = Vec::new();
            // A terminal that its last program has left is an error to read.
            let _ = screen.read_to_end(&mut seen);
            String::from_utf8_lossy(&seen).into_owned()
        });
        Self {
            keyboard,
            screen,
            child,
        }
    }

    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("it ends").code();
        (code, self.screen.join().expect("what was shown"))
    }
}

#[test]
fn a_long_run_says_in_whole_lines_that_it_goes_on() {
    let folder = TempDir::new().unwrap();
    let text = "$FIXTURES/a04_reused_block 2>/dev/null; echo begun; sleep 11; echo over";
    let command = streamcheck(&folder, &["--color=never"], &["sh", "-c", text]);
    let (code, shown) = Terminal::run(&command).end();
    assert_eq!(code, Some(66), "{shown}");
    let lines: Vec<&str> = shown.lines().take(3).collect();
    assert_eq!(
        lines,
        [
            "begun",
            "streamcheck: running for 10 s, 1 finding so far",
            "over"
        ],
        "{shown:?}"
    );
    assert!(!shown.contains('\x1b'), "no control sequence: {shown:?}");
}

#[test]
fn a_key_interrupts_the_application_once() {
    let folder = TempDir::new().unwrap();
    let text = "trap 'echo interrupted >>log' INT; touch ready; \
                while [ ! -e over ]; do sleep 0.02; done; exit 4";
    let command = streamcheck(&folder, &["--require-cuda=off"], &["sh", "-c", text]);
    let mut terminal = Terminal::run(&command);
    wait_for(&folder.path().join("ready"));
    terminal.keyboard.write_all(b"\x03").unwrap();
    wait_for(&folder.path().join("log"));
    // Room for a second one to come.
    std::thread::sleep(Duration::from_millis(300));
    File::create(folder.path().join("over")).unwrap();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(4), "{shown}");
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log, "interrupted\n");
}

#[test]
fn a_key_reaches_an_application_in_a_session_of_its_own() {
    let folder = TempDir::new().unwrap();
    let text = "trap 'exit 6' INT; touch ready; while :; do sleep 0.02; done";
    let app = ["setsid", "sh", "-c", text];
    let mut terminal = Terminal::run(&streamcheck(&folder, &["--require-cuda=off"], &app));
    wait_for(&folder.path().join("ready"));
    terminal.keyboard.write_all(b"\x03").unwrap();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(6), "{shown}");
}

#[test]
fn a_long_replay_shows_how_far_it_is_and_leaves_no_trace_of_that() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("slow");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamcheck"));
    command
        .args(["replay", "--color=never", "slow"])
        .env("TERM", "xterm")
        .current_dir(folder.path());
    let terminal = Terminal::run(&command);
    let mut writer = File::options().write(true).open(&pipe).unwrap();
    let facts = ProcessFacts {
        pid: 1,
        exe: "app".to_owned(),
        argv: vec!["app".to_owned()],
        host: "host".to_owned(),
        rank: None,
    };
    // Each synchronize comes from somewhere else.
    let mut trace = Writer::in_memory(&Header::new(facts));
    for stack in (1..=40_000).map(StackId) {
        let call = Call {
            stack,
            ..Call::default()
        };
        let action = Action::DeviceSynchronized;
        let addresses = [u64::from(stack.0) * 0x9e37_79b9];
        trace.operation(&Operation { call, action }, &Names::default(), |_| {
            &addresses
        });
        trace.commit().expect("there is no limit");
    }
    let bytes = trace.into_bytes(true);
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    writer.write_all(first).unwrap();
    // Longer than what the command takes for short work.
    std::thread::sleep(Duration::from_millis(700));
    writer.write_all(rest).unwrap();
    drop(writer);
    let (_, shown) = terminal.end();
    assert!(shown.contains("streamcheck: replaying slow: "), "{shown:?}");
    // The line is cleared before the next one is written.
    let (_, after) = shown.rsplit_once(" left").expect("the line");
    let next = after.trim_start().strip_prefix("\x1b[2K");
    assert!(
        next.is_some_and(|next| next.starts_with("streamcheck: ")),
        "{shown:?}"
    );
}
