//! The signals that guarding needs, and the application's own actions for them.
//!
//! While memory is guarded, SIGSEGV and SIGTRAP have our handlers. What the application sets
//! is remembered, told when it asks, and done when a signal comes that is not ours. A blocked
//! SIGSEGV would end the process instead of reaching us, so that it stays in no mask.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use libc::{SIG_DFL, SIG_IGN, SIGSEGV, SIGTRAP, siginfo_t, sigset_t};

use super::{fault, mapped};
use crate::thread::{self, keeping_errno};
use crate::{doors, objects};

/// The signals that guarding needs.
const NEEDED: [c_int; 2] = [SIGSEGV, SIGTRAP];
/// Real-time signals included (`_NSIG`).
const SIGNALS: usize = 65;

/// A signal's bit in the kernel's set.
pub(crate) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// What must not be blocked: a fault ends the process where its signal is. A thread that
/// blocks SIGTRAP makes no single steps.
const BITS: u64 = bit(SIGSEGV);

/// Signals that the running instruction itself causes.
const OWN_FAULTS: u64 = bit(SIGSEGV)
    | bit(SIGTRAP)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGSYS);

/// The bit as a small one, and back.
fn packed(set: u64) -> u8 {
    u8::from(set & BITS != 0)
}

fn unpacked(bits: u8) -> u64 {
    if bits == 0 { 0 } else { BITS }
}

/// Which of them a number names.
fn place(signal: c_int) -> Option<usize> {
    NEEDED.iter().position(|needed| *needed == signal)
}

/// What is done on a signal.
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: c_int,
    mask: u64,
}

const NOTHING: Action = Action {
    handler: SIG_DFL,
    flags: 0,
    mask: 0,
};

/// An action that handlers read.
struct Kept {
    /// Odd while it is written.
    writings: AtomicU64,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl Kept {
    const fn new() -> Self {
        Self {
            writings: AtomicU64::new(0),
            handler: AtomicUsize::new(SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn get(&self) -> Action {
        loop {
            let before = self.writings.load(Acquire);
            let action = Action {
                handler: self.handler.load(Acquire),
                flags: self.flags.load(Acquire),
                mask: self.mask.load(Acquire),
            };
            if before & 1 == 0 && self.writings.load(Acquire) == before {
                return action;
            }
            core::hint::spin_loop();
        }
    }

    /// Replaces it. No signal may interrupt this.
    fn swap(&self, new: Action) -> Action {
        loop {
            let before = self.writings.load(Acquire);
            if before & 1 == 0
                && self
                    .writings
                    .compare_exchange(before, before + 1, AcqRel, Relaxed)
                    .is_ok()
            {
                let old = Action {
                    handler: self.handler.load(Relaxed),
                    flags: self.flags.load(Relaxed),
                    mask: self.mask.load(Relaxed),
                };
                self.handler.store(new.handler, Release);
                self.flags.store(new.flags, Release);
                self.mask.store(new.mask, Release);
                self.writings.store(before + 2, Release);
                return old;
            }
            core::hint::spin_loop();
        }
    }
}

/// The application's actions.
static KEPT: [Kept; 2] = [const { Kept::new() }; 2];
/// Those before somebody replaced ours behind our back, who may hand signals on to us.
static BELOW: [Kept; 2] = [const { Kept::new() }; 2];
/// Whether the application's calls are looked at.
static WATCHING: AtomicBool = AtomicBool::new(false);
/// Whether our handlers are in place.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Whether SIGSEGV was taken out of other signals' masks.
static TAKEN: [AtomicU8; SIGNALS] = [const { AtomicU8::new(0) }; SIGNALS];
/// The C library's own `sigaction`.
static SIGACTION: AtomicUsize = AtomicUsize::new(0);

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// Asks for a signal's action in the kernel, and sets it.
fn kernel(signal: c_int, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let function = SIGACTION.load(Relaxed);
    if function == 0 {
        return None;
    }
    // SAFETY: the C library's function has this type.
    let function = unsafe { core::mem::transmute::<usize, Sigaction>(function) };
    // SAFETY: plain data, for which zero is a value.
    let mut old = unsafe { core::mem::zeroed::<libc::sigaction>() };
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both live, and a handler of ours stays as long as the process.
    (unsafe { function(signal, new, &mut old) } == 0).then_some(old)
}

/// The kernel's part of a set.
fn first(set: &sigset_t) -> u64 {
    // SAFETY: a set is at least one word, the kernel's.
    unsafe { core::ptr::from_ref(set).cast::<u64>().read() }
}

fn set_first(set: &mut sigset_t, word: u64) {
    // SAFETY: as above.
    unsafe { core::ptr::from_mut(set).cast::<u64>().write(word) };
}

fn of(action: &libc::sigaction) -> Action {
    Action {
        handler: action.sa_sigaction,
        flags: action.sa_flags,
        mask: first(&action.sa_mask),
    }
}

/// Our handler for one of our signals.
fn ours(place: usize) -> usize {
    let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) = match place {
        0 => fault::on_fault,
        _ => fault::on_trap,
    };
    handler as usize
}

/// Sets our handler. Where the application's own would run on an alternate stack, ours does,
/// too, and so the other way round: it is called from ours.
fn install(place: usize, theirs: Action) -> Option<libc::sigaction> {
    // SAFETY: plain data, for which zero is a value.
    let mut action = unsafe { core::mem::zeroed::<libc::sigaction>() };
    action.sa_sigaction = ours(place);
    // What interrupts us might leave by a jump or a cancellation, with a lock in our hands.
    set_first(&mut action.sa_mask, !OWN_FAULTS);
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | (theirs.flags & libc::SA_RESTART);
    if theirs.flags & libc::SA_ONSTACK != 0 || matches!(theirs.handler, SIG_DFL | SIG_IGN) {
        action.sa_flags |= libc::SA_ONSTACK;
    }
    kernel(NEEDED[place], Some(&action))
}

/// Whether the signal has our handler.
pub(super) fn is_kept(signal: c_int) -> bool {
    place(signal).is_some_and(|place| {
        kernel(signal, None).is_some_and(|action| action.sa_sigaction == ours(place))
    })
}

/// Gets all ready. The error completes «it does not work here: …».
pub(super) fn prepare() -> Result<(), String> {
    let function = objects::c_library_function(c"sigaction").ok_or("there is no sigaction")?;
    SIGACTION.store(function as usize, Relaxed);
    watch();
    let Some(own) = change_mask(libc::SIG_UNBLOCK, BITS) else {
        WATCHING.store(false, Release);
        return Err("the signals' mask cannot be set".to_owned());
    };
    let blocked = &thread::block().guard.blocked;
    blocked.set(blocked.get() | packed(own));
    let mut blocking = None;
    // A thread that is just being made blocks all signals for a moment.
    for _ in 0..20 {
        blocking = blocking_thread();
        if blocking.is_none() {
            break;
        }
        std::thread::sleep(core::time::Duration::from_millis(1));
    }
    if let Some(thread) = blocking {
        WATCHING.store(false, Release);
        change_mask(libc::SIG_BLOCK, unpacked(blocked.take()));
        return Err(format!(
            "thread {thread} has blocked SIGSEGV before the first CUDA call (with \
             STREAMCHECK_GUARD=on in the environment, this is seen to from the start)"
        ));
    }
    for signal in 1..SIGNALS as c_int {
        if place(signal).is_some() {
            continue;
        }
        if let Some(mut action) = kernel(signal, None)
            && !matches!(action.sa_sigaction, SIG_DFL | SIG_IGN)
        {
            let mask = first(&action.sa_mask);
            if mask & BITS != 0 {
                set_first(&mut action.sa_mask, mask & !BITS);
                TAKEN[signal as usize].store(packed(mask), Relaxed);
                kernel(signal, Some(&action));
            }
        }
    }
    Ok(())
}

/// From now on nobody blocks SIGSEGV, and what the application does with them is seen.
pub(crate) fn watch() {
    WATCHING.store(true, Release);
    doors::signal_actions::watch();
}

/// Another thread that blocks SIGSEGV.
fn blocking_thread() -> Option<String> {
    /// What a thread of the C library's blocks, which runs none of the application's code. An
    /// application's own cannot where its calls are seen from the start.
    const ALL: u64 = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP) | 3 << 31);
    let seen_from_start = super::asked_by_environment();
    let own = std::fs::read_link("/proc/thread-self").ok()?;
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    tasks.flatten().find_map(|task| {
        if own.file_name() == Some(&task.file_name()) {
            return None;
        }
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:"))?;
        let set = u64::from_str_radix(line.trim(), 16).ok()?;
        if set & ALL == ALL && seen_from_start {
            return None;
        }
        (set & BITS != 0).then(|| task.file_name().to_string_lossy().into_owned())
    })
}

/// Sees to it that our handlers are in place, before pages are closed.
pub(super) fn keep() -> Result<(), String> {
    for place in 0..NEEDED.len() {
        let signal = NEEDED[place];
        let there = kernel(signal, None).ok_or("the signals' actions cannot be told")?;
        if there.sa_sigaction == ours(place) {
            continue;
        }
        let theirs = of(&there);
        let before = uninterrupted(|| KEPT[place].swap(theirs));
        let taken_over = INSTALLED.load(Relaxed);
        uninterrupted(|| BELOW[place].swap(if taken_over { before } else { NOTHING }));
        install(place, theirs).ok_or("the signals' actions cannot be set")?;
    }
    INSTALLED.store(true, Release);
    Ok(())
}

/// Runs `f`, which touches nothing that may be closed, while no signal can interrupt this
/// thread.
fn uninterrupted<R>(f: impl FnOnce() -> R) -> R {
    keeping_errno(|| {
        let before = change_mask(libc::SIG_BLOCK, u64::MAX);
        let result = f();
        if let Some(before) = before {
            change_mask(libc::SIG_SETMASK, before);
        }
        result
    })
}

/// Changes this thread's mask. Returns the one before.
fn change_mask(how: c_int, set: u64) -> Option<u64> {
    let mut before = 0_u64;
    // SAFETY: a set of the kernel's size, and room for another.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const set,
            &raw mut before,
            size_of::<u64>(),
        )
    };
    (failed == 0).then_some(before)
}

/// The application asks for or sets the action of a signal; `real` does so in the kernel.
///
/// # Safety
/// The arguments are the application's, as for `sigaction`.
pub(crate) unsafe fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    real: impl Fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
) -> c_int {
    if !WATCHING.load(Acquire) {
        return real(signal, new, old);
    }
    // SAFETY: the caller's promise.
    let wanted = (!new.is_null()).then(|| unsafe { *new });
    if let Some(place) = place(signal)
        && INSTALLED.load(Acquire)
    {
        let before = match &wanted {
            Some(wanted) => {
                let mut action = of(wanted);
                action.flags |= RESTORER;
                let before = uninterrupted(|| KEPT[place].swap(action));
                keeping_errno(|| install(place, action));
                before
            }
            None => KEPT[place].get(),
        };
        if !old.is_null() {
            let mut told = keeping_errno(|| kernel(signal, None)).unwrap_or_else(|| {
                // SAFETY: plain data, for which zero is a value.
                unsafe { core::mem::zeroed() }
            });
            told.sa_sigaction = before.handler;
            told.sa_flags = before.flags;
            set_first(&mut told.sa_mask, before.mask);
            // SAFETY: the caller's promise.
            unsafe { *old = told };
        }
        return 0;
    }
    let (Some(taken), None) = (TAKEN.get(signal as usize), place(signal)) else {
        return real(signal, new, old);
    };
    let mut stripped = wanted;
    let mut out = None;
    if let Some(wanted) = &mut stripped {
        let mask = first(&wanted.sa_mask);
        set_first(&mut wanted.sa_mask, mask & !BITS);
        out = Some(packed(mask));
    }
    let new = stripped.as_ref().map_or(new, core::ptr::from_ref);
    let status = real(signal, new, old);
    if status == 0 {
        let before = match out {
            Some(out) => taken.swap(out, Relaxed),
            None => taken.load(Relaxed),
        };
        if !old.is_null() && before != 0 {
            // SAFETY: the call has written it.
            let old = unsafe { &mut *old };
            let mask = first(&old.sa_mask);
            set_first(&mut old.sa_mask, mask | unpacked(before));
        }
    }
    status
}

/// What the C library adds to an action's flags, and tells (asm/signal.h).
const RESTORER: c_int = if cfg!(target_arch = "x86_64") {
    0x0400_0000
} else {
    0
};

/// Whether the application's `signal` and its like are to be told to [`sigaction`].
pub(crate) fn takes(signal: c_int) -> bool {
    INSTALLED.load(Acquire) && place(signal).is_some()
}

/// A set without what must not be blocked, if that is in it.
///
/// # Safety
/// `set` is null or points to a set.
pub(crate) unsafe fn stripped(set: *const sigset_t) -> Option<sigset_t> {
    if set.is_null() || !WATCHING.load(Acquire) {
        return None;
    }
    // SAFETY: the caller's promise.
    let mut set = unsafe { *set };
    let word = first(&set);
    (word & BITS != 0).then(|| {
        set_first(&mut set, word & !BITS);
        set
    })
}

/// The application changes this thread's mask; `real` does so in the kernel.
///
/// # Safety
/// The arguments are the application's, as for `pthread_sigmask`.
pub(crate) unsafe fn mask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
    real: impl Fn(c_int, *const sigset_t, *mut sigset_t) -> c_int,
) -> c_int {
    if !WATCHING.load(Acquire) {
        return real(how, set, old);
    }
    let block = thread::block();
    let before = block.guard.blocked.get();
    let mut after_it = before;
    let mut wanted = None;
    if !set.is_null() {
        // SAFETY: the caller's promise.
        let mut given = unsafe { *set };
        let word = first(&given);
        after_it = after(how, before, word);
        if how != libc::SIG_UNBLOCK {
            set_first(&mut given, word & !BITS);
        }
        wanted = Some(given);
    }
    let set = wanted.as_ref().map_or(set, core::ptr::from_ref);
    let status = real(how, set, old);
    if status == 0 {
        block.guard.blocked.set(after_it);
        if !old.is_null() && before != 0 {
            // SAFETY: the call has written it.
            let old = unsafe { &mut *old };
            let word = first(old);
            set_first(old, word | unpacked(before));
        }
    }
    status
}

/// What of ours the application has blocked once it has changed its mask so.
fn after(how: c_int, before: u8, word: u64) -> u8 {
    match how {
        libc::SIG_BLOCK => before | packed(word),
        libc::SIG_UNBLOCK => before & !packed(word),
        libc::SIG_SETMASK => packed(word),
        _ => before,
    }
}

/// As [`mask`], for the calls that take a word and answer the one before.
pub(crate) fn word(how: c_int, word: u64, real: impl FnOnce(u64) -> u64) -> u64 {
    if !WATCHING.load(Acquire) {
        return real(word);
    }
    let blocked = &thread::block().guard.blocked;
    let before = blocked.get();
    let told = real(word & !BITS) | unpacked(before);
    blocked.set(after(how, before, word));
    told
}

/// Whether what the application does with signals is seen to.
pub(crate) fn are_watched() -> bool {
    WATCHING.load(Acquire)
}

/// A thread that the application did not make begins to run its code.
pub(crate) fn unblock() {
    if let Some(before) = change_mask(libc::SIG_UNBLOCK, BITS) {
        thread::block().guard.blocked.set(packed(before));
    }
}

/// The application blocks SIGSEGV in this thread, or no longer does. Returns whether it did
/// before; `None` if it is another signal.
pub(crate) fn hold(signal: c_int, held: bool) -> Option<bool> {
    if signal != SIGSEGV {
        return None;
    }
    if !WATCHING.load(Acquire) {
        return None;
    }
    let how = if held {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    let before = word(how, bit(signal), |_| 0);
    Some(before & bit(signal) != 0)
}

/// A mark that stands in the frame from which a handler is called.
const MARK: u64 = 0x9d1c_66fa_04b7_23e5;

/// Does what the application wants done on a signal that is not ours.
///
/// # Safety
/// The arguments are those of a handler.
pub(super) unsafe fn hand_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(place) = place(signal) else { return };
    let state = &thread::block().guard;
    let mark = [MARK, context as u64];
    let here = core::hint::black_box(&mark).as_ptr() as usize;
    let within = is_within(state, here);
    // Whoever replaced our handler may call it, as the one before: what came before that.
    let again = within && state.handed_on.get() == context as usize;
    let kept = if again { &BELOW[place] } else { &KEPT[place] };
    let action = kept.get();
    // SAFETY: the kernel's description of the signal.
    let from_kernel = unsafe { (*info).si_code } > 0;
    match action.handler {
        SIG_IGN if !from_kernel => return,
        SIG_DFL | SIG_IGN => {
            // SAFETY: the caller's promise.
            unsafe {
                if signal != SIGTRAP || !fault::is_late_step(info, context) {
                    default(signal, info);
                }
            }
            return;
        }
        _ => {}
    }
    // A fault whose signal is blocked, as in its own handler, ends the process.
    if !again && from_kernel && signal == SIGSEGV && state.blocked.get() != 0 {
        // SAFETY: the caller's promise.
        unsafe { default(signal, info) };
        return;
    }
    if action.flags & libc::SA_RESETHAND != 0 && !again {
        let spent = Action {
            handler: SIG_DFL,
            ..action
        };
        uninterrupted(|| kept.swap(spent));
    }
    let mut mask = action.mask;
    if action.flags & libc::SA_NODEFER == 0 {
        mask |= bit(signal);
    }
    let how = if again {
        libc::SIG_BLOCK
    } else {
        // SAFETY: the kernel's or, if it was handed on, the application's context; the
        // kernel's part of the set is its first word.
        mask |= unsafe { interrupted_mask(context) };
        libc::SIG_SETMASK
    };
    keeping_errno(|| change_mask(how, mask & !BITS));
    let _handed_on = HandedOn {
        context: state.handed_on.replace(context as usize),
        nested: state.nested.replace(here),
        blocked: state.blocked.replace(state.blocked.get() | packed(mask)),
    };
    type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
    // SAFETY: the application's own handler. One that takes the signal alone leaves the rest
    // in its registers, as it does when the kernel calls it.
    unsafe { core::mem::transmute::<usize, Handler>(action.handler)(signal, info, context) };
    core::hint::black_box(&mark);
}

/// The mask of the code that a signal has interrupted.
///
/// # Safety
/// The context is that of a signal.
pub(super) unsafe fn interrupted_mask(context: *const c_void) -> u64 {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the caller's promise; the kernel's part of the set is its first word.
    unsafe { (&raw const (*context).uc_sigmask).cast::<u64>().read() }
}

/// What was handed on before, which counts again when a handler returns or is unwound.
struct HandedOn {
    context: usize,
    nested: usize,
    blocked: u8,
}

impl Drop for HandedOn {
    fn drop(&mut self) {
        let state = &thread::block().guard;
        state.handed_on.set(self.context);
        state.nested.set(self.nested);
        state.blocked.set(self.blocked);
    }
}

/// Takes what must not be blocked out of a context that the application switches to.
///
/// # Safety
/// `context` is null or a context of the application's.
pub(crate) unsafe fn switches(context: *mut libc::ucontext_t) {
    leaves();
    if context.is_null() || !WATCHING.load(Acquire) {
        return;
    }
    // SAFETY: the caller's promise.
    let set = unsafe { &mut (*context).uc_sigmask };
    let word = first(set);
    thread::block().guard.blocked.set(packed(word));
    if word & BITS != 0 {
        set_first(set, word & !BITS);
    }
}

/// The thread goes on somewhere else, and unblocks what it has blocked since if it noted the
/// mask there.
///
/// # Safety
/// `place` is what the application gives `siglongjmp`.
pub(crate) unsafe fn jumps(place: *const c_void) {
    /// Where a `struct __jmp_buf_tag` says whether the mask was saved (setjmp.h).
    const SAVED: usize = if cfg!(target_arch = "x86_64") {
        64
    } else {
        176
    };
    leaves();
    // SAFETY: the caller's promise.
    if unsafe { place.byte_add(SAVED).cast::<c_int>().read() } != 0 {
        thread::block().guard.blocked.set(0);
    }
}

/// The thread leaves the handlers that it is in.
fn leaves() {
    let state = &thread::block().guard;
    state.handed_on.set(0);
    state.nested.set(0);
}

/// Whether this thread is inside of a handler that it was handed to: the frame from which
/// this was called is still there, further up on the stack than `here`. A handler may have
/// been left by a jump that is not seen.
fn is_within(state: &super::PerThread, here: usize) -> bool {
    const NEAR: usize = 1 << 20;
    let there = state.nested.get();
    if there <= here || there - here > NEAR {
        return false;
    }
    // Where the thread has left that stack, nothing may be there any more.
    let Some(mark) = mapped::read::<16>(there as u64) else {
        return false;
    };
    let wanted = [MARK, state.handed_on.get() as u64];
    mark[..8] == wanted[0].to_ne_bytes() && mark[8..] == wanted[1].to_ne_bytes()
}

/// Has the kernel do what it does where there is no handler.
///
/// # Safety
/// As for [`hand_on`].
unsafe fn default(signal: c_int, info: *mut siginfo_t) {
    // SAFETY: plain data; zero is the default.
    let action = unsafe { core::mem::zeroed::<libc::sigaction>() };
    keeping_errno(|| {
        kernel(signal, Some(&action));
        // A fault's instruction is run again. Anything else is sent anew, to come once this
        // handler returns.
        // SAFETY: as above.
        if signal != SIGSEGV || unsafe { (*info).si_code } <= 0 {
            change_mask(libc::SIG_BLOCK, bit(signal));
            // SAFETY: the signal as it came, to this thread.
            unsafe {
                libc::syscall(
                    libc::SYS_rt_tgsigqueueinfo,
                    libc::getpid(),
                    libc::syscall(libc::SYS_gettid),
                    signal,
                    info,
                );
            }
        }
    });
}
