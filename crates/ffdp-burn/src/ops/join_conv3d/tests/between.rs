//! Parts between their neighbours' planes, against the whole.

use super::*;
use crate::ops::join_conv3d::between::{COARSE_PLANES, FINE_PLANES};
use crate::ops::{Between, join_conv3d_between};
use crate::parallel::{join, narrow};

/// As [`joined`], in parts along `dim` that end where the coarse planes `ends` do.
fn in_parts(
    [x, skip, weight]: [Tensor<5>; 3],
    dim: usize,
    ends: &[usize],
    precision: Precision,
) -> Tensor<5> {
    let between = |volume: &Tensor<5>, scale: usize, reach: usize, k: usize| {
        let [start, end] = [ends[k], ends[k + 1]].map(|end| scale * end);
        let extent = volume.dims()[dim];
        let planes = |range| narrow(volume.clone(), dim, range);
        Between {
            low: (start > 0).then(|| planes(start - reach..start)),
            own: planes(start..end),
            high: (end < extent).then(|| planes(end..end + reach)),
        }
    };
    let part = |k| {
        let x = between(&x, 1, COARSE_PLANES, k);
        let skip = between(&skip, 2, FINE_PLANES, k);
        join_conv3d_between(x, skip, weight.clone(), dim, precision)
    };
    join((0..ends.len() - 1).map(part).collect(), dim)
}

/// Cuts of the coarse planes, by dimension: one part, uneven ones, single planes.
const CUTS: [(usize, &[usize]); 4] =
    [(2, &[0, 4]), (2, &[0, 3, 4]), (3, &[0, 1, 2, 5]), (4, &[0, 2, 3, 8, 9])];

/// TransMorph's last level.
const CASE: Case = CASES[0];

#[test]
fn parts_are_the_whole() {
    let values = inputs(CASE);
    let inputs = values.each_ref().map(Vec::as_slice);
    for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-13)] {
        let expected = evaluate(joined, CASE, inputs, &Device::flex(), dtype);
        for (dim, ends) in CUTS {
            let parts = |x, skip, weight| in_parts([x, skip, weight], dim, ends, Precision::Single);
            let actual = evaluate(parts, CASE, inputs, &Device::flex(), dtype);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                let what = format!("{dtype:?}, {ends:?} along {dim}: {i}");
                assert_close(&what, actual, expected, tolerance);
            }
        }
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        let values = inputs(CASE);
        let inputs = values.each_ref().map(Vec::as_slice);
        let expected = evaluate(joined, CASE, inputs, &Device::flex(), DType::F64);
        for (dim, ends) in CUTS {
            let parts = |x, skip, weight| in_parts([x, skip, weight], dim, ends, Precision::Single);
            let actual = evaluate(parts, CASE, inputs, &device, DType::F32);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                let what = format!("{name}, {ends:?} along {dim}: {i}");
                assert_close(&what, actual, expected, SINGLE);
            }
        }
    }
}

#[test]
fn what_is_not_tracked_is_left_alone() {
    let device = Device::flex().autodiff();
    let ones = |shape: [usize; 5]| Tensor::<5>::ones(shape, &device);
    let x = Between { low: None, own: ones([1, 2, 1, 2, 2]), high: Some(ones([1, 2, 1, 2, 2])) };
    let above = ones([1, 3, 2, 4, 4]).require_grad();
    let skip = Between { low: None, own: ones([1, 3, 2, 4, 4]), high: Some(above.clone()) };
    let own = skip.own.clone();
    let y = join_conv3d_between(x, skip, ones([1, 5, 3, 3, 3]), 2, Precision::Single);
    assert_eq!(y.dims(), [1, 1, 2, 4, 4]);
    let gradients = y.sum().backward();
    assert!(own.grad(&gradients).is_none());
    // Of the planes above, the first is seen by the last of the result, the second by none.
    let above = to_f64(above.grad(&gradients).expect("it is tracked"));
    assert_eq!((above[0], above[5], above[16]), (4.0, 9.0, 0.0));
}

#[test]
#[should_panic(
    expected = "neighbours (below, above) of x [false, false], of the skip [false, true]"
)]
fn both_have_the_same_neighbours() {
    let device = Device::flex();
    let ones = |shape: [usize; 5]| Tensor::<5>::ones(shape, &device);
    let x = Between { low: None, own: ones([1, 2, 1, 1, 1]), high: None };
    let high = Some(ones([1, 3, 2, 2, 2]));
    let skip = Between { low: None, own: ones([1, 3, 2, 2, 2]), high };
    join_conv3d_between(x, skip, ones([1, 5, 3, 3, 3]), 2, Precision::Single);
}
