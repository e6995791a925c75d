//! What nvcc's host code registers: fat binaries, their kernels and variables; loaded through the driver when first
//! wanted.
//!
//! The registry's lock is never held across a driver call: a call may take the loader's lock, under which another
//! thread's constructors register.

use crate::abi::{Out, Status, Text};
use crate::device::ready;
use crate::driver::{Driver, driver};
use crate::error::{INVALID_DEVICE_FUNCTION, INVALID_SYMBOL};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_char, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
struct Name {
    binary: usize,
    name: CString,
}

struct Variable {
    name: Name,
    size: usize,
    /// Where the program keeps the pointer to a managed variable; 0 for any other variable.
    managed: usize,
}

struct Binary {
    wrapper: usize,
    loaded: Option<u64>,
}

#[derive(Default)]
struct Registry {
    binaries: BTreeMap<usize, Binary>,
    functions: HashMap<usize, Name>,
    variables: HashMap<usize, Variable>,
    kernels: HashMap<usize, u64>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
/// The process that registered: a forked child leaves everything alone.
static PROCESS: LazyLock<u32> = LazyLock::new(std::process::id);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's library for a registered binary, loaded at the first use.
fn library(driver: &Driver, binary: usize) -> Status<u64> {
    let wrapper = match registry()
        .binaries
        .get(&binary)
        .ok_or(INVALID_DEVICE_FUNCTION)?
    {
        Binary {
            loaded: Some(library),
            ..
        } => return Ok(*library),
        Binary { wrapper, .. } => *wrapper as *const c_void,
    };
    let none = std::ptr::null();
    let mut loaded = 0;
    driver.cuLibraryLoadData(
        false,
        Out(&mut loaded),
        wrapper,
        none,
        none,
        0,
        none,
        none,
        0,
    )?;
    let winner = registry()
        .binaries
        .get_mut(&binary)
        .map(|binary| *binary.loaded.get_or_insert(loaded));
    if winner != Some(loaded) {
        // Another thread was faster, or the binary is gone.
        driver.cuLibraryUnload(false, loaded)?;
    }
    winner.ok_or(INVALID_DEVICE_FUNCTION)
}

/// The kernel of a registered host function.
pub(crate) fn kernel(driver: &Driver, function: usize) -> Status<u64> {
    let name = {
        let registry = registry();
        if let Some(&kernel) = registry.kernels.get(&function) {
            return Ok(kernel);
        }
        registry.functions.get(&function).cloned()
    };
    // `cudaLaunchKernel` and its like also take a kernel handle itself.
    let Some(name) = name else {
        return is_kernel(driver, function as u64);
    };
    let library = library(driver, name.binary)?;
    let mut kernel = 0;
    driver
        .cuLibraryGetKernel(false, Out(&mut kernel), library, Text(name.name.as_ptr()))
        .map_err(|_| INVALID_DEVICE_FUNCTION)?;
    registry().kernels.insert(function, kernel);
    Ok(kernel)
}

/// The host function that a kernel was registered for, or what came in if it was for none.
pub(crate) fn function_of(kernel: u64) -> u64 {
    let registry = registry();
    let mut known = registry.kernels.iter();
    known
        .find(|&(_, &known)| known == kernel)
        .map_or(kernel, |(&function, _)| function as u64)
}

fn is_kernel(driver: &Driver, handle: u64) -> Status<u64> {
    let mut name = std::ptr::null();
    driver
        .cuKernelGetName(false, Out(&mut name), handle)
        .map_err(|_| INVALID_DEVICE_FUNCTION)?;
    Ok(handle)
}

/// Address and size of a registered variable on the current device.
pub(crate) fn variable(driver: &Driver, symbol: usize) -> Status<(u64, usize)> {
    let (name, managed) = {
        let registry = registry();
        let variable = registry.variables.get(&symbol).ok_or(INVALID_SYMBOL)?;
        (variable.name.clone(), variable.managed != 0)
    };
    let library = library(driver, name.binary)?;
    let (mut address, mut size) = (0, 0);
    let (out, length, text) = (Out(&mut address), Out(&mut size), Text(name.name.as_ptr()));
    let found = if managed {
        driver.cuLibraryGetManaged(false, out, length, library, text)
    } else {
        driver.cuLibraryGetGlobal(false, out, length, library, text)
    };
    found.map_err(|_| INVALID_SYMBOL)?;
    let registered = registry()
        .variables
        .get(&symbol)
        .map_or(0, |variable| variable.size);
    Ok((address, size.max(registered)))
}

/// Points the program's managed variables at their memory.
fn place_managed(driver: &Driver, binary: usize) -> Status {
    let managed: Vec<(usize, usize)> = registry()
        .variables
        .iter()
        .filter(|(_, variable)| variable.name.binary == binary && variable.managed != 0)
        .map(|(&symbol, variable)| (symbol, variable.managed))
        .collect();
    for (symbol, pointer) in managed {
        let (address, _) = variable(driver, symbol)?;
        Out(pointer as *mut u64).put(address)?;
    }
    Ok(())
}

/// Before a device reset: what was loaded is unloaded, to be loaded again when wanted.
pub(crate) fn forget_loaded(driver: &Driver) {
    let libraries: Vec<u64> = {
        let mut registry = registry();
        registry.kernels.clear();
        registry
            .binaries
            .values_mut()
            .filter_map(|binary| binary.loaded.take())
            .collect()
    };
    for library in libraries {
        // A library that the driver no longer knows is as good as unloaded.
        let _ = driver.cuLibraryUnload(false, library);
    }
}

fn register(binary: *mut usize, host: usize, name: Text) -> Option<Name> {
    let name = CString::new(name.get().ok()?).ok()?;
    // SAFETY: host code passes back the handle that `__cudaRegisterFatBinary` made.
    let binary = unsafe { binary.as_ref() }?;
    (host != 0).then_some(Name {
        binary: *binary,
        name,
    })
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(wrapper: usize) -> *mut usize {
    LazyLock::force(&PROCESS);
    let mut registry = registry();
    let number = registry
        .binaries
        .keys()
        .next_back()
        .map_or(1, |last| last + 1);
    registry.binaries.insert(
        number,
        Binary {
            wrapper,
            loaded: None,
        },
    );
    // Freed by nobody: host code may ask for it until the process ends.
    Box::leak(Box::new(number))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_binary: *mut usize) {}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(binary: *mut usize) {
    if *PROCESS != std::process::id() {
        return;
    }
    // SAFETY: host code passes back the handle that `__cudaRegisterFatBinary` made.
    let Some(&number) = (unsafe { binary.as_ref() }) else {
        return;
    };
    let library = {
        let mut registry = registry();
        let gone: Vec<usize> = registry
            .functions
            .iter()
            .filter(|(_, name)| name.binary == number)
            .map(|(&host, _)| host)
            .collect();
        for host in gone {
            registry.functions.remove(&host);
            registry.kernels.remove(&host);
        }
        registry
            .variables
            .retain(|_, variable| variable.name.binary != number);
        registry
            .binaries
            .remove(&number)
            .and_then(|binary| binary.loaded)
    };
    if let (Some(library), Ok(driver)) = (library, driver()) {
        // At exit there is nobody left to tell.
        let _ = driver.cuLibraryUnload(false, library);
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(
    binary: *mut usize,
    host: usize,
    _device: *mut c_char,
    name: Text,
    _thread_limit: i32,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp: *mut i32,
) {
    if let Some(name) = register(binary, host, name) {
        registry().functions.insert(host, name);
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(
    binary: *mut usize,
    host: usize,
    _device: *mut c_char,
    name: Text,
    _external: i32,
    size: usize,
    _constant: i32,
    _global: i32,
) {
    if let Some(name) = register(binary, host, name) {
        registry().variables.insert(
            host,
            Variable {
                name,
                size,
                managed: 0,
            },
        );
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterManagedVar(
    binary: *mut usize,
    pointer: usize,
    _device: *mut c_char,
    name: Text,
    _external: i32,
    size: usize,
    _constant: i32,
    _global: i32,
) {
    if let Some(name) = register(binary, pointer, name) {
        registry().variables.insert(
            pointer,
            Variable {
                name,
                size,
                managed: pointer,
            },
        );
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterHostVar() {}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterUnifiedTable() {}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(binary: *mut usize) -> c_char {
    // SAFETY: host code passes back the handle that `__cudaRegisterFatBinary` made.
    let Some(&number) = (unsafe { binary.as_ref() }) else {
        return 0;
    };
    let placed = ready().and_then(|driver| place_managed(driver, number));
    c_char::from(crate::export::finish(placed) == 0)
}
