//! Copies and fills, with NVIDIA's rules of which calls wait ("API synchronization behavior" of the driver manual).

use crate::abi::{Copy2d, In, Status};
use crate::error::{INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED};
use crate::sim::dma;
use crate::sim::memory::Place;
use crate::sim::sched::Work;
use crate::sim::session::{Session, session};
use crate::sim::state::Lane;

/// Rows of bytes; a linear copy has one.
#[derive(Clone, Copy)]
struct Rows {
    target: u64,
    target_pitch: usize,
    source: u64,
    source_pitch: usize,
    width: usize,
    height: usize,
}

impl Rows {
    fn linear(target: u64, source: u64, width: usize) -> Self {
        Self {
            target,
            target_pitch: width,
            source,
            source_pitch: width,
            width,
            height: 1,
        }
    }

    /// The bytes from the first of the first row to the last of the last.
    fn extent(&self, pitch: usize) -> u64 {
        if self.width == 0 || self.height == 0 {
            0
        } else {
            (pitch * (self.height - 1) + self.width) as u64
        }
    }

    fn run(self) {
        for row in 0..self.height {
            let (target, source) = (row * self.target_pitch, row * self.source_pitch);
            dma::copy(
                self.target + target as u64,
                self.source + source as u64,
                self.width,
            );
        }
    }

    /// Reads the source now; an invalid value where nothing is mapped.
    fn stage(&self) -> Status<Vec<u8>> {
        let mut bytes = vec![0; self.width * self.height];
        for (row, part) in bytes.chunks_exact_mut(self.width.max(1)).enumerate() {
            if !dma::read(part, self.source + (row * self.source_pitch) as u64) {
                return Err(INVALID_VALUE);
            }
        }
        Ok(bytes)
    }
}

/// Submits a copy and waits as far as its kind demands. `waits`: the call is the synchronous flavour.
fn copy(s: &mut Session, lane: Lane, rows: Rows, waits: bool) -> Status {
    let target = s.place(rows.target, rows.extent(rows.target_pitch))?;
    let source = s.place(rows.source, rows.extent(rows.source_pitch))?;
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    let on_device = |place| matches!(place, Place::Device | Place::Managed);
    if source == Place::Pageable && on_device(target) {
        // Staged: the source may be reused on return, and the transfer to the device may still be pending.
        if waits {
            let before = s.sched.past(lane.id);
            s.run_to(before.point);
        }
        let bytes = rows.stage()?;
        let run = move || {
            Rows {
                source: bytes.as_ptr() as u64,
                source_pitch: rows.width,
                ..rows
            }
            .run()
        };
        s.submit(lane, Vec::new(), Work::Device(Box::new(run)));
        s.submitted();
        return Ok(());
    }
    let point = s.submit(lane, Vec::new(), Work::Device(Box::new(move || rows.run())));
    s.submitted();
    let host_waits = match (target, source) {
        (Place::Device, Place::Device) => false,
        (Place::Pageable, _) => true,
        (to, from) if !on_device(to) && !on_device(from) => true,
        _ => waits,
    };
    if host_waits {
        s.run_to(point);
    }
    Ok(())
}

fn linear(
    target: u64,
    source: u64,
    length: usize,
    stream: u64,
    per_thread: bool,
    waits: bool,
) -> Status {
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        copy(s, lane, Rows::linear(target, source, length), waits)
    })
}

/// `CUmemorytype`: host 1, device 2, array 3, unified 4.
fn side(kind: u32, host: u64, device: u64) -> Status<u64> {
    match kind {
        1 => Ok(host),
        2 | 4 => Ok(device),
        3 => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

fn two_dimensional(copy2d: In<Copy2d>, stream: u64, per_thread: bool, waits: bool) -> Status {
    let c = copy2d.get()?;
    let tall = c.height > 1;
    if tall
        && (c.src_pitch != 0 && c.src_pitch < c.width || c.dst_pitch != 0 && c.dst_pitch < c.width)
    {
        return Err(INVALID_VALUE);
    }
    let source_pitch = if c.src_pitch == 0 {
        c.width
    } else {
        c.src_pitch
    };
    let target_pitch = if c.dst_pitch == 0 {
        c.width
    } else {
        c.dst_pitch
    };
    let rows = Rows {
        target: side(c.dst_type, c.dst_host, c.dst_device)?
            + (c.dst_y * target_pitch + c.dst_x) as u64,
        target_pitch,
        source: side(c.src_type, c.src_host, c.src_device)?
            + (c.src_y * source_pitch + c.src_x) as u64,
        source_pitch,
        width: c.width,
        height: c.height,
    };
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        copy(s, lane, rows, waits)
    })
}

fn between_peers(
    (target, target_context): (u64, u64),
    (source, source_context): (u64, u64),
    length: usize,
    (stream, per_thread, waits): (u64, bool, bool),
) -> Status {
    session(|s| {
        if s.contexts.get(target_context).is_none() || s.contexts.get(source_context).is_none() {
            return Err(INVALID_CONTEXT);
        }
        let lane = s.lane(stream, per_thread)?;
        copy(s, lane, Rows::linear(target, source, length), waits)
    })
}

/// Fills `height` rows of `count` elements of `pattern`.
fn fill(
    (target, pitch): (u64, usize),
    pattern: &[u8],
    (count, height): (usize, usize),
    (stream, per_thread, waits): (u64, bool, bool),
) -> Status {
    let width = count.checked_mul(pattern.len()).ok_or(INVALID_VALUE)?;
    if !target.is_multiple_of(pattern.len() as u64) || height > 1 && pitch < width {
        return Err(INVALID_VALUE);
    }
    let rows = Rows {
        target,
        target_pitch: pitch,
        source: 0,
        source_pitch: 0,
        width,
        height,
    };
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        let place = s.place(target, rows.extent(pitch))?;
        if place == Place::Pageable && width * height > 0 {
            return Err(INVALID_VALUE);
        }
        let pattern = pattern.to_vec();
        let run = move || {
            for row in 0..height {
                dma::fill(target + (row * pitch) as u64, &pattern, width);
            }
        };
        let point = s.submit(lane, Vec::new(), Work::Device(Box::new(run)));
        s.submitted();
        // Synchronous fills do not wait either, except on memory that the host sees.
        if waits && place != Place::Device {
            s.run_to(point);
        }
        Ok(())
    })
}

api! {
    "cuMemcpy" 4000 => cuMemcpy / cuMemcpy_ptds |per_thread| (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyHtoD" 3020 => cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds |per_thread|
                           (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyDtoH" 3020 => cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds |per_thread|
                           (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyDtoD" 3020 => cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds |per_thread|
                           (target: u64, source: u64, length: usize) {
        linear(target, source, length, 0, per_thread, true)
    }
    "cuMemcpyPeer" 4000 => cuMemcpyPeer / cuMemcpyPeer_ptds |per_thread|
                           (target: u64, target_context: u64, source: u64, source_context: u64, length: usize) {
        between_peers((target, target_context), (source, source_context), length, (0, per_thread, true))
    }
    "cuMemcpy2D" 3020 => cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds |per_thread| (copy: In<Copy2d>) {
        two_dimensional(copy, 0, per_thread, true)
    }
    "cuMemcpy2DUnaligned" 3020 => cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds |per_thread|
                                  (copy: In<Copy2d>) {
        two_dimensional(copy, 0, per_thread, true)
    }

    "cuMemcpyAsync" 4000 => cuMemcpyAsync / cuMemcpyAsync_ptsz |per_thread|
                            (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyHtoDAsync" 3020 => cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz |per_thread|
                                (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyDtoHAsync" 3020 => cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz |per_thread|
                                (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyDtoDAsync" 3020 => cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz |per_thread|
                                (target: u64, source: u64, length: usize, stream: u64) {
        linear(target, source, length, stream, per_thread, false)
    }
    "cuMemcpyPeerAsync" 4000 => cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz |per_thread|
                                (target: u64, target_context: u64, source: u64, source_context: u64, length: usize,
                                 stream: u64) {
        between_peers((target, target_context), (source, source_context), length, (stream, per_thread, false))
    }
    "cuMemcpy2DAsync" 3020 => cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz |per_thread|
                              (copy: In<Copy2d>, stream: u64) {
        two_dimensional(copy, stream, per_thread, false)
    }

    "cuMemsetD8" 3020 => cuMemsetD8_v2 / cuMemsetD8_v2_ptds |per_thread| (target: u64, value: u8, count: usize) {
        fill((target, 0), &[value], (count, 1), (0, per_thread, true))
    }
    "cuMemsetD16" 3020 => cuMemsetD16_v2 / cuMemsetD16_v2_ptds |per_thread| (target: u64, value: u16, count: usize) {
        fill((target, 0), &value.to_ne_bytes(), (count, 1), (0, per_thread, true))
    }
    "cuMemsetD32" 3020 => cuMemsetD32_v2 / cuMemsetD32_v2_ptds |per_thread| (target: u64, value: u32, count: usize) {
        fill((target, 0), &value.to_ne_bytes(), (count, 1), (0, per_thread, true))
    }
    "cuMemsetD2D8" 3020 => cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds |per_thread|
                           (target: u64, pitch: usize, value: u8, width: usize, height: usize) {
        fill((target, pitch), &[value], (width, height), (0, per_thread, true))
    }
    "cuMemsetD2D32" 3020 => cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds |per_thread|
                            (target: u64, pitch: usize, value: u32, width: usize, height: usize) {
        fill((target, pitch), &value.to_ne_bytes(), (width, height), (0, per_thread, true))
    }
    "cuMemsetD8Async" 3020 => cuMemsetD8Async / cuMemsetD8Async_ptsz |per_thread|
                              (target: u64, value: u8, count: usize, stream: u64) {
        fill((target, 0), &[value], (count, 1), (stream, per_thread, false))
    }
    "cuMemsetD16Async" 3020 => cuMemsetD16Async / cuMemsetD16Async_ptsz |per_thread|
                               (target: u64, value: u16, count: usize, stream: u64) {
        fill((target, 0), &value.to_ne_bytes(), (count, 1), (stream, per_thread, false))
    }
    "cuMemsetD32Async" 3020 => cuMemsetD32Async / cuMemsetD32Async_ptsz |per_thread|
                               (target: u64, value: u32, count: usize, stream: u64) {
        fill((target, 0), &value.to_ne_bytes(), (count, 1), (stream, per_thread, false))
    }
    "cuMemsetD2D8Async" 3020 => cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz |per_thread|
                                (target: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) {
        fill((target, pitch), &[value], (width, height), (stream, per_thread, false))
    }
    "cuMemsetD2D32Async" 3020 => cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz |per_thread|
                                 (target: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        fill((target, pitch), &value.to_ne_bytes(), (width, height), (stream, per_thread, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUDA_MEMCPY2D_st as Theirs;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_2d_struct_is_laid_out_as_nvidias() {
        assert_eq!(size_of::<Copy2d>(), size_of::<Theirs>());
        assert_eq!(offset_of!(Copy2d, src_host), offset_of!(Theirs, srcHost));
        assert_eq!(
            offset_of!(Copy2d, dst_device),
            offset_of!(Theirs, dstDevice)
        );
        assert_eq!(offset_of!(Copy2d, dst_pitch), offset_of!(Theirs, dstPitch));
        assert_eq!(offset_of!(Copy2d, height), offset_of!(Theirs, Height));
    }

    #[test]
    fn rows_move_and_leave_the_gaps() {
        let source = *b"abcdefghi";
        let mut target = *b"............";
        let rows = Rows {
            target: target.as_mut_ptr() as u64,
            target_pitch: 4,
            source: source.as_ptr() as u64,
            source_pitch: 3,
            width: 2,
            height: 3,
        };
        assert_eq!((rows.extent(4), rows.extent(3)), (10, 8));
        assert_eq!(rows.stage().unwrap(), b"abdegh");
        rows.run();
        assert_eq!(&target, b"ab..de..gh..");
    }
}
