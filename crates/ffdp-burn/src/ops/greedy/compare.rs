//! A measure of two images with its gradient to the moved one, off the tape.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;

use super::Measure;
use crate::ops::information::{Information, InformationOps};
use crate::ops::joint_histogram::{Binning, HistogramOptions, JointHistogramOps};
use crate::ops::lncc::{LnccCall, LnccOps};
use crate::ops::mse::MseOps;

/// The backends that know every measure.
pub(super) trait Comparing: LnccOps + MseOps + JointHistogramOps + InformationOps {}
impl<B: LnccOps + MseOps + JointHistogramOps + InformationOps> Comparing for B {}

/// The measure, `[1]`, and its gradient to `moved` up to a constant.
pub(super) fn compare<B: Comparing>(
    moved: FloatTensor<B>,
    fixed: FloatTensor<B>,
    measure: &Measure,
) -> (FloatTensor<B>, FloatTensor<B>) {
    match measure {
        Measure::Lncc(options) => {
            let call = LnccCall { options: *options, weighted: false };
            // Bound, but not read where there are no weights.
            let weights = fixed.clone();
            let (sum, gradient, _) =
                B::lncc_3d_with_gradient(moved, fixed, weights, call, [true, false]);
            (sum, gradient)
        }
        Measure::SquaredDifference => {
            let sum = B::squared_difference(moved.clone(), fixed.clone());
            // `2 (moved - fixed)` times a half: subtraction is exact where the two are alike.
            (sum, B::float_sub(moved, fixed))
        }
        Measure::MutualInformation(options) => {
            information::<B>(moved, fixed, *options, Information::Mutual)
        }
        Measure::NormalizedMutualInformation(options) => {
            information::<B>(moved, fixed, *options, Information::Normalized)
        }
    }
}

/// `-V L` of the `V` voxels of each image of a batch, summed over it; `L` the loss, `-I` for mutual
/// information.
fn information<B: Comparing>(
    moved: FloatTensor<B>,
    fixed: FloatTensor<B>,
    options: HistogramOptions,
    told: Information,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let shape = moved.shape();
    let binning = Binning { options, weighted: false };
    // Bound, but not read where there are no weights.
    let weights = fixed.clone();
    let votes = B::joint_histogram_3d(moved.clone(), fixed.clone(), weights.clone(), binning);
    // The loss is averaged over the batch.
    let scale = -(shape.num_elements() as f64);
    let loss = B::information_loss(votes.clone(), told);
    let (device, dtype) = (moved.device(), moved.dtype().into());
    let slope = B::float_full(Shape::from([1]), scale.into(), &device, dtype);
    let to_votes = B::information_loss_backward(votes, slope, told);
    let wanted = [true, false];
    let (to_moved, _) =
        B::joint_histogram_3d_backward(moved, fixed, weights, to_votes, binning, wanted);
    (B::float_mul_scalar(loss, scale.into()), to_moved)
}
