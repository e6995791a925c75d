//! Vector clocks.
//!
//! A *timeline* is a sequence of operations that happen in order: a stream, or the
//! host. Each has a [`Slot`] in every clock and a [`Time`] that rises with its
//! segments. An operation's [`Epoch`] is its timeline and that timeline's time; a
//! timeline *knows* an epoch when everything up to it happens before whatever the
//! timeline does next. That test is one indexed compare.
//!
//! The scheme is that of vector clocks with epochs as race detectors use it
//! (FastTrack; Miri's `vector_clock`): clocks live on timelines and events, data
//! carry epochs only.

use std::sync::Arc;

/// A timeline's place in every clock. 0 is the host.
pub(crate) type Slot = u32;

/// A timeline's own time. It begins at 1, so 0 in a clock means "knows nothing".
pub(crate) type Time = u32;

/// The host's slot.
pub(crate) const HOST: Slot = 0;

/// A point of one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Epoch {
    pub(crate) slot: Slot,
    pub(crate) time: Time,
}

/// For each timeline, the time up to which it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<Time>);

impl Clock {
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Time {
        self.0.get(slot as usize).copied().unwrap_or(0)
    }

    fn raise(&mut self, slot: Slot, time: Time) {
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        self.0[slot] = self.0[slot].max(time);
    }

    fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// Everything up to a point of one timeline: what an event record captures.
#[derive(Clone, Debug)]
pub(crate) struct Frontier {
    clock: Arc<Clock>,
    pub(crate) epoch: Epoch,
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

    /// The time up to which this timeline knows `slot`.
    #[inline]
    pub(crate) fn known(&self, slot: Slot) -> Time {
        if slot == self.now.slot {
            self.now.time
        } else {
            self.clock.get(slot)
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

    /// Makes everything up to `frontier` happen before what follows here. False
    /// if it did already. A segment's knowledge never changes, so knowing a
    /// frontier's epoch is knowing all of it.
    pub(crate) fn learn(&mut self, frontier: &Frontier) -> bool {
        if self.knows(frontier.epoch) {
            return false;
        }
        let clock = Arc::make_mut(&mut self.clock);
        clock.join(&frontier.clock);
        clock.raise(frontier.epoch.slot, frontier.epoch.time);
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
        assert!(b.learn(&frontier));
        assert!(b.knows(before) && !b.knows(after));
        assert!(!b.learn(&frontier), "known already");
    }

    #[test]
    fn knowledge_is_passed_on() {
        let mut lines: Vec<Timeline> = (0..4).map(Timeline::new).collect();
        let (first, _) = lines[0].operate();
        for i in 0..3 {
            let frontier = lines[i].frontier();
            lines[i + 1].learn(&frontier);
        }
        assert!(lines[3].knows(first));
    }

    #[test]
    fn learning_later_does_not_reach_an_earlier_frontier() {
        let (mut a, mut b, mut c) = (Timeline::new(1), Timeline::new(2), Timeline::new(3));
        let (work, _) = a.operate();
        b.operate();
        let early = b.frontier();
        b.learn(&a.frontier());
        c.learn(&early);
        assert!(b.knows(work) && !c.knows(work));
        c.learn(&b.frontier());
        assert!(c.knows(work));
    }
}
