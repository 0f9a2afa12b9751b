//! Known ends, values that are no numbers, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::testing::{FIELD_SHAPES, gpu_devices, normal, tensor, to_f64};

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
