//! The simulated machine.

pub(crate) mod arena;
pub(crate) mod array;
pub(crate) mod context;
pub(crate) mod dma;
pub(crate) mod handle;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod pool;
pub(crate) mod sched;
pub(crate) mod session;
pub(crate) mod state;
pub(crate) mod transfer;
