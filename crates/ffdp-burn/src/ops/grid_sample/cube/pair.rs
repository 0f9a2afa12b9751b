//! Two neighbours, sampled together: most samples lie in a cell of the image, and one branch
//! for both leaves their reads free to overlap.

use cubecl::prelude::*;

use super::space::{Plan, Space, displacement_at, position};
use super::taps::{Point, Sample, cell_sample, in_cell};
use super::voxel::{Voxel, column_of_unit, inside};
use ffdp_kit::launch::Extent;

/// Voxels of a pair.
pub(super) const PAIR: u32 = 2;

#[derive(CubeType)]
pub(super) struct Pair {
    pub lower: Voxel,
    pub upper: Voxel,
    /// Whether the upper voxel exists; the lower one does.
    pub both: bool,
    /// Where they are sampled.
    pub at_lower: Point,
    pub at_upper: Point,
    /// Whether both exist and lie in cells.
    pub in_cells: bool,
}

/// The voxels of a unit and the next along x, of a pair and the next along z.
pub(super) fn strides(plan: Plan) -> [u32; 2] {
    if plan.pairs_along_x { [PAIR, 1] } else { [1, PAIR] }
}

/// The lowest of the voxels of this unit, which owns a column of `pairs` pairs.
#[cube]
pub(super) fn first_of_unit(size: &Extent, pairs: u32, #[comptime] plan: Plan) -> Voxel {
    let (along_x, along_z) = comptime!((strides(plan)[0], strides(plan)[1]));
    let column = column_of_unit(size, along_z * pairs);
    Voxel { n: column.n, x: column.x * along_x, y: column.y, z: column.z }
}

/// `lower`, which exists, and its neighbour above, or the next along x, where rows have an even length.
#[cube]
pub(super) fn pair(
    displacement: &[f32],
    map: &Array<f32>,
    space: &Space,
    lower: &Voxel,
    #[comptime] plan: Plan,
) -> Pair {
    let (along_x, along_z) =
        comptime!(if plan.pairs_along_x { (1u32, 0u32) } else { (0u32, 1u32) });
    let upper = Voxel { n: lower.n, x: lower.x + along_x, y: lower.y, z: lower.z + along_z };
    let both = inside(&upper, &space.output);
    let u = displacement_at(displacement, space, lower, plan);
    let mut v = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    if both {
        let there = displacement_at(displacement, space, &upper, plan);
        v.x = there.x;
        v.y = there.y;
        v.z = there.z;
    }
    let at_lower = position(map, space, lower, &u, plan);
    let at_upper = position(map, space, &upper, &v, plan);
    let in_cells =
        both && inside_cell(&at_lower, space, plan) && inside_cell(&at_upper, space, plan);
    let lower = Voxel { n: lower.n, x: lower.x, y: lower.y, z: lower.z };
    Pair { lower, upper, both, at_lower, at_upper, in_cells }
}

/// Whether a position lies in a cell of the image.
#[cube]
pub(super) fn inside_cell(position: &Point, space: &Space, #[comptime] plan: Plan) -> bool {
    let (interpolation, padding, cells) = comptime!((plan.interpolation, plan.padding, plan.cells));
    in_cell(position, &space.input, interpolation, padding, cells)
}

/// The sample of a position in a cell.
#[cube]
pub(super) fn cell_at(position: &Point, space: &Space, #[comptime] plan: Plan) -> Sample {
    cell_sample(position, &space.input, plan.padding)
}
