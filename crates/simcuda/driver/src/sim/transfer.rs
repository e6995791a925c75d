//! Boxes of bytes on their way from one place to another: rows, and layers of rows.

use super::dma;
use crate::abi::Status;
use crate::error::INVALID_VALUE;

/// Where one side of a transfer lies: its first byte, and the bytes from a row, and from a layer, to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) address: u64,
    pub(crate) pitch: usize,
    pub(crate) layer: usize,
}

/// `depth` layers of `height` rows of `width` bytes; a linear copy is one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) target: Side,
    pub(crate) source: Side,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

impl Transfer {
    pub(crate) fn linear(target: u64, source: u64, width: usize) -> Self {
        let side = |address| Side {
            address,
            pitch: width,
            layer: width,
        };
        Self {
            target: side(target),
            source: side(source),
            width,
            height: 1,
            depth: 1,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// The bytes of `side` from the first of the first row to the last of the last.
    pub(crate) fn extent(&self, side: Side) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let rows = side.pitch.saturating_mul(self.height - 1);
        let layers = side.layer.saturating_mul(self.depth - 1);
        rows.saturating_add(layers).saturating_add(self.width) as u64
    }

    /// Each row's target and source.
    fn rows(self) -> impl Iterator<Item = (u64, u64)> {
        let at =
            |side: Side, layer, row| side.address + (layer * side.layer + row * side.pitch) as u64;
        (0..self.depth)
            .flat_map(move |layer| (0..self.height).map(move |row| (layer, row)))
            .map(move |(layer, row)| (at(self.target, layer, row), at(self.source, layer, row)))
    }

    /// Moves the bytes; where one side is not mapped, the rest of a row is left as it is.
    pub(crate) fn run(self) {
        for (target, source) in self.rows() {
            dma::copy(target, source, self.width);
        }
    }

    /// Reads the source now; what then brings it to the target. An invalid value where nothing is mapped.
    pub(crate) fn stage(self) -> Status<impl FnOnce() + Send> {
        let mut bytes = vec![0; self.width * self.height * self.depth];
        let parts = bytes.chunks_exact_mut(self.width.max(1));
        for ((_, source), part) in self.rows().zip(parts) {
            if !dma::read(part, source) {
                return Err(INVALID_VALUE);
            }
        }
        Ok(move || {
            for ((target, _), part) in self.rows().zip(bytes.chunks_exact(self.width.max(1))) {
                dma::write(target, part);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(bytes: *const u8, pitch: usize, layer: usize) -> Side {
        Side {
            address: bytes as u64,
            pitch,
            layer,
        }
    }

    #[test]
    fn rows_and_layers_move_and_leave_the_gaps() {
        let source = *b"abcdefghijkl";
        let mut target = *b"....................";
        let transfer = Transfer {
            target: side(target.as_mut_ptr(), 4, 10),
            source: side(source.as_ptr(), 3, 6),
            width: 2,
            height: 2,
            depth: 2,
        };
        assert_eq!(
            (
                transfer.extent(transfer.target),
                transfer.extent(transfer.source)
            ),
            (16, 11)
        );
        transfer.run();
        assert_eq!(&target, b"ab..de....gh..jk....");
    }

    #[test]
    fn staged_bytes_are_those_of_the_call() {
        let mut source = *b"abcdefghi";
        let mut target = *b"............";
        let transfer = Transfer {
            target: side(target.as_mut_ptr(), 4, 12),
            source: side(source.as_ptr(), 3, 9),
            width: 2,
            height: 3,
            depth: 1,
        };
        let bring = transfer.stage().unwrap();
        source.fill(b'?');
        assert_eq!(source[0], b'?');
        bring();
        assert_eq!(&target, b"ab..de..gh..");
        assert_eq!(
            Transfer::linear(0, 0, 0).extent(side(std::ptr::null(), 9, 9)),
            0
        );
    }
}
