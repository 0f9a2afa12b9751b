//! What splines reproduce, the transpose, finite differences, parts, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Sums of 64 products in f64.
const F64_ROUNDING: f64 = 1e-13;
/// The loss is quadratic, so differences over any step are exact but for rounding divided by the step.
const FINITE_DIFFERENCES: f64 = 2e-9;
/// 64 products in f32, one axis after the other, each rounded to 6e-8; a sum over a support has up to
/// a thousand terms of either sign.
const F32: f64 = 2e-6;
const CPU: fn() -> Device = Device::flex;

/// Control grids (d, h, w), output sizes (D, H, W), spacings and origins: odd sizes, a spacing below one
/// voxel, supports that leave the grid on all sides, single planes, single control points.
fn cases() -> Vec<(&'static str, [usize; 3], [usize; 3], ControlGrid)> {
    let grid = |spacing_voxels, origin_voxels| ControlGrid {
        spacing_voxels,
        origin_voxels,
        beyond: Beyond::Fade,
    };
    let covering = |size, spacing| {
        let (grid, controls) = ControlGrid::covering(size, spacing);
        (controls, grid)
    };
    let (odd, odd_grid) = covering([7, 11, 13], [2.5, 3.0, 4.7]);
    let (plane, plane_grid) = covering([1, 9, 8], [3.0, 2.0, 5.0]);
    let cut = ControlGrid { beyond: Beyond::Cut, ..grid([3.0; 3], [2.0, -1.0, 4.5]) };
    vec![
        ("covering", odd, [7, 11, 13], odd_grid),
        ("one plane", plane, [1, 9, 8], plane_grid),
        ("one plane among four", [4, 5, 6], [1, 6, 9], grid([3.0; 3], [-3.0; 3])),
        ("dense control points", [9, 10, 12], [3, 4, 5], grid([0.6, 0.5, 0.7], [-1.0; 3])),
        ("smaller than its output", [4, 5, 4], [17, 20, 19], grid([3.2; 3], [1.5, 2.0, 6.0])),
        ("cut", [4, 6, 5], [13, 14, 15], cut),
        ("few control points", [2, 3, 1], [5, 6, 4], grid([2.0; 3], [0.5, -1.0, 1.0])),
    ]
}

fn random([d, h, w]: [usize; 3], seed: u64) -> Vec<f64> {
    normal(3 * d * h * w, seed)
}

fn shape([d, h, w]: [usize; 3]) -> [usize; 5] {
    [1, 3, d, h, w]
}

/// Coefficients by their position (x, y, z) in voxels of the output grid.
fn coefficients(
    controls: [usize; 3],
    grid: &ControlGrid,
    dtype: DType,
    value: impl Fn([f64; 3]) -> [f64; 3],
) -> Tensor<5> {
    let [d, h, w] = controls;
    let count = d * h * w;
    let mut data = vec![0.0; 3 * count];
    for point in 0..count {
        let index = [point % w, point / w % h, point / w / h];
        let at =
            [0, 1, 2].map(|a| grid.origin_voxels[a] + index[a] as f64 * grid.spacing_voxels[a]);
        let u = value(at);
        (0..3).for_each(|c| data[c * count + point] = u[c]);
    }
    tensor(&data, shape(controls), &CPU(), dtype)
}

/// The largest difference of two fields.
fn largest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |m, (a, b)| m.max((a - b).abs()))
}

#[test]
fn linear_fields_are_reproduced() {
    let linear = |[x, y, z]: [f64; 3]| {
        [0.1 * x - 0.2 * y + 0.05 * z + 3.0, 0.3 * z - 4.0, -0.15 * x + 0.25 * y]
    };
    for spacing in [[5.0; 3], [2.5, 7.25, 0.8], [16.0, 3.0, 1.0]] {
        let size = [19, 22, 31];
        let (grid, controls) = ControlGrid::covering(size, spacing);
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
            let u = to_f64(bspline(coefficients(controls, &grid, dtype, linear), &grid, size));
            let [d, h, w] = size;
            for voxel in 0..d * h * w {
                let at = [voxel % w, voxel / w % h, voxel / w / h].map(|i| i as f64);
                for (c, expected) in linear(at).into_iter().enumerate() {
                    let error = (u[c * d * h * w + voxel] - expected).abs();
                    assert!(error < tolerance, "{spacing:?} {dtype:?} at {at:?}: {error:.1e}");
                }
            }
        }
    }
}

#[test]
fn the_weights_of_a_covered_voxel_sum_to_one_and_their_slopes_to_zero() {
    for (name, controls, size, grid) in cases() {
        if !matches!(name, "covering" | "one plane" | "one plane among four") {
            continue;
        }
        for (map, expected) in [(Map::Value, 1.0), (Map::Slope, 0.0)] {
            let lattice = grid.lattice(controls, [0; 3], size, [map; 3]);
            for taps in lattice.axes.iter().flat_map(Axis::taps) {
                let sum: f64 = taps.weights.iter().sum();
                assert!((sum - expected).abs() < F64_ROUNDING, "{name}: {taps:?}");
            }
        }
    }
}

#[test]
fn a_single_coefficient_is_the_basis_function() {
    // B(0) = 2/3 at its centre, B(1) = 1/6 one voxel away, on a grid of one voxel a spacing.
    let grid =
        ControlGrid { spacing_voxels: [1.0; 3], origin_voxels: [0.0; 3], beyond: Beyond::Fade };
    let mut data = vec![0.0; 3 * 125];
    data[62] = 1.0;
    let u = to_f64(bspline(tensor(&data, [1, 3, 5, 5, 5], &CPU(), DType::F64), &grid, [5, 5, 5]));
    let weight = |i: usize| [0.0, 1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0, 0.0][i];
    for (voxel, value) in u.iter().enumerate() {
        let expected = match voxel {
            0..125 => weight(voxel % 5) * weight(voxel / 5 % 5) * weight(voxel / 25),
            _ => 0.0,
        };
        assert!((value - expected).abs() < F64_ROUNDING, "{voxel}: {value} {expected}");
    }
}

#[test]
fn fields_end_as_they_say() {
    // Control points at 0, 4, .., 16 along x: all four exist from 4 to 12.
    let controls = [1, 1, 5];
    let x = |beyond| {
        let grid = ControlGrid { spacing_voxels: [4.0; 3], origin_voxels: [0.0; 3], beyond };
        let ones = Tensor::ones(shape(controls), (&CPU(), DType::F64));
        to_f64(bspline(ones, &grid, [1, 1, 17]))[..17].to_vec()
    };
    let (fade, cut) = (x(Beyond::Fade), x(Beyond::Cut));
    for voxel in 0..17 {
        let inside = (4..=12).contains(&voxel);
        assert_eq!(cut[voxel] != 0.0, inside, "{voxel}: {cut:?}");
        let expected = if inside { 1.0 } else { fade[voxel] };
        assert!((fade[voxel] - expected).abs() < F64_ROUNDING, "{voxel}: {fade:?}");
        assert!(inside || (fade[voxel] > 0.0 && fade[voxel] < 1.0), "{voxel}: {fade:?}");
    }
}

#[test]
fn single_precision_is_within_a_thousandth_of_a_voxel() {
    let size = [40, 45, 50];
    let (grid, controls) = ControlGrid::covering(size, [5.0; 3]);
    let values: Vec<f64> = random(controls, 5).iter().map(|v| 10.0 * v).collect();
    let field =
        |dtype| to_f64(bspline(tensor(&values, shape(controls), &CPU(), dtype), &grid, size));
    let error = largest(&field(DType::F32), &field(DType::F64));
    assert!(error < 1e-3, "{error:.1e} voxels");
}

#[test]
fn the_backward_pass_is_the_transpose() {
    // <B phi, g> = <phi, B^T g>, with every case of borders.
    for (name, controls, size, grid) in cases() {
        for map in [Map::Value, Map::Slope] {
            let lattice = grid.lattice(controls, [0; 3], size, [map, Map::Value, map]);
            let phi = tensor(&random(controls, 1), shape(controls), &CPU(), DType::F64);
            let g = tensor(&random(size, 2), shape(size), &CPU(), DType::F64);
            let device = CPU().autodiff();
            let tracked = tensor::<5>(&random(controls, 1), shape(controls), &device, DType::F64)
                .require_grad();
            let u = apply(tracked.clone(), lattice);
            let on_tape = tensor(&random(size, 2), shape(size), &device, DType::F64);
            let gradients = (u * on_tape).backward();
            let back = tracked.grad(&gradients).expect("it was tracked");
            let left = to_f64((apply(phi.clone(), lattice) * g).sum())[0];
            let right = to_f64((phi * back).sum())[0];
            assert_close(name, &[left], &[right], 1e-11);
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for (name, controls, size, grid) in cases() {
        let checks = gradcheck(&["coefficients"], &[random(controls, 3)], 1.0, |inputs| {
            let device = CPU().autodiff();
            let phi = tensor::<5>(&inputs[0], shape(controls), &device, DType::F64).require_grad();
            let loss = bspline(phi.clone(), &grid, size).powi_scalar(2).sum().mul_scalar(0.125);
            let gradients = loss.backward();
            let gradient = to_f64(phi.grad(&gradients).expect("it was tracked"));
            (to_f64(loss.inner())[0], vec![gradient])
        });
        assert!(checks[0].error < FINITE_DIFFERENCES, "{name}: {checks:?}");
    }
}

#[test]
fn parts_are_the_cut_of_the_whole() {
    let mut devices = gpu_devices();
    devices.push(("cpu", CPU()));
    for (device_name, device) in devices {
        for (name, controls, size, grid) in cases() {
            let phi = tensor(&random(controls, 4), shape(controls), &device, DType::F32);
            let whole = bspline(phi.clone(), &grid, size);
            let start = size.map(|n| n / 3);
            let len = [0, 1, 2].map(|a| (size[a] - start[a]).div_ceil(2));
            let part = bspline_part(phi, &grid, start, len);
            let cut = whole.slice([
                0..1,
                0..3,
                start[0]..start[0] + len[0],
                start[1]..start[1] + len[1],
                start[2]..start[2] + len[2],
            ]);
            assert_eq!(to_f64(part), to_f64(cut), "{device_name} {name}");
        }
    }
}

#[test]
fn subdivision_leaves_the_field_as_it_is() {
    let size = [9, 17, 21];
    for factors in [[2, 2, 2], [3, 1, 2], [1, 4, 5]] {
        for spacing in [[6.0, 5.0, 4.0], [4.5, 7.0, 2.25]] {
            let (grid, controls) = ControlGrid::covering(size, spacing);
            for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 1e-6)] {
                let phi = tensor(&random(controls, 7), shape(controls), &CPU(), dtype);
                let (fine, fine_grid) = subdivide(phi.clone(), &grid, factors);
                let before = to_f64(bspline(phi, &grid, size));
                let after = to_f64(bspline(fine, &fine_grid, size));
                // Coefficients are standard normal, fields within [-3, 3].
                let error = largest(&before, &after);
                assert!(error < tolerance, "{factors:?} {spacing:?} {dtype:?}: {error:.1e}");
            }
        }
    }
}

#[test]
fn subdivision_leaves_single_control_points_alone() {
    let size = [1, 12, 10];
    let (grid, controls) = ControlGrid::covering(size, [4.0, 3.0, 9.0]);
    assert_eq!(controls[0], 1);
    let phi = tensor(&random(controls, 7), shape(controls), &CPU(), DType::F64);
    let (fine, fine_grid) = subdivide(phi.clone(), &grid, [2, 2, 2]);
    assert_eq!(fine.dims()[2], 1);
    let error =
        largest(&to_f64(bspline(phi, &grid, size)), &to_f64(bspline(fine, &fine_grid, size)));
    assert!(error < F64_ROUNDING * 10.0, "{error:.1e}");
}

#[test]
fn any_grid_with_the_old_knots_takes_the_field() {
    let size = [10, 20, 20];
    let (grid, controls) = ControlGrid::covering(size, [4.0; 3]);
    let (wide, wide_controls) = (
        ControlGrid { spacing_voxels: [2.0; 3], origin_voxels: [-4.0, -6.0, -2.0], ..grid },
        [9, 15, 14],
    );
    let phi = tensor(&random(controls, 8), shape(controls), &CPU(), DType::F64);
    let moved = subdivision::onto(phi.clone(), &grid, &wide, wide_controls);
    let error = largest(&to_f64(bspline(phi, &grid, size)), &to_f64(bspline(moved, &wide, size)));
    assert!(error < 1e-12, "{error:.1e}");
}

#[test]
#[should_panic(expected = "must contain those")]
fn knots_that_do_not_meet_are_refused() {
    let (grid, controls) = ControlGrid::covering([8, 8, 8], [4.0; 3]);
    let other = ControlGrid { spacing_voxels: [3.0; 3], ..grid };
    subdivision::onto(Tensor::zeros(shape(controls), &CPU()), &grid, &other, [4, 4, 4]);
}

#[test]
fn gpu_agrees_with_cpu() {
    for (device_name, device) in gpu_devices() {
        let mut all = cases();
        // Several tiles and chunks along each axis.
        let (grid, controls) = ControlGrid::covering([70, 21, 67], [5.0, 4.0, 3.3]);
        all.push(("large", controls, [70, 21, 67], grid));
        for (name, controls, size, grid) in all {
            for batch in [1, 2] {
                let dims = |[d, h, w]: [usize; 3]| [batch, 3, d, h, w];
                let phi = normal(batch * 3 * controls.iter().product::<usize>(), 9);
                let g = normal(batch * 3 * size.iter().product::<usize>(), 10);
                let run = |device: &Device, dtype| {
                    let device = device.clone().autodiff();
                    let phi = tensor::<5>(&phi, dims(controls), &device, dtype).require_grad();
                    let u = bspline(phi.clone(), &grid, size);
                    let gradients = (u.clone() * tensor(&g, dims(size), &device, dtype)).backward();
                    let gradient = phi.grad(&gradients).expect("it was tracked");
                    (to_f64(u.inner()), to_f64(gradient))
                };
                let (expected, gradient) = run(&CPU(), DType::F64);
                let (actual, other) = run(&device, DType::F32);
                let label = format!("{device_name} {name} batch {batch}");
                let value = assert_close(&label, &actual, &expected, F32);
                let slope = assert_close(&label, &other, &gradient, F32);
                println!("{label}: value {value:.1e} gradient {slope:.1e}");
            }
        }
    }
}
