//! A registration from beginning to end, wherever its images come from, wherever it is computed and whoever shares it.
//!
//! Images are [`Source`]s: volumes in memory, or planes of files that are read as they are needed. Where a mesh has all
//! shards at once and both images are in memory, they go to the first device whole, and every level is made there. Else
//! each level is read slab by slab straight onto the shards that it has (`side.rs`), and nothing of full size exists but
//! the finest level itself, whose shards may rest in host memory ([`Placement`]). The stages are the same (`stages.rs`),
//! and so is the result (`result/`), which stays in shards until it is asked for.

use burn::tensor::{Device, Tensor};
use rayon::join;

use super::checkpoint::Checkpoint;
use super::context::Run;
use super::coverage::{Coverage, Unknown};
use super::histogram::{Landmarks, Matching};
use super::intensities::Scale;
use super::labels::DrivingLabels;
use super::observer::{Observer, Silent};
use super::places::Placement;
use super::problem::{Problem, Source};
use super::processes::{Processes, Report};
use super::pyramid::plane_axis;
use super::requirements::{check, driving_labels, driving_landmarks};
use super::result::Registration;
use super::schedule::Settings;
use super::side::{Side, content_of};
use super::start::Start;
use ffdp_burn::transform::Composite;
use ffdp_image::error::Result;
use ffdp_image::image::Planes;
use ffdp_parallel::{DisplacementBounds, Sharded};

/// A registration that is yet to be run: finds the transform that carries the moving onto the fixed image, stage by
/// stage, coarse to fine.
///
/// The images may lie on different grids (spacing, orientation, size, origin): their headers and
/// [`Problem::initial`] place them in physical space. Intensities are scaled to [0, 1] for the
/// comparison; the result has the moving image's own. Computed in f32; on the CPU the same input gives the same bits.
///
/// ```
/// use ffdp_register::{Preset, Register, Settings};
/// # use ffdp_image::synth::{PhantomSettings, pair};
/// # let pair = pair(&PhantomSettings::with_size([24; 3]), 7)?;
/// # let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
/// let mut settings = Settings::preset(Preset::Fast);
/// settings.stages.truncate(2);
/// let found = Register::new(fixed, moving).settings(&settings).run()?;
/// let warped = found.warped(moving)?;
/// # assert_eq!(warped.geometry, fixed.geometry);
/// # Ok::<(), ffdp_image::Error>(())
/// ```
///
/// # Several processes
/// Of [`Placement::Ranks`] every process runs this with the same arguments, and later what writes the results, at the
/// same time; deformable levels with planes enough are shared, rank 0 does the rest and writes. An error is that of all,
/// unless it happens in a shared level: then those that wait for the rank find it lost.
///
/// # Reading
/// An image that is read slab by slab is read twice for its percentiles (one with a mask four times) and once for every
/// level; small levels are kept. A compressed file is decompressed as often.
pub struct Register<'a> {
    problem: Problem<'a>,
    settings: Settings,
    placement: Placement,
    checkpoint: Option<Checkpoint>,
    observer: Box<dyn Observer + 'a>,
}

impl<'a> Register<'a> {
    /// Two images as their headers place them, with the default settings, on the CPU.
    pub fn new(fixed: impl Into<Source<'a>>, moving: impl Into<Source<'a>>) -> Self {
        Self::of(Problem::new(fixed, moving))
    }

    /// Two images with all that is known about them.
    pub fn of(problem: Problem<'a>) -> Self {
        let placement = Placement::from(&Device::flex());
        let settings = Settings::default();
        Self { problem, settings, placement, checkpoint: None, observer: Box::new(Silent) }
    }

    /// How much voxels of the fixed image count, see [`Problem::fixed_mask`].
    pub fn fixed_mask(mut self, mask: impl Into<Source<'a>>) -> Self {
        self.problem.fixed_mask = Some(mask.into());
        self
    }

    /// The same for the moving image.
    pub fn moving_mask(mut self, mask: impl Into<Source<'a>>) -> Self {
        self.problem.moving_mask = Some(mask.into());
        self
    }

    /// A further channel of both images, see [`Problem::more_channels`].
    pub fn channel(mut self, fixed: impl Into<Source<'a>>, moving: impl Into<Source<'a>>) -> Self {
        self.problem.more_channels.push([fixed.into(), moving.into()]);
        self
    }

    /// Label maps whose overlap drives the registration, see [`Problem::labels`].
    pub fn labels(mut self, fixed: impl Into<Source<'a>>, moving: impl Into<Source<'a>>) -> Self {
        self.problem.labels = Some([fixed.into(), moving.into()]);
        self
    }

    /// Points that belong together, see [`Problem::landmarks`].
    pub fn landmarks(mut self, fixed: Vec<[f64; 3]>, moving: Vec<[f64; 3]>) -> Self {
        self.problem.landmarks = Some([fixed, moving]);
        self
    }

    /// Where the search starts, see [`Problem::initial`].
    pub fn initial(mut self, initial: impl Into<Composite>) -> Self {
        self.problem.initial = initial.into();
        self
    }

    /// What is done.
    pub fn settings(mut self, settings: &Settings) -> Self {
        self.settings = settings.clone();
        self
    }

    /// Where it is computed: a device, a mesh of several or of several shards (images and all that belongs to a voxel are
    /// cut along z; linear stages run on the first device unless several share a large level), a device with little
    /// memory, or one of several processes. The result is the same but for rounding.
    pub fn on(mut self, placement: impl Into<Placement>) -> Self {
        self.placement = placement.into();
        self
    }

    /// Who is notified of its progress.
    pub fn observer(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observer = Box::new(observer);
        self
    }

    /// Continues from what an earlier run of one process with the same arguments has [`reached`](Observer::reached): the
    /// same bits.
    pub fn resume(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for a setting without meaning or that a device lacks, a constant
    /// image, fewer than [`MINIMUM_AXIS_VOXELS`](super::pyramid::MINIMUM_AXIS_VOXELS) along an axis, several shards of images of
    /// one plane, or a checkpoint with more stages than the settings; [`Error::NonFinite`](ffdp_image::Error::NonFinite)
    /// for NaN or infinite voxels; [`Error::NoOverlap`](ffdp_image::Error::NoOverlap) when the grids hardly overlap;
    /// [`Error::TooLarge`](ffdp_image::Error::TooLarge) when a device cannot hold one shard at work, when host memory
    /// cannot hold what rests there, or, in a linear stage, for images with masks;
    /// [`Error::Device`](ffdp_image::Error::Device) when a device fails; those of reading.
    pub fn run(self) -> Result<Registration> {
        let Self { problem, settings, placement, checkpoint, observer } = self;
        let start = Start::of(&problem.initial);
        let checkpoint = checkpoint.unwrap_or_else(|| Checkpoint::start(start.affine));
        let placement = placement.inner();
        let processes = Processes::of(&placement)?;
        let labels = driving_labels(&problem, &settings);
        let given = problem.content(match &labels {
            Ok(Some(channels)) => channels.labels,
            _ => 0,
        });
        processes.agree(check(&problem, given, &settings, &placement))?;
        let settings = settings.for_images(problem.fixed.geometry());
        let (labels, landmarks) = (labels?, driving_landmarks(&problem, &settings)?);
        let grids = [problem.fixed.geometry().clone(), problem.moving.geometry().clone()];
        let is_plane = plane_axis(&grids[0]).is_some();
        let whole = matches!(placement, Placement::DeviceMesh(_)) && problem.is_held();
        let mut sides = sides(problem, &settings);
        let [fixed, moving] = unknown(&processes, &mut sides)?;
        let ends = [&fixed, &moving].map(|of| of.iter().any(|channel| channel.ends_inside));
        let coverage = Coverage::new(ends, settings.displaces_fixed());
        let padding = |of: Vec<Unknown>| of.iter().map(|channel| channel.padding).collect();
        sides[0].weigh(padding(fixed), coverage, 0, is_plane);
        sides[1].weigh(padding(moving), coverage, 1, false);
        let content = content_of(&sides, given.labels);
        if content != given {
            // Their masks take room as well.
            processes.agree(settings.check_room(&placement, &grids, content))?;
        }
        let same = processes.check_same_task(&(&grids, content, &settings));
        processes.agree(same)?;
        if matches!(placement, Placement::Device { .. }) {
            warm_up(placement.home())?;
        }
        measure(&processes, &mut sides, &settings)?;
        if whole {
            sides.iter_mut().try_for_each(|side| side.hold(placement.home()))?;
        }
        let mut run = Run {
            grids,
            sides,
            whole,
            levels: Vec::new(),
            loss_interval: settings.loss_interval,
            minimum_axis: settings.minimum_axis_voxels,
            placement,
            processes,
            start,
            landmarks,
            labels,
            observer,
            checkpoint,
        };
        let result = run.stages(&settings)?;
        Registration::of(run, result)
    }
}

/// Both images with their channels, masks and the labels that drive.
fn sides<'a>(problem: Problem<'a>, settings: &Settings) -> [Side<'a>; 2] {
    let Problem { fixed, moving, more_channels, fixed_mask, moving_mask, labels, .. } = problem;
    let (mut of_fixed, mut of_moving) = (vec![fixed], vec![moving]);
    for [fixed, moving] in more_channels {
        of_fixed.push(fixed);
        of_moving.push(moving);
    }
    let mut sides = [
        Side::new(["the fixed image", "the fixed mask"], of_fixed, fixed_mask),
        Side::new(["the moving image", "the moving mask"], of_moving, moving_mask),
    ];
    if let (Some([fixed, moving]), Some(term)) = (labels, &settings.label_term) {
        sides[0].labels = Some(DrivingLabels::new("the fixed labels", fixed, &term.labels));
        sides[1].labels = Some(DrivingLabels::new("the moving labels", moving, &term.labels));
    }
    sides
}

/// What of the channels of both images is unknown; rank 0 reads them.
fn unknown(processes: &Processes, sides: &mut [Side; 2]) -> Result<[Vec<Unknown>; 2]> {
    let report = processes.run_on_root(|| {
        let [fixed, moving] = &mut *sides;
        let mut all = fixed.unknown()?;
        all.extend(moving.unknown()?);
        let numbers = all.iter().flat_map(|of| {
            [f64::from(u8::from(of.ends_inside)), of.padding.map_or(f64::NAN, f64::from)]
        });
        Ok(Report::new(&numbers.collect::<Vec<_>>(), Vec::new(), None))
    })?;
    let of = |numbers: &[f64]| Unknown {
        ends_inside: numbers[0] != 0.0,
        padding: (!numbers[1].is_nan()).then_some(numbers[1] as f32),
    };
    let mut fixed: Vec<Unknown> = report.numbers().chunks(2).map(of).collect();
    let moving = fixed.split_off(fixed.len() / 2);
    Ok([fixed, moving])
}

/// The scales of the channels of both images, which rank 0 reads at the same time.
fn measure(processes: &Processes, sides: &mut [Side; 2], settings: &Settings) -> Result<()> {
    let percentiles = settings.intensity_percentiles;
    let report = processes.run_on_root(|| {
        let [fixed, moving] = &mut *sides;
        let (in_fixed, in_moving) =
            join(|| fixed.measure(percentiles), || moving.measure(percentiles));
        in_fixed.and(in_moving)?;
        if settings.match_histograms {
            let (to, from) = join(|| fixed.landmarks(), || moving.landmarks());
            let pairs = from?.into_iter().zip(to?);
            for (scale, (from, to)) in moving.scales.iter_mut().zip(pairs) {
                scale.matching = Some(Matching { from, to });
            }
        }
        let (in_fixed, in_moving) = join(|| fixed.average(), || moving.average());
        in_fixed.and(in_moving)?;
        let scales = fixed.scales.iter().chain(&moving.scales);
        let numbers: Vec<f64> = scales.flat_map(numbers_of).collect();
        Ok(Report::new(&numbers, Vec::new(), None))
    })?;
    let numbers = report.numbers();
    let mut scales: Vec<Scale> = numbers.chunks(SCALE_NUMBERS).map(scale_of).collect();
    sides[1].scales = scales.split_off(scales.len() / 2);
    sides[0].scales = scales;
    Ok(())
}

const LANDMARKS: usize = std::mem::size_of::<Landmarks>() / std::mem::size_of::<f64>();
/// A range, a mean, and the landmarks of both images, which are no numbers where histograms are not matched.
const SCALE_NUMBERS: usize = 3 + 2 * LANDMARKS;

fn numbers_of(scale: &Scale) -> [f64; SCALE_NUMBERS] {
    let mut numbers = [f64::NAN; SCALE_NUMBERS];
    let Scale { range: [from, to], matching, mean } = scale;
    numbers[..3].copy_from_slice(&[*from, *to, *mean].map(f64::from));
    if let Some(Matching { from, to }) = matching {
        numbers[3..3 + LANDMARKS].copy_from_slice(from);
        numbers[3 + LANDMARKS..].copy_from_slice(to);
    }
    numbers
}

fn scale_of(numbers: &[f64]) -> Scale {
    let landmarks = |first: usize| std::array::from_fn(|i| numbers[first + i]);
    let matching = (!numbers[3].is_nan())
        .then(|| Matching { from: landmarks(3), to: landmarks(3 + LANDMARKS) });
    let [from, to, mean] = [0, 1, 2].map(|i| numbers[i] as f32);
    Scale { range: [from, to], matching, mean }
}

/// A first reduction on a device. Before it CubeCL measures how fast the memory is (autotuning), with 2 GiB of
/// it: which is to happen while nothing else is there.
fn warm_up(device: &Device) -> Result<()> {
    let small = Tensor::zeros([1, 3, 8, 64, 64], device);
    DisplacementBounds::read(&Sharded::whole(small))?;
    device.memory_cleanup();
    Ok(())
}
