//! Memory pools.

use streamcheck_model::{Action, Handle};

use crate::call::Call;
use crate::hook::{Hook, hooks};
use crate::thread::Origin;

/// Recorded ahead of the real call: see [`Call::ahead`].
fn destroyed(hook: &'static Hook, origin: Origin, pool: usize, real: impl FnOnce() -> u32) -> u32 {
    let destroyed = |call: &Call| {
        if pool != 0 {
            call.record(Action::PoolDestroyed {
                pool: Handle(pool as u64),
            });
        }
    };
    Call::ahead(hook, origin, destroyed, real)
}

hooks! { Runtime:
    /// The pool is gone; what was allocated from it stays
    fn cudaMemPoolDestroy: (pool: usize) whole(hook, real, origin) {
        destroyed(hook, origin, pool, || real(pool))
    }
    /// Nothing: only memory that nobody owns goes back to the system
    fn cudaMemPoolTrimTo: (pool: usize, keep: usize) after(call) {
        let _ = (call, pool, keep);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// The pool is gone; what was allocated from it stays
        fn cuMemPoolDestroy: (pool: usize) whole(hook, real, origin) {
            destroyed(hook, origin, pool, || real(pool))
        }
        /// Nothing: only memory that nobody owns goes back to the system
        fn cuMemPoolTrimTo: (pool: usize, keep: usize) after(call) {
            let _ = (call, pool, keep);
        }
    }
}
