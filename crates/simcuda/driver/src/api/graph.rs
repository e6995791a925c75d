//! Stream capture and graphs: not simulated. A stream is never capturing, and beginning a capture fails; what a capture
//! would record belongs in a module of [`crate::sim`], beside the scheduler that runs work at once.

use crate::abi::Out;
use crate::error::{INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::session::session;
use std::ffi::c_void;

/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURING: u32 = 0;

api! {
    "cuStreamBeginCapture" 10000 => cuStreamBeginCapture / cuStreamBeginCapture_ptsz |per_thread| (stream: u64) {
        session(|s| s.lane(stream, per_thread))?;
        Err(NOT_SUPPORTED)
    }
    "cuStreamBeginCapture" 10010 => cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz |per_thread|
                                    (stream: u64, _mode: u32) {
        session(|s| s.lane(stream, per_thread))?;
        Err(NOT_SUPPORTED)
    }
    "cuStreamEndCapture" 10000 => cuStreamEndCapture / cuStreamEndCapture_ptsz |per_thread|
                                  (stream: u64, _graph: *mut c_void) {
        session(|s| s.lane(stream, per_thread))?;
        Err(NOT_SUPPORTED)
    }
    "cuStreamIsCapturing" 10000 => cuStreamIsCapturing / cuStreamIsCapturing_ptsz |per_thread|
                                   (stream: u64, status: Out<u32>) {
        session(|s| s.lane(stream, per_thread))?;
        status.put(NOT_CAPTURING)
    }
    "cuStreamGetCaptureInfo" 10010 => cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz |per_thread|
                                      (stream: u64, status: Out<u32>, _id: *mut u64) {
        session(|s| s.lane(stream, per_thread))?;
        status.put(NOT_CAPTURING)
    }
    "cuStreamGetCaptureInfo" 11030 => cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz |per_thread|
                                      (stream: u64, status: Out<u32>, _id: *mut u64, _graph: *mut c_void,
                                       _dependencies: *mut c_void, _count: *mut usize) {
        session(|s| s.lane(stream, per_thread))?;
        status.put(NOT_CAPTURING)
    }
    "cuStreamGetCaptureInfo" 12030 => cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz |per_thread|
                                      (stream: u64, status: Out<u32>, _id: *mut u64, _graph: *mut c_void,
                                       _dependencies: *mut c_void, _edges: *mut c_void, _count: *mut usize) {
        session(|s| s.lane(stream, per_thread))?;
        status.put(NOT_CAPTURING)
    }
    "cuThreadExchangeStreamCaptureMode" 10010 => cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        if mode.0.is_null() {
            return Err(INVALID_VALUE);
        }
        mode.put(0)
    }
    "cuGraphCreate" 10000 => cuGraphCreate(_graph: *mut c_void, _flags: u32) { Err(NOT_SUPPORTED) }
    "cuGraphDestroy" 10000 => cuGraphDestroy(_graph: u64) { Err(NOT_SUPPORTED) }
    "cuGraphInstantiate" 11000 => cuGraphInstantiateWithFlags(_exec: *mut c_void, _graph: u64, _flags: u64) {
        Err(NOT_SUPPORTED)
    }
    "cuGraphExecDestroy" 10000 => cuGraphExecDestroy(_exec: u64) { Err(NOT_SUPPORTED) }
    "cuGraphUpload" 11010 => cuGraphUpload / cuGraphUpload_ptsz |_per_thread| (_exec: u64, _stream: u64) {
        Err(NOT_SUPPORTED)
    }
    "cuGraphLaunch" 10000 => cuGraphLaunch / cuGraphLaunch_ptsz |_per_thread| (_exec: u64, _stream: u64) {
        Err(NOT_SUPPORTED)
    }
}
