//! Real runs: the staged command, the preload library, the simulated CUDA.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::rules;
use fixtures::{Build, fixtures, stage};
use serde_json::Value;
use tempfile::TempDir;

#[path = "run/processes.rs"]
mod processes;
#[path = "run/signals.rs"]
mod signals;
#[path = "run/terminal.rs"]
mod terminal;

/// The staged command, and the folder of the fixture programs.
fn staged() -> (PathBuf, PathBuf) {
    let stage = stage().expect("everything builds");
    let wanted: Vec<_> = fixtures()
        .expect("the fixtures are well formed")
        .into_iter()
        .filter(|fixture| fixture.name.starts_with("a03_") || fixture.name.starts_with("a04_"))
        .collect();
    let programs = fixtures::compile(&stage.root, Build::Cc, &wanted)
        .expect("the fixtures build")
        .expect("a plain C compiler will do");
    (stage.command, programs)
}

/// `streamcheck run OPTIONS -- APP…` in a folder of its own.
fn streamcheck(folder: &TempDir, options: &[&str], app: &[&str]) -> Command {
    let (exe, programs) = staged();
    let sim = programs
        .join("../../sim")
        .canonicalize()
        .expect("the stage has it");
    let mut command = Command::new(exe);
    command
        .arg("run")
        .args(options)
        .arg("--")
        .args(app)
        .current_dir(folder.path())
        .env("LD_LIBRARY_PATH", sim)
        .env("FIXTURES", programs)
        .stdin(Stdio::null());
    command
}

fn run(options: &[&str], app: &[&str]) -> (Output, Value) {
    let folder = TempDir::new().unwrap();
    let mut all = vec!["--json", "out.json"];
    all.extend(options);
    let output = streamcheck(&folder, &all, app)
        .output()
        .expect("the command starts");
    (output, report(&folder.path().join("out.json")))
}

/// The same for a shell script that finds the programs in `$FIXTURES`.
fn script(options: &[&str], text: &str) -> (Output, Value) {
    run(options, &["sh", "-c", text])
}

/// Waits for a file that the application makes.
fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        let name = path.display();
        assert!(began.elapsed() < Duration::from_secs(120), "no {name}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn report(path: &Path) -> Value {
    fs::read(path).map_or(Value::Null, |text| {
        serde_json::from_slice(&text).expect("JSON")
    })
}

#[test]
fn a_faulty_program_fails_the_gate() {
    let (output, report) = script(&[], "exec $FIXTURES/a03_use_before_alloc");
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(rules(&report), ["SC101", "SC101"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("SC101") && said.contains("a03_use_before_alloc.cu"),
        "{said}"
    );
    assert_eq!(
        said.matches("2 errors").count(),
        1,
        "one summary for the run: {said}"
    );
}

#[test]
fn its_fixed_twin_passes() {
    let (output, report) = script(&[], "exec $FIXTURES/a03_use_before_alloc_fixed");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(rules(&report).is_empty());
    assert!(
        report["summary"]["operations"].as_u64() > Some(5),
        "{report}"
    );
}

#[test]
fn all_processes_make_one_report() {
    let text = "$FIXTURES/a03_use_before_alloc; $FIXTURES/a04_reused_block; exit 0";
    let (output, report) = script(&[], text);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    let mut found = rules(&report);
    found.sort_unstable();
    assert_eq!(found, ["SC101", "SC101", "SC105"]);
}

/// `images.c`, built as the fixtures are.
fn images(folder: &TempDir) -> PathBuf {
    compiled(folder, "images")
}

/// A program of this folder's, built as the fixtures are.
fn compiled(folder: &TempDir, name: &str) -> PathBuf {
    let (_, programs) = staged();
    let program = folder.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let built = Command::new("cc")
        .args(["-std=gnu11", "-g", "-O0", "-w", "-rdynamic", "-I"])
        .arg(fixtures::repository().join("fixtures/cu"))
        .args(["-x", "c"])
        .arg(source)
        .args(["-x", "none", "-o"])
        .arg(&program)
        .arg(programs.join("../../standin/libcudart.so.13"))
        .args(["-lpthread", "-ldl"])
        .status()
        .expect("a C compiler");
    assert!(built.success());
    program
}

#[test]
fn a_process_that_runs_another_program_keeps_its_findings() {
    for second in ["quiet", "clean"] {
        let folder = TempDir::new().unwrap();
        let program = images(&folder);
        let output = streamcheck(&folder, &["--json", "out.json"], &["./images"])
            .env("SECOND", second)
            .output()
            .unwrap();
        let report = report(&folder.path().join("out.json"));
        assert_eq!(output.status.code(), Some(66), "{second}: {output:?}");
        assert_eq!(rules(&report), ["SC101"], "{second}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("2 processes"), "{said}");
        assert!(program.exists());
    }
}

#[test]
fn a_faultless_process_that_runs_another_program_has_been_checked() {
    let folder = TempDir::new().unwrap();
    images(&folder);
    let output = streamcheck(&folder, &["--json", "out.json"], &["./images"])
        .env("FIRST", "clean")
        .env("SECOND", "quiet")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&folder.path().join("out.json"));
    assert_eq!(report["summary"]["launches"], 1, "{report}");
}

#[test]
fn a_preloaded_process_that_runs_another_program_leaves_both_reports() {
    let folder = TempDir::new().unwrap();
    let program = images(&folder);
    let (exe, programs) = staged();
    let library = exe.with_file_name("../lib/libstreamcheck.so");
    let child = Command::new(program)
        .current_dir(folder.path())
        .env("LD_LIBRARY_PATH", programs.join("../../sim"))
        .env("LD_PRELOAD", library)
        .env("STREAMCHECK_JSON", "out.json")
        .env("SECOND", "clean")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let first = report(&folder.path().join("out.json"));
    let later = report(&folder.path().join(format!("out.json.{pid}")));
    assert_eq!(rules(&first), ["SC101"], "{output:?}");
    assert!(rules(&later).is_empty());
    assert!(later["summary"]["operations"].as_u64() > Some(0), "{later}");
}

#[test]
fn the_applications_own_exit_code_is_kept() {
    let (output, report) = script(&[], "$FIXTURES/a04_reused_block; exit 3");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(rules(&report), ["SC105"]);
}

#[test]
fn options_reach_the_processes() {
    let (output, report) = script(
        &["--level", "SC101=off"],
        "exec $FIXTURES/a03_use_before_alloc",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(rules(&report).is_empty());
    let (output, _) = script(&["--exit-code", "9"], "exec $FIXTURES/a03_use_before_alloc");
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    let (output, report) = script(&["--fail-on=never"], "exec $FIXTURES/a03_use_before_alloc");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(rules(&report), ["SC101", "SC101"]);
}

#[test]
fn nvtx_is_told_of_the_library_unless_it_has_another() {
    let told = "case $NVTX_INJECTION64_PATH in *libstreamcheck.so) exit 7;; other) exit 8;; esac";
    let (output, _) = script(&["--require-cuda", "off"], told);
    assert_eq!(output.status.code(), Some(7));
    let folder = TempDir::new().unwrap();
    let status = streamcheck(&folder, &["--require-cuda", "off"], &["sh", "-c", told])
        .env("NVTX_INJECTION64_PATH", "other")
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(8));
}

#[test]
fn a_recorded_trace_replays_to_the_same_findings() {
    let folder = TempDir::new().unwrap();
    let app = ["sh", "-c", "exec $FIXTURES/a04_reused_block"];
    let options = ["--trace", "run-%p.trace", "--json", "run.json"];
    let output = streamcheck(&folder, &options, &app).output().unwrap();
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    let trace = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "trace")
        })
        .expect("a trace");
    let again = Command::new(env!("CARGO_BIN_EXE_streamcheck"))
        .args(["replay", "--json", "replay.json"])
        .arg(trace)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(66), "{again:?}");
    let before = report(&folder.path().join("run.json"));
    let after = report(&folder.path().join("replay.json"));
    assert_eq!(before["findings"], after["findings"]);
    assert_eq!(before["summary"], after["summary"]);
    assert_eq!(before["process"], after["process"]);
}

#[test]
fn the_log_is_the_commands_and_the_processes() {
    let log = |filter: &str| {
        let (output, _) = script(
            &["--log", filter],
            "exec $FIXTURES/a03_use_before_alloc_fixed",
        );
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let info = log("info");
    for part in ["the preload library is ", "started in "] {
        let line = format!("streamcheck: info: {part}");
        assert!(info.lines().any(|one| one.starts_with(&line)), "{info}");
    }
    assert!(!log("warn").contains("info:"));
}

#[test]
fn a_killed_application_keeps_its_findings() {
    let text = "$FIXTURES/a03_use_before_alloc; kill -9 $$";
    let (output, report) = script(&[], text);
    assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    assert_eq!(rules(&report), ["SC101", "SC101"]);
}

#[test]
fn a_run_without_cuda_fails_unless_it_is_allowed() {
    let (output, report) = run(&[], &["true"]);
    assert_eq!(output.status.code(), Some(67), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no CUDA call"),
        "{output:?}"
    );
    assert_eq!(report["summary"]["operations"], 0);
    let (output, _) = run(&["--require-cuda=off"], &["true"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn an_application_that_failed_before_any_call_is_told_so() {
    for (text, code, ending) in [
        ("exit 3", 3, "ended with exit status 3"),
        ("kill -TERM $$", 143, "was killed by SIGTERM"),
    ] {
        let (output, _) = script(&[], text);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!(
                "streamcheck: the application {ending} before any CUDA call was seen in any process\n"
            )
        );
    }
}

#[test]
fn an_application_that_cannot_start_is_named() {
    let (output, _) = run(&[], &["./no-such-program"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "streamcheck: ./no-such-program cannot be started: No such file or directory\n"
    );
}

#[test]
fn output_and_input_are_the_applications() {
    let (output, _) = run(&["--require-cuda=off"], &["echo", "--json", "hello"]);
    assert_eq!(output.stdout, b"--json hello\n");
}

#[test]
fn an_impossible_report_stops_the_run_before_it_starts() {
    let folder = TempDir::new().unwrap();
    let app = ["touch", "started"];
    let output = streamcheck(&folder, &["--json", "no/out.json"], &app)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no/out.json"), "{said}");
    assert!(!folder.path().join("started").exists());
}

#[test]
fn so_does_an_impossible_trace() {
    let folder = TempDir::new().unwrap();
    let output = streamcheck(&folder, &["--trace", "no/app.trace"], &["touch", "started"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "streamcheck: --trace: no/app.trace cannot be written: No such file or directory\n"
    );
    assert!(!folder.path().join("started").exists());
}

#[test]
fn the_demo_shows_both_faults() {
    let (exe, _) = staged();
    let output = Command::new(exe)
        .arg("demo")
        .env("STREAMCHECK_FAIL_ON", "never")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "SC101",
        "SC105",
        "a03_use_before_alloc.cu",
        "a04_reused_block.cu",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Checks a file against a schema of the repository.
fn follows(value: &Value, schema: &str) {
    let schema = report(&fixtures::repository().join(schema));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let wrong: Vec<_> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn a_run_writes_every_form_once_for_all_processes() {
    let forms = ["sarif", "junit", "html", "github"];
    let folder = TempDir::new().unwrap();
    // What the file asks for is the command's to write, too.
    fs::write(
        folder.path().join("streamcheck.toml"),
        "sarif = 'r.sarif'\n",
    )
    .unwrap();
    let options = [
        "--json=r.json",
        "--junit=r.junit",
        "--html=r.html",
        "--github=r.github",
    ];
    let text = "$FIXTURES/a03_use_before_alloc; $FIXTURES/a04_reused_block; exit 0";
    let output = streamcheck(&folder, &options, &["sh", "-c", text])
        .env("GITHUB_ACTIONS", "true")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for form in forms {
        let text = fs::read_to_string(folder.path().join(format!("r.{form}"))).unwrap();
        assert!(
            text.contains("SC101") && text.contains("SC105"),
            "{form}: {text:.300}"
        );
    }
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1 + 1 + forms.len(), "one file of each");
    let sarif = report(&folder.path().join("r.sarif"));
    assert_eq!(
        sarif["runs"][0]["results"].as_array().map(Vec::len),
        Some(3)
    );
    follows(&sarif, "crates/report/tests/schemas/sarif-2.1.0.json");
    let json = report(&folder.path().join("r.json"));
    follows(&json, "docs/schema/streamcheck-report-1.json");
}

#[test]
fn a_github_job_gets_annotations_unasked() {
    let folder = TempDir::new().unwrap();
    let app = ["sh", "-c", "echo mine; exec $FIXTURES/a03_use_before_alloc"];
    let output = streamcheck(&folder, &[], &app)
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_WORKSPACE", fixtures::repository())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("mine"));
    for line in lines {
        let place = "::error file=fixtures/cu/a03_use_before_alloc.cu,line=";
        assert!(
            line.starts_with(place) && line.contains("title=SC101 "),
            "{line}"
        );
    }
    assert_eq!(said.lines().count(), 3, "{said}");
    let output = streamcheck(&folder, &[], &["true"])
        .env("GITHUB_ACTIONS", "true")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.starts_with("::error title=streamcheck::no CUDA call"),
        "{said}"
    );
}

#[test]
fn a_preloaded_process_writes_every_form_as_it_goes() {
    let folder = TempDir::new().unwrap();
    let (exe, programs) = staged();
    let mut command = Command::new(programs.join("a03_use_before_alloc"));
    command
        .current_dir(folder.path())
        .env("LD_LIBRARY_PATH", programs.join("../../sim"))
        .env("LD_PRELOAD", exe.with_file_name("../lib/libstreamcheck.so"))
        .env("GITHUB_ACTIONS", "true");
    let forms = ["json", "sarif", "junit", "html", "github"];
    for form in forms {
        command.env(
            format!("STREAMCHECK_{}", form.to_uppercase()),
            format!("%r.{form}"),
        );
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for form in forms {
        let text = fs::read_to_string(folder.path().join(format!("0.{form}"))).unwrap();
        assert!(text.contains("SC101"), "{form}: {text:.300}");
    }
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, forms.len());
}

#[test]
fn a_fingerprint_is_the_same_in_the_next_run() {
    let prints = || {
        let folder = TempDir::new().unwrap();
        let app = ["sh", "-c", "exec $FIXTURES/a04_reused_block"];
        streamcheck(&folder, &["--sarif=r.sarif"], &app)
            .output()
            .unwrap();
        let sarif = report(&folder.path().join("r.sarif"));
        let result = &sarif["runs"][0]["results"][0];
        result["partialFingerprints"].to_string()
    };
    let first = prints();
    assert!(first.contains("streamcheckFinding/v1"), "{first}");
    assert_eq!(prints(), first);
}

#[test]
fn a_program_that_cannot_be_executed_is_named() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("app"), "#!/bin/sh\n").unwrap();
    let output = streamcheck(&folder, &[], &["./app"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "streamcheck: ./app cannot be started: Permission denied\n"
    );
}

/// A program that does nothing, in the folder.
fn idle(folder: &TempDir, options: &[&str]) -> PathBuf {
    let program = folder.path().join("idle");
    fs::write(
        folder.path().join("idle.c"),
        "int main(void) { return 0; }\n",
    )
    .unwrap();
    let built = Command::new("cc")
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(folder.path().join("idle.c"))
        .status()
        .expect("a C compiler");
    assert!(built.success());
    program
}

#[test]
fn a_program_that_loads_no_library_is_told_so() {
    let folder = TempDir::new().unwrap();
    // No C library is needed to be without a loader.
    let options = [
        "-static",
        "-nostdlib",
        "-nostartfiles",
        "-Wl,-e,main",
        "-x",
        "assembler",
    ];
    let program = folder.path().join("idle");
    fs::write(
        folder.path().join("idle.s"),
        ".globl main\nmain:\n mov $60, %eax\n xor %edi, %edi\n syscall\n",
    )
    .unwrap();
    let built = Command::new("cc")
        .args(options)
        .arg(folder.path().join("idle.s"))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(built.success());
    let output = streamcheck(&folder, &[], &["./idle"]).output().unwrap();
    assert_eq!(output.status.code(), Some(67), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    let reason = "no CUDA call was seen in any process; ./idle is statically linked, so it \
                  ignores LD_PRELOAD; link it dynamically";
    assert!(said.contains(reason), "{said}");
}

#[test]
fn a_set_user_id_program_is_told_so() {
    use std::os::unix::fs::PermissionsExt;

    let folder = TempDir::new().unwrap();
    let program = idle(&folder, &[]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let owner = if rustix::process::getuid().is_root() {
        65534
    } else {
        0
    };
    // Only root can give a program away; others' own is not secured against them.
    let given = std::os::unix::fs::chown(&program, Some(owner), None).is_ok();
    // Giving it away takes the bit off.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = streamcheck(&folder, &[], &["./idle"]).output().unwrap();
    assert_eq!(output.status.code(), Some(67), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    let reason = "./idle is set-user-ID, so the loader ignores LD_PRELOAD; check a copy";
    assert_eq!(said.contains(reason), given, "{said}");
}
