//! The labels of several atlases on one image: each atlas is registered to it, and its labels are joined with those of the
//! others.
//!
//! Read `joint.rs` for the weights of joint label fusion. What belongs to an atlas lies on disk (`store.rs` of the crate)
//! and is joined run of planes by run of planes.

mod joint;
mod settings;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{LabelMap, Volume, runs};
use ffdp_image::metrics::dice;
use ffdp_register::{Placement, Register, Settings, verdict::Verdict};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::home::home;
use crate::images::{Images, Subject, each_ahead_by};
use crate::store::Store;
use crate::vote::majority;
use joint::{Block, joint};

pub use settings::{FusionMethod, FusionSettings, JointSettings};

/// Voxels that are joined at a time, of all atlases.
const PIECE: usize = 1 << 22;

/// How an atlas went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasReport {
    /// Its number in the list.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Whether its labels are among those that are joined.
    pub is_used: bool,
    /// What speaks against its registration, or why it cannot be used.
    pub reasons: Vec<String>,
    /// The loss before and after.
    pub loss: Option<[f64; 2]>,
    /// Mean Dice of its labels with the joined ones.
    pub dice: Option<f64>,
    /// Time that the registration took.
    pub seconds: f64,
}

/// Follows the fusion of labels. `Break` ends it with an error; with a folder, it can be gone on with.
pub trait FusionObserver: Send {
    /// An atlas was registered, or cannot be used.
    fn registered(&mut self, _report: &AtlasReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Labels that are yet to be joined.
pub struct Fusion<'a> {
    target: &'a Volume,
    atlases: &'a dyn Images,
    settings: FusionSettings,
    placements: Vec<Placement>,
    folder: Option<PathBuf>,
    observer: Option<&'a mut dyn FusionObserver>,
}

/// The labels of several atlases on one image.
#[derive(Clone, Debug, PartialEq)]
pub struct FusionResult {
    /// On the grid of the target.
    pub labels: LabelMap,
    /// In the order of the list.
    pub atlases: Vec<AtlasReport>,
    /// Voxels at which atlases were weighed, because they did not agree nearby; none by majority.
    pub weighed_voxels: usize,
}

impl<'a> Fusion<'a> {
    /// The labels of atlases on a target, by joint fusion with the default settings, on the CPU.
    pub fn new(target: &'a Volume, atlases: &'a dyn Images) -> Self {
        Self {
            target,
            atlases,
            settings: FusionSettings::default(),
            placements: vec![Placement::from(&Device::flex())],
            folder: None,
            observer: None,
        }
    }

    /// How it is done.
    pub fn settings(mut self, settings: &FusionSettings) -> Self {
        self.settings = settings.clone();
        self
    }

    /// Where registrations are computed.
    pub fn on(self, placement: impl Into<Placement>) -> Self {
        self.on_each(vec![placement.into()])
    }

    /// Several devices that share the atlases.
    ///
    /// # Panics
    /// If there are none.
    pub fn on_each(mut self, placements: Vec<Placement>) -> Self {
        assert!(!placements.is_empty(), "fusion needs a placement for its registrations");
        self.placements = placements;
        self
    }

    /// Where the state of the run is kept, and gone on from if the folder holds that of the same run; removed at the end.
    /// Without one, a temporary folder is used.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Who follows it.
    pub fn observer(mut self, observer: &'a mut dyn FusionObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Does it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings without meaning, where no atlas can be used, for the state of another run in the
    /// folder, and when the observer ends the run; [`Error::NonFinite`] of the target; [`Error::Device`] when a device
    /// fails; those of writing the state. An atlas that cannot be read or registered is left out, and its report says why.
    pub fn run(self) -> Result<FusionResult> {
        let Self { target, atlases, settings, placements, folder, observer } = self;
        settings.validate()?;
        target.check_finite("the target")?;
        let device = home(&placements[0], "labels are joined")?;
        let store =
            Store::open(folder.as_deref(), &identity(target, atlases, &settings, &device)?)?;
        struct Unobserved;
        impl FusionObserver for Unobserved {}
        let mut unobserved = Unobserved;
        let observer: &mut dyn FusionObserver = match observer {
            Some(observer) => observer,
            None => &mut unobserved,
        };
        let observer = Mutex::new(observer);
        let joining = Joining { target, atlases, settings: &settings, store };
        joining.register_all(&placements, &observer)?;
        joining.joined()
    }
}

/// A run.
struct Joining<'a> {
    target: &'a Volume,
    atlases: &'a dyn Images,
    settings: &'a FusionSettings,
    store: Store,
}

fn file_of(index: usize) -> String {
    format!("round-00/atlas-{index}")
}

impl Joining<'_> {
    fn register_all(
        &self,
        placements: &[Placement],
        observer: &Mutex<&mut dyn FusionObserver>,
    ) -> Result<()> {
        let mut order = Vec::new();
        for index in 0..self.atlases.count() {
            if self.store.read::<AtlasReport>(&file_of(index))?.is_none() {
                order.push(index);
            }
        }
        each_ahead_by(placements, self.atlases, &order, |placement, index, subject| {
            let clock = Instant::now();
            let seen = subject.and_then(|subject| self.seen(subject, placement));
            let (name, seconds) = (self.atlases.name(index), clock.elapsed().as_secs_f64());
            let report = AtlasReport {
                index,
                name,
                is_used: false,
                reasons: Vec::new(),
                loss: None,
                dice: None,
                seconds,
            };
            let report = match seen {
                Err(error @ (Error::Device { .. } | Error::LostRank { .. })) => return Err(error),
                Err(error) => {
                    let report = AtlasReport { reasons: vec![error.to_string()], ..report };
                    self.store.write(&file_of(index), &report, &[])?;
                    report
                }
                Ok(OnTarget { image, labels, loss, is_used, reasons }) => {
                    let report = AtlasReport { is_used, reasons, loss: Some(loss), ..report };
                    let values: [&[f32]; 2] = [&image, bytemuck::cast_slice(&labels)];
                    self.store.write(&file_of(index), &report, &values)?;
                    report
                }
            };
            let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
            match observer.registered(&report) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::invalid(
                    "the fusion must be followed to its end",
                    "an observer that ended it",
                    "run it again: with a folder it goes on from the last atlas that was registered",
                )),
            }
        })
    }

    /// An atlas on the target.
    fn seen(&self, Subject { image, labels }: Subject, placement: &Placement) -> Result<OnTarget> {
        let fix = "name the labels of each atlas";
        let labels = labels.ok_or_else(|| Error::invalid("an atlas needs labels", "none", fix))?;
        image.geometry.check_same_grid(&labels.geometry, "the label map of an atlas")?;
        let settings: &Settings = &self.settings.registration;
        let found = Register::new(self.target, &image).settings(settings).on(placement).run()?;
        let assessment = found.evidence(settings, &image.geometry)?.assess();
        let map = found.transform()?.on_grid(&self.target.geometry, found.device());
        let image = map.warp(&image, Interpolation::Linear)?.data;
        let labels = map.warp_labels(&labels, Interpolation::Nearest)?.data;
        Ok(OnTarget {
            image,
            labels,
            loss: [found.loss_before, found.loss_after],
            is_used: assessment.verdict != Verdict::Failed,
            reasons: assessment.reasons,
        })
    }

    /// Joins what the atlases show, and measures how each agrees with it.
    fn joined(&self) -> Result<FusionResult> {
        let reports = (0..self.atlases.count()).map(|index| {
            let report = self.store.read::<AtlasReport>(&file_of(index))?;
            Ok(report.expect("it was written or read a moment ago"))
        });
        let mut atlases = reports.collect::<Result<Vec<AtlasReport>>>()?;
        let used = || atlases.iter().filter(|atlas| atlas.is_used);
        let files: Vec<String> = used().map(|atlas| file_of(atlas.index)).collect();
        if files.is_empty() {
            let reasons = atlases.iter().map(|a| format!("{}: {}", a.name, a.reasons.join("; ")));
            let what = "one atlas or more must be registered to the target";
            return Err(Error::invalid(what, 0, reasons.collect::<Vec<_>>().join("; ")));
        }
        let grid = &self.target.geometry;
        let [nx, ny, nz] = grid.size;
        let (plane, voxels) = (nx * ny, grid.len());
        let labels_of = |file: &String, range: std::ops::Range<usize>| {
            self.store.values::<i32>(file, voxels + range.start..voxels + range.end)
        };
        let (mut data, mut weighed_voxels) = (Vec::with_capacity(voxels), 0);
        for planes in runs(grid, (PIECE / files.len()).max(plane)) {
            match self.settings.method {
                FusionMethod::Majority => {
                    let range = planes.start * plane..planes.end * plane;
                    let all = files.iter().map(|file| labels_of(file, range.clone()));
                    let all = all.collect::<Result<Vec<Vec<i32>>>>()?;
                    let voted = |voxel: usize| {
                        majority(&mut all.iter().map(|labels| labels[voxel]).collect::<Vec<_>>())
                    };
                    data.par_extend((0..range.len()).into_par_iter().map(voted));
                }
                FusionMethod::Joint(settings) => {
                    let around = settings.patch_radius + settings.search_radius;
                    let held = planes.start.saturating_sub(around)..(planes.end + around).min(nz);
                    let range = held.start * plane..held.end * plane;
                    let images =
                        files.iter().map(|file| self.store.values::<f32>(file, range.clone()));
                    let labels = files.iter().map(|file| labels_of(file, range.clone()));
                    let block = Block {
                        size: [nx, ny, held.len()],
                        target: &self.target.data[range.clone()],
                        images: images.collect::<Result<_>>()?,
                        labels: labels.collect::<Result<_>>()?,
                    };
                    let own = planes.start - held.start..planes.end - held.start;
                    let (labels, weighed) = joint(&block, own, settings)?;
                    data.extend(labels);
                    weighed_voxels += weighed;
                }
            }
        }
        for atlas in atlases.iter_mut().filter(|atlas| atlas.is_used) {
            let own = labels_of(&file_of(atlas.index), 0..voxels)?;
            atlas.dice = Some(dice(&data, &own)?.mean()).filter(|dice| !dice.is_nan());
        }
        self.store.clear()?;
        Ok(FusionResult { labels: LabelMap::new(data, grid.clone())?, atlases, weighed_voxels })
    }
}

/// An atlas on the target.
struct OnTarget {
    image: Vec<f32>,
    labels: Vec<i32>,
    loss: [f64; 2],
    is_used: bool,
    reasons: Vec<String>,
}

/// What decides the result; of the atlases, which are not read for it, their versions.
fn identity(
    target: &Volume,
    atlases: &dyn Images,
    settings: &FusionSettings,
    device: &Device,
) -> Result<String> {
    let settings = serde_json::to_string(settings).map_err(|reason| {
        Error::invalid("settings must be serializable", reason.to_string(), "report this")
    })?;
    let mut hash = Sha256::new();
    let grid = &target.geometry;
    hash.update(format!("{}\n{settings}\n{device:?}\n{grid:?}\n", env!("CARGO_PKG_VERSION")));
    hash.update(bytemuck::cast_slice::<f32, u8>(&target.data));
    (0..atlases.count()).for_each(|index| hash.update(format!("{}\n", atlases.version(index))));
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
