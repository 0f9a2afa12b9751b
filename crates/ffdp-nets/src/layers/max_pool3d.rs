use burn::tensor::{Tensor, s};

/// The largest of every 2 x 2 x 2 voxels (PyTorch's `MaxPool3d(2)`).
///
/// `out(i) = max_{k in {0,1}^3} x(2 i + k)`, separable: along each axis the larger of the even and the
/// odd voxels. A last voxel without partner is left out, as there.
#[derive(Debug, Clone, Copy, Default)]
pub struct MaxPool3d;

impl MaxPool3d {
    /// Shapes: input `[N, C, D, H, W]`; output `[N, C, D/2, H/2, W/2]`, rounded down.
    ///
    /// # Panics
    /// If an extent is smaller than 2.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        // The last axis first: it has the most expensive stride, and halves what follows.
        [4, 3, 2].into_iter().fold(x, larger_of_two)
    }
}

/// `out(i) = max(x(2i), x(2i + 1))` along `axis`.
fn larger_of_two(x: Tensor<5>, axis: usize) -> Tensor<5> {
    let pairs = x.dims()[axis] / 2;
    assert!(pairs > 0, "MaxPool3d: every extent must be at least 2, got {:?}", x.dims());
    let tap = |k: usize| x.clone().slice_dim(axis, s![k..k + 2 * pairs - 1;2]);
    tap(0).max_pair(tap(1))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};

    use super::*;
    use ffdp_kit::testing::{tensor, uniform};

    #[test]
    fn matches_the_definition_at_even_and_odd_sizes() {
        let device = Device::flex();
        for size in [[4, 6, 8], [5, 3, 7], [2, 2, 2]] {
            let [d, h, w] = size;
            let values = uniform(d * h * w, -1.0, 1.0, 1);
            let x: Tensor<5> = tensor(&values, [1, 1, d, h, w], &device, DType::F32);
            let held = x.to_data().try_to_vec::<f32>().expect("f32");
            let mut expected = Vec::new();
            for i in 0..(d / 2) * (h / 2) * (w / 2) {
                let (z, y, x) = (i / (w / 2) / (h / 2), i / (w / 2) % (h / 2), i % (w / 2));
                let at = |k: usize| ((2 * z + k / 4) * h + 2 * y + k / 2 % 2) * w + 2 * x + k % 2;
                expected.push((0..8).map(|k| held[at(k)]).fold(f32::MIN, f32::max));
            }
            let y = MaxPool3d.forward(x);
            assert_eq!(y.dims(), [1, 1, d / 2, h / 2, w / 2]);
            assert_eq!(y.into_data().try_to_vec::<f32>().expect("f32"), expected, "{size:?}");
        }
    }

    #[test]
    fn the_gradient_goes_to_the_largest() {
        let device = Device::flex().autodiff();
        let values: Vec<f32> = vec![1., 5., 2., 3., 0., 4., -1., 2.];
        let data = TensorData::new(values, [1, 1, 2, 2, 2]);
        let x = Tensor::<5>::from_data(data, &device).require_grad();
        let gradients = (MaxPool3d.forward(x.clone()) * 3.0).backward();
        let gradient = x.grad(&gradients).expect("tracked").into_data();
        let expected = vec![0f32, 3., 0., 0., 0., 0., 0., 0.];
        assert_eq!(gradient.try_to_vec::<f32>().expect("f32"), expected);
    }
}
