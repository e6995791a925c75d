//! Runs that never end: a program that does everything again and again, in constant memory.
//!
//! The program is correct, but for two faults that it makes over and over at the same places.
//! `STREAMCHECK_SOAK_OPERATIONS` sets how many operations it makes, 10 million by default.
//! Memory is counted as it is allocated, so the figures are the same everywhere.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use peak_alloc::PeakAlloc;
use smallvec::SmallVec;
use streamcheck_engine::{Engine, Levels};
use streamcheck_model::{
    Action, Call, Condition, ContextId, DeviceId, Direction, Flag, FreeKind, Handle, HostMemory,
    MemoryKind, Mode, NameId, NodeWork, Operation, Outcome, Pointer, Region, StackId, StreamRef,
    ThreadId,
};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes that the engine may hold beyond what live allocations take.
const MOST: usize = 66 << 20;

/// Points of the memory curve that are printed.
const POINTS: u64 = 20;

const STREAMS: usize = 64;
const BUFFERS: usize = 8;
const EVENTS: u64 = 256;
const SIZE: u64 = 64 << 10;
/// Where buffers lie whose addresses come back, and where those that never do.
const RECYCLED: u64 = 0x7000_0000_0000;
const PASSING: u64 = 0x1000_0000_0000;
const PINNED: u64 = 0x6000_0000_0000;
const SHARED: u64 = 0x5000_0000_0000;
const PAGEABLE: u64 = 0x4000_0000_0000;
const FLAGS: u64 = 0x3000_0000_0000;
/// Where the program goes wrong.
const RACE: u64 = 0x2000_0000_0000;
const WRONG: u32 = 1 << 16;

/// Steele, Lea and Flood's SplitMix64: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[derive(Clone, Copy, Default)]
struct Stream {
    handle: u64,
    /// The buffers that it owns; 0 where there is none.
    buffers: [u64; BUFFERS],
    /// What it last signalled to the next stream.
    signalled: u64,
}

/// How the program behaves.
#[derive(Clone, Copy)]
struct Habits {
    /// Whether the host ever waits.
    waits: bool,
    /// Whether threads, contexts, names and kernels are ever new.
    renews: bool,
}

struct Program {
    engine: Engine,
    random: Random,
    habits: Habits,
    streams: [Stream; STREAMS],
    /// Handles of destroyed streams, to be given out again.
    handles: Vec<u64>,
    /// Addresses to be given out again.
    addresses: Vec<u64>,
    passed: u64,
    thread: u32,
    context: u32,
    host_functions: u64,
    made: u64,
    findings: u64,
}

impl Program {
    fn new(habits: Habits) -> Self {
        let mut program = Self {
            engine: Engine::new(Levels::default()),
            random: Random(1),
            habits,
            streams: [Stream::default(); STREAMS],
            handles: (1..=2 * STREAMS as u64).map(|n| 0x1000 + n).collect(),
            addresses: (0..4 * (STREAMS * BUFFERS) as u64)
                .map(|n| RECYCLED + n * SIZE)
                .collect(),
            passed: 0,
            thread: 1,
            context: 0x1_0000,
            host_functions: 0,
            made: 0,
            findings: 0,
        };
        for place in 0..STREAMS {
            program.create_stream(place);
        }
        for event in 0..EVENTS {
            let event = Handle(0x2000 + event);
            program.make(Action::EventCreated { event });
        }
        program.allocate_for_good(PINNED, STREAMS as u64 * SIZE, MemoryKind::Pinned);
        program.allocate_for_good(SHARED, SIZE, MemoryKind::Device);
        program.allocate_for_good(FLAGS, SIZE, MemoryKind::Device);
        program.allocate_for_good(RACE, SIZE, MemoryKind::Device);
        program
    }

    fn allocate_for_good(&mut self, address: u64, size: u64, kind: MemoryKind) {
        self.make(Action::Allocated {
            address,
            size,
            kind,
            stream: None,
            pool: Handle(0),
        });
    }

    fn make(&mut self, action: Action) {
        let stack = 1 + self.random.below(4_000) as u32;
        self.make_at(stack, action);
    }

    fn make_at(&mut self, stack: u32, action: Action) {
        let call = Call {
            api: NameId(1),
            thread: ThreadId(self.thread),
            stack: StackId(stack),
            ..Call::default()
        };
        self.apply(&Operation { call, action });
    }

    fn apply(&mut self, operation: &Operation) {
        self.made += 1;
        for finding in self.engine.apply(operation) {
            self.findings += 1;
            assert!(
                finding.events.iter().any(|event| event.stack.0 >= WRONG),
                "operation {}: {:?} {}",
                self.made,
                finding.rule,
                finding.message
            );
        }
    }

    fn stream(&self, place: usize) -> StreamRef {
        StreamRef::Created(Handle(self.streams[place].handle))
    }

    fn any(&mut self) -> usize {
        self.random.below(STREAMS as u64) as usize
    }

    fn create_stream(&mut self, place: usize) {
        // Sometimes the newest handle, as drivers do, sometimes another.
        let which = self.random.below(self.handles.len() as u64) as usize;
        let handle = self.handles.swap_remove(which);
        self.streams[place] = Stream {
            handle,
            ..Stream::default()
        };
        self.make(Action::StreamCreated {
            stream: Handle(handle),
            blocking: place.is_multiple_of(8),
        });
    }

    /// Frees all that a stream has, and puts another in its place, which comes after it.
    fn renew_stream(&mut self, place: usize) {
        for buffer in 0..BUFFERS {
            self.free(place, buffer);
        }
        let handle = self.streams[place].handle;
        let (event, stream) = (Handle(0x3000), self.stream(place));
        self.make(Action::EventRecorded { event, stream });
        self.make(Action::StreamDestroyed {
            stream: Handle(handle),
        });
        self.handles.push(handle);
        self.create_stream(place);
        let stream = self.stream(place);
        self.make(Action::StreamWaited { stream, event });
    }

    fn allocate(&mut self, place: usize, buffer: usize) {
        let address = if self.random.below(4) != 0 {
            self.passed += 1;
            PASSING + self.passed * SIZE
        } else {
            let which = self.random.below(self.addresses.len() as u64) as usize;
            self.addresses.swap_remove(which)
        };
        self.streams[place].buffers[buffer] = address;
        let stream = Some(self.stream(place));
        self.make(Action::Allocated {
            address,
            size: SIZE / (1 + self.made % 3),
            kind: MemoryKind::StreamOrdered,
            stream,
            pool: Handle(0),
        });
    }

    fn free(&mut self, place: usize, buffer: usize) {
        let address = std::mem::take(&mut self.streams[place].buffers[buffer]);
        if address == 0 {
            return;
        }
        let stream = Some(self.stream(place));
        self.make(Action::FreeBegun {
            address,
            kind: FreeKind::Async,
            stream,
            part: None,
        });
        self.make(Action::FreeEnded {
            outcome: Outcome::Succeeded,
        });
        if address >= RECYCLED {
            self.addresses.push(address);
        }
    }

    /// Memory that no stream owns comes and goes.
    fn allocate_and_free(&mut self) {
        let address = 0x0800_0000_0000 + self.random.below(64) * SIZE;
        self.allocate_for_good(address, SIZE, MemoryKind::Device);
        let kind = FreeKind::Sync;
        self.make(Action::FreeBegun {
            address,
            kind,
            stream: None,
            part: None,
        });
        self.make(Action::FreeEnded {
            outcome: Outcome::Succeeded,
        });
    }

    fn launch(&mut self, place: usize) {
        let mut pointers: SmallVec<[Pointer; 6]> = SmallVec::new();
        let owned = self.streams[place].buffers;
        for address in owned.into_iter().filter(|address| *address != 0) {
            let offset = self.random.below(4) * (SIZE / 16);
            let mode = if self.random.below(2) == 0 {
                Mode::Read
            } else {
                Mode::Write
            };
            pointers.push(pointer(address + offset, mode));
        }
        pointers.push(pointer(SHARED, Mode::Read));
        let stream = self.stream(place);
        let kernel = NameId(2 + self.random.below(200) as u32);
        self.make(Action::Launched {
            stream,
            kernel,
            pointers,
            layout_known: true,
        });
    }

    fn copy(&mut self, place: usize, buffer: usize) {
        let device = Region::linear(self.streams[place].buffers[buffer], SIZE / 16);
        let pinned = Region::linear(PINNED + place as u64 * SIZE, SIZE / 16);
        let to_device = self.random.below(2) == 0;
        let stream = self.stream(place);
        let synchronous = self.habits.waits && self.random.below(8) == 0;
        if device.address == 0 {
            return;
        }
        self.make(Action::Copied {
            stream,
            to: if to_device { device } else { pinned },
            from: if to_device { pinned } else { device },
            direction: if to_device {
                Direction::HostToDevice
            } else {
                Direction::DeviceToHost
            },
            host: HostMemory::Unasked,
            synchronous,
        });
    }

    /// A stream hands a buffer to another, by an event or by a value in memory.
    fn hand_over(&mut self, from: usize, buffer: usize) {
        let to = self.any();
        if to == from || self.streams[to].buffers[buffer] != 0 {
            return;
        }
        let (one, other) = (self.stream(from), self.stream(to));
        if self.random.below(4) == 0 {
            self.streams[from].signalled += 1;
            let value = self.streams[from].signalled;
            let flag = Flag::Memory(FLAGS + from as u64 * 8);
            self.make(Action::ValueWritten {
                stream: one,
                flag,
                value,
            });
            self.make(Action::ValueWaited {
                stream: other,
                flag,
                value,
                condition: Condition::Equal,
            });
        } else {
            let event = Handle(0x2000 + self.random.below(EVENTS));
            self.make(Action::EventRecorded { event, stream: one });
            self.make(Action::StreamWaited {
                stream: other,
                event,
            });
        }
        self.streams[to].buffers[buffer] = std::mem::take(&mut self.streams[from].buffers[buffer]);
    }

    fn renew_event(&mut self) {
        let event = Handle(0x2000 + self.random.below(EVENTS));
        self.make(Action::EventDestroyed { event });
        self.make(Action::EventCreated { event });
    }

    fn host_function(&mut self, place: usize) {
        self.host_functions += 1;
        let token = self.host_functions;
        let stream = self.stream(place);
        self.make(Action::HostFunctionEnqueued { stream, token });
        // One that is behind a failure never runs.
        if self.random.below(16) != 0 {
            self.make(Action::HostFunctionStarted { token });
        }
    }

    fn wait_on_the_host(&mut self, place: usize) {
        let stream = self.stream(place);
        match self.random.below(64) {
            0 => self.make(Action::DeviceSynchronized),
            1 => self.make(Action::ContextSynchronized),
            2..16 => {
                let event = Handle(0x2000 + self.random.below(EVENTS));
                self.make(Action::EventSynchronized {
                    event,
                    polled: place.is_multiple_of(2),
                });
            }
            _ => self.make(Action::StreamSynchronized {
                stream,
                polled: place.is_multiple_of(2),
            }),
        }
    }

    /// A race, and a copy of pageable memory, always at the same places.
    fn go_wrong(&mut self) {
        let which = self.random.below(4);
        let stream = self.stream(1 + which as usize % 2);
        if which < 2 {
            self.make_at(
                WRONG + which as u32,
                Action::Launched {
                    stream,
                    kernel: NameId(300),
                    pointers: [pointer(RACE, Mode::Write)].into_iter().collect(),
                    layout_known: true,
                },
            );
        } else {
            let from = Region::linear(PAGEABLE + self.random.below(1 << 20), 64);
            self.make_at(
                WRONG + which as u32,
                Action::Copied {
                    stream,
                    to: Region::linear(RACE + SIZE / 2 + which * 64, 64),
                    from,
                    direction: Direction::HostToDevice,
                    host: HostMemory::Pageable,
                    synchronous: false,
                },
            );
        }
    }

    /// A thread with a default stream of its own, or a context, lives for a while.
    fn renew(&mut self) {
        match self.random.below(4) {
            0 => {
                self.thread += 1;
                self.make(Action::Enqueued {
                    stream: StreamRef::PerThread,
                });
            }
            1 => {
                self.context += 1;
                let call = Call {
                    api: NameId(1),
                    thread: ThreadId(self.thread),
                    device: DeviceId(0),
                    context: ContextId(self.context),
                    stack: StackId(7),
                };
                let stream = Handle(0x9000);
                for action in [
                    Action::StreamCreated {
                        stream,
                        blocking: true,
                    },
                    Action::Enqueued {
                        stream: StreamRef::Created(stream),
                    },
                    Action::Enqueued {
                        stream: StreamRef::Legacy,
                    },
                    Action::ContextDestroyed,
                ] {
                    self.apply(&Operation { call, action });
                }
            }
            2 => {
                let event = Handle(0x8000 + self.random.below(1 << 40));
                let stream = self.stream(0);
                self.make(Action::EventCreated { event });
                self.make(Action::EventRecorded { event, stream });
                self.make(Action::EventDestroyed { event });
            }
            _ => {
                let stream = StreamRef::Legacy;
                self.make(Action::Enqueued { stream });
            }
        }
    }

    /// A graph is captured or built, with memory of its own, launched a few times, and
    /// seldom destroyed: its handles are given out again.
    fn graph(&mut self, place: usize) {
        let stream = self.stream(place);
        let graph = Handle(0xa000 + self.random.below(64));
        let exec = Handle(0xb000 + self.random.below(64));
        let kept = self.streams[place]
            .buffers
            .iter()
            .copied()
            .find(|address| *address != 0);
        let passing = PASSING + (1 << 44) + self.random.below(1 << 30) * SIZE;
        let pointers = |addresses: &[u64]| {
            let all = addresses
                .iter()
                .map(|address| pointer(*address, Mode::Write));
            all.collect::<SmallVec<[Pointer; 6]>>()
        };
        let launched = |addresses: &[u64]| Action::Launched {
            stream,
            kernel: NameId(301),
            pointers: pointers(addresses),
            layout_known: true,
        };
        if self.random.below(3) == 0 {
            self.make(Action::GraphCreated { graph });
            let mut before = Vec::new();
            for n in 0..self.random.below(8) {
                let node = Handle(0xc000 + graph.0 * 16 + n);
                let work = NodeWork::Kernel {
                    kernel: NameId(302),
                    pointers: pointers(kept.as_slice()),
                    layout_known: true,
                };
                let dependencies = std::mem::replace(&mut before, vec![node]);
                self.make(Action::NodeAdded {
                    graph,
                    node,
                    dependencies,
                    work,
                });
            }
        } else {
            let event = Handle(0x2000 + self.random.below(EVENTS));
            self.make(Action::CaptureBegun {
                stream,
                graph: Handle(0),
                dependencies: Vec::new(),
            });
            self.make(Action::Allocated {
                address: passing,
                size: SIZE,
                kind: MemoryKind::StreamOrdered,
                stream: Some(stream),
                pool: Handle(0),
            });
            let used = kept.unwrap_or(passing);
            self.make(launched(&[passing, used]));
            self.make(Action::EventRecorded { event, stream });
            self.make(Action::FreeBegun {
                address: passing,
                kind: FreeKind::Async,
                stream: Some(stream),
                part: None,
            });
            let outcome = Outcome::Succeeded;
            self.make(Action::FreeEnded { outcome });
            let invalid = self.random.below(8) == 0;
            self.make(Action::CaptureEnded {
                stream,
                graph: if invalid { Handle(0) } else { graph },
            });
            self.make(Action::EventRecorded { event, stream });
            if invalid {
                return;
            }
        }
        self.make(Action::GraphInstantiated {
            exec,
            graph,
            auto_free: false,
        });
        for _ in 0..self.random.below(4) {
            self.make(Action::GraphLaunched { stream, exec });
        }
        if self.random.below(4) == 0 {
            self.make(Action::GraphDestroyed { graph });
        }
        // Its buffers live on without it.
        self.make(Action::ExecDestroyed { exec });
    }

    fn step(&mut self) {
        let place = self.any();
        let buffer = self.random.below(BUFFERS as u64) as usize;
        match self.random.below(1_000) {
            0..500 => self.launch(place),
            500..700 if self.streams[place].buffers[buffer] == 0 => self.allocate(place, buffer),
            500..700 => self.free(place, buffer),
            700..780 => self.copy(place, buffer),
            780..880 => self.hand_over(place, buffer),
            880..900 if self.habits.waits => self.wait_on_the_host(place),
            880..900 => {}
            900..930 => self.renew_event(),
            930..940 if self.habits.waits => self.host_function(place),
            930..940 => {}
            940..950 => self.allocate_and_free(),
            950..957 => self.renew_stream(place),
            957..960 => self.graph(place),
            960..970 if self.habits.renews => self.renew(),
            960..970 => {}
            _ => self.go_wrong(),
        }
    }
}

fn pointer(address: u64, mode: Mode) -> Pointer {
    Pointer {
        address,
        mode,
        shift: 0,
        used: streamcheck_model::Used::Surely,
        element: streamcheck_model::Element::default(),
    }
}

/// Runs the program for that many operations, and checks that its memory stays as it is once
/// it is warm: after a quarter of them.
fn soak(name: &str, habits: Habits, operations: u64) -> Result<(), String> {
    let before = MEMORY.current_usage();
    let mut program = Program::new(habits);
    let mut curve = Vec::with_capacity(POINTS as usize);
    for point in 1..=POINTS {
        MEMORY.reset_peak_usage();
        while program.made < operations * point / POINTS {
            program.step();
        }
        curve.push((program.made, MEMORY.peak_usage() - before));
    }
    let (early, late) = curve.split_at(curve.len() / 2);
    let most = |part: &[(u64, usize)]| part.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let counts = program.engine.counts();
    let faults = if most(late) >= MOST {
        "takes too much"
    } else if most(late) > most(early) + most(early) / 50 + (64 << 10) {
        "takes ever more"
    } else if program.findings == 0 || counts.iter().any(|count| *count < 2) {
        "is not found to go wrong again and again"
    } else {
        "is as it must be"
    };
    let mut said = format!("{name} {faults}; operations and MiB:");
    for (made, bytes) in &curve {
        let _ = write!(said, " {made} {:.2},", *bytes as f64 / f64::from(1 << 20));
    }
    said.push('\n');
    let _ = io::stderr().write_all(said.as_bytes());
    (faults == "is as it must be").then_some(()).ok_or(said)
}

#[test]
fn memory_stays_as_it_is() {
    let operations = env::var("STREAMCHECK_SOAK_OPERATIONS").map_or(10_000_000, |count| {
        count.parse().expect("a number of operations")
    });
    let usual = Habits {
        waits: true,
        renews: false,
    };
    let restless = Habits {
        renews: true,
        ..usual
    };
    let hasty = Habits {
        waits: false,
        ..usual
    };
    let programs = [
        ("a program that waits", usual, 70),
        ("one with ever new threads and contexts", restless, 15),
        ("one that never waits", hasty, 15),
    ];
    let faults: Vec<String> = programs
        .into_iter()
        .filter_map(|(name, habits, part)| soak(name, habits, operations / 100 * part).err())
        .collect();
    assert!(faults.is_empty(), "{}", faults.concat());
}
