//! Random programs, judged twice.
//!
//! The reference here shares nothing with the engine but the text of the model: it
//! keeps a graph with a node for every operation, prunes nothing, and answers
//! "ordered?" by walking it. The engine's clocks, its segment graph and its
//! verdicts must agree with that on every program.

use std::collections::HashMap;

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{Dfs, EdgeFiltered, Reversed};
use proptest::prelude::*;
use smallvec::SmallVec;
use streamcheck_model::{
    Action, Call, ContextId, DeviceId, FreeKind, Handle, MemoryKind, Mode, NameId, Operation,
    Outcome, Pointer, StackId, StreamRef, ThreadId,
};

use crate::clock::Epoch;
use crate::{Engine, Levels};

/// A step of a random program. Numbers pick among what exists.
#[derive(Clone, Debug)]
enum Step {
    Create {
        slot: usize,
        blocking: bool,
    },
    Destroy {
        slot: usize,
    },
    NewEvent {
        event: usize,
    },
    Record {
        event: usize,
        stream: usize,
    },
    Wait {
        event: usize,
        stream: usize,
    },
    SyncEvent {
        event: usize,
    },
    SyncStream {
        stream: usize,
    },
    SyncDevice,
    Alloc {
        stream: usize,
        ordered: bool,
        reuse: bool,
    },
    Free {
        stream: usize,
        block: usize,
        kind: usize,
    },
    Launch {
        stream: usize,
        block: usize,
        read: bool,
    },
    HostFunction {
        stream: usize,
    },
    HostFunctionRuns,
    Switch {
        thread: u32,
        device: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..8usize;
    prop_oneof![
        1 => (0..4usize, any::<bool>()).prop_map(|(slot, blocking)| Step::Create { slot, blocking }),
        1 => (0..4usize).prop_map(|slot| Step::Destroy { slot }),
        1 => (0..3usize).prop_map(|event| Step::NewEvent { event }),
        5 => (0..3usize, n.clone()).prop_map(|(event, stream)| Step::Record { event, stream }),
        5 => (0..3usize, n.clone()).prop_map(|(event, stream)| Step::Wait { event, stream }),
        1 => (0..3usize).prop_map(|event| Step::SyncEvent { event }),
        1 => n.clone().prop_map(|stream| Step::SyncStream { stream }),
        1 => Just(Step::SyncDevice),
        5 => (n.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(stream, ordered, reuse)| Step::Alloc { stream, ordered, reuse }),
        4 => (n.clone(), n.clone(), 0..3usize)
            .prop_map(|(stream, block, kind)| Step::Free { stream, block, kind }),
        12 => (n.clone(), n.clone(), any::<bool>())
            .prop_map(|(stream, block, read)| Step::Launch { stream, block, read }),
        1 => n.prop_map(|stream| Step::HostFunction { stream }),
        1 => Just(Step::HostFunctionRuns),
        2 => (1..3u32, 0..2u16).prop_map(|(thread, device)| Step::Switch { thread, device }),
    ]
}

/// A timeline in the reference: a stream's identity, or the host (`None`).
type Line = Option<usize>;

#[derive(Clone)]
struct Access {
    node: NodeIndex,
    line: Line,
    mode: Mode,
    early: bool,
}

struct Block {
    address: u64,
    ordered: bool,
    device: u16,
    birth: Option<NodeIndex>,
    uses: Vec<Access>,
    free: Option<NodeIndex>,
    /// Set when the host frees, which then knows what is complete.
    gone: bool,
    /// The block that had the address before.
    before: Option<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Legacy,
    Blocking,
    NonBlocking,
}

/// The unpruned graph and the naive state around it.
#[derive(Default)]
struct Reference {
    /// Edges say whether NVIDIA promises them.
    graph: DiGraph<(), bool>,
    host: Option<NodeIndex>,
    /// Kind, device, last operation.
    lines: Vec<(Kind, u16, Option<NodeIndex>)>,
    created: HashMap<u64, usize>,
    legacy: HashMap<u16, usize>,
    per_thread: HashMap<(u32, u16), usize>,
    events: HashMap<u64, Option<NodeIndex>>,
    host_functions: Vec<NodeIndex>,
    blocks: Vec<Block>,
}

impl Reference {
    fn resolve(&mut self, stream: StreamRef, call: &Call) -> usize {
        let device = call.device.0;
        let next = self.lines.len();
        let (line, kind) = match stream {
            StreamRef::Legacy => (*self.legacy.entry(device).or_insert(next), Kind::Legacy),
            StreamRef::PerThread => (
                *self
                    .per_thread
                    .entry((call.thread.0, device))
                    .or_insert(next),
                Kind::Blocking,
            ),
            StreamRef::Created(handle) => (
                *self.created.entry(handle.0).or_insert(next),
                Kind::Blocking,
            ),
        };
        if line == next {
            self.lines.push((kind, device, None));
        }
        line
    }

    fn host_node(&mut self, before: impl IntoIterator<Item = NodeIndex>) {
        self.host_waits(before, true);
    }

    fn host_waits(&mut self, before: impl IntoIterator<Item = NodeIndex>, promised: bool) {
        let node = self.graph.add_node(());
        for earlier in before {
            self.graph.add_edge(earlier, node, promised);
        }
        if let Some(host) = self.host {
            self.graph.add_edge(host, node, true);
        }
        self.host = Some(node);
    }

    /// What an operation on the legacy stream of a device waits for.
    fn blocking_work(&self, device: u16) -> Vec<NodeIndex> {
        let blocking = self
            .lines
            .iter()
            .filter(|(kind, on, _)| *kind == Kind::Blocking && *on == device);
        blocking.filter_map(|(_, _, last)| *last).collect()
    }

    fn stream_node(&mut self, line: usize, also: Option<NodeIndex>) -> NodeIndex {
        let node = self.graph.add_node(());
        let (kind, device, last) = self.lines[line];
        let mut before: Vec<NodeIndex> = last.into_iter().chain(self.host).chain(also).collect();
        match kind {
            Kind::Legacy => before.extend(self.blocking_work(device)),
            Kind::Blocking => {
                before.extend(
                    self.legacy
                        .get(&device)
                        .and_then(|&legacy| self.lines[legacy].2),
                );
            }
            Kind::NonBlocking => {}
        }
        for earlier in before {
            self.graph.add_edge(earlier, node, true);
        }
        self.lines[line].2 = Some(node);
        node
    }

    /// For each node, whether it happens before `node` or is it, by all edges or by
    /// those that are promised.
    fn past(&self, node: Option<NodeIndex>, strict: bool) -> Vec<bool> {
        let mut past = vec![false; self.graph.node_count()];
        if let Some(node) = node {
            let edges = EdgeFiltered::from_fn(&self.graph, |edge| !strict || *edge.weight());
            let graph = Reversed(&edges);
            let mut walk = Dfs::new(graph, node);
            while let Some(earlier) = walk.next(graph) {
                past[earlier.index()] = true;
            }
        }
        past
    }

    /// What `judge` finds by all edges; by the promised ones alone, if that is only then.
    fn lean(
        &self,
        node: Option<NodeIndex>,
        judge: impl Fn(&[bool]) -> Vec<&'static str>,
    ) -> Vec<&'static str> {
        let found = judge(&self.past(node, false));
        if found.is_empty() && !judge(&self.past(node, true)).is_empty() {
            return vec!["SC203"];
        }
        found
    }

    fn live(&self) -> Vec<usize> {
        (0..self.blocks.len())
            .filter(|&i| !self.blocks[i].gone)
            .collect()
    }

    /// The verdicts that a use must get.
    fn judge_use(&self, index: usize, access: &Access, past: &[bool]) -> Vec<&'static str> {
        let known = |node: &Option<NodeIndex>| node.is_none_or(|node| past[node.index()]);
        let block = &self.blocks[index];
        if block.gone {
            return vec!["SC102"];
        }
        if block.ordered && !known(&block.birth) {
            let pending = block.before.is_some_and(|before| {
                let before = &self.blocks[before];
                before.ordered
                    && (!known(&before.free) || before.uses.iter().any(|a| !past[a.node.index()]))
            });
            return vec![if pending { "SC105" } else { "SC101" }];
        }
        let conflict = |other: &Access| access.mode == Mode::Write || other.mode == Mode::Write;
        let race = block
            .uses
            .iter()
            .any(|a| !a.early && conflict(a) && !past[a.node.index()]);
        if race { vec!["SC109"] } else { Vec::new() }
    }

    /// The verdicts that a free must get.
    fn judge_free(&self, index: usize, waits: bool, past: &[bool]) -> Vec<&'static str> {
        let block = &self.blocks[index];
        if waits {
            return Vec::new();
        }
        let mut last: HashMap<Line, &Access> = HashMap::new();
        for access in &block.uses {
            last.insert(access.line, access);
        }
        let pending = last
            .values()
            .filter(|access| !past[access.node.index()])
            .count();
        let mut found = vec!["SC103"; pending];
        let unborn = block.birth.is_some_and(|birth| !past[birth.index()]);
        if block.ordered && block.uses.is_empty() && unborn {
            found.push("SC104");
        }
        found
    }
}

struct Run {
    engine: Engine,
    reference: Reference,
    call: Call,
    /// Where the engine put each of the reference's stream operations.
    epochs: Vec<(NodeIndex, Epoch)>,
    fresh: u64,
    tokens: Vec<u64>,
}

impl Run {
    fn new() -> Self {
        let call = Call {
            thread: ThreadId(1),
            ..Call::default()
        };
        Self {
            engine: Engine::new(Levels::default()),
            reference: Reference::default(),
            call,
            epochs: Vec::new(),
            fresh: 0x10_0000,
            tokens: Vec::new(),
        }
    }

    fn stream(n: usize) -> StreamRef {
        match n {
            0..4 => StreamRef::Created(Handle(0x100 + n as u64)),
            4 | 5 => StreamRef::Legacy,
            _ => StreamRef::PerThread,
        }
    }

    fn apply(&mut self, action: Action) -> Vec<String> {
        let operation = Operation {
            call: self.call,
            action,
        };
        let found = self.engine.apply(&operation);
        found
            .iter()
            .map(|finding| finding.rule.to_string())
            .collect()
    }

    /// A stream operation: the engine's epoch and the reference's node.
    fn on_stream(&mut self, line: usize, stream: StreamRef, also: Option<NodeIndex>) -> NodeIndex {
        let node = self.reference.stream_node(line, also);
        let id = self.engine.order().resolve(stream, &self.call);
        let epoch = self.engine.order().epoch_of_last(id).unwrap();
        self.epochs.push((node, epoch));
        node
    }

    /// Takes a step on both sides and compares what they found.
    fn step(&mut self, place: usize, step: &Step) -> Result<(), TestCaseError> {
        // A site of its own for every operation, so that none is a repetition.
        self.call.stack = StackId(place as u32 + 1);
        let call = self.call;
        let (mut got, mut want): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
        match *step {
            Step::Switch { thread, device } => {
                self.call.thread = ThreadId(thread);
                self.call.device = DeviceId(device);
                self.call.context = ContextId(u32::from(device));
            }
            Step::Create { slot, blocking } => {
                let handle = 0x100 + slot as u64;
                self.apply(Action::StreamCreated {
                    stream: Handle(handle),
                    blocking,
                });
                let kind = if blocking {
                    Kind::Blocking
                } else {
                    Kind::NonBlocking
                };
                self.reference
                    .created
                    .insert(handle, self.reference.lines.len());
                self.reference.lines.push((kind, call.device.0, None));
            }
            Step::Destroy { slot } => {
                let handle = 0x100 + slot as u64;
                self.apply(Action::StreamDestroyed {
                    stream: Handle(handle),
                });
                self.reference.created.remove(&handle);
            }
            Step::NewEvent { event } => {
                self.apply(Action::EventCreated {
                    event: Handle(event as u64),
                });
                self.reference.events.insert(event as u64, None);
            }
            Step::Record { event, stream } => {
                let stream = Self::stream(stream);
                got = self.apply(Action::EventRecorded {
                    event: Handle(event as u64),
                    stream,
                });
                let line = self.reference.resolve(stream, &call);
                let node = self.on_stream(line, stream, None);
                self.reference.events.insert(event as u64, Some(node));
            }
            Step::Wait { event, stream } => {
                let stream = Self::stream(stream);
                match self.reference.events.get(&(event as u64)).copied() {
                    // What an unknown event orders is not the reference's to say.
                    None => return Ok(()),
                    Some(None) => {
                        want.push("SC112");
                        got = self.apply(Action::StreamWaited {
                            event: Handle(event as u64),
                            stream,
                        });
                        self.reference.resolve(stream, &call);
                    }
                    Some(record) => {
                        got = self.apply(Action::StreamWaited {
                            event: Handle(event as u64),
                            stream,
                        });
                        let line = self.reference.resolve(stream, &call);
                        self.on_stream(line, stream, record);
                    }
                }
            }
            Step::SyncEvent { event } => {
                if !self.reference.events.contains_key(&(event as u64)) {
                    return Ok(());
                }
                self.apply(Action::EventSynchronized {
                    polled: false,
                    event: Handle(event as u64),
                });
                if let Some(Some(record)) = self.reference.events.get(&(event as u64)).copied() {
                    self.reference.host_node([record]);
                }
            }
            Step::SyncStream { stream } => {
                let stream = Self::stream(stream);
                self.apply(Action::StreamSynchronized {
                    stream,
                    polled: false,
                });
                let line = self.reference.resolve(stream, &call);
                let (kind, device, last) = self.reference.lines[line];
                let mut before: Vec<NodeIndex> = last.into_iter().collect();
                if kind == Kind::Legacy {
                    // It waits as an operation on it would, and so do later ones.
                    before.extend(self.reference.blocking_work(device));
                }
                self.reference.host_node(before);
            }
            Step::SyncDevice => {
                self.apply(Action::DeviceSynchronized);
                let here = self
                    .reference
                    .lines
                    .iter()
                    .filter(|(_, device, _)| *device == call.device.0);
                let before: Vec<NodeIndex> = here.filter_map(|(_, _, last)| *last).collect();
                self.reference.host_node(before);
            }
            Step::Alloc {
                stream,
                ordered,
                reuse,
            } => {
                let stream = Self::stream(stream);
                let free = |block: &Block| block.gone && block.ordered;
                let live: Vec<u64> = self
                    .reference
                    .live()
                    .iter()
                    .map(|&i| self.reference.blocks[i].address)
                    .collect();
                let old = self
                    .reference
                    .blocks
                    .iter()
                    .rposition(|b| free(b) && !live.contains(&b.address));
                let before = old.filter(|_| reuse && ordered);
                let address = before.map_or(self.fresh, |i| self.reference.blocks[i].address);
                self.fresh += if before.is_none() { 0x1000 } else { 0 };
                let (kind, on) = if ordered {
                    (MemoryKind::StreamOrdered, Some(stream))
                } else {
                    (MemoryKind::Device, None)
                };
                got = self.apply(Action::Allocated {
                    address,
                    size: 0x400,
                    kind,
                    stream: on,
                    pool: Handle::default(),
                });
                let birth = ordered.then(|| {
                    let line = self.reference.resolve(stream, &call);
                    self.on_stream(line, stream, None)
                });
                self.reference.blocks.push(Block {
                    address,
                    ordered,
                    device: call.device.0,
                    birth,
                    uses: Vec::new(),
                    free: None,
                    gone: false,
                    before,
                });
            }
            Step::Free {
                stream,
                block,
                kind,
            } => {
                let live = self.reference.live();
                let Some(&index) = live.get(block % live.len().max(1)) else {
                    return Ok(());
                };
                let stream = Self::stream(stream);
                let (kind, on) = if kind == 0 {
                    (FreeKind::Sync, None)
                } else {
                    (FreeKind::Async, Some(stream))
                };
                let address = self.reference.blocks[index].address;
                self.apply(Action::FreeBegun {
                    address,
                    kind,
                    stream: on,
                });
                got = self.apply(Action::FreeEnded {
                    outcome: Outcome::Succeeded,
                });
                let at = on.map(|stream| {
                    let line = self.reference.resolve(stream, &call);
                    self.on_stream(line, stream, None)
                });
                let waits = on.is_none() && !self.reference.blocks[index].ordered;
                want = self.reference.lean(at.or(self.reference.host), |past| {
                    self.reference.judge_free(index, waits, past)
                });
                if waits {
                    let device = self.reference.blocks[index].device;
                    let here = self
                        .reference
                        .lines
                        .iter()
                        .filter(|(_, on, _)| *on == device);
                    let before: Vec<NodeIndex> = here.filter_map(|(_, _, last)| *last).collect();
                    self.reference.host_waits(before, false);
                }
                self.reference.blocks[index].gone = true;
                self.reference.blocks[index].free = at.or(self.reference.host);
            }
            Step::Launch {
                stream,
                block,
                read,
            } => {
                let stream = Self::stream(stream);
                let count = self.reference.blocks.len();
                if count == 0 {
                    return Ok(());
                }
                // The newest owner of the address is the one meant.
                let address = self.reference.blocks[count - 1 - block % count].address;
                let owner = self
                    .reference
                    .blocks
                    .iter()
                    .rposition(|b| b.address == address);
                let mode = if read { Mode::Read } else { Mode::Write };
                let pointers = SmallVec::from_iter([Pointer { address, mode }]);
                let kernel = NameId::default();
                got = self.apply(Action::Launched {
                    stream,
                    kernel,
                    pointers,
                    layout_known: true,
                });
                // SC202 is a matter of speed and has litmus programs of its own.
                got.retain(|code| code != "SC202");
                let line = self.reference.resolve(stream, &call);
                let node = self.on_stream(line, stream, None);
                let mut access = Access {
                    node,
                    line: Some(line),
                    mode,
                    early: false,
                };
                let owner = owner.unwrap();
                want = self.reference.lean(Some(node), |past| {
                    self.reference.judge_use(owner, &access, past)
                });
                access.early = matches!(want[..], ["SC101" | "SC105"]);
                if want != ["SC102"] {
                    self.reference.blocks[owner].uses.push(access);
                }
            }
            Step::HostFunction { stream } => {
                let stream = Self::stream(stream);
                let token = self.tokens.len() as u64;
                self.apply(Action::HostFunctionEnqueued { stream, token });
                self.tokens.push(token);
                let line = self.reference.resolve(stream, &call);
                let node = self.on_stream(line, stream, None);
                self.reference.host_functions.push(node);
            }
            Step::HostFunctionRuns => {
                if let Some(node) = self.reference.host_functions.pop() {
                    let token = self.reference.host_functions.len() as u64;
                    self.apply(Action::HostFunctionStarted { token });
                    self.tokens.truncate(token as usize);
                    self.reference.host_node([node]);
                }
            }
        }
        got.sort();
        want.sort_unstable();
        prop_assert_eq!(got, want, "at step {} {:?}", place, step);
        Ok(())
    }

    /// What each timeline knows, by clock, by segment graph and by reference.
    fn compare_orders(&mut self, place: usize) -> Result<(), TestCaseError> {
        let host = self.reference.past(self.reference.host, false);
        for &(node, epoch) in &self.epochs {
            let by_clock = self.engine.order().host_knows(epoch);
            prop_assert_eq!(
                by_clock,
                host[node.index()],
                "host knows {:?}, step {}",
                epoch,
                place
            );
        }
        let Some(&(last, now)) = self.epochs.last() else {
            return Ok(());
        };
        let past = self.reference.past(Some(last), false);
        let id = self.engine.order().stream_of(now.slot);
        for &(node, epoch) in &self.epochs {
            // The newest operation's stream has done nothing since, unless the
            // step was none of a stream's.
            if id.is_some_and(|id| self.engine.order().epoch_of_last(id) == Some(now)) {
                let by_graph = self.engine.order().reaches(epoch, now);
                prop_assert_eq!(
                    by_graph,
                    past[node.index()],
                    "{:?} reaches {:?}, step {}",
                    epoch,
                    now,
                    place
                );
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn clocks_graph_and_verdicts_agree_with_the_unpruned_graph(
        steps in proptest::collection::vec(step(), 1..48)
    ) {
        let mut run = Run::new();
        for (place, step) in steps.iter().enumerate() {
            run.step(place, step)?;
            run.compare_orders(place)?;
        }
    }
}
