//! The C library's `free`, `realloc` and `munmap`, watched only while the
//! application has host memory registered with CUDA, or copies may still read host
//! memory that CUDA was never told of.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use streamcheck_model::FreeKind;

use crate::call::{Call, Free};
use crate::hook::{Door, Hook};
use crate::lookup::plain_dlsym;
use crate::recorder;
use crate::thread::{self, Inside};

/// How many watched ranges there are. At 0 the doors are open.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// Bounds of all watched ranges, so that most frees need no lock.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);
static RANGES: Mutex<Vec<Range>> = Mutex::new(Vec::new());

/// Sources that are watched at a time.
const SOURCES: usize = 1024;

/// Host memory whose release matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    /// Whether it is a copy's source, which is watched until its first release, and not
    /// registered memory.
    source: bool,
}

fn ranges() -> MutexGuard<'static, Vec<Range>> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The real functions; each is found when it is first called.
static REAL_FREE: AtomicUsize = AtomicUsize::new(0);
static REAL_REALLOC: AtomicUsize = AtomicUsize::new(0);
static REAL_MUNMAP: AtomicUsize = AtomicUsize::new(0);
/// While a look-up of one of them runs.
static RESOLVING: AtomicBool = AtomicBool::new(false);

/// What the C library's calls are recorded as. These are in no table of hooks, so
/// nothing is exchanged for their entry, and it is never called.
static FREE: Hook = Hook::new(c"free", Door::Runtime, no_entry);
static REALLOC: Hook = Hook::new(c"realloc", Door::Runtime, no_entry);
static MUNMAP: Hook = Hook::new(c"munmap", Door::Runtime, no_entry);

unsafe extern "C" fn no_entry() {}

/// Host memory was registered with CUDA.
pub(crate) fn watch(address: u64, size: usize) {
    let mut ranges = ranges();
    ranges.push(Range {
        start: address,
        end: address.saturating_add(size as u64),
        source: false,
    });
    publish(&ranges);
}

/// Host memory that CUDA was never told of is read by a copy that may be pending, and
/// is recorded. False if an older such source had to be forgotten for it.
pub(crate) fn watch_source(start: u64, end: u64) -> bool {
    let source = Range {
        start,
        end,
        source: true,
    };
    let mut ranges = ranges();
    if ranges.contains(&source) {
        return true;
    }
    let full = ranges.iter().filter(|range| range.source).count() >= SOURCES;
    if full && let Some(oldest) = ranges.iter().position(|range| range.source) {
        ranges.remove(oldest);
    }
    ranges.push(source);
    publish(&ranges);
    !full
}

/// Makes room for more sources, if there is too little, by dropping those whose copies
/// are known to be complete. No lock is held while the recorder is asked.
pub(crate) fn make_room(more: usize) {
    let watched: Vec<Range> = ranges()
        .iter()
        .filter(|range| range.source)
        .copied()
        .collect();
    if watched.len() + more <= SOURCES {
        return;
    }
    let read: Vec<Range> = watched
        .into_iter()
        .filter(|range| recorder::is_unknown(range.start))
        .collect();
    let mut ranges = ranges();
    ranges.retain(|range| !read.contains(range));
    publish(&ranges);
}

/// Host memory was unregistered. Another thread may have registered it anew since:
/// only the oldest range goes.
pub(crate) fn unwatch(address: u64) {
    let mut ranges = ranges();
    let oldest = |range: &Range| range.start == address && !range.source;
    if let Some(place) = ranges.iter().position(oldest) {
        ranges.remove(place);
    }
    publish(&ranges);
}

fn publish(ranges: &[Range]) {
    LOWEST.store(
        ranges
            .iter()
            .map(|range| range.start)
            .min()
            .unwrap_or(u64::MAX),
        Relaxed,
    );
    HIGHEST.store(
        ranges.iter().map(|range| range.end).max().unwrap_or(0),
        Relaxed,
    );
    WATCHED.store(ranges.len(), Relaxed);
}

/// Open doors jump on at once; the slow way is taken while memory is watched, and
/// once before the real function is known.
#[cfg(target_arch = "x86_64")]
macro_rules! libc_asm {
    ($real:path, $watched:path, $slow:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "cmp qword ptr [rip + {watched}], 0",
            "jne 2f",
            "mov rax, qword ptr [rip + {real}]",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2:",
            "mov r11, qword ptr [rip + streamcheck_thread@GOTTPOFF]",
            "cmp dword ptr fs:[r11], 0",
            "jne 3f",
            "mov rax, qword ptr [rsp]",
            "mov qword ptr fs:[r11 + 8], rax",
            "mov qword ptr fs:[r11 + 16], rsp",
            "mov qword ptr fs:[r11 + 24], rbp",
            "3: jmp {slow}",
            real = sym $real,
            watched = sym $watched,
            slow = sym $slow,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! libc_asm {
    ($real:path, $watched:path, $slow:path) => {
        core::arch::naked_asm!(
            "hint #34",
            "adrp x16, {watched}",
            "ldr x16, [x16, :lo12:{watched}]",
            "cbnz x16, 2f",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mrs x16, tpidr_el0",
            "adrp x17, :gottprel:streamcheck_thread",
            "ldr x17, [x17, :gottprel_lo12:streamcheck_thread]",
            "add x16, x16, x17",
            "ldr w17, [x16]",
            "cbnz w17, 3f",
            "mov x17, sp",
            "stp x30, x17, [x16, #8]",
            "str x29, [x16, #24]",
            "3: b {slow}",
            real = sym $real,
            watched = sym $watched,
            slow = sym $slow,
        )
    };
}

/// The C library's `free`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn free(_address: *mut c_void) {
    libc_asm!(REAL_FREE, WATCHED, slow_free)
}

/// The C library's `realloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn realloc(_address: *mut c_void, _size: usize) -> *mut c_void {
    libc_asm!(REAL_REALLOC, WATCHED, slow_realloc)
}

/// The C library's `munmap`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn munmap(_address: *mut c_void, _size: usize) -> i32 {
    libc_asm!(REAL_MUNMAP, WATCHED, slow_munmap)
}

fn real(place: &AtomicUsize, name: &core::ffi::CStr) -> usize {
    let known = place.load(Relaxed);
    if known != 0 {
        return known;
    }
    let _inside = Inside::nest();
    RESOLVING.store(true, Relaxed);
    let found = plain_dlsym(libc::RTLD_NEXT, name) as usize;
    place.store(found, Relaxed);
    RESOLVING.store(false, Relaxed);
    found
}

unsafe extern "C-unwind" fn slow_free(address: *mut c_void) {
    // SAFETY: the block's size is the allocator's to know; null is 0.
    let size = || unsafe { libc::malloc_usable_size(address) };
    let begun = released(&FREE, address as u64, size);
    if RESOLVING.load(Relaxed) {
        // Freed by the loader inside the look-up of `free`: kept.
        return;
    }
    let function = real(&REAL_FREE, c"free");
    // SAFETY: the C library's function and the caller's argument.
    unsafe {
        core::mem::transmute::<usize, unsafe extern "C-unwind" fn(*mut c_void)>(function)(address)
    };
    settle(begun, true);
}

unsafe extern "C-unwind" fn slow_realloc(address: *mut c_void, size: usize) -> *mut c_void {
    let function = real(&REAL_REALLOC, c"realloc");
    // SAFETY: as in `slow_free`.
    let begun = released(&REALLOC, address as u64, || unsafe {
        libc::malloc_usable_size(address)
    });
    type Realloc = unsafe extern "C-unwind" fn(*mut c_void, usize) -> *mut c_void;
    // SAFETY: the C library's function and the caller's arguments.
    let moved = unsafe { core::mem::transmute::<usize, Realloc>(function)(address, size) };
    // Memory that stayed where it was is still there.
    settle(begun, !moved.is_null() && moved != address || size == 0);
    moved
}

unsafe extern "C-unwind" fn slow_munmap(address: *mut c_void, size: usize) -> i32 {
    let function = real(&REAL_MUNMAP, c"munmap");
    let begun = released(&MUNMAP, address as u64, || size);
    type Munmap = unsafe extern "C-unwind" fn(*mut c_void, usize) -> i32;
    // SAFETY: the C library's function and the caller's arguments.
    let status = unsafe { core::mem::transmute::<usize, Munmap>(function)(address, size) };
    settle(begun, status == 0);
    status
}

/// A release of watched memory that the C library is about to make.
struct Released {
    call: Call,
    /// The watched ranges that it takes besides the one whose free is open: a
    /// thread has one open free.
    others: Vec<u64>,
}

/// Records that memory which starts at `address` goes, if any of it is watched.
fn released(hook: &'static Hook, address: u64, size: impl FnOnce() -> usize) -> Option<Released> {
    if address == 0 || address >= HIGHEST.load(Relaxed) || thread::block().depth() > 0 {
        return None;
    }
    if !recorder::running() {
        return None;
    }
    let origin = thread::block().origin();
    let call = Call::enter(hook, origin)?;
    let end = address.saturating_add(size() as u64);
    if end <= LOWEST.load(Relaxed) {
        return None;
    }
    let taken = overlapping(&mut ranges(), address, end);
    let mut taken: Vec<u64> = taken
        .into_iter()
        // A source's copies may have ended, or it be part of a larger one.
        .filter(|range| !range.source || recorder::begins_system_memory(range.start))
        .map(|range| range.start)
        .collect();
    taken.dedup();
    let first = taken.pop()?;
    let begun = call.begin_free(|_| Free::new(first, FreeKind::Libc));
    begun.then_some(Released {
        call,
        others: taken,
    })
}

/// The ranges that share a byte with `address..end`. Sources among them are watched no
/// longer.
fn overlapping(ranges: &mut Vec<Range>, address: u64, end: u64) -> Vec<Range> {
    let taken = |range: &Range| range.start < end && address < range.end;
    let found: Vec<Range> = ranges
        .iter()
        .filter(|range| taken(range))
        .copied()
        .collect();
    if found.iter().any(|range| range.source) {
        ranges.retain(|range| !(range.source && taken(range)));
        publish(ranges);
    }
    found
}

fn settle(released: Option<Released>, gone: bool) {
    let Some(Released { call, others }) = released else {
        return;
    };
    call.end_free(if gone { 0 } else { 2 });
    if gone {
        for address in others {
            if call.begin_free(|_| Free::new(address, FreeKind::Libc)) {
                call.end_free(0);
            }
        }
    }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&RANGES)]
}
