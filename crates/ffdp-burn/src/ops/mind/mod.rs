//! MIND-SSC: an image as twelve channels that describe each voxel's neighbourhood by how its parts resemble each
//! other, whatever the modality (Heinrich et al. 2012 and 2013).
//!
//! ```text
//! D_k(p) = mean over |o| <= r of (I(q + d a_k) - I(q + d b_k))^2,  q = p + o        k = 1..12
//! S_k(p) = exp(-E_k / V'),   E_k = D_k - min_j D_j,   V = mean_k E_k,   V' = V clamped to [low, high]
//! ```
//! `a_k`, `b_k` the twelve pairs of the six neighbours of a voxel that are the square root of 2 apart ([`PAIRS`]) · `r`
//! the radius of a patch, a cube, `d` the dilation, both in voxels. Outside the image lies its nearest voxel, for `q`
//! and for its neighbours. The bounds are 1/1000 and 1000 times the mean of `V` over the image, or fixed ones.
//!
//! Backward, with `g = dL/dS`, each step a sum over the twelve:
//! ```text
//! dL/dE_k = -g_k S_k / V' + [V' = V] (1 / 12) sum_j g_j S_j E_j / V^2
//! dL/dD_k = dL/dE_k - [k is the least] sum_j dL/dE_j
//! h_k     = adjoint of the mean over patches of dL/dD_k
//! dL/dI   = sum_k adjoint of both shifts of 2 h_k (I(q + d a_k) - I(q + d b_k))
//! ```
//! No gradient reaches the bounds: they are constants of the image. The least of equal distances is the first.
//!
//! Two images are compared by their descriptors `S` and `R`, with weights `u` of the voxels:
//! ```text
//! L = sum_p u(p) sum_k (S_k(p) - R_k(p))^2 / 12       g_k = u (S_k - R_k) / 6,  to R its negative
//! ```
//! `g` is made where the descriptors are, and never stored.
//!
//! No distance is stored on the way to the descriptors. Extra memory of the backward pass: 12 and 6 volumes, on the CPU
//! 12 and 4 of f64. Of a comparison on the GPU: the 12 descriptors of one image, and with a gradient 12 slopes of the
//! other, then those and 6 volumes; one gradient after the other. On the CPU no descriptors are stored.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{DType, Shape, TensorData};
use serde::{Deserialize, Serialize};

use ffdp_kit::half::computed;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Channels of a descriptor.
pub const CHANNELS: usize = 12;

/// The six neighbours: axis (x, y, z) and direction.
pub(crate) const NEIGHBOURS: [(usize, isize); 6] =
    [(0, 1), (0, -1), (1, 1), (1, -1), (2, 1), (2, -1)];

/// Of each channel: which two of the neighbours (x+, x-, y+, y-, z+, z-) are compared.
pub const PAIRS: [[usize; 2]; CHANNELS] = [
    [0, 2],
    [0, 3],
    [0, 4],
    [0, 5],
    [1, 2],
    [1, 3],
    [1, 4],
    [1, 5],
    [2, 4],
    [2, 5],
    [3, 4],
    [3, 5],
];

/// Between which values `V` is kept: what is flat has no structure, and its noise none either.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum VarianceBounds {
    /// 1/1000 and 1000 times the mean of `V` over each image of the batch (Heinrich et al.). The descriptors of a part
    /// of an image then differ from those of the whole, see [`mind_within`].
    #[default]
    OfMean,
    /// The same everywhere, in intensity^2: descriptors depend on a voxel's surroundings alone.
    Fixed {
        /// Positive, at least 1.2e-38.
        low: f64,
        /// At least `low`.
        high: f64,
    },
}

/// How descriptors are stored. They lie in 0..1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MindStorage {
    /// In the type that they are computed in: f32, or the f64 of an image on the CPU.
    #[default]
    Full,
    /// In f16: half the memory, to 2^-12.
    F16,
    /// In bf16: half the memory, to 2^-9.
    Bf16,
}

impl MindStorage {
    /// The type of descriptors that are computed in `computed`.
    pub(crate) fn dtype(self, computed: DType) -> DType {
        match self {
            Self::Full => computed,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }
}

/// Options of [`mind`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MindOptions {
    /// `r`: a patch is a cube of `2 r + 1` voxels. 0 to 3; 1 by default.
    pub radius_voxels: usize,
    /// `d`: how far the neighbours are from a voxel, 1 to 4; 2 by default.
    pub dilation_voxels: usize,
    /// Between which values `V` is kept; those of its mean by default.
    pub bounds: VarianceBounds,
    /// How descriptors are stored; in full by default. Gradients are computed in f32 at least.
    pub storage: MindStorage,
}

impl Default for MindOptions {
    fn default() -> Self {
        Self {
            radius_voxels: 1,
            dilation_voxels: 2,
            bounds: VarianceBounds::OfMean,
            storage: MindStorage::Full,
        }
    }
}

impl MindOptions {
    /// How far a descriptor looks along each axis, in voxels.
    pub fn reach_voxels(&self) -> usize {
        self.radius_voxels + self.dilation_voxels
    }

    pub(crate) fn patch(&self) -> Patch {
        Patch { radius: self.radius_voxels, dilation: self.dilation_voxels }
    }

    fn check(&self, image: &Tensor<5>) {
        let dims = image.dims();
        assert!(
            dims[1] == 1 && !dims.contains(&0),
            "mind: the image must be [N, 1, D, H, W], got {dims:?}"
        );
        let Self { radius_voxels: r, dilation_voxels: d, bounds, .. } = *self;
        assert!(r <= 3, "mind: the radius must be within 0..=3 voxels, got {r}");
        assert!((1..=4).contains(&d), "mind: the dilation must be within 1..=4 voxels, got {d}");
        if let VarianceBounds::Fixed { low, high } = bounds {
            // Also in f32.
            let in_order = low >= f64::from(f32::MIN_POSITIVE) && high >= low && high.is_finite();
            assert!(in_order, "mind: bounds must be positive and in order, got {low} and {high}");
        }
    }
}

/// What a backend is given of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Patch {
    /// `r`.
    pub radius: usize,
    /// `d`.
    pub dilation: usize,
}

impl Patch {
    /// Voxels of a patch.
    pub(crate) const fn voxels(self) -> usize {
        let width = 2 * self.radius + 1;
        width * width * width
    }
}

/// What a backend is asked for when it compares two images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MindCall {
    /// How voxels are described.
    pub patch: Patch,
    /// How descriptors are stored, where they are.
    pub storage: MindStorage,
    /// Whether the weights are an image or an ignored placeholder.
    pub weighted: bool,
}

fn descriptor_shape(image: &Shape) -> Shape {
    Shape::from([image[0], CHANNELS, image[2], image[3], image[4]])
}

/// Backend operations. Shapes: images and weights (or any placeholder) `[N, 1, D, H, W]`, bounds `[N, 2]` (low, high),
/// descriptors and their gradient `[N, 12, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait MindOps: Backend {
    /// `sum_p V(p)` of each image, `[N]`.
    #[fusion(dtype = computed(image), shape = Shape::from([image[0]]))]
    fn mind_variance_3d(image: FloatTensor<Self>, patch: Patch) -> FloatTensor<Self>;

    /// The descriptors.
    #[fusion(
        dtype = storage.dtype(bounds),
        shape = { let _ = bounds; descriptor_shape(image) }
    )]
    fn mind_3d(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        patch: Patch,
        storage: MindStorage,
    ) -> FloatTensor<Self>;

    /// The gradient of the image from `grad`, that of the descriptors.
    #[fusion(dtype = computed(image), shape = { let _ = (bounds, grad); image.clone() })]
    fn mind_3d_backward(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        patch: Patch,
    ) -> FloatTensor<Self>;

    /// `sum u |S - R|^2 / 12`, `[1]`.
    #[fusion(dtype = computed(moved), shape = Shape::from([1]))]
    fn mind_difference_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        moved_bounds: FloatTensor<Self>,
        fixed_bounds: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: MindCall,
    ) -> FloatTensor<Self> {
        let (of_moved, of_fixed, needs) = (moved_bounds, fixed_bounds, [false; 2]);
        Self::mind_difference_3d_with_gradient(
            moved, fixed, of_moved, of_fixed, weights, call, needs,
        )
        .0
    }

    /// `sum u |S - R|^2 / 12` `[1]` and its gradients to moved and fixed; a placeholder `[1]` where `needs` is false.
    #[fusion(meta = gradient_specs)]
    fn mind_difference_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        moved_bounds: FloatTensor<Self>,
        fixed_bounds: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: MindCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn gradient_specs(
    moved: &TensorSpec,
    fixed: &TensorSpec,
    _moved_bounds: &TensorSpec,
    _fixed_bounds: &TensorSpec,
    _weights: &TensorSpec,
    _call: &MindCall,
    needs: &[bool; 2],
) -> (TensorSpec, TensorSpec, TensorSpec) {
    let one = |input: &TensorSpec| TensorSpec::new([1].into(), computed(input.dtype));
    let gradient = |input: &TensorSpec, needed| match needed {
        true => TensorSpec::new(input.shape.clone(), computed(input.dtype)),
        false => one(input),
    };
    (one(moved), gradient(moved, needs[0]), gradient(fixed, needs[1]))
}

/// The descriptors of an image, in 0..1: 1 for the two neighbours that are most alike. They do not change when the
/// intensities are inverted, or scaled and shifted. Differentiable (first order). The image may be f16 or bf16;
/// descriptors are f32 then, or what [`MindStorage`] says.
///
/// # Shapes
/// image `[N, 1, D, H, W]`; result `[N, 12, D, H, W]`, the channels in the order of [`PAIRS`].
///
/// # Panics
/// If the image has several channels or an axis without voxels, or an option is outside its range.
pub fn mind(image: Tensor<5>, options: &MindOptions) -> Tensor<5> {
    let bounds = bounds_of(&image, options);
    described(image, bounds, options)
}

/// [`mind`] of a part of a larger image, with the mean of `V` over the whole: sums of [`mind_variance`] over its parts,
/// divided by its voxels. Fixed bounds need none of this.
///
/// # Shapes
/// image `[N, 1, D, H, W]`, mean `[N]`; result `[N, 12, D, H, W]`, that of the whole from
/// [`reach_voxels`](MindOptions::reach_voxels) within the ends of the part.
///
/// # Panics
/// As [`mind`], or if there is not one mean for each image.
pub fn mind_within(image: Tensor<5>, mean: Tensor<1>, options: &MindOptions) -> Tensor<5> {
    options.check(&image);
    let (images, means) = (image.dims()[0], mean.dims()[0]);
    assert!(images == means, "mind: {images} images need as many means of V, got {means}");
    described(image, bounds_of_mean(mean.detach()), options)
}

/// `sum_p V(p)`, `[N]`: the sum whose mean bounds `V`. Not differentiable.
///
/// # Shapes
/// image `[N, 1, D, H, W]`; result `[N]`.
///
/// # Panics
/// As [`mind`].
pub fn mind_variance(image: Tensor<5>, options: &MindOptions) -> Tensor<1> {
    options.check(&image);
    let image = image.detach().into_dispatch();
    Tensor::from_dispatch(<Dispatch as MindOps>::mind_variance_3d(image, options.patch()))
}

/// `sum u |S(moved) - S(fixed)|^2 / 12`; without weights `u` is 1. Differentiable in both images (first order).
///
/// # Shapes
/// moved, fixed, weights `[N, 1, D, H, W]`; result `[1]`.
///
/// # Panics
/// As [`mind`], or if the shapes differ.
pub(crate) fn mind_difference(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    options: &MindOptions,
) -> Tensor<1> {
    let ([moved, fixed, of_moved, of_fixed, weights], call) =
        compared([moved, fixed], weights, options);
    let sum =
        <Dispatch as MindOps>::mind_difference_3d(moved, fixed, of_moved, of_fixed, weights, call);
    Tensor::from_dispatch(sum)
}

/// [`mind_difference`] and its gradients to moved and fixed, where `needs` asks for them, off the tape. Not
/// differentiable.
///
/// # Panics
/// As [`mind_difference`].
pub(crate) fn mind_difference_with_gradient(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    options: &MindOptions,
    needs: [bool; 2],
) -> (Tensor<1>, [Option<Tensor<5>>; 2]) {
    let ([moved, fixed, of_moved, of_fixed, weights], call) =
        compared([moved, fixed], weights, options);
    let (sum, to_moved, to_fixed) = <Dispatch as MindOps>::mind_difference_3d_with_gradient(
        moved, fixed, of_moved, of_fixed, weights, call, needs,
    );
    let given = |gradient, needed: bool| needed.then(|| Tensor::from_dispatch(gradient));
    (Tensor::from_dispatch(sum), [given(to_moved, needs[0]), given(to_fixed, needs[1])])
}

/// What a comparison is given: both images, the bounds of both, weights.
fn compared(
    images: [Tensor<5>; 2],
    weights: Option<Tensor<5>>,
    options: &MindOptions,
) -> ([FloatTensor<Dispatch>; 5], MindCall) {
    let [moved, fixed] = images.each_ref().map(|image| image.dims());
    assert!(moved == fixed, "mind: moved {moved:?} and fixed {fixed:?} must have the same shape");
    if let Some(weights) = weights.as_ref().map(|weights| weights.dims()) {
        assert!(weights == moved, "mind: weights {weights:?} must have the images' {moved:?}");
    }
    let (patch, storage, weighted) = (options.patch(), options.storage, weights.is_some());
    let [of_moved, of_fixed] =
        images.each_ref().map(|image| bounds_of(image, options).into_dispatch());
    let [moved, fixed] = images.map(Tensor::into_dispatch);
    // Bound, but not read where there are no weights.
    let weights = weights.map_or_else(|| fixed.clone(), Tensor::into_dispatch);
    ([moved, fixed, of_moved, of_fixed, weights], MindCall { patch, storage, weighted })
}

/// The bounds `[N, 2]` of `V` for an image.
///
/// # Panics
/// As [`mind`].
fn bounds_of(image: &Tensor<5>, options: &MindOptions) -> Tensor<2> {
    options.check(image);
    let [n, _, d, h, w] = image.dims();
    match options.bounds {
        VarianceBounds::OfMean => {
            let sums = mind_variance(image.clone(), options);
            bounds_of_mean(sums.mul_scalar(1.0 / (d * h * w) as f64))
        }
        VarianceBounds::Fixed { low, high } => {
            let data = TensorData::new([low, high].repeat(n), [n, 2]);
            Tensor::from_data(data, (&image.device(), computed(image.dtype())))
        }
    }
}

/// What a constant image is divided by: all its distances are 0.
const FLAT: f64 = 1e-30;

fn bounds_of_mean(mean: Tensor<1>) -> Tensor<2> {
    let of = |factor: f64| mean.clone().mul_scalar(factor).clamp_min(FLAT);
    Tensor::stack(vec![of(1e-3), of(1e3)], 1)
}

fn described(image: Tensor<5>, bounds: Tensor<2>, options: &MindOptions) -> Tensor<5> {
    let (image, bounds) = (image.into_dispatch(), bounds.into_dispatch());
    let (patch, storage) = (options.patch(), options.storage);
    Tensor::from_dispatch(<Dispatch as MindOps>::mind_3d(image, bounds, patch, storage))
}
