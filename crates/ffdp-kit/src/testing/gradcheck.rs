//! Finite differences against a backward pass, in f64.

/// The outcome for one input.
#[derive(Clone, Debug)]
pub struct Gradcheck {
    /// Name of the input.
    pub input: &'static str,
    /// Largest deviation of the gradient from central differences, relative to its largest entry.
    pub error: f64,
}

/// Compares the gradients that `evaluate` returns with central differences of its loss.
///
/// `evaluate` takes the flattened inputs and returns the loss and the gradient of every input.
/// Differences use two step sizes and Richardson extrapolation, so that their own error (about
/// 1e-10 for smooth losses) lies well below that of a wrong term.
///
/// # Panics
/// If a gradient has another length than its input.
pub fn gradcheck(
    names: &[&'static str],
    inputs: &[Vec<f64>],
    step: f64,
    evaluate: impl Fn(&[Vec<f64>]) -> (f64, Vec<Vec<f64>>),
) -> Vec<Gradcheck> {
    let (_, gradients) = evaluate(inputs);
    let mut point = inputs.to_vec();
    let mut outcomes = Vec::new();
    for (i, input) in names.iter().enumerate() {
        assert_eq!(gradients[i].len(), inputs[i].len(), "gradient of {input}");
        let mut differences = Vec::with_capacity(inputs[i].len());
        for k in 0..inputs[i].len() {
            let mut slope = |h: f64| {
                point[i][k] = inputs[i][k] + h;
                let up = evaluate(&point).0;
                point[i][k] = inputs[i][k] - h;
                let down = evaluate(&point).0;
                point[i][k] = inputs[i][k];
                (up - down) / (2.0 * h)
            };
            differences.push((4.0 * slope(step / 2.0) - slope(step)) / 3.0);
        }
        let error = super::max_relative_error(&gradients[i], &differences);
        println!("gradcheck {input}: {error:.2e} over {} entries", differences.len());
        outcomes.push(Gradcheck { input, error });
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sum x^3`, with its gradient times `factor`.
    fn cubes(x: &[f64], factor: f64) -> (f64, Vec<Vec<f64>>) {
        let gradient = x.iter().map(|x| factor * 3.0 * x * x).collect();
        (x.iter().map(|x| x.powi(3)).sum(), vec![gradient])
    }

    #[test]
    fn a_right_gradient_passes_and_a_wrong_one_does_not() {
        let x = crate::testing::normal(7, 1);
        let error = |factor| {
            gradcheck(&["x"], std::slice::from_ref(&x), 1e-2, |x| cubes(&x[0], factor))[0].error
        };
        // Extrapolated differences are exact for a cubic.
        assert!(error(1.0) < 1e-12, "{}", error(1.0));
        assert!((error(1.01) - 0.01).abs() < 1e-9, "{}", error(1.01));
    }
}
