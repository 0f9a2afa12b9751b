//! The loss of a joint table on the CPU, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::{Information, InformationOps, TINY};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// A joint distribution and its marginals.
struct Distribution {
    bins: usize,
    total: f64,
    joint: Vec<f64>,
    rows: Vec<f64>,
    columns: Vec<f64>,
}

/// `H`.
fn entropy(q: &[f64]) -> f64 {
    -q.iter().map(|q| q * (q + TINY).ln()).sum::<f64>()
}

/// `-dH/dq`.
fn slope(q: f64) -> f64 {
    (q + TINY).ln() + q / (q + TINY)
}

impl Distribution {
    fn of<T: Real>(votes: &[T], bins: usize) -> Self {
        let total: f64 = votes.iter().map(|h| h.wide()).sum();
        let share = |h: &T| if total > 0.0 { h.wide() / total } else { 0.0 };
        let joint: Vec<f64> = votes.iter().map(share).collect();
        let rows = joint.chunks(bins).map(|row| row.iter().sum()).collect();
        let columns = (0..bins).map(|j| joint[j..].iter().step_by(bins).sum()).collect();
        Self { bins, total, joint, rows, columns }
    }

    fn mutual(&self) -> f64 {
        entropy(&self.rows) + entropy(&self.columns) - entropy(&self.joint)
    }

    fn loss(&self, measure: Information) -> f64 {
        match measure {
            Information::Mutual => -self.mutual(),
            // Not negative: `tiny` leaves about -1e-10 nats of nothing.
            Information::Normalized => {
                1.0 - self.mutual().max(0.0) / entropy(&self.joint).max(TINY)
            }
        }
    }

    /// `dloss/dh`.
    fn gradient(&self, measure: Information) -> Vec<f64> {
        let (mutual, entropy) = (self.mutual(), entropy(&self.joint));
        let flat = self.total <= 0.0 || (measure == Information::Normalized && entropy < TINY);
        if flat {
            return vec![0.0; self.joint.len()];
        }
        let by_cell = |(cell, p): (usize, &f64)| {
            let (i, j) = (cell / self.bins, cell % self.bins);
            let to_mutual = slope(*p) - slope(self.rows[i]) - slope(self.columns[j]);
            match measure {
                Information::Mutual => -to_mutual,
                // d(-I / H) = -dI / H + I dH / H^2
                Information::Normalized => (-to_mutual - mutual / entropy * slope(*p)) / entropy,
            }
        };
        let steep: Vec<f64> = self.joint.iter().enumerate().map(by_cell).collect();
        let mean: f64 = steep.iter().zip(&self.joint).map(|(d, p)| d * p).sum();
        steep.into_iter().map(|d| (d - mean) / self.total).collect()
    }
}

/// The tables of a batch.
fn tables<T: Real>(votes: &FlexTensor) -> impl Iterator<Item = Distribution> {
    let bins = votes.layout().shape()[1];
    elements::<T>(votes).chunks(bins * bins).map(move |table| Distribution::of(table, bins))
}

fn forward<T: Real>(votes: &FlexTensor, measure: Information) -> FlexTensor {
    let batch = votes.layout().shape()[0];
    let sum: f64 = tables::<T>(votes).map(|table| table.loss(measure)).sum();
    tensor(vec![T::of(sum / batch as f64)], [1])
}

fn backward<T: Real>(votes: &FlexTensor, grad: &FlexTensor, measure: Information) -> FlexTensor {
    let shape = votes.layout().shape().clone();
    let scale = elements::<T>(grad)[0].wide() / shape[0] as f64;
    let gradients = tables::<T>(votes).flat_map(|table| table.gradient(measure));
    tensor(gradients.map(|g| T::of(scale * g)).collect(), shape)
}

impl InformationOps for Flex {
    fn information_loss(votes: FloatTensor<Self>, measure: Information) -> FloatTensor<Self> {
        let votes = votes.to_contiguous();
        by_dtype!("information_loss", votes.dtype(), forward(&votes, measure))
    }

    fn information_loss_backward(
        votes: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        measure: Information,
    ) -> FloatTensor<Self> {
        let (votes, grad) = (votes.to_contiguous(), grad.to_contiguous());
        by_dtype!("information_loss", votes.dtype(), backward(&votes, &grad, measure))
    }
}
