//! Images of Python: arrays with an affine, as nibabel has them.
//!
//! Axes are (x, y, z), the first one fastest in memory where nothing is to be copied; the affine maps voxel indices to
//! RAS mm. That is the library's own order and world, so that arrays are copied and never turned. nibabel has the same;
//! SimpleITK has (z, y, x) and LPS, which is turned here and nowhere else.

use std::path::PathBuf;

use ffdp_image::Error;
use ffdp_image::image::{Affine, Geometry, LabelMap, Volume, labels_of};
use ffdp_image::io::images::{read_volume, read_volume_at, write_labels, write_volume};
use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arrays::{array_of, kind_of, matrix_of, numbers, numeric, slice, square};
use crate::errors::Result;

/// An image: an array of two or three axes (x, y, z), and the affine from voxel indices to RAS mm.
#[pyclass(frozen, module = "ffdp")]
pub struct Image {
    pub voxels: Py<PyUntypedArray>,
    pub geometry: Geometry,
}

#[pymethods]
impl Image {
    #[new]
    pub fn new(array: &Bound<PyAny>, affine: &Bound<PyAny>) -> Result<Self> {
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
        let is_integer = kind_of(self.voxels.bind(py))? != 'f';
        if is_integer {
            let labels = self.to_labels(py)?;
            return Ok(py.detach(|| write_labels(&path, &labels))?);
        }
        let volume = self.to_volume(py)?;
        Ok(py.detach(|| write_volume(&path, &volume))?)
    }

    /// The voxels.
    #[getter]
    fn array(&self, py: Python<'_>) -> Py<PyUntypedArray> {
        self.voxels.clone_ref(py)
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
        py.import("numpy")?.call_method1(function, (self.voxels.bind(py), dtype))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let ([x, y, z], [a, b, c]) = (self.geometry.size, self.geometry.spacing_mm);
        let (kind, axes) = (self.voxels.bind(py).dtype(), self.geometry.axis_codes());
        Ok(format!("ffdp.Image({x} x {y} x {z} {kind}, {a:.4} x {b:.4} x {c:.4} mm, {axes})"))
    }

    /// As an image of nibabel, which has to be installed.
    fn to_nibabel<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let (array, affine) = (self.voxels.bind(py), self.affine(py)?);
        Ok(py.import("nibabel")?.call_method1("Nifti1Image", (array, affine))?)
    }

    /// As an image of SimpleITK, which has to be installed.
    fn to_sitk<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let array = self.voxels.bind(py).getattr("T")?;
        let image = py.import("SimpleITK")?.call_method1("GetImageFromArray", (array,))?;
        let Geometry { spacing_mm, origin_mm, direction, .. } = &self.geometry;
        image.call_method1("SetSpacing", (*spacing_mm,))?;
        image.call_method1("SetOrigin", (turned([*origin_mm])[0],))?;
        image.call_method1("SetDirection", (turned_rows(direction).concat(),))?;
        Ok(image)
    }
}

impl Image {
    pub fn of(
        array: Bound<PyUntypedArray>,
        geometry: impl FnOnce([usize; 3]) -> ffdp_image::Result<Geometry>,
    ) -> Result<Self> {
        let size = match *array.shape() {
            [x, y] => [x, y, 1],
            [x, y, z] => [x, y, z],
            ref other => {
                let what = "an image has two or three axes (x, y, z)";
                return Err(Error::invalid(
                    what,
                    other,
                    "pass one volume of a series: array[..., 0]",
                )
                .into());
            }
        };
        let array = array.call_method1("reshape", (size,))?.cast_into::<PyUntypedArray>();
        let array = array.map_err(PyErr::from)?.unbind();
        Ok(Self { voxels: array, geometry: geometry(size)? })
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
        Ok(Self { voxels: array, geometry })
    }

    pub fn to_volume(&self, py: Python<'_>) -> Result<Volume> {
        let values = numbers::<f32>(self.voxels.bind(py), "float32")?;
        Ok(Volume::new(slice(&values)?.to_vec(), self.geometry.clone())?)
    }

    pub fn to_labels(&self, py: Python<'_>) -> Result<LabelMap> {
        let array = self.voxels.bind(py);
        let data = match kind_of(array)? {
            'f' => labels_of(slice(&numbers::<f32>(array, "float32")?)?)?,
            _ => {
                let values = numbers::<i64>(array, "int64")?;
                let narrow = |value: &i64| {
                    let what = "labels must fit 32 bits";
                    i32::try_from(*value)
                        .map_err(|_| Error::invalid(what, value, "renumber the labels"))
                };
                slice(&values)?.iter().map(narrow).collect::<ffdp_image::Result<_>>()?
            }
        };
        Ok(LabelMap::new(data, self.geometry.clone())?)
    }
}

/// Points from LPS to RAS mm, and back.
pub fn turned<const N: usize>(points: [[f64; 3]; N]) -> [[f64; 3]; N] {
    points.map(|[x, y, z]| [-x, -y, z])
}

/// The rows of a matrix whose columns are vectors, from LPS to RAS mm, and back.
pub fn turned_rows(rows: &[[f64; 3]; 3]) -> [[f64; 3]; 3] {
    [rows[0].map(|v| -v), rows[1].map(|v| -v), rows[2]]
}
