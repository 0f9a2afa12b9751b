use std::ops::ControlFlow;

use burn::tensor::{DType, Device, Tensor};
use ffdp_image::image::Affine;
use ffdp_kit::testing::{normal, tensor, to_f64};

use super::*;
use crate::attachment::Attachment;
use crate::shape::{Cells, Shape, norm, self_intersections, spacing, sub, surface_distance};
use crate::tensors::number;
use crate::{Decay, Kernel};

fn state(count: usize, seed: u64) -> [Tensor<2>; 2] {
    let device = Device::flex();
    [0, 1].map(|k| tensor(&normal(3 * count, seed + k), [count, 3], &device, DType::F64))
}

fn hamiltonian(metric: Metric) -> Hamiltonian {
    Hamiltonian { kernel: Kernel::gaussian(0.8), metric }
}

const METRICS: [Metric; 2] = [Metric::Classical, Metric::Normalised];

/// Each metric with each kernel.
fn hamiltonians() -> impl Iterator<Item = Hamiltonian> {
    [Decay::Gaussian, Decay::Cauchy].into_iter().flat_map(|decay| {
        let kernel = Kernel::sum_of(decay, &[0.8]);
        METRICS.map(|metric| Hamiltonian { kernel: kernel.clone(), metric })
    })
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}

#[test]
fn motion_is_the_gradient_of_the_energy() {
    for h in hamiltonians() {
        let [q, p] = state(9, 1);
        let (_, slopes) = h.motion(&q, &p);
        let [velocity, force] = slopes.map(to_f64);
        let values = [to_f64(q), to_f64(p)];
        let energy = |values: &[Vec<f64>; 2]| {
            let device = Device::flex();
            let [q, p] = [0, 1].map(|k| tensor::<2>(&values[k], [9, 3], &device, DType::F64));
            number(h.energy(&q, &p)).unwrap()
        };
        let slope = |which: usize, i: usize| {
            let shifted = |by: f64| {
                let mut values = values.clone();
                values[which][i] += by;
                energy(&values)
            };
            (shifted(1e-5) - shifted(-1e-5)) / 2e-5
        };
        // Twenty iterations leave 1e-6 of the normalisation at worst.
        let tolerance = if h.metric == Metric::Classical { 1e-8 } else { 1e-5 };
        for i in 0..27 {
            let errors = [slope(1, i) - velocity[i], slope(0, i) + force[i]];
            assert!(largest(&errors) < tolerance, "{h:?} {i}: {errors:?}");
        }
    }
}

#[test]
fn momentum_is_conserved_and_energy_to_the_order_of_the_scheme() {
    for h in hamiltonians() {
        let [q, p] = state(20, 3);
        let p = p * 0.3;
        let path = Path::shoot(&h, [q.clone(), p.clone()], Scheme::Rk4, 10, 1.0);
        let total = |p: &Tensor<2>| to_f64(p.clone().sum_dim(0));
        let [_, end] = path.end();
        let change: Vec<f64> = total(end).iter().zip(total(&p)).map(|(a, b)| a - b).collect();
        assert!(largest(&change) < 1e-13, "{h:?}: {change:?}");
        let energy = |[q, p]: &[Tensor<2>; 2]| number(h.energy(q, p)).unwrap();
        let [before, after] = [energy(&[q, p]), energy(path.end())];
        assert!((after / before - 1.0).abs() < 1e-4, "{h:?}: {before} {after}");
    }
}

#[test]
fn schemes_have_their_order() {
    for (scheme, order) in [(Scheme::Rk2, 1.9), (Scheme::Rk4, 3.8)] {
        let [q, p] = state(8, 5);
        let h = hamiltonian(Metric::Classical);
        let end = |steps: usize| {
            let path = Path::shoot(&h, [q.clone(), p.clone() * 0.5], scheme, steps, 1.0);
            to_f64(path.end()[0].clone())
        };
        let exact = end(320);
        let error = |steps: usize| {
            largest(&end(steps).iter().zip(&exact).map(|(a, b)| a - b).collect::<Vec<_>>())
        };
        let [coarse, fine] = [error(10), error(20)];
        let measured = (coarse / fine).log2();
        assert!(measured > order, "{scheme:?}: {coarse} {fine}, order {measured}");
    }
}

#[test]
fn a_carried_point_follows_the_landmark_at_its_place() {
    for metric in METRICS {
        let [q, p] = state(15, 7);
        let path = Path::shoot(&hamiltonian(metric), [q.clone(), p * 0.4], Scheme::Rk4, 8, 1.0);
        let carried = path.carry(q);
        for (carried, [q, _]) in carried.iter().zip(&path.states) {
            let apart = largest(&to_f64(carried.clone() - q.clone()));
            // Normalised: the weights are those of the last but one iteration.
            let tolerance = if metric == Metric::Classical { 1e-14 } else { 1e-5 };
            assert!(apart <= tolerance, "{metric:?}: {apart}");
        }
    }
}

#[test]
fn rows_of_normalised_kernels_sum_to_one() {
    for (count, spread) in [(100, 0.3), (300, 1.0), (50, 5.0)] {
        let [q, _] = state(count, 9);
        let (q, h) = (q * spread, hamiltonian(Metric::Normalised));
        let l = h.weights(&q);
        let sums = to_f64(l.clone() * crate::kernel_product(&h.kernel, q.clone(), q, l));
        let error = largest(&sums.iter().map(|s| s - 1.0).collect::<Vec<_>>());
        assert!(error < 1e-6, "{count} {spread}: {error}");
    }
}

/// Equations 57 to 70 of the paper: what it costs to move a cluster of n points, all at distance d, by one.
#[test]
fn clusters_move_like_one_point_or_like_all_of_theirs() {
    let device = Device::flex();
    for n in [2_usize, 3, 4] {
        for d in [0.1, 0.8, 2.0] {
            // Corners of a regular simplex with edges d.
            let corner = |i: usize| -> Vec<f64> {
                let table =
                    [[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]];
                table[i].iter().map(|v| v * d / 8f64.sqrt()).collect()
            };
            let points: Vec<f64> = (0..n).flat_map(corner).collect();
            let q = tensor::<2>(&points, [n, 3], &device, DType::F64);
            let a = (-d * d / (2.0 * 0.64)).exp();
            for metric in METRICS {
                let h = hamiltonian(metric);
                // v = K p is 1 along x for all of them: by symmetry, p is the same for all of them.
                let one = Tensor::cat(
                    vec![
                        Tensor::ones([n, 1], (&device, DType::F64)),
                        Tensor::zeros([n, 2], (&device, DType::F64)),
                    ],
                    1,
                );
                let v = to_f64(h.motion(&q, &one).1[0].clone())[0];
                let p = one / v;
                let cost = 2.0 * number(h.energy(&q, &p)).unwrap();
                let expected = match metric {
                    Metric::Classical => n as f64 / (1.0 + (n as f64 - 1.0) * a),
                    Metric::Normalised => n as f64,
                };
                assert!(
                    (cost / expected - 1.0).abs() < 1e-6,
                    "{metric:?} {n} {d}: {cost} {expected}"
                );
            }
        }
    }
}

fn settings(attachment: Attachment) -> LddmmSettings {
    LddmmSettings {
        sigmas_mm: vec![4.0, 2.0],
        attachment,
        control_spacing_mm: 2.0,
        iterations: 40,
        fidelity: 1000.0,
        ..LddmmSettings::default()
    }
}

/// An ellipsoid with a dent.
fn bent(shape: &Shape) -> Shape {
    let bend = |p: &[f64; 3]| [p[0] * 1.2 + 1.0, p[1] * 0.9, p[2] + 0.06 * p[0] * p[0]];
    shape.with_points(shape.points.iter().map(bend).collect()).unwrap()
}

fn watch(costs: &mut Vec<f64>) -> impl FnMut(&Iteration) -> ControlFlow<()> + '_ {
    |iteration| {
        costs.push(iteration.cost);
        ControlFlow::Continue(())
    }
}

#[test]
fn surfaces_are_matched_and_their_flow_carries_space_without_folds() {
    let device = Device::flex();
    let source = Shape::sphere(5.0, 2);
    let target = bent(&Shape::sphere(5.0, 3));
    let sigmas_mm = vec![2.5, 1.2];
    for attachment in [
        Attachment::Currents { sigmas_mm: sigmas_mm.clone() },
        Attachment::Varifolds { sigmas_mm, oriented: true },
        Attachment::Transport(crate::sinkhorn::SinkhornSettings {
            blur: 0.3,
            ..Default::default()
        }),
    ] {
        let mut seen = Vec::new();
        let settings = settings(attachment);
        let place = (&device, DType::F32);
        let found = match_shapes([&source, &target], &settings, place, None, &mut watch(&mut seen))
            .unwrap();
        assert_eq!(seen.len(), found.costs.len() - 1);
        assert!(found.costs.is_sorted_by(|a, b| a >= b), "{:?}", found.costs);
        let [before, after] = [&source, &found.shape].map(|s| surface_distance(s, &target));
        // Edges of the coarser sphere measure 1.5 mm, and bulge by 0.06 mm.
        assert!(before.mean > 0.4 && after.mean < 0.15, "{before:?} {after:?}");
        assert_eq!(self_intersections(&found.shape), 0);
        // The flow alone does the same with the same points, and back.
        let there = found.flow.map_points(&source.points).unwrap();
        let apart = there.iter().zip(&found.shape.points).map(|(&a, &b)| norm(sub(a, b)));
        assert!(apart.fold(0.0, f64::max) < 1e-3);
        let back = found.flow.map_points_back(&there).unwrap();
        let apart = back.iter().zip(&source.points).map(|(&a, &b)| norm(sub(a, b)));
        // Six steps of second order, one way and the other.
        assert!(apart.fold(0.0, f64::max) < 0.05);
        let saved = found.flow.saved().clone();
        assert_eq!(Flow::from_saved(saved).unwrap(), found.flow);
    }
}

#[test]
fn landmarks_are_matched_in_both_metrics_by_both_kernels() {
    let device = Device::flex();
    let source = Shape::cloud(Shape::sphere(5.0, 1).points).unwrap();
    let target = bent(&source);
    for Hamiltonian { kernel, metric } in hamiltonians() {
        let cauchy =
            matches!(&kernel, Kernel::Sum(parts) if matches!(parts[0].1, Kernel::Cauchy { .. }));
        let decay = if cauchy { Decay::Cauchy } else { Decay::Gaussian };
        let settings = LddmmSettings {
            metric,
            decay,
            control_spacing_mm: 0.0,
            iterations: 25,
            ..settings(Attachment::Landmarks)
        };
        let place = (&device, DType::F64);
        let none = &mut |_: &Iteration| ControlFlow::Continue(());
        let found = match_shapes([&source, &target], &settings, place, None, none).unwrap();
        assert!(
            found.attachment[1] < 1e-2 * found.attachment[0],
            "{metric:?} {:?}",
            found.attachment
        );
        // Going on from what was found gains nothing any more.
        let start = Some(found.flow.saved().momenta.clone());
        let again = match_shapes([&source, &target], &settings, place, start, none).unwrap();
        assert!(again.costs[0] < 1.001 * found.costs.last().unwrap(), "{metric:?}");
        let fewer = Some(found.flow.saved().momenta[1..].to_vec());
        let refused = match_shapes([&source, &target], &settings, place, fewer, none).unwrap_err();
        assert!(refused.to_string().contains("momenta to go on from"), "{refused}");
    }
}

#[test]
fn a_geodesic_passes_the_shapes_of_a_series() {
    let device = Device::flex();
    let baseline = Shape::sphere(5.0, 1);
    let shifted = |x: f64| {
        let id = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        baseline.transformed(&Affine::from_parts(id, [x, 0.0, 0.0]))
    };
    let series = [(1.5, shifted(0.7)), (3.0, shifted(1.4))];
    let settings = settings(Attachment::Landmarks);
    let none = &mut |_: &Iteration| ControlFlow::Continue(());
    let found = regression(&baseline, &series, &settings, (&device, DType::F64), none).unwrap();
    for (shape, (_, goal)) in found.shapes.iter().zip(&series) {
        assert!(surface_distance(shape, goal).max < 0.1);
    }
    assert!(regression(&baseline, &[], &settings, (&device, DType::F64), none).is_err());
}

#[test]
fn the_mean_of_two_spheres_lies_between_them() {
    let device = Device::flex();
    let members = [4.0, 6.0].map(|radius| Shape::sphere(radius, 1));
    let settings = settings(Attachment::Landmarks);
    let none = &mut |_: &Iteration| ControlFlow::Continue(());
    let place = (&device, DType::F64);
    let found = atlas(&members[0], &members, &settings, place, none).unwrap();
    let radii: Vec<f64> = found.template.points.iter().map(|&p| norm(p)).collect();
    let mean = radii.iter().sum::<f64>() / radii.len() as f64;
    assert!((mean - 5.0).abs() < 0.35, "{mean}");
    for (shape, member) in found.shapes.iter().zip(&members) {
        assert!(surface_distance(shape, member).mean < 0.15);
    }
    assert!(atlas(&members[0], &members[..1], &settings, place, none).is_err());
}

/// A flow with its linear start against the same shapes moved by hand.
#[test]
fn a_linear_start_is_that_of_shapes_that_were_moved_first() {
    let (s, c) = 0.8f64.sin_cos();
    let away = Affine::from_parts([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], [12.0, -7.0, 3.0]);
    let surface = Shape::sphere(5.0, 2);
    let cloud = Shape::cloud(Shape::sphere(5.0, 1).points).unwrap();
    let varifolds = Attachment::Varifolds { sigmas_mm: vec![2.5, 1.2], oriented: true };
    let none = &mut |_: &Iteration| ControlFlow::Continue(());
    let device = Device::flex();
    let place = (&device, DType::F64);
    for (base, attachment) in [(surface, varifolds), (cloud, Attachment::Landmarks)] {
        let (source, target) = (bent(&base).transformed(&away), bent(&bent(&base)));
        let plain = LddmmSettings { iterations: 5, ..settings(attachment.clone()) };
        let settings = LddmmSettings { start: LinearStart::Rigid, ..plain.clone() };
        let found = match_shapes([&source, &target], &settings, place, None, none).unwrap();
        let start = match attachment {
            Attachment::Landmarks => settings.start.of_pairs(&source.points, &target.points),
            _ => settings.start.of_moments(&source, &target),
        };
        let start = start.unwrap();
        assert_eq!(found.flow.saved().start, Some(*start.rows()));
        assert_eq!(settings.start_map(&source, &target).unwrap(), Some(start));
        let moved = source.transformed(&start);
        let by_hand = match_shapes([&moved, &target], &plain, place, None, none).unwrap();
        assert_eq!(found.shape, by_hand.shape);
        assert_eq!(found.flow.saved().momenta, by_hand.flow.saved().momenta);
        assert_eq!(found.flow, by_hand.flow.clone().after(&start).unwrap());
        assert!(found.costs.last() < found.costs.first(), "{:?}", found.costs);
        // Without the start the shapes are farther apart than the deformation reaches.
        let [with, without] = [&moved, &source].map(|s| surface_distance(s, &target).mean);
        assert!(with < 0.2 * without, "{with} {without}");

        // The map has it: points, tensors, files, and the way back.
        let there = found.flow.map_points(&source.points).unwrap();
        assert_eq!(there, by_hand.flow.map_points(&moved.points).unwrap());
        let again = Flow::from_saved(found.flow.saved().clone()).unwrap();
        let back = again.map_points_back(&there).unwrap();
        let expected = by_hand.flow.map_points_back(&there).unwrap();
        let inverse = start.inverse().unwrap();
        assert_eq!(back, expected.iter().map(|&p| inverse.apply(p)).collect::<Vec<_>>());
        for (direction, from, to) in
            [(Direction::Forward, &source.points, &there), (Direction::Back, &there, &back)]
        {
            let points = crate::tensors::to_tensor(from, place);
            let mapped = to_f64(again.as_map(direction).map(points));
            let apart: Vec<f64> =
                mapped.iter().zip(to.as_flattened()).map(|(a, b)| a - b).collect();
            // Rounding of f64, of coordinates of 20 mm.
            assert!(largest(&apart) < 1e-12, "{direction:?}: {}", largest(&apart));
        }
    }
    let start = LddmmSettings { start: LinearStart::Rigid, ..settings(Attachment::Landmarks) };
    let ball = Shape::sphere(5.0, 1);
    let refused = atlas(&ball, &[ball.clone(), ball.clone()], &start, place, none).unwrap_err();
    assert!(refused.to_string().contains("start = Rigid"), "{refused}");
}

#[test]
fn damaged_flows_and_settings_are_refused() {
    let saved = SavedFlow {
        sigmas_mm: vec![1.0],
        decay: Decay::Gaussian,
        metric: Metric::Classical,
        scheme: Scheme::Rk2,
        steps: 4,
        start: None,
        control_points_mm: vec![[0.0; 3]],
        momenta: vec![[0.0; 3]],
    };
    assert!(Flow::from_saved(saved.clone()).is_ok());
    for wrong in [
        SavedFlow { sigmas_mm: vec![0.0], ..saved.clone() },
        SavedFlow { steps: 0, ..saved.clone() },
        SavedFlow { momenta: vec![], ..saved.clone() },
        SavedFlow { start: Some([[1.0, 0.0, 0.0, 0.0]; 3]), ..saved.clone() },
        SavedFlow { momenta: vec![[f64::NAN; 3]], ..saved },
    ] {
        assert!(Flow::from_saved(wrong).is_err());
    }
    let refused = LddmmSettings { fidelity: -1.0, ..LddmmSettings::default() }.validate();
    assert!(refused.unwrap_err().to_string().contains("fidelity"));
}

#[test]
fn advised_widths_follow_the_thickness_of_a_long_body() {
    let ball = Shape::sphere(10.0, 3);
    let stretch = [[6.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let long = ball.transformed(&Affine::from_parts(stretch, [0.0; 3]));
    let [of_ball, of_long] = [&ball, &long].map(LddmmSettings::advised);
    assert_eq!(of_ball.sigmas_mm[0], ball.diameter() / 6.0);
    assert_eq!(of_long.sigmas_mm[0], long.thickness().unwrap() / 2.0);
    assert!(of_long.sigmas_mm[0] < long.diameter() / 6.0);
    for advised in [of_ball, of_long] {
        assert_eq!(advised.sigmas_mm[1], advised.sigmas_mm[0] / 2.0);
        assert!(advised.control_spacing_mm < advised.sigmas_mm[1]);
        advised.validate().unwrap();
    }
}

/// A thousand keypoints of a lung guided no better than a hundred.
#[test]
fn dense_landmarks_have_narrower_widths_than_sparse_ones() {
    let [dense, sparse] = [5, 2]
        .map(|subdivisions| Shape { cells: Cells::None, ..Shape::sphere(60.0, subdivisions) });
    let of = |shape: &Shape| LddmmSettings::advised(shape).for_landmarks(shape);
    let four = 4.0 * spacing(&dense.points).median;
    assert_eq!(of(&dense).sigmas_mm, [four, four / 2.0]);
    assert_eq!(of(&sparse).sigmas_mm, LddmmSettings::advised(&sparse).sigmas_mm);
    assert_eq!(of(&dense).control_spacing_mm, 0.0);
}
