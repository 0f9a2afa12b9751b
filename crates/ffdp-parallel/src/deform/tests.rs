//! What is kept between two readings of bounds. Results: `tests/deform.rs` of the crate.

use burn::tensor::{DType, Device};

use super::*;
use crate::layout::{Axis, Layout};
use crate::ring::DisplacementBounds;
use ffdp_burn::ops::{DeformState, Measure, Moments, deform};
use ffdp_image::synth::{PhantomSettings, pair};
use ffdp_kit::testing::{assert_close, gpu_devices, tensor, to_f64};

/// Bounds are read again in the first iteration after as many as they were good for.
const ITERATIONS: usize = KEPT_BOUNDS_INTERVAL + 2;
/// The same operations in another order over so many iterations: f64, and f32 (the bound on a field, voxels).
const ROUNDING: [(DType, f64); 2] = [(DType::F64, 1e-8), (DType::F32, 1e-3)];

#[test]
fn the_moving_image_is_released_and_cut_out_of_what_is_kept() {
    let cpu = Device::flex();
    // Over two devices, one of which may be the CPU, and on one.
    let mixed = gpu_devices().into_iter().map(|(_, gpu)| vec![gpu, Device::flex()]);
    for devices in std::iter::once(vec![cpu.clone()]).chain(mixed) {
        let (dtype, tolerance) = ROUNDING[devices.len() - 1];
        let pair = pair(&PhantomSettings::with_size([12, 11, 19]), 5).unwrap();
        let image = |volume: &ffdp_image::image::Volume| volume.to_tensor(&cpu).cast(dtype);
        let (fixed, moving) = (image(&pair.fixed.image), image(&pair.moving.image));
        let identity = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        let affine: Tensor<3> = tensor(&identity, [1, 3, 4], &cpu, dtype);
        let still = Tensor::<5>::zeros([1, 3, 19, 11, 12], (&cpu, dtype));
        let options = DeformOptions::greedy(Measure::SquaredDifference);

        let whole = DeformImages {
            fixed: fixed.clone(),
            moving: moving.clone(),
            affine: affine.clone(),
            masks: [None, None],
        };
        let state = DeformState { field: still.clone(), moments: Moments::default() };
        let expected = to_f64(deform(&whole, vec![state], &options, ITERATIONS).1.remove(0).field);

        let layout = Layout::balanced([19, 11, 12], Axis::Z, devices.len()).unwrap();
        let mesh = DeviceMesh::new(&devices, devices.len()).unwrap();
        let cut = |tensor: Tensor<5>| Sharded::from_tensor(tensor, &layout, &mesh);
        let images = ShardedImages {
            fixed: cut(fixed),
            moving: cut(moving),
            affine,
            masked: [false; 2],
            landmarks: None,
        };
        let state = ShardedState::new(vec![cut(still)]);
        assert!(expected.iter().any(|u| u.abs() > 0.5), "something moved");
        // What is kept reaches far enough, or is fetched anew.
        for far_enough in [true, false] {
            let by = DeformCriterion { similarity: options.measure.into(), options: &options };
            let run =
                ShardedDeform::in_parts(images.clone(), state.clone(), by, &mesh, Team::ALONE);
            let mut parts = run.unwrap();
            for iteration in 0..ITERATIONS {
                if iteration == KEPT_BOUNDS_INTERVAL && !far_enough {
                    parts.problem.moving.reach = DisplacementBounds::NONE;
                }
                parts.iterate(1).unwrap();
                assert!(parts.problem.moving.is_released(), "samplers keep it on {devices:?}");
            }
            assert_eq!(parts.problem.moving.planned, if far_enough { 1 } else { 2 });
            let found = to_f64(parts.fields.expect(PRESENT)[0].gather(&cpu));
            let label = format!("after {ITERATIONS} iterations on {devices:?}");
            assert_close(&label, &found, &expected, tolerance);
        }
    }
}

#[test]
fn a_velocity_leads_where_a_displacement_does() {
    // A smooth velocity, in f64; its flow; and what is found of it, whole and in shards.
    let size = [14, 16, 15];
    let wave = |z: usize, y: usize, x: usize, c: usize| {
        let at = [x as f64 / 14.0, y as f64 / 15.0, z as f64 / 13.0];
        let bump: f64 = at.iter().map(|t| (std::f64::consts::PI * t).sin()).product();
        1.5 * bump * [1.0, -0.7, 0.4][c]
    };
    let mut values = Vec::new();
    for c in 0..3 {
        for z in 0..size[0] {
            for y in 0..size[1] {
                values.extend((0..size[2]).map(|x| wave(z, y, x, c)));
            }
        }
    }
    let device = burn::tensor::Device::flex();
    let dtype = burn::tensor::DType::F64;
    let [d, h, w] = size;
    let v = ffdp_kit::testing::tensor::<5>(&values, [1, 3, d, h, w], &device, dtype);
    let accumulation = ffdp_burn::ops::Accumulation::Fast;
    let by = ExpOptions { squarings: 6, accumulation };
    let found = [1, 3].map(|shards| {
        let layout = crate::Layout::balanced(size, crate::Axis::Z, shards).unwrap();
        let mesh = crate::DeviceMesh::new(std::slice::from_ref(&device), shards).unwrap();
        let v = Sharded::from_tensor(v.clone(), &layout, &mesh);
        let [w, _] = flow_of_velocity(&v, by, &mesh, &Holders::ALONE).unwrap();
        let (found, rest) = velocity(&w, by, &mesh, &Holders::ALONE).unwrap();
        println!("{shards} shards: {rest:.1e} voxel are left");
        assert!(rest <= 0.01, "{rest}");
        ffdp_kit::testing::to_f64(found.gather(&device))
    });
    let off =
        |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    // The rest, and linear interpolation of a bend of 1.5 pi^2 / 14^2 voxels a voxel^2.
    assert!(off(&found[0], &values) <= 0.05, "{}", off(&found[0], &values));
    assert!(off(&found[0], &found[1]) <= 1e-9);
}

/// The same sums in f64 in another order; f32 samples, votes and pieces, relative to the largest entry.
const DIRECT: [(DType, f64); 2] = [(DType::F64, 1e-9), (DType::F32, 1e-3)];

#[test]
fn information_of_splines_needs_no_dense_field() {
    use super::compare::Comparison;
    use super::direct::DirectPair;
    use ffdp_burn::losses::{MutualInformation, NormalizedMutualInformation, SimilarityLoss};
    use ffdp_burn::ops::{ControlGrid, DeformOptions, Penalties};
    use ffdp_kit::testing::normal;
    use ffdp_optim::Objective;

    let devices = gpu_devices().into_iter().map(|(_, gpu)| (gpu, DIRECT[1]));
    for (device, (dtype, tolerance)) in std::iter::once((Device::flex(), DIRECT[0])).chain(devices)
    {
        let pair = pair(&PhantomSettings::with_size([22, 21, 25]), 7).unwrap();
        let layout = Layout::balanced([25, 21, 22], Axis::Z, 1).unwrap();
        let mesh = DeviceMesh::new(std::slice::from_ref(&device), 1).unwrap();
        let image = |volume: &ffdp_image::image::Volume| {
            Sharded::from_tensor(volume.to_tensor(&device).cast(dtype), &layout, &mesh)
        };
        let map = [0.98, 0.02, 0.0, 0.3, -0.01, 1.03, 0.0, -0.2, 0.0, 0.01, 0.99, 0.1];
        let affine: Tensor<3> = tensor(&map, [1, 3, 4], &device, dtype);
        let images = ShardedImages {
            fixed: image(&pair.fixed.image),
            moving: image(&pair.moving.image),
            affine,
            masked: [false; 2],
            landmarks: None,
        };
        let (control, [d, h, w]) = ControlGrid::covering([25, 21, 22], [6.0, 5.0, 4.0]);
        let random = |seed| {
            let values: Vec<f64> = normal(3 * d * h * w, seed).iter().map(|v| 0.6 * v).collect();
            tensor(&values, [1, 3, d, h, w], &device, dtype)
        };
        let still = Sharded::from_tensor(
            Tensor::zeros([1, 3, 25, 21, 22], (&device, dtype)),
            &layout,
            &mesh,
        );
        let options = DeformOptions {
            penalties: Penalties::default(),
            displacement_scale: [[1.1, 0.0, 0.1], [0.0, 0.9, 0.0], [0.0, 0.1, 1.0]],
            ..DeformOptions::greedy(Measure::SquaredDifference)
        };
        let similarities: [std::sync::Arc<dyn SimilarityLoss>; 2] = [
            std::sync::Arc::new(MutualInformation::default()),
            std::sync::Arc::new(NormalizedMutualInformation::default()),
        ];
        for similarity in similarities {
            let penalties = SplinePenalties { bending: 0.3, volume: 0.05 };
            let model = SplineModel::new(
                &still,
                None,
                ControlPoints {
                    coefficients: random(1),
                    grid: control,
                    voxel_mm: [1.0, 2.0, 1.5],
                    penalties,
                },
                &mesh,
                &Holders::ALONE,
            );
            let (at, along) = (model.rest(), Coefficients(random(2)));
            let by = DeformCriterion { similarity: similarity.clone(), options: &options };
            let fields = ShardedObjective::in_team(images.clone(), model, by, &mesh, Team::ALONE);
            let mut objective = fields.unwrap().by_fields();
            let (expected, slope) = objective.evaluate_along(&at, &along).unwrap();
            let comparison = Comparison { similarity, masked: [false; 2] };
            objective.direct = DirectPair::anywhere(&images, &comparison, &options, &mesh, None);
            assert!(objective.direct.is_some());
            let (found, slope_found) = objective.evaluate_along(&at, &along).unwrap();
            let alone = objective.evaluate(&at).unwrap();
            let label = format!("{device:?}");
            assert!((found.loss - expected.loss).abs() < tolerance, "{label}");
            assert_eq!(alone.loss, found.loss);
            assert!((slope_found - slope).abs() < tolerance * slope.abs().max(1e-2), "{label}");
            let [found, expected] = [found, expected].map(|point| to_f64(point.gradient.0));
            let error = assert_close(&label, &found, &expected, tolerance);
            println!("{label}: gradient {error:.1e}");
        }
    }
}
