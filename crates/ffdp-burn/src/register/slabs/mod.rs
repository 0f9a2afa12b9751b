//! Registration of images that no device and no host memory need hold.
//!
//! Images are read slab by slab ([`Planes`]: a file, or a volume), each level straight onto the shards that
//! a mesh has for it, smoothed and sampled on the way: nothing of full size exists but the finest level itself,
//! in shards, and these may rest in host memory ([`Room`]). Results stay in shards, and are written slab by
//! slab (`result.rs`). The stages are those of [`register`](crate::register::register()), with its code:
//! linear ones see their levels whole on the first device where that has room for them and nobody shares
//! them, greedy ones cut theirs.
//!
//! Read `source.rs` (how a level is made), then `deform.rs`.

mod crew;
mod deform;
mod result;
mod room;
mod source;

use std::time::Instant;

pub use result::{Folding, SlabRegistration, Warp};
pub(super) use room::Places;
pub use room::Room;
pub(super) use source::{Scale, Scaled};

use burn::tensor::{Device, Tensor};

use super::checkpoint::Checkpoint;
use super::deformable::Kind;
use super::level::{Stop, check_finite_loss};
use super::observer::Observer;
use super::prepare::{check_overlap, check_sizes};
use super::run::{Found, Outcome, Run, Sides, StageReport, keep_if_better};
use super::settings::{Settings, Stage};
use super::shards::unlike_shards;
use super::{linear, run};
use crate::error::{Error, Result};
use crate::image::{Affine, Counted, Geometry, Physical, Planes};
use crate::parallel::{DisplacementBounds, Mesh, Sharded};
use crew::{Crew, Told};
use deform::{Start, check_room, deform};

/// Two images that are read as they are needed, and where the search starts.
pub struct SlabProblem<'a> {
    /// The image that stays.
    pub fixed: &'a mut dyn Planes,
    /// The image that is brought onto it.
    pub moving: &'a mut dyn Planes,
    /// Weights of the fixed image's voxels in 0..1, on its grid; as in [`Problem`](super::Problem).
    pub fixed_mask: Option<&'a mut dyn Planes>,
    /// The same of the moving image's.
    pub moving_mask: Option<&'a mut dyn Planes>,
    /// As in [`Problem`](super::Problem).
    pub initial: Affine<Physical, Physical>,
}

impl<'a> SlabProblem<'a> {
    /// Two images that all count.
    pub fn new(
        fixed: &'a mut dyn Planes,
        moving: &'a mut dyn Planes,
        initial: Affine<Physical, Physical>,
    ) -> Self {
        Self { fixed, moving, fixed_mask: None, moving_mask: None, initial }
    }
}

/// [`register`](crate::register::register()) of images that are read slab by slab, in the memory of `room`. The result is that of
/// the whole images but for rounding.
///
/// Of [`Room::Ranks`] every process calls this with the same arguments, and later what writes the results, at the same
/// time; greedy levels with planes enough are shared, rank 0 does the rest and writes. An error is that of all, unless
/// it happens in a shared level: then those that wait for the rank find it lost.
///
/// Each image is read twice for its percentiles (one with a mask four times) and once for every level; small levels
/// are kept. A compressed file is decompressed as often. Images with masks are whole on one device in linear stages. What can be [continued](super::resume()) are the linear stages, on whole images.
///
/// # Errors
/// As [`register_on`](super::register_on) on several shards (greedy stages with their defaults; linear ones
/// as ever); [`Error::Invalid`] for images of one plane, and for histogram matching;
/// [`Error::TooLarge`] when a device cannot hold one shard at work, when host memory cannot hold what rests there, or,
/// in a linear stage, for images with masks;
/// those of reading.
pub fn register_slabs(
    problem: SlabProblem,
    settings: &Settings,
    room: &Room,
    observer: &mut dyn Observer,
) -> Result<SlabRegistration> {
    let SlabProblem { fixed, moving, fixed_mask, moving_mask, initial } = problem;
    let room = room.inner();
    let crew = Crew::of(&room)?;
    let grids = [fixed.geometry().clone(), moving.geometry().clone()];
    let masked = [fixed_mask.is_some(), moving_mask.is_some()];
    let checked = check((&grids, masked), settings, &room, &initial);
    crew.agree(checked)?;
    let alike = crew.check_alike((&grids, masked), settings);
    crew.agree(alike)?;
    let percentiles = settings.intensity_percentiles;
    if matches!(room, Room::Device { .. }) {
        prove(room.home())?;
    }
    let mut fixed = Counted { image: fixed, mask: fixed_mask.map(|mask| mask as &mut dyn Planes) };
    let mut moving =
        Counted { image: moving, mask: moving_mask.map(|mask| mask as &mut dyn Planes) };
    let told = crew.first_does(|| {
        let of_fixed = Scale::of(["the fixed image", "the fixed mask"], &mut fixed, percentiles)?;
        let of_moving =
            Scale::of(["the moving image", "the moving mask"], &mut moving, percentiles)?;
        let numbers =
            [of_fixed, of_moving].map(|Scale { range: [from, to], mean }| [from, to, mean]);
        Ok(Told::new(
            &numbers.as_flattened().iter().map(|x| f64::from(*x)).collect::<Vec<_>>(),
            Vec::new(),
            true,
        ))
    })?;
    let told: Vec<f32> = told.numbers().iter().map(|number| *number as f32).collect();
    let scale =
        |first: usize| Scale { range: [told[first], told[first + 1]], mean: told[first + 2] };
    let sides = Sides::Read([Scaled::new(fixed, scale(0)), Scaled::new(moving, scale(3))]);
    let (mesh, checkpoint) = (Mesh::one(room.home()), Checkpoint::start(initial));
    let levels = Vec::new();
    let mut run =
        Run { grids, sides, levels, settings, mesh, room: room.clone(), observer, checkpoint };
    let mut affine = initial;
    let (mut warp, mut stages, mut loss_before) = (None, Vec::new(), f64::NAN);
    for stage in &settings.stages {
        let kind = match stage {
            Stage::Greedy(settings) => Kind::Greedy(settings),
            Stage::Syn(_) | Stage::Svf(_) => unreachable!("check_slabs has refused it"),
            Stage::Moments(_) | Stage::Rigid(_) | Stage::Affine(_) => {
                let (next, report, before) = place(&mut run, &crew, stage, [&affine, &initial])?;
                (affine, loss_before) = (next, before);
                stages.push(report);
                if is_cancelled(&stages) {
                    break;
                }
                let reached = Checkpoint::start(affine);
                run.observer.reached(&Checkpoint { stages: stages.clone(), ..reached });
                continue;
            }
        };
        let refines = warp.is_some();
        let start = Start { affine, warp: warp.take(), initial };
        let (next, mut report, before) = deform(&mut run, (&room, &crew), &kind, start)?;
        check_finite_loss(report.loss_after)?;
        loss_before = before[1];
        // A deformation that refines another one starts from it and is not judged.
        if refines || report.loss_after <= before[0] {
            warp = Some(next);
        } else {
            (report.kept, report.loss_after) = (false, before[0]);
        }
        stages.push(report);
        if is_cancelled(&stages) {
            break;
        }
    }
    let loss_after = stages.last().expect("settings with no stage do not validate").loss_after;
    check_finite_loss(loss_after)?;
    let outcome = Outcome::of(&stages, [loss_before, loss_after]);
    let ([fixed, _], home) = (run.grids, room.home().clone());
    Ok(SlabRegistration {
        affine,
        warp,
        stages,
        loss_before,
        loss_after,
        outcome,
        fixed,
        home,
        crew,
    })
}

/// A first reduction on a device. Before it CubeCL measures how fast the memory is (autotuning), with 2 GiB of
/// it: which is to happen while nothing else is there.
fn prove(device: &Device) -> Result<()> {
    let small = Tensor::zeros([1, 3, 8, 64, 64], device);
    DisplacementBounds::read(&Sharded::whole(small))?;
    device.memory_cleanup();
    Ok(())
}

/// What must hold before anything is read.
fn check(
    (grids, masked): (&[Geometry; 2], [bool; 2]),
    settings: &Settings,
    room: &Room,
    initial: &Affine<Physical, Physical>,
) -> Result<()> {
    settings.validate()?;
    check_sizes(grids)?;
    check_slabs(&grids[0].size, settings)?;
    room.devices().iter().try_for_each(|device| run::check_moment_storage(settings, device))?;
    for stage in &settings.stages {
        if let Stage::Greedy(greedy) = stage {
            let kind = Kind::Greedy(greedy);
            check_room(room, &kind, (grids, masked), settings, initial)?;
        }
    }
    match settings.stages.first() {
        Some(Stage::Moments(_)) => Ok(()),
        _ => check_overlap(&grids[0], &grids[1], initial),
    }
}

/// A linear stage from the first of two affine maps on, on rank 0: the map it finds, and the loss of its finest
/// level with the second one.
fn place(
    run: &mut Run,
    crew: &Crew,
    stage: &Stage,
    [affine, initial]: [&Affine<Physical, Physical>; 2],
) -> Result<(Affine<Physical, Physical>, StageReport, f64)> {
    let start = Instant::now();
    let told = crew.first_does(|| {
        let before = Found { affine: *affine, warp: None, inverse: None };
        let found = before.clone();
        let (next, mut report, comparison) = match stage {
            Stage::Moments(settings) => linear::moments(run, settings, found)?,
            Stage::Rigid(settings) => linear::rigid(run, settings, found)?,
            Stage::Affine(settings) => linear::affine(run, settings, found)?,
            Stage::Greedy(_) | Stage::Syn(_) | Stage::Svf(_) => {
                unreachable!("deformable stages are not placed")
            }
        };
        let found = keep_if_better(stage, before, next, &mut report, &*comparison)?;
        if matches!(stage, Stage::Moments(_)) {
            check_overlap(&run.grids[0], &run.grids[1], &found.affine)?;
        }
        let losses = [report.loss_after, comparison.affine_loss(initial)?];
        let numbers = [found.affine.rows().concat(), losses.to_vec()].concat();
        Ok(Told::new(&numbers, report.levels, report.kept))
    })?;
    let numbers = told.numbers();
    let row = |first: usize| [0, 1, 2, 3].map(|column| numbers[first + column]);
    let affine = Affine::from_rows([row(0), row(4), row(8)]);
    let (loss_after, loss_before) = (numbers[12], numbers[13]);
    let Told { levels, kept, .. } = told;
    let seconds = start.elapsed().as_secs_f64();
    let report = StageReport { transform: stage.name(), levels, loss_after, kept, seconds };
    Ok((affine, report, loss_before))
}

fn is_cancelled(stages: &[StageReport]) -> bool {
    let mut last = stages.iter().flat_map(|stage| &stage.levels);
    last.any(|level| level.stop == Stop::Cancelled)
}

/// The images of a run that reads them.
fn run_sides<'r, 'a>(run: &'r mut Run<'a>) -> &'r mut [Scaled<'a>; 2] {
    match &mut run.sides {
        Sides::Read(sides) => sides,
        Sides::Held(_) => unreachable!("register_slabs reads its images"),
    }
}

/// What to do about everything that whole images can and slabs cannot.
const FIX: &str = "register the images whole, or use linear and greedy stages with their defaults";

/// Demands that everything can be done slab by slab.
fn check_slabs(size: &[usize; 3], settings: &Settings) -> Result<()> {
    let refuse = |what: &str, value: &dyn std::fmt::Debug| {
        Err(Error::invalid(format!("slab by slab {what}"), value, FIX))
    };
    if size[2] == 1 {
        return refuse("images have several planes", size);
    }
    if settings.match_histograms {
        return refuse("histograms are not matched", &settings.match_histograms);
    }
    for stage in &settings.stages {
        let Some(descent) = stage.descent() else { continue };
        if !matches!(stage, Stage::Greedy(_)) {
            return refuse("the deformable stages are greedy", &stage.name());
        }
        if let Some((what, value)) = unlike_shards(stage, &descent) {
            return refuse(what, &format_args!("{value}"));
        }
    }
    Ok(())
}
