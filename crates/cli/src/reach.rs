//! Why the preload library does not get into a program, by looking at its file.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};

/// What is read of a program: its headers and its loader's name stand at the beginning.
const HEAD: u64 = 1 << 20;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// Completes «the program …», with the remedy, if the program's file shows why.
pub(crate) fn obstacle(program: &OsStr) -> Option<String> {
    let path = find(program, env::var_os("PATH").as_deref())?;
    let about = fs::metadata(&path).ok()?;
    let ours = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    set_id(about.mode(), (about.uid(), about.gid()), ours).or_else(|| {
        let mut head = Vec::new();
        File::open(&path)
            .ok()?
            .take(HEAD)
            .read_to_end(&mut head)
            .ok()?;
        loader(&head)
    })
}

/// The program's file, found as a shell does.
fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    env::split_paths(path?)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// A program that runs with other rights than its caller's.
fn set_id(mode: u32, owner: (u32, u32), ours: (u32, u32)) -> Option<String> {
    let what = if mode & SET_USER_ID != 0 && owner.0 != ours.0 {
        "set-user-ID"
    } else if mode & SET_GROUP_ID != 0 && owner.1 != ours.1 {
        "set-group-ID"
    } else {
        return None;
    };
    Some(format!(
        "is {what}, and for such programs the loader ignores LD_PRELOAD; check a copy without that bit"
    ))
}

/// A program that glibc's loader does not load.
fn loader(head: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(head).ok()?;
    let endian = header.endian().ok()?;
    let name = header
        .program_headers(endian, head)
        .ok()?
        .iter()
        .find_map(|segment| segment.interpreter(endian, head).ok()?);
    match name.map(|name| Path::new(OsStr::from_bytes(name))) {
        None => Some(
            "is statically linked, so it loads no library and ignores LD_PRELOAD; \
             link it dynamically"
                .to_owned(),
        ),
        Some(name) if !is_glibcs(name) => Some(format!(
            "is loaded by {}, which is not glibc's; build it for glibc",
            name.display()
        )),
        Some(_) => None,
    }
}

/// `ld-linux-x86-64.so.2`, `ld64.so.1` and their like; musl's is `ld-musl-x86_64.so.1`.
fn is_glibcs(loader: &Path) -> bool {
    let name = loader.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-linux") || name.starts_with("ld64.") || name.starts_with("ld-2.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_peoples_rights_count() {
        let said = |mode, owner| set_id(mode, owner, (1000, 1000)).unwrap_or_default();
        assert!(said(0o4755, (0, 0)).starts_with("is set-user-ID"));
        assert!(said(0o2755, (0, 0)).starts_with("is set-group-ID"));
        for (mode, owner) in [(0o755, (0, 0)), (0o4755, (1000, 0)), (0o2755, (0, 1000))] {
            assert_eq!(said(mode, owner), "");
        }
    }

    #[test]
    fn this_test_is_loaded_by_glibc() {
        let head = fs::read("/proc/self/exe").unwrap();
        assert_eq!(loader(&head), None);
        assert_eq!(loader(b"#!/bin/sh\n"), None);
        assert!(is_glibcs(Path::new("/lib64/ld-linux-x86-64.so.2")));
        assert!(!is_glibcs(Path::new("/lib/ld-musl-x86_64.so.1")));
    }

    #[test]
    fn another_loader_is_named() {
        let mut head = fs::read("/proc/self/exe").unwrap();
        let name = b"/ld-linux-x86-64";
        let place = head
            .windows(name.len())
            .position(|bytes| bytes == name)
            .unwrap();
        head[place..place + name.len()].copy_from_slice(b"/ld-musl--x86-64");
        let said = loader(&head).unwrap();
        assert!(
            said.contains("ld-musl--x86-64.so.2, which is not glibc's"),
            "{said}"
        );
    }

    #[test]
    fn programs_are_found_on_the_path() {
        let path = OsStr::new("/nowhere:/bin");
        assert_eq!(find(OsStr::new("sh"), Some(path)), Some("/bin/sh".into()));
        assert_eq!(find(OsStr::new("./a"), None), Some("./a".into()));
        assert_eq!(find(OsStr::new("no-such-program"), Some(path)), None);
    }
}
