//! Adam on a part of a field: the step in pieces, between which the numbers of all parts are combined.
//!
//! ```text
//! take       m, v <- gradient;  mean v of the part          then: mean v of the field
//! longest    max_p |d(p)| of the part                       then: that of the field
//! step       w(p) = s(p) + u(p + s(p)),  s = rate d / max(longest, 1);  or  s(p) + u(p)
//! ```
//! or, where the gradients of all parts are kept until `mean v` is known, with one reading of the moments
//! less,
//! ```text
//! power      mean v of the part                             then: mean v of the field
//! advance    m, v <- gradient;  max_p |d(p)| of the part    then: that of the field
//! ```
//! No direction is stored: it follows from the moments, wherever it is needed. Letters as in
//! [`adam`](super).

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, backend_extension};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use super::{AdamConstants, AdamPieces, StepRule, UpdatedMoments};

/// Backend operations on parts; fields and moments `[N, 3, D, H, W]`, numbers `[N]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait AdamPartOps: Backend {
    /// The mean and the mean square after a gradient, and `mean v` as if the part were the field.
    #[fusion(meta = taken)]
    fn adam_take_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// The length of the longest vector of the direction.
    #[fusion(dtype = power, shape = power)]
    fn adam_longest_3d(
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> FloatTensor<Self>;

    /// `mean v` after a gradient, as if the part were the field.
    #[fusion(dtype = power, shape = power)]
    fn adam_power_3d(
        grad: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> FloatTensor<Self>;

    /// The mean and the mean square after a gradient, and the length of the longest vector of the
    /// direction; `power` is `mean v` after the gradient.
    #[fusion(meta = taken)]
    fn adam_advance_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// The field after the step.
    #[fusion(dtype = field, shape = field)]
    fn adam_step_3d(
        field: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        longest: FloatTensor<Self>,
        constants: AdamConstants,
        step: StepRule,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn taken(
    _grad: &TensorSpec,
    mean: &TensorSpec,
    square: &TensorSpec,
    power: &TensorSpec,
    _constants: &AdamConstants,
) -> (TensorSpec, TensorSpec, TensorSpec) {
    (mean.clone(), square.clone(), power.clone())
}

/// The same lines for each backend, which has its own pieces.
macro_rules! implement {
    ($backend:ty, $take:path, $longest:path, $power:path, $advance:path) => {
        impl AdamPartOps for $backend {
            fn adam_take_3d(
                grad: FloatTensor<Self>,
                mean: FloatTensor<Self>,
                square: FloatTensor<Self>,
                power: FloatTensor<Self>,
                constants: AdamConstants,
            ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
                $take([grad, mean, square, power], &constants)
            }

            fn adam_longest_3d(
                mean: FloatTensor<Self>,
                square: FloatTensor<Self>,
                power: FloatTensor<Self>,
                constants: AdamConstants,
            ) -> FloatTensor<Self> {
                $longest([mean, square, power], &constants)
            }

            fn adam_power_3d(
                grad: FloatTensor<Self>,
                power: FloatTensor<Self>,
                constants: AdamConstants,
            ) -> FloatTensor<Self> {
                $power([grad, power], &constants)
            }

            fn adam_advance_3d(
                grad: FloatTensor<Self>,
                mean: FloatTensor<Self>,
                square: FloatTensor<Self>,
                power: FloatTensor<Self>,
                constants: AdamConstants,
            ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
                $advance([grad, mean, square, power], &constants)
            }

            fn adam_step_3d(
                field: FloatTensor<Self>,
                mean: FloatTensor<Self>,
                square: FloatTensor<Self>,
                power: FloatTensor<Self>,
                longest: FloatTensor<Self>,
                constants: AdamConstants,
                step: StepRule,
            ) -> FloatTensor<Self> {
                let taken = UpdatedMoments { mean, square, power, longest };
                Self::stepped(field, &taken, constants, step)
            }
        }
    };
}

implement!(
    Flex,
    super::flex::take_part,
    super::flex::longest_of_part,
    super::flex::power_of_part,
    super::flex::advance_part
);
#[cfg(feature = "cube")]
implement!(
    CubeBackend,
    super::cube::take_part,
    super::cube::longest_of_part,
    super::cube::power_of_part,
    super::cube::advance_part
);
