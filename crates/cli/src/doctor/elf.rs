//! What an ELF file's own tables say: how it is loaded, and what of CUDA is in it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, elf};
use streamcheck_image::{Architectures, containers};

use crate::failure::reason;

/// Device code beyond this size is not looked at, nor constants.
const LARGEST_SECTION: u64 = 512 << 20;

/// The name of an error, which both of NVIDIA's runtimes hold, stripped or not.
const RUNTIME_TEXT: &str = "cudaErrorCudartUnloading";

/// Functions of the runtime that a program which uses it has: one of these defined in
/// a file means that the runtime is in it.
const RUNTIME_FUNCTIONS: [&str; 3] = ["cudaLaunchKernel", "cudaMallocAsync", "cudaMemcpyAsync"];

/// Why a file is not an ELF file that can be looked at.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It begins otherwise.
    NotElf,
    /// It cannot be read, or its tables make no sense.
    Damaged(String),
}

/// An ELF file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elf {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// 32 or 64. Of a 32-bit file nothing else is read but its machine.
    pub(crate) bits: u8,
    /// As ELF numbers them: 62 is x86-64, 183 AArch64.
    pub(crate) machine: u16,
    /// Whether the kernel can start it.
    pub(crate) executable: bool,
    /// Whether it is a shared object: a library, or a program that can lie anywhere.
    pub(crate) shared: bool,
    /// The program that loads it.
    pub(crate) interpreter: Option<PathBuf>,
    /// Its own name as a library.
    pub(crate) soname: Option<String>,
    /// The libraries that it names.
    pub(crate) needed: Vec<String>,
    /// Where they are searched for before `LD_LIBRARY_PATH`.
    pub(crate) rpath: Option<String>,
    /// Where they are searched for after it; `rpath` does not count then.
    pub(crate) runpath: Option<String>,
    /// Symbol versions that it needs: the library's name and the version.
    pub(crate) needs: Vec<(String, String)>,
    /// Symbol versions that it defines.
    pub(crate) defines: Vec<String>,
    /// What it imports of CUDA's runtime and driver, and `dlopen`.
    pub(crate) imports: Vec<String>,
    /// Whether it holds a CUDA runtime.
    pub(crate) holds_runtime: bool,
    /// What each of its images of device code is for.
    pub(crate) images: Vec<Architectures>,
    /// Whether there is device code that was not looked at for its size.
    pub(crate) unread_images: bool,
}

impl Elf {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Unfit> {
        let damaged = |error: std::io::Error| Unfit::Damaged(reason(&error));
        // Asked first, as opening a pipe would wait for a writer.
        if !fs::metadata(path).map_err(damaged)?.is_file() {
            return Err(Unfit::NotElf);
        }
        let mut file = File::open(path).map_err(damaged)?;
        let mut start = Vec::new();
        (&mut file)
            .take(20)
            .read_to_end(&mut start)
            .map_err(damaged)?;
        if !start.starts_with(b"\x7fELF") {
            return Err(Unfit::NotElf);
        }
        let Some(&[type_low, type_high, low, high]) = start.get(16..20) else {
            return Err(Unfit::Damaged("it ends within its header".to_owned()));
        };
        let number = |bytes: [u8; 2]| match start.get(5) {
            Some(2) => u16::from_be_bytes(bytes),
            _ => u16::from_le_bytes(bytes),
        };
        let kind = number([type_low, type_high]);
        let mut found = Self {
            path: path.to_owned(),
            bits: if start.get(4) == Some(&1) { 32 } else { 64 },
            machine: number([low, high]),
            executable: kind == elf::ET_EXEC.0 || kind == elf::ET_DYN.0,
            shared: kind == elf::ET_DYN.0,
            ..Self::default()
        };
        if found.bits == 64 {
            let cache = ReadCache::new(file);
            found
                .take(&cache)
                .map_err(|error| Unfit::Damaged(error.to_string()))?;
        }
        Ok(found)
    }

    fn take<'data, R: ReadRef<'data>>(&mut self, data: R) -> object::Result<()> {
        let file = ElfFile64::<Endianness, R>::parse(data)?;
        let endian = file.endian();
        let mut pie = file.elf_header().e_type(endian) == elf::ET_EXEC;
        for segment in file.elf_program_headers() {
            if let Some(path) = segment.interpreter(endian, data)? {
                self.interpreter = Some(PathBuf::from(text(path)));
            }
        }
        let table = file.elf_dynamic_table()?;
        for entry in table.iter() {
            let name = || entry.string(table.strings()).map(text);
            match entry.tag {
                elf::DT_NEEDED => self.needed.push(name()?),
                elf::DT_SONAME => self.soname = Some(name()?),
                elf::DT_RPATH => self.rpath = Some(name()?),
                elf::DT_RUNPATH => self.runpath = Some(name()?),
                elf::DT_FLAGS_1 => pie |= entry.val & elf::DF_1_PIE.0 != 0,
                _ => {}
            }
        }
        // A library needs nobody to load it, but the kernel could not start it either.
        self.executable &= pie || self.interpreter.is_some();
        self.versions(&file, data)?;
        for symbol in file.dynamic_symbols().filter(ObjectSymbol::is_undefined) {
            if let Ok(name) = symbol.name()
                && (is_runtime(name) || is_driver(name) || name == "dlopen" || name == "dlmopen")
            {
                self.imports.push(name.to_owned());
            }
        }
        self.holds_runtime = file.symbols().chain(file.dynamic_symbols()).any(|symbol| {
            symbol.is_definition()
                && symbol
                    .name()
                    .is_ok_and(|name| RUNTIME_FUNCTIONS.contains(&name))
        });
        for section in file.sections() {
            let Ok(name) = section.name() else { continue };
            let device = name == ".nv_fatbin";
            if !device && (name != ".rodata" || self.holds_runtime) {
                continue;
            }
            if section.size() > LARGEST_SECTION {
                self.unread_images |= device;
                continue;
            }
            let bytes = section.data()?;
            if device {
                self.images.extend(containers(bytes).map(Architectures::of));
            } else {
                // As a C text, so that this command, which holds the name too, is not one.
                let text = format!("\0{RUNTIME_TEXT}\0");
                self.holds_runtime = bytes
                    .windows(text.len())
                    .any(|window| window == text.as_bytes());
            }
        }
        Ok(())
    }

    fn versions<'data, R: ReadRef<'data>>(
        &mut self,
        file: &ElfFile64<'data, Endianness, R>,
        data: R,
    ) -> object::Result<()> {
        let endian = file.endian();
        let sections = file.elf_section_table();
        if let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            while let Some((need, mut versions)) = needs.next()? {
                let name = text(need.file(endian, strings)?);
                while let Some(version) = versions.next()? {
                    // A weak need is none.
                    if version.vna_flags.get(endian).0 & elf::VER_FLG_WEAK.0 == 0 {
                        let version = text(version.name(endian, strings)?);
                        self.needs.push((name.clone(), version));
                    }
                }
            }
        }
        if let Some((mut defines, link)) = sections.gnu_verdef(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            while let Some((_, mut names)) = defines.next()? {
                if let Some(name) = names.next()? {
                    self.defines.push(text(name.name(endian, strings)?));
                }
            }
        }
        Ok(())
    }

    /// The name that other files know it by.
    pub(crate) fn name(&self) -> String {
        self.soname.clone().unwrap_or_else(|| {
            let name = self.path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        })
    }

    /// Whether it imports functions of the CUDA runtime.
    pub(crate) fn calls_runtime(&self) -> bool {
        self.imports.iter().any(|name| is_runtime(name))
    }

    /// Whether it imports functions of the CUDA driver.
    pub(crate) fn calls_driver(&self) -> bool {
        self.imports.iter().any(|name| is_driver(name))
    }

    /// Whether it can load libraries as it runs.
    pub(crate) fn loads_libraries(&self) -> bool {
        self.imports
            .iter()
            .any(|name| name == "dlopen" || name == "dlmopen")
    }

    /// Whether it is a CUDA runtime as a library.
    pub(crate) fn is_runtime(&self) -> bool {
        self.name().starts_with("libcudart")
    }

    /// Whether it is the CUDA driver.
    pub(crate) fn is_driver(&self) -> bool {
        self.name().starts_with("libcuda.so")
    }
}

/// `cudaMalloc` and its like, and what nvcc makes calls of.
fn is_runtime(name: &str) -> bool {
    let name = name.strip_prefix("__").unwrap_or(name);
    name.strip_prefix("cuda")
        .is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_uppercase()))
}

/// `cuMemAlloc` and its like.
fn is_driver(name: &str) -> bool {
    name.strip_prefix("cu")
        .is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_uppercase()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cuda() {
        assert!(is_runtime("cudaMalloc") && is_runtime("__cudaRegisterFatBinary"));
        assert!(is_driver("cuMemAllocAsync") && !is_driver("cudaMalloc"));
        assert!(!is_runtime("cudart") && !is_driver("curl_easy_init") && !is_driver("cut"));
    }

    #[test]
    fn this_test_is_a_program_that_can_be_started() {
        let found = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(found.bits, 64);
        assert!(found.executable && found.interpreter.is_some());
        assert!(found.needed.iter().any(|name| name.starts_with("libc.so")));
        assert!(
            found
                .needs
                .iter()
                .any(|(_, version)| version.starts_with("GLIBC_"))
        );
        assert!(!found.calls_runtime() && !found.calls_driver() && !found.holds_runtime);
    }

    #[test]
    fn damaged_files_are_refused_or_read_and_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let whole = fs::read("/bin/true").unwrap();
        for length in (0..whole.len()).step_by(whole.len() / 150) {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(Elf::read(&path).is_err() || length > 64);
        }
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut readable = 0;
        for _ in 0..300 {
            let mut data = whole.clone();
            for _ in 0..8 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let near_end = random & 1 == 0;
                let reach = (random >> 8) as usize % 4096;
                let at = if near_end {
                    data.len() - 1 - reach
                } else {
                    reach
                };
                data[at] ^= 1 << (random >> 60 & 7);
            }
            fs::write(&path, &data).unwrap();
            readable += usize::from(Elf::read(&path).is_ok());
        }
        assert!(readable > 10, "{readable}");
    }
}
