//! Everything the simulated machine knows, behind one lock (see [`super::session`]).

use super::arena::Arena;
use super::array::Array;
use super::capture::Capture;
use super::conditional::Condition;
use super::context::{Context, DETACHED};
use super::executable::Executable;
use super::graph::{Graph, Node};
use super::graph_memory::{GraphMemory, GraphMemoryMarks, Kept};
use super::handle::Table;
use super::memory::{Allocation, Mapping, Physical, Registered};
use super::pool::Pool;
use super::sched::{Past, Point, Scheduler, StreamId, Turn, Work};
use super::semaphore::Semaphore;
use super::user_object::UserObject;
use super::{dma, session};
use crate::abi::Status;
use crate::error::{INVALID_DEVICE, INVALID_HANDLE, OUT_OF_MEMORY, STREAM_DETACHED};
use crate::image::{Image, Param};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Memory that each simulated device claims to have.
pub(crate) const DEVICE_MEMORY: u64 = 8 << 30;
/// Address space kept for each: more than its memory, so that fragments do not matter.
const DEVICE_SPACE: u64 = 32 << 30;
/// Address space for pinned host memory, and for `cuMemAddressReserve`.
const OTHER_SPACE: u64 = 32 << 30;
/// As of `cuMemAlloc`'s documentation: "suitably aligned for any kind of variable"; GPUs give 512 in practice.
const ALIGN: u64 = 512;
/// What a real driver maps at a time, and `cuMemGetAllocationGranularity` says.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// The simulated time that one operation takes, in nanoseconds.
const OPERATION_TIME: u64 = 2_000;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

pub(crate) struct Device {
    pub(crate) arena: Arena,
    /// Bytes in allocations and pools.
    pub(crate) used: u64,
    pub(crate) primary: Option<u64>,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
    pub(crate) default_pool: u64,
    pub(crate) current_pool: u64,
    pub(crate) graph_memory_high: GraphMemoryMarks,
}

/// How a stream takes part in the legacy default stream's barriers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    Legacy,
    Blocking,
    NonBlocking,
}

/// A stream as a call names it, default streams included.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) id: StreamId,
    pub(crate) context: u64,
    pub(crate) barrier: Barrier,
    pub(crate) priority: i32,
}

pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) timed: bool,
    /// Other processes may be given a handle to it.
    pub(crate) interprocess: bool,
    /// The newest record: what it covers, its own place, and when it completed (0: not yet).
    pub(crate) record: Option<(Arc<Past>, Arc<AtomicU64>)>,
    /// It was last recorded in this capture, after these nodes.
    pub(crate) captured: Option<(u64, Vec<u64>)>,
}

/// `CUlaunchAttributeValue`.
pub(crate) type Attribute = [u8; 64];

/// The host function of a kernel: packed parameter pointers, grid, block, dynamic shared memory in bytes.
pub(crate) type KernelBody =
    unsafe extern "C" fn(*const *mut libc::c_void, *const u32, *const u32, u32);

pub(crate) struct Function {
    pub(crate) loaded_from: u64,
    pub(crate) name: CString,
    pub(crate) layout: Option<Vec<Param>>,
    pub(crate) body: Option<KernelBody>,
    pub(crate) max_dynamic_shared: i32,
    pub(crate) prepared: Prepared,
}

/// What the launches before CUDA 4 were told beforehand.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub(crate) shared: u32,
    /// The parameter buffer.
    pub(crate) params: Vec<u8>,
}

impl Default for Prepared {
    fn default() -> Self {
        Self {
            block: [1; 3],
            shared: 0,
            params: Vec::new(),
        }
    }
}

/// A module (loaded into one context) or a library (of none).
pub(crate) struct Library {
    pub(crate) image: Arc<Image>,
    pub(crate) context: Option<u64>,
    pub(crate) functions: HashMap<String, u64>,
    pub(crate) globals: HashMap<(String, i32), (u64, usize)>,
}

/// A host function on its way to the thread that runs it.
pub(crate) struct Job {
    pub(crate) turn: Turn,
    pub(crate) run: Box<dyn FnOnce() + Send>,
}

pub(crate) struct State {
    pub(crate) sched: Scheduler,
    /// Simulated time, in nanoseconds; 0 is before anything.
    pub(crate) clock: u64,
    pub(crate) last_call: Instant,
    pub(crate) jobs: VecDeque<Job>,
    /// Threads that wait for what another one is running.
    pub(crate) waiting: usize,
    /// The worker thread runs.
    pub(crate) worker: bool,
    /// It waits until something is submitted.
    pub(crate) worker_idle: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) host: Arena,
    pub(crate) spaces: Arena,
    pub(crate) contexts: Table<Context>,
    /// Green contexts' handles; what they name is a context of its own handle.
    pub(crate) greens: Table<u64>,
    /// Descriptors of resources; how many multiprocessors each has.
    pub(crate) resources: Table<u32>,
    pub(crate) streams: Table<Lane>,
    /// What was set, by stream and `CUlaunchAttributeID`.
    pub(crate) stream_attributes: HashMap<(StreamId, u32), Attribute>,
    pub(crate) events: Table<Event>,
    pub(crate) semaphores: Table<Semaphore>,
    pub(crate) pool_handles: Table<u64>,
    pub(crate) pools: BTreeMap<u64, Pool>,
    pub(crate) libraries: Table<Library>,
    pub(crate) functions: Table<Function>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) registered: BTreeMap<u64, Registered>,
    pub(crate) reservations: BTreeMap<u64, u64>,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) physical: Table<Physical>,
    pub(crate) arrays: Table<Array>,
    pub(crate) imports: Table<Physical>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) nodes: Table<Node>,
    pub(crate) executables: Table<Executable>,
    /// By an identity that is never used twice.
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// By conditional handle.
    pub(crate) conditions: BTreeMap<u64, Condition>,
    /// By address.
    pub(crate) graph_memory: BTreeMap<u64, GraphMemory>,
    pub(crate) graph_kept: Vec<Kept>,
    pub(crate) user_objects: Table<UserObject>,
    next_id: u64,
}

impl State {
    /// A machine of `devices` devices, or `None` where the address space cannot be had.
    pub(crate) fn new(devices: usize, seed: u64) -> Option<Self> {
        let mut state = Self {
            sched: Scheduler::new(seed),
            clock: 1,
            last_call: Instant::now(),
            jobs: VecDeque::new(),
            waiting: 0,
            worker: false,
            worker_idle: false,
            devices: Vec::new(),
            host: Arena::reserve(OTHER_SPACE, ALIGN, true)?,
            spaces: Arena::reserve(OTHER_SPACE, GRANULARITY, false)?,
            contexts: Table::new(1),
            greens: Table::new(9),
            resources: Table::new(10),
            streams: Table::new(2),
            stream_attributes: HashMap::new(),
            events: Table::new(3),
            semaphores: Table::new(11),
            pool_handles: Table::new(4),
            pools: BTreeMap::new(),
            libraries: Table::new(5),
            functions: Table::new(6),
            allocations: BTreeMap::new(),
            registered: BTreeMap::new(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            physical: Table::new(7),
            arrays: Table::new(8),
            imports: Table::new(12),
            graphs: Table::new(13),
            nodes: Table::new(14),
            executables: Table::new(15),
            captures: BTreeMap::new(),
            conditions: BTreeMap::new(),
            graph_memory: BTreeMap::new(),
            graph_kept: Vec::new(),
            user_objects: Table::new(16),
            next_id: 1,
        };
        for device in 0..devices {
            let arena = Arena::reserve(DEVICE_SPACE, ALIGN, true)?;
            let pool = state.add_pool(Pool::new(device as i32, 0));
            state.devices.push(Device {
                arena,
                used: 0,
                primary: None,
                retained: 0,
                flags: 0,
                default_pool: pool,
                current_pool: pool,
                graph_memory_high: GraphMemoryMarks::default(),
            });
        }
        dma::set_device_ranges(
            state
                .devices
                .iter()
                .map(|device| device.arena.range())
                .collect(),
        );
        Some(state)
    }

    /// A number never given out before.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn device(&mut self, ordinal: i32) -> Status<&mut Device> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|index| self.devices.get_mut(index))
            .ok_or(INVALID_DEVICE)
    }

    /// Adds a pool; its handle.
    pub(crate) fn add_pool(&mut self, mut pool: Pool) -> u64 {
        let id = self.fresh_id();
        let handle = self.pool_handles.insert(id);
        pool.handle = handle;
        self.pools.insert(id, pool);
        handle
    }

    pub(crate) fn pool(&mut self, handle: u64) -> Status<(u64, &mut Pool)> {
        let id = *self
            .pool_handles
            .get(handle)
            .ok_or(crate::error::INVALID_VALUE)?;
        self.pools
            .get_mut(&id)
            .map(|pool| (id, pool))
            .ok_or(crate::error::INVALID_VALUE)
    }

    // Streams

    pub(crate) fn add_stream(&mut self, context: u64, flags: u32, priority: i32) -> u64 {
        let id = self.sched.open();
        let barrier = if flags & NON_BLOCKING != 0 {
            Barrier::NonBlocking
        } else {
            Barrier::Blocking
        };
        self.keep_stream(context, id, barrier);
        self.streams.insert(Lane {
            id,
            context,
            barrier,
            priority,
        })
    }

    pub(super) fn keep_stream(&mut self, context: u64, id: StreamId, barrier: Barrier) {
        if let Some(context) = self.contexts.get_mut(context) {
            context.streams.retain(|&(id, _)| self.sched.exists(id));
            context.streams.push((id, barrier));
        }
    }

    /// What a stream argument means: 0 is the per-thread stream for `_ptsz` and `_ptds` entries and the legacy stream
    /// otherwise, 1 is the legacy stream, 2 the per-thread one.
    pub(crate) fn lane(&mut self, stream: u64, per_thread: bool) -> Status<Lane> {
        if stream > 2 {
            let lane = self.streams.get(stream).copied().ok_or(INVALID_HANDLE)?;
            return if lane.context == DETACHED {
                Err(STREAM_DETACHED)
            } else {
                Ok(lane)
            };
        }
        let (handle, context) = self.context(0)?;
        if stream == 1 || stream == 0 && !per_thread {
            return Ok(Lane {
                id: context.legacy,
                context: handle,
                barrier: Barrier::Legacy,
                priority: 0,
            });
        }
        let thread = session::thread_number();
        let id = match context.per_thread.get(&thread) {
            Some(&id) => id,
            None => {
                let id = self.sched.open();
                if let Some(context) = self.contexts.get_mut(handle) {
                    context.per_thread.insert(thread, id);
                }
                self.keep_stream(handle, id, Barrier::Blocking);
                id
            }
        };
        Ok(Lane {
            id,
            context: handle,
            barrier: Barrier::Blocking,
            priority: 0,
        })
    }

    /// Appends work to a stream, after `after` and whatever the legacy stream's barriers demand.
    pub(crate) fn submit(&mut self, lane: Lane, mut after: Vec<Arc<Past>>, work: Work) -> Point {
        if let Some(context) = self.contexts.get_mut(lane.context) {
            let sched = &self.sched;
            context.gates.retain(|past| !sched.is_done(past.point));
            after.extend(context.gates.iter().cloned());
            match lane.barrier {
                Barrier::Legacy => {
                    let blocking = context.streams.iter().filter(|&&(id, barrier)| {
                        barrier == Barrier::Blocking && !sched.is_idle(id)
                    });
                    after.extend(blocking.map(|&(id, _)| sched.past(id)));
                }
                Barrier::Blocking if !sched.is_idle(context.legacy) => {
                    after.push(sched.past(context.legacy))
                }
                Barrier::Blocking | Barrier::NonBlocking => {}
            }
        }
        self.sched.submit(lane.id, &after, work)
    }

    /// Simulated time passes.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += OPERATION_TIME;
        self.clock
    }

    // Device memory

    /// Takes device memory for an allocation or a pool.
    pub(crate) fn take_device_memory(&mut self, ordinal: i32, size: u64) -> Status<u64> {
        let device = self.device(ordinal)?;
        let rounded = device.arena.rounded(size).ok_or(OUT_OF_MEMORY)?;
        if rounded > DEVICE_MEMORY - device.used {
            return Err(OUT_OF_MEMORY);
        }
        let address = device.arena.take(size).ok_or(OUT_OF_MEMORY)?;
        device.used += rounded;
        Ok(address)
    }

    pub(crate) fn give_device_memory(&mut self, ordinal: i32, address: u64, size: u64) {
        if let Ok(device) = self.device(ordinal) {
            device.used -= device.arena.rounded(size).unwrap_or(0);
            device.arena.give(address, size);
        }
    }
}
