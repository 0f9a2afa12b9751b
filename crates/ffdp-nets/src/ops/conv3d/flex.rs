//! The convolution on the CPU: direct, in registers, for f32 and 3^3 kernels.
//!
//! Rows of 16 voxels and a few output channels are accumulated in registers while all inputs and
//! taps pass by; the loops are compiled once for each instruction set (`lanes.rs`), and one is
//! chosen at run time. Everything else (f64, other kernels) is Burn's.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{LANES, Lanes};
use super::{Conv3dOps, burn_conv3d, burn_conv3d_to_weight};
use crate::ops::precision::Precision;
use ffdp_kit::real::{elements, tensor};

/// Taps along an axis.
const K: usize = 3;

/// Channels of zero-padded volumes whose rows have room for whole groups of lanes and their taps.
pub(super) struct Padded {
    data: Vec<f32>,
    /// Depth, height and row stride.
    size: [usize; 3],
}

impl Padded {
    /// Copies one sample `[C, D, H, W]`; rows are stretched for outputs of `width` voxels.
    fn new(x: &[f32], [d, h, w]: [usize; 3], padding: [usize; 3], width: usize) -> Self {
        let [pd, ph, pw] = padding;
        let stride = width.next_multiple_of(LANES) + K - 1;
        let size = [d + 2 * pd, h + 2 * ph, stride];
        let channels = x.len() / (d * h * w);
        let mut data = vec![0f32; channels * size.iter().product::<usize>()];
        let slices = data.par_chunks_mut(size[1] * stride).enumerate();
        slices.for_each(|(i, slice)| {
            let (c, z) = (i / size[0], (i % size[0]).wrapping_sub(pd));
            if z < d {
                for y in 0..h {
                    let from = ((c * d + z) * h + y) * w;
                    slice[(y + ph) * stride + pw..][..w].copy_from_slice(&x[from..from + w]);
                }
            }
        });
        Self { data, size }
    }

    /// From voxel (z, y, x) of channel c to the end.
    #[inline(always)]
    fn from(&self, c: usize, z: usize, y: usize, x: usize) -> &[f32] {
        let [d, h, stride] = self.size;
        &self.data[((c * d + z) * h + y) * stride + x..]
    }
}

/// One slice z of the outputs, channel by channel, each `[h, w]`.
///
/// `packed` holds the weights as `[O / B][C][K][K][K][B]`, so that those of a block are adjacent.
#[inline(always)]
fn forward_slice<V: Lanes, const B: usize>(
    x: &Padded,
    packed: &[f32],
    channels: usize,
    outputs: &mut [&mut [f32]],
    z: usize,
    w: usize,
) {
    for (block, outputs) in outputs.chunks_mut(B).enumerate() {
        let weights = &packed[block * channels * K * K * K * B..];
        let rows = outputs[0].len() / w;
        for y in 0..rows {
            for x0 in (0..w).step_by(LANES) {
                let mut sums = [V::splat(0.0); B];
                for c in 0..channels {
                    for tap in 0..K * K {
                        let row = &x.from(c, z + tap / K, y + tap % K, x0)[..LANES + K - 1];
                        let taps = &weights[(c * K * K + tap) * K * B..][..K * B];
                        for kx in 0..K {
                            let voxels = V::load(&row[kx..]);
                            for b in 0..B {
                                sums[b] = sums[b].add_product(V::splat(taps[kx * B + b]), voxels);
                            }
                        }
                    }
                }
                let width = LANES.min(w - x0);
                for (output, sums) in outputs.iter_mut().zip(&sums) {
                    output[y * w + x0..][..width].copy_from_slice(&sums.to_array()[..width]);
                }
            }
        }
    }
}

/// Adds to `sums` `[K^3][B]` the products of input channel `c` with the output gradients of the
/// channels from `first` on, over all voxels.
#[inline(always)]
fn weight_block<V: Lanes, const B: usize>(
    x: &Padded,
    grad: &Padded,
    c: usize,
    first: usize,
    count: usize,
    sums: &mut [f64],
) {
    // Channels beyond the last repeat it; their sums are never read.
    let channel: [usize; B] = std::array::from_fn(|b| first + b.min(count - 1));
    let [d, h, stride] = grad.size;
    for z in 0..d {
        for tap in 0..K * K {
            let mut lanes = [[V::splat(0.0); K]; B];
            for y in 0..h {
                for x0 in (0..stride - (K - 1)).step_by(LANES) {
                    let row = &x.from(c, z + tap / K, y + tap % K, x0)[..LANES + K - 1];
                    let voxels: [V; K] = std::array::from_fn(|kx| V::load(&row[kx..]));
                    for b in 0..B {
                        let g = V::load(grad.from(channel[b], z, y, x0));
                        for kx in 0..K {
                            lanes[b][kx] = lanes[b][kx].add_product(g, voxels[kx]);
                        }
                    }
                }
            }
            // A slice in f32, the volume in f64.
            for b in 0..B {
                for kx in 0..K {
                    let sum: f32 = lanes[b][kx].to_array().iter().sum();
                    sums[(tap * K + kx) * B + b] += sum as f64;
                }
            }
        }
    }
}

/// [`forward_slice`] for one instruction set.
type ForwardSlice = fn(&Padded, &[f32], usize, &mut [&mut [f32]], usize, usize);
/// [`weight_block`] for one instruction set.
type WeightBlock = fn(&Padded, &Padded, usize, usize, usize, &mut [f64]);

/// An instruction set: how many output channels fit its registers, and the loops compiled for it.
pub(super) struct Kernels {
    forward_block: usize,
    forward: ForwardSlice,
    weight_block: usize,
    weight: WeightBlock,
}

/// Compiles both loops with the given target features.
#[cfg(target_arch = "x86_64")]
macro_rules! kernels {
    ($features:literal, $lanes:ty, $forward:literal, $weight:literal) => {{
        #[target_feature(enable = $features)]
        fn forward(x: &Padded, p: &[f32], c: usize, o: &mut [&mut [f32]], z: usize, w: usize) {
            forward_slice::<$lanes, $forward>(x, p, c, o, z, w)
        }
        #[target_feature(enable = $features)]
        fn weight(x: &Padded, g: &Padded, c: usize, first: usize, n: usize, s: &mut [f64]) {
            weight_block::<$lanes, $weight>(x, g, c, first, n, s)
        }
        Kernels {
            forward_block: $forward,
            // SAFETY: the caller has checked that this processor has the features.
            forward: |x, p, c, o, z, w| unsafe { forward(x, p, c, o, z, w) },
            weight_block: $weight,
            // SAFETY: as above.
            weight: |x, g, c, first, n, s| unsafe { weight(x, g, c, first, n, s) },
        }
    }};
}

/// The instruction sets of this processor, best first. Blocks are as large as the registers allow:
/// 32 of 16 lanes with AVX-512, 16 of 8 lanes with AVX2.
pub(super) fn available() -> Vec<(&'static str, Kernels)> {
    let mut sets = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            sets.push(("AVX-512", kernels!("avx512f", Avx512, 16, 8)));
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            sets.push(("AVX2", kernels!("avx2,fma", Avx2, 4, 2)));
        }
    }
    let portable = Kernels {
        forward_block: 4,
        forward: forward_slice::<[f32; LANES], 4>,
        weight_block: 2,
        weight: weight_block::<[f32; LANES], 2>,
    };
    sets.push(("portable", portable));
    sets
}

/// The best of this processor.
fn best() -> Kernels {
    available().swap_remove(0).1
}

/// `[O, C, K, K, K]` to `[O / B][C][K][K][K][B]`, zeros beyond the last output.
fn pack(weight: &[f32], channels: usize, block: usize) -> Vec<f32> {
    let taps = channels * K * K * K;
    let outputs = weight.len() / taps;
    let mut packed = vec![0f32; outputs.next_multiple_of(block) * taps];
    for (o, weights) in weight.chunks(taps).enumerate() {
        for (t, &value) in weights.iter().enumerate() {
            packed[(o / block * taps + t) * block + o % block] = value;
        }
    }
    packed
}

pub(super) fn forward(
    kernels: &Kernels,
    x: &FlexTensor,
    weight: &FlexTensor,
    padding: [usize; 3],
) -> FlexTensor {
    let [n, c, d, h, w] = x.layout().shape().dims();
    let shape = super::output_shape(x.layout().shape(), weight.layout().shape(), padding);
    let [_, o, od, oh, ow] = shape.dims();
    let packed = pack(elements(weight), c, kernels.forward_block);
    let mut output = vec![0f32; shape.num_elements()];
    let samples = elements::<f32>(x).chunks(c * d * h * w);
    for (x, output) in samples.zip(output.chunks_mut(o * od * oh * ow)).take(n) {
        let x = Padded::new(x, [d, h, w], padding, ow);
        let mut slices: Vec<Vec<&mut [f32]>> = (0..od).map(|_| Vec::with_capacity(o)).collect();
        for (i, slice) in output.chunks_mut(oh * ow).enumerate() {
            slices[i % od].push(slice);
        }
        let slices = slices.par_iter_mut().enumerate();
        slices.for_each(|(z, outputs)| (kernels.forward)(&x, &packed, c, outputs, z, ow));
    }
    tensor(output, shape)
}

pub(super) fn to_weight(
    kernels: &Kernels,
    x: &FlexTensor,
    weight: &FlexTensor,
    grad: &FlexTensor,
    padding: [usize; 3],
) -> FlexTensor {
    let block = kernels.weight_block;
    let [n, c, d, h, w] = x.layout().shape().dims();
    let [_, o, od, oh, ow] = grad.layout().shape().dims();
    let blocks = o.div_ceil(block);
    let taps = K * K * K;
    // One task for each input channel and block of outputs: no sum is shared, so the result does
    // not depend on the threads.
    let mut sums = vec![0f64; c * blocks * taps * block];
    let samples = elements::<f32>(x).chunks(c * d * h * w);
    for (x, grad) in samples.zip(elements::<f32>(grad).chunks(o * od * oh * ow)).take(n) {
        let x = Padded::new(x, [d, h, w], padding, ow);
        let grad = Padded::new(grad, [od, oh, ow], [0; 3], ow);
        sums.par_chunks_mut(taps * block).enumerate().for_each(|(task, sums)| {
            let (c, first) = (task / blocks, task % blocks * block);
            (kernels.weight)(&x, &grad, c, first, block.min(o - first), sums);
        });
    }
    let mut gradient = vec![0f32; o * c * taps];
    for (i, value) in gradient.iter_mut().enumerate() {
        let (output, channel, tap) = (i / (c * taps), i / taps % c, i % taps);
        let task = channel * blocks + output / block;
        *value = sums[(task * taps + tap) * block + output % block] as f32;
    }
    tensor(gradient, weight.layout().shape().clone())
}

/// Whether the kernels above apply.
fn direct(x: &FlexTensor, weight: &FlexTensor) -> bool {
    let shape = weight.layout().shape();
    let empty = x.layout().shape().num_elements() == 0 || shape.num_elements() == 0;
    x.dtype() == DType::F32 && shape[2] == K && !empty
}

impl Conv3dOps for Flex {
    fn small_conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        padding: [usize; 3],
        _: Precision,
    ) -> FloatTensor<Self> {
        if !direct(&x, &weight) {
            return burn_conv3d::<Self>(x, weight, padding);
        }
        forward(&best(), &x.to_contiguous(), &weight.to_contiguous(), padding)
    }

    fn small_conv3d_to_weight(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        padding: [usize; 3],
        _: Precision,
    ) -> FloatTensor<Self> {
        if !direct(&x, &weight) {
            return burn_conv3d_to_weight::<Self>(x, weight, grad, padding);
        }
        to_weight(&best(), &x.to_contiguous(), &weight, &grad.to_contiguous(), padding)
    }
}
