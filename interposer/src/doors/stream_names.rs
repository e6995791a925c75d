//! The names that an application gives its streams with NVTX.
//!
//! NVTX is headers only. Each object that holds it asks one tool to take its calls in:
//! the library that `NVTX_INJECTION64_PATH` names (nvtxDetail/nvtxInit.h). Who sets it
//! to this library gets the names; a profiler that has set it keeps it.

use core::ffi::{CStr, c_char, c_void};
use std::borrow::Cow;

use crate::call::Call;
use crate::hook::{Door, Hook};
use crate::thread;
use crate::{call, recorder};

/// `NvtxExportTableCallbacks` (nvtxDetail/nvtxTypes.h).
#[repr(C)]
struct Callbacks {
    size: usize,
    functions: Option<unsafe extern "C" fn(u32, *mut Table, *mut u32) -> i32>,
}

/// A module's functions, by number: each a place that holds the function's address.
type Table = *const *mut *const c_void;

type GetTable = unsafe extern "C" fn(u32) -> *const c_void;

/// What the names are recorded as. These are in no table of hooks, so nothing is
/// exchanged for their entry, and it is never called.
static RUNTIME: Hook = Hook::new(c"nvtxNameCudaStream", Door::Runtime, no_entry);
static DRIVER: Hook = Hook::new(c"nvtxNameCuStream", Door::Driver, no_entry);

unsafe extern "C" fn no_entry() {}

/// The entry by which NVTX attaches a tool. 0 leaves NVTX as if there were none.
#[unsafe(no_mangle)]
unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<GetTable>) -> i32 {
    // SAFETY: NVTX passes its own function.
    call::quietly(|| unsafe { attach(get?) })
        .flatten()
        .map_or(0, |()| 1)
}

/// # Safety
/// `get` is NVTX's.
unsafe fn attach(get: GetTable) -> Option<()> {
    /// `NvtxExportTableID`, `NvtxCallbackModule` and `NvtxCallbackIdCuda`, `…CudaRt`
    /// (nvtxDetail/nvtxTypes.h).
    const CALLBACKS: u32 = 1;
    const CUDA: u32 = 2;
    const CUDART: u32 = 4;
    let entries: [(u32, usize, *const c_void); 4] = [
        (CUDA, 5, driver_narrow as *const c_void),
        (CUDA, 6, driver_wide as *const c_void),
        (CUDART, 3, runtime_narrow as *const c_void),
        (CUDART, 4, runtime_wide as *const c_void),
    ];
    // SAFETY: the caller's promise; the table lives as long as NVTX's object.
    let callbacks = unsafe { get(CALLBACKS).cast::<Callbacks>().as_ref() }?;
    if callbacks.size < size_of::<Callbacks>() {
        return None;
    }
    let functions = callbacks.functions?;
    for (module, number, function) in entries {
        let (mut table, mut count) = (core::ptr::null(), 0);
        // SAFETY: the table says that it has this function; it writes both. Entries
        // below the count are null or the place of a function.
        unsafe {
            if functions(module, &mut table, &mut count) == 1 && number < count as usize {
                let place = table.add(number).read();
                if !place.is_null() {
                    place.write(function);
                }
            }
        }
    }
    Some(())
}

unsafe extern "C" fn runtime_narrow(stream: usize, name: *const c_char) {
    // SAFETY: the application's name.
    named(&RUNTIME, stream, || unsafe { narrow(name) });
}

unsafe extern "C" fn runtime_wide(stream: usize, name: *const u32) {
    // SAFETY: the application's name.
    named(&RUNTIME, stream, || unsafe { wide(name) });
}

unsafe extern "C" fn driver_narrow(stream: usize, name: *const c_char) {
    // SAFETY: the application's name.
    named(&DRIVER, stream, || unsafe { narrow(name) });
}

unsafe extern "C" fn driver_wide(stream: usize, name: *const u32) {
    // SAFETY: the application's name.
    named(&DRIVER, stream, || unsafe { wide(name) });
}

fn named<'a>(hook: &'static Hook, stream: usize, name: impl FnOnce() -> Option<Cow<'a, str>>) {
    if let Some(call) = Call::enter(hook, thread::block().origin()) {
        call.finish(|call| {
            if let Some(name) = name() {
                recorder::stream_named(call, call.stream(stream), &name);
            }
        });
    }
}

/// # Safety
/// `name` is null or ends with a zero.
unsafe fn narrow<'a>(name: *const c_char) -> Option<Cow<'a, str>> {
    // SAFETY: the caller's promise.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

/// # Safety
/// `name` is null or ends with a zero.
unsafe fn wide<'a>(name: *const u32) -> Option<Cow<'a, str>> {
    if name.is_null() {
        return None;
    }
    let mut text = String::new();
    for index in 0.. {
        // SAFETY: the caller's promise; nothing behind the zero is read.
        match unsafe { name.add(index).read() } {
            0 => break,
            value => text.push(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }
    Some(Cow::Owned(text))
}
