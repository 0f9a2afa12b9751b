//! The squared difference on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::MseOps;
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

/// Elements summed by one task; fixed, so that the sum does not depend on the threads.
const BLOCK: usize = 1 << 16;

fn sum<T: Real>(a: &FlexTensor, b: &FlexTensor) -> FlexTensor {
    let blocks = elements::<T>(a).par_chunks(BLOCK).zip(elements::<T>(b).par_chunks(BLOCK));
    let sums: Vec<f64> = blocks
        .map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a.wide() - b.wide()).powi(2)).sum())
        .collect();
    tensor(vec![T::of(sums.iter().sum())], [1])
}

fn gradient<T: Real>(a: &FlexTensor, b: &FlexTensor, grad: &FlexTensor) -> FlexTensor {
    let scale = 2.0 * elements::<T>(grad)[0].wide();
    let pairs = elements::<T>(a).par_iter().zip(elements::<T>(b));
    let data = pairs.map(|(a, b)| T::of(scale * (a.wide() - b.wide()))).collect();
    tensor(data, a.layout().shape().clone())
}

impl MseOps for Flex {
    fn squared_difference(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let (a, b) = (readable(a), readable(b));
        by_dtype!("mse", a.dtype(), sum(&a, &b))
    }

    fn squared_difference_backward(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let (a, b, grad) = (readable(a), readable(b), grad.to_contiguous());
        by_dtype!("mse", a.dtype(), gradient(&a, &b, &grad))
    }
}
