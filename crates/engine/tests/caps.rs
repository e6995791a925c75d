//! What happens where the engine's caps are reached: nothing false, and nothing of the
//! rest forgotten.

use streamcheck_engine::{Engine, Level, Levels, RuleCode};
use streamcheck_model::{
    Action, Call, FreeKind, Handle, MemoryKind, Mode, NameId, Operation, Outcome, Pointer, StackId,
    StreamRef, ThreadId,
};

/// More streams than have a slot each.
const MANY: u64 = 1_400;

struct Program {
    engine: Engine,
    found: Vec<String>,
}

impl Program {
    fn new(levels: Levels) -> Self {
        Self {
            engine: Engine::new(levels),
            found: Vec::new(),
        }
    }

    fn make(&mut self, thread: u64, action: Action) {
        let call = Call {
            thread: ThreadId(u32::try_from(thread).unwrap()),
            stack: StackId(1),
            ..Call::default()
        };
        let findings = self.engine.apply(&Operation { call, action });
        let told = findings.into_iter();
        self.found
            .extend(told.map(|found| format!("{} {}", found.rule, found.message)));
    }

    fn create_stream(&mut self, handle: u64) -> StreamRef {
        let stream = Handle(handle);
        self.make(
            0,
            Action::StreamCreated {
                stream,
                blocking: false,
            },
        );
        StreamRef::Created(stream)
    }

    fn allocate(&mut self, thread: u64, address: u64, stream: Option<StreamRef>) {
        let kind = match stream {
            Some(_) => MemoryKind::StreamOrdered,
            None => MemoryKind::Device,
        };
        self.make(
            thread,
            Action::Allocated {
                address,
                size: 0x1000,
                kind,
                stream,
                pool: Handle(0),
            },
        );
    }

    fn free(&mut self, address: u64, stream: StreamRef) {
        self.make(
            0,
            Action::FreeBegun {
                address,
                kind: FreeKind::Async,
                stream: Some(stream),
                part: None,
            },
        );
        let outcome = Outcome::Succeeded;
        self.make(0, Action::FreeEnded { outcome });
    }

    fn launch(&mut self, thread: u64, stream: StreamRef, address: u64) {
        let pointer = Pointer {
            address,
            mode: Mode::Write,
            shift: 0,
            used: streamcheck_model::Used::Perhaps,
            element: streamcheck_model::Element::default(),
        };
        self.make(
            thread,
            Action::Launched {
                stream,
                kernel: NameId(0),
                pointers: [pointer].into_iter().collect(),
                layout_known: true,
            },
        );
    }
}

fn buffer(thread: u64) -> u64 {
    0x10_0000 * (thread + 1)
}

#[test]
fn a_thread_that_comes_back_has_the_order_that_it_had() {
    let mut program = Program::new(Levels::default());
    for thread in 0..MANY {
        program.allocate(thread, buffer(thread), None);
        program.launch(thread, StreamRef::PerThread, buffer(thread));
    }
    for thread in 0..MANY {
        program.launch(thread, StreamRef::PerThread, buffer(thread));
    }
    assert_eq!(program.found, [] as [String; 0]);
}

#[test]
fn a_wait_for_a_stream_that_had_to_go_is_not_called_redundant() {
    let mut levels = Levels::default();
    levels.set(RuleCode::SC204, Level::Warning);
    let mut program = Program::new(levels);
    let event = |n| Handle(0x1_0000 + n);
    for n in 0..MANY {
        let stream = program.create_stream(0x100 + n);
        program.make(0, Action::Enqueued { stream });
        for event in (0..200).filter(|_| n > 1_100).map(event) {
            program.make(0, Action::StreamWaited { stream, event });
        }
        program.make(0, Action::EventCreated { event: event(n) });
        program.make(
            0,
            Action::EventRecorded {
                event: event(n),
                stream,
            },
        );
        let stream = Handle(0x100 + n);
        program.make(0, Action::StreamDestroyed { stream });
    }
    assert_eq!(program.found, [] as [String; 0]);
}

#[test]
fn a_freed_block_is_remembered_while_another_comes_and_goes() {
    let mut program = Program::new(Levels::default());
    let stream = program.create_stream(1);
    program.allocate(0, 0x10_0000, Some(stream));
    program.free(0x10_0000, stream);
    for _ in 0..40_000 {
        program.allocate(0, 0x20_0000, Some(stream));
        program.free(0x20_0000, stream);
    }
    program.launch(0, stream, 0x10_0000);
    assert_eq!(program.found.len(), 1, "{:?}", program.found);
    assert!(program.found[0].starts_with("SC102"));
}
