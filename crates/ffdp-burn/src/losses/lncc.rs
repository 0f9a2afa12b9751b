//! Local normalised cross-correlation as a similarity.

use burn::Tensor;
use burn::backend::Dispatch;

use super::similarity::{Pair, PairGradients, Similarity};
use crate::ops::lncc::{LnccCall, LnccOps, lncc_sum, weighted_lncc_sum};
use crate::ops::{GradientMode, LnccOptions, Measure, lncc};

/// Local normalised cross-correlation, `1 - mean(n)`; see [`lncc`](crate::ops::lncc()). In 0..1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lncc(pub LnccOptions);

impl Lncc {
    /// TransMorph's training loss: window 9, exact gradient.
    pub fn transmorph() -> Self {
        Self(LnccOptions { window: 9, gradient: GradientMode::Exact, ..LnccOptions::default() })
    }
}

impl Similarity for Lncc {
    /// `sum u n`.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let Pair { moved, fixed, weights } = pair.clone();
        match weights {
            None => lncc_sum(moved, fixed, &self.0),
            Some(weights) => weighted_lncc_sum(moved, fixed, weights, &self.0),
        }
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        (total / count).neg().add_scalar(1.0)
    }

    fn reach_voxels(&self) -> usize {
        self.0.window / 2
    }

    fn is_mean(&self) -> bool {
        true
    }

    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        self.partial_and_gradient(pair, slope, needs).1
    }

    /// `slope` is -1 everywhere, which the kernel is told.
    fn partial_and_gradient(
        &self,
        pair: &Pair,
        _slope: &Tensor<1>,
        needs: [bool; 2],
    ) -> (Tensor<1>, PairGradients) {
        let Pair { moved, fixed, weights } = pair.clone();
        let call = LnccCall { options: self.0, weighted: weights.is_some(), factor: -1.0 };
        let fixed = fixed.into_dispatch();
        // Bound, but not read where there are no weights.
        let weights = weights.map_or_else(|| fixed.clone(), Tensor::into_dispatch);
        let (sum, to_moved, to_fixed) = <Dispatch as LnccOps>::lncc_3d_with_gradient(
            moved.into_dispatch(),
            fixed,
            weights,
            call,
            needs,
        );
        let sum = Tensor::<1>::from_dispatch(sum).neg();
        let given = |gradient, needed: bool| needed.then(|| Tensor::from_dispatch(gradient));
        (sum, [given(to_moved, needs[0]), given(to_fixed, needs[1])])
    }

    fn measure(&self) -> Option<Measure> {
        Some(Measure::Lncc(self.0))
    }

    fn loss_of(&self, pair: &Pair) -> Tensor<1> {
        match &pair.weights {
            // The kernel is told the number of values.
            None => lncc(pair.moved.clone(), pair.fixed.clone(), &self.0),
            Some(_) => self.finish(self.partial(pair), super::counted(pair.count())),
        }
    }
}
