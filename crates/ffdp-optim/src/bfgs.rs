//! The inverse of the second derivatives of a few numbers, as steps have shown it (BFGS; Nocedal and Wright,
//! chapter 6).
//!
//! ```text
//! H <- (1 - p s y^T) H (1 - p y s^T) + p s s^T,   y = g' - g,  p = 1 / y^T s      (only where y^T s > 0)
//! ```
//! `g` the gradient, `s` the step. Before the first step `H` is a multiple of the identity, which fits parameters
//! that are lengths of one kind.

use std::convert::Infallible;

use crate::minimizer::{Direction, Proposal};

/// `H` as a matrix, for `N` numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bfgs<const N: usize> {
    /// `None` before a step has shown any.
    inverse: Option<[[f64; N]; N]>,
}

impl<const N: usize> Default for Bfgs<N> {
    fn default() -> Self {
        Self { inverse: None }
    }
}

impl<const N: usize> Direction<[f64; N]> for Bfgs<N> {
    fn propose(&mut self, gradient: &[f64; N]) -> Result<Option<Proposal<[f64; N]>>, Infallible> {
        let Some(inverse) = &self.inverse else { return Ok(None) };
        let direction = inverse.map(|row| -dot(&row, gradient));
        Ok(Some(Proposal { direction, slope: dot(&direction, gradient) }))
    }

    fn learn(&mut self, step: &[f64; N], change: &[f64; N]) -> Result<(), Infallible> {
        let product = dot(step, change);
        if !shows_a_valley(product, dot(step, step), dot(change, change)) {
            return Ok(());
        }
        let before = self.inverse.unwrap_or_else(|| {
            let scale = product / dot(change, change);
            std::array::from_fn(|i| std::array::from_fn(|j| if i == j { scale } else { 0.0 }))
        });
        let hy = before.map(|row| dot(&row, change));
        let p = 1.0 / product;
        let both = p * p * dot(change, &hy) + p;
        self.inverse = Some(std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                before[i][j] - p * (step[i] * hy[j] + hy[i] * step[j]) + both * step[i] * step[j]
            })
        }));
        Ok(())
    }

    fn forget(&mut self) -> bool {
        self.inverse.take().is_some()
    }
}

/// Along a step that shows no valley, nothing can be learnt of its width.
pub(crate) fn shows_a_valley(product: f64, step: f64, change: f64) -> bool {
    product > 1e-8 * step.sqrt() * change.sqrt()
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_along_every_axis_teach_the_inverse_of_a_quadratic() {
        // y = Q s exactly: after conjugate steps H is the inverse of Q.
        let q = [[4.0, 1.0], [1.0, 3.0]];
        let of = |s: [f64; 2]| q.map(|row| dot(&row, &s));
        let first = [1.0, 0.0];
        // Conjugate to the first: first^T Q second = 0.
        let second = [1.0, -4.0];
        let mut bfgs = Bfgs::default();
        for step in [first, second] {
            bfgs.learn(&step, &of(step)).unwrap();
        }
        let expected = [[3.0 / 11.0, -1.0 / 11.0], [-1.0 / 11.0, 4.0 / 11.0]];
        let got = bfgs.inverse.expect("learnt");
        let off = (0..4).map(|k| (got[k / 2][k % 2] - expected[k / 2][k % 2]).abs());
        assert!(off.fold(0.0, f64::max) < 1e-12, "{got:?}");
        // A step over a hill teaches nothing.
        let before = bfgs;
        bfgs.learn(&[1.0, 0.0], &[-1.0, 0.0]).unwrap();
        assert_eq!(bfgs, before);
    }
}
