//! What recording and reading cost per operation, and how many bytes of the file it takes.
//!
//! `cargo bench -p streamcheck-model --bench trace` prints the bytes first. Operations are
//! committed one by one, as a recorder does, and turning the journal over is included. The time is
//! the processor's, so that what else the machine does hardly counts.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use smallvec::SmallVec;
use streamcheck_model::trace::{Header, Layout, Medium, ProcessFacts, Reader, Tables, Writer};
use streamcheck_model::{
    Action, Call, FreeKind, Handle, MemoryKind, Mode, NameId, Names, Operation, Outcome, Pointer,
    StackId, StreamRef,
};

const STREAM: StreamRef = StreamRef::Created(Handle(0x55d0_1234_5678));

/// A program's calls, each with where in the program it stands.
struct Calls {
    names: Names,
    operations: Vec<Operation>,
}

impl Calls {
    fn call(&mut self, api: &str, stack: u32, action: Action) {
        let call = Call {
            api: self.names.intern(api),
            stack: StackId(1 + stack),
            ..Call::default()
        };
        self.operations.push(Operation { call, action });
    }

    fn launch(&mut self, stack: u32, kernel: NameId, first: u64, pointers: u64) {
        let pointers: SmallVec<[Pointer; 6]> = (0..pointers)
            .map(|i| Pointer {
                address: 0x7f00_0000_0000 + (first + i) * 4096,
                mode: Mode::Write,
                shift: 0,
                used: streamcheck_model::Used::Perhaps,
                element: streamcheck_model::Element::default(),
            })
            .collect();
        let action = Action::Launched {
            stream: STREAM,
            kernel,
            pointers,
            layout_known: true,
        };
        self.call("cudaLaunchKernel", stack, action);
    }

    fn allocate(&mut self, stack: u32, address: u64) {
        let action = Action::Allocated {
            address,
            size: 4096,
            kind: MemoryKind::StreamOrdered,
            stream: Some(STREAM),
            pool: Handle(0),
        };
        self.call("cudaMallocAsync", stack, action);
    }

    fn free(&mut self, stack: u32, address: u64) {
        let action = Action::FreeBegun {
            address,
            kind: FreeKind::Async,
            stream: Some(STREAM),
            part: None,
        };
        self.call("cudaFreeAsync", stack, action);
        let outcome = Outcome::Succeeded;
        self.call("cudaFreeAsync", stack, Action::FreeEnded { outcome });
    }
}

/// A kind of traffic, under its name: `rounds` rounds of it.
fn traffic(kind: &str, rounds: u64) -> Calls {
    let mut calls = Calls {
        names: Names::default(),
        operations: Vec::new(),
    };
    let saxpy = calls.names.intern("_Z5saxpyPfS_i");
    let kernels: Vec<NameId> = (0..40)
        .map(|i| calls.names.intern(&format!("_ZN2at6native{i}EPfS_i")))
        .collect();
    for round in 0..rounds {
        match kind {
            "launch, the same pointers" => calls.launch(0, saxpy, 0, 4),
            "launch, pointers that walk" => calls.launch(0, saxpy, round * 4, 4),
            "launch, pointers at random" => {
                calls.launch(0, saxpy, round.wrapping_mul(0x9e37_79b9) % 100_000, 4);
            }
            "alloc and free" => {
                let address = 0x7f00_0000_0000 + round % 16 * 4096;
                calls.allocate(0, address);
                calls.free(1, address);
            }
            "record and wait" => {
                let event = Handle(0x55d0_2345_0000 + round % 8 * 96);
                let stream = STREAM;
                calls.call(
                    "cudaEventRecord",
                    0,
                    Action::EventRecorded { event, stream },
                );
                calls.call(
                    "cudaStreamWaitEvent",
                    1,
                    Action::StreamWaited { stream, event },
                );
            }
            // A step of some layers, as PyTorch makes it: an allocation, launches of the layer's
            // kernels on memory that is the same each step, a free; now and then an address
            // that is new.
            _ => {
                let layer = round % 200;
                let fresh = u64::from(round % 50 == 0) * round * 8192;
                let address = 0x7e00_0000_0000 + layer * 8192 + fresh;
                let site = layer as u32 * 8;
                calls.allocate(site, address);
                for i in 0..5 {
                    let kernel = kernels[((layer + i) % 40) as usize];
                    calls.launch(site + 1 + i as u32, kernel, layer * 6 + i, 3 + i % 3);
                }
                calls.free(site + 6, address);
            }
        }
    }
    calls
}

/// A file that goes nowhere, but costs the copies.
struct Discarded {
    journal: Vec<u8>,
    file: Vec<u8>,
    length: u64,
}

impl Discarded {
    fn new(layout: &Layout) -> Self {
        Self {
            journal: vec![0; layout.size()],
            file: Vec::new(),
            length: 0,
        }
    }
}

impl Medium for Discarded {
    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.journal[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn publish(&mut self, at: usize, word: u64) {
        self.store(at, &word.to_ne_bytes());
    }

    fn append(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.clear();
        self.file.extend_from_slice(bytes);
        self.length = at + bytes.len() as u64;
        Ok(())
    }
}

const KINDS: [&str; 6] = [
    "launch, the same pointers",
    "launch, pointers that walk",
    "launch, pointers at random",
    "alloc and free",
    "record and wait",
    "a mixture like PyTorch's",
];

fn record<M: Medium>(writer: &mut Writer<M>, calls: &Calls) {
    for operation in &calls.operations {
        writer.operation(operation, &calls.names, |_| &[1, 2, 3]);
        writer.commit().expect("there is no limit");
    }
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

fn trace(criterion: &mut Criterion) {
    let header = Header::new(ProcessFacts::default());
    let layout = Layout::new(&header, None).expect("there is no limit");
    let mut group = criterion.benchmark_group("trace");
    group.sample_size(20);
    for kind in KINDS {
        let calls = traffic(kind, 100_000);
        let count = calls.operations.len() as u64;
        group.throughput(Throughput::Elements(count));
        let mut writer = Writer::in_memory(&header);
        record(&mut writer, &calls);
        let bytes = writer.into_bytes(true);
        let blocks = bytes.len().saturating_sub(layout.start() + layout.size());
        eprint_size(kind, count, bytes.len(), blocks);
        group.bench_function(format!("write: {kind}"), |bencher| {
            let mut writer =
                Writer::begin(&layout, Discarded::new(&layout)).expect("it takes everything");
            bencher.iter_custom(|rounds| processor_time(rounds, || record(&mut writer, &calls)));
        });
        group.bench_function(format!("read: {kind}"), |bencher| {
            let read = || {
                let mut reader = Reader::new(&bytes[..], "bench").expect("it was written whole");
                let (mut tables, mut names) = (Tables::default(), Names::default());
                while let Some(operation) = reader.operation(&mut tables, &mut names) {
                    black_box(operation.expect("it was written whole"));
                }
            };
            bencher.iter_custom(|rounds| processor_time(rounds, read));
        });
    }
    group.finish();
}

/// A bench has nobody but a terminal to tell.
#[allow(clippy::print_stderr, reason = "this is a program of its own")]
fn eprint_size(kind: &str, count: u64, file: usize, blocks: usize) {
    let of = |bytes: usize| bytes as f64 / count as f64;
    eprintln!(
        "{kind}: {:.3} bytes an operation in blocks, {:.3} in a file of {count}",
        of(blocks),
        of(file)
    );
}

criterion_group!(benches, trace);
criterion_main!(benches);
