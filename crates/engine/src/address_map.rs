//! A map from address ranges that do not overlap, made for looking up which range
//! an address lies in.
//!
//! Ranges lie in sorted chunks of bounded length, starts apart from the rest, so a
//! lookup is two binary searches over dense numbers and an insertion moves a
//! bounded amount.

use smallvec::SmallVec;

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
}

impl<T> Default for AddressMap<T> {
    fn default() -> Self {
        Self {
            firsts: Vec::new(),
            chunks: Vec::new(),
        }
    }
}

/// Where a range is: its chunk and its place therein.
type Place = (usize, usize);

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
        Some((chunk, place))
    }

    #[inline]
    fn find(&self, address: u64) -> Option<Place> {
        let (chunk, place) = self.before(address)?;
        (address < self.chunks[chunk].rest[place].0).then_some((chunk, place))
    }

    /// The range that holds `address`.
    #[inline]
    pub(crate) fn at(&self, address: u64) -> Option<&T> {
        self.find(address)
            .map(|(chunk, place)| &self.chunks[chunk].rest[place].1)
    }

    /// The range that holds `address`.
    #[inline]
    pub(crate) fn at_mut(&mut self, address: u64) -> Option<&mut T> {
        self.find(address)
            .map(|(chunk, place)| &mut self.chunks[chunk].rest[place].1)
    }

    /// All values, in the order of their ranges.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks
            .iter_mut()
            .flat_map(|chunk| chunk.rest.iter_mut().map(|(_, value)| value))
    }

    /// The range that starts at exactly `address`.
    pub(crate) fn starting_at(&self, address: u64) -> Option<&T> {
        let (chunk, place) = self.before(address)?;
        (self.chunks[chunk].starts[place] == address).then(|| &self.chunks[chunk].rest[place].1)
    }

    /// The ranges that share a byte with `start..end`, last first.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &T> {
        let mut next = end.checked_sub(1).and_then(|last| self.before(last));
        std::iter::from_fn(move || {
            let (chunk, place) = next?;
            let (range_end, value) = &self.chunks[chunk].rest[place];
            if *range_end <= start {
                return None;
            }
            next = match (chunk, place) {
                (chunk, 1..) => Some((chunk, place - 1)),
                (1.., 0) => Some((chunk - 1, self.chunks[chunk - 1].starts.len() - 1)),
                _ => None,
            };
            Some(value)
        })
    }

    /// Adds a range that overlaps none that is here.
    pub(crate) fn insert(&mut self, start: u64, end: u64, value: T) {
        let Some(chunk) = self
            .firsts
            .partition_point(|first| *first <= start)
            .checked_sub(1)
            .or({
                if self.firsts.is_empty() {
                    None
                } else {
                    Some(0)
                }
            })
        else {
            self.firsts.push(start);
            self.chunks.push(Chunk {
                starts: vec![start],
                rest: vec![(end, value)],
            });
            return;
        };
        let here = &mut self.chunks[chunk];
        let place = here.starts.partition_point(|other| *other <= start);
        here.starts.insert(place, start);
        here.rest.insert(place, (end, value));
        self.firsts[chunk] = here.starts[0];
        if here.starts.len() > CHUNK {
            let upper = Chunk {
                starts: here.starts.split_off(CHUNK / 2),
                rest: here.rest.split_off(CHUNK / 2),
            };
            self.firsts.insert(chunk + 1, upper.starts[0]);
            self.chunks.insert(chunk + 1, upper);
        }
    }

    /// Takes the range that starts at exactly `start` away.
    pub(crate) fn remove(&mut self, start: u64) -> Option<T> {
        let (chunk, place) = self.before(start)?;
        let here = &mut self.chunks[chunk];
        if here.starts[place] != start {
            return None;
        }
        here.starts.remove(place);
        let (_, value) = here.rest.remove(place);
        match here.starts.first() {
            Some(first) => self.firsts[chunk] = *first,
            None => {
                self.firsts.remove(chunk);
                self.chunks.remove(chunk);
            }
        }
        Some(value)
    }

    /// Takes away every range that shares a byte with `start..end`.
    pub(crate) fn remove_overlapping(&mut self, start: u64, end: u64) -> SmallVec<[T; 1]> {
        let mut removed = SmallVec::new();
        while let Some((chunk, place)) = end.checked_sub(1).and_then(|last| self.before(last)) {
            if self.chunks[chunk].rest[place].0 <= start {
                break;
            }
            let first = self.chunks[chunk].starts[place];
            removed.extend(self.remove(first));
        }
        removed
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
                let hits = |plain: &BTreeMap<u64, u64>| -> Vec<u64> {
                    plain.iter().filter(|(s, e)| **s < end && **e > start).map(|(s, _)| *s).rev().collect()
                };
                match kind {
                    0 | 1 => {
                        if hits(&plain).is_empty() {
                            map.insert(start, end, start);
                            plain.insert(start, end);
                        }
                    }
                    2 => prop_assert_eq!(map.remove(start), plain.remove(&start).map(|_| start)),
                    _ => {
                        let expected = hits(&plain);
                        prop_assert_eq!(map.overlapping(start, end).copied().collect::<Vec<_>>(), expected.clone());
                        if length < 4 {
                            prop_assert_eq!(map.remove_overlapping(start, end).to_vec(), expected);
                            plain.retain(|s, e| !(*s < end && *e > start));
                        }
                    }
                }
                let holder = plain.range(..=start).next_back().filter(|(_, e)| **e > start).map(|(s, _)| *s);
                prop_assert_eq!(map.at(start).copied(), holder);
                prop_assert_eq!(map.starting_at(start).copied(), plain.get(&start).map(|_| start));
            }
        }
    }
}
