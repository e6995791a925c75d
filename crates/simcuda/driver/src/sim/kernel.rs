//! Kernels as a call wants them launched. The parameters are copied at the call, as the driver does; when its turn comes
//! the kernel's host function runs, or nothing.

use super::sched::Work;
use super::state::{KernelBody, State};
use crate::abi::{In, Status};
use crate::error::{INVALID_HANDLE, INVALID_VALUE};
use crate::image::Param;
use std::ffi::c_void;
use std::sync::Arc;

/// Keys of the `extra` list.
pub(crate) const BUFFER_END: usize = 0;
pub(crate) const BUFFER_POINTER: usize = 1;
pub(crate) const BUFFER_SIZE: usize = 2;

/// Threads of a block, and the extents of a grid, at most.
const BLOCK_THREADS: u64 = 1024;
const BLOCK: [u32; 3] = [1024, 1024, 64];
const GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// Dynamic shared memory without `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const SHARED: u32 = 48 << 10;

pub(crate) type Params = In<*const u8>;

/// Copies the parameters into one buffer laid out as the kernel's; `None` where the layout is not known.
fn pack(layout: Option<&[Param]>, params: Params, extra: In<usize>) -> Status<Option<Vec<u8>>> {
    let Some(layout) = layout else {
        return Ok(None);
    };
    let length = layout
        .iter()
        .map(|param| param.offset + param.size)
        .max()
        .unwrap_or(0);
    let mut buffer = vec![0; length];
    if !params.0.is_null() {
        for (index, param) in layout.iter().enumerate() {
            let source = params.at(index)?;
            if source.is_null() {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the caller's parameter array points to values as large as the kernel's parameters.
            let value = unsafe { std::slice::from_raw_parts(source, param.size) };
            buffer[param.offset..param.offset + param.size].copy_from_slice(value);
        }
    } else if !extra.0.is_null() {
        let (mut source, mut size) = (std::ptr::null::<u8>(), 0);
        for index in (0..).step_by(2) {
            match extra.at(index)? {
                BUFFER_END => break,
                BUFFER_POINTER => source = extra.at(index + 1)? as *const u8,
                BUFFER_SIZE => size = In(extra.at(index + 1)? as *const usize).get()?,
                _ => return Err(INVALID_VALUE),
            }
        }
        let size = size.min(length);
        if size > 0 && source.is_null() {
            return Err(INVALID_VALUE);
        }
        if size > 0 {
            // SAFETY: the caller's buffer is as long as it says.
            buffer[..size].copy_from_slice(unsafe { std::slice::from_raw_parts(source, size) });
        }
    } else if length > 0 {
        return Err(INVALID_VALUE);
    }
    Ok(Some(buffer))
}

/// Where the parameters of a packed buffer lie.
fn pointers(layout: &[Param], buffer: *const u8) -> Vec<usize> {
    let at = |param: &Param| buffer.wrapping_add(param.offset) as usize;
    layout.iter().map(at).collect()
}

fn run_body(body: KernelBody, layout: &[Param], mut buffer: Vec<u8>, config: Shape) {
    let params = pointers(layout, buffer.as_mut_ptr());
    // SAFETY: the program exports the body for a kernel of this name, with these parameters.
    unsafe {
        body(
            params.as_ptr().cast::<*mut c_void>(),
            config.grid.as_ptr(),
            config.block.as_ptr(),
            config.shared,
        )
    };
}

#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

impl Shape {
    pub(crate) fn check(self) -> Status {
        let fits = |extents: [u32; 3], limits: [u32; 3]| {
            extents
                .iter()
                .zip(limits)
                .all(|(&n, limit)| (1..=limit).contains(&n))
        };
        let threads: u64 = self.block.iter().map(|&n| u64::from(n)).product();
        if fits(self.grid, GRID) && fits(self.block, BLOCK) && threads <= BLOCK_THREADS {
            Ok(())
        } else {
            Err(INVALID_VALUE)
        }
    }
}

/// A launch as a call asks for it.
#[derive(Clone, Copy)]
pub(crate) struct KernelCall {
    pub(crate) function: u64,
    pub(crate) shape: Shape,
    pub(crate) params: Params,
    pub(crate) extra: In<usize>,
}

/// A kernel with its parameters.
pub(crate) struct Kernel {
    pub(crate) function: u64,
    pub(crate) context: u64,
    pub(crate) shape: Shape,
    body: Option<KernelBody>,
    layout: Option<Vec<Param>>,
    buffer: Option<Vec<u8>>,
    /// Where each parameter lies in the buffer; none where the layout is not known.
    pointers: Vec<usize>,
}

impl KernelCall {
    /// The kernel as work for `context`. `current`: the context in which a library's kernel runs; a module's function
    /// runs in its own, and `context` must agree.
    pub(crate) fn prepare(self, s: &State, context: u64, current: u64) -> Status<Kernel> {
        self.shape.check()?;
        let kernel = s.functions.get(self.function).ok_or(INVALID_HANDLE)?;
        let home = s
            .libraries
            .get(kernel.loaded_from)
            .ok_or(INVALID_HANDLE)?
            .context;
        if s.whole(context) != s.whole(home.unwrap_or(current)) {
            return Err(INVALID_HANDLE);
        }
        if self.shape.shared > SHARED.max(kernel.max_dynamic_shared as u32) {
            return Err(INVALID_VALUE);
        }
        let layout = kernel.layout.clone();
        let buffer = pack(layout.as_deref(), self.params, self.extra)?;
        let pointers = match (&layout, &buffer) {
            (Some(layout), Some(buffer)) => pointers(layout, buffer.as_ptr()),
            _ => Vec::new(),
        };
        Ok(Kernel {
            function: self.function,
            context,
            shape: self.shape,
            body: kernel.body,
            layout,
            buffer,
            pointers,
        })
    }
}

impl Kernel {
    pub(crate) fn work(self: &Arc<Self>) -> Work {
        if self.body.is_none() {
            return Work::Marker;
        }
        let kernel = self.clone();
        Work::Device(Box::new(move || {
            if let (Some(body), Some(layout), Some(buffer)) =
                (kernel.body, &kernel.layout, &kernel.buffer)
            {
                run_body(body, layout, buffer.clone(), kernel.shape);
            }
        }))
    }

    /// A `kernelParams` array that lives as long as the kernel; null where the layout is not known.
    pub(crate) fn params(&self) -> usize {
        if self.pointers.is_empty() {
            0
        } else {
            self.pointers.as_ptr() as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: [Param; 2] = [Param { offset: 0, size: 4 }, Param { offset: 8, size: 8 }];

    #[test]
    fn parameters_are_packed_from_pointers_and_from_a_buffer() {
        let (a, b) = (7u32.to_ne_bytes(), 9u64.to_ne_bytes());
        let pointers = [a.as_ptr(), b.as_ptr()];
        let none = In(std::ptr::null());
        let packed = pack(Some(&LAYOUT), In(pointers.as_ptr()), none)
            .unwrap()
            .unwrap();
        assert_eq!(packed, [&a[..], &[0; 4], &b[..]].concat());
        let size = packed.len();
        let extra = [
            BUFFER_POINTER,
            packed.as_ptr() as usize,
            BUFFER_SIZE,
            &raw const size as usize,
            BUFFER_END,
        ];
        assert_eq!(
            pack(Some(&LAYOUT), In(std::ptr::null()), In(extra.as_ptr()))
                .unwrap()
                .unwrap(),
            packed
        );
        assert_eq!(
            pack(Some(&LAYOUT), In(std::ptr::null()), In(std::ptr::null())),
            Err(INVALID_VALUE)
        );
        assert_eq!(
            pack(None, In(pointers.as_ptr()), In(std::ptr::null())),
            Ok(None)
        );
    }
}
