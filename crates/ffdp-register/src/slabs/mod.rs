//! Registration of images that no device and no host memory need hold.
//!
//! Images are read slab by slab ([`Planes`]: a file, or a volume), each level straight onto the shards that
//! a mesh has for it, smoothed and sampled on the way: nothing of full size exists but the finest level itself,
//! in shards, and these may rest in host memory ([`Placement`]). Results stay in shards, and are written slab by
//! slab (`results.rs`). The stages are those of [`register`](crate::register()), with its code:
//! linear ones see their levels whole on the first device where that has room for them and nobody shares
//! them, greedy ones cut theirs.
//!
//! Read `../source.rs` (how a level is made), then `results.rs`.

mod results;

pub use results::{Folding, SlabRegistration, Warp};

use burn::tensor::{Device, Tensor};

use super::checkpoint::Checkpoint;
use super::context::{Estimate, Run, Sides};
use super::coverage::{Coverage, ends_inside};
use super::fields::Deformed;
use super::methods::Stage;
use super::methods::deformable::check_placement;
use super::observer::Observer;
use super::places::Placement;
use super::prepare::{check_overlap, check_sizes};
use super::processes::{Processes, Report};
use super::pyramid::plane_axis;
use super::run::{self, StagesResult};
use super::schedule::Settings;
use super::source::{Scale, Scaled};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Planes};
use ffdp_parallel::{DisplacementBounds, Sharded};

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
    pub more_channels: Vec<[&'a mut dyn Planes; 2]>,
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
        let (fixed_mask, moving_mask, more_channels) = (None, None, Vec::new());
        Self { fixed, moving, fixed_mask, moving_mask, more_channels, initial }
    }
}

/// [`register`](crate::register()) of images that are read slab by slab, in the memory of `placement`. The result is
/// that of the whole images but for rounding.
///
/// Of [`Placement::Ranks`] every process calls this with the same arguments, and later what writes the results, at the
/// same time; greedy levels with planes enough are shared, rank 0 does the rest and writes. An error is that of all,
/// unless it happens in a shared level: then those that wait for the rank find it lost.
///
/// Each image is read twice for its percentiles (one with a mask four times) and once for every level; small levels
/// are kept. A compressed file is decompressed as often. Images with masks are whole on one device in linear stages.
/// A run of one process can be [continued](resume_slabs).
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
    placement: &Placement,
    observer: &mut dyn Observer,
) -> Result<SlabRegistration> {
    let start = Checkpoint::start(problem.initial);
    resume_slabs(start, problem, settings, placement, observer)
}

/// [`register_slabs`], continued from what an earlier run of one process with the same arguments has
/// [`reached`](Observer::reached): the same bits.
///
/// # Errors
/// As [`register_slabs`]; [`Error::Invalid`] when the checkpoint has more stages than the settings.
pub fn resume_slabs(
    checkpoint: Checkpoint,
    problem: SlabProblem,
    settings: &Settings,
    placement: &Placement,
    observer: &mut dyn Observer,
) -> Result<SlabRegistration> {
    let SlabProblem { fixed, moving, fixed_mask, moving_mask, mut more_channels, initial } =
        problem;
    let placement = placement.inner();
    let processes = Processes::of(&placement)?;
    let grids = [fixed.geometry().clone(), moving.geometry().clone()];
    let settings = &settings.for_images(&grids[0]);
    let given = (1 + more_channels.len(), [fixed_mask.is_some(), moving_mask.is_some()]);
    let checked = check((&grids, given), settings, &placement, &initial);
    processes.agree(checked)?;
    let images: [&mut dyn Planes; 2] = [&mut *fixed, &mut *moving];
    let coverage = coverage_of(&processes, images, &mut more_channels, settings.displaces_fixed())?;
    let covered = coverage.masks();
    let masked = [fixed_mask.is_some() || covered[0], moving_mask.is_some() || covered[1]];
    let content = (1 + more_channels.len(), masked);
    if content != given {
        // Their masks take room as well.
        let checked = check((&grids, content), settings, &placement, &initial);
        processes.agree(checked)?;
    }
    let same = processes.check_same_task(&(&grids, content, settings));
    processes.agree(same)?;
    if matches!(placement, Placement::Device { .. }) {
        warm_up(placement.home())?;
    }
    let (mut of_fixed, mut of_moving): (Vec<&mut dyn Planes>, Vec<&mut dyn Planes>) =
        (vec![fixed], vec![moving]);
    for [fixed, moving] in more_channels {
        of_fixed.push(fixed as &mut dyn Planes);
        of_moving.push(moving as &mut dyn Planes);
    }
    let mut fixed = Scaled::new(of_fixed, fixed_mask.map(|mask| mask as &mut dyn Planes));
    let mut moving = Scaled::new(of_moving, moving_mask.map(|mask| mask as &mut dyn Planes));
    measure(&processes, [&mut fixed, &mut moving], settings.intensity_percentiles)?;
    (fixed.coverage, moving.coverage) = (Some((coverage, 0)), Some((coverage, 1)));
    let sides = Sides::Read(Box::new([fixed, moving]));
    let mut run = Run {
        grids,
        sides,
        coverage,
        levels: Vec::new(),
        loss_interval: settings.loss_interval,
        minimum_axis: settings.minimum_axis_voxels,
        placement,
        processes,
        initial,
        observer,
        checkpoint,
    };
    let result = run.stages(settings)?;
    registration(run, result)
}

/// Which images get a mask because they end within what they show; rank 0 reads them.
fn coverage_of(
    processes: &Processes,
    [fixed, moving]: [&mut dyn Planes; 2],
    more_channels: &mut [[&mut dyn Planes; 2]],
    displaces_fixed: bool,
) -> Result<Coverage> {
    let report = processes.run_on_root(|| {
        let mut ends = [ends_inside(fixed)?, ends_inside(moving)?];
        for pair in more_channels.iter_mut() {
            for (ends, channel) in ends.iter_mut().zip(pair) {
                *ends = *ends || ends_inside(*channel)?;
            }
        }
        Ok(Report::new(&ends.map(|ends| f64::from(u8::from(ends))), Vec::new(), None))
    })?;
    let ends = report.numbers();
    Ok(Coverage::new([0, 1].map(|i| ends[i] != 0.0), displaces_fixed))
}

/// The scales of the channels of both images; rank 0 reads them.
fn measure(
    processes: &Processes,
    [fixed, moving]: [&mut Scaled; 2],
    percentiles: [f64; 2],
) -> Result<()> {
    let report = processes.run_on_root(|| {
        fixed.measure(["the fixed image", "the fixed mask"], percentiles)?;
        moving.measure(["the moving image", "the moving mask"], percentiles)?;
        let scales = fixed.scales.iter().chain(&moving.scales);
        let numbers = scales.flat_map(|Scale { range: [from, to], mean }| [*from, *to, *mean]);
        let numbers: Vec<f64> = numbers.map(f64::from).collect();
        Ok(Report::new(&numbers, Vec::new(), None))
    })?;
    let numbers: Vec<f32> = report.numbers().iter().map(|number| *number as f32).collect();
    let scales =
        numbers.chunks(3).map(|scale| Scale { range: [scale[0], scale[1]], mean: scale[2] });
    let mut scales: Vec<Scale> = scales.collect();
    moving.scales = scales.split_off(scales.len() / 2);
    fixed.scales = scales;
    Ok(())
}

/// What a run has come to, whose stages have ended.
fn registration(run: Run, result: StagesResult) -> Result<SlabRegistration> {
    let StagesResult { found, stages, loss_before, loss_after, contrast, outcome } = result;
    let Estimate { affine, deformed } = found;
    let Run { grids: [fixed, _], placement, processes, .. } = run;
    let warps = |deformed: Deformed| {
        let (warp, inverse) = deformed.maps()?;
        let warp_of = |fields| Warp::new(fields, &fixed, &processes);
        let spline = warp.spline.clone();
        Ok::<_, Error>((warp_of(warp), inverse.map(warp_of), spline))
    };
    let (warp, inverse, spline) = match deformed.map(warps).transpose()? {
        Some((warp, inverse, spline)) => (Some(warp), inverse, spline),
        None => (None, None, None),
    };
    let home = placement.home().clone();
    Ok(SlabRegistration {
        affine,
        warp,
        inverse,
        spline,
        stages,
        loss_before,
        loss_after,
        contrast,
        outcome,
        fixed,
        home,
        processes,
    })
}

/// A first reduction on a device. Before it CubeCL measures how fast the memory is (autotuning), with 2 GiB of
/// it: which is to happen while nothing else is there.
fn warm_up(device: &Device) -> Result<()> {
    let small = Tensor::zeros([1, 3, 8, 64, 64], device);
    DisplacementBounds::read(&Sharded::whole(small))?;
    device.memory_cleanup();
    Ok(())
}

/// What must hold before anything is read.
fn check(
    (grids, content): (&[Geometry; 2], (usize, [bool; 2])),
    settings: &Settings,
    placement: &Placement,
    initial: &Affine<Physical, Physical>,
) -> Result<()> {
    settings.validate()?;
    check_sizes(grids, settings.deforms())?;
    let refuse = |what: &str, value: &dyn std::fmt::Debug| {
        let fix = "register the images whole";
        Err(Error::invalid(format!("slab by slab {what}"), value, fix))
    };
    if plane_axis(&grids[0]).is_some() {
        return refuse("images have several planes", &grids[0].size);
    }
    if settings.match_histograms {
        return refuse("histograms are not matched", &settings.match_histograms);
    }
    placement
        .devices()
        .iter()
        .try_for_each(|device| run::check_moment_storage(settings, device))?;
    for method in settings.stages.iter().filter_map(Stage::fields) {
        check_placement(placement, method, (grids, content), settings.minimum_axis_voxels)?;
    }
    match settings.stages.first() {
        Some(Stage::Moments(_)) => Ok(()),
        _ => check_overlap(&grids[0], &grids[1], initial),
    }
}
