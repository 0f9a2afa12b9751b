//! The element types of the CPU implementations, and how they read and make tensors.
//!
//! `f32` is what users run; `f64` is the oracle's precision, against which finite differences
//! prove every gradient.

use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::ops::FloatTensorOps;
#[doc(hidden)]
pub use burn::tensor::DType;
use burn::tensor::{Bytes, Element, FloatDType, Shape};

use super::half::computed;

/// `f32` or `f64`; arithmetic inside the ops is done in `f64` where it accumulates.
pub trait Real: Element + bytemuck::Pod + Send + Sync + Default {
    /// Rounds from `f64`.
    fn of(value: f64) -> Self;
    /// Widens to `f64`.
    fn wide(self) -> f64;
}

impl Real for f32 {
    #[inline]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline]
    fn wide(self) -> f64 {
        self as f64
    }
}

impl Real for f64 {
    #[inline]
    fn of(value: f64) -> Self {
        value
    }
    #[inline]
    fn wide(self) -> f64 {
        self
    }
}

/// Storage only, where an op offers half the width: nothing is computed in it.
impl Real for burn::tensor::bf16 {
    #[inline]
    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }
    #[inline]
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

/// A contiguous tensor of `data`.
pub fn tensor<T: Real>(data: Vec<T>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(data), Layout::contiguous(shape.into()), T::dtype())
}

/// An image as the CPU reads it: contiguous, and widened if it is stored in half precision.
pub fn readable(image: FlexTensor) -> FlexTensor {
    let image = match computed(image.dtype()) == image.dtype() {
        true => image,
        false => Flex::float_cast(image, FloatDType::F32),
    };
    image.to_contiguous()
}

/// The elements of a contiguous tensor, in order.
///
/// # Panics
/// If `tensor` is strided (make it contiguous first) or of another type.
pub fn elements<T: Real>(tensor: &FlexTensor) -> &[T] {
    tensor.as_slice().expect("the tensor was made contiguous and has the type of its siblings")
}

/// Calls `$f::<f32>` or `$f::<f64>` by the type of the first tensor.
///
/// # Panics
/// For other types, naming the op and the type.
///
/// ```
/// use burn::tensor::{DType, Device, Tensor};
/// use ffdp_kit::real::{Real, by_dtype};
///
/// fn bytes<T: Real>(count: usize) -> usize {
///     count * size_of::<T>()
/// }
/// let x = Tensor::<1>::zeros([7], (&Device::flex(), DType::F64));
/// assert_eq!(by_dtype!("bytes", x.dtype(), bytes(7)), 56);
/// ```
#[doc(inline)]
pub use crate::__by_dtype as by_dtype;

#[doc(hidden)]
#[macro_export]
macro_rules! __by_dtype {
    ($op:literal, $dtype:expr, $f:ident ( $($arg:expr),* $(,)? )) => {
        match $dtype {
            $crate::real::DType::F32 => $f::<f32>($($arg),*),
            $crate::real::DType::F64 => $f::<f64>($($arg),*),
            other => panic!(concat!($op, ": the CPU takes f32 or f64 tensors, got {:?}"), other),
        }
    };
}
