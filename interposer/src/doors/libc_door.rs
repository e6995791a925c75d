//! The C library's `free`, `realloc`, `munmap` and `mremap`, watched only while the
//! application has host memory registered with CUDA, or copies may still read or write
//! host memory that CUDA was never told of.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use smallvec::{SmallVec, smallvec};
use streamcheck_model::Region;

use super::locals::{self, Locals};
use crate::call::{Call, Free, guarded};
use crate::hook::{Door, Hook};
use crate::lookup::plain_dlsym;
use crate::recorder;
use crate::thread::{self, Inside, keeping_errno};

/// How many watched ranges there are. At 0 the doors are open.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Bounds of all watched ranges, so that most frees need no lock.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);
static WATCHED: Mutex<Watched> = Mutex::new(Watched::new());

/// Host memory whose release matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) start: u64,
    end: u64,
    /// Whether it is pageable memory of a copy, which is watched until its first release,
    /// and not registered memory.
    pageable: bool,
    /// The later it came to be watched, the higher.
    age: u64,
}

impl Range {
    /// What a release of `size` bytes takes of it; `None` for all.
    fn part(&self, address: u64, size: usize) -> Option<Region> {
        let end = address.saturating_add(size as u64);
        let (first, last) = (self.start.max(address), self.end.min(end));
        let all = first == self.start && last == self.end;
        (!all && first < last).then(|| Region::linear(first, last - first))
    }
}

/// The ranges that are watched, some of which may overlap.
struct Watched {
    /// By their first bytes.
    ranges: Vec<Range>,
    /// For each range, the furthest end up to it.
    reach: Vec<u64>,
    /// How many of them are pageable.
    pageable: usize,
    /// How many of those there are when the completed are looked for.
    sweep_at: usize,
    ages: u64,
    locals: Locals,
}

impl Watched {
    /// Pageable ranges that are watched at a time.
    const MOST_PAGEABLE: usize = 1024;
    const LEAST_SWEPT: usize = 16;

    const fn new() -> Self {
        Self {
            ranges: Vec::new(),
            reach: Vec::new(),
            pageable: 0,
            sweep_at: Self::LEAST_SWEPT,
            ages: 0,
            locals: Locals::new(),
        }
    }

    fn add(&mut self, ranges: impl Iterator<Item = (u64, u64)>, pageable: bool) {
        for (start, end) in ranges {
            self.ages += 1;
            self.ranges.push(Range {
                start,
                end,
                pageable,
                age: self.ages,
            });
        }
    }

    /// Adds pageable ranges, of which those are watched at last that came last. Returns how
    /// many had to be forgotten.
    fn add_pageable(&mut self, ranges: impl Iterator<Item = (u64, u64)>) -> usize {
        self.add(ranges, true);
        // The newest of the same ones stays.
        self.ranges
            .sort_unstable_by_key(|range| (range.start, range.end, range.pageable, !range.age));
        self.ranges.dedup_by(|next, kept| {
            next.pageable && (next.start, next.end, true) == (kept.start, kept.end, kept.pageable)
        });
        let mut ages: Vec<u64> = self
            .ranges
            .iter()
            .filter(|range| range.pageable)
            .map(|range| range.age)
            .collect();
        let excess = ages.len().saturating_sub(Self::MOST_PAGEABLE);
        if excess > 0 {
            ages.sort_unstable();
            let oldest = ages[excess];
            self.ranges
                .retain(|range| !range.pageable || range.age >= oldest);
        }
        self.index();
        excess
    }

    fn add_registered(&mut self, start: u64, end: u64) {
        self.add([(start, end)].into_iter(), false);
        self.index();
    }

    /// The oldest registered range that begins there goes.
    fn remove_registered(&mut self, start: u64) {
        let wanted = |(_, range): &(usize, &Range)| range.start == start && !range.pageable;
        let found = self.ranges.iter().enumerate().filter(wanted);
        if let Some((place, _)) = found.min_by_key(|(_, range)| range.age) {
            self.ranges.remove(place);
        }
        self.index();
    }

    /// The ranges that share a byte with `start..end`. The pageable among them are watched
    /// no longer.
    fn take(&mut self, start: u64, end: u64) -> Vec<Range> {
        let after = self.ranges.partition_point(|range| range.start < end);
        let mut found = Vec::new();
        for place in (0..after).rev() {
            if self.reach[place] <= start {
                break;
            }
            if start < self.ranges[place].end {
                found.push(self.ranges[place]);
            }
        }
        if found.iter().any(|range| range.pageable) {
            self.ranges
                .retain(|range| !(range.pageable && found.contains(range)));
            self.index();
        }
        found.reverse();
        found
    }

    /// The pageable ranges, if it is time to look for completed ones.
    fn to_sweep(&self, more: usize) -> Vec<Range> {
        if self.pageable + more <= self.sweep_at {
            return Vec::new();
        }
        self.ranges
            .iter()
            .filter(|range| range.pageable)
            .copied()
            .collect()
    }

    /// Drops completed ones. What was watched anew meanwhile stays.
    fn sweep(&mut self, read: &[Range]) {
        self.ranges
            .retain(|range| read.binary_search(range).is_err());
        self.index();
        self.sweep_at = (self.pageable * 2).clamp(Self::LEAST_SWEPT, Self::MOST_PAGEABLE);
    }

    /// Brings what is derived of the ranges up to date.
    fn index(&mut self) {
        self.ranges.sort_unstable();
        let mut furthest = 0;
        let further = |range: &Range| {
            furthest = furthest.max(range.end);
            furthest
        };
        self.reach = self.ranges.iter().map(further).collect();
        self.pageable = self.ranges.iter().filter(|range| range.pageable).count();
    }

    /// Tells the doors.
    fn publish(&self) {
        let lowest = self.ranges.first().map_or(u64::MAX, |range| range.start);
        LOWEST.store(lowest, Relaxed);
        HIGHEST.store(self.reach.last().copied().unwrap_or(0), Relaxed);
        COUNT.store(self.ranges.len(), Relaxed);
    }
}

/// Changes what is watched.
fn change<R>(f: impl FnOnce(&mut Watched) -> R) -> R {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let result = f(&mut watched);
    watched.publish();
    result
}

/// Changes which local variables are looked after.
pub(super) fn change_locals<R>(f: impl FnOnce(&mut Locals) -> R) -> R {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    f(&mut watched.locals)
}

/// The real functions; each is found when it is first called.
static REAL_FREE: AtomicUsize = AtomicUsize::new(0);
static REAL_REALLOC: AtomicUsize = AtomicUsize::new(0);
static REAL_MUNMAP: AtomicUsize = AtomicUsize::new(0);
static REAL_MREMAP: AtomicUsize = AtomicUsize::new(0);
/// While a look-up of one of them runs.
static RESOLVING: AtomicBool = AtomicBool::new(false);

/// What the C library's calls are recorded as. These are in no table of hooks, so
/// nothing is exchanged for their entry, and it is never called.
static FREE: Hook = Hook::new(c"free", Door::Runtime, no_entry);
static REALLOC: Hook = Hook::new(c"realloc", Door::Runtime, no_entry);
static MUNMAP: Hook = Hook::new(c"munmap", Door::Runtime, no_entry);
static MREMAP: Hook = Hook::new(c"mremap", Door::Runtime, no_entry);

unsafe extern "C" fn no_entry() {}

/// Host memory was registered with CUDA.
pub(crate) fn watch(call: &Call, address: u64, size: usize) {
    let end = address.saturating_add(size as u64);
    change(|watched| watched.add_registered(address, end));
    locals::watch(&call.origin, address, end);
}

/// Host memory that CUDA was never told of is read or written by copies that may be
/// pending, and are recorded. Returns how many older such ranges had to be forgotten for it.
pub(crate) fn watch_pageable(call: &Call, sides: &[Region]) -> usize {
    let ranges = sides.iter().map(|side| (side.address, side.end()));
    for (start, end) in ranges.clone() {
        locals::watch(&call.origin, start, end);
    }
    change(|watched| watched.add_pageable(ranges))
}

/// Makes room for more such ranges, if there are many, by dropping those whose copies are
/// known to be complete. No lock is held while the recorder is asked.
pub(crate) fn make_room(more: usize) {
    let mut watched = change(|watched| watched.to_sweep(more));
    if watched.is_empty() {
        return;
    }
    let starts: Vec<u64> = watched.iter().map(|range| range.start).collect();
    let mut unknown = recorder::are_unknown(&starts).into_iter();
    watched.retain(|_| unknown.next() == Some(true));
    change(|ranges| ranges.sweep(&watched));
}

/// Host memory was unregistered. Another thread may have registered it anew since:
/// only the oldest range goes.
pub(crate) fn unwatch(address: u64) {
    change(|watched| {
        watched.remove_registered(address);
        watched.locals.remove(address);
    });
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
    libc_asm!(REAL_FREE, COUNT, slow_free)
}

/// The C library's `realloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn realloc(_address: *mut c_void, _size: usize) -> *mut c_void {
    libc_asm!(REAL_REALLOC, COUNT, slow_realloc)
}

/// The C library's `munmap`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn munmap(_address: *mut c_void, _size: usize) -> i32 {
    libc_asm!(REAL_MUNMAP, COUNT, slow_munmap)
}

/// The C library's `mremap`. The last argument is there if the flags say so, and goes in the
/// same register as one that always is.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn mremap(
    _address: *mut c_void,
    _size: usize,
    _new_size: usize,
    _flags: i32,
    _target: *mut c_void,
) -> *mut c_void {
    libc_asm!(REAL_MREMAP, COUNT, slow_mremap)
}

/// Finds the real functions before the application calls any of them: `dlerror` calls
/// `realloc` while it holds what a `dlsym` frees.
pub(crate) fn prepare() {
    real(&REAL_FREE, c"free");
    real(&REAL_REALLOC, c"realloc");
    real(&REAL_MUNMAP, c"munmap");
    real(&REAL_MREMAP, c"mremap");
}

fn real(place: &AtomicUsize, name: &core::ffi::CStr) -> usize {
    let known = place.load(Relaxed);
    if known != 0 {
        return known;
    }
    let _inside = Inside::nest();
    RESOLVING.store(true, Relaxed);
    let found = keeping_errno(|| plain_dlsym(libc::RTLD_NEXT, name)) as usize;
    place.store(found, Relaxed);
    RESOLVING.store(false, Relaxed);
    found
}

unsafe extern "C-unwind" fn slow_free(address: *mut c_void) {
    // SAFETY: the block's size is the allocator's to know; null is 0.
    let size = || unsafe { libc::malloc_usable_size(address) };
    let begun = released(&FREE, address as u64, || {
        smallvec![(address as u64, size())]
    });
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
    let usable = || unsafe { libc::malloc_usable_size(address) };
    let mut before = 0;
    let begun = released(&REALLOC, address as u64, || {
        before = usable();
        smallvec![(address as u64, before)]
    });
    type Realloc = unsafe extern "C-unwind" fn(*mut c_void, usize) -> *mut c_void;
    // SAFETY: the C library's function and the caller's arguments.
    let moved = unsafe { core::mem::transmute::<usize, Realloc>(function)(address, size) };
    // Memory that stayed where it was is still there, but for what was cut off.
    let stayed = moved == address && !moved.is_null();
    settle(begun, !moved.is_null() && !stayed || size == 0);
    if stayed && before > 0 {
        // SAFETY: the block that `realloc` has just given back.
        let now = keeping_errno(|| unsafe { libc::malloc_usable_size(moved) });
        let end = (address as u64).saturating_add(now as u64);
        let cut = before.saturating_sub(now);
        let begun = released(&REALLOC, end, || smallvec![(end, cut)]);
        settle(begun, true);
    }
    moved
}

unsafe extern "C-unwind" fn slow_munmap(address: *mut c_void, size: usize) -> i32 {
    let function = real(&REAL_MUNMAP, c"munmap");
    let begun = released(&MUNMAP, address as u64, || {
        smallvec![(address as u64, size)]
    });
    type Munmap = unsafe extern "C-unwind" fn(*mut c_void, usize) -> i32;
    // SAFETY: the C library's function and the caller's arguments.
    let status = unsafe { core::mem::transmute::<usize, Munmap>(function)(address, size) };
    settle(begun, status == 0);
    status
}

unsafe extern "C-unwind" fn slow_mremap(
    address: *mut c_void,
    size: usize,
    new_size: usize,
    flags: i32,
    target: *mut c_void,
) -> *mut c_void {
    let function = real(&REAL_MREMAP, c"mremap");
    let moving = Moving {
        address: address as u64,
        size,
        new_size,
        flags,
        target: target as u64,
    };
    let begun = released(&MREMAP, moving.lowest(), || moving.takes());
    type Mremap =
        unsafe extern "C-unwind" fn(*mut c_void, usize, usize, i32, *mut c_void) -> *mut c_void;
    // SAFETY: the C library's function and the caller's arguments.
    let moved = unsafe {
        core::mem::transmute::<usize, Mremap>(function)(address, size, new_size, flags, target)
    };
    settle(begun, moving.took(moved as u64));
    moved
}

/// The arguments of a call of `mremap`.
#[derive(Clone, Copy, Debug)]
struct Moving {
    address: u64,
    size: usize,
    new_size: usize,
    flags: i32,
    target: u64,
}

impl Moving {
    fn has_target(&self) -> bool {
        self.flags & libc::MREMAP_FIXED != 0
    }

    fn lowest(&self) -> u64 {
        match self.has_target() {
            true => self.address.min(self.target),
            false => self.address,
        }
    }

    /// The ranges that it takes the memory of if it succeeds, or moves what is there.
    fn takes(&self) -> SmallVec<[(u64, usize); 2]> {
        let mut ranges = SmallVec::new();
        if self.shrinks() {
            let kept = self.new_size as u64;
            ranges.push((self.address.saturating_add(kept), self.size - self.new_size));
        } else {
            ranges.push((self.address, self.size));
        }
        if self.has_target() {
            ranges.push((self.target, self.new_size));
        }
        ranges
    }

    /// Whether it leaves what it keeps where it is.
    fn shrinks(&self) -> bool {
        self.new_size < self.size && !self.has_target()
    }

    /// Whether it has taken that, by its answer: the address of the memory now.
    fn took(&self, answer: u64) -> bool {
        let failed = answer == libc::MAP_FAILED as u64;
        !failed && (self.shrinks() || answer != self.address)
    }
}

/// A release of watched memory that the C library is about to make.
struct Released {
    call: Call,
    /// The watched ranges that it takes besides the one whose free is open: a
    /// thread has one open free.
    others: Vec<Taken>,
    /// What is to be watched again if the memory stays.
    pageable: Vec<(u64, u64)>,
}

/// The first byte of a watched range, and what goes of it if that is not all.
type Taken = (u64, Option<Region>);

/// Records that ranges of memory go, by first bytes and sizes, if any of it is watched. None
/// of them begins before `lowest`.
fn released(
    hook: &'static Hook,
    lowest: u64,
    ranges: impl FnOnce() -> SmallVec<[(u64, usize); 2]>,
) -> Option<Released> {
    if lowest == 0 || lowest >= HIGHEST.load(Relaxed) || thread::block().depth() > 0 {
        return None;
    }
    if !recorder::running() {
        return None;
    }
    let origin = thread::block().origin();
    let call = Call::enter(hook, origin)?;
    // `free` leaves `errno` alone, and so do locks that are waited for within it.
    let ranges = keeping_errno(ranges);
    let all = || {
        ranges.iter().flat_map(|&(address, size)| {
            let taken = taken(address, size);
            taken
                .into_iter()
                .map(move |range| (range, range.part(address, size)))
        })
    };
    let taken: Vec<(Range, Option<Region>)> = keeping_errno(|| guarded(|| all().collect()))?;
    let pageable = taken.iter().filter(|(range, _)| range.pageable);
    let pageable = pageable
        .map(|(range, _)| (range.start, range.end))
        .collect();
    let mut others: Vec<Taken> = taken
        .iter()
        .map(|(range, part)| (range.start, *part))
        .collect();
    others.dedup();
    let (first, part) = others.pop()?;
    let begun = call.begin_free(|_| Free::of_libc(first, part));
    begun.then_some(Released {
        call,
        others,
        pageable,
    })
}

/// The watched ranges that a release of `size` bytes takes, by their first bytes.
pub(super) fn taken(address: u64, size: usize) -> Vec<Range> {
    let end = address.saturating_add(size as u64);
    if end <= LOWEST.load(Relaxed) {
        return Vec::new();
    }
    // Its copies may have ended, or it be part of a larger range.
    let counts = |range: &Range| !range.pageable || recorder::begins_system_memory(range.start);
    let mut taken = change(|watched| watched.take(address, end));
    taken.retain(counts);
    taken
}

fn settle(released: Option<Released>, gone: bool) {
    let Some(Released {
        call,
        others,
        pageable,
    }) = released
    else {
        return;
    };
    call.end_free(if gone { 0 } else { 2 });
    if !gone && !pageable.is_empty() {
        keeping_errno(|| guarded(|| change(|watched| watched.add_pageable(pageable.into_iter()))));
    }
    if gone {
        for (address, part) in others {
            call.released(address, part);
        }
    }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&WATCHED)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remapping_takes_what_it_moves_or_cuts_off() {
        let moving = |new_size, flags, target| Moving {
            address: 0x1_0000,
            size: 0x4000,
            new_size,
            flags,
            target,
        };
        let grown = moving(0x8000, libc::MREMAP_MAYMOVE, 0);
        assert_eq!(grown.takes().as_slice(), [(0x1_0000, 0x4000)]);
        assert!(grown.took(0x9_0000) && !grown.took(0x1_0000));
        assert!(!grown.took(libc::MAP_FAILED as u64));
        let shrunk = moving(0x1000, libc::MREMAP_MAYMOVE, 0);
        assert_eq!(shrunk.takes().as_slice(), [(0x1_1000, 0x3000)]);
        assert!(shrunk.took(0x1_0000) && !shrunk.took(libc::MAP_FAILED as u64));
        let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let placed = moving(0x1000, fixed, 0x8000);
        let both = [(0x1_0000, 0x4000), (0x8000, 0x1000)];
        assert_eq!(placed.takes().as_slice(), both);
        assert!(placed.took(0x8000) && placed.lowest() == 0x8000);
        assert_eq!(moving(0x1000, 0, 0x8000).lowest(), 0x1_0000);
    }

    fn starts(ranges: &[Range]) -> Vec<u64> {
        ranges.iter().map(|range| range.start).collect()
    }

    #[test]
    fn ranges_are_found_by_any_byte_however_they_overlap() {
        let mut watched = Watched::new();
        watched.add_registered(100, 1000);
        assert_eq!(
            watched.add_pageable([(200, 210), (300, 400), (350, 360)].into_iter()),
            0
        );
        // Registered memory stays, pageable goes with its first release.
        assert_eq!(starts(&watched.take(355, 356)), [100, 300, 350]);
        assert_eq!(starts(&watched.take(355, 356)), [100]);
        assert_eq!(starts(&watched.take(209, 300)), [100, 200]);
        assert_eq!(starts(&watched.take(0, 100)), [0; 0]);
        assert_eq!(starts(&watched.take(1000, 2000)), [0; 0]);
        watched.remove_registered(100);
        assert!(watched.ranges.is_empty());
    }

    #[test]
    fn of_too_many_pageable_ranges_the_oldest_are_forgotten() {
        let mut watched = Watched::new();
        let most = Watched::MOST_PAGEABLE as u64;
        assert_eq!(
            watched.add_pageable((1..=most).map(|at| (at * 16, at * 16 + 8))),
            0
        );
        // Watched anew, and thus the newest.
        assert_eq!(watched.add_pageable([(16, 24)].into_iter()), 0);
        assert_eq!(watched.add_pageable([(8, 9)].into_iter()), 1);
        assert_eq!(starts(&watched.take(8, 40)), [8, 16]);
    }

    #[test]
    fn the_completed_are_looked_for_whenever_there_is_twice_as_much() {
        let mut watched = Watched::new();
        watched.add_pageable((1..=16).map(|at| (at * 16, at * 16 + 8)));
        assert!(watched.to_sweep(0).is_empty());
        let pageable = watched.to_sweep(1);
        assert_eq!(pageable.len(), 16);
        // One of them is read again by then.
        watched.add_pageable([(16, 24)].into_iter());
        watched.sweep(&pageable[..8]);
        assert_eq!(watched.pageable, 9);
        assert!(watched.to_sweep(9).is_empty() && !watched.to_sweep(10).is_empty());
    }
}
