//! Transforms described: of what kind their steps are, how much they turn, stretch and move.

use std::fmt::Write;
use std::path::Path;

use burn::tensor::Device;
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_groups::series::{SeriesTransforms, is_series_transform};
use ffdp_image::image::{Affine, Geometry, Physical};
use ffdp_image::io::images::header;
use ffdp_image::io::transform_files;
use ffdp_image::metrics::{JacobianDistribution, Lengths, jacobian};
use serde::Serialize;

use super::join;
use crate::affine_parts::AffineParts;
use crate::commands::chain::TransformChoice;
use crate::failure::Result;

/// Intents of NIfTI for vectors, and those of ITK's displacements.
const VECTORS: [i32; 2] = [1006, 1007];
/// Of files that hold transforms and no images.
const ENDINGS: [&str; 7] = ["txt", "tfm", "mat", "h5", "hdf5", "lta", "json"];

/// Everything about a transform.
#[derive(Serialize)]
pub struct TransformInfo {
    file: String,
    /// Volumes of a series, each of which has a transform of its own; null for one transform.
    volumes: Option<usize>,
    /// What a point of the reference goes through, the first first; of a series none is described.
    steps: Vec<StepInfo>,
}

/// One step.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum StepInfo {
    Affine(AffineInfo),
    Displacement(FieldInfo),
    /// A cubic B-spline, evaluated at its control points.
    Bspline(FieldInfo),
    /// The flow of a shape, which has no grid.
    Flow,
}

#[derive(Serialize)]
struct AffineInfo {
    /// RAS mm, from points of the fixed to points of the moving image.
    matrix: [[f64; 4]; 3],
    determinant: f64,
    /// With the shift of the origin.
    parts: AffineParts,
}

#[derive(Serialize)]
struct FieldInfo {
    /// Of the displacement, or of the control points.
    grid: Geometry,
    displacement_mm: Lengths,
    /// Of `x + u(x)`, by central differences; null on a grid of a single voxel along an axis.
    determinant: Option<JacobianDistribution>,
    /// Voxels that fold.
    folds: Option<u64>,
}

/// Whether a file is a transform: a folder of results, a list of a series, vectors, or what is no image and has its ending.
pub fn is_transform(path: &Path) -> bool {
    let is_folder = transform_files(path).is_ok_and(|files| files != [path]);
    if is_folder || is_series_transform(path) {
        return true;
    }
    match header(path) {
        Ok(image) => VECTORS.contains(&image.intent_code) && image.dims.contains(&3),
        Err(_) => {
            let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            path.is_file() && ENDINGS.contains(&&*ending)
        }
    }
}

impl TransformInfo {
    /// Reads a transform.
    ///
    /// # Errors
    /// Those of reading.
    pub fn of(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        if is_series_transform(path) {
            let volumes = Some(SeriesTransforms::read(path)?.count());
            return Ok(Self { file, volumes, steps: Vec::new() });
        }
        let device = Device::flex();
        let map = TransformChoice::from(path.to_path_buf()).read(&device)?;
        let steps = map.steps().iter().map(|step| StepInfo::of(step, &device));
        Ok(Self { file, volumes: None, steps: steps.collect::<Result<_>>()? })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.file);
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<14}{value}");
        };
        if let Some(volumes) = self.volumes {
            line("transforms", format!("one for each of {volumes} volumes of a series"));
        }
        for (k, step) in self.steps.iter().enumerate() {
            let first = match (k, self.steps.len()) {
                (_, 1) => "",
                (0, _) => " (a point goes through it first)",
                _ => " (then)",
            };
            match step {
                StepInfo::Affine(affine) => {
                    line("affine", format!("from fixed to moving, RAS mm{first}"));
                    affine.lines(&mut line);
                }
                StepInfo::Displacement(field) => {
                    line("displacement", format!("on a grid{first}"));
                    field.lines(&mut line);
                }
                StepInfo::Bspline(field) => {
                    line("B-spline", format!("of control points{first}"));
                    field.lines(&mut line);
                }
                StepInfo::Flow => line("flow", format!("of a shape, at any point{first}")),
            }
        }
        text
    }
}

impl StepInfo {
    fn of(step: &Step, device: &Device) -> Result<Self> {
        Ok(match step {
            Step::Affine(map) => Self::Affine(AffineInfo::of(map)),
            Step::Displacement(field) => Self::Displacement(FieldInfo::of(field)?),
            Step::Bspline(spline) => {
                let field = Composite::new(vec![step.clone()]);
                Self::Bspline(FieldInfo::of(&field.to_displacement(spline.geometry(), device))?)
            }
            Step::Map(_) => Self::Flow,
            Step::Inverse(_) | Step::InverseBspline(_) => unreachable!("no file holds an inverse"),
        })
    }
}

impl AffineInfo {
    fn of(map: &Affine<Physical, Physical>) -> Self {
        let parts = AffineParts::of(map, [0.0; 3]);
        Self { matrix: *map.rows(), determinant: map.determinant(), parts }
    }

    fn lines(&self, line: &mut impl FnMut(&str, String)) {
        self.matrix.iter().for_each(|row| line("", join(row)));
        line("determinant", join(&[self.determinant]));
        let AffineParts { turns_degrees, scales, shears, shift_mm } = &self.parts;
        line("turns", format!("{} degrees about x, y, z", join(turns_degrees)));
        line("scales", format!("{} along x, y, z", join(scales)));
        line("shears", format!("{} of x by y, x by z, y by z", join(shears)));
        line("shift", format!("{} mm of the origin", join(shift_mm)));
    }
}

impl FieldInfo {
    fn of(field: &Displacement) -> Result<Self> {
        let (grid, values) = (field.geometry().clone(), field.to_vec()?);
        let report = (!grid.size.contains(&1)).then(|| jacobian(&values, grid.size)).transpose()?;
        Ok(Self {
            displacement_mm: Lengths::of(&values, &grid, &Affine::identity()),
            determinant: report.as_ref().map(|report| report.central),
            folds: report.map(|report| report.true_folds),
            grid,
        })
    }

    fn lines(&self, line: &mut impl FnMut(&str, String)) {
        let Geometry { size: [x, y, z], spacing_mm, .. } = &self.grid;
        line("size", format!("{x} x {y} x {z}"));
        line("spacing", format!("{} mm", join(spacing_mm)));
        line("orientation", self.grid.axis_codes());
        let Lengths { mean, max } = self.displacement_mm;
        line("length", format!("mean {mean:.3} mm, largest {max:.3} mm"));
        if let (Some(det), Some(folds)) = (&self.determinant, self.folds) {
            let (min, median, max) = (det.min, det.p50, det.max);
            line("det J", format!("{min:.3} .. {max:.3}, median {median:.3}"));
            line("folds", format!("{folds} voxels"));
        }
    }
}
