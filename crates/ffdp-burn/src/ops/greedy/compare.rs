//! A measure of two images with its gradient to the moved one, off the tape.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

use super::Measure;
use crate::ops::joint_histogram::{Binning, HistogramOptions, JointHistogramOps};
use crate::ops::lncc::LnccOps;
use crate::ops::mse::MseOps;

/// Added to a probability in its logarithm, as in [`losses::MutualInformation`], which says why.
///
/// [`losses::MutualInformation`]: crate::losses::MutualInformation
const TINY: f64 = 1e-10;

/// The backends that know every measure.
pub(super) trait Comparing: LnccOps + MseOps + JointHistogramOps {}
impl<B: LnccOps + MseOps + JointHistogramOps> Comparing for B {}

/// The measure, `[1]`, and its gradient to `moved` up to a constant.
pub(super) fn compare<B: Comparing>(
    moved: FloatTensor<B>,
    fixed: FloatTensor<B>,
    measure: &Measure,
) -> (FloatTensor<B>, FloatTensor<B>) {
    match measure {
        Measure::Lncc(options) => {
            let (sum, gradient, _) =
                B::lncc_3d_with_gradient(moved, fixed, *options, [true, false]);
            (sum, gradient)
        }
        Measure::SquaredDifference => {
            let sum = B::squared_difference(moved.clone(), fixed.clone());
            // `2 (moved - fixed)` times a half: subtraction is exact where the two are alike.
            (sum, B::float_sub(moved, fixed))
        }
        Measure::MutualInformation(options) => mutual_information::<B>(moved, fixed, *options),
    }
}

/// `V I = V (H(a) + H(b) - H(a, b))` of the `V` voxels of each image of a batch, summed over it.
///
/// With `p` the votes over `V`, `H = -sum p log(p + tiny)` and `H' = -(log(p + tiny) + p / (p +
/// tiny))`, the gradient to the votes is `H'(a) + H'(b) - H'(a, b)`.
fn mutual_information<B: Comparing>(
    moved: FloatTensor<B>,
    fixed: FloatTensor<B>,
    options: HistogramOptions,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let shape = moved.shape();
    let voxels = (shape.num_elements() / shape[0]) as f64;
    let binning = Binning::unweighted(options);
    // Bound, but not read where there are no weights.
    let weights = B::float_empty(Shape::from([1; 5]), &moved.device(), moved.dtype().into());
    let votes = B::joint_histogram_3d(moved.clone(), fixed.clone(), weights.clone(), binning);
    let joint = B::float_mul_scalar(votes, (1.0 / voxels).into());

    let (a, to_a) = entropy::<B>(B::float_sum_dim(joint.clone(), 2));
    let (b, to_b) = entropy::<B>(B::float_sum_dim(joint.clone(), 1));
    let (both, to_both) = entropy::<B>(joint);
    let information = B::float_sub(B::float_add(a, b), both);
    let value = B::float_mul_scalar(information, voxels.into());
    // `[N, B, 1]` and `[N, 1, B]` spread over the table.
    let to_votes = B::float_sub(B::float_add(to_a, to_b), to_both);
    let wanted = [true, false];
    let (to_moved, _) =
        B::joint_histogram_3d_backward(moved, fixed, weights, to_votes, binning, wanted);
    (value, to_moved)
}

/// `H`, summed over everything, `[1]`, and `H'`, of the shape of `p`.
fn entropy<B: Backend>(p: FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
    let shifted = B::float_add_scalar(p.clone(), TINY.into());
    let log = B::float_log(shifted.clone());
    let sum = B::float_sum(B::float_mul(p.clone(), log.clone()));
    let slope = B::float_neg(B::float_add(log, B::float_div(p, shifted)));
    (B::float_neg(B::float_reshape(sum, Shape::from([1]))), slope)
}
