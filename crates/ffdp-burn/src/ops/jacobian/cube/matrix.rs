//! The Jacobian at a voxel of a march.

use cubecl::prelude::*;

/// A row of `J`, or of its cofactors: one number a component.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Row {
    pub x: f32,
    pub y: f32,
    pub z: f32,
}

/// Component `c` of a row.
#[cube]
pub(super) fn component(row: &Row, #[comptime] c: usize) -> f32 {
    if comptime!(c == 0) {
        row.x
    } else if comptime!(c == 1) {
        row.y
    } else {
        row.z
    }
}

/// Components of a field.
pub(super) const COMPONENTS: usize = 3;

/// One over the distance of the voxels that a difference at `position` is taken between.
#[cube]
pub(super) fn per_distance(position: i32, len: u32) -> f32 {
    let whole = select(len > 1, 1.0f32, 0.0f32);
    select(position > 0 && position + 1 < len as i32, 0.5f32, whole)
}

/// Row `along` of `J`: the derivative of `phi`, from `u` at both ends of a difference.
#[cube]
pub(super) fn row(
    ahead: &Array<f32>,
    back: &Array<f32>,
    scale: f32,
    #[comptime] along: u32,
    #[comptime] ends: (usize, usize),
    #[comptime] count: usize,
) -> Row {
    let (to, from) = comptime!(ends);
    let mut x = scale * (ahead[to] - back[from]);
    let mut y = scale * (ahead[comptime!(count + to)] - back[comptime!(count + from)]);
    let mut z = scale * (ahead[comptime!(2 * count + to)] - back[comptime!(2 * count + from)]);
    if comptime!(along == 0) {
        x += 1.0;
    } else if comptime!(along == 1) {
        y += 1.0;
    } else {
        z += 1.0;
    }
    Row { x, y, z }
}

/// The cofactors of the row that precedes rows `a` and `b` in cyclic order.
#[cube]
pub(super) fn cross(a: &Row, b: &Row) -> Row {
    Row { x: a.y * b.z - a.z * b.y, y: a.z * b.x - a.x * b.z, z: a.x * b.y - a.y * b.x }
}

#[cube]
pub(super) fn dot(a: &Row, b: &Row) -> f32 {
    a.x * b.x + a.y * b.y + a.z * b.z
}
