//! The values of conditional handles. Kernels change them while the machine runs on, so they have a lock of their own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A handle.
pub(crate) struct Condition {
    /// The identity of the graph that it was made for.
    pub(crate) graph: u64,
    /// What each launch begins with, if it sets it at all.
    pub(crate) default: Option<u32>,
    /// A node uses it.
    pub(crate) used: bool,
}

static VALUES: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());

fn values() -> MutexGuard<'static, BTreeMap<u64, u32>> {
    VALUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle's value; 0 until it is set.
pub(crate) fn value(handle: u64) -> u32 {
    values().get(&handle).copied().unwrap_or(0)
}

pub(crate) fn set_value(handle: u64, value: u32) {
    values().insert(handle, value);
}
