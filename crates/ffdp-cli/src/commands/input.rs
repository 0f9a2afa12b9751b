//! Reading and checking what the user names.

use std::path::Path;

use ffdp_burn::image::{LabelMap, Volume};
use ffdp_burn::io::nifti::{header, read_labels, read_volume, read_volume_at};

use crate::args::NanPolicy;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;

/// How images are read.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Which volume of a file with several.
    pub volume: Option<usize>,
    pub nan_policy: NanPolicy,
}

/// The image of a file; what is unusual about the file is said, NaN treated as asked.
pub fn image(path: &Path, reading: Reading, printer: Printer) -> Outcome<Volume> {
    let header = header(path)?;
    for warning in &header.warnings {
        printer.warning(&format!("{}: {warning}", path.display()));
    }
    let mut volume = match reading.volume {
        Some(k) if header.volumes() > 1 => read_volume_at(path, k)?,
        _ => read_volume(path)?,
    };
    check_nan(&mut volume, &path.display().to_string(), reading.nan_policy, printer)?;
    Ok(volume)
}

/// Treats NaN and infinite voxels as asked.
pub fn check_nan(
    volume: &mut Volume,
    name: &str,
    policy: NanPolicy,
    printer: Printer,
) -> Outcome<()> {
    if policy == NanPolicy::Error {
        return Ok(volume.check_finite(name)?);
    }
    let count = volume.replace_non_finite(0.0);
    if count > 0 {
        printer.warning(&format!("{name}: {count} NaN or infinite voxels were set to 0"));
    }
    Ok(())
}

/// The labels of a file, which must lie on the grid of `image`.
pub fn labels_on(path: &Path, image: &Volume, image_path: &Path) -> Outcome<LabelMap> {
    let labels = read_labels(path)?;
    let what = format!("{} (labels of {})", path.display(), image_path.display());
    image.geometry.check_same_grid(&labels.geometry, &what)?;
    if labels.ids().is_empty() {
        return Err(Failure::user(
            format!("{}: the label map holds no label but background (0)", path.display()),
            "check that it is the file you meant",
        ));
    }
    Ok(labels)
}
