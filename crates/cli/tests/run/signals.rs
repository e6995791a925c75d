//! Signals that the command gets are the application's.

use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{report, rules, streamcheck, wait_for};

/// Waits in small steps, as a shell tells of a signal only between two commands.
const LOOP: &str = "touch ready; while :; do sleep 0.02; done";

/// `run` by another command, with its standard error in a pipe.
fn under<'a>(by: &'a mut Command, run: &Command, folder: &TempDir) -> &'a mut Command {
    by.arg(run.get_program())
        .args(run.get_args())
        .envs(
            run.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(folder.path())
        .stderr(Stdio::piped())
}

#[test]
fn signals_reach_the_application() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let folder = TempDir::new().unwrap();
        let text = format!("trap 'exit 5' {name}; $FIXTURES/a04_reused_block; {LOOP}");
        let run = streamcheck(&folder, &["--json", "out.json"], &["sh", "-c", &text]);
        // The tests may run under nohup, and what a shell finds ignored it cannot trap.
        let mut env = Command::new("env");
        let mut child = under(env.arg("--default-signal"), &run, &folder)
            .spawn()
            .unwrap();
        wait_for(&folder.path().join("ready"));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        let mut said = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(5), "{name}: {said}");
        assert_eq!(rules(&report(&folder.path().join("out.json"))), ["SC105"]);
    }
}

#[test]
fn ignored_signals_stay_ignored() {
    let folder = TempDir::new().unwrap();
    let run = streamcheck(
        &folder,
        &["--require-cuda=off"],
        &["sh", "-c", "kill -HUP $PPID; kill -HUP $$; exit 7"],
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(run.get_program())
        .args(run.get_args())
        .stderr(Stdio::null())
        .current_dir(folder.path());
    assert_eq!(shell.status().unwrap().code(), Some(7), "as under nohup");
}

#[test]
fn a_time_limit_ends_the_run_in_order() {
    let folder = TempDir::new().unwrap();
    let text = format!("$FIXTURES/a04_reused_block; {LOOP}");
    let run = streamcheck(&folder, &["--json", "out.json"], &["sh", "-c", &text]);
    let mut timeout = Command::new("timeout");
    let mut child = under(timeout.arg("600"), &run, &folder).spawn().unwrap();
    wait_for(&folder.path().join("ready"));
    // As its own timer does: the command and the whole group are told to end.
    kill_process(Pid::from_child(&child), Signal::ALARM).unwrap();
    let mut said = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124), "{said}");
    assert!(said.contains("killed by SIGTERM"), "{said}");
    assert_eq!(rules(&report(&folder.path().join("out.json"))), ["SC105"]);
}
