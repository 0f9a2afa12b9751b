//! How the information of two images changes when one control point moves: the local finite differences of Ikeda et
//! al. 2014 (section IV-B), six displacements a control point.
//!
//! ```text
//! dL/dphi_kc = (L(phi + e_kc) - L(phi - e_kc)) / 2 e
//! H(Omega; D') = H(Omega) - H(D) + H(D')
//! ```
//! A control point moves the voxels `D` of its support only. So the histogram of a displaced control point is that of
//! the image, of which there is one, with the votes of `D` taken out and those of `D'` put in: integers, exactly. What
//! changes is a few thousand of the 65536 cells, and `L` follows from these alone:
//! ```text
//! eta(n) = n log n        H = log N - sum eta(n) / N        eta(n + m) - eta(n) = m log n + (n + m) log(1 + m / n)
//! ```
//! in a form that does not lose a change of 1e-6 in sums of 1e9. Votes are whole ([`ParzenKernel::Delta`]): `L` is constant
//! between the moments when a voxel changes its bin, so `e` must not be small; the paper's is a part of a voxel. The
//! gradient of [`bspline_votes`](super::bspline_votes()) with smooth votes costs far less, and is the one to search by: this
//! one is what the paper has.
//!
//! A GPU has one cube a control point, and the changes of the table in shared memory, a band around its diagonal where not
//! all fits; a change beyond the band goes to a table of the cube in global memory.
//!
//! [`ParzenKernel::Delta`]: super::ParzenKernel::Delta

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")]
use burn::tensor::Shape;

use super::bspline::{ControlGrid, Lattice, bspline};
use super::bspline_votes::{VotesImages, VotesOptions, plan};
use super::field_sum::{sum_of_all, sum_of_fields};
use super::grid_sample::{GridSampleOptions, Sampling, grid_sample};
use super::information::Information;
use super::joint_histogram::{ParzenKernel, joint_votes};

#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Options of [`bspline_differences`].
#[derive(Clone, Copy, Debug)]
pub struct DifferencesOptions<'a> {
    /// How voxels vote; whole votes ([`ParzenKernel::Delta`]).
    pub votes: &'a VotesOptions,
    /// What is computed of the votes.
    pub information: Information,
    /// How far a coefficient is moved up and down, in voxels.
    pub step_voxels: f64,
}

/// The resolved options that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DifferencesPlan {
    lattice: Lattice,
    sampling: Sampling,
    bins: usize,
    step: f64,
    information: Information,
}

#[cfg(feature = "cube")]
impl DifferencesPlan {
    fn output(&self) -> Shape {
        let [d, h, w] = self.lattice.controls();
        Shape::from([1, 3, d, h, w])
    }
}

/// What is known before: the map, the entropies, the votes in each row and in each cell, in one tensor.
const MAP: usize = 12;
/// `H(moving) + H(fixed)` and `H(both)`, nats.
const ENTROPIES: usize = 2;

/// Backend operation of the differences. Shapes: images and what was `moved` `[1, 1, ..]`, field `[1, 3, D, H, W]`,
/// `known` `[12 + 2 + B + B^2]`, output `[1, 3, d, h, w]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait BsplineDifferencesOps: Backend {
    /// The central differences of the loss.
    #[fusion(dtype = field, shape = { let _ = (fixed, moving, moved, field, known); plan.output() })]
    fn bspline_differences_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        moved: FloatTensor<Self>,
        field: FloatTensor<Self>,
        known: FloatTensor<Self>,
        plan: DifferencesPlan,
    ) -> FloatTensor<Self>;
}

impl<B: BsplineDifferencesOps, C: CheckpointStrategy> BsplineDifferencesOps for Autodiff<B, C> {
    fn bspline_differences_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: DifferencesPlan,
    ) -> FloatTensor<Self> {
        panic!(
            "bspline_differences: it is a gradient itself; take the tensors off the tape (`inner`)"
        )
    }
}

/// The loss `[1]` of whole votes, as [`information_loss`](super::information_loss()) has it, and its central differences
/// by each coefficient, `step_voxels` up and down. Not differentiable.
///
/// # Shapes
/// images of a batch of one; coefficients and result `[1, 3, d, h, w]`, in voxels (x, y, z) of the fixed image.
///
/// # Panics
/// If shapes do not fit each other, the kernel is not [`ParzenKernel::Delta`], the step is not positive, or on the tape.
pub fn bspline_differences(
    images: &VotesImages,
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    options: DifferencesOptions,
) -> (Tensor<1>, Tensor<5>) {
    let DifferencesOptions { votes: options, information, step_voxels: step } = options;
    let votes_plan = plan("bspline_differences", images, &coefficients, grid, options);
    let bins = options.histogram.bins;
    assert!(
        options.histogram.kernel == ParzenKernel::Delta,
        "bspline_differences: votes must be whole (ParzenKernel::Delta), got {:?}",
        options.histogram.kernel
    );
    assert!(
        step.is_finite() && step > 0.0,
        "bspline_differences: the step must be positive, got {step}"
    );
    let VotesImages { fixed, moving, affine } = images.clone();
    let [batch, _, d, h, w] = fixed.dims();
    assert!(batch == 1, "bspline_differences: a batch of one is needed, got {batch}");
    let field = bspline(coefficients, grid, [d, h, w]);
    let sampling = GridSampleOptions {
        displacement_scale: options.displacement_scale,
        ..GridSampleOptions::default()
    };
    let moved = grid_sample(moving.clone(), Some(affine.clone()), Some(field.clone()), &sampling);
    let votes = joint_votes(moved.clone(), fixed.clone(), None, &options.histogram);
    let (loss, statistics) = vote_statistics(votes, (d * h * w) as f64, information);
    let known = Tensor::cat(vec![affine.reshape([MAP]), statistics], 0);
    let sampling = votes_plan.sampling;
    let plan = DifferencesPlan { lattice: votes_plan.lattice, sampling, bins, step, information };
    let gradient = <Dispatch as BsplineDifferencesOps>::bspline_differences_3d(
        fixed.into_dispatch(),
        moving.into_dispatch(),
        moved.into_dispatch(),
        field.into_dispatch(),
        known.into_dispatch(),
        plan,
    );
    (loss, Tensor::from_dispatch(gradient))
}

/// The loss of votes `[1, B, B]`, and what is known of them: entropies, rows, cells.
fn vote_statistics(
    votes: Tensor<3>,
    voxels: f64,
    information: Information,
) -> (Tensor<1>, Tensor<1>) {
    let bins = votes.dims()[1];
    let entropy = |n: Tensor<1>| {
        let p = n.mul_scalar(1.0 / voxels);
        let terms = p.clone() * p.clamp_min(f64::from(f32::MIN_POSITIVE)).log();
        let count = terms.dims()[0];
        sum_of_all(terms.reshape([1, 1, 1, 1, count])).neg()
    };
    // Sums of a fixed order: Burn's own are taken in that which it finds to be the fastest, each time it looks.
    let of_rows = |votes: Tensor<3>| sum_of_fields(votes.reshape([bins, 1, 1, 1, bins]));
    let rows = of_rows(votes.clone());
    let columns = of_rows(votes.clone().swap_dims(1, 2));
    let cells: Tensor<1> = votes.reshape([bins * bins]);
    let apart = entropy(rows.clone()) + entropy(columns);
    let joint = entropy(cells.clone());
    let loss = match information {
        Information::Mutual => joint.clone() - apart.clone(),
        // Constant images have no information, and no entropy to divide by.
        Information::Normalized => (apart.clone() - joint.clone()) / joint.clone().clamp_min(1e-10),
    };
    let loss =
        if information == Information::Normalized { loss.neg().add_scalar(1.0) } else { loss };
    (loss, Tensor::cat(vec![apart, joint, rows, cells], 0))
}
