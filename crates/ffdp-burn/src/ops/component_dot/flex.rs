//! Inner products of components on the CPU, summed in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::ComponentDotOps;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Voxels of a task.
const CHUNK: usize = 1 << 14;

fn of_fields<T: Real>(a: &FlexTensor, b: &FlexTensor) -> FlexTensor {
    let shape = a.layout().shape();
    let [batch, channels, d, h, w] = [0, 1, 2, 3, 4].map(|axis| shape[axis]);
    let len = d * h * w;
    let (a, b) = (elements::<T>(a), elements::<T>(b));
    let at = |i: usize| {
        let first = i / len * channels * len + i % len;
        let product = |c: usize| a[first + c * len].wide() * b[first + c * len].wide();
        T::of((0..channels).map(product).sum())
    };
    let values: Vec<T> = (0..batch * len).into_par_iter().with_min_len(CHUNK).map(at).collect();
    tensor(values, [batch, 1, d, h, w])
}

impl ComponentDotOps for Flex {
    fn component_dot_3d(a: FlexTensor, b: FlexTensor) -> FlexTensor {
        let (a, b) = (a.to_contiguous(), b.to_contiguous());
        by_dtype!("component_dot", a.dtype(), of_fields(&a, &b))
    }
}
