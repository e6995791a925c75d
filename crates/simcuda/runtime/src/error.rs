//! The `cudaError_t` codes: numbers and names as in NVIDIA's `driver_types.h`, and a short text for each. Driver codes
//! pass through: the two enums agree on them.

use std::ffi::{CStr, c_char};

pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const INVALID_CONFIGURATION: u32 = 9;
pub(crate) const INVALID_SYMBOL: u32 = 13;
pub(crate) const INVALID_MEMCPY_DIRECTION: u32 = 21;
pub(crate) const INSUFFICIENT_DRIVER: u32 = 35;
pub(crate) const INVALID_DEVICE_FUNCTION: u32 = 98;
pub(crate) const INVALID_DEVICE: u32 = 101;
pub(crate) const NOT_FOUND: u32 = 500;
pub(crate) const NOT_SUPPORTED: u32 = 801;

fn row(code: u32) -> Option<&'static (u32, &'static CStr, &'static CStr)> {
    TABLE.iter().find(|row| row.0 == code)
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: u32) -> *const c_char {
    row(code)
        .map_or(c"unrecognized error code", |row| row.1)
        .as_ptr()
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: u32) -> *const c_char {
    row(code)
        .map_or(c"unrecognized error code", |row| row.2)
        .as_ptr()
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> u32 {
    crate::export::last_error(true)
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> u32 {
    crate::export::last_error(false)
}

#[rustfmt::skip]
const TABLE: &[(u32, &CStr, &CStr)] = &[
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"initialization error"),
    (4, c"cudaErrorCudartUnloading", c"driver shutting down"),
    (5, c"cudaErrorProfilerDisabled", c"profiler disabled"),
    (6, c"cudaErrorProfilerNotInitialized", c"profiler not initialized"),
    (7, c"cudaErrorProfilerAlreadyStarted", c"profiler already started"),
    (8, c"cudaErrorProfilerAlreadyStopped", c"profiler already stopped"),
    (9, c"cudaErrorInvalidConfiguration", c"invalid configuration"),
    (10, c"cudaErrorVersionTranslation", c"version translation"),
    (12, c"cudaErrorInvalidPitchValue", c"invalid pitch value"),
    (13, c"cudaErrorInvalidSymbol", c"invalid symbol"),
    (16, c"cudaErrorInvalidHostPointer", c"invalid host pointer"),
    (17, c"cudaErrorInvalidDevicePointer", c"invalid device pointer"),
    (18, c"cudaErrorInvalidTexture", c"invalid texture"),
    (19, c"cudaErrorInvalidTextureBinding", c"invalid texture binding"),
    (20, c"cudaErrorInvalidChannelDescriptor", c"invalid channel descriptor"),
    (21, c"cudaErrorInvalidMemcpyDirection", c"invalid memcpy direction"),
    (22, c"cudaErrorAddressOfConstant", c"address of constant"),
    (23, c"cudaErrorTextureFetchFailed", c"texture fetch failed"),
    (24, c"cudaErrorTextureNotBound", c"texture not bound"),
    (25, c"cudaErrorSynchronizationError", c"synchronization error"),
    (26, c"cudaErrorInvalidFilterSetting", c"invalid filter setting"),
    (27, c"cudaErrorInvalidNormSetting", c"invalid norm setting"),
    (28, c"cudaErrorMixedDeviceExecution", c"mixed device execution"),
    (31, c"cudaErrorNotYetImplemented", c"not yet implemented"),
    (32, c"cudaErrorMemoryValueTooLarge", c"memory value too large"),
    (34, c"cudaErrorStubLibrary", c"stub library"),
    (35, c"cudaErrorInsufficientDriver", c"insufficient driver"),
    (36, c"cudaErrorCallRequiresNewerDriver", c"call requires newer driver"),
    (37, c"cudaErrorInvalidSurface", c"invalid surface"),
    (43, c"cudaErrorDuplicateVariableName", c"duplicate variable name"),
    (44, c"cudaErrorDuplicateTextureName", c"duplicate texture name"),
    (45, c"cudaErrorDuplicateSurfaceName", c"duplicate surface name"),
    (46, c"cudaErrorDevicesUnavailable", c"device unavailable"),
    (49, c"cudaErrorIncompatibleDriverContext", c"incompatible driver context"),
    (52, c"cudaErrorMissingConfiguration", c"missing configuration"),
    (53, c"cudaErrorPriorLaunchFailure", c"prior launch failure"),
    (65, c"cudaErrorLaunchMaxDepthExceeded", c"launch max depth exceeded"),
    (66, c"cudaErrorLaunchFileScopedTex", c"launch file scoped tex"),
    (67, c"cudaErrorLaunchFileScopedSurf", c"launch file scoped surf"),
    (68, c"cudaErrorSyncDepthExceeded", c"sync depth exceeded"),
    (69, c"cudaErrorLaunchPendingCountExceeded", c"launch pending count exceeded"),
    (98, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
    (100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (102, c"cudaErrorDeviceNotLicensed", c"device not licensed"),
    (103, c"cudaErrorSoftwareValidityNotEstablished", c"software validity not established"),
    (127, c"cudaErrorStartupFailure", c"startup failure"),
    (200, c"cudaErrorInvalidKernelImage", c"device kernel image is invalid"),
    (201, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (205, c"cudaErrorMapBufferObjectFailed", c"map failed"),
    (206, c"cudaErrorUnmapBufferObjectFailed", c"unmap failed"),
    (207, c"cudaErrorArrayIsMapped", c"array is mapped"),
    (208, c"cudaErrorAlreadyMapped", c"already mapped"),
    (209, c"cudaErrorNoKernelImageForDevice", c"no binary for gpu"),
    (210, c"cudaErrorAlreadyAcquired", c"already acquired"),
    (211, c"cudaErrorNotMapped", c"not mapped"),
    (212, c"cudaErrorNotMappedAsArray", c"not mapped as array"),
    (213, c"cudaErrorNotMappedAsPointer", c"not mapped as pointer"),
    (214, c"cudaErrorECCUncorrectable", c"ecc uncorrectable"),
    (215, c"cudaErrorUnsupportedLimit", c"unsupported limit"),
    (216, c"cudaErrorDeviceAlreadyInUse", c"context already in use"),
    (217, c"cudaErrorPeerAccessUnsupported", c"peer access unsupported"),
    (218, c"cudaErrorInvalidPtx", c"invalid ptx"),
    (219, c"cudaErrorInvalidGraphicsContext", c"invalid graphics context"),
    (220, c"cudaErrorNvlinkUncorrectable", c"nvlink uncorrectable"),
    (221, c"cudaErrorJitCompilerNotFound", c"jit compiler not found"),
    (222, c"cudaErrorUnsupportedPtxVersion", c"unsupported ptx version"),
    (223, c"cudaErrorJitCompilationDisabled", c"jit compilation disabled"),
    (224, c"cudaErrorUnsupportedExecAffinity", c"unsupported exec affinity"),
    (225, c"cudaErrorUnsupportedDevSideSync", c"unsupported devside sync"),
    (226, c"cudaErrorContained", c"contained"),
    (227, c"cudaErrorInsufficientLoaderVersion", c"insufficient loader version"),
    (300, c"cudaErrorInvalidSource", c"invalid source"),
    (301, c"cudaErrorFileNotFound", c"file not found"),
    (302, c"cudaErrorSharedObjectSymbolNotFound", c"shared object symbol not found"),
    (303, c"cudaErrorSharedObjectInitFailed", c"shared object init failed"),
    (304, c"cudaErrorOperatingSystem", c"operating system"),
    (400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
    (401, c"cudaErrorIllegalState", c"illegal state"),
    (402, c"cudaErrorLossyQuery", c"lossy query"),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"device not ready"),
    (700, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered"),
    (701, c"cudaErrorLaunchOutOfResources", c"launch out of resources"),
    (702, c"cudaErrorLaunchTimeout", c"the launch timed out and was terminated"),
    (703, c"cudaErrorLaunchIncompatibleTexturing", c"launch incompatible texturing"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled", c"peer access already enabled"),
    (705, c"cudaErrorPeerAccessNotEnabled", c"peer access not enabled"),
    (708, c"cudaErrorSetOnActiveProcess", c"primary context active"),
    (709, c"cudaErrorContextIsDestroyed", c"context is destroyed"),
    (710, c"cudaErrorAssert", c"assert"),
    (711, c"cudaErrorTooManyPeers", c"too many peers"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered", c"part or all of the requested memory range is already mapped"),
    (713, c"cudaErrorHostMemoryNotRegistered", c"pointer does not correspond to a registered memory region"),
    (714, c"cudaErrorHardwareStackError", c"hardware stack error"),
    (715, c"cudaErrorIllegalInstruction", c"illegal instruction"),
    (716, c"cudaErrorMisalignedAddress", c"misaligned address"),
    (717, c"cudaErrorInvalidAddressSpace", c"invalid address space"),
    (718, c"cudaErrorInvalidPc", c"invalid pc"),
    (719, c"cudaErrorLaunchFailure", c"unspecified launch failure"),
    (720, c"cudaErrorCooperativeLaunchTooLarge", c"cooperative launch too large"),
    (721, c"cudaErrorTensorMemoryLeak", c"tensor memory leak"),
    (800, c"cudaErrorNotPermitted", c"operation not permitted"),
    (801, c"cudaErrorNotSupported", c"operation not supported"),
    (802, c"cudaErrorSystemNotReady", c"system not ready"),
    (803, c"cudaErrorSystemDriverMismatch", c"system driver mismatch"),
    (804, c"cudaErrorCompatNotSupportedOnDevice", c"compat not supported on device"),
    (805, c"cudaErrorMpsConnectionFailed", c"mps connection failed"),
    (806, c"cudaErrorMpsRpcFailure", c"mps rpc failure"),
    (807, c"cudaErrorMpsServerNotReady", c"mps server not ready"),
    (808, c"cudaErrorMpsMaxClientsReached", c"mps max clients reached"),
    (809, c"cudaErrorMpsMaxConnectionsReached", c"mps max connections reached"),
    (810, c"cudaErrorMpsClientTerminated", c"mps client terminated"),
    (811, c"cudaErrorCdpNotSupported", c"cdp not supported"),
    (812, c"cudaErrorCdpVersionMismatch", c"cdp version mismatch"),
    (900, c"cudaErrorStreamCaptureUnsupported", c"stream capture unsupported"),
    (901, c"cudaErrorStreamCaptureInvalidated", c"stream capture invalidated"),
    (902, c"cudaErrorStreamCaptureMerge", c"stream capture merge"),
    (903, c"cudaErrorStreamCaptureUnmatched", c"stream capture unmatched"),
    (904, c"cudaErrorStreamCaptureUnjoined", c"stream capture unjoined"),
    (905, c"cudaErrorStreamCaptureIsolation", c"stream capture isolation"),
    (906, c"cudaErrorStreamCaptureImplicit", c"stream capture implicit"),
    (907, c"cudaErrorCapturedEvent", c"captured event"),
    (908, c"cudaErrorStreamCaptureWrongThread", c"stream capture wrong thread"),
    (909, c"cudaErrorTimeout", c"timeout"),
    (910, c"cudaErrorGraphExecUpdateFailure", c"graph exec update failure"),
    (911, c"cudaErrorExternalDevice", c"external device"),
    (912, c"cudaErrorInvalidClusterSize", c"invalid cluster size"),
    (913, c"cudaErrorFunctionNotLoaded", c"function not loaded"),
    (914, c"cudaErrorInvalidResourceType", c"invalid resource type"),
    (915, c"cudaErrorInvalidResourceConfiguration", c"invalid resource configuration"),
    (917, c"cudaErrorStreamDetached", c"stream detached"),
    (918, c"cudaErrorGraphRecaptureFailure", c"graph recapture failure"),
    (919, c"cudaErrorFabricNotReady", c"fabric not ready"),
    (999, c"cudaErrorUnknown", c"unknown error"),
    (10000, c"cudaErrorApiFailureBase", c"api failure base"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::runtime::sys::cudaError;

    #[test]
    fn codes_and_names_are_nvidias() {
        for (ours, theirs) in [
            (INVALID_VALUE, cudaError::cudaErrorInvalidValue),
            (
                INVALID_CONFIGURATION,
                cudaError::cudaErrorInvalidConfiguration,
            ),
            (INVALID_SYMBOL, cudaError::cudaErrorInvalidSymbol),
            (
                INVALID_MEMCPY_DIRECTION,
                cudaError::cudaErrorInvalidMemcpyDirection,
            ),
            (INSUFFICIENT_DRIVER, cudaError::cudaErrorInsufficientDriver),
            (
                INVALID_DEVICE_FUNCTION,
                cudaError::cudaErrorInvalidDeviceFunction,
            ),
            (INVALID_DEVICE, cudaError::cudaErrorInvalidDevice),
            (NOT_FOUND, cudaError::cudaErrorSymbolNotFound),
            (NOT_SUPPORTED, cudaError::cudaErrorNotSupported),
        ] {
            assert_eq!(ours, theirs as u32);
            assert_eq!(
                row(ours).unwrap().1.to_str().unwrap(),
                format!("{theirs:?}")
            );
        }
        assert!(row(12345).is_none());
    }
}
