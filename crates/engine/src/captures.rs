//! Captures: streams whose work becomes nodes of a graph.
//!
//! What a capturing stream is given touches nothing and orders nothing; it comes after the
//! nodes that the stream stands at. An event recorded in a capture holds those nodes, and
//! a stream that waits for it joins the capture.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::{
    Action, Call, FreeKind, Handle, Mode, NodeWork, Outcome, StreamRef, ThreadId,
};

use crate::engine::Engine;
use crate::graphs::{Graph, Graphs, Node, Sort, Work, allocate};
use crate::op::OpRef;
use crate::order::StreamId;

/// Nodes that what follows comes after.
type Frontier = SmallVec<[u32; 2]>;

/// A capture that has not ended.
#[derive(Debug)]
struct Capture {
    origin: StreamId,
    graph: Captured,
}

/// The graph of a capture.
#[derive(Debug)]
enum Captured {
    /// A new one, of which the handle is not known before the end.
    New(Graph),
    /// One that the application has, and may add nodes to by hand meanwhile: its handle and
    /// identity.
    To(Handle, u64),
}

impl Capture {
    fn new_graph(&self) -> Option<&Graph> {
        match &self.graph {
            Captured::New(graph) => Some(graph),
            Captured::To(..) => None,
        }
    }
}

/// A stream that captures.
#[derive(Debug)]
struct Member {
    capture: u64,
    at: Frontier,
}

/// The captures that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    open: FxHashMap<u64, Capture>,
    streams: FxHashMap<StreamId, Member>,
    /// The events whose newest record is a capture's, with what they stand for.
    events: FxHashMap<Handle, (u64, Frontier)>,
    /// The captured frees that have not ended.
    freeing: Vec<(ThreadId, StreamId, u64, OpRef)>,
    begun: u64,
}

impl Captures {
    /// The nodes of the open captures' new graphs.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        let graphs = self.open.values().filter_map(Capture::new_graph);
        graphs.flat_map(|graph| &graph.nodes)
    }

    /// Some node does something else, nobody knows which.
    pub(crate) fn doubt(&mut self, sort: Sort) {
        for capture in self.open.values_mut() {
            if let Captured::New(graph) = &mut capture.graph {
                graph.doubt(sort);
            }
        }
    }

    /// Whether nothing captures that this could be for; an event may stand for a capture
    /// long after its end.
    #[inline]
    fn is_idle(&self, action: &Action) -> bool {
        let of_events = || {
            matches!(
                action,
                Action::EventCreated { .. }
                    | Action::EventDestroyed { .. }
                    | Action::EventRecorded { .. }
                    | Action::ContextRecorded { .. }
                    | Action::StreamWaited { .. }
            )
        };
        self.open.is_empty() && self.freeing.is_empty() && (self.events.is_empty() || !of_events())
    }

    /// The event's newest record is no capture's.
    pub(crate) fn recorded_elsewhere(&mut self, event: Handle) {
        self.events.remove(&event);
    }

    /// The capture ends, with what its streams and events stand for.
    fn close(&mut self, capture: u64) -> Option<Capture> {
        self.streams.retain(|_, member| member.capture != capture);
        for (of, at) in self.events.values_mut() {
            if *of == capture {
                *at = Frontier::new();
            }
        }
        self.open.remove(&capture)
    }

    fn join(&mut self, stream: StreamId, capture: u64, nodes: &[u32]) {
        let member = self.streams.entry(stream).or_insert_with(|| Member {
            capture,
            at: Frontier::new(),
        });
        // An event of another capture is no edge.
        if member.capture == capture {
            for node in nodes {
                if !member.at.contains(node) {
                    member.at.push(*node);
                }
            }
        }
    }
}

/// The stream that an action gives something to, where that becomes a node while the stream
/// captures.
fn stream_of(action: &Action) -> Option<StreamRef> {
    match action {
        Action::Enqueued { stream }
        | Action::ValueWritten { stream, .. }
        | Action::ValueWaited { stream, .. }
        | Action::Launched { stream, .. }
        | Action::Copied { stream, .. }
        | Action::CopiedInLayers { stream, .. }
        | Action::CopiedTogether { stream, .. }
        | Action::Filled { stream, .. }
        | Action::HostFunctionEnqueued { stream, .. }
        | Action::NodeCaptured { stream, .. }
        | Action::GraphLaunched { stream, .. }
        | Action::EventRecorded { stream, .. }
        | Action::StreamWaited { stream, .. } => Some(*stream),
        Action::Allocated { stream, .. }
        | Action::FreeBegun {
            stream,
            kind: FreeKind::Async,
            ..
        } => *stream,
        _ => None,
    }
}

impl Engine {
    pub(crate) fn capture_begun(
        &mut self,
        call: &Call,
        stream: StreamRef,
        to: Handle,
        dependencies: &[Handle],
    ) {
        self.sweep_owners();
        let origin = self.order.resolve(stream, call);
        // CUDA begins none on a stream that captures: that one ended out of sight.
        if let Some(member) = self.captures.streams.get(&origin) {
            let old = member.capture;
            self.break_off(old);
        }
        let mut at = Frontier::new();
        let known = (to.0 != 0).then(|| self.graph_to_build(to, call)).flatten();
        let graph = match known {
            Some(known) => {
                at = self.places(&known, dependencies, call);
                Captured::To(to, known.id)
            }
            None => {
                let mut graph = self.graphs.new_graph();
                graph.unknown = to.0 != 0;
                graph.loose = to.0 != 0;
                Captured::New(graph)
            }
        };
        self.captures.begun += 1;
        let capture = self.captures.begun;
        self.captures
            .open
            .insert(capture, Capture { origin, graph });
        self.captures.streams.insert(origin, Member { capture, at });
    }

    pub(crate) fn capture_ended(&mut self, call: &Call, stream: StreamRef, handle: Handle) {
        let id = self.order.resolve(stream, call);
        let member = self.captures.streams.get(&id).map(|member| member.capture);
        if handle.0 == 0 {
            if let Some(capture) = member {
                self.break_off(capture);
            }
            return;
        }
        let capture = member.and_then(|capture| self.captures.close(capture));
        let graph = match capture.map(|capture| capture.graph) {
            Some(Captured::New(graph)) => Some(graph),
            Some(Captured::To(to, id)) => {
                let graph = self.graphs.get(to).filter(|graph| graph.id == id).cloned();
                if to == handle && graph.is_some() {
                    return;
                }
                // CUDA gives back the graph that was captured to; this is another by its name.
                graph.map(|graph| graph.as_another(self.graphs.number()))
            }
            None => None,
        };
        let Some(mut graph) = graph else {
            self.blind_spot("graph-of-unknown-origin", call.api);
            self.graph_created(handle, call);
            if let Some(graph) = self.graphs.change(handle) {
                graph.unknown = true;
            }
            return;
        };
        if !self.has_room(handle, call) {
            return;
        }
        let mut named = Vec::new();
        let base = graph.nodes.len() as u32;
        if let Some(known) = self.graphs.get(handle)
            && known.unknown
        {
            // Nodes were added by hand while the capture went on.
            graph.take_in(known);
            named = self.graphs.named(known);
        }
        self.graphs.put(handle, graph);
        for (node, place) in named {
            self.graphs.name(node, handle, base + place);
        }
    }

    /// A capture ends without success, or out of sight: what is left in a graph that was
    /// there before nobody knows.
    fn break_off(&mut self, capture: u64) {
        if let Some(Capture { graph, .. }) = self.captures.close(capture)
            && let Captured::To(to, id) = graph
            && let Some(graph) = self.graphs.change_known(to, id)
        {
            graph.unknown = true;
            graph.loose = true;
            graph.doubted = Sort::ALL.into();
        }
    }

    /// Does something with the graph of an open capture.
    fn with_captured<R>(
        &mut self,
        capture: u64,
        f: impl FnOnce(&mut Self, &mut Graph) -> R,
    ) -> Option<R> {
        let (to, id) = match &mut self.captures.open.get_mut(&capture)?.graph {
            Captured::To(to, id) => (*to, *id),
            Captured::New(graph) => {
                let mut graph = std::mem::take(graph);
                let result = f(self, &mut graph);
                let back = &mut self.captures.open.get_mut(&capture)?.graph;
                *back = Captured::New(graph);
                return Some(result);
            }
        };
        let mut graph = std::mem::take(self.graphs.change_known(to, id)?);
        let result = f(self, &mut graph);
        *self.graphs.change(to)? = graph;
        Some(result)
    }

    pub(crate) fn capture_dependencies(
        &mut self,
        call: &Call,
        stream: StreamRef,
        nodes: &[Handle],
        replace: bool,
    ) {
        let id = self.order.resolve(stream, call);
        let Some(member) = self.captures.streams.get(&id) else {
            return;
        };
        let number = member.capture;
        let places = self.with_captured(number, |engine, graph| engine.places(graph, nodes, call));
        let Some(places) = places else {
            return;
        };
        if replace && let Some(member) = self.captures.streams.get_mut(&id) {
            member.at.clear();
        }
        self.captures.join(id, number, &places);
    }

    /// Takes in what a capturing stream is given. False if the action is none of that.
    pub(crate) fn captured(&mut self, call: &Call, action: &Action) -> bool {
        if self.captures.is_idle(action) {
            return false;
        }
        match *action {
            Action::EventCreated { event }
            | Action::EventDestroyed { event }
            | Action::ContextRecorded { event } => {
                self.captures.recorded_elsewhere(event);
                return false;
            }
            Action::StreamDestroyed { stream } => {
                let id = self.order.resolve(StreamRef::Created(stream), call);
                let member = self.captures.streams.remove(&id);
                if let Some(Member { capture, .. }) = member
                    && let Some(open) = self.captures.open.get(&capture)
                    && open.origin == id
                {
                    self.break_off(capture);
                }
                return false;
            }
            Action::FreeEnded { outcome } => return self.captured_free_ended(call, outcome),
            Action::FreeBegun { .. } => self
                .captures
                .freeing
                .retain(|(thread, ..)| *thread != call.thread),
            _ => {}
        }
        let Some(stream) = stream_of(action) else {
            return false;
        };
        // The legacy stream cannot capture, nor be drawn into a capture.
        if stream == StreamRef::Legacy {
            if let Action::EventRecorded { event, .. } = action {
                self.captures.events.remove(event);
            }
            return false;
        }
        let (id, op) = self.on_stream(stream, call);
        match *action {
            Action::EventRecorded { event, .. } => match self.captures.streams.get(&id) {
                Some(member) => {
                    let record = (member.capture, member.at.clone());
                    self.captures.events.insert(event, record);
                    true
                }
                None => {
                    self.captures.events.remove(&event);
                    false
                }
            },
            Action::StreamWaited { event, .. } => match self.captures.events.get(&event) {
                Some((capture, at)) => {
                    if self.captures.open.contains_key(capture) {
                        let (capture, at) = (*capture, at.clone());
                        self.captures.join(id, capture, &at);
                    }
                    true
                }
                None => self.captures.streams.contains_key(&id),
            },
            Action::FreeBegun { address, .. } if self.captures.streams.contains_key(&id) => {
                self.captures.freeing.push((call.thread, id, address, op));
                true
            }
            _ => {
                let kernel = match *action {
                    Action::Launched { kernel, .. }
                    | Action::NodeCaptured {
                        work: NodeWork::Kernel { kernel, .. },
                        ..
                    } => kernel,
                    _ => op.kernel,
                };
                let op = OpRef { kernel, ..op };
                self.capture_node(call, id, op, |engine, graph, op| {
                    engine.captured_work(graph, action, op, call)
                })
            }
        }
    }

    fn captured_free_ended(&mut self, call: &Call, outcome: Outcome) -> bool {
        let mut freeing = self.captures.freeing.iter();
        let Some(place) = freeing.position(|(thread, ..)| *thread == call.thread) else {
            return false;
        };
        let (_, id, address, op) = self.captures.freeing.swap_remove(place);
        if outcome == Outcome::Succeeded {
            self.capture_node(call, id, op, |engine, graph, _| {
                engine.free_work(graph, address)
            });
        }
        true
    }

    /// Adds a node to the capture of a stream, after what that stands at. False if it
    /// captures nothing.
    fn capture_node(
        &mut self,
        call: &Call,
        id: StreamId,
        op: OpRef,
        work: impl FnOnce(&mut Self, &mut Graph, OpRef) -> Work,
    ) -> bool {
        let Some(member) = self.captures.streams.get_mut(&id) else {
            return false;
        };
        let number = member.capture;
        let before = member.at.clone();
        let place = self.with_captured(number, |engine, graph| {
            if graph.nodes.len() >= Graphs::MOST_NODES {
                graph.unknown = true;
                engine.blind_spot("graphs-beyond-the-limit", call.api);
                return None;
            }
            let work = work(engine, graph, op);
            Some(graph.push(op, work, before))
        });
        if let Some(place) = place.flatten()
            && let Some(member) = self.captures.streams.get_mut(&id)
        {
            member.at = Frontier::from_slice(&[place]);
        }
        true
    }

    /// What a captured call does.
    fn captured_work(
        &mut self,
        graph: &mut Graph,
        action: &Action,
        op: OpRef,
        call: &Call,
    ) -> Work {
        match *action {
            Action::Launched {
                kernel,
                ref pointers,
                layout_known,
                ..
            } => self.kernel_work(graph, kernel, pointers, layout_known),
            Action::Copied {
                to,
                from,
                direction,
                host,
                ..
            } => {
                let regions = self.copied_by_node(&[(to, from)], direction, host, op, call);
                self.regions_work(graph, Sort::Copy, &regions)
            }
            Action::CopiedInLayers {
                ref layers,
                direction,
                host,
                ..
            } => {
                let regions = self.copied_by_node(layers, direction, host, op, call);
                self.regions_work(graph, Sort::Copy, &regions)
            }
            Action::CopiedTogether { ref copies, .. } => {
                let mut regions = Vec::new();
                for copy in copies {
                    let layers = [(copy.to, copy.from)];
                    let inferred = streamcheck_model::Direction::Inferred;
                    regions.extend(self.copied_by_node(&layers, inferred, copy.host, op, call));
                }
                self.regions_work(graph, Sort::Copy, &regions)
            }
            Action::Filled { to, .. } => self.regions_work(graph, Sort::Fill, &[(to, Mode::Write)]),
            Action::HostFunctionEnqueued { token, .. } => Work::Host(Some(token)),
            Action::Allocated { address, size, .. } => allocate(graph, address, size, op),
            Action::NodeCaptured { ref work, .. } => self.work_of(graph, work, op, call),
            Action::GraphLaunched { exec, .. } => self.launched_in_capture(graph, exec, call),
            Action::ValueWritten { .. } | Action::ValueWaited { .. } => {
                self.work_of(graph, &NodeWork::Unknown, op, call)
            }
            _ => Work::Empty,
        }
    }
}
