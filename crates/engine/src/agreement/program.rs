//! Steps of random programs. Numbers pick among what exists, so every sequence of
//! steps is a program.

use proptest::prelude::*;
use proptest::strategy::Union;
use streamcheck_model::{Condition, FreeKind, MemoryKind, Mode, Outcome, Region, SourceOrder};

/// Which bytes of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape(usize);

impl Shape {
    /// The bytes, in a block at `base` of [`BLOCK`] bytes.
    pub(super) fn at(self, base: u64) -> Region {
        match self.0 {
            0 => Region::linear(base, BLOCK),
            1 => Region::linear(base, 0x200),
            2 => Region::linear(base + 0x200, 0x200),
            3 => Region::linear(base + 0x100, 0x200),
            4 => Region::pitched(base, 0x10, 8, 0x40),
            5 => Region::pitched(base + 0x10, 0x10, 8, 0x40),
            6 => Region::pitched(base + 0x18, 0x10, 4, 0x80),
            _ => Region::linear(base, 0),
        }
    }

    /// The same without pitched ones.
    pub(super) fn plain_at(self, base: u64) -> Region {
        Self(self.0 % 4).at(base)
    }

    /// The bytes in the middle of a block.
    pub(super) fn middle(base: u64) -> Region {
        Self(3).at(base)
    }

    /// From the middle of one mapping to the middle of the next.
    pub(super) fn astride(base: u64) -> Region {
        Region::linear(base + 0x200, BLOCK)
    }
}

/// Bytes of every block.
pub(super) const BLOCK: u64 = 0x400;

/// One copy of a batch: target and source as for [`Step::Copy`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) to_shape: Shape,
    pub(super) from_shape: Shape,
    pub(super) order: SourceOrder,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Create {
        slot: usize,
        blocking: bool,
    },
    Destroy {
        slot: usize,
    },
    NewEvent {
        event: u64,
    },
    /// From then on the event is one that nobody was seen to create.
    DropEvent {
        event: u64,
    },
    Record {
        event: u64,
        stream: usize,
    },
    Wait {
        event: u64,
        stream: usize,
    },
    SyncEvent {
        event: u64,
        polled: bool,
    },
    SyncStream {
        stream: usize,
        polled: bool,
    },
    SyncDevice,
    SyncContext,
    RecordContext {
        event: u64,
    },
    WaitContext {
        event: u64,
    },
    EndContext,
    Barrier {
        devices: usize,
    },
    Enqueue {
        stream: usize,
    },
    Alloc {
        stream: usize,
        kind: MemoryKind,
        reuse: bool,
    },
    Free {
        stream: usize,
        block: usize,
        /// `None` for the right one.
        kind: Option<FreeKind>,
        inside: bool,
        outcome: Outcome,
    },
    /// The C library takes host memory back.
    Release {
        host: usize,
    },
    Launch {
        stream: usize,
        pointers: Vec<(usize, u64, Mode, u32)>,
    },
    Copy {
        stream: usize,
        /// Blocks; beyond [`Step::BLOCKS`], memory that CUDA was not told of.
        to: usize,
        from: usize,
        to_shape: Shape,
        from_shape: Shape,
        synchronous: bool,
        /// The call leaves the direction to CUDA.
        inferred: bool,
    },
    Fill {
        stream: usize,
        to: usize,
        shape: Shape,
        synchronous: bool,
    },
    Batch {
        stream: usize,
        copies: Vec<Pair>,
    },
    HostFunction {
        stream: usize,
    },
    HostFunctionRuns {
        which: usize,
    },
    WriteValue {
        stream: usize,
        flag: usize,
        value: u64,
    },
    WaitValue {
        stream: usize,
        flag: usize,
        value: u64,
        condition: Condition,
    },
    Switch {
        thread: u32,
        context: usize,
    },
}

impl Step {
    /// Picks below mean a block, others memory that CUDA was not told of.
    pub(super) const BLOCKS: usize = 12;
}

/// How often steps of each kind are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) order: u32,
    pub(super) contexts: u32,
    pub(super) values: u32,
    pub(super) lifetimes: u32,
    pub(super) bytes: u32,
    /// Events whose creation was not seen.
    pub(super) unknown: u32,
}

pub(super) fn steps(weights: Weights) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(weights), 1..48)
}

fn step(weights: Weights) -> impl Strategy<Value = Step> {
    use prop::sample::select;
    let Weights {
        order,
        contexts,
        values,
        lifetimes,
        bytes,
        unknown,
    } = weights;
    let n = || 0..8usize;
    let event = || 0..3u64;
    let side = || 0..Step::BLOCKS + 2;
    let shape = || (0..8usize).prop_map(Shape);
    let kinds = select(vec![
        MemoryKind::StreamOrdered,
        MemoryKind::StreamOrdered,
        MemoryKind::StreamOrdered,
        MemoryKind::Device,
        MemoryKind::Managed,
        MemoryKind::Pinned,
        MemoryKind::Registered,
        MemoryKind::Mapped,
    ]);
    let frees = select(vec![
        None,
        None,
        None,
        None,
        None,
        Some(FreeKind::Async),
        Some(FreeKind::Sync),
        Some(FreeKind::Host),
        Some(FreeKind::Unmap),
    ]);
    let outcomes = select(vec![
        Outcome::Succeeded,
        Outcome::Succeeded,
        Outcome::Succeeded,
        Outcome::Succeeded,
        Outcome::Refused,
        Outcome::Failed,
    ]);
    let mode = || {
        select(vec![
            Mode::Read,
            Mode::Write,
            Mode::Write,
            Mode::Update,
            Mode::Unknown,
            Mode::Doubtful,
        ])
    };
    let pointer = || {
        (
            n(),
            select(vec![0u64, 0, 0, 0x200, 0x18]),
            mode(),
            select(vec![0u32, 0, 0, 5]),
        )
    };
    let conditions = select(vec![
        Condition::Equal,
        Condition::Reached32,
        Condition::And,
        Condition::Nor32,
    ]);
    let orders = select(vec![
        SourceOrder::Stream,
        SourceOrder::DuringCall,
        SourceOrder::Any,
    ]);
    let pair = (side(), side(), shape(), shape(), orders).prop_map(
        |(to, from, to_shape, from_shape, order)| Pair {
            to,
            from,
            to_shape,
            from_shape,
            order,
        },
    );
    let all = vec![
        (
            order,
            (0..4usize, any::<bool>())
                .prop_map(|(slot, blocking)| Step::Create { slot, blocking })
                .boxed(),
        ),
        (
            order,
            (0..4usize).prop_map(|slot| Step::Destroy { slot }).boxed(),
        ),
        (
            order,
            event().prop_map(|event| Step::NewEvent { event }).boxed(),
        ),
        (
            unknown,
            event().prop_map(|event| Step::DropEvent { event }).boxed(),
        ),
        (
            5 * order,
            (event(), n())
                .prop_map(|(event, stream)| Step::Record { event, stream })
                .boxed(),
        ),
        (
            5 * order,
            (event(), n())
                .prop_map(|(event, stream)| Step::Wait { event, stream })
                .boxed(),
        ),
        (
            order,
            (event(), any::<bool>())
                .prop_map(|(event, polled)| Step::SyncEvent { event, polled })
                .boxed(),
        ),
        (
            order,
            (n(), any::<bool>())
                .prop_map(|(stream, polled)| Step::SyncStream { stream, polled })
                .boxed(),
        ),
        (order, Just(Step::SyncDevice).boxed()),
        (contexts, Just(Step::SyncContext).boxed()),
        (
            2 * contexts,
            event()
                .prop_map(|event| Step::RecordContext { event })
                .boxed(),
        ),
        (
            2 * contexts,
            event()
                .prop_map(|event| Step::WaitContext { event })
                .boxed(),
        ),
        (contexts, Just(Step::EndContext).boxed()),
        (
            contexts,
            (0..3usize)
                .prop_map(|devices| Step::Barrier { devices })
                .boxed(),
        ),
        (
            order,
            n().prop_map(|stream| Step::Enqueue { stream }).boxed(),
        ),
        (
            5 * lifetimes + bytes,
            (n(), kinds, any::<bool>())
                .prop_map(|(stream, kind, reuse)| Step::Alloc {
                    stream,
                    kind,
                    reuse,
                })
                .boxed(),
        ),
        (
            4 * lifetimes,
            (n(), n(), frees, prop::bool::weighted(0.1), outcomes)
                .prop_map(|(stream, block, kind, inside, outcome)| Step::Free {
                    stream,
                    block,
                    kind,
                    inside,
                    outcome,
                })
                .boxed(),
        ),
        (bytes, n().prop_map(|host| Step::Release { host }).boxed()),
        (
            8 * lifetimes + 4 * bytes,
            (n(), prop::collection::vec(pointer(), 1..3))
                .prop_map(|(stream, pointers)| Step::Launch { stream, pointers })
                .boxed(),
        ),
        (
            6 * bytes,
            (
                n(),
                side(),
                side(),
                shape(),
                shape(),
                any::<bool>(),
                prop::bool::weighted(0.3),
            )
                .prop_map(
                    |(stream, to, from, to_shape, from_shape, synchronous, inferred)| Step::Copy {
                        stream,
                        to,
                        from,
                        to_shape,
                        from_shape,
                        synchronous,
                        inferred,
                    },
                )
                .boxed(),
        ),
        (
            3 * bytes,
            (n(), 0..Step::BLOCKS, shape(), any::<bool>())
                .prop_map(|(stream, to, shape, synchronous)| Step::Fill {
                    stream,
                    to,
                    shape,
                    synchronous,
                })
                .boxed(),
        ),
        (
            2 * bytes,
            (n(), prop::collection::vec(pair, 1..4))
                .prop_map(|(stream, copies)| Step::Batch { stream, copies })
                .boxed(),
        ),
        (
            order,
            n().prop_map(|stream| Step::HostFunction { stream }).boxed(),
        ),
        (
            order,
            n().prop_map(|which| Step::HostFunctionRuns { which })
                .boxed(),
        ),
        (
            4 * values,
            (n(), 0..4usize, 0..4u64)
                .prop_map(|(stream, flag, value)| Step::WriteValue {
                    stream,
                    flag,
                    value,
                })
                .boxed(),
        ),
        (
            4 * values,
            (n(), 0..4usize, 0..4u64, conditions)
                .prop_map(|(stream, flag, value, condition)| Step::WaitValue {
                    stream,
                    flag,
                    value,
                    condition,
                })
                .boxed(),
        ),
        (
            order + contexts,
            (1..3u32, 0..4usize)
                .prop_map(|(thread, context)| Step::Switch { thread, context })
                .boxed(),
        ),
    ];
    Union::new_weighted(all.into_iter().filter(|(weight, _)| *weight > 0).collect())
}
