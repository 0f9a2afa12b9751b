//! Several similarities at once: a weighted sum.

use std::sync::Arc;

use burn::Tensor;
use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

use super::Similarity;
use crate::losses::{Pair, PairGradients, SimilarityLoss};
use ffdp_image::error::{Error, Result};

/// A similarity in a sum, and how much it weighs there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimilarityTerm {
    /// By which its loss is multiplied, above 0.
    pub weight: f64,
    /// What is compared.
    pub similarity: Similarity,
}

/// `sum_i weight_i loss_i`, over all channels of the images.
#[derive(Clone, Debug)]
pub struct WeightedSum {
    terms: Vec<Term>,
}

#[derive(Clone, Debug)]
struct Term {
    weight: f64,
    loss: Arc<dyn SimilarityLoss>,
    /// How many sums it has in all, and more for each channel.
    sums: [usize; 2],
}

impl WeightedSum {
    /// Of some similarities, each with its weight.
    ///
    /// # Panics
    /// For no term.
    pub fn new(terms: impl IntoIterator<Item = (f64, Arc<dyn SimilarityLoss>)>) -> Self {
        let term = |(weight, loss): (f64, Arc<dyn SimilarityLoss>)| {
            // As large as a term looks.
            let n = 2 * loss.reach_voxels() + 2;
            let [one, two] = [1, 2].map(|channels| {
                let like = (&Device::flex(), DType::F32);
                let none = Tensor::<5>::zeros([1, channels, n, n, n], like);
                loss.partial(&Pair::new(none.clone(), none)).dims()[0]
            });
            Term { weight, loss, sums: [2 * one - two, two - one] }
        };
        let terms: Vec<_> = terms.into_iter().map(term).collect();
        assert!(!terms.is_empty(), "a sum of similarities: no term");
        Self { terms }
    }

    /// The terms, each with its part of their sums `[K]`, whose number says how many channels there are.
    fn parts(&self, sums: &Tensor<1>) -> Vec<(&Term, Tensor<1>)> {
        let [all, of_channel] =
            [0, 1].map(|k| self.terms.iter().map(|term| term.sums[k]).sum::<usize>());
        let channels = (sums.dims()[0] - all).checked_div(of_channel).unwrap_or(0);
        let mut first = 0;
        let mut parts = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            let count = term.sums[0] + channels * term.sums[1];
            parts.push((term, sums.clone().narrow(0, first, count)));
            first += count;
        }
        parts
    }

    /// The gradients of all terms, added up; `slope` is the sum's.
    fn all(
        &self,
        slope: &Tensor<1>,
        mut each: impl FnMut(&Term, &Tensor<1>) -> PairGradients,
    ) -> PairGradients {
        let gradients = self.parts(slope).into_iter().map(|(term, slope)| {
            let of_term = each(term, &slope.div_scalar(term.weight));
            of_term.map(|gradient| gradient.map(|gradient| gradient.mul_scalar(term.weight)))
        });
        let add = |[a, b]: PairGradients, [c, d]: PairGradients| {
            [a.zip(c).map(|(a, c)| a + c), b.zip(d).map(|(b, d)| b + d)]
        };
        gradients.reduce(add).expect("there is a term")
    }

    /// Of the weighted terms.
    fn sum(&self, each: impl Fn(&Term) -> f64) -> f64 {
        self.terms.iter().map(|term| term.weight * each(term)).sum()
    }
}

impl SimilarityLoss for WeightedSum {
    /// Those of all terms, one after the other.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        Tensor::cat(self.terms.iter().map(|term| term.loss.partial(pair)).collect(), 0)
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        let losses = self
            .parts(&total)
            .into_iter()
            .map(|(term, total)| term.loss.finish(total, count.clone()).mul_scalar(term.weight));
        losses.reduce(Tensor::add).expect("there is a term")
    }

    fn reach_voxels(&self) -> usize {
        self.terms.iter().map(|term| term.loss.reach_voxels()).max().expect("there is a term")
    }

    fn is_mean(&self) -> bool {
        self.terms.iter().all(|term| term.loss.is_mean())
    }

    fn may_ignore_outside(&self) -> bool {
        self.terms.iter().all(|term| term.loss.may_ignore_outside())
    }

    fn compares_intensities(&self) -> bool {
        self.terms.iter().any(|term| term.loss.compares_intensities())
    }

    fn usual_gain(&self) -> f64 {
        self.sum(|term| term.loss.usual_gain())
    }

    fn slope(&self, total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        let slopes = self.parts(total).into_iter();
        let slopes =
            slopes.map(|(term, total)| term.loss.slope(&total, count).mul_scalar(term.weight));
        Tensor::cat(slopes.collect(), 0)
    }

    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        self.all(slope, |term, slope| term.loss.gradient(pair, slope, needs))
    }

    fn partial_and_gradient(
        &self,
        pair: &Pair,
        slope: &Tensor<1>,
        needs: [bool; 2],
    ) -> (Tensor<1>, PairGradients) {
        let mut sums = Vec::new();
        let gradients = self.all(slope, |term, slope| {
            let (sum, gradients) = term.loss.partial_and_gradient(pair, slope, needs);
            sums.push(sum);
            gradients
        });
        (Tensor::cat(sums, 0), gradients)
    }

    /// Of all terms, if all have one.
    fn curvature(&self, pair: &Pair) -> Option<Tensor<5>> {
        let of = |term: &Term| Some(term.loss.curvature(pair)?.mul_scalar(term.weight));
        let all = self.terms.iter().map(of).collect::<Option<Vec<_>>>()?;
        all.into_iter().reduce(Tensor::add)
    }

    /// The mean of the terms, by their weights.
    fn nats(&self, total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        let nats = self.parts(total).into_iter();
        let nats = nats.map(|(term, total)| term.loss.nats(&total, count).mul_scalar(term.weight));
        let all = nats.reduce(Tensor::add).expect("there is a term");
        all.div_scalar(self.sum(|_| 1.0))
    }
}

/// That terms have a meaning.
pub(super) fn validate(terms: &[SimilarityTerm]) -> Result<()> {
    if terms.is_empty() {
        let what = "a sum of similarities has at least one term";
        return Err(Error::invalid(what, "none", "name one, or use its similarity alone"));
    }
    for SimilarityTerm { weight, similarity } in terms {
        if !(weight.is_finite() && *weight > 0.0) {
            let what = format!("the weight of {} in a sum must be above 0", similarity.name());
            return Err(Error::invalid(what, weight, "leave out a term that is not to count"));
        }
        similarity.validate()?;
    }
    Ok(())
}
