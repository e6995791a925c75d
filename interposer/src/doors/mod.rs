//! The hooked functions, by topic.

mod contexts;
mod copies;
mod entry_points;
mod events;
mod fills;
mod graphs;
mod host_functions;
mod imports;
mod launches;
pub(crate) mod libc_door;
mod memory;
mod streams;
mod unseen_copies;
mod unseen_order;

use crate::hook::Hook;

/// Every hooked CUDA function.
pub(crate) fn all() -> impl Iterator<Item = &'static Hook> {
    [
        contexts::HOOKS,
        copies::HOOKS,
        entry_points::HOOKS,
        events::HOOKS,
        fills::HOOKS,
        graphs::HOOKS,
        host_functions::HOOKS,
        imports::HOOKS,
        imports::DRIVER,
        launches::HOOKS,
        launches::DRIVER,
        memory::HOOKS,
        memory::DRIVER,
        streams::HOOKS,
        streams::DRIVER,
        copies::DRIVER,
        events::DRIVER,
        fills::DRIVER,
        graphs::DRIVER,
        host_functions::DRIVER,
        contexts::DRIVER,
        entry_points::DRIVER,
        unseen_copies::HOOKS,
        unseen_copies::DRIVER,
        unseen_order::HOOKS,
        unseen_order::DRIVER,
    ]
    .into_iter()
    .flatten()
    .copied()
}
