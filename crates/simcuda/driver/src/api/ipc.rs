//! Handles for other processes. Each process has a machine of its own here, so they can be made, and opened nowhere: as
//! on a real GPU not in the process that made them, and in another there is nothing behind them.

use crate::abi::{Out, Status};
use crate::error::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, MAP_FAILED, NOT_SUPPORTED};
use crate::sim::memory::Kind;
use crate::sim::session::session;

/// `CUipcMemHandle` and `CUipcEventHandle`: who made it, and of what; the rest is zero.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    process: u32,
    kind: u32,
    id: u64,
    rest: [u64; 6],
}

const MEMORY: u32 = 1;
const EVENT: u32 = 2;

impl Handle {
    fn new(kind: u32, id: u64) -> Self {
        Self {
            process: std::process::id(),
            kind,
            id,
            rest: [0; 6],
        }
    }

    /// Why it cannot be opened here.
    fn refusal(self, kind: u32) -> u32 {
        if self.kind != kind {
            INVALID_VALUE
        } else if self.process == std::process::id() {
            INVALID_CONTEXT
        } else {
            MAP_FAILED
        }
    }
}

fn open(kind: u32, out: Out<u64>, handle: Handle) -> Status {
    session(|s| s.context(0).map(|_| ()))?;
    out.wanted()?;
    Err(handle.refusal(kind))
}

api! {
    "cuIpcGetMemHandle" 4010 => cuIpcGetMemHandle(handle: Out<Handle>, address: u64) {
        session(|s| {
            let (_, allocation) = s.allocation(address).ok_or(INVALID_VALUE)?;
            match allocation.kind {
                Kind::Device => handle.put(Handle::new(MEMORY, allocation.id)),
                _ => Err(INVALID_VALUE),
            }
        })
    }
    "cuIpcOpenMemHandle" 4010 => cuIpcOpenMemHandle(pointer: Out<u64>, handle: Handle, _flags: u32) {
        open(MEMORY, pointer, handle)
    }
    "cuIpcOpenMemHandle" 11000 => cuIpcOpenMemHandle_v2(pointer: Out<u64>, handle: Handle, _flags: u32) {
        open(MEMORY, pointer, handle)
    }
    "cuIpcCloseMemHandle" 4010 => cuIpcCloseMemHandle(_address: u64) {
        session(|s| s.context(0).map(|_| ()))?;
        Err(INVALID_VALUE)
    }
    "cuIpcGetEventHandle" 4010 => cuIpcGetEventHandle(handle: Out<Handle>, event: u64) {
        session(|s| {
            // "The event must have been created with CU_EVENT_INTERPROCESS and CU_EVENT_DISABLE_TIMING."
            if s.events.get(event).ok_or(INVALID_HANDLE)?.interprocess {
                handle.put(Handle::new(EVENT, event))
            } else {
                Err(NOT_SUPPORTED)
            }
        })
    }
    "cuIpcOpenEventHandle" 4010 => cuIpcOpenEventHandle(event: Out<u64>, handle: Handle) {
        open(EVENT, event, handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_open_nowhere() {
        assert_eq!(
            size_of::<Handle>(),
            size_of::<cudarc::driver::sys::CUipcMemHandle_st>()
        );
        let own = Handle::new(EVENT, 1);
        assert_eq!(
            (own.refusal(EVENT), own.refusal(MEMORY)),
            (INVALID_CONTEXT, INVALID_VALUE)
        );
        let other = Handle { process: 0, ..own };
        assert_eq!(other.refusal(EVENT), MAP_FAILED);
    }
}
