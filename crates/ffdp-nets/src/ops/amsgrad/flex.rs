//! The step on the CPU, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::{AmsGradConstants, AmsGradOps};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

fn step<T: Real>(
    tensors: &[FlexTensor; 5],
    constants: AmsGradConstants,
) -> (FlexTensor, FlexTensor, FlexTensor, FlexTensor) {
    let AmsGradConstants { beta: [b1, b2], rate, correction, epsilon } = constants;
    let shape = tensors[0].layout().shape().clone();
    let [parameter, gradient, mean, square, largest] = tensors.each_ref().map(elements::<T>);
    let mut results = [(); 4].map(|()| Vec::with_capacity(parameter.len()));
    for i in 0..parameter.len() {
        let g = gradient[i].wide();
        let m = b1 * mean[i].wide() + (1.0 - b1) * g;
        let v = b2 * square[i].wide() + (1.0 - b2) * g * g;
        let w = largest[i].wide().max(v);
        let p = parameter[i].wide() - rate * m / ((correction * w).sqrt() + epsilon);
        for (result, value) in results.iter_mut().zip([p, m, v, w]) {
            result.push(T::of(value));
        }
    }
    let [p, m, v, w] = results.map(|values| tensor(values, shape.clone()));
    (p, m, v, w)
}

impl AmsGradOps for Flex {
    fn amsgrad_step(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        largest: FloatTensor<Self>,
        constants: AmsGradConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let tensors = [parameter, gradient, mean, square, largest].map(|t| t.to_contiguous());
        by_dtype!("amsgrad", tensors[0].dtype(), step(&tensors, constants))
    }
}
