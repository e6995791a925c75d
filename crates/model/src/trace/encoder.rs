//! Operations become entries.

use std::hash::{Hash as _, Hasher as _};

use rustc_hash::FxHasher;

use super::entry::{Borrowed, append_again, append_varied};
use super::{Counts, Frame, KEPT, Module, numbers, tables};
use crate::{Action, NameId, Names, Operation, StackId};

/// Places under which the ring's operations are looked for.
const PRINTS: usize = 2 * KEPT;
/// Places under which the newest operation from somewhere in the program is looked for.
const SITES: usize = 1024;

/// Remembers what was written, so that it is not written again.
#[derive(Clone, Debug)]
pub(super) struct Encoder {
    names: Vec<bool>,
    stacks: Vec<bool>,
    counts: Counts,
    ring: Vec<Operation>,
    /// Where the next goes.
    next: usize,
    /// Where in the ring an operation of some fingerprint may be, counted from 1.
    prints: Box<[u16]>,
    /// The same for one that comes from the same place in the program.
    sites: Box<[u16]>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            stacks: Vec::new(),
            counts: Counts::default(),
            ring: Vec::new(),
            next: 0,
            prints: vec![0; PRINTS].into(),
            sites: vec![0; SITES].into(),
        }
    }
}

impl Encoder {
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Appends an operation, and before it the names and the stack that it is the first to use.
    #[inline]
    pub(super) fn operation<'a>(
        &mut self,
        operation: &Operation,
        names: &Names,
        addresses: impl FnOnce(StackId) -> &'a [u64],
        out: &mut Vec<u8>,
    ) {
        self.counts.operations += 1;
        let (site, print) = places(operation);
        for place in &self.prints[print..print + 2] {
            if let Some(place) = place.checked_sub(1)
                && self.ring[usize::from(place)] == *operation
            {
                append_again(place, out);
                return;
            }
        }
        for id in tables::names_in(operation) {
            self.name(id, names, out);
        }
        let id = operation.call.stack;
        if id != StackId::default() && first(&mut self.stacks, id.0) {
            self.counts.stacks += 1;
            let addresses = addresses(id);
            Borrowed::Stack { id, addresses }.append_to(out);
        }
        self.new_operation(operation, site, print, out);
    }

    fn new_operation(
        &mut self,
        operation: &Operation,
        site: usize,
        print: usize,
        out: &mut Vec<u8>,
    ) {
        match self.sites[site].checked_sub(1).map(usize::from) {
            Some(place) => {
                // At its own place lies, for now, the one that is a whole round older.
                let like = match (self.next + KEPT - place) % KEPT {
                    0 => KEPT,
                    distance => distance,
                } as u16;
                let base = &self.ring[place];
                if let Some(differences) = numbers::differences(operation, base) {
                    append_varied(like, &differences, out);
                } else {
                    let mut rest = operation.clone();
                    numbers::subtract(&mut rest, base);
                    let operation = &rest;
                    Borrowed::Operation { like, operation }.append_to(out);
                }
            }
            None => Borrowed::Operation { like: 0, operation }.append_to(out),
        }
        if self.next == self.ring.len() {
            self.ring.push(operation.clone());
        } else {
            self.ring[self.next] = operation.clone();
        }
        self.next = (self.next + 1) % KEPT;
        let place = if self.next == 0 { KEPT } else { self.next } as u16;
        self.prints[print + 1] = self.prints[print];
        self.prints[print] = place;
        self.sites[site] = place;
    }

    pub(super) fn module(&mut self, module: &Module, out: &mut Vec<u8>) {
        Borrowed::Module(module).append_to(out);
    }

    pub(super) fn frames(&mut self, stack: StackId, frames: &[Frame], out: &mut Vec<u8>) {
        Borrowed::Frames { stack, frames }.append_to(out);
    }

    fn name(&mut self, id: NameId, names: &Names, out: &mut Vec<u8>) {
        if id != NameId::default() && first(&mut self.names, id.0) {
            self.counts.names += 1;
            let text = names.text(id);
            Borrowed::Name { id, text }.append_to(out);
        }
    }
}

/// Where an operation is looked for: by where it comes from, and by all that tells it apart.
#[inline]
fn places(operation: &Operation) -> (usize, usize) {
    let call = &operation.call;
    let mut hasher = FxHasher::default();
    core::mem::discriminant(&operation.action).hash(&mut hasher);
    hasher.write_u64(u64::from(call.stack.0) << 32 | u64::from(call.api.0));
    let kernel = match operation.action {
        Action::Launched { kernel, .. } => kernel,
        _ => NameId::default(),
    };
    hasher.write_u64(u64::from(call.thread.0) << 32 | u64::from(kernel.0));
    let site = hasher.finish() as usize % SITES;
    numbers::visit(operation, |&number| hasher.write_u64(number));
    // Of two that share a fingerprint, neither is to push the other out.
    (site, hasher.finish() as usize % (PRINTS / 2) * 2)
}

/// Marks `number`; true the first time.
fn first(seen: &mut Vec<bool>, number: u32) -> bool {
    let place = number as usize;
    if place >= seen.len() {
        seen.resize(place + 1, false);
    }
    !std::mem::replace(&mut seen[place], true)
}
