//! What the engine costs a call. Each benchmark is one kind of traffic in a steady
//! state; the unit is one operation (or the pair that its name says).

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use smallvec::SmallVec;
use streamcheck_engine::{Engine, Levels};
use streamcheck_model::{
    Action, Call, FreeKind, Handle, MemoryKind, Mode, NameId, Operation, Outcome, Pointer,
    StreamRef, ThreadId,
};

const BLOCK: u64 = 1 << 16;

fn operation(action: Action) -> Operation {
    Operation {
        call: Call {
            thread: ThreadId(1),
            ..Call::default()
        },
        action,
    }
}

fn stream(n: u64) -> StreamRef {
    StreamRef::Created(Handle(0x1000 + n))
}

/// An engine with `streams` non-blocking streams and `blocks` live allocations.
fn engine(streams: u64, blocks: u64) -> Engine {
    let mut engine = Engine::new(Levels::default());
    for n in 0..streams {
        engine.apply(&operation(Action::StreamCreated {
            stream: Handle(0x1000 + n),
            blocking: false,
        }));
        engine.apply(&operation(Action::EventCreated {
            event: Handle(0x2000 + n),
        }));
    }
    for n in 0..blocks {
        engine.apply(&operation(Action::Allocated {
            address: (n + 1) * BLOCK,
            size: BLOCK / 2,
            kind: MemoryKind::Device,
            stream: None,
            pool: Handle(0),
        }));
    }
    engine
}

/// A launch on stream `n` with `pointers` parameters of its own.
fn launch(n: u64, pointers: u64, blocks: u64) -> Operation {
    let address = |i: u64| ((n * pointers + i) % blocks + 1) * BLOCK;
    let pointers: SmallVec<[Pointer; 6]> = (0..pointers)
        .map(|i| Pointer {
            address: address(i),
            mode: Mode::Write,
            shift: 0,
            used: streamcheck_model::Used::Perhaps,
            element: streamcheck_model::Element::default(),
        })
        .collect();
    operation(Action::Launched {
        stream: stream(n),
        kernel: NameId(1),
        pointers,
        layout_known: true,
    })
}

fn launches(c: &mut Criterion) {
    let mut group = c.benchmark_group("launch");
    for (pointers, streams, blocks) in [
        (1, 8, 10_000),
        (4, 1, 10_000),
        (4, 8, 100),
        (4, 8, 10_000),
        (4, 64, 10_000),
        (4, 512, 10_000),
        (4, 8, 1_000_000),
        (16, 8, 10_000),
    ] {
        let mut engine = engine(streams, blocks);
        let launches: Vec<Operation> = (0..streams).map(|n| launch(n, pointers, blocks)).collect();
        let mut next = (0..launches.len()).cycle();
        let name = format!("{pointers} pointers, {streams} streams, {blocks} blocks");
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| black_box(engine.apply(&launches[next.next().unwrap()])));
        });
    }
    group.finish();
}

fn allocation(c: &mut Criterion) {
    let mut engine = engine(8, 10_000);
    let address = BLOCK * 20_000;
    let kind = MemoryKind::StreamOrdered;
    let pair = [
        operation(Action::Allocated {
            address,
            size: 1024,
            kind,
            stream: Some(stream(0)),
            pool: Handle(0),
        }),
        operation(Action::FreeBegun {
            address,
            kind: FreeKind::Async,
            stream: Some(stream(0)),
            part: None,
        }),
        operation(Action::FreeEnded {
            outcome: Outcome::Succeeded,
        }),
    ];
    c.bench_function("allocate + free", |b| {
        b.iter(|| {
            pair.iter()
                .map(|operation| engine.apply(operation).len())
                .sum::<usize>()
        });
    });
}

fn events(c: &mut Criterion) {
    let mut engine = engine(8, 100);
    let work = [launch(0, 1, 100), launch(1, 1, 100)];
    let pair = [
        operation(Action::EventRecorded {
            event: Handle(0x2000),
            stream: stream(0),
        }),
        operation(Action::StreamWaited {
            stream: stream(1),
            event: Handle(0x2000),
        }),
    ];
    c.bench_function("record + wait", |b| {
        b.iter(|| {
            pair.iter()
                .map(|operation| engine.apply(operation).len())
                .sum::<usize>()
        });
    });
    c.bench_function("launch, record + wait, launch", |b| {
        b.iter(|| {
            engine.apply(&work[0]);
            pair.iter()
                .for_each(|operation| drop(engine.apply(operation)));
            engine.apply(&work[1])
        });
    });
}

/// Launches on blocking streams and on the legacy default stream in turn: each waits for
/// the others.
fn legacy_stream(c: &mut Criterion) {
    let mut engine = engine(0, 100);
    for n in 0..8 {
        engine.apply(&operation(Action::StreamCreated {
            stream: Handle(0x1000 + n),
            blocking: true,
        }));
    }
    let mut legacy = launch(0, 1, 100);
    if let Action::Launched { stream, .. } = &mut legacy.action {
        *stream = StreamRef::Legacy;
    }
    let others: Vec<Operation> = (0..8).map(|n| launch(n, 1, 100)).collect();
    let mut next = (0..others.len()).cycle();
    c.bench_function("launch, launch on the legacy stream", |b| {
        b.iter(|| {
            engine.apply(&others[next.next().unwrap()]);
            engine.apply(&legacy)
        });
    });
}

fn repeated_findings(c: &mut Criterion) {
    let mut engine = engine(2, 1);
    let race = [launch(0, 1, 1), launch(1, 1, 1)];
    engine.apply(&race[0]);
    c.bench_function("a finding again", |b| {
        b.iter(|| {
            race.iter()
                .map(|operation| engine.apply(operation).len())
                .sum::<usize>()
        });
    });
}

criterion_group!(
    benches,
    launches,
    allocation,
    events,
    legacy_stream,
    repeated_findings
);
criterion_main!(benches);
