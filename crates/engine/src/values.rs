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

use crate::clock::{Awaited, Epoch, Frontier, WaitId};

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

/// Writes and waits that are not over.
#[derive(Debug, Default)]
pub(crate) struct Values {
    written: FxHashMap<Flag, SmallVec<[(u64, Frontier); 2]>>,
    waits: FxHashMap<WaitId, Wait>,
    next: WaitId,
    /// Waits below were forgotten, and count as open for ever.
    forgotten: WaitId,
}

impl Values {
    /// Waits remembered.
    const CAP: usize = 1 << 14;
    /// Writes remembered of one flag.
    const WRITES: usize = 64;

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
        let written = self.written.entry(flag).or_default();
        written.retain(|(_, write)| !host_knows(write.epoch));
        if written.len() == Self::WRITES {
            written.remove(0);
        }
        written.push((value, frontier));
    }

    /// The writes that a wait made now comes after; none if it stays open.
    pub(crate) fn ending(
        &mut self,
        flag: Flag,
        value: u64,
        condition: Condition,
        host_knows: impl Fn(Epoch) -> bool,
    ) -> Vec<Frontier> {
        let Some(written) = self.written.get_mut(&flag) else {
            return Vec::new();
        };
        written.retain(|(_, write)| !host_knows(write.epoch));
        // An older write that the newest one undid says nothing.
        let ends = |there: u64| condition.holds(there, value);
        if !written.last().is_some_and(|(newest, _)| ends(*newest)) {
            return Vec::new();
        }
        let ending = written.iter().filter(|(there, _)| ends(*there));
        let ending = ending.map(|(_, frontier)| frontier.clone()).collect();
        if condition == Condition::Signalled {
            written.clear();
        }
        ending
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
