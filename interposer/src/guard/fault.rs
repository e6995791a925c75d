//! Faults on guarded pages, and single steps past them.
//!
//! Nothing but a fault interrupts the handlers, and that is handled like any other
//! (`SA_NODEFER`). A signal that is handed on finds the mask as the kernel would have had it. What they do before they change stacks takes no lock and no
//! memory.
//!
//! A fault in our own code, or in a child that has forked without telling, opens its page
//! without a lock. One on a page that another thread has opened meanwhile is tried again:
//! the count of openings has risen since this thread last did so.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{siginfo_t, ucontext_t};

use super::{pages, signals};
use crate::call;
use crate::life;
use crate::recorder::{self, Response};
use crate::room::{cancelled_as, not_cancelled, with_room};
use crate::stacks::Interrupted;
use crate::thread::{self, Inside, keeping_errno};

/// `si_code` of faults on mapped pages (asm-generic/siginfo.h).
const SEGV_ACCERR: c_int = 2;

/// An access of the application's that has faulted.
pub(crate) struct Fault {
    pub(crate) address: u64,
    pub(crate) write: bool,
    /// CUDA made it, within a call.
    pub(crate) silent: bool,
    pub(crate) at: Interrupted,
    /// Whether its instruction can be let through alone.
    pub(crate) may_step: bool,
    /// Whether its instruction locks the memory that it changes: the kernel may be asked to
    /// look there next (futex), at any time, and must find the page open.
    pub(crate) locks: bool,
}

pub(super) unsafe extern "C-unwind" fn on_fault(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel's description of the signal.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    // A cancellation that is asynchronous acts where it is let in again: in this frame, with
    // nothing in hand.
    let cancelled = not_cancelled();
    // SAFETY: the kernel's or, if it was handed on, the application's context.
    let ours = unsafe {
        let ours = code == SEGV_ACCERR && is_ours(address, context.cast());
        if !ours && has_trap_flag(context.cast()) && stop_stepping(context.cast()) {
            stepped();
        }
        ours
    };
    cancelled_as(cancelled);
    if !ours {
        // SAFETY: as above.
        unsafe { signals::hand_on(signal, info, context) };
    }
}

pub(super) unsafe extern "C-unwind" fn on_trap(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    // As above.
    let cancelled = not_cancelled();
    // SAFETY: the kernel's description and context.
    let ours = unsafe {
        (*info).si_code == libc::TRAP_TRACE && {
            let ours = stop_stepping(context.cast());
            stepped();
            ours
        }
    };
    cancelled_as(cancelled);
    if !ours {
        // SAFETY: as above.
        unsafe { signals::hand_on(signal, info, context) };
    }
}

/// Whether a fault is of our making; then its instruction can be run again.
///
/// # Safety
/// The context is that of a fault at `address`.
unsafe fn is_ours(address: u64, context: *mut ucontext_t) -> bool {
    let block = thread::block();
    if !pages::closed(address, address.saturating_add(1)) {
        let openings = pages::openings();
        return block.guard.retried.replace(openings) != openings;
    }
    if block.in_own_code() || !life::is_owner() {
        return pierce(address);
    }
    // SAFETY: the caller's promise.
    let response = unsafe { handled(address, context) };
    match response {
        Some(Response::Step) => {
            // SAFETY: as above.
            unsafe { step(address, context) };
            true
        }
        Some(Response::Again) => true,
        None => pierce(address),
    }
}

fn pierce(address: u64) -> bool {
    keeping_errno(|| pages::pierce(address, address.saturating_add(1)))
}

/// # Safety
/// As for [`is_ours`].
#[inline(never)]
unsafe fn handled(address: u64, context: *mut ucontext_t) -> Option<Response> {
    let block = thread::block();
    let silent = block.depth() > 0;
    let _inside = Inside::nest();
    // SAFETY: the caller's promise.
    let (at, write) = unsafe { (interrupted(context), is_write(context)) };
    // SAFETY: as above.
    let locks = unsafe { locks(context) };
    // SAFETY: as above.
    let may_step =
        !locks && block.guard.stepping.get().contains(&0) && unsafe { can_step(context) };
    let fault = Fault {
        address,
        write,
        silent,
        at,
        may_step,
        locks,
    };
    keeping_errno(|| call::guarded(|| with_room(|| recorder::host_faulted(&fault)))).flatten()
}

/// The pages that were open for one instruction are closed again.
#[inline(never)]
fn stepped() {
    let open = thread::block().guard.stepping.take();
    if open == [0; 4] {
        return;
    }
    if thread::block().in_own_code() {
        pages::leave_pierced();
        return;
    }
    let _inside = Inside::nest();
    let noted = keeping_errno(|| call::guarded(|| with_room(|| recorder::host_stepped(&open))));
    if noted != Some(true) {
        pages::leave_pierced();
    }
}

/// Has the thread stop after the next instruction.
///
/// # Safety
/// As for [`is_ours`].
unsafe fn step(address: u64, context: *mut ucontext_t) {
    let state = &thread::block().guard;
    let stepping = &state.stepping;
    let mut open = stepping.get();
    if let Some(place) = open.iter_mut().find(|place| **place == 0) {
        *place = address;
    }
    stepping.set(open);
    // A handler of the application's may run before that instruction, and step too, so that
    // contexts are counted. One that the application steps by itself is its own.
    // SAFETY: the caller's promise.
    unsafe {
        if !has_trap_flag(context) {
            STEPPED.store(true, Relaxed);
            state.armed.set(state.armed.get() + 1);
            set_trap_flag(context, true);
        }
    }
}

/// Whether any step was made in this process.
static STEPPED: AtomicBool = AtomicBool::new(false);

/// Whether a trap must be the end of a step of ours, though not one that this thread knows of:
/// natively, nobody would have had it. The context goes on without.
///
/// # Safety
/// The arguments are a handler's for SIGTRAP.
pub(super) unsafe fn is_late_step(info: *const siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    let late = unsafe { (*info).si_code } == libc::TRAP_TRACE && STEPPED.load(Relaxed);
    if late {
        // SAFETY: as above.
        unsafe { set_trap_flag(context.cast(), false) };
    }
    late
}

/// Ends the single step of a context. False if it makes none of ours.
///
/// # Safety
/// As for [`is_ours`].
unsafe fn stop_stepping(context: *mut ucontext_t) -> bool {
    let armed = &thread::block().guard.armed;
    if armed.get() == 0 {
        return false;
    }
    armed.set(armed.get() - 1);
    // SAFETY: the caller's promise.
    unsafe { set_trap_flag(context, false) };
    true
}

/// Whether a single step's signal would arrive.
///
/// # Safety
/// As for [`is_ours`].
unsafe fn can_step(context: *const ucontext_t) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    // SAFETY: the caller's promise.
    let blocked = unsafe { signals::interrupted_mask(context.cast()) };
    blocked & signals::bit(libc::SIGTRAP) == 0 && signals::is_kept(libc::SIGTRAP)
}

/// See [`Fault::locks`].
///
/// # Safety
/// As for [`is_ours`].
#[cfg(target_arch = "x86_64")]
unsafe fn locks(context: *const ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    let at = unsafe { interrupted(context) }.pc;
    super::mapped::read::<8>(at).is_some_and(|code| is_locked(&code))
}

#[cfg(target_arch = "aarch64")]
unsafe fn locks(_context: *const ucontext_t) -> bool {
    false
}

/// The same of an instruction's bytes (Intel SDM, volume 2, 2.1.1): a LOCK prefix, or XCHG.
#[cfg(target_arch = "x86_64")]
fn is_locked(code: &[u8]) -> bool {
    let mut code = code.iter();
    let opcode = loop {
        match code.next() {
            Some(0xf0) => return true,
            Some(0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f) => {}
            other => break other,
        }
    };
    matches!(opcode, Some(0x86 | 0x87))
}

/// # Safety
/// As for [`is_ours`].
#[cfg(target_arch = "x86_64")]
unsafe fn interrupted(context: *const ucontext_t) -> Interrupted {
    // SAFETY: a context of this thread's, as the caller has it.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    Interrupted {
        pc: registers[libc::REG_RIP as usize] as u64,
        stack_pointer: registers[libc::REG_RSP as usize] as u64,
        frame_pointer: registers[libc::REG_RBP as usize] as u64,
    }
}

/// # Safety
/// As for [`is_ours`].
#[cfg(target_arch = "x86_64")]
unsafe fn is_write(context: *const ucontext_t) -> bool {
    /// Of a page fault's error code.
    const WRITE: i64 = 2;
    // SAFETY: as in `interrupted`.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0 }
}

/// Of the flags' register.
#[cfg(target_arch = "x86_64")]
const TRAP: i64 = 0x100;

/// Whether the thread stops after the context's next instruction.
///
/// # Safety
/// As for [`is_ours`].
#[cfg(target_arch = "x86_64")]
unsafe fn has_trap_flag(context: *const ucontext_t) -> bool {
    // SAFETY: as in `interrupted`.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_EFL as usize] & TRAP != 0 }
}

/// # Safety
/// As for [`is_ours`].
#[cfg(target_arch = "x86_64")]
unsafe fn set_trap_flag(context: *mut ucontext_t, on: bool) {
    // SAFETY: as in `interrupted`.
    let flags = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_EFL as usize] };
    if on {
        *flags |= TRAP;
    } else {
        *flags &= !TRAP;
    }
}

#[cfg(target_arch = "aarch64")]
unsafe fn interrupted(context: *const ucontext_t) -> Interrupted {
    // SAFETY: a context of this thread's, as the caller has it.
    let machine = unsafe { &(*context).uc_mcontext };
    Interrupted {
        pc: machine.pc,
        stack_pointer: machine.sp,
        frame_pointer: machine.regs[29],
        link: machine.regs[30],
    }
}

/// Without the record that tells, an access is taken for a read, which is what most are.
#[cfg(target_arch = "aarch64")]
unsafe fn is_write(context: *const ucontext_t) -> bool {
    /// Where the records begin in the machine's context, how long they are in all, and the
    /// number and the bit that are looked for (asm/sigcontext.h, ESR_ELx_WNR).
    const RECORDS: usize = 288;
    const SIZE: usize = 4096;
    const ESR: u32 = 0x4553_5201;
    const WRITE: u64 = 1 << 6;
    // SAFETY: as in `interrupted`.
    let start = unsafe { (&raw const (*context).uc_mcontext).cast::<u8>() };
    let mut at = RECORDS;
    while at + 16 <= RECORDS + SIZE {
        // SAFETY: inside the records, each of which begins with its number and its size.
        let (number, size) = unsafe {
            let head = start.add(at).cast::<u32>();
            (head.read(), head.add(1).read() as usize)
        };
        if number == ESR {
            // SAFETY: as above; the value follows.
            return unsafe { start.add(at + 8).cast::<u64>().read() } & WRITE != 0;
        }
        if number == 0 || size < 16 {
            break;
        }
        at += size;
    }
    false
}

#[cfg(target_arch = "aarch64")]
unsafe fn has_trap_flag(_context: *const ucontext_t) -> bool {
    false
}

#[cfg(target_arch = "aarch64")]
unsafe fn set_trap_flag(_context: *mut ucontext_t, _on: bool) {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn what_locks_memory_is_told_from_its_bytes() {
        // lock cmpxchg [rdi], edx; lock xadd; xchg [rdi], eax; rex.w xchg; 16 bits wide.
        let locked: [&[u8]; 5] = [
            &[0xf0, 0x0f, 0xb1, 0x17],
            &[0x66, 0xf0, 0x0f, 0xc1, 0x07],
            &[0x87, 0x07],
            &[0x48, 0x87, 0x07],
            &[0x66, 0x87, 0x07],
        ];
        assert!(locked.iter().all(|code| is_locked(code)));
        // mov [rdi], eax; add [rdi], eax; rep movsb; movdqu.
        let plain: [&[u8]; 4] = [
            &[0x89, 0x07],
            &[0x01, 0x07],
            &[0xf3, 0xa4],
            &[0xf3, 0x0f, 0x6f, 0x07],
        ];
        assert!(!plain.iter().any(|code| is_locked(code)));
        assert!(!is_locked(&[]));
    }
}
