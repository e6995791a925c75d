//! What recording and reading cost per operation.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use streamcheck_model::trace::{Header, ProcessFacts, Reader, Writer};
use streamcheck_model::{
    Action, Call, Handle, Mode, Names, Operation, Pointer, StackId, StreamRef,
};

/// A launch with four pointers, the commonest operation.
fn launch(names: &mut Names, number: u64) -> Operation {
    Operation {
        call: Call {
            api: names.intern("cudaLaunchKernel"),
            stack: StackId(1 + (number % 16) as u32),
            ..Call::default()
        },
        action: Action::Launched {
            stream: StreamRef::Created(Handle(0x55d0_1234_5678)),
            kernel: names.intern("_Z5saxpyPfS_i"),
            pointers: (0..4)
                .map(|i| Pointer {
                    address: 0x7f00_0000_0000 + i * 4096,
                    mode: Mode::Write,
                    shift: 0,
                    sure: false,
                    back: false,
                })
                .collect(),
            layout_known: true,
        },
    }
}

fn trace(criterion: &mut Criterion) {
    let mut names = Names::default();
    let operations: Vec<_> = (0..1000).map(|number| launch(&mut names, number)).collect();
    let header = Header::new(ProcessFacts::default());
    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(operations.len() as u64));

    let mut out = Vec::new();
    group.bench_function("write a launch", |bencher| {
        let mut writer = Writer::default();
        bencher.iter(|| {
            out.clear();
            for operation in &operations {
                writer.operation(operation, &names, |_| &[1, 2, 3], &mut out);
            }
        });
    });
    out.clear();
    let mut writer = Writer::new(&header, &mut out);
    for operation in &operations {
        writer.operation(operation, &names, |_| &[1, 2, 3], &mut out);
    }
    writer.end(&mut out);
    group.bench_function("read a launch", |bencher| {
        bencher.iter(|| {
            let reader = Reader::new(&out[..], "bench").expect("it was written whole");
            for record in reader {
                black_box(record.expect("it was written whole"));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, trace);
criterion_main!(benches);
