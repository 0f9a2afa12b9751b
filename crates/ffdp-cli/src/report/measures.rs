//! The measures of a registration, as `metrics.json` holds them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ffdp_burn::transform::RoundTrip;
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::metrics::{
    DiceScores, DistanceUnit, JacobianDistribution, JacobianReport, LabelSurface, Lengths,
    SimilarityMeasures, TargetRegistrationError, dice, dice_of, surface_distances, surface_mean,
};
use ffdp_register::{Assessment, Settings, StageReport};
use rayon::prelude::*;
use serde::Serialize;

use crate::in_parallel::in_parallel;
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
    /// With labels of both images.
    pub dice: Option<Overlap>,
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

/// A value with the images as they are placed at the start, and with the result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BeforeAfter<T> {
    pub before: T,
    pub after: T,
}

impl<T> BeforeAfter<T> {
    pub fn of([before, after]: [T; 2]) -> Self {
        Self { before, after }
    }

    /// Both.
    pub fn pair(self) -> [T; 2] {
        [self.before, self.after]
    }
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

/// Overlap of labels.
#[derive(Debug, Serialize)]
pub struct Overlap {
    /// Mean over the labels present in both maps.
    pub mean: BeforeAfter<f64>,
    /// The same, weighted by the inverse volume in the fixed map.
    pub inverse_volume_mean: BeforeAfter<f64>,
    /// Distances of the labels' surfaces; null on a sheared grid.
    pub surfaces: Option<Surfaces>,
    pub labels: Vec<LabelOverlap>,
}

/// How far the surfaces of labels lie apart: means over the labels, in mm.
#[derive(Debug, Serialize)]
pub struct Surfaces {
    /// 95th percentile of the distances.
    pub hd95_mm: BeforeAfter<f64>,
    /// Cumulative HD90 (FFDP paper): mean of the smallest 90 % of the distances, of the worse
    /// direction.
    pub hd90_cumulative_mm: BeforeAfter<f64>,
}

/// Overlap of one label; null where it is absent from either map.
#[derive(Debug, Serialize)]
pub struct LabelOverlap {
    pub id: i32,
    pub fixed_voxels: u64,
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// 95th percentile of the distances between the surfaces after registration, in mm.
    pub hd95_after_mm: Option<f64>,
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

impl Overlap {
    /// Of the moving labels on the fixed grid, by the headers alone and with the result.
    /// A label of `moving` that is nowhere on the fixed grid scores 0: it was lost. Of all labels, or those
    /// that were asked for.
    pub fn of(
        fixed: &LabelMap,
        moving: &LabelMap,
        [before, after]: [&LabelMap; 2],
        asked: Option<&[i32]>,
    ) -> ffdp_image::Result<Self> {
        let present = moving.ids();
        let score = |moved: &LabelMap| {
            let scores = match asked {
                Some(ids) => dice_of(&fixed.data, &moved.data, ids)?,
                None => dice(&fixed.data, &moved.data)?,
            };
            Ok::<_, ffdp_image::Error>(scores.counting_lost(&present))
        };
        let (labels_before, labels_after) = (before, after);
        let scores = [score(before)?, score(after)?];
        let ids = Self::ids(&scores);
        // Both maps lie on the fixed grid: what is refused is a sheared one.
        let distances =
            |moved| surface_distances(fixed, moved, &ids, DistanceUnit::Millimetres).ok();
        let (near, far) = in_parallel(|| distances(labels_before), || distances(labels_after));
        Ok(Self::new(&scores, near.zip(far)))
    }

    fn ids(scores: &[DiceScores; 2]) -> Vec<i32> {
        let all = scores.iter().flat_map(|scores| &scores.labels).map(|label| label.id);
        let all: BTreeSet<i32> = all.collect();
        all.into_iter().collect()
    }

    /// Of scores before and after, and the distances of the surfaces of all their labels.
    pub fn new(
        scores: &[DiceScores; 2],
        distances: Option<(Vec<LabelSurface>, Vec<LabelSurface>)>,
    ) -> Self {
        let ([before, after], ids) = (scores, Self::ids(scores));
        let known = |value: f64| (!value.is_nan()).then_some(value);
        let score = |scores: &DiceScores, id| scores.get(id).and_then(|label| known(label.dice));
        let labels = ids.iter().enumerate().map(|(i, &id)| LabelOverlap {
            id,
            fixed_voxels: before
                .get(id)
                .or_else(|| after.get(id))
                .map_or(0, |label| label.fixed_voxels),
            before: score(before, id),
            after: score(after, id),
            hd95_after_mm: distances.as_ref().and_then(|(_, after)| known(after[i].hd95)),
        });
        Self {
            mean: BeforeAfter { before: before.mean(), after: after.mean() },
            inverse_volume_mean: BeforeAfter {
                before: before.inverse_volume_mean(),
                after: after.inverse_volume_mean(),
            },
            surfaces: distances.as_ref().map(|(before, after)| Surfaces::of(before, after)),
            labels: labels.collect(),
        }
    }
}

impl Surfaces {
    fn of(before: &[LabelSurface], after: &[LabelSurface]) -> Self {
        let mean = |measure: fn(&LabelSurface) -> f64| BeforeAfter {
            before: surface_mean(before, measure),
            after: surface_mean(after, measure),
        };
        Self {
            hd95_mm: mean(|label| label.hd95),
            hd90_cumulative_mm: mean(|label| label.hd90_cumulative),
        }
    }
}
