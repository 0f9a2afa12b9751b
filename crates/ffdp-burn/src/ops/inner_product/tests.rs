//! Against sums in f64, where terms cancel as well.

use burn::tensor::{DType, Device};

use super::*;
use ffdp_kit::testing::{gpu_devices, normal, tensor, to_f64};

const SHAPES: [[usize; 5]; 3] = [[1, 3, 7, 9, 11], [2, 3, 4, 8, 16], [1, 3, 60, 64, 65]];
/// Products and partial sums in f32, of the sum of sizes: eps / 2 is 6e-8.
const F32: f64 = 1e-7;
const F64: f64 = 1e-15;

#[test]
fn sums_are_those_of_f64() {
    let on = |dtype: DType, tolerance: f64| (Device::flex(), dtype, tolerance);
    let gpus = gpu_devices().into_iter().map(|(_, device)| (device, DType::F32, F32));
    for (device, dtype, tolerance) in
        [on(DType::F64, F64), on(DType::F32, F32)].into_iter().chain(gpus)
    {
        for shape in SHAPES {
            let len = shape.iter().product();
            // What an f32 holds, so that only the sum is rounded.
            let [a, b] = [1, 2].map(|seed| -> Vec<f64> {
                normal(len, seed).into_iter().map(|v| f64::from(v as f32)).collect()
            });
            let terms = || a.iter().zip(&b).map(|(a, b)| a * b);
            let (expected, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
            let [a, b] = [&a, &b].map(|v| tensor(v, shape, &device, dtype));
            let actual = to_f64(inner_product(a, b))[0];
            let error = (actual - expected).abs() / size;
            assert!(
                error < tolerance,
                "{device:?} {dtype:?} {shape:?}: {actual} {expected} {error:e}"
            );
        }
    }
}

#[test]
fn many_are_what_they_are_one_by_one() {
    let devices = gpu_devices().into_iter().map(|(_, device)| device);
    for device in std::iter::once(Device::flex()).chain(devices) {
        for shape in SHAPES {
            let len = shape.iter().product();
            let of = |seed| tensor(&normal(len, seed), shape, &device, DType::F32);
            let fields: Vec<Tensor<5>> = (0..9).map(of).collect();
            // More on either side than one sweep takes, the same tensor on both, and some that nobody asks for.
            let mut pairs: Vec<_> = fields.iter().map(|b| [&fields[0], b]).collect();
            pairs.extend([[&fields[1], &fields[2]], [&fields[3], &fields[0]]]);
            pairs.extend([[&fields[3], &fields[3]], [&fields[4], &fields[8]]]);
            let products = inner_products(&pairs);
            let together = products.of_pairs(&to_f64(products.joined()));
            for ([a, b], together) in pairs.into_iter().zip(together) {
                let alone = to_f64(inner_product(a.clone(), b.clone()))[0];
                assert_eq!(together, alone, "{device:?} {shape:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "the shapes must be the same")]
fn other_shapes_are_refused() {
    let of =
        |len: usize| tensor(&vec![0.0; 3 * len], [1, 3, 1, 1, len], &Device::flex(), DType::F32);
    inner_product(of(3), of(4));
}
