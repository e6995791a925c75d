//! One module's file: its segments, its symbol table, its DWARF.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

use super::debug_files::{self, Places};
use super::demangle::{demangle, is_mangled};
use super::{Frame, Module};

/// Debug information beyond this size (once decompressed, which takes memory)
/// is left alone; the symbol table has to serve.
const LARGEST_COMPRESSED: u64 = 1 << 30;

/// As above, for debug information that is mapped as it is.
pub(super) const LARGEST_MAPPED: u64 = 8 << 30;

/// Symbols kept of one file.
const MOST_SYMBOLS: usize = 8_000_000;

/// What is known of a module's file.
pub(super) struct Image {
    /// Where the file's parts are in memory, as the file counts.
    segments: Vec<Segment>,
    symbols: Symbols,
    dwarf: Dwarf,
}

struct Segment {
    file_offset: u64,
    file_size: u64,
    address: u64,
}

/// The debug information.
enum Dwarf {
    /// In this file, not opened yet; with the file of the parts it shares, if any.
    At(PathBuf, Option<PathBuf>),
    Open(Box<Loader>),
    None,
}

impl Image {
    /// Opens a module's file. `None` if it's no ELF file, or another build's.
    pub(super) fn open(module: &Module, places: &Places) -> Option<Self> {
        if !module.is_file() {
            return None;
        }
        let path = Path::new(&module.path);
        with_object(path, |object| {
            if let Some(wanted) = &module.build_id
                && debug_files::build_id(object).as_deref() != Some(wanted)
            {
                return None;
            }
            let segments = object
                .segments()
                .map(|segment| {
                    let (file_offset, file_size) = segment.file_range();
                    Segment {
                        file_offset,
                        file_size,
                        address: segment.address(),
                    }
                })
                .collect();
            let mut symbols = Symbols::default();
            let dwarf = if has_dwarf(object) {
                Dwarf::At(path.to_owned(), shared(path, object, places))
            } else {
                match debug_files::separate(path, object, places) {
                    Some(debug) => with_object(&debug, |debug_object| {
                        symbols.add(debug_object);
                        let shared = shared(&debug, debug_object, places);
                        has_dwarf(debug_object).then(|| Dwarf::At(debug.clone(), shared))
                    })
                    .unwrap_or(Dwarf::None),
                    None => Dwarf::None,
                }
            };
            symbols.add(object);
            symbols.finish();
            Some(Self {
                segments,
                symbols,
                dwarf,
            })
        })
    }

    /// The address, as the file counts, of what is at an offset in it.
    pub(super) fn address_of(&self, file_offset: u64) -> u64 {
        self.segments
            .iter()
            .find(|segment| {
                file_offset
                    .checked_sub(segment.file_offset)
                    .is_some_and(|within| within < segment.file_size)
            })
            .map_or(file_offset, |segment| {
                (file_offset - segment.file_offset).wrapping_add(segment.address)
            })
    }

    /// The frames at an address, innermost first, without their modules; none if
    /// nothing is known.
    pub(super) fn frames(&mut self, address: u64) -> Vec<Frame> {
        if let Dwarf::At(path, shared) = &self.dwarf {
            let whole = Loader::new_with_sup(path, shared.as_ref());
            // Lines don't need the shared parts, which hold names.
            let loader = whole.or_else(|_| Loader::new(path));
            self.dwarf = match loader {
                Ok(loader) => Dwarf::Open(Box::new(loader)),
                Err(_) => Dwarf::None,
            };
        }
        let (mut frames, mangled) = match &self.dwarf {
            Dwarf::Open(loader) => from_dwarf(loader, address),
            _ => (Vec::new(), false),
        };
        // The outermost is the function that is there in the flesh. Line tables alone
        // don't name it, and of a static function DWARF tells the mere name, without
        // namespace and parameters.
        let unnamed = frames.last().is_none_or(|frame| frame.function.is_none());
        if !mangled
            && let Some(name) = self.symbols.at(address)
            && (unnamed || name.starts_with("_Z"))
        {
            let function = Some(demangle(name));
            match frames.last_mut() {
                Some(last) => last.function = function,
                None => frames.push(Frame {
                    function,
                    ..Frame::default()
                }),
            }
        }
        frames
    }
}

/// What DWARF says of an address, and whether it gives the outermost function's
/// mangled name.
fn from_dwarf(loader: &Loader, address: u64) -> (Vec<Frame>, bool) {
    let mut out = Vec::new();
    let mut mangled = false;
    let Ok(mut frames) = loader.find_frames(address) else {
        return (out, mangled);
    };
    // An error further out doesn't spoil what is known already.
    while let Ok(Some(frame)) = frames.next() {
        let name = frame
            .function
            .as_ref()
            .and_then(|function| function.raw_name().ok());
        mangled = name.as_deref().is_some_and(is_mangled);
        let function = name.map(|name| demangle(&name));
        let location = frame.location;
        let line = location.as_ref().and_then(|location| location.line);
        let file = location.and_then(|location| location.file);
        if function.is_none() && file.is_none() {
            continue;
        }
        out.push(Frame {
            function,
            file: file.map(|file| file.to_string()),
            // Line 0 is code that no line made.
            line: line.filter(|line| *line > 0),
            module: None,
            offset: None,
        });
    }
    (out, mangled)
}

/// The functions of a file.
#[derive(Default)]
struct Symbols {
    /// By address, once finished.
    functions: Vec<Function>,
    names: Vec<u8>,
}

struct Function {
    address: u64,
    /// 0 where the table doesn't say (assembly).
    size: u64,
    name: (u32, u32),
}

impl Symbols {
    fn add<'data, R: ReadRef<'data>>(&mut self, object: &object::File<'data, R>) {
        // Where there is a full table, it holds the dynamic one's functions too.
        if object.symbols().next().is_some() {
            self.take(object.symbols());
        } else {
            self.take(object.dynamic_symbols());
        }
    }

    fn take<'data>(&mut self, symbols: impl Iterator<Item: ObjectSymbol<'data>>) {
        for symbol in symbols {
            if self.functions.len() >= MOST_SYMBOLS {
                return;
            }
            let code = symbol.kind() == SymbolKind::Text && symbol.is_definition();
            let Some(name) = symbol.name_bytes().ok().filter(|name| !name.is_empty()) else {
                continue;
            };
            let start = u32::try_from(self.names.len());
            let (true, Ok(start), Ok(length)) = (code, start, u32::try_from(name.len())) else {
                continue;
            };
            self.names.extend_from_slice(name);
            self.functions.push(Function {
                address: symbol.address(),
                size: symbol.size(),
                name: (start, length),
            });
        }
    }

    fn finish(&mut self) {
        // Of several at one address, the largest is last and so found first.
        self.functions.sort_by_key(|f| (f.address, f.size));
        self.functions.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// The name of the function around `address`. A neighbour that ends before it is not it.
    fn at(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|f| f.address <= address);
        let function = self.functions[..after].last()?;
        let within = address - function.address;
        if within >= function.size && function.size > 0 {
            return None;
        }
        let start = function.name.0 as usize;
        let name = self.names.get(start..start + function.name.1 as usize)?;
        std::str::from_utf8(name).ok()
    }
}

/// The build id of the ELF file at `path`.
pub(super) fn build_id(path: &Path) -> Option<String> {
    with_object(path, |object| Some(debug_files::build_id(object))).flatten()
}

/// Hands an ELF file to `look`, reading only those parts of it that are looked at.
fn with_object<T>(
    path: &Path,
    look: impl for<'data> FnOnce(&object::File<'data, &'data ReadCache<File>>) -> Option<T>,
) -> Option<T> {
    // Asked first, as opening a pipe would wait for a writer.
    if !fs::metadata(path).is_ok_and(|about| about.is_file()) {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    look(&object)
}

/// What there is to turn addresses in a program's or library's code into lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// The file with the line tables: the file itself, or one of its own.
    pub lines: Option<PathBuf>,
    /// The debug file that the file links to by name, found or not.
    pub link: Option<String>,
    /// The build id as hexadecimal digits.
    pub build_id: Option<String>,
    /// Whether there is a symbol table beyond that of exported functions.
    pub symbols: bool,
}

impl DebugInfo {
    /// That of the ELF file at `path`, looked for as a [`Symbolizer`](super::Symbolizer)
    /// does. `None` if it's no such file.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        Self::within(path, &Places::of_this_machine())
    }

    pub(super) fn within(path: &Path, places: &Places) -> Option<Self> {
        with_object(path, |object| {
            let mut symbols = object.symbols().next().is_some();
            let lines = if has_dwarf(object) {
                Some(path.to_owned())
            } else {
                debug_files::separate(path, object, places).filter(|debug| {
                    with_object(debug, |debug_object| {
                        symbols |= debug_object.symbols().next().is_some();
                        has_dwarf(debug_object).then_some(())
                    })
                    .is_some()
                })
            };
            Some(Self {
                lines,
                link: debug_files::link(object),
                build_id: debug_files::build_id(object),
                symbols,
            })
        })
    }
}

/// The file of shared parts, if it can be borne.
fn shared<'data, R: ReadRef<'data>>(
    path: &Path,
    object: &object::File<'data, R>,
    places: &Places,
) -> Option<PathBuf> {
    debug_files::shared(path, object, places)
        .filter(|file| with_object(file, |shared| sizes(shared).map(drop)).is_some())
}

/// Whether there is debug information of a size that can be borne.
fn has_dwarf<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> bool {
    sizes(object) == Some(true)
}

/// Whether there are line tables; `None` if the debug information is too large, or damaged.
fn sizes<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> Option<bool> {
    let mut compressed = 0_u64;
    let mut mapped = 0_u64;
    let mut lines = false;
    for section in object.sections() {
        let Ok(name) = section.name() else { continue };
        if !name.starts_with(".debug_") && !name.starts_with(".zdebug_") {
            continue;
        }
        // `--only-keep-debug` leaves empty husks of other sections, never of these.
        lines |= name.ends_with("debug_line") && section.size() > 0;
        match section.compressed_file_range().ok()? {
            range if range.format != object::CompressionFormat::None => {
                compressed = compressed.saturating_add(range.uncompressed_size);
            }
            _ => mapped = mapped.saturating_add(section.size()),
        }
    }
    (compressed <= LARGEST_COMPRESSED && mapped <= LARGEST_MAPPED).then_some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(functions: &[(u64, u64, &str)]) -> Symbols {
        let mut symbols = Symbols::default();
        for (address, size, name) in functions {
            let start = symbols.names.len() as u32;
            symbols.names.extend_from_slice(name.as_bytes());
            symbols.functions.push(Function {
                address: *address,
                size: *size,
                name: (start, name.len() as u32),
            });
        }
        symbols.finish();
        symbols
    }

    #[test]
    fn a_function_ends_where_its_symbol_says() {
        let symbols = table(&[(100, 10, "b"), (50, 0, "assembly"), (10, 5, "a")]);
        assert_eq!(symbols.at(9), None);
        assert_eq!(symbols.at(14), Some("a"));
        assert_eq!(symbols.at(15), None);
        assert_eq!(symbols.at(99), Some("assembly"));
        assert_eq!(symbols.at(109), Some("b"));
        assert_eq!(symbols.at(110), None);
    }

    #[test]
    fn offsets_become_addresses_by_segment() {
        let image = Image {
            segments: vec![
                Segment {
                    file_offset: 0,
                    file_size: 0x1000,
                    address: 0x40_0000,
                },
                Segment {
                    file_offset: 0x1000,
                    file_size: 0x500,
                    address: 0x40_2000,
                },
            ],
            symbols: Symbols::default(),
            dwarf: Dwarf::None,
        };
        assert_eq!(image.address_of(0x10), 0x40_0010);
        assert_eq!(image.address_of(0x1010), 0x40_2010);
        assert_eq!(image.address_of(0x2000), 0x2000);
    }
}
