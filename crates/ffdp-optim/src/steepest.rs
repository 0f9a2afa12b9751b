//! Straight downhill, always.

use crate::minimizer::{Direction, Proposal};
use crate::space::Space;

/// Steepest descent: every step begins as [`Steps::first`](crate::Steps::first) says, against the gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steepest;

impl<V: Space> Direction<V> for Steepest {
    fn propose(&mut self, _: &V) -> Result<Option<Proposal<V>>, V::Error> {
        Ok(None)
    }

    fn learn(&mut self, _: &V, _: &V) -> Result<(), V::Error> {
        Ok(())
    }

    fn forget(&mut self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LineSearch, Minimizer, Point, Steps, objective};

    #[test]
    fn steps_are_halved_until_a_tenth_does_not_help() {
        // 0.3 from the lowest point: a step of 1 goes beyond it, one of a quarter ends near it.
        let mut bowl = objective(|&[x]: &[f64; 1]| Ok(Point { loss: x * x, gradient: [2.0 * x] }));
        let steps = Steps { first: 1.0, longest: 1.0, shortest: 0.1 };
        let mut minimizer = Minimizer::new([0.3], Steepest, LineSearch::armijo());
        let losses = minimizer.iterate(&mut bowl, &steps, 50).expect("no device");
        assert!(losses.is_sorted_by(|a, b| a > b) && losses.len() < 50, "{losses:?}");
        assert!(minimizer.at()[0].abs() < 0.1, "{:?}", minimizer.at());
    }
}
