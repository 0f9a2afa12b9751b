//! Against the formula, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64};

/// Five steps in f32; the quotient of a small mean and a small root is the worst of them.
const SINGLE: f64 = 1e-6;
const RATE: f64 = 1e-2;

/// Steps on gradients that fall, so that the largest mean square is not the last: p, m, v, w.
fn evaluate(count: usize, device: &Device, dtype: DType) -> [Vec<f64>; 4] {
    let mut parameter: Tensor<2> = tensor(&normal(count, 1), [1, count], device, dtype);
    let mut moments = AmsGradMoments::new(&parameter);
    for step in 0..5 {
        let gradient: Vec<f64> =
            normal(count, 2 + step).iter().map(|g| g / (1 << (2 * step)) as f64).collect();
        let gradient = tensor(&gradient, [1, count], device, dtype);
        (parameter, moments) =
            amsgrad(parameter, gradient, moments, RATE, &AmsGradOptions::default());
    }
    assert_eq!(moments.time, 5);
    [parameter, moments.mean, moments.square, moments.largest].map(to_f64)
}

#[test]
fn steps_are_those_of_the_formula() {
    let count = 7;
    let actual = evaluate(count, &Device::flex(), DType::F64);
    let mut expected = [normal(count, 1), vec![0.0; count], vec![0.0; count], vec![0.0; count]];
    for step in 0..5u64 {
        let (c1, c2) = (1.0 - 0.9f64.powi(step as i32 + 1), 1.0 - 0.999f64.powi(step as i32 + 1));
        for (i, g) in normal(count, 2 + step).iter().enumerate() {
            let g = g / 4f64.powi(step as i32);
            let [p, m, v, w] = &mut expected;
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            w[i] = w[i].max(v[i]);
            p[i] -= RATE * (m[i] / c1) / ((w[i] / c2).sqrt() + 1e-8);
        }
    }
    for (actual, expected) in actual.iter().zip(&expected) {
        assert_close("f64", actual, expected, 1e-13);
    }
    assert_ne!(actual[2], actual[3], "the mean square must have fallen somewhere");
}

#[test]
fn the_first_step_has_the_length_of_the_rate() {
    let device = Device::flex();
    let parameter = Tensor::<1>::zeros([3], &device);
    let gradient = Tensor::<1>::from_floats([1e-3f32, -20.0, 5.0], &device);
    let moments = AmsGradMoments::new(&parameter);
    let (p, _) = amsgrad(parameter, gradient, moments, RATE, &AmsGradOptions::default());
    // Epsilon is 1e-5 of the smallest gradient.
    assert_close("p", &to_f64(p), &[-RATE, RATE, -RATE], 2e-5);
}

#[test]
fn what_others_hold_is_not_changed() {
    for (name, device) in gpu_devices().into_iter().chain([("flex", Device::flex())]) {
        let parameter = Tensor::<1>::ones([300], &device);
        let (held, moments) = (parameter.clone(), AmsGradMoments::new(&parameter));
        let mean = moments.mean.clone();
        let (p, m) = amsgrad(parameter, held.clone(), moments, RATE, &AmsGradOptions::default());
        assert!(to_f64(held).iter().all(|p| *p == 1.0), "{name}");
        assert!(to_f64(mean).iter().all(|m| *m == 0.0), "{name}");
        assert!(to_f64(p).iter().all(|p| *p < 1.0) && to_f64(m.mean)[0] > 0.0, "{name}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for count in [1, 5, 700] {
            let expected = evaluate(count, &Device::flex(), DType::F64);
            let actual = evaluate(count, &device, DType::F32);
            for (what, (actual, expected)) in
                ["p", "m", "v", "w"].iter().zip(actual.iter().zip(&expected))
            {
                assert_close(&format!("{name} {count}: {what}"), actual, expected, SINGLE);
            }
        }
    }
}

#[test]
#[should_panic(expected = "a gradient [2] and moments [3] for a parameter [3]")]
fn shapes_must_agree() {
    let (p, g) = (Tensor::<1>::ones([3], &Device::flex()), Tensor::ones([2], &Device::flex()));
    let moments = AmsGradMoments::new(&p);
    amsgrad(p, g, moments, RATE, &AmsGradOptions::default());
}
