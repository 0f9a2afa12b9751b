//! Seeded values, and the way into and out of tensors of either precision.

use burn::tensor::{DType, Device, Shape, Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// `len` standard normal values.
pub fn normal(len: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| StandardNormal.sample(&mut rng)).collect()
}

/// `len` values uniform in `[low, high)`.
pub fn uniform(len: usize, low: f64, high: f64, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| rng.random_range(low..high)).collect()
}

/// A tensor of `values` in the given precision.
///
/// # Panics
/// If the number of values does not fit the shape.
pub fn tensor<const D: usize>(
    values: &[f64],
    shape: [usize; D],
    device: &Device,
    dtype: DType,
) -> Tensor<D> {
    assert_eq!(values.len(), shape.iter().product::<usize>(), "values for shape {shape:?}");
    let data = TensorData::new(values.to_vec(), Shape::from(shape)).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

/// The elements of a tensor in order, widened.
pub fn to_f64<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().convert::<f64>().try_to_vec().expect("just converted to f64")
}
