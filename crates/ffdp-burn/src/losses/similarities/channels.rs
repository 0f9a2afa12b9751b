//! A similarity of some of the channels of the images: what a term of a sum names.

use std::ops::Range;
use std::sync::Arc;

use burn::Tensor;

use crate::losses::{Pair, PairGradients, SimilarityLoss};

/// Another similarity over the channels that are named, as if the images had no others.
///
/// ```text
/// sums = C / n  sums of the n channels        loss = that of these sums over the number of values of all C channels
/// ```
/// So the number of values is the one of the images, whatever is named, and the sums of parts add up as before. The
/// gradient to other channels is 0.
#[derive(Clone, Debug)]
pub struct OfChannels {
    loss: Arc<dyn SimilarityLoss>,
    /// Runs of channels next to each other, ascending.
    runs: Vec<Range<usize>>,
}

impl OfChannels {
    /// Of channels that are counted from 0.
    ///
    /// # Panics
    /// For no channels, or channels that do not ascend.
    pub fn new(loss: Arc<dyn SimilarityLoss>, channels: impl IntoIterator<Item = usize>) -> Self {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for channel in channels {
            match runs.last_mut() {
                Some(run) if run.end == channel => run.end += 1,
                Some(run) if run.end > channel => {
                    panic!("a similarity of channels: {channel} does not ascend after {run:?}")
                }
                _ => runs.push(channel..channel + 1),
            }
        }
        assert!(!runs.is_empty(), "a similarity of channels: none is named");
        Self { loss, runs }
    }

    /// By how much fewer channels are compared than the images have.
    fn scale(&self, pair: &Pair) -> f64 {
        let named: usize = self.runs.iter().map(Range::len).sum();
        pair.moved.dims()[1] as f64 / named as f64
    }

    /// The channels that are compared.
    fn named(&self, pair: &Pair) -> Pair {
        let part = |image: &Tensor<5>| self.part(image);
        let Pair { moved, fixed, weights } = pair;
        Pair { moved: part(moved), fixed: part(fixed), weights: weights.as_ref().map(part) }
    }

    /// Those of an image.
    fn part(&self, image: &Tensor<5>) -> Tensor<5> {
        let (needed, given) = (self.least_channels(), image.dims()[1]);
        assert!(needed <= given, "a similarity of {needed} channels: the images have {given}");
        let runs = self.runs.iter();
        let mut parts: Vec<_> =
            runs.map(|run| image.clone().narrow(1, run.start, run.len())).collect();
        if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, 1) }
    }

    /// What belongs to the values of these channels, among all channels: nothing to others.
    fn among(&self, part: Tensor<5>, channels: usize) -> Tensor<5> {
        let [n, _, d, h, w] = part.dims();
        let none =
            |count: usize| Tensor::zeros([n, count, d, h, w], (&part.device(), part.dtype()));
        let mut pieces = Vec::new();
        let (mut taken, mut end) = (0, 0);
        for run in &self.runs {
            if run.start > end {
                pieces.push(none(run.start - end));
            }
            pieces.push(part.clone().narrow(1, taken, run.len()));
            (taken, end) = (taken + run.len(), run.end);
        }
        if channels > end {
            pieces.push(none(channels - end));
        }
        if pieces.len() == 1 { pieces.remove(0) } else { Tensor::cat(pieces, 1) }
    }

    fn gradients(&self, pair: &Pair, of_named: PairGradients) -> PairGradients {
        let (scale, channels) = (self.scale(pair), pair.moved.dims()[1]);
        of_named.map(|gradient| Some(self.among(gradient?.mul_scalar(scale), channels)))
    }
}

impl SimilarityLoss for OfChannels {
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        self.loss.partial(&self.named(pair)).mul_scalar(self.scale(pair))
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        self.loss.finish(total, count)
    }

    fn features(&self, image: &Tensor<5>, weight: f64) -> Option<Tensor<5>> {
        self.loss.features(&self.part(image), weight)
    }

    fn reach_voxels(&self) -> usize {
        self.loss.reach_voxels()
    }

    fn is_mean(&self) -> bool {
        self.loss.is_mean()
    }

    fn may_ignore_outside(&self) -> bool {
        self.loss.may_ignore_outside()
    }

    fn compares_intensities(&self) -> bool {
        self.loss.compares_intensities()
    }

    fn usual_gain(&self) -> f64 {
        self.loss.usual_gain()
    }

    fn least_channels(&self) -> usize {
        self.runs.last().expect("a channel is named").end
    }

    fn slope(&self, total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        self.loss.slope(total, count)
    }

    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        self.gradients(pair, self.loss.gradient(&self.named(pair), slope, needs))
    }

    fn partial_and_gradient(
        &self,
        pair: &Pair,
        slope: &Tensor<1>,
        needs: [bool; 2],
    ) -> (Tensor<1>, PairGradients) {
        let (sums, of_named) = self.loss.partial_and_gradient(&self.named(pair), slope, needs);
        (sums.mul_scalar(self.scale(pair)), self.gradients(pair, of_named))
    }

    fn curvature(&self, pair: &Pair, total: &Tensor<1>, count: &Tensor<1>) -> Option<Tensor<5>> {
        let of_named = self.loss.curvature(&self.named(pair), total, count)?;
        let channels = pair.moved.dims()[1];
        Some(self.among(of_named.mul_scalar(self.scale(pair)), channels))
    }

    fn nats(&self, total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        self.loss.nats(total, count)
    }
}
