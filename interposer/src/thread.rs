//! What the library keeps per thread: one fixed block, without a destructor.
//!
//! The block is declared in assembly with the initial-exec model, which a
//! preloaded library may use: reading it is one load relative to the thread
//! pointer, with no call into the loader, and an entry stub can write to it
//! before the compiler has touched a register. It is zero when a thread starts.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use streamcheck_model::ThreadId;

use crate::place::Met;

/// The block. The entry stubs write the three `origin` fields by offset, so
/// their places are fixed (see `stub_asm!`).
#[repr(C)]
pub(crate) struct Block {
    /// How many hooks the thread is inside of. Above zero, hooks pass through.
    depth: Cell<u32>,
    /// The thread's number, or 0 before its first recorded call.
    number: Cell<u32>,
    /// Where the entry stub was called from.
    origin: Cell<Origin>,
    /// The thread's stack: its lowest address and the one after its highest.
    /// Both 0 before they were asked for, both 1 where they cannot be told.
    stack: Cell<(u64, u64)>,
    /// The function of the newest driver launch made inside a runtime launch.
    inner_function: Cell<u64>,
    /// Code range of the module that called last, and its runtime provider.
    caller: Cell<CallerRange>,
    /// The current device and context, as last learned.
    place: Cell<Place>,
    /// The context that was current when it was last asked for.
    met: Cell<Met>,
    /// Whether the outermost hook is in its real call, which may never return:
    /// a signal's handler may end the process. Of meaning at depth 1 only.
    real: Cell<bool>,
    /// Whether the thread walks through the loader's list.
    walking: Cell<bool>,
    /// What guarding host memory keeps of the thread.
    pub(crate) guard: crate::guard::PerThread,
}

/// The application's side of a call into a hook.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Origin {
    /// The address that the hook returns to.
    pub(crate) return_address: u64,
    /// The stack pointer at the hook's first instruction.
    pub(crate) stack_pointer: u64,
    /// The frame pointer register, of meaning only where the caller keeps one.
    pub(crate) frame_pointer: u64,
}

impl Origin {
    /// The caller's stack pointer before the call.
    pub(crate) fn frame_address(&self) -> u64 {
        if cfg!(target_arch = "x86_64") {
            self.stack_pointer + 8
        } else {
            self.stack_pointer
        }
    }
}

/// See [`Block::caller`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CallerRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) provider: u32,
}

/// The device and context that are current on a thread.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Place {
    /// Whether the other fields may be used.
    pub(crate) known: bool,
    pub(crate) device: u16,
    pub(crate) context: u32,
}

#[cfg(target_arch = "x86_64")]
macro_rules! stub_asm {
    ($body:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov r11, qword ptr [rip + streamcheck_thread@GOTTPOFF]",
            "mov rax, qword ptr [rsp]",
            "mov qword ptr fs:[r11 + 8], rax",
            "mov qword ptr fs:[r11 + 16], rsp",
            "mov qword ptr fs:[r11 + 24], rbp",
            "jmp {body}",
            body = sym $body,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! stub_asm {
    ($body:path) => {
        core::arch::naked_asm!(
            "hint #34",
            "mrs x16, tpidr_el0",
            "adrp x17, :gottprel:streamcheck_thread",
            "ldr x17, [x17, :gottprel_lo12:streamcheck_thread]",
            "add x16, x16, x17",
            "mov x17, sp",
            "stp x30, x17, [x16, #8]",
            "str x29, [x16, #24]",
            "b {body}",
            body = sym $body,
        )
    };
}

pub(crate) use stub_asm;

core::arch::global_asm!(
    ".pushsection .tbss.streamcheck_thread,\"awT\",@nobits",
    ".balign 16",
    ".globl streamcheck_thread",
    ".hidden streamcheck_thread",
    ".type streamcheck_thread,@object",
    ".size streamcheck_thread,{size}",
    "streamcheck_thread:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Block>(),
);

const _: () = assert!(core::mem::offset_of!(Block, origin) == 8);
const _: () = assert!(align_of::<Block>() <= 16);

/// This thread's block.
#[inline(always)]
pub(crate) fn block() -> &'static Block {
    let address: *const Block;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both loads are from memory that the loader set up: the thread
    // pointer's own slot and our GOT entry.
    unsafe {
        core::arch::asm!(
            "mov {out}, qword ptr fs:[0]",
            "add {out}, qword ptr [rip + streamcheck_thread@GOTTPOFF]",
            out = out(reg) address,
            options(nostack, pure, readonly),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "mrs {out}, tpidr_el0",
            "adrp {tmp}, :gottprel:streamcheck_thread",
            "ldr {tmp}, [{tmp}, :gottprel_lo12:streamcheck_thread]",
            "add {out}, {out}, {tmp}",
            out = out(reg) address,
            tmp = out(reg) _,
            options(nostack, pure, readonly),
        );
    }
    // SAFETY: the block lives as long as the thread, holds only cells for which
    // zero is a value, and the reference never leaves the thread (callers use it
    // at once; `Block` is not `Sync`).
    unsafe { &*address }
}

impl Block {
    pub(crate) fn depth(&self) -> u32 {
        self.depth.get()
    }

    /// Notes that the real call begins; the answer is for [`Self::leave_real`].
    #[inline(always)]
    pub(crate) fn enter_real(&self) -> bool {
        self.real.replace(true)
    }

    /// Notes that the real call has returned.
    #[inline(always)]
    pub(crate) fn leave_real(&self, before: bool) {
        self.real.set(before);
    }

    /// Whether the library's own code runs on this thread, perhaps with a lock in
    /// its hands, below whatever interrupted it.
    pub(crate) fn in_own_code(&self) -> bool {
        match self.depth.get() {
            0 => false,
            1 => !self.real.get(),
            _ => true,
        }
    }

    /// Notes a walk through the loader's list. False if it is within another.
    pub(crate) fn begin_walk(&self) -> bool {
        !self.walking.replace(true)
    }

    pub(crate) fn end_walk(&self) {
        self.walking.set(false);
    }

    pub(crate) fn is_walking(&self) -> bool {
        self.walking.get()
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin.get()
    }

    pub(crate) fn caller(&self) -> CallerRange {
        self.caller.get()
    }

    pub(crate) fn set_caller(&self, caller: CallerRange) {
        self.caller.set(caller);
    }

    pub(crate) fn place(&self) -> Place {
        self.place.get()
    }

    pub(crate) fn set_place(&self, place: Place) {
        self.place.set(place);
    }

    pub(crate) fn met(&self) -> Met {
        self.met.get()
    }

    pub(crate) fn set_met(&self, met: Met) {
        self.met.set(met);
    }

    /// The next recorded call asks for the device and context anew.
    pub(crate) fn forget_place(&self) {
        self.place.set(Place {
            known: false,
            device: 0,
            context: 0,
        });
    }

    pub(crate) fn set_inner_function(&self, function: u64) {
        self.inner_function.set(function);
    }

    pub(crate) fn take_inner_function(&self) -> u64 {
        self.inner_function.take()
    }

    /// The thread's number, given on first use.
    pub(crate) fn number(&self) -> ThreadId {
        if self.number.get() == 0 {
            self.number.set(NEXT_NUMBER.fetch_add(1, Relaxed) + 1);
        }
        ThreadId(self.number.get())
    }

    /// Whether `address` lies in the thread's own stack, and the address after it.
    /// Fails on a coroutine's or a signal's stack.
    pub(crate) fn stack_end(&self, address: u64) -> Option<u64> {
        if self.stack.get() == (0, 0) {
            self.stack.set(find_stack().unwrap_or((1, 1)));
        }
        let (start, end) = self.stack.get();
        (start..end).contains(&address).then_some(end)
    }

    /// Forgets what a forked child must learn anew.
    pub(crate) fn reset_after_fork(&self) {
        self.number.set(0);
        self.forget_place();
        NEXT_NUMBER.store(0, Relaxed);
    }
}

static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

fn find_stack() -> Option<(u64, u64)> {
    // SAFETY: the attribute object is initialised by the first call, read only
    // if that succeeded, and destroyed once.
    unsafe {
        let mut attributes = core::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let mut start = core::ptr::null_mut();
        let mut size = 0;
        let answer = libc::pthread_attr_getstack(&attributes, &mut start, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        (answer == 0).then(|| (start as u64, start as u64 + size as u64))
    }
}

/// Keeps hooks from re-entering while it lives.
pub(crate) struct Inside(());

impl Inside {
    /// Enters unless the thread is inside already.
    #[inline(always)]
    pub(crate) fn enter() -> Option<Self> {
        let block = block();
        if block.depth.get() != 0 {
            return None;
        }
        block.depth.set(1);
        block.real.set(false);
        Some(Self(()))
    }

    /// Enters whether or not the thread is inside already.
    pub(crate) fn nest() -> Self {
        let block = block();
        if block.depth.get() == 0 {
            // Of a real call that this thread was called back from.
            block.real.set(false);
        }
        block.depth.set(block.depth.get() + 1);
        Self(())
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        let block = block();
        block.depth.set(block.depth.get() - 1);
    }
}

/// Takes the thread out of a hook's real call while it lives: code of the
/// application's runs in there, and its calls are its own.
pub(crate) struct Outside(bool);

impl Outside {
    pub(crate) fn leave() -> Self {
        let block = block();
        let called_back = block.depth.get() == 1 && block.real.get();
        if called_back {
            block.depth.set(0);
        }
        Self(called_back)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if self.0 {
            let block = block();
            block.depth.set(1);
            block.real.set(true);
        }
    }
}

/// Runs `f` and leaves `errno` as it was before.
pub(crate) fn keeping_errno<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the C library's own slot for this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = f();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_code_within_a_callback_is_our_own() {
        let _call = Inside::enter().expect("the thread is outside");
        let before = block().enter_real();
        assert!(!block().in_own_code());
        {
            let _outside = Outside::leave();
            {
                let _inside = Inside::nest();
                assert!(block().in_own_code());
            }
            assert!(!block().in_own_code());
        }
        assert!(!block().in_own_code());
        block().leave_real(before);
        assert!(block().in_own_code());
    }
}
