//! The bending energy on the CPU: `K phi` as passes along the axes.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::{Band, BsplineBendingOps, Millimetres, REACH, gram, terms};
use crate::ops::bspline::flex::{Rows, pass};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

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

/// `K phi`, of coefficients in mm.
fn stiffness(phi: &[f64], [batch, d, h, w]: [usize; 4], spacing: [f64; 3]) -> Vec<f64> {
    let along = |len: usize, order: usize| rows(gram(len, order));
    let mut sum = vec![0.0; phi.len()];
    for term in terms(spacing, batch) {
        let [x, y, z] = term.orders;
        let rows = pass(phi, &along(w, x), w, 1);
        let planes = pass(&rows, &along(h, y), h, w);
        let term_of = pass(&planes, &along(d, z), d, h * w);
        sum.iter_mut().zip(term_of).for_each(|(sum, value)| *sum += term.weight * value);
    }
    sum
}

fn with_gradient<T: Real>(coefficients: &FlexTensor, mm: Millimetres) -> (FlexTensor, FlexTensor) {
    let shape = coefficients.layout().shape().clone();
    let [batch, d, h, w] = [shape[0], shape[2], shape[3], shape[4]];
    let unit = |at: usize| mm.unit[at / (d * h * w) % 3];
    let values = elements::<T>(coefficients).iter().enumerate();
    let phi: Vec<f64> = values.map(|(at, v)| unit(at) * v.wide()).collect();
    let forces = stiffness(&phi, [batch, d, h, w], mm.spacing);
    let energy: f64 = phi.iter().zip(&forces).map(|(phi, force)| phi * force).sum();
    let gradient = forces.iter().enumerate().map(|(at, force)| T::of(2.0 * unit(at) * force));
    (tensor(vec![T::of(energy)], [1]), tensor(gradient.collect(), shape))
}

impl BsplineBendingOps for Flex {
    fn bspline_bending_3d(coefficients: FloatTensor<Self>, mm: Millimetres) -> FloatTensor<Self> {
        Self::bspline_bending_3d_with_gradient(coefficients, mm).0
    }

    fn bspline_bending_3d_with_gradient(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let coefficients = coefficients.to_contiguous();
        by_dtype!("bspline_bending", coefficients.dtype(), with_gradient(&coefficients, mm))
    }
}
