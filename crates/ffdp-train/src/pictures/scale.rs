//! Axes of charts.

/// Lines with numbers along an axis, about.
const TICKS: f64 = 5.0;

/// From values to positions.
pub struct Scale {
    values: [f64; 2],
    positions: [f64; 2],
}

impl Scale {
    /// The two values lie at the two positions.
    pub fn new(values: [f64; 2], positions: [f64; 2]) -> Self {
        Self { values, positions }
    }

    /// The values at the ends.
    pub fn values(&self) -> [f64; 2] {
        self.values
    }

    /// Where a value lies.
    pub fn place(&self, value: f64) -> f64 {
        let [from, to] = self.values;
        let [begin, end] = self.positions;
        begin + (value - from) / (to - from) * (end - begin)
    }

    /// Round numbers inside the range.
    pub fn ticks(&self) -> Vec<f64> {
        let [from, to] = self.values;
        let step = round_step((to - from) / TICKS);
        let first = (from / step).ceil() as i64;
        let last = (to / step).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`, which is above 0.
pub fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let enough = |step: &f64| *step >= least * (1.0 - 1e-9);
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(enough).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for (range, expected) in [
            ([0.0, 100.0], vec![0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
            ([0.312, 0.398], vec![0.32, 0.34, 0.36, 0.38]),
            ([-3.0, 1.0], vec![-3.0, -2.0, -1.0, 0.0, 1.0]),
        ] {
            let ticks = Scale::new(range, [0.0, 1.0]).ticks();
            let near = ticks.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(near && ticks.len() == expected.len(), "{range:?}: {ticks:?}");
        }
    }
}
