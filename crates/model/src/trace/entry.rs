//! How records are encoded.

use serde::{Deserialize, Serialize};

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
}

/// How [`Entry::Again`] begins, for reading it without more ado.
pub(super) const AGAIN: u8 = 5;

/// [`Entry`] without copies: a test holds the two encodings together.
#[derive(Serialize)]
pub(super) enum Borrowed<'a> {
    Name { id: NameId, text: &'a str },
    Module(&'a Module),
    Stack { id: StackId, addresses: &'a [u64] },
    Frames { stack: StackId, frames: &'a [Frame] },
    Operation { like: u16, operation: &'a Operation },
    Again(u16),
    End(Counts),
    Stopped { counts: Counts, reason: Reason },
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

#[cfg(test)]
mod tests {
    use super::*;

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
