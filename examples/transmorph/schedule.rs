//! TransMorph's learning rate schedule, which Burn has not.

use burn::lr_scheduler::{LrScheduler, LrSchedulerRecord};

/// Polynomial decay `rate * (1 - step / steps)^0.9`, step by step; the published schedule falls
/// epoch by epoch, which is the same over hundreds of epochs.
#[derive(Clone, Debug)]
pub struct Polynomial {
    rate: f64,
    steps: usize,
    step: usize,
}

const POWER: f64 = 0.9;

impl Polynomial {
    pub fn new(rate: f64, steps: usize) -> Self {
        Self { rate, steps, step: 0 }
    }
}

impl LrScheduler for Polynomial {
    fn step(&mut self) -> f64 {
        let done = self.step as f64 / self.steps as f64;
        self.step += 1;
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
    fn falls_to_zero_and_continues_from_a_record() {
        let mut schedule = Polynomial::new(2e-3, 10);
        let rates: Vec<f64> = (0..12).map(|_| schedule.step()).collect();
        assert_eq!(rates[0], 2e-3);
        assert!((rates[5] - 2e-3 * 0.5f64.powf(0.9)).abs() < 1e-15, "{rates:?}");
        assert!(rates.windows(2).all(|two| two[1] <= two[0]));
        assert_eq!(rates[10..], [0.0, 0.0]);
        let mut first = Polynomial::new(2e-3, 10);
        for _ in 0..4 {
            let _ = first.step();
        }
        let mut second = Polynomial::new(2e-3, 10);
        second.load_record(first.to_record());
        assert_eq!(second.step(), rates[4]);
    }
}
