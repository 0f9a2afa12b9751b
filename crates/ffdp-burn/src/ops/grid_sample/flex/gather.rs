//! Samples, and the gradients to which every output voxel contributes at its own place.

use rayon::prelude::*;

use super::Sampler;
use crate::ops::real::Real;

/// The rows of a tensor `[N, C, D, H, W]`: for every (n, z, y) the row of each channel.
fn rows<T>(tensor: &mut [T], channels: usize, [d, h, w]: [usize; 3]) -> Vec<Vec<&mut [T]>> {
    let batch = tensor.len() / (channels * d * h * w);
    let mut rows: Vec<Vec<&mut [T]>> = Vec::new();
    rows.resize_with(batch * d * h, || Vec::with_capacity(channels));
    for (i, row) in tensor.chunks_mut(w).enumerate() {
        let (within, n) = (i % (d * h), i / (d * h * channels));
        rows[n * d * h + within].push(row);
    }
    rows
}

/// The row (n, z, y) of all rows in a row.
fn row_of(i: usize, [d, h, _]: [usize; 3]) -> [usize; 3] {
    [i / (d * h), i / h % d, i % h]
}

pub(super) fn forward<T: Real>(s: &Sampler<'_, T>, batch: usize) -> Vec<T> {
    let size @ [d, h, w] = s.sampling.size;
    let mut output = vec![T::default(); batch * s.channels * d * h * w];
    let rows = rows(&mut output, s.channels, size);
    rows.into_par_iter().enumerate().for_each(|(i, mut row)| {
        let [n, z, y] = row_of(i, size);
        let places = s.row(n, y, z);
        for x in 0..w {
            let place = places.place(x);
            for (c, row) in row.iter_mut().enumerate() {
                let value = place.value(s.channel(n, c), s.input, s.sampling.interpolation);
                row[x] = T::of(value);
            }
        }
    });
    output
}

/// `sum_c g_c grad I_c` along the row (n, z, y), in image voxels (x, y, z), told to `tell` one by one.
fn index_gradients<T: Real>(
    s: &Sampler<'_, T>,
    grad: &[T],
    [n, z, y]: [usize; 3],
    mut tell: impl FnMut(usize, [f64; 3]),
) {
    let [d, h, w] = s.sampling.size;
    let places = s.row(n, y, z);
    let grad = |c: usize| &grad[(((n * s.channels + c) * d + z) * h + y) * w..][..w];
    for x in 0..w {
        let place = places.place(x);
        let mut sum = [0.0; 3];
        for c in 0..s.channels {
            let g = grad(c)[x].wide();
            let slope = place.slope(s.channel(n, c), s.input);
            sum.iter_mut().zip(slope).for_each(|(sum, slope)| *sum += g * slope);
        }
        tell(x, sum);
    }
}

/// `dL/du = S^T g grad I`.
pub(super) fn to_displacement<T: Real>(s: &Sampler<'_, T>, grad: &[T], batch: usize) -> Vec<T> {
    let size @ [d, h, w] = s.sampling.size;
    let scale = &s.sampling.scale;
    let mut output = vec![T::default(); batch * 3 * d * h * w];
    rows(&mut output, 3, size).into_par_iter().enumerate().for_each(|(i, mut row)| {
        index_gradients(s, grad, row_of(i, size), |x, g| {
            for (j, component) in row.iter_mut().enumerate() {
                let sum = scale[0][j] * g[0] + scale[1][j] * g[1] + scale[2][j] * g[2];
                component[x] = T::of(sum);
            }
        });
    });
    output
}

/// `dL/d[A|t] = sum_p g grad I [p 1]^T`, slices summed in order.
pub(super) fn to_affine<T: Real>(s: &Sampler<'_, T>, grad: &[T], batch: usize) -> Vec<T> {
    let [d, h, _] = s.sampling.size;
    let mut sums = vec![0.0; s.affine.len()];
    for n in 0..batch {
        let slice = |z: usize| {
            let mut sum = [0.0; 12];
            for y in 0..h {
                index_gradients(s, grad, [n, z, y], |x, g| {
                    let p = [x as f64, y as f64, z as f64, 1.0];
                    for (entry, sum) in sum.iter_mut().enumerate() {
                        *sum += g[entry / 4] * p[entry % 4];
                    }
                });
            }
            sum
        };
        let slices: Vec<[f64; 12]> = (0..d).into_par_iter().map(slice).collect();
        let total = &mut sums[n * s.affine_stride..][..12];
        for (entry, total) in total.iter_mut().enumerate() {
            *total += slices.iter().map(|slice| slice[entry]).sum::<f64>();
        }
    }
    sums.into_iter().map(T::of).collect()
}
