//! The measures of a registration, as `metrics.json` holds them.

use std::path::{Path, PathBuf};

use ffdp_burn::transform::RoundTrip;
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::metrics::{
    BeforeAfter, JacobianDistribution, JacobianReport, Lengths, SimilarityMeasures,
    TargetRegistrationError,
};
use ffdp_register::{Settings, report::StageReport, verdict::Assessment};
use rayon::prelude::*;
use serde::Serialize;

use crate::affine_parts::AffineParts;
use crate::label_names::NamedOverlap;
use crate::names::{arguments, as_text};
use crate::time::{unix_seconds, utc};

/// Everything that is known about a finished registration.
#[derive(Debug, Serialize)]
pub struct Measures {
    #[serde(flatten)]
    pub run: Provenance,
    pub fixed: Input,
    pub moving: Input,
    /// What the result is worth, and what speaks against it.
    #[serde(flatten)]
    pub assessment: Assessment,
    /// What is unusual about the inputs.
    pub warnings: Vec<String>,
    /// Part of the smaller image that lies inside the other, in percent.
    pub overlap_percent: BeforeAfter<f64>,
    /// What was optimised, on the finest level: lower is better.
    pub loss: BeforeAfter<f64>,
    /// The affine map from fixed to moving, RAS mm.
    pub affine: [[f64; 4]; 3],
    /// Its determinant, and by how much it stretches at most and at least.
    pub affine_determinant: f64,
    pub affine_singular_values: [f64; 3],
    /// The same as turns, scales and shears, with the shift of the centre of the fixed grid.
    pub affine_parts: AffineParts,
    /// With labels of both images.
    pub dice: Option<NamedOverlap>,
    /// Distances of corresponding landmarks, with landmarks of both images.
    pub landmarks_mm: Option<TargetRegistrationError>,
    pub stages: Vec<StageReport>,
    pub settings: Settings,
    pub seconds: Seconds,
    /// The most memory the process had resident; null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
    pub similarity: BeforeAfter<SimilarityMeasures>,
    pub folds: Folds,
    /// How far points move, from where the headers place them: by the whole map.
    pub motion_mm: Lengths,
    /// Of it, the deformation alone.
    pub displacement_mm: Lengths,
    /// How well the inverse displacement undoes the displacement, where one is written that is whole in memory.
    pub inverse: Option<RoundTrip>,
    /// All of them, by rank, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
}

/// One of several processes.
#[derive(Debug, Serialize)]
pub struct Process {
    pub host: String,
    /// First plane, and the one after the last, of the displacement that it held on the last level; null without a
    /// deformation.
    pub planes: Option<[usize; 2]>,
    /// Null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
}

/// What ran where.
#[derive(Debug, Serialize)]
pub struct Provenance {
    pub ffdp_version: &'static str,
    /// The arguments of the command.
    pub command: Vec<String>,
    pub device: String,
    /// Threads of the CPU.
    pub threads: usize,
    /// Operating system and processor.
    pub system: String,
    /// When the result was measured, UTC.
    pub time: String,
}

/// An image that was read.
#[derive(Debug, Serialize)]
pub struct Input {
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Of the file, as it lies on disk.
    pub sha256: String,
    pub size: [usize; 3],
    pub spacing_mm: [f64; 3],
    /// Anatomical direction in which each voxel axis grows.
    pub axes: String,
    /// Centre of the first voxel, RAS.
    pub origin_mm: [f64; 3],
    /// Low and high corner of the voxel centres, RAS.
    pub bounding_box_mm: [[f64; 3]; 2],
}

/// Volume change and folds of the whole map: det J of `p + u(p)` times the determinant of the affine map.
#[derive(Debug, Serialize)]
pub struct Folds {
    /// Voxels that fold in any of the nine difference stencils.
    pub voxels: u64,
    /// The same as a part of all voxels, in percent.
    pub percent: f64,
    /// det J by central differences.
    pub jacobian_central: Distribution,
    /// det J by forward differences.
    pub jacobian_forward: Distribution,
    /// det J by backward differences.
    pub jacobian_backward: Distribution,
    /// Standard deviation of ln det J, central differences.
    pub sd_log_jacobian: f64,
}

/// Distribution of det J.
#[derive(Debug, Serialize)]
pub struct Distribution {
    pub min: f64,
    pub p1: f64,
    pub median: f64,
    pub p99: f64,
    pub max: f64,
    /// Part of the voxels with det J <= 0, in percent.
    pub folded_percent: f64,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Seconds {
    /// Reading and checking the inputs.
    pub read: f64,
    /// In parallel: opening the device and, on a GPU, compiling the kernels. What is not compiled by then
    /// is compiled in the registration.
    pub start: f64,
    /// From the images in host memory to the transform.
    pub register: f64,
    /// The levels alone, a part of it.
    pub iterations: f64,
    /// The inverse, the measures and the files.
    pub results: f64,
    /// From the start of the process until the report is written.
    pub total: f64,
}

impl Provenance {
    /// This process, now.
    pub fn here(device: &impl std::fmt::Display) -> Self {
        use std::env::consts::{ARCH, OS};
        Self {
            ffdp_version: env!("CARGO_PKG_VERSION"),
            command: arguments(),
            device: device.to_string(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{OS} {ARCH}"),
            time: utc(unix_seconds()),
        }
    }
}

impl Input {
    /// Of an image's file, the file's hash and the grid.
    pub fn of(path: &Path, sha256: String, geometry: &Geometry) -> Self {
        Self {
            path: path.to_path_buf(),
            sha256,
            size: geometry.size,
            spacing_mm: geometry.spacing_mm,
            axes: geometry.axis_codes(),
            origin_mm: geometry.origin_mm,
            bounding_box_mm: geometry.bounding_box_mm(),
        }
    }
}

/// Where ones on the moving grid, as a map shows them, are whole.
pub fn shows_all(shown: &Volume) -> Vec<bool> {
    /// Sums of interpolation weights are rounded.
    const INSIDE: f32 = 1.0 - 1e-4;
    shown.data.par_iter().map(|&one| one >= INSIDE).collect()
}

impl Folds {
    /// Of a displacement, after which an affine map changes all volumes by `determinant`.
    pub fn new(report: &JacobianReport, determinant: f64) -> Self {
        let whole = |d: JacobianDistribution| Distribution {
            min: determinant * d.min,
            p1: determinant * d.p1,
            median: determinant * d.p50,
            p99: determinant * d.p99,
            max: determinant * d.max,
            folded_percent: 100.0 * d.fold_fraction,
        };
        Self {
            voxels: report.true_folds,
            percent: 100.0 * report.true_fold_fraction,
            jacobian_central: whole(report.central),
            jacobian_forward: whole(report.forward),
            jacobian_backward: whole(report.backward),
            sd_log_jacobian: report.sd_log,
        }
    }
}
