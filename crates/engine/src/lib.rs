//! The happens-before engine: operations in, findings out.
//!
//! The engine is a plain library without I/O, CUDA or globals, so checking as a
//! program runs, replaying a trace, property tests and benchmarks drive the same
//! code. [`Engine::apply`] takes one [`Operation`] after another; `order` says what
//! comes before what, `memory` what an address is, and each file in `rules` holds
//! one rule over the two. Checking reads the state, the engine alone changes it.
//!
//! A verdict depends on the order of calls and on nothing else: no clock is read,
//! so a race is found on the run in which nothing went wrong.

mod address_map;
#[cfg(test)]
mod agreement;
mod captures;
mod clock;
mod copies;
mod engine;
mod finding;
mod graph;
mod graphs;
mod host_functions;
mod host_uses;
mod memory;
mod nodes;
mod op;
mod order;
mod recent;
mod replays;
mod rules;
mod shadow;
mod streams;
mod timeline;
mod values;
mod view;

pub use engine::Engine;
pub use finding::{
    AllocationFacts, BlindSpot, CallSite, EventFacts, Finding, Lane, Role, StreamFacts, Summary,
    Timeline, TimelineEdge, TimelineOperation,
};
pub use host_uses::HostUse;
pub use rules::{Level, Levels, RULES, Rule, RuleCode};
pub use view::short_kernel;
