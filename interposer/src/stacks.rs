//! Host stacks, interned.
//!
//! A stack is unwound with framehop from the registers that the entry stub saved,
//! through the unwind tables that the loader has mapped, and kept as return
//! addresses. One that was unwound before is known again (see [`crate::known_stacks`]).
//! Where Python called, its frames are part of the stack: addresses that are none
//! stand for them (see [`crate::python`]).

use core::cell::RefCell;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::{Action, StackId};
use streamcheck_report::{Frame, Stacks as Policy};

use crate::known_stacks::{self, Key, Trail, Word};
use crate::objects;
use crate::python::{self, Python, PythonStack};
use crate::thread::{self, Origin};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Unwinder,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Unwinder,
};

/// Frames kept of a stack.
const MOST_FRAMES: usize = 64;
/// Distinct stacks kept, and addresses in all of them; past that only the caller is
/// recorded, of known ones.
const MOST_STACKS: usize = 1 << 17;
const MOST_ADDRESSES: usize = 1 << 21;

/// What is recorded of stacks: a [`Policy`], for those who have no lock.
static POLICY: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const CALLER: u8 = 1;
const FULL: u8 = 2;

/// Bytes that the loader has mapped. They are looked at only inside of
/// [`objects::while_loaded`], while the loader has unmapped nothing since they were
/// listed.
#[derive(Clone, Copy, Default)]
struct Mapped(&'static [u8]);

impl core::ops::Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

/// The stacks of a process.
pub(crate) struct Stacks {
    unwinder: Unwinder<Mapped>,
    cache: Cache,
    /// For trials: a failure has the unwinder take a rule of last resort, and remember it.
    trials: Cache,
    generation: Option<(u64, u64)>,
    ids: FxHashMap<Arc<[u64]>, StackId>,
    stacks: Vec<Arc<[u64]>>,
    /// How many addresses these are in all.
    addresses: usize,
    python: Python,
    /// Of the stack that is being unwound.
    trail: Trail,
}

/// Whether the stack of a call is wanted at all.
#[inline]
pub(crate) fn are_wanted(action: &Action) -> bool {
    // A name comes through no entry stub.
    !matches!(
        action,
        Action::FreeEnded { .. } | Action::BlindSpot { .. } | Action::StreamNamed { .. }
    )
}

/// Code that a fault has interrupted.
#[derive(Clone, Copy)]
pub(crate) struct Interrupted {
    /// Its instruction.
    pub(crate) pc: u64,
    pub(crate) stack_pointer: u64,
    pub(crate) frame_pointer: u64,
    /// The link register.
    #[cfg(target_arch = "aarch64")]
    pub(crate) link: u64,
}

/// What the stack of a call is found by.
#[inline]
fn key(origin: &Origin, python: PythonStack) -> Key {
    let end = match POLICY.load(Relaxed) {
        FULL => thread::block().stack_end(origin.frame_address()),
        _ => None,
    };
    Key::new(*origin, end, python.number())
}

/// How many Python frames are wanted.
fn most_python_frames() -> usize {
    match POLICY.load(Relaxed) {
        FULL => python::MOST_FRAMES,
        _ => 1,
    }
}

/// The stack of a call, as far as the settings want it, if it can be told without a lock.
#[inline]
pub(crate) fn known(origin: &Origin) -> Option<StackId> {
    if POLICY.load(Relaxed) == NONE {
        return Some(StackId(0));
    }
    known_stacks::find(&key(origin, python::known(most_python_frames())?))
}

impl Stacks {
    pub(crate) fn new(policy: Policy) -> Self {
        let policy = match policy {
            Policy::None => NONE,
            Policy::Caller => CALLER,
            Policy::Full => FULL,
        };
        POLICY.store(policy, Relaxed);
        known_stacks::forget();
        let none: Arc<[u64]> = Arc::from([]);
        Self {
            unwinder: Unwinder::new(),
            cache: Cache::new(),
            trials: Cache::new(),
            generation: None,
            ids: FxHashMap::default(),
            stacks: vec![none],
            addresses: 0,
            python: Python::new(),
            trail: Trail::default(),
        }
    }

    /// The return addresses of a stack, the innermost first.
    pub(crate) fn addresses(&self, id: StackId) -> &[u64] {
        self.stacks.get(id.0 as usize).map_or(&[], |stack| stack)
    }

    /// The Python frames among a stack's addresses.
    pub(crate) fn interpreted(&self, addresses: &[u64]) -> impl Iterator<Item = (u64, &Frame)> {
        addresses
            .iter()
            .filter_map(|&address| Some((address, self.python.frame(address)?)))
    }

    /// The stack of a call that is not [`known`].
    #[cold]
    pub(crate) fn learn(&mut self, origin: &Origin) -> StackId {
        let python = self.python.capture(most_python_frames());
        let key = key(origin, python);
        if let Some(known) = known_stacks::find(&key) {
            return known;
        }
        let mut trail = core::mem::take(&mut self.trail);
        let native = self.unwind(origin, &mut trail);
        let id = if python.is_none() {
            self.intern(&native)
        } else {
            let place = self.python.place(&native);
            if let Some((first, last)) = place {
                // The interpreter's frames between are in no stack.
                trail
                    .words
                    .retain(|word| word.index <= first || word.index > last);
            }
            let spliced = self.python.splice(&native, python, place);
            self.intern(&spliced)
        };
        known_stacks::remember(&key, &trail, id);
        self.trail = trail;
        id
    }

    /// The stack of an instruction, by its addresses and without the `inner` innermost:
    /// a copy by the C library is its caller's, wherever in the copy it was.
    #[cold]
    pub(crate) fn learn_at(&mut self, addresses: &[u64], inner: usize) -> StackId {
        let policy = POLICY.load(Relaxed);
        if policy == NONE {
            return StackId(0);
        }
        let python = self.python.capture(most_python_frames());
        let native = addresses.get(inner..).unwrap_or(addresses);
        let native = match policy {
            FULL => native,
            _ => &native[..native.len().min(1)],
        };
        if python.is_none() {
            return self.intern(native);
        }
        let place = self.python.place(native);
        let spliced = self.python.splice(native, python, place);
        self.intern(&spliced)
    }

    /// The addresses of an instruction's stack, its own first. Where it called from is told
    /// by an address after it, as of calls.
    #[cold]
    pub(crate) fn unwind_at(&mut self, at: &Interrupted) -> Addresses {
        let mut addresses = Addresses::from_slice(&[at.pc + 1]);
        objects::while_loaded(|generation| {
            self.refresh(generation);
            let Some(end) = thread::block().stack_end(at.stack_pointer) else {
                return;
            };
            let bottom = at.stack_pointer;
            let mut read = |address: u64| {
                let last = address.checked_add(8);
                if address < bottom || address & 7 != 0 || last.is_none_or(|last| last > end) {
                    return Err(());
                }
                // SAFETY: an aligned word of this thread's own stack, in use by the
                // interrupted code.
                Ok(unsafe { *(address as *const u64) })
            };
            let mut registers = registers_at(at);
            let mut frame = FrameAddress::from_instruction_pointer(at.pc);
            while addresses.len() < MOST_FRAMES {
                let next =
                    self.unwinder
                        .unwind_frame(frame, &mut registers, &mut self.trials, &mut read);
                let Ok(Some(next)) = next else { break };
                addresses.push(next);
                match FrameAddress::from_return_address(next) {
                    Some(next) => frame = next,
                    None => break,
                }
            }
        });
        addresses
    }

    fn intern(&mut self, addresses: &[u64]) -> StackId {
        if let Some(&id) = self.ids.get(addresses) {
            return id;
        }
        if self.stacks.len() >= MOST_STACKS || self.addresses >= MOST_ADDRESSES {
            let caller = &addresses[..addresses.len().min(1)];
            return self.ids.get(caller).copied().unwrap_or_default();
        }
        let id = StackId(self.stacks.len() as u32);
        self.addresses += addresses.len();
        let addresses: Arc<[u64]> = Arc::from(addresses);
        self.stacks.push(addresses.clone());
        self.ids.insert(addresses, id);
        id
    }

    fn unwind(&mut self, origin: &Origin, trail: &mut Trail) -> Addresses {
        let mut addresses = origin_only(origin);
        trail.words.clear();
        trail.frame_pointer = false;
        let end = match POLICY.load(Relaxed) {
            FULL => thread::block().stack_end(origin.frame_address()),
            _ => None,
        };
        objects::while_loaded(|generation| {
            self.refresh(generation);
            if let Some(end) = end {
                self.walk(origin, end, &mut addresses, trail);
            }
        });
        addresses
    }

    /// Where the first return address above `address` lies among those of the call's stack,
    /// and what it is.
    pub(crate) fn returns_above(&mut self, origin: &Origin, address: u64) -> Option<(u64, u64)> {
        let mut trail = Trail::default();
        let addresses = self.unwind(origin, &mut trail);
        let bottom = origin.frame_address();
        let place = |word: &Word| bottom + u64::from(word.place) * 8;
        let returns = trail
            .words
            .iter()
            .filter(|word| addresses.get(word.index) == Some(&word.word) && place(word) > address);
        let first = returns.min_by_key(|word| word.place)?;
        Some((place(first), first.word))
    }

    /// Appends the return addresses above the first, up to the stack's `end`.
    fn walk(&mut self, origin: &Origin, end: u64, addresses: &mut Addresses, trail: &mut Trail) {
        let bottom = origin.frame_address();
        let mut registers = Registers::new(origin.return_address, bottom, origin.frame_pointer);
        let reads = RefCell::new(SmallVec::<[(u64, u64); 4]>::new());
        let mut read = |address: u64| {
            if address < bottom
                || address & 7 != 0
                || address.checked_add(8).is_none_or(|last| last > end)
            {
                return Err(());
            }
            // SAFETY: an aligned word of this thread's own stack, above the hook's frame.
            let word = unsafe { *(address as *const u64) };
            reads.borrow_mut().push((address, word));
            Ok(word)
        };
        // Where the frame pointer was saved that a frame is unwound with; at first it is
        // the call's own.
        let mut saved = None;
        let mut address = origin.return_address;
        while addresses.len() < MOST_FRAMES {
            let Some(frame) = FrameAddress::from_return_address(address) else {
                break;
            };
            let before = registers;
            reads.borrow_mut().clear();
            let Ok(Some(next)) =
                self.unwinder
                    .unwind_frame(frame, &mut registers, &mut self.cache, &mut read)
            else {
                break;
            };
            let index = addresses.len();
            addresses.push(next);
            address = next;
            let mut keep = |(address, word): (u64, u64)| {
                trail.words.push(Word {
                    place: ((address - bottom) / 8) as u32,
                    word,
                    index,
                });
            };
            // A frame that needs its frame pointer cannot be unwound with none.
            let own = reads.take();
            let mut without = with_frame_pointer(before, 0);
            let again =
                self.unwinder
                    .unwind_frame(frame, &mut without, &mut self.trials, &mut read);
            if again != Ok(Some(next)) || without.sp() != registers.sp() {
                match saved {
                    Some(word) => keep(word),
                    None => trail.frame_pointer = true,
                }
            }
            // Of what a frame is unwound with, the caller's frame pointer alone may turn
            // out not to count.
            let pointer = frame_pointer(&registers);
            for word in own {
                if word.1 == pointer && word.1 != next {
                    saved = Some(word);
                } else {
                    keep(word);
                }
            }
        }
    }

    /// Lists the modules anew if the loader has added or removed any.
    fn refresh(&mut self, generation: (u64, u64)) {
        if self.generation == Some(generation) {
            return;
        }
        // At the addresses of what was unloaded other code may lie.
        if self
            .generation
            .is_some_and(|(_, unloaded)| unloaded != generation.1)
        {
            known_stacks::forget();
        }
        self.generation = Some(generation);
        self.python.refresh(generation);
        self.unwinder = Unwinder::new();
        self.cache = Cache::new();
        self.trials = Cache::new();
        for object in objects::list() {
            self.unwinder.add_module(module(&object));
        }
    }
}

pub(crate) type Addresses = SmallVec<[u64; MOST_FRAMES]>;

#[cfg(target_arch = "x86_64")]
fn frame_pointer(registers: &Registers) -> u64 {
    registers.bp()
}

#[cfg(target_arch = "aarch64")]
fn frame_pointer(registers: &Registers) -> u64 {
    registers.fp()
}

#[cfg(target_arch = "x86_64")]
fn registers_at(at: &Interrupted) -> Registers {
    Registers::new(at.pc, at.stack_pointer, at.frame_pointer)
}

#[cfg(target_arch = "aarch64")]
fn registers_at(at: &Interrupted) -> Registers {
    Registers::new(at.link, at.stack_pointer, at.frame_pointer)
}

fn with_frame_pointer(mut registers: Registers, pointer: u64) -> Registers {
    #[cfg(target_arch = "x86_64")]
    registers.set_bp(pointer);
    #[cfg(target_arch = "aarch64")]
    registers.set_fp(pointer);
    registers
}

fn origin_only(origin: &Origin) -> Addresses {
    Addresses::from_slice(&[origin.return_address])
}

/// What framehop needs of a loaded object: its range and its unwind tables.
fn module(object: &objects::Object) -> Module<Mapped> {
    let range = |(start, size): (u64, u64)| {
        // SAFETY: a piece of a segment that the loader has mapped readable.
        let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, size as usize) };
        (
            Some(start - object.base..start - object.base + size),
            Some(Mapped(bytes)),
        )
    };
    let mut info = ExplicitModuleSectionInfo::default();
    if let Some(header) = object.unwind_header
        && object
            .segment_end(header.0)
            .is_some_and(|end| header.0 + header.1 <= end)
    {
        (info.eh_frame_hdr_svma, info.eh_frame_hdr) = range(header);
        // The header's second field points to `.eh_frame`; nothing tells its size,
        // so it is taken to reach to the end of its segment.
        if let Some(start) = eh_frame_start(header.0, info.eh_frame_hdr.as_deref().unwrap_or(&[]))
            && let Some(end) = object.segment_end(start)
        {
            (info.eh_frame_svma, info.eh_frame) = range((start, end - start));
        }
    }
    Module::new(
        object.path.clone(),
        object.start..object.end,
        object.base,
        info,
    )
}

/// Reads the `.eh_frame` pointer of an `.eh_frame_hdr` at `address`, in the one
/// encoding that linkers write: a signed 32-bit offset from the field itself.
fn eh_frame_start(address: u64, header: &[u8]) -> Option<u64> {
    const DW_EH_PE_PCREL_SDATA4: u8 = 0x1b;
    let (&[1, DW_EH_PE_PCREL_SDATA4, _, _], rest) = header.split_first_chunk::<4>()? else {
        return None;
    };
    let offset = i32::from_le_bytes(*rest.first_chunk()?);
    (address + 4).checked_add_signed(offset.into())
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use core::hint::black_box;
    use std::sync::Mutex;

    use super::*;

    thread_local! {
        static STACKS: RefCell<Option<Stacks>> = const { RefCell::new(None) };
        /// How many calls were known again.
        static KNOWN: Cell<usize> = const { Cell::new(0) };
    }

    /// The table is the process's.
    static ALONE: Mutex<()> = Mutex::new(());

    /// A call into CUDA, as hooks see it.
    #[unsafe(naked)]
    unsafe extern "C" fn call() {
        thread::stub_asm!(body)
    }

    extern "C" fn body() {
        let origin = thread::block().origin();
        STACKS.with_borrow_mut(|stacks| {
            let stacks = stacks.as_mut().expect("the test has begun");
            let stack = known(&origin);
            KNOWN.set(KNOWN.get() + usize::from(stack.is_some()));
            let stack = stack.unwrap_or_else(|| stacks.learn(&origin));
            let fresh = stacks.unwind(&origin, &mut Trail::default());
            assert_eq!(stacks.addresses(stack), &fresh[..]);
            assert!(fresh.len() > 3);
        });
    }

    /// Frames of different sizes, whose callers differ in nothing but the address that
    /// they return to.
    macro_rules! ways {
        ($($way:ident: $bytes:literal),*) => {
            $(#[inline(never)]
            fn $way(path: u64, depth: u32) {
                let mut frame = [path as u8; $bytes];
                black_box(&mut frame);
                step(path, depth);
                black_box(&mut frame);
            })*
        };
    }
    ways! { small: 16, other_small: 16, large: 400, huge: 3000 }

    #[inline(never)]
    fn step(path: u64, depth: u32) {
        if depth == 0 {
            // SAFETY: it takes nothing.
            unsafe { call() };
        } else {
            let way = [small, other_small, large, huge][path as usize & 3];
            way(path >> 2, depth - 1);
        }
        black_box(depth);
    }

    fn with_stacks(policy: Policy, test: impl FnOnce()) {
        let _alone = ALONE.lock();
        let stacks = Stacks::new(policy);
        STACKS.set(Some(stacks));
        KNOWN.set(0);
        test();
        STACKS.set(None);
    }

    #[test]
    fn a_stack_that_is_known_again_is_what_unwinding_gives() {
        with_stacks(Policy::Full, || {
            let mut paths = 0x0123_4567_89ab_cdef_u64;
            let paths: Vec<u64> = core::iter::repeat_with(|| {
                paths ^= paths << 13;
                paths ^= paths >> 7;
                paths ^= paths << 17;
                paths
            })
            .take(300)
            .collect();
            #[inline(never)]
            fn walk(paths: &[u64]) {
                for path in paths {
                    step(*path, (path >> 40) as u32 % 12);
                }
            }
            // What is repeated is not to be unrolled into calls from different addresses.
            for _ in 0..black_box(4) {
                KNOWN.set(0);
                walk(&paths);
            }
            assert!(KNOWN.get() > 280, "{}", KNOWN.get());
        });
    }

    /// As many places from which a function is called that calls CUDA.
    macro_rules! places {
        ($($place:literal)*) => {
            [$({
                #[inline(never)]
                fn place(depth: u32) {
                    // Its own address.
                    black_box($place);
                    step(0, depth);
                    black_box($place);
                }
                place as fn(u32)
            }),*]
        };
    }

    #[test]
    fn one_function_may_be_called_from_many_places() {
        with_stacks(Policy::Full, || {
            let places = places!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24);
            #[inline(never)]
            fn walk(places: &[fn(u32)], depth: u32) {
                for place in places {
                    place(depth);
                }
            }
            for depth in [0, 5] {
                for _ in 0..black_box(5) {
                    KNOWN.set(0);
                    walk(&places, depth);
                }
                assert!(KNOWN.get() >= places.len() - 2, "{}", KNOWN.get());
            }
        });
    }

    #[test]
    fn threads_read_while_others_write() {
        let _alone = ALONE.lock();
        let _stacks = Stacks::new(Policy::Full);
        let core = Mutex::new(());
        let core = &core;
        std::thread::scope(|scope| {
            for seed in 0..4_u64 {
                scope.spawn(move || {
                    for turn in 0..20_000_u64 {
                        let place = seed + turn % 7;
                        let words = [turn; 200];
                        let origin = Origin {
                            return_address: turn % 5 + 1,
                            stack_pointer: words.as_ptr() as u64,
                            frame_pointer: 0,
                        };
                        let end = words.as_ptr_range().end as u64;
                        let key = Key::new(origin, Some(end), 0);
                        let mut trail = Trail::default();
                        trail.words.push(Word {
                            place: place as u32,
                            word: turn,
                            index: 1,
                        });
                        let find = || known_stacks::find(&key).map(|found| u64::from(found.0));
                        assert!(find().is_none_or(|found| found == turn));
                        {
                            let _core = core.lock().expect("no thread has failed");
                            known_stacks::remember(&key, &trail, StackId(turn as u32));
                        }
                        assert!(find().is_none_or(|found| found == turn));
                    }
                });
            }
        });
    }

    #[test]
    fn callers_alone_are_told_apart_too() {
        with_stacks(Policy::Caller, || {
            let stacks = |f: &mut dyn FnMut(&mut Stacks)| {
                STACKS.with_borrow_mut(|stacks| f(stacks.as_mut().expect("there are stacks")));
            };
            let origin = |return_address| Origin {
                return_address,
                stack_pointer: 0x1000 * return_address,
                frame_pointer: 0,
            };
            stacks(&mut |stacks| {
                for address in [16, 32] {
                    assert_eq!(known(&origin(address)), None);
                    let id = stacks.learn(&origin(address));
                    assert_eq!(stacks.addresses(id), [address]);
                    assert_eq!(known(&origin(address)), Some(id));
                }
            });
        });
        with_stacks(Policy::None, || {
            let origin = Origin {
                return_address: 16,
                stack_pointer: 0,
                frame_pointer: 0,
            };
            assert_eq!(known(&origin), Some(StackId(0)));
        });
    }
}
