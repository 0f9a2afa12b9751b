//! When to stop: the slope of a line through the last losses.

use super::settings::ConvergenceSettings;

/// Whether the loss has stopped falling: the least-squares slope of the last `window` losses, as a
/// part of their mean, is above `-tolerance` per iteration. Never before `window` losses are known.
pub(super) fn has_converged(losses: &[f64], settings: &ConvergenceSettings) -> bool {
    let Some(start) = losses.len().checked_sub(settings.window) else { return false };
    let last = &losses[start..];
    let n = last.len() as f64;
    let mean = last.iter().sum::<f64>() / n;
    let centre = (n - 1.0) / 2.0;
    let offsets = || (0..last.len()).map(|i| i as f64 - centre);
    let covariance: f64 = offsets().zip(last).map(|(x, loss)| x * (loss - mean)).sum();
    let slope = covariance / offsets().map(|x| x * x).sum::<f64>();
    // A loss of exactly zero cannot fall.
    slope > -settings.tolerance * mean.abs() || mean == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falling_losses_go_on_and_flat_or_rising_ones_stop() {
        let settings = ConvergenceSettings { window: 10, tolerance: 1e-4 };
        let line = |slope: f64| -> Vec<f64> { (0..30).map(|i| 0.5 + slope * i as f64).collect() };
        for (slope, converged) in
            [(-1e-2, false), (-1e-4, false), (-2e-5, true), (0.0, true), (1e-3, true)]
        {
            assert_eq!(has_converged(&line(slope), &settings), converged, "slope {slope}");
        }
    }

    #[test]
    fn a_level_never_ends_before_the_window_is_full() {
        let settings = ConvergenceSettings { window: 10, tolerance: 1e-4 };
        assert!(!has_converged(&[0.5; 9], &settings));
        assert!(has_converged(&[0.5; 10], &settings));
    }

    #[test]
    fn only_the_window_counts() {
        let settings = ConvergenceSettings { window: 5, tolerance: 1e-4 };
        let mut losses: Vec<f64> = (0..20).map(|i| 1.0 - 0.02 * f64::from(i)).collect();
        losses.extend([0.6; 5]);
        assert!(has_converged(&losses, &settings));
    }
}
