//! Local normalised cross-correlation as a similarity.

use burn::Tensor;
use burn::backend::Dispatch;
use serde::{Deserialize, Serialize};

use crate::losses::{Pair, PairGradients, SimilarityLoss, counted};
use crate::ops::lncc::{LnccCall, LnccOps, lncc_sum, weighted_lncc_sum};
use crate::ops::{GaussianOptions, GradientMode, LnccFloor, LnccOptions, Measure, gaussian, lncc};
use ffdp_image::error::{Error, Result};

/// Local normalised cross-correlation, `1 - mean(n)`; see [`lncc`](crate::ops::lncc()). In 0..1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lncc(pub LnccOptions);

impl Lncc {
    /// TransMorph's training loss: window 9, exact gradient.
    pub fn transmorph() -> Self {
        Self(LnccSettings::transmorph().options())
    }
}

impl SimilarityLoss for Lncc {
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

    fn compares_intensities(&self) -> bool {
        true
    }

    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        self.partial_and_gradient(pair, slope, needs).1
    }

    /// `slope` is -1 everywhere, which the kernel is given.
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

    /// Of `|m / |m| - f / |f||^2`, which `1 - n` is about where images match, `m` and `f` less their means over a window:
    /// each window adds `2 / |m|^2` to all of its values. With `<.>` means over a window, here of a Gaussian that is as
    /// wide, and the floors of the options:
    /// ```text
    /// u <2 B / D>       B = <F^2> - <F>^2, C = <M^2> - <M>^2, D = B C + eps   (or 2 / (C + sqrt eps))
    /// ```
    fn curvature(&self, pair: &Pair, _total: &Tensor<1>, _count: &Tensor<1>) -> Option<Tensor<5>> {
        let radius = self.reach_voxels() as f64;
        // The variance of a box of this width.
        let sigma = (((2.0 * radius + 1.0).powi(2) - 1.0) / 12.0).sqrt();
        let window = GaussianOptions {
            truncate: (radius - 0.5) / sigma,
            ..GaussianOptions::isotropic(sigma)
        };
        let mean = |x: Tensor<5>| gaussian(x, &window);
        let variance = |x: &Tensor<5>| {
            let first = mean(x.clone());
            (mean(x.clone() * x.clone()) - first.clone() * first).clamp_min(0.0)
        };
        let of_moved = variance(&pair.moved);
        let slope = match self.0.floor {
            LnccFloor::Common => of_moved.add_scalar(self.0.epsilon.sqrt()).recip(),
            LnccFloor::Denominator => {
                let of_fixed = variance(&pair.fixed);
                of_fixed.clone() / (of_moved * of_fixed).add_scalar(self.0.epsilon)
            }
        };
        let curvature = mean(slope).mul_scalar(2.0);
        Some(match &pair.weights {
            Some(weights) => curvature * weights.clone(),
            None => curvature,
        })
    }

    fn measure(&self) -> Option<Measure> {
        Some(Measure::Lncc(self.0))
    }

    fn loss_of(&self, pair: &Pair) -> Tensor<1> {
        match &pair.weights {
            // The kernel is given the number of values.
            None => lncc(pair.moved.clone(), pair.fixed.clone(), &self.0),
            Some(_) => self.finish(self.partial(pair), counted(pair.count())),
        }
    }
}

/// Settings of the local correlation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LnccSettings {
    /// Width of the window in voxels of the level; odd, 3 to 21. Default 7 (FFDP paper).
    pub window: usize,
    /// What keeps flat windows defined, in intensity^4 of images scaled to 0..1. Default 1e-5 (VoxelMorph,
    /// FireANTs): regions with less contrast than about 0.05 count less.
    pub epsilon: f64,
    /// Where `epsilon` is added. Default `common`, so that equal images are not moved; `denominator` is that
    /// of the FFDP paper.
    pub floor: LnccFloor,
    /// Which gradient is followed. Default `exact`; `ants-approximate` is that of ANTs and of the FFDP paper's figures.
    pub gradient: GradientMode,
}

impl Default for LnccSettings {
    fn default() -> Self {
        Self { window: 7, epsilon: 1e-5, floor: LnccFloor::Common, gradient: GradientMode::Exact }
    }
}

impl LnccSettings {
    /// Those of TransMorph's training: window 9, `epsilon` added to the denominator.
    pub fn transmorph() -> Self {
        Self { window: 9, floor: LnccFloor::Denominator, ..Self::default() }
    }

    pub(super) fn options(self) -> LnccOptions {
        let Self { window, epsilon, floor, gradient } = self;
        LnccOptions { window, epsilon, floor, gradient, ..LnccOptions::default() }
    }

    pub(super) fn validate(self) -> Result<()> {
        if self.window.is_multiple_of(2) || !(3..=21).contains(&self.window) {
            let what = "the window of LNCC must be odd and within 3..21 voxels";
            return Err(Error::invalid(what, self.window, "use, for example, 5, 7 or 9"));
        }
        // NaN lies in no range.
        if !(f64::MIN_POSITIVE..=1.0).contains(&self.epsilon) {
            let what = "the epsilon of LNCC must be above 0 and at most 1";
            return Err(Error::invalid(what, self.epsilon, "1e-5 is the usual one"));
        }
        Ok(())
    }
}
