//! Everybody who follows a registration: the progress on stderr, the log, the checkpoints.

use std::ops::ControlFlow;

use ffdp_register::{
    Observer,
    checkpoint::Checkpoint,
    report::{LevelReport, LevelStart, NewtonStep, Progress},
};
use serde_json::json;

use crate::checkpoint::Keeper;
use crate::output::OutputFolder;
use crate::progress::ProgressPrinter;

/// Passes the events of the registration to each of them.
pub struct Watch<'a> {
    pub progress: ProgressPrinter,
    pub output: &'a mut OutputFolder,
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
            self.output.journal().event("stage", json!({"stage": number, "transform": name}));
        }
        self.output.journal().event(
            "level",
            json!({"stage": number, "transform": name, "level": index + 1, "levels": count,
                   "shrink": shrink, "size": size, "iterations": iterations}),
        );
        self.progress.level_started(level)
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        let Progress { level, iteration, loss, .. } = progress;
        self.output.journal().event(
            "loss",
            json!({"stage": self.stage + 1, "level": level + 1, "iteration": iteration,
                   "loss": loss}),
        );
        self.progress.losses_read(progress)
    }

    fn newton_step(&mut self, step: &NewtonStep) {
        self.output.journal().event("newton", json!({"stage": self.stage + 1, "step": step}));
        self.progress.newton_step(step);
    }

    fn level_finished(&mut self, level: &LevelReport) -> ControlFlow<()> {
        self.output.journal().event(
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
        let Some(keeper) = self.keeper.as_mut().filter(|keeper| keeper.is_due()) else { return };
        // An earlier run's results and this one's checkpoint are not to be mixed.
        let begun = self.output.begin();
        if keeper.keep(begun, checkpoint) {
            let (stages, levels) = (checkpoint.stages.len(), checkpoint.levels.len());
            self.output
                .journal()
                .event("checkpoint", json!({"stages_done": stages, "levels_done": levels}));
        }
    }
}
