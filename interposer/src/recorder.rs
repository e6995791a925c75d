//! The one place where calls become operations and operations findings.
//!
//! What a call needs is worked out without a lock where it was met before: its stack, its
//! kernel, its parameters. A lock is held while the engine takes operations in, never across
//! a real call, and never while something is symbolized or written. A thread that finds it
//! taken leaves its operation to the one that has it (see [`crate::inbox`]).

use core::sync::atomic::{
    AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_engine::{Engine, Finding, Summary};
use streamcheck_model::{
    Action, Call as ModelCall, Direction, HOST_READ, HOST_WRITE, Handle, HostMemory, Mode, NameId,
    NodeWork, Operation, Pointer, Region, StackId, StreamRef,
};
use streamcheck_report::{Frame, Process, Settings};

use crate::call::Call;
use crate::guard::fault::Fault;
use crate::guard::{self, Guard, Seen};
use crate::hook::Hook;
use crate::kernels::{Kernel, Layout, Parameters};
use crate::room::with_room;
use crate::stacks::{self, Stacks};
use crate::thread::Origin;
use crate::trace_file::TraceFile;
use crate::{
    capture, desk, doors, driver, inbox, known_kernels, objects, place, python, runtime, stderr,
    thread,
};

const FRESH: u8 = 0;
const RUNNING: u8 = 1;
const DORMANT: u8 = 2;

/// What the tool is doing in this process.
static PHASE: AtomicU8 = AtomicU8::new(FRESH);

struct Core {
    engine: Engine,
    stacks: Stacks,
    kernels: FxHashMap<u64, Kernel>,
    trace: Option<TraceFile>,
    /// Operations of other threads, while they are taken in.
    batch: Vec<Operation>,
    /// What is to be told once the lock is let go.
    news: Vec<News>,
    /// Kernels that use addresses which lie in memory, and are yet to be counted.
    following: Vec<NameId>,
    /// The guarded host memory, if it is guarded.
    guard: Option<Box<Guard>>,
}

/// Kernels remembered before all are forgotten.
const MOST_KERNELS: usize = 1 << 16;
/// How often a thread looks for others' operations before it lets go of the lock.
const MOST_BATCHES: usize = 4;

static CORE: Mutex<Option<Box<Core>>> = Mutex::new(None);

/// Held while the tool begins. Taken before every other lock; the desk's comes
/// before the core's.
static STARTING: Mutex<()> = Mutex::new(());

/// What the desk needs to tell of new findings.
pub(crate) struct News {
    pub(crate) findings: Vec<Finding>,
    pub(crate) stacks: FxHashMap<StackId, Vec<u64>>,
    /// What those of their addresses stand for that are Python frames.
    pub(crate) interpreted: FxHashMap<u64, Frame>,
    pub(crate) summary: Summary,
    pub(crate) counts: Vec<u64>,
}

/// Whether the tool has stopped for good.
#[inline]
pub(crate) fn dormant() -> bool {
    PHASE.load(Relaxed) == DORMANT
}

/// Whether the tool has begun in this process, even if it has stopped since.
pub(crate) fn started() -> bool {
    PHASE.load(Relaxed) != FRESH
}

#[inline]
pub(crate) fn running() -> bool {
    PHASE.load(Relaxed) == RUNNING
}

/// Stops all recording, saying why once.
#[cold]
pub(crate) fn give_up(why: &str) {
    if PHASE.swap(DORMANT, Relaxed) != DORMANT {
        guard::abandon();
        let detail = crate::life::last_panic();
        let detail = if detail.is_empty() {
            detail
        } else {
            format!(" ({detail})")
        };
        let what = format!("{why}{detail}; checking stops here, the program goes on unchecked");
        if crate::log::is_open() {
            tracing::warn!("{what}");
        } else {
            stderr::line(&what);
        }
    }
}

/// Begins at the first CUDA call. False if this is not to be.
#[cold]
pub(crate) fn start() -> bool {
    // Held until all is ready: other threads' first calls wait, and are recorded.
    let Ok(_starting) = STARTING.lock() else {
        give_up("an internal lock is poisoned");
        return false;
    };
    if started() {
        return running();
    }
    crate::life::keep_panics_quiet();
    stderr::keep();
    let (settings, problems) = Settings::load(&[]);
    for problem in problems {
        stderr::line(problem.text());
    }
    crate::log::open(&settings.log);
    let process = Process::this();
    tracing::info!(
        "started in {} (process {}) at its first CUDA call",
        process.exe,
        process.pid
    );
    let (trace, problem) = TraceFile::create(&settings, &process);
    if let Some(problem) = problem {
        stderr::line(&problem);
    }
    let mut engine = Engine::new(settings.levels.clone());
    let guard = if settings.guard {
        Guard::begin(&mut engine).map(Box::new)
    } else {
        None
    };
    let core = Core {
        engine,
        stacks: Stacks::new(settings.stacks),
        kernels: FxHashMap::default(),
        trace,
        batch: Vec::new(),
        news: Vec::new(),
        following: Vec::new(),
        guard,
    };
    match CORE.lock() {
        Ok(mut place) => *place = Some(Box::new(core)),
        Err(_) => {
            give_up("an internal lock is poisoned");
            return false;
        }
    }
    desk::open(settings, process);
    PHASE.store(RUNNING, Release);
    true
}

/// Runs `f` once the operations that came before are taken in, and tells of what they show.
/// Neither this lock nor the desk's is held.
fn with_core<R>(f: impl FnOnce(&mut Core) -> R) -> Option<R> {
    match CORE.lock() {
        Ok(core) => with_locked(core, f),
        Err(_) => {
            give_up("an internal lock is poisoned");
            None
        }
    }
}

/// [`with_core`] for a thread that may be in the middle of anything: who has the lock may wait
/// for another that this thread has, as the loader's. `None` after a while, and if nothing is
/// recorded any more.
fn with_core_soon<R>(f: impl FnOnce(&mut Core) -> R) -> Option<R> {
    /// Far longer than the lock is held otherwise.
    const PATIENCE: Duration = Duration::from_millis(200);
    let mut since = None;
    while running() {
        match CORE.try_lock() {
            Ok(core) => return with_locked(core, f),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => {
                give_up("an internal lock is poisoned");
                return None;
            }
        }
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    None
}

fn with_locked<R>(
    mut guard: MutexGuard<'_, Option<Box<Core>>>,
    f: impl FnOnce(&mut Core) -> R,
) -> Option<R> {
    let (result, news) = match guard.as_deref_mut() {
        Some(core) => {
            core.catch_up();
            (Some(f(core)), core.take_news())
        }
        None => (None, Vec::new()),
    };
    drop(guard);
    settle(news);
    result
}

/// Takes an operation in, or leaves it to the thread that has the lock.
fn submit(operation: &Operation) {
    match CORE.try_lock() {
        Ok(mut guard) => {
            let mut news = Vec::new();
            if let Some(core) = guard.as_deref_mut() {
                core.catch_up();
                core.apply(operation);
                if !core.news.is_empty() {
                    news = core.take_news();
                }
            }
            drop(guard);
            settle(news);
        }
        Err(TryLockError::WouldBlock) => leave(operation),
        Err(TryLockError::Poisoned(_)) => give_up("an internal lock is poisoned"),
    }
}

/// Leaves an operation to the thread that has the lock.
#[cold]
fn leave(operation: &Operation) {
    // What is guarded is so before the call returns.
    if !guard::on() && inbox::put(operation) {
        settle(Vec::new());
    } else {
        with_core(|core| core.apply(operation));
    }
}

/// After the lock: tells of news, and takes in what others have left meanwhile.
#[inline]
fn settle(news: Vec<News>) {
    if !news.is_empty() || inbox::any_now() {
        settle_all(news);
    } else if desk::owes() {
        with_room(desk::catch_up);
    }
    python::say();
}

#[cold]
fn settle_all(mut news: Vec<News>) {
    loop {
        for news in news {
            with_room(|| desk::tell(news));
        }
        if !inbox::any_now() {
            return;
        }
        // Whoever has the lock looks here after it.
        let Ok(mut guard) = CORE.try_lock() else {
            return;
        };
        let Some(core) = guard.as_deref_mut() else {
            return;
        };
        core.catch_up();
        news = core.take_news();
    }
}

impl Core {
    fn api(&mut self, hook: &'static Hook) -> NameId {
        let known = hook.api.load(Relaxed);
        if known != 0 {
            return NameId(known);
        }
        let id = self.engine.names_mut().intern(hook.api());
        hook.api.store(id.0, Relaxed);
        id
    }

    fn take_in(&mut self, call: &Call, stack: StackId, action: Action) {
        let api = self.api(call.hook);
        let operation = operation(api, stack, action);
        self.apply(&operation);
        for kernel in core::mem::take(&mut self.following) {
            self.not_seen(&operation.call, "pointers-in-memory", kernel);
        }
    }

    /// The name of the kernel under `key`, the pointers among its parameters, and whether
    /// it is known where they are; `None` if the kernel is not known.
    ///
    /// # Safety
    /// `parameters` are those of a launch of that kernel that CUDA took.
    unsafe fn kernel(
        &self,
        key: u64,
        parameters: Parameters,
    ) -> Option<(NameId, SmallVec<[Pointer; 6]>, bool)> {
        let kernel = self.kernels.get(&key)?;
        if guard::on()
            && let Some(layout) = &kernel.layout
        {
            // SAFETY: the caller's promise.
            guard::launching_with(unsafe { layout.numbers(parameters) }.into_iter());
        }
        let (pointers, layout_known) = match &kernel.layout {
            // SAFETY: the caller's promise.
            Some(layout) => (unsafe { layout.pointers(parameters) }, true),
            None => (SmallVec::new(), false),
        };
        Some((kernel.name, pointers, layout_known))
    }

    /// Takes in what other threads have left.
    #[inline]
    fn catch_up(&mut self) {
        if inbox::any() {
            self.take_in_others();
        }
    }

    #[cold]
    fn take_in_others(&mut self) {
        let mut batch = core::mem::take(&mut self.batch);
        for _ in 0..MOST_BATCHES {
            inbox::take(&mut batch);
            for operation in batch.drain(..) {
                self.apply(&operation);
            }
            if !inbox::any() {
                break;
            }
        }
        self.batch = batch;
    }

    /// Of which of these addresses the engine knows no memory.
    fn unknown(&self, sides: &[u64]) -> SmallVec<[u64; 2]> {
        // An array has no address.
        let unknown = |side: &u64| *side != 0 && self.engine.memory_kind(*side).is_none();
        sides.iter().copied().filter(unknown).collect()
    }

    fn take_news(&mut self) -> Vec<News> {
        core::mem::take(&mut self.news)
    }

    fn apply(&mut self, operation: &Operation) {
        let findings = self.engine.apply(operation);
        if let Some(trace) = &mut self.trace {
            trace.operation(operation, self.engine.names(), &self.stacks);
        }
        if !findings.is_empty() {
            self.found(findings);
        }
        if self.guard.is_some() {
            self.follow(operation);
        }
    }

    /// Guards what the operation uses, and no longer what it has the host know complete.
    #[cold]
    fn follow(&mut self, operation: &Operation) {
        let mut missed = SmallVec::new();
        self.guarding(|guard, engine| guard.follow(engine, operation, &mut missed));
        for (kind, address) in missed {
            self.missed(&operation.call, kind, address);
        }
    }

    /// Counts something of the guard's that is not seen.
    #[cold]
    fn missed(&mut self, call: &ModelCall, kind: &str, address: u64) {
        let example = self.engine.names_mut().intern(&format!("{address:#x}"));
        self.not_seen(call, kind, example);
    }

    /// Counts something that a call does and that is not seen.
    #[cold]
    fn not_seen(&mut self, call: &ModelCall, kind: &str, example: NameId) {
        let action = Action::BlindSpot {
            kind: self.engine.names_mut().intern(kind),
            example,
        };
        let call = ModelCall {
            stack: StackId(0),
            ..*call
        };
        let blind = Operation { call, action };
        self.engine.apply(&blind);
        if let Some(trace) = &mut self.trace {
            trace.operation(&blind, self.engine.names(), &self.stacks);
        }
    }

    /// Does something with the guard, which ends if that fails.
    fn guarding<R>(
        &mut self,
        f: impl FnOnce(&mut Guard, &mut Engine) -> Result<R, String>,
    ) -> Option<R> {
        let guard = self.guard.as_deref_mut()?;
        match f(guard, &mut self.engine) {
            Ok(result) => Some(result),
            Err(why) => {
                guard.end(&why);
                self.guard = None;
                None
            }
        }
    }

    /// Takes in what the CPU did to memory that pending work uses.
    fn host_accessed(
        &mut self,
        api: NameId,
        stack: StackId,
        region: Region,
        write: bool,
        through: SmallVec<[u64; 2]>,
    ) {
        let action = Action::HostAccessed {
            region,
            mode: if write { Mode::Write } else { Mode::Read },
            through,
        };
        self.apply(&operation(api, stack, action));
    }

    fn host_faulted(&mut self, fault: &Fault) -> Option<Response> {
        let &Fault {
            address,
            write,
            silent,
            may_step,
            locks,
            ..
        } = fault;
        // CUDA's own threads are its, and so are their accesses.
        let frames = self.stacks.unwind_at(&fault.at);
        let library = in_c_library(&frames);
        let silent = silent || frames.get(library).is_some_and(|at| is_driver(*at));
        let vague = library > 0 && guard::is_vague(fault.at.pc);
        let seen =
            self.guarding(|guard, engine| guard.faulted(engine, address, write, silent, vague))?;
        match seen {
            Seen::Open => {}
            Seen::Use(through) => {
                let name = if write { HOST_WRITE } else { HOST_READ };
                let api = self.engine.names_mut().intern(name);
                let stack = self.stacks.learn_at(&frames, library);
                let region = Region::linear(address, 1);
                self.host_accessed(api, stack, region, write, through);
            }
            Seen::Neighbour => {
                if locks || vague {
                    self.guarding(|guard, _| guard.leave_open(address))?;
                } else if self.guarding(|guard, _| guard.step(address, may_step))? {
                    return Some(Response::Step);
                }
                let api = self.engine.names_mut().intern(HOST_READ);
                let call = operation(api, StackId(0), Action::DeviceSynchronized).call;
                self.missed(&call, "guard-shared-page", address);
            }
        }
        Some(Response::Again)
    }

    #[cold]
    fn found(&mut self, findings: Vec<Finding>) {
        let stacks: FxHashMap<_, _> = findings
            .iter()
            .flat_map(|finding| finding.stacks())
            .map(|stack| (stack, self.stacks.addresses(stack).to_vec()))
            .collect();
        let interpreted = stacks
            .values()
            .flat_map(|addresses| self.stacks.interpreted(addresses))
            .map(|(address, frame)| (address, frame.clone()))
            .collect();
        self.news.push(News {
            findings,
            stacks,
            interpreted,
            summary: self.engine.summary(),
            counts: self.engine.counts().to_vec(),
        });
    }
}

/// What is to be done about a fault.
pub(crate) enum Response {
    /// Its instruction is run again.
    Again,
    /// The same, and the thread stops after it.
    Step,
}

/// Whether the object that an address of a stack lies in is called like one of these.
fn is_of(address: u64, names: &[&str]) -> bool {
    objects::containing(address.wrapping_sub(1)).is_some_and(|object| {
        let file = object.path.rsplit('/').next().unwrap_or("");
        names.iter().any(|name| file.starts_with(name))
    })
}

/// How many of a stack's innermost addresses are the C library's, which touches memory on
/// its caller's behalf.
fn in_c_library(addresses: &[u64]) -> usize {
    const C_LIBRARY: [&str; 4] = ["libc.so", "libc-", "libpthread", "ld-linux"];
    let mut inner = addresses.iter();
    inner.position(|at| !is_of(*at, &C_LIBRARY)).unwrap_or(0)
}

/// Whether an address of a stack is CUDA's code.
fn is_driver(address: u64) -> bool {
    is_of(address, &["libcuda.so", "libnvidia", "libcudart.so"])
}

/// An access of the application's has faulted on a guarded page. `None` if nothing can be
/// done about it here.
pub(crate) fn host_faulted(fault: &Fault) -> Option<Response> {
    with_core_soon(|core| core.host_faulted(fault)).flatten()
}

/// The instruction that these pages were opened for is done.
/// False, with the pages open, if that cannot be noted here.
pub(crate) fn host_stepped(open: &[u64]) -> bool {
    with_core_soon(|core| {
        for &address in open.iter().filter(|address| **address != 0) {
            core.guarding(|guard, _| guard.stepped(address));
        }
    })
    .is_some()
}

/// A call is about to read or write these ranges. Those of their pages that may be guarded are
/// not until [`let_go_of_host`]. `None` if nothing can be done about it here.
pub(crate) fn hold_host(ranges: &[(u64, u64)]) -> Option<guard::Held> {
    with_core_soon(|core| core.guarding(|guard, engine| guard.hold(engine, ranges))).flatten()
}

/// The call is over.
pub(crate) fn let_go_of_host(held: &[(u64, u64)]) {
    with_core_soon(|core| core.guarding(|guard, _| guard.let_go(held)));
}

/// A call of the C library's has read or written these bytes.
pub(crate) fn host_called(hook: &'static Hook, origin: &Origin, region: Region, write: bool) {
    let known = stacks::known(origin);
    with_core_soon(|core| {
        let met = core.guarding(|guard, engine| guard.called(engine, &region, write));
        if let Some(Some(through)) = met {
            let api = core.api(hook);
            let stack = known.unwrap_or_else(|| core.stacks.learn(origin));
            core.host_accessed(api, stack, region, write, through);
        }
    });
}

/// The application changes how these pages are protected.
pub(crate) fn host_changes(start: u64, end: u64) {
    with_core(|core| {
        let engine = &core.engine;
        let known = |address| engine.memory_kind(address).is_some();
        if known(start)
            || known(end.saturating_sub(1))
            || guard::may_be_closed(start, end.saturating_sub(start))
        {
            core.guarding(|guard, _| guard.foreign(start, end));
        }
    });
}

/// Pinned memory was made of whole pages, up to `end`.
pub(crate) fn allocated_whole(address: u64, end: u64) {
    with_core(|core| {
        if let Some(guard) = core.guard.as_deref_mut() {
            guard.allocated_whole(address, end);
        }
    });
}

/// What memory CUDA holds may go: nothing of it stays guarded.
pub(crate) fn open_host() {
    with_core(|core| {
        if let Some(guard) = core.guard.as_deref_mut() {
            guard.open_all();
        }
    });
}

/// An operation of a call that the current thread makes.
#[inline(always)]
fn operation(api: NameId, stack: StackId, action: Action) -> Operation {
    let (device, context) = place::current();
    Operation {
        call: ModelCall {
            api,
            thread: thread::block().number(),
            device,
            context,
            stack,
        },
        action,
    }
}

/// The number of a hook's name.
#[inline]
fn api(hook: &'static Hook) -> Option<NameId> {
    #[cold]
    fn number(hook: &'static Hook) -> Option<NameId> {
        with_core(|core| core.api(hook))
    }
    match hook.api.load(Relaxed) {
        0 => number(hook),
        known => Some(NameId(known)),
    }
}

/// The stack of a call.
fn stack(call: &Call) -> Option<StackId> {
    #[cold]
    fn learned(call: &Call) -> Option<StackId> {
        with_core(|core| core.stacks.learn(&call.origin))
    }
    stacks::known(&call.origin).or_else(|| learned(call))
}

/// Records an operation and tells of what it shows.
#[inline(always)]
pub(crate) fn record(call: &Call, action: Action) {
    let stack = if stacks::are_wanted(&action) {
        stack(call)
    } else {
        Some(StackId(0))
    };
    if let (Some(api), Some(stack)) = (api(call.hook), stack) {
        submit(&operation(api, stack, action));
    }
}

/// Counts something that cannot be seen into.
pub(crate) fn blind_spot(call: &Call, kind: &str, example: &str) {
    with_core(|core| {
        let names = core.engine.names_mut();
        let action = Action::BlindSpot {
            kind: names.intern(kind),
            example: names.intern(example),
        };
        core.take_in(call, StackId(0), action);
    });
}

/// Records the name that the application gave a stream.
pub(crate) fn stream_named(call: &Call, stream: StreamRef, name: &str) {
    place::learn();
    with_core(|core| {
        let name = core.engine.names_mut().intern(name);
        core.take_in(call, StackId(0), Action::StreamNamed { stream, name });
    });
}

/// Records a launch. `key` stands for the kernel in the cache; `learn` finds out
/// about it where the cache has nothing, with no lock held.
pub(crate) fn launched(
    call: &Call,
    stream: StreamRef,
    key: u64,
    parameters: Parameters,
    learn: impl FnOnce() -> crate::kernels::Learned,
) {
    let mut pointers = SmallVec::new();
    // SAFETY: the real launch took these parameters with success, and the caller's arrays
    // live until the hook returns.
    if let Some(kernel) = unsafe { known_kernels::launched(key, parameters, &mut pointers) }
        // Where host memory is guarded, more is wanted of a launch.
        && !guard::on()
    {
        let action = Action::Launched {
            stream,
            kernel,
            pointers,
            layout_known: true,
        };
        return record(call, action);
    }
    let Some(stack) = stack(call) else { return };
    let attempt = |core: &mut Core| {
        // SAFETY: as above.
        let (kernel, pointers, layout_known) = unsafe { core.kernel(key, parameters) }?;
        let action = Action::Launched {
            stream,
            kernel,
            pointers,
            layout_known,
        };
        core.take_in(call, stack, action);
        Some(())
    };
    if with_core(attempt).flatten().is_none() {
        learn_kernel(key, learn(), attempt);
    }
}

/// What a node of a graph that launches a kernel does. As for [`launched`].
///
/// # Safety
/// `parameters` are those that a call gave a node with success, and are there still.
pub(crate) unsafe fn kernel_node(
    key: u64,
    parameters: Parameters,
    learn: impl FnOnce() -> crate::kernels::Learned,
) -> NodeWork {
    let mut work = NodeWork::Unknown;
    let mut attempt = |core: &mut Core| {
        // SAFETY: the caller's promise.
        let (kernel, pointers, layout_known) = unsafe { core.kernel(key, parameters) }?;
        work = NodeWork::Kernel {
            kernel,
            pointers,
            layout_known,
        };
        Some(())
    };
    if with_core(&mut attempt).flatten().is_none() {
        learn_kernel(key, learn(), attempt);
    }
    work
}

/// Takes in what was learned of a kernel, and runs `then`.
fn learn_kernel(
    key: u64,
    learned: crate::kernels::Learned,
    mut then: impl FnMut(&mut Core) -> Option<()>,
) {
    tracing::debug!(
        "kernel {}: where its parameters lie is {}",
        learned.name,
        if learned.layout.is_some() {
            "known"
        } else {
            "not known"
        }
    );
    with_core(|core| {
        let name = core.engine.names_mut().intern(&learned.name);
        if core.kernels.len() >= MOST_KERNELS {
            core.kernels.clear();
            known_kernels::forget(|_| true);
        }
        let layout = learned.layout;
        if layout.as_ref().is_some_and(Layout::follows) {
            core.following.push(name);
        }
        if let Some(layout) = layout.as_ref().filter(|_| learned.lasting) {
            known_kernels::remember(key, name, layout);
        }
        core.kernels.insert(key, Kernel { name, layout });
        then(core);
        if !learned.lasting {
            core.kernels.remove(&key);
        }
    });
}

/// Forgets the kernel under `key`, which stands for another from now on.
pub(crate) fn forget_kernel(key: u64) {
    if running() {
        with_core(|core| {
            known_kernels::forget(|known| known == key);
            core.kernels.remove(&key)
        });
    }
}

/// Forgets the kernels whose keys are `gone`: modules were unloaded, and handles come back.
pub(crate) fn forget_kernels(gone: impl Fn(u64) -> bool) {
    if running() {
        // No lock is held while it is asked.
        let keys = with_core(|core| core.kernels.keys().copied().collect::<Vec<_>>());
        let mut keys = keys.unwrap_or_default();
        keys.retain(|&key| gone(key));
        if keys.is_empty() {
            return;
        }
        keys.sort_unstable();
        with_core(|core| {
            known_kernels::forget(|known| keys.binary_search(&known).is_ok());
            for key in &keys {
                core.kernels.remove(key);
            }
        });
    }
}

/// Records a copy from and to these addresses. Of what may be host memory, and the engine
/// knows nothing of, CUDA is asked.
pub(crate) fn record_copy(
    call: &Call,
    (from, to): (u64, u64),
    direction: Direction,
    action: impl FnOnce(HostMemory) -> Action,
) {
    let sides = host_sides(from, to, direction);
    if sides.is_empty() || capture::any() {
        return record(call, action(HostMemory::Unasked));
    }
    let (Some(api), Some(stack)) = (api(call.hook), stack(call)) else {
        return;
    };
    let mut action = Some(action);
    let unknown = with_core(|core| {
        let unknown = core.unknown(&sides);
        if unknown.is_empty()
            && let Some(action) = action.take()
        {
            core.apply(&operation(api, stack, action(HostMemory::Unasked)));
        }
        unknown
    });
    if let (Some(unknown), Some(action)) = (unknown, action) {
        submit(&operation(api, stack, action(ask(&unknown))));
    }
}

/// What CUDA knows of a copy's sides that may be host memory, where the engine knows
/// nothing.
pub(crate) fn host_memory(from: u64, to: u64, direction: Direction) -> HostMemory {
    let sides = host_sides(from, to, direction);
    if sides.is_empty() || capture::any() {
        return HostMemory::Unasked;
    }
    let unknown = with_core(|core| core.unknown(&sides));
    ask(&unknown.unwrap_or_default())
}

/// Which sides of a copy may be host memory.
fn host_sides(from: u64, to: u64, direction: Direction) -> SmallVec<[u64; 2]> {
    match direction {
        Direction::HostToDevice => smallvec::smallvec![from],
        Direction::DeviceToHost => smallvec::smallvec![to],
        Direction::Inferred => smallvec::smallvec![from, to],
        Direction::HostToHost | Direction::DeviceToDevice => SmallVec::new(),
    }
}

/// What CUDA knows of these addresses.
fn ask(addresses: &[u64]) -> HostMemory {
    let ask = |&address: &u64| {
        if driver::visible() {
            driver::host_memory(address)
        } else {
            runtime::host_memory(address)
        }
    };
    // One answer is for all sides that are not known.
    let mut answers = addresses.iter().map(ask);
    match answers.next() {
        Some(first) if answers.all(|answer| answer == first) => first,
        _ => HostMemory::Unasked,
    }
}

/// Of which of these addresses the engine knows no memory there.
pub(crate) fn are_unknown(addresses: &[u64]) -> Vec<bool> {
    with_core(|core| {
        let unknown = |address: &u64| core.engine.memory_kind(*address).is_none();
        addresses.iter().map(unknown).collect()
    })
    .unwrap_or_default()
}

/// Whether host memory that CUDA was never told of, and that copies use, begins at that
/// address.
pub(crate) fn begins_system_memory(address: u64) -> bool {
    with_core(|core| core.engine.begins_system_memory(address)).unwrap_or(false)
}

/// Whether an executable graph calls host functions that are seen to begin.
pub(crate) fn calls_host_functions(exec: Handle) -> bool {
    with_core(|core| core.engine.calls_host_functions(exec)).unwrap_or(false)
}

/// Whether an executable graph uses host memory that was given back.
pub(crate) fn uses_released_host_memory(exec: Handle) -> bool {
    with_core(|core| core.engine.uses_released_host_memory(exec)).unwrap_or(false)
}

/// Where on the thread's stack, above `address`, the next return address lies, and what it
/// is: that of the function whose frame holds the address, where such frames end with it.
pub(crate) fn returns_above(origin: &Origin, address: u64) -> Option<(u64, u64)> {
    with_core(|core| core.stacks.returns_above(origin, address)).flatten()
}

/// The process ends of itself: what it holds still, it never freed.
pub(crate) fn ended() -> Option<Vec<News>> {
    if !running() {
        return None;
    }
    let mut core = patient_lock(&CORE, Duration::from_secs(2))?;
    // After a panic there may be half a change in it.
    if CORE.is_poisoned() {
        return None;
    }
    let core = core.as_deref_mut()?;
    core.catch_up();
    let api = core.engine.names_mut().intern("exit");
    core.apply(&operation(api, StackId::default(), Action::Ended));
    Some(core.take_news())
}

/// Makes new copies of what findings need at the end of a run.
pub(crate) fn last_news() -> Option<(Summary, Vec<u64>)> {
    let mut core = patient_lock(&CORE, Duration::from_secs(2))?;
    let core = core.as_deref_mut()?;
    // After a panic there may be half a record in it: it then ends as after a kill.
    if let Some(trace) = core.trace.take()
        && !CORE.is_poisoned()
    {
        trace.end();
    }
    Some((core.engine.summary(), core.engine.counts().to_vec()))
}

/// The same while the run goes on, unless another program takes the process over: the
/// trace is ended in order, and goes on from there with the next operation.
pub(crate) fn news_so_far() -> Option<(Summary, Vec<u64>)> {
    loop {
        let mut guard = patient_lock(&CORE, Duration::from_secs(2))?;
        let core = guard.as_deref_mut()?;
        if !CORE.is_poisoned() {
            // This thread's last operation may be among them.
            core.catch_up();
            let news = core.take_news();
            if !news.is_empty() {
                drop(guard);
                for news in news {
                    desk::tell(news);
                }
                continue;
            }
            if let Some(trace) = core.trace.as_mut() {
                trace.pause();
            }
        }
        return Some((core.engine.summary(), core.engine.counts().to_vec()));
    }
}

/// A lock at exit: another thread may have been stopped with it in its hands, or
/// have panicked with it, which leaves what there is to tell.
pub(crate) fn patient_lock<T>(mutex: &Mutex<T>, patience: Duration) -> Option<MutexGuard<'_, T>> {
    let end = Instant::now() + patience;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// Puts what a finding's stacks mean into the trace. The desk's lock is held, so what others
/// have left is taken in later.
pub(crate) fn trace_frames(stack: StackId, frames: &[Frame]) {
    if let Ok(mut core) = CORE.lock()
        && let Some(core) = core.as_deref_mut()
        && let Some(trace) = &mut core.trace
    {
        trace.frames(stack, frames);
    }
}

/// The core's guard while a process forks.
pub(crate) struct ForkGuard(Option<MutexGuard<'static, Option<Box<Core>>>>);

/// Waits until the tool has begun, if it is about to.
pub(crate) fn start_before_fork() -> Option<MutexGuard<'static, ()>> {
    STARTING.lock().ok()
}

/// Takes the lock before a fork, so that the child finds it free.
pub(crate) fn before_fork() -> ForkGuard {
    ForkGuard(CORE.lock().ok())
}

/// In the process that has forked, once it has let go of the locks.
pub(crate) fn after_fork() {
    if inbox::any_now() {
        settle_all(Vec::new());
    }
}

/// In a forked child: what the parent saw is the parent's.
pub(crate) fn fresh_after_fork(guard: ForkGuard) {
    if let Some(mut core) = guard.0 {
        // Not dropped: freeing in a child of a threaded process may meet a heap
        // that another thread was changing.
        core::mem::forget(core.take());
    }
    inbox::fresh_after_fork();
    known_kernels::forget(|_| true);
    for hook in doors::all() {
        hook.api.store(0, Relaxed);
    }
    if PHASE.load(Acquire) == RUNNING {
        PHASE.store(FRESH, Release);
    }
}
