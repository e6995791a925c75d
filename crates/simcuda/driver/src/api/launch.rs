//! Kernel launches. A kernel's parameters are copied at the call, as the driver does; when its turn comes its host
//! function runs, or nothing.

use crate::abi::{In, LaunchConfig, Status};
use crate::error::{INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE};
use crate::image::Param;
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::{KernelBody, Lane, State};
use std::ffi::c_void;

/// Keys of the `extra` list.
pub(super) const BUFFER_END: usize = 0;
pub(super) const BUFFER_POINTER: usize = 1;
pub(super) const BUFFER_SIZE: usize = 2;

/// Threads of a block, and the extents of a grid, at most.
const BLOCK_THREADS: u64 = 1024;
const BLOCK: [u32; 3] = [1024, 1024, 64];
const GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// Dynamic shared memory without `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const SHARED: u32 = 48 << 10;

pub(super) type Params = In<*const u8>;

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

fn run_body(body: KernelBody, layout: &[Param], mut buffer: Vec<u8>, config: Shape) {
    let base = buffer.as_mut_ptr();
    let params: Vec<*mut c_void> = layout
        .iter()
        .map(|param| base.wrapping_add(param.offset).cast())
        .collect();
    // SAFETY: the program exports the body for a kernel of this name, with these parameters.
    unsafe {
        body(
            params.as_ptr(),
            config.grid.as_ptr(),
            config.block.as_ptr(),
            config.shared,
        )
    };
}

#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
}

/// A launch as a call asks for it.
#[derive(Clone, Copy)]
pub(super) struct Launch {
    pub(super) function: u64,
    pub(super) shape: Shape,
    pub(super) params: Params,
    pub(super) extra: In<usize>,
}

impl Shape {
    fn check(self) -> Status {
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

impl Launch {
    /// The kernel as work for a stream of `lane`'s. `current`: the context in which a library's kernel runs; a
    /// module's function runs in its own, and the stream must agree.
    fn prepare(self, s: &State, lane: Lane, current: u64) -> Status<Work> {
        self.shape.check()?;
        let kernel = s.functions.get(self.function).ok_or(INVALID_HANDLE)?;
        let home = s
            .libraries
            .get(kernel.loaded_from)
            .ok_or(INVALID_HANDLE)?
            .context;
        if s.whole(lane.context) != s.whole(home.unwrap_or(current)) {
            return Err(INVALID_HANDLE);
        }
        if self.shape.shared > SHARED.max(kernel.max_dynamic_shared as u32) {
            return Err(INVALID_VALUE);
        }
        let (layout, shape) = (kernel.layout.clone(), self.shape);
        let packed = pack(layout.as_deref(), self.params, self.extra)?;
        Ok(match (kernel.body, layout, packed) {
            (Some(body), Some(layout), Some(buffer)) => {
                Work::Device(Box::new(move || run_body(body, &layout, buffer, shape)))
            }
            _ => Work::Marker,
        })
    }

    pub(super) fn run(self, stream: u64, per_thread: bool) -> Status {
        self.shape.check()?;
        session(|s| {
            let lane = s.lane(stream, per_thread)?;
            let (current, _) = s.context(0)?;
            let work = self.prepare(s, lane, current)?;
            s.submit(lane, Vec::new(), work);
            s.submitted();
            Ok(())
        })
    }
}

/// `CUDA_LAUNCH_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchParams {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
    params: Params,
}

/// `CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC` and `…_NO_POST_LAUNCH_SYNC`.
const NO_PRE_SYNC: u32 = 1;
const NO_POST_SYNC: u32 = 2;

/// One kernel on each of several devices. As `cuda.h` says, without the flags each starts after everything that was in
/// any of the streams, and what follows in any of the streams starts after all of them.
fn on_several_devices(list: In<LaunchParams>, count: u32, flags: u32) -> Status {
    if count == 0 || flags & !(NO_PRE_SYNC | NO_POST_SYNC) != 0 {
        return Err(INVALID_VALUE);
    }
    session(|s| {
        let mut all = Vec::new();
        let mut devices = Vec::new();
        for index in 0..count as usize {
            let given = list.at(index)?;
            // "The stream cannot be the NULL stream", and each is another device's.
            if given.stream <= 2 {
                return Err(INVALID_HANDLE);
            }
            let lane = s.lane(given.stream, false)?;
            let device = s.context(lane.context)?.1.device;
            if devices.contains(&device) {
                return Err(INVALID_DEVICE);
            }
            devices.push(device);
            let launch = Launch {
                function: given.function,
                shape: Shape {
                    grid: given.grid,
                    block: given.block,
                    shared: given.shared,
                },
                params: given.params,
                extra: In(std::ptr::null()),
            };
            all.push((lane, launch.prepare(s, lane, lane.context)?));
        }
        let lanes: Vec<Lane> = all.iter().map(|&(lane, _)| lane).collect();
        let pasts =
            |s: &State| -> Vec<_> { lanes.iter().map(|lane| s.sched.past(lane.id)).collect() };
        let before = if flags & NO_PRE_SYNC == 0 {
            pasts(s)
        } else {
            Vec::new()
        };
        for (lane, work) in all {
            s.submit(lane, before.clone(), work);
        }
        if flags & NO_POST_SYNC == 0 {
            let after = pasts(s);
            for &lane in &lanes {
                s.submit(lane, after.clone(), Work::Marker);
            }
        }
        s.submitted();
        Ok(())
    })
}

api! {
    "cuLaunchKernel" 4000 => cuLaunchKernel / cuLaunchKernel_ptsz |per_thread|
        (function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
         stream: u64, params: Params, extra: In<usize>) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        Launch { function, shape, params, extra }.run(stream, per_thread)
    }
    "cuLaunchKernelEx" 11060 => cuLaunchKernelEx / cuLaunchKernelEx_ptsz |per_thread|
        (config: In<LaunchConfig>, function: u64, params: Params, extra: In<usize>) {
        let config = config.get()?;
        let shape = Shape { grid: config.grid, block: config.block, shared: config.shared };
        Launch { function, shape, params, extra }.run(config.stream, per_thread)
    }
    "cuLaunchCooperativeKernel" 9000 => cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz |per_thread|
        (function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
         stream: u64, params: Params) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        Launch { function, shape, params, extra: In(std::ptr::null()) }.run(stream, per_thread)
    }
    "cuLaunchCooperativeKernelMultiDevice" 9000 => cuLaunchCooperativeKernelMultiDevice(list: In<LaunchParams>, count: u32,
                                                                                       flags: u32) {
        on_several_devices(list, count, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUlaunchConfig_st as Theirs;
    use std::mem::{offset_of, size_of};

    const LAYOUT: [Param; 2] = [Param { offset: 0, size: 4 }, Param { offset: 8, size: 8 }];

    #[test]
    fn the_launch_config_is_laid_out_as_nvidias() {
        assert_eq!(size_of::<LaunchConfig>(), size_of::<Theirs>());
        type Each = cudarc::driver::sys::CUDA_LAUNCH_PARAMS_st;
        assert_eq!(size_of::<LaunchParams>(), size_of::<Each>());
        assert_eq!(offset_of!(LaunchParams, stream), offset_of!(Each, hStream));
        assert_eq!(
            offset_of!(LaunchConfig, stream),
            offset_of!(Theirs, hStream)
        );
        assert_eq!(
            offset_of!(LaunchConfig, num_attrs),
            offset_of!(Theirs, numAttrs)
        );
    }

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
