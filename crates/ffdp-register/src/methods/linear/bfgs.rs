//! A quasi-Newton search over the few parameters of a linear map (BFGS; Nocedal and Wright, chapter
//! 6).
//!
//! ```text
//! d = -H g,  at most a few voxels long        s = a d,  a the first of 1, a', a'', .. that gains enough
//! H <- (1 - p s y^T) H (1 - p y s^T) + p s s^T,   y = g' - g,  p = 1 / y^T s      (only where y^T s > 0)
//! ```
//! `g` the gradient · `H` the inverse of the second derivatives as the steps have shown them; before the
//! first it is a multiple of the identity, which fits because all parameters are lengths of one kind.
//!
//! Thirteen numbers come from the device for each trial, everything else is f64 on the host. There is
//! no schedule: steps are limited, so that it does not leave the valley it starts in, and every one is
//! a gain.

use std::marker::PhantomData;

use super::motion::{Frame, Map, Motion};
use crate::level::Solver;
use crate::pair::AlignedPair;
use crate::prepare::MINIMUM_OVERLAP_PERCENT;
use crate::pyramid::finest_spacing_mm;
use ffdp_burn::error::Result;

/// Steps are at most this long, in voxels of the level where the object ends: about the reach of the
/// gradient of a smoothed image.
const LONGEST_STEP_VOXELS: f64 = 2.0;
/// Shorter steps change nothing that a voxel shows.
const SHORTEST_STEP_VOXELS: f64 = 0.01;
/// The part of the gain that the slope promises which a step must bring.
const SUFFICIENT: f64 = 1e-4;
/// Trials of one step at most; each is a half to a tenth of the one before.
const TRIALS: usize = 6;

/// What is kept from level to level: where the search is, and the shape of the valley.
#[derive(Clone, Copy, Debug)]
pub(super) struct State<const N: usize> {
    /// The parameters, mm.
    pub at: [f64; N],
    /// `H`; `None` before a step has shown any.
    inverse: Option<[[f64; N]; N]>,
}

impl<const N: usize> Default for State<N> {
    fn default() -> Self {
        Self { at: [0.0; N], inverse: None }
    }
}

/// The loss at a point, with its gradient.
#[derive(Clone, Copy, Debug)]
struct Point<const N: usize> {
    loss: f64,
    gradient: [f64; N],
}

/// The search on one level.
pub(super) struct Bfgs<'a, M, const N: usize> {
    aligned: &'a AlignedPair<'a>,
    frame: Frame,
    /// The placement found before; the motion comes first, then this.
    start: Map,
    state: State<N>,
    /// At `state.at`; `None` before it was asked for.
    here: Option<Point<N>>,
    /// No step gains anything any more.
    settled: bool,
    motion: PhantomData<M>,
}

impl<'a, M: Motion<N>, const N: usize> Bfgs<'a, M, N> {
    /// A search from `state` on.
    pub fn new(aligned: &'a AlignedPair<'a>, frame: Frame, start: Map, state: State<N>) -> Self {
        Self { aligned, frame, start, state, here: None, settled: false, motion: PhantomData }
    }

    /// What it has come to.
    pub fn state(&self) -> State<N> {
        self.state
    }

    /// The placement it has come to.
    pub fn map(&self) -> Map {
        M::map(&self.frame, &self.state.at).then(&self.start)
    }

    /// The loss of that placement.
    pub fn loss(&mut self) -> Result<f64> {
        Ok(self.here()?.loss)
    }

    fn here(&mut self) -> Result<Point<N>> {
        if let Some(here) = self.here {
            return Ok(here);
        }
        let here = self.evaluate(&self.state.at)?;
        self.here = Some(here);
        Ok(here)
    }

    /// Maps that lose the images from sight are infinitely bad.
    fn evaluate(&self, at: &[f64; N]) -> Result<Point<N>> {
        let motion = M::map(&self.frame, at);
        let map = motion.then(&self.start);
        if self.aligned.pair.overlap_percent(&map) < MINIMUM_OVERLAP_PERCENT {
            return Ok(Point { loss: f64::INFINITY, gradient: [0.0; N] });
        }
        let (loss, to_map) = self.aligned.gradient(&map)?;
        // map = start . motion, so the gradient to the motion is start_lin^T times that.
        let start = self.start.linear();
        let to_motion = std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..3).map(|k| start[k][i] * to_map[k][j]).sum())
        });
        Ok(Point { loss, gradient: M::gradient(&self.frame, at, &to_motion) })
    }

    /// The finest spacing of the level along which something moves, mm.
    fn voxel_mm(&self) -> f64 {
        finest_spacing_mm(&self.aligned.pair.grids[0])
    }

    /// Where to go, and how far at most.
    fn direction(&self, gradient: &[f64; N]) -> [f64; N] {
        let Some(inverse) = &self.state.inverse else {
            // One voxel downhill: nothing is known yet of how the slope changes.
            let factor = -self.voxel_mm() / length(gradient);
            return gradient.map(|g| factor * g);
        };
        let newton = inverse.map(|row| -dot(&row, gradient));
        let longest = LONGEST_STEP_VOXELS * self.voxel_mm();
        let factor = (longest / length(&newton)).min(1.0);
        newton.map(|d| factor * d)
    }

    /// One step downhill; false where there is none.
    fn step(&mut self) -> Result<bool> {
        let here = self.here()?;
        if self.settled || length(&here.gradient) == 0.0 || !here.loss.is_finite() {
            return Ok(false);
        }
        loop {
            let direction = self.direction(&here.gradient);
            if self.search(&here, &direction)? {
                return Ok(true);
            }
            // The valley may have changed its shape: once more without what is known of it.
            if self.state.inverse.take().is_none() {
                self.settled = true;
                return Ok(false);
            }
        }
    }

    /// Goes along `direction` as far as it gains; false if it does nowhere.
    fn search(&mut self, here: &Point<N>, direction: &[f64; N]) -> Result<bool> {
        let slope = dot(direction, &here.gradient);
        let shortest = SHORTEST_STEP_VOXELS * self.voxel_mm() / length(direction);
        let mut factor = 1.0;
        for _ in 0..TRIALS {
            if slope >= 0.0 || factor < shortest {
                return Ok(false);
            }
            let step = direction.map(|d| factor * d);
            let at = std::array::from_fn(|i| self.state.at[i] + step[i]);
            let there = self.evaluate(&at)?;
            if there.loss <= here.loss + SUFFICIENT * factor * slope {
                let change = std::array::from_fn(|i| there.gradient[i] - here.gradient[i]);
                learn(&mut self.state.inverse, &step, &change);
                (self.state.at, self.here) = (at, Some(there));
                return Ok(true);
            }
            // The lowest point of the parabola through both losses and the slope.
            let rise = there.loss - here.loss - slope * factor;
            factor *= (-slope * factor / (2.0 * rise)).clamp(0.1, 0.5);
        }
        Ok(false)
    }
}

impl<M: Motion<N>, const N: usize> Solver for Bfgs<'_, M, N> {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        let mut losses = Vec::with_capacity(iterations);
        for _ in 0..iterations {
            losses.push(self.here()?.loss);
            if !self.step()? {
                break;
            }
        }
        Ok(losses)
    }
}

/// The update of `H` by a step and the change of the gradient along it.
fn learn<const N: usize>(inverse: &mut Option<[[f64; N]; N]>, step: &[f64; N], change: &[f64; N]) {
    let product = dot(step, change);
    // Along a step that shows no valley, nothing can be learnt of its width.
    if product <= 1e-8 * length(step) * length(change) {
        return;
    }
    let before = inverse.unwrap_or_else(|| {
        let scale = product / dot(change, change);
        std::array::from_fn(|i| std::array::from_fn(|j| if i == j { scale } else { 0.0 }))
    });
    let hy = before.map(|row| dot(&row, change));
    let p = 1.0 / product;
    let both = p * p * dot(change, &hy) + p;
    *inverse = Some(std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            before[i][j] - p * (step[i] * hy[j] + hy[i] * step[j]) + both * step[i] * step[j]
        })
    }));
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn length<const N: usize>(a: &[f64; N]) -> f64 {
    dot(a, a).sqrt()
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
        let mut inverse = None;
        for step in [first, second] {
            learn(&mut inverse, &step, &of(step));
        }
        let expected = [[3.0 / 11.0, -1.0 / 11.0], [-1.0 / 11.0, 4.0 / 11.0]];
        let got = inverse.expect("learnt");
        let off = (0..4).map(|k| (got[k / 2][k % 2] - expected[k / 2][k % 2]).abs());
        assert!(off.fold(0.0, f64::max) < 1e-12, "{got:?}");
        // A step over a hill teaches nothing.
        let before = inverse;
        learn(&mut inverse, &[1.0, 0.0], &[-1.0, 0.0]);
        assert_eq!(inverse, before);
    }
}
