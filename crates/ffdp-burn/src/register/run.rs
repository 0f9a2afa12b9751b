//! A registration from beginning to end: its stages, one after the other, wherever its images come from and
//! whoever shares it.

use burn::tensor::{DType, Device, Tensor};
use serde::Serialize;

use super::checkpoint::{Carried, Checkpoint};
use super::deformable::{Deformed, Fields, Kind, deform};
use super::level::{LevelReport, Stop, check_finite_loss};
use super::linear;
use super::observer::Observer;
use super::pair::LevelPair;
use super::places::{Places, Room};
use super::prepare::{Side, check_overlap, prepare};
use super::problem::Problem;
use super::processes::{Processes, Report};
use super::pyramid::{finest_spacing_mm, level_grids, on_level};
use super::settings::{LevelSettings, OptimizerSettings, Settings, Stage};
use super::source::Scaled;
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical, Volume};
use crate::ops::MomentStorage;
use crate::parallel::{ExactMemory, Layout, Mesh, Sharded};
use crate::transform::{Composite, Displacement, Step};

/// What a registration found: the map `phi(x) = A (x + w(x))` from fixed to moving.
#[derive(Clone, Debug)]
pub struct Registration {
    /// `A`, in RAS mm; the initial placement where no stage changed it.
    pub affine: Affine<Physical, Physical>,
    /// `w`, on the grid of the fixed image; `None` without a deformable stage.
    pub warp: Option<Displacement>,
    /// `w'` with `id + w' = (id + w)^-1`, on the same grid, where the last deformable stage gives it
    /// (SyN, velocities): `phi^-1(y) = A^-1 y + w'(A^-1 y)`.
    pub inverse: Option<Displacement>,
    /// The moving image seen through it, on the fixed grid, in the moving image's intensities.
    pub warped: Volume,
    /// One report per stage.
    pub stages: Vec<StageReport>,
    /// The loss of the last stage's finest level as the images were placed at the start; the
    /// similarity alone, without penalties.
    pub loss_before: f64,
    /// The same with the result.
    pub loss_after: f64,
    /// Whether it is worth anything.
    pub outcome: Outcome,
}

impl Registration {
    /// The map as its steps.
    pub fn transform(&self) -> Composite {
        let warp = self.warp.clone().map(Step::Displacement);
        Composite::new(warp.into_iter().chain([Step::Affine(self.affine)]).collect())
    }
}

/// How a stage went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// Its kind, as settings name it.
    pub transform: &'static str,
    /// One report per level.
    pub levels: Vec<LevelReport>,
    /// The loss of its finest level at its end.
    pub loss_after: f64,
    /// Whether its result was kept: a stage that makes that loss worse is undone, and the next one
    /// starts where it did.
    pub kept: bool,
    /// Time spent on it.
    pub seconds: f64,
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
    /// Of stages between two losses.
    fn of(stages: &[StageReport], [before, after]: [f64; 2]) -> Self {
        let mut levels = stages.iter().flat_map(|stage| &stage.levels);
        match after < before {
            _ if levels.any(|level| level.stop == Stop::Cancelled) => Self::Cancelled,
            true => Self::Improved,
            false => Self::NotImproved,
        }
    }

    /// What a user can do about it; `None` when all is well.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::Improved => None,
            Self::NotImproved => Some(
                "the images did not become more alike: check that they show the same anatomy, that \
                 linear stages come before the deformation (or that an initial transform places \
                 it), and that the metric suits them (mse needs equal intensities)",
            ),
            Self::Cancelled => Some("the run was ended early; run it again to the end"),
        }
    }
}

/// Finds the transform that carries the moving onto the fixed image, stage by stage, coarse to
/// fine.
///
/// The images may lie on different grids (spacing, orientation, size, origin): their headers and
/// [`Problem::initial`] place them in physical space. Intensities are scaled to [0, 1] for the
/// comparison; the result has the moving image's own.
///
/// Computed on `device` in f32. On the CPU the same input gives the same bits.
///
/// # Errors
/// [`Error::Invalid`] for a setting without meaning or that the device lacks, a constant image or
/// fewer than [`MINIMUM_AXIS_VOXELS`](super::MINIMUM_AXIS_VOXELS) along an axis;
/// [`Error::NonFinite`] for NaN or infinite voxels; [`Error::NoOverlap`] when the grids hardly
/// overlap; [`Error::Device`] when the device fails.
pub fn register(
    problem: &Problem,
    settings: &Settings,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    register_on(&Mesh::one(device), problem, settings, observer)
}

/// [`register`] on several devices, or in several shards of one: the images and all that belongs to a voxel are cut
/// along z; linear stages run on the first device unless several share a large level. The result is that of one
/// device but for rounding.
///
/// # Errors
/// As [`register`]; [`Error::Invalid`] for a mesh of several shards and images of one plane.
pub fn register_on(
    mesh: &Mesh,
    problem: &Problem,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    resume_on(mesh, Checkpoint::start(problem.initial), problem, settings, observer)
}

/// [`register`], continued from what an earlier run with the same arguments has
/// [`reached`](Observer::reached).
///
/// # Errors
/// As [`register`]; [`Error::Invalid`] when the checkpoint has more stages than the settings.
pub fn resume(
    checkpoint: Checkpoint,
    problem: &Problem,
    settings: &Settings,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    resume_on(&Mesh::one(device), checkpoint, problem, settings, observer)
}

/// [`resume`] on several devices, or in several shards of one.
///
/// # Errors
/// As [`resume`] and [`register_on`].
pub fn resume_on(
    mesh: &Mesh,
    checkpoint: Checkpoint,
    problem: &Problem,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    let mesh = mesh.inner();
    check_planes(&mesh, &problem.fixed.geometry)?;
    mesh.devices().iter().try_for_each(|device| check_moment_storage(settings, device))?;
    let sides = prepare(problem, settings, mesh.device(0))?;
    let grids = [&problem.fixed.geometry, &problem.moving.geometry].map(Geometry::clone);
    let mut run = Run {
        grids,
        sides: Sides::Held(Box::new(sides)),
        levels: Vec::new(),
        settings,
        room: Room::Mesh(mesh.clone()),
        processes: Processes::alone(),
        initial: problem.initial,
        observer,
        checkpoint,
    };
    let Ended { found, stages, loss_before, loss_after, outcome } = run.stages()?;
    let Found { affine, deformed } = found;
    let (warp, inverse) = match &deformed {
        Some(deformed) => run.on_full_grid(deformed)?,
        None => (None, None),
    };
    let steps = warp.clone().map(Step::Displacement).into_iter().chain([Step::Affine(affine)]);
    let warped = Composite::new(steps.collect()).warp(
        problem.moving,
        &problem.fixed.geometry,
        mesh.device(0),
    )?;
    Ok(Registration { affine, warp, inverse, warped, stages, loss_before, loss_after, outcome })
}

/// What the stages have found so far.
#[derive(Clone)]
pub(super) struct Found {
    /// `A`.
    pub affine: Affine<Physical, Physical>,
    /// What comes before it, on the grid of the level that found it.
    pub deformed: Option<Deformed>,
}

/// What a stage has come to.
pub(super) struct Staged {
    pub found: Found,
    pub report: StageReport,
    /// On its finest level: the loss of the affine map that it began with, and of that at the start of the run.
    pub loss_without: f64,
    pub loss_before: f64,
}

/// What all stages have come to.
pub(super) struct Ended {
    pub found: Found,
    pub stages: Vec<StageReport>,
    pub loss_before: f64,
    pub loss_after: f64,
    pub outcome: Outcome,
}

/// Fixed and moving at full resolution.
pub(super) enum Sides<'a> {
    /// On the first device.
    Held(Box<[Side; 2]>),
    /// Where they are read from, slab by slab.
    Read([Scaled<'a>; 2]),
}

/// Everything that stays the same during a run.
pub(super) struct Run<'a> {
    /// Of the fixed and the moving image.
    pub grids: [Geometry; 2],
    pub sides: Sides<'a>,
    /// Small levels of both in one piece, by their spacing in mm: stages share them.
    pub levels: Vec<(f64, [Tensor<5>; 2])>,
    pub settings: &'a Settings,
    /// Where levels go.
    pub room: Room,
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
    /// All stages that the checkpoint has not done.
    pub fn stages(&mut self) -> Result<Ended> {
        let settings = self.settings;
        let mut stages = self.checkpoint.stages.clone();
        if stages.len() >= settings.stages.len() {
            let what = "a checkpoint must belong to the settings: it has as many stages or more";
            return Err(Error::invalid(what, stages.len(), "start the run anew"));
        }
        let warp = self.checkpoint.warp.take().map(|warp| Fields::whole(vec![warp]));
        let deformed = warp.flatten().map(Deformed::greedy);
        let mut found = Found { affine: self.checkpoint.affine, deformed };
        let mut loss_before = f64::NAN;
        for stage in &settings.stages[stages.len()..] {
            let before = found.clone();
            let mut staged = match Kind::of(stage) {
                Some(kind) => deform(self, &kind, found)?,
                None => self.linear(stage, found)?,
            };
            (found, loss_before) = (kept(stage, before, &mut staged)?, staged.loss_before);
            if matches!(stage, Stage::Moments(_)) {
                check_overlap(&self.grids[0], &self.grids[1], &found.affine)?;
            }
            let ended = staged.report.levels.iter().any(|level| level.stop == Stop::Cancelled);
            stages.push(staged.report);
            if ended {
                break;
            }
            if stages.len() < settings.stages.len() {
                self.stage_done(&stages, &found)?;
            }
        }
        let loss_after = stages.last().expect("settings with no stage do not validate").loss_after;
        check_finite_loss(loss_after)?;
        let outcome = Outcome::of(&stages, [loss_before, loss_after]);
        Ok(Ended { found, stages, loss_before, loss_after, outcome })
    }

    /// A linear stage, on rank 0; what it has found, on all.
    fn linear(&mut self, stage: &Stage, found: Found) -> Result<Staged> {
        let processes = self.processes.clone();
        let deformed = found.deformed.clone();
        let told = processes.first_does(|| {
            let staged = match stage {
                Stage::Moments(settings) => linear::moments(self, settings, found)?,
                Stage::Rigid(settings) => linear::rigid(self, settings, found)?,
                Stage::Affine(settings) => linear::affine(self, settings, found)?,
                Stage::Greedy(_) | Stage::Syn(_) | Stage::Svf(_) => {
                    unreachable!("deformable stages have a kind")
                }
            };
            let Staged { found, report, loss_without, loss_before } = staged;
            let losses = vec![report.loss_after, loss_without, loss_before, report.seconds];
            let numbers = [found.affine.rows().concat(), losses].concat();
            Ok(Report::new(&numbers, report.levels, report.kept))
        })?;
        let numbers = told.numbers();
        let row = |first: usize| [0, 1, 2, 3].map(|column| numbers[first + column]);
        let affine = Affine::from_rows([row(0), row(4), row(8)]);
        let [loss_after, loss_without, loss_before, seconds] = row(12);
        let Report { levels, kept, .. } = told;
        let transform = stage.name();
        Ok(Staged {
            found: Found { affine, deformed },
            report: StageReport { transform, levels, loss_after, kept, seconds },
            loss_without,
            loss_before,
        })
    }

    /// The same run, as if there were no other processes.
    pub fn alone<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let processes = std::mem::replace(&mut self.processes, Processes::alone());
        let done = work(self);
        self.processes = processes;
        done
    }

    /// The levels of the stage under way that an earlier run has done, with what the next one starts
    /// from; nothing where the stage begins.
    pub fn take_resumed(&mut self) -> (Vec<LevelReport>, Carried) {
        (std::mem::take(&mut self.checkpoint.levels), std::mem::take(&mut self.checkpoint.carried))
    }

    /// Tells the observer that the stage under way can be continued after `levels` with `fields`. Of images that are
    /// read slab by slab there is no such point: no memory need hold the fields in one piece.
    pub fn level_done(&mut self, levels: &[LevelReport], fields: &Fields) -> Result<()> {
        if matches!(self.sides, Sides::Read(_)) {
            return Ok(());
        }
        self.checkpoint.levels = levels.to_vec();
        self.checkpoint.carried = Carried::of(fields)?;
        self.observer.reached(&self.checkpoint);
        // Let go of the fields: what is shared cannot be changed in place.
        self.checkpoint.carried = Carried::default();
        Ok(())
    }

    fn stage_done(&mut self, stages: &[StageReport], found: &Found) -> Result<()> {
        let warp = match (&self.sides, &found.deformed) {
            (Sides::Read(_), Some(_)) => return Ok(()),
            (_, None) => None,
            (Sides::Held(_), Some(deformed)) => Some(deformed.maps()?.0.gathered()?.remove(0)),
        };
        let start = Checkpoint::start(found.affine);
        self.checkpoint = Checkpoint { stages: stages.to_vec(), warp, ..start };
        self.observer.reached(&self.checkpoint);
        self.checkpoint.warp = None;
        Ok(())
    }

    /// `w` and its inverse, where the method gives it, on the grid of the fixed image.
    fn on_full_grid(
        &self,
        deformed: &Deformed,
    ) -> Result<(Option<Displacement>, Option<Displacement>)> {
        let [fixed, moving] = self.grids.each_ref().map(Geometry::dims);
        let places = Places::whole(self.room.home(), [fixed, moving])?;
        let fields = deformed.fields.clone().resampled(&self.grids[0], &places)?;
        let (warp, inverse) = Deformed { method: deformed.method, fields }.maps()?;
        let whole = |fields: Fields| Ok::<_, Error>(fields.gathered()?.remove(0));
        Ok((Some(whole(warp)?), inverse.map(whole).transpose()?))
    }

    /// The grids of the images on a level.
    pub fn level_grids(&self, level: &LevelSettings) -> Result<[Geometry; 2]> {
        level_grids(&self.grids, self.settings, level)
    }

    /// Channels of an image without its mask, and which images have one.
    pub fn content(&self) -> (usize, [bool; 2]) {
        match &self.sides {
            Sides::Held(sides) => {
                let masked = sides.each_ref().map(|side| side.mask.is_some());
                // With weights, windows hold only what there is: this plane, no zeros around it.
                (sides[0].image.dims()[1], [masked[0] || self.is_plane(), masked[1]])
            }
            Sides::Read(sides) => (1, sides.each_ref().map(Scaled::is_masked)),
        }
    }

    fn is_plane(&self) -> bool {
        self.grids[0].size[2] == 1
    }

    /// Where a linear stage has a level.
    pub fn linear_places(&self, grids: &[Geometry; 2]) -> Result<Places> {
        let (channels, masked) = self.content();
        let channels = masked.map(|masked| channels + usize::from(masked));
        self.room.linear_places(grids.each_ref(), channels)
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
        self.room.devices().iter().try_for_each(|device| {
            device.sync().map_err(|reason| Error::device("waiting for a level", reason))?;
            device.memory_cleanup();
            Ok(())
        })
    }

    /// The images on the grids of a level, where `places` say.
    pub fn pair(&mut self, grids: [Geometry; 2], places: Places) -> Result<LevelPair> {
        let exact = places.exact.map(|planned| ExactMemory::on(self.room.home(), planned));
        let (_, masked) = self.content();
        let whole = places.are_whole();
        let images = match (&mut self.sides, whole) {
            (Sides::Read([fixed, moving]), false) => {
                let meshes = [&places.moving_work, &places.moving_rest];
                let fixed = fixed.level(&grids[0], &places.fixed, [&places.work, &places.rest])?;
                [fixed, moving.level(&grids[1], &places.moving, meshes)?]
            }
            _ => {
                let cut = |image: Tensor<5>, layout: &Layout, mesh: &Mesh| {
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
        let home = self.room.home().clone();
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
                    match mask {
                        None => image,
                        Some(mask) => Tensor::cat(vec![image, mask], 1),
                    }
                };
                [of(0), of(1)]
            }
            Sides::Read([fixed, moving]) => {
                let one = Mesh::one(&home);
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

/// What a stage found, or what was there before it if that is more alike. Moments have tried the start
/// themselves; a deformation that refines another one starts from it and is not judged.
fn kept(stage: &Stage, before: Found, staged: &mut Staged) -> Result<Found> {
    let refines = before.deformed.is_some();
    if matches!(stage, Stage::Moments(_))
        || refines
        || staged.report.loss_after <= staged.loss_without
    {
        return Ok(staged.found.clone());
    }
    check_finite_loss(staged.report.loss_after)?;
    (staged.report.kept, staged.report.loss_after) = (false, staged.loss_without);
    Ok(before)
}

/// Demands that volumes which are to be cut have several planes.
pub(super) fn check_planes(mesh: &Mesh, fixed: &Geometry) -> Result<()> {
    if mesh.count() == 1 || fixed.size[2] > 1 {
        return Ok(());
    }
    let what = "in several shards images have several planes";
    Err(Error::invalid(what, fixed.size[2], "use one device and one shard"))
}

pub(super) fn check_moment_storage(settings: &Settings, device: &Device) -> Result<()> {
    let stores_bf16 = |stage: &Stage| {
        let optimizer = stage.descent().map(|descent| descent.optimizer);
        matches!(optimizer, Some(OptimizerSettings::Adam(adam)) if adam.moments == MomentStorage::Bf16)
    };
    if !settings.stages.iter().any(stores_bf16) || device.supports_dtype(DType::BF16) {
        return Ok(());
    }
    let what = "moments in bf16 need a device that has the type";
    Err(Error::invalid(what, device, "use moments = \"full\", or another device"))
}
