//! Replays of recorded traces: whole, killed, cut off, several at once.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::rules;
use serde_json::Value;
use streamcheck_model::text::Program;
use streamcheck_model::trace::{Frame, Header, InMemory, Layout, ProcessFacts, Writer};
use streamcheck_model::{INTERPRETED, NameId, StackId};
use tempfile::TempDir;

const RACE: &str = "stream S1 nonblocking
stream S2 nonblocking
p = malloc_async 1024 S1
launch fill S1 p
launch saxpy S2 read:p
sync device
free_async p S1
";

const CLEAN: &str = "p = malloc 64\nfill L p 64\nfree p\n";

/// A recorded trace of a program, as the interposer writes one.
fn trace(text: &str, ended: bool) -> Vec<u8> {
    let program = Program::parse(text).expect("a program");
    let header = Header::new(ProcessFacts {
        pid: 77,
        exe: "/opt/train".to_owned(),
        argv: vec!["train".to_owned()],
        host: "node1".to_owned(),
        rank: Some(2),
    });
    let mut writer = Writer::in_memory(&header);
    for operation in program.operations() {
        assert_ne!(operation.call.api, NameId(0));
        writer.operation(operation, &program.names, |_| &[0x1000]);
    }
    // What a recorder appends after a finding: line 5 stands in train.cu:105.
    for step in &program.steps {
        let frame = Frame {
            function: Some("step".to_owned()),
            file: Some("/opt/src/train.cu".to_owned()),
            line: Some(100 + step.line),
            ..Frame::default()
        };
        writer.frames(StackId(step.line), &[frame]);
    }
    writer.into_bytes(ended)
}

/// The same, of a Python program that was killed before it said what a finding's stacks
/// mean: each call comes from a line of its own.
fn python_trace(text: &str) -> Vec<u8> {
    let program = Program::parse(text).expect("a program");
    let header = Header::new(ProcessFacts {
        pid: 78,
        exe: "/usr/bin/python3".to_owned(),
        argv: vec!["python3".to_owned(), "train.py".to_owned()],
        host: "node1".to_owned(),
        rank: None,
    });
    let mut writer = Writer::in_memory(&header);
    for operation in program.operations() {
        let line = operation.call.stack.0;
        let python = INTERPRETED + u64::from(line);
        let frame = Frame {
            function: Some("Trainer.step".to_owned()),
            file: Some("/home/me/train.py".to_owned()),
            line: Some(line),
            module: Some("python".to_owned()),
            offset: None,
        };
        writer.frames(StackId::of_interpreted(python), &[frame]);
        let addresses = [0x1000, python];
        writer.operation(operation, &program.names, |_| &addresses);
    }
    writer.into_bytes(false)
}

fn replay(folder: &TempDir, traces: &[(&str, Vec<u8>)]) -> (Output, Value) {
    let mut paths: Vec<PathBuf> = Vec::new();
    for (name, bytes) in traces {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a temporary file");
        paths.push(path);
    }
    let json = folder.path().join("out.json");
    let output = Command::new(env!("CARGO_BIN_EXE_streamcheck"))
        .arg("replay")
        .arg("--json")
        .arg(&json)
        .args(paths)
        .current_dir(folder.path())
        .output()
        .expect("the command starts");
    (output, report(&json))
}

fn report(path: &Path) -> Value {
    fs::read(path).map_or(Value::Null, |text| {
        serde_json::from_slice(&text).expect("JSON")
    })
}

#[test]
fn a_trace_gives_the_findings_of_the_run() {
    let folder = TempDir::new().unwrap();
    let (output, report) = replay(&folder, &[("a.trace", trace(RACE, true))]);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(output.stdout.is_empty());
    assert_eq!(rules(&report), ["SC101"]);
    assert_eq!(report["process"]["pid"], 77);
    assert_eq!(report["process"]["rank"], 2);
    let events = report["findings"][0]["events"].as_array().unwrap();
    let used = events.iter().find(|event| event["role"] == "use").unwrap();
    assert_eq!(used["kernel"], "saxpy");
    assert_eq!(used["stack"][0]["file"], "/opt/src/train.cu");
    assert_eq!(used["stack"][0]["line"], 105);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("train.cu"),
        "{output:?}"
    );
}

#[test]
fn a_killed_recorder_leaves_a_trace_that_is_checked() {
    let folder = TempDir::new().unwrap();
    let (output, report) = replay(&folder, &[("a.trace", trace(RACE, false))]);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert_eq!(rules(&report), ["SC101"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("a.trace: recording was not ended in order"),
        "{said}"
    );
}

#[test]
fn a_cut_trace_is_checked_up_to_there_and_refused() {
    let folder = TempDir::new().unwrap();
    let whole = trace(RACE, true);
    let (output, report) = replay(&folder, &[("a.trace", whole[..whole.len() - 5].to_vec())]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(rules(&report), ["SC101"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = said
        .lines()
        .filter(|line| line.contains("cut off at byte"))
        .collect();
    assert_eq!(complaints.len(), 1, "{said}");
    assert!(complaints[0].contains("a.trace"), "{said}");
}

/// A trace that stops after so many operations, as it may not become longer.
fn capped(text: &str, operations: usize) -> Vec<u8> {
    let program = Program::parse(text).expect("a program");
    let layout = Layout::new(&Header::new(ProcessFacts::default()), Some(64 << 10));
    let layout = layout.expect("room");
    let mut writer = Writer::begin(&layout, InMemory::new(&layout)).expect("memory");
    for operation in program.operations().take(operations) {
        writer.operation(operation, &program.names, |_| &[0x1000]);
    }
    writer.commit().expect("there is room");
    // It does not fit.
    let mut random = 1_u64;
    let frame = Frame {
        function: Some(
            std::iter::repeat_with(|| {
                random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
                char::from(b' ' + (random >> 33) as u8 % 64)
            })
            .take(100_000)
            .collect(),
        ),
        ..Frame::default()
    };
    writer.frames(StackId(1), &[frame]);
    writer.commit().expect_err("there is none");
    writer.into_bytes(true)
}

#[test]
fn what_a_limit_cut_off_is_nobodys_fault() {
    let folder = TempDir::new().unwrap();
    let text = "stream S1 nonblocking
p = malloc_async 1024 S1
q = malloc_async 1024 S1
launch fill S1 p
free_async p S1
free_async q S1
";
    let operations = Program::parse(text).unwrap().operations().count();
    for kept in 0..=operations {
        let path = folder.path().join("a.trace");
        fs::write(&path, capped(text, kept)).unwrap();
        let words = [
            "replay",
            "--level=SC111=error",
            "--require-cuda=off",
            "a.trace",
        ];
        let output = command(&folder, &words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(0), "{said}");
        assert!(
            said.contains(&format!(
                "a.trace: recording stopped after {kept} operations, as the trace was as long as \
                 it may be; what the process did after that was not recorded, and is not checked"
            )),
            "{said}"
        );
    }
}

#[test]
fn a_trace_of_an_earlier_format_says_so() {
    let folder = TempDir::new().unwrap();
    let old = include_bytes!("corpus/trace-of-version-2").to_vec();
    let (output, _) = replay(&folder, &[("old.trace", old)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.ends_with(
            "old.trace: trace format 2, and this streamcheck reads format 5; \
             replay it with the streamcheck that recorded it\n"
        ),
        "{said}"
    );
}

#[test]
fn what_is_no_trace_is_one_line() {
    let folder = TempDir::new().unwrap();
    let (output, _) = replay(&folder, &[("a.out", b"\x7fELF\x02".to_vec())]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("a.out: not a streamcheck trace"), "{said}");
}

#[test]
fn several_traces_make_one_report() {
    let folder = TempDir::new().unwrap();
    let traces = [
        ("clean.trace", trace(CLEAN, true)),
        ("race.trace", trace(RACE, true)),
        ("again.trace", trace(RACE, true)),
    ];
    let (output, report) = replay(&folder, &traces);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert_eq!(
        rules(&report),
        ["SC101"],
        "the same fault in two processes is one finding"
    );
    assert_eq!(report["findings"][0]["count"], 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("; 3 processes"), "{said}");
}

#[test]
fn reports_are_merged_and_shown() {
    let folder = TempDir::new().unwrap();
    let (_, one) = replay(&folder, &[("race.trace", trace(RACE, true))]);
    let streamcheck = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_streamcheck"))
            .arg("report")
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .expect("the command starts")
    };
    let output = streamcheck(&["out.json", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        one
    );

    fs::copy(
        folder.path().join("out.json"),
        folder.path().join("again.json"),
    )
    .unwrap();
    let output = streamcheck(&["out.json", "again.json", "--format=json", "-o", "two.json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let two = report(&folder.path().join("two.json"));
    assert_eq!(two["findings"][0]["count"], 2);
    assert_eq!(two["summary"]["operations"], 14);

    let output = streamcheck(&["out.json", "--fail-on", "error"]);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("SC101") && said.contains("1 error in 7 operations"),
        "{said}"
    );

    fs::write(folder.path().join("cut.json"), "{\"schema\": \"stream").unwrap();
    let output = streamcheck(&["out.json", "cut.json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("streamcheck: cut.json is cut short"),
        "{said}"
    );
}

#[test]
fn a_pipe_and_a_link_stay_what_they_are() {
    use std::os::unix::fs::FileTypeExt;

    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("race.litmus"), RACE).unwrap();
    fs::write(path("target"), "old").unwrap();
    std::os::unix::fs::symlink("target", path("link")).unwrap();
    let made = Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(made.success());
    let replay = |json: &str| {
        Command::new(env!("CARGO_BIN_EXE_streamcheck"))
            .args(["replay", "--text", "--json", json, "race.litmus"])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let reader = Command::new("timeout")
        .args(["60", "cat", "pipe"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = replay("pipe");
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(
        fs::metadata(path("pipe")).unwrap().file_type().is_fifo(),
        "the pipe was replaced"
    );
    let read = reader.wait_with_output().unwrap().stdout;
    let through: Value = serde_json::from_slice(&read).expect("JSON");
    assert_eq!(through["findings"].as_array().unwrap().len(), 1);
    let output = replay("link");
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
    assert_eq!(report(&path("target"))["findings"], through["findings"]);
}

/// `streamcheck` with these words, in the folder.
fn command(folder: &TempDir, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_streamcheck"))
        .args(words)
        .current_dir(folder.path())
        .output()
        .expect("the command starts")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn every_form_is_written_by_replay_and_by_report() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("race.litmus"), RACE).unwrap();
    let forms = ["json", "sarif", "junit", "html", "github"];
    let options: Vec<String> = forms.iter().map(|f| format!("--{f}=r.{f}")).collect();
    let mut words = vec!["replay", "--text", "race.litmus"];
    words.extend(options.iter().map(String::as_str));
    let output = command(&folder, &words);
    assert_eq!(code(&output), Some(66), "{output:?}");
    assert!(output.stdout.is_empty());
    for form in forms {
        let written = fs::read_to_string(path(&format!("r.{form}"))).unwrap();
        assert!(written.contains("SC101"), "{form}: {written:.200}");
        let output = command(&folder, &["report", "r.json", "--format", form]);
        assert_eq!(code(&output), Some(0), "{output:?}");
        let again = String::from_utf8(output.stdout).unwrap();
        assert_eq!(again, written, "{form}");
        let only = format!("--{form}=-");
        let output = command(&folder, &["replay", "--text", "race.litmus", &only]);
        let streamed = String::from_utf8(output.stdout).unwrap();
        assert!(streamed.contains("SC101"), "{form}: {streamed:.200}");
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 6, "{names:?}");
    let annotation = fs::read_to_string(path("r.github")).unwrap();
    assert!(
        annotation.starts_with("::error file=race.litmus,line=5,title=SC101 "),
        "{annotation}"
    );
}

#[test]
fn what_is_read_is_not_written_over() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("race.litmus"), RACE).unwrap();
    fs::write(path("none.toml"), "").unwrap();
    let made = ["replay", "--text", "--json=race.json", "race.litmus"];
    assert_eq!(code(&command(&folder, &made)), Some(66));
    std::os::unix::fs::symlink("race.json", path("link.json")).unwrap();
    let files = ["race.json", "race.litmus", "none.toml"];
    let contents = || files.map(|name| fs::read_to_string(path(name)).unwrap());
    let before = contents();
    let report = |option, place| vec!["report", "race.json", option, place];
    let replay = |option, place| vec!["replay", "--text", "race.litmus", option, place];
    let suppressed = |mut arguments: Vec<&'static str>| {
        arguments.extend(["--suppressions", "none.toml"]);
        arguments
    };
    for (arguments, named, input) in [
        (
            report("--write-baseline", "race.json"),
            "--write-baseline race.json",
            "race.json",
        ),
        (
            report("--write-baseline", "./race.json"),
            "--write-baseline ./race.json",
            "race.json",
        ),
        (
            report("--write-baseline", "link.json"),
            "--write-baseline link.json",
            "race.json",
        ),
        (
            report("--output", "./race.json"),
            "--output ./race.json",
            "race.json",
        ),
        (
            suppressed(report("--output", "none.toml")),
            "--output none.toml",
            "none.toml",
        ),
        (
            replay("--json", "race.litmus"),
            "--json race.litmus",
            "race.litmus",
        ),
        (
            suppressed(replay("--html", "none.toml")),
            "--html none.toml",
            "none.toml",
        ),
    ] {
        let output = command(&folder, &arguments);
        assert_eq!(contents(), before, "{arguments:?}");
        assert_eq!(code(&output), Some(2), "{output:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!(
                "streamcheck: {named} would overwrite {input}, which is read; name another file\n"
            )
        );
    }
}

#[test]
fn a_baseline_of_several_reports_lets_just_these_findings_pass() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("race.litmus"), RACE).unwrap();
    let freed = "stream S nonblocking\np = malloc_async 64 S\nfree_async p S\nlaunch k S p\n";
    fs::write(path("freed.litmus"), freed).unwrap();
    for name in ["race", "freed"] {
        let json = format!("--json={name}.json");
        let output = command(
            &folder,
            &["replay", "--text", &json, &format!("{name}.litmus")],
        );
        assert_eq!(code(&output), Some(66), "{output:?}");
    }
    let both = ["report", "race.json", "freed.json"];
    let output = command(
        &folder,
        &[&both[..], &["--write-baseline", "base.json"]].concat(),
    );
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "streamcheck: 2 findings are in the baseline base.json\n"
    );

    let gate = ["--baseline", "base.json", "--fail-on", "warning"];
    let output = command(&folder, &[&both[..], &gate].concat());
    assert_eq!(code(&output), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("; 2 in the baseline"), "{said}");
    for name in ["race.litmus", "freed.litmus"] {
        let output = command(&folder, &[&["replay", "--text", name][..], &gate].concat());
        assert_eq!(code(&output), Some(0), "{output:?}");
    }
    // One more of a kind is news.
    fs::write(
        path("twice.litmus"),
        RACE.replace("sync device", "launch other S2 read:p"),
    )
    .unwrap();
    let output = command(
        &folder,
        &[&["replay", "--text", "twice.litmus"][..], &gate].concat(),
    );
    assert_eq!(code(&output), Some(66), "{output:?}");
}

#[test]
fn report_judges_by_levels_and_suppressions() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("race.litmus"), RACE).unwrap();
    let entry = "[[suppress]]\nrule = 'SC101'\nreason = 'judged'\n";
    fs::write(folder.path().join("s.toml"), entry).unwrap();
    command(
        &folder,
        &["replay", "--text", "--json=r.json", "race.litmus"],
    );
    let judged = |options: &[&str]| {
        let output = command(&folder, &[&["report", "r.json"][..], options].concat());
        (code(&output), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(judged(&["--fail-on=error"]).0, Some(66));
    assert_eq!(
        judged(&["--fail-on=error", "--level", "SC101=warning"]).0,
        Some(0)
    );
    assert_eq!(
        judged(&["--fail-on=warning", "--level", "SC101=warning"]).0,
        Some(66)
    );
    let (code, said) = judged(&["--fail-on=warning", "--level", "SC101=off"]);
    assert!(code == Some(0) && !said.contains("SC101"), "{said}");
    let (code, said) = judged(&["--fail-on=warning", "--suppressions", "s.toml"]);
    assert!(code == Some(0) && said.contains("; 1 suppressed"), "{said}");
}

#[test]
fn ranks_of_a_job_share_their_findings_in_every_form() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("race.litmus"), RACE).unwrap();
    for rank in ["0", "1", "2"] {
        let status = Command::new(env!("CARGO_BIN_EXE_streamcheck"))
            .args(["replay", "--text", "--json=r%r.json", "race.litmus"])
            .env("SLURM_PROCID", rank)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(code(&status), Some(66), "{status:?}");
    }
    let show = |form: &str| {
        let words = ["report", "r0.json", "r1.json", "r2.json", "--format", form];
        String::from_utf8(command(&folder, &words).stdout).unwrap()
    };
    let sarif: Value = serde_json::from_str(&show("sarif")).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["occurrenceCount"], 3);
    assert_eq!(
        results[0]["properties"]["ranks"],
        serde_json::json!([0, 1, 2])
    );
    assert_eq!(sarif["runs"][0]["invocations"].as_array().unwrap().len(), 3);
    let junit = show("junit");
    assert_eq!(junit.matches("<failure ").count(), 1, "{junit}");
    assert_eq!(junit.matches("<testsuite ").count(), 3, "{junit}");
    let github = show("github");
    assert_eq!(github.lines().count(), 1, "{github}");
    assert!(github.contains("On ranks 0, 1, 2."), "{github}");
}

#[test]
fn a_killed_writer_leaves_a_whole_report() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("race.litmus"), RACE).unwrap();
    command(
        &folder,
        &["replay", "--text", "--json=r.json", "race.litmus"],
    );
    // A report that takes a while to write.
    let mut large = report(&path("r.json"));
    let finding = large["findings"][0].clone();
    large["findings"] = vec![finding; 500].into();
    fs::write(path("large.json"), large.to_string()).unwrap();
    let words = ["report", "large.json", "--format=json", "-o", "out.json"];
    assert_eq!(code(&command(&folder, &words)), Some(0));
    for round in 0..40_u64 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_streamcheck"))
            .args(words)
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(round));
        child.kill().unwrap();
        child.wait().unwrap();
        let left = report(&path("out.json"));
        assert_eq!(left["findings"].as_array().map(Vec::len), Some(500));
    }
}

#[test]
fn python_lines_come_from_the_trace() {
    let folder = TempDir::new().expect("a temporary folder");
    let (output, report) = replay(&folder, &[("python.trace", python_trace(RACE))]);
    assert_eq!(output.status.code(), Some(66));
    let events = report["findings"][0]["events"].as_array().expect("events");
    let lines: Vec<_> = events
        .iter()
        .map(|event| {
            let frame = &event["stack"][0];
            assert_eq!(frame["file"], "/home/me/train.py");
            assert_eq!(frame["function"], "Trainer.step");
            assert_eq!(frame["module"], "python");
            frame["line"].as_u64().expect("a line")
        })
        .collect();
    assert_eq!(lines, [3, 5]);
}
