//! What stages work with: the images at any level, where they go, who shares them, and what was found so far.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::checkpoint::{Checkpoint, SavedField};
use super::fields::Fields;
use super::labels::LabelChannels;
use super::landmarks::Pairs;
use super::level_memory::LevelProblem;
use super::models::Deformed;
use super::observer::Observer;
use super::pair::LevelPair;
use super::parametric::Parametric;
use super::places::{Placement, Places};
use super::problem::Content;
use super::processes::Processes;
use super::pyramid::{finest_spacing_mm, level_grids};
use super::report::{LevelReport, StageReport};
use super::settings::LevelSettings;
use super::side::{Side, content_of};
use super::start::Start;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical};
use ffdp_parallel::{Sharded, memory::ExactMemory};

/// What the stages have found so far.
#[derive(Clone)]
pub(super) struct Estimate {
    /// `A`.
    pub affine: Affine<Physical, Physical>,
    /// What comes before it, on the grid of the level that found it.
    pub deformed: Option<Deformed>,
}

/// The result of a stage.
pub(super) struct StageResult {
    pub found: Estimate,
    pub report: StageReport,
    /// On its finest level: the loss of the affine map that it began with, and of that at the start of the run.
    pub loss_without: f64,
    pub loss_before: f64,
}

/// Everything that stays the same during a run.
pub(super) struct Run<'a> {
    /// Of the fixed and the moving image.
    pub grids: [Geometry; 2],
    pub sides: [Side<'a>; 2],
    /// Whether the first device holds both at full size.
    pub whole: bool,
    /// Small levels of both in one piece, by their spacing in mm: stages share them.
    pub levels: Vec<(f64, [Tensor<5>; 2])>,
    /// Iterations between two reads of the loss.
    pub loss_interval: usize,
    /// No axis of a level has fewer voxels.
    pub minimum_axis: usize,
    /// Where levels go.
    pub placement: Placement,
    /// Who shares them.
    pub processes: Processes,
    pub start: Start,
    pub landmarks: Option<Pairs>,
    pub labels: Option<LabelChannels>,
    pub observer: Box<dyn Observer + 'a>,
    pub checkpoint: Checkpoint,
}

/// Levels are kept that take at most one part in this many of the image's memory.
const LARGEST_KEPT_PART: usize = 8;

impl Run<'_> {
    /// The same run, as if there were no other processes.
    pub fn alone<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let processes = std::mem::replace(&mut self.processes, Processes::alone());
        let done = work(self);
        self.processes = processes;
        done
    }

    /// The levels of the stage under way that an earlier run has done, with what the next one starts
    /// from; nothing where the stage begins.
    pub fn take_resumed(
        &mut self,
        restore: impl Fn(&SavedField) -> Result<Arc<dyn Parametric>>,
    ) -> Result<(Vec<LevelReport>, Option<Fields>)> {
        let carried = std::mem::take(&mut self.checkpoint.carried);
        let fields = Fields::restored(carried, self.placement.home(), self.whole, restore);
        Ok((std::mem::take(&mut self.checkpoint.levels), fields?))
    }

    /// Notifies the observer that the stage under way can be continued after `levels` with `fields`; not of several
    /// processes, none of which has all of them.
    pub fn level_done(&mut self, levels: &[LevelReport], fields: &Fields) {
        if self.processes.is_several() {
            return;
        }
        self.checkpoint.levels = levels.to_vec();
        self.checkpoint.carried = fields.saved();
        self.observer.reached(&self.checkpoint);
        // Release the fields: what is shared cannot be changed in place.
        self.checkpoint.carried.clear();
    }

    /// The grids of the images on a level.
    pub fn level_grids(&self, level: &LevelSettings) -> Result<[Geometry; 2]> {
        level_grids(&self.grids, self.minimum_axis, level)
    }

    /// What levels have.
    pub fn content(&self) -> Content {
        content_of(&self.sides, self.labels.map_or(0, |channels| channels.labels))
    }

    /// Where a linear stage has a level.
    pub fn linear_places(&self, grids: &[Geometry; 2]) -> Result<Places> {
        self.placement.places(&LevelProblem::linear(grids.each_ref(), self.content()))
    }

    /// The images of a linear stage's level in one piece; of a coarser level where that has no room.
    pub fn whole_pair(&mut self, level: &mut LevelSettings) -> Result<LevelPair> {
        loop {
            let grids = self.level_grids(level)?;
            let places = self.linear_places(&grids)?;
            if places.are_whole() {
                return self.pair(grids, places);
            }
            level.shrink *= 2.0;
        }
    }

    /// What images are read slab by slab for: that no device holds more than it must. Pools keep pages of the sizes that
    /// the level before asked for, and what was dropped is in use until all that was recorded has been done. Where shards
    /// come and go, images that were kept of small levels go as well: a page stays for the smallest buffer in it.
    pub fn settle(&mut self, places: &Places) -> Result<()> {
        if places.exact.is_some() {
            self.levels.clear();
        }
        if self.whole {
            return Ok(());
        }
        self.placement.devices().iter().try_for_each(|device| {
            device.sync().map_err(|reason| Error::device("waiting for a level", reason))?;
            device.memory_cleanup();
            Ok(())
        })
    }

    /// The images on the grids of a level, where `places` say.
    pub fn pair(&mut self, grids: [Geometry; 2], places: Places) -> Result<LevelPair> {
        let exact = places.exact.map(|planned| ExactMemory::on(self.placement.home(), planned));
        let Content { masked, .. } = self.content();
        let Places { fixed, moving, .. } = &places;
        let images = match self.whole || places.are_whole() {
            true => {
                let [of_fixed, of_moving] = self.whole_level(&grids)?;
                [
                    Sharded::from_tensor(of_fixed, &fixed.layout, &fixed.work),
                    Sharded::from_tensor(of_moving, &moving.layout, &moving.work),
                ]
            }
            false => {
                let [of_fixed, of_moving] = &mut self.sides;
                [of_fixed.level(&grids[0], fixed)?, of_moving.level(&grids[1], moving)?]
            }
        };
        let mut pair = LevelPair::new(grids, images, masked, places, exact);
        pair.landmarks = self.landmarks.clone();
        pair.labels = self.labels;
        Ok(pair)
    }

    /// Both images on a level in one piece on the first device, each with its weights as last channel. Small ones are
    /// kept for the stages to come.
    fn whole_level(&mut self, grids: &[Geometry; 2]) -> Result<[Tensor<5>; 2]> {
        let spacing_mm = finest_spacing_mm(&grids[0]);
        let known = self.levels.iter().find(|(kept, images)| {
            *kept == spacing_mm && (0..2).all(|i| images[i].dims()[2..] == grids[i].dims())
        });
        if let Some((_, images)) = known {
            return Ok(images.clone());
        }
        let home = self.placement.home().clone();
        let [fixed, moving] = &mut self.sides;
        let images = [fixed.whole_level(&grids[0], &home)?, moving.whole_level(&grids[1], &home)?];
        if (0..2).all(|i| LARGEST_KEPT_PART * grids[i].len() <= self.grids[i].len()) {
            self.levels.push((spacing_mm, images.clone()));
        }
        Ok(images)
    }
}
