use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use super::initializer::WeightInit;
use crate::ops::conv3d;

/// Largest extent of a launch grid along its second and third axis (CUDA, and the limit that
/// burn-cubecl's matrix products check on all three).
const MAX_CUBES_PER_AXIS: usize = u16::MAX as usize;
/// Rows of the output handled by one cube of the simplest matrix product, and the narrowest plane.
const ROWS_PER_CUBE: usize = 32;
/// What one unrolled input (voxels x kernel x channels) may take on a GPU.
const MAX_COLUMN_BYTES: usize = 4 << 30;

/// How large a single convolution may be.
///
/// Burn 0.22.1 sets no limit of its own on a GPU. The strategy cannot be chosen from `Tensor`; its
/// autotuner tries, for both gradients, candidates that unroll the convolution into a matrix of
/// `positions x 27 C_in`. For 80 -> 16 channels at 160x192x224 that is 59 GB, more than one
/// allocation may hold, and the plain matrix product that remains refuses since its grid has
/// `positions / 32 = 215040 > 65535` cubes ("Cube count too big"): the step panics although direct
/// kernels exist. The gradient of the input no longer takes that way here (see
/// [`crate::ops::conv3d`]); that of the weight does. One bound serves all passes:
/// - `positions`: voxels of one call, at most `32 * 65535 = 2 097 120`;
/// - `column_bytes`: bytes of the unrolled input, `4 * positions * 27 C_in`. 4 GiB leaves room on
///   a 24 GB GPU and cuts 80 channels at 192x224 into slabs of 11 slices, 2 more being the halo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvBudget {
    /// Largest number of output voxels (times batch) in one call.
    pub positions: usize,
    /// Largest size of the unrolled input of one call, in bytes.
    pub column_bytes: usize,
}

impl ConvBudget {
    /// Never split.
    pub const UNLIMITED: Self = Self { positions: usize::MAX, column_bytes: usize::MAX };
    /// The bound for CUDA, ROCm, Metal, Vulkan and WebGPU.
    pub const GPU: Self =
        Self { positions: MAX_CUBES_PER_AXIS * ROWS_PER_CUBE, column_bytes: MAX_COLUMN_BYTES };

    /// No splitting on the CPU, whose convolution already works in tiles; [`Self::GPU`] elsewhere.
    pub fn for_device(device: &Device) -> Self {
        if device.clone().inner() == Device::flex() { Self::UNLIMITED } else { Self::GPU }
    }

    /// Extents (depth, height) of the largest tile of a volume that one call may compute: whole
    /// slices if possible, whole rows otherwise, never less than one row.
    fn tile(&self, [n, c, d, h, w]: [usize; 5], kernel: usize) -> (usize, usize) {
        let bytes_per_position = kernel.pow(3) * c * size_of::<f32>();
        let positions = self.positions.min(self.column_bytes / bytes_per_position);
        match positions / (n * h * w) {
            0 => (1, (positions / (n * w)).clamp(1, h)),
            slices => (slices.min(d), h),
        }
    }
}

/// A convolution with an odd cubic kernel, stride 1 and zero padding that keeps the size,
/// computed in slabs small enough for the device.
///
/// See [`conv3d_in_slabs`] for how, [`ConvBudget`] for why.
#[derive(Module, Debug)]
pub struct SlabConv3d {
    /// `[C_out, C_in, K, K, K]`.
    pub weight: Param<Tensor<5>>,
    /// `[C_out]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl SlabConv3d {
    /// A kernel of 3^3 without bias, with PyTorch's default initial values U(+-1/sqrt(27 C_in)).
    pub fn new(c_in: usize, c_out: usize, init: &mut WeightInit) -> Self {
        let bound = 1.0 / ((27 * c_in) as f64).sqrt();
        Self { weight: init.uniform([c_out, c_in, 3, 3, 3], bound), bias: None }
    }

    /// A kernel of 3^3 whose weights are N(0, std^2) and whose bias is 0.
    pub fn near_zero(c_in: usize, c_out: usize, std: f64, init: &mut WeightInit) -> Self {
        let weight = init.normal([c_out, c_in, 3, 3, 3], std);
        Self { weight, bias: Some(init.zeros([c_out])) }
    }

    /// Shapes: input `[N, C_in, D, H, W]`; output `[N, C_out, D, H, W]`.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        let budget = ConvBudget::for_device(&x.device());
        let bias = self.bias.as_ref().map(|bias| bias.val());
        conv3d_in_slabs(x, self.weight.val(), bias, budget)
    }
}

/// Size-preserving convolution, tile by tile: slabs of whole slices, or of rows where one slice is
/// already too large. Each tile reads a halo of half a kernel, so the result is that of a single
/// call, value for value up to the order of sums; gradients add up over the halos by ordinary
/// differentiation.
///
/// Shapes: x `[N, C_in, D, H, W]`, weight `[C_out, C_in, K, K, K]`, bias `[C_out]`; output
/// `[N, C_out, D, H, W]`.
///
/// # Panics
/// If K is even, or the channels disagree.
pub fn conv3d_in_slabs(
    x: Tensor<5>,
    weight: Tensor<5>,
    bias: Option<Tensor<1>>,
    budget: ConvBudget,
) -> Tensor<5> {
    let [_, c, d, h, _] = x.dims();
    let [_, c_weight, k, kh, kw] = weight.dims();
    assert!(
        k % 2 == 1 && k == kh && k == kw,
        "conv3d: kernel must be odd and cubic, got {k}x{kh}x{kw}"
    );
    assert_eq!(c, c_weight, "conv3d: input has {c} channels, the weight expects {c_weight}");

    let (slices, rows) = budget.tile(x.dims(), k);
    let tile = |z: Range<usize>, y: Range<usize>| {
        conv_tile(x.clone(), weight.clone(), bias.clone(), [z, y])
    };
    let slab = |z: Range<usize>| cat_over(h, rows, 3, |y| tile(z.clone(), y));
    cat_over(d, slices, 2, slab)
}

/// Concatenates along `axis` what `part` computes for consecutive ranges of at most `step`.
fn cat_over(
    extent: usize,
    step: usize,
    axis: usize,
    part: impl Fn(Range<usize>) -> Tensor<5>,
) -> Tensor<5> {
    if step >= extent {
        return part(0..extent);
    }
    let parts = (0..extent).step_by(step).map(|i| part(i..(i + step).min(extent)));
    Tensor::cat(parts.collect(), axis)
}

/// The convolution's values for ranges of slices and rows.
fn conv_tile(
    mut x: Tensor<5>,
    weight: Tensor<5>,
    bias: Option<Tensor<1>>,
    ranges: [Range<usize>; 2],
) -> Tensor<5> {
    let radius = weight.dims()[4] / 2;
    let mut padding = [radius; 3];
    let mut offsets = [0; 2];
    for (axis, range) in ranges.iter().enumerate() {
        let extent = x.dims()[axis + 2];
        let low = range.start.saturating_sub(radius);
        let high = (range.end + radius).min(extent);
        if (low, high) != (0, extent) {
            x = x.slice_dim(axis + 2, low..high);
        }
        // A tile at one border needs padding on that side only. It is padded on both, since
        // one-sided padding is a slower path in Burn, and the surplus is cut off below.
        let inner = range.start >= radius && range.end + radius <= extent;
        padding[axis] = if inner { 0 } else { radius };
        offsets[axis] = range.start - low + padding[axis] - radius;
    }
    let mut y = conv3d(x, weight, padding);
    if let Some(bias) = bias {
        y = y + bias.reshape([1, -1, 1, 1, 1]);
    }
    for (axis, range) in ranges.iter().enumerate() {
        if y.dims()[axis + 2] != range.len() {
            y = y.slice_dim(axis + 2, offsets[axis]..offsets[axis] + range.len());
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;

    use crate::testing::{tensor, uniform};

    /// Sums of up to 135 products of order 1 in f32, in another order.
    const TOLERANCE: f32 = 2e-5;

    fn largest_difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
        assert_eq!(a.dims(), b.dims());
        (a - b).abs().max().into_scalar::<f32>()
    }

    fn random<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
        tensor(&uniform(shape.iter().product(), -1.0, 1.0, seed), shape, device, DType::F32)
    }

    #[test]
    fn tiles_agree_with_one_call_in_value_and_gradients() {
        let device = Device::flex().autodiff();
        // (input shape, kernel, positions a call may have): slabs, single slices, rows of a slice.
        let cases = [
            ([1, 5, 7, 6, 4], 3, 48),
            ([2, 3, 5, 4, 3], 3, 24),
            ([1, 2, 3, 8, 5], 3, 15),
            ([1, 2, 4, 5, 3], 3, 1),
            ([1, 2, 9, 8, 5], 5, 80),
            ([1, 2, 2, 3, 5], 5, 5),
            ([1, 4, 1, 5, 5], 3, 10),
        ];
        for (shape, k, positions) in cases {
            let budget = ConvBudget { positions, ..ConvBudget::UNLIMITED };
            let c = shape[1];
            let x = random(shape, 1, &device).require_grad();
            let weight = random([3, c, k, k, k], 2, &device).require_grad();
            let bias = random([3], 3, &device).require_grad();
            let [n, _, d, h, w] = shape;
            let cotangent = random([n, 3, d, h, w], 4, &device);
            let run = |budget| {
                let y = conv3d_in_slabs(x.clone(), weight.clone(), Some(bias.clone()), budget);
                let gradients = (y.clone() * cotangent.clone()).sum().backward();
                let bias_grad = bias.grad(&gradients).unwrap();
                (
                    y.inner(),
                    x.grad(&gradients).unwrap(),
                    weight.grad(&gradients).unwrap(),
                    bias_grad,
                )
            };
            let (whole, split) = (run(ConvBudget::UNLIMITED), run(budget));
            let case = format!("shape {shape:?}, kernel {k}, {positions} positions");
            assert_ne!(budget.tile(shape, k), (d, h), "{case} is not split");
            assert!(largest_difference(whole.0, split.0) < TOLERANCE, "value, {case}");
            assert!(largest_difference(whole.1, split.1) < TOLERANCE, "input gradient, {case}");
            assert!(largest_difference(whole.2, split.2) < TOLERANCE * 10.0, "weight, {case}");
            assert!(largest_difference(whole.3, split.3) < TOLERANCE * 10.0, "bias, {case}");
        }
    }

    #[test]
    fn an_impulse_returns_the_mirrored_kernel_at_a_seam() {
        let device = Device::flex();
        let mut impulse = vec![0f32; 6 * 3 * 3];
        impulse[2 * 9 + 4] = 1.0; // slice 2, the last of the first slab
        let x = Tensor::<1>::from_floats(impulse.as_slice(), &device).reshape([1, 1, 6, 3, 3]);
        let kernel: Vec<f32> = (1..=27).map(|v| v as f32).collect();
        let weight = Tensor::<1>::from_floats(kernel.as_slice(), &device).reshape([1, 1, 3, 3, 3]);
        let budget = ConvBudget { positions: 27, ..ConvBudget::UNLIMITED };
        let y: Vec<f32> =
            conv3d_in_slabs(x, weight, None, budget).into_data().try_to_vec().unwrap();
        let mirrored: Vec<f32> = kernel.into_iter().rev().collect();
        assert_eq!(y[9..36], mirrored[..]);
        assert!(y[..9].iter().chain(&y[36..]).all(|&v| v == 0.0));
    }

    #[test]
    fn the_gpu_budget_bounds_grid_and_memory() {
        let decoder = [1, 80, 160, 192, 224];
        assert_eq!(ConvBudget::GPU.tile(decoder, 3), (11, 192));
        for shape in [decoder, [1, 16, 160, 192, 224], [1, 2, 64, 2048, 2048]] {
            let [n, c, _, _, w] = shape;
            let (slices, rows) = ConvBudget::GPU.tile(shape, 3);
            let positions = n * slices * rows * w;
            assert!(positions.div_ceil(32) <= 65535 && positions * 27 * c * 4 <= 4 << 30);
        }
        assert_eq!(ConvBudget::GPU.tile([1, 2, 64, 64, 64], 3), (64, 64), "small is not split");
        assert_eq!(ConvBudget::for_device(&Device::flex().autodiff()), ConvBudget::UNLIMITED);
    }
}
