//! Which image index an output voxel samples: `A p + t + S u(p)`.

use cubecl::prelude::*;

use super::taps::{Cells, Point};
use super::voxel::{Voxel, len, offset_in};
use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::launch::Extent;

/// A 3x3 matrix, row by row.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Matrix {
    pub xx: f32,
    pub xy: f32,
    pub xz: f32,
    pub yx: f32,
    pub yy: f32,
    pub yz: f32,
    pub zx: f32,
    pub zy: f32,
    pub zz: f32,
}

/// The launch argument for a [`Matrix`].
pub(crate) fn matrix(rows: [[f64; 3]; 3]) -> MatrixLaunch {
    let [x, y, z] = rows.map(|row| row.map(|entry| entry as f32));
    MatrixLaunch::new(x[0], x[1], x[2], y[0], y[1], y[2], z[0], z[1], z[2])
}

/// The sizes and the matrix `S` that every kernel of this module takes.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Space {
    pub input: Extent,
    pub output: Extent,
    pub scale: Matrix,
    pub channels: u32,
    /// Elements between the affine maps of consecutive batch entries: 0 or 12.
    pub affine_stride: u32,
}

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub interpolation: Interpolation,
    pub padding: Padding,
    /// Whether there is an affine map; else it is the identity.
    pub mapped: bool,
    /// Whether there is a displacement.
    pub displaced: bool,
    /// Whether there is one channel.
    pub single: bool,
    /// Of the image.
    pub cells: Cells,
    /// Whether the two voxels of a pair lie along x, and are read and written as one vector; else along z.
    pub pairs_along_x: bool,
}

/// The channels, a constant where there is one: the compiler then drops the loop over them.
#[cube]
pub(crate) fn channels(space: &Space, #[comptime] plan: Plan) -> u32 {
    if comptime!(plan.single) { 1u32.runtime() } else { space.channels }
}

/// `[A|t]` of a batch entry, row by row; a unit, whose voxels belong to one entry, reads it once.
#[cube]
pub(crate) fn map_of(affine: &[f32], space: &Space, n: u32, #[comptime] plan: Plan) -> Array<f32> {
    let mut map = Array::<f32>::new(12usize);
    if comptime!(plan.mapped) {
        let first = (n * space.affine_stride) as usize;
        #[unroll]
        for entry in 0..12usize {
            map[entry] = affine[first + entry];
        }
    }
    map
}

/// `u` at a voxel, or zero where there is none.
#[cube]
pub(crate) fn displacement_at(
    displacement: &[f32],
    space: &Space,
    at: &Voxel,
    #[comptime] plan: Plan,
) -> Point {
    let mut u = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    if comptime!(plan.displaced) {
        let len = len(&space.output);
        let voxel = at.n as usize * 3 * len + offset_in(at, &space.output, plan.cells.narrow);
        u.x = displacement[voxel];
        u.y = displacement[voxel + len];
        u.z = displacement[voxel + 2 * len];
    }
    u
}

/// `A p + t + S u`.
#[cube]
pub(crate) fn position(
    map: &Array<f32>,
    space: &Space,
    at: &Voxel,
    u: &Point,
    #[comptime] plan: Plan,
) -> Point {
    let (x, y, z) = (f32::cast_from(at.x), f32::cast_from(at.y), f32::cast_from(at.z));
    let mut index = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    if comptime!(plan.mapped) {
        index.x = map[0] * x + map[1] * y + map[2] * z + map[3];
        index.y = map[4] * x + map[5] * y + map[6] * z + map[7];
        index.z = map[8] * x + map[9] * y + map[10] * z + map[11];
    } else {
        index.x += x;
        index.y += y;
        index.z += z;
    }
    if comptime!(plan.displaced) {
        let s = &space.scale;
        index.x += s.xx * u.x + s.xy * u.y + s.xz * u.z;
        index.y += s.yx * u.x + s.yy * u.y + s.yz * u.z;
        index.z += s.zx * u.x + s.zy * u.y + s.zz * u.z;
    }
    index
}
