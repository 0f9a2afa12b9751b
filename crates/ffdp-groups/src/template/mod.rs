//! An unbiased template: the mean shape and the mean intensities of a cohort.
//!
//! ```text
//! start      images placed by their centres of mass, averaged
//! linear     each image to the template by rigid and affine stages, the mean map taken out, averaged
//! deformable each image to the template by a deformation, the mean map taken out, averaged; until it hardly changes
//! ```
//! No image is a reference: the start is the mean of all, and what maps have in common is taken out in every round, so the
//! template lies in the middle of its images. The result does not depend on the order of the list: sums are made in the
//! order of what the images hold.
//!
//! Read `round.rs` first (a round and its formulas), then `survey.rs` (which images can be used), `store.rs`
//! of the crate (what is kept on disk, so that a run can be gone on with).

mod affine_mean;
mod average;
mod grid;
mod report;
mod result;
mod round;
mod settings;
mod sharpness;
mod survey;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use burn::tensor::Device;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;
use ffdp_image::io::check_memory;
use ffdp_register::Placement;
use sha2::Digest;

use crate::home::home;
use crate::images::Images;
use crate::store::{Store, identity};
use average::Sums;
use grid::template_grid;
use round::{Making, Round};
use survey::survey;

pub use affine_mean::{affine_mean, affine_power};
pub use report::{Excluded, MemberReport, RoundReport, TemplateObserver, Unobserved};
pub use result::TemplateResult;
pub use settings::{Average, Intensities, RoundKind, Sharpening, TemplateSettings};
pub use sharpness::sharpness;

/// A template that is yet to be made.
///
/// ```
/// use ffdp_groups::Subject;
/// use ffdp_groups::template::{Template, TemplateSettings};
/// use ffdp_image::synth::{PhantomSettings, pair};
///
/// let brains = pair(&PhantomSettings::with_size([24; 3]), 7)?;
/// let subject = |image| Subject { image, labels: None };
/// let images = vec![
///     ("first".to_string(), subject(brains.fixed.image)),
///     ("second".to_string(), subject(brains.moving.image)),
/// ];
/// let settings = TemplateSettings { rounds: 1, linear_rounds: 1, ..TemplateSettings::default() };
/// let found = Template::new(&images).settings(&settings).run()?;
/// assert_eq!(found.rounds.len(), 3); // the start, a linear and a deformable round
/// # Ok::<(), ffdp_image::Error>(())
/// ```
///
/// # Memory
/// Images are read one after the other, one ahead of the one that is worked on; fields of all images lie on disk, 12 bytes
/// for a voxel of the template and an image (24 of methods that find velocities). In memory are a registration, or the sums
/// of an average ([`Template::averaging_bytes`]).
pub struct Template<'a> {
    images: &'a dyn Images,
    settings: TemplateSettings,
    placements: Vec<Placement>,
    folder: Option<PathBuf>,
    grid: Option<Geometry>,
    observer: Option<&'a mut dyn TemplateObserver>,
}

impl<'a> Template<'a> {
    /// The template of these images, with the default settings, on the CPU.
    pub fn new(images: &'a dyn Images) -> Self {
        Self {
            images,
            settings: TemplateSettings::default(),
            placements: vec![Placement::from(&Device::flex())],
            folder: None,
            grid: None,
            observer: None,
        }
    }

    /// How it is made.
    pub fn settings(mut self, settings: &TemplateSettings) -> Self {
        self.settings = settings.clone();
        self
    }

    /// Where registrations are computed.
    pub fn on(self, placement: impl Into<Placement>) -> Self {
        self.on_each(vec![placement.into()])
    }

    /// Several devices that share the images: each takes the next one. The first also averages them.
    ///
    /// # Panics
    /// If there are none.
    pub fn on_each(mut self, placements: Vec<Placement>) -> Self {
        assert!(!placements.is_empty(), "a template needs a placement for its registrations");
        self.placements = placements;
        self
    }

    /// The grid of the template, in place of one that suits the images.
    pub fn grid(mut self, grid: Geometry) -> Self {
        self.grid = Some(grid);
        self
    }

    /// Where the state of the run is kept, and gone on from if the folder holds that of the same run. The caller removes it
    /// when the result is no longer needed. Without one, a temporary folder is used.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Who follows it.
    pub fn observer(mut self, observer: &'a mut dyn TemplateObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Bytes of host memory that averaging takes, of images with at most so many voxels.
    pub fn averaging_bytes(grid: &Geometry, largest_image: usize) -> u64 {
        /// Three volumes of the last round, and of one image its displacement on the device, as it is evaluated and on the
        /// host, its coverage and its values.
        const OF_A_VOXEL: u64 = 12 + 48 + 12;
        /// One image is sampled while the next is read.
        const OF_AN_IMAGE: u64 = 12;
        (Sums::BYTES + OF_A_VOXEL) * grid.len() as u64 + OF_AN_IMAGE * largest_image as u64
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings without meaning, for fewer than two images that can be used or registered, for the
    /// state of another run in the folder, and when the observer ends the run; [`Error::TooLarge`] where memory is too
    /// small; [`Error::Device`] when a device fails; those of writing the state. An image that cannot be read, is constant
    /// or holds NaN is left out, and [`TemplateResult::excluded`] says why.
    pub fn run(self) -> Result<TemplateResult> {
        let Self { images, settings, placements, folder, grid, observer } = self;
        settings.validate()?;
        let device = home(&placements[0], "a template is made")?;
        let (members, excluded) = survey(images, settings.intensities)?;
        let grid = grid.map_or_else(|| template_grid(&members, settings.spacing_mm), Ok)?;
        let largest = members.iter().map(|member| member.grid.len()).max().unwrap_or(0);
        check_memory("averaging the images of a template", Self::averaging_bytes(&grid, largest))?;
        let identity = identity(&settings, &device, &grid, |hash| {
            members.iter().for_each(|member| hash.update(&member.hash));
        })?;
        let mut unobserved = Unobserved;
        let observer: &mut dyn TemplateObserver = match observer {
            Some(observer) => observer,
            None => &mut unobserved,
        };
        let (used, mut observer) = (members.len(), Mutex::new(observer));
        let watching = observer.get_mut().expect("nobody else has it");
        if watching.surveyed(used, &excluded).is_break() {
            let fix = "run it again without the images that are left out";
            return Err(Error::invalid("an observer ended the template", &excluded, fix));
        }
        let store = Store::open(folder.as_deref(), &identity)?;
        let making = Making {
            images,
            settings: &settings,
            placements,
            device,
            observer,
            store,
            members,
            grid,
        };
        let (last, rounds) = rounds(&making)?;
        TemplateResult::of(making, last, rounds, excluded)
    }
}

/// All rounds, until the template hardly changes; the last one, and the reports of all.
fn rounds(making: &Making) -> Result<(Round, Vec<report::RoundReport>)> {
    let kinds = making.settings.kinds();
    let (mut last, mut reports) = (None::<Round>, Vec::new());
    for (round, &kind) in kinds.iter().enumerate() {
        let done = making.round(round, kinds.len() - 1, kind, last.as_ref())?;
        reports.push(done.report.clone());
        let change = done.report.change.filter(|_| kind == RoundKind::Deformable);
        last = Some(done);
        if change.is_some_and(|change| change < making.settings.tolerance) {
            break;
        }
    }
    Ok((last.expect("there is a start"), reports))
}
