//! The `CUresult` codes: numbers and names as in NVIDIA's `cuda.h`, and a short text for each.

use crate::error_table::row;
use std::ffi::CStr;

/// Declares the codes that this library itself returns.
macro_rules! codes {
    ($($name:ident = $code:literal),* $(,)?) => {
        $( pub(crate) const $name: u32 = $code; )*
    };
}

codes! {
    INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, MAP_FAILED = 205, FILE_NOT_FOUND = 301, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, LOSSY_QUERY = 402, NOT_FOUND = 500, NOT_READY = 600,
    PEER_ACCESS_ALREADY_ENABLED = 704, PEER_ACCESS_NOT_ENABLED = 705,
    HOST_MEMORY_ALREADY_REGISTERED = 712, HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_PERMITTED = 800, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908, GRAPH_UPDATE_FAILURE = 910,
    INVALID_RESOURCE_TYPE = 914, STREAM_DETACHED = 917,
}

/// The code's name and text, both NUL-terminated for the program's life.
pub(crate) fn describe(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    let (_, name, _, text) = row(code)?;
    Some(((*name)?, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUresult;

    #[test]
    fn codes_and_names_are_nvidias() {
        for (ours, theirs) in [
            (INVALID_VALUE, CUresult::CUDA_ERROR_INVALID_VALUE),
            (OUT_OF_MEMORY, CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            (NOT_INITIALIZED, CUresult::CUDA_ERROR_NOT_INITIALIZED),
            (INVALID_HANDLE, CUresult::CUDA_ERROR_INVALID_HANDLE),
            (NOT_FOUND, CUresult::CUDA_ERROR_NOT_FOUND),
            (NOT_READY, CUresult::CUDA_ERROR_NOT_READY),
            (
                HOST_MEMORY_ALREADY_REGISTERED,
                CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            ),
            (
                HOST_MEMORY_NOT_REGISTERED,
                CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
            ),
            (NOT_PERMITTED, CUresult::CUDA_ERROR_NOT_PERMITTED),
            (NOT_SUPPORTED, CUresult::CUDA_ERROR_NOT_SUPPORTED),
            (MAP_FAILED, CUresult::CUDA_ERROR_MAP_FAILED),
            (
                INVALID_RESOURCE_TYPE,
                CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE,
            ),
            (STREAM_DETACHED, CUresult::CUDA_ERROR_STREAM_DETACHED),
            (ILLEGAL_STATE, CUresult::CUDA_ERROR_ILLEGAL_STATE),
            (LOSSY_QUERY, CUresult::CUDA_ERROR_LOSSY_QUERY),
            (
                CAPTURE_UNSUPPORTED,
                CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            ),
            (
                CAPTURE_INVALIDATED,
                CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            ),
            (CAPTURE_MERGE, CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE),
            (
                CAPTURE_UNMATCHED,
                CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
            ),
            (
                CAPTURE_UNJOINED,
                CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            ),
            (
                CAPTURE_ISOLATION,
                CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
            ),
            (
                CAPTURE_IMPLICIT,
                CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            ),
            (CAPTURED_EVENT, CUresult::CUDA_ERROR_CAPTURED_EVENT),
            (
                CAPTURE_WRONG_THREAD,
                CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
            ),
            (
                GRAPH_UPDATE_FAILURE,
                CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            ),
        ] {
            assert_eq!(ours, theirs as u32);
            assert_eq!(
                describe(ours).unwrap().0.to_str().unwrap(),
                format!("{theirs:?}")
            );
        }
        assert!(describe(12345).is_none());
    }
}
