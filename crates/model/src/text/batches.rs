//! Copies that one call submits together.

use super::line::Line;
use super::{ParseError, State, extent};
use crate::{Action, BatchCopy, Region, SourceOrder, StreamRef};

impl State {
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
