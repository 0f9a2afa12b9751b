//! Kernel products: `g_i = sum_j k(x_i - y_j) b_j` and their relatives, as functions of tensors.

use burn::tensor::{Tensor, TensorData};

use crate::formula::Formula;
use crate::kernel::{Directions, Kernel};

/// `[1, W]`, on the device of `like`.
pub(crate) fn parameters(values: &[f64], like: &Tensor<2>) -> Tensor<2> {
    let data = TensorData::new(values.to_vec(), [1, values.len()]).convert_dtype(like.dtype());
    Tensor::from_data(data, (&like.device(), like.dtype()))
}

/// `g_i = sum_j k(x_i - y_j) b_j`. The matrix of all pairs is never stored. Differentiable in `x`, `y` and `b` (first
/// order); for the width see [`kernel_product_of_widths`], for higher derivatives [`kernel_product_to_x`] and
/// [`Formula::gradient`].
///
/// # Shapes
/// x `[N, D]`, y `[M, D]`, b `[M, E]`; result `[N, E]`.
///
/// # Panics
/// If the shapes do not fit, or a width is not positive.
pub fn kernel_product(kernel: &Kernel, x: Tensor<2>, y: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    kernel.check();
    let widths = kernel.widths();
    let formula = formula_for(kernel, &x, &b);
    let mut tensors = vec![x, y, b];
    if !widths.is_empty() {
        tensors.push(parameters(&widths, &tensors[0]));
    }
    formula.sum(&tensors)
}

/// [`kernel_product`] with the kernel's widths as a tensor `[1, W]`, in the order of [`Kernel::widths`];
/// differentiable in them as well. They must be positive; those that `kernel` holds do not count.
///
/// # Panics
/// If the shapes do not fit.
pub fn kernel_product_of_widths(
    kernel: &Kernel,
    widths: Tensor<2>,
    x: Tensor<2>,
    y: Tensor<2>,
    b: Tensor<2>,
) -> Tensor<2> {
    formula_for(kernel, &x, &b).sum(&[x, y, b, widths])
}

/// The gradient of `L = sum_i <e_i, g_i>`, `g` the [`kernel_product`], to `x`:
/// `sum_j grad k(x_i - y_j) <e_i, b_j>`. Differentiable in all tensors: the gradient of a gradient.
///
/// # Shapes
/// As there; e `[N, E]`; result `[N, D]`.
///
/// # Panics
/// Like [`kernel_product`].
pub fn kernel_product_to_x(
    kernel: &Kernel,
    x: Tensor<2>,
    y: Tensor<2>,
    b: Tensor<2>,
    e: Tensor<2>,
) -> Tensor<2> {
    kernel.check();
    let widths = kernel.widths();
    let formula = formula_for(kernel, &x, &b).gradient(&[0]);
    let mut tensors = vec![x, y, b];
    if !widths.is_empty() {
        tensors.push(parameters(&widths, &tensors[0]));
    }
    tensors.push(e);
    formula.sum(&tensors)
}

/// `g_i = sum_j k(x_i - y_j) h(a_i, b_j) w_j`: products of kernels of points and of directions, as for currents and
/// varifolds. Differentiable in all tensors (first order).
///
/// # Shapes
/// x, a `[N, D]`; y, b `[M, D]`; w `[M, E]`; result `[N, E]`.
///
/// # Panics
/// If the shapes do not fit, or a width is not positive.
pub fn directed_product(
    kernel: &Kernel,
    directions: Directions,
    [x, a]: [Tensor<2>; 2],
    [y, b]: [Tensor<2>; 2],
    w: Tensor<2>,
) -> Tensor<2> {
    kernel.check();
    let widths = kernel.widths();
    let formula = kernel.directed_formula(directions, x.dims()[1], w.dims()[1]);
    let mut tensors = vec![x, a, y, b, w];
    if !widths.is_empty() {
        tensors.push(parameters(&widths, &tensors[0]));
    }
    formula.sum(&tensors)
}

fn formula_for(kernel: &Kernel, x: &Tensor<2>, b: &Tensor<2>) -> Formula {
    kernel.formula(x.dims()[1], b.dims()[1])
}
