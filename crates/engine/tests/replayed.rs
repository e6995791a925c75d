//! A program that is captured and launched once gets the verdicts of the same program run
//! as it is: among its own operations, and with what comes after it.
//!
//! The model says otherwise in two places, which the programs leave out. A use that is
//! issued after a free call is wrong by itself, but in a graph only if no edge puts it
//! first. And streams that only take part in the capture have not done its work.

use std::collections::BTreeSet;

use proptest::prelude::*;
use smallvec::SmallVec;
use streamcheck_engine::{Engine, Finding, Levels, RuleCode};
use streamcheck_model::{
    Action, Call, Direction, Flag, FreeKind, Handle, HostMemory, MemoryKind, Mode, NameId,
    NodeWork, Operation, Outcome, Pointer, Region, StackId, StreamRef, ThreadId,
};

/// Streams that capture; one more does not.
const CAPTURING: usize = 3;
const OUTSIDE: usize = CAPTURING;
/// Blocks from before the capture, of all sorts.
const BLOCKS: usize = 4;
const SIZE: u64 = 256;

#[derive(Clone, Debug)]
enum Step {
    Launch {
        stream: usize,
        pointers: Vec<(usize, u64, Mode)>,
    },
    Fill {
        stream: usize,
        block: usize,
        region: usize,
    },
    Copy {
        stream: usize,
        from: usize,
        to: usize,
        region: usize,
    },
    Edge {
        from: usize,
        to: usize,
    },
    Allocate {
        stream: usize,
    },
    Free {
        stream: usize,
        block: usize,
    },
    HostFunction {
        stream: usize,
    },
    Synchronize,
}

fn body() -> impl Strategy<Value = Step> {
    steps(CAPTURING).prop_filter("captures do not wait", |step| {
        !matches!(step, Step::Synchronize)
    })
}

/// What comes after: on the stream that captured, or on the one that did not.
fn rest() -> impl Strategy<Value = Step> {
    steps(2).prop_map(|mut step| {
        let other = |stream: &mut usize| *stream *= OUTSIDE;
        match &mut step {
            Step::Launch { stream, .. }
            | Step::Fill { stream, .. }
            | Step::Copy { stream, .. }
            | Step::Allocate { stream }
            | Step::Free { stream, .. }
            | Step::HostFunction { stream } => other(stream),
            Step::Edge { from, to } => {
                other(from);
                other(to);
            }
            Step::Synchronize => {}
        }
        step
    })
}

fn steps(streams: usize) -> impl Strategy<Value = Step> {
    let modes = vec![Mode::Read, Mode::Write, Mode::Update, Mode::Unknown];
    let pointer = (
        0..8usize,
        prop::sample::select(vec![0, 8, SIZE / 2]),
        prop::sample::select(modes),
    );
    let stream = move || 0..streams;
    prop_oneof![
        6 => (stream(), prop::collection::vec(pointer, 1..4))
            .prop_map(|(stream, pointers)| Step::Launch { stream, pointers }),
        1 => (stream(), 0..8usize, 0..3usize)
            .prop_map(|(stream, block, region)| Step::Fill { stream, block, region }),
        1 => (stream(), 0..8usize, 0..8usize, 0..3usize)
            .prop_map(|(stream, from, to, region)| Step::Copy { stream, from, to, region }),
        5 => (stream(), stream()).prop_map(|(from, to)| Step::Edge { from, to }),
        2 => stream().prop_map(|stream| Step::Allocate { stream }),
        2 => (stream(), 0..8usize).prop_map(|(stream, block)| Step::Free { stream, block }),
        1 => stream().prop_map(|stream| Step::HostFunction { stream }),
        1 => Just(Step::Synchronize),
    ]
}

fn region(address: u64, which: usize) -> Region {
    match which {
        0 => Region::linear(address, SIZE),
        1 => Region::linear(address, SIZE / 2),
        _ => Region::pitched(address + 4, 8, 4, 64),
    }
}

/// The rules broken, and on which block.
type Verdicts = BTreeSet<(RuleCode, u64)>;

struct Run {
    engine: Engine,
    made: u32,
    events: u64,
    /// The blocks' addresses, and whether they are freed.
    blocks: Vec<(u64, bool)>,
    /// Those that the captured part allocates begin here.
    inside: usize,
    /// The nodes of the graph built by hand.
    nodes: Vec<Handle>,
}

fn kernel(pointers: SmallVec<[Pointer; 6]>) -> NodeWork {
    NodeWork::Kernel {
        kernel: NameId(0),
        pointers,
        layout_known: true,
    }
}

impl Run {
    fn new() -> Self {
        let mut run = Self {
            engine: Engine::new(Levels::default()),
            made: 0,
            events: 0,
            blocks: Vec::new(),
            inside: BLOCKS,
            nodes: Vec::new(),
        };
        for stream in 0..=OUTSIDE {
            run.apply(Action::StreamCreated {
                stream: Handle(0x100 + stream as u64),
                blocking: false,
            });
        }
        for block in 0..BLOCKS {
            let kind = match block % 2 {
                0 => MemoryKind::Device,
                _ => MemoryKind::StreamOrdered,
            };
            run.allocate(kind, 0);
        }
        run.apply(Action::DeviceSynchronized);
        run
    }

    fn stream(stream: usize) -> StreamRef {
        StreamRef::Created(Handle(0x100 + stream as u64))
    }

    fn apply(&mut self, action: Action) -> Vec<Finding> {
        self.made += 1;
        let call = Call {
            api: NameId(0),
            thread: ThreadId(1),
            stack: StackId(self.made),
            ..Call::default()
        };
        self.engine.apply(&Operation { call, action })
    }

    fn allocate(&mut self, kind: MemoryKind, stream: usize) -> Vec<Finding> {
        let address = 0x10_0000 + 0x1000 * self.blocks.len() as u64;
        self.blocks.push((address, false));
        self.apply(Action::Allocated {
            address,
            size: SIZE,
            kind,
            stream: (kind == MemoryKind::StreamOrdered).then_some(Self::stream(stream)),
            pool: Handle(0),
        })
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.events += 1;
        let event = Handle(0x1000 + self.events);
        self.apply(Action::EventCreated { event });
        self.apply(Action::EventRecorded {
            event,
            stream: Self::stream(from),
        });
        self.apply(Action::StreamWaited {
            stream: Self::stream(to),
            event,
        });
    }

    /// The block that a number picks among those not freed.
    fn pick(&self, number: usize) -> Option<(usize, u64)> {
        let live = self.blocks.iter().enumerate().filter(|(_, block)| !block.1);
        let live: Vec<(usize, u64)> = live.map(|(place, block)| (place, block.0)).collect();
        live.get(number % live.len().max(1)).copied()
    }

    fn pointers(&self, pointers: &[(usize, u64, Mode)]) -> SmallVec<[Pointer; 6]> {
        let pointer = |&(block, offset, mode): &(usize, u64, Mode)| {
            Some(Pointer {
                address: self.pick(block)?.1 + offset,
                mode,
                shift: 0,
                used: streamcheck_model::Used::Perhaps,
                element: streamcheck_model::Element::default(),
            })
        };
        pointers.iter().filter_map(pointer).collect()
    }

    fn take(&mut self, step: &Step, inside: bool) -> Vec<Finding> {
        match *step {
            Step::Launch {
                stream,
                ref pointers,
            } => {
                let pointers = self.pointers(pointers);
                self.apply(Action::Launched {
                    stream: Self::stream(stream),
                    kernel: NameId(0),
                    pointers,
                    layout_known: true,
                })
            }
            Step::Fill {
                stream,
                block,
                region: which,
            } => {
                let Some((_, address)) = self.pick(block) else {
                    return Vec::new();
                };
                self.apply(Action::Filled {
                    stream: Self::stream(stream),
                    to: region(address, which),
                    synchronous: false,
                })
            }
            Step::Copy {
                stream,
                from,
                to,
                region: which,
            } => {
                let (Some((_, from)), Some((_, to))) = (self.pick(from), self.pick(to)) else {
                    return Vec::new();
                };
                self.apply(Action::Copied {
                    stream: Self::stream(stream),
                    to: region(to, which),
                    from: region(from, which),
                    direction: Direction::DeviceToDevice,
                    host: HostMemory::Unasked,
                    synchronous: false,
                })
            }
            Step::Edge { from, to } => {
                if from != to {
                    self.edge(from, to);
                }
                Vec::new()
            }
            Step::Allocate { stream } => self.allocate(MemoryKind::StreamOrdered, stream),
            Step::Free { stream, block } => {
                let Some((place, address)) = self.pick(block) else {
                    return Vec::new();
                };
                // A capture frees what it allocates.
                if inside && place < self.inside {
                    return Vec::new();
                }
                self.blocks[place].1 = true;
                let mut found = self.apply(Action::FreeBegun {
                    address,
                    kind: FreeKind::Async,
                    stream: Some(Self::stream(stream)),
                    part: None,
                });
                let outcome = Outcome::Succeeded;
                found.extend(self.apply(Action::FreeEnded { outcome }));
                found
            }
            Step::HostFunction { stream } => self.apply(Action::HostFunctionEnqueued {
                stream: Self::stream(stream),
                token: u64::from(self.made),
            }),
            Step::Synchronize => self.apply(Action::StreamSynchronized {
                stream: Self::stream(0),
                polled: false,
            }),
        }
    }

    fn verdicts(found: &[Finding]) -> Verdicts {
        let found = found.iter();
        found
            .map(|finding| (finding.rule, finding.allocation.map_or(0, |of| of.address)))
            .collect()
    }

    /// The captured part's verdicts, then those of each step after it.
    fn run(mut self, captured: bool, body: &[Step], rest: &[Step]) -> Vec<Verdicts> {
        let stream = Self::stream(0);
        let mut found = Vec::new();
        if captured {
            self.apply(Action::CaptureBegun {
                stream,
                graph: Handle(0),
                dependencies: Vec::new(),
            });
        }
        for other in 1..CAPTURING {
            self.edge(0, other);
        }
        for step in body {
            found.extend(self.take(step, true));
        }
        for other in 1..CAPTURING {
            self.edge(other, 0);
        }
        if captured {
            assert!(found.is_empty(), "{found:?}");
            let (graph, exec) = (Handle(0x5000), Handle(0x6000));
            self.apply(Action::CaptureEnded { stream, graph });
            found = self.apply(Action::GraphInstantiated {
                exec,
                graph,
                auto_free: false,
            });
            found.extend(self.apply(Action::GraphLaunched { stream, exec }));
        }
        let mut all = vec![Self::verdicts(&found)];
        for step in rest {
            let found = self.take(step, false);
            all.push(Self::verdicts(&found));
        }
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_launch_is_what_was_captured(
        body in prop::collection::vec(body(), 1..24),
        rest in prop::collection::vec(rest(), 0..10),
    ) {
        let eager = Run::new().run(false, &body, &rest);
        let replayed = Run::new().run(true, &body, &rest);
        prop_assert_eq!(eager, replayed);
    }
}

/// What happens around many launches.
#[derive(Clone, Debug)]
enum Act {
    Step(Step),
    Replay {
        exec: usize,
        stream: usize,
    },
    /// A freed block's address is another's.
    Reuse {
        block: usize,
        stream: usize,
    },
    Legacy {
        block: usize,
    },
    Device,
    /// A node of the graph built by hand uses something else in later launches.
    SetNode {
        node: usize,
        block: usize,
        mode: Mode,
    },
    EnableNode {
        node: usize,
        on: bool,
    },
    /// A node of nobody knows which origin is changed.
    SetUnknown {
        exec: usize,
    },
    /// An executable graph does what the graph that it was made of does, or another.
    Update {
        exec: usize,
        graph: usize,
    },
}

/// The executable graph that is built by hand.
const BY_HAND: usize = 2;

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => steps(CAPTURING + 1).prop_map(Act::Step),
        8 => (0..=BY_HAND, prop::sample::select(vec![0, 0, 0, 1, 2, 9]))
            .prop_map(|(exec, stream)| Act::Replay { exec, stream }),
        1 => (0..8usize, 0..CAPTURING).prop_map(|(block, stream)| Act::Reuse { block, stream }),
        1 => (0..8usize).prop_map(|block| Act::Legacy { block }),
        1 => Just(Act::Device),
        2 => (0..8usize, 0..8usize, prop::sample::select(vec![Mode::Read, Mode::Write]))
            .prop_map(|(node, block, mode)| Act::SetNode { node, block, mode }),
        2 => (0..8usize, any::<bool>()).prop_map(|(node, on)| Act::EnableNode { node, on }),
        1 => (0..=BY_HAND).prop_map(|exec| Act::SetUnknown { exec }),
        1 => (0..=BY_HAND, 0..=BY_HAND).prop_map(|(exec, graph)| Act::Update { exec, graph }),
    ]
}

impl Run {
    /// Captures a graph and instantiates it.
    fn capture(&mut self, number: u64, body: &[Step]) {
        let stream = Self::stream(0);
        let (graph, exec) = (Handle(0x5000 + number), Handle(0x6000 + number));
        self.apply(Action::CaptureBegun {
            stream,
            graph: Handle(0),
            dependencies: Vec::new(),
        });
        for other in 1..CAPTURING {
            self.edge(0, other);
        }
        for step in body {
            // What a graph leaves allocated, it could not be launched again with.
            if !matches!(step, Step::Allocate { .. } | Step::Free { .. }) {
                self.take(step, true);
            }
        }
        for other in 1..CAPTURING {
            self.edge(other, 0);
        }
        self.apply(Action::CaptureEnded { stream, graph });
        self.apply(Action::GraphInstantiated {
            exec,
            graph,
            auto_free: false,
        });
    }

    /// Builds a graph of kernels in a row, and instantiates it.
    fn build(&mut self, body: &[Step]) {
        let (graph, exec) = (
            Handle(0x5000 + BY_HAND as u64),
            Handle(0x6000 + BY_HAND as u64),
        );
        self.apply(Action::GraphCreated { graph });
        for step in body {
            let Step::Launch { pointers, .. } = step else {
                continue;
            };
            let before = self.nodes.last().copied();
            let node = Handle(0x7000 + self.nodes.len() as u64);
            self.nodes.push(node);
            let pointers = self.pointers(pointers);
            self.apply(Action::NodeAdded {
                graph,
                node,
                dependencies: before.into_iter().collect(),
                work: kernel(pointers),
            });
        }
        self.apply(Action::GraphInstantiated {
            exec,
            graph,
            auto_free: false,
        });
    }

    fn act(&mut self, act: &Act) -> Vec<Finding> {
        let exec_of = |number: usize| Handle(0x6000 + number as u64);
        match *act {
            Act::SetNode { node, block, mode } => {
                let pointers = self.pointers(&[(block, 0, mode)]);
                let Some(&node) = self.nodes.get(node % self.nodes.len().max(1)) else {
                    return Vec::new();
                };
                self.apply(Action::NodeChanged {
                    exec: exec_of(BY_HAND),
                    node,
                    work: kernel(pointers),
                })
            }
            Act::EnableNode { node, on } => {
                let Some(&node) = self.nodes.get(node % self.nodes.len().max(1)) else {
                    return Vec::new();
                };
                self.apply(Action::NodeEnabled {
                    exec: exec_of(BY_HAND),
                    node,
                    enabled: on,
                })
            }
            Act::SetUnknown { exec } => self.apply(Action::NodeChanged {
                exec: exec_of(exec),
                node: Handle(0x7fff),
                work: NodeWork::Fill {
                    to: region(0x10_0000, 0),
                },
            }),
            Act::Update { exec, graph } => self.apply(Action::ExecUpdated {
                exec: exec_of(exec),
                graph: Handle(0x5000 + graph as u64),
            }),
            Act::Step(ref step) => self.take(step, false),
            Act::Replay { exec, stream } => {
                let stream = match stream {
                    9 => StreamRef::Legacy,
                    stream => Self::stream(stream),
                };
                self.apply(Action::GraphLaunched {
                    stream,
                    exec: Handle(0x6000 + exec as u64),
                })
            }
            Act::Reuse { block, stream } => {
                let freed = self.blocks.iter().filter(|(_, freed)| *freed);
                let freed: Vec<u64> = freed.map(|(address, _)| *address).collect();
                let Some(&address) = freed.get(block % freed.len().max(1)) else {
                    return Vec::new();
                };
                for block in &mut self.blocks {
                    block.1 &= block.0 != address;
                }
                self.apply(Action::Allocated {
                    address,
                    size: SIZE,
                    kind: MemoryKind::StreamOrdered,
                    stream: Some(Self::stream(stream)),
                    pool: Handle(0),
                })
            }
            Act::Legacy { block } => {
                let address = self.pick(block).map_or(0, |(_, address)| address);
                self.apply(Action::Filled {
                    stream: StreamRef::Legacy,
                    to: region(address, 0),
                    synchronous: true,
                })
            }
            Act::Device => self.apply(Action::DeviceSynchronized),
        }
    }

    /// The findings of each step, and how often each was made.
    fn launch_often(
        mut self,
        exact: bool,
        bodies: &[Vec<Step>; 3],
        acts: &[Act],
    ) -> (Vec<Verdicts>, Vec<u64>) {
        // While a value may yet be waited for, every touch is looked at in every launch.
        if exact {
            self.apply(Action::ValueWritten {
                stream: Self::stream(OUTSIDE),
                flag: Flag::Memory(0xf000_0000),
                value: 1,
            });
        } else {
            self.apply(Action::Enqueued {
                stream: Self::stream(OUTSIDE),
            });
        }
        for (number, body) in (0..).zip(&bodies[..BY_HAND]) {
            self.capture(number, body);
        }
        self.build(&bodies[BY_HAND]);
        let found = acts.iter().map(|act| Self::verdicts(&self.act(act)));
        let found = found.collect();
        (found, self.engine.counts().to_vec())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_launch_passes_over_would_say_nothing_new(
        bodies in [
            prop::collection::vec(body(), 1..8),
            prop::collection::vec(body(), 1..8),
            prop::collection::vec(body(), 1..8),
        ],
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let exact = Run::new().launch_often(true, &bodies, &acts);
        let leased = Run::new().launch_often(false, &bodies, &acts);
        prop_assert_eq!(exact, leased);
    }
}
