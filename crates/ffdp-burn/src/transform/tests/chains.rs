//! Chains of steps against a plain evaluation in f64, point by point.

use burn::tensor::Device;

use super::{F32_ROUNDING, flipped, grid, grids, ramp, rotated, wide};
use crate::ops::Interpolation;
use crate::transform::{Composite, Displacement, Step};
use ffdp_image::image::{Affine, Geometry, LabelMap, Physical, Volume};
use ffdp_kit::testing::{assert_close, normal, to_f64};

/// Coordinates of some tens of voxels in f32, through fields that change by about a voxel per voxel.
const CHAIN_ROUNDING_VOXELS: f64 = 2e-5;

/// Sums of a few numbers of some tens in f64.
const F64_ROUNDING_MM: f64 = 1e-10;

/// A map that turns, stretches and shears about a point near the grids.
fn affine(seed: u64) -> Affine<Physical, Physical> {
    let r = normal(12, seed);
    let row = |i: usize| {
        let unit = |j: usize| f64::from(u8::from(i == j));
        [unit(0) + 0.1 * r[i], unit(1) + 0.1 * r[3 + i], unit(2) + 0.1 * r[6 + i], 2.0 * r[9 + i]]
    };
    Affine::from_rows([row(0), row(1), row(2)])
}

fn noise(geometry: &Geometry, seed: u64) -> Displacement {
    let values = normal(3 * geometry.len(), seed).into_iter().map(|v| 0.5 * v as f32).collect();
    Displacement::from_vec(values, geometry.clone(), &Device::flex()).expect("fits")
}

/// `x + u(x)` in mm: trilinear, the index clamped to the grid.
fn displaced(step: &Displacement, x: [f64; 3]) -> [f64; 3] {
    let grid = step.geometry();
    let values = step.to_vec().expect("readable");
    let index = grid.mm_to_voxel().apply(x);
    let mut u = [0.0; 3];
    for corner in 0..8 {
        let (mut weight, mut offset, mut stride) = (1.0, 0, 1);
        for (axis, &index) in index.iter().enumerate() {
            let last = grid.size[axis] as f64 - 1.0;
            let position = index.clamp(0.0, last);
            let upper = corner >> axis & 1 == 1;
            let part = position - position.floor();
            weight *= if upper { part } else { 1.0 - part };
            let voxel = (position.floor() + f64::from(u8::from(upper))).min(last);
            offset += voxel as usize * stride;
            stride *= grid.size[axis];
        }
        (0..3).for_each(|c| u[c] += weight * f64::from(values[c * grid.len() + offset]));
    }
    let mm = grid.voxel_to_mm().apply_vector(u);
    std::array::from_fn(|c| x[c] + mm[c])
}

fn plain(steps: &[Step], x: [f64; 3]) -> [f64; 3] {
    steps.iter().fold(x, |x, step| match step {
        Step::Affine(affine) => affine.apply(x),
        Step::Displacement(step) => displaced(step, x),
        Step::Inverse(_) | Step::Bspline(_) | Step::InverseBspline(_) | Step::Map(_) => {
            unreachable!("has tests of its own")
        }
    })
}

/// Chains of both kinds of steps, on oblique anisotropic grids.
fn chains() -> Vec<Vec<Step>> {
    let (outer, inner) = grids();
    let tilted = grid([12, 11, 9], [2.1, 1.3, 1.7], [-12.0, -9.0, -4.0], rotated(-35.0));
    let [a, b] = [1, 2].map(|seed| Step::Affine(affine(seed)));
    let [u, v, w] = [(&outer, 3), (&inner, 4), (&tilted, 5)]
        .map(|(grid, seed)| Step::Displacement(noise(grid, seed)));
    vec![
        vec![],
        vec![a.clone()],
        vec![u.clone()],
        vec![u.clone(), a.clone()],
        vec![a.clone(), u.clone()],
        vec![a, u, v, b, w],
    ]
}

fn voxels_mm(grid: &Geometry) -> Vec<[f64; 3]> {
    let to_mm = grid.voxel_to_mm();
    (0..grid.len()).map(|offset| to_mm.apply(grid.index_of(offset).map(|i| i as f64))).collect()
}

#[test]
fn points_go_where_a_plain_evaluation_sends_them() {
    let (outer, inner) = grids();
    for (number, steps) in chains().into_iter().enumerate() {
        // Also points far outside, where fields go on with their border values.
        let points: Vec<[f64; 3]> = voxels_mm(&inner)
            .into_iter()
            .chain(voxels_mm(&outer).into_iter().step_by(97))
            .collect();
        let mapped = Composite::new(steps.clone()).map_points(&points).expect("readable");
        for (point, mapped) in points.iter().zip(mapped) {
            let expected = plain(&steps, *point);
            let error = (0..3).map(|c| (mapped[c] - expected[c]).abs()).fold(0.0, f64::max);
            assert!(error < F64_ROUNDING_MM, "chain {number}, {point:?}: {mapped:?} {expected:?}");
        }
    }
    assert_eq!(Composite::default().map_points(&[]).expect("nothing"), [[0.0; 3]; 0]);
}

#[test]
fn one_displacement_says_the_same_as_the_chain() {
    let device = Device::flex();
    let (outer, inner) = grids();
    for (number, steps) in chains().into_iter().enumerate() {
        for grid in [&outer, &inner] {
            let whole = Composite::new(steps.clone()).to_displacement(grid, &device);
            let u = to_f64(whole.field().clone());
            let to_voxel = grid.mm_to_voxel();
            for (offset, x) in voxels_mm(grid).into_iter().enumerate() {
                let there = to_voxel.apply(plain(&steps, x));
                for c in 0..3 {
                    let expected = there[c] - grid.index_of(offset)[c] as f64;
                    let got = u[c * grid.len() + offset];
                    assert!(
                        (got - expected).abs() < CHAIN_ROUNDING_VOXELS,
                        "chain {number}, voxel {offset}, component {c}: {got} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn images_are_sampled_once_at_the_end_of_the_chain() {
    let device = Device::flex();
    let (outer, inner) = grids();
    // Large enough that no chain leaves it.
    let around = grid([40, 40, 40], [3.0, 3.5, 3.0], [-70.0, -60.0, -60.0], rotated(20.0));
    let image = ramp(&around);
    for (number, steps) in chains().into_iter().enumerate() {
        let composite = Composite::new(steps.clone());
        let warped = composite.warp(&image, &inner, &device).expect("readable");
        let expected: Vec<f64> = voxels_mm(&inner)
            .into_iter()
            .map(|x| {
                let [x, y, z] = plain(&steps, x);
                5.0 + 0.7 * x - 0.4 * y + 0.9 * z
            })
            .collect();
        assert_close(&format!("chain {number}"), &wide(&warped.data), &expected, F32_ROUNDING);
    }
    // Several images at once, and the storage order of the image, change nothing.
    let composite = Composite::new(chains().pop().expect("several"));
    let map = composite.on_grid(&outer, &device);
    let one = map.warp(&image, Interpolation::Linear).expect("readable");
    let other = map.warp(&flipped(&image), Interpolation::Linear).expect("readable");
    assert_close("flipped", &wide(&one.data), &wide(&other.data), F32_ROUNDING);
    assert_eq!(one, composite.warp(&image, &outer, &device).expect("readable"));
}

#[test]
fn labels_go_through_chains_whole() {
    let device = Device::flex();
    let geometry = grid([6, 5, 4], [2.0, 1.0, 1.0], [5.0, 0.0, 0.0], rotated(0.0));
    let labels = LabelMap::new((1..=120).collect(), geometry.clone()).expect("fits");
    let shift = |x, y, z| {
        let rows = [[1.0, 0.0, 0.0, x], [0.0, 1.0, 0.0, y], [0.0, 0.0, 1.0, z]];
        Composite::new(vec![Step::Affine(Affine::from_rows(rows))])
    };
    let chain = shift(4.0, 1.0, 0.0).then(shift(-2.0, 1.0, 1.0));
    for how in [Interpolation::Nearest, Interpolation::Label] {
        let warped = chain.warp_labels(&labels, &geometry, how, &device).expect("readable");
        let at = |x: usize, y: usize, z: usize| labels.data[(z * 5 + y) * 6 + x];
        assert_eq!(warped.data[0], at(1, 2, 1), "{how:?}");
        assert_eq!(warped.data[5], 0, "{how:?}: outside");
    }
}

#[test]
fn affine_chains_are_one_matrix() {
    let [a, b] = [1, 2].map(affine);
    let chain = Composite::new(vec![Step::Affine(a), Step::Affine(b)]);
    assert_eq!(chain.as_affine(), Some(a.then(&b)));
    assert_eq!(Composite::default().as_affine(), Some(Affine::identity()));
    let (_, inner) = grids();
    let mixed = chain.then(Composite::new(vec![Step::Displacement(noise(&inner, 1))]));
    assert_eq!(mixed.as_affine(), None);
}

#[test]
fn a_grid_of_another_size_at_the_same_place_is_another_grid() {
    // Same voxel-to-mm map, fewer voxels: the field must be sampled, not taken as it is.
    let whole = grid([6, 5, 4], [1.0; 3], [0.0; 3], rotated(0.0));
    let part = whole.cropped([0; 3], [4, 4, 3]).expect("inside");
    let image = Volume::new(normal(120, 8).iter().map(|&v| v as f32).collect(), whole.clone());
    let image = image.expect("fits");
    let composite = Composite::new(vec![Step::Displacement(noise(&whole, 7))]);
    let device = Device::flex();
    let all = composite.warp(&image, &whole, &device).expect("readable");
    let few = composite.warp(&image, &part, &device).expect("readable");
    for offset in 0..part.len() {
        let [x, y, z] = part.index_of(offset);
        assert_eq!(few.data[offset], all.data[(z * 5 + y) * 6 + x]);
    }
}
