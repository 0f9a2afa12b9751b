//! How the factors of products are rounded: in convolutions and linear layers.

use serde::{Deserialize, Serialize};

/// How the factors of the products are rounded; sums are in f32 on a GPU either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Precision {
    /// Not at all.
    #[default]
    Single,
    /// To TF32 (10 bits after the point: relative error 5e-4 of each factor) in linear layers and in
    /// convolutions with kernels of 3^3 on devices with tensor cores, as cuDNN does by default in PyTorch's
    /// convolutions; elsewhere as `Single`.
    TensorFloat,
}
