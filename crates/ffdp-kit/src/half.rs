//! Images in half precision are storage, of half the size: kernels read them as they are, and everything
//! that is computed of them is f32, results and gradients alike. A gradient is rounded to its image's type
//! at its end, by the tape.

use burn::tensor::DType;

/// The type in which is computed what has images of this type.
pub fn computed(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}
