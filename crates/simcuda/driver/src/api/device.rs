//! Devices: `cuDevice…`.

use crate::abi::{Out, Status};
use crate::error::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::session::session;
use crate::sim::state::DEVICE_MEMORY;
use std::ffi::c_char;
use std::sync::LazyLock;

const NAME: &[u8] = b"Simulated CUDA device\0";

/// Whether devices read and write pageable memory where it lies (`SIMCUDA_COHERENT=1`).
pub(super) fn coherent() -> bool {
    static COHERENT: LazyLock<bool> =
        LazyLock::new(|| super::environment("SIMCUDA_COHERENT") == Some(1));
    *COHERENT
}

/// What `cuDeviceGetAttribute` answers, by `CUdevice_attribute`: a Hopper-like device; anything else is 0.
fn attribute(attribute: u32, device: i32) -> i32 {
    match attribute {
        1..=3 => 1024,                         // threads per block, block x and y
        4 => 64,                               // block z
        5 => i32::MAX,                         // grid x
        6 | 7 => 65_535,                       // grid y and z
        8 => 48 << 10,                         // shared memory per block
        9 => 64 << 10,                         // constant memory
        10 => 32,                              // warp
        11 => i32::MAX,                        // pitch
        12 | 82 => 65_536,                     // registers per block, per multiprocessor
        13 => 1_980_000,                       // clock in kHz
        14 | 30 => 512,                        // texture and surface alignment
        51 => 32,                              // texture pitch alignment
        15 | 19 | 31 | 41 | 78 | 79 | 80 => 1, // overlap, mapped host memory, concurrent kernels, unified addresses, …
        16 => 132,                             // multiprocessors
        33 => device + 1,                      // PCI bus
        36 => 2_619_000,                       // memory clock in kHz
        37 => 5120,                            // bus width
        38 => 50 << 20,                        // L2
        39 => 2048,                            // threads per multiprocessor
        40 => 3,                               // copy engines
        75 => 9,                               // compute capability
        81 => 228 << 10,                       // shared memory per multiprocessor
        83 | 89 | 90 | 91 => 1, // managed memory, concurrently; preemption; registered pointers
        87 => 2,                // single to double ratio
        95 | 99 | 102 | 115 => 1, // cooperative launch, host register, virtual memory, pools
        92..=94 | 98 | 122 | 123 => 1, // stream memory operations: both versions, 64 bits, NOR, flush
        114 => 1,                      // timeline semaphores
        97 => 227 << 10,               // opt-in shared memory per block
        106 => 32,                     // blocks per multiprocessor
        111 => 1 << 10,                // reserved shared memory
        134 => -1,                     // host NUMA node
        // Pageable access, through the host's page tables: on no discrete GPU.
        88 | 100 => i32::from(coherent()),
        _ => 0,
    }
}

/// Fails for a device that is not there; before `cuInit` too.
fn check(device: i32) -> Status {
    session(|s| s.device(device).map(|_| ()))
}

fn uuid(device: i32) -> [u8; 16] {
    let mut bytes = *b"simulated-gpu-\0\0";
    bytes[15] = device as u8;
    bytes
}

/// Copies a NUL-terminated text into a caller's buffer, cut to its length.
fn put_text(target: Out<c_char>, length: i32, text: &[u8]) -> Status {
    let room = usize::try_from(length)
        .ok()
        .filter(|&room| room > 0)
        .ok_or(INVALID_VALUE)?;
    let target = target.wanted()?;
    let count = text.len().min(room);
    // SAFETY: the caller's buffer holds `length` characters.
    let target = unsafe { std::slice::from_raw_parts_mut(target.0.cast::<u8>(), count) };
    target.copy_from_slice(&text[..count]);
    target[count - 1] = 0;
    Ok(())
}

api! {
    "cuDeviceGet" 2000 => cuDeviceGet(device: Out<i32>, ordinal: i32) {
        check(ordinal)?;
        device.put(ordinal)
    }
    "cuDeviceGetCount" 2000 => cuDeviceGetCount(count: Out<i32>) { session(|s| count.put(s.devices.len() as i32)) }
    "cuDeviceGetName" 2000 => cuDeviceGetName(name: Out<c_char>, length: i32, device: i32) {
        check(device)?;
        put_text(name, length, NAME)
    }
    "cuDeviceGetUuid" 9020 => cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) {
        check(device)?;
        out.put(uuid(device))
    }
    "cuDeviceGetUuid" 11040 => cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) {
        check(device)?;
        out.put(uuid(device))
    }
    "cuDeviceTotalMem" 3020 => cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        check(device)?;
        bytes.put(DEVICE_MEMORY as usize)
    }
    "cuDeviceGetAttribute" 2000 => cuDeviceGetAttribute(value: Out<i32>, which: u32, device: i32) {
        check(device)?;
        value.put(attribute(which, device))
    }
    "cuDeviceGetPCIBusId" 4010 => cuDeviceGetPCIBusId(text: Out<c_char>, length: i32, device: i32) {
        check(device)?;
        put_text(text, length, format!("0000:{:02X}:00.0\0", device + 1).as_bytes())
    }
    "cuDeviceComputeCapability" 2000 => cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        check(device)?;
        major.put(attribute(75, device))?;
        minor.put(attribute(76, device))
    }
    "cuDeviceCanAccessPeer" 4000 => cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        check(device)?;
        check(peer)?;
        can.put(i32::from(device != peer))
    }
    "cuDeviceGetP2PAttribute" 8000 => cuDeviceGetP2PAttribute(value: Out<i32>, which: u32, device: i32, peer: i32) {
        check(device)?;
        check(peer)?;
        if device == peer {
            return Err(INVALID_DEVICE);
        }
        value.put(i32::from(which == 2)) // access supported, no atomics, no ranking
    }
    "cuDeviceGetLuid" 10000 => cuDeviceGetLuid(_luid: Out<c_char>, _mask: Out<u32>, device: i32) {
        check(device)?;
        Err(NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUdevice_attribute as A;

    #[test]
    fn attributes_have_nvidias_numbers() {
        for (which, value) in [
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
            (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
            (A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0),
            (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
            (A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1),
        ] {
            assert_eq!(attribute(which as u32, 0), value, "{which:?}");
        }
    }
}
