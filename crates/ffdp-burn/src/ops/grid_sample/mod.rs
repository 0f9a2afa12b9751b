//! Composite implicit grid sampler: warps an image by an affine map plus a displacement field
//! without ever storing a grid (FFDP paper, sections 3.1 and H).
//!
//! ```text
//! y(p) = I(A p + t + S u(p))
//! ```
//! `p` output voxel index (x, y, z) · `I` image, interpolated trilinearly · `[A|t]` affine map from
//! output to image indices · `u` displacement in voxels of the output grid · `S` its scale.
//! Physical affines, normalised coordinates and shards fold into the small matrices on the host.
//!
//! Backward, with `g = dL/dy` and `x_p` the sampled index:
//! ```text
//! dL/du(p) = S^T g(p) grad I(x_p)                     local
//! dL/d[A|t] = sum_p g(p) grad I(x_p) [p 1]^T          tree reduction
//! dL/dI    = scatter of g(p) over the eight corners   only when wanted; see cube/scatter.rs
//! ```
//! Extra memory: none beyond the results. This is the model: the other ops follow its shape.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{Shape, TensorData};

use ffdp_kit::half::computed;

mod autodiff;
pub mod block;
#[cfg(feature = "cube")]
pub(crate) mod cube;
pub(crate) mod flex;
#[cfg(test)]
mod tests;

/// How a value is read between voxels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Weighted mean of the eight surrounding voxels; differentiable.
    #[default]
    Linear,
    /// The voxel whose centre is nearest (halves round up); gradients to the coordinates are 0.
    Nearest,
    /// For label maps: of the labels of the eight surrounding voxels that with the largest sum of
    /// trilinear weights, the smallest of equal ones (`GenericLabel` of ANTs). With zero padding
    /// voxels outside have label 0. Exact up to 2^24; the result carries no gradient.
    Label,
}

/// What lies outside the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Padding {
    /// Zero: a corner outside contributes nothing, corner by corner. The gradient at the border is
    /// that of the zero-extended image, and partial sums over shards add up exactly.
    #[default]
    Zeros,
    /// The nearest voxel of the image; coordinates are clamped, with zero gradient outside.
    Border,
}

/// How a GPU adds up a gradient that many voxels scatter to.
///
/// Both ways first add within blocks of 16 x 8 x 8 voxels, in whole numbers: a contribution is
/// rounded to `2^-20` of the next power of two above the largest `|g|` of its block and channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accumulation {
    /// The blocks' sums are added by float atomics, where the device has them: the last bits depend
    /// on the order.
    #[default]
    Fast,
    /// The blocks' sums are added as whole numbers of 64 bits, units of `2^-31` of the next power of
    /// two above the largest `|g|` of the volume and channel: bit-identical whatever the order.
    /// Takes 8 bytes more for every element of the gradient, and somewhat longer. The CPU is always
    /// reproducible.
    Reproducible,
}

/// Options of [`grid_sample`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridSampleOptions {
    /// How a value is read between voxels; linear by default.
    pub interpolation: Interpolation,
    /// What lies outside the image; zeros by default.
    pub padding: Padding,
    /// `S`, rows and columns in (x, y, z): turns a displacement in output voxels into one in image
    /// voxels. The identity by default.
    pub displacement_scale: [[f64; 3]; 3],
    /// Output extent (D, H, W); by default that of the displacement, else that of the image.
    pub size: Option<[usize; 3]>,
    /// How the gradient to the image is added up on a GPU; fast by default.
    pub accumulation: Accumulation,
}

impl Default for GridSampleOptions {
    fn default() -> Self {
        Self {
            interpolation: Interpolation::Linear,
            padding: Padding::Zeros,
            displacement_scale: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            size: None,
            accumulation: Accumulation::Fast,
        }
    }
}

/// The resolved options that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// How a value is read between voxels.
    pub interpolation: Interpolation,
    /// What lies outside the image.
    pub padding: Padding,
    /// `S` of [`GridSampleOptions`].
    pub scale: [[f64; 3]; 3],
    /// Output extent (D, H, W).
    pub size: [usize; 3],
    /// Whether there is an affine map, or the identity in its place.
    pub has_affine: bool,
    /// Whether the displacement is a field or an ignored placeholder.
    pub has_displacement: bool,
    /// How the gradient to the image is added up on a GPU.
    pub accumulation: Accumulation,
}

impl Sampling {
    fn output_shape(&self, image: &Shape) -> Shape {
        let [d, h, w] = self.size;
        Shape::from([image[0], image[1], d, h, w])
    }
}

/// Backend operations of the grid sampler.
///
/// Shapes: image `[N, C, Di, Hi, Wi]`, affine `[1 or N, 3, 4]`, displacement `[N, 3, D, H, W]` (or
/// any placeholder), output and gradient `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait GridSampleOps: Backend {
    /// `y(p) = I(A p + t + S u(p))`.
    #[fusion(dtype = displacement, shape = sampling.output_shape(image))]
    fn grid_sample_3d(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
    ) -> FloatTensor<Self>;

    /// The gradients of image, affine and displacement; a placeholder `[1]` where `needs` is false.
    #[fusion(meta = gradient_specs)]
    fn grid_sample_3d_backward(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        sampling: Sampling,
        needs: [bool; 3],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn gradient_specs(
    image: &TensorSpec,
    affine: &TensorSpec,
    displacement: &TensorSpec,
    _grad: &TensorSpec,
    _sampling: &Sampling,
    needs: &[bool; 3],
) -> (TensorSpec, TensorSpec, TensorSpec) {
    let spec = |input: &TensorSpec, needed: bool| match needed {
        true => TensorSpec::new(input.shape.clone(), computed(input.dtype)),
        false => TensorSpec::new(Shape::from([1]), computed(input.dtype)),
    };
    (spec(image, needs[0]), spec(affine, needs[1]), spec(displacement, needs[2]))
}

/// Samples `image` at `A p + t + S u(p)` for every output voxel `p`.
///
/// Differentiable in all three tensors (first order); only the gradients that are wanted are
/// computed. The image may be f16 or bf16: samples, map and displacement are f32 then. Without an affine map the identity is used, without a displacement zero.
///
/// # Shapes
/// image `[N, C, Di, Hi, Wi]` · affine `[1 or N, 3, 4]`, from output to image voxel indices in
/// (x, y, z) · displacement `[N, 3, D, H, W]`, components (x, y, z) in output voxels · result
/// `[N, C, D, H, W]`.
///
/// # Errors of the result
/// Against the f64 oracle: see `docs/gradients.md`. The last bits of the gradient to the image depend
/// on the order of additions on a GPU, unless they are asked not to ([`Accumulation`]); the other
/// results are reproducible.
///
/// # Panics
/// If the shapes do not fit each other.
pub fn grid_sample(
    image: Tensor<5>,
    affine: Option<Tensor<3>>,
    displacement: Option<Tensor<5>>,
    options: &GridSampleOptions,
) -> Tensor<5> {
    let sampling = resolve(&image, affine.as_ref(), displacement.as_ref(), options);
    let (image, affine, displacement) = match options.interpolation {
        // Labels do not move by degrees, and have no mean.
        Interpolation::Label => {
            (image.detach(), affine.map(Tensor::detach), displacement.map(Tensor::detach))
        }
        _ => (image, affine, displacement),
    };
    let device = image.device();
    let dtype = computed(image.dtype());
    let affine = affine.unwrap_or_else(|| {
        let identity = [[[1.0f64, 0., 0., 0.], [0., 1., 0., 0.], [0., 0., 1., 0.]]];
        Tensor::from_data(TensorData::from(identity), (&device, dtype))
    });
    let displacement =
        displacement.unwrap_or_else(|| Tensor::zeros([1, 1, 1, 1, 1], (&device, dtype)));
    Tensor::from_dispatch(<Dispatch as GridSampleOps>::grid_sample_3d(
        image.into_dispatch(),
        affine.into_dispatch(),
        displacement.into_dispatch(),
        sampling,
    ))
}

/// Warps `image` by a displacement: `y(p) = I(p + u(p))`, trilinear, zeros outside.
///
/// # Shapes
/// image `[N, C, Di, Hi, Wi]`, displacement `[N, 3, D, H, W]` in voxels, result `[N, C, D, H, W]`.
///
/// # Panics
/// If the shapes do not fit each other.
pub fn warp(image: Tensor<5>, displacement: Tensor<5>) -> Tensor<5> {
    grid_sample(image, None, Some(displacement), &GridSampleOptions::default())
}

fn resolve(
    image: &Tensor<5>,
    affine: Option<&Tensor<3>>,
    displacement: Option<&Tensor<5>>,
    options: &GridSampleOptions,
) -> Sampling {
    let [batch, _, d, h, w] = image.dims();
    if let Some(affine) = affine {
        let dims = affine.dims();
        assert!(
            (dims[0] == 1 || dims[0] == batch) && dims[1..] == [3, 4],
            "grid_sample: affine must be [1 or {batch}, 3, 4], got {dims:?}"
        );
    }
    let mut size = options.size.unwrap_or([d, h, w]);
    if let Some(displacement) = displacement {
        let dims = displacement.dims();
        assert!(
            dims[0] == batch && dims[1] == 3,
            "grid_sample: displacement must be [{batch}, 3, D, H, W] for an image of batch \
             {batch}, got {dims:?}"
        );
        size = [dims[2], dims[3], dims[4]];
        assert!(
            options.size.is_none_or(|wanted| wanted == size),
            "grid_sample: output size {:?} differs from the displacement's {size:?}",
            options.size.unwrap_or_default()
        );
    }
    Sampling {
        interpolation: options.interpolation,
        padding: options.padding,
        scale: options.displacement_scale,
        size,
        has_affine: affine.is_some(),
        has_displacement: displacement.is_some(),
        accumulation: options.accumulation,
    }
}
