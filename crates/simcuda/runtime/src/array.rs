//! CUDA arrays, pitched allocations, and the copies that name an array by offsets into it.

use crate::abi::{Array3dDescriptor, Copy2d, In, Out, Status};
use crate::copy_box::{Extent, Pitched};
use crate::device::ready;
use crate::driver::Driver;
use crate::error::{INVALID_MEMCPY_DIRECTION, INVALID_VALUE};
use crate::memory::allocate;

/// `cudaChannelFormatDesc`: bits of x, y, z, w, and the kind: signed 0, unsigned 1, float 2.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChannelFormat {
    bits: [i32; 4],
    kind: u32,
}

/// `CUarray_format` by kind and bits.
const FORMATS: [(u32, i32, u32); 8] = [
    (0, 8, 0x08),
    (0, 16, 0x09),
    (0, 32, 0x0a),
    (1, 8, 0x01),
    (1, 16, 0x02),
    (1, 32, 0x03),
    (2, 16, 0x10),
    (2, 32, 0x20),
];

/// `cudaErrorInvalidChannelDescriptor`.
const INVALID_CHANNELS: u32 = 20;

impl ChannelFormat {
    /// The driver's format, and channels.
    fn format(self) -> Status<(u32, u32)> {
        let channels = self.bits.iter().take_while(|&&bits| bits != 0).count();
        let alike = self.bits[..channels]
            .iter()
            .all(|&bits| bits == self.bits[0]);
        let rest = self.bits[channels..].iter().all(|&bits| bits == 0);
        let format = FORMATS
            .iter()
            .find(|&&(kind, bits, _)| (kind, bits) == (self.kind, self.bits[0]));
        match (format, channels) {
            (Some(&(_, _, format)), 1 | 2 | 4) if alike && rest => Ok((format, channels as u32)),
            _ => Err(INVALID_CHANNELS),
        }
    }

    fn of(descriptor: &Array3dDescriptor) -> Status<Self> {
        let &(kind, width, _) = FORMATS
            .iter()
            .find(|row| row.2 == descriptor.format)
            .ok_or(INVALID_CHANNELS)?;
        let mut bits = [0; 4];
        bits.iter_mut()
            .take(descriptor.channels as usize)
            .for_each(|channel| *channel = width);
        Ok(Self { bits, kind })
    }
}

/// The bytes of an array's element.
pub(crate) fn element(descriptor: &Array3dDescriptor) -> Status<usize> {
    let bits: i32 = ChannelFormat::of(descriptor)?.bits.iter().sum();
    Ok(bits as usize / 8)
}

fn create(array: Out<u64>, format: In<ChannelFormat>, extent: [usize; 3], flags: u32) -> Status {
    let driver = ready()?;
    let (format, channels) = format.get()?.format()?;
    let [width, height, depth] = extent;
    let descriptor = Array3dDescriptor {
        width,
        height,
        depth,
        format,
        channels,
        flags,
    };
    driver.cuArray3DCreate(false, array, In(&descriptor))
}

fn describe(driver: &Driver, array: u64) -> Status<Array3dDescriptor> {
    let mut descriptor = Array3dDescriptor::default();
    driver.cuArray3DGetDescriptor(false, Out(&mut descriptor), array)?;
    Ok(descriptor)
}

/// One side of a copy: an array with bytes and rows into it, or rows of a pitch.
#[derive(Clone, Copy)]
enum Side {
    Array(u64, usize, usize),
    Rows(u64, usize),
}

/// Copies `height` rows of `width` bytes.
fn copy(
    per_thread: bool,
    [target, source]: [Side; 2],
    (width, height): (usize, usize),
    kind: u32,
    stream: Option<u64>,
) -> Status {
    if kind > 4 {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    // `CU_MEMORYTYPE_ARRAY` and `CU_MEMORYTYPE_UNIFIED`: type, address, array, pitch, x and y.
    let parts = |side| match side {
        Side::Array(array, x, y) => (3, 0, array, 0, x, y),
        Side::Rows(address, pitch) => (4, address, 0, pitch, 0, 0),
    };
    let (dst_type, dst_device, dst_array, dst_pitch, dst_x, dst_y) = parts(target);
    let (src_type, src_device, src_array, src_pitch, src_x, src_y) = parts(source);
    let rows = Copy2d {
        src_x,
        src_y,
        src_type,
        src_host: 0,
        src_device,
        src_array,
        src_pitch,
        dst_x,
        dst_y,
        dst_type,
        dst_host: 0,
        dst_device,
        dst_array,
        dst_pitch,
        width,
        height,
    };
    match stream {
        None => ready()?.cuMemcpy2DUnaligned(per_thread, In(&rows)),
        Some(stream) => ready()?.cuMemcpy2DAsync(per_thread, In(&rows), stream),
    }
}

export! {
    cudaMallocArray(array: Out<u64>, format: In<ChannelFormat>, width: usize, height: usize, flags: u32) {
        create(array, format, [width, height, 0], flags)
    }
    cudaMalloc3DArray(array: Out<u64>, format: In<ChannelFormat>, extent: Extent, flags: u32) {
        create(array, format, extent.0, flags)
    }
    cudaFreeArray(array: u64) {
        let driver = ready()?;
        if array == 0 { Ok(()) } else { driver.cuArrayDestroy(false, array) }
    }
    cudaArrayGetInfo(format: Out<ChannelFormat>, extent: Out<[usize; 3]>, flags: Out<u32>, array: u64) {
        let descriptor = describe(ready()?, array)?;
        format.put_if_wanted(ChannelFormat::of(&descriptor)?);
        extent.put_if_wanted([descriptor.width, descriptor.height, descriptor.depth]);
        flags.put_if_wanted(descriptor.flags);
        Ok(())
    }
    cudaGetChannelDesc(format: Out<ChannelFormat>, array: u64) {
        format.put(ChannelFormat::of(&describe(ready()?, array)?)?)
    }
    cudaMalloc3D(out: Out<Pitched>, extent: Extent) {
        let [width, height, depth] = extent.0;
        let rows = height.checked_mul(depth).ok_or(INVALID_VALUE)?;
        let (mut address, mut pitch) = (0, 0);
        out.wanted()?;
        allocate(Out(&mut address), width.saturating_mul(rows), || {
            ready()?.cuMemAllocPitch(false, Out(&mut address), Out(&mut pitch), width, rows, 4)
        })?;
        out.put(Pitched { address, pitch, width, height })
    }

    cudaMemcpy2DToArray / cudaMemcpy2DToArray_ptds |per_thread|
        (array: u64, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: u32) {
        copy(per_thread, [Side::Array(array, x, y), Side::Rows(from, pitch)], (width, height), kind, None)
    }
    cudaMemcpy2DToArrayAsync / cudaMemcpy2DToArrayAsync_ptsz |per_thread|
        (array: u64, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: u32,
         stream: u64) {
        copy(per_thread, [Side::Array(array, x, y), Side::Rows(from, pitch)], (width, height), kind, Some(stream))
    }
    cudaMemcpy2DFromArray / cudaMemcpy2DFromArray_ptds |per_thread|
        (to: u64, pitch: usize, array: u64, x: usize, y: usize, width: usize, height: usize, kind: u32) {
        copy(per_thread, [Side::Rows(to, pitch), Side::Array(array, x, y)], (width, height), kind, None)
    }
    cudaMemcpy2DFromArrayAsync / cudaMemcpy2DFromArrayAsync_ptsz |per_thread|
        (to: u64, pitch: usize, array: u64, x: usize, y: usize, width: usize, height: usize, kind: u32, stream: u64) {
        copy(per_thread, [Side::Rows(to, pitch), Side::Array(array, x, y)], (width, height), kind, Some(stream))
    }
    cudaMemcpy2DArrayToArray / cudaMemcpy2DArrayToArray_ptds |per_thread|
        (to: u64, to_x: usize, to_y: usize, from: u64, from_x: usize, from_y: usize, width: usize, height: usize,
         kind: u32) {
        let sides = [Side::Array(to, to_x, to_y), Side::Array(from, from_x, from_y)];
        copy(per_thread, sides, (width, height), kind, None)
    }
    cudaMemcpyToArray / cudaMemcpyToArray_ptds |per_thread|
        (array: u64, x: usize, y: usize, from: u64, length: usize, kind: u32) {
        copy(per_thread, [Side::Array(array, x, y), Side::Rows(from, length)], (length, 1), kind, None)
    }
    cudaMemcpyToArrayAsync / cudaMemcpyToArrayAsync_ptsz |per_thread|
        (array: u64, x: usize, y: usize, from: u64, length: usize, kind: u32, stream: u64) {
        copy(per_thread, [Side::Array(array, x, y), Side::Rows(from, length)], (length, 1), kind, Some(stream))
    }
    cudaMemcpyFromArray / cudaMemcpyFromArray_ptds |per_thread|
        (to: u64, array: u64, x: usize, y: usize, length: usize, kind: u32) {
        copy(per_thread, [Side::Rows(to, length), Side::Array(array, x, y)], (length, 1), kind, None)
    }
    cudaMemcpyFromArrayAsync / cudaMemcpyFromArrayAsync_ptsz |per_thread|
        (to: u64, array: u64, x: usize, y: usize, length: usize, kind: u32, stream: u64) {
        copy(per_thread, [Side::Rows(to, length), Side::Array(array, x, y)], (length, 1), kind, Some(stream))
    }
    cudaMemcpyArrayToArray / cudaMemcpyArrayToArray_ptds |per_thread|
        (to: u64, to_x: usize, to_y: usize, from: u64, from_x: usize, from_y: usize, length: usize, kind: u32) {
        let sides = [Side::Array(to, to_x, to_y), Side::Array(from, from_x, from_y)];
        copy(per_thread, sides, (length, 1), kind, None)
    }
}

// SAFETY: NVIDIA's name; this library stands in for the one that defines it. It returns no status: it only packs its
// arguments.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVIDIA's names")]
extern "C" fn cudaCreateChannelDesc(x: i32, y: i32, z: i32, w: i32, kind: u32) -> ChannelFormat {
    ChannelFormat {
        bits: [x, y, z, w],
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUarray_format_enum as Format;
    use cudarc::runtime::sys::{cudaChannelFormatDesc, cudaPitchedPtr};
    use std::mem::size_of;

    #[test]
    fn structs_are_as_large_as_nvidias() {
        assert_eq!(
            size_of::<ChannelFormat>(),
            size_of::<cudaChannelFormatDesc>()
        );
        assert_eq!(size_of::<Pitched>(), size_of::<cudaPitchedPtr>());
    }

    #[test]
    fn channel_formats_are_the_drivers_and_back() {
        for (bits, kind, format, channels, bytes) in [
            ([32, 0, 0, 0], 2, Format::CU_AD_FORMAT_FLOAT, 1, 4),
            ([8, 8, 8, 8], 1, Format::CU_AD_FORMAT_UNSIGNED_INT8, 4, 4),
            ([16, 16, 0, 0], 2, Format::CU_AD_FORMAT_HALF, 2, 4),
            (
                [32, 32, 32, 32],
                0,
                Format::CU_AD_FORMAT_SIGNED_INT32,
                4,
                16,
            ),
        ] {
            let channel = ChannelFormat { bits, kind };
            assert_eq!(channel.format(), Ok((format as u32, channels)));
            let descriptor = Array3dDescriptor {
                format: format as u32,
                channels,
                ..Default::default()
            };
            assert_eq!(ChannelFormat::of(&descriptor), Ok(channel));
            assert_eq!(element(&descriptor), Ok(bytes));
        }
        assert!(
            ChannelFormat {
                bits: [8, 16, 0, 0],
                kind: 0
            }
            .format()
            .is_err()
        );
        assert!(
            ChannelFormat {
                bits: [8, 8, 8, 0],
                kind: 0
            }
            .format()
            .is_err()
        );
    }
}
