//! The gradient of the image: every output voxel adds to the voxels that it was read from.

use rayon::prelude::*;

use super::Sampler;
use super::place::{Cell, Place};
use crate::ops::real::Real;

/// `dL/dI`: every output voxel adds `g` to its eight corners. Channels run in parallel; within one
/// the order is fixed, so the result is reproducible.
pub(super) fn to_image<T: Real>(s: &Sampler<'_, T>, grad: &[T]) -> Vec<T> {
    let [d, h, w] = s.sampling.size;
    let len = s.input.iter().product::<usize>();
    let mut output = vec![T::default(); s.image.len()];
    output.par_chunks_mut(len).enumerate().for_each(|(channel, output)| {
        let grad = &grad[channel * d * h * w..][..d * h * w];
        let mut sums = vec![0.0f64; len];
        for (i, grad) in grad.chunks(w).enumerate() {
            let places = s.row(channel / s.channels, i % h, i / h);
            for (x, g) in grad.iter().enumerate() {
                add(&mut sums, s.input, &places.place(x), g.wide());
            }
        }
        for (value, sum) in output.iter_mut().zip(sums) {
            *value = T::of(sum);
        }
    });
    output
}

fn add(sums: &mut [f64], extent: [usize; 3], place: &Place, g: f64) {
    match place {
        Place::Inside(cell) => {
            let &Cell { at: [tx, ty, tz], .. } = cell;
            let weights = [(1.0 - ty) * (1.0 - tz), ty * (1.0 - tz), (1.0 - ty) * tz, ty * tz];
            for (i, weight) in cell.pairs(extent).into_iter().zip(weights) {
                let pair = &mut sums[i..i + 2];
                pair[0] += (1.0 - tx) * weight * g;
                pair[1] += tx * weight * g;
            }
        }
        Place::Anywhere(at) => {
            let [_, h, w] = extent;
            for corner in 0..8 {
                let [i, j, k] = [corner & 1, corner >> 1 & 1, corner >> 2];
                let weight = at.x.weight[i] * at.y.weight[j] * at.z.weight[k];
                let row = (at.z.index[k] * h + at.y.index[j]) * w;
                sums[row + at.x.index[i]] += weight * g;
            }
        }
    }
}
