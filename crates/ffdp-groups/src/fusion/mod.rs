//! The labels of several atlases on one image: each atlas is registered to it, and its labels are joined with those of the
//! others.
//!
//! Read `joint.rs` for the weights of joint label fusion. What belongs to an atlas lies on disk (`store.rs` of the crate)
//! and is joined run of planes by run of planes.

mod joint;
mod settings;

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{LabelMap, Volume, runs};
use ffdp_image::metrics::dice;
use ffdp_register::{Placement, Register, Settings, verdict::Assessment};
use rayon::prelude::*;
use serde::Serialize;
use sha2::Digest;

use crate::home::home;
use crate::images::{Images, Subject};
use crate::registrations::{
    ImageReport, Kept, Registered, Registering, register_missing, unless_ended,
};
use crate::store::{Store, identity};
use crate::vote::majority;
use joint::{Block, joint};

pub use settings::{FusionMethod, FusionSettings, JointSettings};

/// Voxels that are joined at a time, of all atlases.
const PIECE: usize = 1 << 22;

/// How an atlas went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AtlasReport {
    /// Its registration to the target.
    #[serde(flatten)]
    pub registration: ImageReport,
    /// Mean Dice of its labels with the joined ones.
    pub dice: Option<f64>,
}

/// Follows the fusion of labels. `Break` ends it with an error; with a folder, it can be gone on with.
pub trait FusionObserver: Send {
    /// An atlas was registered, or cannot be used.
    fn registered(&mut self, _report: &ImageReport) -> ControlFlow<()> {
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
        // Of the atlases, which are not read for it, their versions.
        let identity = identity(&settings, &device, &target.geometry, |hash| {
            hash.update(bytemuck::cast_slice::<f32, u8>(&target.data));
            let versions = (0..atlases.count()).map(|index| atlases.version(index));
            versions.for_each(|version| hash.update(format!("{version}\n")));
        })?;
        let store = Store::open(folder.as_deref(), &identity)?;
        struct Unobserved;
        impl FusionObserver for Unobserved {}
        let mut unobserved = Unobserved;
        let observer: &mut dyn FusionObserver = match observer {
            Some(observer) => observer,
            None => &mut unobserved,
        };
        let observer = Mutex::new(observer);
        let joining = Joining { target, atlases, settings: &settings, store, observer };
        let all = 0..atlases.count();
        register_missing(&joining, atlases, all, &placements, &joining.store)?;
        joining.joined()
    }
}

/// A run.
struct Joining<'a> {
    target: &'a Volume,
    atlases: &'a dyn Images,
    settings: &'a FusionSettings,
    store: Store,
    observer: Mutex<&'a mut dyn FusionObserver>,
}

impl Registering for Joining<'_> {
    type Header = ();

    fn file(&self, index: usize) -> String {
        format!("round-00/atlas-{index}")
    }

    /// The values are its intensities on the target, and its labels, bit for bit.
    fn register(
        &self,
        _index: usize,
        Subject { image, labels }: Subject,
        placement: &Placement,
    ) -> Result<Registered<()>> {
        let fix = "name the labels of each atlas";
        let labels = labels.ok_or_else(|| Error::invalid("an atlas needs labels", "none", fix))?;
        image.geometry.check_same_grid(&labels.geometry, "the label map of an atlas")?;
        let settings: &Settings = &self.settings.registration;
        let found = Register::new(self.target, &image).settings(settings).on(placement).run()?;
        let assessment = found.evidence(settings, &image.geometry)?.assess();
        let map = found.transform()?.on_grid(&self.target.geometry, found.device());
        let image = map.warp(&image, Interpolation::Linear)?.data;
        let labels = map.warp_labels(&labels, Interpolation::Nearest)?.data;
        let values = vec![image, bytemuck::cast_slice(&labels).to_vec()];
        let loss = [found.loss_before, found.loss_after];
        Ok(Registered { header: (), values, loss, assessment })
    }

    fn unregistered(&self, _index: usize) {}

    fn watch(&self, report: &ImageReport, _: Option<&Assessment>) -> Result<()> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        unless_ended(observer.registered(report), "fusion", "atlas")
    }
}

impl Joining<'_> {
    /// Joins what the atlases show, and measures how each agrees with it.
    fn joined(&self) -> Result<FusionResult> {
        let reports = (0..self.atlases.count()).map(|index| {
            let kept = self.store.read::<Kept<()>>(&self.file(index))?;
            Ok(kept.expect("it was written or read a moment ago").report)
        });
        let atlases = reports.collect::<Result<Vec<ImageReport>>>()?;
        let used = atlases.iter().filter(|atlas| atlas.is_used);
        let files: Vec<String> = used.map(|atlas| self.file(atlas.index)).collect();
        if files.is_empty() {
            let reasons = atlases.iter().map(|a| format!("{}: {}", a.name, a.reasons.join("; ")));
            let what = "one atlas or more must be registered to the target";
            return Err(Error::invalid(what, 0, reasons.collect::<Vec<_>>().join("; ")));
        }
        let grid = &self.target.geometry;
        let (data, weighed_voxels) = self.of_all(&files)?;
        let agreement = |registration: ImageReport| {
            let mut agreement = None;
            if registration.is_used {
                let own = self.labels(&self.file(registration.index), 0..grid.len())?;
                agreement = Some(dice(&data, &own)?.mean()).filter(|dice| !dice.is_nan());
            }
            Ok(AtlasReport { registration, dice: agreement })
        };
        let atlases = atlases.into_iter().map(agreement).collect::<Result<Vec<AtlasReport>>>()?;
        self.store.clear()?;
        Ok(FusionResult { labels: LabelMap::new(data, grid.clone())?, atlases, weighed_voxels })
    }

    /// Labels of an atlas at some voxels of the target.
    fn labels(&self, file: &str, range: Range<usize>) -> Result<Vec<i32>> {
        let voxels = self.target.geometry.len();
        self.store.values(file, voxels + range.start..voxels + range.end)
    }

    /// The joined labels of the atlases in these files, and how many voxels were weighed for them.
    fn of_all(&self, files: &[String]) -> Result<(Vec<i32>, usize)> {
        let grid = &self.target.geometry;
        let [nx, ny, nz] = grid.size;
        let plane = nx * ny;
        let labels_of = |range: &Range<usize>| {
            files.iter().map(|file| self.labels(file, range.clone())).collect::<Result<Vec<_>>>()
        };
        let (mut data, mut weighed_voxels) = (Vec::with_capacity(grid.len()), 0);
        for planes in runs(grid, (PIECE / files.len()).max(plane)) {
            match self.settings.method {
                FusionMethod::Majority => {
                    let range = planes.start * plane..planes.end * plane;
                    let all = labels_of(&range)?;
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
                    let block = Block {
                        size: [nx, ny, held.len()],
                        target: &self.target.data[range.clone()],
                        images: images.collect::<Result<_>>()?,
                        labels: labels_of(&range)?,
                    };
                    let own = planes.start - held.start..planes.end - held.start;
                    let (labels, weighed) = joint(&block, own, settings)?;
                    data.extend(labels);
                    weighed_voxels += weighed;
                }
            }
        }
        Ok((data, weighed_voxels))
    }
}
