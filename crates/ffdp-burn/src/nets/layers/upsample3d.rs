use burn::tensor::{DType, Device, Tensor, TensorData};

/// Trilinear upsampling by two along every axis, voxel centres aligned
/// (PyTorch's `Upsample(scale_factor=2, mode="trilinear", align_corners=False)`).
///
/// See [`upsample_x2`].
#[derive(Debug, Clone, Copy, Default)]
pub struct UpsampleX2;

impl UpsampleX2 {
    /// Shapes: input `[N, C, D, H, W]`; output `[N, C, 2D, 2H, 2W]`.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        upsample_x2(x)
    }
}

/// Doubles a volume's resolution by linear interpolation along each axis.
///
/// Along one axis, `out(2i) = x(i-1)/4 + 3 x(i)/4` and `out(2i+1) = 3 x(i)/4 + x(i+1)/4`, where
/// the border voxel is repeated outside. Values are not rescaled: a field in voxels stays in the
/// same unit.
///
/// Each axis is one matrix product with that `2n x n` matrix: three large operations, and their
/// backward passes are again matrix products.
///
/// Shapes: input `[N, C, D, H, W]`; output `[N, C, 2D, 2H, 2W]`.
pub fn upsample_x2(x: Tensor<5>) -> Tensor<5> {
    let [n, c, d, h, w] = x.dims();
    let matrix = |n| doubling_matrix(n, &x.device(), x.dtype()).unsqueeze::<3>();
    let [along_d, along_h, along_w] = [matrix(d), matrix(h), matrix(w)];
    // Depth first: the data are smallest then, and the last product writes the final layout.
    let x = along_d.matmul(x.reshape([n * c, d, h * w]));
    let x = along_h.matmul(x.reshape([n * c * 2 * d, h, w]));
    let x = x.matmul(along_w.transpose());
    x.reshape([n, c, 2 * d, 2 * h, 2 * w])
}

/// The `2n x n` matrix of one axis: rows `(2i, 2i+1)` hold the weights `(1/4, 3/4)`, `(3/4, 1/4)`.
fn doubling_matrix(n: usize, device: &Device, dtype: DType) -> Tensor<2> {
    let mut weights = vec![0f32; 2 * n * n];
    for i in 0..n {
        let (before, after) = (i.saturating_sub(1), (i + 1).min(n - 1));
        for (row, neighbour) in [(2 * i, before), (2 * i + 1, after)] {
            weights[row * n + i] += 0.75;
            weights[row * n + neighbour] += 0.25;
        }
    }
    Tensor::from_data(TensorData::new(weights, [2 * n, n]), (device, dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{tensor, uniform};

    /// Products with weights that are exact in binary: a few ulp of values below 1.
    const TOLERANCE: f32 = 1e-6;

    /// PyTorch's formula, voxel by voxel: source = max((o + 0.5) / 2 - 0.5, 0), upper neighbour
    /// clamped to the last voxel.
    fn by_definition(x: &[f32], size: [usize; 3]) -> Vec<f32> {
        let tap = |o: usize, n: usize| {
            let source = ((o as f64 + 0.5) / 2.0 - 0.5).max(0.0);
            let low = source.floor() as usize;
            (low, (low + 1).min(n - 1), source - low as f64)
        };
        let [d, h, w] = size;
        let mut out = Vec::new();
        for z in 0..2 * d {
            for y in 0..2 * h {
                for x0 in 0..2 * w {
                    let taps = [tap(z, d), tap(y, h), tap(x0, w)];
                    let mut sum = 0.0;
                    for corner in 0..8usize {
                        let (mut index, mut weight) = (0, 1.0);
                        for (axis, &(low, high, t)) in taps.iter().enumerate() {
                            let upper = corner >> axis & 1 == 1;
                            index = index * size[axis] + if upper { high } else { low };
                            weight *= if upper { t } else { 1.0 - t };
                        }
                        sum += weight * x[index] as f64;
                    }
                    out.push(sum as f32);
                }
            }
        }
        out
    }

    #[test]
    fn a_row_is_interpolated_as_by_hand() {
        let row = Tensor::<1>::from_floats([0.0, 4.0, 8.0], &Device::flex());
        let y: Vec<f32> =
            upsample_x2(row.reshape([1, 1, 1, 1, 3])).into_data().try_to_vec().unwrap();
        for plane in y.chunks(6) {
            assert_eq!(plane, [0.0, 1.0, 3.0, 5.0, 7.0, 8.0]);
        }
    }

    #[test]
    fn matches_the_definition_at_every_small_size() {
        for size in [[3, 4, 5], [1, 2, 3], [2, 1, 1], [1, 1, 1]] {
            let [d, h, w] = size;
            let values = uniform(6 * d * h * w, -1.0, 1.0, 1);
            let x: Tensor<5> = tensor(&values, [2, 3, d, h, w], &Device::flex(), DType::F32);
            let y = UpsampleX2.forward(x.clone());
            assert_eq!(y.dims(), [2, 3, 2 * d, 2 * h, 2 * w]);
            let x: Vec<f32> = x.into_data().try_to_vec().unwrap();
            let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
            for (x, y) in x.chunks(d * h * w).zip(y.chunks(8 * d * h * w)) {
                for (a, b) in y.iter().zip(by_definition(x, size)) {
                    assert!((a - b).abs() < TOLERANCE, "size {size:?}: {a} is not {b}");
                }
            }
        }
    }

    #[test]
    fn each_voxel_gives_its_whole_weight() {
        // Every column of the matrix sums to 2, the repeated border included: a gradient of ones
        // becomes 2^3 everywhere.
        let device = Device::flex().autodiff();
        let x = Tensor::<5>::zeros([1, 1, 4, 4, 4], &device).require_grad();
        let gradients = upsample_x2(x.clone()).sum().backward();
        let g: Vec<f32> = x.grad(&gradients).unwrap().into_data().try_to_vec().unwrap();
        assert!(g.iter().all(|&v| (v - 8.0).abs() < TOLERANCE * 8.0), "{g:?}");
    }
}
