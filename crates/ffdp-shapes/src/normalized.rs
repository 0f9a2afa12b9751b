//! Normalised kernels: `diag(l) K diag(l)` with row sums of one, so that a deformation's cost counts mass (section 4 of
//! the paper).

use burn::tensor::Tensor;

use crate::kernel::Kernel;
use crate::product::kernel_product;

/// The scaling that makes a kernel matrix bistochastic.
#[derive(Clone, Debug)]
pub struct Scaling {
    /// `l`, `[N, 1]`.
    pub scaling: Tensor<2>,
    /// Products that it took, the first one included.
    pub iterations: usize,
    /// The largest deviation of a row sum from one.
    pub deviation: f64,
}

/// The positive `l` of which `diag(l) K diag(l)`, `K_ij = k(x_i - x_j)`, has row sums of one, by the fixed point
/// `l <- l / sqrt(l o K l)` from `1 / sqrt(K 1)`. Differentiable in `x` through all iterations (first order).
///
/// It ends when all row sums are one up to `tolerance`, or after `iterations` products; see [`Scaling::deviation`].
///
/// # Shapes
/// x `[N, D]`.
///
/// # Panics
/// If a width or `tolerance` is not positive, or `iterations` is 0.
pub fn bistochastic_scaling(
    kernel: &Kernel,
    x: Tensor<2>,
    tolerance: f64,
    iterations: usize,
) -> Scaling {
    assert!(tolerance > 0.0, "bistochastic scaling: tolerance must be positive, got {tolerance}");
    assert!(iterations > 0, "bistochastic scaling: it takes an iteration at least");
    let mut scaling = Tensor::<2>::ones([x.dims()[0], 1], (&x.device(), x.dtype()));
    let mut done = 0;
    loop {
        let sums = scaling.clone() * kernel_product(kernel, x.clone(), x.clone(), scaling.clone());
        let deviation = (sums.clone().detach() - 1.0).abs().max().into_scalar::<f64>();
        if deviation <= tolerance || done == iterations {
            return Scaling { scaling, iterations: done, deviation };
        }
        scaling = scaling / sums.sqrt();
        done += 1;
    }
}

/// `diag(l) K(x, y) diag(m) b`: the product of a normalised kernel, `l` `[N, 1]` and `m` `[M, 1]` the scalings.
/// Differentiable in all tensors (first order).
///
/// # Panics
/// Like [`kernel_product`].
pub fn normalized_product(
    kernel: &Kernel,
    [x, l]: [Tensor<2>; 2],
    [y, m]: [Tensor<2>; 2],
    b: Tensor<2>,
) -> Tensor<2> {
    l * kernel_product(kernel, x, y, m * b)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use ffdp_kit::testing::{assert_close, gradcheck, normal, tensor, to_f64, uniform};

    use super::*;

    /// The specification's: row sums of one.
    const ROW_SUMS: f64 = 1e-6;
    /// Its number of iterations.
    const ITERATIONS: usize = 20;
    /// Of differences through twenty iterations, in f64.
    const DIFFERENCES: f64 = 1e-6;

    fn points(values: &[f64], d: usize, device: &Device) -> Tensor<2> {
        tensor(values, [values.len() / d, d], device, DType::F64)
    }

    #[test]
    fn row_sums_are_one_after_twenty_iterations() {
        for (n, width) in [(100, 0.05), (100, 5.0), (400, 0.5), (1000, 0.05), (1000, 0.2)] {
            let x = points(&uniform(2 * n, 0.0, 1.0, 1), 2, &Device::flex());
            let kernel = Kernel::gaussian_of_width(width);
            let found = bistochastic_scaling(&kernel, x.clone(), ROW_SUMS, ITERATIONS);
            println!("{n} points, width {width}: {} iterations", found.iterations);
            assert!(found.deviation <= ROW_SUMS, "{n}, {width}: {}", found.deviation);
            let ones = Tensor::ones([n, 1], (&Device::flex(), DType::F64));
            let place = [x, found.scaling];
            let sums = normalized_product(&kernel, place.clone(), place, ones);
            assert_close("row sums", &to_f64(sums), &vec![1.0; n], 1.01 * ROW_SUMS);
        }
    }

    #[test]
    fn the_scaling_is_differentiable() {
        let x = uniform(2 * 12, 0.0, 1.0, 3);
        let weights = points(&normal(12, 4), 1, &Device::flex().autodiff());
        let checks = gradcheck(&["x"], &[x], 1e-3, |inputs| {
            let x = points(&inputs[0], 2, &Device::flex().autodiff()).require_grad();
            let kernel = Kernel::gaussian_of_width(0.3);
            // Differences see a change of the number of iterations: as many for all.
            let found = bistochastic_scaling(&kernel, x.clone(), 1e-300, ITERATIONS);
            let loss = (found.scaling * weights.clone()).sum();
            let gradients = loss.backward();
            let to_x = x.grad(&gradients).expect("x wants a gradient");
            (to_f64(loss.inner())[0], vec![to_f64(to_x)])
        });
        assert!(checks[0].error < DIFFERENCES, "{checks:?}");
    }

    /// Equations 57 to 70: clusters of one, three and two points, equal within and far from each other. A
    /// translation by a unit vector is an eigenvector of the cometric, so its cost is `n` over the eigenvalue.
    #[test]
    fn a_translation_costs_mass_if_the_kernel_is_normalised() {
        let (sigma, device) = (1f64, Device::flex());
        for d in [0.01f64, 0.5, 1.0, 3.0] {
            let a = (-d * d / (2.0 * sigma * sigma)).exp();
            let height = d * 0.75f64.sqrt();
            let x = [
                [0.0, 0.0],
                [100.0, 0.0],
                [100.0 + d, 0.0],
                [100.0 + d / 2.0, height],
                [0.0, 100.0],
                [d, 100.0],
            ];
            let x = points(&x.concat(), 2, &device);
            let kernel = Kernel::gaussian(sigma);
            let ones = Tensor::ones([6, 1], (&device, DType::F64));
            let classical = to_f64(kernel_product(&kernel, x.clone(), x.clone(), ones.clone()));
            let found = bistochastic_scaling(&kernel, x.clone(), 1e-12, 60);
            let place = [x, found.scaling];
            let normalised = to_f64(normalized_product(&kernel, place.clone(), place, ones));
            for (first, n) in [(0, 1), (1, 3), (4, 2)] {
                let expected = n as f64 / (1.0 + (n - 1) as f64 * a);
                let cost = |eigenvalues: &[f64]| -> f64 {
                    eigenvalues[first..first + n].iter().map(|value| 1.0 / value).sum()
                };
                assert_close("classical", &[cost(&classical)], &[expected], 1e-12);
                assert_close("normalised", &[cost(&normalised)], &[n as f64], 1e-11);
            }
        }
    }
}
