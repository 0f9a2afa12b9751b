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
use super::weights::joint_weights;
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
    /// weights as constants.
    Ignored,
}

/// Two images and how their voxels count.
#[derive(Clone, Debug)]
pub struct AlignmentImages {
    /// `[1, C, D, H, W]`.
    pub fixed: Tensor<5>,
    /// `[1, C, Di, Hi, Wi]`.
    pub moving: Tensor<5>,
    /// Weights of the voxels of fixed and moving in 0..1, `[1, 1, D, H, W]` and `[1, 1, Di, Hi, Wi]`;
    /// without, all count the same. A pair of voxels counts the product of its weights, and the
    /// gradient takes it as a constant.
    pub masks: [Option<Tensor<5>>; 2],
}

/// Loss `[1]` and its gradient to `affine` `[1, 3, 4]`, rows (x, y, z) and columns (x, y, z, 1); the
/// mean over the channels. Not differentiable.
///
/// # Shapes
/// affine `[1, 3, 4]`, from fixed to moving voxels; images as in [`AlignmentImages`].
///
/// # Panics
/// If shapes do not fit, or an option has no meaning.
pub fn alignment(
    images: &AlignmentImages,
    affine: Tensor<3>,
    loss: &AlignmentLoss,
    outside: Outside,
) -> (Tensor<1>, Tensor<3>) {
    let AlignmentImages { fixed, moving, masks } = images;
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
    let inside = match (&masks[1], outside) {
        (Some(mask), _) => Some(mask.clone()),
        (None, Outside::Ignored) => Some(moving.clone().narrow(1, 0, 1).ones_like()),
        (None, Outside::Background) => None,
    };
    let weights = joint_weights(masks[0].clone(), inside.map(|mask| sample(mask, Padding::Zeros)));
    let Compared { loss, to_moved, factor } = compare(moved, fixed.clone(), weights, loss);

    let sampling = Sampling {
        interpolation: Interpolation::Linear,
        padding,
        scale: GridSampleOptions::default().displacement_scale,
        size,
        has_affine: true,
        has_displacement: false,
        accumulation: Accumulation::Fast,
    };
    // The displacement is bound, but not read.
    let (_, gradient, _) = <Dispatch as GridSampleOps>::grid_sample_3d_backward(
        moving.clone().into_dispatch(),
        affine.into_dispatch(),
        moving.clone().into_dispatch(),
        to_moved.into_dispatch(),
        sampling,
        [false, true, false],
    );
    (loss, Tensor::<3>::from_dispatch(gradient) * factor.reshape([1, 1, 1]))
}

/// A loss `[1]`, and its gradient to the moved image as `factor` `[1]` times `to_moved`.
struct Compared {
    loss: Tensor<1>,
    to_moved: Tensor<5>,
    factor: Tensor<1>,
}

/// Weights `[1, 1, D, H, W]`.
fn compare(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    loss: &AlignmentLoss,
) -> Compared {
    let weights = weights.map(|weights| weights.expand(moved.dims()));
    match *loss {
        AlignmentLoss::Information(measure, options) => {
            information(moved, fixed, weights, measure, options)
        }
        AlignmentLoss::Lncc(options) => lncc(moved, fixed, weights, options),
        AlignmentLoss::SquaredDifference => squared_difference(moved, fixed, weights),
    }
}

/// One over the number of values, or over the sum of their weights; `[1]`.
fn per_value(image: &Tensor<5>, weights: Option<&Tensor<5>>) -> Tensor<1> {
    match weights {
        // Of rows and planes first, so that no sum is long.
        Some(weights) => weights.clone().sum_dim(4).sum_dim(3).sum().recip(),
        None => {
            let count = image.shape().num_elements() as f64;
            Tensor::ones([1], (&image.device(), image.dtype())).mul_scalar(1.0 / count)
        }
    }
}

fn lncc(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    options: LnccOptions,
) -> Compared {
    let per_value = per_value(&moved, weights.as_ref());
    let call = LnccCall { options, weighted: weights.is_some(), factor: 1.0 };
    // Bound, but not read where there are no weights.
    let weights = weights.unwrap_or_else(|| fixed.clone());
    let (sum, to_moved, _) = <Dispatch as LnccOps>::lncc_3d_with_gradient(
        moved.into_dispatch(),
        fixed.into_dispatch(),
        weights.into_dispatch(),
        call,
        [true, false],
    );
    let mean = Tensor::<1>::from_dispatch(sum) * per_value.clone();
    Compared {
        loss: mean.neg().add_scalar(1.0),
        to_moved: Tensor::from_dispatch(to_moved),
        factor: per_value.neg(),
    }
}

/// A weight is the square of a factor of both images.
fn squared_difference(moved: Tensor<5>, fixed: Tensor<5>, weights: Option<Tensor<5>>) -> Compared {
    let per_value = per_value(&moved, weights.as_ref());
    let root = weights.map(Tensor::sqrt);
    let times_root = |image: Tensor<5>| match &root {
        None => image,
        Some(root) => image * root.clone(),
    };
    let [moved, fixed] = [moved, fixed].map(times_root);
    let sum = <Dispatch as MseOps>::squared_difference(
        moved.clone().into_dispatch(),
        fixed.clone().into_dispatch(),
    );
    Compared {
        loss: Tensor::<1>::from_dispatch(sum) * per_value.clone(),
        to_moved: times_root(moved - fixed),
        factor: per_value.mul_scalar(2.0),
    }
}

/// Every channel has a table of its own, as if it were an entry of the batch.
fn information(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    measure: Information,
    options: HistogramOptions,
) -> Compared {
    let apart = |image: Tensor<5>| image.swap_dims(0, 1);
    let (moved, fixed, weights) = (apart(moved), apart(fixed), weights.map(apart));
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
    let to_moved = apart(Tensor::from_dispatch(to_moved));
    Compared { factor: loss.ones_like(), loss, to_moved }
}
