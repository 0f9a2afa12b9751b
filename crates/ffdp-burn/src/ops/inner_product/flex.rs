//! Inner products on the CPU, summed in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::InnerProductOps;
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// Values that a task goes through: parts of a fixed size, so that the sum does not depend on the threads.
const CHUNK: usize = 1 << 14;

fn of_fields<T: Real>(a: &FlexTensor, others: &[FlexTensor]) -> FlexTensor {
    let product = |b: &FlexTensor| {
        let parts = elements::<T>(a).par_chunks(CHUNK).zip(elements::<T>(b).par_chunks(CHUNK));
        let part = |(a, b): (&[T], &[T])| -> f64 {
            a.iter().zip(b).map(|(a, b)| a.wide() * b.wide()).sum()
        };
        let parts: Vec<f64> = parts.map(part).collect();
        T::of(parts.iter().sum())
    };
    tensor(others.iter().map(product).collect(), [others.len()])
}

impl InnerProductOps for Flex {
    fn inner_products_3d(
        a: FlexTensor,
        b0: FlexTensor,
        b1: FlexTensor,
        b2: FlexTensor,
        b3: FlexTensor,
        b4: FlexTensor,
        b5: FlexTensor,
        count: usize,
    ) -> FlexTensor {
        let a = a.to_contiguous();
        let others = [b0, b1, b2, b3, b4, b5].into_iter().take(count);
        let others: Vec<_> = others.map(|b| b.to_contiguous()).collect();
        by_dtype!("inner_product", a.dtype(), of_fields(&a, &others))
    }
}
