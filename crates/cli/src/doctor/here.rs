//! Whether this machine and environment let a program be checked.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use streamcheck_report::json::Report;
use streamcheck_report::{Process, Settings};

use super::Check;
use super::cuda::version_in;
use super::elf::Elf;
use super::loader::Search;
use crate::failure::{Failure, reason};
use crate::options::refusal;
use crate::{preflight, preload, run};

/// Other tools' variables for being loaded by CUDA itself.
const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";

/// Looks at all that does not depend on the program.
pub(super) fn examine(search: &Search) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.extend(preload_library(search));
    checks.extend(preloads());
    checks.push(driver(search));
    checks.extend(injections());
    checks.push(temporary());
    checks.extend(settings());
    checks
}

/// The preload library, which is tried out.
fn preload_library(search: &Search) -> Vec<Check> {
    let about = "preload library";
    let path = match preload::library() {
        Ok(path) => path,
        Err(failure) => {
            return vec![
                Check::problem(about, failure.text())
                    .remedy("build it: cargo build --release -p streamcheck-interposer"),
            ];
        }
    };
    let shown = path.display();
    let libc = search.find("libc.so.6");
    let here = libc.as_ref().and_then(newest_glibc);
    let mut checks = Vec::new();
    if let Some((major, minor)) = here {
        checks.push(Check::ok("C library", format!("glibc {major}.{minor}")));
    } else {
        checks.push(
            Check::note("C library", "no glibc is found here")
                .remedy("programs that use another C library are out of reach"),
        );
    }
    if tempfile::tempdir().is_err() {
        // Which is told as a problem of its own.
        checks.push(Check::note(
            about,
            format!("{shown} was not tried out, as there is no room for temporary files"),
        ));
        return checks;
    }
    let own = env!("CARGO_PKG_VERSION");
    checks.push(match try_out(&path) {
        Ok(version) if version == own => Check::ok(
            about,
            format!("{shown} was loaded into a program, version {version}"),
        ),
        Ok(version) => Check::note(
            about,
            format!("{shown} was loaded, but is version {version}, and this command is {own}"),
        )
        .remedy("install both from one build"),
        Err(why) => {
            let needs = Elf::read(&path)
                .ok()
                .and_then(|library| needed_glibc(&library));
            match (needs, here) {
                (Some(needs), Some(here)) if needs > here => Check::problem(
                    about,
                    format!(
                        "{shown} cannot be loaded: it needs glibc {}.{}, and here is {}.{}",
                        needs.0, needs.1, here.0, here.1
                    ),
                )
                .remedy("build it on this system, or on one that is as old"),
                _ => Check::problem(about, format!("{shown} cannot be loaded: {why}"))
                    .remedy("build it for this machine, and do not move it alone"),
            }
        }
    });
    checks
}

/// Runs `true` under the library and gives the library's version, or why there is none.
fn try_out(library: &Path) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| reason(&error))?;
    let (json, config) = (
        folder.path().join("report.json"),
        folder.path().join("x.toml"),
    );
    fs::write(&config, "").map_err(|error| reason(&error))?;
    let program = ["/bin/true", "/usr/bin/true"]
        .into_iter()
        .find(|program| Path::new(program).is_file())
        .unwrap_or("true");
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("STREAMCHECK_") {
            command.env_remove(name);
        }
    }
    let output = command
        .env("LD_PRELOAD", library)
        .env("STREAMCHECK_JSON", &json)
        .env("STREAMCHECK_CONFIG", &config)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {}", reason(&error)))?;
    if let Ok(report) = Report::read(&json)
        && output.status.success()
    {
        return Ok(report.tool.version);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(refusal_of_loader(&said).unwrap_or_else(|| {
        format!(
            "{program} under it ended with {} and left no report",
            output.status
        )
    }))
}

/// Why the loader left a library out, from what it printed.
fn refusal_of_loader(said: &str) -> Option<String> {
    let line = said.lines().find(|line| {
        line.contains("cannot be preloaded") || line.contains("not found (required by")
    })?;
    let inner = line
        .split_once("cannot be preloaded (")
        .and_then(|(_, rest)| rest.rsplit_once("):"))
        .map_or(line, |(why, _)| why);
    Some(inner.trim().to_owned())
}

/// The glibc that a C library is.
fn newest_glibc(libc: &Elf) -> Option<(u32, u32)> {
    libc.defines.iter().filter_map(|name| glibc(name)).max()
}

/// The glibc that a library needs.
fn needed_glibc(library: &Elf) -> Option<(u32, u32)> {
    let needs = library.needs.iter();
    needs.filter_map(|(_, version)| glibc(version)).max()
}

/// `GLIBC_2.34`.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.strip_prefix("GLIBC_")?.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// What the environment preloads besides.
fn preloads() -> Vec<Check> {
    let about = "LD_PRELOAD";
    let list = env::var("LD_PRELOAD").unwrap_or_default();
    let mut checks = Vec::new();
    for entry in list.split([':', ' ']).filter(|entry| !entry.is_empty()) {
        let name = entry.rsplit('/').next().unwrap_or(entry);
        checks.push(if name.starts_with("libstreamcheck") {
            Check::note(about, format!("{entry} is in it already"))
                .remedy("`streamcheck run` does without; two different builds would check twice")
        } else if name.starts_with("libasan") {
            Check::note(
                about,
                format!("{entry} wants to be first, but `streamcheck run` puts its library there"),
            )
            .remedy("set ASAN_OPTIONS=verify_asan_link_order=0")
        } else if entry.contains('/') && !Path::new(entry).exists() {
            Check::note(
                about,
                format!("{entry} is in it, but there is no such file"),
            )
            .remedy("take it out; the loader complains in every program")
        } else {
            Check::note(
                about,
                format!("{entry} is in it, and stays, behind the checker's library"),
            )
        });
    }
    checks
}

/// The driver's library, and the driver itself.
fn driver(search: &Search) -> Check {
    let about = "driver";
    let kernel = fs::read_to_string("/proc/driver/nvidia/version")
        .ok()
        .and_then(|text| kernel_version(&text));
    let Some(file) = search.find("libcuda.so.1") else {
        return match kernel {
            Some(version) => Check::note(
                about,
                format!("the kernel has NVIDIA's driver {version}, but libcuda.so.1 is not found"),
            )
            .remedy(
                "in a container, start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute; \
                 else put the driver's folder into the loader's path (ldconfig)",
            ),
            None => Check::note(
                about,
                "libcuda.so.1 is not found, so no CUDA call will succeed on this machine",
            )
            .remedy(
                "run on a machine with NVIDIA's driver, or record a trace there and use \
                 `streamcheck replay` here",
            ),
        };
    };
    let shown = file.path.display();
    if file
        .path
        .components()
        .any(|part| part.as_os_str() == "stubs")
    {
        return Check::note(
            about,
            format!("{shown} is a stub for linking, with which every CUDA call fails"),
        )
        .remedy("take the stubs folder out of LD_LIBRARY_PATH");
    }
    let real = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
    let version = version_in(&real).filter(|version| version.contains('.'));
    match (version, kernel) {
        (Some(version), Some(kernel)) if version == kernel => {
            Check::ok(about, format!("{shown}, version {version}"))
        }
        (Some(version), Some(kernel)) => Check::note(
            about,
            format!("{shown} is version {version}, and the kernel's driver is {kernel}"),
        )
        .remedy(
            "right for CUDA's forward compatibility package; else restart, or reinstall the driver",
        ),
        (None, Some(kernel)) => {
            Check::ok(about, format!("{shown}; the kernel's driver is {kernel}"))
        }
        (_, None) => Check::note(
            about,
            format!(
                "{shown} is there, but the kernel has no NVIDIA driver: no GPU, or a simulated one"
            ),
        ),
    }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.51.03  Thu …`.
fn kernel_version(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    let version = line
        .split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))?;
    Some(version.to_owned())
}

/// Tools that sit where this one would, or beside it.
fn injections() -> Vec<Check> {
    let taken = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let mut checks = Vec::new();
    if let Some(value) = taken(run::NVTX) {
        checks.push(
            Check::note(
                "NVTX",
                format!(
                    "{} is {value}: names that NVTX gives streams go there",
                    run::NVTX
                ),
            )
            .remedy(format!("unset {} to see them in findings", run::NVTX)),
        );
    }
    if let Some(value) = taken(CUDA_INJECTION) {
        checks.push(
            Check::note(
                "profiler",
                format!("{CUDA_INJECTION} is {value}: another tool watches the same calls"),
            )
            .remedy("unset it if results look odd"),
        );
    }
    checks
}

/// The run's files while it runs.
fn temporary() -> Check {
    let about = "temporary files";
    let folder = env::temp_dir();
    match tempfile::tempdir() {
        Ok(_) => Check::ok(about, format!("{} can be written", folder.display())),
        Err(error) => Check::problem(
            about,
            format!("{} cannot be written: {}", folder.display(), reason(&error)),
        )
        .remedy("name a folder that can be written in TMPDIR"),
    }
}

/// The settings in force.
fn settings() -> Vec<Check> {
    let about = "settings";
    let (settings, problems) = Settings::load(&[]);
    let mut wrong: Vec<String> = problems
        .iter()
        .map(|problem| problem.text().to_owned())
        .collect();
    if wrong.is_empty() {
        let process = Process::this();
        let checks = [
            preflight::check_inputs(&settings),
            preflight::check_outputs(&settings, &process),
            preflight::check_trace(&settings, &process),
        ];
        let failures = checks.into_iter().filter_map(Result::err);
        wrong = failures.flat_map(Failure::into_lines).collect();
    }
    if wrong.is_empty() {
        return vec![Check::ok(
            about,
            run::config().map_or_else(
                || "no streamcheck.toml from here upward; the defaults hold".to_owned(),
                |file| format!("{} is in force", file.display()),
            ),
        )];
    }
    wrong
        .iter()
        .map(|text| {
            Check::problem(about, refusal(text))
                .remedy("correct it: `streamcheck run` refuses with exit code 2")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_complaint_is_its_reason() {
        assert_eq!(
            refusal_of_loader(
                "ERROR: ld.so: object '/x' from LD_PRELOAD cannot be preloaded (invalid ELF \
                 header): ignored.\n"
            )
            .as_deref(),
            Some("invalid ELF header")
        );
        assert!(
            refusal_of_loader(
                "true: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /x)"
            )
            .unwrap()
            .contains("GLIBC_2.99")
        );
        assert_eq!(refusal_of_loader("hello"), None);
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!(glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert!(glibc("GLIBC_2.36") > glibc("GLIBC_2.4"));
        assert_eq!(glibc("GLIBC_PRIVATE"), None);
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.51.03  Release \
                    Build\nGCC version:  gcc version 12.2.0\n";
        assert_eq!(kernel_version(text).as_deref(), Some("575.51.03"));
        assert_eq!(kernel_version(""), None);
    }

    #[test]
    fn a_file_that_is_no_library_is_not_loaded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(try_out(file.path()).is_err());
    }
}
