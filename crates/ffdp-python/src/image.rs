//! Images of Python: arrays with an affine, as nibabel has them.
//!
//! Axes are (x, y, z), the first one fastest in memory where nothing is to be copied; the affine maps voxel indices to
//! RAS mm. That is the library's own order and world, so that arrays are copied and never turned. nibabel has the same;
//! SimpleITK has (z, y, x) and LPS, which is turned here and nowhere else.

use std::path::{Path, PathBuf};

use ffdp_image::Error;
use ffdp_image::image::{Affine, Geometry, LabelMap, Volume, labels_of};
use ffdp_image::io::images::{
    INTENT_LABEL, header, read_labels, read_volume, read_volume_at, write_labels, write_volume,
};
use numpy::npyffi::NPY_ORDER;
use numpy::{
    Element, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Refusal, Result};
use crate::flags::Reading;
use crate::nan_policy::NanPolicy;

/// An image: an array of two or three axes (x, y, z), and the affine from voxel indices to RAS mm.
#[pyclass(frozen, module = "ffdp")]
pub struct Image {
    array: Py<PyUntypedArray>,
    geometry: Geometry,
}

#[pymethods]
impl Image {
    #[new]
    fn new(array: &Bound<PyAny>, affine: &Bound<PyAny>) -> Result<Self> {
        let array = numeric(array)?;
        let [rows @ .., _] = matrix_of(affine)?;
        Self::of(array, |size| Geometry::from_affine(size, Affine::from_rows(rows)))
    }

    /// An image of a file, as float32.
    #[staticmethod]
    #[pyo3(signature = (path, volume=None))]
    fn read(py: Python<'_>, path: PathBuf, volume: Option<usize>) -> Result<Self> {
        let read = py.detach(|| match volume {
            None => read_volume(&path),
            Some(k) => read_volume_at(&path, k),
        })?;
        Self::of_volume(py, read)
    }

    /// Writes it: integers as a label map, anything else as float32.
    fn write(&self, py: Python<'_>, path: PathBuf) -> Result<()> {
        let is_integer = kind_of(self.array.bind(py))? != 'f';
        Ok(match is_integer {
            true => {
                let labels = self.to_labels(py)?;
                py.detach(|| write_labels(&path, &labels))?
            }
            false => {
                let volume = self.to_volume(py)?;
                py.detach(|| write_volume(&path, &volume))?
            }
        })
    }

    /// The voxels.
    #[getter]
    fn array(&self, py: Python<'_>) -> Py<PyUntypedArray> {
        self.array.clone_ref(py)
    }

    /// The 4x4 matrix from voxel indices to RAS mm.
    #[getter]
    fn affine<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArrayDyn<f64>>> {
        square(py, self.geometry.voxel_to_mm().rows())
    }

    /// The size along each axis.
    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        self.geometry.size.into()
    }

    /// The distance of neighbouring voxels along each axis, in mm.
    #[getter]
    fn spacing(&self) -> (f64, f64, f64) {
        self.geometry.spacing_mm.into()
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = if copy == Some(true) { "array" } else { "asarray" };
        py.import("numpy")?.call_method1(function, (self.array.bind(py), dtype))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let ([x, y, z], [a, b, c]) = (self.geometry.size, self.geometry.spacing_mm);
        let (kind, axes) = (self.array.bind(py).dtype(), self.geometry.axis_codes());
        Ok(format!("ffdp.Image({x} x {y} x {z} {kind}, {a:.4} x {b:.4} x {c:.4} mm, {axes})"))
    }

    /// As an image of nibabel, which has to be installed.
    fn to_nibabel<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let (array, affine) = (self.array.bind(py), self.affine(py)?);
        Ok(py.import("nibabel")?.call_method1("Nifti1Image", (array, affine))?)
    }

    /// As an image of SimpleITK, which has to be installed.
    fn to_sitk<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let array = self.array.bind(py).getattr("T")?;
        let image = py.import("SimpleITK")?.call_method1("GetImageFromArray", (array,))?;
        let Geometry { spacing_mm, origin_mm, direction, .. } = &self.geometry;
        image.call_method1("SetSpacing", (*spacing_mm,))?;
        image.call_method1("SetOrigin", (turned([*origin_mm])[0],))?;
        image.call_method1("SetDirection", (turned_rows(direction).concat(),))?;
        Ok(image)
    }
}

impl Image {
    fn of(
        array: Bound<PyUntypedArray>,
        geometry: impl FnOnce([usize; 3]) -> ffdp_image::Result<Geometry>,
    ) -> Result<Self> {
        let size = match *array.shape() {
            [x, y] => [x, y, 1],
            [x, y, z] => [x, y, z],
            ref other => {
                let what = "an image has two or three axes (x, y, z)";
                return Err(Error::invalid(what, other, "pass one volume of a series: array[..., 0]").into());
            }
        };
        let array = array.call_method1("reshape", (size,))?.cast_into::<PyUntypedArray>();
        let array = array.map_err(PyErr::from)?.unbind();
        Ok(Self { array, geometry: geometry(size)? })
    }

    /// The image of a volume, without a copy.
    pub fn of_volume(py: Python<'_>, volume: Volume) -> Result<Self> {
        Self::of_values(py, volume.data, volume.geometry)
    }

    /// The image of labels, without a copy, int32.
    pub fn of_labels(py: Python<'_>, labels: LabelMap) -> Result<Self> {
        Self::of_values(py, labels.data, labels.geometry)
    }

    fn of_values<T: Element>(py: Python<'_>, values: Vec<T>, geometry: Geometry) -> Result<Self> {
        let array = array_of(py, values, &geometry.size)?.as_untyped().clone().unbind();
        Ok(Self { array, geometry })
    }

    fn to_volume(&self, py: Python<'_>) -> Result<Volume> {
        let values = numbers::<f32>(self.array.bind(py), "float32")?;
        Ok(Volume::new(slice(&values)?.to_vec(), self.geometry.clone())?)
    }

    fn to_labels(&self, py: Python<'_>) -> Result<LabelMap> {
        let array = self.array.bind(py);
        let data = match kind_of(array)? {
            'f' => labels_of(slice(&numbers::<f32>(array, "float32")?)?)?,
            _ => {
                let values = numbers::<i64>(array, "int64")?;
                let narrow = |value: &i64| {
                    let what = "labels must fit 32 bits";
                    i32::try_from(*value).map_err(|_| Error::invalid(what, value, "renumber the labels"))
                };
                slice(&values)?.iter().map(narrow).collect::<ffdp_image::Result<_>>()?
            }
        };
        Ok(LabelMap::new(data, self.geometry.clone())?)
    }
}

/// What a caller may pass as an image: a file, or an image in memory.
pub enum Given {
    File(PathBuf),
    Image(Py<Image>),
}

impl Given {
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
    /// As [`Given::of`].
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
            Self::Image(image) => Ok(kind_of(image.get().array.bind(py))? != 'f'),
        }
    }

    /// The intensities, all finite; what is unusual about a file, and voxels that were set to 0, are warnings.
    ///
    /// # Errors
    /// Those of reading, and voxels that are not finite where they are refused.
    pub fn volume(&self, py: Python<'_>, argument: &str, reading: Reading) -> Result<Volume> {
        let mut volume = self.stored(py, reading)?;
        let name = self.name(argument);
        if reading.nan_policy == NanPolicy::Error {
            py.detach(|| volume.check_finite(&name))?;
            return Ok(volume);
        }
        let count = volume.replace_non_finite(0.0);
        if count > 0 {
            warn(py, &format!("{name}: {count} NaN or infinite voxels were set to 0"))?;
        }
        Ok(volume)
    }

    fn stored(&self, py: Python<'_>, reading: Reading) -> Result<Volume> {
        let path = match self {
            Self::File(path) => path,
            Self::Image(image) => return image.get().to_volume(py),
        };
        let (volume, warnings) = py.detach(|| {
            let header = header(path)?;
            let volume = match reading.volume {
                Some(k) if header.volumes() > 1 => read_volume_at(path, k),
                _ => read_volume(path),
            };
            Ok::<_, Error>((volume?, header.warnings))
        })?;
        warnings.iter().try_for_each(|text| warn(py, &format!("{}: {text}", path.display())))?;
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
        let image = self.stored(py, reading)?;
        if image.data.iter().all(|value| value.is_finite()) {
            return Ok(mask);
        }
        let ones = || Volume::new(vec![1.0; image.data.len()], image.geometry.clone());
        let mut mask = mask.map_or_else(ones, Ok)?;
        image.geometry.check_same_grid(&mask.geometry, "the mask")?;
        let pairs = mask.data.iter_mut().zip(&image.data);
        pairs.filter(|(_, value)| !value.is_finite()).for_each(|(weight, _)| *weight = 0.0);
        Ok(Some(mask))
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
    /// As [`Given::labels`], and labels on another grid or of background alone.
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
        Err(crate::failure::Failure::user(
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
        return Err(Error::invalid(what, components, "pass one component: SimpleITK.VectorIndexSelectionCast").into());
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

/// Points from LPS to RAS mm, and back.
pub fn turned<const N: usize>(points: [[f64; 3]; N]) -> [[f64; 3]; N] {
    points.map(|[x, y, z]| [-x, -y, z])
}

/// The rows of a matrix whose columns are vectors, from LPS to RAS mm, and back.
fn turned_rows(rows: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    [rows[0].map(|v| -v), rows[1].map(|v| -v), rows[2]]
}

/// An array of real numbers.
fn numeric<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyUntypedArray>> {
    let array = object.py().import("numpy")?.call_method1("asarray", (object,))?;
    let array = array.cast_into::<PyUntypedArray>().map_err(PyErr::from)?;
    kind_of(&array)?;
    Ok(array)
}

/// `f` for floats, another letter for integers and booleans.
fn kind_of(array: &Bound<PyUntypedArray>) -> Result<char> {
    let kind: char = array.dtype().getattr("kind")?.extract()?;
    match "biuf".contains(kind) {
        true => Ok(kind),
        false => Err(Refusal::type_of(format!("an array must hold real numbers, got {}", array.dtype()))),
    }
}

/// The numbers of an array as `dtype`, the first axis fastest; copied only where they are not so already.
pub fn numbers<'py, T: Element>(
    object: &Bound<'py, PyAny>,
    dtype: &str,
) -> Result<PyReadonlyArrayDyn<'py, T>> {
    let py = object.py();
    let options = PyDict::new(py);
    options.set_item("dtype", dtype)?;
    options.set_item("order", "F")?;
    let array = py.import("numpy")?.call_method("asarray", (numeric(object)?,), Some(&options))?;
    Ok(array.cast_into::<PyArrayDyn<T>>().map_err(PyErr::from)?.readonly())
}

/// The values of [`numbers`], as they lie in memory.
pub fn slice<'a, T: Element>(array: &'a PyReadonlyArrayDyn<T>) -> Result<&'a [T]> {
    Ok(array.as_slice().map_err(PyErr::from)?)
}

/// An array of this shape, its first axis fastest, of values in this order; without a copy.
pub fn array_of<'py, T: Element>(
    py: Python<'py>,
    values: Vec<T>,
    shape: &[usize],
) -> Result<Bound<'py, PyArrayDyn<T>>> {
    let flat = PyArray1::from_vec(py, values);
    Ok(flat.reshape_with_order(shape.to_vec(), NPY_ORDER::NPY_FORTRANORDER)?)
}

/// The rows of the 4x4 matrix of an affine map.
///
/// # Errors
/// For an array of another shape or another last row.
pub fn matrix_of(object: &Bound<PyAny>) -> Result<[[f64; 4]; 4]> {
    let array = numbers::<f64>(object, "float64")?;
    if array.shape() != [4, 4] {
        let what = "an affine is a 4x4 matrix";
        return Err(Error::invalid(what, array.shape(), "append the row 0 0 0 1 to a 3x4 one").into());
    }
    let values = slice(&array)?;
    let rows: [[f64; 4]; 4] = std::array::from_fn(|i| std::array::from_fn(|j| values[i + 4 * j]));
    match rows[3] == [0.0, 0.0, 0.0, 1.0] {
        true => Ok(rows),
        false => {
            let what = "the last row of an affine is 0 0 0 1";
            Err(Error::invalid(what, rows[3], "transpose it, if it was the last column").into())
        }
    }
}

/// The 4x4 matrix of a map `[L | t]`.
pub fn square<'py>(py: Python<'py>, rows: &[[f64; 4]; 3]) -> Result<Bound<'py, PyArrayDyn<f64>>> {
    let [a, b, c] = *rows;
    let rows = [a, b, c, [0.0, 0.0, 0.0, 1.0]];
    let columns = (0..16).map(|k| rows[k % 4][k / 4]).collect();
    array_of(py, columns, &[4, 4])
}

/// A `UserWarning`.
pub fn warn(py: Python<'_>, text: &str) -> Result<()> {
    py.import("warnings")?.call_method1("warn", (text,))?;
    Ok(())
}
