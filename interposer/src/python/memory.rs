//! Reading the interpreter's memory: at once where nothing can take it away
//! meanwhile, else through the kernel, which answers with an error where a load
//! would be a fault.

/// User addresses are below this on both architectures.
const HIGHEST: u64 = 1 << 48;
/// No object lies below this.
const LOWEST: u64 = 1 << 12;
/// The unit of [`Guarded`]: memory is mapped and taken away by pages, and no page
/// is smaller.
const PAGE: u64 = 4096;
/// Pages kept during a look.
const PAGES: usize = 16;
/// Longest stretch read at once, in bytes.
const LONGEST: usize = 1 << 20;

/// Memory that is followed from pointer to pointer. `None` is for whatever cannot be
/// read, or cannot be an address.
pub(super) trait Memory {
    /// The word at an address that is a multiple of its size.
    fn word(&mut self, address: u64) -> Option<u64>;

    /// A copy of the bytes from `address` on.
    fn bytes(&mut self, address: u64, length: usize) -> Option<Vec<u8>>;

    /// Four bytes at an address that is a multiple of four.
    fn half(&mut self, address: u64) -> Option<u32> {
        if address & 3 != 0 {
            return None;
        }
        let word = self.word(address & !7)?;
        Some((word >> ((address & 4) * 8)) as u32)
    }

    /// One byte.
    fn byte(&mut self, address: u64) -> Option<u8> {
        let word = self.word(address & !7)?;
        Some((word >> ((address & 7) * 8)) as u8)
    }
}

/// Whether a word or object may lie there.
fn plausible(address: u64) -> bool {
    (LOWEST..HIGHEST).contains(&address)
}

/// Plain loads.
pub(super) struct Direct(());

impl Direct {
    /// # Safety
    /// As long as the value lives, what is read is mapped: it is reached from the
    /// calling thread's own state in an interpreter whose layout has proved true, and
    /// the thread holds the interpreter's lock or is the one that ends it.
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory for Direct {
    #[inline]
    fn word(&mut self, address: u64) -> Option<u64> {
        if !plausible(address) || address & 7 != 0 {
            return None;
        }
        // SAFETY: mapped (see `new`) and aligned.
        Some(unsafe { *(address as *const u64) })
    }

    fn bytes(&mut self, address: u64, length: usize) -> Option<Vec<u8>> {
        if !plausible(address) || length > LONGEST {
            return None;
        }
        // SAFETY: mapped (see `new`); the length is what the object says of itself.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, length) }.to_vec())
    }
}

/// Loads by the kernel, a page at a time.
pub(super) struct Guarded {
    pages: Vec<(u64, Box<[u64; PAGE as usize / 8]>)>,
    used: usize,
    /// The kernel's answer, should it not allow such reads at all.
    pub(super) refused: bool,
}

impl Guarded {
    pub(super) fn new() -> Self {
        Self {
            pages: Vec::new(),
            used: 0,
            refused: false,
        }
    }

    /// Forgets what was read.
    pub(super) fn renew(&mut self) -> &mut Self {
        self.used = 0;
        self
    }

    /// Copies memory of this very process.
    fn copy(&mut self, address: u64, to: *mut u8, length: usize) -> bool {
        let local = libc::iovec {
            iov_base: to.cast(),
            iov_len: length,
        };
        let remote = libc::iovec {
            iov_base: address as *mut _,
            iov_len: length,
        };
        // SAFETY: the kernel writes `length` bytes to `to`, which the callers own, and
        // checks the address that it reads from.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if copied < 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            self.refused |= matches!(error, Some(libc::EPERM | libc::EACCES | libc::ENOSYS));
        }
        copied == length as isize
    }
}

impl Memory for Guarded {
    fn word(&mut self, address: u64) -> Option<u64> {
        if !plausible(address) || address & 7 != 0 {
            return None;
        }
        let (page, place) = (address & !(PAGE - 1), (address & (PAGE - 1)) as usize / 8);
        let known = self.pages[..self.used].iter().find(|(at, _)| *at == page);
        if let Some((_, words)) = known {
            return Some(words[place]);
        }
        // Past the limit the last page makes room.
        let slot = self.used.min(PAGES - 1);
        if slot == self.pages.len() {
            self.pages.push((0, Box::new([0; PAGE as usize / 8])));
        }
        let words: *mut u64 = self.pages[slot].1.as_mut_ptr();
        self.used = slot;
        if !self.copy(page, words.cast(), PAGE as usize) {
            return None;
        }
        self.pages[slot].0 = page;
        self.used = slot + 1;
        Some(self.pages[slot].1[place])
    }

    fn bytes(&mut self, address: u64, length: usize) -> Option<Vec<u8>> {
        if !plausible(address) || length > LONGEST {
            return None;
        }
        let mut bytes = vec![0; length];
        let to: *mut u8 = bytes.as_mut_ptr();
        (length == 0 || self.copy(address, to, length)).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(check: impl Fn(&mut dyn Memory)) {
        // SAFETY: the tests read their own data.
        check(&mut unsafe { Direct::new() });
        check(&mut Guarded::new());
    }

    #[test]
    fn words_and_their_parts_are_read() {
        let data = Box::new([0x0807_0605_0403_0201_u64, 0x1817_1615_1413_1211]);
        let at = data.as_ptr() as u64;
        both(|memory| {
            assert_eq!(memory.word(at + 8), Some(data[1]));
            assert_eq!(memory.word(at + 4), None);
            assert_eq!(memory.half(at + 4), Some(0x0807_0605));
            assert_eq!(memory.half(at + 8), Some(0x1413_1211));
            assert_eq!(memory.half(at + 2), None);
            assert_eq!(memory.byte(at + 10), Some(0x13));
            assert_eq!(memory.bytes(at + 1, 3), Some(vec![2, 3, 4]));
            for wild in [0, 8, 1 << 48, !7] {
                assert_eq!(memory.word(wild), None);
                assert_eq!(memory.bytes(wild, 8), None);
            }
            assert_eq!(memory.bytes(at, usize::MAX), None);
        });
    }

    #[test]
    fn memory_that_is_gone_is_no_fault() {
        // SAFETY: a mapping of this test's own, unmapped once.
        let gone = unsafe {
            let map = libc::mmap(
                core::ptr::null_mut(),
                2 * PAGE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            *map.cast::<u64>() = 7;
            let mut guarded = Guarded::new();
            assert_eq!(guarded.word(map as u64), Some(7));
            assert_eq!(libc::munmap(map, 2 * PAGE as usize), 0);
            map as u64
        };
        let mut guarded = Guarded::new();
        assert_eq!(guarded.word(gone), None);
        assert_eq!(guarded.bytes(gone, 100), None);
        assert!(!guarded.refused);
        // What came before is not lost with it.
        let here = Box::new(9_u64);
        let at = &raw const *here as u64;
        assert_eq!(guarded.word(at), Some(9));
        assert_eq!(guarded.word(gone), None);
        assert_eq!(guarded.word(at), Some(9));
    }

    #[test]
    fn a_look_has_room_for_any_number_of_pages() {
        let far: Vec<Box<[u64; 1024]>> = (0..100).map(|n| Box::new([n; 1024])).collect();
        let mut guarded = Guarded::new();
        for _ in 0..2 {
            for (n, words) in far.iter().enumerate() {
                assert_eq!(guarded.word(words.as_ptr() as u64), Some(n as u64));
            }
        }
        assert!(guarded.pages.len() <= PAGES);
    }
}
