//! Transforms: from points of the fixed to points of the moving image, in RAS mm.

use std::path::PathBuf;

use burn::tensor::Device;
use ffdp_burn::transform::{
    Composite, Displacement, Step, map_vectors, read_transform, write_transform,
};
use ffdp_image::Error;
use ffdp_image::image::{Affine, Geometry, Physical, download};
use ffdp_image::io::read_flirt;
use numpy::{PyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::arrays::{array_of, matrix_of, numbers, slice, square};
use crate::errors::{Refusal, Result};
use crate::image_argument::ImageArgument;
use crate::landmarks::{array_of_points, points_of};

/// A map from points of the fixed to points of the moving image, RAS mm. It lies in host memory.
#[pyclass(frozen, module = "ffdp")]
pub struct Transform {
    pub map: Composite,
}

#[pymethods]
impl Transform {
    #[new]
    #[pyo3(signature = (matrix=None))]
    fn new(matrix: Option<&Bound<PyAny>>) -> Result<Self> {
        let affine = matrix.map(affine_of).transpose()?;
        Ok(Self { map: affine.map_or_else(Composite::default, Composite::from) })
    }

    /// The chain of transforms in files, in the order of `ffdp apply -t`.
    #[staticmethod]
    #[pyo3(signature = (*paths))]
    fn read(py: Python<'_>, paths: Vec<PathBuf>) -> Result<Self> {
        let read = |map: Composite, path: &PathBuf| {
            Ok::<_, Error>(map.then(read_transform(path, &Device::flex())?))
        };
        Ok(Self { map: py.detach(|| paths.iter().try_fold(Composite::default(), read))? })
    }

    /// A matrix of FSL FLIRT, which needs its two images.
    #[staticmethod]
    fn read_flirt(path: PathBuf, moving: &Bound<PyAny>, fixed: &Bound<PyAny>) -> Result<Self> {
        let [moving, fixed] =
            [ImageArgument::of(moving, "moving")?, ImageArgument::of(fixed, "fixed")?];
        Ok(Self { map: read_flirt(path, &moving.geometry()?, &fixed.geometry()?)?.into() })
    }

    /// A displacement field: vectors (x, y, z, 3) in RAS mm, and the affine of its grid.
    #[staticmethod]
    fn from_displacement(vectors: &Bound<PyAny>, affine: &Bound<PyAny>) -> Result<Self> {
        let vectors = numbers::<f32>(vectors, "float32")?;
        let size = match *vectors.shape() {
            [x, y, z, 3] => [x, y, z],
            ref other => {
                let what = "a displacement is an array (x, y, z, 3), in RAS mm";
                return Err(Error::invalid(what, other, "put the components last").into());
            }
        };
        let [rows @ .., _] = matrix_of(affine)?;
        let geometry = Geometry::from_affine(size, Affine::from_rows(rows))?;
        let to_voxels = geometry.mm_to_voxel().linear();
        let in_mm =
            Displacement::from_vec(slice(&vectors)?.to_vec(), geometry.clone(), &Device::flex())?;
        let field = map_vectors(in_mm.into_field(), &to_voxels);
        let step = Step::Displacement(Displacement::new(field, geometry)?);
        Ok(Self { map: Composite::new(vec![step]) })
    }

    /// Writes it for ITK and ANTs, by the ending of the name.
    fn write(&self, py: Python<'_>, path: PathBuf) -> Result<()> {
        Ok(py.detach(|| write_transform(path, &self.map))?)
    }

    /// The whole map as a 4x4 matrix in RAS mm; `None` if it deforms.
    #[getter]
    fn matrix<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyArrayDyn<f64>>>> {
        self.map.as_affine().map(|affine| square(py, affine.rows())).transpose()
    }

    /// The steps, each a transform; the first is applied first.
    #[getter]
    fn steps(&self) -> Vec<Self> {
        let alone = |step: &Step| Self { map: Composite::new(vec![step.clone()]) };
        self.map.steps().iter().map(alone).collect()
    }

    /// The whole map as displacements (x, y, z, 3) in RAS mm at the voxels of a grid.
    fn displacement<'py>(
        &self,
        py: Python<'py>,
        reference: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyArrayDyn<f32>>> {
        let grid = ImageArgument::of(reference, "reference")?.geometry()?;
        let values = py.detach(|| {
            let field = self.map.to_displacement(&grid, &Device::flex()).to_mm();
            download(field, "a displacement")
        })?;
        let [x, y, z] = grid.size;
        array_of(py, values, &[x, y, z, 3])
    }

    /// The same as one step on a grid, which a file of a displacement field can hold.
    fn on_grid(&self, py: Python<'_>, reference: &Bound<PyAny>) -> Result<Self> {
        let grid = ImageArgument::of(reference, "reference")?.geometry()?;
        let whole = py.detach(|| self.map.to_displacement(&grid, &Device::flex()));
        Ok(Self { map: Composite::new(vec![Step::Displacement(whole)]) })
    }

    /// This map first, then the other one.
    fn then(&self, next: &Self) -> Self {
        Self { map: self.map.clone().then(next.map.clone()) }
    }

    /// The inverse map; that of a displacement is solved for where it is needed.
    fn inverse(&self) -> Result<Self> {
        Ok(Self { map: self.map.inverse()? })
    }

    /// Where points (N, 3) go, RAS mm.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        points: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyArrayDyn<f64>>> {
        let points = points_of(points)?;
        let mapped = py.detach(|| self.map.map_points(&points))?;
        array_of_points(py, &mapped)
    }

    fn __repr__(&self) -> String {
        let name = |step: &Step| match step {
            Step::Affine(_) => "affine".to_string(),
            Step::Displacement(field) => format!("displacement {:?}", field.geometry().size),
            Step::Inverse(field) => format!("inverse of displacement {:?}", field.geometry().size),
            Step::Bspline(spline) => format!("B-spline {:?}", spline.geometry().size),
            Step::InverseBspline(spline) => {
                format!("inverse of B-spline {:?}", spline.geometry().size)
            }
            Step::Map(_) => "map".to_string(),
        };
        let steps: Vec<String> = self.map.steps().iter().map(name).collect();
        format!(
            "ffdp.Transform({})",
            if steps.is_empty() { "identity".into() } else { steps.join(", then ") }
        )
    }
}

/// What a caller may pass as a transform: one, a path, a 4x4 matrix, or a list of those, the first applied first.
///
/// # Errors
/// `TypeError` for anything else, and those of reading.
pub fn composite_of(object: &Bound<PyAny>) -> Result<Composite> {
    if let Ok(transform) = object.cast::<Transform>() {
        return Ok(transform.get().map.clone());
    }
    if let Ok(path) = object.extract::<PathBuf>() {
        return Ok(object.py().detach(|| read_transform(path, &Device::flex()))?);
    }
    let is_matrix = object.hasattr("shape")?;
    let is_list = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    match (is_matrix, is_list) {
        (true, _) => Ok(affine_of(object)?.into()),
        (false, true) => object
            .try_iter()?
            .try_fold(Composite::default(), |map, next| Ok(map.then(composite_of(&next?)?))),
        (false, false) => {
            let class = object.get_type().name()?;
            let message = format!(
                "a transform is an ffdp.Transform, a path, a 4x4 array or a list of them, got {class}"
            );
            Err(Refusal::type_of(message))
        }
    }
}

/// The same map with its displacements on a device.
///
/// # Errors
/// [`Error::Device`] when they cannot be read back.
pub fn placed_on(map: &Composite, device: &Device) -> ffdp_image::Result<Composite> {
    let placed = |field: &Displacement| match field.field().device() == *device {
        true => Ok(field.clone()),
        false => Displacement::from_vec(field.to_vec()?, field.geometry().clone(), device),
    };
    let step = |step: &Step| {
        Ok(match step {
            Step::Displacement(field) => Step::Displacement(placed(field)?),
            Step::Inverse(field) => Step::Inverse(placed(field)?),
            other => other.clone(),
        })
    };
    Ok(Composite::new(map.steps().iter().map(step).collect::<ffdp_image::Result<_>>()?))
}

fn affine_of(object: &Bound<PyAny>) -> Result<Affine<Physical, Physical>> {
    let [rows @ .., _] = matrix_of(object)?;
    Ok(Affine::from_rows(rows))
}
