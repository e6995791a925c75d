//! The C library's functions that have the kernel read or write memory, which would fail on
//! guarded pages: there they are accesses of the CPU's, and the pages are opened for them.
//!
//! Where no host memory is guarded, each is one jump.

use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use libc::{FILE, iovec, mmsghdr, msghdr, off_t, sockaddr, socklen_t, ssize_t, timespec};
use smallvec::SmallVec;
use streamcheck_model::Region;

use super::passing::passing;
use crate::call::guarded;
use crate::guard;
use crate::hook::Hook;
use crate::life;
use crate::recorder;
use crate::room::uncancelled;
use crate::thread::{self, Inside, Origin, keeping_errno};

type Ranges = SmallVec<[(u64, u64); 4]>;

/// Host memory that stays open for a call.
struct Open {
    hook: &'static Hook,
    origin: Option<Origin>,
    ranges: Ranges,
    held: guard::Held,
    write: bool,
}

impl Open {
    /// `None` if no page of these ranges may be closed before the call is over: it may wait,
    /// and meanwhile another thread have the device use them.
    fn new(hook: &'static Hook, ranges: impl FnOnce() -> Ranges, write: bool) -> Option<Self> {
        if !guard::ever_on() {
            return None;
        }
        let ranges = ranges();
        // A handler may have interrupted our own code, which has the lock.
        if thread::block().in_own_code() || !guard::on() || !life::is_owner() {
            for (start, end) in ranges {
                guard::open_unlocked(start, end);
            }
            return None;
        }
        // Within CUDA's own calls it is CUDA that calls, and where from is not known.
        let origin = (thread::block().depth() == 0).then(|| thread::block().origin());
        let _inside = Inside::nest();
        let held = keeping_errno(|| guarded(|| uncancelled(|| recorder::hold_host(&ranges))));
        let Some(held) = held.flatten() else {
            for (start, end) in ranges {
                guard::open_unlocked(start, end);
            }
            return None;
        };
        (!held.is_empty()).then_some(Self {
            hook,
            origin,
            ranges,
            held,
            write,
        })
    }

    /// The call has used so many bytes.
    fn used(&self, mut bytes: u64) {
        let Some(origin) = self.origin else { return };
        let _inside = Inside::nest();
        let mut record = || {
            for &(start, end) in &self.ranges {
                let part = bytes.min(end - start);
                bytes -= part;
                if part > 0 {
                    let region = Region::linear(start, part);
                    recorder::host_called(self.hook, &origin, region, self.write);
                }
            }
        };
        keeping_errno(|| guarded(|| uncancelled(&mut record)));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _inside = Inside::nest();
        keeping_errno(|| guarded(|| uncancelled(|| recorder::let_go_of_host(&self.held))));
    }
}

/// Makes a call through `real`, which reads or writes these ranges; `bytes` says how many of
/// their bytes.
#[inline(always)]
fn around<T: Copy>(
    hook: &'static Hook,
    write: bool,
    ranges: impl FnOnce() -> Ranges,
    bytes: impl FnOnce(T) -> u64,
    real: impl FnOnce() -> T,
) -> T {
    let Some(open) = Open::new(hook, ranges, write) else {
        return real();
    };
    let result = real();
    open.used(bytes(result));
    result
}

/// What the kernel or the C library writes.
const WRITTEN: bool = true;
/// What it reads.
const READ: bool = false;

fn one(start: *const c_void, bytes: usize) -> impl FnOnce() -> Ranges {
    move || {
        let start = start as u64;
        smallvec::smallvec![(start, start.saturating_add(bytes as u64))]
    }
}

/// The most entries of a list that the kernel takes (`UIO_MAXIOV`).
const MOST: usize = 1024;

/// The entries of a list that a call is given, which may point nowhere: then the call fails.
fn entries<T: Copy>(list: *const T, count: usize) -> SmallVec<[T; 4]> {
    if list.is_null() || count > MOST || !guard::is_readable(list as u64, count * size_of::<T>()) {
        return SmallVec::new();
    }
    // SAFETY: what the application gives the call, and it can be read.
    (0..count)
        .map(|index| unsafe { list.add(index).read() })
        .collect()
}

/// The range of a list itself.
fn itself<T>(list: *const T, count: usize) -> (u64, u64) {
    let start = list as u64;
    (
        start,
        start.saturating_add((count.min(MOST) * size_of::<T>()) as u64),
    )
}

fn payload(list: *const iovec, count: usize) -> impl Iterator<Item = (u64, u64)> {
    entries(list, count).into_iter().map(|buffer| {
        let start = buffer.iov_base as u64;
        (start, start.saturating_add(buffer.iov_len as u64))
    })
}

/// Of a list of buffers, which is read itself: after what is moved.
fn list(list: *const iovec, count: usize) -> impl FnOnce() -> Ranges {
    move || payload(list, count).chain([itself(list, count)]).collect()
}

/// What else of a message is used.
fn rest(message: &msghdr) -> [(u64, u64); 3] {
    let range = |start: *mut c_void, size: usize| {
        (start as u64, (start as u64).saturating_add(size as u64))
    };
    [
        itself(message.msg_iov, message.msg_iovlen),
        range(message.msg_name, message.msg_namelen as usize),
        range(message.msg_control, message.msg_controllen),
    ]
}

/// Of a message.
fn message(message: *const msghdr) -> impl FnOnce() -> Ranges {
    move || {
        let Some(known) = entries(message, 1).pop() else {
            return Ranges::new();
        };
        let payload = payload(known.msg_iov, known.msg_iovlen);
        payload
            .chain(rest(&known))
            .chain([itself(message, 1)])
            .collect()
    }
}

/// Of a list of messages.
fn messages(messages: *const mmsghdr, count: c_uint) -> impl FnOnce() -> Ranges {
    move || {
        let all = entries(messages, count as usize);
        let parts =
            |message: &mmsghdr| payload(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen);
        let payload = all.iter().flat_map(parts);
        let rest = all.iter().flat_map(|message| rest(&message.msg_hdr));
        payload
            .chain(rest)
            .chain([itself(messages, count as usize)])
            .collect()
    }
}

/// A buffer, the address of a sender and its size.
fn from(
    buffer: *const c_void,
    count: usize,
    from: *const sockaddr,
    size: *const socklen_t,
) -> impl FnOnce() -> Ranges {
    move || {
        let mut ranges = one(buffer, count)();
        // The largest address that there is.
        ranges.push(itself(
            from.cast::<libc::sockaddr_storage>(),
            usize::from(!from.is_null()),
        ));
        ranges.push(itself(size, usize::from(!size.is_null())));
        ranges
    }
}

/// A text. Where a page of it is closed, it is opened here.
fn text(text: *const c_char) -> impl FnOnce() -> Ranges {
    move || {
        let _inside = Inside::nest();
        if text.is_null() {
            return Ranges::new();
        }
        // SAFETY: a text that the application gives a call.
        let size = unsafe { libc::strlen(text) };
        one(text.cast(), size)()
    }
}

/// How many bytes each of the first `count` messages took, in all.
///
/// # Safety
/// The call has taken that many of these messages.
unsafe fn taken(messages: *const mmsghdr, count: c_int) -> u64 {
    (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: the caller's promise.
        .map(|index| u64::from(unsafe { (*messages.add(index)).msg_len }))
        .sum()
}

fn bytes(result: ssize_t) -> u64 {
    u64::try_from(result).unwrap_or(0)
}

fn all_if(done: bool, size: usize) -> u64 {
    if done { size as u64 } else { 0 }
}

/// A call whose result is how many bytes it read or wrote, or -1.
macro_rules! transfer {
    ($write:ident, $ranges:expr, $call:expr) => {
        around(
            &HOOK,
            $write,
            $ranges,
            bytes,
            // SAFETY: the application's own call.
            || unsafe { $call },
        )
    };
}

/// A call that fills a structure if it succeeds.
macro_rules! told {
    ($told:ident, $call:expr) => {
        around(
            &HOOK,
            WRITTEN,
            one($told.cast(), size_of_val_of($told)),
            |status| all_if(status == 0, size_of_val_of($told)),
            // SAFETY: the application's own call.
            || unsafe { $call },
        )
    };
}

fn size_of_val_of<T>(_: *const T) -> usize {
    size_of::<T>()
}

/// How much of a text was written.
fn all_of_text(status: c_int) -> u64 {
    if status < 0 { 0 } else { u64::MAX }
}

passing! {
    fn read(fd: c_int, buffer: *mut c_void, count: usize) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count))
    }
    fn __read_chk(fd: c_int, buffer: *mut c_void, count: usize, size: usize) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count, size))
    }
    fn pread(fd: c_int, buffer: *mut c_void, count: usize, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count, offset))
    }
    fn pread64(fd: c_int, buffer: *mut c_void, count: usize, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count, offset))
    }
    fn __pread_chk(fd: c_int, buffer: *mut c_void, count: usize, offset: off_t, size: usize) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count, offset, size))
    }
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, count: usize, offset: off_t, size: usize) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count, offset, size))
    }
    fn write(fd: c_int, buffer: *const c_void, count: usize) -> ssize_t, failed(-1), |real| {
        transfer!(READ, one(buffer, count), real(fd, buffer, count))
    }
    fn pwrite(fd: c_int, buffer: *const c_void, count: usize, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(READ, one(buffer, count), real(fd, buffer, count, offset))
    }
    fn pwrite64(fd: c_int, buffer: *const c_void, count: usize, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(READ, one(buffer, count), real(fd, buffer, count, offset))
    }
    fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, list(buffers, count as usize), real(fd, buffers, count))
    }
    fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(READ, list(buffers, count as usize), real(fd, buffers, count))
    }
    fn preadv(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, list(buffers, count as usize), real(fd, buffers, count, offset))
    }
    fn preadv64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, list(buffers, count as usize), real(fd, buffers, count, offset))
    }
    fn pwritev(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(READ, list(buffers, count as usize), real(fd, buffers, count, offset))
    }
    fn pwritev64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t, failed(-1), |real| {
        transfer!(READ, list(buffers, count as usize), real(fd, buffers, count, offset))
    }
    fn preadv2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, list(buffers, count as usize), real(fd, buffers, count, offset, flags))
    }
    fn preadv64v2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, list(buffers, count as usize), real(fd, buffers, count, offset, flags))
    }
    fn pwritev2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(READ, list(buffers, count as usize), real(fd, buffers, count, offset, flags))
    }
    fn pwritev64v2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(READ, list(buffers, count as usize), real(fd, buffers, count, offset, flags))
    }
    fn send(fd: c_int, buffer: *const c_void, count: usize, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(READ, one(buffer, count), real(fd, buffer, count, flags))
    }
    fn sendto(
        fd: c_int, buffer: *const c_void, count: usize, flags: c_int, to: *const sockaddr, size: socklen_t,
    ) -> ssize_t, failed(-1), |real| {
        transfer!(READ, one(buffer, count), real(fd, buffer, count, flags, to, size))
    }
    fn sendmsg(fd: c_int, sent: *const msghdr, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(READ, message(sent), real(fd, sent, flags))
    }
    fn sendmmsg(fd: c_int, sent: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, failed(-1), |real| {
        // SAFETY: what the application gives the call, and the call itself.
        unsafe {
            around(&HOOK, READ, messages(sent, count), |done| taken(sent, done), || {
                real(fd, sent, count, flags)
            })
        }
    }
    fn recv(fd: c_int, buffer: *mut c_void, count: usize, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count, flags))
    }
    fn __recv_chk(fd: c_int, buffer: *mut c_void, count: usize, size: usize, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(fd, buffer, count, size, flags))
    }
    fn recvfrom(
        fd: c_int, buffer: *mut c_void, count: usize, flags: c_int, from_address: *mut sockaddr, size: *mut socklen_t,
    ) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, from(buffer, count, from_address, size), real(fd, buffer, count, flags, from_address, size))
    }
    fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, count: usize, room: usize, flags: c_int, from_address: *mut sockaddr,
        size: *mut socklen_t,
    ) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, from(buffer, count, from_address, size), real(fd, buffer, count, room, flags, from_address, size))
    }
    fn recvmsg(fd: c_int, received: *mut msghdr, flags: c_int) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, message(received), real(fd, received, flags))
    }
    fn recvmmsg(
        fd: c_int, received: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec,
    ) -> c_int, failed(-1), |real| {
        // SAFETY: what the application gives the call, and the call itself.
        unsafe {
            around(&HOOK, WRITTEN, messages(received, count), |done| taken(received, done), || {
                real(fd, received, count, flags, timeout)
            })
        }
    }
    fn process_vm_readv(
        process: c_int, to: *const iovec, count: c_ulong, from: *const iovec, from_count: c_ulong, flags: c_ulong,
    ) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, list(to, count as usize),
            real(process, to, count, from, from_count, flags)
        )
    }
    fn process_vm_writev(
        process: c_int, from: *const iovec, count: c_ulong, to: *const iovec, to_count: c_ulong, flags: c_ulong,
    ) -> ssize_t, failed(-1), |real| {
        transfer!(READ, list(from, count as usize),
            real(process, from, count, to, to_count, flags)
        )
    }
    fn getrandom(buffer: *mut c_void, count: usize, flags: c_uint) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer, count), real(buffer, count, flags))
    }
    fn fread(buffer: *mut c_void, size: usize, count: usize, file: *mut FILE) -> usize, failed(0), |real| {
        let all = one(buffer, size.saturating_mul(count));
        // SAFETY: the application's own call.
        around(&HOOK, WRITTEN, all, |items| (items * size) as u64, || unsafe { real(buffer, size, count, file) })
    }
    fn fread_unlocked(buffer: *mut c_void, size: usize, count: usize, file: *mut FILE) -> usize, failed(0), |real| {
        let all = one(buffer, size.saturating_mul(count));
        // SAFETY: the application's own call.
        around(&HOOK, WRITTEN, all, |items| (items * size) as u64, || unsafe { real(buffer, size, count, file) })
    }
    fn __fread_chk(
        buffer: *mut c_void, room: usize, size: usize, count: usize, file: *mut FILE,
    ) -> usize, failed(0), |real| {
        let all = one(buffer, size.saturating_mul(count));
        // SAFETY: the application's own call.
        around(&HOOK, WRITTEN, all, |items| (items * size) as u64, || unsafe { real(buffer, room, size, count, file) })
    }
    fn __fread_unlocked_chk(
        buffer: *mut c_void, room: usize, size: usize, count: usize, file: *mut FILE,
    ) -> usize, failed(0), |real| {
        let all = one(buffer, size.saturating_mul(count));
        // SAFETY: the application's own call.
        around(&HOOK, WRITTEN, all, |items| (items * size) as u64, || unsafe { real(buffer, room, size, count, file) })
    }
    fn fwrite(buffer: *const c_void, size: usize, count: usize, file: *mut FILE) -> usize, failed(0), |real| {
        let all = one(buffer, size.saturating_mul(count));
        // SAFETY: the application's own call.
        around(&HOOK, READ, all, |items| (items * size) as u64, || unsafe { real(buffer, size, count, file) })
    }
    fn fwrite_unlocked(buffer: *const c_void, size: usize, count: usize, file: *mut FILE) -> usize, failed(0), |real| {
        let all = one(buffer, size.saturating_mul(count));
        // SAFETY: the application's own call.
        around(&HOOK, READ, all, |items| (items * size) as u64, || unsafe { real(buffer, size, count, file) })
    }
    fn stat(path: *const c_char, told: *mut libc::stat) -> c_int, failed(-1), |real| {
        told!(told, real(path, told))
    }
    fn stat64(path: *const c_char, told: *mut libc::stat64) -> c_int, failed(-1), |real| {
        told!(told, real(path, told))
    }
    fn lstat(path: *const c_char, told: *mut libc::stat) -> c_int, failed(-1), |real| {
        told!(told, real(path, told))
    }
    fn lstat64(path: *const c_char, told: *mut libc::stat64) -> c_int, failed(-1), |real| {
        told!(told, real(path, told))
    }
    fn fstat(file: c_int, told: *mut libc::stat) -> c_int, failed(-1), |real| {
        told!(told, real(file, told))
    }
    fn fstatat(folder: c_int, path: *const c_char, told: *mut libc::stat, flags: c_int) -> c_int, failed(-1), |real| {
        told!(told, real(folder, path, told, flags))
    }
    fn fstat64(file: c_int, told: *mut libc::stat64) -> c_int, failed(-1), |real| {
        told!(told, real(file, told))
    }
    fn fstatat64(folder: c_int, path: *const c_char, told: *mut libc::stat64, flags: c_int) -> c_int, failed(-1), |real| {
        told!(told, real(folder, path, told, flags))
    }
    fn readlink(path: *const c_char, buffer: *mut c_char, size: usize) -> ssize_t, failed(-1), |real| {
        transfer!(WRITTEN, one(buffer.cast(), size), real(path, buffer, size))
    }
    fn getcwd(buffer: *mut c_char, size: usize) -> *mut c_char, failed(core::ptr::null_mut()), |real| {
        // SAFETY: the application's own call.
        around(&HOOK, WRITTEN, one(buffer.cast(), size), |_| 0, || unsafe { real(buffer, size) })
    }
    fn fputs(said: *const c_char, file: *mut FILE) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        around(&HOOK, READ, text(said), all_of_text, || unsafe { real(said, file) })
    }
    fn puts(said: *const c_char) -> c_int, failed(-1), |real| {
        // SAFETY: the application's own call.
        around(&HOOK, READ, text(said), all_of_text, || unsafe { real(said) })
    }
    fn madvise(start: *mut c_void, size: usize, advice: c_int) -> c_int, failed(-1), |real| {
        // These throw what is there away; others leave it.
        if !matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE) {
            // SAFETY: the application's own call.
            return unsafe { real(start, size, advice) };
        }
        // SAFETY: the application's own call.
        around(&HOOK, WRITTEN, one(start, size), |status| all_if(status == 0, size), || unsafe {
            real(start, size, advice)
        })
    }
    fn mprotect(start: *mut c_void, size: usize, protection: c_int) -> c_int, failed(-1), |real| {
        changes(start, size);
        // SAFETY: the application's own call.
        unsafe { real(start, size, protection) }
    }
    fn pkey_mprotect(start: *mut c_void, size: usize, protection: c_int, key: c_int) -> c_int, failed(-1), |real| {
        changes(start, size);
        // SAFETY: the application's own call.
        unsafe { real(start, size, protection, key) }
    }
}

/// The application changes how these pages are protected: they are opened, and its own.
fn changes(start: *const c_void, size: usize) {
    let start = start as u64;
    let end = start.saturating_add(size as u64);
    if !guard::on() || thread::block().in_own_code() {
        return;
    }
    let _inside = Inside::nest();
    keeping_errno(|| guarded(|| uncancelled(|| recorder::host_changes(start, end))));
}
