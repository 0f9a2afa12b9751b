//! Neighbours of a voxel along the axes, and columns of voxels, for kernels that sum differences.

use cubecl::prelude::*;

use super::grid_sample::cube::{Voxel, offset};
use super::launch::{CUBE, Extent, cubes};

/// Voxels along z that one unit of a reduction visits, to keep the partial sums few.
pub(crate) const COLUMN: u32 = 16;

/// The voxel at one step of this unit's column, on a grid launched with [`column_cubes`].
#[cube]
pub(crate) fn voxel_of_column(size: &Extent, step: u32) -> Voxel {
    let slab = CUBE_DIM_Z * COLUMN;
    let slabs = size.d.div_ceil(slab);
    Voxel {
        n: CUBE_POS_Z / slabs,
        x: ABSOLUTE_POS_X,
        y: ABSOLUTE_POS_Y,
        z: (CUBE_POS_Z % slabs) * slab + step * CUBE_DIM_Z + UNIT_POS_Z,
    }
}

/// One unit a column of [`COLUMN`] voxels: the grid of cubes, and their number.
pub(crate) fn column_cubes(op: &str, batch: usize, [d, h, w]: [usize; 3]) -> (CubeCount, usize) {
    let slabs = d.div_ceil((CUBE.z * COLUMN) as usize);
    let count = cubes(op, batch, [slabs * CUBE.z as usize, h, w]);
    let CubeCount::Static(x, y, z) = count.clone() else {
        unreachable!("`cubes` counts on the host")
    };
    (count, x as usize * y as usize * z as usize)
}

/// A position along one axis.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Axis {
    pub position: u32,
    pub extent: u32,
    /// Elements between neighbours.
    pub stride: usize,
}

/// A voxel: its offset within a channel, and where it lies along each axis.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Place {
    pub at: usize,
    pub x: Axis,
    pub y: Axis,
    pub z: Axis,
}

#[cube]
pub(crate) fn place(voxel: &Voxel, size: &Extent) -> Place {
    let row = size.w as usize;
    Place {
        at: offset(voxel, size),
        x: Axis { position: voxel.x, extent: size.w, stride: 1usize },
        y: Axis { position: voxel.y, extent: size.h, stride: row },
        z: Axis { position: voxel.z, extent: size.d, stride: row * size.h as usize },
    }
}

#[cube]
fn same(axis: &Axis) -> Axis {
    Axis { position: axis.position, extent: axis.extent, stride: axis.stride }
}

/// Axis 0 = x, 1 = y, 2 = z of a place.
#[cube]
pub(crate) fn axis(place: &Place, #[comptime] axis: u32) -> Axis {
    if comptime!(axis == 0) {
        same(&place.x)
    } else if comptime!(axis == 1) {
        same(&place.y)
    } else {
        same(&place.z)
    }
}

#[cube]
fn stepped(axis: &Axis, step: u32, #[comptime] moves: bool, #[comptime] up: bool) -> Axis {
    let mut position = axis.position;
    if comptime!(moves && up) {
        position += step;
    }
    if comptime!(moves && !up) {
        position -= step;
    }
    Axis { position, extent: axis.extent, stride: axis.stride }
}

/// The neighbour one voxel up or down an axis; at the border the voxel itself.
#[cube]
pub(crate) fn neighbour(place: &Place, #[comptime] along: u32, #[comptime] up: bool) -> Place {
    let moving = axis(place, along);
    let step = if up {
        select(has_next(&moving), 1u32, 0u32)
    } else {
        select(moving.position > 0, 1u32, 0u32)
    };
    let distance = moving.stride * step as usize;
    let at = if up { place.at + distance } else { place.at - distance };
    Place {
        at,
        x: stepped(&place.x, step, comptime!(along == 0), up),
        y: stepped(&place.y, step, comptime!(along == 1), up),
        z: stepped(&place.z, step, comptime!(along == 2), up),
    }
}

#[cube]
pub(crate) fn has_next(axis: &Axis) -> bool {
    axis.position + 1 < axis.extent
}

/// `f(p + e) - f(p)`, 0 at the last voxel.
#[cube]
pub(crate) fn forward(field: &[f32], at: usize, axis: &Axis) -> f32 {
    let mut difference = 0.0f32;
    if has_next(axis) {
        difference = field[at + axis.stride] - field[at];
    }
    difference
}

/// `f(p) - f(p - e)`, 0 at the first voxel.
#[cube]
pub(crate) fn backward(field: &[f32], at: usize, axis: &Axis) -> f32 {
    let mut difference = 0.0f32;
    if axis.position > 0 {
        difference = field[at] - field[at - axis.stride];
    }
    difference
}
