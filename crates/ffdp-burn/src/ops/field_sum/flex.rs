//! Sums on the CPU, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::FieldSumOps;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Values that a task goes through: pieces of a fixed size, so that the sum does not depend on the threads.
const CHUNK: usize = 1 << 14;

fn of_parts<T: Real>(x: &FlexTensor, parts: usize) -> FlexTensor {
    let values = elements::<T>(x);
    let sum = |part: &[T]| {
        let piece = |piece: &[T]| piece.iter().map(|value| value.wide()).sum::<f64>();
        let pieces: Vec<f64> = part.par_chunks(CHUNK).map(piece).collect();
        T::of(pieces.iter().sum())
    };
    tensor(values.chunks(values.len() / parts).map(sum).collect(), [parts])
}

impl FieldSumOps for Flex {
    fn part_sums(x: FlexTensor, parts: usize) -> FlexTensor {
        let x = x.to_contiguous();
        by_dtype!("field_sum", x.dtype(), of_parts(&x, parts))
    }
}
