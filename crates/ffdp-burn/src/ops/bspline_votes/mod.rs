//! The joint histogram of a fixed image and of a moving one that control points deform, in one sweep: neither the
//! displacement nor the warped image is ever stored (Ikeda et al. 2014, sections IV-A and IV-C).
//!
//! ```text
//! h[m, n] = sum_p k(m - x(M(A p + t + S u(p)))) k(n - x(F(p)))        u = the field of control points phi
//! ```
//! `u` as [`bspline`](super::bspline()) has it · `M` sampled as by [`grid_sample`](super::grid_sample()), zero outside ·
//! the votes of [`joint_histogram`](super::joint_histogram()), rows the moving image, columns the fixed one. It is those
//! three operations, one after the other on the CPU; on a GPU a voxel's displacement, sample and votes stay in registers.
//!
//! Backward, with `g = dL/dh`:
//! ```text
//! dL/du(p) = S^T grad M dL/dM(p)          dL/dphi = the transpose of the splines
//! ```
//! The gradient to the dense field is written once, and pulled back to the control points.
//!
//! # Whole votes
//! With [`ParzenKernel::Delta`](super::ParzenKernel::Delta) a voxel has one vote, as in the paper, and a GPU keeps the table
//! of a cube in shared memory at 16 bits a cell: all of it where it fits (128 kB with 256 bins), else the band
//! `|moving - fixed| <= W / 2` around the diagonal. A vote beyond the band goes to global memory by itself: there is
//! nothing to choose in advance, and the result is the same. A cell that reaches half of what it can hold is flushed
//! alone. The paper's 8 bits and its choice of one of two kernels by a test of the whole table were for 48 kB.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")]
use burn::tensor::Shape;

use super::bspline::{ControlGrid, Lattice, Map};
use super::grid_sample::{Accumulation, Interpolation, Padding, Sampling};
use super::joint_histogram::{Binning, HistogramOptions};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

#[cfg(feature = "cube")]
pub(super) use cube::march;

/// Where a GPU counts whole votes; the result is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Counting {
    /// In shared memory: all of the table if it fits, else as wide a band as fits.
    #[default]
    Automatic,
    /// In shared memory, a band of so many bins around the diagonal; 177 in the paper. Narrower where less fits.
    Band(usize),
    /// In global memory.
    Global,
}

/// Options of [`bspline_votes`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VotesOptions {
    /// Bins and kernel.
    pub histogram: HistogramOptions,
    /// `S`, rows and columns in (x, y, z): from a displacement in voxels of the fixed image to one in voxels of the moving
    /// image.
    pub displacement_scale: [[f64; 3]; 3],
    /// Where whole votes are counted.
    pub counting: Counting,
}

impl Default for VotesOptions {
    fn default() -> Self {
        Self {
            histogram: HistogramOptions::default(),
            displacement_scale: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            counting: Counting::Automatic,
        }
    }
}

/// The resolved options that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VotesPlan {
    pub(crate) lattice: Lattice,
    pub(crate) sampling: Sampling,
    pub(crate) binning: Binning,
    pub(crate) counting: Counting,
}

#[cfg(feature = "cube")]
impl VotesPlan {
    fn table(&self, coefficients: &Shape) -> Shape {
        let bins = self.binning.options.bins;
        Shape::from([coefficients[0], bins, bins])
    }
}

/// Backend operations of the fused histogram. Shapes: fixed `[N, 1, D, H, W]`, moving `[N, 1, Di, Hi, Wi]`, affine
/// `[1 or N, 3, 4]`, coefficients `[N, 3, d, h, w]`, table and its gradient `[N, B, B]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait BsplineVotesOps: Backend {
    /// The sums of the votes.
    #[fusion(dtype = coefficients, shape = { let _ = (fixed, moving, affine); plan.table(coefficients) })]
    fn bspline_votes_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        plan: VotesPlan,
    ) -> FloatTensor<Self>;

    /// The gradient of the coefficients.
    #[fusion(dtype = coefficients, shape = { let _ = (fixed, moving, affine, grad, plan); coefficients.clone() })]
    fn bspline_votes_3d_backward(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        plan: VotesPlan,
    ) -> FloatTensor<Self>;
}

/// A pair of images, and the map between their voxels that a deformation comes before.
#[derive(Clone, Debug)]
pub struct VotesImages {
    /// `[N, 1, D, H, W]`.
    pub fixed: Tensor<5>,
    /// `[N, 1, Di, Hi, Wi]`.
    pub moving: Tensor<5>,
    /// `[A|t]`, from fixed to moving voxels in (x, y, z), `[1 or N, 3, 4]`.
    pub affine: Tensor<3>,
}

/// The votes of a fixed image and of a moving one as `coefficients` on `grid` deform it, `[N, B, B]`, rows the moving
/// image. Differentiable in the coefficients (first order); with single votes the gradient is 0.
///
/// # Shapes
/// coefficients `[N, 3, d, h, w]`, in voxels (x, y, z) of the fixed image.
///
/// # Errors of the result
/// Reproducible bit by bit on one device. As those of the three operations; whole votes are exact for equal samples.
///
/// # Panics
/// If shapes do not fit each other, or an option has no meaning.
pub fn bspline_votes(
    images: &VotesImages,
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    options: &VotesOptions,
) -> Tensor<3> {
    let plan = plan("bspline_votes", images, &coefficients, grid, options);
    let VotesImages { fixed, moving, affine } = images.clone();
    Tensor::from_dispatch(<Dispatch as BsplineVotesOps>::bspline_votes_3d(
        fixed.into_dispatch(),
        moving.into_dispatch(),
        affine.into_dispatch(),
        coefficients.into_dispatch(),
        plan,
    ))
}

/// The gradient of the coefficients from that of [`bspline_votes`], `[N, B, B]`, without a tape.
///
/// # Panics
/// As [`bspline_votes`], and on the tape.
pub fn bspline_votes_pull_back(
    images: &VotesImages,
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    gradient: Tensor<3>,
    options: &VotesOptions,
) -> Tensor<5> {
    let plan = plan("bspline_votes", images, &coefficients, grid, options);
    let VotesImages { fixed, moving, affine } = images.clone();
    Tensor::from_dispatch(<Dispatch as BsplineVotesOps>::bspline_votes_3d_backward(
        fixed.into_dispatch(),
        moving.into_dispatch(),
        affine.into_dispatch(),
        coefficients.into_dispatch(),
        gradient.into_dispatch(),
        plan,
    ))
}

pub(super) fn plan(
    op: &str,
    images: &VotesImages,
    coefficients: &Tensor<5>,
    grid: &ControlGrid,
    options: &VotesOptions,
) -> VotesPlan {
    options.histogram.check();
    grid.check();
    let VotesImages { fixed, moving, affine } = images;
    let (fixed, moving, dims) = (fixed.dims(), moving.dims(), coefficients.dims());
    let batch = fixed[0];
    assert!(
        fixed[1] == 1 && moving[..2] == [batch, 1] && dims[..2] == [batch, 3],
        "{op}: the images must be [N, 1, ..] and the coefficients [N, 3, d, h, w], got {fixed:?}, {moving:?} and {dims:?}"
    );
    let affine = affine.dims();
    assert!(
        (affine[0] == 1 || affine[0] == batch) && affine[1..] == [3, 4],
        "{op}: affine must be [1 or {batch}, 3, 4], got {affine:?}"
    );
    let size = [fixed[2], fixed[3], fixed[4]];
    let controls = [dims[2], dims[3], dims[4]];
    VotesPlan {
        lattice: grid.lattice(controls, [0; 3], size, [Map::Value; 3]),
        sampling: Sampling {
            interpolation: Interpolation::Linear,
            padding: Padding::Zeros,
            scale: options.displacement_scale,
            size,
            has_affine: true,
            has_displacement: true,
            accumulation: Accumulation::Fast,
        },
        binning: Binning { options: options.histogram, weighted: false },
        counting: options.counting,
    }
}
