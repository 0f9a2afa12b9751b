//! The bending energy on the CPU: `K phi` as passes along the axes.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::{Band, BsplineBendingOps, REACH, gram, terms};
use crate::ops::bspline::flex::{Rows, pass};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// The entries of a banded matrix that exist.
fn rows(bands: Vec<Band>) -> Rows {
    let count = bands.len();
    let row = |(i, band): (usize, Band)| {
        let columns = band.into_iter().enumerate().map(|(k, weight)| (i + k, weight));
        let inside = columns.filter(|(k, _)| (REACH..count + REACH).contains(k));
        inside.map(|(k, weight)| (k - REACH, weight)).collect()
    };
    bands.into_iter().enumerate().map(row).collect()
}

/// `K phi`.
fn stiffness<T: Real>(coefficients: &FlexTensor, spacing: [f64; 3]) -> Vec<f64> {
    let shape = coefficients.layout().shape();
    let [d, h, w] = [shape[2], shape[3], shape[4]];
    let phi: Vec<f64> = elements::<T>(coefficients).iter().map(|v| v.wide()).collect();
    let along = |len: usize, order: usize| rows(gram(len, order));
    let mut sum = vec![0.0; phi.len()];
    for term in terms(spacing, shape[0]) {
        let [x, y, z] = term.orders;
        let rows = pass(&phi, &along(w, x), w, 1);
        let planes = pass(&rows, &along(h, y), h, w);
        let term_of = pass(&planes, &along(d, z), d, h * w);
        sum.iter_mut().zip(term_of).for_each(|(sum, value)| *sum += term.weight * value);
    }
    sum
}

fn value<T: Real>(coefficients: &FlexTensor, spacing: [f64; 3]) -> FlexTensor {
    let forces = stiffness::<T>(coefficients, spacing);
    let energy = elements::<T>(coefficients).iter().zip(forces).map(|(phi, f)| phi.wide() * f);
    tensor(vec![T::of(energy.sum())], [1])
}

fn gradient<T: Real>(
    coefficients: &FlexTensor,
    grad: &FlexTensor,
    spacing: [f64; 3],
) -> FlexTensor {
    let scale = 2.0 * elements::<T>(grad)[0].wide();
    let forces = stiffness::<T>(coefficients, spacing);
    let gradient = forces.into_iter().map(|force| T::of(scale * force));
    tensor(gradient.collect(), coefficients.layout().shape().clone())
}

impl BsplineBendingOps for Flex {
    fn bspline_bending_3d(coefficients: FloatTensor<Self>, spacing: [f64; 3]) -> FloatTensor<Self> {
        let coefficients = coefficients.to_contiguous();
        by_dtype!("bspline_bending", coefficients.dtype(), value(&coefficients, spacing))
    }

    fn bspline_bending_3d_backward(
        coefficients: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        spacing: [f64; 3],
    ) -> FloatTensor<Self> {
        let (coefficients, grad) = (coefficients.to_contiguous(), grad.to_contiguous());
        let dtype = coefficients.dtype();
        by_dtype!("bspline_bending", dtype, gradient(&coefficients, &grad, spacing))
    }
}
