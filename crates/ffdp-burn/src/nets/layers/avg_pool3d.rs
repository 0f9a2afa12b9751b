use burn::tensor::{Tensor, ops::PadMode, s};

/// Average over a 3 x 3 x 3 neighbourhood at every second voxel, zeros outside.
///
/// `out(i) = 1/27 sum_{k in {-1,0,1}^3} x(2 i + k)`, zero outside the volume and divided by 27
/// there too (PyTorch's `AvgPool3d(3, stride=2, padding=1)` with its default
/// `count_include_pad=True`). The mean is separable: three sums of three strided slices.
#[derive(Debug, Clone, Copy, Default)]
pub struct AvgPool3d;

impl AvgPool3d {
    /// Shapes: input `[N, C, D, H, W]`; output `[N, C, ceil(D/2), ceil(H/2), ceil(W/2)]`.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        // The last axis first: it has the most expensive stride, and halves what follows.
        let sum = [4, 3, 2].into_iter().fold(x, sum_of_three);
        sum / 27.0
    }
}

/// `out(i) = x(2i - 1) + x(2i) + x(2i + 1)` along `axis`, zero outside.
fn sum_of_three(x: Tensor<5>, axis: usize) -> Tensor<5> {
    let out = x.dims()[axis].div_ceil(2);
    let mut padding = [(0, 0); 5];
    padding[axis] = (1, 1);
    let padded = x.pad(padding, PadMode::Constant(0.0));
    let tap = |k: usize| padded.clone().slice_dim(axis, s![k..k + 2 * out - 1;2]);
    tap(0) + tap(1) + tap(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device, TensorData};

    use crate::testing::{tensor, uniform};

    /// Sums of 27 f32 of order 1: a few ulp.
    const TOLERANCE: f32 = 2e-6;

    fn by_definition(x: &[f32], [d, h, w]: [usize; 3]) -> Vec<f32> {
        let at = |z: isize, y: isize, x0: isize| {
            let inside = |i: isize, n: usize| i >= 0 && (i as usize) < n;
            if inside(z, d) && inside(y, h) && inside(x0, w) {
                x[(z as usize * h + y as usize) * w + x0 as usize] as f64
            } else {
                0.0
            }
        };
        let mut out = Vec::new();
        for z in (0..d as isize).step_by(2) {
            for y in (0..h as isize).step_by(2) {
                for x0 in (0..w as isize).step_by(2) {
                    let mut sum = 0.0;
                    for k in 0..27 {
                        sum += at(z + k / 9 - 1, y + k / 3 % 3 - 1, x0 + k % 3 - 1);
                    }
                    out.push((sum / 27.0) as f32);
                }
            }
        }
        out
    }

    #[test]
    fn matches_the_definition_at_even_odd_and_unit_sizes() {
        let device = Device::flex();
        for size in [[4, 6, 8], [5, 3, 7], [1, 2, 1], [1, 1, 1]] {
            let [d, h, w] = size;
            let values = uniform(d * h * w, -1.0, 1.0, 1);
            let x: Tensor<5> = tensor(&values, [1, 1, d, h, w], &device, DType::F32);
            let expected = by_definition(&x.to_data().try_to_vec::<f32>().unwrap(), size);
            let y = AvgPool3d.forward(x);
            assert_eq!(y.dims(), [1, 1, d.div_ceil(2), h.div_ceil(2), w.div_ceil(2)]);
            let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
            for (a, b) in y.iter().zip(&expected) {
                assert!((a - b).abs() < TOLERANCE, "size {size:?}: {a} is not {b}");
            }
        }
    }

    #[test]
    fn a_constant_loses_weight_at_the_border_only() {
        let ones = Tensor::<5>::ones([1, 1, 4, 4, 4], &Device::flex());
        let y = AvgPool3d.forward(ones);
        // The low corner sees 2^3 voxels of 27; one step inside, all of them.
        let expected = TensorData::new(vec![8f32, 12., 12., 18., 12., 18., 18., 27.], [8]);
        let y = (y * 27.0).reshape([8]);
        y.into_data().assert_approx_eq::<f32>(&expected, Default::default());
    }
}
