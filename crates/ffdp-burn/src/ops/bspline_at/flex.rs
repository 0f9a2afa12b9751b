//! The field at any points on the CPU: 64 products a point.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Beyond, BsplineAtOps};
use crate::ops::bspline::taps_at;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

fn run<T: Real>(coefficients: &FlexTensor, indices: &FlexTensor, beyond: Beyond) -> FlexTensor {
    let controls = coefficients.layout().shape();
    let [d, h, w] = [controls[2], controls[3], controls[4]];
    let shape = indices.layout().shape().clone();
    let (points, volume) = (shape[2] * shape[3] * shape[4], d * h * w);
    let (phi, at) = (elements::<T>(coefficients), elements::<T>(indices));
    let value = |n: usize, point: usize| -> [T; 3] {
        let t = [0, 1, 2].map(|axis| at[(3 * n + axis) * points + point].wide());
        let [x, y, z] = [(0, w), (1, h), (2, d)].map(|(axis, len)| taps_at(t[axis], len, beyond));
        [0, 1, 2].map(|c| {
            let field = &phi[(3 * n + c) * volume..][..volume];
            let mut sum = 0.0;
            for (k, wz) in (z.first..d).zip(z.weights) {
                for (j, wy) in (y.first..h).zip(y.weights) {
                    let row = &field[(k * h + j) * w..][..w];
                    let along: f64 =
                        row[x.first..].iter().zip(x.weights).map(|(phi, wx)| phi.wide() * wx).sum();
                    sum += wz * wy * along;
                }
            }
            T::of(sum)
        })
    };
    let mut output = vec![T::default(); shape.num_elements()];
    for (n, output) in output.chunks_mut(3 * points).enumerate() {
        let (xs, rest) = output.split_at_mut(points);
        let (ys, zs) = rest.split_at_mut(points);
        let slots = xs.par_iter_mut().zip(ys).zip(zs).enumerate();
        slots.for_each(|(point, ((x, y), z))| [*x, *y, *z] = value(n, point));
    }
    tensor(output, shape)
}

impl BsplineAtOps for Flex {
    fn bspline_at_3d(
        coefficients: FloatTensor<Self>,
        indices: FloatTensor<Self>,
        beyond: Beyond,
    ) -> FloatTensor<Self> {
        let (coefficients, indices) = (coefficients.to_contiguous(), indices.to_contiguous());
        by_dtype!("bspline_at", indices.dtype(), run(&coefficients, &indices, beyond))
    }
}
