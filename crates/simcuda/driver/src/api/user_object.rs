//! User objects, and the graphs that keep them alive.

use crate::abi::{Out, Status};
use crate::error::INVALID_VALUE;
use crate::sim::graph::HostCall;
use crate::sim::session::{Session, session};
use crate::sim::user_object::UserObject;
use std::ffi::c_void;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which must be given.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the references are the caller's own.
const MOVE: u32 = 1;

fn change(act: impl FnOnce(&mut Session) -> Status) -> Status {
    session(|s| {
        act(s)?;
        // A destructor may be due.
        s.submitted();
        Ok(())
    })
}

api! {
    "cuUserObjectCreate" 11030 => cuUserObjectCreate(object: Out<u64>, data: usize,
                                                     destroy: Option<extern "C" fn(*mut c_void)>, count: u32,
                                                     flags: u32) {
        session(|s| {
            object.wanted()?;
            let function = destroy.ok_or(INVALID_VALUE)?;
            if count == 0 || flags != NO_DESTRUCTOR_SYNC {
                return Err(INVALID_VALUE);
            }
            let destroy = HostCall { function, data };
            let handle = s.user_objects.insert(UserObject { destroy, count: u64::from(count) });
            object.put(handle)
        })
    }
    "cuUserObjectRetain" 11030 => cuUserObjectRetain(object: u64, count: u32) {
        session(|s| s.retain_user_object(object, u64::from(count)))
    }
    "cuUserObjectRelease" 11030 => cuUserObjectRelease(object: u64, count: u32) {
        change(|s| s.release_user_object(object, u64::from(count), None))
    }
    "cuGraphRetainUserObject" 11030 => cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) {
        session(|s| {
            s.graph(graph)?;
            let count = u64::from(count);
            match flags {
                0 => s.retain_user_object(object, count)?,
                MOVE if count > 0 && s.user_objects.get(object).is_some_and(|object| object.count >= count) => {}
                _ => return Err(INVALID_VALUE),
            }
            if let Some(graph) = s.graphs.get_mut(graph) {
                *graph.user_objects.entry(object).or_default() += count;
            }
            Ok(())
        })
    }
    "cuGraphReleaseUserObject" 11030 => cuGraphReleaseUserObject(graph: u64, object: u64, count: u32) {
        change(|s| {
            let graph = s.graphs.get_mut(graph).ok_or(INVALID_VALUE)?;
            let held = graph.user_objects.get_mut(&object).ok_or(INVALID_VALUE)?;
            let count = u64::from(count);
            if count == 0 || count > *held {
                return Err(INVALID_VALUE);
            }
            *held -= count;
            if *held == 0 {
                graph.user_objects.remove(&object);
            }
            s.release_user_object(object, count, None)
        })
    }
}
