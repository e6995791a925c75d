//! Whether a program can be preloaded, and what of it will be seen.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use streamcheck_report::DebugInfo;

use super::Check;
use super::cuda;
use super::elf::{Elf, Unfit};
use super::loader::{Loaded, Search, can_execute, in_path, own_machine};
use crate::failure::{Failure, reason};

/// Scripts that run scripts, at most; the kernel follows no more.
const MOST_SCRIPTS: usize = 5;

/// The kernel reads no more of a script's first line.
const LONGEST_LINE: u64 = 256;

const STATIC: &str = "link it dynamically (without -static); a static CUDA runtime alone \
                      (-cudart static) does no harm";

/// Looks at the program that `app` names, as `run` would start it. The failure is that there
/// is no program to look at.
pub(super) fn examine(app: &OsStr, search: &Search) -> Result<Vec<Check>, Failure> {
    let wrong = |what: String| Failure::new(crate::USAGE, what);
    let mut checks = Vec::new();
    let mut path = resolve(app)?;
    let mut script = false;
    for _ in 0..MOST_SCRIPTS {
        let shown = path.display();
        match Elf::read(&path) {
            Ok(elf) if is_library(&elf) => {
                checks.push(Check::note(
                    "program",
                    format!(
                        "{shown} is a shared library: what follows holds for programs that load it"
                    ),
                ));
                checks.extend(loaded(&search.load(elf), false));
                return Ok(checks);
            }
            Ok(elf) => {
                startable(&path)?;
                checks.extend(native(elf, search, script));
                return Ok(checks);
            }
            Err(Unfit::Damaged(why)) => {
                return Err(wrong(format!("{shown} cannot be read: {why}")));
            }
            Err(Unfit::NotElf) => startable(&path)?,
        }
        let next = match interpreter(&path) {
            Ok(Some(next)) => next,
            Ok(None) => {
                return Err(wrong(format!(
                    "{shown} is no program: neither ELF nor a script that begins with #!"
                )));
            }
            Err(missing) => {
                let what = format!("{shown} is a script for {missing}, which is not there");
                checks.push(
                    Check::problem("program", what)
                        .remedy("install it, or correct the script's first line"),
                );
                return Ok(checks);
            }
        };
        checks.push(Check::note(
            "program",
            format!(
                "{shown} is a script, run by {}; what follows is about that",
                next.display()
            ),
        ));
        script = true;
        path = next;
    }
    Err(wrong(format!(
        "{}: more than {MOST_SCRIPTS} scripts, each run by another",
        app.to_string_lossy()
    )))
}

/// Whether it is a library of this machine's kind, and no program.
fn is_library(elf: &Elf) -> bool {
    elf.bits == 64
        && elf.machine == own_machine()
        && elf.shared
        && !elf.executable
        && (elf.soname.is_some() || !elf.needed.is_empty())
}

/// The file that running `app` would start.
fn resolve(app: &OsStr) -> Result<PathBuf, Failure> {
    let shown = app.to_string_lossy();
    let wrong = |what: String| Failure::new(crate::USAGE, what);
    let path = if shown.contains('/') {
        PathBuf::from(app)
    } else {
        in_path(app).ok_or_else(|| {
            let here = Path::new(app).is_file();
            let advice = if here {
                format!("; did you mean ./{shown}?")
            } else {
                "; give its path".to_owned()
            };
            wrong(format!("{shown} is not in PATH{advice}"))
        })?
    };
    let about =
        fs::metadata(&path).map_err(|error| wrong(format!("{shown}: {}", reason(&error))))?;
    if about.is_dir() {
        return Err(wrong(format!("{shown} is a directory, not a program")));
    }
    if !about.is_file() {
        return Err(wrong(format!("{shown} is not a regular file")));
    }
    File::open(&path).map_err(|error| wrong(format!("{shown}: {}", reason(&error))))?;
    Ok(path)
}

fn startable(path: &Path) -> Result<(), Failure> {
    if can_execute(path) {
        return Ok(());
    }
    Err(Failure::new(
        crate::USAGE,
        format!(
            "{} is not executable; `chmod +x` makes it so",
            path.display()
        ),
    ))
}

/// The program that runs a script; the error names one that is not there. `None` for what
/// is no script.
fn interpreter(script: &Path) -> Result<Option<PathBuf>, String> {
    let mut line = Vec::new();
    let read = File::open(script).and_then(|file| file.take(LONGEST_LINE).read_to_end(&mut line));
    let line = String::from_utf8_lossy(&line);
    let Some(line) = line.strip_prefix("#!").filter(|_| read.is_ok()) else {
        return Ok(None);
    };
    let mut words = line.lines().next().unwrap_or_default().split_whitespace();
    let Some(program) = words.next() else {
        return Ok(None);
    };
    if Path::new(program).file_name() == Some(OsStr::new("env")) {
        // `env -S NAME=value python3 -u`.
        let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
        if let Some(named) = named {
            let found = if named.contains('/') {
                Some(PathBuf::from(named)).filter(|path| path.is_file())
            } else {
                in_path(OsStr::new(named))
            };
            return found.map(Some).ok_or_else(|| named.to_owned());
        }
    }
    let path = PathBuf::from(program);
    if path.is_file() {
        Ok(Some(path))
    } else {
        Err(program.to_owned())
    }
}

/// What holds for a program that the kernel starts.
fn native(elf: Elf, search: &Search, script: bool) -> Vec<Check> {
    let shown = elf.path.display().to_string();
    if let Some(problem) = out_of_reach(&elf, &shown) {
        return vec![problem];
    }
    let mut checks = vec![Check::ok(
        "program",
        format!("{shown} is a dynamically linked program of this machine's kind"),
    )];
    checks.extend(privileges(&elf.path));
    let python = elf
        .path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("python"));
    if python {
        checks.push(Check::note(
            "Python",
            "modules bring CUDA in as they are imported (PyTorch, CuPy, Triton), which is seen then",
        ));
    }
    let debug = (!script && !python).then(|| debug_info(&elf.path, &shown));
    checks.extend(loaded(&search.load(elf), script || python));
    checks.extend(debug);
    checks
}

/// Why no library can be preloaded into it.
fn out_of_reach(elf: &Elf, shown: &str) -> Option<Check> {
    let problem = |what: String| Check::problem("program", what);
    if elf.bits == 32 {
        return Some(
            problem(format!(
                "{shown} is a 32-bit program, and the preload library is for 64 bits"
            ))
            .remedy("build it for 64 bits; CUDA has had no 32-bit runtime since 12.0"),
        );
    }
    if elf.machine != own_machine() {
        let name = match elf.machine {
            62 => "x86-64".to_owned(),
            183 => "AArch64".to_owned(),
            243 => "RISC-V".to_owned(),
            21 => "POWER".to_owned(),
            other => format!("machine {other}"),
        };
        return Some(
            problem(format!(
                "{shown} is for {name}, and this machine is {}",
                env::consts::ARCH
            ))
            .remedy(format!("build it for {}", env::consts::ARCH)),
        );
    }
    let Some(interpreter) = &elf.interpreter else {
        let what = if elf.executable {
            format!("{shown} is statically linked, so it ignores LD_PRELOAD")
        } else {
            format!("{shown} is an ELF file, but no program that can be started")
        };
        return Some(problem(what).remedy(STATIC));
    };
    let name = interpreter.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    if name.starts_with("ld-musl") {
        return Some(
            problem(format!(
                "{shown} uses musl ({}), and the preload library is for glibc",
                interpreter.display()
            ))
            .remedy("build and run it on a system with glibc (Debian, Ubuntu, Red Hat)"),
        );
    }
    if !interpreter.exists() {
        return Some(
            problem(format!(
                "{shown} cannot start: its loader {} is not there",
                interpreter.display()
            ))
            .remedy("run it on the system that it was built for, or in its container"),
        );
    }
    if !name.starts_with("ld-linux") && !name.starts_with("ld.so") && !name.starts_with("ld64") {
        return Some(
            Check::note(
                "program",
                format!(
                    "{shown} is loaded by {}, which is not glibc's; whether it heeds LD_PRELOAD \
                     is not known",
                    interpreter.display()
                ),
            )
            .remedy("see whether `streamcheck run` ends with exit code 67"),
        );
    }
    None
}

/// Rights that the file gives, for which the loader leaves libraries out that are preloaded
/// by path.
fn privileges(path: &Path) -> Option<Check> {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2010;
    let about = fs::metadata(path).ok()?;
    let gives_user = about.mode() & SET_USER != 0;
    // Without the group's right to execute, the bit means something else.
    let gives_group = about.mode() & SET_GROUP == SET_GROUP;
    let capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..])
        .is_ok_and(|length| length > 0);
    let what = match (gives_user, gives_group, capabilities) {
        (true, _, _) => "is set-user-ID",
        (_, true, _) => "is set-group-ID",
        (_, _, true) => "has file capabilities",
        _ => return None,
    };
    let shown = path.display();
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    let other = gives_user && about.uid() != user
        || gives_group && about.gid() != group
        || capabilities && user != 0;
    Some(if other {
        Check::problem(
            "privileges",
            format!("{shown} {what}, so the loader ignores LD_PRELOAD"),
        )
        .remedy("check a copy without that (`cp` takes it away), as the user whose rights it needs")
    } else {
        Check::note(
            "privileges",
            format!("{shown} {what}: another user's runs would ignore LD_PRELOAD, yours do not"),
        )
    })
}

/// What holds for a program with its libraries, or for a library with its own.
fn loaded(loaded: &Loaded, brings_in_more: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    for (name, by) in loaded.missing() {
        if name.starts_with("libcuda.so") {
            // The driver has its own line.
            continue;
        }
        checks.push(
            Check::problem(
                "libraries",
                format!("{name}, which {} needs, is not found", by.display()),
            )
            .remedy("install it, or name its folder in LD_LIBRARY_PATH"),
        );
    }
    for (version, provider, by) in loaded.lacking() {
        checks.push(
            Check::problem(
                "libraries",
                format!(
                    "{} lacks version {version}, which {} needs",
                    provider.display(),
                    by.display()
                ),
            )
            .remedy("put the release that it was built with first in LD_LIBRARY_PATH"),
        );
    }
    if checks.is_empty() {
        checks.push(Check::ok(
            "libraries",
            format!(
                "all {} are found, with the symbol versions that are needed",
                loaded.objects.len() - 1
            ),
        ));
    }
    checks.extend(sanitizers(loaded));
    checks.extend(cuda::examine(loaded, brings_in_more));
    let php = loaded.files().find(|file| {
        let name = file.name();
        name.starts_with("libphp") || name == "php" || name.starts_with("php-")
    });
    if let Some(php) = php {
        checks.push(
            Check::note(
                "RTLD_DEEPBIND",
                format!(
                    "{} loads extensions with RTLD_DEEPBIND: such a library finds its own CUDA \
                     runtime before the preload library, and its calls go unseen",
                    php.path.display()
                ),
            )
            .remedy("call CUDA from a program of its own, or link the runtime statically"),
        );
    }
    checks
}

/// AddressSanitizer's own library refuses to come second.
fn sanitizers(loaded: &Loaded) -> Option<Check> {
    let asan = loaded.files().find(|file| {
        file.name().starts_with("libasan.so") || file.name().starts_with("libclang_rt.asan")
    })?;
    let options = env::var("ASAN_OPTIONS").unwrap_or_default();
    let told = ["0", "false", "no"]
        .iter()
        .any(|no| options.contains(&format!("verify_asan_link_order={no}")));
    Some(if told {
        Check::ok(
            "sanitizer",
            "AddressSanitizer is told to bear a preloaded library (ASAN_OPTIONS)",
        )
    } else {
        Check::problem(
            "sanitizer",
            format!(
                "AddressSanitizer ({}) ends the program when a library is preloaded",
                asan.path.display()
            ),
        )
        .remedy(
            "set ASAN_OPTIONS=verify_asan_link_order=0:protect_shadow_gap=0, or build without it",
        )
    })
}

fn debug_info(path: &Path, shown: &str) -> Check {
    let about = "debug info";
    let Some(info) = DebugInfo::of(path) else {
        return Check::note(about, format!("that of {shown} cannot be read"));
    };
    match &info.lines {
        Some(file) if file == path => {
            return Check::ok(about, format!("{shown} has it: findings show source lines"));
        }
        Some(file) => {
            return Check::ok(
                about,
                format!("{} has it: findings show source lines", file.display()),
            );
        }
        None => {}
    }
    let missing = |what: String, remedy: String| Check::note(about, what).remedy(remedy);
    if let Some(link) = &info.link {
        let id = info
            .build_id
            .as_ref()
            .map_or_else(String::new, |id| format!(" (build id {id})"));
        return missing(
            format!("{shown} keeps it in {link}{id}, which is not found; findings show no lines"),
            format!(
                "put {link} beside the program, or install its -dbg or -debuginfo package, or \
                 fetch it with `debuginfod-find debuginfo {shown}`"
            ),
        );
    }
    let names = if info.symbols {
        "findings name functions, but no lines"
    } else {
        "it is stripped: findings name exported functions, or offsets"
    };
    missing(
        format!("{shown} has none; {names}"),
        "compile with -g (for nvcc too: -g is for host code), and do not strip".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_run_by_what_its_first_line_names() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("s");
        let run_by = |line: &str| {
            fs::write(&script, line).unwrap();
            interpreter(&script).map(|found| {
                found.map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            })
        };
        let sh = || Ok(Some("sh".to_owned()));
        assert_eq!(run_by("#!/bin/sh\n"), sh());
        assert_eq!(run_by("#! /bin/sh -e\nexit"), sh());
        assert_eq!(run_by("#!/usr/bin/env sh"), sh());
        assert_eq!(run_by("#!/usr/bin/env -S A=1 sh -e\n"), sh());
        assert_eq!(run_by("#!/no/such\n"), Err("/no/such".to_owned()));
        assert_eq!(
            run_by("#!/usr/bin/env no-such\n"),
            Err("no-such".to_owned())
        );
        assert_eq!(run_by("#!\n"), Ok(None));
        assert_eq!(run_by("text"), Ok(None));
    }
}
