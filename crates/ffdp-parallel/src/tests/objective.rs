//! The loss as a function of what an optimiser searches: its gradient, its inner products, and shards of it.

use super::deform::{phantoms, with_masks};
use super::*;
use ffdp_burn::ops::{
    Accumulation, ControlGrid, DeformImages, DeformMethod, DeformOptions, GaussianOptions,
    HistogramOptions, LnccOptions, Measure, Penalties,
};
use ffdp_optim::{Lbfgs, LineSearch, Minimizer, Objective, Point, Space, Steepest, Steps};

const SIZE: [usize; 3] = [9, 12, 10];

fn plain() -> DeformImages {
    phantoms([10, 12, 9], DType::F64)
}

fn with_weights() -> DeformImages {
    let images = plain();
    // Weights between 0 and 1 everywhere: no voxel is on the edge of being counted.
    let mask = |seed| {
        let values = uniform(9 * 12 * 10, 0.2, 1.0, seed);
        Some(tensor(&values, [1, 1, 9, 12, 10], &Device::flex(), DType::F64))
    };
    DeformImages { masks: [mask(5), mask(6)], ..images }
}

fn objective(
    images: &DeformImages,
    measure: Measure,
    method: DeformMethod,
    shards: usize,
) -> ShardedObjective<SmoothSteps> {
    driven(images, (measure, method), shards, None)
}

/// The same, driven by landmarks.
fn driven(
    images: &DeformImages,
    (measure, method): (Measure, DeformMethod),
    shards: usize,
    landmarks: Option<Landmarks>,
) -> ShardedObjective<SmoothSteps> {
    let layout = Layout::balanced(SIZE, Axis::Z, shards).unwrap();
    let fields = method.fields();
    // A start between voxels: linear interpolation has no derivative on them.
    let start = (0..fields).map(|i| {
        let values = uniform(3 * 9 * 12 * 10, 0.2, 0.4, 7);
        let values: Vec<f64> = values.iter().map(|v| if i == 0 { *v } else { -v }).collect();
        split(&tensor(&values, [1, 3, 9, 12, 10], &Device::flex(), DType::F64), &layout)
    });
    let smoothing = GaussianOptions { sigma_voxels: [0.7, 0.9, 0.8], truncate: 3.0 };
    let on = mesh(&layout);
    let (start, scale) = (start.collect(), [1.0, 0.8, 0.5]);
    let model = SmoothSteps::new(start, smoothing, scale, &on, &Team::ALONE.fixed);
    of_model(images, (measure, method), (&layout, landmarks), model)
}

fn of_model<M: FieldModel>(
    images: &DeformImages,
    (measure, method): (Measure, DeformMethod),
    (layout, landmarks): (&Layout, Option<Landmarks>),
    model: M,
) -> ShardedObjective<M> {
    let options = DeformOptions {
        method,
        penalties: Penalties { diffusion: 0.1, bending: 0.05, total_variation: 0.02 },
        ..DeformOptions::greedy(measure)
    };
    let (both, masked) = with_masks(images);
    let images = ShardedImages {
        fixed: split(&both[0], layout),
        moving: split(&both[1], layout),
        affine: images.affine.clone(),
        masked,
        landmarks,
    };
    let loss = DeformCriterion { similarity: measure.into(), options: &options };
    ShardedObjective::in_team(images, model, loss, &mesh(layout), Team::ALONE).unwrap()
}

/// Control points, and a start between voxels, with what they cost.
fn splines(
    images: &DeformImages,
    measure: Measure,
    shards: usize,
) -> ShardedObjective<SplineModel> {
    let layout = Layout::balanced(SIZE, Axis::Z, shards).unwrap();
    let values = uniform(3 * 9 * 12 * 10, 0.2, 0.4, 7);
    let start = tensor(&values, [1, 3, 9, 12, 10], &Device::flex(), DType::F64);
    let start = split(&start, &layout);
    let (grid, [d, h, w]) = ControlGrid::covering(SIZE, [3.0, 4.0, 3.5]);
    let values = uniform(3 * d * h * w, -0.1, 0.1, 9);
    let coefficients = tensor(&values, [1, 3, d, h, w], &Device::flex(), DType::F64);
    let penalties = SplinePenalties { bending: 0.2, volume: 0.3 };
    let model = SplineModel::new(
        &start,
        Some(start.clone()),
        ControlPoints { coefficients, grid, voxel_mm: [1.0, 1.25, 2.0], penalties },
        &mesh(&layout),
        &Team::ALONE.fixed,
    );
    of_model(images, (measure, DeformMethod::Greedy), (&layout, None), model)
}

/// Points between voxels, on a voxel, at seams of three shards, beyond the border, and two in one cell.
fn landmarks() -> Landmarks {
    Landmarks {
        fixed_voxels: vec![
            [3.3, 4.6, 2.5],
            [5.0, 7.0, 3.0],
            [1.7, 9.2, 5.9],
            [8.4, 2.1, 6.2],
            [12.0, -3.0, 4.4],
            [3.4, 4.5, 2.6],
        ],
        offsets_mm: vec![
            [3.0, -2.0, 1.0],
            [-1.0, 4.0, 2.5],
            [0.5, 0.5, -3.0],
            [2.0, 2.0, 2.0],
            [-4.0, 1.0, 0.0],
            [1.0, -2.5, 1.5],
        ],
        linear_mm: [[0.9, 0.1, 0.0], [-0.2, 1.1, 0.1], [0.05, 0.0, 1.9]],
        sigma_mm: 0.8,
        weight: 0.01,
    }
}

#[test]
fn landmarks_pull_by_the_gradient_of_their_energy() {
    /// As of fields.
    const DIFFERENCES: f64 = 1e-6;
    // Of halves the gradient is that of small displacements.
    let svf = DeformMethod::Svf { squarings: 3, accumulation: Accumulation::Reproducible };
    for method in [DeformMethod::Greedy, svf] {
        for measure in
            [Measure::SquaredDifference, Measure::MutualInformation(HistogramOptions::default())]
        {
            for (images, shards) in [(plain(), 1), (plain(), 3)] {
                let mut objective = driven(&images, (measure, method), shards, Some(landmarks()));
                let at = objective.model().rest();
                let values = uniform(3 * 9 * 12 * 10, -1.0, 1.0, 11);
                let along = tensor(&values, [1, 3, 9, 12, 10], &Device::flex(), DType::F64);
                let layout = Layout::balanced(SIZE, Axis::Z, shards).unwrap();
                let along = FieldVector::new(vec![split(&along, &layout)], Team::ALONE.fixed);
                let Point { gradient, .. } = objective.evaluate(&at).unwrap();
                let slope = FieldVector::dots(&[[&gradient, &along]]).unwrap()[0];
                let mut loss = |step: f64| {
                    objective.evaluate(&Space::combine(&[(1.0, &at), (step, &along)])).unwrap().loss
                };
                let expected = (loss(1e-5) - loss(-1e-5)) / 2e-5;
                let error = (slope - expected).abs() / expected.abs();
                println!("{method:?} {measure:?} in {shards}: {slope:.6e} {error:.1e}");
                assert!(error <= DIFFERENCES, "{method:?} {measure:?}: {slope} {expected}");
            }
        }
    }
}

#[test]
fn landmarks_pull_in_shards_as_in_the_whole_and_count_once() {
    for method in methods() {
        let [one, three] = [1, 3].map(|shards| {
            let measure = Measure::SquaredDifference;
            let mut objective =
                driven(&with_weights(), (measure, method), shards, Some(landmarks()));
            let at = objective.model().rest();
            let Point { loss, gradient } = objective.evaluate(&at).unwrap();
            let field = |field: &Sharded| to_f64(field.gather(&Device::flex()));
            let mut all: Vec<f64> = gradient.fields.iter().flat_map(field).collect();
            all.push(loss);
            all
        });
        let mut without = objective(&with_weights(), Measure::SquaredDifference, method, 1);
        let at = without.model().rest();
        let rest = without.evaluate(&at).unwrap().loss;
        assert!(one[one.len() - 1] > rest + 1e-3, "{method:?}: the points cost something");
        // Sums in another order, in f64.
        assert_close(&format!("{method:?}"), &three, &one, 1e-11);
    }
}

#[test]
fn gradients_to_control_points_are_those_of_the_loss() {
    /// As of fields.
    const DIFFERENCES: f64 = 1e-6;
    for measure in measures() {
        let mut objective = splines(&plain(), measure, 2);
        let at = objective.model().rest();
        let values = uniform(at.0.shape().num_elements(), -1.0, 1.0, 11);
        let along = Coefficients(tensor(&values, at.0.dims(), &Device::flex(), DType::F64));
        let Point { gradient, .. } = objective.evaluate(&at).unwrap();
        let slope = Coefficients::dots(&[[&gradient, &along]]).unwrap()[0];
        let mut loss = |step: f64| {
            objective.evaluate(&Space::combine(&[(1.0, &at), (step, &along)])).unwrap().loss
        };
        let expected = (loss(1e-5) - loss(-1e-5)) / 2e-5;
        let error = (slope - expected).abs() / expected.abs();
        println!("{measure:?}: {slope:.6e} {error:.1e}");
        assert!(error <= DIFFERENCES, "{measure:?}: {slope} {expected}");
    }
}

#[test]
fn control_points_in_shards_have_the_gradient_of_the_whole() {
    for measure in measures() {
        let [one, three] = [1, 3].map(|shards| {
            let mut objective = splines(&with_weights(), measure, shards);
            let at = objective.model().rest();
            to_f64(objective.evaluate(&at).unwrap().gradient.0)
        });
        // Sums in another order, in f64.
        assert_close(&format!("{measure:?}"), &three, &one, 1e-11);
    }
}

fn methods() -> [DeformMethod; 3] {
    let svf = DeformMethod::Svf { squarings: 3, accumulation: Accumulation::Reproducible };
    [DeformMethod::Greedy, DeformMethod::Syn, svf]
}

fn measures() -> [Measure; 3] {
    [
        Measure::Lncc(LnccOptions::default()),
        Measure::SquaredDifference,
        Measure::MutualInformation(HistogramOptions::default()),
    ]
}

/// Halves move against each other only.
fn direction(objective: &ShardedObjective<SmoothSteps>, seed: u64) -> FieldVector {
    let mut direction = objective.model().rest();
    let layout = direction.fields[0].layout().clone();
    let values = uniform(3 * 9 * 12 * 10, -1.0, 1.0, seed);
    let values = tensor::<5>(&values, [1, 3, 9, 12, 10], &Device::flex(), DType::F64);
    for (i, field) in direction.fields.iter_mut().enumerate() {
        let values = if i == 0 { values.clone() } else { values.clone().neg() };
        *field = split(&values, &layout);
    }
    direction
}

#[test]
fn gradients_are_those_of_the_loss() {
    /// Central differences of f64 with steps of 1e-5, relative to the slope.
    const DIFFERENCES: f64 = 1e-6;
    let images = plain();
    for method in methods() {
        for measure in measures() {
            let mut objective = objective(&images, measure, method, 2);
            let along = direction(&objective, 11);
            let at = direction(&objective, 12).scaled(0.02);
            let Point { gradient, .. } = objective.evaluate(&at).unwrap();
            let slope = FieldVector::dots(&[[&gradient, &along]]).unwrap()[0];
            let mut loss = |step: f64| {
                let there = FieldVector::combine(&[(1.0, &at), (step, &along)]);
                objective.evaluate(&there).unwrap().loss
            };
            let expected = (loss(1e-5) - loss(-1e-5)) / 2e-5;
            let error = (slope - expected).abs() / expected.abs();
            println!("{method:?} {measure:?}: {slope:.6e} {error:.1e}");
            assert!(error <= DIFFERENCES, "{method:?} {measure:?}: {slope} {expected}");
        }
    }
}

#[test]
fn shards_are_searched_as_the_whole() {
    let images = with_weights();
    for method in methods() {
        for measure in measures() {
            let found = [1, 3].map(|shards| {
                let mut objective = objective(&images, measure, method, shards);
                let steps = Steps { first: 0.25, longest: 1.0, shortest: 1e-3 };
                let mut search =
                    Minimizer::new(objective.model().rest(), Lbfgs::new(4), LineSearch::wolfe());
                let before = search.here(&mut objective).unwrap().loss;
                for _ in 0..6 {
                    assert!(search.step(&mut objective, &steps).unwrap(), "{method:?} {measure:?}");
                }
                let after = search.here(&mut objective).unwrap().loss;
                let fields = objective.model().fields(search.at()).unwrap();
                let fields: Vec<f64> =
                    fields.iter().flat_map(|field| to_f64(whole(field))).collect();
                (before, after, fields)
            });
            let [(before, after, one), (_, _, parts)] = &found;
            println!("{method:?} {measure:?}: {before:.4} -> {after:.4}");
            assert!(after < before, "{method:?} {measure:?}");
            // Six steps whose directions amplify sums in another order.
            assert_close(&format!("{method:?} {measure:?}"), parts, one, 1e-8);
        }
    }
}

#[test]
fn steepest_descent_of_control_points_ends_where_the_gradient_is_short_enough() {
    let steps = Steps { first: 0.25, longest: 0.25, shortest: 0.025 };
    // Where three shards are off by rounding, neither is on the other side of the threshold.
    const ROUNDING: f64 = 1e-6;
    let search = |objective: &ShardedObjective<SplineModel>| {
        Minimizer::new(objective.model().rest(), Steepest, LineSearch::armijo())
    };
    for measure in measures() {
        let mut objective = splines(&with_weights(), measure, 1);
        let mut free = search(&objective);
        let mut points = Vec::new();
        for _ in 0..12 {
            let Point { loss, gradient } = free.here(&mut objective).unwrap();
            let squares = to_f64(gradient.0.clone()).into_iter().map(|g| g * g);
            points.push((squares.sum::<f64>().sqrt(), *loss));
            if !free.step(&mut objective, &steps).unwrap() {
                break;
            }
        }
        let lowest = points.iter().map(|(norm, _)| *norm).fold(f64::INFINITY, f64::min);
        let thresholds =
            [2.0 * points[0].0, 0.5 * (points[0].0 + lowest), lowest * (1.0 + ROUNDING)];
        for threshold in thresholds {
            let first = points.iter().position(|(norm, _)| *norm <= threshold).unwrap();
            for shards in [1, 3] {
                let mut objective = splines(&with_weights(), measure, shards);
                let mut search = search(&objective).until(threshold);
                let losses = search.iterate(&mut objective, &steps, 30).unwrap();
                println!("{measure:?} in {shards}: {threshold:.3e} after {first}: {losses:?}");
                assert_eq!(losses.len(), first + 1, "{measure:?} in {shards}: {points:?}");
                let off = (losses[first] - points[first].1).abs();
                assert!(off <= 1e-8, "{measure:?} in {shards}: {losses:?} {points:?}");
                let again = search.iterate(&mut objective, &steps, 30).unwrap();
                assert!(again.is_empty(), "{measure:?} in {shards}: it goes on");
            }
        }
    }
}
