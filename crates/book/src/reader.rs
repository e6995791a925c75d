//! A reader who built the tool and has programs to check.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use fixtures::{compile_in, compile_standins, repository, stage};
use tempfile::TempDir;

/// A program in Python that makes CUDA calls, and does it right.
const PYTHON: &str = "\
import ctypes
cuda = ctypes.CDLL('libcudart.so.13')
memory = ctypes.c_void_p()
assert cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
assert cuda.cudaFree(memory) == 0
";

/// The reader's folder: `app`, `faulty`, `train.py`, and what cargo has built, under
/// `target/release`.
#[derive(Debug)]
pub struct Reader {
    folder: TempDir,
    stage: PathBuf,
}

impl Reader {
    /// Builds and places everything.
    ///
    /// # Errors
    /// If something cannot be built or written.
    pub fn new() -> Result<Self> {
        let stage = stage()?;
        compile_standins(&stage.root)?;
        let folder = tempfile::tempdir()?;
        for name in ["fixtures", "kernels"] {
            symlink(repository().join(name), folder.path().join(name))?;
        }
        // In the reader's folder, so that what they see does not depend on where the
        // repository lies: lines are folded by the length of its paths.
        for (name, program) in [
            ("a03_use_before_alloc_fixed", "app"),
            ("a03_use_before_alloc", "faulty"),
        ] {
            let source = PathBuf::from(format!("fixtures/cu/{name}.cu"));
            compile_in(folder.path(), &stage.root, &source, program)?;
        }
        let release = folder.path().join("target/release");
        fs::create_dir_all(&release)?;
        symlink(&stage.preload, release.join("libstreamcheck.so"))?;
        symlink(&stage.command, release.join("streamcheck"))?;
        fs::write(folder.path().join("train.py"), PYTHON)?;
        Ok(Self {
            folder,
            stage: stage.root,
        })
    }

    /// Types commands into a shell that stops at the first failure.
    ///
    /// # Errors
    /// If there is no shell.
    pub fn types(&self, commands: &str) -> Result<Output> {
        let path = std::env::var("PATH").unwrap_or_default();
        let stage = self.stage.display();
        let mut shell = Command::new("bash");
        shell
            .args(["-eu", "-o", "pipefail", "-c", commands])
            .current_dir(self.folder.path());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("STREAMCHECK_") || name.starts_with("GITHUB_") {
                shell.env_remove(name);
            }
        }
        shell
            .env("PATH", format!("{stage}/bin:{path}"))
            .env("LD_LIBRARY_PATH", format!("{stage}/lib:{stage}/sim"))
            .env("LANG", "C.UTF-8")
            .env("COLUMNS", "100")
            .output()
            .context("start bash")
    }

    /// What a reader of any other machine would see as well: without addresses, and with the
    /// paths that they have.
    #[must_use]
    pub fn anyones(&self, text: &str) -> String {
        let folder = self.folder.path().display().to_string();
        let root = repository().display().to_string();
        let text = text.replace(&folder, ".").replace(&format!("{root}/"), "");
        let mut plain = String::new();
        let mut rest = text.as_str();
        while let Some(place) = rest.find("0x") {
            let (before, number) = rest.split_at(place + 2);
            plain.push_str(before);
            let end = number
                .find(|c: char| !c.is_ascii_hexdigit())
                .unwrap_or(number.len());
            plain.push_str(if end > 0 { "…" } else { "" });
            rest = &number[end..];
        }
        plain + rest
    }
}

/// The repository's pages that show what a command prints, each as it should be.
pub mod transcripts {
    use super::{Reader, Result};

    /// Before the command, in a comment above the block that holds what it prints.
    const BEGIN: &str = "<!-- prints: ";

    /// The page with what its commands print now.
    ///
    /// # Errors
    /// If a command cannot be run.
    pub fn renew(reader: &Reader, page: &str) -> Result<String> {
        let mut new = String::new();
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            new.push_str(line);
            new.push('\n');
            let Some(command) = line
                .strip_prefix(BEGIN)
                .and_then(|rest| rest.strip_suffix(" -->"))
            else {
                continue;
            };
            // The old block goes.
            lines.by_ref().find(|line| line.starts_with("```"));
            lines.by_ref().find(|line| line.starts_with("```"));
            let output = reader.types(&format!("{command} 2>&1 || true"))?;
            let text = reader.anyones(&String::from_utf8_lossy(&output.stdout));
            new.push_str("```text\n");
            new.push_str(text.trim_end());
            new.push_str("\n```\n");
        }
        Ok(new)
    }
}
