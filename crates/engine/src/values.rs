//! Values in memory, and semaphores, that streams signal each other with.
//!
//! A wait for a value comes after a write that could end it. Where the newest write
//! that is not known complete does, that orders the two. Where none does, the CPU, a
//! kernel, another process or a write yet to be submitted ends the wait: it stays
//! *open*. What comes after an open wait comes after everything submitted before it,
//! as far as anyone can tell, and its order to what is submitted later is unknown
//! until a write is seen that could end the wait, or the host knows it over.
//! Nothing is reported of accesses whose order is unknown.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use streamcheck_model::{Condition, Flag};

use crate::clock::{Awaited, Epoch, Frontier, MANY, Slot, WaitId};

#[derive(Debug)]
enum Wait {
    Open {
        flag: Flag,
        value: u64,
        condition: Condition,
    },
    /// Ended by this write.
    Over(Box<Frontier>),
}

/// What there is to know of a wait that a timeline comes after.
pub(crate) enum Ended<'a> {
    /// No.
    Open,
    /// By a write that the host may not know complete.
    By(&'a Frontier),
    /// The host knows.
    Known,
}

/// A value that a stream wrote.
#[derive(Debug)]
struct Write {
    value: u64,
    frontier: Frontier,
    /// The timelines of which it ended a wait.
    ended: SmallVec<[Slot; 2]>,
}

/// Writes and waits that are not over.
#[derive(Debug, Default)]
pub(crate) struct Values {
    written: FxHashMap<Flag, SmallVec<[Write; 2]>>,
    waits: FxHashMap<WaitId, Wait>,
    next: WaitId,
    /// Waits below were forgotten, and count as open for ever.
    forgotten: WaitId,
}

impl Values {
    /// Waits remembered. Where it is exceeded less is found.
    const CAP: usize = 1 << 10;
    /// Writes remembered of one flag.
    const WRITES: usize = 64;
    /// Flags remembered. Waits for one that is forgotten stay open.
    const FLAGS: usize = 1 << 10;

    /// A stream writes `value`; `frontier` is its past with the write. Waits that this
    /// may end are over.
    pub(crate) fn write(
        &mut self,
        flag: Flag,
        value: u64,
        frontier: Frontier,
        host_knows: impl Fn(Epoch) -> bool,
    ) {
        // What comes after a wait does not end it.
        let after = |id: WaitId| {
            let own = |awaited: &Awaited| awaited.wait == id && !awaited.guessed;
            frontier.awaits().iter().any(own)
        };
        let mut signalled: Option<WaitId> = None;
        for (&id, wait) in &mut self.waits {
            if let Wait::Open {
                flag: waited,
                value: wanted,
                condition,
            } = *wait
                && waited == flag
                && condition.holds(value, wanted)
                && !after(id)
            {
                if condition == Condition::Signalled {
                    signalled = Some(signalled.map_or(id, |first| first.min(id)));
                } else {
                    *wait = Wait::Over(Box::new(frontier.clone()));
                }
            }
        }
        if let Some(first) = signalled {
            // Such a signal ends one wait.
            self.waits.insert(first, Wait::Over(Box::new(frontier)));
            return;
        }
        if self.written.len() >= Self::FLAGS && !self.written.contains_key(&flag) {
            self.written.clear();
        }
        let written = self.written.entry(flag).or_default();
        written.retain(|write| !host_knows(write.frontier.epoch));
        if written.len() == Self::WRITES {
            written.remove(0);
        }
        written.push(Write {
            value,
            frontier,
            ended: SmallVec::new(),
        });
    }

    /// The writes that a wait of timeline `waiting` made now comes after, and whether it
    /// stays open all the same: nothing ends it, or what does ended an earlier wait of
    /// that timeline already, so that something unseen may have undone it in between.
    pub(crate) fn ending(
        &mut self,
        flag: Flag,
        value: u64,
        condition: Condition,
        waiting: Slot,
        host_knows: impl Fn(Epoch) -> bool,
    ) -> (Vec<Frontier>, bool) {
        let Some(written) = self.written.get_mut(&flag) else {
            return (Vec::new(), true);
        };
        written.retain(|write| !host_knows(write.frontier.epoch));
        // An older write that the newest one undid says nothing.
        let ends = |write: &Write| condition.holds(write.value, value);
        let Some(newest) = written.last_mut().filter(|newest| ends(newest)) else {
            if written.is_empty() {
                self.written.remove(&flag);
            }
            return (Vec::new(), true);
        };
        let again = newest.ended.contains(&waiting);
        if !again {
            newest.ended.push(waiting);
        }
        let ending = written.iter().filter(|write| ends(write));
        let ending = ending.map(|write| write.frontier.clone()).collect();
        if condition == Condition::Signalled {
            self.written.remove(&flag);
        }
        (ending, again)
    }

    /// The bytes from `start` to `end` are written by other means, or are other memory
    /// now: what streams wrote there before ends no wait.
    pub(crate) fn overwritten(&mut self, start: u64, end: u64) {
        self.written.retain(|flag, _| match flag {
            Flag::Memory(address) => !(start..end).contains(address),
            Flag::Semaphore(_) => true,
        });
    }

    /// Whether any write is remembered.
    pub(crate) fn any_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// An open wait.
    pub(crate) fn open(&mut self, flag: Flag, value: u64, condition: Condition) -> WaitId {
        if self.waits.len() >= Self::CAP {
            self.waits.clear();
            self.forgotten = self.next;
        }
        let id = self.next;
        self.next += 1;
        self.waits.insert(
            id,
            Wait::Open {
                flag,
                value,
                condition,
            },
        );
        id
    }

    /// How a wait stands.
    pub(crate) fn ended(&self, wait: WaitId) -> Ended<'_> {
        if wait == MANY {
            return Ended::Open;
        }
        match self.waits.get(&wait) {
            Some(Wait::Open { .. }) => Ended::Open,
            Some(Wait::Over(write)) => Ended::By(write),
            None if wait < self.forgotten => Ended::Open,
            None => Ended::Known,
        }
    }

    /// The host knows these waits over, those that are no guess.
    pub(crate) fn known(&mut self, waits: &[Awaited]) {
        for awaited in waits.iter().filter(|awaited| !awaited.guessed) {
            self.waits.remove(&awaited.wait);
        }
    }
}
