//! Voxels and the units that own them.

use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use ffdp_kit::cubes::{blocks, launched};
use ffdp_kit::launch::Extent;

/// Units of a cube where a unit owns a column of voxels along z.
pub(crate) const COLUMNS: Dim3 = Dim3::new_2d(32, 8);

/// An output voxel.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Voxel {
    pub n: u32,
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// The voxel of this unit on a grid launched with [`cubes`](ffdp_kit::launch::cubes).
#[cube]
pub(crate) fn voxel_of_unit(size: &Extent) -> Voxel {
    let tiles = size.d.div_ceil(CUBE_DIM_Z);
    Voxel {
        n: CUBE_POS_Z / tiles,
        x: ABSOLUTE_POS_X,
        y: ABSOLUTE_POS_Y,
        z: (CUBE_POS_Z % tiles) * CUBE_DIM_Z + UNIT_POS_Z,
    }
}

/// The lowest of this unit's `height` voxels on a grid launched with [`columns`].
#[cube]
pub(crate) fn column_of_unit(size: &Extent, height: u32) -> Voxel {
    let slabs = size.d.div_ceil(height);
    Voxel {
        n: CUBE_POS_Z / slabs,
        x: ABSOLUTE_POS_X,
        y: ABSOLUTE_POS_Y,
        z: (CUBE_POS_Z % slabs) * height,
    }
}

/// The voxel `steps` above.
#[cube]
pub(crate) fn above(at: &Voxel, steps: u32) -> Voxel {
    Voxel { n: at.n, x: at.x, y: at.y, z: at.z + steps }
}

#[cube]
pub(crate) fn inside(at: &Voxel, size: &Extent) -> bool {
    at.x < size.w && at.y < size.h && at.z < size.d
}

/// Elements of one channel.
#[cube]
pub(crate) fn len(size: &Extent) -> usize {
    size.d as usize * size.h as usize * size.w as usize
}

/// The offset of a voxel within its channel.
#[cube]
pub(crate) fn offset(at: &Voxel, size: &Extent) -> usize {
    (at.z as usize * size.h as usize + at.y as usize) * size.w as usize + at.x as usize
}

/// The offset of (x, y, z) in a channel; `narrow`: it fits 32 bits, in which it is then computed.
#[cube]
pub(crate) fn offset_of(x: u32, y: u32, z: u32, size: &Extent, #[comptime] narrow: bool) -> usize {
    if comptime!(narrow) {
        ((z * size.h + y) * size.w + x) as usize
    } else {
        (z as usize * size.h as usize + y as usize) * size.w as usize + x as usize
    }
}

/// [`offset`] where it is known to fit 32 bits or not, as [`offset_of`].
#[cube]
pub(crate) fn offset_in(at: &Voxel, size: &Extent, #[comptime] narrow: bool) -> usize {
    offset_of(at.x, at.y, at.z, size, narrow)
}

/// Cubes of [`COLUMNS`] units that own `height` voxels each: along x, along y, and along z times
/// `batch`.
///
/// # Panics
/// If the grid exceeds what every GPU offers (65535 cubes along an axis).
pub(crate) fn columns(op: &str, batch: usize, size: [usize; 3], height: u32) -> CubeCount {
    launched(blocks(op, batch, size, [COLUMNS.x, COLUMNS.y, height]))
}
