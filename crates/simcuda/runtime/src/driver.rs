//! The way to the driver: `dlopen("libcuda.so.1")`, `cuGetProcAddress_v2`, and nothing but pointers from there.

use crate::abi::{
    AccessDesc, Array3dDescriptor, BatchOperation, Copy2d, Copy3d, CopyAttributes, In,
    LaunchConfig, Location, Out, PoolProps, Status, Text,
};
use crate::error::{INSUFFICIENT_DRIVER, NOT_SUPPORTED};
use crate::graph_params::KernelNode;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// The runtime's own version.
pub(crate) const VERSION: i32 = 13_000;

/// The version that brought the per-thread default stream: older names have their flavour since then.
const PER_THREAD_SINCE: i32 = 7_000;

/// `CU_GET_PROC_ADDRESS_DEFAULT` and `…_PER_THREAD_DEFAULT_STREAM`: one pointer of each flavour is kept.
const FLAVOURS: [u64; 2] = [0, 2];

type GetProcAddress = extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut u32) -> u32;

/// Declares the driver functions used here, each with the version that it is asked for (that of its signature, as
/// NVIDIA's runtime asks), as methods whose first argument picks the flavour.
macro_rules! driver {
    ($( $name:ident $since:literal ($($arg:ident: $type:ty),*); )*) => {
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
                        let since = if flags == 0 { $since } else { PER_THREAD_SINCE.max($since) };
                        let mut found = std::ptr::null_mut();
                        let code = get_proc_address(symbol.as_ptr().cast(), &mut found, since, flags,
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
/// Arrays of nodes, and of the edges from them.
type Nodes = In<Handle>;
type Edges = In<[u8; 8]>;

/// `CUipcMemHandle` and its like: opaque.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle([u8; 64]);

type Function = Option<extern "C" fn(*mut c_void)>;
type Callback = Option<extern "C" fn(u64, u32, *mut c_void)>;

driver! {
    cuInit 2000 (flags: u32);
    cuDriverGetVersion 2020 (version: Out<i32>);
    cuDeviceGetCount 2000 (count: Out<i32>);
    cuDeviceGetName 2000 (name: Out<c_char>, length: i32, device: i32);
    cuDeviceGetUuid 11040 (uuid: Out<[u8; 16]>, device: i32);
    cuDeviceTotalMem 3020 (bytes: Out<usize>, device: i32);
    cuDeviceGetAttribute 2000 (value: Out<i32>, which: u32, device: i32);
    cuDeviceGetPCIBusId 4010 (text: Out<c_char>, length: i32, device: i32);
    cuDeviceCanAccessPeer 4000 (can: Out<i32>, device: i32, peer: i32);
    cuDeviceGetP2PAttribute 8000 (value: Out<i32>, which: u32, device: i32, peer: i32);
    cuDevicePrimaryCtxRetain 7000 (context: Out<Handle>, device: i32);
    cuDevicePrimaryCtxReset 11000 (device: i32);
    cuDevicePrimaryCtxSetFlags 11000 (device: i32, flags: u32);
    cuDevicePrimaryCtxGetState 7000 (device: i32, flags: Out<u32>, active: Out<i32>);
    cuCtxGetCurrent 4000 (context: Out<Handle>);
    cuCtxSetCurrent 4000 (context: Handle);
    cuCtxGetDevice 13000 (device: Out<i32>, context: Handle);
    cuCtxSynchronize 13000 (context: Handle);
    cuCtxPushCurrent 4000 (context: Handle);
    cuCtxPopCurrent 4000 (context: Out<Handle>);
    cuCtxGetId 12000 (context: Handle, id: Out<u64>);
    cuCtxRecordEvent 12050 (context: Handle, event: Handle);
    cuCtxWaitEvent 12050 (context: Handle, event: Handle);
    cuCtxGetDevResource 12040 (context: Handle, resource: *mut c_void, kind: u32);
    cuGreenCtxCreate 12040 (green: Out<Handle>, resources: Handle, device: i32, flags: u32);
    cuGreenCtxDestroy 12040 (green: Handle);
    cuGreenCtxStreamCreate 12050 (stream: Out<Handle>, green: Handle, flags: u32, priority: i32);
    cuGreenCtxRecordEvent 12040 (green: Handle, event: Handle);
    cuGreenCtxWaitEvent 12040 (green: Handle, event: Handle);
    cuGreenCtxGetId 12090 (green: Handle, id: Out<u64>);
    cuGreenCtxGetDevResource 12040 (green: Handle, resource: *mut c_void, kind: u32);
    cuCtxFromGreenCtx 12040 (context: Out<Handle>, green: Handle);
    cuDeviceGetDevResource 12040 (device: i32, resource: *mut c_void, kind: u32);
    cuStreamGetDevResource 13010 (stream: Handle, resource: *mut c_void, kind: u32);
    cuDevSmResourceSplitByCount 12040 (groups: *mut c_void, count: Out<u32>, input: *const c_void,
                                 remaining: *mut c_void, flags: u32, least: u32);
    cuDevResourceGenerateDesc 12040 (descriptor: Out<Handle>, resources: *const c_void, count: u32);
    cuCtxGetStreamPriorityRange 5050 (least: Out<i32>, greatest: Out<i32>);
    cuCtxGetLimit 3010 (value: Out<usize>, which: u32);
    cuCtxSetLimit 3010 (which: u32, value: usize);
    cuCtxEnablePeerAccess 4000 (peer: Handle, flags: u32);
    cuCtxDisablePeerAccess 4000 (peer: Handle);

    cuStreamCreate 2000 (stream: Out<Handle>, flags: u32);
    cuStreamCreateWithPriority 5050 (stream: Out<Handle>, flags: u32, priority: i32);
    cuStreamDestroy 4000 (stream: Handle);
    cuStreamSynchronize 2000 (stream: Handle);
    cuStreamQuery 2000 (stream: Handle);
    cuStreamWaitEvent 3020 (stream: Handle, event: Handle, flags: u32);
    cuStreamGetFlags 5050 (stream: Handle, flags: Out<u32>);
    cuStreamGetPriority 5050 (stream: Handle, priority: Out<i32>);
    cuStreamGetId 12000 (stream: Handle, id: Out<u64>);
    cuStreamGetDevice 12080 (stream: Handle, device: Out<i32>);
    cuStreamAttachMemAsync 6000 (stream: Handle, address: u64, length: usize, flags: u32);
    cuStreamGetAttribute 11000 (stream: Handle, which: u32, value: *mut c_void);
    cuStreamSetAttribute 11000 (stream: Handle, which: u32, value: *const c_void);
    cuStreamCopyAttributes 11000 (target: Handle, source: Handle);
    cuStreamAddCallback 5000 (stream: Handle, callback: Callback, data: *mut c_void, flags: u32);
    cuLaunchHostFunc 10000 (stream: Handle, function: Function, data: *mut c_void);
    cuStreamBeginCapture 10010 (stream: Handle, mode: u32);
    cuStreamBeginCaptureToGraph 12030 (stream: Handle, graph: Handle, nodes: Nodes, edges: Edges, count: usize, mode: u32);
    cuStreamUpdateCaptureDependencies 12030 (stream: Handle, nodes: Nodes, edges: Edges, count: usize, flags: u32);
    cuStreamEndCapture 10000 (stream: Handle, graph: *mut c_void);
    cuStreamIsCapturing 10000 (stream: Handle, status: Out<u32>);
    cuStreamGetCaptureInfo 12030 (stream: Handle, status: Out<u32>, id: *mut c_void, graph: *mut c_void,
                           dependencies: *mut c_void, edges: *mut c_void, count: *mut c_void);
    cuThreadExchangeStreamCaptureMode 10010 (mode: Out<u32>);

    cuGraphCreate 10000 (graph: Out<Handle>, flags: u32);
    cuGraphDestroy 10000 (graph: Handle);
    cuGraphClone 10000 (clone: Out<Handle>, graph: Handle);
    cuGraphNodeFindInClone 10000 (node: Out<Handle>, original: Handle, clone: Handle);
    cuGraphNodeGetType 10000 (node: Handle, kind: Out<u32>);
    cuGraphNodeGetContainingGraph 13010 (node: Handle, graph: Out<Handle>);
    cuGraphNodeGetLocalId 13010 (node: Handle, id: Out<u32>);
    cuGraphNodeGetToolsId 13010 (node: Handle, id: Out<u64>);
    cuGraphGetId 13010 (graph: Handle, id: Out<u32>);
    cuGraphGetNodes 10000 (graph: Handle, nodes: *mut c_void, count: *mut c_void);
    cuGraphGetRootNodes 10000 (graph: Handle, nodes: *mut c_void, count: *mut c_void);
    cuGraphGetEdges 12030 (graph: Handle, from: *mut c_void, to: *mut c_void, edges: *mut c_void, count: *mut c_void);
    cuGraphNodeGetDependencies 12030 (node: Handle, nodes: *mut c_void, edges: *mut c_void, count: *mut c_void);
    cuGraphNodeGetDependentNodes 12030 (node: Handle, nodes: *mut c_void, edges: *mut c_void, count: *mut c_void);
    cuGraphAddDependencies 12030 (graph: Handle, from: Nodes, to: Nodes, edges: Edges, count: usize);
    cuGraphRemoveDependencies 12030 (graph: Handle, from: Nodes, to: Nodes, edges: Edges, count: usize);
    cuGraphDestroyNode 10000 (node: Handle);
    cuGraphDebugDotPrint 11030 (graph: Handle, path: Text, flags: u32);
    cuGraphAddNode 12030 (node: Out<Handle>, graph: Handle, nodes: Nodes, edges: Edges, count: usize, params: *mut c_void);
    cuGraphNodeSetParams 12020 (node: Handle, params: *const c_void);
    cuGraphNodeGetParams 13020 (node: Handle, params: *mut c_void);
    cuGraphAddKernelNode 12000 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, params: In<KernelNode>);
    cuGraphKernelNodeGetParams 12000 (node: Handle, params: Out<KernelNode>);
    cuGraphKernelNodeSetParams 12000 (node: Handle, params: In<KernelNode>);
    cuGraphKernelNodeGetAttribute 11000 (node: Handle, which: u32, value: *mut c_void);
    cuGraphKernelNodeSetAttribute 11000 (node: Handle, which: u32, value: *const c_void);
    cuGraphKernelNodeCopyAttributes 11000 (target: Handle, source: Handle);
    cuGraphAddMemcpyNode 10000 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, params: In<Copy3d>,
                          context: Handle);
    cuGraphMemcpyNodeGetParams 10000 (node: Handle, params: Out<Copy3d>);
    cuGraphMemcpyNodeSetParams 10000 (node: Handle, params: In<Copy3d>);
    cuGraphAddMemsetNode 10000 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, params: *const c_void,
                          context: Handle);
    cuGraphMemsetNodeGetParams 10000 (node: Handle, params: *mut c_void);
    cuGraphMemsetNodeSetParams 10000 (node: Handle, params: *const c_void);
    cuGraphAddHostNode 10000 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, params: *const c_void);
    cuGraphHostNodeGetParams 10000 (node: Handle, params: *mut c_void);
    cuGraphHostNodeSetParams 10000 (node: Handle, params: *const c_void);
    cuGraphAddChildGraphNode 10000 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, child: Handle);
    cuGraphChildGraphNodeGetGraph 10000 (node: Handle, graph: Out<Handle>);
    cuGraphAddEmptyNode 10000 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize);
    cuGraphAddEventRecordNode 11010 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, event: Handle);
    cuGraphEventRecordNodeGetEvent 11010 (node: Handle, event: Out<Handle>);
    cuGraphEventRecordNodeSetEvent 11010 (node: Handle, event: Handle);
    cuGraphAddEventWaitNode 11010 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, event: Handle);
    cuGraphEventWaitNodeGetEvent 11010 (node: Handle, event: Out<Handle>);
    cuGraphEventWaitNodeSetEvent 11010 (node: Handle, event: Handle);
    cuGraphAddExternalSemaphoresSignalNode 11020 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize,
                                            params: *const c_void);
    cuGraphExternalSemaphoresSignalNodeGetParams 11020 (node: Handle, params: *mut c_void);
    cuGraphExternalSemaphoresSignalNodeSetParams 11020 (node: Handle, params: *const c_void);
    cuGraphAddExternalSemaphoresWaitNode 11020 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize,
                                          params: *const c_void);
    cuGraphExternalSemaphoresWaitNodeGetParams 11020 (node: Handle, params: *mut c_void);
    cuGraphExternalSemaphoresWaitNodeSetParams 11020 (node: Handle, params: *const c_void);
    cuGraphAddMemAllocNode 11040 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, params: *mut c_void);
    cuGraphMemAllocNodeGetParams 11040 (node: Handle, params: *mut c_void);
    cuGraphAddMemFreeNode 11040 (node: Out<Handle>, graph: Handle, nodes: Nodes, count: usize, address: u64);
    cuGraphMemFreeNodeGetParams 11040 (node: Handle, address: *mut c_void);
    cuGraphConditionalHandleCreate 12030 (handle: Out<u64>, graph: Handle, context: Handle, value: u32, flags: u32);
    cuDeviceGraphMemTrim 11040 (device: i32);
    cuDeviceGetGraphMemAttribute 11040 (device: i32, which: u32, value: *mut c_void);
    cuDeviceSetGraphMemAttribute 11040 (device: i32, which: u32, value: *mut c_void);
    cuGraphInstantiateWithFlags 11040 (exec: Out<Handle>, graph: Handle, flags: u64);
    cuGraphInstantiateWithParams 12000 (exec: Out<Handle>, graph: Handle, params: *mut c_void);
    cuGraphExecDestroy 10000 (exec: Handle);
    cuGraphExecGetFlags 12000 (exec: Handle, flags: Out<u64>);
    cuGraphExecGetId 13010 (exec: Handle, id: Out<u32>);
    cuGraphExecUpdate 12000 (exec: Handle, graph: Handle, result: *mut c_void);
    cuGraphExecNodeSetParams 12020 (exec: Handle, node: Handle, params: *const c_void);
    cuGraphExecKernelNodeSetParams 12000 (exec: Handle, node: Handle, params: In<KernelNode>);
    cuGraphExecMemcpyNodeSetParams 10020 (exec: Handle, node: Handle, params: In<Copy3d>, context: Handle);
    cuGraphExecMemsetNodeSetParams 10020 (exec: Handle, node: Handle, params: *const c_void, context: Handle);
    cuGraphExecHostNodeSetParams 10020 (exec: Handle, node: Handle, params: *const c_void);
    cuGraphExecChildGraphNodeSetParams 11010 (exec: Handle, node: Handle, child: Handle);
    cuGraphExecEventRecordNodeSetEvent 11010 (exec: Handle, node: Handle, event: Handle);
    cuGraphExecEventWaitNodeSetEvent 11010 (exec: Handle, node: Handle, event: Handle);
    cuGraphExecExternalSemaphoresSignalNodeSetParams 11020 (exec: Handle, node: Handle, params: *const c_void);
    cuGraphExecExternalSemaphoresWaitNodeSetParams 11020 (exec: Handle, node: Handle, params: *const c_void);
    cuGraphNodeSetEnabled 11060 (exec: Handle, node: Handle, enabled: u32);
    cuGraphNodeGetEnabled 11060 (exec: Handle, node: Handle, enabled: Out<u32>);
    cuUserObjectCreate 11030 (object: Out<Handle>, data: *mut c_void, destroy: Function, count: u32, flags: u32);
    cuUserObjectRetain 11030 (object: Handle, count: u32);
    cuUserObjectRelease 11030 (object: Handle, count: u32);
    cuGraphRetainUserObject 11030 (graph: Handle, object: Handle, count: u32, flags: u32);
    cuGraphReleaseUserObject 11030 (graph: Handle, object: Handle, count: u32);
    cuGraphUpload 11010 (exec: Handle, stream: Handle);
    cuGraphLaunch 10000 (exec: Handle, stream: Handle);

    cuEventCreate 2000 (event: Out<Handle>, flags: u32);
    cuEventDestroy 4000 (event: Handle);
    cuEventRecord 2000 (event: Handle, stream: Handle);
    cuEventRecordWithFlags 11010 (event: Handle, stream: Handle, flags: u32);
    cuEventQuery 2000 (event: Handle);
    cuEventSynchronize 2000 (event: Handle);
    cuEventElapsedTime 12080 (milliseconds: Out<f32>, start: Handle, end: Handle);

    cuImportExternalMemory 10000 (memory: Out<Handle>, descriptor: *const c_void);
    cuExternalMemoryGetMappedBuffer 10000 (pointer: Out<u64>, memory: Handle, buffer: *const c_void);
    cuDestroyExternalMemory 10000 (memory: Handle);
    cuImportExternalSemaphore 10000 (semaphore: Out<Handle>, descriptor: *const c_void);
    cuDestroyExternalSemaphore 10000 (semaphore: Handle);
    cuSignalExternalSemaphoresAsync 10000 (semaphores: In<Handle>, params: *const c_void, count: u32, stream: Handle);
    cuWaitExternalSemaphoresAsync 10000 (semaphores: In<Handle>, params: *const c_void, count: u32, stream: Handle);
    cuIpcGetMemHandle 4010 (handle: Out<IpcHandle>, address: u64);
    cuIpcOpenMemHandle 11000 (pointer: Out<u64>, handle: IpcHandle, flags: u32);
    cuIpcCloseMemHandle 4010 (address: u64);
    cuIpcGetEventHandle 4010 (handle: Out<IpcHandle>, event: Handle);
    cuIpcOpenEventHandle 4010 (event: Out<Handle>, handle: IpcHandle);

    cuMemAlloc 3020 (pointer: Out<u64>, size: usize);
    cuMemAllocPitch 3020 (pointer: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32);
    cuMemAllocManaged 6000 (pointer: Out<u64>, size: usize, flags: u32);
    cuMemFree 3020 (address: u64);
    cuMemHostAlloc 2020 (pointer: Out<u64>, size: usize, flags: u32);
    cuMemFreeHost 2000 (address: u64);
    cuMemHostRegister 6050 (address: u64, size: usize, flags: u32);
    cuMemHostUnregister 4000 (address: u64);
    cuMemHostGetDevicePointer 3020 (pointer: Out<u64>, address: u64, flags: u32);
    cuMemHostGetFlags 2030 (flags: Out<u32>, address: u64);
    cuMemGetInfo 3020 (free: Out<usize>, total: Out<usize>);
    cuMemAdvise 12020 (address: u64, length: usize, advice: u32, location: Location);
    cuMemPrefetchAsync 12020 (address: u64, length: usize, location: Location, flags: u32, stream: Handle);
    cuMemPrefetchBatchAsync 13000 (addresses: In<u64>, sizes: In<usize>, count: usize, locations: In<Location>,
                             firsts: In<usize>, locations_count: usize, flags: u64, stream: Handle);
    cuMemDiscardBatchAsync 13000 (addresses: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: Handle);
    cuMemDiscardAndPrefetchBatchAsync 13000 (addresses: In<u64>, sizes: In<usize>, count: usize,
                                       locations: In<Location>, firsts: In<usize>, locations_count: usize,
                                       flags: u64, stream: Handle);
    cuPointerGetAttributes 7000 (count: u32, which: In<u32>, out: In<*mut c_void>, address: u64);

    cuMemAllocAsync 11020 (pointer: Out<u64>, size: usize, stream: Handle);
    cuMemAllocFromPoolAsync 11020 (pointer: Out<u64>, size: usize, pool: Handle, stream: Handle);
    cuMemFreeAsync 11020 (address: u64, stream: Handle);
    cuDeviceGetDefaultMemPool 11020 (pool: Out<Handle>, device: i32);
    cuDeviceGetMemPool 11020 (pool: Out<Handle>, device: i32);
    cuDeviceSetMemPool 11020 (device: i32, pool: Handle);
    cuMemGetDefaultMemPool 13000 (pool: Out<Handle>, location: In<Location>, kind: u32);
    cuMemGetMemPool 13000 (pool: Out<Handle>, location: In<Location>, kind: u32);
    cuMemSetMemPool 13000 (location: In<Location>, kind: u32, pool: Handle);
    cuMemPoolCreate 11020 (pool: Out<Handle>, props: In<PoolProps>);
    cuMemPoolDestroy 11020 (pool: Handle);
    cuMemPoolTrimTo 11020 (pool: Handle, keep: usize);
    cuMemPoolGetAttribute 11020 (pool: Handle, which: u32, value: *mut c_void);
    cuMemPoolSetAttribute 11020 (pool: Handle, which: u32, value: *mut c_void);
    cuMemPoolSetAccess 11020 (pool: Handle, map: In<AccessDesc>, count: usize);
    cuMemPoolGetAccess 11020 (flags: Out<u32>, pool: Handle, location: In<Location>);

    cuMemcpy 4000 (target: u64, source: u64, length: usize);
    cuMemcpyHtoD 3020 (target: u64, source: u64, length: usize);
    cuMemcpyDtoH 3020 (target: u64, source: u64, length: usize);
    cuMemcpyDtoD 3020 (target: u64, source: u64, length: usize);
    cuMemcpyPeer 4000 (target: u64, target_context: Handle, source: u64, source_context: Handle, length: usize);
    cuMemcpy2DUnaligned 3020 (copy: In<Copy2d>);
    cuMemcpyAsync 4000 (target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyHtoDAsync 3020 (target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyDtoHAsync 3020 (target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyDtoDAsync 3020 (target: u64, source: u64, length: usize, stream: Handle);
    cuMemcpyPeerAsync 4000 (target: u64, target_context: Handle, source: u64, source_context: Handle, length: usize,
                      stream: Handle);
    cuMemcpy2DAsync 3020 (copy: In<Copy2d>, stream: Handle);
    cuMemcpy3D 3020 (copy: In<Copy3d>);
    cuMemcpy3DAsync 3020 (copy: In<Copy3d>, stream: Handle);
    cuMemcpy3DPeer 4000 (copy: In<Copy3d>);
    cuMemcpy3DPeerAsync 4000 (copy: In<Copy3d>, stream: Handle);
    cuMemcpyBatchAsync 13000 (targets: In<u64>, sources: In<u64>, sizes: In<usize>, count: usize,
                              attributes: In<CopyAttributes>, firsts: In<usize>, attributes_count: usize, stream: Handle);
    cuMemcpy3DBatchAsync 13000 (count: usize, operations: In<BatchOperation>, flags: u64, stream: Handle);
    cuMemcpyWithAttributesAsync 13020 (target: u64, source: u64, length: usize, attributes: In<CopyAttributes>,
                                       stream: Handle);
    cuMemcpy3DWithAttributesAsync 13020 (operation: In<BatchOperation>, flags: u64, stream: Handle);
    cuArray3DCreate 3020 (array: Out<Handle>, descriptor: In<Array3dDescriptor>);
    cuArray3DGetDescriptor 3020 (descriptor: Out<Array3dDescriptor>, array: Handle);
    cuArrayDestroy 2000 (array: Handle);
    cuMemsetD8 3020 (target: u64, value: u8, count: usize);
    cuMemsetD2D8 3020 (target: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD8Async 3020 (target: u64, value: u8, count: usize, stream: Handle);
    cuMemsetD2D8Async 3020 (target: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);

    cuLibraryLoadData 12000 (library: Out<Handle>, code: *const c_void, jit: *const c_void, jit_values: *const c_void,
                      jit_count: u32, options: *const c_void, values: *const c_void, count: u32);
    cuLibraryLoadFromFile 12000 (library: Out<Handle>, path: Text, jit: *const c_void, jit_values: *const c_void,
                          jit_count: u32, options: *const c_void, values: *const c_void, count: u32);
    cuLibraryUnload 12000 (library: Handle);
    cuLibraryGetKernel 12000 (kernel: Out<Handle>, library: Handle, name: Text);
    cuLibraryGetGlobal 12000 (address: Out<u64>, size: Out<usize>, library: Handle, name: Text);
    cuLibraryGetManaged 12000 (address: Out<u64>, size: Out<usize>, library: Handle, name: Text);
    cuLibraryGetKernelCount 12040 (count: Out<u32>, library: Handle);
    cuKernelGetFunction 12000 (function: Out<Handle>, kernel: Handle);
    cuKernelGetName 12030 (name: Out<*const c_char>, kernel: Handle);
    cuKernelGetParamInfo 12040 (kernel: Handle, index: usize, offset: Out<usize>, size: Out<usize>);
    cuKernelGetParamCount 13020 (kernel: Handle, count: Out<usize>);
    cuKernelGetAttribute 12000 (value: Out<i32>, which: u32, kernel: Handle, device: i32);
    cuKernelSetAttribute 12000 (which: u32, value: i32, kernel: Handle, device: i32);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000 (blocks: Out<i32>, function: Handle, threads: i32,
                                                         shared: usize, flags: u32);
    cuLaunchKernel 4000 (function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                   shared: u32, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx 11060 (config: In<LaunchConfig>, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel 9000 (function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
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
