//! The names, stacks and modules of a trace that is being read.

use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};

use super::{Frame, Module, Record};
use crate::{Action, NameId, Names, NodeWork, Operation, StackId};

/// Collects what a trace says about its numbers.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    names: HashMap<NameId, NameId>,
    stacks: HashMap<StackId, Vec<u64>>,
    frames: HashMap<StackId, Vec<Frame>>,
    modules: Vec<Module>,
}

impl Tables {
    /// Takes in a record. An operation comes back with its names renumbered to
    /// those of `names`; stacks keep the trace's numbers.
    pub fn take(&mut self, record: Record, names: &mut Names) -> Option<Operation> {
        match record {
            Record::Operation(mut operation) => {
                self.rename(&mut operation);
                return Some(operation);
            }
            other => self.keep(other, names),
        }
        None
    }

    /// Gives an operation the numbers of the names that were taken in.
    pub(super) fn rename(&self, operation: &mut Operation) {
        for name in names_in_mut(operation) {
            *name = self.names.get(name).copied().unwrap_or_default();
        }
    }

    /// Takes in what is no operation.
    pub(super) fn keep(&mut self, record: Record, names: &mut Names) {
        match record {
            Record::Name { id, text } => {
                self.names.insert(id, names.intern(&text));
            }
            Record::Module(module) => self.modules.push(module),
            Record::Stack { id, addresses } => {
                self.stacks.insert(id, addresses);
            }
            Record::Frames { stack, frames } => {
                self.frames.insert(stack, frames);
            }
            Record::Operation(_) | Record::End(_) | Record::Stopped { .. } => {}
        }
    }

    /// The return addresses of a stack, the innermost first.
    #[must_use]
    pub fn addresses(&self, stack: StackId) -> &[u64] {
        self.stacks.get(&stack).map_or(&[], Vec::as_slice)
    }

    /// A stack as the recorder symbolized it, if it did.
    #[must_use]
    pub fn frames(&self, stack: StackId) -> Option<&[Frame]> {
        self.frames.get(&stack).map(Vec::as_slice)
    }

    /// The modules, in the order in which they were seen.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }
}

/// The names that an operation uses.
pub(super) fn names_in(operation: &Operation) -> SmallVec<[NameId; 3]> {
    match operation.action {
        Action::StreamNamed { name, .. } => smallvec![operation.call.api, name],
        Action::Launched { kernel, .. } => smallvec![operation.call.api, kernel],
        Action::BlindSpot { kind, example } => smallvec![operation.call.api, kind, example],
        Action::NodeAdded {
            work: NodeWork::Kernel { kernel, .. },
            ..
        }
        | Action::NodeChanged {
            work: NodeWork::Kernel { kernel, .. },
            ..
        }
        | Action::NodeCaptured {
            work: NodeWork::Kernel { kernel, .. },
            ..
        } => smallvec![operation.call.api, kernel],
        _ => smallvec![operation.call.api],
    }
}

fn names_in_mut(operation: &mut Operation) -> SmallVec<[&mut NameId; 3]> {
    let api = &mut operation.call.api;
    match &mut operation.action {
        Action::StreamNamed { name, .. } => smallvec![api, name],
        Action::Launched { kernel, .. } => smallvec![api, kernel],
        Action::BlindSpot { kind, example } => smallvec![api, kind, example],
        Action::NodeAdded {
            work: NodeWork::Kernel { kernel, .. },
            ..
        }
        | Action::NodeChanged {
            work: NodeWork::Kernel { kernel, .. },
            ..
        }
        | Action::NodeCaptured {
            work: NodeWork::Kernel { kernel, .. },
            ..
        } => smallvec![api, kernel],
        _ => smallvec![api],
    }
}

/// Sets every name to 0, to compare the rest of two operations.
#[cfg(test)]
pub(super) fn forget_names(operation: &mut Operation) {
    for name in names_in_mut(operation) {
        *name = NameId(0);
    }
}
