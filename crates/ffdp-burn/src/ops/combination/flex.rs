//! Sums of fields on the CPU, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;
use rayon::prelude::*;

use super::{CombinationOps, Factors};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

fn sum<T: Real>(terms: &[FlexTensor], factors: &Factors, shape: Shape) -> FlexTensor {
    let terms: Vec<&[T]> = terms.iter().map(elements::<T>).collect();
    let value = |p: usize| {
        let terms = terms.iter().zip(factors.values);
        T::of(terms.map(|(x, a)| a * x[p].wide()).sum())
    };
    tensor((0..terms[0].len()).into_par_iter().map(value).collect(), shape)
}

impl CombinationOps for Flex {
    fn combination_3d(
        x0: FlexTensor,
        x1: FlexTensor,
        x2: FlexTensor,
        x3: FlexTensor,
        x4: FlexTensor,
        x5: FlexTensor,
        factors: Factors,
    ) -> FlexTensor {
        let terms = [x0, x1, x2, x3, x4, x5].into_iter().take(factors.count);
        let terms: Vec<_> = terms.map(|x| x.to_contiguous()).collect();
        let shape = terms[0].layout().shape().clone();
        by_dtype!("combination", terms[0].dtype(), sum(&terms, &factors, shape))
    }
}
