//! How alike an affine map makes two images, and in which direction of its twelve numbers they
//! become more alike.
//!
//! ```text
//! moved = M(A p + t)        L = loss(moved, fixed)        dL/d[A|t] = sum_p dL/dmoved(p) grad M [p 1]^T
//! ```
//! The other fused operations called one after the other, off the tape: one pass forward and one
//! back, no field, and thirteen numbers to read for a step of an optimiser on the host. The factors
//! that do not depend on the voxel are applied to the twelve numbers, not to the volume.

use burn::Tensor;
use burn::backend::Dispatch;
use serde::{Deserialize, Serialize};

use super::grid_sample::{Accumulation, GridSampleOps, Sampling};
use super::information::{Information, InformationOps, information_loss};
use super::joint_histogram::{Binning, HistogramOptions, JointHistogramOps, joint_votes};
use super::lncc::{LnccCall, LnccOps, LnccOptions};
use super::mse::MseOps;
use super::{GridSampleOptions, Interpolation, Padding, grid_sample};

#[cfg(test)]
mod tests;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AlignmentLoss {
    /// `1 - mean n` of [`lncc`](super::lncc()).
    Lncc(LnccOptions),
    /// The mean squared difference.
    SquaredDifference,
    /// A loss of the joint histogram; see [`information_loss`].
    Information(Information, HistogramOptions),
}

/// What a voxel counts that the map sends outside the moving image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outside {
    /// Like any other; it sees 0 there. Right where images fade into an empty background.
    #[default]
    Background,
    /// Nothing: it votes as much as it lies inside (trilinearly, within a voxel of the border), as
    /// Mattes et al. have it. For images that end inside the object. The gradient takes these
    /// weights as constants. Joint histograms only.
    Ignored,
}

/// Loss `[1]` and its gradient to `affine` `[1, 3, 4]`, rows (x, y, z) and columns (x, y, z, 1).
/// Not differentiable.
///
/// # Shapes
/// fixed `[1, C, D, H, W]` · moving `[1, C, Di, Hi, Wi]` · affine `[1, 3, 4]`, from fixed to moving
/// voxels.
///
/// # Panics
/// If shapes do not fit, an option has no meaning, or voxels outside are to be ignored by a loss
/// without weights.
pub fn alignment(
    fixed: Tensor<5>,
    moving: Tensor<5>,
    affine: Tensor<3>,
    loss: &AlignmentLoss,
    outside: Outside,
) -> (Tensor<1>, Tensor<3>) {
    let (size, dims) = (fixed.dims(), affine.dims());
    assert!(
        size[0] == 1 && moving.dims()[..2] == size[..2] && dims == [1, 3, 4],
        "alignment: fixed {size:?} and moving {:?} must be one volume each with the same channels, \
         and affine [1, 3, 4], got {dims:?}",
        moving.dims()
    );
    let padding = match outside {
        Outside::Background => Padding::Zeros,
        Outside::Ignored => Padding::Border,
    };
    let size = [size[2], size[3], size[4]];
    let sample = |image: Tensor<5>, padding| {
        let size = Some(size);
        let options = GridSampleOptions { padding, size, ..GridSampleOptions::default() };
        grid_sample(image, Some(affine.clone()), None, &options)
    };
    let moved = sample(moving.clone(), padding);
    let weights = (outside == Outside::Ignored).then(|| sample(moving.ones_like(), Padding::Zeros));
    let Compared { loss, to_moved, factor } = compare(moved, fixed, weights, loss);

    let sampling = Sampling {
        interpolation: Interpolation::Linear,
        padding,
        scale: GridSampleOptions::default().displacement_scale,
        size,
        has_affine: true,
        has_displacement: false,
        accumulation: Accumulation::Fast,
    };
    // Bound, but not read.
    let no_displacement = moving.clone();
    let (_, gradient, _) = <Dispatch as GridSampleOps>::grid_sample_3d_backward(
        moving.into_dispatch(),
        affine.into_dispatch(),
        no_displacement.into_dispatch(),
        to_moved.into_dispatch(),
        sampling,
        [false, true, false],
    );
    (loss, Tensor::<3>::from_dispatch(gradient).mul_scalar(factor))
}

/// A loss, and its gradient to the moved image as `factor * to_moved`.
struct Compared {
    loss: Tensor<1>,
    to_moved: Tensor<5>,
    factor: f64,
}

fn compare(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    loss: &AlignmentLoss,
) -> Compared {
    let per_voxel = 1.0 / moved.shape().num_elements() as f64;
    if let AlignmentLoss::Information(measure, options) = *loss {
        return information(moved, fixed, weights, measure, options);
    }
    assert!(weights.is_none(), "alignment: {loss:?} has no weights, take Outside::Background");
    match *loss {
        AlignmentLoss::Lncc(options) => {
            // Bound, but not read where there are no weights.
            let weights = fixed.clone();
            let (sum, to_moved, _) = <Dispatch as LnccOps>::lncc_3d_with_gradient(
                moved.into_dispatch(),
                fixed.into_dispatch(),
                weights.into_dispatch(),
                LnccCall { options, weighted: false },
                [true, false],
            );
            let sum = Tensor::<1>::from_dispatch(sum);
            Compared {
                loss: sum.mul_scalar(-per_voxel).add_scalar(1.0),
                to_moved: Tensor::from_dispatch(to_moved),
                factor: -per_voxel,
            }
        }
        _ => {
            let sum = <Dispatch as MseOps>::squared_difference(
                moved.clone().into_dispatch(),
                fixed.clone().into_dispatch(),
            );
            Compared {
                loss: Tensor::<1>::from_dispatch(sum).mul_scalar(per_voxel),
                to_moved: moved - fixed,
                factor: 2.0 * per_voxel,
            }
        }
    }
}

fn information(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    measure: Information,
    options: HistogramOptions,
) -> Compared {
    let votes = joint_votes(moved.clone(), fixed.clone(), weights.clone(), &options);
    let loss = information_loss(votes.clone(), measure);
    let to_votes = <Dispatch as InformationOps>::information_loss_backward(
        votes.into_dispatch(),
        loss.ones_like().into_dispatch(),
        measure,
    );
    let weighted = weights.is_some();
    let weights = weights.unwrap_or_else(|| fixed.clone());
    let (to_moved, _) = <Dispatch as JointHistogramOps>::joint_histogram_3d_backward(
        moved.into_dispatch(),
        fixed.into_dispatch(),
        weights.into_dispatch(),
        to_votes,
        Binning { options, weighted },
        [true, false],
    );
    Compared { loss, to_moved: Tensor::from_dispatch(to_moved), factor: 1.0 }
}
