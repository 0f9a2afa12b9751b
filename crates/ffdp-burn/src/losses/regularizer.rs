//! Smoothness of a displacement field.

use burn::Tensor;

/// Diffusion regulariser: mean of the squared forward differences, averaged over the three axes
/// (TransMorph's and VoxelMorph's `Grad3d`, l2).
///
/// ```text
/// R = 1/3 sum_axis mean_(p, component) (u(p + e_axis) - u(p))^2
/// ```
/// In voxels^2 per voxel^2; 0 for translations. An axis of one voxel contributes nothing.
/// Differentiable.
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`; result `[1]`.
pub fn diffusion(displacement: Tensor<5>) -> Tensor<1> {
    let mut total = Tensor::zeros([1], &displacement.device());
    for axis in 2..5 {
        let extent = displacement.dims()[axis];
        if extent > 1 {
            let ahead = displacement.clone().narrow(axis, 1, extent - 1);
            let difference = ahead - displacement.clone().narrow(axis, 0, extent - 1);
            total = total + (difference.clone() * difference).mean();
        }
    }
    total.mul_scalar(1.0 / 3.0)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    /// f32 rounding of values of order 1, and of a finite difference of step 1e-2 in f32.
    const F32_ROUNDING: f64 = 1e-5;
    const DIFFERENCE_ROUNDING: f64 = 1e-4;

    fn field(size: [usize; 3], value: impl Fn(usize, [f32; 3]) -> f32) -> Vec<f32> {
        let [d, h, w] = size;
        let mut data = Vec::new();
        for component in 0..3 {
            for offset in 0..d * h * w {
                let p = [offset % w, offset / w % h, offset / w / h].map(|v| v as f32);
                data.push(value(component, p));
            }
        }
        data
    }

    fn roughness(data: &[f32], [d, h, w]: [usize; 3]) -> f64 {
        let data = TensorData::new(data.to_vec(), [1, 3, d, h, w]);
        diffusion(Tensor::from_data(data, &Device::flex())).into_scalar::<f64>()
    }

    #[test]
    fn linear_fields_have_the_mean_square_of_their_slopes() {
        let size = [4, 5, 6];
        assert_eq!(roughness(&field(size, |_, _| 3.5), size), 0.0, "a translation is smooth");
        // u_x = 0.5 x + 0.2 z, u_y = -0.3 y: squared slopes .25, .04, .09, over 3 axes and
        // 3 components.
        let u = field(size, |component, [x, y, z]| match component {
            0 => 0.5 * x + 0.2 * z,
            1 => -0.3 * y,
            _ => 1.0,
        });
        let expected = (0.25 + 0.04 + 0.09) / 9.0;
        let got = roughness(&u, size);
        assert!((got - expected).abs() < F32_ROUNDING, "{got} instead of {expected}");
        let flat = [1, 1, 5];
        let got = roughness(&field(flat, |_, [x, _, _]| 2.0 * x), flat);
        assert!((got - 4.0 / 3.0).abs() < F32_ROUNDING, "one axis only: {got}");
    }

    #[test]
    fn gradient_is_that_of_finite_differences() {
        let size = [3, 2, 4];
        let u = field(size, |c, [x, y, z]| (1.3 * x + 0.7 * c as f32).sin() + 0.2 * y * z);
        let device = Device::flex().autodiff();
        let data = TensorData::new(u.clone(), [1, 3, 3, 2, 4]);
        let tracked = Tensor::<5>::from_data(data, &device).require_grad();
        let grads = diffusion(tracked.clone()).backward();
        let gradient = tracked.grad(&grads).expect("the field is tracked");
        let gradient = gradient.try_into_vec_as::<f32>().expect("the CPU hands back its results");
        const STEP: f32 = 1e-2;
        for i in 0..u.len() {
            let shifted = |step: f32| {
                let mut u = u.clone();
                u[i] += step;
                roughness(&u, size)
            };
            // Quadratic in each value, so that central differences are exact but for rounding.
            let expected = (shifted(STEP) - shifted(-STEP)) / (2.0 * f64::from(STEP));
            let got = f64::from(gradient[i]);
            assert!((got - expected).abs() < DIFFERENCE_ROUNDING, "at {i}: {got}, {expected}");
        }
    }
}
