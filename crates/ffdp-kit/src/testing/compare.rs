//! Comparison relative to the largest entry: the field's usual measure for gradients, whose small
//! entries are differences of large ones.

/// `max |a - b| / max(max |b|, tiny)`; infinite when lengths differ or a value is not finite.
pub fn max_relative_error(actual: &[f64], expected: &[f64]) -> f64 {
    if actual.len() != expected.len() || actual.iter().any(|a| !a.is_finite()) {
        return f64::INFINITY;
    }
    let scale = expected.iter().fold(1e-30f64, |m, e| m.max(e.abs()));
    actual.iter().zip(expected).fold(0.0f64, |m, (a, e)| m.max((a - e).abs())) / scale
}

/// Asserts that the error of `actual` relative to the largest entry of `expected` is at most
/// `tolerance`, and returns it.
///
/// # Panics
/// Otherwise, naming the case and the error.
pub fn assert_close(case: &str, actual: &[f64], expected: &[f64], tolerance: f64) -> f64 {
    let error = max_relative_error(actual, expected);
    assert!(
        error <= tolerance,
        "{case}: relative error {error:.3e} exceeds {tolerance:.1e} ({} against {} values)",
        actual.len(),
        expected.len()
    );
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_entry() {
        assert_eq!(max_relative_error(&[1.0, -7.0], &[1.0, -8.0]), 0.125);
        assert_eq!(max_relative_error(&[], &[]), 0.0);
    }

    #[test]
    fn what_cannot_be_compared_is_infinitely_wrong() {
        for actual in [&[f64::NAN, 1.0][..], &[f64::INFINITY, 1.0], &[1.0]] {
            assert_eq!(max_relative_error(actual, &[1.0, 1.0]), f64::INFINITY, "{actual:?}");
        }
    }
}
