//! The `cudaError_t` codes: numbers and names as in NVIDIA's `driver_types.h`, and a short text for each. Driver codes
//! pass through: the two enums agree on them.

use crate::error_table::row;
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

/// The code's name and text.
fn describe(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    let (_, _, name, text) = row(code)?;
    Some(((*name)?, text))
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: u32) -> *const c_char {
    describe(code)
        .map_or(c"unrecognized error code", |(name, _)| name)
        .as_ptr()
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: u32) -> *const c_char {
    describe(code)
        .map_or(c"unrecognized error code", |(_, text)| text)
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
                describe(ours).unwrap().0.to_str().unwrap(),
                format!("{theirs:?}")
            );
        }
        assert!(describe(12345).is_none());
    }
}
