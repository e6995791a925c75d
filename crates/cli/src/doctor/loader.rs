//! The libraries that a program is loaded with, found as the dynamic loader finds them:
//! `ld.so(8)`. Only files are read; nothing of the program runs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::elf::Elf;

/// No program has more.
const MOST_OBJECTS: usize = 4096;

/// Where the loader's index of libraries is.
const CACHE: &str = "/etc/ld.so.cache";

/// Begins the index, in the form that glibc has had since 2.2.
const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";

/// Where the loader searches.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// `LD_LIBRARY_PATH`.
    given: Vec<PathBuf>,
    /// The index: paths by name, best first.
    index: HashMap<String, Vec<PathBuf>>,
    /// Where it looks last.
    usual: Vec<PathBuf>,
}

impl Search {
    /// That of this machine and environment.
    pub(crate) fn here() -> Self {
        let given = env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let arch = env::consts::ARCH;
        Self {
            given: folders(&given),
            index: fs::read(CACHE).map_or_else(|_| HashMap::new(), |bytes| index(&bytes)),
            usual: [
                format!("/lib/{arch}-linux-gnu"),
                format!("/usr/lib/{arch}-linux-gnu"),
                "/lib64".to_owned(),
                "/usr/lib64".to_owned(),
                "/lib".to_owned(),
                "/usr/lib".to_owned(),
            ]
            .map(PathBuf::from)
            .to_vec(),
        }
    }

    /// The library that `dlopen` of `name` would find from a program of this machine.
    pub(crate) fn find(&self, name: &str) -> Option<Elf> {
        let places = self.given.iter().map(|folder| folder.join(name));
        self.first(places.chain(self.installed(name)), own_machine())
    }

    fn installed(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let indexed = self.index.get(name).into_iter().flatten().cloned();
        indexed.chain(self.usual.iter().map(move |folder| folder.join(name)))
    }

    /// The first of the files that a program of this machine can be loaded with.
    fn first(&self, files: impl Iterator<Item = PathBuf>, machine: u16) -> Option<Elf> {
        files
            .filter_map(|file| Elf::read(&file).ok())
            .find(|found| found.bits == 64 && found.machine == machine)
    }

    /// A library that one object of a program names.
    fn needed(&self, name: &str, loaded: &[Object], by: usize) -> Option<Elf> {
        let machine = loaded.first().map_or(0, |main| main.elf.machine);
        if name.contains('/') {
            let path = expand(name, &loaded[by].elf.path);
            return self.first(std::iter::once(PathBuf::from(path)), machine);
        }
        let asking = &loaded[by].elf;
        let mut places = Vec::new();
        if asking.runpath.is_none() {
            // The older kind counts for what the named libraries name, too.
            let mut object = Some(by);
            while let Some(place) = object {
                let Object { elf, by, .. } = &loaded[place];
                if let (Some(rpath), None) = (&elf.rpath, &elf.runpath) {
                    places.extend(folders(&expand(rpath, &elf.path)));
                }
                object = *by;
            }
        }
        places.extend(self.given.iter().cloned());
        if let Some(runpath) = &asking.runpath {
            places.extend(folders(&expand(runpath, &asking.path)));
        }
        let files = places.into_iter().map(|folder| folder.join(name));
        self.first(files.chain(self.installed(name)), machine)
    }

    /// All that a program is loaded with, itself first.
    pub(crate) fn load(&self, main: Elf) -> Loaded {
        let mut loaded = Loaded {
            objects: vec![Object {
                elf: main,
                by: None,
            }],
            missing: Vec::new(),
        };
        let mut known: HashSet<String> = HashSet::new();
        let mut queue = VecDeque::from([0]);
        while let Some(by) = queue.pop_front() {
            for name in loaded.objects[by].elf.needed.clone() {
                if !known.insert(name.clone()) || loaded.objects.len() >= MOST_OBJECTS {
                    continue;
                }
                match self.needed(&name, &loaded.objects, by) {
                    Some(elf) => {
                        known.extend(elf.soname.clone());
                        queue.push_back(loaded.objects.len());
                        loaded.objects.push(Object { elf, by: Some(by) });
                    }
                    None => loaded.missing.push((name, by)),
                }
            }
        }
        loaded
    }
}

/// One file of a program.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) elf: Elf,
    /// Which one names it; `None` for the program.
    by: Option<usize>,
}

/// A program with its libraries.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The program first.
    pub(crate) objects: Vec<Object>,
    /// Libraries that are not found, with the number of the object that names each.
    missing: Vec<(String, usize)>,
}

impl Loaded {
    /// The files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Elf> {
        self.objects.iter().map(|object| &object.elf)
    }

    /// Libraries that are not found, and the file that names each.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.missing
            .iter()
            .map(|(name, by)| (name.as_str(), self.objects[*by].elf.path.as_path()))
    }

    /// Symbol versions that a library of the program lacks: the version, the library and
    /// the file that needs it.
    pub(crate) fn lacking(&self) -> Vec<(&str, &Path, &Path)> {
        let mut lacking = Vec::new();
        for file in self.files() {
            for (name, version) in &file.needs {
                let provider = self.files().find(|file| file.name() == *name);
                if let Some(provider) = provider
                    && !provider.defines.is_empty()
                    && !provider.defines.contains(version)
                {
                    lacking.push((version.as_str(), &*provider.path, &*file.path));
                }
            }
        }
        lacking
    }
}

/// This machine's number in ELF.
pub(crate) fn own_machine() -> u16 {
    match env::consts::ARCH {
        "aarch64" => 183,
        _ => 62,
    }
}

/// A list of folders; an empty one is the working directory.
fn folders(list: &str) -> Vec<PathBuf> {
    if list.is_empty() {
        return Vec::new();
    }
    list.split([':', ';'])
        .map(|folder| PathBuf::from(if folder.is_empty() { "." } else { folder }))
        .collect()
}

/// Puts in what the loader does for `$ORIGIN`, `$LIB` and `$PLATFORM`.
fn expand(text: &str, object: &Path) -> String {
    let real = fs::canonicalize(object).unwrap_or_else(|_| object.to_owned());
    let origin = real.parent().map(Path::to_string_lossy).unwrap_or_default();
    let debian = format!("lib/{}-linux-gnu", env::consts::ARCH);
    let lib = if Path::new("/").join(&debian).is_dir() {
        &debian
    } else {
        "lib64"
    };
    let mut text = text.to_owned();
    for (name, value) in [
        ("ORIGIN", &*origin),
        ("LIB", lib),
        ("PLATFORM", env::consts::ARCH),
    ] {
        text = text
            .replace(&format!("${{{name}}}"), value)
            .replace(&format!("${name}"), value);
    }
    text
}

/// Reads the loader's index: entries of 24 bytes behind a header of 48, with offsets of
/// names and paths from its beginning.
fn index(bytes: &[u8]) -> HashMap<String, Vec<PathBuf>> {
    let mut found: HashMap<String, Vec<PathBuf>> = HashMap::new();
    // It may come behind one in an older form.
    let Some(start) = bytes
        .windows(CACHE_MAGIC.len())
        .position(|window| window == CACHE_MAGIC)
    else {
        return found;
    };
    let bytes = &bytes[start..];
    let number = |at: usize| -> Option<usize> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes) as usize)
    };
    let text = |at: usize| -> Option<&str> {
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    };
    let count = number(CACHE_MAGIC.len()).unwrap_or(0);
    for entry in bytes
        .get(48..)
        .unwrap_or_default()
        .chunks_exact(24)
        .take(count)
        .enumerate()
        .map(|(place, _)| 48 + place * 24)
    {
        let name = number(entry + 4).and_then(text);
        let path = number(entry + 8).and_then(text);
        if let (Some(name), Some(path)) = (name, path) {
            let paths = found.entry(name.to_owned()).or_default();
            paths.push(PathBuf::from(path));
        }
    }
    found
}

/// A program by its name, as a shell finds it.
pub(crate) fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file() && can_execute(file))
}

/// Whether this user may execute the file.
pub(crate) fn can_execute(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::*;

    /// The loader itself says what it loads; only for programs that may be trusted.
    fn told_by_the_loader(program: &Path) -> BTreeSet<PathBuf> {
        let output = Command::new(program)
            .env("LD_TRACE_LOADED_OBJECTS", "1")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| {
                let path = line.split("=> ").nth(1)?.split(" (").next()?;
                fs::canonicalize(path).ok()
            })
            .collect()
    }

    #[test]
    fn libraries_are_those_that_the_loader_loads() {
        let search = Search::here();
        let own = env::current_exe().unwrap();
        let mut compared = 0;
        for program in ["sh", "ls", "git", "cc", "python3"] {
            let Some(program) = in_path(OsStr::new(program)) else {
                continue;
            };
            let Ok(main) = Elf::read(&program) else {
                continue;
            };
            let loaded = search.load(main);
            assert_eq!(loaded.missing().count(), 0, "{program:?}");
            assert_eq!(loaded.lacking(), [], "{program:?}");
            let found: BTreeSet<_> = loaded
                .files()
                .skip(1)
                .filter(|file| !file.name().starts_with("ld-linux"))
                .filter_map(|file| fs::canonicalize(&file.path).ok())
                .collect();
            assert_eq!(found, told_by_the_loader(&program), "{program:?}");
            compared += found.len();
        }
        assert!(compared > 3, "of {own:?}'s system");
    }

    /// A program that names `libone.so`, which names `libtwo.so`.
    fn chain(folder: &Path, first: &str, second: &str) -> Elf {
        let cc = |arguments: &[&str]| {
            let output = Command::new("cc")
                .args(arguments)
                .current_dir(folder)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        fs::create_dir_all(folder.join("one")).unwrap();
        fs::create_dir_all(folder.join("two")).unwrap();
        fs::write(folder.join("two.c"), "int two(void){return 2;}").unwrap();
        fs::write(
            folder.join("one.c"),
            "int two(void);int one(void){return two();}",
        )
        .unwrap();
        fs::write(
            folder.join("main.c"),
            "int one(void);int main(void){return one();}",
        )
        .unwrap();
        cc(&["-shared", "-fPIC", "-o", "two/libtwo.so", "two.c"]);
        let mut one = vec!["-shared", "-fPIC", "-o", "one/libone.so", "one.c", "-Ltwo"];
        one.extend(
            ["-ltwo"]
                .iter()
                .chain((!second.is_empty()).then_some(&second)),
        );
        cc(&one);
        let mut main = vec![
            "-o",
            "main",
            "main.c",
            "-Lone",
            "-lone",
            "-Wl,-rpath-link,two",
        ];
        main.extend((!first.is_empty()).then_some(first));
        cc(&main);
        Elf::read(&folder.join("main")).unwrap()
    }

    #[test]
    fn folders_that_files_name_are_searched() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let search = Search {
            given: Vec::new(),
            ..Search::here()
        };
        let missing = |main: Elf, search: &Search| {
            let loaded = search.load(main);
            loaded
                .missing()
                .map(|(name, _)| name.to_owned())
                .collect::<Vec<_>>()
        };
        let new = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/one";
        let old = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/one:${ORIGIN}/two";
        let second = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../two";
        assert_eq!(missing(chain(&folder, "", ""), &search), ["libone.so"]);
        assert_eq!(missing(chain(&folder, new, ""), &search), ["libtwo.so"]);
        assert!(missing(chain(&folder, new, second), &search).is_empty());
        assert!(missing(chain(&folder, old, ""), &search).is_empty());
        let given = Search {
            given: vec![folder.join("one"), folder.join("two")],
            ..Search::here()
        };
        assert!(missing(chain(&folder, "", ""), &given).is_empty());
    }

    #[test]
    fn an_index_in_any_state_is_read_as_far_as_it_goes() {
        let mut bytes = CACHE_MAGIC.to_vec();
        bytes.extend(1_u32.to_ne_bytes());
        bytes.resize(48, 0);
        bytes.extend([3, 0, 0, 0]);
        bytes.extend(72_u32.to_ne_bytes());
        bytes.extend(80_u32.to_ne_bytes());
        bytes.resize(72, 0);
        bytes.extend(b"libx.so\0/l/libx.so\0");
        assert_eq!(index(&bytes)["libx.so"], [PathBuf::from("/l/libx.so")]);
        for end in 0..bytes.len() {
            assert!(index(&bytes[..end]).len() <= 1);
        }
        assert!(index(b"").is_empty());
    }
}
