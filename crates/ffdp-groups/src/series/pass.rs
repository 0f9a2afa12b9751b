//! One pass over a series: every volume onto one image.
//!
//! Volumes of which only linear stages are wanted are registered in parallel on the cores of a CPU. Each starts from what was
//! found for the volume [`LAG`] before it, so that the result does not depend on the number of cores, or from what an
//! earlier pass has found for itself. Volumes that deform come one after the other: each starts from the deformation of
//! its neighbour, and its linear stages from the neighbour's linear map.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ffdp_burn::transform::{Composite, Step};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Physical, Volume};
use ffdp_register::{
    Placement, Problem, Register, Registration, Settings, Stage,
    report::StageReport,
    shared::SharedImage,
    verdict::{Assessment, Evidence},
};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::mean::{Mean, Placed};
use super::volumes::{SeriesImage, unusable};

/// A map of space.
pub(super) type Map = Affine<Physical, Physical>;

/// How many volumes earlier the one lies from which a volume starts, and so how many are registered at the same time.
const LAG: usize = 16;

/// How far a series has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesProgress {
    /// The pass under way, from 0, and how many there are.
    pub pass: usize,
    /// All passes.
    pub passes: usize,
    /// Volumes that are done.
    pub done: usize,
    /// All volumes.
    pub volumes: usize,
}

/// Follows the registration of a series.
pub trait SeriesObserver {
    /// Some volumes more are done. `Break` ends the run with an error, for its other volumes would have no transform.
    fn volumes_done(&mut self, _progress: &SeriesProgress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// What was found for a volume in the last pass, in their order, while its deformation is in memory.
    ///
    /// # Errors
    /// Whatever it says: it ends the run.
    fn found(&mut self, _volume: usize, _found: &Registration) -> Result<()> {
        Ok(())
    }
}

/// The observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentSeries;

impl SeriesObserver for SilentSeries {}

impl<O: SeriesObserver + ?Sized> SeriesObserver for &mut O {
    fn volumes_done(&mut self, progress: &SeriesProgress) -> ControlFlow<()> {
        (**self).volumes_done(progress)
    }

    fn found(&mut self, volume: usize, found: &Registration) -> Result<()> {
        (**self).found(volume, found)
    }
}

/// What a pass found for a volume.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub affine: Map,
    pub stages: Vec<StageReport>,
    pub loss: f64,
    pub assessment: Assessment,
}

/// What became of a volume: found, or why not.
pub(super) type VolumeOutcome = Result<Found, String>;

/// Where volumes start.
pub(super) enum Starts<'a> {
    /// The first one here, the others from their neighbours.
    Neighbours(&'a Composite),
    /// Each of them where an earlier pass has put it; those that it could not place are left out.
    Earlier(&'a [VolumeOutcome]),
}

/// How the intensities of the volumes and of the fixed image go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intensities {
    /// They are those of one series: all are compared on the scale of the fixed image. A scale of each volume's own would
    /// be that of its noise, and the interpolation makes up for differences of scale by a shift: errors were nearly three
    /// times those of one scale.
    OneScale,
    /// Each image has a scale of its own.
    Own,
}

/// Part of the range of intensities that is background, whose noise is left out: most voxels of a head are outside it, and
/// noise draws a volume to where the interpolation blurs it.
const BACKGROUND: f32 = 0.1;

/// Volumes in memory where all of them may be registered at any time: one at work on each thread and one that waits for it.
fn volumes_at_work(threads: usize) -> usize {
    2 * threads
}

/// Volumes in memory at the same time, at most.
pub(super) fn volumes_at_once(threads: usize) -> usize {
    LAG.max(volumes_at_work(threads))
}

/// One pass.
pub(super) struct Pass<'a> {
    pub images: &'a SeriesImage<'a>,
    pub fixed: &'a Volume,
    /// Of the fixed image, and of each volume.
    pub masks: [Option<&'a Volume>; 2],
    pub intensities: Intensities,
    /// With levels for the fixed image.
    pub settings: &'a Settings,
    pub starts: Starts<'a>,
    pub placement: &'a Placement,
    pub threads: usize,
    /// Which of how many.
    pub number: [usize; 2],
}

/// Where a volume starts: a deformation, if there is one, and the linear map that follows it.
#[derive(Clone)]
struct Start {
    deformation: Vec<Step>,
    affine: Map,
}

/// What is made of one volume.
struct Done {
    found: Found,
    /// On the grid of the fixed image, where a mean is wanted.
    placed: Option<Placed>,
    /// Where there is a deformation.
    registration: Option<Registration>,
}

impl Pass<'_> {
    /// Registers all volumes; `mean` gets those that were found, in their order.
    ///
    /// # Errors
    /// Those of reading, of devices and of the observer. What speaks against a single volume is its own outcome.
    pub fn run(
        &self,
        mut mean: Option<&mut Mean>,
        observer: &mut dyn SeriesObserver,
    ) -> Result<Vec<VolumeOutcome>> {
        let count = self.images.count();
        let range = self.range()?;
        let limited = range.map(|range| limited(self.fixed, range));
        let shared = SharedImage::new(limited.as_ref().unwrap_or(self.fixed));
        let mut settings = self.settings.clone();
        if range.is_some() {
            settings.intensity_percentiles = [0.0, 100.0];
        }
        let work =
            Work { pass: self, shared: &shared, settings, range, wants_mean: mean.is_some() };
        let mut outcomes: Vec<VolumeOutcome> = Vec::with_capacity(count);
        work.each(|k, done| {
            let (outcome, start) = match done {
                Err(reason) => (Err(reason), None),
                Ok(Done { found, placed, registration }) => {
                    if let (Some(mean), Some(placed)) = (&mut mean, &placed) {
                        mean.add(placed);
                    }
                    let mut deformation = Vec::new();
                    if let Some(registration) = &registration {
                        observer.found(k, registration)?;
                        let warp = registration.warp.as_ref().map(|warp| warp.displacement());
                        deformation.extend(warp.transpose()?.map(Step::Displacement));
                    }
                    let start = Start { deformation, affine: found.affine };
                    (Ok(found), Some(start))
                }
            };
            outcomes.push(outcome);
            let [pass, passes] = self.number;
            let (done, volumes) = (outcomes.len(), count);
            match observer.volumes_done(&SeriesProgress { pass, passes, done, volumes }) {
                ControlFlow::Continue(()) => Ok(start),
                ControlFlow::Break(()) => Err(Error::invalid(
                    "every volume of a series needs its transform",
                    format_args!("an end after {done} of {volumes} volumes"),
                    "start it anew",
                )),
            }
        })?;
        Ok(outcomes)
    }

    /// What intensities are limited to, so that the extremes of all volumes are the same and the background has no noise.
    fn range(&self) -> Result<Option<[f32; 2]>> {
        if self.intensities == Intensities::Own {
            return Ok(None);
        }
        let [low, high] = self.fixed.percentiles(self.settings.intensity_percentiles)?;
        // A deformation may have to match what is dark, as air in a lung.
        let background = if self.deforms() { 0.0 } else { BACKGROUND };
        let low = low + background * (high - low);
        Ok((low < high).then_some([low, high]))
    }

    /// Reads the volumes, in their order, as they are taken.
    fn read(&self, to: &SyncSender<Result<Volume>>) {
        let mut reader = match self.images.read() {
            Ok(reader) => reader,
            Err(error) => return drop(to.send(Err(error))),
        };
        // Nobody receives after a failure.
        while reader.next().is_some_and(|volume| to.send(volume).is_ok()) {}
    }

    /// How many volumes may be begun when one is waited for. What the first volume alone does (moments, an initial map)
    /// comes before all others: until a volume is found, they have no `start`.
    fn at_once(&self, start: Option<&Start>) -> usize {
        let is_alone = self.settings.stages.iter().any(|stage| matches!(stage, Stage::Moments(_)));
        match &self.starts {
            _ if self.deforms() => 1,
            Starts::Earlier(_) => volumes_at_work(self.threads),
            Starts::Neighbours(_) if start.is_none() && is_alone => 1,
            Starts::Neighbours(_) => LAG,
        }
    }

    fn deforms(&self) -> bool {
        self.settings.stages.iter().any(|stage| !stage.is_linear())
    }

    /// One thread for each volume at a time: a volume is too small for several.
    fn pools(&self) -> Result<Vec<ThreadPool>> {
        let count = if self.deforms() { 0 } else { self.threads };
        let pool = |_| {
            ThreadPoolBuilder::new().num_threads(1).build().map_err(|reason| Error::Io {
                path: "the threads of a series".into(),
                action: "start",
                source: std::io::Error::other(reason),
            })
        };
        (0..count).map(pool).collect()
    }
}

/// What is the same for all volumes of a pass.
struct Work<'a> {
    pass: &'a Pass<'a>,
    shared: &'a SharedImage<'a>,
    settings: Settings,
    range: Option<[f32; 2]>,
    wants_mean: bool,
}

impl Work<'_> {
    /// Registers all volumes: `each` gets what became of them, in their order, and says where one that is begun after it
    /// starts.
    ///
    /// # Errors
    /// Those of `each`, of reading and of devices.
    fn each(
        &self,
        mut each: impl FnMut(usize, Result<Done, String>) -> Result<Option<Start>>,
    ) -> Result<()> {
        let count = self.pass.images.count();
        let pools = self.pass.pools()?;
        let (give, jobs) = channel::<(usize, Volume, Option<Start>)>();
        let jobs = Mutex::new(jobs);
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let register = |(k, volume, start): (usize, Volume, Option<Start>)| {
            let done = || self.volume(k, &volume, start.as_ref());
            (k, catch_unwind(AssertUnwindSafe(done)))
        };
        thread::scope(|scope| {
            // Ends the threads below, however this ends.
            let give = give;
            let (to, volumes) = sync_channel(0);
            scope.spawn(move || self.pass.read(&to));
            let (say, hear) = channel();
            for pool in pools.iter().filter(|_| pools.len() > 1) {
                let (say, next, register) = (say.clone(), &next, &register);
                scope.spawn(move || {
                    pool.install(
                        || {
                            while next().is_ok_and(|job| say.send(register(job)).is_ok()) {}
                        },
                    );
                });
            }
            let (mut start, mut begun, mut done) = (None, 0, BTreeMap::new());
            for k in 0..count {
                while begun < count.min(k + self.pass.at_once(start.as_ref())) {
                    let volume =
                        volumes.recv().expect("a series has as many volumes as it says")?;
                    let given = give.send((begun, volume, start.clone()));
                    given.expect("the other end is in this function");
                    begun += 1;
                }
                while !done.contains_key(&k) {
                    let (k, volume) = match pools.len() {
                        0 | 1 => register(next().expect("the volume was begun")),
                        _ => hear.recv().expect("this thread could speak as well"),
                    };
                    done.insert(k, volume);
                }
                let volume = done.remove(&k).expect("just found");
                let volume = volume.unwrap_or_else(|panic| resume_unwind(panic))?;
                start = each(k, volume)?.or(start);
            }
            Ok(())
        })
    }

    /// One volume; of one that cannot be registered why.
    fn volume(
        &self,
        k: usize,
        volume: &Volume,
        neighbour: Option<&Start>,
    ) -> Result<Result<Done, String>> {
        let (start, is_first) = match (&self.pass.starts, neighbour) {
            (Starts::Earlier(outcomes), _) => match &outcomes[k] {
                Ok(found) => {
                    let deformation = neighbour.map(|start| start.deformation.clone());
                    let deformation = deformation.unwrap_or_default();
                    (Start { deformation, affine: found.affine }, false)
                }
                Err(reason) => return Ok(Err(reason.clone())),
            },
            (Starts::Neighbours(_), Some(neighbour)) => (neighbour.clone(), false),
            (Starts::Neighbours(initial), None) => {
                let (before, affine) = initial.split_affine();
                (Start { deformation: before.steps().to_vec(), affine }, true)
            }
        };
        if let Some(reason) = unusable(volume) {
            return Ok(Err(reason));
        }
        match self.register(volume, start, is_first) {
            Ok(done) => Ok(Ok(done)),
            Err(error @ (Error::Device { .. } | Error::TooLarge { .. } | Error::Io { .. })) => {
                Err(error)
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn register(&self, volume: &Volume, start: Start, is_first: bool) -> Result<Done> {
        let Start { deformation, mut affine } = start;
        let (linear, deformable) = parts(&self.settings, is_first);
        let limited = self.range.map(|range| limited(volume, range));
        let compared = limited.as_ref().unwrap_or(volume);
        let mut stages = Vec::new();
        let mut last = None;
        if let Some(linear) = &linear {
            let found = self.run(compared, linear, Composite::from(affine))?;
            affine = found.affine;
            stages.extend(found.stages.iter().cloned());
            last = Some((found, linear));
        }
        if let Some(deformable) = &deformable {
            let steps = deformation.into_iter().chain([Step::Affine(affine)]).collect();
            let found = self.run(compared, deformable, Composite::new(steps))?;
            affine = found.affine;
            stages.extend(found.stages.iter().cloned());
            last = Some((found, deformable));
        }
        let Some((registration, settings)) = last else {
            // A single stage of moments is for the first volume alone.
            let loss = f64::NAN;
            let assessment = Evidence::default().assess();
            let found = Found { affine, stages, loss, assessment };
            return Ok(Done { found, placed: None, registration: None });
        };
        // That a volume which lies where its neighbour lay gains nothing is no fault.
        let evidence = registration.evidence(settings, &volume.geometry)?;
        let assessment = Evidence { loss: None, stages: &stages, ..evidence }.assess();
        let loss = registration.loss_after;
        let placed = self
            .wants_mean
            .then(|| Placed::of(volume, &affine, &self.pass.fixed.geometry, registration.device()));
        let found = Found { affine, stages, loss, assessment };
        let registration = deformable.is_some().then_some(registration);
        Ok(Done { found, placed: placed.transpose()?, registration })
    }

    fn run(
        &self,
        volume: &Volume,
        settings: &Settings,
        initial: Composite,
    ) -> Result<Registration> {
        let mut problem = Problem::new(self.shared, volume);
        let [fixed_mask, moving_mask] = self.pass.masks;
        problem.fixed_mask = fixed_mask.map(Into::into);
        problem.moving_mask = moving_mask.map(Into::into);
        problem.initial = initial;
        Register::of(problem).settings(settings).on(self.pass.placement).run()
    }
}

/// The volume with its intensities limited to a range.
fn limited(volume: &Volume, [low, high]: [f32; 2]) -> Volume {
    let data = volume.data.iter().map(|value| value.clamp(low, high)).collect();
    Volume { data, geometry: volume.geometry.clone() }
}

/// The linear stages, of all but the first volume without moments, and those that deform.
fn parts(settings: &Settings, is_first: bool) -> (Option<Settings>, Option<Settings>) {
    let part = |keep: &dyn Fn(&Stage) -> bool| {
        let stages: Vec<Stage> = settings.stages.iter().filter(|s| keep(s)).cloned().collect();
        (!stages.is_empty()).then(|| Settings { stages, ..settings.clone() })
    };
    let linear =
        part(&|stage| stage.is_linear() && (is_first || !matches!(stage, Stage::Moments(_))));
    (linear, part(&|stage| !stage.is_linear()))
}
