//! What the C library's own code does with memory on its caller's behalf.
//!
//! Its string functions read ahead: whole vectors that are aligned, so that they leave no page, in which
//! the text that they were asked about may end early or begin late. Of a fault there, only
//! the vector is known, and that its functions may go on to hand the memory to the kernel.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::guard::page;
use crate::lookup;

/// The functions that touch the bytes which they are told, and no others.
const MOVES: [&core::ffi::CStr; 4] = [c"memcpy", c"memmove", c"mempcpy", c"memset"];
/// Where the processor's variant of each lies.
static PLACES: [AtomicU64; MOVES.len()] = [const { AtomicU64::new(0) }; MOVES.len()];
/// Bytes of code of the longest of them, about.
const LONGEST: u64 = 2048;
/// Bytes of the widest vector.
const WIDEST: u64 = 64;
/// Bytes of the narrowest.
const NARROWEST: u64 = 16;

/// Finds out where they lie.
pub(super) fn prepare() {
    for (name, place) in MOVES.iter().zip(&PLACES) {
        let found = lookup::real_dlsym(libc::RTLD_DEFAULT, name);
        place.store(found as u64, Relaxed);
    }
}

/// Whether code of the C library's at `pc` may touch more than it was asked to, or hand it on.
pub(crate) fn is_vague(pc: u64) -> bool {
    let within = |place: &AtomicU64| {
        let start = place.load(Relaxed);
        start != 0 && (start..start + LONGEST).contains(&pc)
    };
    !PLACES.iter().any(within)
}

/// The bytes that such code may have read which faulted at `address`.
pub(super) fn read_at(address: u64) -> (u64, u64) {
    let bytes = if address.is_multiple_of(NARROWEST) {
        WIDEST
    } else {
        1
    };
    let end_of_page = address / page() * page() + page();
    (address, address.saturating_add(bytes).min(end_of_page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_aligned_reads_read_ahead_and_none_beyond_its_page() {
        assert_eq!(read_at(page() + 1), (page() + 1, page() + 2));
        assert_eq!(read_at(page() + 32), (page() + 32, page() + 96));
        assert_eq!(read_at(2 * page() - 32), (2 * page() - 32, 2 * page()));
    }

    #[test]
    fn moves_are_told_from_other_code() {
        prepare();
        assert!(PLACES.iter().all(|place| place.load(Relaxed) != 0));
        assert!(!is_vague(PLACES[0].load(Relaxed) + 64));
        let other = lookup::real_dlsym(libc::RTLD_DEFAULT, c"printf") as u64;
        assert!(is_vague(other));
    }
}
