//! Exact cases, dense sums in f64, finite differences to the second order.

use burn::tensor::{DType, Device, Tensor};
use ffdp_kit::testing::{assert_close, gradcheck, normal, tensor, to_f64, uniform};

use crate::{Directions, Formula, Kernel, Ranges, kernel_product};

/// Rounding of f64 in sums of some hundred terms.
const EXACT: f64 = 1e-13;

fn cpu(values: &[f64], dims: [usize; 2]) -> Tensor<2> {
    tensor(values, dims, &Device::flex(), DType::F64)
}

/// `k(r)` as the documentation states it.
fn plain(kernel: &Kernel, r2: f64) -> f64 {
    match kernel {
        Kernel::Gaussian { sigma } => (-r2 / (2.0 * sigma * sigma)).exp(),
        Kernel::Laplacian { scale } => (-r2.sqrt() / scale).exp(),
        Kernel::Cauchy { scale } => 1.0 / (1.0 + r2 / (scale * scale)),
        Kernel::Energy => -r2.sqrt(),
        Kernel::Sum(parts) => parts.iter().map(|(weight, part)| weight * plain(part, r2)).sum(),
    }
}

fn kernels() -> Vec<Kernel> {
    vec![
        Kernel::gaussian(0.7),
        Kernel::gaussian_of_width(0.9),
        Kernel::Laplacian { scale: 0.8 },
        Kernel::Cauchy { scale: 1.3 },
        Kernel::Energy,
        Kernel::gaussians(&[0.3, 1.1]),
        Kernel::Sum(vec![(0.5, Kernel::Cauchy { scale: 0.4 }), (-2.0, Kernel::Energy)]),
    ]
}

#[test]
fn products_are_dense_sums() {
    for (kernel, [n, m, d, e]) in kernels().into_iter().zip([
        [1, 1, 1, 1],
        [5, 700, 2, 1],
        [70, 3, 3, 3],
        [33, 257, 16, 2],
        [2, 40, 20, 5],
        [40, 513, 3, 4],
        [9, 255, 1, 3],
    ]) {
        let (x, y, b) = (normal(n * d, 1), normal(m * d, 2), normal(m * e, 3));
        let mut expected = vec![0.0; n * e];
        for (i, expected) in expected.chunks_mut(e).enumerate() {
            for j in 0..m {
                let r2 = (0..d).map(|k| (x[i * d + k] - y[j * d + k]).powi(2)).sum();
                let k = plain(&kernel, r2);
                expected.iter_mut().zip(&b[j * e..]).for_each(|(sum, b)| *sum += k * b);
            }
        }
        let product = kernel_product(&kernel, cpu(&x, [n, d]), cpu(&y, [m, d]), cpu(&b, [m, e]));
        assert_eq!(product.dims(), [n, e]);
        assert_close(&format!("{kernel:?}"), &to_f64(product), &expected, EXACT);
    }
}
