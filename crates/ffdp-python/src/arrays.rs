//! Arrays of NumPy and what the library has: the first axis fastest in memory, matrices by rows.

use ffdp_image::Error;
use numpy::npyffi::NPY_ORDER;
use numpy::{
    Element, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Refusal, Result};

/// An array of real numbers.
pub fn numeric<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyUntypedArray>> {
    let array = object.py().import("numpy")?.call_method1("asarray", (object,))?;
    let array = array.cast_into::<PyUntypedArray>().map_err(PyErr::from)?;
    kind_of(&array)?;
    Ok(array)
}

/// `f` for floats, another letter for integers and booleans.
pub fn kind_of(array: &Bound<PyUntypedArray>) -> Result<char> {
    let kind: char = array.dtype().getattr("kind")?.extract()?;
    match "biuf".contains(kind) {
        true => Ok(kind),
        false => {
            Err(Refusal::type_of(format!("an array must hold real numbers, got {}", array.dtype())))
        }
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
        return Err(
            Error::invalid(what, array.shape(), "append the row 0 0 0 1 to a 3x4 one").into()
        );
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
