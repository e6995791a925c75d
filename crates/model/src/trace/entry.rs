//! How records are encoded.

use serde::{Deserialize, Serialize};

use super::numbers::Numbers;
use super::{Counts, Frame, Module, Reason};
use crate::{NameId, Operation, StackId};

/// One step of a trace, as postcard writes it.
///
/// The order of variants and fields is the encoding: a change is a new format version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Entry {
    /// The text of a name that later operations use.
    Name { id: NameId, text: String },
    /// A piece of code in the recording process.
    Module(Module),
    /// A host call stack that later operations use.
    Stack { id: StackId, addresses: Vec<u64> },
    /// What a stack means.
    Frames { stack: StackId, frames: Vec<Frame> },
    /// An operation that takes the next place of the ring.
    Operation {
        /// How many places before it in the ring lies the one whose numbers are taken off its
        /// own; 0 if none are.
        like: u16,
        /// It, or what is left of it.
        operation: Operation,
    },
    /// The operation at this place of the ring, once more.
    Again(u16),
    /// The trace was ended in order.
    End(Counts),
    /// The trace was ended, and the process went on.
    Stopped { counts: Counts, reason: Reason },
    /// An operation that takes the next place of the ring, and differs in its numbers alone from
    /// the one so many places before it.
    Varied {
        like: u16,
        /// What its numbers are more, zigzag-coded.
        differences: Vec<u64>,
    },
}

/// How [`Entry::Again`] begins, for reading it without more ado.
pub(super) const AGAIN: u8 = 5;
/// The same of [`Entry::Varied`].
const VARIED: u8 = 8;

/// [`Entry`] without copies: a test holds the two encodings together.
#[derive(Serialize)]
pub(super) enum Borrowed<'a> {
    Name {
        id: NameId,
        text: &'a str,
    },
    Module(&'a Module),
    Stack {
        id: StackId,
        addresses: &'a [u64],
    },
    Frames {
        stack: StackId,
        frames: &'a [Frame],
    },
    Operation {
        like: u16,
        operation: &'a Operation,
    },
    Again(u16),
    End(Counts),
    Stopped {
        counts: Counts,
        reason: Reason,
    },
    /// [`append_varied`] is the short way, which a test holds against this.
    #[cfg(test)]
    Varied {
        like: u16,
        differences: &'a [u64],
    },
}

/// Bytes that [`Entry::End`] and [`Entry::Stopped`] fit in.
pub(super) const LONGEST_END: usize = 40;

impl Borrowed<'_> {
    /// Appends the entry's bytes.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        // Postcard into a slice is several times as fast as into a growing vector.
        let mut room = 192;
        let end = loop {
            out.resize(start + room, 0);
            match postcard::to_slice(self, &mut out[start..]) {
                Ok(written) => break start + written.len(),
                Err(postcard::Error::SerializeBufferFull) => room *= 4,
                Err(error) => unreachable!("plain data that postcard refuses: {error}"),
            }
        };
        out.truncate(end);
    }
}

/// Appends [`Entry::Again`].
pub(super) fn append_again(place: u16, out: &mut Vec<u8>) {
    let low = place as u8 & 0x7f;
    match place {
        0..0x80 => out.extend_from_slice(&[AGAIN, low]),
        0x80..0x4000 => out.extend_from_slice(&[AGAIN, low | 0x80, (place >> 7) as u8]),
        _ => Borrowed::Again(place).append_to(out),
    }
}

/// The place that an [`Entry::Again`] at the beginning of `bytes` names, and its length.
#[inline]
pub(super) fn read_again(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes {
        [AGAIN, low @ 0..0x80, ..] => Some((low.into(), 2)),
        [AGAIN, low, high @ 0..0x80, ..] => {
            Some((usize::from(low & 0x7f) | usize::from(high) << 7, 3))
        }
        _ => None,
    }
}

/// Appends [`Entry::Varied`].
pub(super) fn append_varied(like: u16, differences: &[u64], out: &mut Vec<u8>) {
    out.push(VARIED);
    append_number(like.into(), out);
    append_number(differences.len() as u64, out);
    for &difference in differences {
        append_number(difference, out);
    }
}

/// The place that an [`Entry::Varied`] at the beginning of `bytes` names, its differences, and
/// its length.
#[inline]
pub(super) fn read_varied(bytes: &[u8]) -> Option<(u16, Numbers, usize)> {
    if bytes.first() != Some(&VARIED) {
        return None;
    }
    let mut at = 1;
    let like = read_number(bytes, &mut at)?.try_into().ok()?;
    let count = read_number(bytes, &mut at)?;
    let mut differences = Numbers::new();
    for _ in 0..count {
        differences.push(read_number(bytes, &mut at)?);
    }
    Some((like, differences, at))
}

#[inline]
fn append_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[inline]
fn read_number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_written_as_postcard_does() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX];
        for (like, count) in [(0, 0), (1, 3), (8192, 8), (u16::MAX, 1)] {
            let differences = &numbers[..count];
            let mut short = Vec::new();
            append_varied(like, differences, &mut short);
            let entry = Entry::Varied {
                like,
                differences: differences.to_vec(),
            };
            assert_eq!(short, postcard::to_stdvec(&entry).unwrap());
            let borrowed = Borrowed::Varied { like, differences };
            assert_eq!(short, postcard::to_stdvec(&borrowed).unwrap());
            let (place, read, length) = read_varied(&short).unwrap();
            assert_eq!((place, &read[..], length), (like, differences, short.len()));
            for cut in 0..short.len() {
                assert!(read_varied(&short[..cut]).is_none());
            }
        }
    }

    #[test]
    fn the_short_way_is_postcards() {
        for place in (0..=u16::MAX).step_by(61).chain([127, 128, 16383, 16384]) {
            let mut short = Vec::new();
            append_again(place, &mut short);
            let entry = Entry::Again(place);
            assert_eq!(short, postcard::to_stdvec(&entry).unwrap());
            if usize::from(place) < super::super::KEPT {
                assert_eq!(read_again(&short), Some((place.into(), short.len())));
            }
            assert_eq!(read_again(&short[..1]), None);
        }
    }

    #[test]
    fn an_end_fits_where_room_is_kept_for_it() {
        let counts = Counts {
            operations: u64::MAX,
            names: u64::MAX,
            stacks: u64::MAX,
        };
        for reason in [Reason::Limit, Reason::Unwritable] {
            for entry in [Entry::End(counts), Entry::Stopped { counts, reason }] {
                assert!(postcard::to_stdvec(&entry).unwrap().len() <= LONGEST_END);
            }
        }
    }
}
