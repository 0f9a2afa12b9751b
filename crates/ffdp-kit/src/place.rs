//! Where a tensor lies, and in which precision.

use burn::tensor::{DType, Device, Tensor, TensorCreationOptions};

/// The device of a tensor, and the type of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorPlace {
    /// Where it lies.
    pub device: Device,
    /// Its precision.
    pub dtype: DType,
}

impl TensorPlace {
    /// On a device, in a precision.
    pub fn new(device: &Device, dtype: DType) -> Self {
        Self { device: device.clone(), dtype }
    }

    /// That of a tensor.
    pub fn of<const D: usize>(tensor: &Tensor<D>) -> Self {
        Self { device: tensor.device(), dtype: tensor.dtype() }
    }
}

impl From<&TensorPlace> for TensorCreationOptions {
    fn from(place: &TensorPlace) -> Self {
        (&place.device, place.dtype).into()
    }
}
