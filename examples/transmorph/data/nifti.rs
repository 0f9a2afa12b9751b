//! Pairs of NIfTI files, listed in `pairs.csv`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use ffdp::image::{Geometry, Volume};
use ffdp::io::nifti::{read_labels, read_volume};
use ffdp::{Error, Result};

use super::grid::{image_on, labels_on, place};
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
        let what = "at least one pair must be trained on";
        let fix = "write train in the column part of some lines";
        let error = Error::invalid(what, format_args!("none of {}", rows.len()), fix);
        return Err(in_file(&folder.join("pairs.csv"))(error));
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

/// Reads a pair and brings both images onto the fixed image's grid, at the size asked for.
fn pair(settings: &Settings, row: &Row, device: &Device) -> Result<Pair> {
    let (fixed, mut moving) = (read(&row.fixed)?, read(&row.moving)?);
    let own_grid = moving.geometry.clone();
    moving.geometry = place(settings.align, &own_grid, &fixed.geometry)?;
    let grid = match settings.image_size()? {
        Some(size) => fixed.geometry.resized(size)?,
        None => fixed.geometry.clone(),
    };
    fixed
        .geometry
        .check_overlap(&moving.geometry, REQUIRED_OVERLAP_PERCENT)
        .map_err(in_file(&row.moving))?;
    let sample = |path: &Path, image: &Volume, own: &Geometry, labels: Option<&PathBuf>| {
        let labels = match labels {
            Some(path) => {
                let mut labels = read_labels(path)?;
                own.check_same_grid(&labels.geometry, "the label map").map_err(in_file(path))?;
                labels.geometry = image.geometry.clone();
                Some(labels_on(&grid, &labels, device)?)
            }
            None => None,
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_string();
        Ok::<_, Error>(Arc::new(Sample { name, image: image_on(&grid, image, device)?, labels }))
    };
    Ok(Pair {
        moving: sample(&row.moving, &moving, &own_grid, row.moving_labels.as_ref())?,
        fixed: sample(&row.fixed, &fixed, &fixed.geometry, row.fixed_labels.as_ref())?,
    })
}

/// An image scaled to 0..1.
fn read(path: &Path) -> Result<Volume> {
    let [low, high] = INTENSITY_PERCENTILES;
    read_volume(path)?.normalized(low, high).map_err(in_file(path))
}

fn in_file(path: &Path) -> impl Fn(Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::InFile { path: path.clone(), source: Box::new(source) }
}
