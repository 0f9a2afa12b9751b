//! Transport along a stationary velocity, step by step: where the voxels of a step come from is found once for all of
//! them.
//!
//! ```text
//! d_t m + v . grad m = 0         m_(j+1)(x) = m_j(X)              X = x - dt / 2 (v(x) + v(x - dt v(x)))
//! - d_t l - div(l v) = 0         l_j(x)     = s(x) l_(j+1)(Y)     Y = x + dt / 2 (v(x) + v(x + dt v(x)))
//! d_t w + v . grad w + f = 0     w_(j+1)(x) = (w_j - dt / 2 f_j)(X) - dt / 2 f_(j+1)(x)
//! ```
//! `s = 1 + dt / 2 (d(x) + d(Y)) + dt^2 / 2 d(x) d(Y)` with `d = div v`: Heun's steps of second order. What lies
//! between voxels is the grid's choice, cubic splines or another. Source: Mang and Biros, A semi-Lagrangian two-level preconditioned Newton-Krylov solver,
//! 2017.

use burn::Tensor;
use burn::tensor::TensorData;

use ffdp_burn::ops::combination;
use ffdp_image::error::Result;
use ffdp_parallel::{DisplacementBounds, Sharded, periodic::PeriodicGrid};

/// Characteristics of one step: where what arrives at the voxels comes from.
#[derive(Clone)]
struct Trace {
    /// In voxels.
    displacement: Sharded,
    bounds: DisplacementBounds,
}

/// The flow along a velocity over unit time, in equal steps.
#[derive(Clone)]
pub struct Flow {
    grid: PeriodicGrid,
    steps: usize,
    /// `X - x` and `Y - x`.
    traces: [Trace; 2],
    /// `s`.
    growth: Sharded,
}

impl Flow {
    /// Along `velocity` `[1, 3, D, H, W]`, components (x, y, z), in the unit of the grid's voxels per unit time.
    ///
    /// # Errors
    /// Those of the grid.
    pub fn along(grid: &PeriodicGrid, velocity: &Sharded, steps: usize) -> Result<Self> {
        let dt = 1.0 / steps as f64;
        let voxels = by_component(velocity, grid.voxel().map(|h| dt / h));
        let spline = grid.coefficients(&voxels)?;
        let trace = |sign: f64| {
            let first = sum(&[(sign, &voxels)]);
            let there = grid.sample(&spline, &first, &grid.bounds(&first)?)?;
            let displacement = sum(&[(0.5, &first), (0.5 * sign, &there)]);
            let bounds = grid.bounds(&displacement)?;
            Ok(Trace { displacement, bounds })
        };
        let traces = [trace(-1.0)?, trace(1.0)?];
        drop((voxels, spline));
        let here = grid.divergence(velocity)?;
        let [_, Trace { displacement, bounds }] = &traces;
        let there = grid.sample(&grid.coefficients(&here)?, displacement, bounds)?;
        let growth = here.zip_map(&there, |here, there| {
            let both = (here.clone() * there.clone()).mul_scalar(0.5 * dt * dt);
            both + (here + there).mul_scalar(0.5 * dt) + 1.0
        });
        Ok(Self { grid: grid.clone(), steps, traces, growth })
    }

    /// Steps of time.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// What of the trapezoidal rule falls to the beginning of step `j`, or to the end of the last one.
    pub fn weight(&self, j: usize) -> f64 {
        let part = 1.0 / self.steps as f64;
        if j == 0 || j == self.steps { 0.5 * part } else { part }
    }

    /// A step of what is carried along, `[1, C, D, H, W]`: `m_j` to `m_(j+1)`.
    ///
    /// # Errors
    /// Those of the grid.
    pub fn ahead(&self, m: &Sharded) -> Result<Sharded> {
        self.read(m, 0)
    }

    /// A step of a density back in time: `l_(j+1)` to `l_j`.
    ///
    /// # Errors
    /// Those of the grid.
    pub fn back(&self, density: &Sharded) -> Result<Sharded> {
        Ok(self.read(density, 1)?.zip_map(&self.growth, |there, growth| there * growth))
    }

    /// What is carried along, before the first step and after each.
    ///
    /// # Errors
    /// Those of the grid.
    pub fn path(&self, m: &Sharded) -> Result<Vec<Sharded>> {
        let mut path = vec![m.clone()];
        for j in 0..self.steps {
            path.push(self.ahead(&path[j])?);
        }
        Ok(path)
    }

    /// The displacement `y(x) - x` in voxels with `m(x, 1) = m(y(x), 0)`.
    ///
    /// # Errors
    /// Those of the grid.
    pub fn displacement(&self) -> Result<Sharded> {
        let Trace { displacement, .. } = &self.traces[0];
        let mut all = displacement.clone();
        for _ in 1..self.steps {
            all = sum(&[(1.0, &self.ahead(&all)?), (1.0, displacement)]);
        }
        Ok(all)
    }

    fn read(&self, volume: &Sharded, trace: usize) -> Result<Sharded> {
        let Trace { displacement, bounds } = &self.traces[trace];
        self.grid.sample(&self.grid.coefficients(volume)?, displacement, bounds)
    }
}

/// `sum_k a_k x_k` of volumes in the same shards. One kernel serves all such sums; Burn's fusion would compile one for
/// each pattern of tensor operations.
pub(super) fn sum(terms: &[(f64, &Sharded)]) -> Sharded {
    let layout = terms[0].1.layout();
    let shard = |k: usize| {
        combination(&terms.iter().map(|(a, x)| (*a, &x.shards()[k])).collect::<Vec<_>>())
    };
    Sharded::new((0..layout.count()).map(shard).collect(), layout.clone())
}

/// Components (x, y, z) of a field times a factor each.
pub(super) fn by_component(field: &Sharded, factors: [f64; 3]) -> Sharded {
    if factors[1..].iter().all(|factor| *factor == factors[0]) {
        return sum(&[(factors[0], field)]);
    }
    field.clone().map(|field| {
        let like = (&field.device(), field.dtype());
        let data = TensorData::new(factors.to_vec(), [1, 3, 1, 1, 1]).convert_dtype(like.1);
        field * Tensor::from_data(data, like)
    })
}
