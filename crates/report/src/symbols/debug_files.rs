//! Debug information kept in files of its own.
//!
//! Distributions strip their libraries and name the stripped part in two ways: by
//! build id, and by a link with a checksum. What a name leads to is believed only if it
//! carries the same build id, or has that checksum. The places are those of gdb, and the
//! files that a debuginfod client has fetched before; nothing is fetched.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use object::Object;
use object::read::ReadRef;

use super::elf;

/// Where distributions install debug files.
const ROOT: &str = "/usr/lib/debug";

/// No environment is larger.
const LARGEST_ENVIRONMENT: u64 = 8 << 20;

/// Where debug files may be.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Installed ones, by build id and by the stripped file's folder.
    pub(super) root: PathBuf,
    /// What a debuginfod client keeps, by build id.
    pub(super) caches: Vec<PathBuf>,
}

impl Places {
    /// Those of this machine and user.
    pub(super) fn of_this_machine() -> Self {
        // The environment as the process got it: another thread of the application may
        // be changing the one in memory, which nobody can read safely then.
        let mut environment = Vec::new();
        if let Ok(file) = File::open("/proc/self/environ") {
            // As much of it as can be read.
            drop(file.take(LARGEST_ENVIRONMENT).read_to_end(&mut environment));
        }
        Self {
            root: PathBuf::from(ROOT),
            caches: caches(&environment),
        }
    }

    /// The file of that build id.
    fn by_build_id(&self, id: &[u8]) -> Option<PathBuf> {
        // A shorter one names nothing.
        let (first, rest) = id.split_at_checked(1).filter(|(_, rest)| rest.len() > 1)?;
        let digits = hex(id);
        let installed = self
            .root
            .join(".build-id")
            .join(hex(first))
            .join(format!("{}.debug", hex(rest)));
        let fetched = self
            .caches
            .iter()
            .map(|cache| cache.join(&digits).join("debuginfo"));
        std::iter::once(installed)
            .chain(fetched)
            .find(|file| elf::build_id(file).as_deref() == Some(&digits))
    }
}

/// Where a debuginfod client keeps files, by `NAME=VALUE` pairs that end with NULs.
fn caches(environment: &[u8]) -> Vec<PathBuf> {
    let folder = |name: &str| -> Option<PathBuf> {
        let value = environment.split(|&byte| byte == 0).find_map(|pair| {
            pair.strip_prefix(name.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"="))
        })?;
        let path = PathBuf::from(OsString::from_vec(value.to_vec()));
        path.is_absolute().then_some(path)
    };
    if let Some(given) = folder("DEBUGINFOD_CACHE_PATH") {
        return vec![given];
    }
    let home = folder("HOME");
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
    let usual = cache.map(|cache| cache.join("debuginfod_client"));
    let old = home.map(|home| home.join(".debuginfod_client_cache"));
    usual.into_iter().chain(old).collect()
}

/// A file's build id as hexadecimal digits.
pub(super) fn build_id<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
) -> Option<String> {
    object.build_id().ok().flatten().map(hex)
}

/// The name of the debug file that a stripped file links to.
pub(super) fn link<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> Option<String> {
    let (name, _) = object.gnu_debuglink().ok().flatten()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The debug file of a stripped file at `path`.
pub(super) fn separate<'data, R: ReadRef<'data>>(
    path: &Path,
    object: &object::File<'data, R>,
    places: &Places,
) -> Option<PathBuf> {
    let by_id = object
        .build_id()
        .ok()
        .flatten()
        .and_then(|id| places.by_build_id(id));
    if by_id.is_some() {
        return by_id;
    }
    let (name, checksum) = object.gnu_debuglink().ok().flatten()?;
    let name = Path::new(OsStr::from_bytes(name));
    // A link names a file, not a path out of the places searched.
    if name.components().count() != 1 || name.file_name().is_none() {
        return None;
    }
    let path = fs::canonicalize(path).ok()?;
    let directory = path.parent()?;
    let installed = places.root.join(directory.strip_prefix("/").ok()?);
    [directory.to_owned(), directory.join(".debug"), installed]
        .into_iter()
        .map(|place| place.join(name))
        .find(|file| *file != path && checksum_of(file) == Some(checksum))
}

/// The file of the parts that several debug files share (`dwz`).
pub(super) fn shared<'data, R: ReadRef<'data>>(
    path: &Path,
    object: &object::File<'data, R>,
    places: &Places,
) -> Option<PathBuf> {
    let (name, id) = object.gnu_debugaltlink().ok().flatten()?;
    // The name is relative to where the file really is, not to a link to it.
    let path = fs::canonicalize(path).ok()?;
    let named = path.parent()?.join(OsStr::from_bytes(name));
    if elf::build_id(&named).is_some_and(|found| found == hex(id)) {
        return Some(named);
    }
    places.by_build_id(id)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The CRC-32 of a file, which `.gnu_debuglink` carries.
fn checksum_of(path: &Path) -> Option<u32> {
    let about = fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > elf::LARGEST_MAPPED {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let mut checksum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(checksum.finalize()),
            length => checksum.update(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::tests::{call_in_outer, compile, functions};
    use super::super::{DebugInfo, Frame, Module, Symbolizer};
    use super::*;

    const ID: &str = "0123456789abcdef0011";

    /// A folder that programs are compiled in, with places of its own below it.
    struct Bench {
        folder: tempfile::TempDir,
    }

    impl Bench {
        /// With the program `s`, and `s.debug`, which has its debug information alone.
        fn new(arguments: &[&str]) -> Self {
            let bench = Self {
                folder: tempfile::tempdir().unwrap(),
            };
            compile(bench.folder.path(), arguments);
            bench.objcopy(&["--only-keep-debug", "s", "s.debug"]);
            bench
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn run(&self, program: &str, arguments: &[&str]) {
            let status = Command::new(program)
                .args(arguments)
                .current_dir(&self.folder)
                .status();
            assert!(status.unwrap().success(), "{program} {arguments:?}");
        }

        fn objcopy(&self, arguments: &[&str]) {
            self.run("objcopy", arguments);
        }

        fn rename(&self, from: &str, to: &str) {
            fs::create_dir_all(self.path(to).parent().unwrap()).unwrap();
            fs::rename(self.path(from), self.path(to)).unwrap();
        }

        fn places(&self) -> Places {
            Places {
                root: self.path("root"),
                caches: vec![self.path("cache")],
            }
        }

        /// The frames of the call in `outer` of `program`, which is at `offset` of it.
        fn frames(&self, program: &str, offset: u64) -> Vec<Frame> {
            let module = Module {
                start: 0x1000,
                end: 0x10_0000,
                offset: 0,
                path: self.path(program).display().to_string(),
                build_id: None,
            };
            let mut symbolizer = Symbolizer::new(vec![module]);
            symbolizer.places = Some(self.places());
            symbolizer.frames(&[0x1000 + offset])
        }
    }

    fn id_argument(id: &str) -> String {
        format!("-Wl,--build-id=0x{id}")
    }

    #[test]
    fn a_debug_file_is_found_by_build_id_and_must_have_it() {
        for place in [
            "root/.build-id/01/23456789abcdef0011.debug",
            "cache/0123456789abcdef0011/debuginfo",
        ] {
            let bench = Bench::new(&["-g", &id_argument(ID)]);
            let (_, offset) = call_in_outer(&bench.path("s"));
            bench.objcopy(&["--strip-all", "s"]);
            assert_eq!(functions(&bench.frames("s", offset)), ["?"]);
            bench.rename("s.debug", place);
            let frames = bench.frames("s", offset);
            assert_eq!(functions(&frames), ["inlined", "outer"], "{place}");
            assert_eq!(frames[1].line, Some(6));

            let other = Bench::new(&["-g", &id_argument("ff23456789abcdef0011")]);
            fs::copy(other.path("s.debug"), bench.path(place)).unwrap();
            assert_eq!(functions(&bench.frames("s", offset)), ["?"], "{place}");
            fs::write(bench.path(place), "").unwrap();
            assert_eq!(functions(&bench.frames("s", offset)), ["?"], "{place}");
        }
    }

    #[test]
    fn a_linked_debug_file_is_beside_below_or_installed() {
        let bench = Bench::new(&["-g", "-Wl,--build-id=none"]);
        let (_, offset) = call_in_outer(&bench.path("s"));
        bench.objcopy(&["--strip-all", "--add-gnu-debuglink=s.debug", "s"]);
        let real = bench.folder.path().canonicalize().unwrap();
        let installed = format!("root{}/s.debug", real.display());
        let mut before = "s.debug";
        for place in ["s.debug", ".debug/s.debug", &installed] {
            if place != before {
                bench.rename(before, place);
            }
            before = place;
            let frames = bench.frames("s", offset);
            assert_eq!(functions(&frames), ["inlined", "outer"], "{place}");
            let info = DebugInfo::within(&bench.path("s"), &bench.places()).unwrap();
            assert_eq!(info.lines, Some(real.join(place)));
            assert_eq!(info.link.as_deref(), Some("s.debug"));
            assert!(info.symbols);
        }
        fs::remove_file(bench.path(before)).unwrap();
        let info = DebugInfo::within(&bench.path("s"), &bench.places()).unwrap();
        assert_eq!((info.lines, info.symbols), (None, false));
    }

    #[test]
    fn compressed_debug_files_are_read() {
        for how in ["zlib", "zlib-gnu", "zstd"] {
            let bench = Bench::new(&["-g", "-Wl,--build-id=none"]);
            let (_, offset) = call_in_outer(&bench.path("s"));
            let option = format!("--compress-debug-sections={how}");
            let packed = Command::new("objcopy")
                .args([&option, "s.debug"])
                .current_dir(&bench.folder)
                .output()
                .unwrap();
            if how == "zstd" && !packed.status.success() {
                // Before binutils 2.40.
                continue;
            }
            assert!(packed.status.success(), "{packed:?}");
            bench.objcopy(&["--strip-all", "--add-gnu-debuglink=s.debug", "s"]);
            let frames = bench.frames("s", offset);
            assert_eq!(functions(&frames), ["inlined", "outer"], "{how}");
        }
    }

    #[test]
    fn shared_parts_are_those_of_the_build_id() {
        let bench = Bench::new(&["-g"]);
        let shared = Bench::new(&["-g", &id_argument(ID)]);
        let mut link = b"parts/common.debug\0".to_vec();
        link.extend([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 0x11]);
        fs::write(bench.path("link"), link).unwrap();
        bench.objcopy(&["--add-section", ".gnu_debugaltlink=link", "s"]);
        let found = || {
            let data = fs::read(bench.path("s")).unwrap();
            let object = object::File::parse(&*data).unwrap();
            super::shared(&bench.path("s"), &object, &bench.places())
        };
        assert_eq!(found(), None);
        fs::create_dir(bench.path("parts")).unwrap();
        let named = bench.path("parts/common.debug");
        fs::copy(bench.path("s.debug"), &named).unwrap();
        assert_eq!(found(), None, "another build's");
        fs::copy(shared.path("s.debug"), &named).unwrap();
        assert_eq!(found(), Some(named.canonicalize().unwrap()));
        let installed = "root/.build-id/01/23456789abcdef0011.debug";
        bench.rename("parts/common.debug", installed);
        assert_eq!(found(), Some(bench.path(installed)));
        let (_, offset) = call_in_outer(&bench.path("s"));
        let frames = bench.frames("s", offset);
        assert_eq!(functions(&frames), ["inlined", "outer"]);
    }

    /// Split DWARF leaves names and inlined calls in a file beside the object file.
    #[test]
    fn split_debug_information_is_followed() {
        let bench = Bench::new(&["-g", "-gsplit-dwarf"]);
        let (_, offset) = call_in_outer(&bench.path("s"));
        let frames = bench.frames("s", offset);
        assert_eq!(functions(&frames), ["inlined", "outer"]);
        for file in fs::read_dir(&bench.folder).unwrap().flatten() {
            if file.path().extension() == Some(OsStr::new("dwo")) {
                fs::remove_file(file.path()).unwrap();
            }
        }
        let frames = bench.frames("s", offset);
        assert_eq!(functions(&frames), ["outer"], "from the symbol table");
    }

    /// Whatever is in a file, it gives frames or none, soon.
    #[test]
    fn damaged_files_do_no_harm() {
        let bench = Bench::new(&["-g", "-gdwarf-5", "-Wl,--build-id=none"]);
        let (_, offset) = call_in_outer(&bench.path("s"));
        let whole = fs::read(bench.path("s")).unwrap();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        // Headers and tables, where a bit says most, are at both ends.
        let mut named = 0;
        for round in 0..600 {
            let mut data = whole.clone();
            match round % 3 {
                0 => data.truncate(next(whole.len())),
                1 => {
                    let from = next(whole.len());
                    let to = (from + 1 + next(64)).min(whole.len());
                    data[from..to].fill(if round % 2 == 0 { 0xff } else { 0 });
                }
                _ => {
                    for _ in 0..1 + next(32) {
                        let near_end = next(2) == 0;
                        let bits = 4 + next(12);
                        let reach = next(1 << bits).min(whole.len() - 1);
                        let at = if near_end {
                            whole.len() - 1 - reach
                        } else {
                            reach
                        };
                        data[at] ^= 1 << next(8);
                    }
                }
            }
            fs::write(bench.path("damaged"), &data).unwrap();
            let frames = bench.frames("damaged", offset);
            assert!(!frames.is_empty() && frames[0].module.is_some());
            named += usize::from(frames[0].function.as_deref() == Some("inlined"));
        }
        assert!(named > 50, "most bits are of no consequence: {named}");
    }

    #[test]
    fn checksums_are_the_usual_crc() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x");
        fs::write(&file, "123456789").unwrap();
        assert_eq!(checksum_of(&file), Some(0xcbf4_3926));
        assert_eq!(checksum_of(directory.path()), None);
    }

    #[test]
    fn ids_are_digits() {
        assert_eq!(hex(&[0, 0xab, 0x10]), "00ab10");
        let places = Places {
            root: PathBuf::from("/"),
            caches: vec![PathBuf::from("/")],
        };
        assert_eq!(places.by_build_id(&[]), None);
        assert_eq!(places.by_build_id(&[0xab]), None);
    }

    #[test]
    fn caches_are_where_the_client_of_debuginfod_has_them() {
        let found = |environment: &[u8]| {
            let found = caches(environment);
            found
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found(b"A=1\0HOME=/h\0"),
            ["/h/.cache/debuginfod_client", "/h/.debuginfod_client_cache"]
        );
        assert_eq!(
            found(b"HOME=/h\0XDG_CACHE_HOME=/c\0")[0],
            "/c/debuginfod_client"
        );
        assert_eq!(found(b"DEBUGINFOD_CACHE_PATH=/d\0HOME=/h\0"), ["/d"]);
        assert!(found(b"HOME=relative\0HOMER=/h").is_empty());
        assert!(found(b"").is_empty());
    }
}
