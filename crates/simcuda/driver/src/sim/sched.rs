//! The deterministic scheduler: streams are queues, and an operation stays pending until something forces it.
//!
//! Model. An operation runs once everything before it in its stream and everything it depends on has run. Each step
//! picks one of the streams whose head may run, by a seeded generator; so any order that CUDA allows can show, the same
//! one each time for the same seed and calls. Event waits and the legacy stream's barriers are dependencies like any
//! other: on a [`Past`], what a stream had been given when the dependency was made.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    /// Gives an address back that was allocated outside of a pool.
    Release(u64),
}

impl Work {
    /// Programs wait for it without asking CUDA: host functions, and what reads or writes values.
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Host(_) | Self::Value(_) | Self::Wait(_))
    }

    /// Its turn may come, as far as it depends on no other operation.
    fn may_run(&self) -> bool {
        match self {
            Self::Wait(holds) => holds(),
            _ => true,
        }
    }
}

struct Operation {
    seq: u64,
    after: Vec<Point>,
    work: Work,
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Operation>,
    busy: bool,
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
        self.pending_waits += usize::from(matches!(work, Work::Wait(_)));
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

    /// Operations neither done nor running.
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

    /// Takes one runnable operation, or none if all that is pending waits for something that is running, or for a value.
    pub(crate) fn start(&mut self) -> Option<(Point, Work)> {
        let runnable: Vec<StreamId> = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.busy)
            .filter(|(_, queue)| {
                queue.operations.front().is_some_and(|head| {
                    head.after.iter().all(|&point| self.is_done(point)) && head.work.may_run()
                })
            })
            .map(|(&stream, _)| stream)
            .collect();
        let stream = match runnable.len() {
            0 => return None,
            1 => runnable[0],
            several => runnable[self.random_below(several)],
        };
        let queue = self.queues.get_mut(&stream)?;
        let operation = queue.operations.pop_front()?;
        queue.busy = true;
        self.pending -= 1;
        self.pending_awaited -= usize::from(operation.work.is_awaited());
        self.pending_waits -= usize::from(matches!(operation.work, Work::Wait(_)));
        self.busy += 1;
        Some((
            Point {
                stream,
                seq: operation.seq,
            },
            operation.work,
        ))
    }

    /// The operation that [`Scheduler::start`] gave out has run.
    pub(crate) fn finish(&mut self, point: Point) {
        if let Some(queue) = self.queues.get_mut(&point.stream) {
            queue.busy = false;
            queue.done = point.seq;
            self.busy -= 1;
            self.forget_if_over(point.stream);
        }
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
    use super::*;
    use std::sync::atomic::Ordering;

    /// Runs everything; the order in which the operations ran.
    fn run(sched: &mut Scheduler) -> Vec<Point> {
        let mut order = Vec::new();
        while let Some((point, _)) = sched.start() {
            sched.finish(point);
            order.push(point);
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
        let (point, _) = sched.start().unwrap();
        assert_eq!(point, first);
        let past = sched.past(a);
        sched.submit(b, &[past], Work::Marker);
        assert!(sched.start().is_none());
        assert_eq!((sched.busy(), sched.pending()), (1, 1));
        sched.finish(first);
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
        let (point, _) = sched.start().unwrap();
        assert_eq!(point, other);
        sched.finish(point);
        assert!(sched.start().is_none());
        assert_eq!((sched.pending_waits(), sched.pending_awaited()), (1, 1));
        flag.store(1, Ordering::Relaxed);
        assert_eq!(run(&mut sched), [wait, after]);
        assert_eq!((sched.pending_waits(), sched.pending_awaited()), (0, 0));
    }
}
