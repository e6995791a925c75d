use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_reflection::{Samples, Tracer, TracerConfig};

use super::*;
use crate::{
    Action, BatchCopy, Call, Condition, ContextId, DeviceId, Direction, Flag, FreeKind, Handle,
    HostMemory, MemoryKind, Mode, NameId, Names, Operation, Outcome, Pointer, Region, SourceOrder,
    StackId, StreamRef, ThreadId,
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
        Direction,
        Outcome,
        Flag,
        Condition,
        SourceOrder,
        Action,
        Record
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

fn header() -> Header {
    Header::new(ProcessFacts {
        pid: 4711,
        exe: "/opt/app".to_owned(),
        argv: vec!["app".to_owned(), "--fast".to_owned()],
        host: "node7".to_owned(),
        rank: Some(3),
    })
}

const STACKS: [&[u64]; 4] = [&[], &[0x40_1000], &[0x40_1000, 0x40_2000], &[u64::MAX, 0]];

/// The names that arbitrary operations draw from.
fn names() -> Names {
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
        any::<(u64, u32, bool, bool)>(),
        prop_oneof![
            Just(Mode::Read),
            Just(Mode::Write),
            Just(Mode::Update),
            Just(Mode::Unknown),
            Just(Mode::Doubtful)
        ],
    )
        .prop_map(|((address, shift, sure, back), mode)| Pointer {
            address,
            mode,
            shift,
            sure,
            back,
        })
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
        (name(), name()).prop_map(|(kind, example)| Action::BlindSpot { kind, example }),
        rarer_action(),
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

/// A whole trace, and where its records end in the file.
fn written(operations: &[Operation], ended: bool) -> Vec<u8> {
    let names = names();
    let mut out = Vec::new();
    let mut writer = Writer::new(&header(), &mut out);
    writer.module(&module(), &mut out);
    for operation in operations {
        writer.operation(operation, &names, |id| STACKS[id.0 as usize], &mut out);
    }
    writer.frames(StackId(1), &[frame()], &mut out);
    if ended {
        writer.end(&mut out);
    }
    out
}

fn module() -> Module {
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
fn read(bytes: &[u8]) -> (Vec<Record>, Result<Ending, TraceError>) {
    let mut reader = match Reader::new(bytes, "t.trace") {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut records = Vec::new();
    let mut failure = None;
    for record in &mut reader {
        match record {
            Ok(record) => records.push(record),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) => (records, Err(error)),
        None => (
            records,
            Ok(reader.ending().expect("an ended trace says how")),
        ),
    }
}

proptest! {
    #[test]
    fn operations_come_back_as_they_went(operations in vec(operation(), 0..40)) {
        let bytes = written(&operations, true);
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
    }

    #[test]
    fn a_prefix_reads_as_a_prefix(
        operations in vec(operation(), 0..12),
        cut in any::<prop::sample::Index>(),
        zeros in 0_usize..5000,
    ) {
        let bytes = written(&operations, true);
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
        prop_assert!(padded.len() >= some.len());
    }

    #[test]
    fn a_kill_in_the_middle_of_a_write_loses_that_record_alone(
        operations in vec(operation(), 1..12),
        cut in any::<prop::sample::Index>(),
    ) {
        // The writer stores a frame's length last. Of the last frame some of the
        // rest is there, in a file that was made longer beforehand.
        let before = written(&operations[..operations.len() - 1], false);
        let whole = written(&operations, false);
        let frame = &whole[before.len()..];
        let mut bytes = before.clone();
        bytes.extend([0; 4]);
        bytes.extend(&frame[4..4 + cut.index(frame.len() - 3)]);
        bytes.resize(bytes.len() + 4096, 0);
        let (some, ending) = read(&bytes);
        let (all, _) = read(&before);
        prop_assert_eq!(some, all);
        prop_assert!(matches!(ending, Ok(Ending::Killed)));
    }

    #[test]
    fn a_changed_byte_is_noticed(
        operations in vec(operation(), 0..12),
        place in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let mut bytes = written(&operations, true);
        let (all, _) = read(&bytes);
        let place = place.index(bytes.len());
        bytes[place] ^= flip;
        let (some, ending) = read(&bytes);
        prop_assert!(all.starts_with(&some));
        prop_assert!(ending.is_err(), "byte {} changed unnoticed", place);
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in vec(any::<u8>(), 0..300), whole_header in any::<bool>()) {
        if whole_header {
            let mut file = Vec::new();
            Writer::new(&header(), &mut file);
            file.append(&mut bytes);
            bytes = file;
        }
        drop(read(&bytes));
    }

    #[test]
    fn owned_and_borrowed_records_are_the_same_bytes(operations in vec(operation(), 1..12)) {
        let bytes = written(&operations, true);
        let (records, _) = read(&bytes);
        let mut again = Vec::new();
        Writer::new(&header(), &mut again);
        let head = again.len();
        for record in &records {
            record.append_to(&mut again);
            let payload = postcard::to_stdvec(record).unwrap();
            prop_assert!(again.ends_with(&payload));
        }
        prop_assert_eq!(&again[head..], &bytes[bytes.len() - (again.len() - head)..]);
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

#[test]
fn the_header_is_text_that_says_what_follows() {
    let bytes = written(&[], true);
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let first = std::str::from_utf8(lines.next().unwrap()).unwrap();
    assert!(first.starts_with("streamcheck trace 2 "), "{first}");
    let header: serde_json::Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
    assert_eq!(header["process"]["pid"], 4711);
    assert_eq!(header["tool"]["name"], "streamcheck");
    assert!(header["encoding"].as_str().unwrap().contains("postcard"));
    assert!(header["schema"]["Action"]["ENUM"]["0"]["StreamCreated"].is_object());
    assert_eq!(
        Reader::new(&bytes[..], "t").unwrap().header().process.rank,
        Some(3)
    );
}

#[test]
fn a_killed_writer_leaves_a_readable_trace() {
    let mut bytes = written(&one_launch(), false);
    assert_eq!(read(&bytes).1.unwrap(), Ending::Killed);
    let records = read(&bytes).0;
    assert_eq!(records.len(), 5, "module, name, stack, operation, frames");
    bytes.resize(bytes.len() + (1 << 18), 0);
    assert_eq!(read(&bytes), (records, Ok(Ending::Killed)));
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
    let whole = written(&one_launch(), true);
    let cut = message(&whole[..whole.len() - 1]);
    assert!(cut.starts_with("t.trace: cut off at byte "), "{cut}");
    assert!(cut.contains("the 5 records before it were used"), "{cut}");
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
    assert!(message(b"streamcheck trace 1 00000000\n{}\n").contains("trace format 1"));
    assert!(message(&whole[..40]).contains("the header is damaged (it ends too early)"));
    let mut more = whole.clone();
    more.extend_from_slice(&whole[whole.len() - 20..]);
    assert!(message(&more).contains("bytes after its end"));
    // A batch that went missing between two whole frames.
    let mut out = Vec::new();
    Writer::new(&header(), &mut out);
    let mut none = Vec::new();
    let mut busy = Writer::default();
    busy.operation(&one_launch()[0], &names(), |_| &[], &mut none);
    busy.end(&mut out);
    assert!(
        message(&out).contains("records are missing"),
        "{}",
        message(&out)
    );
}
