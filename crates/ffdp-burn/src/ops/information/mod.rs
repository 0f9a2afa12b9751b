//! Mutual information of a joint table of two images: the loss on top of
//! [`joint_votes`](crate::ops::joint_histogram::joint_votes), value and gradient in one small pass each.
//!
//! ```text
//! p = h / sum h        H(q) = -sum q log(q + tiny)        I = H(p_a) + H(p_b) - H(p)
//! loss = -mean_n I     or     1 - mean_n I / H(p)
//! ```
//! `p_a`, `p_b` the row and column sums of `p` · `n` the entries of the batch. With
//! `s(q) = log(q + tiny) + q / (q + tiny) = -dH/dq` and `D = dloss/dp`:
//! ```text
//! dI/dp[i, j] = s(p[i, j]) - s(p_a[i]) - s(p_b[j])        dH(p)/dp[i, j] = -s(p[i, j])
//! dloss/dh = (D - <D, p>) / sum h
//! ```
//! The arithmetic is small, its launches are not: composed from a tensor library's operations it takes
//! longer than the histogram of 128^3 voxels. One cube does all of it. An empty table has no information,
//! and has no gradient; nor has a table with one cell under the normalised loss, whose `H` is 0.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Added to a probability in its logarithm: 0 log 0 is 0, and no gradient is infinite. About the
/// rounding of a table on a GPU, so that cells that exist in one precision only do not matter; an
/// entropy changes by at most this times the number of cells (1e-7 with 32 bins).
pub(crate) const TINY: f64 = 1e-10;

/// Which measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Information {
    /// `-I`, in nats.
    Mutual,
    /// `1 - I / H(p)`, in 0..1; 1 where both images are constant.
    Normalized,
}

/// Backend operations of the loss of a joint table: votes `[N, B, B]`, loss `[1]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait InformationOps: Backend {
    /// The loss, averaged over the batch.
    #[fusion(dtype = votes, shape = { let _ = votes; burn::tensor::Shape::from([1]) })]
    fn information_loss(votes: FloatTensor<Self>, measure: Information) -> FloatTensor<Self>;

    /// The gradient of the votes from that of the loss, `[1]`.
    #[fusion(dtype = votes, shape = votes)]
    fn information_loss_backward(
        votes: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        measure: Information,
    ) -> FloatTensor<Self>;
}

/// The loss of the votes of a batch, `[1]`; smaller the more information the images share.
/// Differentiable (first order).
///
/// # Shapes
/// votes `[N, B, B]`, not negative; in any unit, for each entry is divided by its sum.
///
/// # Panics
/// If the tables are not square, or have more than 256 rows.
pub fn information_loss(votes: Tensor<3>, measure: Information) -> Tensor<1> {
    let dims = votes.dims();
    assert!(
        dims[1] == dims[2] && (1..=256).contains(&dims[1]) && dims[0] > 0,
        "information_loss: votes must be [N, B, B] with B in 1..=256, got {dims:?}"
    );
    let votes = votes.into_dispatch();
    Tensor::from_dispatch(<Dispatch as InformationOps>::information_loss(votes, measure))
}
