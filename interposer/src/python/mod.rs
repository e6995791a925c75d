//! The Python lines of a call, where an interpreter (CPython 3.9 to 3.14) is in the
//! process.
//!
//! Calls into CUDA come from native code that Python called, mostly with the
//! interpreter's lock released, so nothing is asked of Python that needs the lock, and
//! no lock is taken: the thread's own frames are read where they lie. Of the
//! interpreter's functions only four are called, each of which reads a variable.
//!
//! *What may be read at once.* A thread's frames stay while it is inside of a call,
//! save that the end of the interpreter frees those of threads that it leaves behind.
//! So plain loads are for threads that hold the lock, and for the main thread of a
//! Python program, which is the one that ends it; others' frames are read through
//! the kernel, as is everything until one whole stack has made sense. A layout that
//! does not make sense is not looked at again.

mod known;
mod layout;
mod lines;
mod memory;
mod walk;

use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::INTERPRETED;
use streamcheck_report::Frame;

use self::known::Print;
use self::layout::Layout;
use self::memory::{Direct, Guarded, Memory};
use self::walk::{Spot, Types};
use crate::objects::{self, Object};
use crate::thread;

pub(crate) use self::walk::MOST_FRAMES;

/// Spots remembered before all are forgotten.
const MOST_KNOWN: usize = 1 << 14;
/// Distinct stacks and frames; past that there are no new ones.
const MOST_STACKS: usize = 1 << 16;

/// A Python stack. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PythonStack(u32);

impl PythonStack {
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Whether it is known that there is no interpreter in the process.
static ABSENT: AtomicBool = AtomicBool::new(false);
/// The interpreter, if it stays loaded.
static LASTING: AtomicPtr<Interpreter> = AtomicPtr::new(core::ptr::null_mut());
/// The eyes of threads that may not look themselves. Nothing is waited for with this lock.
static GUARDED: Mutex<Guarded> = Mutex::new(Guarded::new());

fn guarded() -> MutexGuard<'static, Guarded> {
    GUARDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Python stack of the calling thread, of at most `most` frames, if it can be told
/// without the core's lock.
#[inline]
pub(crate) fn known(most: usize) -> Option<PythonStack> {
    if ABSENT.load(Relaxed) {
        return Some(PythonStack(0));
    }
    let interpreter = LASTING.load(Acquire);
    // SAFETY: only `refresh` stores here, a leaked box.
    unsafe { interpreter.as_ref() }?.known(most)
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 1] {
    [crate::life::hold(&GUARDED)]
}

/// The interpreter, and the stacks met in it.
pub(crate) struct Python {
    generation: Option<(u64, u64)>,
    interpreter: Option<&'static Interpreter>,
    /// The spots of the look that is under way.
    spots: Vec<Spot>,
    known_spots: FxHashMap<Spot, u64>,
    /// Frames by the addresses that stand for them, which count from
    /// [`INTERPRETED`].
    frames: Vec<Frame>,
    addresses: FxHashMap<Frame, u64>,
    stacks: Vec<Arc<[u64]>>,
    ids: FxHashMap<Arc<[u64]>, PythonStack>,
}

/// A function of CPython's that returns a thread's state, or 0.
type StateFunction = unsafe extern "C" fn() -> u64;
/// A function of CPython's that answers yes (not 0) or no.
type FlagFunction = unsafe extern "C" fn() -> c_int;

/// A loaded CPython.
struct Interpreter {
    /// Where the object that holds it begins.
    base: u64,
    /// Whether the loader never unloads it.
    lasting: bool,
    this_thread: StateFunction,
    current: StateFunction,
    is_initialized: FlagFunction,
    is_finalizing: FlagFunction,
    /// Whether `current` is the calling thread's own, else that of whoever holds the
    /// lock.
    current_is_own: bool,
    /// Whether the main program is Python itself.
    program: bool,
    /// Code whose native frames the Python frames stand for, and, where frames of it
    /// are in no stack, the code in which it is.
    code: SmallVec<[Range<u64>; 2]>,
    around: Range<u64>,
    types: Types,
    layout: Layout,
    /// A [`Faith`].
    faith: AtomicU8,
    main_thread: AtomicUsize,
}

/// What is thought of an interpreter's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faith {
    Untried = 0,
    Proved = 1,
    Lost = 2,
}

/// What is to be said in the log, once no lock is held.
static NOTICE: AtomicU8 = AtomicU8::new(0);
const SAID: u8 = u8::MAX;

/// Why there are no Python lines.
#[derive(Clone, Copy)]
enum Notice {
    Version = 1,
    Layout = 2,
    Refused = 3,
}

fn notice(notice: Notice) {
    let _ = NOTICE.compare_exchange(0, notice as u8, Relaxed, Relaxed);
}

/// Says in the log why there are no Python lines, if that was found out. No lock is held.
#[inline]
pub(crate) fn say() {
    if !matches!(NOTICE.load(Relaxed), 0 | SAID) {
        say_once();
    }
}

#[cold]
fn say_once() {
    let why = match NOTICE.swap(SAID, Relaxed) {
        1 => "this interpreter's version is not known",
        2 => "this interpreter's frames are not where its version has them",
        3 => "the kernel does not allow process_vm_readv",
        _ => return,
    };
    tracing::debug!("stacks come without Python lines: {why}");
}

impl Python {
    pub(crate) fn new() -> Self {
        ABSENT.store(false, Relaxed);
        LASTING.store(core::ptr::null_mut(), Relaxed);
        known::forget();
        Self {
            generation: None,
            interpreter: None,
            spots: Vec::new(),
            known_spots: FxHashMap::default(),
            frames: Vec::new(),
            addresses: FxHashMap::default(),
            stacks: vec![Arc::from([])],
            ids: FxHashMap::default(),
        }
    }

    /// Looks for an interpreter, if the loader has added or removed objects.
    pub(crate) fn refresh(&mut self, generation: (u64, u64)) {
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        if self.interpreter.is_some_and(|known| known.lasting) {
            return;
        }
        let found = Interpreter::find(&mut guarded());
        let same = match (&found, &self.interpreter) {
            (Some(found), Some(known)) => found.base == known.base,
            (None, None) => true,
            _ => false,
        };
        if !same {
            // Of a process's few interpreters each may still be read by a thread.
            self.interpreter = found.map(|found| &*Box::leak(Box::new(found)));
            known::forget();
            self.known_spots.clear();
            if let Some(interpreter) = self.interpreter.filter(|found| found.lasting) {
                LASTING.store(core::ptr::from_ref(interpreter).cast_mut(), Release);
            }
        }
        ABSENT.store(self.interpreter.is_none(), Relaxed);
    }

    /// The Python stack of the calling thread: its innermost frames, `most` of them.
    #[inline]
    pub(crate) fn capture(&mut self, most: usize) -> PythonStack {
        if self.generation.is_none() || self.interpreter.is_some_and(|i| !i.lasting) {
            objects::while_loaded(|generation| self.refresh(generation));
        }
        self.look(most).unwrap_or_default()
    }

    /// The addresses that stand for a stack's frames, the innermost first.
    fn addresses(&self, stack: PythonStack) -> &[u64] {
        self.stacks.get(stack.0 as usize).map_or(&[], |stack| stack)
    }

    /// The frame that an address stands for.
    pub(crate) fn frame(&self, address: u64) -> Option<&Frame> {
        let place = address.checked_sub(INTERPRETED)?;
        self.frames.get(usize::try_from(place).ok()?)
    }

    /// Where in a native stack the interpreter's own frames are: the first and the last.
    pub(crate) fn place(&self, native: &[u64]) -> Option<(usize, usize)> {
        let frames = |code: &[Range<u64>]| {
            let is_in = |address: &u64| {
                code.iter()
                    .any(|code| code.contains(&address.wrapping_sub(1)))
            };
            let first = native.iter().position(is_in)?;
            Some((first, native.iter().rposition(is_in)?))
        };
        let interpreter = self.interpreter?;
        frames(&interpreter.code).or_else(|| frames(core::slice::from_ref(&interpreter.around)))
    }

    /// Puts a Python stack in the [`Self::place`] of the interpreter's own frames. What the
    /// interpreter was called from stays, what lies between two of its frames does not.
    pub(crate) fn splice(
        &self,
        native: &[u64],
        stack: PythonStack,
        place: Option<(usize, usize)>,
    ) -> SmallVec<[u64; 64]> {
        let (before, after) = match place {
            Some((first, last)) => (&native[..first], &native[last + 1..]),
            None => (native, &[][..]),
        };
        [before, self.addresses(stack), after].concat().into()
    }

    fn look(&mut self, most: usize) -> Option<PythonStack> {
        let interpreter = self.interpreter?;
        let access = interpreter.access()?;
        let mut spots = core::mem::take(&mut self.spots);
        spots.clear();
        let seen = interpreter.spots(access, most, |spot| spots.push(spot));
        let stack = seen.and_then(|()| self.stack_of(&spots, access));
        self.spots = spots;
        match stack {
            None => interpreter.doubt(access),
            Some(stack) if !stack.is_none() => interpreter.prove(),
            Some(_) => {}
        }
        stack
    }

    fn stack_of(&mut self, spots: &[Spot], access: Access) -> Option<PythonStack> {
        let mut print = Print::NONE;
        for spot in spots {
            print.add(spot);
        }
        if let Some(known) = known::find(print) {
            return Some(known);
        }
        let stack = match access {
            Access::Direct(_) => {
                // SAFETY: `access` has seen to it.
                let mut memory = unsafe { Direct::new() };
                self.learn(spots, &mut memory)
            }
            Access::Guarded(_) => self.learn(spots, guarded().renew()),
        }?;
        known::remember(print, stack);
        Some(stack)
    }

    /// Interns a stack that was not met before.
    #[cold]
    fn learn(&mut self, spots: &[Spot], memory: &mut impl Memory) -> Option<PythonStack> {
        let addresses: SmallVec<[u64; MOST_FRAMES]> = spots
            .iter()
            .map(|spot| self.address_of(spot, memory))
            .collect::<Option<_>>()?;
        if let Some(&known) = self.ids.get(&*addresses) {
            return Some(known);
        }
        if self.stacks.len() >= MOST_STACKS {
            return Some(PythonStack(0));
        }
        let stack = PythonStack(self.stacks.len() as u32);
        let addresses: Arc<[u64]> = Arc::from(&*addresses);
        self.stacks.push(addresses.clone());
        self.ids.insert(addresses, stack);
        Some(stack)
    }

    /// The address that stands for a spot's file, function and line.
    fn address_of(&mut self, spot: &Spot, memory: &mut impl Memory) -> Option<u64> {
        if let Some(&known) = self.known_spots.get(spot) {
            return Some(known);
        }
        let Interpreter { types, layout, .. } = self.interpreter?;
        let frame = layout.frame(types, memory, spot)?;
        let address = match self.addresses.get(&frame) {
            Some(&known) => known,
            None if self.frames.len() >= MOST_STACKS => return None,
            None => {
                let address = INTERPRETED + self.frames.len() as u64;
                self.frames.push(frame.clone());
                self.addresses.insert(frame, address);
                address
            }
        };
        if self.known_spots.len() >= MOST_KNOWN {
            self.known_spots.clear();
        }
        self.known_spots.insert(*spot, address);
        Some(address)
    }
}

/// How a thread's state is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Direct(u64),
    Guarded(u64),
}

impl Interpreter {
    /// See [`known`].
    fn known(&self, most: usize) -> Option<PythonStack> {
        let Some(access) = self.access() else {
            return Some(PythonStack(0));
        };
        let mut print = Print::NONE;
        self.spots(access, most, |spot| print.add(&spot))?;
        known::find(print)
    }

    /// Gives the spots of the thread's frames to `each`. `None` if what was met cannot be
    /// frames.
    fn spots(&self, access: Access, most: usize, each: impl FnMut(Spot)) -> Option<()> {
        let Self { types, layout, .. } = self;
        match access {
            Access::Direct(thread) => {
                // SAFETY: `access` has seen to it.
                let mut memory = unsafe { Direct::new() };
                layout.spots(types, &mut memory, thread, most, each)
            }
            Access::Guarded(thread) => {
                let mut guarded = guarded();
                let seen = layout.spots(types, guarded.begin(thread), thread, most, each);
                guarded.end(thread);
                seen
            }
        }
    }

    fn has(&self, faith: Faith) -> bool {
        self.faith.load(Relaxed) == faith as u8
    }

    /// A whole stack has made sense.
    fn prove(&self) {
        if self.has(Faith::Untried) {
            self.faith.store(Faith::Proved as u8, Relaxed);
        }
    }

    /// Something was not as it must be. A thread that the interpreter has left behind
    /// may see anything; one that it waits for may not.
    #[cold]
    fn doubt(&self, access: Access) {
        if guarded().refused {
            notice(Notice::Refused);
            if self.has(Faith::Untried) {
                self.faith.store(Faith::Lost as u8, Relaxed);
            }
        } else if self.has(Faith::Untried) || matches!(access, Access::Direct(_)) {
            self.faith.store(Faith::Lost as u8, Relaxed);
            notice(Notice::Layout);
        }
    }

    /// The state of the calling thread, if it has one that may be read.
    fn access(&self) -> Option<Access> {
        if self.has(Faith::Lost) {
            return None;
        }
        // SAFETY: the interpreter's functions of these types. They read thread-specific
        // data and variables of the process; neither the lock nor a state is needed. The
        // object is loaded: it stays for good, or `capture` has just seen it.
        let (own, current) = unsafe {
            let own = (self.this_thread)();
            // From 3.12 on the slot is thread-local, and the loader may make it at the
            // first look. A thread with a state of its own has had that.
            (own, if own == 0 { 0 } else { (self.current)() })
        };
        if own == 0 {
            return None;
        }
        // The thread may be in another interpreter of the process than its own state's.
        let attached = current != 0 && (self.current_is_own || current == own);
        let thread = if attached { current } else { own };
        let main = !attached && self.is_main_thread();
        // SAFETY: as above.
        let ended =
            !attached && unsafe { (self.is_initialized)() == 0 || (self.is_finalizing)() != 0 };
        if ended && !main {
            // Its state may be gone.
            return None;
        }
        let stays = attached || (main && self.program && !ended);
        Some(if stays && self.has(Faith::Proved) {
            Access::Direct(thread)
        } else {
            Access::Guarded(thread)
        })
    }

    /// Whether the calling thread is the process's first.
    fn is_main_thread(&self) -> bool {
        // The first thread's block is no other thread's, as long as the process lives.
        let here = core::ptr::from_ref(thread::block()).addr();
        if self.main_thread.load(Relaxed) == here {
            return true;
        }
        // SAFETY: system calls without conditions.
        let main = unsafe { libc::syscall(libc::SYS_gettid) == i64::from(libc::getpid()) };
        if main {
            self.main_thread.store(here, Relaxed);
        }
        main
    }

    /// The interpreter of this process, if there is one that can be read. The loader
    /// unloads nothing meanwhile.
    fn find(memory: &mut Guarded) -> Option<Self> {
        let objects = objects::list();
        let main = objects.first()?;
        let this_thread = c"PyGILState_GetThisThreadState";
        let holder = objects.iter().find(|object| {
            (core::ptr::eq(*object, main) || object.file_name().starts_with("libpython3"))
                && object.exported(this_thread).is_some()
        })?;
        // The main program comes first, as it may hold copies of a library's variables.
        let both = [main, holder];
        let found = |name: &CStr| both.iter().find_map(|object| object.exported(name));
        let symbol = |name: &CStr| found(name).map(|(address, _)| address);
        let Some(version) = version(&symbol) else {
            notice(Notice::Version);
            return None;
        };
        let minor = version >> 16 & 0xff;
        let layout = symbol(c"_PyRuntime")
            .filter(|_| version >> 24 == 3)
            .and_then(|runtime| Layout::of(minor, version, runtime, memory.renew()));
        let Some(layout) = layout else {
            notice(if memory.refused {
                Notice::Refused
            } else {
                Notice::Version
            });
            return None;
        };
        let own_program = core::ptr::eq(holder, main);
        let program = is_python_itself();
        let range = |object: &Object| object.start..object.end;
        let mut code = SmallVec::new();
        if own_program && !program {
            // A program with Python inside: its other code is its own.
            code.extend(
                found(c"_PyEval_EvalFrameDefault").map(|(start, size)| start..start + size),
            );
        } else {
            code.push(range(holder));
            if program {
                code.push(range(main));
            }
        }
        let lasting = own_program || main.needed().iter().any(|name| name == holder.file_name());
        let (current, finalizing) = if minor >= 13 {
            (c"PyThreadState_GetUnchecked", c"Py_IsFinalizing")
        } else {
            (c"_PyThreadState_UncheckedGet", c"_Py_IsFinalizing")
        };
        let state = |name| {
            let address = symbol(name)? as usize;
            // SAFETY: only used for CPython's functions that take nothing and return a
            // pointer to a thread's state, which is a word.
            Some(unsafe { core::mem::transmute::<usize, StateFunction>(address) })
        };
        let flag = |name| {
            let address = symbol(name)? as usize;
            // SAFETY: only used for CPython's functions that take nothing and return an `int`.
            Some(unsafe { core::mem::transmute::<usize, FlagFunction>(address) })
        };
        Some(Self {
            base: holder.start,
            lasting,
            this_thread: state(this_thread)?,
            current: state(current)?,
            is_initialized: flag(c"Py_IsInitialized")?,
            is_finalizing: flag(finalizing)?,
            current_is_own: minor >= 12,
            program,
            code,
            around: range(holder),
            types: Types {
                code: symbol(c"PyCode_Type")?,
                text: symbol(c"PyUnicode_Type")?,
                bytes: symbol(c"PyBytes_Type")?,
            },
            layout,
            faith: AtomicU8::new(Faith::Untried as u8),
            main_thread: AtomicUsize::new(0),
        })
    }
}

/// Whether the main program is a `python3`, by its name.
fn is_python_itself() -> bool {
    std::env::current_exe().is_ok_and(|exe| {
        exe.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("python"))
    })
}

/// The interpreter's version, as `PY_VERSION_HEX`; before 3.11 without what comes after
/// the minor number.
fn version(symbol: &impl Fn(&CStr) -> Option<u64>) -> Option<u32> {
    if let Some(address) = symbol(c"Py_Version") {
        // SAFETY: a constant of CPython's, an `unsigned long`.
        return u32::try_from(unsafe { *(address as *const u64) }).ok();
    }
    let address = symbol(c"Py_GetVersion")?;
    // SAFETY: CPython's function of that name, which prints into a buffer of its own, the
    // same text every time.
    let text = unsafe {
        let function = core::mem::transmute::<usize, unsafe extern "C" fn() -> *const c_char>(
            address as usize,
        );
        CStr::from_ptr(function())
    };
    parse(text.to_str().ok()?)
}

/// `3.10.13 (main, …` as a version number.
fn parse(text: &str) -> Option<u32> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse::<u8>().ok().map(u32::from);
    Some(next()? << 24 | next()? << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_text() {
        assert_eq!(parse("3.9.18 (main, May  9 2026)"), Some(0x0309_0000));
        assert_eq!(parse("3.10.0rc1+ [GCC]"), Some(0x030a_0000));
        assert_eq!(parse("3.x"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn without_an_interpreter_there_is_nothing() {
        let mut python = Python::new();
        assert!(python.capture(MOST_FRAMES).is_none());
        assert!(python.generation.is_some());
        assert_eq!(python.place(&[1, 2, 3]), None);
        assert_eq!(&*python.splice(&[1, 2, 3], PythonStack(0), None), [1, 2, 3]);
        assert_eq!(python.frame(INTERPRETED), None);
    }
}
