//! When the numbers of the steps are read.
//!
//! A number that is read makes the host wait for the device, and the device then for the host, which has
//! enqueued nothing more. On a GPU that is a quarter of a small network's step, so that several steps are
//! read at once. A computation on the CPU runs as it is written: there is nothing to wait for.

use std::time::Instant;

use burn::data::dataloader::Progress;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::tensor::Device;

use super::step::Computed;
use crate::metrics::{Measured, Scores};
use crate::objective::Terms;

/// Pairs that are read at once, from a GPU.
const AT_ONCE: usize = 8;

/// The numbers of a pair.
pub struct Numbers {
    /// They.
    pub measured: Measured,
    /// Where the epoch was.
    pub progress: Progress,
    /// The learning rate of its step.
    pub rate: ModuleLearningRate,
}

/// Pairs that were computed and are not read yet.
pub struct Unread {
    at_once: usize,
    /// Nothing was read yet: the first step compiles, and stands by itself.
    is_first: bool,
    since: Option<Instant>,
    pairs: Vec<(Computed, Progress, ModuleLearningRate)>,
}

impl Unread {
    /// Of an epoch on `device`.
    pub fn on(device: &Device) -> Self {
        let at_once = if device.clone().inner() == Device::flex() { 1 } else { AT_ONCE };
        Self { at_once, is_first: true, since: None, pairs: Vec::new() }
    }

    /// One more.
    pub fn push(&mut self, computed: Computed, progress: Progress, rate: ModuleLearningRate) {
        self.pairs.push((computed, progress, rate));
    }

    /// The numbers of all, if it is time.
    pub fn read_in_time(&mut self) -> Vec<Numbers> {
        if self.is_first || self.pairs.len() >= self.at_once { self.read() } else { Vec::new() }
    }

    /// The numbers of all. The time since the last reading is shared evenly.
    pub fn read(&mut self) -> Vec<Numbers> {
        let pairs = std::mem::take(&mut self.pairs);
        let Some((first, ..)) = pairs.first() else { return Vec::new() };
        let since = self.since.unwrap_or(first.started);
        let (mut computed, mut rest) = (Vec::new(), Vec::new());
        for (pair, progress, rate) in pairs {
            computed.push(pair);
            rest.push((progress, rate));
        }
        let (places, terms): (Vec<_>, Vec<_>) = computed
            .into_iter()
            .map(|Computed { started, waited, device, terms }| ((started, waited, device), terms))
            .unzip();
        let numbers = Terms::read_all(terms);
        let now = Instant::now();
        (self.since, self.is_first) = (Some(now), false);
        let (count, all) = (places.len(), now - since);
        let scores = places.into_iter().zip(numbers).enumerate().map(|(k, (place, terms))| {
            let (started, waited, device) = place;
            let finished = since + all.mul_f64((k + 1) as f64 / count as f64);
            Scores { finished, ..Scores::of_terms(started, terms, waited, &device) }
        });
        let numbers = |(scores, (progress, rate))| Numbers {
            measured: Measured::now(scores),
            progress,
            rate,
        };
        scores.zip(rest).map(numbers).collect()
    }
}
