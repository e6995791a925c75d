//! What a launch of a graph costs, by the nodes that it has and by what else happens.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use streamcheck_engine::{Engine, Levels};
use streamcheck_model::{
    Action, Call, Handle, MemoryKind, Mode, NameId, Operation, Pointer, StreamRef, ThreadId,
};

const BLOCK: u64 = 1 << 16;
const EXEC: Handle = Handle(0x4000);

fn apply(engine: &mut Engine, action: Action) {
    let call = Call {
        thread: ThreadId(1),
        ..Call::default()
    };
    black_box(engine.apply(&Operation { call, action }));
}

fn stream(n: u64) -> StreamRef {
    StreamRef::Created(Handle(0x1000 + n))
}

fn launched(stream: StreamRef, blocks: [u64; 3]) -> Action {
    let pointer = |block: u64| Pointer {
        address: (block + 1) * BLOCK,
        mode: Mode::Write,
        shift: 0,
        used: streamcheck_model::Used::Perhaps,
        element: streamcheck_model::Element::default(),
    };
    Action::Launched {
        stream,
        kernel: NameId(1),
        pointers: blocks.into_iter().map(pointer).collect(),
        layout_known: true,
    }
}

/// An engine with a graph of that many kernels with three pointers each, into a tenth as
/// many blocks.
fn engine(nodes: u64) -> Engine {
    let mut engine = Engine::new(Levels::default());
    for n in 0..4 {
        apply(
            &mut engine,
            Action::StreamCreated {
                stream: Handle(0x1000 + n),
                blocking: false,
            },
        );
    }
    let blocks = nodes / 10;
    for block in 0..=blocks {
        apply(
            &mut engine,
            Action::Allocated {
                address: (block + 1) * BLOCK,
                size: BLOCK / 2,
                kind: MemoryKind::Device,
                stream: None,
                pool: Handle(0),
            },
        );
    }
    let (graph, capturing) = (Handle(0x3000), stream(0));
    apply(
        &mut engine,
        Action::CaptureBegun {
            stream: capturing,
            graph: Handle(0),
            dependencies: Vec::new(),
        },
    );
    for node in 0..nodes {
        let used = [node % blocks, (node + 1) % blocks, node / 10];
        apply(&mut engine, launched(capturing, used));
    }
    apply(
        &mut engine,
        Action::CaptureEnded {
            stream: capturing,
            graph,
        },
    );
    apply(
        &mut engine,
        Action::GraphInstantiated {
            exec: EXEC,
            graph,
            auto_free: false,
        },
    );
    engine
}

fn launches(c: &mut Criterion) {
    let mut group = c.benchmark_group("graph launch");
    for nodes in [10, 1_000, 10_000] {
        let mut engine = engine(nodes);
        let launch = |stream| Action::GraphLaunched { stream, exec: EXEC };
        group.bench_function(BenchmarkId::new("alone", nodes), |b| {
            b.iter(|| apply(&mut engine, launch(stream(0))));
        });
        group.bench_function(BenchmarkId::new("after its input", nodes), |b| {
            b.iter(|| {
                apply(&mut engine, launched(stream(0), [0, 0, 0]));
                apply(&mut engine, launch(stream(0)));
            });
        });
        let mut next = (0..2).cycle();
        group.bench_function(BenchmarkId::new("on two streams in turn", nodes), |b| {
            b.iter(|| apply(&mut engine, launch(stream(next.next().unwrap()))));
        });
    }
    group.finish();
}

fn captures(c: &mut Criterion) {
    c.bench_function("capture and instantiate 10,000 nodes", |b| {
        b.iter(|| engine(10_000));
    });
}

criterion_group!(benches, launches, captures);
criterion_main!(benches);
