//! Watching a registration, and ending it early.

use std::ops::ControlFlow;

use super::checkpoint::Checkpoint;
use super::level::LevelReport;

/// What an observer learns when a level begins.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelStart {
    /// Name of the stage, as settings have it.
    pub stage: &'static str,
    /// Number of the level, from 0.
    pub index: usize,
    /// Number of levels.
    pub count: usize,
    /// Its shrink factor.
    pub shrink: f64,
    /// Size (x, y, z) of the fixed image on this level, in voxels.
    pub size: [usize; 3],
    /// Iterations at most.
    pub iterations: usize,
}

/// What an observer learns whenever losses were read from the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Number of the level, from 0.
    pub level: usize,
    /// Iterations done on this level.
    pub iteration: usize,
    /// Iterations at most on this level.
    pub iterations: usize,
    /// The latest loss known.
    pub loss: f64,
}

/// Follows a registration. Every method has a default that does nothing; `Break` ends the run,
/// which then returns what it has.
pub trait Observer {
    /// A level begins.
    fn level_started(&mut self, _level: &LevelStart) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Losses were read; called every
    /// [`loss_interval`](super::Settings::loss_interval) iterations.
    fn losses_read(&mut self, _progress: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A level ended.
    fn level_finished(&mut self, _level: &LevelReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// The run could be continued from here; called after each level that was not cancelled.
    fn reached(&mut self, _checkpoint: &Checkpoint) {}
}

/// The observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}
