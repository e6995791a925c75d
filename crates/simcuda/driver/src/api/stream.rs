//! Streams, and host functions in them.

use super::event::external;
use super::green::green_of;
use crate::abi::{Out, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use crate::sim::graph::{Action, HostCall};
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::{Barrier, NON_BLOCKING};
use std::ffi::c_void;

type HostFunction = extern "C" fn(*mut c_void);
type StreamCallback = extern "C" fn(u64, u32, *mut c_void);

fn create(stream: Out<u64>, flags: u32, priority: i32) -> Status {
    session(|s| {
        stream.wanted()?;
        if flags & !NON_BLOCKING != 0 {
            return Err(INVALID_VALUE);
        }
        let (context, _) = s.context(0)?;
        let handle = s.add_stream(context, flags, priority.clamp(-5, 0));
        stream.put(handle)
    })
}

/// The handle is gone at once; what the stream was given still runs.
fn destroy(stream: u64) -> Status {
    session(|s| {
        let lane = s.streams.remove(stream).ok_or(INVALID_HANDLE)?;
        s.capture_lost(lane.id);
        s.sched.close(lane.id);
        s.stream_attributes.retain(|&(id, _), _| id != lane.id);
        Ok(())
    })
}

/// Appends a call of the application's; one of a graph's nodes where the stream is captured, unless there is none for it.
fn launch_host(
    stream: u64,
    per_thread: bool,
    node: Option<HostCall>,
    run: Box<dyn FnOnce() + Send>,
) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        match node {
            None => s.not_captured(lane)?,
            Some(call) => {
                if let Some(capture) = s.capturing(lane)? {
                    return s
                        .capture_node(capture, lane, Action::Host(call))
                        .map(|_| ());
                }
            }
        }
        s.submit(lane, Vec::new(), Work::Host(run));
        s.submitted();
        Ok(())
    })
}

fn host_function(
    stream: u64,
    per_thread: bool,
    function: Option<HostFunction>,
    data: usize,
) -> Status {
    let function = function.ok_or(INVALID_VALUE)?;
    launch_host(
        stream,
        per_thread,
        Some(HostCall { function, data }),
        Box::new(move || function(data as *mut c_void)),
    )
}

api! {
    "cuStreamCreate" 2000 => cuStreamCreate(stream: Out<u64>, flags: u32) { create(stream, flags, 0) }
    "cuStreamCreateWithPriority" 5050 => cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) {
        create(stream, flags, priority)
    }
    "cuStreamDestroy" 2000 => cuStreamDestroy(stream: u64) { destroy(stream) }
    "cuStreamDestroy" 4000 => cuStreamDestroy_v2(stream: u64) { destroy(stream) }
    "cuStreamSynchronize" 2000 => cuStreamSynchronize / cuStreamSynchronize_ptsz |per_thread| (stream: u64) {
        session(|s| {
            let lane = s.lane(stream, per_thread)?;
            s.not_captured(lane)?;
            s.safe()?;
            let last = s.sched.past(lane.id);
            s.run_to(last.point);
            s.trim_pools();
            Ok(())
        })
    }
    "cuStreamQuery" 2000 => cuStreamQuery / cuStreamQuery_ptsz |per_thread| (stream: u64) {
        session(|s| {
            let lane = s.lane(stream, per_thread)?;
            s.not_captured(lane)?;
            s.safe()?;
            // Polling gets the device on, one operation at a time, so that "not ready" is seen and then ends.
            if s.sched.is_idle(lane.id) || s.step() && s.sched.is_idle(lane.id) { Ok(()) } else { Err(NOT_READY) }
        })
    }
    "cuStreamWaitEvent" 3020 => cuStreamWaitEvent / cuStreamWaitEvent_ptsz |per_thread|
                                (stream: u64, event: u64, flags: u32) {
        session(|s| {
            let lane = s.lane(stream, per_thread)?;
            s.check_event(event)?;
            if external(s, lane, flags)? {
                return s.capture_external(lane, Action::WaitEvent(event));
            }
            if s.capture_wait(lane, event)? {
                return Ok(());
            }
            // An event that was never recorded is no wait at all.
            if let Some((past, _)) = s.events.get(event).ok_or(INVALID_HANDLE)?.record.clone() {
                s.submit(lane, vec![past], Work::Marker);
                s.submitted();
            }
            Ok(())
        })
    }
    "cuStreamGetFlags" 5050 => cuStreamGetFlags / cuStreamGetFlags_ptsz |per_thread| (stream: u64, flags: Out<u32>) {
        session(|s| {
            let barrier = s.lane(stream, per_thread)?.barrier;
            flags.put(if barrier == Barrier::NonBlocking { NON_BLOCKING } else { 0 })
        })
    }
    "cuStreamGetPriority" 5050 => cuStreamGetPriority / cuStreamGetPriority_ptsz |per_thread|
                                  (stream: u64, priority: Out<i32>) {
        session(|s| priority.put(s.lane(stream, per_thread)?.priority))
    }
    "cuStreamGetId" 12000 => cuStreamGetId / cuStreamGetId_ptsz |per_thread| (stream: u64, id: Out<u64>) {
        session(|s| id.put(s.lane(stream, per_thread)?.id))
    }
    "cuStreamGetCtx" 9020 => cuStreamGetCtx / cuStreamGetCtx_ptsz |per_thread| (stream: u64, context: Out<u64>) {
        session(|s| context.put(s.lane(stream, per_thread)?.context))
    }
    "cuStreamGetCtx" 12050 => cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz |per_thread|
                              (stream: u64, context: Out<u64>, green: Out<u64>) {
        session(|s| {
            let home = s.lane(stream, per_thread)?.context;
            context.put(s.whole(home))?;
            green.put_if_wanted(green_of(s, home));
            Ok(())
        })
    }
    "cuStreamGetGreenCtx" 12040 => cuStreamGetGreenCtx(stream: u64, green: Out<u64>) {
        session(|s| {
            let home = s.lane(stream, false)?.context;
            green.put(green_of(s, home))
        })
    }
    "cuStreamGetDevice" 12080 => cuStreamGetDevice / cuStreamGetDevice_ptsz |per_thread|
                                 (stream: u64, device: Out<i32>) {
        session(|s| {
            let lane = s.lane(stream, per_thread)?;
            device.put(s.context(lane.context)?.1.device)
        })
    }
    "cuLaunchHostFunc" 10000 => cuLaunchHostFunc / cuLaunchHostFunc_ptsz |per_thread|
                                (stream: u64, function: Option<HostFunction>, data: usize) {
        host_function(stream, per_thread, function, data)
    }
    "cuLaunchHostFunc" 13010 => cuLaunchHostFunc_v2 / cuLaunchHostFunc_v2_ptsz |per_thread|
                                (stream: u64, function: Option<HostFunction>, data: usize, _mode: u32) {
        host_function(stream, per_thread, function, data)
    }
    "cuStreamAddCallback" 5000 => cuStreamAddCallback / cuStreamAddCallback_ptsz |per_thread|
                                  (stream: u64, callback: Option<StreamCallback>, data: usize, flags: u32) {
        let callback = callback.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        launch_host(stream, per_thread, None, Box::new(move || callback(stream, 0, data as *mut c_void)))
    }
}
