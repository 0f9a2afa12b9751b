//! The grid sampler on the CPU: rayon over slices, `f64` arithmetic, written to be read.
//!
//! This is the oracle for the GPU kernels; finite differences in `f64` prove it (see `tests.rs`).

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{GridSampleOps, Interpolation, Padding, Sampling};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// The two voxels along one axis between which a coordinate lies.
#[derive(Clone, Copy)]
pub(crate) struct Tap {
    /// Their indices, clamped into the image so that they can always be read.
    pub index: [usize; 2],
    /// Their weights; zero outside the image, except for labels.
    pub weight: [f64; 2],
    /// The derivatives of the weights by the coordinate.
    pub slope: [f64; 2],
    /// Whether they lie in the image, or the padding continues it there.
    pub inside: [bool; 2],
}

impl Tap {
    pub(crate) fn new(
        coordinate: f64,
        size: usize,
        interpolation: Interpolation,
        padding: Padding,
    ) -> Self {
        let last = (size - 1) as f64;
        let clamped = coordinate.clamp(0.0, last);
        let (coordinate, moves) = match padding {
            // Two voxels beyond the border everything is zero; this keeps the casts in range.
            Padding::Zeros => (coordinate.clamp(-2.0, last + 2.0), 1.0),
            Padding::Border => (clamped, f64::from(coordinate > 0.0 && coordinate < last)),
        };
        let (low, t, moves) = match interpolation {
            Interpolation::Linear => (coordinate.floor(), coordinate - coordinate.floor(), moves),
            Interpolation::Nearest => ((coordinate + 0.5).floor(), 0.0, 0.0),
            Interpolation::Label => (coordinate.floor(), coordinate - coordinate.floor(), 0.0),
        };
        let inside =
            [low, low + 1.0].map(|i| padding == Padding::Border || (0.0..=last).contains(&i));
        // Labels outside vote for the background, others add nothing.
        let [a, b] =
            inside.map(|inside| f64::from(inside || interpolation == Interpolation::Label));
        Self {
            index: [low.clamp(0.0, last) as usize, (low + 1.0).clamp(0.0, last) as usize],
            weight: [a * (1.0 - t), b * t],
            slope: [-a * moves, b * moves],
            inside,
        }
    }
}

/// Where a sample is taken: one tap per axis.
struct Sample {
    x: Tap,
    y: Tap,
    z: Tap,
}

/// The eight corners: a sum of `wx wy wz I` over the taps `wx`, `wy`, `wz`.
fn corners<T: Real>(
    channel: &[T],
    [_, h, w]: [usize; 3],
    at: &Sample,
    [wx, wy, wz]: [[f64; 2]; 3],
) -> f64 {
    let mut sum = 0.0;
    for (z, wz) in at.z.index.iter().zip(wz) {
        for (y, wy) in at.y.index.iter().zip(wy) {
            let row = (z * h + y) * w;
            let low = channel[row + at.x.index[0]].wide();
            let high = channel[row + at.x.index[1]].wide();
            sum += wz * wy * (wx[0] * low + wx[1] * high);
        }
    }
    sum
}

/// The label with the largest sum of corner weights; the smallest of those that are equal.
fn label<T: Real>(channel: &[T], [_, h, w]: [usize; 3], at: &Sample) -> f64 {
    let votes: [(f64, f64); 8] = std::array::from_fn(|corner| {
        let [i, j, k] = [corner & 1, corner >> 1 & 1, corner >> 2];
        let weight = at.x.weight[i] * at.y.weight[j] * at.z.weight[k];
        let inside = at.x.inside[i] && at.y.inside[j] && at.z.inside[k];
        let voxel = (at.z.index[k] * h + at.y.index[j]) * w + at.x.index[i];
        (if inside { channel[voxel].wide() } else { 0.0 }, weight)
    });
    let share = |label: f64| -> f64 {
        votes.iter().filter(|(other, _)| *other == label).map(|(_, weight)| weight).sum()
    };
    let mut best = (votes[0].0, share(votes[0].0));
    for &(label, _) in &votes[1..] {
        let share = share(label);
        if share > best.1 || (share == best.1 && label < best.0) {
            best = (label, share);
        }
    }
    best.0
}

/// The inputs, borrowed, with everything needed to place a sample.
struct Sampler<'a, T> {
    image: &'a [T],
    affine: &'a [T],
    displacement: &'a [T],
    channels: usize,
    /// Image extent (D, H, W).
    input: [usize; 3],
    /// Elements between the affine maps of consecutive batch entries.
    affine_stride: usize,
    sampling: Sampling,
}

impl<T: Real> Sampler<'_, T> {
    fn channel(&self, n: usize, c: usize) -> &[T] {
        let len = self.input.iter().product::<usize>();
        &self.image[(n * self.channels + c) * len..][..len]
    }

    /// The taps of output voxel `(x, y, z)`: index `A p + t + S u(p)`.
    fn sample(&self, n: usize, [x, y, z]: [usize; 3]) -> Sample {
        let Sampling { interpolation, padding, scale, size: [d, h, w], has_displacement, .. } =
            self.sampling;
        let affine = &self.affine[n * self.affine_stride..];
        let p = [x as f64, y as f64, z as f64];
        let mut u = [0.0; 3];
        if has_displacement {
            let len = d * h * w;
            let voxel = (z * h + y) * w + x;
            u = [0, 1, 2].map(|c| self.displacement[(n * 3 + c) * len + voxel].wide());
        }
        let tap = |i: usize| {
            let row = &affine[i * 4..i * 4 + 4];
            let mut index = row[3].wide();
            for j in 0..3 {
                index += row[j].wide() * p[j] + scale[i][j] * u[j];
            }
            Tap::new(index, self.input[2 - i], interpolation, padding)
        };
        Sample { x: tap(0), y: tap(1), z: tap(2) }
    }

    /// `sum_c g_c grad I_c` at output voxel `(x, y, z)`, in image voxels, (x, y, z).
    fn index_gradient(&self, grad: &[T], n: usize, at: [usize; 3]) -> [f64; 3] {
        let [d, h, w] = self.sampling.size;
        let s = self.sample(n, at);
        let voxel = (at[2] * h + at[1]) * w + at[0];
        let mut sum = [0.0; 3];
        for c in 0..self.channels {
            let g = grad[(n * self.channels + c) * d * h * w + voxel].wide();
            let channel = self.channel(n, c);
            let (x, y, z) = (s.x.weight, s.y.weight, s.z.weight);
            sum[0] += g * corners(channel, self.input, &s, [s.x.slope, y, z]);
            sum[1] += g * corners(channel, self.input, &s, [x, s.y.slope, z]);
            sum[2] += g * corners(channel, self.input, &s, [x, y, s.z.slope]);
        }
        sum
    }
}

fn forward<T: Real>(s: &Sampler<'_, T>, batch: usize) -> Vec<T> {
    let [d, h, w] = s.sampling.size;
    let mut output = vec![T::default(); batch * s.channels * d * h * w];
    output.par_chunks_mut(h * w).enumerate().for_each(|(slice, output)| {
        let (z, c, n) = (slice % d, slice / d % s.channels, slice / d / s.channels);
        let channel = s.channel(n, c);
        for (voxel, value) in output.iter_mut().enumerate() {
            let at = s.sample(n, [voxel % w, voxel / w, z]);
            let weights = [at.x.weight, at.y.weight, at.z.weight];
            *value = T::of(match s.sampling.interpolation {
                Interpolation::Label => label(channel, s.input, &at),
                _ => corners(channel, s.input, &at, weights),
            });
        }
    });
    output
}

/// `dL/du = S^T g grad I`.
fn to_displacement<T: Real>(s: &Sampler<'_, T>, grad: &[T], batch: usize) -> Vec<T> {
    let [d, h, w] = s.sampling.size;
    let (slice, len) = (h * w, d * h * w);
    let mut output = vec![T::default(); batch * 3 * len];
    for (n, field) in output.chunks_mut(3 * len).enumerate() {
        let (ux, rest) = field.split_at_mut(len);
        let (uy, uz) = rest.split_at_mut(len);
        let slices = ux.par_chunks_mut(slice).zip(uy.par_chunks_mut(slice));
        slices.zip(uz.par_chunks_mut(slice)).enumerate().for_each(|(z, ((ux, uy), uz))| {
            for voxel in 0..slice {
                let g = s.index_gradient(grad, n, [voxel % w, voxel / w, z]);
                let scale = &s.sampling.scale;
                let column = |j: usize| (0..3).map(|i| scale[i][j] * g[i]).sum::<f64>();
                ux[voxel] = T::of(column(0));
                uy[voxel] = T::of(column(1));
                uz[voxel] = T::of(column(2));
            }
        });
    }
    output
}

/// `dL/d[A|t] = sum_p g grad I [p 1]^T`, slices summed in order.
fn to_affine<T: Real>(s: &Sampler<'_, T>, grad: &[T], batch: usize) -> Vec<T> {
    let [d, h, w] = s.sampling.size;
    let mut sums = vec![0.0; s.affine.len()];
    for n in 0..batch {
        let slices: Vec<[f64; 12]> = (0..d)
            .into_par_iter()
            .map(|z| {
                let mut sum = [0.0; 12];
                for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                    let g = s.index_gradient(grad, n, [x, y, z]);
                    let p = [x as f64, y as f64, z as f64, 1.0];
                    for (entry, sum) in sum.iter_mut().enumerate() {
                        *sum += g[entry / 4] * p[entry % 4];
                    }
                }
                sum
            })
            .collect();
        let total = &mut sums[n * s.affine_stride..][..12];
        for (entry, total) in total.iter_mut().enumerate() {
            *total += slices.iter().map(|slice| slice[entry]).sum::<f64>();
        }
    }
    sums.into_iter().map(T::of).collect()
}

/// `dL/dI`: every output voxel adds `g` to its eight corners. Channels run in parallel; within one
/// the order is fixed, so the result is reproducible.
fn to_image<T: Real>(s: &Sampler<'_, T>, grad: &[T]) -> Vec<T> {
    let [d, h, w] = s.sampling.size;
    let [_, hi, wi] = s.input;
    let len = s.input.iter().product::<usize>();
    let mut output = vec![T::default(); s.image.len()];
    output.par_chunks_mut(len).enumerate().for_each(|(channel, output)| {
        let grad = &grad[channel * d * h * w..][..d * h * w];
        let mut sums = vec![0.0f64; len];
        for (voxel, g) in grad.iter().enumerate() {
            let p = [voxel % w, voxel / w % h, voxel / w / h];
            let at = s.sample(channel / s.channels, p);
            for corner in 0..8 {
                let [i, j, k] = [corner & 1, corner >> 1 & 1, corner >> 2];
                let weight = at.x.weight[i] * at.y.weight[j] * at.z.weight[k];
                let row = (at.z.index[k] * hi + at.y.index[j]) * wi;
                sums[row + at.x.index[i]] += weight * g.wide();
            }
        }
        for (value, sum) in output.iter_mut().zip(sums) {
            *value = T::of(sum);
        }
    });
    output
}

fn sampler<'a, T: Real>(
    image: &'a FlexTensor,
    affine: &'a FlexTensor,
    displacement: &'a FlexTensor,
    sampling: Sampling,
) -> Sampler<'a, T> {
    let shape = image.layout().shape();
    Sampler {
        image: elements(image),
        affine: elements(affine),
        displacement: elements(displacement),
        channels: shape[1],
        input: [shape[2], shape[3], shape[4]],
        affine_stride: if affine.layout().shape()[0] == 1 { 0 } else { 12 },
        sampling,
    }
}

fn run_forward<T: Real>(
    image: &FlexTensor,
    affine: &FlexTensor,
    displacement: &FlexTensor,
    sampling: Sampling,
) -> FlexTensor {
    let s = sampler::<T>(image, affine, displacement, sampling);
    let shape = image.layout().shape();
    tensor(forward(&s, shape[0]), sampling.output_shape(shape))
}

fn run_backward<T: Real>(
    inputs: [&FlexTensor; 3],
    grad: &FlexTensor,
    sampling: Sampling,
    needs: [bool; 3],
) -> [FlexTensor; 3] {
    let s = sampler::<T>(inputs[0], inputs[1], inputs[2], sampling);
    let grad = elements::<T>(grad);
    let batch = inputs[0].layout().shape()[0];
    let placeholder = || tensor(vec![T::default()], [1]);
    let shape = |i: usize| inputs[i].layout().shape().clone();
    let image = needs[0].then(|| tensor(to_image(&s, grad), shape(0)));
    let affine = needs[1].then(|| tensor(to_affine(&s, grad, batch), shape(1)));
    let field = needs[2].then(|| tensor(to_displacement(&s, grad, batch), shape(2)));
    [image, affine, field].map(|gradient| gradient.unwrap_or_else(placeholder))
}

impl GridSampleOps for Flex {
    fn grid_sample_3d(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
    ) -> FloatTensor<Self> {
        let [image, affine, displacement] =
            [image, affine, displacement].map(|tensor| tensor.to_contiguous());
        by_dtype!(
            "grid_sample",
            image.dtype(),
            run_forward(&image, &affine, &displacement, sampling)
        )
    }

    fn grid_sample_3d_backward(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        sampling: Sampling,
        needs: [bool; 3],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [image, affine, displacement, grad] =
            [image, affine, displacement, grad].map(|tensor| tensor.to_contiguous());
        let inputs = [&image, &affine, &displacement];
        let [image, affine, displacement] =
            by_dtype!("grid_sample", image.dtype(), run_backward(inputs, &grad, sampling, needs));
        (image, affine, displacement)
    }
}
