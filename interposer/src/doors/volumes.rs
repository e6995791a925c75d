//! Copies and fills of volumes: slices of rows. Where a volume folds into rows that
//! lie at even distances it is told exactly; else slice by slice; else, where there
//! are too many slices, it only keeps its place in its stream.

use cudarc::driver::sys::{CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER};
use cudarc::runtime::sys::{
    cudaExtent, cudaMemcpy3DParms, cudaMemcpy3DPeerParms, cudaPitchedPtr, cudaPos,
};
use streamcheck_model::{Direction, Region};

use super::arrays::{self, ARRAY, unseen};
use super::copies::{When, direction};
use super::peers;
use crate::call::Call;
use crate::hook::hooks;

/// A volume of more slices than these is not told slice by slice.
const SLICES: u64 = 64;

/// How much is copied or filled.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Bytes in a row.
    pub(super) width: u64,
    /// Rows in a slice.
    pub(super) height: u64,
    /// Slices.
    pub(super) depth: u64,
}

impl From<cudaExtent> for Extent {
    fn from(extent: cudaExtent) -> Self {
        Self {
            width: extent.width as u64,
            height: extent.height as u64,
            depth: extent.depth as u64,
        }
    }
}

/// One side's memory.
#[derive(Clone, Copy)]
pub(super) struct Volume {
    /// Its first byte.
    pub(super) address: u64,
    /// Bytes from one row to the next.
    pub(super) pitch: u64,
    /// Rows from one slice to the next.
    pub(super) height: u64,
}

impl Volume {
    fn new(pointer: cudaPitchedPtr, place: cudaPos) -> Self {
        Self::at(
            pointer.ptr as u64,
            pointer.pitch,
            pointer.ysize,
            [place.x, place.y, place.z],
        )
    }

    /// `place` is where in it the copy begins: bytes, rows and slices.
    fn at(address: u64, pitch: usize, height: usize, [x, y, z]: [usize; 3]) -> Self {
        let rows = height.wrapping_mul(z).wrapping_add(y);
        let inside = pitch.wrapping_mul(rows).wrapping_add(x);
        Self {
            address: address.wrapping_add(inside as u64),
            pitch: pitch as u64,
            height: height as u64,
        }
    }

    /// Its bytes, if its slices' rows lie at even distances.
    pub(super) fn folded(self, extent: Extent) -> Option<Region> {
        let Extent {
            width,
            height,
            depth,
        } = extent;
        let slice = self.pitch.saturating_mul(self.height);
        let region = |width, rows, pitch| Some(Region::pitched(self.address, width, rows, pitch));
        if depth <= 1 || height == self.height {
            region(width, height.saturating_mul(depth), self.pitch)
        } else if height == 1 {
            region(width, depth, slice)
        } else if width == self.pitch {
            region(width.saturating_mul(height), depth, slice)
        } else {
            None
        }
    }

    fn slice(self, extent: Extent, index: u64) -> Region {
        let slice = self.pitch.saturating_mul(self.height);
        let address = self.address.saturating_add(slice.saturating_mul(index));
        Region::pitched(address, extent.width, extent.height, self.pitch)
    }
}

/// One side of a copy of a volume; `None` is an array.
pub(super) type Side = Option<Volume>;

fn folded(side: Side, extent: Extent) -> Option<Region> {
    side.map_or(Some(ARRAY), |volume| volume.folded(extent))
}

/// The copy's parts: one, or one a slice. `None` if there are too many.
pub(super) fn parts(to: Side, from: Side, extent: Extent) -> Option<Vec<(Region, Region)>> {
    if let (Some(to), Some(from)) = (folded(to, extent), folded(from, extent)) {
        return Some(vec![(to, from)]);
    }
    let slice = |side: Side, index| side.map_or(ARRAY, |volume| volume.slice(extent, index));
    (extent.depth <= SLICES).then(|| {
        (0..extent.depth)
            .map(|index| (slice(to, index), slice(from, index)))
            .collect()
    })
}

/// Whether a synchronous copy may return when it is made: not within a device.
fn may_wait(direction: Direction, when: When) -> bool {
    when == When::Now && direction != Direction::DeviceToDevice
}

fn copied(
    call: &Call,
    stream: usize,
    to: Side,
    from: Side,
    extent: Extent,
    direction: Direction,
    when: When,
) {
    if to.is_none() && from.is_none() {
        unseen(call, stream, "array-copy", false);
        return;
    }
    let Some(parts) = parts(to, from, extent) else {
        unseen(call, stream, "volume-copy", may_wait(direction, when));
        return;
    };
    if let [(to, from)] = parts[..] {
        arrays::copied(call, stream, to, from, direction, when);
        return;
    }
    call.copied_in_layers(stream, parts, direction, when == When::Now);
}

/// A fill of a volume.
fn filled(call: &Call, stream: usize, to: cudaPitchedPtr, extent: cudaExtent, synchronous: bool) {
    let volume = Volume::new(to, cudaPos { x: 0, y: 0, z: 0 });
    let extent = Extent::from(extent);
    match volume.folded(extent) {
        Some(region) => call.filled(stream, region, synchronous),
        None if extent.depth <= SLICES => {
            for index in 0..extent.depth {
                call.filled(stream, volume.slice(extent, index), synchronous);
            }
        }
        None => unseen(call, stream, "volume-fill", false),
    }
}

/// What a copy of a volume is between: where it writes, where it reads, how much, if that
/// can be told, and the way it goes.
pub(super) type Described = (Side, Side, Option<Extent>, Direction);

/// # Safety
/// `parameters` are those of a copy that succeeded.
pub(super) unsafe fn runtime_copy(parameters: *const cudaMemcpy3DParms) -> Described {
    // SAFETY: read as raw memory, as the kind may be a value that Rust's enum lacks.
    let (to, from, extent, kind) = unsafe {
        let from = (*parameters).srcArray.is_null();
        let to = (*parameters).dstArray.is_null();
        (
            to.then(|| Volume::new((*parameters).dstPtr, (*parameters).dstPos)),
            from.then(|| Volume::new((*parameters).srcPtr, (*parameters).srcPos)),
            (*parameters).extent,
            (&raw const (*parameters).kind).cast::<u32>().read(),
        )
    };
    let extent = in_bytes(to, from, extent.into(), || {
        // SAFETY: as above.
        let (to, from) = unsafe { ((*parameters).dstArray, (*parameters).srcArray) };
        element_size(if to.is_null() { from } else { to } as usize)
    });
    (to, from, extent, direction(kind))
}

/// # Safety
/// `parameters` are those of a copy that succeeded.
unsafe fn runtime(call: &Call, stream: usize, parameters: *const cudaMemcpy3DParms, when: When) {
    // SAFETY: the caller's promise.
    let (to, from, extent, direction) = unsafe { runtime_copy(parameters) };
    match extent {
        Some(extent) => copied(call, stream, to, from, extent, direction, when),
        None => {
            let waits = may_wait(direction, when);
            unseen(call, stream, "array-copy", waits);
        }
    }
}

/// The runtime counts a row in elements where one side is an array ("cudaMemcpy3D" in
/// its reference), and its place in the memory too, in bytes ("unsigned char").
fn in_bytes(
    to: Side,
    from: Side,
    mut extent: Extent,
    element: impl FnOnce() -> Option<u64>,
) -> Option<Extent> {
    if to.is_some() != from.is_some() {
        extent.width = extent.width.checked_mul(element()?)?;
    }
    Some(extent)
}

/// Bytes in an element of a CUDA array.
pub(super) fn element_size(array: usize) -> Option<u64> {
    use crate::{capture, provider, runtime};
    type GetInfo =
        unsafe extern "C-unwind" fn(*mut [i32; 5], *mut cudaExtent, *mut u32, usize) -> u32;
    // While a stream captures, no question may be put to CUDA.
    if capture::any() {
        return None;
    }
    if let Some(size) = driver::element_size(array) {
        return Some(size);
    }
    let get = provider::unhooked(c"cudaArrayGetInfo")?;
    let mut format = [0; 5];
    let mut extent = cudaExtent {
        width: 0,
        height: 0,
        depth: 0,
    };
    let mut flags = 0;
    let status = runtime::ask(|| {
        // SAFETY: the type is cuda_runtime_api.h's; it writes all three. The array was
        // just copied from or to with success.
        unsafe {
            core::mem::transmute::<*const (), GetInfo>(get)(
                &mut format,
                &mut extent,
                &mut flags,
                array,
            )
        }
    });
    // `cudaChannelFormatDesc`: the bits of up to four channels.
    let bits: i32 = format[..4].iter().sum();
    (matches!(status, Ok(0)) && bits >= 8).then_some(bits as u64 / 8)
}

/// # Safety
/// `parameters` are those of a copy that succeeded.
unsafe fn peer(call: &Call, stream: usize, parameters: *const cudaMemcpy3DPeerParms, when: When) {
    // SAFETY: plain numbers and pointers.
    let p = unsafe { *parameters };
    let to = p
        .dstArray
        .is_null()
        .then(|| Volume::new(p.dstPtr, p.dstPos));
    let from = p
        .srcArray
        .is_null()
        .then(|| Volume::new(p.srcPtr, p.srcPos));
    let array = if p.dstArray.is_null() {
        p.srcArray
    } else {
        p.dstArray
    };
    let extent = in_bytes(to, from, p.extent.into(), || element_size(array as usize));
    let copy = || match extent {
        Some(extent) => copied(
            call,
            stream,
            to,
            from,
            extent,
            Direction::DeviceToDevice,
            When::Later,
        ),
        None => unseen(call, stream, "array-copy", false),
    };
    match when {
        When::Now => peers::between(call, peers::devices([p.dstDevice, p.srcDevice]), copy),
        When::Later => copy(),
    }
}

hooks! { Runtime:
    /// Reads and writes the bytes of a volume
    fn cudaMemcpy3D | cudaMemcpy3D_ptds: (parameters: *const cudaMemcpy3DParms) after(call) {
        // SAFETY: the call succeeded with them.
        unsafe { runtime(call, 0, parameters, When::Now) };
    }
    /// Reads and writes the bytes of a volume, in stream order
    fn cudaMemcpy3DAsync | cudaMemcpy3DAsync_ptsz: (parameters: *const cudaMemcpy3DParms, stream: usize) after(call) {
        // SAFETY: the call succeeded with them.
        unsafe { runtime(call, stream, parameters, When::Later) };
    }
    /// As cudaMemcpyPeer, of a volume
    fn cudaMemcpy3DPeer | cudaMemcpy3DPeer_ptds: (parameters: *const cudaMemcpy3DPeerParms) after(call) {
        // SAFETY: the call succeeded with them.
        unsafe { peer(call, 0, parameters, When::Now) };
    }
    /// Reads and writes the bytes of a volume, in stream order
    fn cudaMemcpy3DPeerAsync | cudaMemcpy3DPeerAsync_ptsz: (
        parameters: *const cudaMemcpy3DPeerParms, stream: usize,
    ) after(call) {
        // SAFETY: the call succeeded with them.
        unsafe { peer(call, stream, parameters, When::Later) };
    }
    /// Writes the bytes of a volume
    fn cudaMemset3D | cudaMemset3D_ptds: (to: cudaPitchedPtr, value: i32, extent: cudaExtent) after(call) {
        let _ = value;
        filled(call, 0, to, extent, true);
    }
    /// Writes the bytes of a volume, in stream order
    fn cudaMemset3DAsync | cudaMemset3DAsync_ptsz: (
        to: cudaPitchedPtr, value: i32, extent: cudaExtent, stream: usize,
    ) after(call) {
        let _ = value;
        filled(call, stream, to, extent, false);
    }
}

/// The driver's half.
pub(super) use driver::{HOOKS as DRIVER, driver_copy};

mod driver {
    use cudarc::driver::sys::CUDA_ARRAY3D_DESCRIPTOR;

    use super::super::copies::sides;
    use super::*;

    /// Both descriptions of a copy have the same fields, under the same names.
    macro_rules! described {
        ($copy:ident) => {{
            // SAFETY: the caller's promise; enums are read as integers, the rest is
            // plain numbers and pointers, each field for itself.
            let (from_kind, to_kind) = unsafe {
                (
                    (&raw const (*$copy).srcMemoryType).cast::<u32>().read(),
                    (&raw const (*$copy).dstMemoryType).cast::<u32>().read(),
                )
            };
            // SAFETY: as above.
            unsafe {
                let from = sides::address(from_kind, (*$copy).srcHost as u64, (*$copy).srcDevice);
                let to = sides::address(to_kind, (*$copy).dstHost as u64, (*$copy).dstDevice);
                (
                    to.map(|to| {
                        Volume::at(
                            to,
                            (*$copy).dstPitch,
                            (*$copy).dstHeight,
                            [(*$copy).dstXInBytes, (*$copy).dstY, (*$copy).dstZ],
                        )
                    }),
                    from.map(|from| {
                        Volume::at(
                            from,
                            (*$copy).srcPitch,
                            (*$copy).srcHeight,
                            [(*$copy).srcXInBytes, (*$copy).srcY, (*$copy).srcZ],
                        )
                    }),
                    Extent {
                        width: (*$copy).WidthInBytes as u64,
                        height: (*$copy).Height as u64,
                        depth: (*$copy).Depth as u64,
                    },
                    sides::direction(from_kind, to_kind),
                )
            }
        }};
    }

    /// # Safety
    /// `copy` describes a copy that succeeded.
    pub(in super::super) unsafe fn driver_copy(copy: *const CUDA_MEMCPY3D) -> Described {
        let (to, from, extent, direction) = described!(copy);
        (to, from, Some(extent), direction)
    }

    /// # Safety
    /// `copy` describes a copy that succeeded.
    unsafe fn three_d(call: &Call, stream: usize, copy: *const CUDA_MEMCPY3D, when: When) {
        let (to, from, extent, direction) = described!(copy);
        copied(call, stream, to, from, extent, direction, when);
    }

    /// # Safety
    /// `copy` describes a copy that succeeded.
    unsafe fn peer(call: &Call, stream: usize, copy: *const CUDA_MEMCPY3D_PEER, when: When) {
        let (to, from, extent, direction) = described!(copy);
        let made = || copied(call, stream, to, from, extent, direction, when);
        // SAFETY: the caller's promise.
        let contexts = unsafe { [(*copy).dstContext as u64, (*copy).srcContext as u64] };
        match when {
            When::Now => peers::between(call, peers::devices_of(contexts), made),
            When::Later => made(),
        }
    }

    /// Bytes in an element of a CUDA array, as the driver says.
    pub(super) fn element_size(array: usize) -> Option<u64> {
        type GetDescriptor =
            unsafe extern "C-unwind" fn(*mut CUDA_ARRAY3D_DESCRIPTOR, usize) -> u32;
        let get = crate::driver::unhooked(c"cuArray3DGetDescriptor_v2")?;
        let mut description = core::mem::MaybeUninit::<CUDA_ARRAY3D_DESCRIPTOR>::zeroed();
        // SAFETY: the type is cuda.h's; it writes the description.
        let status = unsafe {
            core::mem::transmute::<*const (), GetDescriptor>(get)(description.as_mut_ptr(), array)
        };
        // SAFETY: zeroed or written; the format is read as an integer.
        let (format, channels) = unsafe {
            let description = description.as_ptr();
            (
                (&raw const (*description).Format).cast::<u32>().read(),
                (*description).NumChannels,
            )
        };
        // `CUarray_format` (cuda.h). Compressed and planar ones have no element.
        let bytes = match format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return None,
        };
        (status == 0 && channels != 0).then_some(bytes * u64::from(channels))
    }

    hooks! { Driver:
        /// Reads and writes the bytes of a volume
        fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds: (copy: *const CUDA_MEMCPY3D) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { three_d(call, 0, copy, When::Now) };
        }
        /// Reads and writes the bytes of a volume, in stream order
        fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz: (copy: *const CUDA_MEMCPY3D, stream: usize) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { three_d(call, stream, copy, When::Later) };
        }
        /// As cuMemcpyPeer, of a volume
        fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds: (copy: *const CUDA_MEMCPY3D_PEER) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { peer(call, 0, copy, When::Now) };
        }
        /// Reads and writes the bytes of a volume, in stream order
        fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz: (
            copy: *const CUDA_MEMCPY3D_PEER, stream: usize,
        ) after(call) {
            // SAFETY: the call succeeded with it.
            unsafe { peer(call, stream, copy, When::Later) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(region: Region) -> Vec<u64> {
        let rows = (0..region.rows).map(|row| region.address + row * region.pitch);
        rows.flat_map(|start| start..start + region.width).collect()
    }

    #[test]
    fn a_folded_volume_has_its_slices_bytes() {
        let mut folded = 0;
        for seed in 0..3u64.pow(5) {
            let pick = |place: u32| seed / 3u64.pow(place) % 3;
            let extent = Extent {
                width: 1 + pick(0),
                height: 1 + pick(1),
                depth: 1 + pick(2),
            };
            let volume = Volume {
                address: 100,
                pitch: extent.width + pick(3),
                height: extent.height + pick(4),
            };
            let slices = (0..extent.depth).map(|index| volume.slice(extent, index));
            let of_slices: Vec<u64> = slices.flat_map(bytes).collect();
            if let Some(region) = volume.folded(extent) {
                folded += 1;
                assert_eq!(bytes(region), of_slices, "{region:?}");
            } else {
                let gaps = volume.pitch > extent.width && volume.height > extent.height;
                assert!(gaps && extent.height > 1 && extent.depth > 1);
            }
        }
        assert!(folded > 100);
    }
}
