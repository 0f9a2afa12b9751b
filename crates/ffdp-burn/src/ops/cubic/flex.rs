//! Cubic splines on the CPU: a recursive filter along each axis, and sums of 64 coefficients, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{CubicOps, POLE, PeriodicInterpolation};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Lines that are filtered together.
const TOGETHER: usize = 64;

fn extents(tensor: &FlexTensor) -> [usize; 3] {
    let shape = tensor.layout().shape();
    [shape[4], shape[3], shape[2]]
}

/// The inverse of `(1, 4, 1) / 6` along the rows of a block, `together` lines of a circle each: once forwards, once
/// backwards (Unser et al. 1993).
/// ```text
/// f[k] = s[k] + z f[k - 1]        c[k] = z (c[k + 1] - f[k]),  6 of it        z = sqrt 3 - 2
/// ```
fn recursion(block: &mut [f64], together: usize) {
    let n = block.len() / together;
    let circle = 1.0 / (1.0 - POLE.powi(n as i32));
    let mut before = vec![0.0; together];
    // What the whole circle gives to the first row, and later to the last.
    let mut power = circle;
    for k in 0..n {
        let row = &block[(n - k) % n * together..][..together];
        before.iter_mut().zip(row).for_each(|(sum, s)| *sum += power * s);
        power *= POLE;
    }
    block[..together].copy_from_slice(&before);
    for k in 1..n {
        let (done, rest) = block.split_at_mut(k * together);
        let (last, row) = (&done[(k - 1) * together..], &mut rest[..together]);
        row.iter_mut().zip(last).for_each(|(s, f)| *s += POLE * f);
    }
    before.fill(0.0);
    power = -POLE * circle;
    for k in 0..n {
        let row = &block[(n - 1 + k) % n * together..][..together];
        before.iter_mut().zip(row).for_each(|(sum, f)| *sum += power * f);
        power *= POLE;
    }
    block[(n - 1) * together..].copy_from_slice(&before);
    for k in (0..n - 1).rev() {
        let (rest, done) = block.split_at_mut((k + 1) * together);
        let (row, next) = (&mut rest[k * together..], &done[..together]);
        row.iter_mut().zip(next).for_each(|(f, c)| *f = POLE * (c - *f));
    }
    block.iter_mut().for_each(|c| *c *= 6.0);
}

/// The same along an axis of a stack of volumes.
fn along(data: &mut [f64], size: [usize; 3], axis: usize) {
    let (n, stride) = (size[axis], size[..axis].iter().product::<usize>());
    if stride == 1 {
        data.par_chunks_mut(n).for_each(|line| recursion(line, 1));
        return;
    }
    let blocks = stride.div_ceil(TOGETHER);
    let filtered: Vec<Vec<f64>> = (0..data.len() / (n * stride) * blocks)
        .into_par_iter()
        .map(|index| {
            let (outer, first) = (index / blocks, index % blocks * TOGETHER);
            let together = TOGETHER.min(stride - first);
            let row = |k: usize| &data[(outer * n + k) * stride + first..][..together];
            let mut block: Vec<f64> = (0..n).flat_map(row).copied().collect();
            recursion(&mut block, together);
            block
        })
        .collect();
    data.par_chunks_mut(stride).enumerate().for_each(|(place, row)| {
        let (outer, k) = (place / n, place % n);
        for (part, block) in row.chunks_mut(TOGETHER).zip(&filtered[outer * blocks..]) {
            part.copy_from_slice(&block[k * part.len()..][..part.len()]);
        }
    });
}

fn coefficients<T: Real>(volume: &FlexTensor, axes: [bool; 3]) -> FlexTensor {
    let size = extents(volume);
    let mut data: Vec<f64> = elements::<T>(volume).iter().map(|value| value.wide()).collect();
    for axis in (0..3).filter(|&axis| axes[2 - axis] && size[axis] > 1) {
        along(&mut data, size, axis);
    }
    tensor(data.into_iter().map(T::of).collect::<Vec<T>>(), volume.layout().shape().clone())
}

/// `N` voxels around a position of a circle, and their weights.
struct Taps<const N: usize> {
    at: [usize; N],
    weights: [f64; N],
}

impl<const N: usize> Taps<N> {
    /// The middle ones of four around `q` of a circle of `n`.
    #[inline]
    fn around(q: f64, n: usize, between: PeriodicInterpolation) -> Self {
        // Rounded down: a cast rounds to zero, and is one instruction where `floor` is a call.
        let whole = q as i64;
        let cell = if q < whole as f64 { whole - 1 } else { whole };
        let t = q - cell as f64;
        let s = 1.0 - t;
        let weights = match between {
            PeriodicInterpolation::BSpline => [
                s * s * s / 6.0,
                2.0 / 3.0 - t * t * (1.0 - 0.5 * t),
                2.0 / 3.0 - s * s * (1.0 - 0.5 * s),
                t * t * t / 6.0,
            ],
            PeriodicInterpolation::Lagrange => [
                -t * s * (1.0 + s) / 6.0,
                (1.0 + t) * s * (1.0 + s) / 2.0,
                t * (1.0 + t) * (1.0 + s) / 2.0,
                -t * (1.0 + t) * s / 6.0,
            ],
            PeriodicInterpolation::Linear => [0.0, s, t, 0.0],
        };
        let left_out = between.first_tap();
        let first = cell - 1 + left_out as i64;
        // Divisions are slow, and few positions lie outside.
        let inside = (0..n as i64).contains(&first);
        let mut next = if inside { first } else { first.rem_euclid(n as i64) } as usize;
        let at = [0; N].map(|_| {
            let here = next;
            next = if here + 1 == n { 0 } else { here + 1 };
            here
        });
        Self { at, weights: std::array::from_fn(|tap| weights[left_out + tap]) }
    }
}

/// The sum over `N` coefficients along each axis around a position.
#[inline]
fn sum_of<T: Real, const N: usize>(
    c: &[T],
    [w, h, _]: [usize; 3],
    [x, y, z]: &[Taps<N>; 3],
) -> f64 {
    let mut sum = 0.0;
    for (k, wz) in z.at.iter().zip(z.weights) {
        for (j, wy) in y.at.iter().zip(y.weights) {
            let row = &c[(k * h + j) * w..][..w];
            let mut along = 0.0;
            for (i, wx) in x.at.iter().zip(x.weights) {
                along += wx * row[*i].wide();
            }
            sum += wz * wy * along;
        }
    }
    sum
}

fn sample<T: Real>(
    coefficients: &FlexTensor,
    displacement: &FlexTensor,
    origin: [usize; 3],
    between: PeriodicInterpolation,
) -> FlexTensor {
    match between {
        PeriodicInterpolation::Linear => {
            sample_by::<T, 2>(coefficients, displacement, origin, between)
        }
        _ => sample_by::<T, 4>(coefficients, displacement, origin, between),
    }
}

fn sample_by<T: Real, const N: usize>(
    coefficients: &FlexTensor,
    displacement: &FlexTensor,
    origin: [usize; 3],
    between: PeriodicInterpolation,
) -> FlexTensor {
    let (size, channels) = (extents(coefficients), coefficients.layout().shape()[1]);
    let of = extents(displacement);
    let [len, voxels] = [size, of].map(|size| size.iter().product::<usize>());
    let (c, u) = (elements::<T>(coefficients), elements::<T>(displacement));
    // A voxel after the other: all channels share its weights.
    let at = |place: usize, out: &mut [T]| {
        let (n, voxel) = (place / voxels, place % voxels);
        let p = [voxel % of[0], voxel / of[0] % of[1], voxel / of[0] / of[1]];
        let taps = [0, 1, 2].map(|a| {
            let moved = u[(3 * n + a) * voxels + voxel].wide();
            Taps::<N>::around((p[a] + origin[a]) as f64 + moved, size[a], between)
        });
        for (channel, out) in out.iter_mut().enumerate() {
            let c = &c[(n * channels + channel) * len..][..len];
            *out = T::of(sum_of(c, size, &taps));
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
        between: PeriodicInterpolation,
    ) -> FloatTensor<Self> {
        let [c, u] = [coefficients, displacement].map(|t| t.to_contiguous());
        by_dtype!("cubic_sample", c.dtype(), sample(&c, &u, origin, between))
    }
}
