//! CUDA arrays: opaque to programs; here rows behind one another, without padding.

use super::memory::Kind;
use super::state::State;
use super::transfer::Side;
use crate::abi::Status;
use crate::error::{INVALID_HANDLE, INVALID_VALUE};

/// An array as it was described, its extents in elements (0 for a dimension that it does not have).
#[derive(Clone, Copy)]
pub(crate) struct Array {
    pub(crate) address: u64,
    pub(crate) extents: [usize; 3],
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// The bytes of an element, by `CUarray_format` and channels; the normalized formats have their channels within.
fn element(format: u32, channels: u32) -> Status<usize> {
    let counted = |bytes: usize| match channels {
        1 | 2 | 4 => Ok(bytes * channels as usize),
        _ => Err(INVALID_VALUE),
    };
    match format {
        0x01 | 0x08 => counted(1),
        0x02 | 0x09 | 0x10 => counted(2),
        0x03 | 0x0a | 0x20 => counted(4),
        0xc0 | 0xc6 => Ok(1),
        0xc1 | 0xc3 | 0xc7 | 0xc9 => Ok(2),
        0xc2 | 0xc4 | 0xc8 | 0xca => Ok(4),
        0xc5 | 0xcb => Ok(8),
        _ => Err(INVALID_VALUE),
    }
}

impl Array {
    /// The bytes of an element.
    pub(crate) fn element(&self) -> usize {
        element(self.format, self.channels).unwrap_or(1)
    }

    /// Bytes of a row, rows, and layers.
    fn shape(&self) -> [usize; 3] {
        let [width, height, depth] = self.extents;
        [width * self.element(), height.max(1), depth.max(1)]
    }

    fn size(&self) -> usize {
        self.shape().iter().product()
    }

    /// `width` bytes, `height` rows and `depth` layers from byte `x`, row `y` and layer `z`. What is one row may go on
    /// into the next, as the copies by offset allow.
    pub(crate) fn side(
        &self,
        [x, y, z]: [usize; 3],
        [width, height, depth]: [usize; 3],
    ) -> Status<Side> {
        let [row, rows, layers] = self.shape();
        let layer = row * rows;
        let start = z
            .checked_mul(layer)
            .and_then(|at| at.checked_add(y.checked_mul(row)?))
            .and_then(|at| at.checked_add(x))
            .ok_or(INVALID_VALUE)?;
        let within =
            |at: usize, count: usize, limit| at.checked_add(count).is_some_and(|end| end <= limit);
        let inside = within(x, width, row) && within(y, height, rows) && within(z, depth, layers);
        let runs_on = height <= 1 && depth <= 1 && within(start, width, self.size());
        if inside || runs_on {
            Ok(Side {
                address: self.address + start as u64,
                pitch: row,
                layer,
            })
        } else {
            Err(INVALID_VALUE)
        }
    }
}

impl State {
    /// Makes an array of the current context's device; its handle.
    pub(crate) fn add_array(
        &mut self,
        extents: [usize; 3],
        (format, channels, flags): (u32, u32, u32),
    ) -> Status<u64> {
        let size = extents[1..]
            .iter()
            .try_fold(extents[0], |size, &extent| size.checked_mul(extent.max(1)))
            .and_then(|elements| elements.checked_mul(element(format, channels).ok()?))
            .filter(|&size| size > 0)
            .ok_or(INVALID_VALUE)?;
        let address = self.allocate(size as u64, Kind::Array)?;
        Ok(self.arrays.insert(Array {
            address,
            extents,
            format,
            channels,
            flags,
        }))
    }

    pub(crate) fn array(&self, handle: u64) -> Status<&Array> {
        self.arrays.get(handle).ok_or(INVALID_HANDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_lie_within_the_array() {
        let array = Array {
            address: 1000,
            extents: [4, 3, 2],
            format: 0x20,
            channels: 2,
            flags: 0,
        };
        assert_eq!((array.element(), array.size()), (8, 192));
        let side = array.side([8, 1, 1], [24, 2, 1]).unwrap();
        assert_eq!(
            (side.address, side.pitch, side.layer),
            (1000 + 96 + 32 + 8, 32, 96)
        );
        assert!(
            array.side([16, 0, 0], [24, 2, 1]).is_err(),
            "two rows, each past its end"
        );
        assert!(
            array.side([16, 0, 0], [100, 1, 1]).is_ok(),
            "one row that goes on"
        );
        assert!(
            array.side([16, 2, 1], [24, 1, 1]).is_err(),
            "past the last byte"
        );
        assert!(array.side([0, 0, usize::MAX], [1, 1, 1]).is_err());
        assert!(element(0x20, 3).is_err() && element(0x99, 1).is_err());
    }
}
