//! What kind of memory lies at an address.

use super::page;
use crate::thread::{self, keeping_errno};

/// What kind of memory a block lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// Readable and writable mappings that begin and end with it.
    Own,
    /// The same, of which it is a part.
    Shared,
    /// It must not be closed and opened again: other memory, or a stack, on which a signal's
    /// frame must find room.
    Unfit,
}

/// What `start..end` lies in.
pub(super) fn ground(start: u64, end: u64) -> Ground {
    if thread::block().stack_end(start).is_some() || thread::block().stack_end(end - 1).is_some() {
        return Ground::Unfit;
    }
    let maps = std::fs::read_to_string("/proc/self/maps");
    maps.map_or(Ground::Unfit, |maps| ground_in(&maps, start, end))
}

/// What stands at an address, if it can be read.
pub(super) fn read<const BYTES: usize>(address: u64) -> Option<[u8; BYTES]> {
    let (found, failed) = keeping_errno(|| copy(address));
    failed.is_none().then_some(found)
}

/// What stands at an address, and why it could not be read. Changes `errno`.
fn copy<const BYTES: usize>(address: u64) -> ([u8; BYTES], Option<i32>) {
    let mut found = [0_u8; BYTES];
    let part = |base: *mut u8| libc::iovec {
        iov_base: base.cast(),
        iov_len: BYTES,
    };
    let (to, from) = (part(found.as_mut_ptr()), part(address as *mut u8));
    // What goes on the stack is taken as a whole word.
    // SAFETY: the kernel writes no more than `found` holds, and says whether it could read.
    let read = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            libc::getpid(),
            &raw const to,
            1_usize,
            &raw const from,
            1_usize,
            0_usize,
        )
    };
    let failed = match usize::try_from(read) {
        Ok(read) if read == BYTES => None,
        Ok(_) => Some(libc::EFAULT),
        Err(_) => std::io::Error::last_os_error().raw_os_error(),
    };
    (found, failed)
}

/// Whether bytes can be read, as far as the kernel tells.
pub(super) fn is_readable(start: u64, bytes: usize) -> bool {
    // The first and the last one, and one of each page between.
    let Some(more) = (bytes as u64).checked_sub(1) else {
        return true;
    };
    let last = start.saturating_add(more);
    let mut at = start;
    loop {
        if keeping_errno(|| copy::<1>(at).1 == Some(libc::EFAULT)) {
            return false;
        }
        if at >= last {
            return true;
        }
        at = (at / page() + 1).saturating_mul(page()).min(last);
    }
}

fn ground_in(maps: &str, start: u64, end: u64) -> Ground {
    let mut from = start;
    let mut own = true;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some((range, access)) = words.next().zip(words.next()) else {
            continue;
        };
        let number = |text| u64::from_str_radix(text, 16).ok();
        let Some((first, last)) = range
            .split_once('-')
            .and_then(|(first, last)| number(first).zip(number(last)))
        else {
            continue;
        };
        if last <= from {
            continue;
        }
        // The lines are in order.
        if from < first || !access.starts_with("rw-") || line.ends_with("[stack]") {
            return Ground::Unfit;
        }
        own &= first >= start && last <= end;
        from = last;
        if from >= end {
            return if own { Ground::Own } else { Ground::Shared };
        }
    }
    Ground::Unfit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_may_be_closed_is_readable_writable_and_no_stack() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 \n\
                    3000-5000 rw-s 00000000 00:05 7 /dev/shm/x\n\
                    5000-6000 r--p 00000000 00:05 8 /lib/x.so\n\
                    8000-9000 rwxp 00000000 00:00 0 \n\
                    a000-c000 rw-p 00000000 00:00 0                          [stack]\n";
        for (start, end, ground) in [
            (0x1000, 0x3000, Ground::Own),
            (0x1000, 0x5000, Ground::Own),
            (0x2000, 0x3000, Ground::Shared),
            (0x1000, 0x4000, Ground::Shared),
            (0x4000, 0x5001, Ground::Unfit),
            (0x5000, 0x6000, Ground::Unfit),
            (0x6000, 0x7000, Ground::Unfit),
            (0x8000, 0x9000, Ground::Unfit),
            (0xa000, 0xb000, Ground::Unfit),
            (0xd000, 0xe000, Ground::Unfit),
        ] {
            assert_eq!(ground_in(maps, start, end), ground, "{start:x}");
        }
    }
}
