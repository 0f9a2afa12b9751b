//! What a registration is given.

use std::path::Path;

use burn::tensor::Device;
use ffdp_burn::transform::{Composite, read_transform};
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::io::images::{header, unreadable_by_itk};
use ffdp_image::io::{check_not_an_input, transform_files};

use super::args::RegisterArguments;
use super::files::Files;
use crate::commands::input::{
    Reading, image_and_warnings, label_ids, labels_on, landmark_pairs, weights,
};
use crate::failure::{Failure, Result};
use crate::hash::{Hash, sha256};
use crate::in_parallel::in_parallel;
use crate::printer::Printer;
use ffdp_register::{Problem, Settings, Source};

/// The images and labels, read and checked.
pub struct Inputs {
    pub fixed: Volume,
    pub moving: Volume,
    pub fixed_labels: Option<LabelMap>,
    pub moving_labels: Option<LabelMap>,
    /// Those that --labels asks for.
    pub label_ids: Option<Vec<i32>>,
    /// How much voxels count.
    pub fixed_mask: Option<Volume>,
    pub moving_mask: Option<Volume>,
    /// Where the moving image lies to begin with.
    pub initial: Composite,
    /// SHA-256 of its files and of those of the landmarks.
    pub guides_hash: String,
    /// Of the fixed and the moving image, in RAS mm.
    pub landmarks: Option<[Vec<[f64; 3]>; 2]>,
    /// SHA-256 of the files of the fixed and the moving image.
    pub hashes: [Hash; 2],
    /// The same of their masks.
    pub mask_hashes: [Option<Hash>; 2],
    /// What is unusual about the files.
    pub warnings: Vec<String>,
}

impl Inputs {
    /// Refuses what can be seen from names and headers, before anything is read.
    ///
    /// # Errors
    /// When a result would overwrite an input, or an image is a label map.
    pub fn check(request: &RegisterArguments, files: &Files) -> Result<()> {
        let inputs = request.inputs();
        for file in files.all().into_iter().chain([files.folder.as_path()]) {
            check_not_an_input(file, &inputs)?;
        }
        if !request.labels_as_images {
            [request.fixed(), request.moving()].into_iter().try_for_each(check_is_no_label_map)?;
        }
        Ok(())
    }

    /// # Errors
    /// When a file cannot be used.
    pub fn read(request: &RegisterArguments, printer: Printer) -> Result<Self> {
        let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
        let side = |image, labels, mask| Side::read(image, labels, mask, reading);
        let RegisterArguments { fixed_labels, moving_labels, .. } = request;
        let (fixed, moving) = in_parallel(
            || side(request.fixed(), fixed_labels.as_deref(), request.fixed_mask.as_deref()),
            || side(request.moving(), moving_labels.as_deref(), request.moving_mask.as_deref()),
        );
        let (fixed, moving) = (fixed?, moving?);
        let warp = Files::in_folder(&request.output, request.format).warp;
        let sheared = unreadable_by_itk(&warp, &fixed.image.geometry);
        let warnings = [fixed.warnings, moving.warnings, sheared.into_iter().collect()].concat();
        warnings.iter().for_each(|warning| printer.warning(warning));
        let label_ids = match (&fixed.labels, &moving.labels, &request.labels) {
            (Some(fixed), Some(moving), Some(asked)) => {
                Some(label_ids([fixed, moving], Some(asked))?)
            }
            _ => None,
        };
        Ok(Self {
            label_ids,
            initial: initial(request)?,
            guides_hash: guides_hash(request)?,
            landmarks: landmarks_of(request, [&fixed.image.geometry, &moving.image.geometry])?,
            fixed: fixed.image,
            moving: moving.image,
            fixed_labels: fixed.labels,
            moving_labels: moving.labels,
            fixed_mask: fixed.mask,
            moving_mask: moving.mask,
            hashes: [fixed.hash, moving.hash],
            mask_hashes: [fixed.mask_hash, moving.mask_hash],
            warnings,
        })
    }
}

/// One image with what belongs to it.
struct Side {
    image: Volume,
    labels: Option<LabelMap>,
    mask: Option<Volume>,
    hash: Hash,
    mask_hash: Option<Hash>,
    warnings: Vec<String>,
}

impl Side {
    /// Every file on a core of its own: a gzip stream is unpacked by one.
    fn read(
        image: &Path,
        labels: Option<&Path>,
        mask: Option<&Path>,
        reading: Reading,
    ) -> Result<Self> {
        let read_labels = |labels| labels_on(labels, &header(image)?.geometry, image);
        let (hash, mask_hash) = (Hash::begin(image), mask.map(Hash::begin));
        let ((read, labels), mask) = in_parallel(
            || {
                in_parallel(
                    || image_and_warnings(image, reading),
                    || labels.map(read_labels).transpose(),
                )
            },
            || weights(image, reading, mask),
        );
        let ((image, warnings), labels, mask) = (read?, labels?, mask?);
        Ok(Self { image, labels, mask, hash, mask_hash, warnings })
    }
}

impl Inputs {
    /// What is registered.
    pub fn problem(&self, settings: &Settings) -> Problem<'_> {
        Problem {
            fixed_mask: self.fixed_mask.as_ref().map(Source::from),
            moving_mask: self.moving_mask.as_ref().map(Source::from),
            landmarks: driving(&self.landmarks, settings),
            initial: self.initial.clone(),
            ..Problem::new(&self.fixed, &self.moving)
        }
    }
}

/// The landmarks, where they drive the registration and are not measured alone.
pub(super) fn driving(
    landmarks: &Option<[Vec<[f64; 3]>; 2]>,
    settings: &Settings,
) -> Option<[Vec<[f64; 3]>; 2]> {
    landmarks.clone().filter(|_| settings.landmark_sigma_mm.is_some())
}

/// The transform to start from.
pub(super) fn initial(request: &RegisterArguments) -> Result<Composite> {
    match &request.initial {
        None => Ok(Composite::default()),
        Some(path) => Ok(read_transform(path, &Device::flex())?),
    }
}

/// SHA-256 of the files of the initial transform and of the landmarks.
pub(super) fn guides_hash(request: &RegisterArguments) -> Result<String> {
    let initial = request.initial.as_ref().map(transform_files).transpose()?;
    let files = initial.iter().flatten().chain(request.landmarks.iter().flatten());
    let hashes = files.map(|file| sha256(file)).collect::<Result<Vec<_>>>()?;
    Ok(hashes.join(" "))
}

/// The landmarks of both images, one to one.
pub(super) fn landmarks_of(
    request: &RegisterArguments,
    grids: [&Geometry; 2],
) -> Result<Option<[Vec<[f64; 3]>; 2]>> {
    let Some([fixed, moving]) = request.landmarks.as_deref() else { return Ok(None) };
    let spaces = grids.map(|grid| request.landmark_space.of(grid));
    landmark_pairs([fixed, moving], spaces).map(Some)
}

/// Mixed labels are no labels: a map given as an image is most likely a mistake.
pub(super) fn check_is_no_label_map(path: &Path) -> Result<()> {
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
