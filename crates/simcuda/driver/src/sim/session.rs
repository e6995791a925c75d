//! The machine's lock, and how work gets done: whoever must wait runs what is pending.
//!
//! A thread of our own runs the host functions. When the application has been quiet for a while it also runs pending
//! work, so that a program that waits for the device without asking CUDA (a flag that a host function sets, say) gets
//! on; see [`QUIET`].

use super::sched::{Point, Turn, Work};
use super::state::{Job, State};
use crate::abi::Status;
use crate::error::{NOT_INITIALIZED, NOT_PERMITTED, OUT_OF_MEMORY};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the application makes no call before pending work runs by itself: short where a host function or a
/// value is pending, since programs wait for those without CUDA; else long enough not to disturb the seeded order.
const QUIET: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(20)];

/// How often memory is looked at that a stream waits on: anyone may store there without telling us.
const POLL: Duration = Duration::from_millis(1);

/// More pending work than this and submitting runs some, as a full queue does on a GPU.
const QUEUE_LIMIT: usize = 1024;

static MACHINE: Mutex<Option<State>> = Mutex::new(None);
/// Some operation finished.
static PROGRESS: Condvar = Condvar::new();
/// The worker thread has something to do.
static WORK: Condvar = Condvar::new();
/// The process that initialized the machine; 0 for none. A forked child has no machine.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Deep enough for any real use of `cuCtxPushCurrent`.
const CONTEXT_DEPTH: usize = 32;

thread_local! {
    static CONTEXTS: Cell<([u64; CONTEXT_DEPTH], usize)> = const { Cell::new(([0; CONTEXT_DEPTH], 0)) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// `CUstreamCaptureMode`: how far others' captures restrict this thread.
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    /// In a host function or a kernel's body, where CUDA must not be called.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread's current context; 0 for none.
pub(crate) fn current_context() -> u64 {
    let (stack, depth) = CONTEXTS.get();
    if depth == 0 { 0 } else { stack[depth - 1] }
}

/// Replaces the top of the calling thread's context stack, or empties it for 0.
pub(crate) fn set_current_context(context: u64) {
    let (mut stack, depth) = CONTEXTS.get();
    if context == 0 {
        CONTEXTS.set((stack, depth.saturating_sub(1)));
    } else {
        let depth = depth.max(1);
        stack[depth - 1] = context;
        CONTEXTS.set((stack, depth));
    }
}

/// Pushes onto the calling thread's context stack.
pub(crate) fn push_context(context: u64) -> Status {
    let (mut stack, depth) = CONTEXTS.get();
    *stack.get_mut(depth).ok_or(OUT_OF_MEMORY)? = context;
    CONTEXTS.set((stack, depth + 1));
    Ok(())
}

/// Identifies the calling thread for its per-thread default streams; never used again after the thread ends.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// The calling thread's stream capture interaction mode.
pub(crate) fn capture_mode() -> u32 {
    CAPTURE_MODE.get()
}

/// Sets it; what it was.
pub(crate) fn exchange_capture_mode(mode: u32) -> u32 {
    CAPTURE_MODE.replace(mode)
}

fn lock() -> MutexGuard<'static, Option<State>> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `cuInit`: makes the machine; `devices` and `seed` count the first time only.
pub(crate) fn initialize(devices: usize, seed: u64) -> Status {
    let pid = std::process::id();
    let owner = OWNER.load(Ordering::Acquire);
    if owner != 0 && owner != pid {
        return Err(NOT_INITIALIZED);
    }
    let mut machine = lock();
    if machine.is_none() {
        *machine = Some(State::new(devices, seed).ok_or(OUT_OF_MEMORY)?);
        OWNER.store(pid, Ordering::Release);
    }
    Ok(())
}

/// Runs `call` with the machine, or says why there is none: before `cuInit`, in a forked child, in a callback.
pub(crate) fn session<T>(call: impl FnOnce(&mut Session) -> Status<T>) -> Status<T> {
    if IN_CALLBACK.get() {
        return Err(NOT_PERMITTED);
    }
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return Err(NOT_INITIALIZED);
    }
    let mut session = Session {
        machine: Some(lock()),
    };
    session.last_call = Instant::now();
    call(&mut session)
}

/// The locked machine.
pub(crate) struct Session {
    machine: Option<MutexGuard<'static, Option<State>>>,
}

impl Deref for Session {
    type Target = State;
    fn deref(&self) -> &State {
        self.machine
            .as_ref()
            .and_then(|machine| machine.as_ref())
            .expect("the machine exists and is locked")
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut State {
        self.machine
            .as_mut()
            .and_then(|machine| machine.as_mut())
            .expect("the machine exists and is locked")
    }
}

impl Session {
    /// Does something without the lock.
    fn unlocked(&mut self, act: impl FnOnce()) {
        self.machine = None;
        act();
        self.machine = Some(lock());
    }

    fn wait(&mut self, condition: &Condvar, limit: Option<Duration>) {
        let Some(machine) = self.machine.take() else {
            return;
        };
        self.machine = Some(match limit {
            None => condition
                .wait(machine)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                condition
                    .wait_timeout(machine, limit)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        });
    }

    fn finish(&mut self, turn: Turn) {
        self.tick();
        self.sched.finish(turn);
        if self.waiting > 0 {
            PROGRESS.notify_all();
        }
    }

    /// Runs one runnable operation or node of a graph; `false` if there is none just now.
    pub(crate) fn step(&mut self) -> bool {
        let Some((turn, work)) = self.sched.start() else {
            return false;
        };
        match work {
            // The scheduler runs a launch node by node.
            Work::Marker | Work::Gate(_) | Work::Launch(_) => self.finish(turn),
            Work::Stamp(time) => {
                time.store(self.clock, Ordering::Release);
                self.finish(turn);
            }
            Work::Release(address) => {
                self.release_pending(address);
                self.finish(turn);
            }
            Work::Wait(_) => self.finish(turn),
            Work::Device(run) | Work::Value(run) => {
                self.unlocked(|| in_callback(run));
                self.finish(turn);
            }
            Work::Host(run) => {
                self.jobs.push_back(Job { turn, run });
                WORK.notify_all();
            }
        }
        true
    }

    /// How long to sleep before looking again, where a stream waits on memory.
    fn poll(&self) -> Option<Duration> {
        (self.sched.pending_waits() > 0).then_some(POLL)
    }

    /// Runs pending work, in the scheduler's order, until `done`. Where a stream waits on memory that only a later
    /// store sets free, this waits too, and other threads get on meanwhile.
    pub(crate) fn run_until(&mut self, done: impl Fn(&State) -> bool) {
        while !done(self) {
            if !self.step() {
                let poll = self.poll();
                if self.sched.busy() == 0 && poll.is_none() {
                    return;
                }
                self.waiting += 1;
                self.wait(&PROGRESS, poll);
                self.waiting -= 1;
            }
        }
    }

    /// Runs until the operation at `point` is done.
    pub(crate) fn run_to(&mut self, point: Point) {
        self.run_until(|state| state.sched.is_done(point));
    }

    /// After a submission: wakes the worker, and runs what exceeds the queue's limit.
    pub(crate) fn submitted(&mut self) {
        if !self.worker {
            self.worker = spawn_worker();
        }
        // Otherwise it looks by itself, once the application is quiet.
        if self.worker_idle || self.sched.pending_awaited() > 0 {
            WORK.notify_all();
        }
        self.run_until(|state| state.sched.pending() <= QUEUE_LIMIT);
    }
}

fn in_callback(run: impl FnOnce()) {
    let before = IN_CALLBACK.replace(true);
    run();
    IN_CALLBACK.set(before);
}

/// Starts the worker with all signals blocked, so that the application's handlers never run on it.
fn spawn_worker() -> bool {
    // SAFETY: an all-zero `sigset_t` is a valid place for `sigfillset` to fill, and the mask is put back below.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: both sets are live locals.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let spawned = std::thread::Builder::new()
        .name("simcuda".into())
        .spawn(work)
        .is_ok();
    // SAFETY: `before` holds the mask saved above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    spawned
}

/// The worker thread's life.
fn work() {
    let mut session = Session {
        machine: Some(lock()),
    };
    loop {
        if let Some(job) = session.jobs.pop_front() {
            session.unlocked(|| in_callback(job.run));
            session.finish(job.turn);
            continue;
        }
        if session.sched.pending() == 0 {
            session.worker_idle = true;
            session.wait(&WORK, None);
            session.worker_idle = false;
            continue;
        }
        let quiet = QUIET[usize::from(session.sched.pending_awaited() > 0)];
        let left = quiet.saturating_sub(session.last_call.elapsed());
        if !left.is_zero() {
            session.wait(&WORK, Some(left));
        } else if !session.step() {
            let pause = session.poll().unwrap_or(quiet);
            session.wait(&WORK, Some(pause));
        }
    }
}
