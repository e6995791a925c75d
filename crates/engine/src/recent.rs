//! The newest operations of a run, for showing what happened around a finding.
//!
//! Every operation takes an entry, so an entry is found by its sequence and nothing is
//! searched for on the hot path: it is written once when the operation begins and
//! touched once more when its place in the order is known.

use streamcheck_model::{Action, Call};

use crate::clock::{Epoch, HOST};
use crate::op::OpRef;
use crate::order::StreamId;

/// What an operation is to a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Work on a stream.
    Work,
    /// Memory is obtained or given back.
    Lifetime,
    /// Streams order each other by it.
    Order,
    /// All streams of a context take part in it.
    Scope,
    /// The host waits, or asks and hears that it need not.
    Sync,
    /// What only makes or names things.
    Other,
}

impl Part {
    pub(crate) fn of(action: &Action) -> Self {
        match action {
            Action::Launched { .. }
            | Action::Copied { .. }
            | Action::CopiedInLayers { .. }
            | Action::CopiedTogether { .. }
            | Action::Filled { .. }
            | Action::Enqueued { .. }
            | Action::GraphLaunched { .. }
            | Action::HostFunctionEnqueued { .. } => Self::Work,
            Action::Allocated { .. } | Action::FreeBegun { .. } => Self::Lifetime,
            Action::EventRecorded { .. }
            | Action::StreamWaited { .. }
            | Action::ValueWritten { .. }
            | Action::ValueWaited { .. } => Self::Order,
            Action::ContextRecorded { .. } | Action::ContextWaited { .. } => Self::Scope,
            Action::EventSynchronized { .. }
            | Action::StreamSynchronized { .. }
            | Action::DeviceSynchronized
            | Action::ContextSynchronized
            | Action::ContextDestroyed => Self::Sync,
            _ => Self::Other,
        }
    }
}

/// An operation and when it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) op: OpRef,
    /// The host's if it is no stream's; time 0 while that is not known.
    pub(crate) epoch: Epoch,
    pub(crate) part: Part,
}

impl Entry {
    /// Whether it has taken its place in the order.
    pub(crate) fn is_placed(&self) -> bool {
        self.epoch.time != 0
    }
}

/// A ring of the newest operations.
#[derive(Debug, Default)]
pub(crate) struct Recent(Vec<Entry>);

impl Recent {
    /// Operations remembered: 192 KiB, which a program with few of them does not take.
    const CAP: usize = 1 << 12;

    /// The next operation begins; sequences rise by one.
    #[inline]
    pub(crate) fn begin(&mut self, sequence: u64, call: &Call, part: Part) {
        let entry = Entry {
            op: OpRef::new(sequence, call, None),
            epoch: Epoch {
                slot: HOST,
                time: 0,
            },
            part,
        };
        if self.0.len() < Self::CAP {
            self.0.push(entry);
        } else {
            self.0[Self::place(sequence)] = entry;
        }
    }

    fn place(sequence: u64) -> usize {
        (sequence.wrapping_sub(1) & (Self::CAP as u64 - 1)) as usize
    }

    #[inline]
    fn get_mut(&mut self, sequence: u64) -> Option<&mut Entry> {
        self.0
            .get_mut(Self::place(sequence))
            .filter(|entry| entry.op.sequence == sequence)
    }

    /// The operation of this number, if it is remembered.
    pub(crate) fn get(&self, sequence: u64) -> Option<&Entry> {
        self.0
            .get(Self::place(sequence))
            .filter(|entry| entry.op.sequence == sequence)
    }

    /// The operation is going to be put into its stream once its call has returned.
    #[inline]
    pub(crate) fn pends(&mut self, op: OpRef) {
        if let Some(entry) = self.get_mut(op.sequence) {
            entry.op = op;
        }
    }

    /// The operation took its place on a line. What a call does on lines beside its own
    /// stream's (a barrier of all streams) does not move it.
    #[inline]
    pub(crate) fn placed(&mut self, line: StreamId, op: OpRef, epoch: Epoch) {
        let own = op.stream.is_none_or(|stream| stream == line);
        if let Some(entry) = self.get_mut(op.sequence)
            && !entry.is_placed()
            && own
            && (entry.op.stream.is_none() || entry.op.stream == op.stream)
        {
            entry.op = op;
            entry.epoch = epoch;
        }
    }

    /// The operation is over without having been put into a stream: the host's own,
    /// unless it still pends.
    #[inline]
    pub(crate) fn settle(&mut self, sequence: u64, host: Epoch) {
        if let Some(entry) = self.get_mut(sequence)
            && !entry.is_placed()
            && entry.op.stream.is_none()
        {
            entry.epoch = host;
        }
    }

    /// What is remembered, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let newest = self.0.iter().map(|entry| entry.op.sequence).max();
        let oldest = newest.map_or(0, |newest| Self::place(newest + 1));
        let (new, old) = self.0.split_at(oldest.min(self.0.len()));
        old.iter().chain(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequences(recent: &Recent) -> Vec<u64> {
        recent.iter().map(|entry| entry.op.sequence).collect()
    }

    #[test]
    fn the_newest_are_kept_in_order() {
        let (mut recent, cap) = (Recent::default(), Recent::CAP as u64);
        for sequence in 1..=3 {
            recent.begin(sequence, &Call::default(), Part::Work);
        }
        assert_eq!(sequences(&recent), [1, 2, 3]);
        for sequence in 4..=cap + 5 {
            recent.begin(sequence, &Call::default(), Part::Work);
        }
        assert_eq!(sequences(&recent), (6..=cap + 5).collect::<Vec<_>>());
        assert!(recent.get(5).is_none() && recent.get(cap + 6).is_none());
        assert_eq!(recent.get(6).map(|entry| entry.op.sequence), Some(6));
    }

    #[test]
    fn the_first_place_on_its_own_line_counts() {
        let epoch = |time| Epoch { slot: 1, time };
        let host = Epoch {
            slot: HOST,
            time: 7,
        };
        let mut recent = Recent::default();
        recent.begin(1, &Call::default(), Part::Other);
        recent.settle(1, host);
        let op = OpRef::new(1, &Call::default(), None);
        recent.placed(StreamId::from_index(0), op, epoch(3));
        assert_eq!(recent.get(1).map(|entry| entry.epoch), Some(host));

        recent.begin(2, &Call::default(), Part::Lifetime);
        let free = OpRef::new(2, &Call::default(), Some(StreamId::from_index(1)));
        recent.pends(free);
        recent.settle(2, host);
        assert!(!recent.get(2).is_some_and(Entry::is_placed));
        let other = OpRef::new(2, &Call::default(), None);
        recent.placed(StreamId::from_index(0), other, epoch(4));
        recent.placed(StreamId::from_index(0), free, epoch(5));
        recent.placed(StreamId::from_index(1), free, epoch(6));
        recent.placed(StreamId::from_index(1), free, epoch(8));
        assert_eq!(recent.get(2).map(|entry| entry.epoch), Some(epoch(6)));
    }
}
