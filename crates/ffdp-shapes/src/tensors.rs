//! Positions as tensors `[N, 3]`, and tensors as vectors of an optimiser.

use burn::tensor::{DType, Device, Tensor, TensorData};
use ffdp_image::{Error, Result};
use ffdp_optim::Space;

use crate::shape::Position;

/// Where tensors lie, and how precise they are.
pub type TensorOptions<'a> = (&'a Device, DType);

/// Positions as `[N, 3]`.
pub fn to_tensor(points: &[Position], (device, dtype): TensorOptions) -> Tensor<2> {
    let data = TensorData::new(points.as_flattened().to_vec(), [points.len(), 3]);
    Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
}

/// Numbers as `[N, 1]`.
pub fn column(values: &[f64], (device, dtype): TensorOptions) -> Tensor<2> {
    let data = TensorData::new(values.to_vec(), [values.len(), 1]);
    Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
}

/// The rows of `[N, 3]`.
///
/// # Errors
/// [`Error::Device`] when they cannot be read back.
pub fn to_points(points: Tensor<2>) -> Result<Vec<Position>> {
    let values = points.try_into_vec_as::<f64>();
    let values = values.map_err(|reason| Error::device("reading back points", reason))?;
    Ok(values.as_chunks::<3>().0.to_vec())
}

/// The number that a tensor holds.
///
/// # Errors
/// [`Error::Device`] when it cannot be read back.
pub fn number(value: Tensor<1>) -> Result<f64> {
    let values = value.try_into_vec_as::<f64>();
    Ok(values.map_err(|reason| Error::device("reading back a number", reason))?[0])
}

/// A tensor `[N, 3]` that an optimiser moves.
#[derive(Clone, Debug)]
pub struct TensorVector(pub Tensor<2>);

impl Space for TensorVector {
    type Error = Error;

    fn dots(pairs: &[[&Self; 2]]) -> Result<Vec<f64>> {
        let dot = |[a, b]: &[&Self; 2]| (a.0.clone() * b.0.clone()).sum();
        let read = Tensor::cat(pairs.iter().map(dot).collect(), 0).try_into_vec_as::<f64>();
        read.map_err(|reason| Error::device("reading inner products", reason))
    }

    fn combine(terms: &[(f64, &Self)]) -> Self {
        let term = |(a, x): &(f64, &Self)| x.0.clone().mul_scalar(*a);
        Self(terms.iter().map(term).reduce(Tensor::add).expect("at least one term"))
    }
}
