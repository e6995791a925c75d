//! Contexts: each has streams of its own; green ones are parts of a device's primary one.

use super::sched::{Past, StreamId, Work};
use super::session;
use super::state::{Barrier, State};
use crate::abi::Status;
use crate::error::INVALID_CONTEXT;
use std::collections::HashMap;
use std::sync::Arc;

/// Stands for a stream's context once it is a destroyed green one.
pub(super) const DETACHED: u64 = 0;

pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) flags: u32,
    pub(crate) id: u64,
    pub(super) legacy: StreamId,
    pub(super) per_thread: HashMap<u64, StreamId>,
    /// Every other stream of the context, destroyed ones with work left too.
    pub(super) streams: Vec<(StreamId, Barrier)>,
    pub(crate) peers: Vec<u64>,
    /// The primary context that a green one is part of.
    pub(crate) parent: Option<u64>,
    /// What all work submitted from now on comes after.
    pub(super) gates: Vec<Arc<Past>>,
}

impl State {
    pub(crate) fn add_context(&mut self, device: i32, flags: u32) -> u64 {
        let legacy = self.sched.open();
        let id = self.fresh_id();
        self.contexts.insert(Context {
            device,
            flags,
            id,
            legacy,
            per_thread: HashMap::new(),
            streams: Vec::new(),
            peers: Vec::new(),
            parent: None,
            gates: Vec::new(),
        })
    }

    /// The context's live handle, or the calling thread's current one for 0.
    pub(crate) fn context(&self, handle: u64) -> Status<(u64, &Context)> {
        let handle = if handle == 0 {
            session::current_context()
        } else {
            handle
        };
        self.contexts
            .get(handle)
            .map(|context| (handle, context))
            .ok_or(INVALID_CONTEXT)
    }

    pub(crate) fn current_device(&self) -> Status<i32> {
        Ok(self.context(0)?.1.device)
    }

    /// The streams of a context, or of all contexts of `device`.
    pub(crate) fn streams_of(&self, wanted: impl Fn(u64, &Context) -> bool) -> Vec<StreamId> {
        let contexts: Vec<(u64, &Context)> = self
            .contexts
            .iter()
            .filter(|&(handle, c)| wanted(handle, c))
            .collect();
        let streams = contexts.iter().flat_map(|(_, context)| {
            context
                .streams
                .iter()
                .map(|&(id, _)| id)
                .chain([context.legacy])
        });
        streams.collect()
    }

    /// The context, and the green ones that are part of it.
    pub(crate) fn family(&self, handle: u64) -> Vec<u64> {
        let parts = self
            .contexts
            .iter()
            .filter(|(_, context)| context.parent == Some(handle));
        parts.map(|(part, _)| part).chain([handle]).collect()
    }

    /// The context itself, or the primary one that a green one is part of.
    pub(crate) fn whole(&self, handle: u64) -> u64 {
        self.contexts
            .get(handle)
            .and_then(|context| context.parent)
            .unwrap_or(handle)
    }

    /// Makes all work that a context gets from now on come after `past`.
    pub(crate) fn gate(&mut self, handle: u64, past: &Arc<Past>) {
        for part in self.family(handle) {
            if let Some(context) = self.contexts.get_mut(part) {
                context.gates.push(past.clone());
            }
        }
    }

    /// Everything that a context has been given so far, and what the rest of it waits for, as one point; `work` is
    /// done there.
    pub(crate) fn gather(&mut self, handle: u64, work: Work) -> Arc<Past> {
        let family = self.family(handle);
        let streams = self.streams_of(|other, _| family.contains(&other));
        let mut after: Vec<Arc<Past>> = streams
            .into_iter()
            .map(|stream| self.sched.past(stream))
            .collect();
        for &part in &family {
            after.extend(
                self.contexts
                    .get(part)
                    .into_iter()
                    .flat_map(|context| context.gates.clone()),
            );
        }
        let place = self.sched.open();
        self.sched.submit(place, &after, work);
        let past = self.sched.past(place);
        // The context's own, so that waiting for the context completes the record too.
        self.keep_stream(handle, place, Barrier::NonBlocking);
        self.sched.close(place);
        past
    }

    /// A part of the device's primary context; its handle as a context.
    pub(crate) fn add_green(&mut self, primary: u64) -> Status<u64> {
        let device = self.context(primary)?.1.device;
        let handle = self.add_context(device, 0);
        if let Some(context) = self.contexts.get_mut(handle) {
            context.parent = Some(primary);
        }
        Ok(handle)
    }

    /// Destroys a green context. Its streams are good for nothing but to be destroyed; what they were given still
    /// runs, and is the primary context's from here on, as is all else that was made in it.
    pub(crate) fn remove_green(&mut self, handle: u64) {
        let primary = self.whole(handle);
        let Some(green) = self.contexts.remove(handle) else {
            return;
        };
        self.streams.change(|lane| {
            if lane.context == handle {
                lane.context = DETACHED;
            }
        });
        let adopt = |context: &mut u64| {
            if *context == handle {
                *context = primary;
            }
        };
        self.events.change(|event| adopt(&mut event.context));
        self.libraries
            .change(|library| library.context.iter_mut().for_each(adopt));
        for allocation in self.allocations.values_mut() {
            adopt(&mut allocation.context);
        }
        for registered in self.registered.values_mut() {
            adopt(&mut registered.context);
        }
        for (id, _) in &green.streams {
            self.keep_stream(primary, *id, Barrier::NonBlocking);
        }
        for id in green.per_thread.into_values().chain([green.legacy]) {
            self.sched.close(id);
        }
    }

    /// Destroys a context and all that lives in it; its work must have been waited for.
    pub(crate) fn remove_context(&mut self, handle: u64) {
        for part in self.family(handle) {
            if part != handle {
                self.greens.remove_where(|&context| context == part);
                self.remove_green(part);
            }
        }
        for lane in self.streams.remove_where(|lane| lane.context == handle) {
            self.capture_lost(lane.id);
            self.sched.close(lane.id);
        }
        self.events.remove_where(|event| event.context == handle);
        for (&base, _) in self
            .allocations
            .clone()
            .iter()
            .filter(|(_, allocation)| allocation.context == handle)
        {
            if let Some(allocation) = self.allocations.remove(&base) {
                self.release(base, &allocation, None);
            }
        }
        self.forget_graph_memory();
        let live = &self.allocations;
        self.arrays
            .remove_where(|array| !live.contains_key(&array.address));
        self.registered
            .retain(|_, registered| registered.context != handle);
        self.libraries
            .remove_where(|library| library.context == Some(handle));
        let Some(context) = self.contexts.remove(handle) else {
            return;
        };
        for id in context.per_thread.into_values().chain([context.legacy]) {
            self.sched.close(id);
        }
        if let Ok(device) = self.device(context.device)
            && device.primary == Some(handle)
        {
            device.primary = None;
        }
    }
}
