//! The streams there are, and what is remembered of those that are gone.
//!
//! A stream takes a [`Slot`] in every clock. The slot of a destroyed stream goes to a new
//! one as soon as the host knows its work complete, so that clocks stay as short as the
//! streams are few. Whoever knows the new stream's work knows the old one's, as all work
//! given out from then on comes after what the host knows.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use rustc_hash::FxHashMap;
use streamcheck_model::{ContextId, Handle, NameId, StackId, ThreadId};

use crate::clock::{Epoch, Slot, Time, Timeline};
use crate::op::OpRef;

/// A stream's identity: its slot, and how many streams were made before, so that it is
/// never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId {
    slot: NonZeroU32,
    made: u32,
}

impl StreamId {
    #[cfg(test)]
    pub(crate) fn from_index(index: u32) -> Self {
        Self {
            slot: NonZeroU32::MIN.saturating_add(index),
            made: index,
        }
    }

    /// Higher for streams made later.
    pub(crate) fn age(self) -> u32 {
        self.made
    }

    #[inline]
    fn index(self) -> usize {
        self.slot.get() as usize - 1
    }
}

/// What kind of stream it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Legacy,
    PerThread(ThreadId),
    Blocking,
    NonBlocking,
    /// No stream: where the streams of a context or a device meet.
    Meeting,
}

/// What does not change in a stream's life, but for its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: StreamKind,
    pub(crate) context: ContextId,
    pub(crate) device: u16,
    /// Among the created ones, from 1; 0 for default streams.
    pub(crate) number: u32,
    pub(crate) handle: Handle,
    pub(crate) name: NameId,
    /// Where it was created, if that was seen.
    pub(crate) created: StackId,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) line: Timeline,
    pub(crate) facts: Facts,
    /// Its handle may stand for another by now.
    pub(crate) destroyed: bool,
    /// It has done something since the legacy stream's last barrier.
    pub(crate) awaits_barrier: bool,
    /// Its last operation and when that was.
    pub(crate) last: Option<(Epoch, OpRef)>,
    /// When its last operation other than an event record was.
    pub(crate) work: Time,
    /// When it began; its slot was another's before.
    pub(crate) first: Time,
}

/// All streams, by slot.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    table: Vec<Stream>,
    /// Destroyed streams that keep their slot for now.
    destroyed: VecDeque<StreamId>,
    /// Those whose slot another has.
    departed: VecDeque<(StreamId, Facts)>,
    by_handle: FxHashMap<Handle, StreamId>,
    /// Threads' streams, also retired ones that have their slot yet.
    per_thread: FxHashMap<(ThreadId, ContextId), StreamId>,
    /// Threads' streams that are not retired.
    threads: usize,
    /// How many of those there were after idle ones were looked for last.
    sweep_at: usize,
    made: u32,
    numbered: u32,
    meetings: u64,
}

impl Streams {
    /// Departed streams remembered, for findings that name them.
    const DEPARTED: usize = 1 << 12;
    /// Slots there are before streams whose end nobody waits for have to go.
    pub(crate) const SLOTS: usize = 1 << 10;
    const LOOKED_AT: usize = 16;
    const THREADS: usize = 64;

    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> &Stream {
        &self.table[id.index()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StreamId) -> &mut Stream {
        &mut self.table[id.index()]
    }

    /// Whether it still has its slot.
    pub(crate) fn is_here(&self, id: StreamId) -> bool {
        self.table[id.index()].id == id
    }

    /// Facts of a stream that may be gone; of one gone long ago there are none.
    pub(crate) fn facts(&self, id: StreamId) -> Option<Facts> {
        let stream = self.get(id);
        if stream.id == id {
            return Some(stream.facts);
        }
        let departed = self.departed.iter().rev();
        let mut same = departed.filter(|(gone, _)| *gone == id);
        same.next().map(|(_, facts)| *facts)
    }

    /// Streams seen, default streams included.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.made) - self.meetings
    }

    /// How many slots there are; streams are at the places below.
    #[inline]
    pub(crate) fn slots(&self) -> usize {
        self.table.len()
    }

    /// The stream of the slot at `place`.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> StreamId {
        self.table[place].id
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Stream> {
        self.table.iter()
    }

    /// The stream that an epoch is of; `None` for the host.
    pub(crate) fn of_slot(&self, slot: Slot) -> Option<StreamId> {
        let place = (slot as usize).checked_sub(1)?;
        self.table.get(place).map(|stream| stream.id)
    }

    #[inline]
    pub(crate) fn by_handle(&self, handle: Handle) -> Option<StreamId> {
        self.by_handle.get(&handle).copied()
    }

    #[inline]
    pub(crate) fn of_thread(&self, thread: ThreadId, context: ContextId) -> Option<StreamId> {
        self.per_thread.get(&(thread, context)).copied()
    }

    /// The destroyed stream, one that is `over`, whose slot a new one may take.
    pub(crate) fn room(&mut self, over: impl Fn(&Stream) -> bool) -> Option<StreamId> {
        if self.threads >= self.sweep_at + Self::THREADS {
            self.retire_threads(&over);
        }
        for _ in 0..self.destroyed.len().min(Self::LOOKED_AT) {
            let Some(id) = self.destroyed.pop_front() else {
                break;
            };
            if over(self.get(id)) {
                return Some(id);
            }
            self.destroyed.push_back(id);
        }
        None
    }

    /// The destroyed stream that goes when there are too many slots.
    pub(crate) fn oldest_destroyed(&mut self) -> Option<StreamId> {
        if self.table.len() < Self::SLOTS {
            return None;
        }
        // What comes after an open wait has an order that nobody knows; that is to stay so.
        let known = |id: &StreamId| self.get(*id).line.awaits().is_empty();
        let place = self.destroyed.iter().position(known).unwrap_or(0);
        self.destroyed.remove(place)
    }

    /// Nothing tells that a thread has ended. If it has not, [`Streams::revive`] gives its
    /// stream back. Where there are too many slots, those of threads go that did nothing
    /// for the longest time.
    #[cold]
    fn retire_threads(&mut self, over: impl Fn(&Stream) -> bool) {
        let last = |stream: &Stream| stream.last.as_ref().map_or(0, |(_, op)| op.sequence);
        let active = self.per_thread.values().map(|id| self.get(*id));
        let active = active.filter(|stream| !stream.destroyed);
        let mut newest: Vec<(u64, StreamId)> =
            active.map(|stream| (last(stream), stream.id)).collect();
        newest.sort_unstable();
        let old = match newest.get(newest.len() / 2) {
            Some(&(median, _)) if self.table.len() >= Self::SLOTS => median,
            _ => 0,
        };
        for (last, id) in newest {
            if last < old || over(self.get(id)) {
                self.retire(id);
            }
        }
        self.sweep_at = self.threads;
    }

    /// The thread of a stream goes on. True if that was taken to have ended.
    #[inline]
    pub(crate) fn revive(&mut self, id: StreamId) -> bool {
        let was_retired = std::mem::take(&mut self.get_mut(id).destroyed);
        if was_retired {
            self.destroyed.retain(|retired| *retired != id);
            self.threads += 1;
        }
        was_retired
    }

    /// Adds a stream in the slot of the `old` one, whose line `line` goes on, or in a
    /// new slot.
    pub(crate) fn add(
        &mut self,
        old: Option<StreamId>,
        line: Timeline,
        mut facts: Facts,
    ) -> StreamId {
        self.made += 1;
        let Epoch { slot, time: first } = line.now();
        let id = StreamId {
            slot: NonZeroU32::new(slot).expect("the host's slot is no stream's"),
            made: self.made,
        };
        match facts.kind {
            StreamKind::Blocking | StreamKind::NonBlocking => {
                self.numbered += 1;
                facts.number = self.numbered;
                // One that had the handle was destroyed out of sight.
                if let Some(before) = self.by_handle.insert(facts.handle, id) {
                    self.retire(before);
                }
            }
            StreamKind::PerThread(thread) => {
                self.per_thread.insert((thread, facts.context), id);
                self.threads += 1;
            }
            StreamKind::Meeting => self.meetings += 1,
            StreamKind::Legacy => {}
        }
        let stream = Stream {
            id,
            line,
            facts,
            destroyed: false,
            awaits_barrier: false,
            last: None,
            work: 0,
            first,
        };
        match old {
            None => self.table.push(stream),
            Some(old) => {
                let gone = std::mem::replace(self.get_mut(old), stream);
                if let StreamKind::PerThread(thread) = gone.facts.kind {
                    let key = (thread, gone.facts.context);
                    if self.per_thread.get(&key) == Some(&old) {
                        self.per_thread.remove(&key);
                    }
                }
                if self.departed.len() == Self::DEPARTED {
                    self.departed.pop_front();
                }
                self.departed.push_back((gone.id, gone.facts));
            }
        }
        id
    }

    /// The stream has no handle any more; its work goes on.
    pub(crate) fn retire(&mut self, id: StreamId) {
        let stream = self.get_mut(id);
        if std::mem::replace(&mut stream.destroyed, true) {
            return;
        }
        if matches!(stream.facts.kind, StreamKind::PerThread(_)) {
            self.threads -= 1;
        }
        self.destroyed.push_back(id);
    }

    /// The handle is free for another stream.
    pub(crate) fn destroy(&mut self, handle: Handle) {
        if let Some(id) = self.by_handle.remove(&handle) {
            self.retire(id);
        }
    }

    /// The streams whose facts are `gone` have no handles any more.
    pub(crate) fn destroy_all(&mut self, gone: impl Fn(&Facts) -> bool) {
        let mut ended: Vec<StreamId> = Vec::new();
        let table = &self.table;
        let mut ends = |id: &StreamId| {
            let ends = gone(&table[id.index()].facts);
            if ends {
                ended.push(*id);
            }
            !ends
        };
        self.by_handle.retain(|_, id| ends(id));
        self.per_thread.retain(|_, id| ends(id));
        for id in ended {
            self.retire(id);
        }
    }
}
