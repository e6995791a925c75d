//! The memory of graphs: how much there is, and giving back what no graph needs.

use crate::abi::{In, Out, Status};
use crate::error::INVALID_VALUE;
use crate::sim::session::session;

/// `CUgraphMem_attribute`.
const USED: u32 = 0;
const USED_HIGH: u32 = 1;
const RESERVED: u32 = 2;
const RESERVED_HIGH: u32 = 3;

fn reset(device: i32, which: u32, value: u64) -> Status {
    session(|s| {
        let now = s.graph_memory_of(device);
        let high = &mut s.device(device)?.graph_memory_high;
        // "High watermark can only be reset to zero."
        match which {
            USED_HIGH if value == 0 => high.used = now.used,
            RESERVED_HIGH if value == 0 => high.reserved = now.reserved,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

api! {
    "cuDeviceGraphMemTrim" 11040 => cuDeviceGraphMemTrim(device: i32) {
        session(|s| {
            s.device(device)?;
            s.trim_graph_memory(device);
            Ok(())
        })
    }
    "cuDeviceGetGraphMemAttribute" 11040 => cuDeviceGetGraphMemAttribute(device: i32, which: u32, value: Out<u64>) {
        session(|s| {
            let high = s.device(device)?.graph_memory_high;
            let now = s.graph_memory_of(device);
            value.put(match which {
                USED => now.used,
                USED_HIGH => high.used,
                RESERVED => now.reserved,
                RESERVED_HIGH => high.reserved,
                _ => return Err(INVALID_VALUE),
            })
        })
    }
    "cuDeviceSetGraphMemAttribute" 11040 => cuDeviceSetGraphMemAttribute(device: i32, which: u32, value: In<u64>) {
        reset(device, which, value.get()?)
    }
}
