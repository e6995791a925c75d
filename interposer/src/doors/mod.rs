//! The hooked functions, by topic.

mod arrays;
mod attributes;
mod batches;
mod captures;
mod contexts;
mod copies;
mod entry_points;
mod events;
pub(crate) mod exec;
mod executables;
mod fills;
mod graph_building;
mod graph_launches;
mod green_contexts;
mod host_functions;
mod imports;
mod launches;
pub(crate) mod libc_door;
pub(crate) mod locals;
mod managed;
pub(crate) mod memory;
mod modules;
mod node_work;
mod old_launches;
mod other_work;
mod passing;
mod peers;
mod pools;
pub(crate) mod signal_actions;
pub(crate) mod signals;
mod stream_names;
mod streams;
pub(crate) mod system_calls;
pub(crate) mod unseen_order;
mod volumes;

use crate::hook::Hook;

/// Every hooked CUDA function.
pub(crate) fn all() -> impl Iterator<Item = &'static Hook> {
    [
        arrays::HOOKS,
        arrays::DRIVER,
        attributes::HOOKS,
        batches::HOOKS,
        batches::DRIVER,
        captures::HOOKS,
        captures::DRIVER,
        contexts::HOOKS,
        contexts::DRIVER,
        copies::HOOKS,
        copies::DRIVER,
        entry_points::HOOKS,
        entry_points::DRIVER,
        events::HOOKS,
        events::DRIVER,
        fills::HOOKS,
        fills::DRIVER,
        executables::HOOKS,
        executables::DRIVER,
        graph_building::HOOKS,
        graph_building::DRIVER,
        graph_launches::HOOKS,
        graph_launches::DRIVER,
        green_contexts::HOOKS,
        green_contexts::DRIVER,
        host_functions::HOOKS,
        host_functions::DRIVER,
        imports::HOOKS,
        imports::DRIVER,
        launches::HOOKS,
        launches::DRIVER,
        managed::HOOKS,
        managed::DRIVER,
        memory::HOOKS,
        memory::DRIVER,
        modules::HOOKS,
        modules::DRIVER,
        old_launches::HOOKS,
        old_launches::DRIVER,
        other_work::HOOKS,
        other_work::DRIVER,
        peers::HOOKS,
        peers::DRIVER,
        pools::HOOKS,
        pools::DRIVER,
        signals::HOOKS,
        signals::DRIVER,
        streams::HOOKS,
        streams::DRIVER,
        volumes::HOOKS,
        volumes::DRIVER,
    ]
    .into_iter()
    .flatten()
    .copied()
}
