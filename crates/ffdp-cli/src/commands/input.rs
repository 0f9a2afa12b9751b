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
    let (volume, warnings) = image_and_warnings(path, reading)?;
    warnings.iter().for_each(|warning| printer.warning(warning));
    Ok(volume)
}

/// The image of a file, NaN treated as asked, and what is unusual about the file.
pub fn image_and_warnings(path: &Path, reading: Reading) -> Outcome<(Volume, Vec<String>)> {
    let header = header(path)?;
    let mut warnings: Vec<String> =
        header.warnings.iter().map(|warning| format!("{}: {warning}", path.display())).collect();
    let mut volume = match reading.volume {
        Some(k) if header.volumes() > 1 => read_volume_at(path, k)?,
        _ => read_volume(path)?,
    };
    match reading.nan_policy {
        NanPolicy::Error => volume.check_finite(&path.display().to_string())?,
        NanPolicy::Zero => {
            let count = volume.replace_non_finite(0.0);
            if count > 0 {
                let path = path.display();
                warnings.push(format!("{path}: {count} NaN or infinite voxels were set to 0"));
            }
        }
    }
    Ok((volume, warnings))
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
