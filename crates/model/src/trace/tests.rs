use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_reflection::{Samples, Tracer, TracerConfig};

use super::entry::{Borrowed, Entry};
use super::*;
use crate::{
    Action, BatchCopy, Call, Condition, ContextId, DeviceId, Direction, Element, Flag, FreeKind,
    Handle, HostMemory, MemoryKind, Mode, NameId, Names, NodeWork, Operation, Outcome, Per,
    Pointer, Region, SourceOrder, StackId, StreamRef, ThreadId, Used,
};

/// The schema that the types have now, for `schema.json`.
fn schema() -> String {
    let mut tracer = Tracer::new(TracerConfig::default());
    let samples = Samples::new();
    macro_rules! types {
        ($($of:ty),*) => {$({
            if let Err(error) = tracer.trace_type::<$of>(&samples) {
                panic!("{error}: {:?}", error.explanation());
            }
        })*};
    }
    types!(
        StreamRef,
        MemoryKind,
        FreeKind,
        HostMemory,
        Mode,
        Used,
        Direction,
        Outcome,
        Flag,
        Condition,
        SourceOrder,
        NodeWork,
        Action,
        Reason,
        Entry
    );
    let registry = tracer.registry().expect("every type was seen whole");
    serde_json::to_string_pretty(&registry).expect("a registry is JSON") + "\n"
}

#[test]
fn the_schema_is_that_of_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/trace/schema.json");
    let schema = schema();
    if std::env::var_os("STREAMCHECK_BLESS").is_some() {
        std::fs::write(path, &schema).expect("schema.json is writable");
        return;
    }
    assert!(
        schema == include_str!("schema.json"),
        "the encoding changed: raise trace::VERSION, then run this test with STREAMCHECK_BLESS=1"
    );
}

pub(super) fn header() -> Header {
    Header::new(ProcessFacts {
        pid: 4711,
        exe: "/opt/app".to_owned(),
        argv: vec!["app".to_owned(), "--fast".to_owned()],
        host: "node7".to_owned(),
        rank: Some(3),
    })
}

pub(super) const STACKS: [&[u64]; 4] = [&[], &[0x40_1000], &[0x40_1000, 0x40_2000], &[u64::MAX, 0]];

/// The names that arbitrary operations draw from.
pub(super) fn names() -> Names {
    let mut names = Names::default();
    for text in ["cudaMallocAsync", "_Z5saxpyPfS_i", "compute 1", "ünïcode\n"] {
        names.intern(text);
    }
    names
}

fn name() -> impl Strategy<Value = NameId> {
    (0..names().iter().len() as u32).prop_map(NameId)
}

fn stream() -> impl Strategy<Value = StreamRef> {
    prop_oneof![
        Just(StreamRef::Legacy),
        Just(StreamRef::PerThread),
        any::<u64>().prop_map(|handle| StreamRef::Created(Handle(handle))),
    ]
}

fn region() -> impl Strategy<Value = Region> {
    any::<(u64, u64, u64, u64)>().prop_map(|(address, width, rows, pitch)| Region {
        address,
        width,
        rows,
        pitch,
    })
}

fn pointer() -> impl Strategy<Value = Pointer> {
    (
        any::<(u64, u32, u8, u8)>(),
        prop_oneof![Just(Used::Perhaps), Just(Used::Surely), Just(Used::Before)],
        prop_oneof![
            Just(Per::Unknown),
            Just(Per::Launch),
            Just(Per::Block),
            Just(Per::Lane),
            Just(Per::Thread)
        ],
        prop_oneof![
            Just(Mode::Read),
            Just(Mode::Write),
            Just(Mode::Update),
            Just(Mode::Unknown),
            Just(Mode::Doubtful)
        ],
    )
        .prop_map(
            |((address, shift, bytes, first), used, per, mode)| Pointer {
                address,
                mode,
                shift,
                used,
                element: Element::new(per, first.into(), bytes.into()),
            },
        )
}

fn handle() -> impl Strategy<Value = Handle> {
    any::<u64>().prop_map(Handle)
}

fn flag() -> impl Strategy<Value = Flag> {
    prop_oneof![
        any::<u64>().prop_map(Flag::Memory),
        handle().prop_map(Flag::Semaphore)
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Reached32),
        Just(Condition::Reached64),
        Just(Condition::Equal),
        Just(Condition::And),
        Just(Condition::Nor32),
        Just(Condition::Nor64),
        Just(Condition::Signalled),
    ]
}

fn batch_copy() -> impl Strategy<Value = BatchCopy> {
    let order = prop_oneof![
        Just(SourceOrder::Stream),
        Just(SourceOrder::DuringCall),
        Just(SourceOrder::Any),
    ];
    (region(), region(), order).prop_map(|(to, from, order)| BatchCopy {
        to,
        from,
        host: HostMemory::Unasked,
        order,
    })
}

/// The actions about contexts, values and batches.
fn rarer_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::ContextSynchronized),
        handle().prop_map(|event| Action::ContextRecorded { event }),
        handle().prop_map(|event| Action::ContextWaited { event }),
        Just(Action::ContextDestroyed),
        vec(any::<u16>(), 0..4).prop_map(|devices| Action::Barrier {
            devices: devices.into_iter().map(DeviceId).collect(),
        }),
        stream().prop_map(|stream| Action::Enqueued { stream }),
        (stream(), flag(), any::<u64>()).prop_map(|(stream, flag, value)| Action::ValueWritten {
            stream,
            flag,
            value
        }),
        (stream(), flag(), any::<u64>(), condition()).prop_map(
            |(stream, flag, value, condition)| Action::ValueWaited {
                stream,
                flag,
                value,
                condition,
            }
        ),
        handle().prop_map(|pool| Action::PoolDestroyed { pool }),
        (stream(), vec(batch_copy(), 0..3))
            .prop_map(|(stream, copies)| Action::CopiedTogether { stream, copies }),
        (stream(), vec((region(), region()), 0..3), any::<bool>()).prop_map(
            |(stream, layers, synchronous)| Action::CopiedInLayers {
                stream,
                layers,
                direction: Direction::HostToDevice,
                host: HostMemory::Pageable,
                synchronous,
            }
        ),
        Just(Action::Ended),
    ]
}

fn work() -> impl Strategy<Value = NodeWork> {
    prop_oneof![
        (name(), vec(pointer(), 0..9), any::<bool>()).prop_map(
            |(kernel, pointers, layout_known)| NodeWork::Kernel {
                kernel,
                pointers: pointers.into(),
                layout_known,
            }
        ),
        vec((region(), region()), 0..3).prop_map(|layers| NodeWork::Copy {
            layers,
            direction: Direction::DeviceToHost,
            host: HostMemory::Pinned,
        }),
        region().prop_map(|to| NodeWork::Fill { to }),
        Just(NodeWork::Host),
        Just(NodeWork::Empty),
        Just(NodeWork::Unknown),
        handle().prop_map(|event| NodeWork::EventRecord { event }),
        handle().prop_map(|event| NodeWork::EventWait { event }),
        any::<(u64, u64)>().prop_map(|(address, size)| NodeWork::Allocate { address, size }),
        any::<u64>().prop_map(|address| NodeWork::Free { address }),
        handle().prop_map(|graph| NodeWork::Child { graph }),
        vec(handle(), 0..3).prop_map(|bodies| NodeWork::Conditional { bodies }),
    ]
}

/// The actions about graphs.
fn graph_action() -> impl Strategy<Value = Action> {
    let handles = || vec(handle(), 0..4);
    prop_oneof![
        (stream(), handle(), handles()).prop_map(|(stream, graph, dependencies)| {
            Action::CaptureBegun {
                stream,
                graph,
                dependencies,
            }
        }),
        (stream(), handle()).prop_map(|(stream, graph)| Action::CaptureEnded { stream, graph }),
        (stream(), work()).prop_map(|(stream, work)| Action::NodeCaptured { stream, work }),
        (stream(), handles(), any::<bool>()).prop_map(|(stream, nodes, replace)| {
            Action::CaptureDependencies {
                stream,
                nodes,
                replace,
            }
        }),
        handle().prop_map(|graph| Action::GraphCreated { graph }),
        handle().prop_map(|graph| Action::GraphDestroyed { graph }),
        (handle(), handle()).prop_map(|(graph, from)| Action::GraphCloned { graph, from }),
        (handle(), handle(), handle()).prop_map(|(graph, node, original)| {
            Action::NodeFoundInClone {
                graph,
                node,
                original,
            }
        }),
        (handle(), handle(), handles(), work()).prop_map(|(graph, node, dependencies, work)| {
            Action::NodeAdded {
                graph,
                node,
                dependencies,
                work,
            }
        }),
        handle().prop_map(|node| Action::NodeRemoved { node }),
        (handle(), handle(), work()).prop_map(|(exec, node, work)| Action::NodeChanged {
            exec,
            node,
            work
        }),
        (handle(), vec((handle(), handle()), 0..3), any::<bool>()).prop_map(
            |(graph, pairs, added)| Action::EdgesChanged {
                graph,
                pairs,
                added
            }
        ),
        (handle(), handle(), any::<bool>()).prop_map(|(exec, graph, auto_free)| {
            Action::GraphInstantiated {
                exec,
                graph,
                auto_free,
            }
        }),
        (handle(), handle()).prop_map(|(exec, graph)| Action::ExecUpdated { exec, graph }),
        handle().prop_map(|exec| Action::ExecDestroyed { exec }),
        (handle(), handle(), any::<bool>()).prop_map(|(exec, node, enabled)| {
            Action::NodeEnabled {
                exec,
                node,
                enabled,
            }
        }),
        (stream(), handle()).prop_map(|(stream, exec)| Action::GraphLaunched { stream, exec }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let kind = prop_oneof![
        Just(MemoryKind::StreamOrdered),
        Just(MemoryKind::Device),
        Just(MemoryKind::Managed),
        Just(MemoryKind::Pinned),
        Just(MemoryKind::Registered),
        Just(MemoryKind::Mapped),
        Just(MemoryKind::System),
    ];
    let free = prop_oneof![
        Just(FreeKind::Async),
        Just(FreeKind::Sync),
        Just(FreeKind::Host),
        Just(FreeKind::Unregister),
        Just(FreeKind::Unmap),
        Just(FreeKind::Libc),
        Just(FreeKind::Import),
    ];
    let outcome = prop_oneof![
        Just(Outcome::Succeeded),
        Just(Outcome::Refused),
        Just(Outcome::Failed),
    ];
    let host = prop_oneof![
        Just(HostMemory::Unasked),
        Just(HostMemory::Pageable),
        Just(HostMemory::Pinned),
    ];
    let direction = prop_oneof![
        Just(Direction::HostToHost),
        Just(Direction::HostToDevice),
        Just(Direction::DeviceToHost),
        Just(Direction::DeviceToDevice),
        Just(Direction::Inferred),
    ];
    prop_oneof![
        (handle(), any::<bool>())
            .prop_map(|(stream, blocking)| Action::StreamCreated { stream, blocking }),
        handle().prop_map(|stream| Action::StreamDestroyed { stream }),
        (stream(), name()).prop_map(|(stream, name)| Action::StreamNamed { stream, name }),
        handle().prop_map(|event| Action::EventCreated { event }),
        handle().prop_map(|event| Action::EventDestroyed { event }),
        (handle(), stream()).prop_map(|(event, stream)| Action::EventRecorded { event, stream }),
        (stream(), handle()).prop_map(|(stream, event)| Action::StreamWaited { stream, event }),
        (handle(), any::<bool>())
            .prop_map(|(event, polled)| Action::EventSynchronized { event, polled }),
        (stream(), any::<bool>())
            .prop_map(|(stream, polled)| Action::StreamSynchronized { stream, polled }),
        Just(Action::DeviceSynchronized),
        (
            any::<u64>(),
            any::<u64>(),
            kind,
            option::of(stream()),
            handle()
        )
            .prop_map(|(address, size, kind, stream, pool)| Action::Allocated {
                address,
                size,
                kind,
                stream,
                pool,
            }),
        (any::<u64>(), free, option::of(stream())).prop_map(|(address, kind, stream)| {
            Action::FreeBegun {
                address,
                kind,
                stream,
                part: None,
            }
        }),
        outcome.prop_map(|outcome| Action::FreeEnded { outcome }),
        (stream(), name(), vec(pointer(), 0..9), any::<bool>()).prop_map(
            |(stream, kernel, pointers, layout_known)| Action::Launched {
                stream,
                kernel,
                pointers: pointers.into(),
                layout_known,
            }
        ),
        (stream(), region(), region(), direction, host, any::<bool>()).prop_map(
            |(stream, to, from, direction, host, synchronous)| Action::Copied {
                stream,
                to,
                from,
                direction,
                host,
                synchronous,
            }
        ),
        (stream(), region(), any::<bool>()).prop_map(|(stream, to, synchronous)| Action::Filled {
            stream,
            to,
            synchronous
        }),
        (stream(), any::<u64>())
            .prop_map(|(stream, token)| Action::HostFunctionEnqueued { stream, token }),
        any::<u64>().prop_map(|token| Action::HostFunctionStarted { token }),
        (region(), any::<bool>(), vec(any::<u64>(), 0..4)).prop_map(|(region, read, through)| {
            Action::HostAccessed {
                region,
                mode: if read { Mode::Read } else { Mode::Write },
                through: through.into(),
            }
        }),
        any::<(u16, bool)>().prop_map(|(device, coherent)| Action::DeviceDescribed {
            device: DeviceId(device),
            coherent,
        }),
        (name(), name()).prop_map(|(kind, example)| Action::BlindSpot { kind, example }),
        rarer_action(),
        graph_action(),
    ]
}

prop_compose! {
    fn operation()(
        api in name(),
        numbers in any::<(u32, u16, u32)>(),
        stack in 0..STACKS.len() as u32,
        action in action(),
    ) -> Operation {
        let (thread, device, context) = numbers;
        Operation {
            call: Call {
                api,
                thread: ThreadId(thread),
                device: DeviceId(device),
                context: ContextId(context),
                stack: StackId(stack),
            },
            action,
        }
    }
}

/// Operations of which many come again.
pub(super) fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    (
        vec(operation(), 1..12),
        vec((any::<prop::sample::Index>(), 0_u64..3), 0..most),
    )
        .prop_map(|(pool, picked)| {
            let varied = |(place, more): &(prop::sample::Index, u64)| {
                let mut operation = place.get(&pool).clone();
                numbers::visit_mut(&mut operation, |number| {
                    *number = number.wrapping_add(*more)
                });
                operation
            };
            picked.iter().map(varied).collect()
        })
}

/// Sizes of journals: one that holds everything, and some that do not.
fn journal() -> impl Strategy<Value = usize> {
    prop_oneof![Just(256 << 10), (13..100_usize).prop_map(|size| size * 8)]
}

/// A whole trace.
fn written(journal: usize, operations: &[Operation], ended: bool) -> Vec<u8> {
    let layout = Layout::with_journal(&header(), journal);
    let mut writer = Writer::begin(&layout, InMemory::new(&layout)).unwrap();
    let names = names();
    writer.module(&module());
    for operation in operations {
        writer.operation(operation, &names, |id| STACKS[id.0 as usize]);
        writer.commit().unwrap();
    }
    writer.frames(StackId(1), &[frame()]);
    writer.into_bytes(ended)
}

pub(super) fn module() -> Module {
    Module {
        start: 0x40_0000,
        end: 0x41_0000,
        offset: 0x1000,
        path: "/opt/app".to_owned(),
        build_id: Some("c0ffee".to_owned()),
    }
}

fn frame() -> Frame {
    Frame {
        function: Some("main".to_owned()),
        file: Some("app.cu".to_owned()),
        line: Some(12),
        ..Frame::default()
    }
}

/// Everything that can be read, and how it ended.
pub(super) fn read(bytes: &[u8]) -> (Vec<Record>, Result<Ending, TraceError>) {
    let mut reader = match Reader::new(bytes, "t.trace") {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut records = Vec::new();
    let mut failure = None;
    while let Some(record) = reader.next() {
        assert!(failure.is_none(), "nothing follows an error");
        match record {
            Ok(record) => records.push(record),
            Err(error) => failure = Some(error),
        }
        assert!(reader.offset() <= bytes.len() as u64);
    }
    match failure {
        Some(error) => (records, Err(error)),
        None => {
            let ending = reader.ending().expect("an ended trace says how");
            (records, Ok(ending))
        }
    }
}

/// The operations among records.
pub(super) fn only_operations(records: &[Record]) -> Vec<&Operation> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Operation(operation) => Some(operation),
            _ => None,
        })
        .collect()
}

/// A trace whose journal holds these bytes, and nothing else.
fn with_journal_of(contents: &[u8]) -> Vec<u8> {
    let layout = Layout::with_journal(&header(), contents.len().next_multiple_of(8));
    let mut bytes = layout.header.clone();
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend((contents.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(contents).to_le_bytes());
    bytes.extend(contents);
    bytes
}

proptest! {
    #[test]
    fn operations_come_back_as_they_went(operations in operations(60), journal in journal()) {
        let bytes = written(journal, &operations, true);
        let (records, ending) = read(&bytes);
        let mut counts = Counts::default();
        let mut tables = Tables::default();
        // Names that were interned before shift every number.
        let mut theirs = Names::default();
        theirs.intern("something else");
        let mut back = Vec::new();
        for record in records {
            counts.names += u64::from(matches!(record, Record::Name { .. }));
            counts.stacks += u64::from(matches!(record, Record::Stack { .. }));
            back.extend(tables.take(record, &mut theirs));
        }
        counts.operations = operations.len() as u64;
        prop_assert_eq!(ending.unwrap(), Ending::Clean(counts));
        prop_assert_eq!(back.len(), operations.len());
        let ours = names();
        for (was, is) in operations.iter().zip(&back) {
            let texts = |operation: &Operation, names: &Names| -> Vec<String> {
                tables::names_in(operation).iter().map(|&id| names.text(id).to_owned()).collect()
            };
            prop_assert_eq!(texts(was, &ours), texts(is, &theirs));
            // With the names compared by text, the rest is equal bit for bit.
            let mut was = was.clone();
            let mut is = is.clone();
            tables::forget_names(&mut was);
            tables::forget_names(&mut is);
            prop_assert_eq!(&was, &is);
            prop_assert_eq!(tables.addresses(was.call.stack), STACKS[was.call.stack.0 as usize]);
        }
        prop_assert_eq!(tables.modules(), &[module()]);
        prop_assert_eq!(tables.frames(StackId(1)), Some(&[frame()][..]));
        // The way for those who want the operations alone.
        let mut reader = Reader::new(&bytes[..], "t.trace").unwrap();
        let (mut again, mut names) = (Tables::default(), Names::default());
        names.intern("something else");
        for expected in &back {
            let operation = reader.operation(&mut again, &mut names).unwrap().unwrap();
            prop_assert_eq!(expected, operation);
        }
        prop_assert!(reader.operation(&mut again, &mut names).is_none());
        prop_assert_eq!(reader.offset(), bytes.len() as u64);
        prop_assert_eq!(reader.ending(), Some(Ending::Clean(counts)));
        prop_assert_eq!(again.frames(StackId(1)), Some(&[frame()][..]));
    }

    #[test]
    fn a_prefix_reads_as_a_prefix(
        operations in operations(40),
        journal in journal(),
        cut in any::<prop::sample::Index>(),
        zeros in 0_usize..5000,
    ) {
        let bytes = written(journal, &operations, true);
        let (all, _) = read(&bytes);
        let cut = cut.index(bytes.len());
        let mut short = bytes[..cut].to_vec();
        let (some, ending) = read(&short);
        prop_assert!(all.starts_with(&some));
        // Only the whole file may look as if it had been ended in order.
        prop_assert!(!matches!(ending, Ok(Ending::Clean(_))));
        short.resize(cut + zeros, 0);
        let (padded, _) = read(&short);
        prop_assert!(all.starts_with(&padded));
    }

    #[test]
    fn a_changed_byte_is_noticed(
        operations in operations(40),
        journal in journal(),
        place in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let mut bytes = written(journal, &operations, true);
        let (all, _) = read(&bytes);
        let layout = Layout::with_journal(&header(), journal);
        let old = layout.start()..layout.start() + layout.size();
        let mut place = place.index(bytes.len());
        // Where the journal's contents are a block by now, they have no meaning.
        if bytes.len() > old.end && old.contains(&place) {
            place = old.start - 1;
        }
        bytes[place] ^= flip;
        let (some, ending) = read(&bytes);
        prop_assert!(all.starts_with(&some));
        prop_assert!(ending.is_err(), "byte {} changed unnoticed", place);
    }

    #[test]
    fn any_bytes_are_survived(
        mut bytes in vec(any::<u8>(), 0..300),
        entries in vec(0_u8..9, 0..40),
        part in 0..3,
    ) {
        if part == 1 {
            let mut file = Layout::with_journal(&header(), 64).header;
            file.append(&mut bytes);
            bytes = file;
        } else if part == 2 {
            // Tags that mean something.
            for (place, tag) in entries.iter().enumerate() {
                if let Some(byte) = bytes.get_mut(place * 4) {
                    *byte = *tag;
                }
            }
            bytes = with_journal_of(&bytes);
        }
        drop(read(&bytes));
    }

    #[test]
    fn owned_and_borrowed_entries_are_the_same_bytes(
        operation in operation(),
        like in any::<u16>(),
        numbers in any::<(u64, u64, u64)>(),
    ) {
        let (operations, names, stacks) = numbers;
        let counts = Counts { operations, names, stacks };
        let text = "cudaMallocAsync".to_owned();
        let addresses = vec![operations, names];
        let (id, stack, reason) = (NameId(7), StackId(9), Reason::Unwritable);
        for (owned, borrowed) in [
            (Entry::Name { id, text: text.clone() }, Borrowed::Name { id, text: &text }),
            (Entry::Module(module()), Borrowed::Module(&module())),
            (
                Entry::Stack { id: stack, addresses: addresses.clone() },
                Borrowed::Stack { id: stack, addresses: &addresses },
            ),
            (
                Entry::Frames { stack, frames: vec![frame()] },
                Borrowed::Frames { stack, frames: &[frame()] },
            ),
            (
                Entry::Operation { like, operation: operation.clone() },
                Borrowed::Operation { like, operation: &operation },
            ),
            (Entry::Again(like), Borrowed::Again(like)),
            (Entry::End(counts), Borrowed::End(counts)),
            (Entry::Stopped { counts, reason }, Borrowed::Stopped { counts, reason }),
        ] {
            let mut bytes = vec![1];
            borrowed.append_to(&mut bytes);
            prop_assert_eq!(&bytes[1..], postcard::to_stdvec(&owned).unwrap());
        }
    }

    #[test]
    fn a_difference_gives_the_operation_back(base in operation(), operation in operation()) {
        let mut rest = operation.clone();
        numbers::subtract(&mut rest, &base);
        numbers::add(&mut rest, &base);
        prop_assert_eq!(&rest, &operation);
        let differences = numbers::differences(&operation, &base);
        let back = differences.and_then(|d| numbers::vary(&base, &d));
        prop_assert!(back.is_none_or(|back| back == operation));
        numbers::subtract(&mut rest, &operation);
        numbers::visit(&rest, |&number| assert_eq!(number, 0));
    }
}

fn one_launch() -> Vec<Operation> {
    vec![Operation {
        call: Call {
            api: NameId(1),
            stack: StackId(2),
            ..Call::default()
        },
        action: Action::DeviceSynchronized,
    }]
}

/// Copies of which each is like no other.
pub(super) fn unlike(count: u64) -> impl Iterator<Item = Operation> {
    (1..=count).map(|number| Operation {
        call: Call::default(),
        action: Action::HostFunctionEnqueued {
            stream: StreamRef::Legacy,
            token: scattered(number),
        },
    })
}

/// A number that does not tell which one comes next (SplitMix64).
fn scattered(number: u64) -> u64 {
    let x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[test]
fn the_header_is_text_that_says_what_follows() {
    let bytes = written(256 << 10, &[], true);
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let first = std::str::from_utf8(lines.next().unwrap()).unwrap();
    assert!(first.starts_with("streamcheck trace 5 "), "{first}");
    let header: serde_json::Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
    assert_eq!(header["process"]["pid"], 4711);
    assert_eq!(header["tool"]["name"], "streamcheck");
    assert_eq!(header["journal"], 256 << 10);
    assert!(header["encoding"].as_str().unwrap().contains("postcard"));
    assert!(
        header["encoding"]
            .as_str()
            .unwrap()
            .contains(&KEPT.to_string())
    );
    assert!(header["schema"]["Action"]["ENUM"]["0"]["StreamCreated"].is_object());
    assert!(header["schema"]["Entry"]["ENUM"]["5"]["Again"].is_object());
    assert_eq!(
        Reader::new(&bytes[..], "t").unwrap().header().process.rank,
        Some(3)
    );
}

#[test]
fn a_killed_writer_leaves_a_readable_trace() {
    let bytes = written(256 << 10, &one_launch(), false);
    let (records, ending) = read(&bytes);
    assert_eq!(ending.unwrap(), Ending::Killed);
    assert_eq!(records.len(), 5, "module, name, stack, operation, frames");
}

/// Errors don't compare; their text does.
impl PartialEq for TraceError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

#[test]
fn each_fault_has_its_message() {
    let message = |bytes: &[u8]| read(bytes).1.unwrap_err().to_string();
    let whole = written(256 << 10, &one_launch(), true);
    let cut = message(&whole[..whole.len() - 1]);
    let end = whole.len() - 1;
    assert!(
        cut.starts_with(&format!("t.trace: cut off at byte {end}; the 5 records")),
        "{cut}"
    );
    let mut damaged = whole.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(
        message(&damaged).contains("its checksum differs"),
        "{}",
        message(&damaged)
    );
    assert!(message(b"\x7fELF\x02\x01\x01").contains("not a streamcheck trace"));
    assert!(message(b"streamcheck trace of thought").contains("not a streamcheck trace"));
    assert!(message(b"").contains("empty"));
    assert!(message(&[0; 64]).contains("empty"));
    assert!(message(b"streamcheck trace 2 00000000\n{}\n").contains("trace format 2"));
    assert!(message(&whole[..40]).contains("the header is damaged (it ends too early)"));
    let mut none = Vec::new();
    Borrowed::End(Counts {
        operations: 1,
        ..Counts::default()
    })
    .append_to(&mut none);
    let missing = message(&with_journal_of(&none));
    assert!(missing.contains("records are missing"), "{missing}");
    let again = message(&with_journal_of(&[5, 0]));
    assert!(again.contains("a repetition of nothing"), "{again}");
}

#[test]
fn blocks_that_are_not_there_are_missed() {
    let operations: Vec<_> = unlike(200).collect();
    let layout = Layout::with_journal(&header(), 512);
    let whole = written(512, &operations, true);
    let mut blocks = vec![layout.start() + layout.size()];
    while *blocks.last().unwrap() < whole.len() {
        let at = *blocks.last().unwrap();
        let stored = u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
        blocks.push(at + 16 + (stored as usize).next_multiple_of(8));
    }
    assert!(blocks.len() > 5, "{blocks:?}");
    let message = |bytes: &[u8]| read(bytes).1.unwrap_err().to_string();
    let without = [&whole[..blocks[1]], &whole[blocks[2]..]].concat();
    assert!(
        message(&without).contains("block 2 stands where 1 should"),
        "{}",
        message(&without)
    );
    let cut = &whole[..blocks[2]];
    assert!(message(cut).contains("cut off at byte"), "{}", message(cut));
    let (some, _) = read(cut);
    assert!(!some.is_empty());
    let mut emptied = whole.clone();
    emptied[blocks[2]..blocks[2] + 4].fill(0);
    assert!(
        message(&emptied).contains("blocks are missing"),
        "{}",
        message(&emptied)
    );
    let more = [&whole, &whole[blocks[blocks.len() - 2]..]].concat();
    assert!(
        message(&more).contains("bytes after its end"),
        "{}",
        message(&more)
    );
}

#[test]
fn a_copy_of_a_trace_that_grows_reads_up_to_some_block() {
    let operations: Vec<_> = unlike(200).collect();
    let layout = Layout::with_journal(&header(), 512);
    for early in [0, 1, 50, 120, 199] {
        let mut copy = written(512, &operations[..early], false);
        let late = written(512, &operations, false);
        // The journal was copied before the program went on.
        let journal = layout.start() + layout.size();
        copy.truncate(journal);
        copy.extend(&late[journal..]);
        let (some, ending) = read(&copy);
        assert_eq!(ending.unwrap(), Ending::Killed);
        let some = only_operations(&some);
        assert!(some.len() >= early, "{early}");
        assert!(some.iter().zip(&operations).all(|(is, was)| *is == was));
    }
}

#[test]
fn a_record_longer_than_the_journal_has_a_block_of_its_own() {
    let layout = Layout::with_journal(&header(), 512);
    for (before, after) in [(0, 0), (0, 3), (3, 0), (100, 100)] {
        let mut writer = Writer::begin(&layout, InMemory::new(&layout)).unwrap();
        let names = names();
        let go_on = |writer: &mut Writer<_>, count| {
            for operation in unlike(count) {
                writer.operation(&operation, &names, |_| &[]);
                writer.commit().unwrap();
            }
        };
        go_on(&mut writer, before);
        let long = Frame {
            function: Some("x".repeat(5000)),
            ..frame()
        };
        writer.frames(StackId(1), std::slice::from_ref(&long));
        writer.commit().unwrap();
        go_on(&mut writer, after);
        let (records, ending) = read(&writer.into_bytes(true));
        assert!(matches!(ending, Ok(Ending::Clean(_))), "{ending:?}");
        let at = records.iter().position(
            |record| matches!(record, Record::Frames { frames, .. } if frames[0] == long),
        );
        assert_eq!(at, Some(before as usize));
        assert_eq!(records.len() as u64, before + after + 2);
    }
}

#[test]
fn a_limit_ends_the_trace_in_order() {
    for limit in [26_000, 40_000, 300_000] {
        let layout = Layout::new(&header(), Some(limit)).expect("room");
        let mut writer = Writer::begin(&layout, InMemory::new(&layout)).unwrap();
        let names = names();
        let mut stopped = Vec::new();
        let operations: Vec<_> = unlike(50_000).collect();
        for operation in &operations {
            writer.operation(operation, &names, |_| &[]);
            if let Err(why) = writer.commit() {
                stopped.push(why);
            }
        }
        let [Stopped::Limit { operations: kept }] = stopped[..] else {
            panic!("{stopped:?}");
        };
        assert!(writer.is_stopped());
        assert!(writer.pause().is_ok());
        let bytes = writer.into_bytes(true);
        assert!(bytes.len() as u64 <= limit, "{} of {limit}", bytes.len());
        // Not much is given away.
        assert!(bytes.len() as u64 > limit / 5, "{} of {limit}", bytes.len());
        let (records, ending) = read(&bytes);
        let counts = Counts {
            operations: kept,
            ..Counts::default()
        };
        assert_eq!(ending, Ok(Ending::Stopped(counts, Reason::Limit)));
        let expected: Vec<_> = operations.iter().take(kept as usize).collect();
        assert_eq!(only_operations(&records), expected);
    }
    assert!(Layout::new(&header(), Some(10_000)).is_none());
}

#[test]
fn loops_take_a_few_bytes_an_operation() {
    let mut names = names();
    let kernel = names.intern("_Z5saxpyPfS_i");
    // A launch whose pointers walk through memory, an allocation and its free at an
    // address that comes again, an event that is recorded and waited for.
    let launch = |number: u64| Action::Launched {
        stream: StreamRef::Created(Handle(0x55d0_1234_5678)),
        kernel,
        pointers: (0..4)
            .map(|i| Pointer {
                address: 0x7f00_0000_0000 + (number * 4 + i) * 4096,
                mode: Mode::Write,
                shift: 0,
                used: Used::Perhaps,
                element: Element::default(),
            })
            .collect(),
        layout_known: true,
    };
    let recorded = |number: u64| Action::EventRecorded {
        event: Handle(0x55d0_0000_0000 + number % 7 * 96),
        stream: StreamRef::Created(Handle(0x55d0_1234_5678)),
    };
    // What a program does in steps of thousands of different calls.
    let stepped = |number: u64| Action::HostFunctionStarted {
        token: scattered(number % 3000),
    };
    for action in [
        &launch as &dyn Fn(u64) -> Action,
        &|_| launch(0),
        &recorded,
        &stepped,
    ] {
        let mut writer = Writer::in_memory(&header());
        let rounds = 300_000;
        for number in 0..rounds {
            let operation = Operation {
                call: Call {
                    api: NameId(1),
                    stack: StackId(1),
                    ..Call::default()
                },
                action: action(number),
            };
            writer.operation(&operation, &names, |id| STACKS[id.0 as usize]);
            writer.commit().unwrap();
        }
        let bytes = writer.into_bytes(true);
        // The journal's region alone is nine tenths of a byte each.
        assert!((bytes.len() as u64) < 2 * rounds, "{} bytes", bytes.len());
    }
}
