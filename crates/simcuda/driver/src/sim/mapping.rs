//! Memory behind a file descriptor, at an address of ours.

use crate::abi::Status;
use crate::error::OUT_OF_MEMORY;
use std::os::fd::{AsRawFd, OwnedFd};

/// The pages of the host.
pub(crate) const PAGE: u64 = 4096;

/// Puts `descriptor`'s memory (or, for `None`, private zeros) at a reserved address, with `access`.
pub(crate) fn map(
    address: u64,
    size: u64,
    descriptor: Option<(&OwnedFd, u64)>,
    access: i32,
) -> Status {
    let (kind, fd, offset) = match descriptor {
        Some((fd, offset)) => (libc::MAP_SHARED, fd.as_raw_fd(), offset),
        None => (
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        ),
    };
    // SAFETY: the range lies in the arena of reserved addresses, which holds nothing but such mappings.
    let at = unsafe {
        libc::mmap(
            address as *mut _,
            size as usize,
            access,
            kind | libc::MAP_FIXED,
            fd,
            offset as libc::off_t,
        )
    };
    if at == libc::MAP_FAILED {
        Err(OUT_OF_MEMORY)
    } else {
        Ok(())
    }
}
