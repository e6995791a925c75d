//! A map from address ranges that do not overlap, made for looking up which range
//! an address lies in.
//!
//! Ranges lie in sorted chunks of bounded length, starts apart from the rest, so a
//! lookup is two binary searches over dense numbers and an insertion moves a
//! bounded amount.

/// Ranges in a chunk before it is split.
const CHUNK: usize = 64;

#[derive(Debug)]
struct Chunk<T> {
    starts: Vec<u64>,
    /// The end (exclusive) and the value of each range.
    rest: Vec<(u64, T)>,
}

#[derive(Debug)]
pub(crate) struct AddressMap<T> {
    /// The first start of each chunk.
    firsts: Vec<u64>,
    chunks: Vec<Chunk<T>>,
    /// No range that was ever here ends beyond.
    highest: u64,
}

impl<T> Default for AddressMap<T> {
    fn default() -> Self {
        Self {
            firsts: Vec::new(),
            chunks: Vec::new(),
            highest: 0,
        }
    }
}

/// Where a range is, until one is added or removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    chunk: usize,
    place: usize,
}

impl<T> AddressMap<T> {
    /// The last range that starts at or before `address`.
    #[inline]
    fn before(&self, address: u64) -> Option<Place> {
        let chunk = self
            .firsts
            .partition_point(|first| *first <= address)
            .checked_sub(1)?;
        let place = self.chunks[chunk]
            .starts
            .partition_point(|start| *start <= address)
            .checked_sub(1)?;
        Some(Place { chunk, place })
    }

    /// A range's start and its end (exclusive).
    #[inline]
    pub(crate) fn range(&self, at: Place) -> (u64, u64) {
        let chunk = &self.chunks[at.chunk];
        (chunk.starts[at.place], chunk.rest[at.place].0)
    }

    #[inline]
    pub(crate) fn value(&self, at: Place) -> &T {
        &self.chunks[at.chunk].rest[at.place].1
    }

    /// The value of the range that holds `address`.
    #[inline]
    pub(crate) fn at(&self, address: u64) -> Option<&T> {
        if address >= self.highest {
            return None;
        }
        let found = self.before(address)?;
        let (end, value) = &self.chunks[found.chunk].rest[found.place];
        (address < *end).then_some(value)
    }

    /// The range that starts at exactly `address`.
    pub(crate) fn starting_at(&self, address: u64) -> Option<Place> {
        self.before(address)
            .filter(|found| self.range(*found).0 == address)
    }

    /// The last of the ranges that share a byte with `start..end`.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> Option<Place> {
        self.before(end.checked_sub(1)?)
            .filter(|found| self.range(*found).1 > start)
    }

    /// The range before.
    pub(crate) fn previous(&self, at: Place) -> Option<Place> {
        if let Some(place) = at.place.checked_sub(1) {
            return Some(Place { place, ..at });
        }
        let chunk = at.chunk.checked_sub(1)?;
        let place = self.chunks[chunk].starts.len() - 1;
        Some(Place { chunk, place })
    }

    /// The range after.
    pub(crate) fn next(&self, at: Place) -> Option<Place> {
        if at.place + 1 < self.chunks[at.chunk].starts.len() {
            let place = at.place + 1;
            return Some(Place { place, ..at });
        }
        let chunk = at.chunk + 1;
        (chunk < self.chunks.len()).then_some(Place { chunk, place: 0 })
    }

    /// Adds a range that overlaps none that is here.
    pub(crate) fn insert(&mut self, start: u64, end: u64, value: T) -> Place {
        self.highest = self.highest.max(end);
        if self.firsts.is_empty() {
            self.firsts.push(start);
            self.chunks.push(Chunk {
                starts: vec![start],
                rest: vec![(end, value)],
            });
            return Place { chunk: 0, place: 0 };
        }
        let chunk = self
            .firsts
            .partition_point(|first| *first <= start)
            .saturating_sub(1);
        let here = &mut self.chunks[chunk];
        let place = here.starts.partition_point(|other| *other <= start);
        here.starts.insert(place, start);
        here.rest.insert(place, (end, value));
        self.firsts[chunk] = here.starts[0];
        if here.starts.len() <= CHUNK {
            return Place { chunk, place };
        }
        let lower = CHUNK / 2;
        let upper = Chunk {
            starts: here.starts.split_off(lower),
            rest: here.rest.split_off(lower),
        };
        self.firsts.insert(chunk + 1, upper.starts[0]);
        self.chunks.insert(chunk + 1, upper);
        match place.checked_sub(lower) {
            Some(place) => Place {
                chunk: chunk + 1,
                place,
            },
            None => Place { chunk, place },
        }
    }

    /// Takes a range away.
    pub(crate) fn remove_at(&mut self, at: Place) -> T {
        let here = &mut self.chunks[at.chunk];
        here.starts.remove(at.place);
        let (_, value) = here.rest.remove(at.place);
        match here.starts.first() {
            Some(first) => self.firsts[at.chunk] = *first,
            None => {
                self.firsts.remove(at.chunk);
                self.chunks.remove(at.chunk);
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_answers_as_a_plain_map_does(
            steps in prop::collection::vec((0..4u8, 0..6000u64, 1..40u64), 1..2000)
        ) {
            let mut map = AddressMap::default();
            let mut plain: BTreeMap<u64, u64> = BTreeMap::new();
            for (kind, start, length) in steps {
                let end = start + length;
                let last = plain.iter().filter(|(s, e)| **s < end && **e > start).map(|(s, _)| *s).next_back();
                match kind {
                    0 | 1 => {
                        if last.is_none() {
                            let place = map.insert(start, end, start);
                            prop_assert_eq!(map.range(place), (start, end));
                            plain.insert(start, end);
                            let before = map.previous(place).map(|place| *map.value(place));
                            prop_assert_eq!(before, plain.range(..start).next_back().map(|(s, _)| *s));
                            let after = map.next(place).map(|place| *map.value(place));
                            prop_assert_eq!(after, plain.range(start + 1..).next().map(|(s, _)| *s));
                        }
                    }
                    2 => {
                        let place = map.starting_at(start);
                        let removed = place.map(|place| map.remove_at(place));
                        prop_assert_eq!(removed, plain.remove(&start).map(|_| start));
                    }
                    _ => {
                        let found = map.overlapping(start, end);
                        prop_assert_eq!(found.map(|place| *map.value(place)), last);
                    }
                }
                let holder = plain.range(..=start).next_back().filter(|(_, e)| **e > start).map(|(s, _)| *s);
                prop_assert_eq!(map.at(start).copied(), holder);
            }
        }
    }
}
