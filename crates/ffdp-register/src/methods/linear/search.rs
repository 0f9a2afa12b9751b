//! The search for the few parameters of a linear map, by [`Bfgs`].
//!
//! Thirteen numbers come from the device for each trial, everything else is f64 on the host. There is
//! no schedule: steps are limited, so that it does not leave the valley it starts in, and every one is
//! a gain.

use std::convert::Infallible;
use std::marker::PhantomData;

use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;
use ffdp_optim::{Bfgs, LineSearch, Minimizer, Objective, Point, Steps};
use ffdp_parallel::alignment::Aligned;

use super::motion::{Frame, Map, Motion};
use crate::checks::MINIMUM_OVERLAP_PERCENT;
use crate::level::Solver;
use crate::pair::{AlignedPair, overlap_percent};
use crate::pyramid::finest_spacing_mm;
use crate::settings::LinearSettings;

/// Steps are at most this long, in voxels of the level where the object ends: about the reach of the
/// gradient of a smoothed image.
const LONGEST_STEP_VOXELS: f64 = 2.0;
/// The first step.
const FIRST_STEP_VOXELS: f64 = 1.0;
/// Shorter steps change nothing that a voxel shows.
const SHORTEST_STEP_VOXELS: f64 = 0.01;

/// What is kept from level to level: where the search is (the parameters, mm), and the shape of the valley.
#[derive(Clone, Copy, Debug)]
pub(super) struct State<const N: usize> {
    pub at: [f64; N],
    valley: Bfgs<N>,
}

impl<const N: usize> Default for State<N> {
    fn default() -> Self {
        Self { at: [0.0; N], valley: Bfgs::default() }
    }
}

/// The loss of a map, and its gradient to the rows of the map, RAS mm.
pub(super) type Judge<'a> = Box<dyn FnMut(&Map) -> Result<Aligned> + 'a>;

/// Two images on a level, and who says how alike they are.
pub(super) struct Judged<'a> {
    pub grids: [&'a Geometry; 2],
    pub judge: Judge<'a>,
}

impl<'a> From<&'a AlignedPair<'a>> for Judged<'a> {
    fn from(aligned: &'a AlignedPair<'a>) -> Self {
        let judge = Box::new(|map: &Map| aligned.gradient(map));
        Self { grids: aligned.pair.grids.each_ref(), judge }
    }
}

/// The search on one level.
pub(super) struct LinearSearch<'a, M, const N: usize> {
    objective: LinearObjective<'a, M>,
    minimizer: Minimizer<[f64; N], Bfgs<N>>,
}

/// Placements that are never taken: their loss is infinite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Singular values of the motion lie in `1 / stretch..stretch`, and it mirrors nothing.
    pub stretch: f64,
    /// Least overlap of the images, in percent of the smaller one.
    pub overlap_percent: f64,
}

/// A stage whose stretch comes this near to its bound, as a part of the bound's logarithm, has ended there.
const AT_BOUND: f64 = 0.95;

impl Bounds {
    /// Of a stage that begins at `start`: as much as the settings allow, but for an overlap that was less already.
    pub fn of(settings: &LinearSettings, images: &Judged, start: &Map) -> Self {
        let there = overlap_percent(images.grids, start);
        let least = f64::max(settings.overlap * there, MINIMUM_OVERLAP_PERCENT);
        Self { stretch: settings.stretch, overlap_percent: least.min(there) }
    }

    fn allow(&self, motion: &Map) -> bool {
        let [most, _, least] = motion.singular_values();
        // A rotation is rounded.
        const ROUNDING: f64 = 1e-9;
        let stretch = self.stretch + ROUNDING;
        most <= stretch && least >= 1.0 / stretch && motion.determinant() > 0.0
    }

    /// Whether a motion was held back by the bound of its stretch.
    pub fn hold(&self, motion: &Map) -> bool {
        let [most, _, least] = motion.singular_values();
        f64::max(most.ln(), -least.ln()) > AT_BOUND * self.stretch.ln() && self.stretch > 1.0
    }
}

/// What a placement of the moving image costs.
struct LinearObjective<'a, M> {
    images: Judged<'a>,
    bounds: Bounds,
    frame: Frame,
    /// The placement found before; the motion comes first, then this.
    start: Map,
    motion: PhantomData<M>,
}

impl<M: Motion<N>, const N: usize> Objective<[f64; N]> for LinearObjective<'_, M> {
    type Error = Error;

    fn failed(&self, never: Infallible) -> Error {
        match never {}
    }

    /// Maps out of bounds are infinitely bad.
    fn evaluate(&mut self, at: &[f64; N]) -> Result<Point<[f64; N]>> {
        let motion = M::map(&self.frame, at);
        let map = motion.then(&self.start);
        let lost = || overlap_percent(self.images.grids, &map) < self.bounds.overlap_percent;
        if !self.bounds.allow(&motion) || lost() {
            return Ok(Point { loss: f64::INFINITY, gradient: [0.0; N] });
        }
        let (loss, to_map) = (self.images.judge)(&map)?;
        // map = start . motion, so the gradient to the motion is start_lin^T times that.
        let start = self.start.linear();
        let to_motion = std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..3).map(|k| start[k][i] * to_map[k][j]).sum())
        });
        Ok(Point { loss, gradient: M::gradient(&self.frame, at, &to_motion) })
    }
}

impl<'a, M: Motion<N>, const N: usize> LinearSearch<'a, M, N> {
    /// A search from `state` on.
    pub fn new(
        images: Judged<'a>,
        frame: Frame,
        bounds: Bounds,
        start: Map,
        state: State<N>,
    ) -> Self {
        let objective = LinearObjective { images, bounds, frame, start, motion: PhantomData };
        Self { objective, minimizer: Minimizer::new(state.at, state.valley, LineSearch::armijo()) }
    }

    /// The motion it has come to.
    pub fn motion(&self) -> Map {
        M::map(&self.objective.frame, self.minimizer.at())
    }

    /// The placement it has come to.
    pub fn map(&self) -> Map {
        self.motion().then(&self.objective.start)
    }

    /// The loss of that placement.
    pub fn loss(&mut self) -> Result<f64> {
        Ok(self.minimizer.here(&mut self.objective)?.loss)
    }

    /// What it has come to.
    pub fn into_state(self) -> State<N> {
        let (at, valley) = self.minimizer.into_parts();
        State { at, valley }
    }
}

impl<M: Motion<N>, const N: usize> Solver for LinearSearch<'_, M, N> {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        // The finest spacing of the level along which something moves.
        let voxel_mm = finest_spacing_mm(self.objective.images.grids[0]);
        let steps = Steps {
            first: FIRST_STEP_VOXELS * voxel_mm,
            longest: LONGEST_STEP_VOXELS * voxel_mm,
            shortest: SHORTEST_STEP_VOXELS * voxel_mm,
        };
        self.minimizer.iterate(&mut self.objective, &steps, iterations)
    }
}
