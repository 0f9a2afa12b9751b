//! What a registration is given.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ffdp_burn::image::{Affine, LabelMap, Physical, Volume};
use ffdp_burn::io::check_not_an_input;
use ffdp_burn::io::nifti::header;
use ffdp_burn::transform::read_transform;

use super::args::RegisterArguments;
use super::files::Files;
use crate::commands::input::{Reading, image_and_warnings, labels_on, landmark_pairs, weights};
use crate::failure::{Failure, Outcome};
use crate::hash::sha256;
use crate::printer::Printer;

/// The images and labels, read and checked.
pub struct Inputs {
    pub fixed: Volume,
    pub moving: Volume,
    pub fixed_labels: Option<LabelMap>,
    pub moving_labels: Option<LabelMap>,
    /// How much voxels count.
    pub fixed_mask: Option<Volume>,
    pub moving_mask: Option<Volume>,
    /// Where the moving image lies to begin with.
    pub initial: Affine<Physical, Physical>,
    /// Of the fixed and the moving image, in RAS mm.
    pub landmarks: Option<[Vec<[f64; 3]>; 2]>,
    /// SHA-256 of the files of the fixed and the moving image.
    pub hashes: [String; 2],
    /// The same of their masks.
    pub mask_hashes: [Option<String>; 2],
    /// What is unusual about the files.
    pub warnings: Vec<String>,
}

impl Inputs {
    /// # Errors
    /// When a file cannot be used, or a result would overwrite it.
    pub fn read(request: &RegisterArguments, files: &Files, printer: Printer) -> Outcome<Self> {
        let RegisterArguments { fixed, moving, fixed_labels, moving_labels, .. } = request;
        let masks = [&request.fixed_mask, &request.moving_mask];
        let optional = [fixed_labels, moving_labels, &request.initial].into_iter().chain(masks);
        let landmarks = request.landmarks.iter().flatten();
        let paths: Vec<&Path> = [fixed, moving]
            .into_iter()
            .chain(optional.flatten())
            .chain(landmarks)
            .map(|path| &**path)
            .collect();
        for file in files.all() {
            check_not_an_input(file, &paths)?;
        }
        if !request.labels_as_images {
            [fixed, moving].into_iter().try_for_each(|path| check_is_no_label_map(path))?;
        }
        let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
        let (fixed_image, mut warnings) = image_and_warnings(fixed, reading)?;
        let (moving_image, more) = image_and_warnings(moving, reading)?;
        warnings.extend(more);
        warnings.iter().for_each(|warning| printer.warning(warning));
        let hash = |mask: &Option<PathBuf>| mask.as_deref().map(sha256).transpose();
        let on = |labels: &Option<PathBuf>, image: &Volume, path: &Path| {
            labels.as_ref().map(|labels| labels_on(labels, image, path)).transpose()
        };
        Ok(Self {
            initial: initial(request)?,
            landmarks: landmarks_of(request, [&fixed_image, &moving_image])?,
            fixed_labels: on(fixed_labels, &fixed_image, fixed)?,
            moving_labels: on(moving_labels, &moving_image, moving)?,
            fixed_mask: weights(fixed, reading, masks[0].as_deref())?,
            moving_mask: weights(moving, reading, masks[1].as_deref())?,
            hashes: [sha256(fixed)?, sha256(moving)?],
            mask_hashes: [hash(masks[0])?, hash(masks[1])?],
            fixed: fixed_image,
            moving: moving_image,
            warnings,
        })
    }
}

/// The affine map to start from.
fn initial(request: &RegisterArguments) -> Outcome<Affine<Physical, Physical>> {
    let Some(path) = &request.initial else { return Ok(Affine::identity()) };
    read_transform(path, &Device::flex())?.as_affine().ok_or_else(|| {
        Failure::user(
            format!("{}: --initial must be affine, this transform deforms", path.display()),
            "warp the moving image by it first (ffdp apply), or give only its affine part",
        )
    })
}

/// The landmarks of both images, one to one.
fn landmarks_of(
    request: &RegisterArguments,
    images: [&Volume; 2],
) -> Outcome<Option<[Vec<[f64; 3]>; 2]>> {
    let Some([fixed, moving]) = request.landmarks.as_deref() else { return Ok(None) };
    let spaces = images.map(|image| request.landmark_space.of(&image.geometry));
    landmark_pairs([fixed, moving], spaces).map(Some)
}

/// Mixed labels are no labels: a map given as an image is most likely a slip.
fn check_is_no_label_map(path: &Path) -> Outcome<()> {
    const INTENT_LABELS: i32 = 1002;
    if header(path)?.intent_code != INTENT_LABELS {
        return Ok(());
    }
    Err(Failure::user(
        format!("{}: this is a label map (intent 1002), an image is meant", path.display()),
        "give it as --fixed-labels or --moving-labels, or align the labels themselves with \
         --labels-as-images",
    ))
}
