//! Gauss-Newton-Krylov: the velocity that carries the moving image onto the fixed one as the solution of a problem of
//! control, found by second-order steps (CLAIRE; Mang et al. 2019, Brunn et al. 2020).
//!
//! ```text
//! minimise over v    D(m(1)) + beta / 2 |grad v|^2 + beta_div / 2 (div v)^2,   d_t m + v . grad m = 0
//! ```
//! `flow.rs` transport along a velocity · `landmarks.rs` points that drive it · `problem.rs` loss, gradient, Hessian ·
//! `precondition.rs` about its inverse · `weights.rs` from a large `beta` to the one that is wanted · `level.rs` a level of
//! a registration. Conjugate gradients and the line search are those of [`ffdp_optim`]. Lengths are in a unit in which the
//! box of the fixed image has the volume of the paper's, `(2 pi)^3`: a `beta` means what it means there.

mod flow;
mod landmarks;
mod level;
mod precondition;
mod problem;
#[cfg(test)]
mod tests;
mod weights;

pub use flow::Flow;
pub use precondition::Preconditioner;
pub use problem::{VelocityImages, VelocityLoss, VelocityOptions, VelocityProblem};
pub use weights::{DeterminantBounds, Regularizing, minimize};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::deformable::{Buffers, Deformation, FieldMethod, LevelTask};
use crate::models::{Model, Velocity};
use crate::settings::{
    ConvergenceSettings, Descent, LevelSettings, OptimizerSettings, Similarity, in_range,
};
use ffdp_burn::ops::{Accumulation, PeriodicInterpolation};
use ffdp_image::error::{Error, Result};
use ffdp_optim::GaussNewtonOptions;
use ffdp_parallel::planner::{FieldBuffers, VECTOR};

/// Gauss-Newton-Krylov registration: few exact steps where others take many short ones. The map is the flow along a
/// stationary velocity, its inverse the flow back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GnkSettings {
    /// The levels, coarse to fine, with steps of Gauss and Newton at most. Default: shrink 2, 1 with 50 each.
    pub levels: Vec<LevelSettings>,
    /// What is minimised. Default: the squared difference of the paper, for images of equal intensities.
    pub similarity: Similarity,
    /// Weight of the roughness `|grad v|^2`, for a box of volume `(2 pi)^3` and intensities of [0, 1]; default 3e-3: of 15
    /// pairs of brains the mean Dice was 0.630 (MSE) and 0.633 (LNCC), with 1e-2 (Brunn et al. 2020) 0.610 and 0.593; 0.008
    /// and 0.001 % of the voxels fold (MSE 0.014 % on the test brains). Smaller: larger deformations, more steps.
    pub beta: f64,
    /// Weight of `(div v)^2`, likewise; default 1e-4. Larger: volumes are kept.
    pub beta_div: f64,
    /// Whether the first level starts with `beta = 1` and divides it by ten until `beta` is reached. Default true.
    pub continuation: bool,
    /// Bounds of the determinant of the map. From `beta` on, the last level searches the smallest weight that keeps
    /// them. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub determinant: Option<DeterminantBounds>,
    /// Steps of time. Default 4; 8 for motions of a third of the image and more.
    pub time_steps: usize,
    /// What images and fields are between their voxels, for the transport: `bspline` (cubic, the default), `lagrange`
    /// (cubic, no coefficients) or `linear` (of second order).
    pub interpolation: PeriodicInterpolation,
    /// Whether the derivatives of the image at all steps of time are kept, three numbers a voxel and step more: the
    /// products of a system then find none. Default false.
    pub keep_gradients: bool,
    /// Preconditioner of the conjugate gradients. Default `inv_a`, with which pairs of brains took a GPU less than half the
    /// time of the paper's `2l_inv_h0` (benchmarks/gnk-settings-h200.json).
    pub preconditioner: Preconditioner,
    /// Tolerance of the system within a preconditioner, relative to that of the system itself. Default 1e-3; 1e-2 for
    /// noisy images.
    pub inner_tolerance: f64,
    /// A level ends when the gradient is this fraction of the gradient at a velocity of zero. Default 5e-2.
    pub tolerance: f64,
    /// Most iterations for one system. Default 50.
    pub krylov_iterations: usize,
    /// Standard deviation of the smoothing of both images on each level, in voxels along its finest axis. Default 1:
    /// derivatives are taken of them.
    pub sigma_image_voxels: f64,
    /// Voxels between the image and its next period, in which its borders blend into each other. Default 8; 0 for
    /// images that are periodic.
    pub gap_voxels: usize,
}

impl Default for GnkSettings {
    fn default() -> Self {
        let level = |shrink| LevelSettings { shrink, iterations: 50 };
        Self {
            levels: [2.0, 1.0].map(level).to_vec(),
            similarity: Similarity::Mse,
            beta: 3e-3,
            beta_div: 1e-4,
            continuation: true,
            determinant: None,
            time_steps: 4,
            interpolation: PeriodicInterpolation::default(),
            keep_gradients: false,
            preconditioner: Preconditioner::default(),
            inner_tolerance: 1e-3,
            tolerance: 5e-2,
            krylov_iterations: 50,
            sigma_image_voxels: 1.0,
            gap_voxels: 8,
        }
    }
}

/// The gradient says when a level ends, not its losses: they rise where `beta` does.
const BY_GRADIENT: ConvergenceSettings = ConvergenceSettings { window: usize::MAX, tolerance: 0.0 };

/// What a voxel of the box takes besides the steps of time: velocity, gradient, system and preconditioner.
const NUMBERS: usize = 74;

/// Of the exponential that gives the map of a velocity: parts of a voxel for motions of a hundred.
const SQUARINGS: usize = 7;

impl GnkSettings {
    fn options(&self) -> VelocityOptions {
        VelocityOptions {
            beta: self.beta,
            beta_div: self.beta_div,
            steps: self.time_steps,
            keep_gradients: self.keep_gradients,
            preconditioner: self.preconditioner,
            inner_tolerance: self.inner_tolerance,
        }
    }

    fn newton(&self) -> GaussNewtonOptions {
        GaussNewtonOptions {
            tolerance: self.tolerance,
            krylov: self.krylov_iterations,
            ..GaussNewtonOptions::default()
        }
    }
}

impl FieldMethod for GnkSettings {
    fn descent(&self) -> Descent<'_> {
        Descent::quiet(&self.levels, &self.similarity, &BY_GRADIENT)
    }

    fn validate(&self) -> Result<()> {
        self.descent().validate()?;
        let weight = [f64::MIN_POSITIVE, 1e3];
        in_range("beta", self.beta, weight, "1e-2 is the usual one")?;
        in_range("beta_div", self.beta_div, [0.0, 1e3], "1e-4 is the usual one, 0 is off")?;
        let part = [f64::MIN_POSITIVE, 1.0];
        in_range("tolerance", self.tolerance, part, "5e-2 is the usual one")?;
        in_range("inner_tolerance", self.inner_tolerance, part, "1e-3 is the usual one")?;
        let sigma = self.sigma_image_voxels;
        in_range("sigma_image_voxels", sigma, [0.0, 20.0], "1 is the usual one, 0 is off")?;
        for (name, value, most, fix) in [
            ("time_steps", self.time_steps, 64, "4 is the usual number"),
            ("krylov_iterations", self.krylov_iterations, 1000, "50 is the usual number"),
        ] {
            if !(1..=most).contains(&value) {
                let what = format!("{name} must lie in 1..{most}");
                return Err(Error::invalid(what, value, fix));
            }
        }
        if let Some(bounds) = &self.determinant {
            bounds.validate()?;
        }
        Ok(())
    }

    fn settings_mut(&mut self) -> (&mut Vec<LevelSettings>, Option<&mut OptimizerSettings>) {
        (&mut self.levels, None)
    }

    /// `74 + n` numbers a voxel, `n` the steps of time (Brunn et al. 2020), and `3 (n + 1)` where gradients are kept, as an
    /// odd number of vectors; and what is squared for the map of the velocity.
    fn buffers(&self) -> Buffers {
        let kept = if self.keep_gradients { 3 * (self.time_steps + 1) } else { 0 };
        let vectors = (NUMBERS + self.time_steps + kept).div_ceil(3) | 1;
        let state_bytes = vectors as u64 * VECTOR;
        let fields = FieldBuffers { fields: 1, state_bytes, squared: SQUARINGS as u64 + 2 };
        Buffers { cpu_bytes: state_bytes, fields }
    }

    fn keeps_shards_on_devices(&self) -> bool {
        true
    }

    fn model(&self) -> Arc<dyn Model> {
        Arc::new(Velocity { squarings: SQUARINGS, accumulation: Accumulation::Fast })
    }

    fn begin(&self, task: &LevelTask) -> Option<Result<Box<dyn Deformation>>> {
        Some(level::begin(self, task))
    }
}
