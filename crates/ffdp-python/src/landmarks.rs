//! Points of Python: arrays `(N, 3)` in RAS mm, or files.

use std::path::PathBuf;

use ffdp_image::Error;
use ffdp_image::io::{LandmarkSpace, read_landmarks};
use numpy::{PyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arrays::{array_of, numbers, slice};
use crate::errors::{Refusal, Result};

/// Points of an array.
///
/// # Errors
/// For an array that is not `(N, 3)`.
pub fn points_of(object: &Bound<PyAny>) -> Result<Vec<[f64; 3]>> {
    let array = numbers::<f64>(object, "float64")?;
    let count = match *array.shape() {
        [count, 3] => count,
        ref other => {
            let what = "points are an array (N, 3), in RAS mm";
            return Err(Error::invalid(what, other, "pass one row for each point").into());
        }
    };
    let values = slice(&array)?;
    Ok((0..count).map(|i| [0, 1, 2].map(|axis| values[i + axis * count])).collect())
}

/// The array of points.
pub fn array_of_points<'py>(
    py: Python<'py>,
    points: &[[f64; 3]],
) -> Result<Bound<'py, PyArrayDyn<f64>>> {
    let values = (0..3).flat_map(|axis| points.iter().map(move |point| point[axis])).collect();
    array_of(py, values, &[points.len(), 3])
}

/// What is given of the fixed and of the moving image.
///
/// # Errors
/// `TypeError` for anything but two.
pub fn two<'py>(object: &Bound<'py, PyAny>, name: &str) -> Result<[Bound<'py, PyAny>; 2]> {
    let refused =
        || Refusal::type_of(format!("{name} are two, of the fixed and of the moving image"));
    let all = object.try_iter().map_err(|_| refused())?.collect::<PyResult<Vec<_>>>()?;
    all.try_into().map_err(|_| refused())
}

/// Landmarks of both images that belong together, one to one: arrays, or files in the space that they say.
///
/// # Errors
/// Those of reading, and lists of different lengths or of none.
pub fn pair_of(object: &Bound<PyAny>) -> Result<[Vec<[f64; 3]>; 2]> {
    let [fixed, moving] = two(object, "landmarks")?;
    let points = |object: &Bound<PyAny>| match object.extract::<PathBuf>() {
        Ok(path) => Ok(read_landmarks(path, &LandmarkSpace::OfFile)?),
        Err(_) => points_of(object),
    };
    let lists = [points(&fixed)?, points(&moving)?];
    let counts = lists.each_ref().map(Vec::len);
    if counts[0] != counts[1] || counts[0] == 0 {
        let what = "landmarks of the fixed and of the moving image must be as many, and some";
        let fix = "give one point of each for each pair, in the same order";
        return Err(Error::invalid(what, counts, fix).into());
    }
    Ok(lists)
}
