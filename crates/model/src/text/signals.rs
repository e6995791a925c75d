//! Values that streams signal each other with, and pools: objects of few calls.

use super::line::Line;
use super::{Object, ParseError, State};
use crate::{Action, Condition, Flag, Handle, Operation};

const SEMAPHORE: &str = "a semaphore declared above";

impl State {
    /// `pool P`, `semaphore X`: no calls that matter.
    pub(super) fn declared(&mut self, line: &mut Line<'_>) -> Result<Vec<Operation>, ParseError> {
        let pool = line.words.first().is_some_and(|&(_, word)| word == "pool");
        let name = line.word("a name")?;
        let handle = self.fresh_handle();
        let object = if pool {
            Object::Pool(handle)
        } else {
            Object::Semaphore(handle)
        };
        self.objects.insert(name.to_owned(), object);
        Ok(Vec::new())
    }

    /// `pool=P`, if it is there.
    pub(super) fn pool(&self, line: &mut Line<'_>) -> Result<Handle, ParseError> {
        let Some(name) = line.peek().and_then(|word| word.strip_prefix("pool=")) else {
            return Ok(Handle::default());
        };
        line.next += 1;
        match self.objects.get(name) {
            Some(&Object::Pool(pool)) => Ok(pool),
            _ => Err(line.wrong("`pool=` with a pool declared above")),
        }
    }

    /// The four calls about values.
    pub(super) fn signalled(
        &mut self,
        verb: &str,
        line: &mut Line<'_>,
    ) -> Result<(&'static str, Action), ParseError> {
        let stream = self.stream(line)?;
        let memory = matches!(verb, "write_value" | "wait_value");
        let flag = if memory {
            Flag::Memory(self.pointer(line)?.0)
        } else {
            match self.objects.get(line.word(SEMAPHORE)?) {
                Some(&Object::Semaphore(handle)) => Flag::Semaphore(handle),
                _ => return Err(line.wrong(SEMAPHORE)),
            }
        };
        if !memory && line.peek().is_none() {
            let (value, condition) = (0, Condition::Signalled);
            return Ok(match verb {
                "signal" => (
                    "cudaSignalExternalSemaphoresAsync",
                    Action::ValueWritten {
                        stream,
                        flag,
                        value,
                    },
                ),
                _ => (
                    "cudaWaitExternalSemaphoresAsync",
                    Action::ValueWaited {
                        stream,
                        flag,
                        value,
                        condition,
                    },
                ),
            });
        }
        if matches!(verb, "write_value" | "signal") {
            let api = if memory {
                "cuStreamWriteValue32"
            } else {
                "cudaSignalExternalSemaphoresAsync"
            };
            let value = line.number("a value")?;
            return Ok((
                api,
                Action::ValueWritten {
                    stream,
                    flag,
                    value,
                },
            ));
        }
        let expected = "`>=`, `==`, `&` or `nor`";
        let condition = match line.word(expected)? {
            ">=" if memory => Condition::Reached32,
            ">=" => Condition::Reached64,
            "==" => Condition::Equal,
            "&" => Condition::And,
            "nor" => Condition::Nor32,
            _ => return Err(line.wrong(expected)),
        };
        let api = if memory {
            "cuStreamWaitValue32"
        } else {
            "cudaWaitExternalSemaphoresAsync"
        };
        Ok((
            api,
            Action::ValueWaited {
                stream,
                flag,
                value: line.number("a value")?,
                condition,
            },
        ))
    }
}
