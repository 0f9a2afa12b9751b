//! Watching a registration, and ending it early.

use std::ops::ControlFlow;

use super::checkpoint::Checkpoint;
use super::report::{LevelReport, LevelStart, NewtonStep, Progress};

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

    /// A step of Gauss and Newton was gone, and the system solved that led to it.
    fn newton_step(&mut self, _step: &NewtonStep) {}

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

impl<O: Observer + ?Sized> Observer for &mut O {
    fn level_started(&mut self, level: &LevelStart) -> ControlFlow<()> {
        (**self).level_started(level)
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        (**self).losses_read(progress)
    }

    fn newton_step(&mut self, step: &NewtonStep) {
        (**self).newton_step(step);
    }

    fn level_finished(&mut self, level: &LevelReport) -> ControlFlow<()> {
        (**self).level_finished(level)
    }

    fn reached(&mut self, checkpoint: &Checkpoint) {
        (**self).reached(checkpoint);
    }
}
