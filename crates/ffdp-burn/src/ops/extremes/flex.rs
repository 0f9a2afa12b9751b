//! The extremes on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::ExtremesOps;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Values that a task goes through.
const CHUNK: usize = 1 << 16;

fn of_field<T: Real>(field: &FlexTensor) -> FlexTensor {
    let shape = field.layout().shape();
    let (batch, channels) = (shape[0], shape[1]);
    let len = shape.num_elements() / (batch * channels);
    // `f64::min` and `max` take the number where one is none.
    let widen = |[low, high]: [f64; 2], [a, b]: [f64; 2]| [low.min(a), high.max(b)];
    let none = [f64::INFINITY, f64::NEG_INFINITY];
    let ends = elements::<T>(field).chunks(len).flat_map(|component| {
        let of_chunk =
            |values: &[T]| values.iter().fold(none, |ends, value| widen(ends, [value.wide(); 2]));
        component.par_chunks(CHUNK).map(of_chunk).reduce(|| none, widen).map(T::of)
    });
    tensor(ends.collect::<Vec<T>>(), [batch, channels, 2])
}

/// In f64; `f64::max` takes the number where one is none.
fn longest<T: Real>(field: &FlexTensor) -> FlexTensor {
    let shape = field.layout().shape();
    let channels = shape[1];
    let len = shape.num_elements() / (shape[0] * channels);
    let of_entry = |values: &[T]| {
        let squared = |p: usize| {
            (0..channels).map(|c| values[c * len + p].wide()).map(|u| u * u).sum::<f64>()
        };
        (0..len).into_par_iter().with_min_len(CHUNK).map(squared).reduce(|| 0.0, f64::max)
    };
    let longest = elements::<T>(field).chunks(channels * len).map(of_entry).fold(0.0, f64::max);
    tensor(vec![T::of(longest)], [1])
}

impl ExtremesOps for Flex {
    fn extremes_3d(field: FlexTensor) -> FlexTensor {
        let field = field.to_contiguous();
        by_dtype!("extremes", field.dtype(), of_field(&field))
    }

    fn longest_3d(field: FlexTensor) -> FlexTensor {
        let field = field.to_contiguous();
        by_dtype!("longest", field.dtype(), longest(&field))
    }
}
