//! Inner products on the CPU, summed in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::InnerProductOps;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Values that a task goes through: parts of a fixed size, so that the sum does not depend on the threads.
const CHUNK: usize = 1 << 14;

fn of_fields<T: Real>(lefts: &[FlexTensor], rights: &[FlexTensor]) -> FlexTensor {
    let product = |(a, b): (&FlexTensor, &FlexTensor)| {
        let parts = elements::<T>(a).par_chunks(CHUNK).zip(elements::<T>(b).par_chunks(CHUNK));
        let part = |(a, b): (&[T], &[T])| -> f64 {
            a.iter().zip(b).map(|(a, b)| a.wide() * b.wide()).sum()
        };
        let parts: Vec<f64> = parts.map(part).collect();
        T::of(parts.iter().sum())
    };
    let pairs = lefts.iter().flat_map(|a| rights.iter().map(move |b| (a, b)));
    tensor(pairs.map(product).collect(), [lefts.len() * rights.len()])
}

impl InnerProductOps for Flex {
    fn inner_products_3d(
        a0: FlexTensor,
        a1: FlexTensor,
        a2: FlexTensor,
        b0: FlexTensor,
        b1: FlexTensor,
        b2: FlexTensor,
        b3: FlexTensor,
        [lefts, rights]: [usize; 2],
    ) -> FlexTensor {
        let contiguous = |fields: Vec<FlexTensor>, count: usize| -> Vec<FlexTensor> {
            fields.into_iter().take(count).map(|field| field.to_contiguous()).collect()
        };
        let lefts = contiguous(vec![a0, a1, a2], lefts);
        let rights = contiguous(vec![b0, b1, b2, b3], rights);
        by_dtype!("inner_product", lefts[0].dtype(), of_fields(&lefts, &rights))
    }
}
