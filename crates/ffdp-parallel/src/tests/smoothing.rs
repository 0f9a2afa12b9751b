//! Smoothing, Jacobians and penalties: no seam.

use super::*;
use ffdp_burn::ops::{self, GaussianOptions};

/// Value and gradient of a sharded operation, and of the serial one.
fn agree(
    layout: &Layout,
    channels: usize,
    label: &str,
    sharded: impl Fn(&Sharded) -> Sharded,
    serial: impl Fn(Tensor<5>) -> Tensor<5>,
) {
    for (dtype, tolerance) in PRECISIONS {
        let image = random(channels, layout.size(), [-1.0, 1.0], dtype, 5);
        let (a, b) = (tracked(&image), tracked(&image));
        let parts = whole(&sharded(&Sharded::from_tensor(a.clone(), layout, &mesh(layout))));
        let all = serial(b.clone());
        let weights = random(all.dims()[1], layout.size(), [-1.0, 1.0], dtype, 6);
        let label = format!("{label} {layout:?} {dtype:?}");
        let [actual, expected] = [&parts, &all].map(|y| to_f64(y.clone().inner()));
        assert_close(&label, &actual, &expected, tolerance);
        let gradient = |y, x: &Tensor<5>| {
            to_f64(x.grad(&weighted_sum(y, &weights).backward()).expect("it was tracked"))
        };
        assert_close(&label, &gradient(parts, &a), &gradient(all, &b), tolerance);
    }
}

#[test]
fn smoothing_is_that_of_the_whole() {
    for (layout, seed) in layouts(5).iter().zip(0..) {
        // Radii up to 11 voxels: wider than thin shards, and than the volume along other axes.
        let sigma = |i: u64| uniform(1, 0.3, 3.6, 50 + 3 * seed + i)[0];
        let options = GaussianOptions {
            sigma_voxels: [sigma(0), if seed % 3 == 0 { 0.0 } else { sigma(1) }, sigma(2)],
            truncate: 3.0,
        };
        let (sharded, serial) =
            (|x: &Sharded| gaussian(x, &options), |x| ops::gaussian(x, &options));
        agree(layout, 3, &format!("{options:?}"), sharded, serial);
    }
}

#[test]
fn jacobians_are_those_of_the_whole() {
    for layout in layouts(6) {
        agree(&layout, 3, "jacobian", jacobian, ops::jacobian);
    }
}

#[test]
fn penalties_are_those_of_the_whole() {
    for layout in layouts(7) {
        let scalar = |x: Tensor<1>| x.reshape([1; 5]);
        for (label, sharded, serial) in [
            (
                "folds",
                (|u| jacobian_penalty(u, 0.5)) as fn(&Sharded) -> Tensor<1>,
                (|u| ops::jacobian_penalty(u, 0.5)) as fn(Tensor<5>) -> Tensor<1>,
            ),
            ("variation", |u| total_variation(u, 0.1), |u| ops::total_variation(u, 0.1)),
        ] {
            for (dtype, tolerance) in PRECISIONS {
                let field = random(3, layout.size(), [-1.0, 1.0], dtype, 5);
                let (a, b) = (tracked(&field), tracked(&field));
                let parts =
                    scalar(sharded(&Sharded::from_tensor(a.clone(), &layout, &mesh(&layout))));
                let all = scalar(serial(b.clone()));
                let label = format!("{label} {layout:?} {dtype:?}");
                let [value, expected] = [&parts, &all].map(|y| to_f64(y.clone().inner()));
                assert_close(&label, &value, &expected, tolerance);
                let gradient = |y: Tensor<5>, x: &Tensor<5>| to_f64(x.grad(&y.backward()).unwrap());
                assert_close(&label, &gradient(parts, &a), &gradient(all, &b), tolerance);
            }
        }
    }
}

#[test]
fn a_mesh_of_one_is_the_serial_operation() {
    let layout = Layout::balanced([7, 6, 5], Axis::Z, 1).unwrap();
    let field = random(3, layout.size(), [-1.0, 1.0], DType::F32, 5);
    let (sharded, options) = (split(&field, &layout), GaussianOptions::isotropic(1.3));
    assert_eq!(
        bits(whole(&gaussian(&sharded, &options))),
        bits(ops::gaussian(field.clone(), &options))
    );
    assert_eq!(
        bits(jacobian_penalty(&sharded, 0.5)),
        bits(ops::jacobian_penalty(field.clone(), 0.5))
    );
    assert_eq!(bits(whole(&jacobian(&sharded))), bits(ops::jacobian(field)));
}

type OfParts = fn(&Sharded) -> Tensor<1>;
type OfWhole = fn(Tensor<5>) -> Tensor<1>;

#[test]
fn roughness_is_that_of_the_whole() {
    for layout in layouts(12) {
        let u = tracked(&random(3, layout.size(), [-1.0, 1.0], DType::F64, 3));
        let cases: [(OfParts, OfWhole); 2] = [
            (diffusion, ffdp_burn::ops::diffusion),
            (bending_energy, ffdp_burn::ops::bending_energy),
        ];
        for (parts, serial) in cases {
            let part = parts(&Sharded::from_tensor(u.clone(), &layout, &mesh(&layout)));
            let whole = serial(u.clone());
            let gradients = [&part, &whole].map(|value| {
                let gradients = value.backward();
                to_f64(u.grad(&gradients).expect("tracked"))
            });
            let label = format!("{layout:?}");
            assert_close(&label, &to_f64(part.inner()), &to_f64(whole.inner()), F64_ROUNDING);
            assert_close(&label, &gradients[0], &gradients[1], F64_ROUNDING);
        }
    }
}
