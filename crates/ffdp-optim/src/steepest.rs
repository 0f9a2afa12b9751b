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

    #[test]
    fn a_search_ends_at_the_first_gradient_that_is_short_enough() {
        // A valley along x: the walls make the steps zigzag, and the gradient does not fall in every one.
        let gradient = |[x, y]: [f64; 2]| [x, 20.0 * y];
        let valley = || {
            objective(move |&at: &[f64; 2]| {
                let [x, y] = at;
                Ok(Point { loss: 0.5 * (x * x + 20.0 * y * y), gradient: gradient(at) })
            })
        };
        let steps = Steps { first: 0.5, longest: 0.5, shortest: 1e-6 };
        let begin = || Minimizer::new([3.0, 0.4], Steepest, LineSearch::armijo());
        let mut norms = Vec::new();
        let mut free = begin();
        while norms.len() < 30 {
            let [x, y] = gradient(*free.at());
            norms.push(x.hypot(y));
            if !free.step(&mut valley(), &steps).expect("no device") {
                break;
            }
        }
        for threshold in [100.0, 4.0, 0.5, 0.2, 0.1] {
            let first = norms.iter().position(|norm| *norm <= threshold);
            let first = first.unwrap_or_else(|| panic!("{threshold} is not in {norms:?}"));
            let mut search = begin().until(threshold);
            let losses = search.iterate(&mut valley(), &steps, 100).expect("no device");
            assert_eq!(losses.len(), first + 1, "{threshold}: {norms:?}");
            let [x, y] = gradient(*search.at());
            assert_eq!(x.hypot(y), norms[first], "{threshold}");
        }
    }
}
