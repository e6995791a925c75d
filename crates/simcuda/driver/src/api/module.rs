//! Modules, libraries, functions, kernels: one table serves `CUmodule` and `CUlibrary`, another `CUfunction` and
//! `CUkernel`, so that a kernel can be launched where a function is wanted, as the driver allows.

use crate::abi::{Out, Status, Text};
use crate::error::{
    FILE_NOT_FOUND, INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED,
};
use crate::image::Image;
use crate::sim::dma;
use crate::sim::memory::Kind;
use crate::sim::session::{Session, session};
use crate::sim::state::{Function, KernelBody, Library};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;

/// What a program calls the host function of kernel `NAME`.
const BODY_PREFIX: &str = "simcuda_kernel_";

/// Loads an image, into the current context for a module.
fn load(handle: Out<u64>, code: *const u8, module: bool) -> Status {
    handle.wanted()?;
    if code.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's contract with `cuModuleLoadData` and its like.
    let image = unsafe { Image::load(code) }.ok_or(INVALID_IMAGE)?;
    session(|s| {
        let context = if module { Some(s.context(0)?.0) } else { None };
        let image = Arc::new(image);
        let library = Library {
            image,
            context,
            functions: HashMap::new(),
            globals: HashMap::new(),
        };
        let added = s.libraries.insert(library);
        handle.put(added)
    })
}

fn load_file(handle: Out<u64>, path: Text, module: bool) -> Status {
    let mut bytes = std::fs::read(path.get()?).map_err(|_| FILE_NOT_FOUND)?;
    bytes.push(0);
    load(handle, bytes.as_ptr(), module)
}

fn unload(handle: u64, module: bool) -> Status {
    session(|s| {
        if s.libraries
            .get(handle)
            .ok_or(INVALID_HANDLE)?
            .context
            .is_some()
            != module
        {
            return Err(INVALID_HANDLE);
        }
        let library = s.libraries.remove(handle).ok_or(INVALID_HANDLE)?;
        for function in library.functions.into_values() {
            s.functions.remove(function);
        }
        for (address, _) in library.globals.into_values() {
            if let Ok(allocation) =
                s.forget(address, |kind| matches!(kind, Kind::Static | Kind::Managed))
            {
                s.release(address, &allocation, None);
            }
        }
        Ok(())
    })
}

/// The function that the program exports as the kernel's body. Asked for without the machine's lock: the loader has a
/// lock of its own, under which constructors may call CUDA.
fn body_of(name: &str) -> Option<KernelBody> {
    let symbol = CString::new(format!("{BODY_PREFIX}{name}")).ok()?;
    // SAFETY: a NUL-terminated name, looked up in the global scope.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    // SAFETY: a program that exports this name promises this signature (see the README).
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, KernelBody>(found) })
}

fn function(out: Out<u64>, library: u64, name: Text) -> Status {
    out.wanted()?;
    let name = name.get()?;
    let body = body_of(name);
    session(|s| {
        let owner = s.libraries.get(library).ok_or(INVALID_HANDLE)?;
        let handle = match owner.functions.get(name) {
            Some(&handle) => handle,
            None => {
                let layout = owner.image.layout(name).ok_or(NOT_FOUND)?;
                let c_name = CString::new(name).map_err(|_| INVALID_VALUE)?;
                let function = Function {
                    loaded_from: library,
                    name: c_name,
                    layout,
                    body,
                    max_dynamic_shared: 0,
                    prepared: Default::default(),
                };
                let handle = s.functions.insert(function);
                if let Some(owner) = s.libraries.get_mut(library) {
                    owner.functions.insert(name.to_owned(), handle);
                }
                handle
            }
        };
        out.put(handle)
    })
}

/// A variable's memory on the current device, made at the first call.
fn global(address: Out<u64>, size: Out<usize>, library: u64, name: Text, kind: Kind) -> Status {
    let name = name.get()?;
    session(|s| {
        let device = s.current_device()?;
        let owner = s.libraries.get(library).ok_or(INVALID_HANDLE)?;
        // A managed variable is one for all devices.
        let key = (
            name.to_owned(),
            if kind == Kind::Managed { -1 } else { device },
        );
        let (at, length) = match owner.globals.get(&key) {
            Some(&found) => found,
            None => {
                let global = owner.image.globals.get(name).ok_or(NOT_FOUND)?.clone();
                let at = s.allocate(global.size as u64, kind)?;
                dma::fill(at, &[0], global.size);
                dma::write(at, &global.init);
                if let Some(owner) = s.libraries.get_mut(library) {
                    owner.globals.insert(key, (at, global.size));
                }
                (at, global.size)
            }
        };
        address.put_if_wanted(at);
        size.put_if_wanted(length);
        Ok(())
    })
}

fn with_function<T>(
    handle: u64,
    read: impl FnOnce(&mut Session, &Function) -> Status<T>,
) -> Status<T> {
    session(|s| {
        let function = s.functions.get(handle).ok_or(INVALID_HANDLE)?;
        let copy = Function {
            name: function.name.clone(),
            prepared: Default::default(),
            layout: function.layout.clone(),
            ..*function
        };
        read(s, &copy)
    })
}

/// Past the last parameter an invalid value, as the real call; with no layout known, not supported.
fn param_info(handle: u64, index: usize, offset: Out<usize>, size: Out<usize>) -> Status {
    with_function(handle, |_, function| {
        let layout = function.layout.as_ref().ok_or(NOT_SUPPORTED)?;
        let param = layout.get(index).ok_or(INVALID_VALUE)?;
        offset.put(param.offset)?;
        size.put_if_wanted(param.size);
        Ok(())
    })
}

fn param_count(handle: u64, count: Out<usize>) -> Status {
    with_function(handle, |_, function| {
        count.put(function.layout.as_ref().ok_or(NOT_SUPPORTED)?.len())
    })
}

/// Function names live as long as the function: that of the table, not a copy.
fn name(out: Out<*const c_char>, handle: u64) -> Status {
    session(|s| {
        let text: &CStr = &s.functions.get(handle).ok_or(INVALID_HANDLE)?.name;
        out.put(text.as_ptr())
    })
}

fn attribute(value: Out<i32>, which: u32, handle: u64) -> Status {
    with_function(handle, |_, function| {
        value.put(match which {
            0 => 1024,   // threads per block
            4 => 32,     // registers
            5 | 6 => 90, // PTX and binary version
            8 => function.max_dynamic_shared,
            9 => -1, // carve-out: the driver's choice
            1 | 2 | 3 | 7 | 10..=15 => 0,
            _ => return Err(INVALID_VALUE),
        })
    })
}

fn set_attribute(which: u32, value: i32, handle: u64) -> Status {
    session(|s| {
        let function = s.functions.get_mut(handle).ok_or(INVALID_HANDLE)?;
        match which {
            8 if (0..=227 << 10).contains(&value) => function.max_dynamic_shared = value,
            9..=15 => {}
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

/// Resident blocks of one multiprocessor: 2048 threads, 32 blocks, 228 KiB of shared memory.
fn resident(blocks: Out<i32>, handle: u64, threads: i32, shared: usize) -> Status {
    with_function(handle, |_, _| {
        let threads = usize::try_from(threads)
            .ok()
            .filter(|&threads| threads > 0)
            .ok_or(INVALID_VALUE)?;
        let by_threads = if threads > 1024 {
            0
        } else {
            2048 / threads.next_multiple_of(32)
        };
        let by_shared = (228 << 10) / (shared + 1024);
        blocks.put(by_threads.min(by_shared).min(32) as i32)
    })
}

api! {
    "cuModuleLoad" 2000 => cuModuleLoad(module: Out<u64>, path: Text) { load_file(module, path, true) }
    "cuModuleLoadData" 2000 => cuModuleLoadData(module: Out<u64>, code: *const u8) { load(module, code, true) }
    "cuModuleLoadDataEx" 2010 => cuModuleLoadDataEx(module: Out<u64>, code: *const u8, _count: u32,
                                                    _options: *const c_void, _values: *const c_void) {
        load(module, code, true)
    }
    "cuModuleLoadFatBinary" 2000 => cuModuleLoadFatBinary(module: Out<u64>, code: *const u8) {
        load(module, code, true)
    }
    "cuModuleUnload" 2000 => cuModuleUnload(module: u64) { unload(module, true) }
    "cuModuleGetFunction" 2000 => cuModuleGetFunction(out: Out<u64>, module: u64, name: Text) {
        function(out, module, name)
    }
    "cuModuleGetGlobal" 3020 => cuModuleGetGlobal_v2(address: Out<u64>, size: Out<usize>, module: u64, name: Text) {
        global(address, size, module, name, Kind::Static)
    }
    "cuModuleGetLoadingMode" 11070 => cuModuleGetLoadingMode(mode: Out<u32>) { mode.put(2) }

    "cuLibraryLoadData" 12000 => cuLibraryLoadData(library: Out<u64>, code: *const u8, _jit: *const c_void,
                                                   _jit_values: *const c_void, _jit_count: u32,
                                                   _options: *const c_void, _values: *const c_void, _count: u32) {
        load(library, code, false)
    }
    "cuLibraryLoadFromFile" 12000 => cuLibraryLoadFromFile(library: Out<u64>, path: Text, _jit: *const c_void,
                                                           _jit_values: *const c_void, _jit_count: u32,
                                                           _options: *const c_void, _values: *const c_void,
                                                           _count: u32) {
        load_file(library, path, false)
    }
    "cuLibraryUnload" 12000 => cuLibraryUnload(library: u64) { unload(library, false) }
    "cuLibraryGetKernel" 12000 => cuLibraryGetKernel(out: Out<u64>, library: u64, name: Text) {
        function(out, library, name)
    }
    "cuLibraryGetModule" 12000 => cuLibraryGetModule(out: Out<u64>, library: u64) {
        session(|s| {
            s.libraries.get(library).ok_or(INVALID_HANDLE)?;
            out.put(library)
        })
    }
    "cuLibraryGetGlobal" 12000 => cuLibraryGetGlobal(address: Out<u64>, size: Out<usize>, library: u64, name: Text) {
        global(address, size, library, name, Kind::Static)
    }
    "cuLibraryGetManaged" 12000 => cuLibraryGetManaged(address: Out<u64>, size: Out<usize>, library: u64, name: Text) {
        global(address, size, library, name, Kind::Managed)
    }
    "cuLibraryGetKernelCount" 12040 => cuLibraryGetKernelCount(count: Out<u32>, library: u64) {
        session(|s| count.put(s.libraries.get(library).ok_or(INVALID_HANDLE)?.image.kernels.len() as u32))
    }

    "cuKernelGetFunction" 12000 => cuKernelGetFunction(out: Out<u64>, kernel: u64) {
        with_function(kernel, |_, _| out.put(kernel))
    }
    "cuKernelGetLibrary" 12050 => cuKernelGetLibrary(out: Out<u64>, kernel: u64) {
        with_function(kernel, |_, function| out.put(function.loaded_from))
    }
    "cuKernelGetName" 12030 => cuKernelGetName(out: Out<*const c_char>, kernel: u64) { name(out, kernel) }
    "cuKernelGetParamInfo" 12040 => cuKernelGetParamInfo(kernel: u64, index: usize, offset: Out<usize>,
                                                         size: Out<usize>) {
        param_info(kernel, index, offset, size)
    }
    "cuKernelGetParamCount" 13020 => cuKernelGetParamCount(kernel: u64, count: Out<usize>) {
        param_count(kernel, count)
    }
    "cuKernelGetAttribute" 12000 => cuKernelGetAttribute(value: Out<i32>, which: u32, kernel: u64, device: i32) {
        session(|s| s.device(device).map(|_| ()))?;
        attribute(value, which, kernel)
    }
    "cuKernelSetAttribute" 12000 => cuKernelSetAttribute(which: u32, value: i32, kernel: u64, device: i32) {
        session(|s| s.device(device).map(|_| ()))?;
        set_attribute(which, value, kernel)
    }
    "cuKernelSetCacheConfig" 12000 => cuKernelSetCacheConfig(kernel: u64, _config: u32, _device: i32) {
        with_function(kernel, |_, _| Ok(()))
    }

    "cuFuncGetParamInfo" 12040 => cuFuncGetParamInfo(function: u64, index: usize, offset: Out<usize>,
                                                     size: Out<usize>) {
        param_info(function, index, offset, size)
    }
    "cuFuncGetParamCount" 13020 => cuFuncGetParamCount(function: u64, count: Out<usize>) {
        param_count(function, count)
    }
    "cuFuncGetName" 12030 => cuFuncGetName(out: Out<*const c_char>, function: u64) { name(out, function) }
    "cuFuncGetModule" 11000 => cuFuncGetModule(out: Out<u64>, function: u64) {
        with_function(function, |_, function| out.put(function.loaded_from))
    }
    "cuFuncGetAttribute" 2020 => cuFuncGetAttribute(value: Out<i32>, which: u32, function: u64) {
        attribute(value, which, function)
    }
    "cuFuncSetAttribute" 9000 => cuFuncSetAttribute(function: u64, which: u32, value: i32) {
        set_attribute(which, value, function)
    }
    "cuFuncSetCacheConfig" 3000 => cuFuncSetCacheConfig(function: u64, _config: u32) {
        with_function(function, |_, _| Ok(()))
    }
    "cuFuncIsLoaded" 12040 => cuFuncIsLoaded(loaded: Out<u32>, function: u64) {
        with_function(function, |_, _| loaded.put(1))
    }
    "cuFuncLoad" 12040 => cuFuncLoad(function: u64) { with_function(function, |_, _| Ok(())) }

    "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050 => cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: u64, threads: i32, shared: usize) {
        resident(blocks, function, threads, shared)
    }
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000 =>
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, function: u64, threads: i32,
                                                             shared: usize, _flags: u32) {
        resident(blocks, function, threads, shared)
    }
    "cuOccupancyMaxPotentialBlockSize" 6050 => cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: u64, _shared_of: *const c_void, _shared: usize, limit: i32) {
        potential(grid, block, function, limit)
    }
    "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000 => cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, function: u64, _shared_of: *const c_void, _shared: usize, limit: i32,
        _flags: u32) {
        potential(grid, block, function, limit)
    }
}

/// The largest block, and as many as fill 132 multiprocessors.
fn potential(grid: Out<i32>, block: Out<i32>, function: u64, limit: i32) -> Status {
    with_function(function, |_, _| {
        let size = if limit > 0 { limit.min(1024) } else { 1024 };
        block.put(size)?;
        grid.put(132 * (2048 / size))
    })
}
