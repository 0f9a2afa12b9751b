//! Exact cases, dense sums in f64, finite differences to the third order.

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor};
use ffdp_kit::testing::{assert_close, gradcheck, normal, tensor, to_f64, uniform};

use super::SLOTS;
use crate::formula::Role;
use crate::{
    Directions, Formula, Kernel, Ranges, directed_product, kernel_product, kernel_product_to_x,
};

/// Rounding of f64 in sums of some hundred terms.
const EXACT: f64 = 1e-13;

/// Differences of second order with extrapolation, in f64.
const DIFFERENCES: f64 = 1e-8;
/// Of f32 inputs that are exact, against f64: rounding of the points' differences, of powers, and of blocked sums.
const SINGLE: f64 = 2e-6;

fn cpu(values: &[f64], dims: [usize; 2]) -> Tensor<2> {
    tensor(values, dims, &Device::flex(), DType::F64)
}

/// `k(r)` as the documentation states it.
fn plain(kernel: &Kernel, r2: f64) -> f64 {
    match kernel {
        Kernel::Gaussian { sigma } => (-r2 / (2.0 * sigma * sigma)).exp(),
        Kernel::Laplacian { scale } => (-r2.sqrt() / scale).exp(),
        Kernel::Cauchy { scale } => 1.0 / (1.0 + r2 / (scale * scale)),
        Kernel::Energy => -r2.sqrt(),
        Kernel::Sum(parts) => parts.iter().map(|(weight, part)| weight * plain(part, r2)).sum(),
    }
}

fn kernels() -> Vec<Kernel> {
    vec![
        Kernel::gaussian(0.7),
        Kernel::gaussian_of_width(0.9),
        Kernel::Laplacian { scale: 0.8 },
        Kernel::Cauchy { scale: 1.3 },
        Kernel::Energy,
        Kernel::gaussians(&[0.3, 1.1]),
        Kernel::Sum(vec![(0.5, Kernel::Cauchy { scale: 0.4 }), (-2.0, Kernel::Energy)]),
    ]
}

#[test]
fn products_are_dense_sums() {
    for (kernel, [n, m, d, e]) in kernels().into_iter().zip([
        [1, 1, 1, 1],
        [5, 700, 2, 1],
        [70, 3, 3, 3],
        [33, 257, 16, 2],
        [2, 40, 20, 5],
        [40, 513, 3, 4],
        [9, 255, 1, 3],
    ]) {
        let (x, y, b) = (normal(n * d, 1), normal(m * d, 2), normal(m * e, 3));
        let mut expected = vec![0.0; n * e];
        for (i, expected) in expected.chunks_mut(e).enumerate() {
            for j in 0..m {
                let r2 = (0..d).map(|k| (x[i * d + k] - y[j * d + k]).powi(2)).sum();
                let k = plain(&kernel, r2);
                expected.iter_mut().zip(&b[j * e..]).for_each(|(sum, b)| *sum += k * b);
            }
        }
        let product = kernel_product(&kernel, cpu(&x, [n, d]), cpu(&y, [m, d]), cpu(&b, [m, e]));
        assert_eq!(product.dims(), [n, e]);
        assert_close(&format!("{kernel:?}"), &to_f64(product), &expected, EXACT);
    }
}

/// The number of values of a formula's variable, for `n` rows and `m` columns.
fn dims_of(formula: &Formula, [n, m]: [usize; 2]) -> Vec<[usize; 2]> {
    let count = |role| match role {
        Role::Row => n,
        Role::Column => m,
        Role::Parameter => 1,
    };
    formula.variables().iter().map(|v| [count(v.role), v.dim]).collect()
}

/// Seeded values for the variables; parameters are positive.
fn values_of(formula: &Formula, size: [usize; 2], seed: u64) -> Vec<Vec<f64>> {
    let variables = formula.variables().iter().zip(dims_of(formula, size)).enumerate();
    let values = variables.map(|(k, (variable, [n, d]))| match variable.role {
        Role::Parameter => uniform(d, 0.6, 1.4, seed + k as u64),
        _ => normal(n * d, seed + k as u64),
    });
    values.collect()
}

/// Compares the gradients of `<w, f(tensors)>`, `w` random, with differences.
fn check_gradients(
    name: &str,
    formula: &Formula,
    size: [usize; 2],
    f: impl Fn(&[Tensor<2>]) -> Tensor<2>,
) {
    check_gradients_at(name, &values_of(formula, size, 11), &dims_of(formula, size), f);
}

/// The same at `values` of the shapes `dims`.
fn check_gradients_at(
    name: &str,
    values: &[Vec<f64>],
    dims: &[[usize; 2]],
    f: impl Fn(&[Tensor<2>]) -> Tensor<2>,
) {
    const NAMES: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let checks = gradcheck(&NAMES[..dims.len()], values, 1e-3, |values| {
        let device = Device::flex().autodiff();
        let tensors = values.iter().zip(dims);
        let tensors: Vec<Tensor<2>> = tensors
            .map(|(values, dims)| tensor(values, *dims, &device, DType::F64).require_grad())
            .collect();
        let result = f(&tensors);
        let [n, width] = result.dims();
        let weights = tensor(&normal(n * width, 5), [n, width], &device, DType::F64);
        let loss = (result * weights).sum();
        let gradients = loss.backward();
        let gradient = |t: &Tensor<2>| match t.grad(&gradients) {
            Some(gradient) => to_f64(gradient),
            None => panic!("{name}: a tensor got no gradient"),
        };
        (to_f64(loss.inner())[0], tensors.iter().map(gradient).collect())
    });
    for check in checks {
        assert!(check.error < DIFFERENCES, "{name}: {check:?}");
    }
}

fn formulas() -> Vec<(String, Formula)> {
    let radial = kernels().into_iter().map(|k| (format!("{k:?}"), k.formula(3, 2)));
    let directions =
        [Directions::Linear, Directions::Squared, Directions::Exponential { spread: 0.7 }];
    let directed = directions.into_iter().map(|directions| {
        let formula = Kernel::gaussian(0.9).directed_formula(directions, 3, 1);
        (format!("{directions:?}"), formula)
    });
    let own = Formula::new(|v| {
        let (x, y, p) = (v.rows(2), v.columns(2), v.parameters(2));
        let r = (&x - &y).norm();
        let wave = (p.at(0) * &r).cos() + (&x.at(0) - y.at(1)).sin();
        let bent = (1.0 + r.square()).powf(-1.3) + (2.0 + x.at(1).sin()).ln();
        (wave * bent).max(&(p.at(1) * y.at(0))) * (&x + &y) + x.at(0).abs() * &y
    });
    radial.chain(directed).chain([("one's own".into(), own)]).collect()
}

#[test]
fn gradients_agree_with_differences() {
    for (name, formula) in formulas() {
        check_gradients(&name, &formula, [3, 4], |tensors| formula.sum(tensors));
    }
}

#[test]
fn gradients_of_gradients_agree_with_differences() {
    for (name, formula) in formulas() {
        for slots in (0..formula.variables().len()).map(|slot| vec![slot]) {
            // One slot is kept for the gradient to the gradient.
            if formula.variables().len() > 6 {
                continue;
            }
            let gradient = formula.gradient(&slots);
            let name = format!("{name}, gradient to {slots:?}");
            check_gradients(&name, &gradient, [3, 4], |tensors| gradient.sum(tensors));
        }
    }
}

/// Values between 1 and 1.4, of the second variable between 0.1 and 0.5: points lie 0.7 or more apart, so that steps of
/// 0.001 are small to what a distance's third derivatives change over, and none crosses the edge of a maximum.
fn values_apart(dims: &[[usize; 2]]) -> Vec<Vec<f64>> {
    let values = dims.iter().enumerate().map(|(slot, [n, d])| {
        let low = if slot == 1 { 0.1 } else { 1.0 };
        let value = |k: usize| low + 0.4 * ((k + 1) as f64 * 0.618034 + slot as f64 * 0.37).fract();
        (0..n * d).map(value).collect()
    });
    values.collect()
}

#[test]
fn third_derivatives_agree_with_differences() {
    let (mut checked, mut zero) = (0, 0);
    for (name, formula) in formulas() {
        let count = formula.variables().len();
        // The tape's variable is the third more, and eight fit.
        let pairs = (0..count).flat_map(|first| (first..count).map(move |second| [first, second]));
        for [first, second] in pairs.filter(|_| count + 3 <= SLOTS) {
            let curvature = formula.gradient(&[first]).gradient(&[second]);
            let name = format!("{name}, gradient to {first} and {second}");
            let dims = dims_of(&curvature, [2, 3]);
            let values = values_apart(&dims);
            check_gradients_at(&name, &values, &dims, |tensors| curvature.sum(tensors));
            let tensors: Vec<_> = values.iter().zip(&dims).map(|(v, dims)| cpu(v, *dims)).collect();
            checked += 1;
            zero += usize::from(to_f64(curvature.sum(&tensors)).iter().all(|v| *v == 0.0));
        }
    }
    // Of seven kernels, six with widths, and a formula of three variables; products are linear in what they weight.
    assert_eq!((checked, zero), (6 * 10 + 6 + 6, 7), "second derivatives, and those that are 0");
}

#[test]
fn gradients_of_log_sum_exp_agree_with_differences() {
    let formula = Formula::new(|v| {
        let (x, y, h, s) = (v.rows(2), v.columns(2), v.columns(1), v.parameters(1));
        h.at(0) - (x - y).norm2() / s.at(0)
    });
    check_gradients("log-sum-exp", &formula, [3, 5], |tensors| formula.log_sum_exp(tensors));
    let ranges = Ranges::new(vec![0, 1, 3], vec![0, 2, 5], vec![vec![0, 1], vec![1]]);
    let ranges = Arc::new(ranges);
    check_gradients("in ranges", &formula, [3, 5], |t| formula.log_sum_exp_in_ranges(t, &ranges));
    check_gradients("sum in ranges", &formula, [3, 5], |t| formula.sum_in_ranges(t, &ranges));
}

#[test]
fn the_tape_and_the_gradients_formula_agree() {
    let device = Device::flex().autodiff();
    let values = |count, seed| tensor(&normal(count * 3, seed), [count, 3], &device, DType::F64);
    let (x, y, b, e) = (values(20, 1), values(30, 2), values(30, 3), values(20, 4));
    let x = x.require_grad();
    let kernel = Kernel::Laplacian { scale: 0.7 };
    let loss = (kernel_product(&kernel, x.clone(), y.clone(), b.clone()) * e.clone()).sum();
    let tape = x.grad(&loss.backward()).expect("x wants a gradient");
    let own = kernel_product_to_x(&kernel, x, y, b, e);
    assert_close("gradient to x", &to_f64(own), &to_f64(tape), EXACT);
}

#[test]
fn distances_have_no_slope_where_points_meet() {
    let device = Device::flex().autodiff();
    let x: Tensor<2> = tensor(&[0.5, 0.25], [1, 2], &device, DType::F64).require_grad();
    for kernel in [Kernel::Energy, Kernel::Laplacian { scale: 1.0 }] {
        let one = Tensor::ones([1, 1], (&device, DType::F64));
        let product = kernel_product(&kernel, x.clone(), x.clone().detach(), one);
        let gradient = x.grad(&product.backward()).expect("x wants a gradient");
        assert_eq!(to_f64(gradient), [0.0, 0.0], "{kernel:?}");
    }
}

#[test]
fn log_sum_exp_does_not_overflow() {
    let formula = Formula::new(|v| v.rows(1) + v.columns(1));
    let (x, y) = (cpu(&[0.0, 900.0, -2000.0], [3, 1]), cpu(&[800.0, 801.0], [2, 1]));
    let log = 801.0 + (1.0 + (-1f64).exp()).ln();
    let expected = [log, log + 900.0, log - 2000.0];
    assert_close("log-sum-exp", &to_f64(formula.log_sum_exp(&[x, y])), &expected, EXACT);
}

#[test]
fn rows_that_meet_no_column_sum_up_to_nothing() {
    let formula = Formula::new(|v| v.rows(1) + v.columns(1));
    let ranges = Arc::new(Ranges::new(vec![0, 1, 2], vec![0, 2], vec![vec![], vec![0]]));
    let tensors = [cpu(&[1.0, 2.0], [2, 1]), cpu(&[3.0, 4.0], [2, 1])];
    assert_eq!(to_f64(formula.sum_in_ranges(&tensors, &ranges)), [0.0, 11.0]);
    let logs = to_f64(formula.log_sum_exp_in_ranges(&tensors, &ranges));
    assert_eq!(logs[0], f64::NEG_INFINITY);
}

#[test]
fn batches_are_products_of_their_own() {
    let kernel = Kernel::gaussian(0.8);
    let (count, n, m) = (3, 40, 70);
    let (x, y, b) = (normal(count * n * 2, 1), normal(count * m * 2, 2), normal(count * m, 3));
    let formula = kernel.formula(2, 1);
    let ranges = Arc::new(Ranges::batches(count, n, m));
    let width = crate::product::parameters(&kernel.widths(), &cpu(&[0.0], [1, 1]));
    let tensors =
        [cpu(&x, [count * n, 2]), cpu(&y, [count * m, 2]), cpu(&b, [count * m, 1]), width];
    let together = to_f64(formula.sum_in_ranges(&tensors, &ranges));
    for k in 0..count {
        let (x, y) = (&x[k * n * 2..(k + 1) * n * 2], &y[k * m * 2..(k + 1) * m * 2]);
        let b = cpu(&b[k * m..(k + 1) * m], [m, 1]);
        let alone = kernel_product(&kernel, cpu(x, [n, 2]), cpu(y, [m, 2]), b);
        assert_close("batch", &together[k * n..(k + 1) * n], &to_f64(alone), EXACT);
    }
}

#[test]
fn the_nearest_columns_are_found() {
    let (n, m, count) = (9, 600, 5);
    let (x, y) = (normal(n * 3, 1), normal(m * 3, 2));
    let formula = Formula::new(|v| (v.rows(3) - v.columns(3)).norm2());
    let found = formula.nearest(count, &[cpu(&x, [n, 3]), cpu(&y, [m, 3])]);
    let found: Vec<f64> = found.into_data().convert::<f64>().try_to_vec().expect("converted");
    for (x, found) in x.chunks(3).zip(found.chunks(count)) {
        let distance =
            |j: &usize| -> f64 { x.iter().zip(&y[3 * j..]).map(|(x, y)| (x - y).powi(2)).sum() };
        let mut order: Vec<usize> = (0..m).collect();
        order.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        let found: Vec<usize> = found.iter().map(|j| *j as usize).collect();
        assert_eq!(found, order[..count]);
    }
}

/// Of points that keep their nearest neighbours over the steps of the differences.
fn distances() -> Formula {
    Formula::new(|v| {
        let (x, y, s) = (v.rows(2), v.columns(2), v.parameters(1));
        (x - y).norm2() * s.at(0)
    })
}

#[test]
fn extremes_are_found_with_their_gradients() {
    let formula = distances();
    let tensors = [
        cpu(&[0.0, 0.0, 5.0, 5.0], [2, 2]),
        cpu(&[1.0, 0.0, 4.0, 5.0, 0.0, 2.0], [3, 2]),
        cpu(&[2.0], [1, 1]),
    ];
    let places = |found: Tensor<2, Int>| -> Vec<i64> {
        found.into_data().convert::<i64>().try_to_vec().expect("just converted")
    };
    let (smallest, nearest) = formula.min(&tensors);
    assert_eq!((to_f64(smallest), places(nearest)), (vec![2.0, 2.0], vec![0, 1]));
    let (largest, furthest) = formula.max(&tensors);
    assert_eq!((to_f64(largest), places(furthest)), (vec![82.0, 82.0], vec![1, 0]));
    check_gradients("smallest", &formula, [3, 5], |tensors| formula.min(tensors).0);
    check_gradients("largest", &formula, [3, 5], |tensors| formula.max(tensors).0);
}

#[test]
fn a_mean_weighted_by_a_softmax() {
    let formula = distances();
    // The values are one variable more.
    let with_values = formula.and_then(|v, f| f.at(0) * v.columns(2));
    let mean = |tensors: &[Tensor<2>]| formula.softmax_mean(&tensors[..3], tensors[3].clone());
    check_gradients("softmax", &with_values, [3, 4], mean);
    let tensors =
        [cpu(&[0.0, 0.0], [1, 2]), cpu(&[30.0, 0.0, 0.0, 1.0], [2, 2]), cpu(&[2.0], [1, 1])];
    let mean = formula.softmax_mean(&tensors, cpu(&[7.0, 8.0, 1.0, 2.0], [2, 2]));
    // Of exponents of 1800, which f64 rounds to 2e-13.
    assert_close("the far one", &to_f64(mean), &[7.0, 8.0], 1e-12);
}

#[test]
fn single_precision_keeps_six_digits() {
    let (n, m) = (150, 2000);
    for (name, formula) in formulas() {
        let rounded = |values: Vec<f64>| values.into_iter().map(|v| v as f32 as f64).collect();
        let values: Vec<Vec<f64>> =
            values_of(&formula, [n, m], 7).into_iter().map(rounded).collect();
        let evaluate = |dtype| {
            let tensors = values.iter().zip(dims_of(&formula, [n, m]));
            let tensors: Vec<Tensor<2>> = tensors
                .map(|(values, dims)| tensor(values, dims, &Device::flex(), dtype))
                .collect();
            to_f64(formula.sum(&tensors))
        };
        let error = assert_close(&name, &evaluate(DType::F32), &evaluate(DType::F64), SINGLE);
        println!("{name}: f32 {error:.1e}");
    }
}

#[test]
fn a_million_terms_keep_six_digits() {
    let m = 1_000_000;
    let y: Vec<f64> = uniform(m, 0.0, 1.0, 3).into_iter().map(|y| y as f32 as f64).collect();
    let single = |v: &[f64], n| tensor(v, [n, 1], &Device::flex(), DType::F32);
    let ones = Tensor::<2>::ones([m, 1], (&Device::flex(), DType::F32));
    let kernel = Kernel::gaussian(0.5);
    let sum = to_f64(kernel_product(&kernel, single(&[0.25], 1), single(&y, m), ones))[0];
    let exact: f64 = y.iter().map(|y| plain(&kernel, (y - 0.25).powi(2))).sum();
    // Half a unit of the result's last digit is 6e-8; the terms' own errors cancel.
    assert!((sum / exact - 1.0).abs() < 1e-6, "{sum} against {exact}");
}

#[test]
#[should_panic(expected = "variable 1 is [4, 3], got [4, 2]")]
fn tensors_of_another_shape_are_refused() {
    let formula = Kernel::Energy.formula(3, 1);
    formula.sum(&[cpu(&[0.0; 6], [2, 3]), cpu(&[0.0; 8], [4, 2]), cpu(&[0.0; 4], [4, 1])]);
}

#[test]
#[should_panic(expected = "widths must be positive")]
fn a_kernel_without_width_is_refused() {
    let x = cpu(&[0.0; 3], [1, 3]);
    kernel_product(&Kernel::gaussian(0.0), x.clone(), x.clone(), x);
}

#[test]
fn directions_multiply_the_kernel() {
    let kernel = Kernel::gaussian(1.1);
    let (x, y, a, b, w) =
        (normal(15, 1), normal(21, 2), normal(15, 3), normal(21, 4), normal(7, 5));
    let product = directed_product(
        &kernel,
        Directions::Squared,
        [cpu(&x, [5, 3]), cpu(&a, [5, 3])],
        [cpu(&y, [7, 3]), cpu(&b, [7, 3])],
        cpu(&w, [7, 1]),
    );
    let expected: Vec<f64> = (0..5)
        .map(|i| {
            let terms = (0..7).map(|j| {
                let r2 = (0..3).map(|k| (x[3 * i + k] - y[3 * j + k]).powi(2)).sum();
                let cosine: f64 = (0..3).map(|k| a[3 * i + k] * b[3 * j + k]).sum();
                plain(&kernel, r2) * cosine * cosine * w[j]
            });
            terms.sum()
        })
        .collect();
    assert_close("varifold", &to_f64(product), &expected, EXACT);
}

/// f32 on both, but powers, roots and the order of sums of another machine.
const GPU: f64 = 1e-5;

/// Sums, a log-sum-exp and neighbours on `device`, the inputs exact in f32.
fn everything(formula: &Formula, size: [usize; 2], device: &Device, dtype: DType) -> Vec<Vec<f64>> {
    let round = |v: Vec<f64>| v.into_iter().map(|v| v as f32 as f64).collect::<Vec<f64>>();
    let values = values_of(formula, size, 21).into_iter().map(round).zip(dims_of(formula, size));
    let tensors: Vec<Tensor<2>> =
        values.map(|(values, dims)| tensor(&values, dims, device, dtype)).collect();
    let first = formula.and_then(|_, f| f.at(0));
    let [n, m] = size;
    let kept = vec![vec![0, 2], vec![1], vec![]];
    let ranges = Ranges::new(vec![0, n / 3, n / 2, n], vec![0, m / 5, m / 2, m], kept);
    let ranges = Arc::new(ranges);
    vec![
        to_f64(formula.sum(&tensors)),
        to_f64(first.log_sum_exp(&tensors)),
        to_f64(formula.sum_in_ranges(&tensors, &ranges)),
    ]
}

#[test]
fn gpu_agrees_with_cpu() {
    for (device_name, device) in ffdp_kit::testing::gpu_devices() {
        for (name, formula) in formulas() {
            for size in [[1, 1], [130, 257], [20, 3001], [2500, 300]] {
                let expected = everything(&formula, size, &Device::flex(), DType::F64);
                let actual = everything(&formula, size, &device, DType::F32);
                for (what, (actual, expected)) in ["sum", "log-sum-exp", "sum in ranges"]
                    .into_iter()
                    .zip(actual.iter().zip(&expected))
                {
                    let case = format!("{device_name} {name} {size:?}: {what}");
                    let error = assert_close(&case, actual, expected, GPU);
                    println!("{case} {error:.1e}");
                }
            }
        }
    }
}

#[test]
fn gpu_finds_the_nearest() {
    let (n, m, count) = (300, 900, 4);
    let round = |v: Vec<f64>| v.into_iter().map(|v| v as f32 as f64).collect::<Vec<f64>>();
    let (x, y) = (round(normal(n * 3, 1)), round(normal(m * 3, 2)));
    let formula = Formula::new(|v| (v.rows(3) - v.columns(3)).norm2());
    let found = |device: &Device| -> Vec<i64> {
        let tensors = [(&x, n), (&y, m)].map(|(v, n)| tensor(v, [n, 3], device, DType::F32));
        let places = formula.nearest(count, &tensors).into_data().convert::<i64>();
        places.try_to_vec().expect("just converted")
    };
    for (name, device) in ffdp_kit::testing::gpu_devices() {
        assert_eq!(found(&device), found(&Device::flex()), "{name}");
    }
}

#[test]
fn gpu_gradients_agree_with_cpu() {
    let formula = Kernel::gaussian(0.8).formula(3, 3);
    let to_x = formula.gradient(&[0]);
    let run = |device: &Device, dtype| -> Vec<Vec<f64>> {
        let device = device.clone().autodiff();
        let values = values_of(&to_x, [300, 400], 3).into_iter().zip(dims_of(&to_x, [300, 400]));
        let tensors: Vec<Tensor<2>> = values
            .map(|(values, dims)| tensor(&values, dims, &device, dtype).require_grad())
            .collect();
        let result = to_x.sum(&tensors);
        let loss = (result.clone() * result).sum();
        let gradients = loss.backward();
        tensors.iter().map(|t| to_f64(t.grad(&gradients).expect("all want one"))).collect()
    };
    for (name, device) in ffdp_kit::testing::gpu_devices() {
        let (expected, actual) = (run(&Device::flex(), DType::F64), run(&device, DType::F32));
        for (slot, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
            assert_close(&format!("{name}: to {slot}"), actual, expected, GPU);
        }
    }
}
