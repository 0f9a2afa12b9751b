//! Reading and writing images: four voxels a unit, in one vector where the volume divides into vectors.

use cubecl::prelude::*;

use super::Plan;

/// The four voxels of a unit from vector `start` of its cube on; those beyond `len` are left alone.
#[cube]
pub(super) fn read<T: Float, N: Size>(
    image: &[Vector<T, N>],
    voxels: &mut Array<f32>,
    volume: usize,
    start: usize,
    len: usize,
    #[comptime] plan: Plan,
) {
    #[unroll]
    for load in 0..comptime!(4 / plan.width) {
        let at = start + (load * comptime!(plan.units) + UNIT_POS) as usize;
        if at < len {
            let vector = Vector::<f32, N>::cast_from(image[volume + at]);
            #[unroll]
            for k in 0..plan.width {
                voxels[(load * plan.width + k) as usize] = vector.extract(comptime!(k as usize));
            }
        }
    }
}

/// Copies four voxels.
#[cube]
pub(super) fn copy(from: &Array<f32>, to: &mut Array<f32>) {
    #[unroll]
    for k in 0..4usize {
        to[k] = from[k];
    }
}

/// The opposite of [`read`].
#[cube]
pub(super) fn write<N: Size>(
    image: &mut [Vector<f32, N>],
    voxels: &Array<f32>,
    volume: usize,
    start: usize,
    len: usize,
    #[comptime] plan: Plan,
) {
    #[unroll]
    for load in 0..comptime!(4 / plan.width) {
        let at = start + (load * comptime!(plan.units) + UNIT_POS) as usize;
        if at < len {
            let mut vector = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for k in 0..plan.width {
                vector.insert(comptime!(k as usize), voxels[(load * plan.width + k) as usize]);
            }
            image[volume + at] = vector;
        }
    }
}
