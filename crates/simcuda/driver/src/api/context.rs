//! Contexts: primary ones, created ones, and each thread's stack of them.

use super::event::check_context;
use crate::abi::{Out, Status};
use crate::error::{
    INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED,
};
use crate::sim::sched::Work;
use crate::sim::session::{self, Session, session};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// `cuCtxSynchronize`: what is captured cannot be waited for.
fn synchronize(s: &mut Session, context: u64) -> Status {
    let (handle, _) = s.context(context)?;
    let family = s.family(handle);
    s.nothing_captured(|context| family.contains(&context))?;
    wait_for_all(s, context)
}

/// Waits for all work of a context (0: the current one), and of the green ones that are part of it.
fn wait_for_all(s: &mut Session, context: u64) -> Status {
    let (handle, _) = s.context(context)?;
    let family = s.family(handle);
    let streams = s.streams_of(|other, _| family.contains(&other));
    s.run_until(|state| streams.iter().all(|&stream| state.sched.is_idle(stream)));
    s.trim_pools();
    Ok(())
}

fn destroy(s: &mut Session, context: u64) -> Status {
    wait_for_all(s, context)?;
    s.remove_context(context);
    if session::current_context() == context {
        session::set_current_context(0);
    }
    Ok(())
}

/// The device's primary context, made at the first use.
pub(super) fn retain(s: &mut Session, device: i32) -> Status<u64> {
    let flags = s.device(device)?.flags;
    let handle = match s.device(device)?.primary {
        Some(handle) => handle,
        None => s.add_context(device, flags),
    };
    let owner = s.device(device)?;
    owner.primary = Some(handle);
    owner.retained += 1;
    Ok(handle)
}

/// The last one who retained the primary context takes it down.
pub(super) fn release(s: &mut Session, device: i32) -> Status {
    let owner = s.device(device)?;
    let handle = owner
        .primary
        .filter(|_| owner.retained > 0)
        .ok_or(INVALID_CONTEXT)?;
    owner.retained -= 1;
    if owner.retained == 0 {
        destroy(s, handle)
    } else {
        Ok(())
    }
}

fn create(context: Out<u64>, flags: u32, device: i32) -> Status {
    session(|s| {
        context.wanted()?;
        s.device(device)?;
        let handle = s.add_context(device, flags);
        session::push_context(handle)?;
        context.put(handle)
    })
}

/// Records all that the context has been given so far, that of its green ones too.
pub(super) fn record(s: &mut Session, context: u64, event: u64) -> Status {
    let (handle, _) = s.context(context)?;
    check_context(s, event, handle)?;
    let family = s.family(handle);
    s.nothing_captured(|context| family.contains(&context))?;
    let time = Arc::new(AtomicU64::new(0));
    let past = s.gather(handle, Work::Stamp(time.clone()));
    if let Some(event) = s.events.get_mut(event) {
        event.record = Some((past, time));
        event.captured = None;
    }
    s.submitted();
    Ok(())
}

/// Makes all that the context will be given wait for an event; one that was never recorded is no wait.
pub(super) fn wait(s: &mut Session, context: u64, event: u64) -> Status {
    let (handle, _) = s.context(context)?;
    let family = s.family(handle);
    s.nothing_captured(|context| family.contains(&context))?;
    let record = &s.events.get(event).ok_or(INVALID_HANDLE)?.record;
    if let Some((past, _)) = record.clone() {
        s.gate(handle, &past);
    }
    Ok(())
}

/// `CUlimit` values: those that programs ask for before they set them.
fn limit(which: u32) -> Status<usize> {
    match which {
        0 => Ok(1024),    // stack
        1 => Ok(1 << 20), // printf buffer
        2 => Ok(8 << 20), // heap
        3 => Ok(2),       // device runtime depth
        4 => Ok(2048),    // pending launches
        5 => Ok(128),     // L2 fetch granularity
        6 => Ok(0),       // persisting L2
        _ => Err(215),    // CUDA_ERROR_UNSUPPORTED_LIMIT
    }
}

/// `cuDevicePrimaryCtxRelease`.
fn release_primary(device: i32) -> Status {
    session(|s| release(s, device))
}

/// Takes the primary context down, whoever retained it.
fn reset_primary(device: i32) -> Status {
    session(|s| {
        let owner = s.device(device)?;
        owner.retained = 0;
        match owner.primary {
            Some(handle) => destroy(s, handle),
            None => Ok(()),
        }
    })
}

/// The flags hold for the next primary context too.
fn set_primary_flags(device: i32, flags: u32) -> Status {
    session(|s| {
        s.device(device)?.flags = flags;
        Ok(())
    })
}

/// Destroys a context that the application created.
fn destroy_created(context: u64) -> Status {
    session(|s| {
        // The primary ones and the green ones have ways of their own.
        if context == 0
            || s.context(context)?.1.parent.is_some()
            || s.devices
                .iter()
                .any(|device| device.primary == Some(context))
        {
            return Err(INVALID_CONTEXT);
        }
        destroy(s, context)
    })
}

/// `cuCtxPushCurrent`.
fn push(context: u64) -> Status {
    session(|s| {
        if context == 0 {
            return Err(INVALID_CONTEXT);
        }
        s.context(context)?;
        session::push_context(context)
    })
}

/// `cuCtxPopCurrent`; the caller need not want to know which it was.
fn pop(context: Out<u64>) -> Status {
    session(|_| {
        let current = session::current_context();
        if current == 0 {
            return Err(INVALID_CONTEXT);
        }
        session::set_current_context(0);
        context.put_if_wanted(current);
        Ok(())
    })
}

api! {
    "cuDevicePrimaryCtxRetain" 7000 => cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) {
        session(|s| {
            context.wanted()?;
            let handle = retain(s, device)?;
            context.put(handle)
        })
    }
    "cuDevicePrimaryCtxRelease" 7000 => cuDevicePrimaryCtxRelease(device: i32) { release_primary(device) }
    "cuDevicePrimaryCtxRelease" 11000 => cuDevicePrimaryCtxRelease_v2(device: i32) { release_primary(device) }
    "cuDevicePrimaryCtxReset" 7000 => cuDevicePrimaryCtxReset(device: i32) { reset_primary(device) }
    "cuDevicePrimaryCtxReset" 11000 => cuDevicePrimaryCtxReset_v2(device: i32) { reset_primary(device) }
    "cuDevicePrimaryCtxSetFlags" 7000 => cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) { set_primary_flags(device, flags) }
    "cuDevicePrimaryCtxSetFlags" 11000 => cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) { set_primary_flags(device, flags) }
    "cuDevicePrimaryCtxGetState" 7000 => cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        session(|s| {
            let owner = s.device(device)?;
            flags.put(owner.flags)?;
            active.put(i32::from(owner.primary.is_some()))
        })
    }

    "cuCtxCreate" 3020 => cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) { create(context, flags, device) }
    "cuCtxCreate" 11040 => cuCtxCreate_v3(context: Out<u64>, _affinity: *const c_void, _count: i32, flags: u32,
                                          device: i32) {
        create(context, flags, device)
    }
    "cuCtxCreate" 12050 => cuCtxCreate_v4(context: Out<u64>, _params: *const c_void, flags: u32, device: i32) {
        create(context, flags, device)
    }
    "cuCtxDestroy" 2000 => cuCtxDestroy(context: u64) { destroy_created(context) }
    "cuCtxDestroy" 4000 => cuCtxDestroy_v2(context: u64) { destroy_created(context) }
    "cuCtxSetCurrent" 4000 => cuCtxSetCurrent(context: u64) {
        session(|s| {
            if context != 0 {
                s.context(context)?;
            }
            session::set_current_context(context);
            Ok(())
        })
    }
    "cuCtxGetCurrent" 4000 => cuCtxGetCurrent(context: Out<u64>) {
        session(|_| context.put(session::current_context()))
    }
    "cuCtxPushCurrent" 2000 => cuCtxPushCurrent(context: u64) { push(context) }
    "cuCtxPushCurrent" 4000 => cuCtxPushCurrent_v2(context: u64) { push(context) }
    "cuCtxPopCurrent" 2000 => cuCtxPopCurrent(context: Out<u64>) { pop(context) }
    "cuCtxPopCurrent" 4000 => cuCtxPopCurrent_v2(context: Out<u64>) { pop(context) }
    "cuCtxGetDevice" 2000 => cuCtxGetDevice(device: Out<i32>) { session(|s| device.put(s.current_device()?)) }
    "cuCtxGetDevice" 13000 => cuCtxGetDevice_v2(device: Out<i32>, context: u64) {
        session(|s| device.put(s.context(context)?.1.device))
    }
    "cuCtxGetFlags" 7000 => cuCtxGetFlags(flags: Out<u32>) { session(|s| flags.put(s.context(0)?.1.flags)) }
    "cuCtxSetFlags" 12010 => cuCtxSetFlags(flags: u32) {
        session(|s| {
            let (handle, _) = s.context(0)?;
            s.contexts.get_mut(handle).ok_or(INVALID_CONTEXT)?.flags = flags;
            Ok(())
        })
    }
    "cuCtxGetId" 12000 => cuCtxGetId(context: u64, id: Out<u64>) { session(|s| id.put(s.context(context)?.1.id)) }
    "cuCtxGetApiVersion" 3020 => cuCtxGetApiVersion(context: u64, version: Out<u32>) {
        session(|s| {
            s.context(context)?;
            version.put(3020)
        })
    }
    "cuCtxSynchronize" 2000 => cuCtxSynchronize() { session(|s| synchronize(s, 0)) }
    "cuCtxSynchronize" 13000 => cuCtxSynchronize_v2(context: u64) { session(|s| synchronize(s, context)) }
    "cuCtxRecordEvent" 12050 => cuCtxRecordEvent(context: u64, event: u64) { session(|s| record(s, context, event)) }
    "cuCtxWaitEvent" 12050 => cuCtxWaitEvent(context: u64, event: u64) { session(|s| wait(s, context, event)) }
    "cuCtxGetStreamPriorityRange" 5050 => cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        session(|s| {
            s.context(0)?;
            least.put_if_wanted(0);
            greatest.put_if_wanted(-5);
            Ok(())
        })
    }
    "cuCtxGetLimit" 3010 => cuCtxGetLimit(value: Out<usize>, which: u32) {
        session(|s| {
            s.context(0)?;
            value.put(limit(which)?)
        })
    }
    "cuCtxSetLimit" 3010 => cuCtxSetLimit(which: u32, _value: usize) {
        session(|s| {
            s.context(0)?;
            limit(which).map(|_| ())
        })
    }
    "cuCtxGetCacheConfig" 3020 => cuCtxGetCacheConfig(config: Out<u32>) { session(|_| config.put(0)) }
    "cuCtxSetCacheConfig" 3020 => cuCtxSetCacheConfig(config: u32) {
        session(|_| if config > 3 { Err(INVALID_VALUE) } else { Ok(()) })
    }
    "cuCtxResetPersistingL2Cache" 11000 => cuCtxResetPersistingL2Cache() { session(|s| s.context(0).map(|_| ())) }
    "cuCtxEnablePeerAccess" 4000 => cuCtxEnablePeerAccess(peer: u64, _flags: u32) {
        session(|s| {
            let (handle, context) = s.context(0)?;
            if peer == 0 || peer == handle || s.context(peer)?.1.device == context.device {
                return Err(INVALID_CONTEXT);
            }
            let peers = &mut s.contexts.get_mut(handle).ok_or(INVALID_CONTEXT)?.peers;
            if peers.contains(&peer) {
                return Err(PEER_ACCESS_ALREADY_ENABLED);
            }
            peers.push(peer);
            Ok(())
        })
    }
    "cuCtxDisablePeerAccess" 4000 => cuCtxDisablePeerAccess(peer: u64) {
        session(|s| {
            let (handle, _) = s.context(0)?;
            let peers = &mut s.contexts.get_mut(handle).ok_or(INVALID_CONTEXT)?.peers;
            let at = peers.iter().position(|&other| other == peer).ok_or(PEER_ACCESS_NOT_ENABLED)?;
            peers.remove(at);
            Ok(())
        })
    }
}
