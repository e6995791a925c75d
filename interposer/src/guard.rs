//! Guarding host memory: the CPU's accesses to what pending device work uses.
//!
//! The engine says which bytes of pinned, registered and managed memory an operation will
//! read or write. Their pages are closed to the CPU, or to its writes, until the host knows
//! the work complete. An access then faults; it is submitted to the engine, whose order alone
//! decides whether it came too early, and is made again with the page open. What is noticed
//! here is never a finding by itself: a page that is closed for too long costs a fault.
//!
//! All of this lies in the core, under its lock. A signal's handler asks [`pages`] alone.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_engine::{Engine, HostUse};
use streamcheck_model::{Action, MemoryKind, Operation, Region};

use self::mapped::Ground;
use self::pages::{Pages, Piece, Protection, Trouble, ceil, floor};
use self::reach::{Launch, reach};
use crate::{doors, stderr, thread};

mod c_library;
pub(crate) mod fault;
mod mapped;
mod pages;
mod reach;
pub(crate) mod signals;

pub(crate) use c_library::is_vague;
pub(crate) use pages::page;
pub(crate) use reach::{launching, launching_with};

/// Addresses: the first one, and the one after the last.
type Span = (u64, u64);

/// Whether host memory is guarded in this process.
static ON: AtomicBool = AtomicBool::new(false);

/// Uses that are guarded at a time.
const MOST_USES: usize = 4096;
/// Instructions that are let through one by one on the pages of a use, beside the bytes that
/// it uses, until these pages are opened for what they are.
const MOST_STEPS: u32 = 1024;
/// The same on the pages of all uses of a block.
const MOST_BLOCK_STEPS: u32 = 4096;
/// Pages that are left open for good; of more, each is until the next operation uses it.
const MOST_LEFT: usize = 256;
/// Pages of a use that are opened one by one before it is opened as a whole.
const MOST_PAGES: u32 = 8;

/// What guarding keeps of a thread.
pub(crate) struct PerThread {
    /// The launch that is being recorded.
    launch: Cell<Launch>,
    /// See [`fault`].
    pub(in crate::guard) retried: Cell<u64>,
    /// Interrupted contexts that stop after their next instruction because of us.
    pub(in crate::guard) armed: Cell<u32>,
    /// The pages that are open for one instruction.
    pub(in crate::guard) stepping: Cell<[u64; 4]>,
    /// The context of the signal that is handed on, and where this was done.
    pub(in crate::guard) handed_on: Cell<usize>,
    pub(in crate::guard) nested: Cell<usize>,
    /// Which of the signals that guarding needs the application has blocked.
    pub(in crate::guard) blocked: Cell<u8>,
}

/// Whether the environment asks for it, which is known before the settings are.
pub(crate) fn asked_by_environment() -> bool {
    let value = std::env::var("STREAMCHECK_GUARD");
    matches!(value.as_deref(), Ok("on" | "true" | "1"))
}

/// Whether host memory is guarded.
#[inline]
pub(crate) fn on() -> bool {
    ON.load(Relaxed)
}

/// How many bytes of host memory are asked of CUDA: whole pages, so that no two allocations
/// share one, where they are guarded.
#[inline]
pub(crate) fn rounded(size: usize) -> usize {
    if on() && size != 0 {
        size.checked_next_multiple_of(page() as usize)
            .unwrap_or(size)
    } else {
        size
    }
}

/// Whether it ever was: pages may be closed yet.
pub(crate) fn ever_on() -> bool {
    on() || pages::any()
}

/// Whether these bytes can be read by us, for the application.
pub(crate) fn is_readable(start: u64, bytes: usize) -> bool {
    may_be_closed(start, bytes as u64) || mapped::is_readable(start, bytes)
}

/// Whether a page of these bytes may be closed.
#[inline]
pub(crate) fn may_be_closed(address: u64, size: u64) -> bool {
    pages::any() && pages::closed(address, address.saturating_add(size))
}

/// Opens those of these bytes' pages that are closed, for code that must not take a lock or
/// that nobody guards any more.
pub(crate) fn open_unlocked(start: u64, end: u64) {
    if start < end && pages::any() && pages::closed(start, end) {
        pages::pierce(start, end);
    }
}

/// Nothing is recorded any more: all is opened, and a page that another thread is just closing
/// is so at its first fault.
pub(crate) fn abandon() {
    ON.store(false, Relaxed);
    pages::pierce_all();
}

/// A use of host memory by pending work.
struct Use {
    of: HostUse,
    /// The bytes that a kernel may reach from its pointer; else those of the region.
    bytes: Span,
    /// The pages that are closed for it.
    pages: Span,
    /// How many of them were opened one by one.
    opened: u32,
    /// Instructions that were let through on them.
    steps: u32,
}

impl Use {
    /// Whether an access to these bytes has something to do with it.
    fn meets(&self, region: &Region, write: bool) -> bool {
        if !write && !self.of.writes {
            return false;
        }
        if self.of.pointer {
            region.address < self.bytes.1 && self.bytes.0 < region.end()
        } else {
            region.overlaps(&self.of.region)
        }
    }

    fn protection(&self) -> Protection {
        if self.of.writes {
            Protection::Closed
        } else {
            Protection::ReadOnly
        }
    }
}

/// What a faulting access turned out to be.
pub(crate) enum Seen {
    /// The page is open by now.
    Open,
    /// It has to do with pending work, and its page is open. Of kernels, what they were given.
    Use(SmallVec<[u64; 2]>),
    /// It has not, but its page is closed; it may be let through.
    Neighbour,
}

/// Pages that are held open for a system call.
pub(crate) type Held = SmallVec<[Span; 4]>;

/// Something that is not seen, and where.
pub(crate) type Missed = (&'static str, u64);

/// The guarded memory.
pub(crate) struct Guard {
    uses: Vec<Use>,
    pages: Pages,
    /// Ranges that were opened before their time.
    opened: Vec<Span>,
    /// Ranges that a system call uses.
    held: Vec<Span>,
    /// Pages that stay open as long as their block is there, which comes first.
    left: Vec<(u64, Span)>,
    /// Instructions that were let through on blocks, by address.
    steps: FxHashMap<u64, u32>,
    /// The engine's [`Engine::host_version`] for which `uses` was looked through.
    version: u64,
    /// Allocations that have their pages for themselves: the ends of these.
    whole: FxHashMap<u64, u64>,
    /// What lies under blocks, by address and size, as far as it was asked.
    grounds: FxHashMap<(u64, u64), Ground>,
    /// Ranges that the application has changed the protection of.
    changed: Vec<Span>,
}

fn overlap(one: Span, other: Span) -> bool {
    one.0 < other.1 && other.0 < one.1
}

impl Guard {
    /// `None` if this cannot be done here, which is said.
    pub(crate) fn begin(engine: &mut Engine) -> Option<Self> {
        pages::prepare();
        c_library::prepare();
        if let Err(why) = signals::prepare() {
            stderr::line(&format!(
                "guard=on does not work here: {why}; the program goes on unguarded"
            ));
            return None;
        }
        engine.watch_host();
        doors::system_calls::watch();
        ON.store(true, Relaxed);
        Some(Self {
            uses: Vec::new(),
            pages: Pages::new(),
            opened: Vec::new(),
            held: Vec::new(),
            left: Vec::new(),
            steps: FxHashMap::default(),
            version: engine.host_version(),
            whole: FxHashMap::default(),
            grounds: FxHashMap::default(),
            changed: Vec::new(),
        })
    }

    /// Opens all, for good.
    pub(crate) fn end(&mut self, why: &str) {
        ON.store(false, Relaxed);
        self.uses.clear();
        self.pages.open_all();
        stderr::line(&format!(
            "guarding host memory stops here: {why}; the program goes on unguarded"
        ));
    }

    /// Opens what is closed, as what lies there may go.
    pub(crate) fn open_all(&mut self) {
        self.uses.clear();
        self.opened.clear();
        self.pages.open_all();
    }

    /// An allocation was made of whole pages, up to `end`.
    pub(crate) fn allocated_whole(&mut self, address: u64, end: u64) {
        if address.is_multiple_of(page()) && end.is_multiple_of(page()) {
            self.whole.insert(address, end);
        } else {
            self.whole.remove(&address);
        }
    }

    /// Brings the guard up to date with the engine after an operation. What cannot be
    /// guarded becomes part of `missed`; `Err` says why nothing can be.
    pub(crate) fn follow(
        &mut self,
        engine: &mut Engine,
        operation: &Operation,
        missed: &mut SmallVec<[Missed; 2]>,
    ) -> Result<(), String> {
        match operation.action {
            Action::FreeBegun {
                part: Some(part), ..
            } => self.drop_where(|used| used.meets(&part, true))?,
            Action::FreeBegun { address, .. } => self.released(address)?,
            Action::DeviceDescribed { coherent: true, .. } => {
                return Err(
                    "the device uses the host's page tables, so that pages would be \
                            closed to it, too"
                        .to_owned(),
                );
            }
            _ => {}
        }
        self.drop_complete(engine)?;
        let launch = reach::launched();
        let launch = match operation.action {
            Action::Launched { .. } => launch,
            _ => Launch::default(),
        };
        let uses = engine.take_host_uses();
        if uses.is_empty() {
            return Ok(());
        }
        signals::keep()?;
        for used in uses {
            self.close(used, launch, missed)?;
        }
        Ok(())
    }

    /// Lets go of uses that the host knows complete.
    fn drop_complete(&mut self, engine: &Engine) -> Result<(), String> {
        let version = engine.host_version();
        if version == core::mem::replace(&mut self.version, version) || self.uses.is_empty() {
            return Ok(());
        }
        self.drop_where(|used| engine.is_over(&used.of))
    }

    fn drop_where(&mut self, gone: impl Fn(&Use) -> bool) -> Result<(), String> {
        let mut settled: Vec<Span> = Vec::new();
        self.uses.retain(|used| {
            let gone = gone(used);
            if gone {
                settled.push(used.pages);
            }
            !gone
        });
        if self.uses.is_empty() {
            self.opened.clear();
            self.pages.open_all();
            return Ok(());
        }
        settled.sort_unstable();
        settled.dedup();
        for (start, end) in settled {
            self.settle(start, end)?;
        }
        Ok(())
    }

    /// The block at `address` goes.
    fn released(&mut self, address: u64) -> Result<(), String> {
        self.whole.remove(&address);
        self.steps.remove(&address);
        self.left.retain(|(block, _)| *block != address);
        self.grounds.retain(|block, _| block.0 != address);
        if self.uses.iter().any(|used| used.of.block.0 == address) {
            self.drop_where(|used| used.of.block.0 == address)?;
        }
        Ok(())
    }

    /// The application changes the protection of these pages, or what lies there: they are
    /// its own from now on.
    pub(crate) fn foreign(&mut self, start: u64, end: u64) -> Result<(), String> {
        let range = (floor(start), ceil(end));
        let touched = self.uses.iter().any(|used| overlap(used.pages, range));
        self.grounds
            .retain(|block, _| !overlap((block.0, block.0.saturating_add(block.1)), range));
        if !self.changed.contains(&range) {
            // Of many, one that holds them all is as good: blocks in there are looked at.
            if self.changed.len() >= 64 {
                let start = self.changed.iter().map(|range| range.0).min().unwrap_or(0);
                let end = self.changed.iter().map(|range| range.1).max().unwrap_or(0);
                self.changed = vec![(start, end)];
            }
            self.changed.push(range);
        }
        if touched {
            self.drop_where(|used| overlap(used.pages, range))?;
        }
        Ok(())
    }

    /// What the memory of a block is.
    fn ground(&mut self, used: &HostUse) -> Ground {
        let (start, size) = used.block;
        let range = (start, start.saturating_add(size));
        // Coroutines have their stacks anywhere.
        let stack = thread::block().origin().stack_pointer;
        if (range.0..range.1).contains(&stack) {
            self.grounds.insert(used.block, Ground::Unfit);
            return Ground::Unfit;
        }
        let changed = self.changed.iter().any(|change| overlap(*change, range));
        if let Some(known) = self.grounds.get(&used.block) {
            return *known;
        }
        if used.kind != MemoryKind::Registered && !changed {
            return Ground::Own;
        }
        let ground = mapped::ground(range.0, range.1);
        self.grounds.insert(used.block, ground);
        ground
    }

    /// The pages that may be closed for bytes of a block: all that belong to it alone.
    fn own_pages(&self, used: &HostUse, bytes: Span, ground: Ground) -> Span {
        let (first, size) = used.block;
        let whole = self.whole.get(&first);
        let inner = match whole.filter(|_| used.kind != MemoryKind::Registered) {
            Some(&last) => (first, last),
            None => (ceil(first), floor(first.saturating_add(size))),
        };
        let (mut start, mut end) = (floor(bytes.0).max(inner.0), ceil(bytes.1).min(inner.1));
        // Registrations are rounded to whole pages by those who were used to have to: what
        // else is on the outer ones may be the C library's.
        if used.kind == MemoryKind::Registered && ground == Ground::Shared {
            if start == inner.0 && start < bytes.0 {
                start += page();
            }
            if end == inner.1 && end > bytes.1 {
                end -= page();
            }
        }
        (start, end.max(start))
    }

    fn close(
        &mut self,
        used: HostUse,
        launch: Launch,
        missed: &mut SmallVec<[Missed; 2]>,
    ) -> Result<(), String> {
        let start = used.region.address;
        let mut miss = |what| {
            if missed.len() < 8 {
                missed.push((what, start));
            }
        };
        if used.unknown {
            miss("guard-unknown-use");
            return Ok(());
        }
        let bytes = if used.pointer {
            let end = used.block.0.saturating_add(used.block.1);
            let start = start.saturating_add(used.element.first());
            let reach = reach(used.element, end.saturating_sub(start), launch);
            (start, start.saturating_add(reach))
        } else {
            (start, used.region.end())
        };
        if bytes.0 >= bytes.1 {
            return Ok(());
        }
        let ground = self.ground(&used);
        if ground == Ground::Unfit {
            miss("guard-mapping");
            return Ok(());
        }
        let pages = self.own_pages(&used, bytes, ground);
        if pages.0 > bytes.0 || pages.1 < bytes.1 {
            miss("guard-partial-page");
        }
        if pages.0 >= pages.1 {
            return Ok(());
        }
        let same = |known: &Use| {
            known.pages == pages
                && known.bytes == bytes
                && known.of.writes == used.writes
                && known.of.region == used.region
        };
        match self.uses.iter().position(same) {
            // The newer one lasts longer.
            Some(known) => {
                self.uses[known].of = used;
                self.uses[known].opened = 0;
                self.uses[known].steps = 0;
            }
            None if self.uses.len() >= MOST_USES => {
                miss("guard-ranges");
                return Ok(());
            }
            None => self.uses.push(Use {
                of: used,
                bytes,
                pages,
                opened: 0,
                steps: 0,
            }),
        }
        remove(&mut self.opened, pages);
        self.settle(pages.0, pages.1)
    }

    /// Closes and opens the pages of `start..end` as their uses want it.
    fn settle(&mut self, start: u64, end: u64) -> Result<(), String> {
        let range = (start, end);
        let mut cuts: SmallVec<[u64; 16]> = smallvec::smallvec![start, end];
        let uses: SmallVec<[(Span, Protection); 8]> = self
            .uses
            .iter()
            .filter(|used| overlap(used.pages, range))
            .map(|used| (used.pages, used.protection()))
            .collect();
        let open: SmallVec<[Span; 8]> = self
            .opened
            .iter()
            .chain(&self.held)
            .chain(self.left.iter().map(|(_, pages)| pages))
            .filter(|open| overlap(**open, range))
            .copied()
            .collect();
        for (first, last) in uses.iter().map(|used| used.0).chain(open.iter().copied()) {
            cuts.push(first.clamp(start, end));
            cuts.push(last.clamp(start, end));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut pieces: SmallVec<[Piece; 8]> = SmallVec::new();
        for pair in cuts.windows(2) {
            let &[first, last] = pair else { continue };
            let piece = (first, last);
            let protection = if open.iter().any(|open| overlap(*open, piece)) {
                Protection::Open
            } else {
                let of = uses.iter().filter(|used| overlap(used.0, piece));
                of.map(|used| used.1).max().unwrap_or(Protection::Open)
            };
            match pieces.last_mut() {
                Some(last_piece) if last_piece.2 == protection => last_piece.1 = last,
                _ => pieces.push((first, last, protection)),
            }
        }
        self.pages
            .set(start, end, &pieces)
            .map_err(|trouble| match trouble {
                Trouble::Full => "too many pages are closed at a time".to_owned(),
                Trouble::Kernel(error) => {
                    format!("the kernel does not let pages be closed ({error})")
                }
            })
    }

    /// Opens these pages until an operation uses them anew.
    fn open(&mut self, start: u64, end: u64) -> Result<(), String> {
        remove(&mut self.opened, (start, end));
        self.opened.push((start, end));
        self.settle(start, end)
    }

    /// What the pending uses that an access has to do with came through.
    fn met(&self, region: &Region, write: bool) -> Option<SmallVec<[u64; 2]>> {
        let mut through = SmallVec::new();
        let mut any = false;
        for used in self.uses.iter().filter(|used| used.meets(region, write)) {
            any = true;
            if used.of.pointer && !through.contains(&used.of.region.address) {
                through.push(used.of.region.address);
            }
        }
        any.then_some(through)
    }

    /// Whether pending work writes each of these bytes.
    fn is_all_written(&self, (start, end): Span) -> bool {
        (start..end).all(|address| self.met(&Region::linear(address, 1), false).is_some())
    }

    /// What an access is that has faulted. `silent`: nothing is to be told of it. `vague`: see
    /// [`c_library`].
    pub(crate) fn faulted(
        &mut self,
        engine: &Engine,
        address: u64,
        write: bool,
        silent: bool,
        vague: bool,
    ) -> Result<Seen, String> {
        self.drop_complete(engine)?;
        let (start, end) = (floor(address), floor(address) + page());
        let closed = match self.pages.at(address) {
            Protection::Open => false,
            Protection::ReadOnly => write,
            Protection::Closed => true,
        };
        if !closed {
            return Ok(Seen::Open);
        }
        let here = (start, end);
        if !self.uses.iter().any(|used| overlap(used.pages, here)) {
            self.settle(start, end)?;
            return Ok(Seen::Open);
        }
        if silent {
            self.open_used(start, end)?;
            return Ok(Seen::Open);
        }
        let region = Region::linear(address, 1);
        let Some(through) = self.met(&region, write) else {
            return Ok(Seen::Neighbour);
        };
        if vague && !write && !self.is_all_written(c_library::read_at(address)) {
            return Ok(Seen::Neighbour);
        }
        self.open_used(start, end)?;
        Ok(Seen::Use(through))
    }

    /// Opens a page that was touched, and the whole use if that happens again and again.
    fn open_used(&mut self, start: u64, end: u64) -> Result<(), String> {
        let here = (start, end);
        self.open(start, end)?;
        let mut whole: SmallVec<[Span; 2]> = SmallVec::new();
        for used in &mut self.uses {
            if overlap(used.pages, here) {
                used.opened += 1;
                if used.opened >= MOST_PAGES {
                    whole.push(used.pages);
                }
            }
        }
        for (start, end) in whole {
            self.open(start, end)?;
        }
        Ok(())
    }

    /// Never closes the page again: the kernel may be asked at any time to look at what lies
    /// there, to wait at a lock or to write a text.
    pub(crate) fn leave_open(&mut self, address: u64) -> Result<(), String> {
        let here = (floor(address), floor(address) + page());
        let used = self.uses.iter().find(|used| overlap(used.pages, here));
        let block = used.map_or(0, |used| used.of.block.0);
        if self.left.len() == MOST_LEFT {
            return self.open(here.0, here.1);
        }
        self.left.push((block, here));
        self.settle(here.0, here.1)
    }

    /// Opens a page for one instruction. False, with all that shares it open until the next
    /// operation uses that, if there were too many.
    pub(crate) fn step(&mut self, address: u64, may_step: bool) -> Result<bool, String> {
        let start = floor(address);
        let end = start + page();
        let mut may_step = may_step;
        let mut sharing: SmallVec<[Span; 2]> = SmallVec::new();
        for used in &mut self.uses {
            if overlap(used.pages, (start, end)) {
                used.steps += 1;
                let steps = self.steps.entry(used.of.block.0).or_default();
                *steps = steps.saturating_add(1);
                may_step &= used.steps <= MOST_STEPS && *steps <= MOST_BLOCK_STEPS;
                sharing.push(used.pages);
            }
        }
        if !may_step {
            for (start, end) in sharing {
                self.open(start, end)?;
            }
            return Ok(false);
        }
        self.pages
            .open_for_now(start, end)
            .map_err(|error| format!("the kernel does not let a page be opened ({error})"))?;
        Ok(true)
    }

    /// The instruction is done.
    pub(crate) fn stepped(&mut self, address: u64) -> Result<(), String> {
        let start = floor(address);
        self.pages
            .close_again(start, start + page())
            .map_err(|error| format!("the kernel does not let a page be closed ({error})"))
    }

    /// A system call is about to use these bytes: their pages stay open until it has, also
    /// where nothing uses them yet, as the call may wait. Returns the pages of those that may
    /// be closed, for [`Self::let_go`].
    pub(crate) fn hold(&mut self, engine: &Engine, ranges: &[Span]) -> Result<Held, String> {
        self.drop_complete(engine)?;
        let mut held = Held::new();
        for &(start, end) in ranges.iter().filter(|range| range.0 < range.1) {
            let pages = (floor(start), ceil(end));
            // Other bytes of a page may be another block's.
            if engine.knows_memory_in(pages.0, pages.1)
                || self.uses.iter().any(|used| overlap(used.pages, pages))
            {
                self.held.push(pages);
                held.push(pages);
                self.settle(pages.0, pages.1)?;
            }
        }
        Ok(held)
    }

    /// The system call has used these pages.
    pub(crate) fn let_go(&mut self, held: &[Span]) -> Result<(), String> {
        for &pages in held {
            if let Some(place) = self.held.iter().position(|held| *held == pages) {
                self.held.swap_remove(place);
                self.settle(pages.0, pages.1)?;
            }
        }
        Ok(())
    }

    /// Whether a call that read or wrote these bytes has to do with pending work: then their
    /// pages stay open until the next operation uses them.
    pub(crate) fn called(
        &mut self,
        engine: &Engine,
        region: &Region,
        write: bool,
    ) -> Result<Option<SmallVec<[u64; 2]>>, String> {
        self.drop_complete(engine)?;
        let met = self.met(region, write);
        if met.is_some() {
            self.open(floor(region.address), ceil(region.end()))?;
        }
        Ok(met)
    }
}

/// Takes a range out of a list of ranges.
fn remove(ranges: &mut Vec<Span>, gone: Span) {
    if !ranges.iter().any(|range| overlap(*range, gone)) {
        return;
    }
    let rest = |&(start, end): &Span| {
        [(start, end.min(gone.0)), (start.max(gone.1), end)]
            .into_iter()
            .filter(|(start, end)| start < end)
    };
    *ranges = ranges.iter().flat_map(rest).collect();
}

/// In a forked child: its memory is its own, and nothing is pending there.
pub(crate) fn fresh_after_fork() {
    ON.store(false, Relaxed);
    pages::open_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_a_range_out_leaves_what_lies_around_it() {
        let mut ranges = vec![(10, 20), (30, 40)];
        remove(&mut ranges, (15, 35));
        assert_eq!(ranges, [(10, 15), (35, 40)]);
        remove(&mut ranges, (0, 12));
        assert_eq!(ranges, [(12, 15), (35, 40)]);
        remove(&mut ranges, (0, 100));
        assert!(ranges.is_empty());
    }
}
