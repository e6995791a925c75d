//! Python stacks that were met, known again without a lock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::PythonStack;
use super::walk::Spot;

const SETS: usize = 4096;
const WAYS: usize = 4;
/// The bits of an entry that number a stack.
const NUMBER: u64 = 0xffff;

/// Each the upper bits of a [`Print`] above the number of a stack, or 0. The lower bits tell
/// where it is.
static TABLE: [[AtomicU64; WAYS]; SETS] = [const { [const { AtomicU64::new(0) }; WAYS] }; SETS];

/// What tells the spots of a stack from others': a hash so wide and well mixed, 60 bits of which are
/// compared, that ten thousand stacks are all told apart but for a chance of 10⁻¹⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print(u64);

fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

impl Print {
    /// That of no spot.
    pub(super) const NONE: Self = Self(0);

    #[inline]
    pub(super) fn add(&mut self, spot: &Spot) {
        // Digits of pi.
        const KEYS: [u64; 8] = [
            0x243f_6a88_85a3_08d3,
            0x1319_8a2e_0370_7344,
            0xa409_3822_299f_31d0,
            0x082e_fa98_ec4e_6c89,
            0x4528_21e6_38d0_1377,
            0xbe54_66cf_34e9_0c6c,
            0xc0ac_29b7_c97c_50dd,
            0x3f84_d5b5_b547_0917,
        ];
        let words = spot.words();
        let part = |at: usize| folded(words[at] ^ KEYS[at], words[at + 1] ^ KEYS[at + 1]);
        let all = part(0) ^ part(2).rotate_left(21) ^ part(4).rotate_left(42);
        self.0 = folded(self.0 ^ all ^ KEYS[6], all.rotate_left(32) ^ KEYS[7]);
    }

    fn set(self) -> &'static [AtomicU64; WAYS] {
        &TABLE[self.0 as usize % SETS]
    }
}

/// The stack of spots with this print, if it was met.
#[inline]
pub(super) fn find(print: Print) -> Option<PythonStack> {
    if print == Print::NONE {
        return Some(PythonStack(0));
    }
    let entries = print.set().iter().map(|entry| entry.load(Relaxed));
    let mut fitting = entries.filter(|entry| entry & !NUMBER == print.0 & !NUMBER);
    let number = fitting.next()? & NUMBER;
    (number != 0).then_some(PythonStack(number as u32))
}

/// Keeps a stack. Called with the core's lock held.
pub(super) fn remember(print: Print, stack: PythonStack) {
    let number = u64::from(stack.0);
    if number == 0 || number > NUMBER {
        return;
    }
    let set = print.set();
    let free = set.iter().find(|entry| entry.load(Relaxed) == 0);
    let entry = free.unwrap_or(&set[(print.0 >> 16) as usize % WAYS]);
    entry.store(print.0 & !NUMBER | number, Relaxed);
}

/// Forgets all. Called with the core's lock held.
pub(super) fn forget() {
    for entry in TABLE.iter().flatten() {
        entry.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(stack: &[[u64; 6]]) -> Print {
        let mut print = Print::NONE;
        for words in stack {
            print.add(&Spot::of(*words));
        }
        print
    }

    #[test]
    fn each_word_and_its_place_count() {
        let one = [
            0x7f00_0000_1000,
            8,
            0x7f00_0000_2000,
            0x7f00_0000_3000,
            0x7f00_0000_4000,
            1,
        ];
        let mut prints = vec![print(&[one])];
        for place in 0..6 {
            for more in [1, 8, 4096] {
                let mut other = one;
                other[place] += more;
                prints.push(print(&[other]));
                prints.push(print(&[one, other]));
                prints.push(print(&[other, one]));
            }
        }
        let mut swapped = one;
        swapped.swap(2, 3);
        prints.push(print(&[swapped]));
        prints.extend([print(&[]), print(&[one, one]), print(&[one, one, one])]);
        let mut upper: Vec<u64> = prints.iter().map(|print| print.0 & !NUMBER).collect();
        upper.sort_unstable();
        upper.dedup();
        assert_eq!(upper.len(), prints.len());
    }

    #[test]
    fn a_stack_is_found_again() {
        let of = |n: u64| print(&[[0x7f12_3400_0000 + n * 192, n, 1, 2, 3, 4]]);
        for n in 1..100 {
            assert_eq!(find(of(n)), None);
            remember(of(n), PythonStack(n as u32));
            assert_eq!(find(of(n)), Some(PythonStack(n as u32)));
        }
        assert_eq!(find(Print::NONE), Some(PythonStack(0)));
        // What has no number is not kept.
        remember(of(200), PythonStack(0));
        remember(of(200), PythonStack(1 << 16));
        assert_eq!(find(of(200)), None);
    }
}
