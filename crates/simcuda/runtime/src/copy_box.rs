//! Copies of layers of rows, pitched pointers and arrays alike; between devices too.

use crate::abi::{Array3dDescriptor, Copy3d, Copy3dSide, In, Out, Status};
use crate::array::element;
use crate::device::{primary, ready};
use crate::driver::Driver;
use crate::error::{INVALID_MEMCPY_DIRECTION, INVALID_VALUE};

/// `CU_MEMORYTYPE_ARRAY` and `CU_MEMORYTYPE_UNIFIED`: what is no array goes by address.
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// `cudaPitchedPtr`; the logical extents are in elements, the pitch in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Pitched {
    pub(crate) address: u64,
    pub(crate) pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `cudaExtent`: width, height, depth.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Extent(pub(crate) [usize; 3]);

/// One side of `cudaMemcpy3DParms`: an array, or a pitched pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side {
    array: u64,
    position: [usize; 3],
    pitched: Pitched,
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Params {
    source: Side,
    target: Side,
    extent: [usize; 3],
    kind: u32,
}

/// One side of `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PeerSide {
    side: Side,
    device: i32,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PeerParams {
    source: PeerSide,
    target: PeerSide,
    extent: [usize; 3],
}

/// The bytes of an array's element, or `None` for a pitched pointer.
fn element_of(driver: &Driver, side: Side) -> Status<Option<usize>> {
    // One of the two, and not both.
    if (side.array == 0) == (side.pitched.address == 0) {
        return Err(INVALID_VALUE);
    }
    if side.array == 0 {
        return Ok(None);
    }
    let mut descriptor = Array3dDescriptor::default();
    driver.cuArray3DGetDescriptor(false, Out(&mut descriptor), side.array)?;
    element(&descriptor).map(Some)
}

/// As NVIDIA's manual says of `cudaMemcpy3DParms`: positions are in elements of their own side, and the extent in
/// those of the array, if one takes part; a pointer's element is a byte.
fn params(
    driver: &Driver,
    [source, target]: [Side; 2],
    extent: [usize; 3],
    contexts: [u64; 2],
) -> Status<Copy3d> {
    let elements = [element_of(driver, source)?, element_of(driver, target)?];
    let unit = elements[0].or(elements[1]).unwrap_or(1);
    let side = |side: Side, element: Option<usize>, context| -> Status<Copy3dSide> {
        let [x, y, z] = side.position;
        Ok(Copy3dSide {
            x: x.checked_mul(element.unwrap_or(1)).ok_or(INVALID_VALUE)?,
            y,
            z,
            lod: 0,
            kind: if element.is_some() { ARRAY } else { UNIFIED },
            host: 0,
            device: side.pitched.address,
            array: side.array,
            context,
            pitch: side.pitched.pitch,
            height: side.pitched.height,
        })
    };
    let [width, height, depth] = extent;
    let width = width.checked_mul(unit).ok_or(INVALID_VALUE)?;
    Ok(Copy3d {
        source: side(source, elements[0], contexts[0])?,
        target: side(target, elements[1], contexts[1])?,
        extent: [width, height, depth],
    })
}

/// The driver's description of a copy.
pub(crate) fn plain(driver: &Driver, given: In<Params>) -> Status<Copy3d> {
    let given = given.get()?;
    if given.kind > 4 {
        return Err(INVALID_MEMCPY_DIRECTION);
    }
    params(driver, [given.source, given.target], given.extent, [0; 2])
}

/// The opposite of [`plain`]; the kind is what the addresses say.
pub(crate) fn told(driver: &Driver, copy: &Copy3d) -> Status<Params> {
    const HOST: u32 = 1;
    let side = |side: &Copy3dSide| -> Status<(Side, usize)> {
        let mut told = Side {
            array: 0,
            position: [side.x, side.y, side.z],
            pitched: Pitched {
                address: 0,
                pitch: 0,
                width: 0,
                height: 0,
            },
        };
        if side.kind == ARRAY {
            told.array = side.array;
            let element = element_of(driver, told)?.unwrap_or(1).max(1);
            told.position[0] /= element;
            return Ok((told, element));
        }
        told.pitched = Pitched {
            address: if side.kind == HOST {
                side.host
            } else {
                side.device
            },
            pitch: side.pitch,
            width: side.pitch,
            height: side.height,
        };
        Ok((told, 1))
    };
    let ((source, of_source), (target, of_target)) = (side(&copy.source)?, side(&copy.target)?);
    let [width, height, depth] = copy.extent;
    Ok(Params {
        source,
        target,
        extent: [width / of_source.max(of_target), height, depth],
        kind: 4,
    })
}

fn peers(driver: &Driver, given: In<PeerParams>) -> Status<Copy3d> {
    let PeerParams {
        source,
        target,
        extent,
    } = given.get()?;
    let contexts = [
        primary(driver, source.device)?,
        primary(driver, target.device)?,
    ];
    params(driver, [source.side, target.side], extent, contexts)
}

export! {
    cudaMemcpy3D / cudaMemcpy3D_ptds |per_thread| (given: In<Params>) {
        let driver = ready()?;
        driver.cuMemcpy3D(per_thread, In(&plain(driver, given)?))
    }
    cudaMemcpy3DAsync / cudaMemcpy3DAsync_ptsz |per_thread| (given: In<Params>, stream: u64) {
        let driver = ready()?;
        driver.cuMemcpy3DAsync(per_thread, In(&plain(driver, given)?), stream)
    }
    cudaMemcpy3DPeer / cudaMemcpy3DPeer_ptds |per_thread| (given: In<PeerParams>) {
        let driver = ready()?;
        driver.cuMemcpy3DPeer(per_thread, In(&peers(driver, given)?))
    }
    cudaMemcpy3DPeerAsync / cudaMemcpy3DPeerAsync_ptsz |per_thread| (given: In<PeerParams>, stream: u64) {
        let driver = ready()?;
        driver.cuMemcpy3DPeerAsync(per_thread, In(&peers(driver, given)?), stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::runtime::sys::{cudaMemcpy3DParms, cudaMemcpy3DPeerParms};
    use std::mem::{offset_of, size_of};

    #[test]
    fn params_are_laid_out_as_nvidias() {
        assert_eq!(size_of::<Params>(), size_of::<cudaMemcpy3DParms>());
        assert_eq!(
            offset_of!(Params, target),
            offset_of!(cudaMemcpy3DParms, dstArray)
        );
        assert_eq!(
            offset_of!(Params, kind),
            offset_of!(cudaMemcpy3DParms, kind)
        );
        assert_eq!(size_of::<PeerParams>(), size_of::<cudaMemcpy3DPeerParms>());
        assert_eq!(
            offset_of!(PeerParams, target) + offset_of!(PeerSide, device),
            offset_of!(cudaMemcpy3DPeerParms, dstDevice)
        );
    }
}
