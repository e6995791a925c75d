//! Moving bytes as a copy engine does: by address, whatever the page protection, and without a fault.
//!
//! A real copy engine reads pinned pages that the application has since protected or even unmapped. Host memory is
//! therefore reached through `/proc/self/mem`, which ignores protection and answers with an error where nothing is
//! mapped. Device memory is ours and always mapped.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const CHUNK: usize = 64 << 10;

/// What memory holds that nobody has written to since it was allocated or discarded: from when its stream gets there,
/// so that a use that comes too early on another stream is lost, as a real race might lose it.
const POISON: u8 = 0xcb;
/// As many bytes of it, so that huge allocations stay cheap.
const POISONED: u64 = 64 << 10;

/// The ranges that hold device memory, set once when the machine starts.
static DEVICE: OnceLock<Vec<Range<u64>>> = OnceLock::new();

/// Says which addresses are device memory.
pub(crate) fn set_device_ranges(ranges: Vec<Range<u64>>) {
    let _ = DEVICE.set(ranges);
}

fn is_device(address: u64, length: usize) -> bool {
    let all = DEVICE.get().map_or(&[][..], Vec::as_slice);
    all.iter()
        .any(|range| range.start <= address && address + length as u64 <= range.end)
}

/// Opened for each transfer: a kept descriptor might have been closed and reused by the application.
fn host_memory() -> Option<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem")
        .ok()
}

/// Fills `buffer` from `address`; `false` where nothing is mapped.
pub(crate) fn read(buffer: &mut [u8], address: u64) -> bool {
    if !is_device(address, buffer.len())
        && let Some(memory) = host_memory()
    {
        return memory.read_exact_at(buffer, address).is_ok();
    }
    // SAFETY: device memory stays mapped for the process's life; without `/proc`, the application's word that its
    // pointer is good is all there is, as for any C library.
    unsafe { std::ptr::copy(address as *const u8, buffer.as_mut_ptr(), buffer.len()) };
    true
}

/// Writes `bytes` to `address`; `false` where nothing is mapped.
pub(crate) fn write(address: u64, bytes: &[u8]) -> bool {
    if !is_device(address, bytes.len())
        && let Some(memory) = host_memory()
    {
        return memory.write_all_at(bytes, address).is_ok();
    }
    // SAFETY: as for `read`.
    unsafe { std::ptr::copy(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    true
}

/// Copies `length` bytes; where one side is not mapped, the rest is left as it is.
pub(crate) fn copy(target: u64, source: u64, length: usize) {
    if is_device(target, length) && is_device(source, length) {
        // SAFETY: device memory stays mapped for the process's life, and `copy` allows overlap.
        unsafe { std::ptr::copy(source as *const u8, target as *mut u8, length) };
        return;
    }
    let mut buffer = vec![0; length.min(CHUNK)];
    for at in (0..length).step_by(CHUNK) {
        let part = &mut buffer[..CHUNK.min(length - at)];
        if !read(part, source + at as u64) || !write(target + at as u64, part) {
            return;
        }
    }
}

/// Overwrites fresh or discarded memory, as far as that is cheap.
pub(crate) fn poison(address: u64, size: u64) {
    fill(address, &[POISON], size.min(POISONED) as usize);
}

/// Repeats `pattern` over `length` bytes.
pub(crate) fn fill(target: u64, pattern: &[u8], length: usize) {
    if pattern.len() == 1 && is_device(target, length) {
        // SAFETY: device memory stays mapped for the process's life.
        unsafe { std::ptr::write_bytes(target as *mut u8, pattern[0], length) };
        return;
    }
    let buffer: Vec<u8> = pattern
        .iter()
        .copied()
        .cycle()
        .take(length.min(CHUNK))
        .collect();
    for at in (0..length).step_by(CHUNK) {
        if !write(target + at as u64, &buffer[..CHUNK.min(length - at)]) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_through_protection_and_past_unmapped_memory() {
        let length = 3 * CHUNK / 2;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: fresh anonymous memory that only this test uses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0) } as u64;
        let source: Vec<u8> = (0..length).map(|i| i as u8).collect();
        copy(at, source.as_ptr() as u64, length);
        // SAFETY: the mapping made above.
        let failed = unsafe { libc::mprotect(at as *mut _, length, libc::PROT_NONE) };
        assert_eq!(failed, 0);
        let mut back = vec![0; length];
        copy(back.as_mut_ptr() as u64, at, length);
        assert_eq!(back, source);
        fill(at, &[1, 2], 4);
        copy(back.as_mut_ptr() as u64, at, 5);
        assert_eq!(back[..5], [1, 2, 1, 2, 4]);
        // SAFETY: as above; nothing refers to the mapping any more.
        let failed = unsafe { libc::munmap(at as *mut _, length) };
        assert_eq!(failed, 0);
        assert!(!read(&mut [0], at) && !write(at, &[0]));
    }
}
