//! From return addresses to functions, files and lines.
//!
//! Modules' files are opened when an address first falls into them. One with DWARF
//! is read through `addr2line`, inlined frames included; one without costs no
//! more than its symbol table, however large its code is.

mod debug_files;
mod demangle;
mod elf;
mod frame;
mod maps;

use std::collections::HashMap;

use debug_files::Places;
pub use elf::DebugInfo;
use elf::Image;
pub use frame::Frame;
pub use maps::{Module, fill_build_ids, modules_of_this_process};
use streamcheck_model::INTERPRETED;

/// Addresses remembered per module before they're forgotten again.
const REMEMBERED: usize = 1 << 16;

/// Frames for one address at most: an address in a module rebuilt by odd tools must
/// not make a stack of thousands.
const INLINED: usize = 32;

/// Resolves the addresses of a process whose modules are known.
#[derive(Default)]
pub struct Symbolizer {
    /// In the order of their addresses.
    modules: Vec<Module>,
    /// By path: several mappings share a file, and a module may come back elsewhere.
    images: HashMap<String, Known>,
    /// Where debug files may be, once they're wanted.
    places: Option<Places>,
}

/// What is known of a file.
struct Known {
    /// `None` if it can't be used.
    image: Option<Image>,
    /// Frames by address in the file.
    frames: HashMap<u64, Vec<Frame>>,
}

impl Symbolizer {
    /// A symbolizer for a process with these modules.
    #[must_use]
    pub fn new(modules: Vec<Module>) -> Self {
        let mut symbolizer = Self::default();
        symbolizer.set_modules(modules);
        symbolizer
    }

    /// Tells it the modules anew, after some were loaded or unloaded.
    pub fn set_modules(&mut self, mut modules: Vec<Module>) {
        modules.sort_by_key(|module| module.start);
        self.modules = modules;
    }

    /// The frames of a stack, innermost first: one or, where calls were inlined, several
    /// for each return address. Every address gives at least one.
    pub fn frames(&mut self, return_addresses: &[u64]) -> Vec<Frame> {
        return_addresses
            .iter()
            .flat_map(|&address| self.frames_of(address))
            .collect()
    }

    /// The same of a stack in which Python frames are: `interpreted` gives those for the
    /// addresses that stand for them.
    pub fn frames_with(
        &mut self,
        addresses: &[u64],
        interpreted: impl Fn(u64) -> Option<Frame>,
    ) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(addresses.len());
        for &address in addresses {
            if address < INTERPRETED {
                frames.append(&mut self.frames_of(address));
            } else {
                frames.extend(interpreted(address));
            }
        }
        frames
    }

    fn frames_of(&mut self, return_address: u64) -> Vec<Frame> {
        // The call is the instruction before the one it returns to, which may
        // already be another line's, or another function's.
        let address = return_address.saturating_sub(1);
        let after = self
            .modules
            .partition_point(|module| module.start <= address);
        let Some(module) = self.modules[..after]
            .last()
            .filter(|module| address < module.end)
        else {
            return vec![Frame {
                offset: Some(address),
                ..Frame::default()
            }];
        };
        let file_offset = (address - module.start).saturating_add(module.offset);
        let places = self.places.get_or_insert_with(Places::of_this_machine);
        let known = self
            .images
            .entry(module.path.clone())
            .or_insert_with(|| Known {
                image: Image::open(module, places),
                frames: HashMap::new(),
            });
        let name = module.name().to_owned();
        let Some(image) = &mut known.image else {
            return vec![Frame {
                module: Some(name),
                offset: Some(file_offset),
                ..Frame::default()
            }];
        };
        let place = image.address_of(file_offset);
        if let Some(frames) = known.frames.get(&place) {
            return frames.clone();
        }
        let mut frames = image.frames(place);
        frames.truncate(INLINED);
        if frames.is_empty() {
            frames.push(Frame::default());
        }
        for frame in &mut frames {
            frame.module = Some(name.clone());
            frame.offset = Some(place);
        }
        if known.frames.len() >= REMEMBERED {
            known.frames.clear();
        }
        known.frames.insert(place, frames.clone());
        frames
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A symbolizer lives behind a lock that any thread may take.
    #[test]
    fn it_may_change_threads() {
        fn send<T: Send>() {}
        send::<Symbolizer>();
    }

    #[test]
    fn interpreted_frames_stand_among_the_native_ones() {
        let frame = |line| Frame::python("f".to_owned(), "/f.py".to_owned(), Some(line));
        let known = |address| (address == INTERPRETED + 1).then(|| frame(1));
        let frames = Symbolizer::default()
            .frames_with(&[0x1234, INTERPRETED + 1, INTERPRETED + 2, 0x5678], known);
        let offsets: Vec<_> = frames.iter().map(|frame| frame.offset).collect();
        assert_eq!(offsets, [Some(0x1233), None, Some(0x5677)]);
        assert_eq!(frames[1], frame(1));
    }

    #[inline(never)]
    fn own_address() -> u64 {
        own_address as *const () as usize as u64 + 1
    }

    #[test]
    fn finds_itself_in_the_running_program() {
        let mut symbolizer = Symbolizer::new(modules_of_this_process());
        let frames = symbolizer.frames(&[own_address(), 16]);
        let function = frames[0].function.as_deref().unwrap();
        assert!(function.contains("own_address"), "{frames:?}");
        assert!(
            frames[0]
                .file
                .as_deref()
                .unwrap()
                .ends_with("symbols/mod.rs")
        );
        assert!(frames[0].line.is_some());
        let last = frames.last().unwrap();
        assert_eq!((last.module.as_deref(), last.offset), (None, Some(15)));
        // The second time is from memory.
        assert_eq!(symbolizer.frames(&[own_address()])[0], frames[0]);
    }

    const SOURCE: &str = "\
__attribute__((noinline)) int leaf(int x) { return x + 1; }
static inline __attribute__((always_inline)) int inlined(int x) {
  return leaf(x) * 2;
}
int outer(int x) {
  return inlined(x) + 3;
}
int main(void) { return outer(1); }
";

    /// Compiles the program above, or says that there is no C compiler here.
    pub(super) fn compile(directory: &Path, arguments: &[&str]) -> std::path::PathBuf {
        let source = directory.join("s.c");
        std::fs::write(&source, SOURCE).unwrap();
        let program = directory.join("s");
        let status = Command::new("cc")
            .args(["-O1", "-fno-optimize-sibling-calls", "-o"])
            .arg(&program)
            .args(arguments)
            .arg(&source)
            .status()
            .expect("a C compiler, which the workspace's tests need");
        assert!(status.success());
        program
    }

    /// Where the call to `leaf` returns to, and where its code is in the file: the
    /// machine code is searched for the one call in `outer`.
    pub(super) fn call_in_outer(program: &Path) -> (u64, u64) {
        use object::{Object, ObjectSegment, ObjectSymbol};
        let data = std::fs::read(program).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let symbol = |name: &str| file.symbols().find(|s| s.name() == Ok(name)).unwrap();
        let (outer, leaf) = (symbol("outer"), symbol("leaf").address());
        let segment = file
            .segments()
            .find(|s| s.address() <= outer.address() && outer.address() < s.address() + s.size())
            .unwrap();
        let shift = segment.address() - segment.file_range().0;
        let start = (outer.address() - shift) as usize;
        let code = &data[start..start + outer.size() as usize];
        let end = (1..=code.len())
            .find(|&end| {
                let next = outer.address() + end as u64;
                if cfg!(target_arch = "x86_64") {
                    end >= 5
                        && code[end - 5] == 0xe8
                        && next.wrapping_add_signed(i64::from(i32::from_le_bytes(
                            code[end - 4..end].try_into().unwrap(),
                        ))) == leaf
                } else {
                    // AArch64: bl, a 26-bit count of words from the call itself.
                    end % 4 == 0 && {
                        let word = u32::from_le_bytes(code[end - 4..end].try_into().unwrap());
                        word >> 26 == 0b10_0101
                            && (next - 4)
                                .wrapping_add_signed(i64::from((word << 6) as i32 >> 6) * 4)
                                == leaf
                    }
                }
            })
            .unwrap();
        (outer.address() + end as u64, (start + end) as u64)
    }

    /// Resolves that call with the program loaded at an odd place.
    fn resolve(program: &Path, build_id: Option<String>) -> (Vec<Frame>, u64) {
        let (address, offset) = call_in_outer(program);
        let module = Module {
            start: 0x5000_0000,
            end: 0x5100_0000,
            offset: 0,
            path: program.display().to_string(),
            build_id,
        };
        let frames = Symbolizer::new(vec![module]).frames(&[0x5000_0000 + offset]);
        (frames, address)
    }

    pub(super) fn functions(frames: &[Frame]) -> Vec<&str> {
        frames
            .iter()
            .map(|frame| frame.function.as_deref().unwrap_or("?"))
            .collect()
    }

    #[test]
    fn inlined_calls_are_frames_of_their_own() {
        for arguments in [
            ["-g", "-pie", "-fPIE"].as_slice(),
            &["-g", "-no-pie", "-fno-PIE"],
            &["-g", "-gdwarf-4", "-gz"],
        ] {
            let directory = tempfile::tempdir().unwrap();
            let program = compile(directory.path(), arguments);
            let (frames, address) = resolve(&program, None);
            assert_eq!(functions(&frames), ["inlined", "outer"], "{arguments:?}");
            let lines: Vec<_> = frames.iter().map(|frame| frame.line).collect();
            assert_eq!(lines, [Some(3), Some(6)], "{arguments:?}");
            assert!(frames[0].file.as_deref().unwrap().ends_with("/s.c"));
            assert_eq!(
                frames[0].module.as_deref(),
                Some(&*program.display().to_string())
            );
            assert_eq!(frames[0].offset, Some(address - 1));
        }
    }

    #[test]
    fn without_debug_information_the_symbol_table_serves() {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), &[]);
        let (frames, _) = resolve(&program, None);
        assert_eq!(functions(&frames), ["outer"]);
        assert_eq!((frames[0].file.as_ref(), frames[0].line), (None, None));
    }

    #[test]
    fn a_stripped_program_gives_module_and_offset() {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), &[]);
        let (_, offset) = call_in_outer(&program);
        let stripped = directory.path().join("stripped");
        let status = Command::new("strip")
            .arg("-o")
            .arg(&stripped)
            .arg(&program)
            .status();
        assert!(status.unwrap().success());
        let module = Module {
            start: 0x1000,
            end: 0x10_0000,
            offset: 0,
            path: stripped.display().to_string(),
            build_id: None,
        };
        let frames = Symbolizer::new(vec![module]).frames(&[0x1000 + offset]);
        assert_eq!(functions(&frames), ["?"]);
        assert_eq!(
            frames[0].module.as_deref(),
            Some(&*stripped.display().to_string())
        );
        assert!(frames[0].offset.is_some());
    }

    #[test]
    fn a_separate_debug_file_is_found_by_link_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), &["-g", "-Wl,--build-id=none"]);
        let (address, offset) = call_in_outer(&program);
        let run = |arguments: &[&str]| {
            let status = Command::new("objcopy")
                .args(arguments)
                .current_dir(directory.path())
                .status();
            assert!(status.unwrap().success(), "{arguments:?}");
        };
        run(&["--only-keep-debug", "s", "s.debug"]);
        run(&["--strip-all", "--add-gnu-debuglink=s.debug", "s"]);
        let module = |path: &Path| Module {
            start: 0x1000,
            end: 0x10_0000,
            offset: 0,
            path: path.display().to_string(),
            build_id: None,
        };
        let frames = Symbolizer::new(vec![module(&program)]).frames(&[0x1000 + offset]);
        assert_eq!(functions(&frames), ["inlined", "outer"]);
        assert_eq!(frames[1].line, Some(6));
        assert_eq!(frames[1].offset, Some(address - 1));

        // The link carries a checksum: another file of that name is not the one meant.
        let debug = directory.path().join("s.debug");
        let mut data = std::fs::read(&debug).unwrap();
        *data.last_mut().unwrap() ^= 1;
        std::fs::write(&debug, data).unwrap();
        let frames = Symbolizer::new(vec![module(&program)]).frames(&[0x1000 + offset]);
        assert_eq!(functions(&frames), ["?"]);
    }

    #[test]
    fn another_builds_file_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(
            directory.path(),
            &["-g", "-Wl,--build-id=0x0123456789abcdef"],
        );
        let (frames, _) = resolve(&program, Some("0123456789abcdef".to_owned()));
        assert_eq!(functions(&frames), ["inlined", "outer"]);
        let (frames, _) = resolve(&program, Some("ffff".to_owned()));
        assert_eq!(functions(&frames), ["?"]);
    }

    #[test]
    fn odd_files_are_modules_without_names() {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("text");
        std::fs::write(&text, "no object").unwrap();
        let cut = directory.path().join("cut");
        let program = compile(directory.path(), &["-g"]);
        let data = std::fs::read(&program).unwrap();
        std::fs::write(&cut, &data[..data.len() / 2]).unwrap();
        for path in [
            &*text,
            &*cut,
            directory.path(),
            Path::new("[vdso]"),
            Path::new("/nowhere"),
        ] {
            let module = Module {
                start: 0x1000,
                end: 0x10_0000,
                offset: 0x2000,
                path: path.display().to_string(),
                build_id: None,
            };
            let frames = Symbolizer::new(vec![module]).frames(&[0x1101]);
            assert_eq!(frames.len(), 1, "{path:?}");
            assert!(frames[0].module.is_some() && frames[0].offset.is_some());
        }
    }
}
