//! Fills: `cuMemset…`.

use crate::abi::Status;
use crate::sim::fill::Fill;
use crate::sim::graph::Action;
use crate::sim::memory::Place;
use crate::sim::sched::Work;
use crate::sim::session::session;

/// Fills `height` rows of `width` elements of `pattern`.
fn fill(
    (target, pitch): (u64, usize),
    pattern: &[u8],
    (width, height): (usize, usize),
    (stream, per_thread, waits): (u64, bool, bool),
) -> Status {
    let mut value = [0; 4];
    value[..pattern.len()].copy_from_slice(pattern);
    session(|s| {
        let lane = s.lane(stream, per_thread)?;
        let fill = Fill {
            target,
            pitch,
            value: u32::from_le_bytes(value),
            element: pattern.len() as u32,
            width,
            height,
            context: lane.context,
        };
        let capture = s.capturing_unless(waits, lane)?;
        let place = fill.check(s)?;
        if let Some(capture) = capture {
            return s
                .capture_node(capture, lane, Action::Fill(fill))
                .map(|_| ());
        }
        let point = s.submit(lane, Vec::new(), Work::Device(Box::new(move || fill.run())));
        s.submitted();
        // Synchronous fills do not wait either, except on memory that the host sees.
        if waits && place != Place::Device {
            s.run_to(point);
        }
        Ok(())
    })
}

api! {
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
    "cuMemsetD2D16" 3020 => cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds |per_thread|
                            (target: u64, pitch: usize, value: u16, width: usize, height: usize) {
        fill((target, pitch), &value.to_ne_bytes(), (width, height), (0, per_thread, true))
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
    "cuMemsetD2D16Async" 3020 => cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz |per_thread|
                                 (target: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64) {
        fill((target, pitch), &value.to_ne_bytes(), (width, height), (stream, per_thread, false))
    }
    "cuMemsetD2D32Async" 3020 => cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz |per_thread|
                                 (target: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        fill((target, pitch), &value.to_ne_bytes(), (width, height), (stream, per_thread, false))
    }
}
