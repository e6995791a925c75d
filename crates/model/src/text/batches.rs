//! Copies that one call submits together.

use super::line::Line;
use super::{ParseError, State, extent};
use crate::{Action, BatchCopy, Region, SourceOrder, StreamRef};

impl State {
    /// `copy_layers S a -> b 16x8 3 1024`, after the stream: three layers, 1024 bytes apart
    /// on both sides.
    pub(super) fn copied_in_layers(
        &self,
        stream: StreamRef,
        line: &mut Line<'_>,
    ) -> Result<Action, ParseError> {
        let Action::Copied {
            to,
            from,
            direction,
            host,
            synchronous,
            ..
        } = self.copied(stream, false, line)?
        else {
            unreachable!("a copy")
        };
        let count: u64 = line.number("the number of layers")?;
        let distance: u64 = line.number("the bytes from one layer to the next")?;
        if count > 1 << 16 {
            return Err(line.wrong("at most 65,536 layers"));
        }
        let layer = |region: Region, index: u64| Region {
            address: region
                .address
                .saturating_add(index.saturating_mul(distance)),
            ..region
        };
        Ok(Action::CopiedInLayers {
            stream,
            layers: (0..count)
                .map(|index| (layer(to, index), layer(from, index)))
                .collect(),
            direction,
            host,
            synchronous,
        })
    }

    /// `copies S [during|any] a -> b 512, c -> d 512`, after the stream.
    pub(super) fn copied_together(
        &self,
        stream: StreamRef,
        line: &mut Line<'_>,
    ) -> Result<Action, ParseError> {
        let order = if line.eat("during") {
            SourceOrder::DuringCall
        } else if line.eat("any") {
            SourceOrder::Any
        } else {
            SourceOrder::Stream
        };
        let mut copies = Vec::new();
        loop {
            let (source, from, _) = self.pointer(line)?;
            if !line.eat("->") {
                line.word("`->`")?;
                return Err(line.wrong("`->`"));
            }
            let (target, to, _) = self.pointer(line)?;
            let another = line.drop_comma();
            let (width, rows) = extent(line)?;
            copies.push(BatchCopy {
                to: Region::pitched(target, width, rows, width),
                from: Region::pitched(source, width, rows, width),
                host: if from.host { from.asked } else { to.asked },
                order,
            });
            if !another {
                return Ok(Action::CopiedTogether { stream, copies });
            }
        }
    }
}
