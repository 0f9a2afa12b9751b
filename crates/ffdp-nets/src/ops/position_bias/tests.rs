//! Against the definition, the adjoint, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Sums of up to 60 f32.
const SINGLE: f64 = 1e-6;

const CASES: [([usize; 3], usize); 5] =
    [([1, 1, 1], 1), ([2, 3, 4], 2), ([1, 4, 2], 3), ([5, 1, 1], 1), ([3, 4, 5], 2)];

/// The bias and the gradient of `sum bias r` to the table.
fn evaluate(
    (window, heads): ([usize; 3], usize),
    [table, r]: [&[f64]; 2],
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 2] {
    let device = device.clone().autodiff();
    let table: Tensor<2> = tensor(table, [rows(window), heads], &device, dtype).require_grad();
    let bias = position_bias(table.clone(), window);
    let r: Tensor<3> = tensor(r, bias.dims(), &device, dtype);
    let gradients = (bias.clone() * r).backward();
    [to_f64(bias.inner()), to_f64(table.grad(&gradients).expect("the table is tracked"))]
}

fn inputs((window, heads): ([usize; 3], usize)) -> [Vec<f64>; 2] {
    let tokens: usize = window.iter().product();
    [normal(rows(window) * heads, 1), normal(heads * tokens * tokens, 2)]
}

#[test]
fn a_pair_has_the_row_of_its_offset() {
    for case @ ([wd, wh, ww], heads) in CASES {
        let [table, r] = inputs(case);
        let [bias, _] = evaluate(case, [&table, &r], &Device::flex(), DType::F64);
        let tokens = wd * wh * ww;
        let position = |t: usize| [t / (wh * ww), t / ww % wh, t % ww].map(|p| p as i64);
        for (at, bias) in bias.iter().enumerate() {
            let (head, query, key) =
                (at / tokens / tokens, position(at / tokens % tokens), position(at % tokens));
            let offset = [0, 1, 2].map(|axis| query[axis] - key[axis]);
            let sides = [wd, wh, ww].map(|side| side as i64);
            // Offsets counted from the most negative one, the last axis fastest.
            let row = (0..3)
                .fold(0, |row, axis| row * (2 * sides[axis] - 1) + offset[axis] + sides[axis] - 1);
            assert_eq!(*bias, table[row as usize * heads + head], "{case:?}: {query:?} {key:?}");
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let case = ([2, 3, 2], 2);
    let [table, r] = inputs(case);
    let checks = gradcheck(&["table"], &[table], 1e-2, |inputs| {
        let [bias, to_table] = evaluate(case, [&inputs[0], &r], &Device::flex(), DType::F64);
        (bias.iter().zip(&r).map(|(bias, r)| bias * r).sum(), vec![to_table])
    });
    // Linear: exact but for rounding.
    assert!(checks.iter().all(|check| check.error < 1e-8), "{checks:?}");
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for case in CASES {
            let [table, r] = inputs(case);
            let expected = evaluate(case, [&table, &r], &Device::flex(), DType::F64);
            let actual = evaluate(case, [&table, &r], &device, DType::F32);
            assert_close(&format!("{name} {case:?}: bias"), &actual[0], &expected[0], SINGLE);
            assert_close(&format!("{name} {case:?}: table"), &actual[1], &expected[1], SINGLE);
        }
    }
}

#[test]
#[should_panic(expected = "rows of the table for a window of [2, 2, 2]")]
fn the_table_must_fit_the_window() {
    position_bias(Tensor::zeros([26, 1], &Device::flex()), [2, 2, 2]);
}
