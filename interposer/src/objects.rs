//! The shared objects of this process, as the loader lists them.
//!
//! Everything here reads memory that the loader has mapped, takes no lock of
//! ours, and uses `dl_iterate_phdr` alone, which does not wait for a `dlopen` that
//! is running constructors.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::thread;

/// A loaded object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// What is added to its file's addresses.
    pub(crate) base: u64,
    /// Its first and the address after its last mapped byte.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// As the loader names it; empty for the main program.
    pub(crate) path: String,
    /// Its loadable segments' addresses.
    segments: Vec<(u64, u64)>,
    dynamic: Dynamic,
    /// The address and size of `.eh_frame_hdr`.
    pub(crate) unwind_header: Option<(u64, u64)>,
}

/// An object's dynamic section.
#[derive(Clone, Copy, Debug)]
struct Dynamic {
    base: u64,
    section: u64,
}

type Each = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// Walks through the loader's list that are under way, and whether none may begin.
static WALKS: AtomicUsize = AtomicUsize::new(0);
static FORKING: AtomicBool = AtomicBool::new(false);

/// Walks through the loader's list. The loader holds a lock meanwhile that a forked
/// child never gets, should another thread fork: forks wait for our walks.
///
/// # Safety
/// `each` may be called with `data`.
pub(crate) unsafe fn walk(each: Each, data: *mut c_void) {
    let outermost = thread::block().begin_walk();
    if outermost {
        loop {
            WALKS.fetch_add(1, SeqCst);
            if !FORKING.load(SeqCst) {
                break;
            }
            WALKS.fetch_sub(1, SeqCst);
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    // SAFETY: the caller's promise; no panic leaves a callback of ours.
    unsafe { libc::dl_iterate_phdr(Some(each), data) };
    if outermost {
        WALKS.fetch_sub(1, SeqCst);
        thread::block().end_walk();
    }
}

/// Waits until no walk is under way, and keeps new ones from beginning. The caller
/// holds every lock that a walk could be waited for with.
pub(crate) fn before_fork() {
    FORKING.store(true, SeqCst);
    // A signal's handler may fork in the midst of a walk of its own thread.
    while !thread::block().is_walking() && WALKS.load(SeqCst) != 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub(crate) fn after_fork_parent() {
    FORKING.store(false, SeqCst);
}

pub(crate) fn after_fork_child() {
    WALKS.store(usize::from(thread::block().is_walking()), SeqCst);
    FORKING.store(false, SeqCst);
}

/// How many objects the loader has added and removed so far.
pub(crate) fn generation() -> (u64, u64) {
    while_loaded(|generation| generation)
}

/// Runs `f`, given the [`generation`], while no object can be unloaded: the loader
/// waits with that for whoever walks its list, as C++'s exceptions rely on.
pub(crate) fn while_loaded<R>(f: impl FnOnce((u64, u64)) -> R) -> R {
    struct Visit<F, R> {
        f: Option<F>,
        result: Option<std::thread::Result<R>>,
    }
    unsafe extern "C" fn first<F: FnOnce((u64, u64)) -> R, R>(
        info: *mut libc::dl_phdr_info,
        size: usize,
        out: *mut c_void,
    ) -> c_int {
        // SAFETY: `out` is the caller's visit, which nothing else touches meanwhile.
        let visit = unsafe { &mut *out.cast::<Visit<F, R>>() };
        let generation = if size >= size_of::<libc::dl_phdr_info>() {
            // SAFETY: the loader passes an `info` of this size.
            unsafe { ((*info).dlpi_adds, (*info).dlpi_subs) }
        } else {
            (0, 0)
        };
        if let Some(f) = visit.f.take() {
            // No panic may cross the loader, which would keep its lock.
            let f = core::panic::AssertUnwindSafe(|| f(generation));
            visit.result = Some(std::panic::catch_unwind(f));
        }
        1
    }
    fn callback<F: FnOnce((u64, u64)) -> R, R>(_: &Visit<F, R>) -> Each {
        first::<F, R>
    }
    let mut visit = Visit {
        f: Some(f),
        result: None,
    };
    let each = callback(&visit);
    // SAFETY: `first` matches the callback's type and `visit` outlives the call.
    unsafe { walk(each, (&raw mut visit).cast()) };
    match visit.result {
        Some(Ok(result)) => result,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        None => unreachable!("the loader always lists the main program"),
    }
}

/// All loaded objects, the main program first.
pub(crate) fn list() -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        out: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid `info`, whose program headers and name
        // stay readable during the callback; `out` is the caller's vector.
        unsafe {
            let info = &*info;
            let objects = &mut *out.cast::<Vec<Object>>();
            if !info.dlpi_phdr.is_null() {
                let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
                let path = if info.dlpi_name.is_null() {
                    String::new()
                } else {
                    CStr::from_ptr(info.dlpi_name)
                        .to_string_lossy()
                        .into_owned()
                };
                objects.extend(Object::new(info.dlpi_addr, path, headers));
            }
        }
        0
    }
    // SAFETY: `each` matches the callback's type and `objects` outlives the call.
    unsafe { walk(each, (&raw mut objects).cast()) };
    objects
}

/// The address of a function that the C library exports, of whatever version.
///
/// Allocates nothing: it is what `realloc` itself is found with.
pub(crate) fn c_library_function(name: &'static CStr) -> Option<u64> {
    struct Search {
        name: &'static CStr,
        found: Option<u64>,
    }
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        out: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid `info`, whose program headers and name
        // stay readable during the callback; `out` is the caller's search.
        unsafe {
            let info = &*info;
            let search = &mut *out.cast::<Search>();
            if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
                return 0;
            }
            let path = CStr::from_ptr(info.dlpi_name).to_bytes();
            let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            if !(file.starts_with(b"libc.so") || file.starts_with(b"libdl.so")) {
                return 0;
            }
            let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            if let Some(header) = headers
                .iter()
                .find(|header| header.p_type == libc::PT_DYNAMIC)
            {
                let dynamic = Dynamic {
                    base: info.dlpi_addr,
                    section: info.dlpi_addr.wrapping_add(header.p_vaddr),
                };
                search.found = dynamic.exported_function(search.name);
            }
            c_int::from(search.found.is_some())
        }
    }
    let mut search = Search { name, found: None };
    // SAFETY: `each` matches the callback's type and `search` outlives the call.
    unsafe { walk(each, (&raw mut search).cast()) };
    search.found
}

/// The object whose code or data holds `address`.
pub(crate) fn containing(address: u64) -> Option<Object> {
    list().into_iter().find(|object| object.holds(address))
}

impl Object {
    fn new(base: u64, path: String, headers: &[libc::Elf64_Phdr]) -> Option<Self> {
        let mut object = Self {
            base,
            start: u64::MAX,
            end: 0,
            path,
            segments: Vec::new(),
            dynamic: Dynamic { base, section: 0 },
            unwind_header: None,
        };
        for header in headers {
            let start = base.wrapping_add(header.p_vaddr);
            match header.p_type {
                libc::PT_LOAD => {
                    let end = start.wrapping_add(header.p_memsz);
                    object.segments.push((start, end));
                    object.start = object.start.min(start);
                    object.end = object.end.max(end);
                }
                libc::PT_DYNAMIC => object.dynamic.section = start,
                libc::PT_GNU_EH_FRAME => object.unwind_header = Some((start, header.p_memsz)),
                _ => {}
            }
        }
        (object.end > 0).then_some(object)
    }

    pub(crate) fn holds(&self, address: u64) -> bool {
        self.segments
            .iter()
            .any(|&(start, end)| (start..end).contains(&address))
    }

    /// The end of the segment that holds `address`.
    pub(crate) fn segment_end(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find(|&&(start, end)| (start..end).contains(&address))
            .map(|&(_, end)| end)
    }

    /// The file name without its folder.
    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or("")
    }

    /// The address of a function or variable that it exports, and its size.
    pub(crate) fn exported(&self, name: &CStr) -> Option<(u64, u64)> {
        self.dynamic.exported(name)
    }

    /// The names of the libraries that it was linked to.
    pub(crate) fn needed(&self) -> Vec<String> {
        const DT_NEEDED: i64 = 1;
        let Some(strings) = self.dynamic.address(DT_STRTAB) else {
            return Vec::new();
        };
        self.dynamic
            .entries(DT_NEEDED)
            .map(|offset| {
                // SAFETY: an offset into the object's mapped, null-terminated string table.
                unsafe { text_at(strings + offset) }
                    .to_string_lossy()
                    .into_owned()
            })
            .collect()
    }
}

impl Dynamic {
    /// The values of the dynamic section's entries of this kind. Addresses come
    /// out absolute, whether or not the loader relocated them in place.
    fn entries(&self, tag: i64) -> impl Iterator<Item = u64> {
        let mut place = self.section as *const [u64; 2];
        core::iter::from_fn(move || {
            while !place.is_null() {
                // SAFETY: the section is mapped and ends with a null entry, past
                // which this loop does not go.
                let [kind, value] = unsafe { *place };
                if kind == 0 {
                    return None;
                }
                // SAFETY: not past the end, as the entry was no terminator.
                place = unsafe { place.add(1) };
                if kind as i64 == tag {
                    return Some(value);
                }
            }
            None
        })
    }

    fn address(&self, tag: i64) -> Option<u64> {
        self.entries(tag).next().map(|value| {
            if value < self.base {
                value + self.base
            } else {
                value
            }
        })
    }

    /// The address of a function that it exports, of whatever version.
    fn exported_function(&self, name: &CStr) -> Option<u64> {
        const STT_FUNC: u8 = 2;
        let strings = self.address(DT_STRTAB)?;
        let symbols = self.address(DT_SYMTAB)? as *const libc::Elf64_Sym;
        (0..self.symbol_count()?).find_map(|index| {
            // SAFETY: the hash table says that the symbol table has this entry.
            let symbol = unsafe { &*symbols.add(index) };
            let matches = symbol.st_value != 0
                && symbol.st_info & 15 == STT_FUNC
                // SAFETY: the symbol's name lies in the mapped string table.
                && unsafe { text_at(strings + u64::from(symbol.st_name)) } == name;
            matches.then(|| self.base.wrapping_add(symbol.st_value))
        })
    }

    /// The address and size of a symbol that it exports, by the hash table that the
    /// linkers have written for long.
    fn exported(&self, name: &CStr) -> Option<(u64, u64)> {
        let strings = self.address(DT_STRTAB)?;
        let symbols = self.address(DT_SYMTAB)? as *const libc::Elf64_Sym;
        let table = self.address(DT_GNU_HASH)? as *const u32;
        let hash = name.to_bytes().iter().fold(5381_u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        // SAFETY: the layout is as `symbol_count` says: no bucket names a symbol past
        // the chains, and every chain ends with a word whose lowest bit is set.
        unsafe {
            let [buckets, first, bloom, _shift] = *table.cast::<[u32; 4]>();
            let bucket = table.add(4 + 2 * bloom as usize);
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add(hash.checked_rem(buckets)? as usize);
            if index < first {
                return None;
            }
            loop {
                let word = *chain.add((index - first) as usize);
                let symbol = &*symbols.add(index as usize);
                if word | 1 == hash | 1
                    && symbol.st_shndx != 0
                    && text_at(strings + u64::from(symbol.st_name)) == name
                {
                    return Some((self.base.wrapping_add(symbol.st_value), symbol.st_size));
                }
                if word & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// How long the dynamic symbol table is: only its hash tables tell.
    fn symbol_count(&self) -> Option<usize> {
        const DT_HASH: i64 = 4;
        if let Some(table) = self.address(DT_GNU_HASH) {
            let table = table as *const u32;
            // SAFETY: the table's layout is fixed: a header of four words, the
            // bloom filter of 64-bit words, the buckets, then the chains, each
            // ended by a word with its lowest bit set.
            unsafe {
                let [buckets, first, bloom, _shift] = *table.cast::<[u32; 4]>();
                let bucket = table.add(4 + 2 * bloom as usize);
                let chain = bucket.add(buckets as usize);
                let last = (0..buckets as usize).map(|i| *bucket.add(i)).max()?;
                if last < first {
                    return Some(first as usize);
                }
                let mut index = last;
                while *chain.add((index - first) as usize) & 1 == 0 {
                    index += 1;
                }
                return Some(index as usize + 1);
            }
        }
        let table = self.address(DT_HASH)? as *const u32;
        // SAFETY: the second word is the number of symbols.
        Some(unsafe { *table.add(1) } as usize)
    }
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// # Safety
/// `address` is that of a null-terminated text that outlives the use.
unsafe fn text_at<'a>(address: u64) -> &'a CStr {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(address as *const _) }
}
