//! A driver that cannot be asked about kernels, as those before 12.3 and 12.4 cannot: `SIMCUDA_PARAM_INFO=0` takes
//! their names and parameter layouts away. The functions are then neither found by `cuGetProcAddress` nor by `dlsym`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::LazyLock;

const NEWER: [&str; 6] = [
    "cuFuncGetName",
    "cuKernelGetName",
    "cuFuncGetParamInfo",
    "cuKernelGetParamInfo",
    "cuFuncGetParamCount",
    "cuKernelGetParamCount",
];

static OLD: LazyLock<bool> = LazyLock::new(|| super::environment("SIMCUDA_PARAM_INFO") == Some(0));

/// Whether this driver is too old to have the function.
pub(super) fn lacks(symbol: &str) -> bool {
    *OLD && NEWER.contains(&symbol)
}

#[used]
// SAFETY: a function of the type that the loader calls.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    if *OLD {
        for name in NEWER {
            for entry in super::ENTRIES.get(name).into_iter().flatten() {
                hide(name, entry.legacy);
            }
        }
    }
}

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// Makes the export at `address` an undefined symbol, which the loader passes over.
fn hide(name: &str, address: usize) {
    const RTLD_DL_SYMENT: c_int = 1;
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let mut symbol: *mut c_void = std::ptr::null_mut();
    // SAFETY: both places are writable; the answer is this library's own symbol, if any.
    let found = unsafe {
        dladdr1(
            address as *const c_void,
            &mut info,
            &mut symbol,
            RTLD_DL_SYMENT,
        )
    };
    if found == 0 || symbol.is_null() || info.dli_sname.is_null() {
        return;
    }
    // SAFETY: not null, so the loader's text.
    let own_name = unsafe { CStr::from_ptr(info.dli_sname) };
    if own_name.to_bytes() != name.as_bytes() {
        return;
    }
    let symbol = symbol.cast::<libc::Elf64_Sym>();
    // SAFETY: no conditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = symbol as usize & !(page - 1);
    let length = symbol as usize + size_of::<libc::Elf64_Sym>() - start;
    // SAFETY: these pages are this library's symbol table, which nobody else is reading: it is being loaded.
    unsafe {
        if libc::mprotect(
            start as *mut c_void,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
        ) == 0
        {
            (*symbol).st_value = 0;
            (*symbol).st_shndx = 0;
            libc::mprotect(start as *mut c_void, length, libc::PROT_READ);
        }
    }
}
