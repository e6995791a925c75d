//! External memory: what other interfaces share as a file descriptor, mapped as device memory.

use crate::abi::{In, Out, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::memory::Physical;
use crate::sim::session::session;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// `CUexternalMemoryHandleType`: the one that Linux has first, and the last that there is.
const OPAQUE_FD: u32 = 1;
const LAST: u32 = 9;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    kind: u32,
    /// A file descriptor, in the low half of the first.
    handle: [u64; 2],
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Buffer {
    offset: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// Takes a descriptor over, as a successful import does.
fn take(fd: i32) -> Status<OwnedFd> {
    // SAFETY: copies a number that the caller says is a descriptor; a wrong one is an error.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the copy was just made and nothing else owns it.
    let own = unsafe { OwnedFd::from_raw_fd(own) };
    // SAFETY: the caller gives its descriptor away.
    unsafe { libc::close(fd) };
    Ok(own)
}

/// The bytes that there are behind a descriptor.
fn length(fd: &OwnedFd) -> Option<u64> {
    // SAFETY: all zeros is a valid place for `fstat` to fill.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a live descriptor and a live local.
    let found = unsafe { libc::fstat(fd.as_raw_fd(), &mut status) } == 0;
    found.then_some(status.st_size as u64)
}

api! {
    "cuImportExternalMemory" 10000 => cuImportExternalMemory(memory: Out<u64>, descriptor: In<Descriptor>) {
        session(|s| {
            memory.wanted()?;
            let device = s.current_device()?;
            let descriptor = descriptor.get()?;
            match descriptor.kind {
                OPAQUE_FD => {}
                2..=LAST => return Err(NOT_SUPPORTED),
                _ => return Err(INVALID_VALUE),
            }
            let fd = take(descriptor.handle[0] as u32 as i32)?;
            if length(&fd).is_none_or(|length| descriptor.size == 0 || descriptor.size > length) {
                return Err(INVALID_VALUE);
            }
            let handle = s.imports.insert(Physical { memory: Arc::new(fd), size: descriptor.size, device });
            memory.put(handle)
        })
    }
    "cuExternalMemoryGetMappedBuffer" 10000 => cuExternalMemoryGetMappedBuffer(pointer: Out<u64>, memory: u64,
                                                                               buffer: In<Buffer>) {
        session(|s| {
            pointer.wanted()?;
            let Buffer { offset, size, flags, .. } = buffer.get()?;
            let import = s.imports.get(memory).ok_or(INVALID_HANDLE)?;
            let import = Physical { memory: import.memory.clone(), ..*import };
            if flags != 0 {
                return Err(INVALID_VALUE);
            }
            let address = s.map_import(&import, offset, size)?;
            pointer.put(address)
        })
    }
    "cuDestroyExternalMemory" 10000 => cuDestroyExternalMemory(memory: u64) {
        session(|s| s.imports.remove(memory).map(|_| ()).ok_or(INVALID_HANDLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st as TheirBuffer,
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st as TheirDescriptor,
    };
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_nvidias() {
        assert_eq!(size_of::<Descriptor>(), size_of::<TheirDescriptor>());
        assert_eq!(
            offset_of!(Descriptor, size),
            offset_of!(TheirDescriptor, size)
        );
        assert_eq!(size_of::<Buffer>(), size_of::<TheirBuffer>());
    }
}
