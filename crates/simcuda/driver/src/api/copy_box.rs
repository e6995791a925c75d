//! Copies of rows and of layers of rows: 2D, 3D, and 3D between devices.

use super::copy::{are_contexts, copy};
use crate::abi::{Copy2d, Copy3d, Copy3dSide, In, Status};
use crate::error::INVALID_VALUE;
use crate::sim::session::session;
use crate::sim::state::State;
use crate::sim::transfer::{Side, Transfer};

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// One side of a copy of `extent`: width in bytes, rows, layers.
fn side(s: &State, operand: &Copy3dSide, extent: [usize; 3]) -> Status<Side> {
    let [width, height, depth] = extent;
    let start = match operand.kind {
        HOST => operand.host,
        DEVICE | UNIFIED => operand.device,
        ARRAY => {
            return s
                .array(operand.array)?
                .side([operand.x, operand.y, operand.z], extent);
        }
        _ => return Err(INVALID_VALUE),
    };
    // Without a pitch or a height, as tight as can be.
    let end_of = |at: usize, length: usize| at.checked_add(length).ok_or(INVALID_VALUE);
    let (row_end, layer_end) = (end_of(operand.x, width)?, end_of(operand.y, height)?);
    let pitch = if operand.pitch == 0 {
        row_end
    } else {
        operand.pitch
    };
    let rows = if operand.height == 0 {
        layer_end
    } else {
        operand.height
    };
    if (height > 1 || depth > 1) && pitch < row_end || depth > 1 && rows < layer_end {
        return Err(INVALID_VALUE);
    }
    let layer = pitch.checked_mul(rows).ok_or(INVALID_VALUE)?;
    let offset = operand
        .z
        .checked_mul(layer)
        .and_then(|at| at.checked_add(operand.y.checked_mul(pitch)?))
        .and_then(|at| at.checked_add(operand.x))
        .ok_or(INVALID_VALUE)?;
    let address = start.checked_add(offset as u64).ok_or(INVALID_VALUE)?;
    Ok(Side {
        address,
        pitch,
        layer,
    })
}

/// The bytes that a description names.
pub(super) fn transfer(s: &State, c: &Copy3d) -> Status<Transfer> {
    let [width, height, depth] = c.extent;
    Ok(Transfer {
        target: side(s, &c.target, c.extent)?,
        source: side(s, &c.source, c.extent)?,
        width,
        height,
        depth,
    })
}

fn three_dimensional(c: Copy3d, stream: u64, per_thread: bool, waits: bool) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        let transfer = transfer(s, &c)?;
        copy(s, lane, transfer, waits, Some(c))
    })
}

fn two_dimensional(c: Copy2d, stream: u64, per_thread: bool, waits: bool) -> Status {
    let flat = |x, y, kind, host, device, array, pitch| Copy3dSide {
        x,
        y,
        z: 0,
        lod: 0,
        kind,
        host,
        device,
        array,
        context: 0,
        pitch,
        height: 0,
    };
    let three = Copy3d {
        source: flat(
            c.src_x,
            c.src_y,
            c.src_type,
            c.src_host,
            c.src_device,
            c.src_array,
            c.src_pitch,
        ),
        target: flat(
            c.dst_x,
            c.dst_y,
            c.dst_type,
            c.dst_host,
            c.dst_device,
            c.dst_array,
            c.dst_pitch,
        ),
        extent: [c.width, c.height, 1],
    };
    three_dimensional(three, stream, per_thread, waits)
}

fn between_peers(c: Copy3d, stream: u64, per_thread: bool, waits: bool) -> Status {
    session(|s| are_contexts(s, [c.target.context, c.source.context]))?;
    three_dimensional(c, stream, per_thread, waits)
}

api! {
    "cuMemcpy2D" 3020 => cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds |per_thread| (copy: In<Copy2d>) {
        two_dimensional(copy.get()?, 0, per_thread, true)
    }
    "cuMemcpy2DUnaligned" 3020 => cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds |per_thread|
                                  (copy: In<Copy2d>) {
        two_dimensional(copy.get()?, 0, per_thread, true)
    }
    "cuMemcpy2DAsync" 3020 => cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz |per_thread|
                              (copy: In<Copy2d>, stream: u64) {
        two_dimensional(copy.get()?, stream, per_thread, false)
    }
    "cuMemcpy3D" 3020 => cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds |per_thread| (copy: In<Copy3d>) {
        three_dimensional(copy.get()?, 0, per_thread, true)
    }
    "cuMemcpy3DAsync" 3020 => cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz |per_thread|
                              (copy: In<Copy3d>, stream: u64) {
        three_dimensional(copy.get()?, stream, per_thread, false)
    }
    "cuMemcpy3DPeer" 4000 => cuMemcpy3DPeer / cuMemcpy3DPeer_ptds |per_thread| (copy: In<Copy3d>) {
        between_peers(copy.get()?, 0, per_thread, true)
    }
    "cuMemcpy3DPeerAsync" 4000 => cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz |per_thread|
                                  (copy: In<Copy3d>, stream: u64) {
        between_peers(copy.get()?, stream, per_thread, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::{CUDA_MEMCPY2D_st, CUDA_MEMCPY3D_PEER_st, CUDA_MEMCPY3D_st};
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_nvidias() {
        assert_eq!(size_of::<Copy2d>(), size_of::<CUDA_MEMCPY2D_st>());
        assert_eq!(
            offset_of!(Copy2d, src_host),
            offset_of!(CUDA_MEMCPY2D_st, srcHost)
        );
        assert_eq!(
            offset_of!(Copy2d, dst_device),
            offset_of!(CUDA_MEMCPY2D_st, dstDevice)
        );
        assert_eq!(
            offset_of!(Copy2d, dst_pitch),
            offset_of!(CUDA_MEMCPY2D_st, dstPitch)
        );
        assert_eq!(
            offset_of!(Copy2d, height),
            offset_of!(CUDA_MEMCPY2D_st, Height)
        );
        assert_eq!(size_of::<Copy3d>(), size_of::<CUDA_MEMCPY3D_st>());
        assert_eq!(size_of::<Copy3d>(), size_of::<CUDA_MEMCPY3D_PEER_st>());
        let target = offset_of!(Copy3d, target);
        assert_eq!(target, offset_of!(CUDA_MEMCPY3D_st, dstXInBytes));
        assert_eq!(
            target + offset_of!(Copy3dSide, array),
            offset_of!(CUDA_MEMCPY3D_st, dstArray)
        );
        assert_eq!(
            target + offset_of!(Copy3dSide, context),
            offset_of!(CUDA_MEMCPY3D_PEER_st, dstContext)
        );
        assert_eq!(
            target + offset_of!(Copy3dSide, height),
            offset_of!(CUDA_MEMCPY3D_st, dstHeight)
        );
        assert_eq!(
            offset_of!(Copy3d, extent),
            offset_of!(CUDA_MEMCPY3D_st, WidthInBytes)
        );
    }
}
