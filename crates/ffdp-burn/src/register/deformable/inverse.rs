//! The inverse of a small deformation, such as a half of SyN.

use burn::tensor::Tensor;

use crate::ops::compose;

/// Enough for a field whose differences are below 0.8 to be inverted to a thousandth of its size.
const ITERATIONS: usize = 30;

/// `v` with `(id + u) o (id + v) = id`, by the fixed point of `v = -u o (id + v)` (Chen et al. 2008).
/// Converges where the differences of `u` stay below 1, as those of a half way do.
///
/// # Shapes
/// displacement and result `[N, 3, D, H, W]`, in voxels.
pub(super) fn inverted(displacement: &Tensor<5>) -> Tensor<5> {
    let start = displacement.clone().neg();
    (0..ITERATIONS).fold(start, |v, _| {
        // `v + u o (id + v)`: how far the guess is off.
        let residual = compose(displacement.clone(), v.clone());
        v - residual
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::ops::{GaussianOptions, gaussian};
    use crate::testing::{normal, tensor, to_f64};

    #[test]
    fn both_compositions_with_the_inverse_are_the_identity() {
        let size = [20, 22, 24];
        let [d, h, w] = size;
        let noise = normal(3 * d * h * w, 1);
        let noise = tensor::<5>(&noise, [1, 3, d, h, w], &Device::flex(), DType::F64);
        let u = gaussian(noise, &GaussianOptions::isotropic(3.0)).mul_scalar(20.0);
        let v = inverted(&u);
        let largest = to_f64(u.clone().abs().max())[0];
        assert!(largest > 1.5, "{largest}");
        let off = to_f64(compose(u.clone(), v.clone()).abs().max())[0];
        println!("|u| up to {largest:.2} voxels, (id + u) o (id + v) off by {off:.1e}");
        assert!(off < 1e-3, "{off}");
        // The other order also interpolates `v`, which is curved between voxels: inside only, since
        // beyond the border nothing is known.
        let inside = |x: Tensor<5>| x.slice([0..1, 0..3, 5..d - 5, 5..h - 5, 5..w - 5]);
        let off = to_f64(inside(compose(v, u)).abs().max())[0];
        assert!(off < 0.1, "{off}");
    }
}
