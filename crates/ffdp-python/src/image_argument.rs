//! What a caller may pass as an image: a path, an [`Image`], or an image of nibabel or SimpleITK.

use std::path::{Path, PathBuf};

use ffdp_cli::{Failure, NanPolicy, Reading, settle_nan, stored_image, weights_where_finite};
use ffdp_image::Error;
use ffdp_image::image::{Affine, Geometry, LabelMap, Volume};
use ffdp_image::io::images::{INTENT_LABEL, header, read_labels};
use pyo3::prelude::*;

use crate::arrays::{kind_of, numeric};
use crate::errors::{Refusal, Result};
use crate::image::{Image, turned, turned_rows};

/// What a caller may pass as an image: a file, or an image in memory.
pub enum ImageArgument {
    File(PathBuf),
    Image(Py<Image>),
}

impl ImageArgument {
    /// A path, an [`Image`], or an image of nibabel or SimpleITK, which are recognised by what they can do.
    ///
    /// # Errors
    /// `TypeError` for anything else, with the `name` of the argument.
    pub fn of(object: &Bound<PyAny>, name: &str) -> Result<Self> {
        if let Ok(image) = object.cast::<Image>() {
            return Ok(Self::Image(image.clone().unbind()));
        }
        if let Ok(path) = object.extract::<PathBuf>() {
            return Ok(Self::File(path));
        }
        let has = |names: &[&str]| names.iter().all(|name| object.hasattr(*name).unwrap_or(false));
        let image = match () {
            () if has(&["dataobj", "affine"]) => of_nibabel(object)?,
            () if has(&["GetSpacing", "GetOrigin", "GetDirection"]) => of_sitk(object)?,
            () => {
                let class = object.get_type().name()?;
                return Err(Refusal::type_of(format!(
                    "{name} must be a path, an ffdp.Image, or an image of nibabel or SimpleITK, got {class}: \
                     an array comes with its affine, ffdp.Image(array, affine)"
                )));
            }
        };
        Ok(Self::Image(Py::new(object.py(), image)?))
    }

    /// The same of an argument that may be left out.
    ///
    /// # Errors
    /// As [`ImageArgument::of`].
    pub fn optional(object: Option<&Bound<PyAny>>, name: &str) -> Result<Option<Self>> {
        object.map(|object| Self::of(object, name)).transpose()
    }

    /// What errors name: the file, or the argument.
    pub fn name(&self, argument: &str) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Image(_) => argument.to_string(),
        }
    }

    /// Its grid; of a file, of which no more than the header is read.
    ///
    /// # Errors
    /// Those of reading.
    pub fn geometry(&self) -> Result<Geometry> {
        match self {
            Self::File(path) => Ok(header(path)?.geometry),
            Self::Image(image) => Ok(image.get().geometry.clone()),
        }
    }

    /// Whether its values are integers in memory.
    pub fn has_integers(&self, py: Python<'_>) -> Result<bool> {
        match self {
            Self::File(_) => Ok(false),
            Self::Image(image) => Ok(kind_of(image.get().voxels.bind(py))? != 'f'),
        }
    }

    /// The intensities, all finite; what is unusual about a file, and voxels that were set to 0, are warnings.
    ///
    /// # Errors
    /// Those of reading, and voxels that are not finite where they are refused.
    pub fn volume(&self, py: Python<'_>, argument: &str, reading: Reading) -> Result<Volume> {
        let mut volume = self.stored(py, reading)?;
        let name = self.name(argument);
        let warning = py.detach(|| settle_nan(&mut volume, &name, reading.nan_policy))?;
        warning.map_or(Ok(()), |text| warn(py, &text))?;
        Ok(volume)
    }

    fn stored(&self, py: Python<'_>, reading: Reading) -> Result<Volume> {
        let path = match self {
            Self::File(path) => path,
            Self::Image(image) => return image.get().to_volume(py),
        };
        let (volume, warnings) = py.detach(|| stored_image(path, reading.volume))?;
        warnings.iter().try_for_each(|text| warn(py, text))?;
        Ok(volume)
    }

    /// How much each voxel of an image counts: the weights of `mask`, and none where the image is not finite, if that is how
    /// it is read; `None` where all count.
    ///
    /// # Errors
    /// Those of reading, and a mask on another grid.
    pub fn weights(
        &self,
        py: Python<'_>,
        reading: Reading,
        mask: Option<&Self>,
    ) -> Result<Option<Volume>> {
        let whole = Reading { volume: None, nan_policy: NanPolicy::Error };
        let mask = mask.map(|mask| mask.stored(py, whole)).transpose()?;
        if reading.nan_policy != NanPolicy::Mask {
            return Ok(mask);
        }
        Ok(weights_where_finite(&self.stored(py, reading)?, mask)?)
    }

    /// The labels, wherever they lie.
    ///
    /// # Errors
    /// Those of reading, and values that are no labels.
    pub fn labels(&self, py: Python<'_>) -> Result<LabelMap> {
        match self {
            Self::File(path) => Ok(py.detach(|| read_labels(path))?),
            Self::Image(image) => image.get().to_labels(py),
        }
    }

    /// The labels, which must lie on the grid of an image and not be empty.
    ///
    /// # Errors
    /// As [`ImageArgument::labels`], and labels on another grid or of background alone.
    pub fn labels_on(&self, py: Python<'_>, grid: &Geometry, argument: &str) -> Result<LabelMap> {
        let (labels, name) = (self.labels(py)?, self.name(argument));
        grid.check_same_grid(&labels.geometry, &name)?;
        if labels.ids().is_empty() {
            let what = format!("{name}: a label map must hold a label but background (0)");
            let fix = "check that it is the one you meant";
            return Err(Error::invalid(what, format_args!("none"), fix).into());
        }
        Ok(labels)
    }

    /// Refuses a file of labels as an image: mixed labels are no labels.
    ///
    /// # Errors
    /// For a file that says so of itself, and those of reading.
    pub fn check_is_no_label_map(&self) -> Result<()> {
        let Self::File(path) = self else { return Ok(()) };
        if header(path)?.intent_code != INTENT_LABEL {
            return Ok(());
        }
        Err(Failure::user(
            format!("{}: this is a label map (intent 1002), an image is meant", path.display()),
            "give it as fixed_labels or moving_labels, or align the labels themselves with labels_as_images",
        )
        .into())
    }

    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Image(_) => None,
        }
    }
}

fn of_nibabel(object: &Bound<PyAny>) -> Result<Image> {
    let numpy = object.py().import("numpy")?;
    let array = numpy.call_method1("asanyarray", (object.getattr("dataobj")?,))?;
    Image::new(&array, &object.getattr("affine")?)
}

fn of_sitk(object: &Bound<PyAny>) -> Result<Image> {
    let components: usize = object.call_method0("GetNumberOfComponentsPerPixel")?.extract()?;
    if components != 1 {
        let what = "an image has one number for each voxel";
        return Err(Error::invalid(
            what,
            components,
            "pass one component: SimpleITK.VectorIndexSelectionCast",
        )
        .into());
    }
    let array = object.py().import("SimpleITK")?.call_method1("GetArrayFromImage", (object,))?;
    let numbers = |name: &str| object.call_method0(name)?.extract::<Vec<f64>>();
    let [spacing, origin, direction] =
        [numbers("GetSpacing")?, numbers("GetOrigin")?, numbers("GetDirection")?];
    let axes = spacing.len();
    if axes > 3 {
        let what = "an image has two or three axes";
        return Err(Error::invalid(what, axes, "pass one volume of a series: image[..., 0]").into());
    }
    // A plane lies at z = 0, its voxels 1 mm thick.
    let along = |values: &[f64], i: usize, other: f64| values.get(i).copied().unwrap_or(other);
    let rows = [0, 1, 2].map(|i| {
        [0, 1, 2].map(|j| match i < axes && j < axes {
            true => direction[i * axes + j] * spacing[j],
            false => f64::from(u8::from(i == j)),
        })
    });
    let origin = [0, 1, 2].map(|i| along(&origin, i, 0.0));
    let affine = Affine::from_parts(turned_rows(&rows), turned([origin])[0]);
    Image::of(numeric(&array.getattr("T")?)?, |size| Geometry::from_affine(size, affine))
}

/// A `UserWarning`.
fn warn(py: Python<'_>, text: &str) -> Result<()> {
    py.import("warnings")?.call_method1("warn", (text,))?;
    Ok(())
}
