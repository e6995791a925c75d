//! Reading the interpreter's memory: at once where nothing can take it away
//! meanwhile, else through the kernel, which answers with an error where a load
//! would be a fault.

use smallvec::SmallVec;

/// User addresses are below this on both architectures.
const HIGHEST: u64 = 1 << 48;
/// No object lies below this.
const LOWEST: u64 = 1 << 12;
/// The unit of [`Guarded`]: memory is mapped and taken away by pages, and no page
/// is smaller.
const PAGE: u64 = 4096;
/// Pages kept during a look.
const PAGES: usize = 16;
/// Threads whose pages are remembered.
const THREADS: usize = 64;
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
    /// Which of these were looked at, a bit for each.
    touched: u32,
    /// The pages that looks at a thread needed last, by the thread's state.
    needed: Vec<(u64, SmallVec<[u64; PAGES]>)>,
    /// Which of them makes room next.
    oldest: usize,
    /// The kernel's answer, should it not allow such reads at all.
    pub(super) refused: bool,
}

impl Guarded {
    pub(super) const fn new() -> Self {
        Self {
            pages: Vec::new(),
            used: 0,
            touched: 0,
            needed: Vec::new(),
            oldest: 0,
            refused: false,
        }
    }

    /// Forgets what was read.
    pub(super) fn renew(&mut self) -> &mut Self {
        self.used = 0;
        self.touched = 0;
        self
    }

    /// Forgets what was read, and reads at once what was needed to look at this thread last.
    pub(super) fn begin(&mut self, thread: u64) -> &mut Self {
        self.used = 0;
        self.touched = 0;
        let needed = self.needed.iter().find(|(of, _)| *of == thread);
        let Some((_, wanted)) = needed else {
            return self;
        };
        let wanted = wanted.clone();
        while self.pages.len() < wanted.len() {
            self.pages.push((0, Box::new([0; PAGE as usize / 8])));
        }
        let vector = |start: *mut libc::c_void| libc::iovec {
            iov_base: start,
            iov_len: PAGE as usize,
        };
        let local: SmallVec<[_; PAGES]> = self.pages[..wanted.len()]
            .iter_mut()
            .map(|(_, words)| vector(words.as_mut_ptr().cast()))
            .collect();
        let remote: SmallVec<[_; PAGES]> = wanted
            .iter()
            .map(|page| vector(*page as *mut libc::c_void))
            .collect();
        let (count, no_flags) = (wanted.len() as libc::c_ulong, 0);
        // SAFETY: the kernel writes a page each to our own pages, and checks the addresses
        // that it reads from.
        let copied = unsafe {
            libc::process_vm_readv(
                libc::getpid(),
                local.as_ptr(),
                count,
                remote.as_ptr(),
                count,
                no_flags,
            )
        };
        // It ends at the first page that is gone.
        self.used = usize::try_from(copied).unwrap_or(0) / PAGE as usize;
        for ((at, _), page) in self.pages[..self.used].iter_mut().zip(&wanted) {
            *at = *page;
        }
        self
    }

    /// Keeps which pages a look at this thread has needed.
    pub(super) fn end(&mut self, thread: u64) {
        let touched = self.touched;
        let pages = self.pages[..self.used].iter().enumerate();
        let pages = pages
            .filter(|(place, _)| touched >> place & 1 != 0)
            .map(|(_, (page, _))| *page);
        let known = self.needed.iter().position(|(of, _)| *of == thread);
        match known {
            // What was read at once was enough.
            Some(place) if self.needed[place].1.iter().copied().eq(pages.clone()) => {}
            Some(place) => self.needed[place].1 = pages.collect(),
            None if self.needed.len() < THREADS => self.needed.push((thread, pages.collect())),
            None => {
                self.needed[self.oldest] = (thread, pages.collect());
                self.oldest = (self.oldest + 1) % THREADS;
            }
        }
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
        let known = self.pages[..self.used].iter();
        if let Some(known) = known.map(|(at, _)| *at).position(|at| at == page) {
            self.touched |= 1 << known;
            return Some(self.pages[known].1[place]);
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
        self.touched |= 1 << slot;
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
    fn pages_that_were_needed_are_read_at_once() {
        let data: Vec<Box<[u64; 1024]>> = (0..5).map(|n| Box::new([n; 1024])).collect();
        let mut guarded = Guarded::new();
        for (round, wanted) in [0..5, 1..3, 0..3].into_iter().enumerate() {
            guarded.begin(7);
            assert_eq!(guarded.used, [0, 5, 2][round]);
            for n in wanted.clone() {
                assert_eq!(guarded.word(data[n].as_ptr() as u64), Some(n as u64));
            }
            guarded.end(7);
        }
        // Another thread's are its own, and what is gone is no fault.
        assert_eq!(guarded.begin(8).used, 0);
        // SAFETY: a mapping of this test's own, unmapped once.
        let gone = unsafe {
            let map = libc::mmap(
                core::ptr::null_mut(),
                PAGE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_eq!(guarded.word(map as u64), Some(0));
            assert_eq!(guarded.word(data[0].as_ptr() as u64), Some(0));
            guarded.end(8);
            assert_eq!(libc::munmap(map, PAGE as usize), 0);
            map as u64
        };
        assert_eq!(guarded.begin(8).used, 0);
        assert_eq!(guarded.word(gone), None);
        assert_eq!(guarded.word(data[1].as_ptr() as u64), Some(1));
        for thread in 0..1000 {
            guarded.begin(thread).end(thread);
        }
        assert!(guarded.needed.len() <= THREADS);
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
