//! The way to the driver: `dlopen("libcuda.so.1")`, `cuGetProcAddress_v2`, and nothing but pointers from there.

use crate::abi::{AccessDesc, Copy2d, In, LaunchConfig, Location, Out, PoolProps, Status, Text};
use crate::error::{INSUFFICIENT_DRIVER, NOT_SUPPORTED};
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// The interface version that every function is asked for.
pub(crate) const VERSION: i32 = 13_000;

/// `CU_GET_PROC_ADDRESS_DEFAULT` and `…_PER_THREAD_DEFAULT_STREAM`: one pointer of each flavour is kept.
const FLAVOURS: [u64; 2] = [0, 2];

type GetProcAddress = extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut u32) -> u32;

/// Declares the driver functions used here, as methods whose first argument picks the flavour.
macro_rules! driver {
    ($( $name:ident($($arg:ident: $type:ty),*); )*) => {
        /// The driver's functions, in both flavours.
        #[allow(non_snake_case, reason = "NVIDIA's names")]
        pub(crate) struct Driver {
            pub(crate) get_proc_address: GetProcAddress,
            $( $name: [Option<extern "C" fn($($type),*) -> u32>; 2], )*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "NVIDIA's names and signatures")]
        impl Driver {
            fn load(get_proc_address: GetProcAddress) -> Self {
                Self {
                    get_proc_address,
                    $( $name: FLAVOURS.map(|flags| {
                        let symbol = concat!(stringify!($name), "\0");
                        let mut found = std::ptr::null_mut();
                        let code = get_proc_address(symbol.as_ptr().cast(), &mut found, VERSION, flags,
                                                    std::ptr::null_mut());
                        // SAFETY: the driver's function of this name, version and flavour has this signature.
                        (code == 0 && !found.is_null()).then(|| unsafe {
                            std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) -> u32>(found)
                        })
                    }), )*
                }
            }

            $( pub(crate) fn $name(&self, per_thread: bool, $($arg: $type),*) -> Status {
                match self.$name[usize::from(per_thread)] {
                    Some(function) => match function($($arg),*) {
                        0 => Ok(()),
                        code => Err(code),
                    },
                    None => Err(NOT_SUPPORTED),
                }
            } )*
        }
    };
}

type Handle = u64;
type Function = Option<extern "C" fn(*mut c_void)>;
type Callback = Option<extern "C" fn(u64, u32, *mut c_void)>;

driver! {
    cuInit(flags: u32);
    cuDriverGetVersion(version: Out<i32>);
    cuDeviceGetCount(count: Out<i32>);
    cuDeviceGetName(name: Out<c_char>, length: i32, device: i32);
    cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32);
    cuDeviceTotalMem(bytes: Out<usize>, device: i32);
    cuDeviceGetAttribute(value: Out<i32>, which: u32, device: i32);
    cuDeviceGetPCIBusId(text: Out<c_char>, length: i32, device: i32);
    cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32);
    cuDeviceGetP2PAttribute(value: Out<i32>, which: u32, device: i32, peer: i32);
    cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32);
    cuDevicePrimaryCtxReset(device: i32);
    cuDevicePrimaryCtxSetFlags(device: i32, flags: u32);
    cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>);
    cuCtxGetCurrent(context: Out<Handle>);
    cuCtxSetCurrent(context: Handle);
    cuCtxGetDevice(device: Out<i32>, context: Handle);
    cuCtxSynchronize(context: Handle);
    cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>);
    cuCtxGetLimit(value: Out<usize>, which: u32);
    cuCtxSetLimit(which: u32, value: usize);
    cuCtxEnablePeerAccess(peer: Handle, flags: u32);
    cuCtxDisablePeerAccess(peer: Handle);

    cuStreamCreate(stream: Out<Handle>, flags: u32);
    cuStreamCreateWithPriority(stream: Out<Handle>, flags: u32, priority: i32);
    cuStreamDestroy(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    cuStreamGetFlags(stream: Handle, flags: Out<u32>);
    cuStreamGetPriority(stream: Handle, priority: Out<i32>);
    cuStreamGetId(stream: Handle, id: Out<u64>);
    cuStreamGetDevice(stream: Handle, device: Out<i32>);
    cuStreamAttachMemAsync(stream: Handle, address: u64, length: usize, flags: u32);
    cuStreamAddCallback(stream: Handle, callback: Callback, data: *mut c_void, flags: u32);
    cuLaunchHostFunc(stream: Handle, function: Function, data: *mut c_void);
    cuStreamBeginCapture(stream: Handle, mode: u32);
    cuStreamEndCapture(stream: Handle, graph: *mut c_void);
    cuStreamIsCapturing(stream: Handle, status: Out<u32>);
    cuStreamGetCaptureInfo(stream: Handle, status: Out<u32>, id: *mut c_void, graph: *mut c_void,
                           dependencies: *mut c_void, edges: *mut c_void, count: *mut c_void);
    cuThreadExchangeStreamCaptureMode(mode: Out<u32>);

    cuEventCreate(event: Out<Handle>, flags: u32);
    cuEventDestroy(event: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32);
    cuEventQuery(event: Handle);
    cuEventSynchronize(event: Handle);
    cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle);

    cuMemAlloc(pointer: Out<u64>, size: usize);
    cuMemAllocPitch(pointer: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32);
    cuMemAllocManaged(pointer: Out<u64>, size: usize, flags: u32);
    cuMemFree(address: u64);
    cuMemHostAlloc(pointer: Out<u64>, size: usize, flags: u32);
    cuMemFreeHost(address: u64);
    cuMemHostRegister(address: u64, size: usize, flags: u32);
    cuMemHostUnregister(address: u64);
    cuMemHostGetDevicePointer(pointer: Out<u64>, address: u64, flags: u32);
    cuMemHostGetFlags(flags: Out<u32>, address: u64);
    cuMemGetInfo(free: Out<usize>, total: Out<usize>);
    cuMemAdvise(address: u64, length: usize, advice: u32, location: Location);
    cuMemPrefetchAsync(address: u64, length: usize, location: Location, flags: u32, stream: Handle);
    cuPointerGetAttributes(count: u32, which: In<u32>, out: In<*mut c_void>, address: u64);

    cuMemAllocAsync(pointer: Out<u64>, size: usize, stream: Handle);
    cuMemAllocFromPoolAsync(pointer: Out<u64>, size: usize, pool: Handle, stream: Handle);
    cuMemFreeAsync(address: u64, stream: Handle);
    cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32);
    cuDeviceGetMemPool(pool: Out<Handle>, device: i32);
    cuDeviceSetMemPool(device: i32, pool: Handle);
    cuMemPoolCreate(pool: Out<Handle>, props: In<PoolProps>);
    cuMemPoolDestroy(pool: Handle);
    cuMemPoolTrimTo(pool: Handle, keep: usize);
    cuMemPoolGetAttribute(pool: Handle, which: u32, value: *mut c_void);
    cuMemPoolSetAttribute(pool: Handle, which: u32, value: *mut c_void);
    cuMemPoolSetAccess(pool: Handle, map: In<AccessDesc>, count: usize);
    cuMemPoolGetAccess(flags: Out<u32>, pool: Handle, location: In<Location>);

    cuMemcpy(target: u64, source: u64, length: usize);
    cuMemcpyHtoD(target: u64, source: u64, length: usize);
    cuMemcpyDtoH(target: u64, source: u64, length: usize);
    cuMemcpyDtoD(target: u64, source: u64, length: usize);
    cuMemcpyPeer(target: u64, target_context: Handle, source: u64, source_context: Handle, length: usize);
    cuMemcpy2DUnaligned(copy: In<Copy2d>);
    cuMemcpyAsync(target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyHtoDAsync(target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyDtoHAsync(target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyDtoDAsync(target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyPeerAsync(target: u64, target_context: Handle, source: u64, source_context: Handle, length: usize,
                      stream: Handle);
    cuMemcpy2DAsync(copy: In<Copy2d>, stream: Handle);
    cuMemsetD8(target: u64, value: u8, count: usize);
    cuMemsetD2D8(target: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD8Async(target: u64, value: u8, count: usize, stream: Handle);
    cuMemsetD2D8Async(target: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);

    cuLibraryLoadData(library: Out<Handle>, code: *const c_void, jit: *const c_void, jit_values: *const c_void,
                      jit_count: u32, options: *const c_void, values: *const c_void, count: u32);
    cuLibraryLoadFromFile(library: Out<Handle>, path: Text, jit: *const c_void, jit_values: *const c_void,
                          jit_count: u32, options: *const c_void, values: *const c_void, count: u32);
    cuLibraryUnload(library: Handle);
    cuLibraryGetKernel(kernel: Out<Handle>, library: Handle, name: Text);
    cuLibraryGetGlobal(address: Out<u64>, size: Out<usize>, library: Handle, name: Text);
    cuLibraryGetManaged(address: Out<u64>, size: Out<usize>, library: Handle, name: Text);
    cuLibraryGetKernelCount(count: Out<u32>, library: Handle);
    cuKernelGetFunction(function: Out<Handle>, kernel: Handle);
    cuKernelGetName(name: Out<*const c_char>, kernel: Handle);
    cuKernelGetParamInfo(kernel: Handle, index: usize, offset: Out<usize>, size: Out<usize>);
    cuKernelGetParamCount(kernel: Handle, count: Out<usize>);
    cuKernelGetAttribute(value: Out<i32>, which: u32, kernel: Handle, device: i32);
    cuKernelSetAttribute(which: u32, value: i32, kernel: Handle, device: i32);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, function: Handle, threads: i32,
                                                         shared: usize, flags: u32);
    cuLaunchKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                   shared: u32, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx(config: In<LaunchConfig>, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
                              block_z: u32, shared: u32, stream: Handle, params: *mut *mut c_void);
}

fn open() -> Status<Driver> {
    const LIBRARY: &CStr = c"libcuda.so.1";
    // SAFETY: opens a library by a NUL-terminated name; running its constructors is what the loader is for.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err(INSUFFICIENT_DRIVER);
    }
    // SAFETY: a live handle and a NUL-terminated name.
    let found = unsafe { libc::dlsym(library, c"cuGetProcAddress_v2".as_ptr()) };
    if found.is_null() {
        return Err(INSUFFICIENT_DRIVER);
    }
    // SAFETY: the driver's function of this name has this signature.
    let first = unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(found) };
    // The driver is asked for its own lookup too, and that pointer used from then on.
    let mut own = std::ptr::null_mut();
    let code = first(
        c"cuGetProcAddress".as_ptr(),
        &mut own,
        12_000,
        0,
        std::ptr::null_mut(),
    );
    let get = if code == 0 && !own.is_null() {
        // SAFETY: as of 12.0 this name means the function of this signature.
        unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(own) }
    } else {
        first
    };
    let driver = Driver::load(get);
    driver.cuInit(false, 0)?;
    Ok(driver)
}

/// The driver, opened and initialized by the first caller.
pub(crate) fn driver() -> Status<&'static Driver> {
    static DRIVER: OnceLock<Status<Driver>> = OnceLock::new();
    DRIVER.get_or_init(open).as_ref().map_err(|&code| code)
}
