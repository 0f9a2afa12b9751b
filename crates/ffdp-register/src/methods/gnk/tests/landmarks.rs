//! The term of landmarks by itself: its derivatives, and its parts in shards.

use super::super::landmarks::{LandmarkTerm, Paths};
use super::*;
use ffdp_optim::{Curved, Objective, Space};
use ffdp_parallel::deform::Landmarks;

const VOXELS: usize = 12;

/// Points off the voxels, some that leave the box, and where they belong.
fn landmarks(offsets_mm: Vec<[f64; 3]>) -> Landmarks {
    let n = offsets_mm.len();
    let at = |k: usize, by: f64| (0.37 + by * k as f64).rem_euclid((VOXELS - 1) as f64);
    Landmarks {
        fixed_voxels: (0..n).map(|k| [at(k, 3.13), at(k, 5.29), at(k, 7.77)]).collect(),
        offsets_mm,
        // A stretch, a shear and a turn.
        linear_mm: [[1.1, 0.2, 0.0], [-0.1, 0.9, 0.3], [0.0, -0.2, 1.3]],
        sigma_mm: 1.5,
        weight: 0.01,
    }
}

fn offsets() -> Vec<[f64; 3]> {
    (0..7).map(|k| [0.3 * k as f64 - 1.0, 0.5, -0.2 * k as f64]).collect()
}

fn follow(grid: &PeriodicGrid, offsets: Vec<[f64; 3]>, velocity: &FieldVector) -> Paths {
    let term = LandmarkTerm::new(landmarks(offsets), [0; 3], [VOXELS; 3]);
    term.follow(grid, &velocity.fields[0], 4, 1.7).unwrap()
}

/// A velocity, and changes of it, that cancel nowhere: up to a few voxels.
fn fields(grid: &PeriodicGrid) -> [FieldVector; 3] {
    [[0.3, 0.7, 1.1], [1.9, 0.2, 0.5], [0.9, 1.3, 2.3]].map(|[a, b, c]| {
        vector(volume(grid, DType::F64, |[x, y, z]| {
            [(x + a).sin() * (y - b).cos(), (y + c).sin() + 0.3, (z + x - a).cos() * (y + b).sin()]
        }))
    })
}

fn dot(a: &FieldVector, b: &FieldVector) -> f64 {
    FieldVector::dots(&[[a, b]]).unwrap()[0]
}

#[test]
fn the_gradient_is_that_of_finite_differences_exactly() {
    // Nothing but rounding: the steps themselves are differentiated, and no point crosses a voxel's face in 1e-5.
    const LEFT: f64 = 1e-7;
    let grid = cube(VOXELS, 1);
    let [at, d, _] = fields(&grid);
    let energy =
        |a: f64| follow(&grid, offsets(), &FieldVector::combine(&[(1.0, &at), (a, &d)])).energy;
    let promised = dot(&vector(follow(&grid, offsets(), &at).gradient(&at.fields[0])), &d);
    let h = 1e-5;
    let found = (energy(h) - energy(-h)) / (2.0 * h);
    assert!(
        promised.abs() > 1e-3 && ((found - promised) / promised).abs() < LEFT,
        "{found} {promised}"
    );
}

#[test]
fn the_product_is_symmetric_positive_and_the_curvature_where_all_points_have_arrived() {
    let grid = cube(VOXELS, 1);
    let [at, d, e] = fields(&grid);
    let paths = follow(&grid, offsets(), &at);
    let [hd, he] = [&d, &e].map(|x| vector(paths.product(&x.fields[0]).unwrap()));
    let (mixed, other) = (dot(&e, &hd), dot(&d, &he));
    let own = [dot(&d, &hd), dot(&e, &he)];
    // Sums of f64 in another order.
    assert!((mixed - other).abs() < 1e-12 * own[0].max(own[1]), "{mixed} {other}");
    assert!(own[0] > 0.0 && own[1] > 0.0 && mixed.abs() > 1e-3 * own[0], "{own:?} {mixed}");
    // What nothing is read of costs nothing.
    let far = vector(volume(&grid, DType::F64, |_| [0.0; 3]));
    assert_eq!(dot(&far, &vector(paths.product(&far.fields[0]).unwrap())), 0.0);

    // Offsets with which nothing is left at `at`: without any, the pull is a / sigma^2 L^T L (y - p).
    let still = follow(&grid, vec![[0.0; 3]; 7], &at);
    let precision = 1.7 * 0.01 / 1.5f64.powi(2);
    let arrived = still.pull.iter().map(|pull| {
        let l = landmarks(offsets()).linear_mm;
        // -L (y - p) = -(L^T)^-1 L^T L (y - p).
        solved(l, pull.map(|x| -x / precision))
    });
    let arrived: Vec<_> = arrived.collect();
    let energy = |a: f64| {
        follow(&grid, arrived.clone(), &FieldVector::combine(&[(1.0, &at), (a, &d)])).energy
    };
    assert!(energy(0.0) < 1e-20, "{}", energy(0.0));
    let h = 1e-4;
    let found = (energy(h) + energy(-h)) / (h * h);
    // Differences of second order.
    assert!((found / own[0] - 1.0).abs() < 1e-5, "{found} {own:?}");
}

/// `x` with `m^T x = b`, by Cramer's rule.
fn solved(m: [[f64; 3]; 3], b: [f64; 3]) -> [f64; 3] {
    let cross = |u: [f64; 3], v: [f64; 3]| {
        [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]
    };
    let dot = |u: [f64; 3], v: [f64; 3]| u[0] * v[0] + u[1] * v[1] + u[2] * v[2];
    // Columns of m^T are the rows of m.
    let whole = dot(m[0], cross(m[1], m[2]));
    [dot(b, cross(m[1], m[2])), dot(m[0], cross(b, m[2])), dot(m[0], cross(m[1], b))]
        .map(|part| part / whole)
}

#[test]
fn shards_of_the_term_are_parts_of_the_whole() {
    let whole = cube(VOXELS, 1);
    let [at, d, _] = fields(&whole);
    let expected = follow(&whole, offsets(), &at);
    let values = |field: &Sharded| field.gather(&Device::flex()).try_into_vec_as::<f64>().unwrap();
    for shards in [2, 5] {
        let grid = cube(VOXELS, shards);
        let [at_cut, d_cut, _] = fields(&grid);
        let paths = follow(&grid, offsets(), &at_cut);
        assert_eq!(paths.energy, expected.energy);
        let cut = [paths.gradient(&at_cut.fields[0]), paths.product(&d_cut.fields[0]).unwrap()];
        let all = [expected.gradient(&at.fields[0]), expected.product(&d.fields[0]).unwrap()];
        for (cut, all) in cut.iter().zip(&all) {
            assert_eq!(values(cut), values(all), "{shards} shards");
        }
    }
}

#[test]
fn the_whole_loss_has_the_term_with_its_gradient_and_its_product() {
    // Adjoint equations of the images at 32^3, see `operators.rs`.
    const LEFT: f64 = 5e-4;
    let grid = cube(32, 1);
    let images = images(&grid, DType::F64, 0.5);
    let similarity = Arc::new(Mse);
    let options = options(Preconditioner::InvA);
    let alone = VelocityProblem::new(grid.clone(), similarity, images, options).unwrap();
    let mut problem = alone.with_landmarks(landmarks(offsets()), [4; 3], [VOXELS; 3]);
    let [at, d, e] = fields(&grid);
    let at = FieldVector::combine(&[(0.2, &at)]);
    let point = problem.evaluate(&at).unwrap();
    assert!(problem.seen().unwrap().landmarks > 0.1 * point.loss, "it counts");
    problem.prepare().unwrap();
    let [hd, he] = [&d, &e].map(|x| problem.hessian(x).unwrap());
    let off = (dot(&e, &hd) - dot(&d, &he)).abs() / (dot(&d, &hd) * dot(&e, &he)).sqrt();
    // As without landmarks.
    assert!(off < 1e-5, "{off}");
    let promised = dot(&point.gradient, &d);
    let h = 1e-4;
    let mut loss =
        |a| problem.evaluate(&FieldVector::combine(&[(1.0, &at), (a, &d)])).unwrap().loss;
    let found = (loss(h) - loss(-h)) / (2.0 * h);
    assert!(((found - promised) / found).abs() < LEFT, "{found} {promised}");
}
