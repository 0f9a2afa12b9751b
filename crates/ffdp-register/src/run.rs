//! A registration from beginning to end: its stages, one after the other, wherever its images come from and
//! whoever shares it.

use burn::tensor::{DType, Device};
use serde::Serialize;

use super::checkpoint::Checkpoint;
use super::context::{Estimate, Run, Sides, StageResult};
use super::coverage::Coverage;
use super::fields::{Deformed, Fields};
use super::level::check_finite_loss;
use super::methods::deformable::deform;
use super::methods::linear::moments;
use super::methods::{Listed, Stage, StageInputs, find};
use super::observer::Observer;
use super::places::{Placement, Places};
use super::prepare::{check_overlap, prepare};
use super::problem::Problem;
use super::processes::{Processes, Report};
use super::pyramid::plane_axis;
use super::report::{StageReport, Stop, Undone};
use super::schedule::Settings;
use super::settings::LevelSettings;
use ffdp_burn::ops::{DeformMethod, MomentStorage};
use ffdp_burn::transform::{BsplineTransform, Composite, Displacement, Step};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Volume};
use ffdp_parallel::DeviceMesh;

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
    /// The stationary velocity `v` with `id + w = exp(v)`, on the same grid, where the last deformable stage found one.
    pub velocity: Option<Displacement>,
    /// The free-form deformation that `w` is, exactly, where the last deformable stage found one and began from rest or
    /// from another.
    pub spline: Option<BsplineTransform>,
    /// The moving image seen through it, on the fixed grid, in the moving image's intensities.
    pub warped: Volume,
    /// One report per stage.
    pub stages: Vec<StageReport>,
    /// The loss of the last stage's finest level as the images were placed at the start; the
    /// similarity alone, without penalties.
    pub loss_before: f64,
    /// The same with the result.
    pub loss_after: f64,
    /// How the intensities of both images go together where the first deformation begins: Pearson's correlation within
    /// the object, on a coarse level; `None` where none compares intensities.
    pub contrast: Option<f64>,
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

/// What a registration is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The similarity is better than before.
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
                "the images are not aligned: check that they show the same anatomy, that \
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
    register_on(&DeviceMesh::one(device), problem, settings, observer)
}

/// [`register`] on several devices, or in several shards of one: the images and all that belongs to a voxel are cut
/// along z; linear stages run on the first device unless several share a large level. The result is that of one
/// device but for rounding.
///
/// # Errors
/// As [`register`]; [`Error::Invalid`] for a mesh of several shards and images of one plane.
pub fn register_on(
    mesh: &DeviceMesh,
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
    resume_on(&DeviceMesh::one(device), checkpoint, problem, settings, observer)
}

/// [`resume`] on several devices, or in several shards of one.
///
/// # Errors
/// As [`resume`] and [`register_on`].
pub fn resume_on(
    mesh: &DeviceMesh,
    checkpoint: Checkpoint,
    problem: &Problem,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    let mesh = mesh.inner();
    check_planes(&mesh, &problem.fixed.geometry)?;
    mesh.devices().iter().try_for_each(|device| check_moment_storage(settings, device))?;
    settings.validate()?;
    let settings = &settings.for_images(&problem.fixed.geometry);
    // Moments bring the images together; the overlap is checked after them.
    let placed = !matches!(settings.stages.first(), Some(Stage::Moments(_)));
    let compared = (settings.intensities(), settings.deforms());
    let sides = prepare(problem, placed, compared, mesh.device(0))?;
    let grids = [&problem.fixed.geometry, &problem.moving.geometry].map(Geometry::clone);
    let ends_inside = sides.each_ref().map(|side| side.ends_inside);
    let coverage = Coverage::new(ends_inside, settings.displaces_fixed());
    let mut run = Run {
        grids,
        sides: Sides::Held(Box::new(sides)),
        coverage,
        levels: Vec::new(),
        loss_interval: settings.loss_interval,
        minimum_axis: settings.minimum_axis_voxels,
        placement: Placement::DeviceMesh(mesh.clone()),
        processes: Processes::alone(),
        initial: problem.initial,
        observer,
        checkpoint,
    };
    let StagesResult { found, stages, loss_before, loss_after, contrast, outcome } =
        run.stages(settings)?;
    let Estimate { affine, deformed } = found;
    let FullGrid { warp, inverse, velocity, spline } = match &deformed {
        Some(deformed) => run.on_full_grid(deformed)?,
        None => FullGrid::default(),
    };
    let steps = warp.clone().map(Step::Displacement).into_iter().chain([Step::Affine(affine)]);
    let warped = Composite::new(steps.collect()).warp(
        problem.moving,
        &problem.fixed.geometry,
        mesh.device(0),
    )?;
    Ok(Registration {
        affine,
        warp,
        inverse,
        velocity,
        spline,
        warped,
        stages,
        loss_before,
        loss_after,
        contrast,
        outcome,
    })
}

/// What was deformed, in one piece each: the displacement, and where the method gives them its inverse and the velocity
/// that leads there.
#[derive(Default)]
struct FullGrid {
    warp: Option<Displacement>,
    inverse: Option<Displacement>,
    velocity: Option<Displacement>,
    spline: Option<BsplineTransform>,
}

/// The result of all stages.
pub(super) struct StagesResult {
    pub found: Estimate,
    pub stages: Vec<StageReport>,
    pub loss_before: f64,
    pub loss_after: f64,
    pub contrast: Option<f64>,
    pub outcome: Outcome,
}

impl Run<'_> {
    /// All stages that the checkpoint has not done.
    pub fn stages(&mut self, settings: &Settings) -> Result<StagesResult> {
        let mut stages = self.checkpoint.stages.clone();
        if stages.len() >= settings.stages.len() {
            let what = "a checkpoint must belong to the settings: it has as many stages or more";
            return Err(Error::invalid(what, stages.len(), "start the run anew"));
        }
        let deformed = self.take_found(settings)?;
        let mut found = Estimate { affine: self.checkpoint.affine, deformed };
        let (mut loss_before, mut contrast) = (f64::NAN, None);
        for stage in &settings.stages[stages.len()..] {
            let before = found.clone();
            self.check_given(stage)?;
            if contrast.is_none() && !stage.is_linear() && stage.compares_intensities() {
                contrast = Some(self.contrast(&found.affine)?);
            }
            let mut staged = match stage.listed() {
                Listed::Fields(method) => deform(self, method, found)?,
                Listed::Own(method) if !method.is_linear() => find(self, method, found)?,
                _ => self.linear(stage, found)?,
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
                self.stage_done(&stages, &found);
            }
        }
        let loss_after = stages.last().expect("settings with no stage do not validate").loss_after;
        check_finite_loss(loss_after)?;
        let outcome = Outcome::of(&stages, [loss_before, loss_after]);
        Ok(StagesResult { found, stages, loss_before, loss_after, contrast, outcome })
    }

    /// What the stages that have ended found, by the method of the last of them that deforms; a displacement where a run
    /// begins with one.
    fn take_found(&mut self, settings: &Settings) -> Result<Option<Deformed>> {
        let whole = matches!(self.sides, Sides::Held(_));
        let found = std::mem::take(&mut self.checkpoint.found);
        let Some(fields) = Fields::restored(found, self.placement.home(), whole)? else {
            return Ok(None);
        };
        let stages = settings.stages[..self.checkpoint.stages.len()].iter().rev();
        let method = stages.filter(|stage| !stage.is_linear()).map(Stage::fields);
        let method = method.flatten().map(|stage| stage.method()).next();
        Ok(Some(Deformed { method: method.unwrap_or(DeformMethod::Greedy), fields }))
    }

    /// Demands that a stage can work with what it is given.
    fn check_given(&self, stage: &Stage) -> Result<()> {
        let (channels, masked) = self.content();
        let parts = match &self.placement {
            Placement::DeviceMesh(mesh) => mesh.count() > 1,
            Placement::Device { .. } | Placement::Ranks { .. } => true,
        };
        // What rests is known of levels only; they are checked where they are placed.
        let given = StageInputs { channels, masked, parts, at_rest: false };
        let Some(reason) = stage.refuses(&given) else { return Ok(()) };
        let what = format!("the stage {} must be able to work with what it is given", stage.name());
        let given = format_args!("{given:?}, and {reason}");
        Err(Error::invalid(what, given, "use another stage, or give it what it can work with"))
    }

    /// A linear stage, on rank 0; what it has found, on all.
    fn linear(&mut self, stage: &Stage, found: Estimate) -> Result<StageResult> {
        let processes = self.processes.clone();
        let deformed = found.deformed.clone();
        let report = processes.run_on_root(|| {
            let staged = match stage.listed() {
                Listed::Moments(settings) => moments(self, settings, found)?,
                Listed::Linear(_, settings, find) => find(self, settings, found)?,
                Listed::Own(method) => find(self, method, found)?,
                Listed::Fields(_) => unreachable!("methods of fields are no linear ones"),
            };
            let StageResult { found, report, loss_without, loss_before } = staged;
            let losses = vec![report.loss_after, loss_without, loss_before, report.seconds];
            let numbers = [found.affine.rows().concat(), losses].concat();
            Ok(Report::new(&numbers, report.levels, report.undone))
        })?;
        let numbers = report.numbers();
        let row = |first: usize| [0, 1, 2, 3].map(|column| numbers[first + column]);
        let affine = Affine::from_rows([row(0), row(4), row(8)]);
        let [loss_after, loss_without, loss_before, seconds] = row(12);
        let Report { levels, undone, .. } = report;
        let transform = stage.name();
        Ok(StageResult {
            found: Estimate { affine, deformed },
            report: StageReport { transform, levels, loss_after, undone, seconds },
            loss_without,
            loss_before,
        })
    }

    /// How intensities go together under an affine map, on a coarse level; on all ranks.
    fn contrast(&mut self, affine: &Affine<Physical, Physical>) -> Result<f64> {
        /// That of the moments.
        const SHRINK: f64 = 8.0;
        let processes = self.processes.clone();
        let report = processes.run_on_root(|| {
            let mut level = LevelSettings { shrink: SHRINK, iterations: 0 };
            let contrast = self.whole_pair(&mut level)?.contrast(affine)?;
            Ok(Report::new(&[contrast], Vec::new(), None))
        })?;
        Ok(report.numbers()[0])
    }

    fn stage_done(&mut self, stages: &[StageReport], found: &Estimate) {
        let start = Checkpoint::start(found.affine);
        self.checkpoint = Checkpoint { stages: stages.to_vec(), ..start };
        // Of several processes none has all that was deformed.
        if self.processes.is_several() && found.deformed.is_some() {
            return;
        }
        let fields = found.deformed.iter().flat_map(|deformed| deformed.fields.saved());
        self.checkpoint.found = fields.collect();
        self.observer.reached(&self.checkpoint);
        self.checkpoint.found.clear();
    }

    /// What was deformed, on the grid of the fixed image.
    fn on_full_grid(&self, deformed: &Deformed) -> Result<FullGrid> {
        let [fixed, moving] = self.grids.each_ref().map(Geometry::dims);
        let places = Places::whole(self.placement.home(), [fixed, moving])?;
        let fields = deformed.fields.clone().resampled(&self.grids[0], &places)?;
        let deformed = Deformed { method: deformed.method, fields };
        let (warp, inverse) = deformed.maps()?;
        let spline = warp.spline.clone();
        let velocity =
            matches!(deformed.method, DeformMethod::Svf { .. }).then_some(deformed.fields);
        let whole = |fields: Fields| Ok::<_, Error>(fields.gathered()?.remove(0));
        let [inverse, velocity] = [inverse, velocity].map(|fields| fields.map(whole).transpose());
        Ok(FullGrid { warp: Some(whole(warp)?), inverse: inverse?, velocity: velocity?, spline })
    }
}

/// What a stage found, or what was there before it if that aligns them better or the stage ended at its bounds. Moments
/// have tried the start themselves; a deformation that refines another one starts from it and is not judged.
fn kept(stage: &Stage, before: Estimate, staged: &mut StageResult) -> Result<Estimate> {
    let refines = before.deformed.is_some();
    if matches!(stage, Stage::Moments(_)) || refines {
        return Ok(staged.found.clone());
    }
    if staged.report.undone.is_none() && staged.report.loss_after <= staged.loss_without {
        return Ok(staged.found.clone());
    }
    check_finite_loss(staged.report.loss_after)?;
    staged.report.undone.get_or_insert(Undone::LessAlike);
    staged.report.loss_after = staged.loss_without;
    Ok(before)
}

/// Demands that volumes which are to be cut have several planes.
pub(super) fn check_planes(mesh: &DeviceMesh, fixed: &Geometry) -> Result<()> {
    if mesh.count() == 1 || plane_axis(fixed).is_none() {
        return Ok(());
    }
    let what = "in several shards images have several planes";
    Err(Error::invalid(what, fixed.size, "use one device and one shard"))
}

pub(super) fn check_moment_storage(settings: &Settings, device: &Device) -> Result<()> {
    let stores_bf16 = |stage: &Stage| stage.moments() == Some(MomentStorage::Bf16);
    if !settings.stages.iter().any(stores_bf16) || device.supports_dtype(DType::BF16) {
        return Ok(());
    }
    let what = "moments in bf16 need a device that has the type";
    Err(Error::invalid(what, device, "use moments = \"full\", or another device"))
}
