//! Random programs, judged twice.
//!
//! The reference here shares nothing with the engine but the text of the model: it
//! keeps a graph with a node for every operation, prunes nothing, and answers
//! "ordered?" by walking it. The engine's clocks, its segment graph and its
//! verdicts must agree with that on every program.

mod program;
mod reference;

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use smallvec::SmallVec;
use streamcheck_model::{
    Action, BatchCopy, Call, Condition, ContextId, DeviceId, Direction, Flag, FreeKind, Handle,
    HostMemory, MemoryKind, Mode, NameId, Operation, Outcome, Pointer, Region, SourceOrder,
    StackId, StreamRef, ThreadId,
};

use crate::clock::Epoch;
use crate::{Engine, Levels};
use program::{BLOCK, Pair, Shape, Step, Weights, steps};
use reference::{
    Access, Block, Fate, Footprint, LineId, Node, Reference, Scope, Verdict, conflict,
};

/// Where the memory lies that CUDA was not told of.
const PAGEABLE: u64 = 0x5500_0000_0000;

/// One side of a copy.
#[derive(Clone, Copy, PartialEq)]
struct Side {
    address: u64,
    /// Host memory, as the call says.
    host: bool,
    /// The memory that CUDA knows there, if it is live.
    kind: Option<MemoryKind>,
}

impl Side {
    fn is_pageable(self) -> bool {
        self.host && self.kind.is_none_or(|kind| kind == MemoryKind::System)
    }

    fn place(self, inferred: bool) -> Place {
        match self.kind {
            Some(MemoryKind::System) => Place::Pageable,
            Some(kind) if kind.is_host() => Place::Pinned,
            Some(_) => Place::Device,
            None if inferred => Place::Unknown,
            None if self.host => Place::Pageable,
            None => Place::Device,
        }
    }
}

/// Where one side of a copy lies.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Device,
    Pinned,
    Pageable,
    /// The call does not say, and nobody knows the memory.
    Unknown,
}

struct Run {
    engine: Engine,
    reference: Reference,
    call: Call,
    /// Where the engine put each of the reference's stream operations.
    epochs: Vec<(Node, Epoch)>,
    fresh: u64,
    /// Host functions that have not begun to run.
    functions: Vec<(u64, Node)>,
    reported: HashSet<Verdict>,
    /// The reference's operations by the engine's numbers.
    numbered: HashMap<u64, Node>,
    /// What findings showed as ordered: pairs of the engine's numbers.
    shown: HashSet<(u64, u64)>,
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
            functions: Vec::new(),
            reported: HashSet::new(),
            numbered: HashMap::new(),
            shown: HashSet::new(),
        }
    }

    fn stream(n: usize) -> StreamRef {
        match n {
            0..4 => StreamRef::Created(Handle(0x100 + n as u64)),
            4 | 5 => StreamRef::Legacy,
            _ => StreamRef::PerThread,
        }
    }

    /// The stream of calls that take none.
    fn default_stream(n: usize) -> StreamRef {
        Self::stream(4 + n % 4)
    }

    fn apply(&mut self, action: Action) -> Vec<&'static str> {
        let operation = Operation {
            call: self.call,
            action,
        };
        let found = self.engine.apply(&operation);
        for edge in found.iter().flat_map(|finding| &finding.timeline.edges) {
            self.shown.insert((edge.from, edge.to));
        }
        let found = found.into_iter();
        let mut codes: Vec<&str> = found
            .map(|finding| finding.rule)
            // A matter of speed, with litmus programs of its own.
            .filter(|rule| *rule != crate::RuleCode::SC202)
            .map(|rule| {
                let code = crate::RULES[rule as usize].code.to_string();
                CODES
                    .iter()
                    .copied()
                    .find(|known| *known == code)
                    .unwrap_or("?")
            })
            .collect();
        codes.sort_unstable();
        codes
    }

    fn here(&self) -> Scope {
        Scope::Context(self.call.device, self.call.context)
    }

    fn site(&self) -> u32 {
        self.call.stack.0
    }

    fn resolve(&mut self, stream: StreamRef) -> LineId {
        self.reference.resolve(stream, &self.call)
    }

    /// Notes where the engine put the operation that the stream was given last.
    fn placed(&mut self, stream: StreamRef, node: Node) {
        let id = self.engine.order().resolve(stream, &self.call);
        let epoch = self.engine.order().epoch_of_last(id).unwrap();
        self.epochs.push((node, epoch));
        let number = self.engine.summary().operations;
        self.numbered.entry(number).or_insert(node);
    }

    fn submit(&mut self, stream: StreamRef) -> Node {
        let line = self.resolve(stream);
        let node = self.reference.submit(line);
        self.placed(stream, node);
        node
    }

    /// The block that a number picks: the newest owner of some block's address.
    fn pick(&self, n: usize) -> Option<usize> {
        let blocks = &self.reference.blocks;
        let place = blocks.len().checked_sub(1 + n % blocks.len().max(1))?;
        let owner = self.reference.owner(blocks[place].base)?;
        (blocks[owner].kind != MemoryKind::System).then_some(owner)
    }

    fn side(&self, n: usize) -> Option<Side> {
        let address = match n.checked_sub(Step::BLOCKS) {
            Some(n) => PAGEABLE + 0x1000 * n as u64,
            None => self.reference.blocks[self.pick(n)?].base,
        };
        let block = self
            .reference
            .owner(address)
            .map(|i| &self.reference.blocks[i]);
        Some(Side {
            address,
            host: n >= Step::BLOCKS || block.is_some_and(|block| block.kind.is_host()),
            kind: block
                .filter(|block| block.fate == Fate::Live)
                .map(|block| block.kind),
        })
    }

    /// The bytes of a shape at a side; over two mappings where there are two.
    fn region(&self, side: Side, shape: Shape, plain: bool) -> Region {
        if side.is_pageable() {
            return Region::linear(side.address, BLOCK);
        }
        let region = if plain {
            shape.plain_at(side.address)
        } else {
            shape.at(side.address)
        };
        let next = self.reference.live(side.address + BLOCK);
        let two = side.kind == Some(MemoryKind::Mapped)
            && next.is_some_and(|next| self.reference.blocks[next].kind == MemoryKind::Mapped);
        if two && region == Shape::middle(side.address) {
            Shape::astride(side.address)
        } else {
            region
        }
    }

    /// Judges what an operation does to some bytes.
    fn touch(&mut self, access: Access, found: &mut Vec<Verdict>) {
        let (start, end) = match access.what {
            Footprint::Pointer(address, _) => (address, address + 1),
            Footprint::Bytes(region) if region.bytes() == 0 => return,
            Footprint::Bytes(region) => (region.address, region.end()),
        };
        if access.mode != Mode::Read && !access.signals {
            let owner = self
                .reference
                .live(start)
                .map(|block| &self.reference.blocks[block]);
            let end = match access.what {
                Footprint::Pointer(..) => owner.map_or(start, |block| block.base + block.size),
                Footprint::Bytes(_) => end,
            };
            self.reference.overwritten(start, end);
        }
        let first = self.reference.owner(start);
        let last = self
            .reference
            .owner(end - 1)
            .filter(|last| Some(*last) != first);
        for block in first.into_iter().chain(last) {
            self.reference.touch(block, access, found);
        }
    }

    fn access(&self, node: Node, line: LineId, what: Footprint, mode: Mode) -> Access {
        Access {
            node,
            line,
            what,
            mode,
            early: false,
            over: false,
            signals: false,
            unfit: false,
            site: self.site(),
        }
    }

    /// Takes a step on both sides and compares what they found.
    fn step(&mut self, place: usize, step: &Step) -> Result<(), TestCaseError> {
        // A site of its own for every operation, so that none is a repetition.
        self.call.stack = StackId(place as u32 * 4 + 1);
        let mut want: Vec<Verdict> = Vec::new();
        let got = self.take(step, &mut want);
        let news = want
            .into_iter()
            .filter(|verdict| self.reported.insert(*verdict));
        let mut want: Vec<&str> = news.map(|(rule, ..)| rule).collect();
        want.sort_unstable();
        prop_assert_eq!(got, want, "at step {} {:?}", place, step);
        Ok(())
    }

    fn take(&mut self, step: &Step, want: &mut Vec<Verdict>) -> Vec<&'static str> {
        match *step {
            Step::Switch { thread, context } => {
                let (device, context) = [(0, 0), (1, 1), (0, 0x1_0000), (0, 0x8000_0000)][context];
                self.call.thread = ThreadId(thread);
                self.call.device = DeviceId(device);
                self.call.context = ContextId(context);
                Vec::new()
            }
            Step::Create { slot, blocking } => {
                let handle = 0x100 + slot as u64;
                self.reference.create(handle, blocking, &self.call);
                let stream = Handle(handle);
                self.apply(Action::StreamCreated { stream, blocking })
            }
            Step::Destroy { slot } => {
                let handle = 0x100 + slot as u64;
                self.reference.destroy(handle);
                let stream = Handle(handle);
                self.apply(Action::StreamDestroyed { stream })
            }
            Step::Enqueue { stream } => {
                let stream = Self::stream(stream);
                let got = self.apply(Action::Enqueued { stream });
                self.submit(stream);
                got
            }
            Step::NewEvent { .. }
            | Step::DropEvent { .. }
            | Step::Record { .. }
            | Step::Wait { .. }
            | Step::SyncEvent { .. }
            | Step::RecordContext { .. }
            | Step::WaitContext { .. } => self.take_event(step, want),
            Step::SyncStream { stream, polled } => {
                let stream = Self::stream(stream);
                let got = self.apply(Action::StreamSynchronized { stream, polled });
                let line = self.resolve(stream);
                self.reference.synchronize_stream(line);
                got
            }
            Step::SyncDevice => {
                self.reference
                    .synchronize(Scope::Device(self.call.device), true);
                self.apply(Action::DeviceSynchronized)
            }
            Step::SyncContext => {
                self.reference.synchronize(self.here(), true);
                self.apply(Action::ContextSynchronized)
            }
            Step::EndContext => {
                self.reference.end_context(self.here());
                self.apply(Action::ContextDestroyed)
            }
            Step::Barrier { devices } => {
                let devices = [&[0][..], &[1], &[0, 1]][devices];
                let devices: SmallVec<[DeviceId; 3]> =
                    devices.iter().map(|d| DeviceId(*d)).collect();
                self.reference.barrier(&devices);
                self.apply(Action::Barrier { devices })
            }
            Step::Alloc {
                stream,
                kind,
                reuse,
            } => self.take_alloc(stream, kind, reuse),
            Step::Free { .. } => self.take_free(step, want),
            Step::Release { host } => self.take_release(host, want),
            Step::Launch {
                stream,
                ref pointers,
            } => self.take_launch(stream, pointers, want),
            Step::Copy { .. } => self.take_copy(step, want),
            Step::Fill {
                stream,
                to,
                shape,
                synchronous,
            } => self.take_fill(stream, to, shape, synchronous, want),
            Step::Batch { stream, ref copies } => self.take_batch(stream, copies, want),
            Step::HostFunction { stream } => {
                let stream = Self::stream(stream);
                let token = self.epochs.len() as u64;
                let got = self.apply(Action::HostFunctionEnqueued { stream, token });
                let node = self.submit(stream);
                self.functions.push((token, node));
                got
            }
            Step::HostFunctionRuns { which } => {
                if self.functions.is_empty() {
                    return Vec::new();
                }
                let (token, node) = self.functions.remove(which % self.functions.len());
                self.reference.host_knows(node);
                self.apply(Action::HostFunctionStarted { token })
            }
            Step::WriteValue { .. } | Step::WaitValue { .. } => self.take_value(step, want),
        }
    }

    fn take_event(&mut self, step: &Step, want: &mut Vec<Verdict>) -> Vec<&'static str> {
        match *step {
            Step::NewEvent { event } => {
                self.reference.events.insert(event, None);
                self.apply(Action::EventCreated {
                    event: Handle(event),
                })
            }
            Step::DropEvent { event } => {
                self.reference.events.remove(&event);
                self.apply(Action::EventDestroyed {
                    event: Handle(event),
                })
            }
            Step::Record { event, stream } => {
                let stream = Self::stream(stream);
                let got = self.apply(Action::EventRecorded {
                    event: Handle(event),
                    stream,
                });
                let node = self.submit(stream);
                self.reference.events.insert(event, Some(node));
                got
            }
            Step::Wait { event, stream } => {
                let stream = Self::stream(stream);
                let got = self.apply(Action::StreamWaited {
                    event: Handle(event),
                    stream,
                });
                let line = self.resolve(stream);
                if self.reference.events.get(&event) == Some(&None) {
                    want.push(("SC112", 0, self.site()));
                } else {
                    let node = self.reference.wait(line, event);
                    self.placed(stream, node);
                }
                got
            }
            Step::SyncEvent { event, polled } => {
                self.reference.synchronize_event(event);
                self.apply(Action::EventSynchronized {
                    event: Handle(event),
                    polled,
                })
            }
            Step::RecordContext { event } => {
                self.reference.record_scope(event, self.here());
                self.apply(Action::ContextRecorded {
                    event: Handle(event),
                })
            }
            Step::WaitContext { event } => {
                if self.reference.events.get(&event) == Some(&None) {
                    want.push(("SC112", 0, self.site()));
                }
                self.reference.wait_scope(event, self.here());
                self.apply(Action::ContextWaited {
                    event: Handle(event),
                })
            }
            _ => unreachable!(),
        }
    }

    fn take_alloc(&mut self, stream: usize, kind: MemoryKind, reuse: bool) -> Vec<&'static str> {
        let stream = Self::stream(stream);
        let old = self.reference.blocks.iter().rev().find(|block| {
            let owner = self
                .reference
                .owner(block.base)
                .map(|i| &self.reference.blocks[i]);
            block.kind != MemoryKind::System && owner.is_some_and(|owner| owner.fate != Fate::Live)
        });
        let base = old.filter(|_| reuse).map(|block| block.base);
        let bases: SmallVec<[u64; 2]> = match base {
            Some(base) => SmallVec::from_iter([base]),
            // A buffer over two mappings.
            None if kind == MemoryKind::Mapped => {
                SmallVec::from_iter([self.fresh, self.fresh + BLOCK])
            }
            None => SmallVec::from_iter([self.fresh]),
        };
        self.fresh += 0x1000;
        let mut got = Vec::new();
        for base in bases {
            let on = (kind == MemoryKind::StreamOrdered).then_some(stream);
            self.call.stack.0 += 1;
            got.extend(self.apply(Action::Allocated {
                address: base,
                size: BLOCK,
                kind,
                stream: on,
                pool: Handle::default(),
            }));
            let birth = on.map(|stream| self.submit(stream));
            let recycled = |before: &usize| {
                let before = &self.reference.blocks[*before];
                before.fate == Fate::Freed && before.kind == kind && on.is_some()
            };
            let before = self.reference.owner(base).filter(recycled);
            let site = self.site();
            self.reference.overwritten(base, base + BLOCK);
            self.reference.blocks.push(Block {
                base,
                size: BLOCK,
                kind,
                device: self.call.device,
                context: self.call.context,
                site,
                birth,
                uses: Vec::new(),
                free: None,
                fate: Fate::Live,
                before,
            });
        }
        got
    }

    fn take_free(&mut self, step: &Step, want: &mut Vec<Verdict>) -> Vec<&'static str> {
        let Step::Free {
            stream,
            block,
            kind,
            inside,
            outcome,
        } = *step
        else {
            unreachable!()
        };
        let Some(index) = self.pick(block) else {
            return Vec::new();
        };
        let Block {
            base,
            kind: memory,
            fate,
            device,
            context,
            ..
        } = self.reference.blocks[index];
        let kind = kind.unwrap_or(match memory {
            MemoryKind::Pinned | MemoryKind::System => FreeKind::Host,
            MemoryKind::Registered => FreeKind::Unregister,
            MemoryKind::Mapped => FreeKind::Unmap,
            _ if stream.is_multiple_of(3) => FreeKind::Sync,
            _ => FreeKind::Async,
        });
        let right = match kind {
            FreeKind::Async | FreeKind::Sync => matches!(
                memory,
                MemoryKind::StreamOrdered | MemoryKind::Device | MemoryKind::Managed
            ),
            FreeKind::Host => memory == MemoryKind::Pinned,
            FreeKind::Unregister => memory == MemoryKind::Registered,
            FreeKind::Unmap => memory == MemoryKind::Mapped,
            FreeKind::Libc | FreeKind::Import => unreachable!(),
        };
        let on = (kind == FreeKind::Async).then_some(Self::stream(stream));
        let address = base + if inside { 0x100 } else { 0 };
        on.map(|stream| self.resolve(stream));
        let mut got = self.apply(Action::FreeBegun {
            address,
            kind,
            stream: on,
            part: None,
        });
        got.extend(self.apply(Action::FreeEnded { outcome }));
        let (site, succeeded) = (self.site(), outcome == Outcome::Succeeded);
        let twice = fate == Fate::Freed && on.is_some() | (kind == FreeKind::Sync) && !inside;
        if fate == Fate::Live && (!right || inside) || twice {
            want.push(("SC106", self.reference.blocks[index].site, site));
        } else if fate != Fate::Live {
            if outcome == Outcome::Refused {
                want.push(("SC106", 0, site));
            }
            if succeeded && let Some(stream) = on {
                self.submit(stream);
            }
        } else if succeeded {
            let at = on.map(|stream| self.submit(stream));
            want.extend(self.reference.judge_free(index, kind, at, site));
            let waits = match kind {
                FreeKind::Sync => memory != MemoryKind::StreamOrdered,
                FreeKind::Host | FreeKind::Unregister => true,
                _ => false,
            };
            let remembered = matches!(
                memory,
                MemoryKind::StreamOrdered | MemoryKind::Device | MemoryKind::Mapped
            );
            let block = &mut self.reference.blocks[index];
            block.fate = if remembered {
                Fate::Freed
            } else {
                Fate::Forgotten
            };
            block.free = at.or(self.reference.host);
            if waits {
                let scope = match kind {
                    FreeKind::Sync => Scope::Context(device, context),
                    _ => self.here(),
                };
                self.reference.synchronize(scope, false);
            }
        }
        got
    }

    /// The C library's `free`. What was registered stays so.
    fn take_release(&mut self, host: usize, want: &mut Vec<Verdict>) -> Vec<&'static str> {
        let system = self.reference.live(PAGEABLE).filter(|_| host < 3);
        let Some(index) = system.or_else(|| self.pick(host)) else {
            return Vec::new();
        };
        let block = &self.reference.blocks[index];
        let address = block.base;
        if block.fate != Fate::Live || !block.kind.is_host() {
            return Vec::new();
        }
        let kind = FreeKind::Libc;
        want.extend(self.reference.judge_free(index, kind, None, self.site()));
        let mut got = self.apply(Action::FreeBegun {
            address,
            kind,
            stream: None,
            part: None,
        });
        got.extend(self.apply(Action::FreeEnded {
            outcome: Outcome::Succeeded,
        }));
        got
    }

    fn take_launch(
        &mut self,
        stream: usize,
        picks: &[(usize, u64, Mode, u32)],
        want: &mut Vec<Verdict>,
    ) -> Vec<&'static str> {
        let stream = Self::stream(stream);
        let pointers: SmallVec<[Pointer; 6]> = picks
            .iter()
            .filter_map(|&(block, offset, mode, shift)| {
                let base = self.reference.blocks[self.pick(block)?].base;
                // Where two blocks meet, a pointer may be the first one's end.
                let meets = offset == 0 && self.reference.owner(base - 1).is_some();
                let address = base + if meets { 0x200 } else { offset };
                Some(Pointer {
                    address,
                    mode,
                    shift,
                    used: streamcheck_model::Used::Perhaps,
                    element: streamcheck_model::Element::default(),
                })
            })
            .collect();
        let got = self.apply(Action::Launched {
            stream,
            kernel: NameId::default(),
            pointers: pointers.clone(),
            layout_known: true,
        });
        let node = self.submit(stream);
        let line = self.resolve(stream);
        for pointer in pointers {
            if pointer.mode != Mode::Doubtful {
                let what = Footprint::Pointer(pointer.address, pointer.shift);
                self.touch(self.access(node, line, what, pointer.mode), want);
            }
        }
        got
    }

    fn take_copy(&mut self, step: &Step, want: &mut Vec<Verdict>) -> Vec<&'static str> {
        let Step::Copy {
            stream,
            to,
            from,
            to_shape,
            from_shape,
            synchronous,
            inferred,
        } = *step
        else {
            unreachable!()
        };
        let (Some(target), Some(source)) = (self.side(to), self.side(from)) else {
            return Vec::new();
        };
        // Of the memory that a batch may use more may be known.
        let inferred = inferred && [source, target].iter().all(|side| side.address != PAGEABLE);
        let stream = if synchronous {
            Self::default_stream(stream)
        } else {
            Self::stream(stream)
        };
        let to = self.region(target, to_shape, false);
        let from = self.region(source, from_shape, false);
        let got = self.apply(Action::Copied {
            stream,
            to,
            from,
            direction: match (source.host, target.host) {
                _ if inferred => Direction::Inferred,
                (true, true) => Direction::HostToHost,
                (true, false) => Direction::HostToDevice,
                (false, true) => Direction::DeviceToHost,
                (false, false) => Direction::DeviceToDevice,
            },
            host: HostMemory::Unasked,
            synchronous,
        });
        let line = self.resolve(stream);
        if to.bytes() == 0 && from.bytes() == 0 {
            self.submit(stream);
            return got;
        }
        let devices = self.devices_met(stream, source, target);
        self.reference.barrier(&devices);
        let node = self.reference.submit(line);
        self.reference.barrier(&devices);
        // The call's number stands for the copy, not for the barrier after it.
        self.numbered.insert(self.engine.summary().operations, node);
        self.placed(stream, self.reference.last(line));
        let (read, written) = (source.place(inferred), target.place(inferred));
        for (place, region, mode) in [(read, from, Mode::Read), (written, to, Mode::Write)] {
            if place != Place::Pageable {
                let access = self.access(node, line, Footprint::Bytes(region), mode);
                self.touch(access, want);
            }
        }
        if [read, written].contains(&Place::Pageable) && !synchronous {
            want.push(("SC201", 0, self.site()));
        }
        let managed = [source, target]
            .iter()
            .any(|side| side.kind == Some(MemoryKind::Managed));
        let host = |place| matches!(place, Place::Pinned | Place::Pageable);
        if host(written) && (synchronous || host(read)) {
            self.reference.host_knows(node);
        } else if written == Place::Pageable {
            self.reference.host_happens_to_know(node);
        } else if (read, written) == (Place::Pinned, Place::Device) && synchronous {
            self.reference.host_knows(node);
        } else if synchronous && (managed || [read, written].contains(&Place::Unknown)) {
            self.reference.host_may_know(node);
        }
        got
    }

    /// A copy between two devices in the null stream comes after all earlier work of
    /// theirs, and before all later.
    fn devices_met(&self, stream: StreamRef, source: Side, target: Side) -> Vec<DeviceId> {
        let device = |side: Side| {
            let block = &self.reference.blocks[self.reference.live(side.address)?];
            let kinds = [MemoryKind::Device, MemoryKind::StreamOrdered];
            kinds.contains(&block.kind).then_some(block.device)
        };
        match (stream, device(source), device(target)) {
            (StreamRef::Legacy, Some(from), Some(to)) if from != to => vec![from, to],
            _ => Vec::new(),
        }
    }

    fn take_fill(
        &mut self,
        stream: usize,
        to: usize,
        shape: Shape,
        synchronous: bool,
        want: &mut Vec<Verdict>,
    ) -> Vec<&'static str> {
        let Some(side) = self.side(to) else {
            return Vec::new();
        };
        let stream = if synchronous {
            Self::default_stream(stream)
        } else {
            Self::stream(stream)
        };
        let to = self.region(side, shape, false);
        let got = self.apply(Action::Filled {
            stream,
            to,
            synchronous,
        });
        let node = self.submit(stream);
        let line = self.resolve(stream);
        if to.bytes() != 0 {
            self.touch(
                self.access(node, line, Footprint::Bytes(to), Mode::Write),
                want,
            );
            let waits = |kind: MemoryKind| kind.is_host() || kind == MemoryKind::Managed;
            if synchronous && side.kind.is_some_and(waits) {
                self.reference.host_knows(node);
            }
        }
        got
    }

    fn take_batch(
        &mut self,
        stream: usize,
        pairs: &[Pair],
        want: &mut Vec<Verdict>,
    ) -> Vec<&'static str> {
        let stream = Self::stream(stream);
        let mut copies = Vec::new();
        for pair in pairs {
            // One place for memory that CUDA was not told of.
            let side = |n: usize| self.side(n.min(Step::BLOCKS));
            let (Some(to), Some(from)) = (side(pair.to), side(pair.from)) else {
                continue;
            };
            // Read during the call, and written by another copy of it: not judged.
            let written = pairs.iter().any(|pair| pair.to >= Step::BLOCKS);
            if pair.order == SourceOrder::DuringCall && from.is_pageable() && written {
                continue;
            }
            let told = |side: Side| side.address == PAGEABLE || side.kind.is_some();
            if to.address == from.address || !told(to) || !told(from) {
                continue;
            }
            let pageable = [to, from].iter().any(|side| side.address == PAGEABLE);
            let copy = BatchCopy {
                to: self.region(to, pair.to_shape, true),
                from: self.region(from, pair.from_shape, true),
                host: if pageable {
                    HostMemory::Pageable
                } else {
                    HostMemory::Unasked
                },
                order: pair.order,
            };
            copies.push((copy, to, from));
        }
        let got = self.apply(Action::CopiedTogether {
            stream,
            copies: copies.iter().map(|(copy, ..)| *copy).collect(),
        });
        let node = self.submit(stream);
        let line = self.resolve(stream);
        let mut touched: Vec<Access> = Vec::new();
        for (copy, to, from) in copies {
            let during = copy.order == SourceOrder::DuringCall;
            if during && from.is_pageable() {
                want.push(("SC201", 0, self.site()));
            }
            for (side, lasts) in [(from, !during), (to, true)] {
                if side.is_pageable() && lasts && self.reference.live(PAGEABLE).is_none() {
                    let site = self.site();
                    self.reference.blocks.push(Block {
                        base: PAGEABLE,
                        size: BLOCK,
                        kind: MemoryKind::System,
                        device: self.call.device,
                        context: self.call.context,
                        site,
                        birth: None,
                        uses: Vec::new(),
                        free: None,
                        fate: Fate::Live,
                        before: None,
                    });
                }
            }
            if from.is_pageable() && self.reference.live(PAGEABLE).is_none() {
                touched.push(self.access(node, line, Footprint::Bytes(copy.to), Mode::Write));
                continue;
            }
            touched.push(Access {
                early: copy.order != SourceOrder::Stream,
                over: during,
                ..self.access(node, line, Footprint::Bytes(copy.from), Mode::Read)
            });
            touched.push(self.access(node, line, Footprint::Bytes(copy.to), Mode::Write));
        }
        want.extend(self.race_within(&touched));
        for access in touched {
            self.touch(access, want);
        }
        got
    }

    /// The copies of one call have no order; one finding says so.
    fn race_within(&self, touched: &[Access]) -> Option<Verdict> {
        let bytes = |access: &Access| match access.what {
            Footprint::Bytes(region) => region,
            Footprint::Pointer(..) => unreachable!(),
        };
        let mut met: Vec<u64> = Vec::new();
        for (place, a) in touched.iter().enumerate() {
            for b in &touched[..place] {
                if conflict(a.mode, b.mode) && a.what.meets(&b.what) {
                    met.push(bytes(a).address.max(bytes(b).address));
                }
            }
        }
        met.sort_unstable();
        let block = met
            .into_iter()
            .find_map(|address| self.reference.live(address))?;
        Some(("SC109", self.reference.blocks[block].site, self.site()))
    }

    fn take_value(&mut self, step: &Step, want: &mut Vec<Verdict>) -> Vec<&'static str> {
        let (Step::WriteValue {
            stream,
            flag,
            value,
        }
        | Step::WaitValue {
            stream,
            flag,
            value,
            ..
        }) = *step
        else {
            unreachable!()
        };
        let stream = Self::stream(stream);
        let line = self.resolve(stream);
        let block = self.pick(0).map(|block| self.reference.blocks[block].base);
        let flag = match (flag, block) {
            (2, _) => Flag::Semaphore(Handle(7)),
            (3, Some(base)) => Flag::Memory(base),
            (n, _) => Flag::Memory(0x10 + n as u64),
        };
        let (got, node) = match *step {
            Step::WriteValue { .. } => {
                let got = self.apply(Action::ValueWritten {
                    stream,
                    flag,
                    value,
                });
                let node = self.reference.write_value(line, flag, value);
                let owner = match flag {
                    Flag::Memory(address) => self.reference.live(address),
                    Flag::Semaphore(_) => None,
                };
                let kind = owner.map(|block| self.reference.blocks[block].kind);
                if kind.is_none_or(|kind| kind.is_host() || kind == MemoryKind::Managed) {
                    let past = self.reference.past(Some(node), false);
                    self.reference.shown.push(past);
                }
                (got, node)
            }
            Step::WaitValue { condition, .. } => {
                let condition = match flag {
                    Flag::Semaphore(_) => Condition::Signalled,
                    Flag::Memory(_) => condition,
                };
                let waited = Action::ValueWaited {
                    stream,
                    flag,
                    value,
                    condition,
                };
                let got = self.apply(waited);
                (
                    got,
                    self.reference.wait_for_value(line, flag, value, condition),
                )
            }
            _ => unreachable!(),
        };
        self.placed(stream, node);
        if let Flag::Memory(address) = flag {
            let word = Footprint::Bytes(Region::linear(address, 4));
            let access = Access {
                signals: true,
                ..self.access(node, line, word, Mode::Unknown)
            };
            self.touch(access, want);
        }
        got
    }

    /// What the host knows, by clock and by reference.
    fn compare_clocks(&mut self, place: usize) -> Result<(), TestCaseError> {
        let host = self.reference.past(self.reference.host, false);
        let promised = self.reference.past(self.reference.host, true);
        for &(node, epoch) in &self.epochs {
            let order = self.engine.order();
            let by_clock = (order.host_knows(epoch), order.host_is_promised(epoch));
            let by_graph = (host[node], promised[node]);
            prop_assert_eq!(by_clock, by_graph, "host knows {:?}, step {}", epoch, place);
        }
        Ok(())
    }

    /// What comes before the newest operation, by segment graph and by reference.
    fn compare_graphs(&mut self) -> Result<(), TestCaseError> {
        let Some(&(last, now)) = self.epochs.last() else {
            return Ok(());
        };
        let past = self.reference.past(Some(last), false);
        let id = self.engine.order().stream_of(now.slot);
        // Its stream has done nothing since, unless the last steps were none of a
        // stream's.
        if id.is_some_and(|id| self.engine.order().epoch_of_last(id) == Some(now)) {
            for &(node, epoch) in &self.epochs {
                let by_graph = self.engine.order().reaches(epoch, now);
                prop_assert_eq!(by_graph, past[node], "{:?} reaches {:?}", epoch, now);
            }
        }
        Ok(())
    }
}

impl Run {
    /// What timelines showed as ordered is so. Of the host's operations the reference
    /// has no numbers.
    fn compare_timelines(&self) -> Result<(), TestCaseError> {
        for (from, to) in &self.shown {
            if let (Some(&before), Some(&after)) = (self.numbered.get(from), self.numbered.get(to))
            {
                let past = self.reference.past(Some(after), false);
                prop_assert!(past[before], "{} is not before {}", from, to);
            }
        }
        Ok(())
    }
}

/// The codes that the reference knows.
const CODES: &[&str] = &[
    "SC101", "SC102", "SC103", "SC104", "SC105", "SC106", "SC107", "SC109", "SC112", "SC201",
    "SC203",
];

fn agree(steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut run, mut host) = (Run::new(), None);
    for (place, step) in steps.iter().enumerate() {
        run.step(place, step)?;
        if std::mem::replace(&mut host, run.reference.host) != run.reference.host {
            run.compare_clocks(place)?;
        }
    }
    run.compare_clocks(steps.len())?;
    run.compare_timelines()?;
    run.compare_graphs()
}

/// 2,500 programs of each kind, or as many as the environment says.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig {
        cases: if asked { config.cases } else { 2_500 },
        failure_persistence: None,
        ..config
    }
}

const SOME: Weights = Weights {
    order: 1,
    contexts: 0,
    values: 0,
    lifetimes: 1,
    bytes: 0,
    unknown: 0,
};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn streams_and_events_agree_with_the_unpruned_graph(
        steps in steps(Weights { unknown: 1, ..SOME })
    ) {
        agree(&steps)?;
    }

    #[test]
    fn copies_and_fills_agree_with_the_unpruned_graph(
        steps in steps(Weights { bytes: 2, ..SOME })
    ) {
        agree(&steps)?;
    }

    #[test]
    fn values_agree_with_the_unpruned_graph(
        steps in steps(Weights { values: 2, ..SOME })
    ) {
        agree(&steps)?;
    }

    #[test]
    fn contexts_and_all_the_rest_agree_with_the_unpruned_graph(
        steps in steps(Weights { order: 1, contexts: 1, values: 1, lifetimes: 1, bytes: 1, unknown: 1 })
    ) {
        agree(&steps)?;
    }
}

/// Waits of a whole context are for the streams that are there, and one whose handle was given
/// to another is not.
#[test]
fn a_stream_that_was_destroyed_out_of_sight_waits_for_nothing() {
    let steps = [
        Step::Launch {
            stream: 1,
            pointers: vec![(0, 0, Mode::Read, 0)],
        },
        Step::Switch {
            thread: 1,
            context: 1,
        },
        Step::Record {
            event: 0,
            stream: 2,
        },
        Step::Create {
            slot: 1,
            blocking: false,
        },
        Step::Switch {
            thread: 1,
            context: 0,
        },
        Step::WaitContext { event: 0 },
        Step::SyncDevice,
    ];
    agree(&steps).unwrap();
}
