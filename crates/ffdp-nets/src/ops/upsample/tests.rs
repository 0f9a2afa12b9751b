//! Against PyTorch's formula, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Three products with weights that are exact in binary, each rounded to f32.
const SINGLE: f64 = 5e-7;
/// Linear: central differences are exact but for rounding.
const FINITE_DIFFERENCES: f64 = 1e-8;

/// (x, channels of the skip): unit, odd and even extents, several samples, rows beyond a cube.
const CASES: [([usize; 5], usize); 6] = [
    ([1, 1, 1, 1, 1], 1),
    ([2, 3, 3, 4, 5], 2),
    ([1, 2, 1, 2, 3], 0),
    ([2, 1, 2, 1, 1], 3),
    ([1, 5, 4, 9, 35], 1),
    ([1, 3, 5, 3, 64], 0),
];

/// Source = max((o + 0.5) / 2 - 0.5, 0), the upper neighbour clamped to the last voxel.
fn by_definition(x: &[f64], [n, c, d, h, w]: [usize; 5], skip: &[f64], s: usize) -> Vec<f64> {
    let size = [d, h, w];
    let tap = |o: usize, n: usize| {
        let source = ((o as f64 + 0.5) / 2.0 - 0.5).max(0.0);
        let low = source.floor() as usize;
        (low, (low + 1).min(n - 1), source - low as f64)
    };
    let mut out = Vec::new();
    for (sample, x) in x.chunks(c * d * h * w).enumerate().take(n) {
        for x in x.chunks(d * h * w) {
            for o in 0..8 * d * h * w {
                let at = [o / (4 * h * w), o / (2 * w) % (2 * h), o % (2 * w)];
                let taps: [_; 3] = std::array::from_fn(|axis| tap(at[axis], size[axis]));
                let corner = |corner: usize| {
                    let (mut index, mut weight) = (0, 1.0);
                    for (axis, &(low, high, t)) in taps.iter().enumerate() {
                        let upper = corner >> axis & 1 == 1;
                        index = index * size[axis] + if upper { high } else { low };
                        weight *= if upper { t } else { 1.0 - t };
                    }
                    weight * x[index]
                };
                out.push((0..8).map(corner).sum());
            }
        }
        let each = s * 8 * d * h * w;
        out.extend_from_slice(&skip[sample * each..][..each]);
    }
    out
}

/// The result, and the gradients of `sum y r` to x and to the skip.
fn evaluate(
    (shape, s): ([usize; 5], usize),
    [x, skip, r]: [&[f64]; 3],
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 3] {
    let device = device.clone().autodiff();
    let [n, _, d, h, w] = shape;
    let x: Tensor<5> = tensor(x, shape, &device, dtype).require_grad();
    let (y, skip) = match s {
        0 => (upsample_x2(x.clone()), None),
        s => {
            let skip: Tensor<5> = tensor(skip, [n, s, 2 * d, 2 * h, 2 * w], &device, dtype);
            let skip = skip.require_grad();
            (upsample_x2_join(x.clone(), skip.clone()), Some(skip))
        }
    };
    let r: Tensor<5> = tensor(r, y.dims(), &device, dtype);
    let gradients = (y.clone() * r).backward();
    let to = |input: &Tensor<5>| to_f64(input.grad(&gradients).expect("every input is tracked"));
    [to_f64(y.inner()), to(&x), skip.as_ref().map_or(vec![], to)]
}

fn inputs(([n, c, d, h, w], s): ([usize; 5], usize)) -> [Vec<f64>; 3] {
    let voxels = 8 * d * h * w;
    [normal(n * c * d * h * w, 1), normal(n * s * voxels, 2), normal(n * (c + s) * voxels, 3)]
}

#[test]
fn values_are_those_of_the_definition() {
    for case @ (shape, s) in CASES {
        let [x, skip, r] = inputs(case);
        let expected = by_definition(&x, shape, &skip, s);
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-14)] {
            let [y, ..] = evaluate(case, [&x, &skip, &r], &Device::flex(), dtype);
            assert_close(&format!("{case:?} {dtype:?}"), &y, &expected, tolerance);
        }
    }
}

#[test]
fn a_row_is_interpolated_as_by_hand() {
    let devices = [("flex", Device::flex())].into_iter().chain(gpu_devices());
    for (name, device) in devices {
        let row = Tensor::<1>::from_floats([0.0, 4.0, 8.0], &device);
        let y = upsample_x2(row.reshape([1, 1, 1, 1, 3]));
        let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
        for row in y.chunks(6) {
            assert_eq!(row, [0.0, 1.0, 3.0, 5.0, 7.0, 8.0], "{name}");
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for case in [([2, 2, 1, 2, 3], 1), ([1, 1, 3, 2, 1], 0)] {
        let [x, skip, r] = inputs(case);
        let mut tracked = vec![x];
        let mut names = vec!["x"];
        if case.1 > 0 {
            tracked.push(skip);
            names.push("skip");
        }
        let checks = gradcheck(&names, &tracked, 1e-2, |inputs| {
            let skip: &[f64] = inputs.get(1).map_or(&[], |skip| skip);
            let [y, to_x, to_skip] =
                evaluate(case, [&inputs[0], skip, &r], &Device::flex(), DType::F64);
            let mut gradients = vec![to_x];
            if !to_skip.is_empty() {
                gradients.push(to_skip);
            }
            (y.iter().zip(&r).map(|(y, r)| y * r).sum(), gradients)
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{case:?}: {check:?}");
        }
    }
}

#[test]
fn each_voxel_gives_its_whole_weight() {
    // The weights of a voxel sum to 2 along each axis, the repeated border included.
    let x = Tensor::<5>::zeros([1, 2, 4, 3, 1], &Device::flex().autodiff()).require_grad();
    let gradients = upsample_x2(x.clone()).backward();
    let to_x: Vec<f32> = x.grad(&gradients).unwrap().into_data().try_to_vec().unwrap();
    assert!(to_x.iter().all(|g| *g == 8.0), "{to_x:?}");
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for case in CASES {
            let [x, skip, r] = inputs(case);
            let expected = evaluate(case, [&x, &skip, &r], &Device::flex(), DType::F64);
            let actual = evaluate(case, [&x, &skip, &r], &device, DType::F32);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert_close(&format!("{name} {case:?}: {i}"), actual, expected, SINGLE);
            }
        }
    }
}

#[test]
#[should_panic(expected = "1 x 2x2x2 voxels doubled do not fit a skip of 1 x 4x4x5")]
fn the_skip_must_fit() {
    let device = Device::flex();
    upsample_x2_join(
        Tensor::ones([1, 1, 2, 2, 2], &device),
        Tensor::ones([1, 1, 4, 4, 5], &device),
    );
}
