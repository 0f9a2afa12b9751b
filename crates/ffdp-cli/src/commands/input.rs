//! Reading and checking what the user names.

use std::path::Path;

use clap::Args;
use ffdp_image::Error;
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::io::images::{PlaneReader, header, read_labels, read_volume, read_volume_at};
use ffdp_image::io::{LandmarkSpace, read_landmarks};

use crate::failure::{Failure, Result};
use crate::nan_policy::NanPolicy;
use crate::printer::Printer;

/// How images are read.
#[derive(Clone, Copy, Debug, Args)]
pub struct Reading {
    /// Of an image file with several volumes, the one to use, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// How NaN and infinite voxels are handled.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,
}

impl Reading {
    /// Demands an image of several volumes where one of them is chosen; a file of one volume has the number 0.
    ///
    /// # Errors
    /// Where none of the files that can be read has several.
    pub(crate) fn check_volume<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        let Some(volume) = self.volume.filter(|volume| *volume > 0) else { return Ok(()) };
        let volumes = files.into_iter().filter_map(|file| Some(header(file).ok()?.volumes()));
        match volumes.max() {
            Some(1) => Err(Error::without_effect(
                format_args!("--volume {volume}"),
                "no image has more than one volume",
                "name an image of several volumes",
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// What of it decides results, by name.
    pub(crate) fn identity(&self) -> [(&'static str, Option<String>); 2] {
        let volume = self.volume.map(|volume| volume.to_string());
        [("volume", volume), ("nan_policy", Some(format!("{:?}", self.nan_policy)))]
    }
}

/// The labels that `--labels` asked for, or all of either map, which has these, in ascending order.
///
/// # Errors
/// For one that neither map holds.
pub fn label_ids([in_fixed, in_moving]: [Vec<i32>; 2], asked: Option<&[i32]>) -> Result<Vec<i32>> {
    let Some(asked) = asked else {
        let mut ids = [in_fixed, in_moving].concat();
        ids.sort_unstable();
        ids.dedup();
        return Ok(ids);
    };
    // The background is no label of a map, and may be asked for.
    let unknown = |id: &&i32| **id != 0 && !in_fixed.contains(id) && !in_moving.contains(id);
    match asked.iter().find(unknown) {
        None => Ok(asked.to_vec()),
        Some(id) => Err(Failure::user(
            format!("neither label map holds the label {id} of --labels"),
            format!("the fixed map holds {in_fixed:?}, the moving map {in_moving:?}"),
        )),
    }
}

/// Corresponding landmarks of two files, in RAS mm; one space for the numbers of each.
pub fn landmark_pairs(
    [first, second]: [&Path; 2],
    spaces: [LandmarkSpace; 2],
) -> Result<[Vec<[f64; 3]>; 2]> {
    let name = |path: &Path| path.to_string_lossy().to_lowercase();
    let says_its_own = |path| name(path).ends_with(".fcsv") || name(path).ends_with(".mrk.json");
    if spaces.iter().any(|space| *space != LandmarkSpace::OfFile)
        && [first, second].into_iter().all(says_its_own)
    {
        let because = "Slicer's files say their space themselves";
        let fix = "give landmarks as CSV";
        return Err(Error::without_effect("--landmark-space", because, fix).into());
    }
    let lists = [read_landmarks(first, &spaces[0])?, read_landmarks(second, &spaces[1])?];
    let [a, b] = lists.each_ref().map(Vec::len);
    if a != b || a == 0 {
        return Err(Failure::user(
            format!("{} holds {a} landmarks and {} {b}", first.display(), second.display()),
            "give files with one line for each pair of landmarks, in the same order",
        ));
    }
    Ok(lists)
}

/// The image of a file; what is unusual about the file is said, NaN treated as asked.
pub fn image(path: &Path, reading: Reading, printer: Printer) -> Result<Volume> {
    let (volume, warnings) = image_and_warnings(path, reading)?;
    warnings.iter().for_each(|warning| printer.warning(warning));
    Ok(volume)
}

/// The image of a file, NaN treated as asked, and what is unusual about the file.
pub fn image_and_warnings(path: &Path, reading: Reading) -> Result<(Volume, Vec<String>)> {
    let (mut volume, mut warnings) = stored_image(path, reading.volume)?;
    warnings.extend(settle_nan(&mut volume, &path.display().to_string(), reading.nan_policy)?);
    Ok((volume, warnings))
}

/// The image of a file as it is stored, volume `volume` of several, and what is unusual about the file.
///
/// # Errors
/// Those of reading.
pub fn stored_image(
    path: &Path,
    volume: Option<usize>,
) -> ffdp_image::Result<(Volume, Vec<String>)> {
    let header = header(path)?;
    let warnings =
        header.warnings.iter().map(|warning| format!("{}: {warning}", path.display())).collect();
    let image = match volume {
        Some(k) if header.volumes() > 1 => read_volume_at(path, k)?,
        _ => read_volume(path)?,
    };
    Ok((image, warnings))
}

/// How much each voxel of the image in a file counts: the weights in `mask`, none where
/// [`NanPolicy::Mask`] says so; `None` if all count.
pub fn weights(path: &Path, reading: Reading, mask: Option<&Path>) -> Result<Option<Volume>> {
    let mask = mask.map(read_volume).transpose()?;
    if reading.nan_policy != NanPolicy::Mask {
        return Ok(mask);
    }
    let (image, _) = stored_image(path, reading.volume)?;
    Ok(weights_where_finite(&image, mask)?)
}

/// The weights of `mask`, and none where the image is not finite; `None` if all voxels count.
///
/// # Errors
/// For a mask on another grid.
pub fn weights_where_finite(
    image: &Volume,
    mask: Option<Volume>,
) -> ffdp_image::Result<Option<Volume>> {
    if image.data.iter().all(|value| value.is_finite()) {
        return Ok(mask);
    }
    let mut mask = match mask {
        Some(mask) => {
            image.geometry.check_same_grid(&mask.geometry, "the mask")?;
            mask
        }
        None => Volume::new(vec![1.0; image.data.len()], image.geometry.clone())?,
    };
    let pairs = mask.data.iter_mut().zip(&image.data);
    pairs.filter(|(_, value)| !value.is_finite()).for_each(|(weight, _)| *weight = 0.0);
    Ok(Some(mask))
}

/// Treats NaN and infinite voxels as asked; a warning where some were set to 0.
///
/// # Errors
/// For such voxels where they are refused, with the `name` of the image.
pub fn settle_nan(
    volume: &mut Volume,
    name: &str,
    policy: NanPolicy,
) -> ffdp_image::Result<Option<String>> {
    if policy == NanPolicy::Error {
        volume.check_finite(name)?;
        return Ok(None);
    }
    let count = volume.replace_non_finite(0.0);
    Ok((count > 0).then(|| format!("{name}: {count} NaN or infinite voxels were set to 0")))
}

/// Demands by its header that a file lies on the grid of an image, whose labels, mask or channel it is.
pub fn check_on_grid(path: &Path, what: &str, grid: &Geometry, image_path: &Path) -> Result<()> {
    let what = format!("{} ({what} of {})", path.display(), image_path.display());
    Ok(grid.check_same_grid(&header(path)?.geometry, &what)?)
}

/// The labels of a file, which must lie on the grid of an image.
pub fn labels_on(path: &Path, grid: &Geometry, image_path: &Path) -> Result<LabelMap> {
    check_on_grid(path, "labels", grid, image_path)?;
    let labels = read_labels(path)?;
    check_labels(path, &labels.ids())?;
    Ok(labels)
}

/// The labels of a file as [`labels_on`] has them, to be read plane by plane: all of them, and the file that stays open.
pub fn label_planes_on(
    path: &Path,
    grid: &Geometry,
    image_path: &Path,
) -> Result<(PlaneReader, Vec<i32>)> {
    check_on_grid(path, "labels", grid, image_path)?;
    let (labels, ids) = PlaneReader::open(path, None)?.with_labels()?;
    check_labels(path, &ids)?;
    Ok((labels, ids))
}

fn check_labels(path: &Path, ids: &[i32]) -> Result<()> {
    match ids.is_empty() {
        false => Ok(()),
        true => Err(Failure::user(
            format!("{}: the label map holds no label but background (0)", path.display()),
            "check that it is the file you meant",
        )),
    }
}
