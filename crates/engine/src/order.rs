//! What happens before what: streams, events and the host.
//!
//! The model is CUDA's, as the programming guide ("Asynchronous Concurrent
//! Execution") and the stream and event chapters of the API reference give it:
//!
//! - all host threads are one timeline, the order in which calls return;
//! - work in one stream is in order, and comes after everything the host knew
//!   complete when it was submitted;
//! - an event record captures its stream's past, and a wait, a synchronize or a
//!   successful query passes that on;
//! - an operation on a context's legacy default stream comes after all earlier
//!   work of the context's blocking streams, and before all their later work;
//! - what a whole context or device takes part in goes through a line of its own,
//!   which streams made later come after too;
//! - a wait for a value comes after the writes that could end it (`values`).
//!
//! A wait made on the device teaches the host nothing.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::{
    Call, Condition, ContextId, DeviceId, Flag, Handle, NameId, StackId, StreamRef,
};

use crate::clock::{Awaited, Epoch, Frontier, HOST, Horizon, MANY, Slot, Spare, Time, Timeline};
use crate::graph::{Link, Reason, SegmentGraph};
use crate::host_functions::HostFunctions;
use crate::op::{Access, OpRef};
use crate::recent::Recent;
use crate::streams::{Facts, Stream, Streams};
use crate::values::{Ended, Values};

pub(crate) use crate::streams::{StreamId, StreamKind};

#[derive(Debug, Default)]
struct Context {
    legacy: Option<StreamId>,
    /// Blocking streams with work since the legacy stream's last barrier.
    barrier: Vec<StreamId>,
}

/// Which streams a call means that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// All of a device.
    Device(DeviceId),
    /// Those of a device that take part in the legacy stream's barriers, and that stream.
    Blocking(DeviceId),
    /// A context's; with a device's primary one, those of its green contexts.
    Context(DeviceId, ContextId),
}

/// Whether a stream of the scope's device or context is one of those that it means.
fn takes_part(scope: Scope, kind: StreamKind) -> bool {
    match kind {
        StreamKind::Meeting => false,
        StreamKind::NonBlocking => !matches!(scope, Scope::Blocking(_)),
        _ => true,
    }
}

/// What a meeting line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Meet {
    /// It comes after earlier work.
    After,
    /// Later work comes after it.
    Before,
}

impl Scope {
    pub(crate) fn holds(self, device: u16, context: ContextId) -> bool {
        match self {
            Self::Device(whole) | Self::Blocking(whole) => whole.0 == device,
            Self::Context(of, whole) => {
                whole == context || (whole.is_primary() && context.is_green() && of.0 == device)
            }
        }
    }
}

#[derive(Debug, Default)]
struct Event {
    record: Option<Record>,
    /// The call that made it.
    by: Option<OpRef>,
    /// The record on another stream that it replaced.
    replaced: Option<OpRef>,
}

/// Such waits kept in mind.
const OVERTAKEN: usize = 64;

/// A wait for an event that was recorded anew on another stream before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overtaken {
    /// The wait.
    pub(crate) wait: OpRef,
    /// The record that it is for.
    pub(crate) record: OpRef,
    /// The record that was replaced.
    pub(crate) replaced: OpRef,
}

#[derive(Clone, Debug)]
struct Record {
    frontier: Frontier,
    /// Whoever knows this much of the stream learns of no work by the record.
    work: Time,
}

/// How a wait for an event turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The edge holds.
    Ordered,
    /// The edge held already.
    Redundant,
    /// The event has no record, so the wait does nothing.
    Unrecorded,
    /// The event's history is not known.
    Unknown,
}

/// How far one timeline is ordered after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The last point of the earlier timeline that the later one knows; time 0
    /// if it knows none.
    pub(crate) known: Epoch,
    /// Where the later timeline stood.
    pub(crate) now: Epoch,
}

/// The happens-before state.
#[derive(Debug)]
pub(crate) struct Order {
    host: Timeline,
    streams: Streams,
    contexts: FxHashMap<ContextId, Context>,
    events: FxHashMap<Handle, Event>,
    overtaken: VecDeque<Overtaken>,
    host_functions: HostFunctions,
    /// What the CPU may know by values that streams wrote where it sees them.
    polled: Timeline,
    /// Lines on which the streams of a scope meet: those that its later work comes
    /// after, and those that only gathered its earlier work.
    meetings: FxHashMap<(Scope, Meet), StreamId>,
    values: Values,
    /// Whether to tell waits that add nothing.
    judges_waits: bool,
    /// Whether any wait that is not promised has ordered anything.
    leans: bool,
    graph: SegmentGraph,
    spare: Spare,
    /// Destroyed streams of unknown progress that had to make room, taken as complete.
    pub(crate) forgotten_streams: u64,
    /// The newest operations.
    pub(crate) recent: Recent,
    /// Rises whenever the host learns of anything.
    pub(crate) host_news: u64,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            host: Timeline::new(HOST),
            streams: Streams::default(),
            contexts: FxHashMap::default(),
            events: FxHashMap::default(),
            overtaken: VecDeque::new(),
            host_functions: HostFunctions::default(),
            polled: Timeline::new(HOST),
            meetings: FxHashMap::default(),
            values: Values::default(),
            judges_waits: false,
            leans: false,
            graph: SegmentGraph::default(),
            spare: Spare::default(),
            forgotten_streams: 0,
            recent: Recent::default(),
            host_news: 0,
        }
    }
}

impl Order {
    /// Also tells which waits add nothing.
    pub(crate) fn judge_waits(&mut self) {
        self.judges_waits = true;
    }

    fn add(&mut self, kind: StreamKind, handle: Handle, call: &Call) -> StreamId {
        let facts = Facts {
            kind,
            context: call.context,
            device: call.device.0,
            number: 0,
            handle,
            name: NameId::default(),
            created: StackId::default(),
        };
        let old = self.room(call);
        let line = match old {
            Some(old) => Timeline::after(self.stream(old).line.now()),
            None => Timeline::new(self.streams.slots() as Slot + 1),
        };
        let id = self.streams.add(old, line, facts);
        if kind != StreamKind::Meeting {
            self.come_after_meetings(id);
        }
        id
    }

    /// The stream whose slot a new one takes, if there is one.
    fn room(&mut self, call: &Call) -> Option<StreamId> {
        let host = &self.host;
        let over = |stream: &Stream| {
            let known = host.is_promised(stream.line.now()) && stream.line.awaits().is_empty();
            known || stream.last.is_none()
        };
        let old = match self.streams.room(over) {
            Some(old) => old,
            None => {
                let old = self.streams.oldest_destroyed()?;
                self.forgotten_streams += 1;
                let op = OpRef::new(0, call, None);
                let frontier = self.stream_mut(old).line.frontier().guessed();
                self.host_learns(&frontier, Reason::Unseen, op);
                old
            }
        };
        let stream = self.streams.get(old);
        if stream.awaits_barrier
            && let Some(context) = self.contexts.get_mut(&stream.facts.context)
        {
            context.barrier.retain(|waiting| *waiting != old);
        }
        Some(old)
    }

    /// A new stream comes after what was to come before all later work of its
    /// context or device.
    fn come_after_meetings(&mut self, id: StreamId) {
        let Facts {
            device,
            context,
            kind,
            ..
        } = self.stream(id).facts;
        let met: Vec<StreamId> = self
            .meetings
            .iter()
            .filter(|((scope, meet), _)| {
                *meet == Meet::Before && scope.holds(device, context) && takes_part(*scope, kind)
            })
            .map(|(_, line)| *line)
            .collect();
        for line in met {
            let frontier = self.stream_mut(line).line.frontier();
            self.learn(id, &frontier, Reason::Scope, None);
        }
    }

    #[inline]
    fn stream(&self, id: StreamId) -> &Stream {
        self.streams.get(id)
    }

    #[inline]
    fn stream_mut(&mut self, id: StreamId) -> &mut Stream {
        self.streams.get_mut(id)
    }

    /// The stream that a call means. One whose creation was not seen is taken as
    /// blocking, which orders more and so alarms less.
    pub(crate) fn resolve(&mut self, stream: StreamRef, call: &Call) -> StreamId {
        match stream {
            StreamRef::Legacy => {
                if let Some(id) = self.contexts.entry(call.context).or_default().legacy {
                    return id;
                }
                let id = self.add(StreamKind::Legacy, Handle(0), call);
                self.contexts.entry(call.context).or_default().legacy = Some(id);
                id
            }
            StreamRef::PerThread => {
                if let Some(id) = self.streams.of_thread(call.thread, call.context) {
                    if self.streams.revive(id) {
                        self.come_after_meetings(id);
                    }
                    return id;
                }
                self.add(StreamKind::PerThread(call.thread), Handle(2), call)
            }
            StreamRef::Created(handle) => match self.streams.by_handle(handle) {
                Some(id) => id,
                None => self.new_stream(handle, true, call),
            },
        }
    }

    pub(crate) fn create_stream(&mut self, handle: Handle, blocking: bool, call: &Call) {
        let id = self.new_stream(handle, blocking, call);
        self.stream_mut(id).facts.created = call.stack;
    }

    fn new_stream(&mut self, handle: Handle, blocking: bool, call: &Call) -> StreamId {
        let kind = if blocking {
            StreamKind::Blocking
        } else {
            StreamKind::NonBlocking
        };
        self.add(kind, handle, call)
    }

    /// The streams of a context that ended are gone with it.
    pub(crate) fn destroy_context(&mut self, scope: Scope) {
        let gone = |facts: &Facts| scope.holds(facts.device, facts.context);
        self.streams.destroy_all(gone);
        let Scope::Context(_, ended) = scope else {
            return;
        };
        let mut lines: SmallVec<[StreamId; 4]> = SmallVec::new();
        let streams = &self.streams;
        self.contexts.retain(|id, context| {
            let legacy = context.legacy.filter(|id| gone(&streams.get(*id).facts));
            lines.extend(legacy);
            legacy.is_none() && *id != ended
        });
        self.meetings.retain(|(met, _), line| {
            let ends = match *met {
                Scope::Context(device, context) => scope.holds(device.0, context),
                Scope::Device(_) | Scope::Blocking(_) => false,
            };
            if ends {
                lines.push(*line);
            }
            !ends
        });
        for line in lines {
            self.streams.retire(line);
        }
    }

    /// The handle is free for another stream; the work of this one goes on.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) {
        self.streams.destroy(handle);
    }

    pub(crate) fn name_stream(&mut self, id: StreamId, name: NameId) {
        self.stream_mut(id).facts.name = name;
    }

    pub(crate) fn create_event(&mut self, event: Handle) {
        self.events.insert(event, Event::default());
    }

    /// Waits already made stand; the handle is free for another event.
    pub(crate) fn destroy_event(&mut self, event: Handle) {
        self.events.remove(&event);
    }

    /// Streams seen, default streams included.
    pub(crate) fn stream_count(&self) -> u64 {
        self.streams.count()
    }

    fn learn(
        &mut self,
        id: StreamId,
        frontier: &Frontier,
        reason: Reason,
        call: Option<OpRef>,
    ) -> bool {
        let line = &mut self.streams.get_mut(id).line;
        let told = (&mut self.graph, &mut self.spare);
        learn(told, line, frontier, reason, call)
    }

    fn host_learns(&mut self, frontier: &Frontier, reason: Reason, call: OpRef) -> bool {
        let told = (&mut self.graph, &mut self.spare);
        let news = learn(told, &mut self.host, frontier, reason, Some(call));
        self.leans |= news && reason == Reason::ImplicitSync;
        self.host_news += u64::from(news);
        if !frontier.awaits().is_empty() {
            self.host_learns_endings(frontier.awaits(), reason, call);
            // What the host knows complete is behind no open wait.
            self.host.retain_awaits(|_| false);
        }
        news
    }

    /// The host knows these waits over, and what ended them, which may have come after
    /// waits of its own.
    #[cold]
    fn host_learns_endings(&mut self, awaits: &[Awaited], reason: Reason, call: OpRef) {
        let mut open: Vec<Awaited> = awaits.to_vec();
        // Guesses may go round in a circle.
        let mut seen: Vec<Awaited> = Vec::new();
        while let Some(awaited) = open.pop() {
            let again = |known: &Awaited| {
                known.wait == awaited.wait && (known.guessed == awaited.guessed || !known.guessed)
            };
            if seen.iter().any(again) {
                continue;
            }
            seen.push(awaited);
            if let Some(write) = self.ending(awaited) {
                open.extend_from_slice(write.awaits());
                let told = (&mut self.graph, &mut self.spare);
                let news = learn(told, &mut self.host, &write, reason, Some(call));
                self.leans |= news && reason == Reason::ImplicitSync;
                self.host_news += u64::from(news);
            }
        }
        self.values.known(&seen);
    }

    /// The write that ended a wait, if it is not known complete.
    fn ending(&self, awaited: Awaited) -> Option<Frontier> {
        match self.values.ended(awaited.wait) {
            Ended::By(write) if awaited.guessed => Some(write.clone().guessed()),
            Ended::By(write) => Some(write.clone()),
            Ended::Open | Ended::Known => None,
        }
    }

    /// Drops the waits that are over, and puts the stream after what ended them.
    #[cold]
    fn settle_waits(&mut self, id: StreamId) {
        let mut ended: Vec<Frontier> = Vec::new();
        loop {
            let line = &self.streams.get(id).line;
            let writes = line
                .awaits()
                .iter()
                .filter_map(|awaited| self.ending(*awaited));
            ended.extend(writes.filter(|write| !line.is_promised(write.epoch)));
            if ended.is_empty() {
                break;
            }
            for write in ended.drain(..) {
                self.learn(id, &write, Reason::ValueWait, None);
            }
        }
        let values = &self.values;
        self.streams
            .get_mut(id)
            .line
            .retain_awaits(|wait| matches!(values.ended(wait), Ended::Open));
    }

    /// Everything that the model orders before whatever `id` is given next.
    fn prepare(&mut self, id: StreamId) {
        let joins = self.prepare_line(id);
        if !self.stream(id).line.awaits().is_empty() {
            self.settle_waits(id);
        }
        if joins {
            let stream = self.stream_mut(id);
            stream.work = stream.line.now().time;
        }
    }

    /// True if the stream comes after other streams' work by that.
    fn prepare_line(&mut self, id: StreamId) -> bool {
        let mut joins = false;
        if !self.stream(id).line.is_promised(self.host.now()) {
            let frontier = self.host.frontier();
            self.learn(id, &frontier, Reason::Submission, None);
        }
        let context = self.stream(id).facts.context;
        match self.stream(id).facts.kind {
            StreamKind::NonBlocking | StreamKind::Meeting => {}
            StreamKind::Legacy => {
                let before = std::mem::take(&mut self.contexts.entry(context).or_default().barrier);
                for other in before {
                    let stream = self.stream_mut(other);
                    stream.awaits_barrier = false;
                    let frontier = stream.line.frontier();
                    joins |= self.learn(id, &frontier, Reason::LegacyStream, None);
                }
            }
            StreamKind::Blocking | StreamKind::PerThread(_) => {
                let Some(legacy) = self
                    .contexts
                    .get(&context)
                    .and_then(|context| context.legacy)
                else {
                    return joins;
                };
                let line = &self.stream(legacy).line;
                let news = !self.stream(id).line.is_promised(line.now());
                if self.stream(legacy).last.is_some() && (news || !line.awaits().is_empty()) {
                    let frontier = self.stream_mut(legacy).line.frontier();
                    joins |= self.learn(id, &frontier, Reason::LegacyStream, None);
                }
            }
        }
        joins
    }

    /// Puts an operation into a stream.
    pub(crate) fn submit(&mut self, id: StreamId, op: OpRef) -> Access {
        let access = self.enqueue(id, op);
        self.stream_mut(id).work = access.epoch.time;
        access
    }

    /// Puts a launch of a graph into a stream, after the graph's launch before.
    pub(crate) fn submit_launch(
        &mut self,
        id: StreamId,
        before: Option<&Frontier>,
        op: OpRef,
    ) -> Access {
        self.prepare(id);
        if let Some(before) = before {
            self.learn(id, before, Reason::EarlierLaunch, Some(op));
        }
        self.submit(id, op)
    }

    /// What the stream is given next may wait for anything that was ever submitted.
    pub(crate) fn come_after_everything(&mut self, id: StreamId) {
        self.prepare(id);
        self.learn_everything(id);
    }

    /// All that the stream was given so far, for what is to come after it.
    pub(crate) fn frontier(&mut self, id: StreamId) -> Frontier {
        self.stream_mut(id).line.frontier()
    }

    /// A frontier that is of no use any more.
    pub(crate) fn spare(&mut self, frontier: Frontier) {
        self.spare.take(frontier);
    }

    fn enqueue(&mut self, id: StreamId, mut op: OpRef) -> Access {
        self.prepare(id);
        let stream = self.streams.get_mut(id);
        op.order_unknown = !stream.line.awaits().is_empty();
        let (epoch, opens) = stream.line.operate();
        if opens {
            let before = Epoch {
                slot: epoch.slot,
                time: epoch.time - 1,
            };
            self.graph.continues(before, epoch);
        }
        stream.last = Some((epoch, op));
        self.recent.placed(id, op, epoch);
        if !stream.awaits_barrier
            && matches!(
                stream.facts.kind,
                StreamKind::Blocking | StreamKind::PerThread(_)
            )
        {
            stream.awaits_barrier = true;
            let context = stream.facts.context;
            self.contexts.entry(context).or_default().barrier.push(id);
        }
        Access { epoch, op }
    }

    /// The blocking streams that an operation on the legacy stream of `context`
    /// would wait for, where the host does not know their work complete.
    pub(crate) fn pending_before_legacy(
        &self,
        context: ContextId,
    ) -> impl Iterator<Item = (StreamId, Epoch, OpRef)> {
        let barrier = self
            .contexts
            .get(&context)
            .map_or(&[][..], |context| &context.barrier);
        barrier.iter().filter_map(|&id| {
            let (epoch, op) = self.stream(id).last?;
            (!self.host.knows(epoch)).then_some((id, epoch, op))
        })
    }

    pub(crate) fn record(&mut self, event: Handle, id: StreamId, op: OpRef) {
        self.enqueue(id, op);
        let event = self.record_line(event, id);
        event.replaced = event.by.filter(|before| before.stream != op.stream);
        event.by = Some(op);
    }

    /// Keeps in mind that a wait is for a record that replaced another.
    #[cold]
    fn note_overtaken(&mut self, wait: OpRef, record: OpRef, replaced: OpRef) {
        if self.overtaken.len() == OVERTAKEN {
            self.overtaken.pop_front();
        }
        self.overtaken.push_back(Overtaken {
            wait,
            record,
            replaced,
        });
    }

    /// The wait of `later` by which it would come after `earlier`, had the event not been
    /// recorded anew.
    pub(crate) fn overtaken(&self, later: StreamId, earlier: OpRef) -> Option<Overtaken> {
        let meant = |known: &&Overtaken| {
            known.wait.stream == Some(later)
                && known.replaced.stream == earlier.stream
                && known.replaced.sequence > earlier.sequence
        };
        self.overtaken.iter().rev().find(meant).copied()
    }

    fn record_line(&mut self, event: Handle, id: StreamId) -> &mut Event {
        let stream = self.streams.get_mut(id);
        let record = Record {
            work: stream.work,
            frontier: stream.line.frontier(),
        };
        let event = self.events.entry(event).or_default();
        if let Some(old) = event.record.replace(record) {
            self.spare.take(old.frontier);
        }
        event
    }

    pub(crate) fn wait(&mut self, id: StreamId, event: Handle, op: OpRef) -> Waited {
        match self.events.get(&event) {
            Some(Event {
                record: Some(record),
                by,
                replaced,
            }) => {
                let record = record.clone();
                if let (Some(by), Some(replaced)) = (*by, *replaced) {
                    self.note_overtaken(op, by, replaced);
                }
                self.prepare(id);
                let Record { frontier, work } = record;
                let redundant = self.adds_nothing(Some(id), frontier.epoch.slot, work);
                self.learn(id, &frontier, Reason::EventWait, Some(op));
                if redundant {
                    self.enqueue(id, op);
                    Waited::Redundant
                } else {
                    self.submit(id, op);
                    Waited::Ordered
                }
            }
            Some(Event { record: None, .. }) => Waited::Unrecorded,
            None => {
                self.prepare(id);
                self.learn_everything(id);
                self.submit(id, op);
                Waited::Unknown
            }
        }
    }

    /// Orders a stream after all that was ever submitted: for waits whose other
    /// end is out of sight.
    fn learn_everything(&mut self, id: StreamId) {
        for place in 0..self.streams.slots() {
            let other = self.streams.at(place);
            if other != id {
                let frontier = self.stream_mut(other).line.frontier().guessed();
                self.learn(id, &frontier, Reason::Unseen, None);
            }
        }
    }

    /// Whether a timeline (a stream, or the host) comes after the work of another up to
    /// `time`, on NVIDIA's word and no guess of ours.
    fn adds_nothing(&self, later: Option<StreamId>, slot: Slot, time: Time) -> bool {
        let line = later.map_or(&self.host, |id| &self.stream(id).line);
        if !self.judges_waits || !line.is_promised(Epoch { slot, time }) {
            return false;
        }
        if time == 0 {
            return true;
        }
        if line.now().slot == slot {
            // Of the stream that had the slot before, the host was to know all.
            let own = later.is_none_or(|id| self.stream(id).first <= time);
            return own || self.adds_nothing(None, slot, time);
        }
        let path = self.path(self.gap(later, slot));
        !path.is_empty() && path.iter().all(|link| link.reason != Reason::Unseen)
    }

    /// The value that others may wait for is written when the stream gets there.
    pub(crate) fn write_value(
        &mut self,
        id: StreamId,
        flag: Flag,
        value: u64,
        op: OpRef,
    ) -> Access {
        let access = self.submit(id, op);
        let frontier = self.stream_mut(id).line.frontier();
        let host = &self.host;
        self.values
            .write(flag, value, frontier, |epoch| host.knows(epoch));
        for place in 0..self.streams.slots() {
            let id = self.streams.at(place);
            if !self.stream(id).line.awaits().is_empty() {
                self.settle_waits(id);
            }
        }
        access
    }

    /// The stream's later work waits for a value. False if what ends the wait was not
    /// seen.
    pub(crate) fn wait_for_value(
        &mut self,
        id: StreamId,
        flag: Flag,
        value: u64,
        condition: Condition,
        op: OpRef,
    ) -> (Access, bool) {
        self.prepare(id);
        let host = &self.host;
        let slot = self.streams.get(id).line.now().slot;
        let (ending, open) = self
            .values
            .ending(flag, value, condition, slot, |epoch| host.knows(epoch));
        for write in &ending {
            self.learn(id, write, Reason::ValueWait, Some(op));
        }
        if open {
            self.learn_everything(id);
            let wait = self.values.open(flag, value, condition);
            let line = &mut self.streams.get_mut(id).line;
            let before = line.now();
            line.await_value(wait);
            self.graph.continues(before, line.now());
        }
        (self.submit(id, op), !open)
    }

    /// Whether any value that a stream wrote may yet end a wait.
    #[inline]
    pub(crate) fn remembers_values(&self) -> bool {
        self.values.any_written()
    }

    /// The bytes from `start` to `end` are written by other means than a value write, or
    /// are other memory from now on.
    #[inline]
    pub(crate) fn overwritten(&mut self, start: u64, end: u64) {
        if self.values.any_written() {
            self.values.overwritten(start, end);
        }
    }

    /// The line on which the streams of a scope meet.
    fn meeting(&mut self, scope: Scope, meet: Meet, call: &Call) -> StreamId {
        if let Some(&id) = self.meetings.get(&(scope, meet)) {
            return id;
        }
        let id = self.add(StreamKind::Meeting, Handle::default(), call);
        self.meetings.insert((scope, meet), id);
        id
    }

    fn streams_in(&self, scope: Scope) -> Vec<StreamId> {
        let inside = |id: &StreamId| {
            let stream = self.stream(*id);
            takes_part(scope, stream.facts.kind)
                && scope.holds(stream.facts.device, stream.facts.context)
        };
        let ids = self.streams.all().map(|stream| stream.id);
        let mut ids: Vec<StreamId> = ids.filter(inside).collect();
        // What takes part in a barrier depends on what the legacy stream was given first.
        ids.sort_unstable_by_key(|id| id.age());
        ids
    }

    /// The meeting's line comes after all earlier work of its streams.
    fn gather(&mut self, scope: Scope, call: &Call, op: OpRef) -> StreamId {
        let line = self.meeting(scope, Meet::After, call);
        for id in self.streams_in(scope) {
            // What has done nothing only knows what others did.
            if self.stream(id).last.is_some() {
                let frontier = self.stream_mut(id).line.frontier();
                self.learn(line, &frontier, Reason::Scope, Some(op));
            }
        }
        line
    }

    /// All later work of the scope's streams comes after the meeting's line.
    fn scatter(&mut self, scope: Scope, line: StreamId, op: OpRef) {
        let frontier = self.stream_mut(line).line.frontier();
        for id in self.streams_in(scope) {
            if self.stream(id).destroyed {
                continue;
            }
            self.prepare(id);
            self.learn(id, &frontier, Reason::Scope, Some(op));
            self.submit(id, op);
        }
    }

    /// The event's newest record is the past of all streams of the scope.
    pub(crate) fn record_scope(&mut self, event: Handle, scope: Scope, call: &Call, op: OpRef) {
        let line = self.gather(scope, call, op);
        self.submit(line, op);
        self.record_line(event, line);
    }

    /// All later work of the scope waits for the event.
    pub(crate) fn wait_scope(
        &mut self,
        event: Handle,
        scope: Scope,
        call: &Call,
        op: OpRef,
    ) -> Waited {
        let line = self.meeting(scope, Meet::Before, call);
        let waited = self.wait(line, event, op);
        if waited != Waited::Unrecorded {
            self.scatter(scope, line, op);
        }
        waited
    }

    /// All earlier work of the devices' legacy and blocking streams comes before all
    /// their later work.
    pub(crate) fn barrier(&mut self, devices: &[DeviceId], call: &Call, op: OpRef) {
        let scopes = || devices.iter().map(|device| Scope::Blocking(*device));
        let Some(first) = scopes().next() else { return };
        let line = self.gather(first, call, op);
        for scope in scopes().skip(1) {
            let other = self.gather(scope, call, op);
            let frontier = self.stream_mut(other).line.frontier();
            self.learn(line, &frontier, Reason::Scope, Some(op));
        }
        self.submit(line, op);
        for scope in scopes() {
            let other = self.meeting(scope, Meet::Before, call);
            let frontier = self.stream_mut(line).line.frontier();
            self.learn(other, &frontier, Reason::Scope, Some(op));
            self.submit(other, op);
            self.scatter(scope, other, op);
        }
    }

    /// The host knows the event's newest record complete. An event whose history is
    /// not known is taken to cover everything.
    pub(crate) fn synchronize_event(&mut self, event: Handle, op: OpRef) -> Waited {
        match self.events.get(&event) {
            Some(Event {
                record: Some(record),
                ..
            }) => {
                let Record { frontier, work } = record.clone();
                let redundant = self.adds_nothing(None, frontier.epoch.slot, work);
                self.host_learns(&frontier, Reason::HostSync, op);
                if redundant {
                    Waited::Redundant
                } else {
                    Waited::Ordered
                }
            }
            Some(Event { record: None, .. }) => Waited::Unrecorded,
            None => {
                self.host_learns_everything(op);
                Waited::Unknown
            }
        }
    }

    /// The host knows all of the stream's past complete; for the legacy stream,
    /// what an operation on it would wait for too. True if it knew all its work.
    pub(crate) fn synchronize_stream(&mut self, id: StreamId, reason: Reason, op: OpRef) -> bool {
        let mut covered: SmallVec<[StreamId; 4]> = SmallVec::from_iter([id]);
        if self.stream(id).facts.kind == StreamKind::Legacy
            && let Some(context) = self.contexts.get(&self.stream(id).facts.context)
        {
            covered.extend_from_slice(&context.barrier);
        }
        let mut redundant = true;
        for id in covered {
            let (slot, work) = (self.stream(id).line.now().slot, self.stream(id).work);
            redundant &= self.adds_nothing(None, slot, work);
            let mut frontier = self.stream_mut(id).line.frontier();
            if reason == Reason::Unseen {
                frontier = frontier.guessed();
            }
            self.host_learns(&frontier, reason, op);
            self.know_waits_over(id, reason);
        }
        redundant
    }

    /// The host knows the stream's past complete, and so the many waits over that stand
    /// as one.
    fn know_waits_over(&mut self, id: StreamId, reason: Reason) {
        if reason != Reason::Unseen {
            self.stream_mut(id).line.retain_awaits(|wait| wait != MANY);
        }
    }

    /// The host knows all work of the scope's streams complete. True if it did before.
    pub(crate) fn synchronize(&mut self, scope: Scope, reason: Reason, op: OpRef) -> bool {
        let mut redundant = true;
        for place in 0..self.streams.slots() {
            let id = self.streams.at(place);
            let stream = self.streams.get(id);
            if stream.facts.kind == StreamKind::Meeting
                || stream.last.is_none()
                || !scope.holds(stream.facts.device, stream.facts.context)
            {
                continue;
            }
            let now = stream.line.now();
            redundant &= self.adds_nothing(None, now.slot, stream.work);
            if !self.host.is_promised(now) || !stream.line.awaits().is_empty() {
                let frontier = self.stream_mut(id).line.frontier();
                self.host_learns(&frontier, reason, op);
                self.know_waits_over(id, reason);
            }
        }
        redundant
    }

    pub(crate) fn enqueue_host_function(&mut self, token: u64, id: StreamId, op: OpRef) {
        self.submit(id, op);
        let frontier = self.stream_mut(id).line.frontier();
        let inserted = self.host_functions.insert(token, frontier, op.sequence);
        if let Some(forgotten) = inserted {
            self.spare.take(forgotten);
        }
    }

    /// While a host function runs, the host knows the stream's past up to it.
    pub(crate) fn start_host_function(&mut self, token: u64, op: OpRef) {
        match self.host_functions.begin(token, op.thread) {
            Some(frontier) => {
                self.host_learns(&frontier, Reason::HostFunction, op);
                self.spare.take(frontier);
            }
            // It may be any of the forgotten ones.
            None if self.host_functions.forgotten > 0 => self.host_learns_everything(op),
            None => {}
        }
    }

    /// A thread makes a call: it runs no host function any more.
    #[inline]
    pub(crate) fn end_host_function(&mut self, thread: u32) {
        self.host_functions.end(thread);
    }

    /// If the thread runs a host function: the sequence number past which work was
    /// submitted after it.
    pub(crate) fn within_host_function(&self, thread: u32) -> Option<u64> {
        self.host_functions.within(thread)
    }

    /// Host functions forgotten before they began, if they ever did.
    pub(crate) fn forgotten_host_functions(&self) -> u64 {
        self.host_functions.forgotten
    }

    /// The host comes after all that was ever submitted: for waits whose other end is out
    /// of sight.
    fn host_learns_everything(&mut self, op: OpRef) {
        for place in 0..self.streams.slots() {
            let stream = self.streams.at(place);
            let frontier = self.stream_mut(stream).line.frontier().guessed();
            self.host_learns(&frontier, Reason::Unseen, op);
        }
    }

    /// What is given to the stream next, or done by the host, comes after all of this;
    /// [`Order::submit`] brings the stream up to date first. With `promised`, by what
    /// NVIDIA promises alone.
    #[inline]
    pub(crate) fn horizon(&self, later: Option<StreamId>, promised: bool) -> Horizon<'_> {
        let line = later.map_or(&self.host, |id| &self.stream(id).line);
        line.horizon(promised)
    }

    /// Whether everything up to `epoch` would happen before an operation given to
    /// the stream now, which [`Order::submit`] would bring up to date first.
    pub(crate) fn would_know(&self, id: StreamId, epoch: Epoch) -> bool {
        self.ahead_of(id).any(|line| line.knows(epoch))
    }

    /// [`Order::would_know`], by what NVIDIA promises alone.
    pub(crate) fn would_be_promised(&self, id: StreamId, epoch: Epoch) -> bool {
        self.ahead_of(id).any(|line| line.is_promised(epoch))
    }

    /// Whether an operation given to the stream now would come after an open wait.
    pub(crate) fn would_await(&self, id: StreamId) -> bool {
        let open = |awaited: &Awaited| matches!(self.values.ended(awaited.wait), Ended::Open);
        self.ahead_of(id).any(|line| line.awaits().iter().any(open))
    }

    /// Whether anything is ordered by a wait that NVIDIA does not promise.
    pub(crate) fn leans(&self) -> bool {
        self.leans
    }

    /// How far an operation given to the stream now would be ordered after the
    /// timeline of `slot`.
    pub(crate) fn would_gap(&self, id: StreamId, slot: Slot) -> Gap {
        let time = self.ahead_of(id).map(|line| line.known(slot)).max();
        Gap {
            known: Epoch {
                slot,
                time: time.unwrap_or(0),
            },
            now: self.stream(id).line.now(),
        }
    }

    /// The timelines whose past an operation given to the stream now comes after;
    /// what [`Order::prepare`] makes it learn.
    fn ahead_of(&self, id: StreamId) -> impl Iterator<Item = &Timeline> {
        let stream = self.stream(id);
        let context = self.contexts.get(&stream.facts.context);
        let barrier = context.filter(|_| stream.facts.kind == StreamKind::Legacy);
        let legacy = context
            .filter(|_| {
                matches!(
                    stream.facts.kind,
                    StreamKind::Blocking | StreamKind::PerThread(_)
                )
            })
            .and_then(|context| context.legacy)
            .filter(|&legacy| self.stream(legacy).last.is_some());
        [&stream.line, &self.host]
            .into_iter()
            .chain(
                barrier
                    .into_iter()
                    .flat_map(|context| &context.barrier)
                    .map(|&other| &self.stream(other).line),
            )
            .chain(legacy.map(|legacy| &self.stream(legacy).line))
    }

    /// [`Order::stream_knows`], by what NVIDIA promises alone.
    pub(crate) fn stream_is_promised(&self, id: StreamId, epoch: Epoch) -> bool {
        self.stream(id).line.is_promised(epoch)
    }

    /// [`Order::host_knows`], by what NVIDIA promises alone.
    pub(crate) fn host_is_promised(&self, epoch: Epoch) -> bool {
        self.host.is_promised(epoch)
    }

    /// Whether the host knows everything up to `epoch` complete.
    #[inline]
    pub(crate) fn host_knows(&self, epoch: Epoch) -> bool {
        self.host.knows(epoch)
    }

    /// The stream has written a value where the CPU may see it come, and then knows what
    /// the stream did before.
    pub(crate) fn shows_host(&mut self, id: StreamId) {
        let frontier = self.stream_mut(id).line.frontier();
        self.polled.learn(&frontier, true, &mut self.spare);
        self.spare.take(frontier);
        self.host_news += 1;
    }

    /// Whether the CPU may know everything up to `epoch` complete without having asked CUDA.
    pub(crate) fn host_may_have_seen(&self, epoch: Epoch) -> bool {
        self.polled.knows(epoch)
    }

    /// Whether the CPU's accesses to what is used at `epoch` are of no interest any more.
    pub(crate) fn is_over_for_host(&self, epoch: Epoch) -> bool {
        self.host.is_promised(epoch) || self.host_may_have_seen(epoch)
    }

    /// The host's current epoch: that of what happens at a call itself.
    pub(crate) fn host_now(&self) -> Epoch {
        self.host.now()
    }

    pub(crate) fn kind(&self, id: StreamId) -> StreamKind {
        self.stream(id).facts.kind
    }

    /// What is known of a stream that may be gone.
    pub(crate) fn facts(&self, id: StreamId) -> Option<Facts> {
        self.streams.facts(id)
    }

    /// Whether the stream was not destroyed, or keeps its place all the same.
    pub(crate) fn is_here(&self, id: StreamId) -> bool {
        self.streams.is_here(id)
    }

    pub(crate) fn context(&self, id: StreamId) -> ContextId {
        self.stream(id).facts.context
    }

    /// The stream that an epoch is of; `None` for the host.
    pub(crate) fn stream_of(&self, slot: Slot) -> Option<StreamId> {
        self.streams.of_slot(slot)
    }

    /// How far `later` (a stream, or the host) is ordered after the timeline of `slot`.
    pub(crate) fn gap(&self, later: Option<StreamId>, slot: Slot) -> Gap {
        let line = later.map_or(&self.host, |id| &self.stream(id).line);
        Gap {
            known: Epoch {
                slot,
                time: line.known(slot),
            },
            now: line.now(),
        }
    }

    /// When the stream's last operation happens.
    #[cfg(test)]
    pub(crate) fn epoch_of_last(&self, id: StreamId) -> Option<Epoch> {
        self.stream(id).last.map(|(epoch, _)| epoch)
    }

    /// Whether the segment graph puts `earlier` before `later`.
    #[cfg(test)]
    pub(crate) fn reaches(&self, earlier: Epoch, later: Epoch) -> bool {
        self.graph.reaches(earlier, later)
    }

    /// The links by which a timeline came to know that much of another.
    pub(crate) fn path(&self, gap: Gap) -> Vec<Link> {
        self.steps(gap).into_iter().map(|(.., link)| link).collect()
    }

    /// [`Order::path`], with the two ends of each link.
    pub(crate) fn steps(&self, gap: Gap) -> Vec<(Epoch, Epoch, Link)> {
        self.graph.path(gap.known, gap.now)
    }

    /// All that orders one timeline after another, as far as it is remembered.
    pub(crate) fn links(&self) -> Vec<(Epoch, Epoch, Link)> {
        self.graph.links()
    }

    /// The segment graph in Graphviz's language.
    pub(crate) fn dot(&self, name: impl Fn(StreamId) -> String) -> String {
        self.graph
            .dot(|slot| self.stream_of(slot).map_or_else(|| "host".into(), &name))
    }
}

#[inline]
fn learn(
    (graph, spare): (&mut SegmentGraph, &mut Spare),
    line: &mut Timeline,
    frontier: &Frontier,
    reason: Reason,
    call: Option<OpRef>,
) -> bool {
    let before = line.now();
    let news = line.learn(frontier, reason != Reason::ImplicitSync, spare);
    if news {
        graph.continues(before, line.now());
        graph.link(frontier.epoch, line.now(), reason, call);
    }
    news
}
