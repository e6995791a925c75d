//! Compiles C programs and runs them under the preload library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A finished run.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The library, built as these tests are: cargo builds no `cdylib` for them by itself. A copy is
/// used, which a build beside this run leaves alone.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let products = build(&["--lib"]);
        let copy = folder().join("libstreamcheck.so");
        std::fs::copy(products.join("libstreamcheck.so"), &copy).expect("cargo built the library");
        copy
    })
}

/// Builds what cargo does not build for tests by itself; where the products lie.
fn build(what: &[&str]) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows where it lies");
    let deps = exe.parent().expect("tests lie in deps");
    let products = deps.parent().expect("deps lies in the profile's folder");
    let target = products.parent().expect("and that in the target folder");
    let profile = match products.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--profile", profile, "--target-dir"])
        .arg(target)
        .args(what)
        .status()
        .expect("cargo starts");
    assert!(status.success(), "{what:?} builds");
    products.to_owned()
}

/// A folder of this test program's own.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for programs");
        folder
    })
}

/// Compiles a source to `output`, unless a test of this run has.
fn compile(source: &str, output: &Path, more: &[&str]) {
    static DONE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if done.iter().any(|path| path == output) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-g", "-O1", "-Wall", "-Wextra", "-o"])
        .arg(output)
        .arg(&source)
        .args(more)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{} does not compile", source.display());
    done.push(output.to_owned());
}

/// The stand-in cudart, under a version's name.
pub(crate) fn standin(version: u32) -> PathBuf {
    let name = format!("libcudart.so.{version}");
    let path = folder().join(&name);
    let soname = format!("-Wl,-soname,{name}");
    // Versions by the library's name, as NVIDIA's have.
    let link = [
        "-shared",
        "-fPIC",
        "-pthread",
        "-Wl,--default-symver",
        &soname,
    ];
    compile("cudart.c", &path, &link);
    path
}

/// Compiles a program that links to the stand-in.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = folder().join(name);
    let standin = standin(13);
    let standin = standin.to_str().expect("a path in UTF-8");
    compile(&format!("{name}.c"), &path, &[standin, "-pthread"]);
    path
}

/// Compiles a program that links to a stand-in which cannot tell how parameters lie, in a
/// folder of their own.
pub(crate) fn old_program(name: &str) -> (PathBuf, PathBuf) {
    let old = folder().join("old");
    std::fs::create_dir_all(&old).expect("a folder for the old stand-in");
    let standin = old.join("libcudart.so.12");
    let link = ["-shared", "-fPIC", "-pthread", "-DBEFORE_12_4"];
    let soname = "-Wl,-soname,libcudart.so.12";
    compile("cudart.c", &standin, &[&link[..], &[soname]].concat());
    let path = old.join(name);
    let standin = standin.to_str().expect("a path in UTF-8");
    compile(&format!("{name}.c"), &path, &[standin]);
    (path, old)
}

/// Compiles a program that links to the stand-in driver alone.
pub(crate) fn driver_program(name: &str) -> PathBuf {
    let driver = folder().join("libcuda.so.1");
    let link = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile("driver.c", &driver, &link);
    let path = folder().join(name);
    let driver = driver.to_str().expect("a path in UTF-8");
    compile(&format!("{name}.c"), &path, &[driver]);
    path
}

/// Compiles a program that links to no CUDA library.
pub(crate) fn plain_program(name: &str) -> PathBuf {
    standin(13);
    let path = folder().join(name);
    compile(&format!("{name}.c"), &path, &["-pthread", "-ldl"]);
    path
}

/// The simulated driver and runtime, built as these tests are, under NVIDIA's names.
pub(crate) fn simulated() -> &'static Path {
    static STAGE: OnceLock<PathBuf> = OnceLock::new();
    STAGE.get_or_init(|| {
        let products = build(&["-p", "simcuda-driver", "-p", "simcuda-runtime"]);
        let stage = folder().join("simulated");
        std::fs::create_dir_all(&stage).expect("a folder for the simulated libraries");
        for (built, name) in [
            ("libcuda.so", "libcuda.so.1"),
            ("libcudart.so", "libcudart.so.13"),
        ] {
            std::fs::copy(products.join(built), stage.join(name)).expect("cargo built them");
        }
        stage
    })
}

/// Compiles a program that links to the simulated libraries.
pub(crate) fn simulated_program(name: &str) -> PathBuf {
    let stage = simulated();
    let path = stage.join(name);
    let libraries = ["libcudart.so.13", "libcuda.so.1"].map(|name| stage.join(name));
    let libraries = libraries
        .each_ref()
        .map(|path| path.to_str().expect("UTF-8"));
    compile(&format!("{name}.c"), &path, &libraries);
    path
}

/// Compiles a shared library that links to `others`.
pub(crate) fn shared_library(name: &str, others: &[PathBuf]) -> PathBuf {
    let path = folder().join(format!("lib{name}.so"));
    let mut more = vec!["-shared", "-fPIC", "-ldl"];
    more.extend(others.iter().filter_map(|other| other.to_str()));
    compile(&format!("{name}.c"), &path, &more);
    path
}

/// A command that will run without the library and without its settings.
pub(crate) fn bare(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STREAMCHECK_") {
            command.env_remove(name);
        }
    }
    command
        .env("LD_LIBRARY_PATH", folder())
        .env("STREAMCHECK_COLOR", "never")
        .current_dir(folder());
    command
}

/// The same under the library.
pub(crate) fn preloaded(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = bare(program);
    command.env("LD_PRELOAD", library());
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    command.output().expect("the program starts").into()
}
