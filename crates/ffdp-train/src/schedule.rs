//! TransMorph's learning rate schedule, which Burn has not.

use burn::lr_scheduler::{LrScheduler, LrSchedulerRecord};

/// Polynomial decay `rate * (1 - e / epochs)^0.9` with e the epochs done: constant within an epoch,
/// as published.
#[derive(Clone, Debug)]
pub struct Polynomial {
    rate: f64,
    steps_per_epoch: usize,
    epochs: usize,
    step: usize,
}

const POWER: f64 = 0.9;

impl Polynomial {
    /// The schedule of a run that starts at `rate`.
    pub fn new(rate: f64, steps_per_epoch: usize, epochs: usize) -> Self {
        Self { rate, steps_per_epoch, epochs, step: 0 }
    }
}

impl LrScheduler for Polynomial {
    fn step(&mut self) -> f64 {
        let epoch = self.step / self.steps_per_epoch;
        self.step += 1;
        let done = epoch as f64 / self.epochs as f64;
        self.rate * (1.0 - done).max(0.0).powf(POWER)
    }

    fn to_record(&self) -> LrSchedulerRecord {
        LrSchedulerRecord::new().with_scalar("step", self.step as u64)
    }

    fn load_record(&mut self, record: LrSchedulerRecord) {
        if let Some(step) = record.scalar::<u64>("step") {
            self.step = step as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_epoch_by_epoch_to_zero_and_continues_from_a_record() {
        let mut schedule = Polynomial::new(2e-3, 2, 5);
        let rates: Vec<f64> = (0..12).map(|_| schedule.step()).collect();
        assert_eq!(rates[..2], [2e-3, 2e-3]);
        for epoch in 0..5 {
            let expected = 2e-3 * (1.0 - epoch as f64 / 5.0).powf(0.9);
            assert!((rates[2 * epoch] - expected).abs() < 1e-15, "{rates:?}");
            assert_eq!(rates[2 * epoch], rates[2 * epoch + 1], "constant within an epoch");
        }
        assert_eq!(rates[10..], [0.0, 0.0]);
        let mut first = Polynomial::new(2e-3, 2, 5);
        for _ in 0..5 {
            let _ = first.step();
        }
        let mut second = Polynomial::new(2e-3, 2, 5);
        second.load_record(first.to_record());
        assert_eq!(second.step(), rates[5]);
    }
}
