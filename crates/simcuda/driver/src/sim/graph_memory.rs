//! What allocation nodes allocate. An address is the node's from when it is made; the memory is there from the first
//! launch on, and is kept for other graphs once nobody needs it.

use super::graph::Edge;
use super::memory::{Allocation, Kind};
use super::sched::Past;
use super::state::{Lane, State};
use crate::abi::Status;
use crate::error::INVALID_VALUE;
use std::sync::Arc;

/// Which graph frees an allocation, if one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedBy {
    /// The one that allocates it, by this node.
    Own(u64),
    Another,
}

/// An address that nodes of one graph allocate.
pub(crate) struct GraphMemory {
    /// In bytes, rounded as the device does.
    pub(crate) size: u64,
    pub(crate) device: i32,
    /// The identity of the outermost graph.
    pub(crate) graph: u64,
    /// Allocation nodes and executables that have it.
    holders: usize,
    /// A launch has allocated it, and nobody has freed it since.
    pub(crate) live: bool,
    backed: bool,
    freed_by: Option<FreedBy>,
}

/// Memory that no graph needs now: of `size` bytes on `device`, for use after `freed`.
pub(crate) struct Kept {
    address: u64,
    size: u64,
    device: i32,
    freed: Option<Arc<Past>>,
}

/// High-water marks of a device's graph memory, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct GraphMemoryMarks {
    pub(crate) used: u64,
    pub(crate) reserved: u64,
}

impl State {
    /// Memory for an allocation node that comes after `needs`: at the address of an allocation of the same graph that is
    /// freed by then, if there is one.
    pub(crate) fn add_graph_memory(
        &mut self,
        graph: u64,
        needs: &[(u64, Edge)],
        size: u64,
        device: i32,
    ) -> Status<u64> {
        let outermost = self.outermost(graph);
        let id = self.graph(outermost)?.id;
        let context = self.context(0)?.0;
        let arena = &self.device(device)?.arena;
        let rounded = arena
            .rounded(size)
            .filter(|_| size > 0)
            .ok_or(INVALID_VALUE)?;
        let before = self.with_ancestors(needs.iter().map(|&(node, _)| node));
        let free = |memory: &GraphMemory| {
            let freed =
                matches!(memory.freed_by, Some(FreedBy::Own(node)) if before.contains(&node));
            freed && (memory.graph, memory.size, memory.device) == (id, rounded, device)
        };
        let again = self
            .graph_memory
            .iter_mut()
            .find(|(_, memory)| free(memory))
            .map(|(&address, memory)| {
                memory.freed_by = None;
                memory.holders += 1;
                address
            });
        if let Some(address) = again {
            self.remember_graph_memory(address, size, device, context);
            return Ok(address);
        }
        let kept = self.graph_kept.iter().rposition(|kept| {
            (kept.size, kept.device) == (rounded, device)
                && kept
                    .freed
                    .as_ref()
                    .is_none_or(|past| self.sched.is_done(past.point))
        });
        let (address, backed) = match kept {
            Some(at) => (self.graph_kept.remove(at).address, true),
            None => (self.take_device_memory(device, rounded)?, false),
        };
        let memory = GraphMemory {
            size: rounded,
            device,
            graph: id,
            holders: 1,
            live: false,
            backed,
            freed_by: None,
        };
        self.graph_memory.insert(address, memory);
        self.remember_graph_memory(address, size, device, context);
        self.mark_graph_memory(device);
        Ok(address)
    }

    fn remember_graph_memory(&mut self, address: u64, size: u64, device: i32, context: u64) {
        let id = self.fresh_id();
        self.allocations.insert(
            address,
            Allocation {
                size,
                kind: Kind::Graph,
                device,
                context,
                id,
            },
        );
    }

    /// Whether a free node may be added for the address.
    pub(crate) fn check_graph_free(&self, graph: u64, address: u64) -> Status {
        let id = self.graph(self.outermost(graph))?.id;
        let memory = self.graph_memory.get(&address).ok_or(INVALID_VALUE)?;
        match memory.freed_by {
            None => Ok(()),
            Some(FreedBy::Another) if memory.graph != id => Ok(()),
            Some(_) => Err(INVALID_VALUE),
        }
    }

    /// The free node `node` of `graph` is there.
    pub(crate) fn add_graph_free(&mut self, graph: u64, address: u64, node: u64) {
        let outermost = self.outermost(graph);
        let id = self.graphs.get(outermost).map(|graph| graph.id);
        if let Some(memory) = self.graph_memory.get_mut(&address) {
            memory.freed_by = Some(if id == Some(memory.graph) {
                FreedBy::Own(node)
            } else {
                FreedBy::Another
            });
        }
    }

    /// One more needs the address.
    pub(crate) fn hold_graph_memory(&mut self, address: u64) {
        if let Some(memory) = self.graph_memory.get_mut(&address) {
            memory.holders += 1;
        }
    }

    /// One less does, after `last`.
    pub(crate) fn drop_graph_memory(&mut self, address: u64, last: Option<Arc<Past>>) {
        if let Some(memory) = self.graph_memory.get_mut(&address) {
            memory.holders = memory.holders.saturating_sub(1);
        }
        self.keep_if_unneeded(address, last);
    }

    fn keep_if_unneeded(&mut self, address: u64, freed: Option<Arc<Past>>) {
        let unneeded = |memory: &GraphMemory| memory.holders == 0 && !memory.live;
        if !self.graph_memory.get(&address).is_some_and(unneeded) {
            return;
        }
        let Some(memory) = self.graph_memory.remove(&address) else {
            return;
        };
        self.allocations.remove(&address);
        if memory.backed {
            self.graph_kept.push(Kept {
                address,
                size: memory.size,
                device: memory.device,
                freed,
            });
        } else {
            self.give_device_memory(memory.device, address, memory.size);
        }
    }

    /// A launch may allocate these: each is free, or `again` says that the launch frees it first.
    pub(crate) fn check_graph_allocations(&self, addresses: &[u64], again: bool) -> Status {
        let live = |address| {
            let memory: Option<&GraphMemory> = self.graph_memory.get(address);
            memory.is_some_and(|memory| memory.live)
        };
        if !again && addresses.iter().any(live) {
            Err(INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// A launch allocates these. Those that its graph does not free are there after it.
    pub(crate) fn launch_graph_allocations(&mut self, addresses: &[u64]) {
        let mut devices = Vec::new();
        for address in addresses {
            if let Some(memory) = self.graph_memory.get_mut(address) {
                memory.backed = true;
                memory.live = !matches!(memory.freed_by, Some(FreedBy::Own(_)));
                devices.push(memory.device);
            }
        }
        for device in devices {
            self.mark_graph_memory(device);
        }
    }

    /// What a launch of another graph frees must be there.
    pub(crate) fn check_graph_frees(&self, addresses: &[u64], graph: u64) -> Status {
        let gone = |address| {
            let memory: Option<&GraphMemory> = self.graph_memory.get(address);
            memory.is_none_or(|memory| memory.graph != graph && !memory.live)
        };
        if addresses.iter().any(gone) {
            Err(INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// The launch that is the newest work of `lane` frees these.
    pub(crate) fn launch_graph_frees(&mut self, addresses: &[u64], graph: u64, lane: Lane) {
        for address in addresses {
            if let Some(memory) = self.graph_memory.get_mut(address)
                && memory.graph != graph
            {
                memory.live = false;
                let freed = Some(self.sched.past(lane.id));
                self.keep_if_unneeded(*address, freed);
            }
        }
    }

    /// A free outside of any graph, after `freed`. `None`: the address is no graph's.
    pub(crate) fn free_graph_memory(
        &mut self,
        address: u64,
        freed: impl FnOnce(&mut State) -> Option<Arc<Past>>,
    ) -> Option<Status> {
        let memory = self.graph_memory.get_mut(&address)?;
        if !memory.live {
            return Some(Err(INVALID_VALUE));
        }
        memory.live = false;
        let freed = freed(self);
        self.keep_if_unneeded(address, freed);
        Some(Ok(()))
    }

    /// Bytes that graphs of a device use, and bytes that are kept for them, those included.
    pub(crate) fn graph_memory_of(&self, device: i32) -> GraphMemoryMarks {
        let used = self
            .graph_memory
            .values()
            .filter(|memory| memory.device == device && memory.backed)
            .map(|memory| memory.size)
            .sum();
        let kept: u64 = self
            .graph_kept
            .iter()
            .filter(|kept| kept.device == device)
            .map(|kept| kept.size)
            .sum();
        GraphMemoryMarks {
            used,
            reserved: used + kept,
        }
    }

    fn mark_graph_memory(&mut self, device: i32) {
        let now = self.graph_memory_of(device);
        if let Ok(device) = self.device(device) {
            let high = &mut device.graph_memory_high;
            high.used = high.used.max(now.used);
            high.reserved = high.reserved.max(now.reserved);
        }
    }

    /// Gives what is kept for no graph back to the device.
    pub(crate) fn trim_graph_memory(&mut self, device: i32) {
        let (gone, kept) = std::mem::take(&mut self.graph_kept)
            .into_iter()
            .partition(|kept| {
                kept.device == device
                    && kept
                        .freed
                        .as_ref()
                        .is_none_or(|past| self.sched.is_done(past.point))
            });
        self.graph_kept = kept;
        let gone: Vec<Kept> = gone;
        for Kept { address, size, .. } in gone {
            self.give_device_memory(device, address, size);
        }
    }

    /// A graph that allocates moves into a node of `graph`: its memory is that graph's from now on.
    pub(crate) fn move_graph_memory(&mut self, from: u64, graph: u64) {
        let Ok(id) = self.graph(self.outermost(graph)).map(|graph| graph.id) else {
            return;
        };
        for memory in self.graph_memory.values_mut() {
            if memory.graph == from {
                memory.graph = id;
            }
        }
    }

    /// What a context took with it is nobody's any more.
    pub(crate) fn forget_graph_memory(&mut self) {
        let live = &self.allocations;
        self.graph_memory
            .retain(|address, _| live.contains_key(address));
    }
}
