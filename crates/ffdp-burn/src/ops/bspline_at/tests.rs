//! The same numbers as on a grid, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{ControlGrid, bspline};
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64, uniform};

/// Sums of 64 products in f64, in another order.
const F64_ROUNDING: f64 = 1e-12;
/// Indices up to 10 are rounded to 1e-6 in f32, fields change by about 1 an index.
const GPU: f64 = 3e-6;

#[test]
fn points_of_a_grid_have_the_values_of_the_grid() {
    let size = [5, 9, 11];
    for (controls, origin, beyond) in [
        ([5, 6, 7], [-2.5, -2.0, -3.0], Beyond::Fade),
        ([4, 5, 4], [1.0, 2.0, -3.0], Beyond::Fade),
        ([4, 5, 4], [1.0, 2.0, -3.0], Beyond::Cut),
        ([1, 5, 2], [1.0, 2.0, -3.0], Beyond::Fade),
    ] {
        let grid = ControlGrid { spacing_voxels: [2.5, 2.0, 3.0], origin_voxels: origin, beyond };
        let ([d, h, w], [depth, height, width]) = (controls, size);
        let phi = tensor(&normal(3 * d * h * w, 1), [1, 3, d, h, w], &Device::flex(), DType::F64);
        let voxels = depth * height * width;
        let index = |element: usize| {
            let (axis, voxel) = (element / voxels, element % voxels);
            let at = [voxel % width, voxel / width % height, voxel / width / height][axis];
            (at as f64 - grid.origin_voxels[axis]) / grid.spacing_voxels[axis]
        };
        let indices: Vec<f64> = (0..3 * voxels).map(index).collect();
        let shape = [1, 3, depth, height, width];
        let indices: Tensor<5> = tensor(&indices, shape, &Device::flex(), DType::F64);
        let expected = to_f64(bspline(phi.clone(), &grid, size));
        let actual = to_f64(bspline_at(phi, indices, beyond));
        assert_close(&format!("{controls:?} {beyond:?}"), &actual, &expected, F64_ROUNDING);
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for controls in [[5, 6, 7], [1, 4, 10], [2, 3, 1]] {
            for beyond in [Beyond::Fade, Beyond::Cut] {
                let [d, h, w] = controls;
                let phi = normal(2 * 3 * d * h * w, 2);
                let at = uniform(2 * 3 * 300, -4.0, 12.0, 3);
                let run = |device: &Device, dtype| {
                    let phi = tensor::<5>(&phi, [2, 3, d, h, w], device, dtype);
                    to_f64(bspline_at(phi, tensor(&at, [2, 3, 3, 10, 10], device, dtype), beyond))
                };
                let expected = run(&Device::flex(), DType::F64);
                let label = format!("{name} {controls:?} {beyond:?}");
                assert_close(&label, &run(&device, DType::F32), &expected, GPU);
            }
        }
    }
}
