//! The modules of a process.

use std::fs;

use super::elf;

/// A stretch of a process's code that comes from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// Where `start` is in the file.
    pub offset: u64,
    /// The file's path.
    pub path: String,
    /// The build id as hexadecimal digits. A file with another one is not believed.
    pub build_id: Option<String>,
}

/// What the kernel puts behind the path of a file that has been replaced since.
const DELETED: &str = " (deleted)";

impl Module {
    /// The path without the kernel's remark that the file is gone.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.strip_suffix(DELETED).unwrap_or(&self.path)
    }

    /// Whether the file at the path may be the one that was loaded.
    pub(super) fn is_file(&self) -> bool {
        self.path.starts_with('/') && !self.path.ends_with(DELETED)
    }
}

/// The executable mappings of the running process, without build ids.
#[must_use]
pub fn modules_of_this_process() -> Vec<Module> {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    parse(&String::from_utf8_lossy(&maps))
}

/// Reads the build ids of the modules' files, so that another machine can tell whether
/// its files are the same ones. Opens every file once.
pub fn fill_build_ids(modules: &mut [Module]) {
    let mut known = std::collections::HashMap::new();
    for module in modules {
        if module.is_file() {
            module.build_id = known
                .entry(module.path.clone())
                .or_insert_with(|| elf::build_id(module.path.as_ref()))
                .clone();
        }
    }
}

/// Takes the executable, named mappings out of the text of `/proc/PID/maps`.
fn parse(maps: &str) -> Vec<Module> {
    maps.lines().filter_map(module).collect()
}

/// `start-end perms offset device inode   path`.
fn module(line: &str) -> Option<Module> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ')?;
        rest = after;
        Some(field)
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?;
    let offset = field()?;
    let (_device, _inode) = (field()?, field()?);
    let path = rest.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    (permissions.contains('x') && !path.is_empty()).then_some(())?;
    Some(Module {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        path: path.to_owned(),
        build_id: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_modules() {
        let maps = "\
55d0aa000000-55d0aa010000 r--p 00000000 08:01 42       /opt/my app/train
55d0aa010000-55d0aa020000 r-xp 00010000 08:01 42       /opt/my app/train
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000001000-7f0000002000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00002000 08:01 43 /lib/libx.so (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
nonsense
";
        let modules = parse(maps);
        let names: Vec<_> = modules.iter().map(Module::name).collect();
        assert_eq!(names, ["/opt/my app/train", "/lib/libx.so", "[vdso]"]);
        assert_eq!(modules[0].start, 0x55d0_aa01_0000);
        assert_eq!(modules[0].end, 0x55d0_aa02_0000);
        assert_eq!(modules[0].offset, 0x1_0000);
        let files: Vec<_> = modules.iter().map(Module::is_file).collect();
        assert_eq!(files, [true, false, false]);
    }
}
