//! How far to go along a direction.

use crate::objective::Point;
use crate::space::Space;

/// A line search: the first step `a d` that gains enough of what the slope at its start promises, and that leaves
/// no more than a part of that slope.
///
/// ```text
/// f(x + a d) <= f(x) + c1 a g^T d          (Armijo)
/// g(x + a d)^T d >= c2 g^T d               (Wolfe, with it: the step shows that the loss is convex along it)
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineSearch {
    /// `c1`: the part of the promised gain that a step must bring.
    pub sufficient: f64,
    /// `c2`; `None` asks for the first condition alone.
    pub curvature: Option<f64>,
    /// Points that are tried at most.
    pub trials: usize,
}

/// A trial that gains too little is followed by one at a tenth to a half of its bracket.
const SHRINK: [f64; 2] = [0.1, 0.5];

/// A trial beyond which the loss still falls is followed by one so much further.
const GROW: f64 = 2.0;

impl LineSearch {
    /// Armijo's condition alone.
    pub fn armijo() -> Self {
        Self { sufficient: 1e-4, curvature: None, trials: 6 }
    }

    /// With Wolfe's, for directions that learn from slopes: `c1 = 1e-4`, `c2 = 0.9`.
    pub fn wolfe() -> Self {
        Self { sufficient: 1e-4, curvature: Some(0.9), trials: 12 }
    }

    /// How far to go along a direction with this `slope`, and what is there; `None` if nothing is gained. `evaluate`
    /// takes the factor `a`, which begins with 1 and does not fall below `shortest`, and says the slope there as well if
    /// [`Self::curvature`] asks for it.
    ///
    /// Trials lie where the parabola through the last good point, its slope and the last bad point is lowest; a
    /// bracket is left by bisection where the slope asks for it.
    ///
    /// # Errors
    /// Those of the objective.
    pub fn along<V: Space, E>(
        &self,
        here: &Point<V>,
        slope: f64,
        shortest: f64,
        evaluate: &mut dyn FnMut(f64) -> Result<(Point<V>, f64), E>,
    ) -> Result<Option<(f64, Point<V>)>, E> {
        // Nor for a slope that is no number.
        if slope.is_nan() || slope >= 0.0 {
            return Ok(None);
        }
        let mut good: Option<(f64, Point<V>)> = None;
        let mut bad: Option<f64> = None;
        let mut factor = 1.0;
        for _ in 0..self.trials {
            if factor < shortest {
                break;
            }
            let (there, slope_there) = evaluate(factor)?;
            let allowed = here.loss + self.sufficient * factor * slope;
            if there.loss.is_nan() || there.loss > allowed {
                bad = Some(factor);
                factor = match &good {
                    Some((from, _)) => 0.5 * (from + factor),
                    None => factor * lowest(there.loss - here.loss, slope * factor),
                };
                continue;
            }
            let falls_on = self.curvature.is_some_and(|part| slope_there < part * slope);
            if !falls_on {
                return Ok(Some((factor, there)));
            }
            good = Some((factor, there));
            factor = bad.map_or(GROW * factor, |bad| 0.5 * (factor + bad));
        }
        Ok(good)
    }
}

/// Where a parabola that begins with slope `fall` and is `rise` at 1 is lowest.
fn lowest(rise: f64, fall: f64) -> f64 {
    (-fall / (2.0 * (rise - fall))).clamp(SHRINK[0], SHRINK[1])
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// `f(x) = (x - lowest)^2` from 0 along 1.
    fn search(search: LineSearch, lowest: f64) -> (Option<f64>, usize) {
        let mut trials = 0;
        let at = |x: f64| Point { loss: (x - lowest).powi(2), gradient: [2.0 * (x - lowest)] };
        let mut evaluate = |x: f64| {
            trials += 1;
            let there = at(x);
            let slope = there.gradient[0];
            Ok::<_, Infallible>((there, slope))
        };
        let here = at(0.0);
        let slope = here.gradient[0];
        let found = search.along(&here, slope, 1e-3, &mut evaluate).unwrap();
        (found.map(|(factor, _)| factor), trials)
    }

    #[test]
    fn a_parabola_is_left_at_its_lowest_point() {
        // The first trial overshoots threefold: the parabola says where to go.
        let (found, trials) = search(LineSearch::armijo(), 0.3);
        assert!((found.unwrap() - 0.3).abs() < 1e-12, "{found:?}");
        assert_eq!(trials, 2);
    }

    #[test]
    fn a_step_too_short_to_learn_from_grows_with_wolfe_only() {
        // The lowest point is 40 steps away: one step leaves 0.975 of the slope, four 0.9, eight 0.8.
        assert_eq!(search(LineSearch::armijo(), 40.0), (Some(1.0), 1));
        assert_eq!(search(LineSearch::wolfe(), 40.0), (Some(4.0), 3));
    }

    #[test]
    fn uphill_nothing_is_tried() {
        assert_eq!(search(LineSearch::wolfe(), -1.0), (None, 0));
    }

    #[test]
    fn steps_shorter_than_the_shortest_are_not_tried() {
        // A tenth of a tenth of a tenth: the fourth would be 1e-3 x 0.1.
        let (found, trials) = search(LineSearch { trials: 50, ..LineSearch::armijo() }, 1e-5);
        assert_eq!((found, trials), (None, 4));
    }
}
