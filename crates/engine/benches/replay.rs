//! How fast a trace is replayed, and what of that is the engine's. The time is the processor's,
//! so that what else the machine does hardly counts.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use smallvec::SmallVec;
use streamcheck_engine::{Engine, Levels};
use streamcheck_model::trace::{Header, ProcessFacts, Reader, Tables, Writer};
use streamcheck_model::{
    Action, Call, FreeKind, Handle, MemoryKind, Mode, NameId, Names, Operation, Outcome, Pointer,
    StackId, StreamRef, ThreadId,
};

const STREAMS: u64 = 8;
const BLOCKS: u64 = 256;
const BLOCK: u64 = 1 << 16;

/// A program's calls.
#[derive(Default)]
struct Calls {
    names: Names,
    operations: Vec<Operation>,
}

impl Calls {
    fn call(&mut self, api: &str, stack: u32, action: Action) {
        let call = Call {
            api: self.names.intern(api),
            thread: ThreadId(1),
            stack: StackId(stack),
            ..Call::default()
        };
        self.operations.push(Operation { call, action });
    }

    /// Streams, and memory that is there all the time, each stream's its own.
    fn begin(&mut self) {
        for n in 0..STREAMS {
            let action = Action::StreamCreated {
                stream: Handle(0x1000 + n),
                blocking: false,
            };
            self.call("cudaStreamCreateWithFlags", 1, action);
        }
        for n in 0..BLOCKS {
            self.allocate(2, (n + 1) * BLOCK, MemoryKind::Device, None);
        }
    }

    fn allocate(&mut self, stack: u32, address: u64, kind: MemoryKind, stream: Option<StreamRef>) {
        let action = Action::Allocated {
            address,
            size: BLOCK / 2,
            kind,
            stream,
            pool: Handle(0),
        };
        self.call("cudaMallocAsync", stack, action);
    }

    fn free(&mut self, stack: u32, address: u64, stream: StreamRef) {
        let action = Action::FreeBegun {
            address,
            kind: FreeKind::Async,
            stream: Some(stream),
            part: None,
        };
        self.call("cudaFreeAsync", stack, action);
        let outcome = Outcome::Succeeded;
        self.call("cudaFreeAsync", stack, Action::FreeEnded { outcome });
    }

    fn launch(&mut self, stack: u32, kernel: NameId, round: u64, pointers: u64) {
        let n = round % STREAMS;
        let pointers: SmallVec<[Pointer; 6]> = (0..pointers)
            .map(|i| Pointer {
                address: ((round * pointers + i) * STREAMS + n) % BLOCKS * BLOCK + BLOCK,
                mode: Mode::Write,
                shift: 0,
                used: streamcheck_model::Used::Perhaps,
                element: streamcheck_model::Element::default(),
            })
            .collect();
        let action = Action::Launched {
            stream: stream(n),
            kernel,
            pointers,
            layout_known: true,
        };
        self.call("cudaLaunchKernel", stack, action);
    }
}

fn stream(n: u64) -> StreamRef {
    StreamRef::Created(Handle(0x1000 + n))
}

/// Launches with four pointers on eight streams in turn.
fn launches() -> Calls {
    let mut calls = Calls::default();
    let saxpy = calls.names.intern("_Z5saxpyPfS_i");
    calls.begin();
    for round in 0..200_000 {
        calls.launch(3, saxpy, round, 4);
    }
    calls
}

/// Steps of layers: an allocation, some launches, a free; an event between streams each layer.
fn layers() -> Calls {
    let mut calls = Calls::default();
    let kernels: Vec<NameId> = (0..40)
        .map(|i| calls.names.intern(&format!("_ZN2at6native{i}EPfS_i")))
        .collect();
    calls.begin();
    for round in 0..20_000_u64 {
        let layer = round % 200;
        let site = 10 + layer as u32 * 8;
        let own = stream(layer % STREAMS);
        let address = 0x7e00_0000_0000 + layer * BLOCK;
        calls.allocate(site, address, MemoryKind::StreamOrdered, Some(own));
        for i in 0..5 {
            let kernel = kernels[((layer + i) % 40) as usize];
            calls.launch(site + 1 + i as u32, kernel, layer * 5 + i, 3 + i % 3);
        }
        let event = Handle(0x2000 + layer);
        let record = Action::EventRecorded { event, stream: own };
        calls.call("cudaEventRecord", site + 6, record);
        let wait = Action::StreamWaited {
            stream: stream((layer + 1) % STREAMS),
            event,
        };
        calls.call("cudaStreamWaitEvent", site + 6, wait);
        calls.free(site + 7, address, own);
    }
    calls
}

fn processor_time(rounds: u64, mut once: impl FnMut()) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let began = now();
    for _ in 0..rounds {
        once();
    }
    now() - began
}

fn replay(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(20);
    for (kind, calls) in [("launches", launches()), ("layers", layers())] {
        group.throughput(Throughput::Elements(calls.operations.len() as u64));
        let mut writer = Writer::in_memory(&Header::new(ProcessFacts::default()));
        for operation in &calls.operations {
            writer.operation(operation, &calls.names, |_| &[1, 2, 3]);
            writer.commit().expect("there is no limit");
        }
        let bytes = writer.into_bytes(true);
        let open = || Reader::new(&bytes[..], "bench").expect("it was written whole");
        group.bench_function(format!("{kind}: all"), |bencher| {
            bencher.iter_custom(|rounds| {
                processor_time(rounds, || {
                    let mut engine = Engine::new(Levels::default());
                    let (mut reader, mut tables) = (open(), Tables::default());
                    while let Some(operation) = reader.operation(&mut tables, engine.names_mut()) {
                        black_box(engine.apply(operation.expect("it was written whole")));
                    }
                })
            });
        });
        group.bench_function(format!("{kind}: reading"), |bencher| {
            bencher.iter_custom(|rounds| {
                processor_time(rounds, || {
                    let (mut names, mut tables) = (Names::default(), Tables::default());
                    let mut reader = open();
                    while let Some(operation) = reader.operation(&mut tables, &mut names) {
                        black_box(operation.expect("it was written whole"));
                    }
                })
            });
        });
        group.bench_function(format!("{kind}: engine"), |bencher| {
            bencher.iter_custom(|rounds| {
                processor_time(rounds, || {
                    let mut engine = Engine::new(Levels::default());
                    for operation in &calls.operations {
                        black_box(engine.apply(operation));
                    }
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, replay);
criterion_main!(benches);
