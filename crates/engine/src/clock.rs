//! Vector clocks.
//!
//! A *timeline* is a sequence of operations that happen in order: a stream, or the
//! host. Each has a [`Slot`] in every clock and a [`Time`] that rises with its
//! segments. An operation's [`Epoch`] is its timeline and that timeline's time; a
//! timeline *knows* an epoch when everything up to it happens before whatever the
//! timeline does next. That test is one indexed compare.
//!
//! A clock keeps two answers apart. What is *seen* to hold includes the waits that
//! some calls make although NVIDIA does not promise them; what is *promised* does
//! not. They are one vector until such a wait orders something.
//!
//! The scheme is that of vector clocks with epochs as race detectors use it
//! (FastTrack; Miri's `vector_clock`): clocks live on timelines and events, data
//! carry epochs only.

use smallvec::SmallVec;
use triomphe::Arc;

/// A timeline's place in every clock. 0 is the host.
pub(crate) type Slot = u32;

/// A timeline's own time. It begins at 1, so 0 in a clock means "knows nothing". Runs of
/// weeks pass 2^32 segments.
pub(crate) type Time = u64;

/// The host's slot.
pub(crate) const HOST: Slot = 0;

/// A point of one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Epoch {
    pub(crate) slot: Slot,
    pub(crate) time: Time,
}

/// For each timeline, the time up to which it is known; in place while they are few.
#[derive(Clone, Debug, Default)]
struct Times(SmallVec<[Time; 12]>);

impl Times {
    #[inline]
    fn get(&self, slot: Slot) -> Time {
        self.0.get(slot as usize).copied().unwrap_or(0)
    }

    fn join(&mut self, other: &Self, at: Epoch) {
        let slots = other.0.len().max(at.slot as usize + 1);
        if self.0.len() < slots {
            self.0.resize(slots, 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
        let own = &mut self.0[at.slot as usize];
        *own = (*own).max(at.time);
    }

    /// Times that are not there count as 0.
    fn equals(&self, other: &Self) -> bool {
        let slots = self.0.len().max(other.0.len()) as Slot;
        (0..slots).all(|slot| self.get(slot) == other.get(slot))
    }
}

/// A wait for a value that no write seen so far ends; see `order`.
pub(crate) type WaitId = u32;

/// More waits than are told apart.
pub(crate) const MANY: WaitId = WaitId::MAX;

/// An open wait that what follows comes after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) wait: WaitId,
    /// It was taken so, as part of everything there was.
    pub(crate) guessed: bool,
}

/// What a timeline knows of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    seen: Times,
    /// What is promised, where that is less.
    promised: Option<Box<Times>>,
    /// Open waits that what follows comes after.
    awaits: SmallVec<[Awaited; 2]>,
}

impl Clock {
    #[inline]
    fn promised(&self) -> &Times {
        self.promised.as_deref().unwrap_or(&self.seen)
    }

    fn join(&mut self, frontier: &Frontier, promised: bool) {
        let theirs = &frontier.clock;
        if !promised || self.promised.is_some() || theirs.promised.is_some() {
            let mut known = match self.promised.take() {
                Some(known) => known,
                None => Box::new(self.seen.clone()),
            };
            if promised {
                known.join(theirs.promised(), frontier.epoch);
            }
            self.seen.join(&theirs.seen, frontier.epoch);
            self.promised = (!known.equals(&self.seen)).then_some(known);
        } else {
            self.seen.join(&theirs.seen, frontier.epoch);
        }
        self.join_awaits(&theirs.awaits);
    }

    /// Open waits told apart.
    const AWAITS: usize = 32;

    fn join_awaits(&mut self, theirs: &[Awaited]) {
        for theirs in theirs {
            match self.awaits.iter_mut().find(|mine| mine.wait == theirs.wait) {
                Some(mine) => mine.guessed &= theirs.guessed,
                None => self.awaits.push(*theirs),
            }
        }
        self.limit_awaits();
    }

    /// Many waits become one that is over when the host knows the timeline complete.
    fn limit_awaits(&mut self) {
        if self.awaits.len() > Self::AWAITS {
            let guessed = self.awaits.iter().all(|awaited| awaited.guessed);
            self.awaits.clear();
            self.awaits.push(Awaited {
                wait: MANY,
                guessed,
            });
        }
    }
}

/// Clocks that nobody shares any more, for those who need one of their own.
#[derive(Debug, Default)]
pub(crate) struct Spare(Vec<Arc<Clock>>);

impl Spare {
    const MOST: usize = 64;

    /// A frontier that is of no use any more.
    #[inline]
    pub(crate) fn take(&mut self, frontier: Frontier) {
        if self.0.len() < Self::MOST && frontier.clock.is_unique() {
            self.0.push(frontier.clock);
        }
    }

    /// The clock, shared with nobody.
    #[inline]
    fn own<'a>(&mut self, clock: &'a mut Arc<Clock>) -> &'a mut Clock {
        if !clock.is_unique()
            && let Some(mut room) = self.0.pop()
            && let Some(copy) = Arc::get_mut(&mut room)
        {
            copy.seen.0.clear();
            copy.seen.0.extend_from_slice(&clock.seen.0);
            copy.promised.clone_from(&clock.promised);
            copy.awaits.clone_from(&clock.awaits);
            *clock = room;
        }
        // Without room to spare this makes some.
        Arc::make_mut(clock)
    }
}

/// Everything up to a point of one timeline: what an event record captures.
#[derive(Clone, Debug)]
pub(crate) struct Frontier {
    clock: Arc<Clock>,
    pub(crate) epoch: Epoch,
}

impl Frontier {
    /// The open waits that it comes after.
    pub(crate) fn awaits(&self) -> &[Awaited] {
        &self.clock.awaits
    }

    /// Whether everything up to `epoch` happens before it, on NVIDIA's word.
    pub(crate) fn promises(&self, epoch: Epoch) -> bool {
        let own = epoch.slot == self.epoch.slot && epoch.time <= self.epoch.time;
        own || self.clock.promised().get(epoch.slot) >= epoch.time
    }

    /// The same, for whom it only may come before: that ends no wait.
    pub(crate) fn guessed(mut self) -> Self {
        if self.clock.awaits.iter().any(|awaited| !awaited.guessed) {
            for awaited in &mut Arc::make_mut(&mut self.clock).awaits {
                awaited.guessed = true;
            }
        }
        self
    }
}

/// What a timeline knows at one moment, for asking often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon<'a> {
    now: Epoch,
    times: &'a [Time],
}

impl Horizon<'_> {
    /// Whether everything up to `epoch` happens before what the timeline does next.
    #[inline]
    pub(crate) fn knows(&self, epoch: Epoch) -> bool {
        let known = if epoch.slot == self.now.slot {
            self.now.time
        } else {
            self.times.get(epoch.slot as usize).copied().unwrap_or(0)
        };
        known >= epoch.time
    }
}

/// A timeline and what it knows of the others.
#[derive(Debug)]
pub(crate) struct Timeline {
    clock: Arc<Clock>,
    now: Epoch,
    /// Someone may know `now` already, so the next operation needs a later time.
    published: bool,
}

impl Timeline {
    pub(crate) fn new(slot: Slot) -> Self {
        Self {
            clock: Arc::default(),
            now: Epoch { slot, time: 1 },
            published: false,
        }
    }

    /// A new timeline in the slot of one that ended at `last`.
    pub(crate) fn after(last: Epoch) -> Self {
        let now = Epoch {
            slot: last.slot,
            time: last.time + 1,
        };
        Self {
            clock: Arc::default(),
            now,
            published: false,
        }
    }

    pub(crate) fn now(&self) -> Epoch {
        self.now
    }

    /// Whether everything up to `epoch` happens before what this timeline does next.
    #[inline]
    pub(crate) fn knows(&self, epoch: Epoch) -> bool {
        self.known(epoch.slot) >= epoch.time
    }

    /// Whether NVIDIA promises as much.
    #[inline]
    pub(crate) fn is_promised(&self, epoch: Epoch) -> bool {
        epoch.slot == self.now.slot && self.now.time >= epoch.time
            || self.clock.promised().get(epoch.slot) >= epoch.time
    }

    /// The time up to which this timeline knows `slot`.
    #[inline]
    pub(crate) fn known(&self, slot: Slot) -> Time {
        if slot == self.now.slot {
            self.now.time
        } else {
            self.clock.seen.get(slot)
        }
    }

    /// What this timeline knows now, or is promised.
    #[inline]
    pub(crate) fn horizon(&self, promised: bool) -> Horizon<'_> {
        let times = if promised {
            self.clock.promised()
        } else {
            &self.clock.seen
        };
        Horizon {
            now: self.now,
            times: &times.0,
        }
    }

    /// The open waits that what follows comes after.
    #[inline]
    pub(crate) fn awaits(&self) -> &[Awaited] {
        &self.clock.awaits
    }

    /// What follows comes after this open wait.
    pub(crate) fn await_value(&mut self, wait: WaitId) {
        Arc::make_mut(&mut self.clock).join_awaits(&[Awaited {
            wait,
            guessed: false,
        }]);
        self.now.time += 1;
        self.published = false;
    }

    /// Keeps the waits that are still open. Frontiers from before may hold more,
    /// which whoever learns them drops in turn.
    pub(crate) fn retain_awaits(&mut self, open: impl Fn(WaitId) -> bool) {
        if !self.clock.awaits.iter().all(|awaited| open(awaited.wait)) {
            Arc::make_mut(&mut self.clock)
                .awaits
                .retain(|awaited| open(awaited.wait));
        }
    }

    /// The epoch of an operation made now; true if it opens a new segment.
    #[inline]
    pub(crate) fn operate(&mut self) -> (Epoch, bool) {
        let opens = std::mem::take(&mut self.published);
        if opens {
            self.now.time += 1;
        }
        (self.now, opens)
    }

    /// Everything up to now, for another timeline to learn.
    pub(crate) fn frontier(&mut self) -> Frontier {
        self.published = true;
        Frontier {
            clock: self.clock.clone(),
            epoch: self.now,
        }
    }

    /// Makes everything up to `frontier` happen before what follows here, as is
    /// `promised` or only seen. False if it did already. A segment's knowledge never
    /// changes, so knowing a frontier's epoch is knowing all of it.
    pub(crate) fn learn(&mut self, frontier: &Frontier, promised: bool, spare: &mut Spare) -> bool {
        let known = if promised {
            self.is_promised(frontier.epoch)
        } else {
            self.knows(frontier.epoch)
        };
        if known {
            // The host may have been told of the work and not of the wait.
            if !frontier.awaits().is_empty() {
                Arc::make_mut(&mut self.clock).join_awaits(frontier.awaits());
            }
            return false;
        }
        spare.own(&mut self.clock).join(frontier, promised);
        self.now.time += 1;
        self.published = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frontier_covers_what_came_before_it_and_nothing_after() {
        let (mut a, mut b) = (Timeline::new(1), Timeline::new(2));
        let (before, _) = a.operate();
        let frontier = a.frontier();
        let (after, opens) = a.operate();
        assert!(opens && !b.knows(before));
        assert!(b.learn(&frontier, true, &mut Spare::default()));
        assert!(b.knows(before) && !b.knows(after));
        assert!(
            !b.learn(&frontier, true, &mut Spare::default()),
            "known already"
        );
    }

    #[test]
    fn knowledge_is_passed_on() {
        let mut lines: Vec<Timeline> = (0..4).map(Timeline::new).collect();
        let (first, _) = lines[0].operate();
        for i in 0..3 {
            let frontier = lines[i].frontier();
            lines[i + 1].learn(&frontier, true, &mut Spare::default());
        }
        assert!(lines[3].knows(first));
    }

    #[test]
    fn learning_later_does_not_reach_an_earlier_frontier() {
        let (mut a, mut b, mut c) = (Timeline::new(1), Timeline::new(2), Timeline::new(3));
        let (work, _) = a.operate();
        b.operate();
        let early = b.frontier();
        b.learn(&a.frontier(), true, &mut Spare::default());
        c.learn(&early, true, &mut Spare::default());
        assert!(b.knows(work) && !c.knows(work));
        c.learn(&b.frontier(), true, &mut Spare::default());
        assert!(c.knows(work));
    }

    #[test]
    fn what_is_only_seen_is_not_promised_until_it_is() {
        let mut lines: Vec<Timeline> = (0..3).map(Timeline::new).collect();
        let (work, _) = lines[0].operate();
        let frontier = lines[0].frontier();
        assert!(lines[1].learn(&frontier, false, &mut Spare::default()));
        assert!(lines[1].knows(work) && !lines[1].is_promised(work));
        let passed_on = lines[1].frontier();
        lines[2].learn(&passed_on, true, &mut Spare::default());
        assert!(lines[2].is_promised(passed_on.epoch));
        assert!(lines[2].knows(work) && !lines[2].is_promised(work));
        assert!(
            lines[2].learn(&frontier, true, &mut Spare::default()),
            "the promise is news"
        );
        assert!(lines[2].is_promised(work) && lines[2].clock.promised.is_none());
        assert!(!lines[1].is_promised(work));
    }
}
