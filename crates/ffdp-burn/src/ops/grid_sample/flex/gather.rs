//! Samples, and the gradients to which every output voxel contributes at its own place.

use rayon::prelude::*;

use super::Sampler;
use super::lanes::{LANES, Lanes, Stretch};
use ffdp_kit::real::Real;
use ffdp_kit::window::vectorized;

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

/// Rounds the lanes of a stretch that exist.
#[inline(always)]
fn write<T: Real>(row: &mut [T], values: &Lanes) {
    for (value, wide) in row.iter_mut().zip(values) {
        *value = T::of(*wide);
    }
}

pub(super) fn forward<T: Real>(s: &Sampler<'_, T>, batch: usize) -> Vec<T> {
    let size @ [d, h, w] = s.sampling.size;
    let mut output = vec![T::default(); batch * s.channels * d * h * w];
    let rows = rows(&mut output, s.channels, size);
    rows.into_par_iter().enumerate().for_each(|(i, mut row)| {
        let [n, z, y] = row_of(i, size);
        let places = s.row(n, y, z);
        vectorized(
            #[inline(always)]
            || {
                for x in (0..w).step_by(LANES) {
                    let stretch = places.stretch(x);
                    for (c, row) in row.iter_mut().enumerate() {
                        write(&mut row[x..x + stretch.count], &stretch.values(s.channel(n, c)));
                    }
                }
            },
        );
    });
    output
}

/// `sum_c g_c grad I_c` along the row (n, z, y), in image voxels (x, y, z), passed to `visit` stretch by
/// stretch, with the first x of each.
fn index_gradients<T: Real>(
    s: &Sampler<'_, T>,
    grad: &[T],
    [n, z, y]: [usize; 3],
    mut visit: impl FnMut(usize, &Stretch, &[Lanes; 3]),
) {
    let [d, h, w] = s.sampling.size;
    let places = s.row(n, y, z);
    let grad = |c: usize| &grad[(((n * s.channels + c) * d + z) * h + y) * w..][..w];
    vectorized(
        #[inline(always)]
        || {
            for x in (0..w).step_by(LANES) {
                let stretch = places.stretch(x);
                let mut sums = [[0.0; LANES]; 3];
                for c in 0..s.channels {
                    let g = widened(&grad(c)[x..x + stretch.count]);
                    stretch.add_slopes(s.channel(n, c), &g, &mut sums);
                }
                visit(x, &stretch, &sums);
            }
        },
    );
}

/// The values of a stretch; zeros behind them.
#[inline(always)]
pub(super) fn widened<T: Real>(row: &[T]) -> Lanes {
    let mut lanes = [0.0; LANES];
    for (lane, value) in lanes.iter_mut().zip(row) {
        *lane = value.wide();
    }
    lanes
}

/// `dL/du = S^T g grad I`.
pub(super) fn to_displacement<T: Real>(s: &Sampler<'_, T>, grad: &[T], batch: usize) -> Vec<T> {
    let size @ [d, h, w] = s.sampling.size;
    let scale = &s.sampling.scale;
    let mut output = vec![T::default(); batch * 3 * d * h * w];
    rows(&mut output, 3, size).into_par_iter().enumerate().for_each(|(i, mut row)| {
        index_gradients(s, grad, row_of(i, size), |x, stretch, g| {
            for (i, component) in row.iter_mut().enumerate() {
                let mut sums = [0.0; LANES];
                for j in 0..LANES {
                    sums[j] = scale[0][i] * g[0][j] + scale[1][i] * g[1][j] + scale[2][i] * g[2][j];
                }
                write(&mut component[x..x + stretch.count], &sums);
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
                // y and z are the same along a row.
                let (mut g_sum, mut g_x) = ([0.0; 3], [0.0; 3]);
                index_gradients(s, grad, [n, z, y], |x, stretch, g| {
                    for (i, g) in g.iter().enumerate() {
                        for (j, g) in g[..stretch.count].iter().enumerate() {
                            g_sum[i] += g;
                            g_x[i] += g * (x + j) as f64;
                        }
                    }
                });
                for i in 0..3 {
                    let row = [g_x[i], g_sum[i] * y as f64, g_sum[i] * z as f64, g_sum[i]];
                    sum[4 * i..].iter_mut().zip(row).for_each(|(sum, entry)| *sum += entry);
                }
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
