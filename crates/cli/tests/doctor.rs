//! `doctor` over real programs: built by the C compiler, cut, patched and set up for the purpose.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fixtures::{Build, fixtures, stage};
use serde_json::Value;
use tempfile::TempDir;

/// Says on standard error, past the test runner's capture, what was not tested.
fn left_out(what: &str) {
    drop(std::io::stderr().write_all(format!("left out: doctor and {what}\n").as_bytes()));
}

/// A folder, and the command that looks at what is in it.
struct Bench {
    folder: TempDir,
    exe: PathBuf,
    root: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let stage = stage().expect("everything builds");
        Self {
            folder: TempDir::new().unwrap(),
            exe: stage.command,
            root: stage.root,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a program that does nothing.
    fn cc(&self, name: &str, arguments: &[&str]) {
        self.cc_source(name, "int main(void) { return 0; }\n", arguments);
    }

    fn cc_source(&self, name: &str, source: &str, arguments: &[&str]) {
        fs::write(self.path("x.c"), source).unwrap();
        let output = Command::new("cc")
            .args(["-o", name, "x.c"])
            .args(arguments)
            .current_dir(&self.folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program)
            .args(arguments)
            .current_dir(&self.folder)
            .status();
        assert!(status.unwrap().success(), "{program} {arguments:?}");
    }

    /// A copy of a program with other bytes.
    fn patched(&self, from: &str, to: &str, patch: impl FnOnce(&mut Vec<u8>)) {
        fs::copy(self.path(from), self.path(to)).unwrap();
        let mut data = fs::read(self.path(from)).unwrap();
        patch(&mut data);
        fs::write(self.path(to), data).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.exe);
        command
            .arg("doctor")
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS"] {
            command.env_remove(name);
        }
        command
    }

    fn look(&self, app: &str) -> Looked {
        Looked::of(self.command(&["--format", "json", app]).output().unwrap())
    }

    /// The one line on standard error of a program that cannot be looked at.
    fn refusal(&self, app: &str) -> String {
        let output = self.command(&[app]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }
}

/// What `doctor` said.
#[derive(Debug)]
struct Looked {
    code: Option<i32>,
    checks: Vec<Value>,
}

impl Looked {
    fn of(output: Output) -> Self {
        assert!(output.stderr.is_empty(), "{output:?}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["schema"], "streamcheck-doctor/1");
        let code = output.status.code();
        assert_eq!(json["fit"], code == Some(0), "{json}");
        Self {
            code,
            checks: json["checks"].as_array().unwrap().clone(),
        }
    }

    /// The mark and the text of the line about something.
    fn about(&self, about: &str) -> (&str, &str) {
        let found: Vec<_> = self
            .checks
            .iter()
            .filter(|check| check["about"] == about)
            .map(|check| {
                (
                    check["mark"].as_str().unwrap(),
                    check["text"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(found.len(), 1, "{about}: {self:?}");
        found[0]
    }

    fn has(&self, about: &str) -> bool {
        self.checks.iter().any(|check| check["about"] == about)
    }

    fn is_out_of_reach(&self, about: &str, why: &str) {
        let (mark, text) = self.about(about);
        assert_eq!((mark, self.code), ("problem", Some(67)), "{self:?}");
        assert!(text.contains(why), "{text}");
        let remedied = self
            .checks
            .iter()
            .all(|check| check["mark"] != "problem" || check["remedy"].is_string());
        assert!(remedied, "{self:?}");
    }
}

#[test]
fn this_machine_alone_is_fit() {
    let bench = Bench::new();
    let looked = Looked::of(bench.command(&["--format=json"]).output().unwrap());
    assert_eq!(looked.code, Some(0), "{looked:?}");
    let (mark, text) = looked.about("preload library");
    assert_eq!(mark, "ok");
    assert!(
        text.contains(&format!("version {}", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    assert!(looked.about("C library").1.starts_with("glibc 2."));
    assert_eq!(looked.about("settings").0, "ok");

    let output = bench.command(&[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("ok    C library"), "{text}");
    assert!(
        text.ends_with("\nNothing stands in the way of `streamcheck run -- ./app`.\n"),
        "{text}"
    );
}

#[test]
fn what_is_wrong_around_the_program_is_told() {
    let bench = Bench::new();
    let with = |name: &str, value: &Path| {
        let mut command = bench.command(&["--format", "json"]);
        Looked::of(command.env(name, value).output().unwrap())
    };
    fs::write(bench.path("text.so"), "no library").unwrap();
    let looked = with("STREAMCHECK_LIBRARY", &bench.path("text.so"));
    looked.is_out_of_reach("preload library", "cannot be loaded");
    let looked = with("STREAMCHECK_LIBRARY", &bench.path("none.so"));
    looked.is_out_of_reach("preload library", "there is no such file");
    let looked = with("TMPDIR", &bench.path("none"));
    looked.is_out_of_reach("temporary files", "cannot be written");
    let looked = with("STREAMCHECK_FAIL_ON", Path::new("everything"));
    looked.is_out_of_reach("settings", "STREAMCHECK_FAIL_ON is \"everything\"");
    let none = bench.path("none/x");
    let looked = with("STREAMCHECK_SUPPRESSIONS", &none);
    looked.is_out_of_reach("settings", "cannot be read");
    let looked = with("STREAMCHECK_JSON", &none);
    looked.is_out_of_reach("settings", "cannot be written");
    let looked = with("STREAMCHECK_TRACE", &none);
    looked.is_out_of_reach("settings", "cannot be written");
    let looked = with("NVTX_INJECTION64_PATH", Path::new("/x/libother.so"));
    assert_eq!((looked.about("NVTX").0, looked.code), ("note", Some(0)));
    fs::write(bench.path("streamcheck.toml"), "fail-on = \"never\"\n").unwrap();
    let (mark, text) = bench.look("true").about("settings").to_owned_pair();
    assert_eq!(mark, "ok");
    assert!(text.contains("streamcheck.toml is in force"), "{text}");
}

/// Owned, so that it outlives what it was taken from.
trait Pair {
    fn to_owned_pair(&self) -> (String, String);
}

impl Pair for (&str, &str) {
    fn to_owned_pair(&self) -> (String, String) {
        (self.0.to_owned(), self.1.to_owned())
    }
}

#[test]
fn programs_out_of_reach_are_problems() {
    let bench = Bench::new();
    bench.cc("dynamic", &[]);
    bench.cc("static", &["-static"]);
    bench.cc("static-pie", &["-static-pie"]);
    for name in ["./static", "./static-pie"] {
        bench
            .look(name)
            .is_out_of_reach("program", "is statically linked");
    }
    bench.patched("dynamic", "32", |data| data[4] = 1);
    bench
        .look("./32")
        .is_out_of_reach("program", "is a 32-bit program");
    bench.patched("dynamic", "foreign", |data| data[18] = 243);
    bench
        .look("./foreign")
        .is_out_of_reach("program", "is for RISC-V");
    let interpreter = |new: &'static str| {
        move |data: &mut Vec<u8>| {
            let start = data
                .windows(9)
                .position(|window| window == b"/ld-linux")
                .and_then(|at| data[..at].iter().rposition(|&byte| byte == 0))
                .unwrap()
                + 1;
            let end = start + data[start..].iter().position(|&byte| byte == 0).unwrap();
            data[start..end].fill(0);
            data[start..start + new.len()].copy_from_slice(new.as_bytes());
        }
    };
    bench.patched("dynamic", "musl", interpreter("/lib/ld-musl-x86.so.1"));
    bench.look("./musl").is_out_of_reach("program", "uses musl");
    bench.patched("dynamic", "lost", interpreter("/no/ld-linux.so"));
    bench
        .look("./lost")
        .is_out_of_reach("program", "its loader /no/ld-linux.so is not there");
    let looked = bench.look("./dynamic");
    assert_eq!((looked.about("program").0, looked.code), ("ok", Some(0)));
}

#[test]
fn what_is_no_program_is_refused_in_one_line() {
    let bench = Bench::new();
    bench.cc("app", &[]);
    fs::write(bench.path("text"), "no program\n").unwrap();
    fs::set_permissions(bench.path("text"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(bench.path("plain"), "#!/bin/sh\n").unwrap();
    bench.patched("app", "cut", |data| data.truncate(18));
    for (app, why) in [
        ("./none", "./none: No such file or directory"),
        ("no-such-program", "no-such-program is not in PATH"),
        ("app", "did you mean ./app?"),
        (".", "is not in PATH"),
        ("./", "is a directory"),
        ("/dev/null", "is not a regular file"),
        ("./text", "is no program"),
        ("./plain", "is not executable; `chmod +x`"),
        ("./cut", "cannot be read: it ends within its header"),
    ] {
        let line = bench.refusal(app);
        assert!(line.contains(why), "{app}: {line}");
    }
}

#[test]
fn scripts_lead_to_what_runs_them() {
    let bench = Bench::new();
    let script = |name: &str, text: &str| {
        fs::write(bench.path(name), text).unwrap();
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("s", "#!/usr/bin/env sh\n");
    let looked = bench.look("./s");
    assert_eq!(looked.code, Some(0), "{looked:?}");
    let texts: Vec<_> = looked
        .checks
        .iter()
        .filter(|check| check["about"] == "program")
        .map(|check| check["text"].as_str().unwrap())
        .collect();
    assert!(texts[0].contains("is a script, run by"), "{texts:?}");
    assert!(texts[1].contains("sh is a dynamically linked"), "{texts:?}");
    assert!(!looked.has("debug info"), "nobody debugs the shell");
    script("lost", "#!/no/such/python3\n");
    bench
        .look("./lost")
        .is_out_of_reach("program", "is a script for /no/such/python3");
    script("loop", &format!("#!{}\n", bench.path("loop").display()));
    assert!(bench.refusal("./loop").contains("more than 5 scripts"));
}

#[test]
fn rights_of_the_file_count_for_those_who_lack_them() {
    let bench = Bench::new();
    bench.cc("app", &[]);
    let mode = |mode: u32| {
        fs::set_permissions(bench.path("app"), fs::Permissions::from_mode(mode)).unwrap();
    };
    assert!(!bench.look("./app").has("privileges"));
    mode(0o4755);
    let looked = bench.look("./app");
    assert_eq!(looked.about("privileges").0, "note", "{looked:?}");
    // To give a file away takes root.
    if std::os::unix::fs::chown(bench.path("app"), Some(1), Some(1)).is_ok() {
        mode(0o4755);
        bench
            .look("./app")
            .is_out_of_reach("privileges", "is set-user-ID");
        mode(0o2755);
        bench
            .look("./app")
            .is_out_of_reach("privileges", "is set-group-ID");
        mode(0o2745);
        assert!(!bench.look("./app").has("privileges"));
    }
}

#[test]
fn libraries_that_a_program_lacks_are_problems() {
    let bench = Bench::new();
    let library = |version: &str| {
        fs::write(bench.path("map"), format!("{version} {{ global: f; }};\n")).unwrap();
        let arguments = [
            "-shared",
            "-fPIC",
            "-Wl,--version-script=map",
            "-Wl,-soname,libf.so.1",
        ];
        bench.cc_source("libf.so.1", "int f(void) { return 0; }\n", &arguments);
    };
    library("F_1");
    let main = "int f(void); int main(void) { return f(); }\n";
    bench.cc_source("app", main, &["libf.so.1", "-Wl,-rpath,$ORIGIN"]);
    assert_eq!(bench.look("./app").about("libraries").0, "ok");
    library("F_2");
    bench
        .look("./app")
        .is_out_of_reach("libraries", "lacks version F_1");
    fs::remove_file(bench.path("libf.so.1")).unwrap();
    bench
        .look("./app")
        .is_out_of_reach("libraries", "libf.so.1, which ./app needs, is not found");
}

#[test]
fn the_cuda_runtime_is_found_where_it_is() {
    let bench = Bench::new();
    let wanted: Vec<_> = fixtures()
        .unwrap()
        .into_iter()
        .filter(|fixture| fixture.name.starts_with("a03_"))
        .collect();
    let look = |build: Build| {
        let programs = fixtures::compile(&bench.root, build, &wanted)
            .expect("the fixtures build")
            .expect("a plain C compiler will do");
        let program = programs.join(&wanted[0].name);
        let mut command = bench.command(&["--format", "json", program.to_str().unwrap()]);
        command.env("LD_LIBRARY_PATH", bench.root.join("sim"));
        Looked::of(command.output().unwrap())
    };
    let looked = look(Build::Cc);
    let (mark, text) = looked.about("CUDA runtime");
    assert_eq!((mark, looked.code), ("ok", Some(0)));
    assert!(
        text.starts_with("shared: ") && text.contains("libcudart.so.13"),
        "{text}"
    );
    assert_eq!(looked.about("debug info").0, "ok");
    let looked = look(Build::CcStatic);
    let (mark, text) = looked.about("CUDA runtime");
    assert_eq!((mark, looked.code), ("ok", Some(0)));
    assert!(text.starts_with("static, within "), "{text}");
    assert!(
        looked.about("driver").1.contains("sim/libcuda.so.1"),
        "{looked:?}"
    );

    bench.cc("plain", &[]);
    let looked = bench.look("./plain");
    let (mark, text) = looked.about("CUDA runtime");
    assert_eq!((mark, looked.code), ("note", Some(0)));
    assert!(
        text.contains("does not load libraries as it runs"),
        "{text}"
    );
    let source = "#include <dlfcn.h>\nint main(void) { return !dlopen(\"libx.so\", RTLD_NOW); }\n";
    bench.cc_source("opens", source, &["-ldl"]);
    let looked = bench.look("./opens");
    assert!(
        looked
            .about("CUDA runtime")
            .1
            .contains("unknown until it runs"),
        "{looked:?}"
    );
}

/// The toolkit's own compiler and runtimes, where they are.
#[test]
fn what_nvcc_builds_is_told_apart() {
    let Some(nvcc) = fixtures::compile::find_nvcc().unwrap() else {
        left_out("what nvcc builds, for want of nvcc");
        return;
    };
    let bench = Bench::new();
    fs::write(
        bench.path("k.cu"),
        "__global__ void k(float *p) { *p = 1; }\nint main() { k<<<1, 1>>>(0); }\n",
    )
    .unwrap();
    let build = |name: &str, arguments: &[&str]| {
        let output = Command::new(&nvcc)
            .args(["k.cu", "-o", name])
            .args(arguments)
            .current_dir(&bench.folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    build(
        "ptx",
        &["-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-g"],
    );
    let looked = bench.look("./ptx");
    assert_eq!(looked.about("kernels").0, "ok", "{looked:?}");
    assert!(
        looked
            .about("CUDA runtime")
            .1
            .starts_with("static, within ./ptx")
    );
    assert_eq!(looked.about("debug info").0, "ok");
    build("sass", &["-gencode", "arch=compute_90,code=sm_90"]);
    bench.run("strip", &["sass"]);
    let looked = bench.look("./sass");
    let (mark, text) = looked.about("kernels");
    assert_eq!(mark, "note");
    assert!(text.contains("code for sm_90 without its PTX"), "{text}");
    assert!(
        looked
            .about("CUDA runtime")
            .1
            .starts_with("static, within ./sass")
    );
}

#[test]
fn debug_information_is_where_it_is_found() {
    let bench = Bench::new();
    bench.cc("app", &["-g"]);
    assert_eq!(bench.look("./app").about("debug info").0, "ok");
    bench.run("objcopy", &["--only-keep-debug", "app", "app.debug"]);
    bench.run(
        "objcopy",
        &["--strip-all", "--add-gnu-debuglink=app.debug", "app"],
    );
    let (mark, text) = bench.look("./app").about("debug info").to_owned_pair();
    assert_eq!(mark, "ok");
    assert!(text.contains("app.debug has it"), "{text}");
    fs::remove_file(bench.path("app.debug")).unwrap();
    let looked = bench.look("./app");
    let (mark, text) = looked.about("debug info");
    assert_eq!((mark, looked.code), ("note", Some(0)));
    assert!(text.contains("keeps it in app.debug"), "{text}");
    bench.cc("none", &[]);
    let (_, text) = bench.look("./none").about("debug info").to_owned_pair();
    assert!(text.contains("has none; findings name functions"), "{text}");
    bench.cc("stripped", &["-s"]);
    let (_, text) = bench.look("./stripped").about("debug info").to_owned_pair();
    assert!(text.contains("it is stripped"), "{text}");
}

#[test]
fn a_library_is_looked_at_as_one() {
    let bench = Bench::new();
    let source =
        "int cudaMalloc(void **p, unsigned long n); int f(void) { return cudaMalloc(0, 0); }\n";
    bench.cc_source(
        "libf.so",
        source,
        &["-shared", "-fPIC", "-Wl,-soname,libf.so"],
    );
    let looked = bench.look("./libf.so");
    assert_eq!(looked.about("program").0, "note", "{looked:?}");
    assert!(looked.about("program").1.contains("is a shared library"));
}

#[test]
fn a_sanitizer_that_wants_to_be_first_is_named() {
    let bench = Bench::new();
    fs::write(bench.path("x.c"), "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc")
        .args(["-fsanitize=address", "-o", "app", "x.c"])
        .current_dir(&bench.folder)
        .output()
        .unwrap();
    let program = fs::read(bench.path("app")).unwrap_or_default();
    let shared = program.windows(10).any(|window| window == b"libasan.so");
    if !built.status.success() || !shared {
        left_out("AddressSanitizer, for want of a compiler with its shared library");
        return;
    }
    bench
        .look("./app")
        .is_out_of_reach("sanitizer", "ends the program when a library is preloaded");
    let mut command = bench.command(&["--format", "json", "./app"]);
    command.env("ASAN_OPTIONS", "verify_asan_link_order=0");
    let looked = Looked::of(command.output().unwrap());
    assert_eq!(looked.about("sanitizer").0, "ok");
}
