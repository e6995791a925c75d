//! Attributes of memory that change how copies and fills of it wait.

use crate::hook::hooks;
use crate::{capture, driver, sync_memops};

/// The allocation around an address: its first byte and the one after its last.
fn range(address: u64) -> (u64, u64) {
    type GetRange = unsafe extern "C-unwind" fn(*mut u64, *mut usize, u64) -> u32;
    let (mut base, mut size) = (0, 0);
    if let Some(get) = driver::unhooked(c"cuMemGetAddressRange_v2")
        && !capture::any()
    {
        // SAFETY: the type is cuda.h's; it writes both.
        let status = unsafe {
            core::mem::transmute::<*const (), GetRange>(get)(&mut base, &mut size, address)
        };
        if status == 0 && size != 0 {
            return (base, base.saturating_add(size as u64));
        }
    }
    (address, address.saturating_add(1))
}

hooks! { Driver:
    /// Synchronous copies and fills of that memory wait, if it sets SYNC_MEMOPS
    fn cuPointerSetAttribute: (value: *const u32, attribute: u32, address: u64) after(call) {
        const SYNC_MEMOPS: u32 = 6;
        let _ = call;
        if attribute == SYNC_MEMOPS && !value.is_null() {
            let (start, end) = range(address);
            // SAFETY: the call succeeded with a value of this attribute, a boolean
            // of four bytes.
            sync_memops::memory(start, end, unsafe { *value } != 0);
        }
    }
}
