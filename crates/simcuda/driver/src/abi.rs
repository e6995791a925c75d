//! What crosses the C boundary: out-pointers, strings and the structs that callers pass.
//!
//! CUDA's enums are raw integers here: a value unknown to us must be an error code, never undefined behaviour.

use std::ffi::{CStr, c_char, c_void};

/// `CUDA_SUCCESS` is `Ok`; anything else is the numeric `CUresult` or `cudaError_t`.
pub(crate) type Status<T = ()> = Result<T, u32>;

/// `CUDA_ERROR_INVALID_VALUE`, which `cudaErrorInvalidValue` equals.
const INVALID_VALUE: u32 = 1;

/// A pointer through which a C caller wants a result; null is an error, or means "not wanted".
#[repr(transparent)]
pub(crate) struct Out<T>(pub(crate) *mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes the result; a null pointer is an invalid value.
    pub(crate) fn put(self, value: T) -> Status {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the C caller passed a non-null pointer to a `T` that it owns for the length of the call.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result where the caller asked for it.
    pub(crate) fn put_if_wanted(self, value: T) {
        let _ = self.put(value);
    }

    /// An invalid-value error unless the caller gave a place: checked before work that cannot be taken back.
    pub(crate) fn wanted(self) -> Status<Self> {
        if self.0.is_null() {
            Err(INVALID_VALUE)
        } else {
            Ok(self)
        }
    }
}

/// A pointer to something that a C caller provides.
#[repr(transparent)]
pub(crate) struct In<T>(pub(crate) *const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The value; a null pointer is an invalid value.
    pub(crate) fn get(self) -> Status<T> {
        self.at(0)
    }

    /// Element `index` of a C array.
    pub(crate) fn at(self, index: usize) -> Status<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the C caller passed a non-null pointer to at least `index + 1` readable elements.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

/// A C string argument.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(pub(crate) *const c_char);

impl Text {
    /// The text; null, or not UTF-8, is an invalid value.
    pub(crate) fn get<'a>(self) -> Status<&'a str> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the C caller passed a non-null, NUL-terminated string that lives for the length of the call.
        unsafe { CStr::from_ptr(self.0) }
            .to_str()
            .map_err(|_| INVALID_VALUE)
    }
}

/// `CUmemLocation` and `cudaMemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

/// `CUmemAccessDesc` and `cudaMemAccessDesc`; the flags are none 0, read 1, read and write 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// `CUmemPoolProps` and `cudaMemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProps {
    pub(crate) alloc_type: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    pub(crate) security: *mut c_void,
    pub(crate) rest: [u8; 64],
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy2d {
    pub(crate) src_x: usize,
    pub(crate) src_y: usize,
    pub(crate) src_type: u32,
    pub(crate) src_host: u64,
    pub(crate) src_device: u64,
    pub(crate) src_array: u64,
    pub(crate) src_pitch: usize,
    pub(crate) dst_x: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_type: u32,
    pub(crate) dst_host: u64,
    pub(crate) dst_device: u64,
    pub(crate) dst_array: u64,
    pub(crate) dst_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: u64,
    pub(crate) attrs: *mut c_void,
    pub(crate) num_attrs: u32,
}

/// One side of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`; only the latter has a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy3dSide {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) lod: usize,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) context: u64,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`; the extent is bytes of a row, rows, layers.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy3d {
    pub(crate) source: Copy3dSide,
    pub(crate) target: Copy3dSide,
    pub(crate) extent: [usize; 3],
}

/// `CUDA_ARRAY3D_DESCRIPTOR`; extents in elements.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Array3dDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUmemcpyAttributes` and `cudaMemcpyAttributes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CopyAttributes {
    pub(crate) order: u32,
    pub(crate) source_hint: Location,
    pub(crate) target_hint: Location,
    pub(crate) flags: u32,
}

/// `CUmemcpy3DOperand`: for a pointer (kind 1) the address, row length, layer height and a hint; for an array (2) its
/// handle and an offset in elements.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BatchOperand {
    pub(crate) kind: u32,
    pub(crate) place: u64,
    pub(crate) numbers: [usize; 3],
}

/// `CUDA_MEMCPY3D_BATCH_OP` and `cudaMemcpy3DBatchOp`; the extent is in elements.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BatchOperation {
    pub(crate) source: BatchOperand,
    pub(crate) target: BatchOperand,
    pub(crate) extent: [usize; 3],
    pub(crate) order: u32,
    pub(crate) flags: u32,
}
