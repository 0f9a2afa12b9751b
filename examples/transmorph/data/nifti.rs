//! Pairs of NIfTI files, listed in `pairs.csv`.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use ffdp::image::{Affine, Geometry};
use ffdp::io::nifti::{read_labels, read_volume};
use ffdp::{Error, Result};

use super::grid::{alignment, resample_image, resample_labels};
use super::manifest::{self, Part, Row};
use super::{Dataset, Pair, Sample, Training};
use crate::args::Settings;

/// Percentiles that become 0 and 1.
const INTENSITY_PERCENTILES: [f64; 2] = [0.0, 99.9];
/// Least part of the fixed grid that the moving grid must cover.
const REQUIRED_OVERLAP_PERCENT: f64 = 25.0;

pub fn load(settings: &Settings, folder: &Path, device: &Device) -> Result<Dataset> {
    let rows = manifest::read(folder)?;
    let evaluated_labels = manifest::read_labels(folder)?;
    let pairs = |part: Part| -> Result<Vec<Pair>> {
        let rows = rows.iter().filter(|row| row.part == part);
        rows.map(|row| pair(settings, row, device)).collect()
    };
    let training = pairs(Part::Train)?;
    if training.is_empty() {
        return Err(Error::InFile {
            path: folder.join("pairs.csv"),
            source: Box::new(Error::invalid(
                "at least one pair must be trained on",
                "none",
                "write train in the column part of some lines",
            )),
        });
    }
    let (mut validation, mut held_out) = (pairs(Part::Validation)?, pairs(Part::Test)?);
    // With few pairs one set serves for both, and with one pair it is a demonstration.
    let is_held_out = !held_out.is_empty();
    if !is_held_out {
        held_out = training.clone();
    }
    if validation.is_empty() {
        validation = training[..1].to_vec();
    }
    Ok(Dataset {
        training: Training::Pairs(training),
        validation,
        held_out,
        is_held_out,
        evaluated_labels,
        origin: folder.display().to_string(),
    })
}

fn pair(settings: &Settings, row: &Row, device: &Device) -> Result<Pair> {
    let (fixed, moving) = (read_volume(&row.fixed)?, read_volume(&row.moving)?);
    let grid = match settings.image_size()? {
        Some(size) => fixed.geometry.resized(size)?,
        None => fixed.geometry.clone(),
    };
    let to_moving = alignment(settings.align, &fixed.geometry, &moving.geometry);
    let aligned = Geometry::from_affine(
        moving.geometry.size,
        moving.geometry.voxel_to_mm().then(&to_moving.inverse()?),
    )?;
    fixed
        .geometry
        .check_overlap(&aligned, REQUIRED_OVERLAP_PERCENT)
        .map_err(|source| Error::InFile { path: row.moving.clone(), source: Box::new(source) })?;
    let sample = |image_path: &Path, image: &ffdp::image::Volume, labels: Option<&Path>, map| {
        let in_file = |source| Error::InFile { path: image_path.into(), source: Box::new(source) };
        let [low, high] = INTENSITY_PERCENTILES;
        let image = image.normalized(low, high).map_err(in_file)?;
        let labels = match labels {
            None => None,
            Some(path) => {
                let labels = read_labels(path)?;
                image.geometry.check_same_grid(&labels.geometry, &path.display().to_string())?;
                Some(resample_labels(&labels, &grid, map, device)?)
            }
        };
        let name = image_path.file_name().unwrap_or_default().to_string_lossy().to_string();
        let image = resample_image(&image, &grid, map, device)?;
        Ok::<_, Error>(Arc::new(Sample { name, image, labels }))
    };
    Ok(Pair {
        fixed: sample(&row.fixed, &fixed, row.fixed_labels.as_deref(), &Affine::identity())?,
        moving: sample(&row.moving, &moving, row.moving_labels.as_deref(), &to_moving)?,
    })
}
