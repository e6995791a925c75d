//! Kernel launches.

use crate::abi::{In, LaunchConfig, Status};
use crate::error::{INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE};
use crate::sim::graph::Action;
use crate::sim::kernel::{KernelCall, Params, Shape};
use crate::sim::sched::Work;
use crate::sim::session::session;
use crate::sim::state::{Lane, State};
use std::sync::Arc;

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`, and where a `CUlaunchAttribute` has its value.
const PROGRAMMATIC: u32 = 6;
const VALUE_AT: usize = 8;
const ATTRIBUTE: usize = 72;

/// The launch is programmatic: it may begin before what is in front of it has ended.
fn is_programmatic(config: &LaunchConfig) -> bool {
    (0..config.num_attrs as usize).any(|index| {
        let at = (config.attrs as usize).wrapping_add(index * ATTRIBUTE);
        In(at as *const u32).get() == Ok(PROGRAMMATIC)
            && In((at + VALUE_AT) as *const u32)
                .get()
                .is_ok_and(|on| on != 0)
    })
}

/// Appends a launch to a stream.
pub(super) fn run(call: KernelCall, stream: u64, per_thread: bool, programmatic: bool) -> Status {
    call.shape.check()?;
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        let (current, _) = s.context(0)?;
        let capture = s.capturing(lane)?;
        let kernel = Arc::new(call.prepare(s, lane.context, current)?);
        if let Some(capture) = capture {
            if programmatic {
                s.capture_programmatic(capture, lane);
            }
            return s
                .capture_node(capture, lane, Action::Kernel(kernel))
                .map(|_| ());
        }
        s.submit(lane, Vec::new(), kernel.work());
        s.submitted();
        Ok(())
    })
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
            // Several streams at once are more than a capture can hold.
            s.not_captured(lane)?;
            let call = KernelCall {
                function: given.function,
                shape: Shape {
                    grid: given.grid,
                    block: given.block,
                    shared: given.shared,
                },
                params: given.params,
                extra: In(std::ptr::null()),
            };
            let kernel = Arc::new(call.prepare(s, lane.context, lane.context)?);
            all.push((lane, kernel.work()));
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
        run(KernelCall { function, shape, params, extra }, stream, per_thread, false)
    }
    "cuLaunchKernelEx" 11060 => cuLaunchKernelEx / cuLaunchKernelEx_ptsz |per_thread|
        (config: In<LaunchConfig>, function: u64, params: Params, extra: In<usize>) {
        let config = config.get()?;
        let shape = Shape { grid: config.grid, block: config.block, shared: config.shared };
        run(KernelCall { function, shape, params, extra }, config.stream, per_thread, is_programmatic(&config))
    }
    "cuLaunchCooperativeKernel" 9000 => cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz |per_thread|
        (function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
         stream: u64, params: Params) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        run(KernelCall { function, shape, params, extra: In(std::ptr::null()) }, stream, per_thread, false)
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

    #[test]
    fn the_launch_config_is_laid_out_as_nvidias() {
        assert_eq!(size_of::<LaunchConfig>(), size_of::<Theirs>());
        type Each = cudarc::driver::sys::CUDA_LAUNCH_PARAMS_st;
        assert_eq!(size_of::<LaunchParams>(), size_of::<Each>());
        assert_eq!(offset_of!(LaunchParams, stream), offset_of!(Each, hStream));
        type Attribute = cudarc::driver::sys::CUlaunchAttribute_st;
        assert_eq!(size_of::<Attribute>(), ATTRIBUTE);
        assert_eq!(offset_of!(Attribute, value), VALUE_AT);
        assert_eq!(
            offset_of!(LaunchConfig, stream),
            offset_of!(Theirs, hStream)
        );
        assert_eq!(
            offset_of!(LaunchConfig, num_attrs),
            offset_of!(Theirs, numAttrs)
        );
    }
}
