//! What stages work with: the images at any level, where they go, who shares them, and what was found so far.

use burn::tensor::Tensor;

use super::checkpoint::Checkpoint;
use super::coverage::Coverage;
use super::fields::{Deformed, Fields};
use super::observer::Observer;
use super::pair::LevelPair;
use super::places::{Placement, Places};
use super::prepare::Side;
use super::processes::Processes;
use super::pyramid::{finest_spacing_mm, level_grids, on_level, plane_axis};
use super::report::{LevelReport, StageReport};
use super::settings::LevelSettings;
use super::source::Scaled;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical};
use ffdp_parallel::{DeviceMesh, ExactMemory, Layout, Sharded};

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

/// Fixed and moving at full resolution.
pub(super) enum Sides<'a> {
    /// On the first device.
    Held(Box<[Side; 2]>),
    /// Where they are read from, slab by slab.
    Read(Box<[Scaled<'a>; 2]>),
}

/// Everything that stays the same during a run.
pub(super) struct Run<'a> {
    /// Of the fixed and the moving image.
    pub grids: [Geometry; 2],
    pub sides: Sides<'a>,
    /// Which of them get a mask, as far as their grids reach.
    pub coverage: Coverage,
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
    /// The affine map at the start.
    pub initial: Affine<Physical, Physical>,
    pub observer: &'a mut dyn Observer,
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
    pub fn take_resumed(&mut self) -> Result<(Vec<LevelReport>, Option<Fields>)> {
        let carried = std::mem::take(&mut self.checkpoint.carried);
        let fields =
            Fields::restored(carried, self.placement.home(), matches!(self.sides, Sides::Held(_)));
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

    /// Channels of an image without its mask, and which images have one.
    pub fn content(&self) -> (usize, [bool; 2]) {
        let (channels, given) = match &self.sides {
            Sides::Held(sides) => {
                let masked = sides.each_ref().map(|side| side.mask.is_some());
                // With weights, windows hold only what there is: this plane, no zeros around it.
                (sides[0].image.dims()[1], [masked[0] || self.is_plane(), masked[1]])
            }
            Sides::Read(sides) => (sides[0].scales.len(), sides.each_ref().map(Scaled::is_masked)),
        };
        let covered = self.coverage.masks();
        (channels, [0, 1].map(|i| given[i] || covered[i]))
    }

    fn is_plane(&self) -> bool {
        plane_axis(&self.grids[0]).is_some()
    }

    /// Where a linear stage has a level.
    pub fn linear_places(&self, grids: &[Geometry; 2]) -> Result<Places> {
        let (channels, masked) = self.content();
        let channels = masked.map(|masked| channels + usize::from(masked));
        self.placement.linear_places(grids.each_ref(), channels)
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
    /// the level before asked for, and what was dropped is in use until all that was recorded has been done.
    pub fn settle(&self) -> Result<()> {
        if matches!(self.sides, Sides::Held(_)) {
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
        let (_, masked) = self.content();
        let whole = places.are_whole();
        let images = match (&mut self.sides, whole) {
            (Sides::Read(sides), false) => {
                let [fixed, moving] = &mut **sides;
                let meshes = [&places.moving_work, &places.moving_rest];
                let fixed = fixed.level(&grids[0], &places.fixed, [&places.work, &places.rest])?;
                [fixed, moving.level(&grids[1], &places.moving, meshes)?]
            }
            _ => {
                let cut = |image: Tensor<5>, layout: &Layout, mesh: &DeviceMesh| {
                    Sharded::from_tensor(image, layout, mesh)
                };
                let [fixed, moving] = self.whole_level(&grids)?;
                let fixed = cut(fixed, &places.fixed, &places.work);
                [fixed, cut(moving, &places.moving, &places.moving_work)]
            }
        };
        Ok(LevelPair::new(grids, images, masked, places, exact))
    }

    /// Both images on a level in one piece on the first device, each with its mask as last channel. Small ones are kept
    /// for the stages to come.
    fn whole_level(&mut self, grids: &[Geometry; 2]) -> Result<[Tensor<5>; 2]> {
        let spacing_mm = finest_spacing_mm(&grids[0]);
        let known = self.levels.iter().find(|(kept, images)| {
            *kept == spacing_mm && (0..2).all(|i| images[i].dims()[2..] == grids[i].dims())
        });
        if let Some((_, images)) = known {
            return Ok(images.clone());
        }
        let home = self.placement.home().clone();
        let (_, masked) = self.content();
        let images = match &mut self.sides {
            Sides::Held(sides) => {
                let of = |i: usize| {
                    let at = |image: &Tensor<5>| on_level(image, &self.grids[i], &grids[i]);
                    let image = at(&sides[i].image);
                    let mask = match &sides[i].mask {
                        Some(mask) => Some(at(mask)),
                        None => masked[i].then(|| image.clone().narrow(1, 0, 1).ones_like()),
                    };
                    let Some(mask) = mask else { return image };
                    let mask = self.coverage.limit(i, mask, &grids[i], 0..grids[i].size[2]);
                    Tensor::cat(vec![image, mask], 1)
                };
                [of(0), of(1)]
            }
            Sides::Read(sides) => {
                let [fixed, moving] = &mut **sides;
                let one = DeviceMesh::one(&home);
                let of = |side: &mut Scaled, grid: &Geometry| {
                    let layout = Layout::balanced(grid.dims(), Default::default(), 1)?;
                    let level = side.level(grid, &layout, [&one, &one])?;
                    Ok::<_, Error>(level.into_shards().remove(0))
                };
                [of(fixed, &grids[0])?, of(moving, &grids[1])?]
            }
        };
        if (0..2).all(|i| LARGEST_KEPT_PART * grids[i].len() <= self.grids[i].len()) {
            self.levels.push((spacing_mm, images.clone()));
        }
        Ok(images)
    }
}
