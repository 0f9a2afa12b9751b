//! Several similarities at once: a weighted sum.

use std::sync::Arc;

use burn::Tensor;
use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

use super::{OfChannels, Similarity};
use crate::losses::{Pair, PairGradients, SimilarityLoss};
use ffdp_image::error::{Error, Result};

/// A similarity in a sum, and how much it weighs there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimilarityTerm {
    /// By which its loss is multiplied, above 0.
    pub weight: f64,
    /// The channels that it compares, ascending, counted from 0: the image itself. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<usize>>,
    /// What is compared.
    pub similarity: Similarity,
}

impl SimilarityTerm {
    /// Its loss, without its weight.
    pub(super) fn loss(&self) -> Arc<dyn SimilarityLoss> {
        let loss = self.similarity.loss();
        match &self.channels {
            None => loss,
            Some(channels) => Arc::new(OfChannels::new(loss, channels.iter().copied())),
        }
    }

    fn validate(&self) -> Result<()> {
        let Self { weight, channels, similarity } = self;
        let name = similarity.name();
        if !(weight.is_finite() && *weight > 0.0) {
            let what = format!("the weight of {name} in a sum must be above 0");
            return Err(Error::invalid(what, weight, "leave out a term that is not to count"));
        }
        let named = channels.as_deref().unwrap_or(&[0]);
        if named.is_empty() || !named.is_sorted_by(|a, b| a < b) {
            let what = format!("the channels of {name} in a sum must be some, and ascend");
            let fix = "write, for example, [0, 2], or leave the entry out: all channels";
            return Err(Error::invalid(what, format_args!("{named:?}"), fix));
        }
        similarity.validate()
    }
}

/// `sum_i weight_i loss_i`; each over all channels of the images, or by [`OfChannels`] over some.
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
            let least = loss.least_channels();
            let [few, more] = [least, least + 1].map(|channels| {
                let like = (&Device::flex(), DType::F32);
                let none = Tensor::<5>::zeros([1, channels, n, n, n], like);
                loss.partial(&Pair::new(none.clone(), none)).dims()[0]
            });
            let of_channel = more - few;
            Term { weight, loss, sums: [few - least * of_channel, of_channel] }
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

    /// Those of all terms, if all have some.
    fn features(&self, image: &Tensor<5>, weight: f64) -> Option<Tensor<5>> {
        let of = |term: &Term| term.loss.features(image, weight * term.weight);
        let all = self.terms.iter().map(of).collect::<Option<Vec<_>>>()?;
        Some(Tensor::cat(all, 1))
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

    fn least_channels(&self) -> usize {
        self.terms.iter().map(|term| term.loss.least_channels()).max().expect("there is a term")
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
    fn curvature(&self, pair: &Pair, total: &Tensor<1>, count: &Tensor<1>) -> Option<Tensor<5>> {
        let of = |(term, total): (&Term, Tensor<1>)| {
            Some(term.loss.curvature(pair, &total, count)?.mul_scalar(term.weight))
        };
        let all = self.parts(total).into_iter().map(of).collect::<Option<Vec<_>>>()?;
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
    terms.iter().try_for_each(SimilarityTerm::validate)
}
