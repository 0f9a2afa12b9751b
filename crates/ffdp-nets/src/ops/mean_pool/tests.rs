//! Against the definition, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Sums of 27 f32: a few ulp.
const SINGLE: f64 = 1e-6;

/// Even, odd and unit extents, several channels, more than a cube.
const CASES: [[usize; 5]; 5] =
    [[1, 1, 4, 6, 8], [2, 3, 5, 3, 7], [1, 1, 1, 2, 1], [1, 2, 1, 1, 1], [1, 2, 9, 20, 70]];

/// The means, and the gradient of `sum y r`.
fn evaluate(
    [x, r]: [&[f64]; 2],
    shape: [usize; 5],
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 2] {
    let device = device.clone().autodiff();
    let x: Tensor<5> = tensor(x, shape, &device, dtype).require_grad();
    let y = mean_pool(x.clone());
    let r: Tensor<5> = tensor(&r[..y.dims().iter().product()], y.dims(), &device, dtype);
    let gradients = (y.clone() * r).backward();
    [to_f64(y.inner()), to_f64(x.grad(&gradients).expect("x wants a gradient"))]
}

fn inputs(shape: [usize; 5]) -> [Vec<f64>; 2] {
    let count = shape.iter().product();
    [normal(count, 1), normal(count, 2)]
}

#[test]
fn values_are_those_of_the_definition() {
    for shape in CASES {
        let [x, r] = inputs(shape);
        let [d, h, w] = [shape[2], shape[3], shape[4]];
        let mut expected = Vec::new();
        for volume in x.chunks(d * h * w) {
            for (z, y, x) in (0..d).step_by(2).flat_map(|z| {
                (0..h).step_by(2).flat_map(move |y| (0..w).step_by(2).map(move |x| (z, y, x)))
            }) {
                let near = |a: usize, b: usize| a.abs_diff(b) <= 1;
                let inside = (0..d * h * w)
                    .filter(|i| near(i / (h * w), z) && near(i / w % h, y) && near(i % w, x));
                expected.push(inside.map(|i| volume[i]).sum::<f64>() / 27.0);
            }
        }
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-14)] {
            let [y, _] = evaluate([&x, &r], shape, &Device::flex(), dtype);
            assert_close(&format!("{shape:?} {dtype:?}"), &y, &expected, tolerance);
        }
    }
}

#[test]
fn a_constant_loses_weight_at_the_border_only() {
    let y = mean_pool(Tensor::<5>::ones([1, 1, 4, 4, 4], &Device::flex()));
    // The low corner sees 2^3 voxels of 27; one step inside, all of them.
    let expected = TensorData::new(vec![8f32, 12., 12., 18., 12., 18., 18., 27.], [8]);
    let y = (y * 27.0).reshape([8]);
    y.into_data().assert_approx_eq::<f32>(&expected, Default::default());
}

#[test]
fn gradients_agree_with_finite_differences() {
    let shape = [1, 2, 3, 4, 5];
    let [x, r] = inputs(shape);
    let checks = gradcheck(&["x"], &[x], 1e-2, |inputs| {
        let [y, to_x] = evaluate([&inputs[0], &r], shape, &Device::flex(), DType::F64);
        (y.iter().zip(&r).map(|(y, r)| y * r).sum(), vec![to_x])
    });
    for check in checks {
        // The loss is linear in x.
        assert!(check.error < 1e-10, "{check:?}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in CASES {
            let [x, r] = inputs(shape);
            let expected = evaluate([&x, &r], shape, &Device::flex(), DType::F64);
            let actual = evaluate([&x, &r], shape, &device, DType::F32);
            assert_close(&format!("{name} {shape:?}: y"), &actual[0], &expected[0], SINGLE);
            assert_close(&format!("{name} {shape:?}: to x"), &actual[1], &expected[1], SINGLE);
        }
    }
}
