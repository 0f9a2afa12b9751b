//! The registration of a series from beginning to end.

use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::transform::Composite;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::io::check_memory;
use ffdp_register::{Placement, Settings, Source, Stage};

use super::mean::Mean;
use super::pass::{
    Intensities, Pass, SeriesObserver, SilentSeries, Starts, VolumeOutcome, volumes_at_once,
};
use super::result::{Onto, SeriesRegistration};
use super::settings::{Reference, motion_settings};
use super::volumes::{SeriesImage, unusable};

/// A series that is yet to be registered: every volume onto an image of the series, or onto another one.
///
/// A volume that cannot be registered (constant, NaN) gets the transform of its neighbour, and is named in the result;
/// the others go on.
pub struct RegisterSeries<'a> {
    images: &'a SeriesImage<'a>,
    target: Target<'a>,
    masks: [Option<&'a Volume>; 2],
    settings: Option<Settings>,
    initial: Composite,
    placement: Placement,
    observer: Box<dyn SeriesObserver + 'a>,
}

/// What volumes are brought onto.
#[derive(Clone, Copy)]
enum Target<'a> {
    Own(Reference),
    Other(&'a Volume),
}

impl<'a> RegisterSeries<'a> {
    /// A series onto its own mean, rigid, on the CPU.
    pub fn new(images: &'a SeriesImage<'a>) -> Self {
        let placement = Placement::from(&Device::flex());
        Self {
            images,
            target: Target::Own(Reference::default()),
            masks: [None; 2],
            settings: None,
            initial: Composite::default(),
            placement,
            observer: Box::new(SilentSeries),
        }
    }

    /// Which image of the series its volumes are brought onto.
    pub fn reference(self, reference: Reference) -> Self {
        Self { target: Target::Own(reference), ..self }
    }

    /// Another image that all volumes are brought onto. The settings are then those of a pair by default.
    pub fn fixed(self, fixed: &'a Volume) -> Self {
        Self { target: Target::Other(fixed), ..self }
    }

    /// How much voxels of the reference, or of the fixed image, count: 0 to 1, on its grid.
    pub fn fixed_mask(self, mask: &'a Volume) -> Self {
        Self { masks: [Some(mask), self.masks[1]], ..self }
    }

    /// The same of each volume, on the grid of the series: what is wrong at the same voxels of all of them.
    pub fn moving_mask(self, mask: &'a Volume) -> Self {
        Self { masks: [self.masks[0], Some(mask)], ..self }
    }

    /// What is done for each volume [default: [`motion_settings`] with a rigid stage alone; with a fixed image those of a
    /// pair]. Moments are done for the first volume only; the others start from their neighbours.
    pub fn settings(self, settings: &Settings) -> Self {
        Self { settings: Some(settings.clone()), ..self }
    }

    /// Where the first volume starts, see [`Register::initial`](ffdp_register::Register::initial).
    pub fn initial(self, initial: impl Into<Composite>) -> Self {
        Self { initial: initial.into(), ..self }
    }

    /// Where it is computed, see [`Register::on`](ffdp_register::Register::on).
    pub fn on(self, placement: impl Into<Placement>) -> Self {
        Self { placement: placement.into(), ..self }
    }

    /// Who is notified of its progress.
    pub fn observer(self, observer: &'a mut dyn SeriesObserver) -> Self {
        Self { observer: Box::new(observer), ..self }
    }

    /// The settings, with levels for the grid that volumes are brought onto.
    fn resolved(&self) -> Settings {
        let settings = self.settings.clone().unwrap_or_else(|| match self.target {
            Target::Own(_) => motion_settings("rigid"),
            Target::Other(_) => Settings::default(),
        });
        let resolved = settings.for_images(self.grid());
        let are_left = settings.stages.iter().map(|stage| stage.levels().is_empty());
        let stages = resolved.stages.iter().zip(are_left).map(|(stage, are_left)| {
            match (are_left, self.target) {
                (true, Target::Own(_)) => smoothed(stage),
                _ => stage.clone(),
            }
        });
        Settings { stages: stages.collect(), ..resolved }
    }

    fn grid(&self) -> &Geometry {
        match self.target {
            Target::Own(_) => self.images.grid(),
            Target::Other(fixed) => &fixed.geometry,
        }
    }

    /// Bytes of host memory at the peak: volumes that are read ahead, those at work, and the mean.
    pub fn host_bytes(&self) -> u64 {
        /// A volume as it is read and, for a mean, as it is seen on the grid.
        const OF_A_VOLUME: u64 = 4 + 5;
        /// The sum, the count and the result of a mean, and the fixed image on all levels.
        const OF_THE_REFERENCE: u64 = 16 + 8;
        let settings = self.resolved();
        let deforms = settings.stages.iter().any(|stage| !stage.is_linear());
        let (volume, fixed) = (self.images.grid().len() as u64, self.grid().len() as u64);
        let work = settings.stages.iter().map(Stage::host_bytes_per_voxel).max().unwrap_or(0);
        let placement = self.placed(&settings);
        let threads = threads(&placement);
        let (held, at_work) = if deforms { (1, 1) } else { (volumes_at_once(threads), threads) };
        // And one that is read.
        (held as u64 + 1) * OF_A_VOLUME * volume
            + OF_THE_REFERENCE * fixed
            + at_work as u64 * (work * fixed + 8 * volume)
    }

    /// Registers it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings without meaning, a reference that is none of the volumes or cannot be used, a
    /// series none of whose volumes can, and a start that deforms where volumes are brought onto their mean; [`Error::Grid`]
    /// for a mask on another grid, and [`Error::Invalid`] for one that holds no weights; [`Error::TooLarge`] where memory or a device has no room; those of reading and
    /// of devices.
    pub fn run(mut self) -> Result<SeriesRegistration> {
        let clock = Instant::now();
        let settings = self.resolved();
        self.check()?;
        check_memory("registering the series", self.host_bytes())?;
        let (onto, reference, outcomes) = match self.target {
            Target::Other(fixed) => {
                let outcomes = self.pass(fixed, &settings, None, [0, 1], None)?;
                (Onto::Fixed, fixed.clone(), outcomes)
            }
            Target::Own(Reference::Mean) => {
                let settings = without_moments(&settings);
                let (_, middle) = self.middle()?;
                let mut mean = Mean::new(self.images.grid());
                let coarse = coarse_part(&settings, self.images.grid());
                let placed = self.pass(&middle, &coarse, None, [0, 2], Some(&mut mean))?;
                check_some(&placed)?;
                let mean = mean.into_volume()?;
                let fine = fine_part(&settings);
                let outcomes = self.pass(&mean, &fine, Some(&placed), [1, 2], None)?;
                (Onto::Mean, mean, outcomes)
            }
            Target::Own(reference) => {
                let (k, volume) = self.own(reference)?;
                let settings = without_moments(&settings);
                let outcomes = self.pass(&volume, &settings, None, [0, 1], None)?;
                (Onto::Volume(k), volume, outcomes)
            }
        };
        check_some(&outcomes)?;
        let seconds = clock.elapsed().as_secs_f64();
        SeriesRegistration::of(onto, reference, outcomes, settings, seconds)
    }

    /// Refuses settings, masks and a start that [`RegisterSeries::run`] would refuse, before any volume is read.
    ///
    /// # Errors
    /// As there.
    pub fn check(&self) -> Result<()> {
        self.resolved().validate()?;
        let names = ["the mask of the reference", "the mask of the volumes"];
        let grids = [self.grid(), self.images.grid()];
        for ((name, grid), mask) in names.into_iter().zip(grids).zip(self.masks) {
            let Some(mask) = mask else { continue };
            grid.check_same_grid(&mask.geometry, name)?;
            Source::from(mask).check_is_mask(name)?;
        }
        let is_mean = matches!(self.target, Target::Own(Reference::Mean));
        match is_mean && !self.initial.split_affine().0.steps().is_empty() {
            false => Ok(()),
            true => Err(Error::invalid(
                "the start of a series that is brought onto its mean must be linear",
                "a transform that deforms",
                "choose a volume as the reference, or another image as the fixed one",
            )),
        }
    }

    fn pass(
        &mut self,
        fixed: &Volume,
        settings: &Settings,
        placed: Option<&[VolumeOutcome]>,
        number: [usize; 2],
        mean: Option<&mut Mean>,
    ) -> Result<Vec<VolumeOutcome>> {
        let starts = match placed {
            Some(placed) => Starts::Earlier(placed),
            None => Starts::Neighbours(&self.initial),
        };
        let placement = self.placed(settings);
        let pass = Pass {
            images: self.images,
            fixed,
            masks: self.masks,
            intensities: match self.target {
                Target::Own(_) => Intensities::OneScale,
                Target::Other(_) => Intensities::Own,
            },
            settings,
            starts,
            placement: &placement,
            threads: threads(&placement),
            number,
        };
        pass.run(mean, &mut *self.observer)
    }

    /// Where a pass is computed: on the processor's cores, several volumes at a time, where all levels are as small as
    /// those of [`motion_settings`] of an echo-planar image. A GPU has less to do there than to begin: 60 volumes of
    /// 80x80x35 voxels took an H200 7.8 s at first and 3.7 again, and 16 cores of its host 3.1 (benchmarks/series-levels.json).
    fn placed(&self, settings: &Settings) -> Placement {
        const SMALL: f64 = 56.0 * 56.0 * 56.0;
        let voxels = self.grid().len() as f64;
        let is_small = |stage: &Stage| {
            stage.is_linear() && stage.levels().iter().all(|l| voxels <= SMALL * l.shrink.powi(3))
        };
        match &self.placement {
            Placement::DeviceMesh(_) if settings.stages.iter().all(is_small) => {
                Placement::from(&Device::flex())
            }
            given => given.clone(),
        }
    }

    /// The volume in the middle that can be used, or the next to it.
    fn middle(&self) -> Result<(usize, Volume)> {
        let (count, middle) = (self.images.count(), self.images.count() / 2);
        let around = (0..count).flat_map(|away| [middle.checked_sub(away), Some(middle + away)]);
        for k in around.flatten().filter(|k| *k < count) {
            let volume = self.images.volume(k)?;
            if unusable(&volume).is_none() {
                return Ok((k, volume));
            }
        }
        Err(none_usable(count))
    }

    /// A reference among the volumes.
    fn own(&self, reference: Reference) -> Result<(usize, Volume)> {
        let k = match reference {
            Reference::Mean | Reference::Middle => return self.middle(),
            Reference::First => 0,
            Reference::Volume(k) => k,
        };
        let volume = self.images.volume(k)?;
        match unusable(&volume) {
            None => Ok((k, volume)),
            Some(reason) => Err(Error::invalid(
                "the reference of a series must be a volume that can be used",
                format_args!("volume {k}: {reason}"),
                "choose another volume, or the mean",
            )),
        }
    }
}

/// Volumes at a time: cores of a CPU. Volumes of a GPU follow each other.
fn threads(placement: &Placement) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match placement {
        Placement::DeviceMesh(mesh) if *mesh.device(0) == Device::flex() => cores,
        _ => 1,
    }
}

/// Least shrink factor of levels that are left to the images. Nothing is smoothed on a level of 1, and noise then draws
/// volumes to where linear interpolation blurs it; a coarser level loses what is small. Of seven from
/// 1 to 1.67 it has the least error for a real series moved by 2 mm, and is within 6 % of the least for one moved by 0.3 mm
/// and for an object with 2 % noise (benchmarks/series-levels.json).
const LEAST_SHRINK: f64 = 1.15;

/// A stage on levels of which each is smoothed.
fn smoothed(stage: &Stage) -> Stage {
    let mut stage = stage.clone();
    stage.levels_mut().iter_mut().for_each(|level| level.shrink = level.shrink.max(LEAST_SHRINK));
    stage
}

fn check_some(outcomes: &[VolumeOutcome]) -> Result<()> {
    match outcomes.iter().any(Result::is_ok) {
        true => Ok(()),
        false => Err(match outcomes.first() {
            Some(Err(reason)) => Error::invalid(
                "a volume of the series must be one that can be registered",
                format_args!("{} that cannot, the first of them: {reason}", outcomes.len()),
                "check that it is the file you meant",
            ),
            _ => none_usable(outcomes.len()),
        }),
    }
}

fn none_usable(count: usize) -> Error {
    Error::invalid(
        "a volume of the series must be finite and not constant",
        format_args!("{count} volumes of which none is"),
        "check that it is the file you meant",
    )
}

/// A series lies where it lies: moments of its own volumes say nothing more.
fn without_moments(settings: &Settings) -> Settings {
    let stages = settings.stages.iter().filter(|stage| !matches!(stage, Stage::Moments(_)));
    Settings { stages: stages.cloned().collect(), ..settings.clone() }
}

/// The linear stages but for their finest level: enough for a mean.
fn coarse_part(settings: &Settings, grid: &Geometry) -> Settings {
    let mut stages: Vec<Stage> =
        settings.stages.iter().filter(|stage| stage.is_linear()).cloned().collect();
    if stages.is_empty() {
        stages = motion_settings("rigid").for_images(grid).stages;
    }
    if let Some(last) = stages.last_mut() {
        let levels = last.levels();
        let coarse = levels[..levels.len().saturating_sub(1).max(1)].to_vec();
        *last = last.clone().with_levels(coarse);
    }
    Settings { stages, ..settings.clone() }
}

/// What is left to do from there: the finest level of the last linear stage, and all that deforms.
fn fine_part(settings: &Settings) -> Settings {
    let linear = settings.stages.iter().rfind(|stage| stage.is_linear());
    let finest = linear.map(|stage| {
        let levels = stage.levels();
        stage.clone().with_levels(levels[levels.len() - 1..].to_vec())
    });
    let deformable = settings.stages.iter().filter(|stage| !stage.is_linear()).cloned();
    Settings { stages: finest.into_iter().chain(deformable).collect(), ..settings.clone() }
}
