//! The dissimilarity of two images as a function of the velocity that carries one of them, with its gradient and the
//! Hessian of Gauss and Newton.
//!
//! ```text
//! J(v) = D(m(1)) + 1/2 <v, A v> + E(v)   d_t m + v . grad m = 0,  m(0) the moving image
//! g    = A v + int l grad m dt           - d_t l - div(l v) = 0,  l(1) = - dD / dm
//! H x  = A x + int k grad m dt           - d_t k - div(k v) = 0,  k(1) = - h w(1)
//!                                        d_t w + v . grad w + x . grad m = 0,  w(0) = 0
//! ```
//! `A = beta |k|^2 + beta_div k k^T` of the modes `k` · `h` the curvature of `D`, voxel by voxel. Sums over voxels, not
//! means: with squared differences `D = 1/2 sum (m - m_1)^2`. Others are scaled so that `h` is about 1 where the image
//! has slopes: a `beta` then means the same for all. `E` is the term of landmarks (`landmarks.rs`), if there are any, times
//! the values that count at first, as `D` is. Source: Brunn et al. 2020, equations 1 to 7.

use std::cell::Cell;
use std::sync::Arc;

use burn::Tensor;

use super::flow::{Flow, by_component, sum};
use super::landmarks::{LandmarkTerm, Paths};
use super::precondition::{Inverse, InverseOptions, Preconditioner, vector};
use ffdp_burn::losses::SimilarityLoss;
use ffdp_burn::ops::{Symbol, component_dot};
use ffdp_image::error::{Error, Result};
use ffdp_optim::{Curved, Objective, Point, Space};
use ffdp_parallel::{
    Sharded,
    collective::Reduction,
    deform::{FieldVector, Landmarks, ShardedComparison},
    ops::min_max,
    periodic::PeriodicGrid,
};

/// What of a problem can be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VelocityOptions {
    /// Weight of `1/2 |grad v|^2`, in the grid's unit of length squared.
    pub beta: f64,
    /// Weight of `1/2 (div v)^2`, likewise.
    pub beta_div: f64,
    /// Steps of time.
    pub steps: usize,
    /// Whether `grad m_j` is kept, `3 C (steps + 1)` numbers a voxel; found for each product otherwise.
    pub keep_gradients: bool,
    /// Of the systems of a step.
    pub preconditioner: Preconditioner,
    /// Of the systems within a preconditioner, as a part of that of the system.
    pub inner_tolerance: f64,
}

/// Two images on a periodic grid.
pub struct VelocityImages {
    /// `[1, C, D, H, W]`, with its mask as last channel where it has one.
    pub fixed: Sharded,
    /// The same.
    pub moving: Sharded,
    /// Whether the fixed and the moving image have one.
    pub masked: [bool; 2],
}

/// Of a pair of images, as a function of the velocity `[1, 3, D, H, W]`, components (x, y, z), in the grid's unit of
/// length per unit time.
pub struct VelocityProblem {
    grid: PeriodicGrid,
    options: VelocityOptions,
    moving: Sharded,
    moving_mask: Option<Sharded>,
    comparison: ShardedComparison,
    /// Of the dissimilarity; found where it is asked for first.
    scale: Option<f64>,
    landmarks: Option<LandmarkTerm>,
    /// What their term is multiplied by; found at the first velocity.
    landmark_scale: Option<f64>,
    state: Option<State>,
    inner_iterations: Cell<usize>,
}

/// At the velocity that was seen last.
struct State {
    flow: Flow,
    /// `m_0` to `m_n`.
    path: Vec<Sharded>,
    /// Their derivatives, of every channel, where they are kept.
    slopes: Option<Vec<Vec<Sharded>>>,
    /// That of the moving image at the end.
    mask: Option<Sharded>,
    /// Those of the landmarks.
    paths: Option<Paths>,
    seen: VelocityLoss,
    /// `h` and the preconditioner, once a system is to be solved.
    system: Option<(Sharded, Inverse)>,
}

/// The loss of a velocity, and its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VelocityLoss {
    /// The dissimilarity as the similarity has it, a mean.
    pub loss: f64,
    /// How many values counted.
    pub count: f64,
    /// `1/2 <v, A v>`.
    pub roughness: f64,
    /// `E`, 0 without landmarks.
    pub landmarks: f64,
}

impl VelocityProblem {
    /// Of `images` on `grid`.
    ///
    /// # Errors
    /// [`Error::LostRank`], and [`Error::Device`] when planes cannot be read.
    pub fn new(
        grid: PeriodicGrid,
        similarity: Arc<dyn SimilarityLoss>,
        images: VelocityImages,
        options: VelocityOptions,
    ) -> Result<Self> {
        let VelocityImages { fixed, moving, masked } = images;
        let channels = moving.dims()[1] - usize::from(masked[1]);
        // Of squares the half, of several channels the mean.
        let scale = similarity.is_least_squares().then_some(0.5 / channels as f64);
        let comparison =
            ShardedComparison::new(similarity, &fixed, masked, grid.mesh(), grid.holders())?;
        let part = |first: usize, count: usize| moving.clone().map(|x| x.narrow(1, first, count));
        let moving_mask = masked[1].then(|| part(channels, 1));
        let moving = if masked[1] { part(0, channels) } else { moving };
        let (inner_iterations, state) = (Cell::new(0), None);
        let (landmarks, landmark_scale) = (None, None);
        Ok(Self {
            grid,
            options,
            moving,
            moving_mask,
            comparison,
            scale,
            landmarks,
            landmark_scale,
            state,
            inner_iterations,
        })
    }

    /// The same with landmarks of an image of `size` voxels (x, y, z) whose first voxel is voxel `first` of the grid.
    pub fn with_landmarks(self, landmarks: Landmarks, first: [usize; 3], size: [usize; 3]) -> Self {
        Self { landmarks: Some(LandmarkTerm::new(landmarks, first, size)), ..self }
    }

    /// The grid.
    pub fn grid(&self) -> &PeriodicGrid {
        &self.grid
    }

    /// What was chosen.
    pub fn options(&self) -> &VelocityOptions {
        &self.options
    }

    /// Another weight of the regularisation, and what becomes of the point that was evaluated last, at `velocity`.
    ///
    /// # Errors
    /// Those of the grid.
    pub fn set_beta(
        &mut self,
        beta: f64,
        last: Option<(&FieldVector, Point<FieldVector>)>,
    ) -> Result<Option<Point<FieldVector>>> {
        let more = beta - self.options.beta;
        self.options.beta = beta;
        let Some((velocity, Point { loss, gradient })) = last else { return Ok(None) };
        if let Some(state) = &mut self.state {
            state.system = None;
        }
        if more == 0.0 {
            return Ok(Some(Point { loss, gradient }));
        }
        let symbol = Symbol::Regularizer { beta: more.abs(), gamma: 0.0 };
        let changed = self.grid.spectral(&velocity.fields[0], symbol)?;
        let changed = vector(changed, &self.grid);
        let rougher = 0.5 * more.signum() * FieldVector::dots(&[[velocity, &changed]])?[0];
        if let Some(state) = &mut self.state {
            state.seen.roughness += rougher;
        }
        let gradient = FieldVector::combine(&[(1.0, &gradient), (more.signum(), &changed)]);
        Ok(Some(Point { loss: loss + rougher, gradient }))
    }

    /// No motion.
    pub fn rest(&self) -> FieldVector {
        let still = self.moving.clone().map(|x| {
            let [n, _, d, h, w] = x.dims();
            Tensor::zeros([n, 3, d, h, w], (&x.device(), x.dtype()))
        });
        vector(still, &self.grid)
    }

    /// What of the gradient at the velocity that was evaluated last is not of landmarks.
    ///
    /// # Panics
    /// If none was.
    pub(super) fn without_landmarks(&self, gradient: &FieldVector) -> FieldVector {
        let Some(paths) = &self.state.as_ref().expect(SEEN).paths else { return gradient.clone() };
        let pull = vector(paths.gradient(&gradient.fields[0]), &self.grid);
        FieldVector::combine(&[(1.0, gradient), (-1.0, &pull)])
    }

    /// What the velocity that was evaluated last has come to.
    pub fn seen(&self) -> Option<VelocityLoss> {
        self.state.as_ref().map(|state| state.seen)
    }

    /// The moving image as the velocity that was evaluated last shows it, without its mask.
    pub fn moved(&self) -> Option<&Sharded> {
        self.state.as_ref().and_then(|state| state.path.last())
    }

    /// Iterations of systems within preconditioners so far.
    pub fn inner_iterations(&self) -> usize {
        let now = |(_, inverse): &(Sharded, Inverse)| inverse.iterations();
        let state = self.state.as_ref().and_then(|state| state.system.as_ref());
        self.inner_iterations.get() + state.map_or(0, now)
    }

    /// The least and the largest determinant of the derivative of the map `y` with `m(x, 1) = m(y(x), 0)`, of the
    /// velocity that was evaluated last. Waits for the devices.
    ///
    /// # Errors
    /// Those of the grid.
    ///
    /// # Panics
    /// If none was.
    pub fn determinants(&self) -> Result<[f64; 2]> {
        let flow = &self.state.as_ref().expect("a velocity was evaluated").flow;
        let moved = by_component(&flow.displacement()?, self.grid.voxel());
        let component = |a: usize| self.grid.gradient(&moved.clone().map(|u| u.narrow(1, a, 1)));
        let [x, y, z] = [component(0)?, component(1)?, component(2)?];
        let shards = x.shards().iter().zip(y.shards()).zip(z.shards());
        let shards = shards.map(|((x, y), z)| determinant([x, y, z])).collect();
        let [low, high] = min_max(&Sharded::new(shards, x.layout().clone()));
        let ends = Tensor::cat(vec![low.neg(), high], 0);
        let ends = self.grid.holders().combine(ends, Reduction::Max)?.try_into_vec_as::<f64>();
        let ends = ends.map_err(|reason| Error::device("reading determinants", reason))?;
        Ok([-ends[0], ends[1]])
    }

    /// `int l grad m dt` of a density `l` at the end.
    fn force(&self, state: &State, at_end: Sharded) -> Result<Sharded> {
        let State { flow, path, .. } = state;
        let mut density = at_end;
        let mut force: Option<Sharded> = None;
        for j in (0..path.len()).rev() {
            if j + 1 < path.len() {
                density = flow.back(&density)?;
            }
            for c in 0..density.dims()[1] {
                let slope = self.slope(state, j, c)?;
                let part = slope.zip_map(&channel(&density, c), Tensor::mul);
                let part = (flow.weight(j), &part);
                force = Some(match &force {
                    None => sum(&[part]),
                    Some(force) => sum(&[(1.0, force), part]),
                });
            }
        }
        Ok(force.expect("there is an image"))
    }

    /// `grad m_j` of a channel.
    fn slope(&self, State { path, slopes, .. }: &State, j: usize, c: usize) -> Result<Sharded> {
        match slopes {
            Some(slopes) => Ok(slopes[j][c].clone()),
            None => self.grid.gradient(&channel(&path[j], c)),
        }
    }

    /// `x . grad m_j` of every channel.
    fn along(&self, x: &Sharded, state: &State, j: usize) -> Result<Sharded> {
        let m = &state.path[j];
        let part = |c: usize| Ok(self.slope(state, j, c)?.zip_map(x, component_dot));
        let mut channels = (0..m.dims()[1]).map(part).collect::<Result<Vec<_>>>()?;
        if channels.len() == 1 {
            return Ok(channels.remove(0));
        }
        let shard =
            |k: usize| Tensor::cat(channels.iter().map(|c| c.shards()[k].clone()).collect(), 1);
        Ok(Sharded::new((0..m.layout().count()).map(shard).collect(), m.layout().clone()))
    }

    /// The landmarks' ways, whose term counts as often as values count now, unless it counted before.
    fn paths(&mut self, velocity: &Sharded, now: f64) -> Result<Option<Paths>> {
        let Some(landmarks) = &self.landmarks else { return Ok(None) };
        let scale = *self.landmark_scale.get_or_insert(now);
        landmarks.follow(&self.grid, velocity, self.options.steps, scale).map(Some)
    }

    fn regularizer(&self) -> Symbol {
        Symbol::Regularizer { beta: self.options.beta, gamma: self.options.beta_div }
    }

    /// By what the loss of the similarity and its derivatives are multiplied, at rest: see the head of this file.
    fn scale_at_rest(&self) -> Result<f64> {
        let moved = self.masked(&self.moving, self.moving_mask.as_ref());
        let curvature = self.comparison.curvature(&moved)?;
        let channels = curvature.dims()[1];
        let mut sums = [0.0; 2];
        for c in 0..channels {
            let slope = self.grid.gradient(&channel(&self.moving, c))?;
            let steep = Sharded::new(
                slope.shards().iter().map(|s| component_dot(s.clone(), s.clone())).collect(),
                slope.layout().clone(),
            );
            let curvature = channel(&curvature, c);
            let counted = curvature.clone().map(Tensor::sign);
            sums[0] += self.grid.inner_product(&steep, &counted)?;
            sums[1] += self.grid.inner_product(&steep, &curvature)?;
        }
        let scale = sums[0] / (sums[1] * channels as f64);
        // Nothing has a slope: nothing will move.
        Ok(if scale.is_finite() && scale > 0.0 { scale } else { 1.0 })
    }

    /// An image with its mask as last channel.
    fn masked(&self, image: &Sharded, mask: Option<&Sharded>) -> Sharded {
        match mask {
            None => image.clone(),
            Some(mask) => {
                image.clone().zip_map(mask, |image, mask| Tensor::cat(vec![image, mask], 1))
            }
        }
    }
}

impl Objective<FieldVector> for VelocityProblem {
    type Error = Error;

    fn failed(&self, reason: Error) -> Error {
        reason
    }

    fn evaluate(&mut self, at: &FieldVector) -> Result<Point<FieldVector>> {
        self.inner_iterations.set(self.inner_iterations());
        self.state = None;
        let scale = match self.scale {
            Some(scale) => scale,
            None => self.scale_at_rest()?,
        };
        self.scale = Some(scale);
        let velocity = &at.fields[0];
        let flow = Flow::along(&self.grid, velocity, self.options.steps)?;
        let path = flow.path(&self.moving)?;
        let mask = match &self.moving_mask {
            None => None,
            Some(mask) => {
                let steps = 0..flow.steps();
                let mask = steps.into_iter().try_fold(mask.clone(), |mask, _| flow.ahead(&mask))?;
                // Splines overshoot.
                Some(mask.map(|mask| mask.clamp(0.0, 1.0)))
            }
        };
        let moved = self.masked(path.last().expect("it begins"), mask.as_ref());
        let compared = self.comparison.compare(&moved)?;
        let density = sum(&[(-scale, &compared.gradient)]);
        let stiff = vector(self.grid.spectral(velocity, self.regularizer())?, &self.grid);
        let roughness = 0.5 * FieldVector::dots(&[[at, &stiff]])?[0];
        let paths = self.paths(velocity, scale * compared.count)?;
        let landmarks = paths.as_ref().map_or(0.0, |paths| paths.energy);
        let seen =
            VelocityLoss { loss: compared.loss, count: compared.count, roughness, landmarks };
        let slopes = match self.options.keep_gradients {
            false => None,
            true => {
                let of = |m: &Sharded| {
                    (0..m.dims()[1]).map(|c| self.grid.gradient(&channel(m, c))).collect()
                };
                Some(path.iter().map(of).collect::<Result<_>>()?)
            }
        };
        let state = State { flow, path, slopes, mask, paths, seen, system: None };
        let force = vector(self.force(&state, density)?, &self.grid);
        let mut gradient = FieldVector::combine(&[(1.0, &stiff), (1.0, &force)]);
        if let Some(paths) = &state.paths {
            let pull = vector(paths.gradient(velocity), &self.grid);
            gradient = FieldVector::combine(&[(1.0, &gradient), (1.0, &pull)]);
        }
        self.state = Some(state);
        Ok(Point { loss: scale * seen.count * seen.loss + roughness + landmarks, gradient })
    }
}

const SEEN: &str = "a velocity is evaluated before its system is solved";

impl Curved<FieldVector> for VelocityProblem {
    fn hessian(&self, x: &FieldVector) -> Result<FieldVector> {
        let state = self.state.as_ref().expect(SEEN);
        let (curvature, _) = state.system.as_ref().expect(SEEN);
        let flow = &state.flow;
        let x = &x.fields[0];
        let half = -0.5 / flow.steps() as f64;
        let mut w: Option<Sharded> = None;
        let mut begins = self.along(x, state, 0)?;
        for j in 1..state.path.len() {
            let from = match &w {
                None => sum(&[(half, &begins)]),
                Some(w) => sum(&[(1.0, w), (half, &begins)]),
            };
            let there = flow.ahead(&from)?;
            begins = self.along(x, state, j)?;
            w = Some(sum(&[(1.0, &there), (half, &begins)]));
        }
        let w = w.expect("there is a step");
        let density = w.zip_map(curvature, |w, curvature| (w * curvature).neg());
        let force = self.force(state, density)?;
        let stiff = self.grid.spectral(x, self.regularizer())?;
        let all = sum(&[(1.0, &stiff), (1.0, &force)]);
        let all = match &state.paths {
            None => all,
            Some(paths) => sum(&[(1.0, &all), (1.0, &paths.product(x)?)]),
        };
        Ok(vector(all, &self.grid))
    }

    fn precondition(&self, r: &FieldVector, forcing: f64) -> Result<FieldVector> {
        let (_, inverse) = self.state.as_ref().expect(SEEN).system.as_ref().expect(SEEN);
        inverse.apply(&self.grid, r, forcing)
    }

    fn prepare(&mut self) -> Result<()> {
        let state = self.state.as_ref().expect(SEEN);
        let moved = state.path.last().expect("it begins");
        let masked = self.masked(moved, state.mask.as_ref());
        let curvature = self.comparison.curvature(&masked)?;
        let curvature = sum(&[(self.scale.expect(SEEN), &curvature)]);
        let VelocityOptions { beta, beta_div, preconditioner, inner_tolerance, .. } = self.options;
        let options = InverseOptions { preconditioner, tolerance: inner_tolerance, beta, beta_div };
        let slopes = || {
            let slope = |c: usize| {
                let root = channel(&curvature, c).map(Tensor::sqrt);
                Ok(self.grid.gradient(&channel(moved, c))?.zip_map(&root, Tensor::mul))
            };
            (0..moved.dims()[1]).map(slope).collect()
        };
        let inverse = Inverse::new(&self.grid, &options, slopes)?;
        self.state.as_mut().expect(SEEN).system = Some((curvature, inverse));
        Ok(())
    }
}

/// One channel of a volume.
fn channel(volume: &Sharded, c: usize) -> Sharded {
    if volume.dims()[1] == 1 {
        return volume.clone();
    }
    volume.clone().map(|volume| volume.narrow(1, c, 1))
}

/// `det(I + D)`, `D` by its rows `[1, 3, ..]`.
fn determinant(rows: [&Tensor<5>; 3]) -> Tensor<5> {
    let at = |a: usize, b: usize| {
        let entry = rows[a].clone().narrow(1, b, 1);
        if a == b { entry + 1.0 } else { entry }
    };
    let minor = |b: usize, c: usize| at(1, b) * at(2, c) - at(1, c) * at(2, b);
    at(0, 0) * minor(1, 2) - at(0, 1) * minor(0, 2) + at(0, 2) * minor(0, 1)
}
