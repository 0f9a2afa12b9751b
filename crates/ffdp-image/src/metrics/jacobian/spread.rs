//! Mean and spread of numbers that come in parts.

/// Of some numbers; of all, once the parts are joined (Chan, Golub and LeVeque 1979).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    count: f64,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|v| (v - mean).powi(2)).sum();
        if values.is_empty() { Self::default() } else { Self { count, mean, squares } }
    }

    pub fn join(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let (apart, part) = (other.mean - self.mean, other.count / count);
        Self {
            count,
            mean: self.mean + apart * part,
            squares: self.squares + other.squares + apart.powi(2) * self.count * part,
        }
    }

    /// Standard deviation of the population; NaN of nothing.
    pub fn deviation(self) -> f64 {
        (self.squares / self.count).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_spread_of_the_whole() {
        let values: Vec<f64> = (0..1000).map(|i| 1e3 + f64::from(i * i % 97)).collect();
        let mean = values.iter().sum::<f64>() / 1000.0;
        let expected = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1000.0).sqrt();
        for length in [1, 7, 250, 1000] {
            let parts = values.chunks(length).map(Spread::of);
            let all = parts.fold(Spread::default(), Spread::join).deviation();
            assert!((all - expected).abs() < 1e-12 * expected, "{length}: {all} {expected}");
        }
        assert!(Spread::default().join(Spread::of(&[])).deviation().is_nan());
    }
}
