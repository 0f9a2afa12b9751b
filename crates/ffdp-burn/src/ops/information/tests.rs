//! Values against tensor arithmetic, finite differences, degenerate tables, GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::losses::{mutual_information, normalized_mutual_information};
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, tensor, to_f64, uniform};

const MEASURES: [Information; 2] = [Information::Mutual, Information::Normalized];

/// f64 sums of a few thousand terms in another order.
const ROUNDING: f64 = 1e-12;
/// Logarithms of order 5, differenced, over steps of 1e-3 votes.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// Entropies of up to 11 nats from f32 sums of up to 65536 terms, which cancel.
const GPU_VALUE: f64 = 2e-5;
/// Differences of f32 logarithms.
const GPU_GRADIENT: f64 = 1e-5;

/// Votes with a ridge, and some empty cells.
fn votes(batch: usize, bins: usize, seed: u64) -> Vec<f64> {
    let noise = uniform(batch * bins * bins, 0.0, 1.0, seed);
    let vote = |(cell, noise): (usize, &f64)| {
        let (row, column) = (cell / bins % bins, cell % bins);
        let ridge = 40.0 / (1.0 + row.abs_diff(column) as f64).powi(2);
        if *noise < 0.2 { 0.0 } else { f64::from((ridge * noise + 3.0 * noise) as f32) }
    };
    noise.iter().enumerate().map(vote).collect()
}

/// The loss and its gradient, scaled by 3.
fn evaluate(
    votes: &[f64],
    [batch, bins]: [usize; 2],
    measure: Information,
    device: &Device,
    dtype: DType,
) -> (f64, Vec<f64>) {
    let device = device.clone().autodiff();
    let votes: Tensor<3> = tensor(votes, [batch, bins, bins], &device, dtype).require_grad();
    let loss = information_loss(votes.clone(), measure);
    assert_eq!(loss.dims(), [1]);
    let loss = loss.mul_scalar(3.0);
    let gradients = loss.backward();
    let gradient = to_f64(votes.grad(&gradients).expect("votes want a gradient"));
    (to_f64(loss.inner())[0], gradient)
}

#[test]
fn the_loss_is_that_of_tensor_arithmetic() {
    for (batch, bins) in [(1, 2), (1, 8), (3, 32), (2, 51), (1, 256)] {
        let votes = votes(batch, bins, 1);
        let joint: Tensor<3> = tensor(&votes, [batch, bins, bins], &Device::flex(), DType::F64);
        let total = joint.clone().sum_dim(2).sum_dim(1);
        let joint = joint / total;
        for measure in MEASURES {
            let expected = match measure {
                Information::Mutual => mutual_information(joint.clone()).mean().neg(),
                Information::Normalized => {
                    normalized_mutual_information(joint.clone()).mean().neg().add_scalar(1.0)
                }
            };
            let expected = 3.0 * to_f64(expected)[0];
            let (actual, _) = evaluate(&votes, [batch, bins], measure, &Device::flex(), DType::F64);
            assert!((actual - expected).abs() < ROUNDING, "{batch} {bins} {measure:?}: {actual}");
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for measure in MEASURES {
        for dims in [[1, 4], [2, 5]] {
            let cells = dims[0] * dims[1] * dims[1];
            let inputs = [uniform(cells, 0.5, 4.0, 2)];
            let checks = gradcheck(&["votes"], &inputs, 1e-3, |inputs| {
                let (loss, gradient) =
                    evaluate(&inputs[0], dims, measure, &Device::flex(), DType::F64);
                (loss, vec![gradient])
            });
            assert!(checks[0].error < FINITE_DIFFERENCES, "{measure:?} {dims:?}: {checks:?}");
        }
    }
}

#[test]
fn tables_without_information_have_finite_gradients() {
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    let mut one_cell = vec![0.0; 64];
    one_cell[20] = 1e6;
    let product: Vec<f64> =
        (0..64).map(|cell| f64::from((cell / 8 + 1) * (cell % 8 + 2))).collect();
    for (name, device) in devices {
        for measure in MEASURES {
            for (table, expected) in
                [(vec![0.0; 64], 0.0), (one_cell.clone(), 0.0), (product.clone(), 0.0)]
            {
                let (loss, gradient) = evaluate(&table, [1, 8], measure, &device, DType::F32);
                let unrelated = match measure {
                    Information::Mutual => expected,
                    Information::Normalized => 3.0,
                };
                assert!((loss - unrelated).abs() < 1e-5, "{name} {measure:?}: {loss}");
                assert!(gradient.iter().all(|g| g.is_finite()), "{name} {measure:?}");
                if table.iter().all(|votes| *votes == 0.0) {
                    assert!(gradient.iter().all(|g| *g == 0.0), "{name} {measure:?}");
                }
            }
        }
    }
}

#[test]
fn the_unit_of_the_votes_does_not_matter() {
    let table = votes(2, 16, 3);
    let scaled: Vec<f64> = table.iter().map(|votes| 1e-6 * votes).collect();
    for measure in MEASURES {
        let of = |votes: &[f64]| evaluate(votes, [2, 16], measure, &Device::flex(), DType::F64);
        let ((loss, gradient), (same, steeper)) = (of(&table), of(&scaled));
        assert!((loss - same).abs() < ROUNDING, "{measure:?}");
        let gentle: Vec<f64> = steeper.iter().map(|g| 1e-6 * g).collect();
        assert_close(&format!("{measure:?}"), &gentle, &gradient, ROUNDING);
        // Scaling all votes changes nothing: the gradient is orthogonal to them.
        let along: f64 = gradient.iter().zip(&table).map(|(g, votes)| g * votes).sum();
        assert!(along.abs() < ROUNDING, "{measure:?}: {along}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for dims in [[1, 2], [1, 8], [3, 32], [2, 51], [1, 256]] {
            let table = votes(dims[0], dims[1], 4);
            for measure in MEASURES {
                let expected = evaluate(&table, dims, measure, &Device::flex(), DType::F64);
                let actual = evaluate(&table, dims, measure, &device, DType::F32);
                let label = format!("{name} {dims:?} {measure:?}");
                let error = (actual.0 - expected.0).abs();
                assert!(error < GPU_VALUE, "{label}: {} against {}", actual.0, expected.0);
                let gradient = assert_close(&label, &actual.1, &expected.1, GPU_GRADIENT);
                println!("information {label}: value {error:.1e} gradient {gradient:.1e}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "votes must be [N, B, B] with B in 1..=256, got [1, 8, 9]")]
fn tables_that_are_not_square_are_refused() {
    information_loss(Tensor::zeros([1, 8, 9], &Device::flex()), Information::Mutual);
}
