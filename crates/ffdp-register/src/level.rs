//! One level of one stage: iterations until they no longer help.

use std::ops::ControlFlow;
use std::time::Instant;

use super::convergence::has_converged;
use super::observer::Observer;
use super::report::{LevelReport, LevelStart, NewtonStep, Progress, Stop};
use super::settings::{ConvergenceSettings, LevelSettings};
use ffdp_image::error::{Error, Result};

/// Something that can be improved by iterations on one level.
pub trait Solver {
    /// Does some iterations, at least one the first time, and returns the loss before each of them; fewer than asked
    /// for when nothing more can be gained. Waits for the device at least once, to read the losses.
    ///
    /// # Errors
    /// [`Error::Device`] when losses cannot be read.
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>>;

    /// The steps of Gauss and Newton since it was asked last, by a method that solves a system for each. None by
    /// default.
    fn newton_steps(&mut self) -> Vec<NewtonStep> {
        Vec::new()
    }

    /// Whether an iteration takes so long that its loss is read at once. Not by default.
    fn is_slow(&self) -> bool {
        false
    }
}

/// What is said when level `index` of a stage begins, whose fixed image has `size` (x, y, z).
pub(super) fn level_start(
    stage: &'static str,
    index: usize,
    levels: &[LevelSettings],
    size: [usize; 3],
) -> LevelStart {
    let LevelSettings { shrink, iterations } = levels[index];
    LevelStart { stage, index, count: levels.len(), shrink, size, iterations }
}

/// Iterates until the loss has converged, the iterations of `level` are spent or the observer says
/// so, and reads the losses every `interval` iterations.
pub(super) fn run_level(
    level: &LevelStart,
    solver: &mut dyn Solver,
    convergence: &ConvergenceSettings,
    interval: usize,
    observer: &mut dyn Observer,
) -> Result<LevelReport> {
    let start = Instant::now();
    let &LevelStart { index, shrink, size, iterations, .. } = level;
    let (mut losses, mut newton) = (Vec::with_capacity(iterations), Vec::new());
    let interval = if solver.is_slow() { 1 } else { interval };
    let mut stop = Stop::IterationsSpent;
    if observer.level_started(level).is_break() {
        stop = Stop::Cancelled;
    }
    while stop == Stop::IterationsSpent && losses.len() < iterations {
        let asked = interval.min(iterations - losses.len());
        let read = solver.iterate(asked)?;
        let settled = read.len() < asked;
        losses.extend(read);
        for step in solver.newton_steps() {
            observer.newton_step(&step);
            newton.push(step);
        }
        let loss = *losses.last().expect("at least one iteration was done");
        check_finite_loss(loss)?;
        let progress = Progress { level: index, iteration: losses.len(), iterations, loss };
        if observer.losses_read(&progress) == ControlFlow::Break(()) {
            stop = Stop::Cancelled;
        } else if settled || has_converged(&losses, convergence) {
            stop = Stop::Converged;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let report = LevelReport { shrink, size, losses, stop, seconds, newton };
    if observer.level_finished(&report).is_break() {
        return Ok(LevelReport { stop: Stop::Cancelled, ..report });
    }
    Ok(report)
}

/// A loss that is not a number ends the run.
pub(super) fn check_finite_loss(loss: f64) -> Result<()> {
    if loss.is_finite() {
        return Ok(());
    }
    let reason = format!("the loss became {loss}, though both images are finite");
    Err(Error::device("optimising the transform", reason))
}
