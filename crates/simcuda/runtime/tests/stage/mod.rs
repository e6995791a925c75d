//! The libraries as the loader would find them on a machine with a GPU, and C programs over them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the libraries; the folder that holds them under their real names.
pub(crate) fn libraries() -> &'static Path {
    static STAGE: OnceLock<PathBuf> = OnceLock::new();
    STAGE.get_or_init(|| {
        let profile = std::env::current_exe()
            .unwrap()
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "-p",
            "simcuda-driver",
            "-p",
            "simcuda-runtime",
        ]);
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(
            cargo
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .unwrap()
                .success()
        );
        let stage = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("simcuda");
        std::fs::create_dir_all(&stage).unwrap();
        for (built, name) in [
            ("libcuda.so", "libcuda.so.1"),
            ("libcudart.so", "libcudart.so.13"),
        ] {
            let target = stage.join(name);
            let _ = std::fs::remove_file(&target);
            std::fs::copy(profile.join(built), target).unwrap();
        }
        stage
    })
}

/// Compiles a C program of this folder over both libraries; its path.
pub(crate) fn program(source: &str) -> PathBuf {
    let stage = libraries();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(source);
    let program = stage.join(source.file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-rdynamic"])
        .arg("-o")
        .args([&program, &source])
        .arg(format!("-L{}", stage.display()))
        .args(["-l:libcudart.so.13", "-l:libcuda.so.1", "-ldl"]);
    assert!(cc.status().expect("a C compiler").success());
    program
}
