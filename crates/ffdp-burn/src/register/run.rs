//! A registration from beginning to end: its stages, one after the other.

use burn::tensor::{DType, Device, Tensor};
use serde::Serialize;

use super::checkpoint::{Carried, Checkpoint};
use super::comparison::{Alike, Comparison};
use super::deformable::{Kind, deform};
use super::level::{LevelReport, Stop, check_finite_loss};
use super::linear::{self, ShardedPair};
use super::observer::Observer;
use super::prepare::{Side, check_overlap, prepare};
use super::problem::Problem;
use super::pyramid::{LevelImage, finest_spacing_mm, level_geometry, level_image};
use super::settings::{LevelSettings, OptimizerSettings, Settings, Similarity, Stage};
use super::shards::check_shards;
use super::slabs::{Places, Room, Scaled};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical, Volume};
use crate::ops::{MomentStorage, Outside};
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
    pub(super) fn of(stages: &[StageReport], [before, after]: [f64; 2]) -> Self {
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

/// [`register`] on several devices, or in several shards of one: deformable stages cut the images and
/// all that belongs to a voxel along z; linear ones run on the first device. The result is that of one
/// device but for rounding.
///
/// # Errors
/// As [`register`]; [`Error::Invalid`] for a mesh of several shards with a stage that cannot be cut
/// (other optimisers than Adam, additive updates, penalties; SyN and velocities with masks), images of one
/// plane, or several channels compared by mutual information.
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
    mesh.devices().iter().try_for_each(|device| check_moment_storage(settings, device))?;
    check_shards(&mesh, problem, settings)?;
    let sides = prepare(problem, settings, mesh.device(0))?;
    let warp = checkpoint.warp.clone();
    let mut found = Found { affine: checkpoint.affine, warp, inverse: None };
    let mut stages = checkpoint.stages.clone();
    if stages.len() >= settings.stages.len() {
        let what = "a checkpoint must belong to the settings: it has as many stages or more";
        return Err(Error::invalid(what, stages.len(), "start the run anew"));
    }
    let levels = Vec::new();
    let grids = [&problem.fixed.geometry, &problem.moving.geometry].map(Geometry::clone);
    let sides = Sides::Held(Box::new(sides));
    let room = Room::Mesh(mesh.clone());
    let mut run = Run { grids, sides, levels, settings, mesh, room, observer, checkpoint };
    let mut last = None;
    for stage in &settings.stages[stages.len()..] {
        let before = found.clone();
        let on = &mut run;
        let (next, mut report, comparison): (_, _, Box<dyn Alike>) = match stage {
            Stage::Moments(settings) => linear::moments(on, settings, found)?,
            Stage::Rigid(settings) => linear::rigid(on, settings, found)?,
            Stage::Affine(settings) => linear::affine(on, settings, found)?,
            Stage::Greedy(settings) => whole(deform(on, &Kind::Greedy(settings), found)?),
            Stage::Syn(settings) => whole(deform(on, &Kind::Syn(settings), found)?),
            Stage::Svf(settings) => whole(deform(on, &Kind::Svf(settings), found)?),
        };
        let cancelled = report.levels.iter().any(|level| level.stop == Stop::Cancelled);
        found = keep_if_better(stage, before, next, &mut report, &*comparison)?;
        if matches!(stage, Stage::Moments(_)) {
            check_overlap(&run.grids[0], &run.grids[1], &found.affine)?;
        }
        stages.push(report);
        last = Some(comparison);
        if cancelled {
            break;
        }
        if stages.len() < settings.stages.len() {
            run.stage_done(&stages, &found);
        }
    }
    run.finish(problem, found, stages, &*last.expect("settings with no stage do not validate"))
}

/// What a stage found, or what was there before it if that is more alike. Moments have tried the start
/// themselves; a deformation that refines another one starts from it and is not judged.
pub(super) fn keep_if_better(
    stage: &Stage,
    before: Found,
    after: Found,
    report: &mut StageReport,
    comparison: &dyn Alike,
) -> Result<Found> {
    if matches!(stage, Stage::Moments(_)) || before.warp.is_some() {
        return Ok(after);
    }
    let loss_before = comparison.affine_loss(&before.affine)?;
    if report.loss_after <= loss_before {
        return Ok(after);
    }
    check_finite_loss(report.loss_after)?;
    (report.kept, report.loss_after) = (false, loss_before);
    Ok(before)
}

/// A stage whose images were whole.
fn whole(
    (found, report, comparison): (Found, StageReport, Comparison),
) -> (Found, StageReport, Box<dyn Alike>) {
    (found, report, Box::new(comparison))
}

/// What the stages have found so far.
#[derive(Clone)]
pub(super) struct Found {
    /// `A`.
    pub affine: Affine<Physical, Physical>,
    /// `w`, on the grid of the fixed image.
    pub warp: Option<Displacement>,
    /// Its inverse, where the method gives one.
    pub inverse: Option<Displacement>,
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
    /// Small levels of both, by their spacing in mm: stages share them.
    pub levels: Vec<(f64, [LevelSide; 2])>,
    pub settings: &'a Settings,
    /// Its first device holds what is not cut.
    pub mesh: Mesh,
    /// Where levels of linear stages may go that one device does not take.
    pub room: Room,
    pub observer: &'a mut dyn Observer,
    pub checkpoint: Checkpoint,
}

/// An image on a level, and its mask.
pub(super) type LevelSide = (LevelImage, Option<Tensor<5>>);

/// Levels are kept that take at most one part in this many of the image's memory.
const LARGEST_KEPT_PART: usize = 8;

impl Run<'_> {
    /// Where everything is that is not cut.
    pub fn device(&self) -> &Device {
        self.mesh.device(0)
    }

    /// The levels of the stage under way that an earlier run has done, with what the next one starts
    /// from; nothing where the stage begins.
    pub fn take_resumed(&mut self) -> (Vec<LevelReport>, Carried) {
        (std::mem::take(&mut self.checkpoint.levels), std::mem::take(&mut self.checkpoint.carried))
    }

    /// Tells the observer that the stage under way can be continued after `levels` with `carried`.
    pub fn level_done(&mut self, levels: &[LevelReport], carried: Carried) {
        self.checkpoint.levels = levels.to_vec();
        self.checkpoint.carried = carried;
        self.observer.reached(&self.checkpoint);
        // Let go of the fields: what is shared cannot be changed in place.
        self.checkpoint.carried = Carried::default();
    }

    fn stage_done(&mut self, stages: &[StageReport], found: &Found) {
        self.checkpoint = Checkpoint {
            stages: stages.to_vec(),
            warp: found.warp.clone(),
            ..Checkpoint::start(found.affine)
        };
        self.observer.reached(&self.checkpoint);
    }

    /// The images on a level.
    pub fn comparison(
        &mut self,
        level: &LevelSettings,
        similarity: Similarity,
    ) -> Result<Comparison> {
        let spacing_mm = level.shrink * finest_spacing_mm(&self.grids[0]);
        let [(fixed, fixed_mask), (moving, moving_mask)] = self.sides_at(spacing_mm)?;
        let mut masks = [fixed_mask, moving_mask];
        if fixed.geometry.size[2] == 1 && masks[0].is_none() {
            // With weights, windows hold only what there is: this plane, no zeros around it.
            masks[0] = Some(fixed.tensor.clone().narrow(1, 0, 1).ones_like());
        }
        Ok(Comparison { fixed, moving, similarity, masks, outside: Outside::Background })
    }

    /// The grids of the images on a level.
    pub fn level_grids(&self, level: &LevelSettings) -> Result<[Geometry; 2]> {
        let spacing_mm = level.shrink * finest_spacing_mm(&self.grids[0]);
        let least = self.settings.minimum_axis_voxels;
        let on_level = |i: usize| level_geometry(&self.grids[i], spacing_mm, least);
        Ok([on_level(0)?, on_level(1)?])
    }

    /// Where a linear stage cuts a level; `None` where it has it whole on the first device, as it has images with masks
    /// or several channels.
    pub fn linear_places(&self, grids: &[Geometry; 2]) -> Result<Option<Places>> {
        let is_plain = match &self.sides {
            Sides::Held(sides) => {
                sides.iter().all(|side| side.mask.is_none() && side.image.dims()[1] == 1)
            }
            Sides::Read(sides) => !sides.iter().any(Scaled::is_masked),
        };
        if is_plain {
            return self.room.linear_places(grids.each_ref());
        }
        self.room.check_whole(grids.each_ref()).map(|()| None)
    }

    /// The images on a level as a linear stage sees them.
    pub fn alike(
        &mut self,
        level: &LevelSettings,
        similarity: Similarity,
        outside: Outside,
    ) -> Result<Box<dyn Alike>> {
        let grids = self.level_grids(level)?;
        let Some(places) = self.linear_places(&grids)? else {
            return Ok(Box::new(self.comparison(level, similarity)?.seeing(outside)));
        };
        let exact = places.exact.map(|planned| ExactMemory::on(self.mesh.device(0), planned));
        let spacing_mm = level.shrink * finest_spacing_mm(&self.grids[0]);
        let least = self.settings.minimum_axis_voxels;
        let images = match &mut self.sides {
            Sides::Read([fixed, moving]) => {
                let meshes = [&places.moving_work, &places.moving_rest];
                let fixed = fixed.level(&grids[0], &places.fixed, [&places.work, &places.rest])?;
                [fixed, moving.level(&grids[1], &places.moving, meshes)?]
            }
            Sides::Held(sides) => {
                let cut = |i: usize, layout: &Layout, mesh: &Mesh| {
                    let on_level = level_image(&sides[i].image, &self.grids[i], spacing_mm, least)?;
                    Ok::<_, Error>(Sharded::from_tensor(on_level.tensor, layout, mesh))
                };
                let moving = cut(1, &places.moving, &places.moving_work)?;
                [cut(0, &places.fixed, &places.work)?, moving]
            }
        };
        let pair = ShardedPair::new(images, grids, (similarity, outside), &places.work, exact);
        Ok(Box::new(pair))
    }

    /// Both sides with voxels of about `spacing_mm`. Small ones are kept for the stages to come.
    fn sides_at(&mut self, spacing_mm: f64) -> Result<[LevelSide; 2]> {
        if let Some((_, sides)) = self.levels.iter().find(|(kept, _)| *kept == spacing_mm) {
            return Ok(sides.clone());
        }
        let (full, least) = (&self.grids, self.settings.minimum_axis_voxels);
        let sides = match &mut self.sides {
            Sides::Held(sides) => {
                let of = |i: usize| {
                    let on_level =
                        |image: &Tensor<5>| level_image(image, &full[i], spacing_mm, least);
                    let mask = sides[i].mask.as_ref().map(on_level).transpose()?;
                    Ok::<_, Error>((on_level(&sides[i].image)?, mask.map(|level| level.tensor)))
                };
                [of(0)?, of(1)?]
            }
            Sides::Read([fixed, moving]) => {
                let device = self.mesh.device(0);
                let of = |side: &mut Scaled| side.level_image(spacing_mm, least, device);
                [of(fixed)?, of(moving)?]
            }
        };
        if (0..2).all(|i| LARGEST_KEPT_PART * sides[i].0.geometry.len() <= full[i].len()) {
            self.levels.push((spacing_mm, sides.clone()));
        }
        Ok(sides)
    }

    /// The result, judged on the finest level of the last stage.
    fn finish(
        self,
        problem: &Problem,
        found: Found,
        stages: Vec<StageReport>,
        comparison: &dyn Alike,
    ) -> Result<Registration> {
        let Problem { fixed, moving, initial, .. } = problem;
        let loss_before = comparison.affine_loss(initial)?;
        let loss_after = stages.last().expect("at least one stage was run").loss_after;
        check_finite_loss(loss_after)?;
        let outcome = Outcome::of(&stages, [loss_before, loss_after]);
        let Found { affine, warp, inverse } = found;
        let steps = warp.clone().map(Step::Displacement).into_iter().chain([Step::Affine(affine)]);
        let warped =
            Composite::new(steps.collect()).warp(moving, &fixed.geometry, self.device())?;
        Ok(Registration { affine, warp, inverse, warped, stages, loss_before, loss_after, outcome })
    }
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
