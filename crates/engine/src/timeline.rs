//! The operations around a finding: which of the newest to show, and what orders them.
//!
//! Cut out when a finding is new, from the ring of the newest operations (`recent`) and
//! the segment graph. An operation stands for a point of a timeline; a link of the graph
//! goes from the last operation before it to the call that made it, or to the first
//! operation after it. So an arrow says no more than that its two ends are in order.
//!
//! One scan of the ring and one of the graph's links, both of which are bounded.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::clock::{Epoch, HOST, Slot, Time};
use crate::graph::{Link, Reason};
use crate::op::OpRef;
use crate::order::{Gap, Order, StreamId};
use crate::recent::{Entry, Part};
use crate::view::View;
use crate::{Lane, Role, Timeline, TimelineEdge, TimelineOperation};

/// Operations shown.
const OPERATIONS: usize = 32;
/// Of them, those that order something, before any that merely work.
const ORDERING: usize = 24;
/// Streams shown.
const STREAMS: usize = 6;
/// Arrows shown.
const EDGES: usize = 48;

/// A lane: a stream's, or the host's.
type Line = Option<StreamId>;

/// The operations that stand for points of a timeline, by time and sequence.
type Points = FxHashMap<Slot, Vec<(Time, u64)>>;

/// An arrow that could be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrow {
    from: u64,
    to: u64,
    reason: &'static str,
}

/// The timeline of a finding with these events, the last of which is ordered after an
/// earlier one as far as `gap` says.
pub(crate) fn cut(view: &View<'_>, events: &[(Role, OpRef)], gap: Option<Gap>) -> Timeline {
    let (Some(first), Some(last)) = (
        events.iter().map(|(_, op)| op.sequence).min(),
        events.iter().map(|(_, op)| op.sequence).max(),
    ) else {
        return Timeline::default();
    };
    let steps = gap.map_or_else(Vec::new, |gap| view.order.steps(gap));
    let cutter = Cutter {
        view,
        events,
        streams: streams(view.order, events, &steps, (first, last)),
        span: (first, last),
    };
    let points = cutter.points();
    let arrows: Vec<Arrow> = view
        .order
        .links()
        .into_iter()
        .filter_map(|(from, to, link)| cutter.arrow(&points, from, to, &link))
        .filter(|arrow| (first..=last).contains(&arrow.to))
        .collect();
    // What orders them as far as it goes may have been long before.
    let path: Vec<Arrow> = steps
        .iter()
        .filter_map(|(from, to, link)| cutter.arrow(&points, *from, *to, link))
        .collect();
    let chosen = cutter.choose(&path, &arrows);
    let arrows = cutter.between(&points, &chosen, path.into_iter().chain(arrows));
    cutter.draw(&chosen, &arrows)
}

/// The streams that matter: those of the events, those by which they are ordered, and
/// those that they waited for meanwhile, as the wait may have been for the wrong one.
fn streams(
    order: &Order,
    events: &[(Role, OpRef)],
    steps: &[(Epoch, Epoch, Link)],
    span: (u64, u64),
) -> SmallVec<[StreamId; STREAMS]> {
    let of_events = events.iter().filter_map(|(_, op)| op.stream);
    let of_path = steps.iter().flat_map(|(from, to, link)| {
        let called = link.call.and_then(|call| call.stream);
        [called, order.stream_of(from.slot), order.stream_of(to.slot)]
    });
    let of_waits = order.links().into_iter().filter_map(|(from, _, link)| {
        let call = link.call?;
        let waited = matches!(link.reason, Reason::EventWait | Reason::ValueWait);
        let ours = events
            .iter()
            .any(|(_, op)| op.stream.is_some() && op.stream == call.stream);
        let meanwhile = (span.0..=span.1).contains(&call.sequence);
        (waited && ours && meanwhile).then(|| order.stream_of(from.slot))?
    });
    let mut streams = SmallVec::new();
    for id in of_events.chain(of_path.flatten()).chain(of_waits) {
        if !streams.contains(&id) && streams.len() < STREAMS {
            streams.push(id);
        }
    }
    streams
}

struct Cutter<'a> {
    view: &'a View<'a>,
    events: &'a [(Role, OpRef)],
    streams: SmallVec<[StreamId; STREAMS]>,
    /// The first and the last event.
    span: (u64, u64),
}

impl Cutter<'_> {
    fn order(&self) -> &Order {
        self.view.order
    }

    fn event(&self, sequence: u64) -> Option<&OpRef> {
        let same = |(_, op): &&(Role, OpRef)| op.sequence == sequence;
        self.events.iter().find(same).map(|(_, op)| op)
    }

    /// Where an operation is drawn: the host's waits on the host's lane, also where the
    /// call names a stream.
    fn line(&self, entry: &Entry) -> Line {
        match entry.epoch.slot {
            _ if entry.part == Part::Sync => None,
            _ if !entry.is_placed() => entry.op.stream,
            HOST => self.event(entry.op.sequence).and_then(|op| op.stream),
            slot => entry.op.stream.or_else(|| self.order().stream_of(slot)),
        }
    }

    fn line_of(&self, sequence: u64) -> Line {
        match self.order().recent.get(sequence) {
            Some(entry) => self.line(entry),
            None => self.event(sequence).and_then(|op| op.stream),
        }
    }

    fn is_shown(&self, line: Line) -> bool {
        line.is_none_or(|id| self.streams.contains(&id))
    }

    /// The operation that made a link. What happens behind a call's back (a barrier of
    /// whole devices, a host function that begins) has no number of its own.
    fn caller(&self, link: &Link) -> Option<&Entry> {
        let call = link.call?;
        let entry = self.order().recent.get(call.sequence)?;
        let silent = match link.reason {
            Reason::HostFunction => true,
            Reason::Scope => call.stream.is_none() && entry.part != Part::Scope,
            _ => false,
        };
        let same = entry.op.api == call.api && entry.op.stack == call.stack;
        (same && !silent).then_some(entry)
    }

    /// Which operations stand for which points; of the host's those that waited.
    fn points(&self) -> Points {
        let mut points = Points::default();
        let mut add = |slot: Slot, point: (Time, u64)| {
            let known: &mut Vec<(Time, u64)> = points.entry(slot).or_default();
            known.push(point);
        };
        for entry in self.order().recent.iter().filter(|entry| entry.is_placed()) {
            let sequence = entry.op.sequence;
            if entry.epoch.slot != HOST && self.is_shown(self.line(entry)) {
                add(entry.epoch.slot, (entry.epoch.time, sequence));
            }
        }
        for (from, to, link) in self.order().links() {
            let ours = |slot| slot != HOST && self.is_shown(self.order().stream_of(slot));
            if let Some(caller) = self.caller(&link)
                && self.is_shown(self.line(caller))
                && (ours(from.slot) && to.slot == HOST || ours(to.slot))
            {
                add(to.slot, (to.time, caller.op.sequence));
            }
        }
        for known in points.values_mut() {
            known.sort_unstable();
            known.dedup();
        }
        points
    }

    /// The arrow that a link stands for, if both its ends are remembered and on
    /// different lanes.
    fn arrow(&self, points: &Points, from: Epoch, to: Epoch, link: &Link) -> Option<Arrow> {
        let (before, after) = (points.get(&from.slot)?, points.get(&to.slot)?);
        let called = self.caller(link).map(|entry| (to.time, entry.op.sequence));
        let end = match called {
            Some(point) if after.binary_search(&point).is_ok() => point.1,
            _ => {
                let place = after.partition_point(|(time, _)| *time < to.time);
                after.get(place)?.1
            }
        };
        let known = before.partition_point(|(time, _)| *time <= from.time);
        let earlier = |(_, sequence): &&(Time, u64)| *sequence < end;
        let start = before[..known].iter().rev().find(earlier)?.1;
        (self.line_of(start) != self.line_of(end)).then_some(Arrow {
            from: start,
            to: end,
            reason: link.reason.label(),
        })
    }

    /// The operations to show, by sequence: the events; what orders them as far as it
    /// goes; what else orders anything, the nearest to the last event first; then work,
    /// the nearest to any event first.
    fn choose(&self, path: &[Arrow], arrows: &[Arrow]) -> Vec<u64> {
        let (first, last) = self.span;
        let mut chosen: Vec<u64> = self.events.iter().map(|(_, op)| op.sequence).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let mut take = |sequence: u64, most: usize| {
            if chosen.len() < most && !chosen.contains(&sequence) {
                chosen.push(sequence);
            }
        };
        for arrow in path.iter().rev() {
            take(arrow.to, ORDERING);
            take(arrow.from, ORDERING);
        }
        let mut nearest: Vec<&Arrow> = arrows.iter().collect();
        nearest.sort_unstable_by_key(|arrow| std::cmp::Reverse((arrow.to, arrow.from)));
        for arrow in nearest {
            take(arrow.to, ORDERING);
            take(arrow.from, ORDERING);
        }
        let within: Vec<&Entry> = self
            .order()
            .recent
            .iter()
            .filter(|entry| (first..=last).contains(&entry.op.sequence) && entry.is_placed())
            .filter(|entry| entry.epoch.slot != HOST && self.is_shown(self.line(entry)))
            .collect();
        let of = |parts: &'static [Part]| {
            within
                .iter()
                .rev()
                .filter(|entry| parts.contains(&entry.part))
                .map(|entry| entry.op.sequence)
        };
        for sequence in of(&[Part::Order, Part::Scope]).chain(of(&[Part::Lifetime])) {
            take(sequence, ORDERING);
        }
        let distance = |sequence: &u64| {
            let events = self.events.iter().map(|(_, op)| op.sequence);
            events.map(|event| event.abs_diff(*sequence)).min()
        };
        let mut work: Vec<u64> = of(&[Part::Work]).collect();
        work.sort_by_key(distance);
        for sequence in work {
            take(sequence, OPERATIONS);
        }
        chosen.sort_unstable();
        chosen
    }

    /// The arrows between the chosen operations, each pair once, by their ends. What one
    /// call does on several lanes orders what is next on each of them as well.
    fn between(
        &self,
        points: &Points,
        chosen: &[u64],
        arrows: impl Iterator<Item = Arrow>,
    ) -> Vec<Arrow> {
        let is_chosen = |sequence: &u64| chosen.binary_search(sequence).is_ok();
        let along = points.values().flat_map(|points| {
            let shown: Vec<u64> = points
                .iter()
                .map(|(_, sequence)| *sequence)
                .filter(is_chosen)
                .collect();
            let pairs: Vec<Arrow> = shown
                .windows(2)
                .filter(|pair| pair[0] < pair[1] && self.line_of(pair[0]) != self.line_of(pair[1]))
                .map(|pair| Arrow {
                    from: pair[0],
                    to: pair[1],
                    reason: Reason::Program.label(),
                })
                .collect();
            pairs
        });
        let mut kept: Vec<Arrow> = arrows
            .filter(|arrow| is_chosen(&arrow.from) && is_chosen(&arrow.to))
            .chain(along)
            .collect();
        // Stable, so that of two reasons a link's is kept.
        kept.sort_by_key(|arrow| (arrow.to, arrow.from));
        kept.dedup_by_key(|arrow| (arrow.to, arrow.from));
        let surplus = kept.len().saturating_sub(EDGES);
        kept.drain(..surplus);
        kept
    }

    fn draw(&self, chosen: &[u64], arrows: &[Arrow]) -> Timeline {
        let mut lines: Vec<Line> = chosen.iter().map(|one| self.line_of(*one)).collect();
        lines.sort_unstable();
        lines.dedup();
        let lanes = lines.iter().map(|line| match line {
            None => Lane {
                name: "host".to_owned(),
                device: 0,
            },
            Some(id) => Lane {
                name: self.view.stream_in_full(*id),
                device: self.order().facts(*id).map_or(0, |facts| facts.device),
            },
        });
        let operations = chosen.iter().filter_map(|&sequence| {
            // An event may be older than what is remembered.
            let op = self.event(sequence).copied();
            let op = op.or_else(|| Some(self.order().recent.get(sequence)?.op))?;
            Some(TimelineOperation {
                sequence,
                lane: lines.binary_search(&self.line_of(sequence)).ok()?,
                api: self.view.names.text(op.api).to_owned(),
                kernel: self.view.kernel(op),
                place: None,
                stack: op.stack,
            })
        });
        let edges = arrows.iter().map(|arrow| TimelineEdge {
            from: arrow.from,
            to: arrow.to,
            reason: arrow.reason.to_owned(),
        });
        Timeline {
            lanes: lanes.collect(),
            operations: operations.collect(),
            edges: edges.collect(),
        }
    }
}
