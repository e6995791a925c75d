//! From the library's constructor to the process's end.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use streamcheck_engine::Summary;
use streamcheck_report::{Process, Settings};

use crate::lookup::real_dlsym;
use crate::room::with_room;
use crate::thread::{self, Inside};
use crate::{
    call, capture, desk, doors, driver, guard, inbox, kernels, objects, place, provider, python,
    recorder, sync_memops,
};

/// The exit code of a run that had to see CUDA calls and saw none.
const NO_CUDA_SEEN: u8 = 67;

/// The process that this memory belongs to. A child made by `vfork` shares the
/// memory and has another id: it must not end its parent's run.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Whether the last words were said.
static CLOSED: AtomicBool = AtomicBool::new(false);
static QUICK_STATUS: AtomicI32 = AtomicI32::new(0);
static REAL_EXIT: AtomicUsize = AtomicUsize::new(0);
static REAL_QUICK_EXIT: AtomicUsize = AtomicUsize::new(0);
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

unsafe extern "C" {
    fn on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), data: *mut c_void) -> c_int;
    fn at_quick_exit(function: unsafe extern "C" fn()) -> c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn() = construct;

/// Registers for the process's end and for forks; everything else waits for the
/// first CUDA call.
unsafe extern "C" fn construct() {
    let _inside = Inside::nest();
    // Registered first, so that our own handlers have memory while they hold its lock for
    // the fork.
    // SAFETY: called once, before anything of this library is allocated.
    unsafe { dlmalloc::enable_alloc_after_fork() };
    crate::stderr::remember();
    doors::libc_door::prepare();
    // Not when they are called: that may be in a child of a process with threads, one
    // of which was asking the loader at the fork.
    doors::exec::prepare();
    doors::signal_actions::prepare();
    doors::system_calls::prepare();
    // Blocked before the first CUDA call, a signal would stay so.
    if guard::asked_by_environment() {
        guard::signals::watch();
    }
    next(&REAL_EXIT, c"_exit");
    // SAFETY: functions of these types; the library is never unloaded.
    unsafe {
        OWNER.store(libc::getpid(), Relaxed);
        on_exit(at_exit, core::ptr::null_mut());
        at_quick_exit(at_quick);
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_parent),
            Some(after_fork_child),
        );
    }
}

unsafe extern "C" fn at_exit(status: c_int, _data: *mut c_void) {
    if let Some(code) = last_words(status) {
        // SAFETY: what stdio still holds is written, as `exit` would have done next.
        unsafe {
            libc::fflush(core::ptr::null_mut());
            leave(code.into())
        }
    }
}

unsafe extern "C" fn at_quick() {
    if let Some(code) = last_words(QUICK_STATUS.load(Relaxed)) {
        leave(code.into());
    }
}

/// Whether this memory is this process's, and not the parent's of a child that has forked
/// without telling.
pub(crate) fn is_owner() -> bool {
    // SAFETY: a system call that takes and touches nothing.
    OWNER.load(Relaxed) == unsafe { libc::getpid() }
}

/// Ends the process at once, as `_exit` does.
fn leave(status: c_int) -> ! {
    let real = REAL_EXIT.load(Relaxed);
    if real != 0 {
        // SAFETY: the next `_exit` in the loader's order.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(real)(status) };
    }
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// A finding ends the process.
pub(crate) fn halt(code: u8) -> ! {
    end(false);
    leave(code.into())
}

/// The exit code, if the gate failed. What panics on the way, or does not answer,
/// does not change it. `orderly` says that the process ends of itself.
fn end(orderly: bool) -> Option<u8> {
    if !CLOSED.swap(true, Relaxed) {
        if orderly {
            for news in call::guarded(recorder::ended)
                .flatten()
                .into_iter()
                .flatten()
            {
                call::guarded(|| with_room(|| desk::tell_last(news)));
            }
        }
        let news = call::guarded(recorder::last_news).flatten();
        call::guarded(|| with_room(|| desk::close(news)));
    }
    desk::verdict()
}

/// The last reports and lines. The exit code that the process must end with, if
/// it is another than its own.
fn last_words(status: c_int) -> Option<u8> {
    if !is_owner() {
        return None;
    }
    // `exit` may be called by the handler of a signal that came in a hook. There may
    // be a lock in this thread's hands then, except in the real call.
    if thread::block().in_own_code() {
        return desk::verdict().filter(|_| status == 0);
    }
    let inside = Inside::nest();
    let code = thread::keeping_errno(|| {
        call::guarded(|| {
            if recorder::started() {
                end(true)
            } else if CLOSED.swap(true, Relaxed) {
                None
            } else {
                unused()
            }
        })
        .flatten()
    });
    drop(inside);
    code.filter(|_| status == 0)
}

/// Another program is about to take this process over, without an exit: the reports and
/// the trace get what they lack. If it cannot be run, all goes on from there.
pub(crate) fn image_goes(program: doors::exec::Program<'_>) {
    while_recording(|| {
        if program.is_there() {
            with_room(|| desk::image_goes(recorder::news_so_far()));
        }
    });
}

/// For test runners, which call it through the loader: brings the reports of this process
/// up to date, with how often each finding was made so far. A new finding is written at
/// once; one that is made again is only counted.
#[unsafe(no_mangle)]
extern "C" fn streamcheck_update_reports() {
    while_recording(|| {
        with_room(|| desk::update(recorder::news_so_far()));
    });
}

/// Does something between two calls of the application, if this process records and has
/// not said its last words.
fn while_recording(work: impl FnOnce()) {
    // A `vfork` child has its parent's memory, and nothing of its own.
    if !is_owner() || !recorder::started() || CLOSED.load(Relaxed) || thread::block().in_own_code()
    {
        return;
    }
    let _inside = Inside::nest();
    thread::keeping_errno(|| call::guarded(work));
}

/// A process that made no CUDA call.
fn unused() -> Option<u8> {
    let (settings, problems) = Settings::load(&[]);
    // Who asks for calls asks each process that bears the setting.
    let required = settings.require_cuda == Some(true);
    if !required && is_someone_elses_helper() {
        return None;
    }
    for problem in problems {
        crate::stderr::line(problem.text());
    }
    crate::log::open(&settings.log);
    desk::open(settings, Process::this());
    with_room(|| desk::close(Some((Summary::default(), Vec::new()))));
    required.then_some(NO_CUDA_SEEN)
}

/// Whether the calls may have been made elsewhere: by a preloaded parent, or by
/// children of this process.
fn is_someone_elses_helper() -> bool {
    // SAFETY: plain data; filled in by the call.
    let children = unsafe {
        let mut usage = core::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage.ru_maxrss
    };
    // SAFETY: a system call that takes and touches nothing.
    let parent = unsafe { libc::getppid() };
    children > 0
        || std::fs::read(format!("/proc/{parent}/maps"))
            .is_ok_and(|maps| maps.windows(14).any(|part| part == b"libstreamcheck"))
}

fn next(place: &AtomicUsize, name: &core::ffi::CStr) -> usize {
    let known = place.load(Relaxed);
    if known != 0 {
        return known;
    }
    let found = real_dlsym(libc::RTLD_NEXT, name) as usize;
    place.store(found, Relaxed);
    found
}

unsafe extern "C" fn exit_at_once(status: c_int) -> ! {
    // A `vfork` child leaves with one system call: the memory is its parent's.
    if is_owner() {
        if !thread::block().in_own_code() {
            next(&REAL_EXIT, c"_exit");
        }
        if let Some(code) = last_words(status) {
            leave(code.into());
        }
    }
    leave(status)
}

/// The C library's `_exit`.
#[unsafe(no_mangle)]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    // SAFETY: passed on.
    unsafe { exit_at_once(status) }
}

/// The C library's `_Exit`.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: passed on.
    unsafe { exit_at_once(status) }
}

/// The C library's `quick_exit`.
#[unsafe(no_mangle)]
unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    QUICK_STATUS.store(status, Relaxed);
    let real = next(&REAL_QUICK_EXIT, c"quick_exit");
    if real != 0 {
        // SAFETY: the next `quick_exit` in the loader's order.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(real)(status) };
    }
    leave(status)
}

/// The locks that a thread holds from before its fork until after it, in the
/// order in which they are taken.
struct Guards {
    leaves: [Held; 15],
    core: recorder::ForkGuard,
    desk: desk::ForkGuard,
    _start: Option<MutexGuard<'static, ()>>,
}

/// A lock that is held, whatever it guards.
pub(crate) struct Held(Box<dyn Locked>);

trait Locked {}

impl<T> Locked for MutexGuard<'static, T> {}

/// Takes a lock.
pub(crate) fn hold<T>(lock: &'static Mutex<T>) -> Held {
    Held(Box::new(
        lock.lock().unwrap_or_else(PoisonError::into_inner),
    ))
}

impl Held {
    /// Lets go without giving memory back: in a child, another thread may have been
    /// changing the heap.
    fn release(self) {
        // SAFETY: a box's own contents, dropped once, as the box is leaked.
        unsafe { core::ptr::drop_in_place(Box::into_raw(self.0)) };
    }
}

struct Forking(UnsafeCell<Option<Guards>>);

// SAFETY: touched by the forking thread alone, which holds all the locks.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

unsafe extern "C" fn before_fork() {
    let _inside = Inside::nest();
    let start = recorder::start_before_fork();
    let desk = desk::before_fork();
    let core = recorder::before_fork();
    let [handed_in] = inbox::before_fork();
    // None of these is held while another lock is waited for, other than within a
    // file in the order in which it gives them.
    let [learning, known] = driver::before_fork();
    let [registry] = provider::before_fork();
    let [places] = place::before_fork();
    let [registered, images] = kernels::before_fork();
    let [ranges] = doors::libc_door::before_fork();
    let [mappings] = doors::memory::before_fork();
    let [semaphores] = doors::signals::before_fork();
    let [shared] = doors::unseen_order::before_fork();
    let [captures] = capture::before_fork();
    let [waiting] = sync_memops::before_fork();
    let [eyes] = python::before_fork();
    let leaves = [
        handed_in,
        learning,
        known,
        registry,
        places,
        registered,
        images,
        ranges,
        mappings,
        semaphores,
        shared,
        captures,
        waiting,
        eyes,
        hold(&LAST_PANIC),
    ];
    objects::before_fork();
    // SAFETY: see `Forking`.
    unsafe {
        *FORKING.0.get() = Some(Guards {
            leaves,
            core,
            desk,
            _start: start,
        });
    }
}

unsafe extern "C" fn after_fork_parent() {
    let _inside = Inside::nest();
    objects::after_fork_parent();
    // SAFETY: see `Forking`.
    drop(unsafe { (*FORKING.0.get()).take() });
    thread::keeping_errno(|| call::guarded(recorder::after_fork));
}

unsafe extern "C" fn after_fork_child() {
    let _inside = Inside::nest();
    guard::fresh_after_fork();
    objects::after_fork_child();
    // SAFETY: see `Forking`; the child has one thread.
    let guards = unsafe { (*FORKING.0.get()).take() };
    if let Some(guards) = guards {
        guards.leaves.into_iter().for_each(Held::release);
        recorder::fresh_after_fork(guards.core);
        desk::fresh_after_fork(guards.desk);
    }
    capture::fresh_after_fork();
    thread::block().reset_after_fork();
    CLOSED.store(false, Relaxed);
    // SAFETY: a system call that takes and touches nothing.
    OWNER.store(unsafe { libc::getpid() }, Relaxed);
}

/// Keeps our own panics off standard error; [`last_panic`] tells of the last.
pub(crate) fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|info| {
        let mut last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        *last = info.to_string().replace('\n', " ");
    }));
}

pub(crate) fn last_panic() -> String {
    LAST_PANIC
        .lock()
        .map(|last| last.clone())
        .unwrap_or_default()
}
