//! Everybody who follows a registration: the progress on stderr, the log, the checkpoints.

use std::ops::ControlFlow;

use ffdp_register::{Checkpoint, LevelReport, LevelStart, Observer, Progress};
use serde_json::json;

use crate::checkpoint::Keeper;
use crate::journal::Journal;
use crate::progress::ProgressPrinter;

/// Tells each of them what the registration tells.
pub struct Watch<'a> {
    pub progress: ProgressPrinter,
    pub journal: &'a mut Journal,
    /// Nobody where a run cannot be continued.
    pub keeper: Option<Keeper>,
    /// Number of the stage under way, from 0.
    pub stage: usize,
}

impl Observer for Watch<'_> {
    fn level_started(&mut self, level: &LevelStart) -> ControlFlow<()> {
        let (number, name) = (self.stage + 1, level.stage);
        let LevelStart { index, count, shrink, size, iterations, .. } = level;
        if *index == 0 {
            self.journal.event("stage", json!({"stage": number, "transform": name}));
        }
        self.journal.event(
            "level",
            json!({"stage": number, "transform": name, "level": index + 1, "levels": count,
                   "shrink": shrink, "size": size, "iterations": iterations}),
        );
        self.progress.level_started(level)
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        let Progress { level, iteration, loss, .. } = progress;
        self.journal.event(
            "loss",
            json!({"stage": self.stage + 1, "level": level + 1, "iteration": iteration,
                   "loss": loss}),
        );
        self.progress.losses_read(progress)
    }

    fn level_finished(&mut self, level: &LevelReport) -> ControlFlow<()> {
        self.journal.event(
            "level_end",
            json!({"stage": self.stage + 1, "shrink": level.shrink,
                   "iterations": level.losses.len(), "first_loss": level.losses.first(),
                   "last_loss": level.losses.last(), "stop": level.stop,
                   "level_seconds": level.seconds}),
        );
        self.progress.level_finished(level)
    }

    fn reached(&mut self, checkpoint: &Checkpoint) {
        self.stage = checkpoint.stages.len();
        if self.keeper.as_mut().is_some_and(|keeper| keeper.keep(checkpoint)) {
            let (stages, levels) = (checkpoint.stages.len(), checkpoint.levels.len());
            self.journal.event("checkpoint", json!({"stages_done": stages, "levels_done": levels}));
        }
    }
}
