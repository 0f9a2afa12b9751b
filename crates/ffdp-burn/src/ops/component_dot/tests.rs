//! Against products in f64.

use burn::tensor::{DType, Device};

use super::*;
use ffdp_kit::testing::{gpu_devices, normal, tensor, to_f64};

/// One voxel, no whole vectors, a batch, an image, more than one cube.
const SHAPES: [[usize; 5]; 4] =
    [[1, 3, 1, 1, 1], [2, 3, 5, 7, 3], [2, 1, 4, 6, 8], [1, 3, 20, 24, 28]];
/// Three products and two sums in f32, of the sum of sizes.
const F32: f64 = 2e-7;

#[test]
fn products_are_those_of_f64() {
    let on = |dtype: DType, tolerance: f64| (Device::flex(), dtype, tolerance);
    let gpus = gpu_devices().into_iter().map(|(_, device)| (device, DType::F32, F32));
    for (device, dtype, tolerance) in
        [on(DType::F64, 1e-15), on(DType::F32, F32)].into_iter().chain(gpus)
    {
        for shape in SHAPES {
            let [n, channels, d, h, w] = shape;
            let (all, len) = (shape.iter().product(), d * h * w);
            let [a, b] = [1, 2].map(|seed| -> Vec<f64> {
                normal(all, seed).into_iter().map(|v| f64::from(v as f32)).collect()
            });
            let [x, y] = [&a, &b].map(|values| tensor(values, shape, &device, dtype));
            let found = component_dot(x, y);
            assert_eq!(found.dims(), [n, 1, d, h, w]);
            for (i, found) in to_f64(found).into_iter().enumerate() {
                let at = |c: usize| i / len * channels * len + c * len + i % len;
                let terms = (0..channels).map(|c| a[at(c)] * b[at(c)]);
                let (expected, size) =
                    (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>());
                let error = (found - expected).abs() / size;
                assert!(error <= tolerance, "{device:?} {dtype:?} {shape:?} {i}: {error:e}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "the shapes must be the same")]
fn other_shapes_are_refused() {
    let of = |channels: usize| {
        tensor(&vec![0.0; channels], [1, channels, 1, 1, 1], &Device::flex(), DType::F32)
    };
    component_dot(of(1), of(3));
}
