//! Roughness of a field and its Jacobian by slices and differences.

use burn::Tensor;

/// `x(p + e) - x(p)` along a dimension, one voxel shorter.
fn difference(x: &Tensor<5>, dim: usize) -> Tensor<5> {
    let extent = x.dims()[dim];
    x.clone().narrow(dim, 1, extent - 1) - x.clone().narrow(dim, 0, extent - 1)
}

/// The mean square.
fn mean_square(x: Tensor<5>) -> Tensor<1> {
    (x.clone() * x).mean()
}

/// Diffusion; see [`crate::ops::diffusion`]. Stores a difference and its square per axis.
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
pub fn diffusion(displacement: Tensor<5>) -> Tensor<1> {
    let long = (2..5).filter(|&dim| displacement.dims()[dim] > 1);
    let terms = long.map(|dim| mean_square(difference(&displacement, dim)));
    let zero = Tensor::zeros([1], (&displacement.device(), displacement.dtype()));
    terms.fold(zero, Tensor::add).mul_scalar(1.0 / 3.0)
}

/// Bending energy; see [`crate::ops::bending_energy`].
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
pub fn bending_energy(displacement: Tensor<5>) -> Tensor<1> {
    let dims = displacement.dims();
    let mut total = Tensor::zeros([1], (&displacement.device(), displacement.dtype()));
    for (a, b) in [(2, 2), (3, 3), (4, 4), (2, 3), (2, 4), (3, 4)] {
        let (needed, weight) = if a == b { (3, 1.0) } else { (2, 2.0) };
        if dims[a] >= needed && dims[b] >= needed {
            let second = difference(&difference(&displacement, a), b);
            total = total + mean_square(second).mul_scalar(weight);
        }
    }
    total
}

/// Total variation; see [`crate::ops::total_variation`].
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
pub fn total_variation(displacement: Tensor<5>, epsilon: f64) -> Tensor<1> {
    let squares = (2..5).map(|dim| {
        let last = displacement.clone().narrow(dim, displacement.dims()[dim] - 1, 1);
        let ahead = difference(&Tensor::cat(vec![displacement.clone(), last], dim), dim);
        (ahead.clone() * ahead).sum_dim(1)
    });
    let squares = squares.reduce(Tensor::add).expect("three axes");
    squares.add_scalar(epsilon * epsilon).sqrt().add_scalar(-epsilon).mean()
}

/// Jacobian determinant; see [`crate::ops::jacobian()`]. Stores nine derivatives and their products.
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[N, 1, D, H, W]`.
pub fn jacobian(displacement: Tensor<5>) -> Tensor<5> {
    // Rows along x, y, z: the last, the last but one and the last but two dimensions.
    let rows = [4, 3, 2].map(|dim| derivative(&displacement, dim));
    let entry = |a: usize, c: usize| {
        let slope = rows[a].clone().narrow(1, c, 1);
        if a == c { slope.add_scalar(1.0) } else { slope }
    };
    let minor = |c: usize, d: usize| entry(1, c) * entry(2, d) - entry(1, d) * entry(2, c);
    entry(0, 0) * minor(1, 2) - entry(0, 1) * minor(0, 2) + entry(0, 2) * minor(0, 1)
}

/// Central differences, one-sided at the border, 0 along an axis of one voxel.
fn derivative(x: &Tensor<5>, dim: usize) -> Tensor<5> {
    let extent = x.dims()[dim];
    if extent == 1 {
        return x.zeros_like();
    }
    let steps = difference(x, dim);
    let first = steps.clone().narrow(dim, 0, 1);
    let last = steps.clone().narrow(dim, extent - 2, 1);
    let behind = Tensor::cat(vec![first, steps.clone()], dim);
    let ahead = Tensor::cat(vec![steps, last], dim);
    (behind + ahead).mul_scalar(0.5)
}

/// Penalty on folds; see [`crate::ops::jacobian_penalty`].
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
pub fn jacobian_penalty(displacement: Tensor<5>, margin: f64) -> Tensor<1> {
    jacobian(displacement).neg().add_scalar(margin).clamp_min(0.0).mean()
}
