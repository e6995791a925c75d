//! Fills: rows of a repeated value.

use super::dma;
use super::memory::Place;
use super::state::State;
use crate::abi::Status;
use crate::error::INVALID_VALUE;

/// `height` rows of `width` elements; the value's lowest `element` bytes are what is repeated. The pitch is in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) target: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) context: u64,
}

impl Fill {
    /// Where it fills; an invalid value if the target is not wholly the device's or pinned.
    pub(crate) fn check(&self, s: &State) -> Status<Place> {
        if !matches!(self.element, 1 | 2 | 4) {
            return Err(INVALID_VALUE);
        }
        let row = self
            .width
            .checked_mul(self.element as usize)
            .ok_or(INVALID_VALUE)?;
        if !self.target.is_multiple_of(u64::from(self.element))
            || self.height > 1 && self.pitch < row
        {
            return Err(INVALID_VALUE);
        }
        let gaps = self.pitch.saturating_mul(self.height.saturating_sub(1));
        let extent = if row == 0 || self.height == 0 {
            0
        } else {
            gaps.saturating_add(row)
        };
        let place = s.place(self.target, extent as u64)?;
        if place == Place::Pageable && extent > 0 {
            return Err(INVALID_VALUE);
        }
        Ok(place)
    }

    pub(crate) fn run(self) {
        let bytes = self.value.to_le_bytes();
        let pattern = &bytes[..self.element as usize];
        for row in 0..self.height {
            let target = self.target + (row * self.pitch) as u64;
            dma::fill(target, pattern, self.width * pattern.len());
        }
    }
}
