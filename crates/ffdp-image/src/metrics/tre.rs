//! Target registration error: how far corresponding landmarks lie apart.

use serde::Serialize;

use super::percentile::percentiles;
use crate::{Error, Result};

/// Part of the landmarks that [`TargetRegistrationError::tre30_mm`] takes.
const WORST: f64 = 0.3;

/// Distribution of distances in mm; NaN without landmarks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ErrorStatistics {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub sd: f64,
    /// 25th percentile; all percentiles interpolate between ranks.
    pub p25: f64,
    /// Median.
    pub median: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Largest.
    pub max: f64,
}

impl ErrorStatistics {
    /// Of distances in mm.
    pub fn of(errors: &[f64]) -> Self {
        let count = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / count;
        let sd = (errors.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / count).sqrt();
        let percents = [25.0, 50.0, 75.0, 95.0, 100.0];
        let [p25, median, p75, p95, max] = percentiles(&mut errors.to_vec(), percents);
        Self { mean, sd, p25, median, p75, p95, max }
    }
}

/// Distances of landmarks before and after a registration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetRegistrationError {
    /// `|phi(fixed_i) - moving_i|` in mm, landmark by landmark.
    pub errors_mm: Vec<f64>,
    /// Of `|fixed_i - moving_i|`: by the headers alone.
    pub before: ErrorStatistics,
    /// Of [`Self::errors_mm`].
    pub after: ErrorStatistics,
    /// Robustness (Learn2Reg's TRE30): mean error after registration of the 30 % of the landmarks
    /// that were farthest apart before, a set that is the same for every method.
    pub tre30_mm: f64,
}

/// The error of a map of the fixed to the moving space at landmarks, all in mm of one frame.
///
/// The map is evaluated at the fixed landmarks; [`Warp::apply`](super::Warp::apply) is one.
///
/// # Errors
/// [`Error::Shape`] for lists of different length, [`Error::Invalid`] for empty ones.
pub fn tre(
    fixed_mm: &[[f64; 3]],
    moving_mm: &[[f64; 3]],
    map: impl Fn([f64; 3]) -> [f64; 3],
) -> Result<TargetRegistrationError> {
    let mapped: Vec<[f64; 3]> = fixed_mm.iter().map(|&point| map(point)).collect();
    tre_of_mapped(fixed_mm, &mapped, moving_mm)
}

/// [`tre`] where the fixed landmarks were mapped already.
///
/// # Errors
/// As [`tre`].
pub fn tre_of_mapped(
    fixed_mm: &[[f64; 3]],
    mapped_mm: &[[f64; 3]],
    moving_mm: &[[f64; 3]],
) -> Result<TargetRegistrationError> {
    let expected = fixed_mm.len();
    if let Some(got) = [mapped_mm, moving_mm].map(<[_]>::len).into_iter().find(|n| *n != expected) {
        return Err(Error::Shape {
            what: "landmarks of the fixed and the moving image belong together, one to one".into(),
            expected: vec![expected],
            got: vec![got],
        });
    }
    if fixed_mm.is_empty() {
        let what = "a target registration error needs landmarks";
        return Err(Error::invalid(what, format_args!("none"), "check the landmark files"));
    }
    let distances = |from: &[[f64; 3]]| -> Vec<f64> {
        from.iter().zip(moving_mm).map(|(&a, &b)| distance(a, b)).collect()
    };
    let (before, errors_mm) = (distances(fixed_mm), distances(mapped_mm));
    let mut by_distance: Vec<usize> = (0..before.len()).collect();
    by_distance.sort_by(|&a, &b| before[b].total_cmp(&before[a]));
    let worst = ((WORST * before.len() as f64).round() as usize).max(1);
    let tre30_mm = by_distance[..worst].iter().map(|&i| errors_mm[i]).sum::<f64>() / worst as f64;
    let (before, after) = (ErrorStatistics::of(&before), ErrorStatistics::of(&errors_mm));
    Ok(TargetRegistrationError { errors_mm, before, after, tre30_mm })
}

fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
}
