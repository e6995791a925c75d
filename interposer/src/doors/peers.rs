//! Copies between devices.
//!
//! A synchronous one is "asynchronous with respect to the host, but serialized with
//! respect all pending and future asynchronous work in to the current device, the
//! copy's source device, and the copy's destination device" (`cudaMemcpyPeer` in the
//! runtime's reference). Non-blocking streams were seen to take no part.

use streamcheck_model::{Direction, Region};

use crate::call::{Call, Copy};
use crate::hook::hooks;
use crate::place;

/// Records a synchronous copy between devices.
pub(super) fn between(call: &Call, devices: Vec<u16>, copy: impl FnOnce()) {
    call.barrier(devices.iter().copied());
    copy();
    call.barrier(devices);
}

/// Devices by their ordinals.
pub(super) fn devices(ordinals: [i32; 2]) -> Vec<u16> {
    let mut devices = Vec::new();
    for ordinal in ordinals {
        devices.extend(u16::try_from(ordinal));
    }
    devices
}

/// The devices of contexts. One that was never met may be on any.
pub(super) fn devices_of(contexts: [u64; 2]) -> Vec<u16> {
    let known = contexts.map(place::of);
    match known {
        [Some(to), Some(from)] => vec![to.device, from.device],
        _ => place::devices(),
    }
}

fn copied(call: &Call, stream: usize, to: u64, from: u64, bytes: usize) {
    call.copied(&Copy {
        stream,
        to: Region::linear(to, bytes as u64),
        from: Region::linear(from, bytes as u64),
        direction: Direction::DeviceToDevice,
        synchronous: false,
    });
}

hooks! { Runtime:
    /// Reads and writes the bytes, after earlier and before later work of the devices' legacy and blocking streams
    fn cudaMemcpyPeer: (to: u64, to_device: i32, from: u64, from_device: i32, count: usize) after(call) {
        between(call, devices([to_device, from_device]), || copied(call, 0, to, from, count));
    }
    /// Reads and writes the bytes, in stream order
    fn cudaMemcpyPeerAsync: (
        to: u64, to_device: i32, from: u64, from_device: i32, count: usize, stream: usize,
    ) after(call) {
        let _ = (to_device, from_device);
        copied(call, stream, to, from, count);
    }
}

/// The driver's half.
pub(super) use driver::HOOKS as DRIVER;

mod driver {
    use super::*;

    hooks! { Driver:
        /// Reads and writes the bytes, after earlier and before later work of the devices' legacy and blocking streams
        fn cuMemcpyPeer | cuMemcpyPeer_ptds: (
            to: u64, to_context: u64, from: u64, from_context: u64, count: usize,
        ) after(call) {
            between(call, devices_of([to_context, from_context]), || copied(call, 0, to, from, count));
        }
        /// Reads and writes the bytes, in stream order
        fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz: (
            to: u64, to_context: u64, from: u64, from_context: u64, count: usize, stream: usize,
        ) after(call) {
            let _ = (to_context, from_context);
            copied(call, stream, to, from, count);
        }
    }
}
