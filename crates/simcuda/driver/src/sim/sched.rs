//! The deterministic scheduler: streams are queues, and an operation stays pending until something forces it.
//!
//! Model. An operation runs once everything before it in its stream and everything it depends on has run. Each step
//! picks one of the streams whose head may run, by a seeded generator; so any order that CUDA allows can show, the same
//! one each time for the same seed and calls. Event waits and the legacy stream's barriers are dependencies like any
//! other: on a [`Past`], what a stream had been given when the dependency was made.

use super::plan::{Given, Launch, Run};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stream of the machine's life: never used twice, whatever becomes of its handle.
pub(crate) type StreamId = u64;

/// A stream that knows of more streams than this forgets the ended ones.
const MANY_KNOWN: usize = 64;

/// The operation number `seq` of a stream, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) stream: StreamId,
    pub(crate) seq: u64,
}

/// A point, and what else is known to come before it: the newest such point of each stream.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) point: Point,
    known: BTreeMap<StreamId, u64>,
}

/// What an operation does when its turn comes.
pub(crate) enum Work {
    /// Nothing: it orders only.
    Marker,
    /// Moves bytes or runs a kernel; runs without the machine's lock.
    Device(Box<dyn FnOnce() + Send>),
    /// Runs the application's code, on the thread kept for that.
    Host(Box<dyn FnOnce() + Send>),
    /// Writes a value that the host may look for without asking CUDA; runs as `Device` does.
    Value(Box<dyn FnOnce() + Send>),
    /// Holds its stream until the condition is true, which any store may make it. Quick: it is looked at under the lock.
    Wait(Box<dyn Fn() -> bool + Send>),
    /// Stamps an event with the simulated time.
    Stamp(Arc<AtomicU64>),
    /// Holds its stream until an event is stamped, which a node of a graph does.
    Gate(Arc<AtomicU64>),
    /// Gives an address back that was allocated outside of a pool.
    Release(u64),
    /// Runs the nodes of a graph.
    Launch(Box<Launch>),
}

/// An operation that [`Scheduler::start`] gave out, or one node of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) point: Point,
    /// The node within the launch; empty for the operation itself.
    path: Vec<usize>,
}

impl Work {
    /// Programs wait for it without asking CUDA: host functions, and what reads or writes values.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Host(_) | Self::Value(_) | Self::Wait(_) => true,
            Self::Launch(launch) => launch.plan.awaited,
            _ => false,
        }
    }

    /// A store may set it free, or something in it.
    fn is_polled(&self) -> bool {
        match self {
            Self::Wait(_) => true,
            Self::Launch(launch) => launch.plan.polled,
            _ => false,
        }
    }

    /// Its turn may come, as far as it depends on no other operation.
    fn may_run(&self) -> bool {
        match self {
            Self::Wait(holds) => holds(),
            Self::Gate(time) => time.load(Ordering::Acquire) != 0,
            _ => true,
        }
    }
}

struct Operation {
    seq: u64,
    after: Vec<Point>,
    work: Work,
}

/// A launch that is being run.
struct Active {
    seq: u64,
    run: Run,
    given: HashMap<u64, Given>,
    awaited: bool,
    polled: bool,
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Operation>,
    busy: bool,
    active: Option<Active>,
    closed: bool,
    submitted: u64,
    done: u64,
    known: BTreeMap<StreamId, u64>,
}

/// The queues of all streams of the machine.
pub(crate) struct Scheduler {
    queues: BTreeMap<StreamId, Queue>,
    next_stream: StreamId,
    random: u64,
    pending: usize,
    pending_awaited: usize,
    pending_waits: usize,
    busy: usize,
}

impl Scheduler {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            queues: BTreeMap::new(),
            next_stream: 1,
            random: seed,
            pending: 0,
            pending_awaited: 0,
            pending_waits: 0,
            busy: 0,
        }
    }

    pub(crate) fn open(&mut self) -> StreamId {
        let id = self.next_stream;
        self.next_stream += 1;
        self.queues.insert(id, Queue::default());
        id
    }

    /// The stream's handle is gone; what it was given still runs.
    pub(crate) fn close(&mut self, stream: StreamId) {
        if let Some(queue) = self.queues.get_mut(&stream) {
            queue.closed = true;
            self.forget_if_over(stream);
        }
    }

    fn forget_if_over(&mut self, stream: StreamId) {
        if self
            .queues
            .get(&stream)
            .is_some_and(|queue| queue.closed && queue.done == queue.submitted)
        {
            self.queues.remove(&stream);
        }
    }

    /// Appends an operation that also waits for each of `after`.
    pub(crate) fn submit(&mut self, stream: StreamId, after: &[Arc<Past>], work: Work) -> Point {
        let waits: Vec<Point> = after
            .iter()
            .map(|past| past.point)
            .filter(|&point| !self.is_done(point))
            .collect();
        self.forget_ended(stream);
        let Some(queue) = self.queues.get_mut(&stream) else {
            return Point { stream, seq: 0 };
        };
        for past in after {
            for (&other, &seq) in past
                .known
                .iter()
                .chain([(&past.point.stream, &past.point.seq)])
            {
                let newest = queue.known.entry(other).or_default();
                *newest = seq.max(*newest);
            }
        }
        queue.submitted += 1;
        let seq = queue.submitted;
        self.pending += 1;
        self.pending_awaited += usize::from(work.is_awaited());
        self.pending_waits += usize::from(work.is_polled());
        queue.operations.push_back(Operation {
            seq,
            after: waits,
            work,
        });
        Point { stream, seq }
    }

    /// What ended streams did is done: nothing needs to know that it came before.
    fn forget_ended(&mut self, stream: StreamId) {
        let Some(queue) = self.queues.get_mut(&stream) else {
            return;
        };
        if queue.known.len() > MANY_KNOWN {
            let mut known = std::mem::take(&mut queue.known);
            known.retain(|&other, _| self.exists(other));
            if let Some(queue) = self.queues.get_mut(&stream) {
                queue.known = known;
            }
        }
    }

    /// Everything the stream has been given so far.
    pub(crate) fn past(&self, stream: StreamId) -> Arc<Past> {
        let (seq, known) = match self.queues.get(&stream) {
            Some(queue) => (queue.submitted, queue.known.clone()),
            None => (0, BTreeMap::new()),
        };
        Arc::new(Past {
            point: Point { stream, seq },
            known,
        })
    }

    pub(crate) fn is_done(&self, point: Point) -> bool {
        self.queues
            .get(&point.stream)
            .is_none_or(|queue| queue.done >= point.seq)
    }

    /// The stream is open, or closed with work left.
    pub(crate) fn exists(&self, stream: StreamId) -> bool {
        self.queues.contains_key(&stream)
    }

    /// Nothing of the stream is pending or running.
    pub(crate) fn is_idle(&self, stream: StreamId) -> bool {
        self.queues
            .get(&stream)
            .is_none_or(|queue| queue.done == queue.submitted)
    }

    /// Whether the order of the calls alone makes later work of `stream` come after `point`.
    pub(crate) fn is_before(&self, point: Point, stream: StreamId) -> bool {
        point.stream == stream
            || self.queues.get(&stream).is_some_and(|queue| {
                queue
                    .known
                    .get(&point.stream)
                    .is_some_and(|&seq| seq >= point.seq)
            })
    }

    /// Operations neither done nor running; a launch is pending until its last node is done.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Those among them that programs wait for without asking CUDA.
    pub(crate) fn pending_awaited(&self) -> usize {
        self.pending_awaited
    }

    /// Those among them that a store may set free: they have to be looked at again and again.
    pub(crate) fn pending_waits(&self) -> usize {
        self.pending_waits
    }

    /// Operations that are running now.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// The stream's head may run.
    fn is_head_free(&self, queue: &Queue) -> bool {
        !queue.busy
            && queue.active.is_none()
            && queue.operations.front().is_some_and(|head| {
                head.after.iter().all(|&point| self.is_done(point)) && head.work.may_run()
            })
    }

    /// Begins the launches whose turn has come: from then on their nodes are what may run.
    fn begin_launches(&mut self) {
        let begun = self.queues.iter().filter(|(_, queue)| {
            matches!(
                queue.operations.front(),
                Some(Operation {
                    work: Work::Launch(_),
                    ..
                })
            ) && self.is_head_free(queue)
        });
        let begun: Vec<StreamId> = begun.map(|(&stream, _)| stream).collect();
        for stream in begun {
            let Some(queue) = self.queues.get_mut(&stream) else {
                continue;
            };
            let Some(Operation { seq, work, after }) = queue.operations.pop_front() else {
                continue;
            };
            let (awaited, polled) = (work.is_awaited(), work.is_polled());
            let Work::Launch(launch) = work else { continue };
            (launch.begin)();
            let run = Run::new(launch.plan);
            if run.is_over() {
                let work = Work::Marker;
                queue.operations.push_front(Operation { seq, work, after });
                self.pending_awaited -= usize::from(awaited);
                self.pending_waits -= usize::from(polled);
            } else {
                queue.active = Some(Active {
                    seq,
                    run,
                    given: launch.given,
                    awaited,
                    polled,
                });
            }
        }
    }

    /// Whether what a launch brought along for a node may run.
    fn may_start(&self, given: &HashMap<u64, Given>, node: u64) -> bool {
        given.get(&node).is_none_or(|given| {
            given.after.iter().all(|&point| self.is_done(point)) && given.work.may_run()
        })
    }

    /// Takes one runnable operation or node, or none if all that is pending waits for something that is running, or for
    /// a value.
    pub(crate) fn start(&mut self) -> Option<(Turn, Work)> {
        self.begin_launches();
        let counts = self
            .queues
            .iter()
            .map(|(&stream, queue)| match &queue.active {
                Some(active) => {
                    let may = |node| self.may_start(&active.given, node);
                    (stream, active.run.startable(&may))
                }
                None => (stream, usize::from(self.is_head_free(queue))),
            });
        let runnable: Vec<(StreamId, usize)> = counts.filter(|&(_, count)| count > 0).collect();
        let mut which = match runnable.iter().map(|&(_, count)| count).sum() {
            0 => return None,
            1 => 0,
            several => self.random_below(several),
        };
        let &(stream, _) = runnable.iter().find(|&&(_, count)| {
            let found = which < count;
            if !found {
                which -= count;
            }
            found
        })?;
        if self.queues.get(&stream)?.active.is_some() {
            return self.start_node(stream, which);
        }
        let queue = self.queues.get_mut(&stream)?;
        let operation = queue.operations.pop_front()?;
        queue.busy = true;
        self.pending -= 1;
        self.pending_awaited -= usize::from(operation.work.is_awaited());
        self.pending_waits -= usize::from(operation.work.is_polled());
        self.busy += 1;
        let point = Point {
            stream,
            seq: operation.seq,
        };
        let path = Vec::new();
        Some((Turn { point, path }, operation.work))
    }

    /// Takes number `which` of the nodes that may run of the stream's launch.
    fn start_node(&mut self, stream: StreamId, which: usize) -> Option<(Turn, Work)> {
        // Out of its place meanwhile: whether a node may start depends on the other streams.
        let mut active = self.queues.get_mut(&stream)?.active.take()?;
        let mut path = Vec::new();
        let may = |node| self.may_start(&active.given, node);
        let taken = active.run.take(which, &may, &mut path);
        let work = taken.map(|taken| match taken {
            Ok(work) => work,
            Err(node) => active
                .given
                .remove(&node)
                .map_or(Work::Marker, |given| given.work),
        });
        let point = Point {
            stream,
            seq: active.seq,
        };
        self.queues.get_mut(&stream)?.active = Some(active);
        self.busy += 1;
        work.map(|work| (Turn { point, path }, work))
    }

    /// The operation or node that [`Scheduler::start`] gave out has run.
    pub(crate) fn finish(&mut self, turn: Turn) {
        let point = turn.point;
        let Some(queue) = self.queues.get_mut(&point.stream) else {
            return;
        };
        self.busy -= 1;
        if turn.path.is_empty() {
            queue.busy = false;
        } else if let Some(active) = &mut queue.active {
            active.run.finish(&turn.path);
            if !active.run.is_over() {
                return;
            }
            self.pending -= 1;
            self.pending_awaited -= usize::from(active.awaited);
            self.pending_waits -= usize::from(active.polled);
            queue.active = None;
        }
        queue.done = point.seq;
        self.forget_if_over(point.stream);
    }

    /// SplitMix64: small, and every seed is a good one.
    fn random_below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Plan, PlanNode, Task};
    use super::*;

    /// Runs everything; the order in which the operations ran.
    fn run(sched: &mut Scheduler) -> Vec<Point> {
        let mut order = Vec::new();
        while let Some((turn, _)) = sched.start() {
            order.push(turn.point);
            sched.finish(turn);
        }
        assert_eq!((sched.pending(), sched.busy()), (0, 0));
        order
    }

    fn position(order: &[Point], point: Point) -> usize {
        order.iter().position(|&other| other == point).unwrap()
    }

    fn two_streams(seed: u64) -> Vec<Point> {
        let mut sched = Scheduler::new(seed);
        let (a, b) = (sched.open(), sched.open());
        for _ in 0..8 {
            sched.submit(a, &[], Work::Marker);
            sched.submit(b, &[], Work::Marker);
        }
        run(&mut sched)
    }

    #[test]
    fn same_seed_same_order_and_seeds_differ() {
        assert_eq!(two_streams(1), two_streams(1));
        assert!((2..10).any(|seed| two_streams(seed) != two_streams(1)));
    }

    #[test]
    fn streams_keep_their_order_for_every_seed() {
        for seed in 0..50 {
            let order = two_streams(seed);
            for stream in [1, 2] {
                let seqs: Vec<u64> = order
                    .iter()
                    .filter(|p| p.stream == stream)
                    .map(|p| p.seq)
                    .collect();
                assert_eq!(seqs, (1..=8).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_dependency_holds_for_every_seed_and_without_it_both_orders_show() {
        let mut seen = [false; 2];
        for seed in 0..50 {
            for wait in [true, false] {
                let mut sched = Scheduler::new(seed);
                let (a, b) = (sched.open(), sched.open());
                let write = sched.submit(a, &[], Work::Marker);
                let after = if wait { vec![sched.past(a)] } else { vec![] };
                sched.submit(b, &after, Work::Marker);
                let read = sched.submit(b, &[], Work::Marker);
                let order = run(&mut sched);
                let ordered = position(&order, write) < position(&order, read);
                if wait {
                    assert!(ordered);
                } else {
                    seen[usize::from(ordered)] = true;
                }
            }
        }
        assert_eq!(seen, [true, true]);
    }

    #[test]
    fn closed_streams_finish_their_work() {
        let mut sched = Scheduler::new(0);
        let a = sched.open();
        let last = sched.submit(a, &[], Work::Marker);
        sched.close(a);
        assert!(!sched.is_done(last));
        assert_eq!(run(&mut sched), [last]);
        assert!(sched.is_done(last) && sched.is_idle(a));
    }

    #[test]
    fn what_is_before_is_known_through_several_waits() {
        let mut sched = Scheduler::new(0);
        let (a, b, c) = (sched.open(), sched.open(), sched.open());
        let free = sched.submit(a, &[], Work::Marker);
        let past = sched.past(a);
        sched.submit(b, &[past], Work::Marker);
        assert!(sched.is_before(free, a) && sched.is_before(free, b) && !sched.is_before(free, c));
        let past = sched.past(b);
        sched.submit(c, &[past], Work::Marker);
        assert!(sched.is_before(free, c));
        let later = sched.submit(a, &[], Work::Marker);
        assert!(!sched.is_before(later, c));
    }

    #[test]
    fn ended_streams_are_forgotten() {
        let mut sched = Scheduler::new(0);
        let kept = sched.open();
        for _ in 0..1000 {
            let other = sched.open();
            sched.submit(other, &[], Work::Marker);
            let past = sched.past(other);
            sched.submit(kept, &[past], Work::Marker);
            sched.close(other);
            run(&mut sched);
        }
        assert_eq!(sched.queues.len(), 1);
        assert!(sched.queues[&kept].known.len() <= MANY_KNOWN + 1);
    }

    #[test]
    fn a_busy_stream_blocks_only_what_depends_on_it() {
        let mut sched = Scheduler::new(0);
        let (a, b) = (sched.open(), sched.open());
        let first = sched.submit(a, &[], Work::Host(Box::new(|| ())));
        assert_eq!(sched.pending_awaited(), 1);
        let (turn, _) = sched.start().unwrap();
        assert_eq!(turn.point, first);
        let past = sched.past(a);
        sched.submit(b, &[past], Work::Marker);
        assert!(sched.start().is_none());
        assert_eq!((sched.busy(), sched.pending()), (1, 1));
        sched.finish(turn);
        assert_eq!(run(&mut sched).len(), 1);
    }

    #[test]
    fn a_wait_holds_its_own_stream_only_and_until_its_value_is_there() {
        let mut sched = Scheduler::new(0);
        let (a, b) = (sched.open(), sched.open());
        let flag = Arc::new(AtomicU64::new(0));
        let seen = flag.clone();
        let holds = move || seen.load(Ordering::Relaxed) == 1;
        let wait = sched.submit(a, &[], Work::Wait(Box::new(holds)));
        let after = sched.submit(a, &[], Work::Marker);
        let other = sched.submit(b, &[], Work::Marker);
        let (turn, _) = sched.start().unwrap();
        assert_eq!(turn.point, other);
        sched.finish(turn);
        assert!(sched.start().is_none());
        assert_eq!((sched.pending_waits(), sched.pending_awaited()), (1, 1));
        flag.store(1, Ordering::Relaxed);
        assert_eq!(run(&mut sched), [wait, after]);
        assert_eq!((sched.pending_waits(), sched.pending_awaited()), (0, 0));
    }

    /// A launch of two nodes without an edge between them, the second of which stamps `event`.
    fn launch(event: &Arc<AtomicU64>) -> Work {
        let node = |id, task| PlanNode {
            id,
            task,
            needs: 0,
            then: Vec::new(),
        };
        let plan = Plan {
            nodes: vec![
                node(1, Task::Same(Arc::new(|| Work::Marker))),
                node(2, Task::Given),
            ],
            awaited: true,
            polled: true,
        };
        let work = Work::Stamp(event.clone());
        let after = Vec::new();
        Work::Launch(Box::new(Launch {
            plan: Arc::new(plan),
            given: HashMap::from([(2, Given { work, after })]),
            begin: Box::new(|| ()),
        }))
    }

    #[test]
    fn a_launch_is_one_operation_and_its_nodes_run_in_any_order() {
        let mut firsts = [false; 2];
        for seed in 0..20 {
            let mut sched = Scheduler::new(seed);
            let a = sched.open();
            let event = Arc::new(AtomicU64::new(0));
            let before = sched.submit(a, &[], Work::Marker);
            let graph = sched.submit(a, &[], launch(&event));
            assert_eq!((sched.pending_awaited(), sched.pending_waits()), (1, 1));
            let after = sched.submit(a, &[], Work::Marker);
            let mut stamps = Vec::new();
            let mut order = Vec::new();
            while let Some((turn, work)) = sched.start() {
                order.push(turn.point);
                stamps.push(matches!(work, Work::Stamp(_)));
                assert!(sched.pending() > 0 || turn.point == after);
                sched.finish(turn);
            }
            assert_eq!(order, [before, graph, graph, after]);
            assert_eq!((sched.pending_awaited(), sched.pending_waits()), (0, 0));
            firsts[usize::from(stamps[1])] = true;
        }
        assert_eq!(firsts, [true; 2]);
    }

    #[test]
    fn a_gate_opens_when_the_node_has_run() {
        let mut sched = Scheduler::new(0);
        let (a, b) = (sched.open(), sched.open());
        let event = Arc::new(AtomicU64::new(0));
        let gate = sched.submit(b, &[], Work::Gate(event.clone()));
        assert!(sched.start().is_none());
        sched.submit(a, &[], launch(&event));
        while let Some((turn, work)) = sched.start() {
            assert!(turn.point != gate || event.load(Ordering::Relaxed) != 0);
            if let Work::Stamp(time) = work {
                time.store(1, Ordering::Relaxed);
            }
            sched.finish(turn);
        }
        assert!(sched.is_done(gate));
        assert_eq!((sched.pending(), sched.busy()), (0, 0));
    }
}
