//! The engine takes any sequence of operations, sensible or not, without a panic:
//! a trace may hold anything, and an application may do anything.

use proptest::prelude::*;
use smallvec::SmallVec;
use streamcheck_engine::{Engine, Finding, HostUse, Level, Levels, RULES, RuleCode, Timeline};
use streamcheck_model::{
    Action, BatchCopy, Call, Condition, ContextId, DeviceId, Direction, Flag, FreeKind, Handle,
    HostMemory, MemoryKind, Mode, NameId, NodeWork, Operation, Outcome, Pointer, Region,
    SourceOrder, StackId, StreamRef, ThreadId, Used,
};

fn number() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![
        0,
        1,
        2,
        0x1000,
        0x1100,
        0x1400,
        0x2000,
        u64::MAX / 2,
        u64::MAX - 1,
        u64::MAX,
    ])
}

fn stream() -> impl Strategy<Value = StreamRef> {
    prop_oneof![
        Just(StreamRef::Legacy),
        Just(StreamRef::PerThread),
        (0..3u64).prop_map(|handle| StreamRef::Created(Handle(handle))),
    ]
}

fn region() -> impl Strategy<Value = Region> {
    (number(), number(), number(), number()).prop_map(|(address, width, rows, pitch)| Region {
        address,
        width,
        rows,
        pitch,
    })
}

fn handle() -> impl Strategy<Value = Handle> {
    (0..3u64).prop_map(Handle)
}

/// The actions about contexts, values and batches.
fn rarer_action() -> impl Strategy<Value = Action> {
    use prop::sample::select;
    let flag = || {
        prop_oneof![
            number().prop_map(Flag::Memory),
            handle().prop_map(Flag::Semaphore)
        ]
    };
    let conditions = vec![
        Condition::Reached32,
        Condition::Reached64,
        Condition::Equal,
        Condition::And,
        Condition::Nor32,
        Condition::Nor64,
        Condition::Signalled,
    ];
    let orders = vec![
        SourceOrder::Stream,
        SourceOrder::DuringCall,
        SourceOrder::Any,
    ];
    let hosts = vec![
        HostMemory::Unasked,
        HostMemory::Pageable,
        HostMemory::Pinned,
    ];
    let copy =
        (region(), region(), select(hosts), select(orders)).prop_map(|(to, from, host, order)| {
            BatchCopy {
                to,
                from,
                host,
                order,
            }
        });
    prop_oneof![
        Just(Action::ContextSynchronized),
        handle().prop_map(|event| Action::ContextRecorded { event }),
        handle().prop_map(|event| Action::ContextWaited { event }),
        Just(Action::ContextDestroyed),
        prop::collection::vec(0..3u16, 0..4).prop_map(|devices| Action::Barrier {
            devices: devices.into_iter().map(DeviceId).collect(),
        }),
        stream().prop_map(|stream| Action::Enqueued { stream }),
        (stream(), flag(), number()).prop_map(|(stream, flag, value)| Action::ValueWritten {
            stream,
            flag,
            value
        }),
        (stream(), flag(), number(), select(conditions)).prop_map(
            |(stream, flag, value, condition)| Action::ValueWaited {
                stream,
                flag,
                value,
                condition,
            }
        ),
        handle().prop_map(|pool| Action::PoolDestroyed { pool }),
        (stream(), prop::collection::vec(copy, 0..4))
            .prop_map(|(stream, copies)| Action::CopiedTogether { stream, copies }),
        Just(Action::Ended),
    ]
}

fn used() -> impl Strategy<Value = Used> {
    prop::sample::select(vec![Used::Perhaps, Used::Surely, Used::Before])
}

/// What nodes do.
fn work() -> impl Strategy<Value = NodeWork> {
    let pointer = (number(), any::<bool>(), used()).prop_map(|(address, read, used)| Pointer {
        address,
        mode: if read { Mode::Read } else { Mode::Write },
        shift: 0,
        used,
        element: streamcheck_model::Element::default(),
    });
    prop_oneof![
        4 => prop::collection::vec(pointer, 0..4).prop_map(|pointers| NodeWork::Kernel {
            kernel: NameId(5),
            pointers: SmallVec::from_vec(pointers),
            layout_known: true,
        }),
        2 => prop::collection::vec((region(), region()), 0..3).prop_map(|layers| NodeWork::Copy {
            layers,
            direction: Direction::HostToDevice,
            host: HostMemory::Unasked,
        }),
        1 => region().prop_map(|to| NodeWork::Fill { to }),
        2 => (number(), number()).prop_map(|(address, size)| NodeWork::Allocate { address, size }),
        2 => number().prop_map(|address| NodeWork::Free { address }),
        1 => handle().prop_map(|graph| NodeWork::Child { graph }),
        1 => prop::collection::vec(handle(), 0..3)
            .prop_map(|bodies| NodeWork::Conditional { bodies }),
        1 => handle().prop_map(|event| NodeWork::EventRecord { event }),
        1 => handle().prop_map(|event| NodeWork::EventWait { event }),
        1 => prop::sample::select(vec![NodeWork::Host, NodeWork::Empty, NodeWork::Unknown]),
    ]
}

fn graph_action() -> impl Strategy<Value = Action> {
    let handles = || prop::collection::vec(handle(), 0..3);
    prop_oneof![
        3 => (stream(), handle(), handles()).prop_map(|(stream, graph, dependencies)| {
            Action::CaptureBegun { stream, graph, dependencies }
        }),
        3 => (stream(), handle()).prop_map(|(stream, graph)| Action::CaptureEnded { stream, graph }),
        1 => (stream(), work()).prop_map(|(stream, work)| Action::NodeCaptured { stream, work }),
        1 => (stream(), handles(), any::<bool>()).prop_map(|(stream, nodes, replace)| {
            Action::CaptureDependencies { stream, nodes, replace }
        }),
        1 => handle().prop_map(|graph| Action::GraphCreated { graph }),
        1 => handle().prop_map(|graph| Action::GraphDestroyed { graph }),
        1 => (handle(), handle()).prop_map(|(graph, from)| Action::GraphCloned { graph, from }),
        1 => (handle(), handle(), handle()).prop_map(|(graph, node, original)| {
            Action::NodeFoundInClone { graph, node, original }
        }),
        4 => (handle(), handle(), handles(), work()).prop_map(
            |(graph, node, dependencies, work)| Action::NodeAdded { graph, node, dependencies, work }
        ),
        1 => handle().prop_map(|node| Action::NodeRemoved { node }),
        2 => (handle(), handle(), work())
            .prop_map(|(exec, node, work)| Action::NodeChanged { exec, node, work }),
        2 => (handle(), prop::collection::vec((handle(), handle()), 0..3), any::<bool>())
            .prop_map(|(graph, pairs, added)| Action::EdgesChanged { graph, pairs, added }),
        3 => (handle(), handle(), any::<bool>()).prop_map(|(exec, graph, auto_free)| {
            Action::GraphInstantiated { exec, graph, auto_free }
        }),
        1 => (handle(), handle()).prop_map(|(exec, graph)| Action::ExecUpdated { exec, graph }),
        1 => handle().prop_map(|exec| Action::ExecDestroyed { exec }),
        1 => (handle(), handle(), any::<bool>())
            .prop_map(|(exec, node, enabled)| Action::NodeEnabled { exec, node, enabled }),
        4 => (stream(), handle()).prop_map(|(stream, exec)| Action::GraphLaunched { stream, exec }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    use prop::sample::select;
    let event = (0..3u64).prop_map(Handle);
    let kinds = vec![
        MemoryKind::StreamOrdered,
        MemoryKind::Device,
        MemoryKind::Managed,
        MemoryKind::Pinned,
        MemoryKind::Registered,
        MemoryKind::Mapped,
        MemoryKind::System,
    ];
    let frees = vec![
        FreeKind::Async,
        FreeKind::Sync,
        FreeKind::Host,
        FreeKind::Unregister,
        FreeKind::Unmap,
        FreeKind::Libc,
        FreeKind::Import,
    ];
    let outcomes = vec![Outcome::Succeeded, Outcome::Refused, Outcome::Failed];
    let directions = vec![
        Direction::HostToHost,
        Direction::HostToDevice,
        Direction::DeviceToHost,
        Direction::DeviceToDevice,
        Direction::Inferred,
    ];
    let hosts = vec![
        HostMemory::Unasked,
        HostMemory::Pageable,
        HostMemory::Pinned,
    ];
    let modes = vec![
        Mode::Read,
        Mode::Write,
        Mode::Update,
        Mode::Unknown,
        Mode::Doubtful,
    ];
    let pointer =
        (number(), select(modes), 0..3u32, used()).prop_map(|(address, mode, shift, used)| {
            Pointer {
                address,
                mode,
                shift,
                used,
                element: streamcheck_model::Element::default(),
            }
        });
    prop_oneof![
        (event.clone(), any::<bool>())
            .prop_map(|(stream, blocking)| Action::StreamCreated { stream, blocking }),
        event
            .clone()
            .prop_map(|stream| Action::StreamDestroyed { stream }),
        stream().prop_map(|stream| Action::StreamNamed {
            stream,
            name: NameId(77)
        }),
        event
            .clone()
            .prop_map(|event| Action::EventCreated { event }),
        event
            .clone()
            .prop_map(|event| Action::EventDestroyed { event }),
        (event.clone(), stream())
            .prop_map(|(event, stream)| Action::EventRecorded { event, stream }),
        (event.clone(), stream())
            .prop_map(|(event, stream)| Action::StreamWaited { event, stream }),
        (event, any::<bool>())
            .prop_map(|(event, polled)| Action::EventSynchronized { event, polled }),
        (stream(), any::<bool>())
            .prop_map(|(stream, polled)| Action::StreamSynchronized { stream, polled }),
        rarer_action(),
        graph_action(),
        graph_action(),
        graph_action(),
        Just(Action::DeviceSynchronized),
        (
            number(),
            number(),
            select(kinds),
            prop::option::of(stream()),
            0..2u64
        )
            .prop_map(|(address, size, kind, stream, pool)| Action::Allocated {
                address,
                size,
                kind,
                stream,
                pool: Handle(pool),
            }),
        (
            number(),
            select(frees),
            prop::option::of(stream()),
            prop::option::of((number(), 1..5000_u64))
        )
            .prop_map(|(address, kind, stream, part)| Action::FreeBegun {
                address,
                kind,
                stream,
                part: part.map(|(start, size)| Region::linear(start, size)),
            }),
        select(outcomes).prop_map(|outcome| Action::FreeEnded { outcome }),
        (
            stream(),
            prop::collection::vec(pointer, 0..4),
            any::<bool>()
        )
            .prop_map(|(stream, pointers, layout_known)| {
                Action::Launched {
                    stream,
                    kernel: NameId(5),
                    pointers: SmallVec::from_vec(pointers),
                    layout_known,
                }
            }),
        (
            stream(),
            region(),
            region(),
            select(directions),
            select(hosts),
            any::<bool>()
        )
            .prop_map(
                |(stream, to, from, direction, host, synchronous)| Action::Copied {
                    stream,
                    to,
                    from,
                    direction,
                    host,
                    synchronous
                }
            ),
        (stream(), region(), any::<bool>()).prop_map(|(stream, to, synchronous)| Action::Filled {
            stream,
            to,
            synchronous
        }),
        (stream(), 0..3u64)
            .prop_map(|(stream, token)| Action::HostFunctionEnqueued { stream, token }),
        (0..3u64).prop_map(|token| Action::HostFunctionStarted { token }),
        host_access(),
        (0..3u16, any::<bool>()).prop_map(|(device, coherent)| Action::DeviceDescribed {
            device: DeviceId(device),
            coherent,
        }),
        Just(Action::BlindSpot {
            kind: NameId(9),
            example: NameId(0)
        }),
    ]
}

/// The CPU touches memory, which kernels reach from some pointers.
fn host_access() -> impl Strategy<Value = Action> {
    let through = prop::collection::vec(number(), 0..3);
    (region(), any::<bool>(), through).prop_map(|(region, read, through)| Action::HostAccessed {
        region,
        mode: if read { Mode::Read } else { Mode::Write },
        through: SmallVec::from_vec(through),
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    (action(), 0..3u32, 0..3u16, 0..4u32).prop_map(|(action, thread, device, stack)| Operation {
        call: Call {
            api: NameId(stack),
            thread: ThreadId(thread),
            device: DeviceId(device),
            context: ContextId(device.into()),
            stack: StackId(stack),
        },
        action,
    })
}

/// A timeline holds together, and shows the finding's own calls.
fn well_formed(finding: &Finding) -> Result<(), TestCaseError> {
    let Timeline {
        lanes,
        operations,
        edges,
    } = &finding.timeline;
    let sequences: Vec<u64> = operations.iter().map(|op| op.sequence).collect();
    prop_assert!(sequences.is_sorted_by(|a, b| a < b), "{:?}", sequences);
    prop_assert!(sequences.len() <= 32 && edges.len() <= 48);
    for op in operations {
        prop_assert!(op.lane < lanes.len());
    }
    for (place, lane) in lanes.iter().enumerate() {
        let twins = lanes.iter().filter(|other| other.name == lane.name);
        // Two streams of one handle, one after the other, are told apart by number.
        prop_assert!(
            twins.count() == 1 || lane.name.contains("default") || lane.name.contains("all")
        );
        prop_assert!(operations.iter().any(|op| op.lane == place));
    }
    for edge in edges {
        let end = |sequence| operations.iter().find(|op| op.sequence == sequence);
        let (Some(from), Some(to)) = (end(edge.from), end(edge.to)) else {
            return Err(TestCaseError::fail(format!("{edge:?} ends nowhere")));
        };
        prop_assert!(
            from.sequence < to.sequence && from.lane != to.lane,
            "{:?}",
            edge
        );
    }
    for event in &finding.events {
        prop_assert!(sequences.contains(&event.sequence), "{:?}", finding);
        let named = |stream: &String| finding.streams.iter().any(|known| known.name == *stream);
        prop_assert!(event.stream.as_ref().is_none_or(named));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_operations_is_too_much(operations in prop::collection::vec(operation(), 1..60)) {
        let mut levels = Levels::default();
        for rule in RULES {
            levels.set(rule.code, Level::Error);
        }
        let mut engine = Engine::new(levels);
        let mut found = 0;
        for operation in &operations {
            for finding in engine.apply(operation) {
                prop_assert_eq!(finding.number, found);
                prop_assert!(!finding.message.is_empty());
                well_formed(&finding)?;
                found += 1;
            }
        }
        prop_assert_eq!(engine.counts().len(), found);
        prop_assert!(engine.summary().operations <= operations.len() as u64);
        prop_assert!(engine.dot().starts_with("digraph"));
    }

    /// Host memory is guarded by what the engine tells of uses, so whatever a rule finds
    /// there must have been told, and must not be over.
    #[test]
    fn what_the_cpu_meets_was_told(operations in prop::collection::vec(prop_oneof![
        4 => operation(),
        1 => (host_access(), operation())
            .prop_map(|(action, operation)| Operation { action, ..operation }),
    ], 1..60)) {
        let mut engine = Engine::new(Levels::default());
        engine.watch_host();
        let mut uses: Vec<HostUse> = Vec::new();
        let mut version = engine.host_version();
        for (place, operation) in operations.iter().enumerate() {
            let mut operation = operation.clone();
            if let Action::HostAccessed { .. } = operation.action {
                operation.call.stack = StackId(100 + place as u32);
            }
            let found = engine.apply(&operation);
            uses.extend(engine.take_host_uses());
            if version != engine.host_version() {
                version = engine.host_version();
                uses.retain(|used| !engine.is_over(used));
            }
            prop_assert!(!uses.iter().any(|used| engine.is_over(used)));
            let Action::HostAccessed { region, mode, through } = &operation.action else {
                continue;
            };
            for finding in found.iter().filter(|finding| finding.rule == RuleCode::SC108) {
                let met = |used: &&HostUse| {
                    used.region.overlaps(region)
                        || (used.pointer && through.contains(&used.region.address))
                };
                let met: Vec<&HostUse> = uses.iter().filter(met).collect();
                let conflicts = |used: &&HostUse| used.writes || *mode == Mode::Write;
                let of_no_call = finding.allocation.is_some_and(|block| block.kind == MemoryKind::System);
                prop_assert!(of_no_call || met.iter().any(conflicts), "{:?} {:?}", finding, uses);
            }
        }
    }

    /// After a synchronize of every device the CPU may touch anything.
    #[test]
    fn nothing_is_in_flight_after_a_synchronize(
        operations in prop::collection::vec(operation(), 1..60),
        accesses in prop::collection::vec(host_access(), 1..8),
    ) {
        let mut engine = Engine::new(Levels::default());
        for operation in &operations {
            engine.apply(operation);
        }
        for device in 0..3 {
            let call = Call { device: DeviceId(device), ..Call::default() };
            engine.apply(&Operation { call, action: Action::DeviceSynchronized });
        }
        for action in accesses {
            let call = Call { stack: StackId(100), ..Call::default() };
            let found = engine.apply(&Operation { call, action });
            prop_assert!(found.is_empty(), "{:?}", found);
        }
    }

    /// Whatever went before, work that was just submitted is in flight.
    #[test]
    fn what_was_just_submitted_is_in_flight(
        operations in prop::collection::vec(operation(), 1..60),
        (read, kernel, writes) in any::<(bool, bool, bool)>(),
        (offset, bytes) in (0..64_u64, 1..64_u64),
    ) {
        let mut engine = Engine::new(Levels::default());
        for operation in &operations {
            engine.apply(operation);
        }
        // A device of its own, of which nothing is known.
        let call = Call {
            device: DeviceId(9),
            context: ContextId(9),
            thread: ThreadId(9),
            stack: StackId(100),
            ..Call::default()
        };
        let base = 0x7000_0000;
        let (handle, region) = (Handle(0x999), Region::linear(base + offset, bytes));
        let stream = StreamRef::Created(handle);
        let copies = (Region::linear(0x9000_0000, bytes), region);
        let (to, from) = if writes { (copies.1, copies.0) } else { copies };
        let work = match kernel {
            true => Action::Launched {
                stream,
                kernel: NameId(5),
                pointers: SmallVec::from_slice(&[Pointer {
                    address: region.address,
                    mode: if writes { Mode::Write } else { Mode::Read },
                    shift: 0,
                    used: streamcheck_model::Used::Surely,
                    element: streamcheck_model::Element::new(streamcheck_model::Per::Thread, 0, 4),
                }]),
                layout_known: true,
            },
            false => Action::Copied {
                stream,
                to,
                from,
                direction: if writes { Direction::DeviceToHost } else { Direction::HostToDevice },
                host: HostMemory::Pinned,
                synchronous: false,
            },
        };
        let actions = [
            Action::StreamCreated { stream: handle, blocking: false },
            Action::Allocated {
                address: base,
                size: 0x100,
                kind: MemoryKind::Pinned,
                stream: None,
                pool: Handle::default(),
            },
            work,
        ];
        for action in actions {
            engine.apply(&Operation { call, action });
        }
        let access = Action::HostAccessed {
            region: Region::linear(region.address, 1),
            mode: if read { Mode::Read } else { Mode::Write },
            through: SmallVec::new(),
        };
        let found = engine.apply(&Operation { call, action: access });
        let found: Vec<RuleCode> = found.iter().map(|finding| finding.rule).collect();
        if read && !writes {
            prop_assert_eq!(found, []);
        } else {
            prop_assert_eq!(found, [RuleCode::SC108]);
        }
    }
}
