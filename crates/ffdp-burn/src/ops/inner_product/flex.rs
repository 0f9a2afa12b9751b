//! The inner product on the CPU, summed in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::InnerProductOps;
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// Values that a task goes through: parts of a fixed size, so that the sum does not depend on the threads.
const CHUNK: usize = 1 << 14;

fn of_fields<T: Real>(a: &FlexTensor, b: &FlexTensor) -> FlexTensor {
    let parts = elements::<T>(a).par_chunks(CHUNK).zip(elements::<T>(b).par_chunks(CHUNK));
    let part =
        |(a, b): (&[T], &[T])| -> f64 { a.iter().zip(b).map(|(a, b)| a.wide() * b.wide()).sum() };
    let parts: Vec<f64> = parts.map(part).collect();
    tensor(vec![T::of(parts.iter().sum())], [1])
}

impl InnerProductOps for Flex {
    fn inner_product_3d(a: FlexTensor, b: FlexTensor) -> FlexTensor {
        let (a, b) = (a.to_contiguous(), b.to_contiguous());
        by_dtype!("inner_product", a.dtype(), of_fields(&a, &b))
    }
}
