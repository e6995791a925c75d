//! Objects of the application's that graphs keep alive: counted, and destroyed by a function of its own.

use super::graph::HostCall;
use super::sched::{Past, Work};
use super::state::State;
use crate::abi::Status;
use crate::error::INVALID_VALUE;
use std::sync::Arc;

pub(crate) struct UserObject {
    pub(crate) destroy: HostCall,
    /// References, those of graphs and executables included.
    pub(crate) count: u64,
}

impl State {
    pub(crate) fn retain_user_object(&mut self, object: u64, count: u64) -> Status {
        let object = self.user_objects.get_mut(object).ok_or(INVALID_VALUE)?;
        if count == 0 {
            return Err(INVALID_VALUE);
        }
        object.count += count;
        Ok(())
    }

    /// Gives references up. With the last one the object is destroyed, after `last`, on the thread of the host functions.
    pub(crate) fn release_user_object(
        &mut self,
        object: u64,
        count: u64,
        last: Option<Arc<Past>>,
    ) -> Status {
        let given = self.user_objects.get_mut(object).ok_or(INVALID_VALUE)?;
        if count == 0 || count > given.count {
            return Err(INVALID_VALUE);
        }
        given.count -= count;
        if given.count > 0 {
            return Ok(());
        }
        if let Some(UserObject { destroy, .. }) = self.user_objects.remove(object) {
            let run = move || (destroy.function)(destroy.data as *mut _);
            let after: Vec<Arc<Past>> = last.into_iter().collect();
            let place = self.sched.open();
            self.sched.submit(place, &after, Work::Host(Box::new(run)));
            self.sched.close(place);
        }
        Ok(())
    }
}
