//! Known ends, values that are no numbers, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{FIELD_SHAPES, gpu_devices, normal, tensor, to_f64};

fn expected(values: &[f64], components: usize) -> Vec<f64> {
    let ends = values.chunks(values.len() / components).flat_map(|component| {
        let mut sorted = component.to_vec();
        sorted.sort_by(f64::total_cmp);
        [sorted[0], sorted[sorted.len() - 1]]
    });
    ends.collect()
}

#[test]
fn ends_are_those_of_the_sorted_values() {
    // The last is more than a task, or a stripe of every cube, goes through.
    for shape in FIELD_SHAPES.into_iter().chain([[2, 3, 5, 6, 7], [1, 3, 70, 90, 130]]) {
        let values = normal(shape.iter().product(), 4);
        // Of one sign, where a start at zero would show.
        for offset in [0.0, 9.0, -9.0] {
            let values: Vec<f64> = values.iter().map(|u| f64::from((u + offset) as f32)).collect();
            let ends = expected(&values, shape[0] * shape[1]);
            let on = |device: &Device, dtype| extremes(tensor(&values, shape, device, dtype));
            let found = on(&Device::flex(), DType::F64);
            assert_eq!(found.dims(), [shape[0], shape[1], 2]);
            assert_eq!(to_f64(found), ends, "{shape:?}");
            for (name, device) in gpu_devices() {
                assert_eq!(to_f64(on(&device, DType::F32)), ends, "{shape:?} on {name}");
            }
        }
    }
}

#[test]
fn what_is_no_number_says_nothing_of_other_components() {
    let cpu = ("cpu", Device::flex());
    for (name, device) in std::iter::once(cpu).chain(gpu_devices()) {
        let mut values = vec![2.0f32; 24];
        values[5] = f32::NAN;
        values[9] = f32::INFINITY;
        values[20] = -3.0;
        let field = Tensor::<1>::from_floats(values.as_slice(), &device).reshape([1, 3, 2, 2, 2]);
        let ends = to_f64(extremes(field));
        let [low, high] = [ends[0], ends[1]];
        assert!(
            (low == 2.0 && high == 2.0) || (low.is_nan() && high.is_nan()),
            "{ends:?} on {name}"
        );
        assert_eq!(ends[2..], [2.0, f64::INFINITY, -3.0, 2.0], "{name}");
    }
}

#[test]
fn the_longest_vector_is_that_of_f64() {
    // Three squares and two sums in f32: eps is 1.2e-7.
    const F32: f64 = 4e-7;
    for shape in FIELD_SHAPES.into_iter().chain([[2, 3, 5, 6, 7], [1, 3, 70, 90, 130]]) {
        let values: Vec<f64> = normal(shape.iter().product(), 4);
        let values: Vec<f64> = values.iter().map(|u| f64::from(*u as f32)).collect();
        let (channels, len) = (shape[1], shape[2] * shape[3] * shape[4]);
        let squared = |entry: &[f64], p: usize| -> f64 {
            (0..channels).map(|c| entry[c * len + p].powi(2)).sum()
        };
        let entries = values.chunks(channels * len);
        let all = entries.flat_map(|entry| (0..len).map(move |p| squared(entry, p)));
        let expected = all.fold(0.0, f64::max);
        let on =
            |device: &Device, dtype| to_f64(longest_squared(tensor(&values, shape, device, dtype)));
        let close = |found: &[f64], bound: f64| (found[0] - expected).abs() <= bound * expected;
        let found = on(&Device::flex(), DType::F64);
        assert!(found.len() == 1 && close(&found, 1e-15), "{shape:?}: {found:?} {expected}");
        for (name, device) in gpu_devices() {
            let found = on(&device, DType::F32);
            assert!(close(&found, F32), "{shape:?} on {name}: {found:?} {expected}");
        }
    }
}
