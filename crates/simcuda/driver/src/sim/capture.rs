//! Stream capture: what a stream is given becomes a graph's nodes, and nothing runs.
//!
//! A capture begins in one stream, its origin. Another stream joins it by waiting for an event that was recorded in it,
//! and must have been waited for in turn by the time the origin ends the capture.

use super::graph::{Action, Edge, Owner, PROGRAMMATIC, WHOLE};
use super::sched::StreamId;
use super::session;
use super::state::{Barrier, Lane, State};
use crate::abi::Status;
use crate::error::{
    CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_MERGE, CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD, CAPTURED_EVENT, ILLEGAL_STATE,
    INVALID_VALUE,
};
use std::collections::BTreeMap;

/// `CUstreamCaptureMode`.
pub(crate) const GLOBAL: u32 = 0;
pub(crate) const RELAXED: u32 = 2;

/// The nodes that a stream's next one comes after.
pub(crate) type Tips = Vec<(u64, Edge)>;

/// A stream that takes part in a capture.
struct Captured {
    context: u64,
    barrier: Barrier,
    tips: Tips,
    /// What was given out to the application, to be read until the next call.
    shown: Option<(Vec<u64>, Vec<Edge>)>,
}

pub(crate) struct Capture {
    pub(crate) graph: u64,
    /// The graph was there before.
    into_existing: bool,
    origin: StreamId,
    /// The thread that began it.
    thread: u64,
    mode: u32,
    invalid: bool,
    streams: BTreeMap<StreamId, Captured>,
}

/// What a stream is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureState {
    No,
    Active(u64),
    Invalid,
}

impl State {
    fn capture_of(&self, stream: StreamId) -> Option<u64> {
        self.captures
            .iter()
            .find(|(_, capture)| capture.streams.contains_key(&stream))
            .map(|(&id, _)| id)
    }

    fn capture(&self, id: u64) -> Status<&Capture> {
        self.captures.get(&id).ok_or(ILLEGAL_STATE)
    }

    fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.invalid = true;
        }
    }

    fn invalidate_all(&mut self, which: impl Fn(&Capture) -> bool) -> bool {
        let doomed = self.captures.values_mut().filter(|capture| which(capture));
        doomed.map(|capture| capture.invalid = true).count() > 0
    }

    /// Captures with a blocking stream of the context: its legacy stream must not be used.
    fn blocks_legacy(context: u64) -> impl Fn(&Capture) -> bool {
        move |capture| {
            let mut streams = capture.streams.values();
            streams.any(|each| each.context == context && each.barrier == Barrier::Blocking)
        }
    }

    /// The capture that the stream is in, for calls that only ask.
    pub(crate) fn capture_state(&self, lane: Lane) -> Status<CaptureState> {
        if lane.barrier == Barrier::Legacy {
            let blocked = Self::blocks_legacy(lane.context);
            return if self.captures.values().any(blocked) {
                Err(CAPTURE_IMPLICIT)
            } else {
                Ok(CaptureState::No)
            };
        }
        Ok(match self.capture_of(lane.id) {
            None => CaptureState::No,
            Some(id) if self.capture(id)?.invalid => CaptureState::Invalid,
            Some(id) => CaptureState::Active(id),
        })
    }

    /// The capture to put the stream's next operation into; `None` where it is to run. An error if the stream is good for
    /// neither.
    pub(crate) fn capturing(&mut self, lane: Lane) -> Status<Option<u64>> {
        match self.capture_state(lane) {
            Ok(CaptureState::No) => Ok(None),
            Ok(CaptureState::Active(id)) => {
                if let Some(stream) = self
                    .captures
                    .get_mut(&id)
                    .and_then(|capture| capture.streams.get_mut(&lane.id))
                {
                    stream.shown = None;
                }
                Ok(Some(id))
            }
            Ok(CaptureState::Invalid) => Err(CAPTURE_INVALIDATED),
            Err(code) => {
                self.invalidate_all(Self::blocks_legacy(lane.context));
                Err(code)
            }
        }
    }

    /// For operations that no capture can hold.
    pub(crate) fn not_captured(&mut self, lane: Lane) -> Status {
        match self.capturing(lane)? {
            None => Ok(()),
            Some(id) => {
                self.invalidate(id);
                Err(CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// As [`State::capturing`], or for a call that also waits, [`State::not_captured`] and [`State::safe`].
    pub(crate) fn capturing_unless(&mut self, waits: bool, lane: Lane) -> Status<Option<u64>> {
        if waits {
            self.not_captured(lane)?;
            self.safe()?;
            return Ok(None);
        }
        self.capturing(lane)
    }

    /// For calls that are unsafe while streams are captured: refused as the calling thread's mode, and the captures', say.
    pub(crate) fn safe(&mut self) -> Status {
        let (thread, mode) = (session::thread_number(), session::capture_mode());
        let forbids = |capture: &Capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            own || mode == GLOBAL && capture.mode == GLOBAL
        };
        if mode != RELAXED && self.invalidate_all(forbids) {
            Err(CAPTURE_UNSUPPORTED)
        } else {
            Ok(())
        }
    }

    /// For calls that wait for all of some contexts, or ask after them.
    pub(crate) fn nothing_captured(&mut self, contexts: impl Fn(u64) -> bool) -> Status {
        let among = |capture: &Capture| {
            let mut streams = capture.streams.values();
            streams.any(|stream| contexts(stream.context))
        };
        if self.invalidate_all(among) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        self.safe()
    }

    /// For calls that wait for an event, or ask after it.
    pub(crate) fn event_not_captured(&mut self, event: u64) -> Status {
        if let Some((capture, _)) = self
            .events
            .get(event)
            .and_then(|event| event.captured.as_ref())
        {
            let capture = *capture;
            self.invalidate(capture);
            return Err(CAPTURED_EVENT);
        }
        self.safe()
    }

    /// Begins a capture into a new graph, or into `graph` after the nodes given.
    pub(crate) fn begin_capture(
        &mut self,
        lane: Lane,
        mode: u32,
        graph: Option<(u64, Tips)>,
    ) -> Status {
        if mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        if lane.barrier == Barrier::Legacy {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.capture_of(lane.id).is_some() {
            return Err(ILLEGAL_STATE);
        }
        let into_existing = graph.is_some();
        let (graph, tips) = match graph {
            Some((graph, tips)) => {
                self.graph(graph)?;
                self.check_edges(graph, &tips)?;
                if self.captures.values().any(|capture| capture.graph == graph) {
                    return Err(INVALID_VALUE);
                }
                (graph, tips)
            }
            None => (self.add_graph(Owner::Capture), Vec::new()),
        };
        let id = self.fresh_id();
        let origin = Captured {
            context: lane.context,
            barrier: lane.barrier,
            tips,
            shown: None,
        };
        self.captures.insert(
            id,
            Capture {
                graph,
                into_existing,
                origin: lane.id,
                thread: session::thread_number(),
                mode,
                invalid: false,
                streams: BTreeMap::from([(lane.id, origin)]),
            },
        );
        Ok(())
    }

    /// Ends the capture that began in the stream; its graph.
    pub(crate) fn end_capture(&mut self, lane: Lane) -> Status<u64> {
        let id = self.capture_of(lane.id).ok_or(ILLEGAL_STATE)?;
        let capture = self.capture(id)?;
        if capture.origin != lane.id {
            self.invalidate(id);
            return Err(CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != session::thread_number() {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let fate = if capture.invalid {
            Err(CAPTURE_INVALIDATED)
        } else if self.is_unjoined(capture) {
            Err(CAPTURE_UNJOINED)
        } else {
            Ok(capture.graph)
        };
        self.drop_capture(id, fate.is_ok());
        fate
    }

    /// A stream's last nodes do not come before the origin's end.
    fn is_unjoined(&self, capture: &Capture) -> bool {
        let tips = |stream: &Captured| {
            let nodes: Vec<u64> = stream.tips.iter().map(|&(node, _)| node).collect();
            nodes
        };
        if capture.streams.len() < 2 {
            return false;
        }
        let Some(origin) = capture.streams.get(&capture.origin) else {
            return true;
        };
        let joined = self.with_ancestors(tips(origin));
        capture
            .streams
            .values()
            .flat_map(tips)
            .any(|node| self.nodes.get(node).is_some() && !joined.contains(&node))
    }

    fn drop_capture(&mut self, id: u64, keep: bool) {
        let Some(capture) = self.captures.remove(&id) else {
            return;
        };
        if capture.into_existing {
            return;
        }
        if !keep {
            self.remove_graph(capture.graph);
        } else if let Some(graph) = self.graphs.get_mut(capture.graph) {
            graph.owner = Owner::Application;
        }
    }

    /// The stream is gone. With the origin goes the capture; another one's nodes stay, and can be joined no more.
    pub(crate) fn capture_lost(&mut self, stream: StreamId) {
        if let Some(id) = self.capture_of(stream)
            && self
                .capture(id)
                .is_ok_and(|capture| capture.origin == stream)
        {
            self.drop_capture(id, false);
        }
    }

    /// Adds a node to what the stream has been given; its handle. A failure invalidates the capture.
    pub(crate) fn capture_node(&mut self, id: u64, lane: Lane, action: Action) -> Status<u64> {
        let (graph, tips) = (self.capture(id)?.graph, self.capture_tips(id, lane.id));
        let added = self.add_node(graph, &tips, action);
        match added {
            Ok(node) => self.set_tips(id, lane.id, vec![(node, WHOLE)]),
            Err(_) => self.invalidate(id),
        }
        added
    }

    /// Adds an allocation; its address.
    pub(crate) fn capture_allocation(
        &mut self,
        id: u64,
        lane: Lane,
        size: u64,
        device: i32,
    ) -> Status<u64> {
        let (graph, tips) = (self.captured_graph(id)?, self.capture_tips(id, lane.id));
        let address = self
            .add_graph_memory(graph, &tips, size, device)
            .inspect_err(|_| self.invalidate(id))?;
        self.capture_node(id, lane, Action::Allocate(address, size, device))?;
        Ok(address)
    }

    /// Adds a free of what an allocation node allocates.
    pub(crate) fn capture_free(&mut self, id: u64, lane: Lane, address: u64) -> Status {
        let graph = self.captured_graph(id)?;
        self.check_graph_free(graph, address)
            .inspect_err(|_| self.invalidate(id))?;
        let node = self.capture_node(id, lane, Action::Free(address))?;
        self.add_graph_free(graph, address, node);
        Ok(())
    }

    /// Adds a node for an event that matters outside of the capture.
    pub(crate) fn capture_external(&mut self, lane: Lane, action: Action) -> Status {
        let capture = self.capturing(lane)?.ok_or(INVALID_VALUE)?;
        self.capture_node(capture, lane, action).map(|_| ())
    }

    /// The nodes that the stream's next one comes after.
    pub(crate) fn capture_tips(&self, id: u64, stream: StreamId) -> Tips {
        let capture = self.captures.get(&id);
        let stream = capture.and_then(|capture| capture.streams.get(&stream));
        stream.map_or_else(Vec::new, |stream| stream.tips.clone())
    }

    pub(crate) fn set_tips(&mut self, id: u64, stream: StreamId, tips: Tips) {
        if let Some(stream) = self
            .captures
            .get_mut(&id)
            .and_then(|capture| capture.streams.get_mut(&stream))
        {
            stream.tips = tips;
        }
    }

    /// The next kernel of the stream may begin before the kernel in front of it has ended.
    pub(crate) fn capture_programmatic(&mut self, id: u64, lane: Lane) {
        let mut tips = self.capture_tips(id, lane.id);
        for (node, edge) in &mut tips {
            if matches!(self.nodes.get(*node), Some(node) if matches!(node.action, Action::Kernel(_)))
            {
                *edge = PROGRAMMATIC;
            }
        }
        self.set_tips(id, lane.id, tips);
    }

    /// The nodes, and their edges, for the application to read until its next call for the stream.
    pub(crate) fn show_tips(
        &mut self,
        id: u64,
        stream: StreamId,
    ) -> Status<(*const u64, *const Edge, usize)> {
        let tips = self.capture_tips(id, stream);
        let stream = self
            .captures
            .get_mut(&id)
            .and_then(|capture| capture.streams.get_mut(&stream))
            .ok_or(ILLEGAL_STATE)?;
        let (nodes, edges) = stream.shown.insert(tips.into_iter().unzip());
        Ok((nodes.as_ptr(), edges.as_ptr(), nodes.len()))
    }

    pub(crate) fn captured_graph(&self, id: u64) -> Status<u64> {
        Ok(self.capture(id)?.graph)
    }

    pub(crate) fn is_being_captured(&self, graph: u64) -> bool {
        self.captures.values().any(|capture| capture.graph == graph)
    }

    /// Records an event in a capture: it names the nodes that the stream has come to.
    pub(crate) fn capture_record(&mut self, id: u64, lane: Lane, event: u64) {
        let nodes = self
            .capture_tips(id, lane.id)
            .into_iter()
            .map(|(node, _)| node);
        let nodes = nodes.collect();
        if let Some(event) = self.events.get_mut(event) {
            event.captured = Some((id, nodes));
        }
    }

    /// The stream waits for an event: `true` if captures have seen to it. The event may bring the stream into a capture.
    pub(crate) fn capture_wait(&mut self, lane: Lane, event: u64) -> Status<bool> {
        let own = self.capturing(lane)?;
        let captured = self
            .events
            .get(event)
            .and_then(|event| event.captured.clone());
        let Some((id, nodes)) = captured else {
            let Some(own) = own else { return Ok(false) };
            self.invalidate(own);
            return Err(CAPTURE_ISOLATION);
        };
        let Some(other) = self.captures.get(&id) else {
            // That capture is over: its event means nothing outside of it.
            return Ok(true);
        };
        if other.invalid {
            own.into_iter().for_each(|own| self.invalidate(own));
            return Err(CAPTURE_INVALIDATED);
        }
        if let Some(own) = own.filter(|&own| own != id) {
            self.invalidate(own);
            self.invalidate(id);
            return Err(CAPTURE_MERGE);
        }
        if lane.barrier == Barrier::Legacy {
            self.invalidate(id);
            return Err(CAPTURE_UNSUPPORTED);
        }
        let mut tips = self.capture_tips(id, lane.id);
        for node in nodes {
            let is_there = self.nodes.get(node).is_some();
            if is_there && tips.iter().all(|&(tip, _)| tip != node) {
                tips.push((node, WHOLE));
            }
        }
        if let Some(capture) = self.captures.get_mut(&id) {
            let joined = capture.streams.entry(lane.id).or_insert(Captured {
                context: lane.context,
                barrier: lane.barrier,
                tips: Vec::new(),
                shown: None,
            });
            joined.tips = tips;
        }
        Ok(true)
    }
}
