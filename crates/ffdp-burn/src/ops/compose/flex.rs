//! Composition on the CPU: the outer field is sampled like a three-channel image.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;

use super::ComposeOps;
use crate::ops::grid_sample::{Accumulation, GridSampleOps, Interpolation, Padding, Sampling};
use ffdp_kit::real::{Real, by_dtype, tensor};

/// Sampling of `outer` at `p + v(p)`, continued with its border values.
fn sampling(inner: &FlexTensor) -> Sampling {
    let shape = inner.layout().shape();
    Sampling {
        interpolation: Interpolation::Linear,
        padding: Padding::Border,
        scale: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        size: [shape[2], shape[3], shape[4]],
        has_affine: false,
        has_displacement: true,
        accumulation: Accumulation::Reproducible,
    }
}

fn identity<T: Real>() -> FlexTensor {
    let rows = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    tensor(rows.map(T::of).to_vec(), [1, 3, 4])
}

impl ComposeOps for Flex {
    fn compose_3d(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        _: Accumulation,
    ) -> FloatTensor<Self> {
        let affine = by_dtype!("compose", inner.dtype(), identity());
        let sampling = sampling(&inner);
        let sampled = Flex::grid_sample_3d(outer, affine, inner.clone(), sampling);
        Flex::float_add(sampled, inner)
    }

    fn compose_3d_backward(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: [bool; 2],
        _: Accumulation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let affine = by_dtype!("compose", inner.dtype(), identity());
        let sampling = sampling(&inner);
        let wanted = [needs[0], false, needs[1]];
        let (to_outer, _, to_inner) =
            Flex::grid_sample_3d_backward(outer, affine, inner, grad.clone(), sampling, wanted);
        (to_outer, if needs[1] { Flex::float_add(to_inner, grad) } else { to_inner })
    }

    fn square_3d(field: FloatTensor<Self>, accumulation: Accumulation) -> FloatTensor<Self> {
        Self::compose_3d(field.clone(), field, accumulation)
    }

    fn square_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        accumulation: Accumulation,
    ) -> FloatTensor<Self> {
        let (as_outer, as_inner) =
            Self::compose_3d_backward(field.clone(), field, grad, [true, true], accumulation);
        Flex::float_add(as_outer, as_inner)
    }
}
