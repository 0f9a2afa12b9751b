//! Two neighbours of a column, sampled together: most samples lie in a cell of the image, and one branch
//! for both leaves their reads free to overlap.

use cubecl::prelude::*;

use super::space::{Plan, Space, displacement_at, position};
use super::taps::{Point, Sample, cell_sample, in_cell};
use super::voxel::{Voxel, above, inside};

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

/// `lower`, which exists, and the voxel above.
#[cube]
pub(super) fn pair(
    displacement: &[f32],
    map: &Array<f32>,
    space: &Space,
    lower: &Voxel,
    #[comptime] plan: Plan,
) -> Pair {
    let upper = above(lower, 1u32);
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

#[cube]
fn inside_cell(position: &Point, space: &Space, #[comptime] plan: Plan) -> bool {
    let (interpolation, padding, cells) = comptime!((plan.interpolation, plan.padding, plan.cells));
    in_cell(position, &space.input, interpolation, padding, cells)
}

/// The sample of a position in a cell.
#[cube]
pub(super) fn cell_at(position: &Point, space: &Space, #[comptime] plan: Plan) -> Sample {
    cell_sample(position, &space.input, plan.padding)
}
