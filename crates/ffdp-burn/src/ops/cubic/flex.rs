//! Cubic splines on the CPU: sums of neighbours and of 64 coefficients, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{CubicOps, inverse_taps};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// Neighbours at which `z^s` has fallen below rounding in f64.
const REACH: usize = 28;

fn extents(tensor: &FlexTensor) -> [usize; 3] {
    let shape = tensor.layout().shape();
    [shape[4], shape[3], shape[2]]
}

/// The inverse of `(1, 4, 1) / 6` along an axis of a stack of volumes.
fn along(data: &[f64], size: [usize; 3], axis: usize) -> Vec<f64> {
    let (n, stride) = (size[axis], size[..axis].iter().product::<usize>());
    let taps = inverse_taps(n, REACH);
    let value = |element: usize| {
        let at = element / stride % n;
        let line = element - at * stride;
        let of = |i: usize| data[line + (if i < n { i } else { i - n }) * stride];
        let pair = |(s, tap): (usize, &f64)| match s {
            0 => tap * of(at),
            // Half a period away both neighbours are one.
            s if 2 * s == n => tap * of(at + s),
            s => tap * (of(at + s) + of(at + n - s)),
        };
        taps.iter().enumerate().map(pair).sum()
    };
    (0..data.len()).into_par_iter().map(value).collect()
}

fn coefficients<T: Real>(volume: &FlexTensor, axes: [bool; 3]) -> FlexTensor {
    let size = extents(volume);
    let mut data: Vec<f64> = elements::<T>(volume).iter().map(|value| value.wide()).collect();
    for axis in (0..3).filter(|&axis| axes[2 - axis] && size[axis] > 1) {
        data = along(&data, size, axis);
    }
    tensor(data.into_iter().map(T::of).collect::<Vec<T>>(), volume.layout().shape().clone())
}

/// The four voxels around a position of a circle of `n`, and their weights.
fn around(q: f64, n: usize) -> [(usize, f64); 4] {
    let cell = q.floor();
    let (t, s) = (q - cell, 1.0 - (q - cell));
    let weights = [
        s * s * s / 6.0,
        2.0 / 3.0 - t * t * (1.0 - 0.5 * t),
        2.0 / 3.0 - s * s * (1.0 - 0.5 * s),
        t * t * t / 6.0,
    ];
    let at = |tap: usize| (cell as i64 + tap as i64 - 1).rem_euclid(n as i64) as usize;
    [0, 1, 2, 3].map(|tap| (at(tap), weights[tap]))
}

fn sample<T: Real>(
    coefficients: &FlexTensor,
    displacement: &FlexTensor,
    origin: [usize; 3],
) -> FlexTensor {
    let (size, channels) = (extents(coefficients), coefficients.layout().shape()[1]);
    let of = extents(displacement);
    let [len, voxels] = [size, of].map(|size| size.iter().product::<usize>());
    let (c, u) = (elements::<T>(coefficients), elements::<T>(displacement));
    // A voxel after the other: all channels share its weights.
    let at = |place: usize, out: &mut [T]| {
        let (n, voxel) = (place / voxels, place % voxels);
        let p = [voxel % of[0], voxel / of[0] % of[1], voxel / of[0] / of[1]];
        let [x, y, z] = [0, 1, 2].map(|a| {
            let moved = u[(3 * n + a) * voxels + voxel].wide();
            around((p[a] + origin[a]) as f64 + moved, size[a])
        });
        for (channel, out) in out.iter_mut().enumerate() {
            let c = &c[(n * channels + channel) * len..][..len];
            let mut sum = 0.0;
            for (k, wz) in z {
                for (j, wy) in y {
                    let row = &c[(k * size[1] + j) * size[0]..][..size[0]];
                    let along: f64 = x.iter().map(|(i, wx)| wx * row[*i].wide()).sum();
                    sum += wz * wy * along;
                }
            }
            *out = T::of(sum);
        }
    };
    let mut shape = displacement.layout().shape().clone();
    shape[1] = channels;
    let mut by_voxel = vec![T::of(0.0); shape.num_elements()];
    by_voxel.par_chunks_mut(channels).enumerate().for_each(|(place, out)| at(place, out));
    if channels == 1 {
        return tensor(by_voxel, shape);
    }
    let planar = |element: usize| {
        let (volume, voxel) = (element / voxels, element % voxels);
        by_voxel[(volume / channels * voxels + voxel) * channels + volume % channels]
    };
    tensor((0..by_voxel.len()).into_par_iter().map(planar).collect::<Vec<T>>(), shape)
}

impl CubicOps for Flex {
    fn cubic_coefficients_3d(volume: FloatTensor<Self>, axes: [bool; 3]) -> FloatTensor<Self> {
        let volume = volume.to_contiguous();
        by_dtype!("cubic_coefficients", volume.dtype(), coefficients(&volume, axes))
    }

    fn cubic_sample_3d(
        coefficients: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        origin: [usize; 3],
    ) -> FloatTensor<Self> {
        let [c, u] = [coefficients, displacement].map(|t| t.to_contiguous());
        by_dtype!("cubic_sample", c.dtype(), sample(&c, &u, origin))
    }
}
