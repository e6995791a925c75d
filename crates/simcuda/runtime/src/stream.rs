//! Streams, host functions in them, and their capture.

use crate::abi::{In, Out};
use crate::device::ready;
use std::ffi::c_void;

type HostFunction = Option<extern "C" fn(*mut c_void)>;
type StreamCallback = Option<extern "C" fn(u64, u32, *mut c_void)>;

export! {
    cudaStreamCreate(stream: Out<u64>) { ready()?.cuStreamCreate(false, stream, 0) }
    cudaStreamCreateWithFlags(stream: Out<u64>, flags: u32) { ready()?.cuStreamCreate(false, stream, flags) }
    cudaStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) {
        ready()?.cuStreamCreateWithPriority(false, stream, flags, priority)
    }
    cudaStreamDestroy(stream: u64) { ready()?.cuStreamDestroy(false, stream) }
    cudaStreamSynchronize / cudaStreamSynchronize_ptsz |per_thread| (stream: u64) {
        ready()?.cuStreamSynchronize(per_thread, stream)
    }
    cudaStreamQuery / cudaStreamQuery_ptsz |per_thread| (stream: u64) { ready()?.cuStreamQuery(per_thread, stream) }
    cudaStreamWaitEvent / cudaStreamWaitEvent_ptsz |per_thread| (stream: u64, event: u64, flags: u32) {
        ready()?.cuStreamWaitEvent(per_thread, stream, event, flags)
    }
    cudaStreamGetFlags / cudaStreamGetFlags_ptsz |per_thread| (stream: u64, flags: Out<u32>) {
        ready()?.cuStreamGetFlags(per_thread, stream, flags)
    }
    cudaStreamGetPriority / cudaStreamGetPriority_ptsz |per_thread| (stream: u64, priority: Out<i32>) {
        ready()?.cuStreamGetPriority(per_thread, stream, priority)
    }
    cudaStreamGetId / cudaStreamGetId_ptsz |per_thread| (stream: u64, id: Out<u64>) {
        ready()?.cuStreamGetId(per_thread, stream, id)
    }
    cudaStreamGetDevice / cudaStreamGetDevice_ptsz |per_thread| (stream: u64, device: Out<i32>) {
        ready()?.cuStreamGetDevice(per_thread, stream, device)
    }
    cudaStreamGetAttribute / cudaStreamGetAttribute_ptsz |per_thread| (stream: u64, which: u32, value: *mut c_void) {
        ready()?.cuStreamGetAttribute(per_thread, stream, which, value)
    }
    cudaStreamSetAttribute / cudaStreamSetAttribute_ptsz |per_thread|
        (stream: u64, which: u32, value: *const c_void) {
        ready()?.cuStreamSetAttribute(per_thread, stream, which, value)
    }
    cudaStreamCopyAttributes / cudaStreamCopyAttributes_ptsz |per_thread| (target: u64, source: u64) {
        ready()?.cuStreamCopyAttributes(per_thread, target, source)
    }
    cudaStreamAddCallback / cudaStreamAddCallback_ptsz |per_thread|
        (stream: u64, callback: StreamCallback, data: *mut c_void, flags: u32) {
        ready()?.cuStreamAddCallback(per_thread, stream, callback, data, flags)
    }
    cudaLaunchHostFunc / cudaLaunchHostFunc_ptsz |per_thread|
        (stream: u64, function: HostFunction, data: *mut c_void) {
        ready()?.cuLaunchHostFunc(per_thread, stream, function, data)
    }

    cudaLaunchHostFunc_v2 / cudaLaunchHostFunc_v2_ptsz |per_thread|
        (stream: u64, function: HostFunction, data: *mut c_void, _mode: u32) {
        ready()?.cuLaunchHostFunc(per_thread, stream, function, data)
    }

    cudaStreamBeginCapture / cudaStreamBeginCapture_ptsz |per_thread| (stream: u64, mode: u32) {
        ready()?.cuStreamBeginCapture(per_thread, stream, mode)
    }
    cudaStreamEndCapture / cudaStreamEndCapture_ptsz |per_thread| (stream: u64, graph: *mut c_void) {
        ready()?.cuStreamEndCapture(per_thread, stream, graph)
    }
    cudaStreamIsCapturing / cudaStreamIsCapturing_ptsz |per_thread| (stream: u64, status: Out<u32>) {
        ready()?.cuStreamIsCapturing(per_thread, stream, status)
    }
    cudaStreamGetCaptureInfo / cudaStreamGetCaptureInfo_ptsz |per_thread|
        (stream: u64, status: Out<u32>, id: *mut c_void, graph: *mut c_void, dependencies: *mut c_void,
         edges: *mut c_void, count: *mut c_void) {
        ready()?.cuStreamGetCaptureInfo(per_thread, stream, status, id, graph, dependencies, edges, count)
    }
    cudaStreamBeginCaptureToGraph / cudaStreamBeginCaptureToGraph_ptsz |per_thread|
        (stream: u64, graph: u64, nodes: In<u64>, edges: In<[u8; 8]>, count: usize, mode: u32) {
        ready()?.cuStreamBeginCaptureToGraph(per_thread, stream, graph, nodes, edges, count, mode)
    }
    cudaStreamUpdateCaptureDependencies / cudaStreamUpdateCaptureDependencies_ptsz |per_thread|
        (stream: u64, nodes: In<u64>, edges: In<[u8; 8]>, count: usize, flags: u32) {
        ready()?.cuStreamUpdateCaptureDependencies(per_thread, stream, nodes, edges, count, flags)
    }
    cudaThreadExchangeStreamCaptureMode(mode: Out<u32>) { ready()?.cuThreadExchangeStreamCaptureMode(false, mode) }
}
