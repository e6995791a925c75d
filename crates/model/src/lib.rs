//! What happened, in CUDA's terms.
//!
//! An [`Operation`] is one thing an application did that matters to memory or
//! order: an allocation, a launch, an event record, a synchronize. It holds
//! numbers and interned names only, never a pointer into the application, so the
//! same stream of operations can be checked as it is made, written to a trace,
//! or typed by hand in a test.
//!
//! Handles are *raw* here (the value CUDA returned). CUDA hands the same value
//! out again after a destroy, so a raw value names different objects over time;
//! giving each its own identity is the engine's work.

mod graph;
mod identity;
mod memory;
mod names;
mod operation;
pub mod text;
pub mod trace;

pub use graph::NodeWork;
pub use identity::{
    ContextId, DeviceId, Handle, INTERPRETED, NameId, StackId, StreamRef, ThreadId,
};
pub use memory::{
    BatchCopy, Condition, Direction, Element, Flag, FreeKind, HostMemory, MemoryKind, Mode, Per,
    Pointer, Region, SourceOrder, Used,
};
pub use names::Names;
pub use operation::{Action, Call, FUNCTION_RETURN, HOST_READ, HOST_WRITE, Operation, Outcome};
