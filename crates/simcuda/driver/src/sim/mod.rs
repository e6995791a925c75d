//! The simulated machine.

pub(crate) mod arena;
pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod conditional;
pub(crate) mod context;
pub(crate) mod dma;
pub(crate) mod executable;
pub(crate) mod fill;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod handle;
pub(crate) mod kernel;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod sched;
pub(crate) mod semaphore;
pub(crate) mod session;
pub(crate) mod state;
pub(crate) mod transfer;
pub(crate) mod user_object;
pub(crate) mod value;
