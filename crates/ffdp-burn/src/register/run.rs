//! A registration from beginning to end.

use std::ops::ControlFlow;
use std::time::Instant;

use burn::tensor::{DType, Device, Tensor};
use serde::Serialize;

use super::convergence::has_converged;
use super::greedy::{Greedy, State};
use super::observer::{LevelStart, Observer, Progress};
use super::prepare::prepare;
use super::pyramid::{LevelImage, level_image};
use super::settings::{LevelSettings, Settings};
use crate::error::{Error, Result};
use crate::image::Volume;
use crate::ops::MomentStorage;
use crate::transform::Displacement;

/// What a registration found.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The map from fixed to moving, on the grid of the fixed image, in its voxels.
    pub displacement: Displacement,
    /// The moving image seen through it, on the fixed grid, in the moving image's intensities.
    pub warped: Volume,
    /// One report per level.
    pub levels: Vec<LevelReport>,
    /// The loss of the finest level without any deformation.
    pub loss_before: f64,
    /// The loss of the finest level with the result.
    pub loss_after: f64,
    /// Whether it is worth anything.
    pub outcome: Outcome,
}

/// How a level went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelReport {
    /// Its shrink factor.
    pub shrink: f64,
    /// Size (x, y, z) of the fixed image on it, in voxels.
    pub size: [usize; 3],
    /// The loss before each of its iterations.
    pub losses: Vec<f64>,
    /// Why it ended.
    pub stop: Stop,
    /// Time spent on it.
    pub seconds: f64,
}

/// Why a level ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The loss no longer fell.
    Converged,
    /// All iterations were done.
    IterationsSpent,
    /// The observer asked for it.
    Cancelled,
}

/// What a registration is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The images are more alike than before.
    Improved,
    /// They are not: the result should not be used.
    NotImproved,
    /// The observer ended the run early; the result is what was reached.
    Cancelled,
}

impl Outcome {
    /// What a user can do about it; `None` when all is well.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::Improved => None,
            Self::NotImproved => Some(
                "the images did not become more alike: check that they show the same anatomy in \
                 the same place (align them rigidly or affinely first), and that the metric suits \
                 them (mse needs equal intensities)",
            ),
            Self::Cancelled => Some("the run was ended early; run it again to the end"),
        }
    }
}

/// Finds the displacement that carries `moving` onto `fixed`, coarse to fine.
///
/// The images may lie on different grids (spacing, orientation, size, origin): their headers place
/// them in physical space, and nothing else aligns them before the deformation. Intensities are
/// scaled to [0, 1] for the comparison; the result has the moving image's own.
///
/// Computed on `device` in f32. On the CPU the same input gives the same bits.
///
/// # Errors
/// [`Error::Invalid`] for a setting without meaning or that the device lacks, a constant image or fewer than
/// [`MINIMUM_AXIS_VOXELS`](super::MINIMUM_AXIS_VOXELS) along an axis; [`Error::NonFinite`] for NaN or
/// infinite voxels; [`Error::NoOverlap`] when the grids hardly overlap; [`Error::Device`] when the
/// device fails.
pub fn register(
    fixed: &Volume,
    moving: &Volume,
    settings: &Settings,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    let device = device.clone().inner();
    check_moments(settings.moments, &device)?;
    let [scaled_fixed, scaled_moving] = prepare(fixed, moving, settings)?;
    let images = [scaled_fixed.to_tensor(&device), scaled_moving.to_tensor(&device)];
    drop((scaled_fixed, scaled_moving));

    let mut run = Run { fixed, moving, images, settings, device, observer };
    let mut levels = Vec::with_capacity(settings.levels.len());
    let mut state: Option<State> = None;
    let mut finest = None;
    for index in 0..settings.levels.len() {
        let (greedy, at) = run.enter(index, state.take())?;
        let (report, at) = run.level(index, &greedy, at)?;
        let cancelled = report.stop == Stop::Cancelled;
        let ended = run.observer.level_finished(&report);
        levels.push(report);
        state = Some(at);
        finest = Some(greedy);
        if cancelled || ended.is_break() {
            break;
        }
    }
    let (Some(state), Some(greedy)) = (state, finest) else {
        unreachable!("settings with no level do not validate")
    };
    run.finish(levels, &greedy, state.displacement)
}

/// Everything that stays the same during a run.
struct Run<'a> {
    fixed: &'a Volume,
    moving: &'a Volume,
    /// Fixed and moving, scaled, at full resolution.
    images: [Tensor<5>; 2],
    settings: &'a Settings,
    device: Device,
    observer: &'a mut dyn Observer,
}

impl Run<'_> {
    /// The problem of a level, and the state to start it from.
    fn enter(&self, index: usize, state: Option<State>) -> Result<(Greedy, State)> {
        let finest_mm = self.fixed.geometry.spacing_mm.into_iter().fold(f64::INFINITY, f64::min);
        let spacing_mm = self.settings.levels[index].shrink * finest_mm;
        let fixed = level_image(&self.images[0], &self.fixed.geometry, spacing_mm)?;
        let moving = level_image(&self.images[1], &self.moving.geometry, spacing_mm)?;
        let LevelImage { geometry, .. } = &fixed;
        let state = match state {
            None => State::identity(geometry.clone(), &self.device),
            Some(state) => state.resampled(geometry),
        };
        Ok((Greedy::new(fixed, moving, self.settings), state))
    }

    /// The iterations of one level.
    fn level(
        &mut self,
        index: usize,
        greedy: &Greedy,
        mut state: State,
    ) -> Result<(LevelReport, State)> {
        let start = Instant::now();
        let LevelSettings { shrink, iterations } = self.settings.levels[index];
        let size = state.displacement.geometry().size;
        let count = self.settings.levels.len();
        let level = LevelStart { index, count, shrink, size, iterations };
        let mut losses = Vec::with_capacity(iterations);
        let mut stop = Stop::IterationsSpent;
        if self.observer.level_started(&level).is_break() {
            stop = Stop::Cancelled;
        }
        while stop == Stop::IterationsSpent && losses.len() < iterations {
            let next = self.settings.loss_interval.min(iterations - losses.len());
            let read;
            (read, state) = greedy.steps(state, next)?;
            losses.extend(read);
            let loss = *losses.last().expect("at least one iteration was done");
            check_finite_loss(loss)?;
            let progress = Progress { level: index, iteration: losses.len(), iterations, loss };
            if self.observer.losses_read(&progress) == ControlFlow::Break(()) {
                stop = Stop::Cancelled;
            } else if has_converged(&losses, &self.settings.convergence) {
                stop = Stop::Converged;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok((LevelReport { shrink, size, losses, stop, seconds }, state))
    }

    /// The result on the full grid, judged.
    fn finish(
        self,
        levels: Vec<LevelReport>,
        greedy: &Greedy,
        displacement: Displacement,
    ) -> Result<Registration> {
        let identity = Displacement::zero(displacement.geometry().clone(), &self.device);
        let loss_before = greedy.loss_at(&identity)?;
        let loss_after = greedy.loss_at(&displacement)?;
        check_finite_loss(loss_after)?;
        let cancelled = levels.len() < self.settings.levels.len()
            || levels.iter().any(|level| level.stop == Stop::Cancelled);
        let outcome = match loss_after < loss_before {
            _ if cancelled => Outcome::Cancelled,
            true => Outcome::Improved,
            false => Outcome::NotImproved,
        };
        let displacement = displacement.resampled(&self.fixed.geometry);
        let warped = displacement.warp(self.moving)?;
        Ok(Registration { displacement, warped, levels, loss_before, loss_after, outcome })
    }
}

fn check_moments(storage: MomentStorage, device: &Device) -> Result<()> {
    if storage == MomentStorage::Full || device.supports_dtype(DType::BF16) {
        return Ok(());
    }
    let what = "moments in bf16 need a device that has the type";
    Err(Error::invalid(what, device, "use moments = \"full\", or another device"))
}

fn check_finite_loss(loss: f64) -> Result<()> {
    if loss.is_finite() {
        return Ok(());
    }
    let reason = format!("the loss became {loss}, though both images are finite");
    Err(Error::device("optimising the displacement", reason))
}
