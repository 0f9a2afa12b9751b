//! Physical positions and vectors survive every change of grid.

mod bspline;
mod chains;
mod files;
mod inverse;
mod maps;

use burn::tensor::{DType, Device, Tensor};

use super::{Displacement, map_vectors, resample};
use crate::ops::{Interpolation, Padding};
use ffdp_image::error::Error;
use ffdp_image::image::{Geometry, LabelMap, Matrix3, Volume, download, upload};
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64};

/// Rounding of coordinates of some tens of voxels in f32, times intensities that grow by about one
/// per voxel.
const F32_ROUNDING: f64 = 2e-6;

fn rotated(degrees: f64) -> Matrix3 {
    let (s, c) = degrees.to_radians().sin_cos();
    [[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]
}

fn grid(size: [usize; 3], spacing: [f64; 3], origin: [f64; 3], direction: Matrix3) -> Geometry {
    Geometry::new(size, spacing)
        .and_then(|g| g.with_direction(direction))
        .and_then(|g| g.with_origin(origin))
        .expect("valid")
}

/// An oblique anisotropic grid, and one along other axes inside it.
fn grids() -> (Geometry, Geometry) {
    let outer = grid([30, 28, 20], [1.0, 1.2, 2.0], [-20.0, -10.0, -18.0], rotated(10.0));
    let permuted = [[0.0, 0.0, -1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
    let inner = grid([9, 8, 7], [1.1, 1.7, 0.9], [-3.0, 3.0, -5.0], permuted);
    (outer, inner)
}

/// A function that is linear in mm, at the voxels of a grid.
fn ramp(geometry: &Geometry) -> Volume {
    let to_mm = geometry.voxel_to_mm();
    let value = |offset| {
        let [x, y, z] = to_mm.apply(geometry.index_of(offset).map(|i| i as f64));
        (5.0 + 0.7 * x - 0.4 * y + 0.9 * z) as f32
    };
    Volume::new((0..geometry.len()).map(value).collect(), geometry.clone()).expect("sizes match")
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// The same volume stored with its x axis the other way round.
fn flipped(volume: &Volume) -> Volume {
    let g = &volume.geometry;
    let [nx, ..] = g.size;
    let data = volume.data.chunks(nx).flat_map(|row| row.iter().rev().copied()).collect();
    let mut direction = g.direction;
    direction.iter_mut().for_each(|row| row[0] = -row[0]);
    let origin = g.voxel_to_mm().apply([nx as f64 - 1.0, 0.0, 0.0]);
    Volume::new(data, grid(g.size, g.spacing_mm, origin, direction)).expect("same size")
}

#[test]
fn resampling_keeps_every_point_in_space() {
    let (outer, inner) = grids();
    let image = ramp(&outer).to_tensor(&Device::flex());
    let there = resample(image, &outer, &inner, Interpolation::Linear, Padding::Zeros);
    assert_eq!(there.dims()[2..], inner.dims());
    assert_close("ramp", &to_f64(there), &wide(&ramp(&inner).data), F32_ROUNDING);
}

#[test]
fn vectors_are_multiplied_by_the_matrix() {
    let values = normal(3 * 8, 5);
    let field = tensor(&values, [1, 3, 2, 2, 2], &Device::flex(), DType::F64);
    for matrix in [
        [[1.0, 2.0, -3.0], [0.5, 0.0, 0.0], [0.0, -1.0, 0.25]],
        [[0.0; 3], [0.0, 2.0, 0.0], [0.0, 0.0, -1.0]],
    ] {
        let expected: Vec<f64> = (0..24)
            .map(|k| (0..3).map(|j| matrix[k / 8][j] * values[j * 8 + k % 8]).sum())
            .collect();
        let mapped = to_f64(map_vectors(field.clone(), &matrix));
        assert_close(&format!("{matrix:?}"), &mapped, &expected, 1e-14);
    }
}

#[test]
fn a_displacement_is_the_same_motion_in_mm_on_every_grid() {
    let device = Device::flex();
    let (outer, inner) = grids();
    let count = outer.len();
    // Linear in mm, so that linear interpolation is exact.
    let mm: Vec<f64> = (0..3)
        .flat_map(|c| {
            let to_mm = outer.voxel_to_mm();
            let outer = &outer;
            (0..count).map(move |offset| {
                let p = to_mm.apply(outer.index_of(offset).map(|i| i as f64));
                0.5 + 0.03 * p[c] - 0.02 * p[(c + 1) % 3]
            })
        })
        .collect();
    let [d, h, w] = outer.dims();
    let vectors = tensor(&mm, [1, 3, d, h, w], &device, DType::F32);
    let voxels = map_vectors(vectors, &outer.mm_to_voxel().linear());
    let displacement = Displacement::new(voxels, outer.clone()).expect("fits");
    assert_close("round trip", &to_f64(displacement.to_mm()), &mm, F32_ROUNDING);

    let there = to_f64(displacement.resampled(&inner).to_mm());
    let to_mm = inner.voxel_to_mm();
    for offset in 0..inner.len() {
        let p = to_mm.apply(inner.index_of(offset).map(|i| i as f64));
        for c in 0..3 {
            let expected = 0.5 + 0.03 * p[c] - 0.02 * p[(c + 1) % 3];
            let got = there[c * inner.len() + offset];
            assert!(
                (got - expected).abs() < 1e-5,
                "voxel {offset} component {c}: {got} {expected}"
            );
        }
    }
}

#[test]
fn warping_by_whole_voxels_moves_them() {
    let geometry = grid([4, 3, 3], [2.0, 1.0, 1.0], [5.0, 0.0, 0.0], rotated(0.0));
    let image = ramp(&geometry);
    let mut values = vec![0f32; 3 * 36];
    values[..36].fill(1.0);
    let device = Device::flex();
    let displacement = Displacement::from_vec(values, geometry.clone(), &device).expect("fits");
    let warped = displacement.warp(&image).expect("readable");
    for (row, moved) in image.data.chunks(4).zip(warped.data.chunks(4)) {
        assert_eq!(moved, [row[1], row[2], row[3], 0.0]);
    }
    let labels = LabelMap::new((1..=36).collect(), geometry).expect("fits");
    for how in [Interpolation::Nearest, Interpolation::Label] {
        let warped = displacement.warp_labels_with(&labels, how).expect("readable");
        assert_eq!(warped.data[..8], [2, 3, 4, 0, 6, 7, 8, 0], "{how:?}");
    }
}

#[test]
#[should_panic(expected = "a mean of labels is no label")]
fn labels_are_not_averaged() {
    let geometry = grid([2, 2, 2], [1.0; 3], [0.0; 3], rotated(0.0));
    let labels = LabelMap::new((1..=8).collect(), geometry.clone()).expect("fits");
    let identity = Displacement::zero(geometry, &Device::flex());
    let _ = identity.warp_labels_with(&labels, Interpolation::Linear);
}

#[test]
fn storage_order_of_the_moving_image_does_not_matter() {
    let device = Device::flex();
    let (outer, _) = grids();
    let values: Vec<f32> = normal(3 * outer.len(), 3).iter().map(|v| *v as f32).collect();
    let displacement = Displacement::from_vec(values, outer.clone(), &device).expect("fits");
    let noise: Vec<f32> = normal(outer.len(), 4).iter().map(|v| *v as f32).collect();
    let image = Volume::new(noise, outer.clone()).expect("fits");
    let a = displacement.warp(&image).expect("readable");
    let b = displacement.warp(&flipped(&image)).expect("readable");
    // Noise changes by several units within a voxel; coordinates are rounded to 2e-6 voxels.
    assert_close("warped", &wide(&a.data), &wide(&b.data), 1e-5);
}

#[test]
fn translation_between_grids_of_other_spacing_is_exact_in_mm() {
    // Moving voxels are half as large: a displacement of one fixed voxel is two of the moving.
    let fixed = grid([10, 10, 10], [2.0; 3], [0.0; 3], rotated(0.0));
    let moving = grid([40, 40, 40], [1.0; 3], [-5.0; 3], rotated(0.0));
    let [d, h, w] = fixed.dims();
    let field = Tensor::ones([1, 3, d, h, w], (&Device::flex(), DType::F32));
    let warped = Displacement::new(field, fixed.clone())
        .and_then(|displacement| displacement.warp(&ramp(&moving)))
        .expect("readable");
    let shifted = fixed.clone().with_origin([2.0; 3]).expect("valid");
    assert_close("shift", &wide(&warped.data), &wide(&ramp(&shifted).data), F32_ROUNDING);
}

#[test]
fn fields_that_do_not_fit_are_errors_with_both_shapes() {
    let device = Device::flex();
    let geometry = grid([4, 3, 2], [1.0; 3], [0.0; 3], rotated(0.0));
    let error = Displacement::from_vec(vec![0.0; 71], geometry.clone(), &device);
    assert!(matches!(error, Err(Error::Shape { .. })));
    let field = Tensor::zeros([1, 3, 4, 3, 2], (&device, DType::F32));
    let message = Displacement::new(field, geometry).expect_err("z and x swapped").to_string();
    assert!(
        message.contains("[1, 3, 2, 3, 4]") && message.contains("[1, 3, 4, 3, 2]"),
        "{message}"
    );
}

/// More than is sent to a device at once.
#[test]
fn large_images_arrive_on_a_device_as_they_were() {
    let dims = [1, 1, 65, 520, 512];
    let values: Vec<f32> = (0..dims.iter().product()).map(|i: usize| (i % 8191) as f32).collect();
    for (name, device) in gpu_devices() {
        let sent = upload(values.clone(), dims, &device);
        assert_eq!(sent.dims(), dims);
        assert!(download(sent, "an image").expect("readable") == values, "{name}");
    }
}
