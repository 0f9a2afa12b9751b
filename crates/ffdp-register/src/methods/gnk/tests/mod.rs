//! The synthetic problem of the paper, and what is asked of its solution.

mod landmarks;
mod operators;
mod solver;

use burn::Tensor;
use burn::tensor::{DType, Device, TensorData};
use std::f64::consts::TAU;
use std::sync::Arc;

use super::{Flow, Preconditioner, VelocityImages, VelocityOptions, VelocityProblem};
use ffdp_burn::losses::{Dice, Lncc, Mse, NormalizedMutualInformation, SimilarityLoss};
use ffdp_burn::ops::{LnccFloor, LnccOptions, PeriodicInterpolation};
use ffdp_kit::testing::to_f64;
use ffdp_parallel::{DeviceMesh, Sharded, deform::FieldVector, periodic::PeriodicGrid};

/// A function of the points of `[0, 2 pi)^3` on `n` voxels an axis, cut as the grid is.
fn volume<const C: usize>(
    grid: &PeriodicGrid,
    dtype: DType,
    at: impl Fn([f64; 3]) -> [f64; C],
) -> Sharded {
    let [d, h, w] = grid.size();
    let point = |i: usize| {
        let [x, y, z] = [i % w, i / w % h, i / (w * h)];
        [(x, w), (y, h), (z, d)].map(|(i, n)| TAU * i as f64 / n as f64)
    };
    let values: Vec<[f64; C]> = (0..d * h * w).map(|i| at(point(i))).collect();
    let values = (0..C).flat_map(|c| values.iter().map(move |v| v[c])).collect();
    let like = (&Device::flex(), dtype);
    let data = TensorData::new::<f64, _>(values, [1, C, d, h, w]).convert_dtype(dtype);
    Sharded::from_tensor(Tensor::from_data(data, like), grid.layout(), grid.mesh())
}

/// The box of the paper in `n` voxels an axis, in so many shards.
fn cube(n: usize, shards: usize) -> PeriodicGrid {
    let mesh = DeviceMesh::of(vec![Device::flex(); shards]);
    PeriodicGrid::on(mesh, [n; 3], [TAU / n as f64; 3]).unwrap()
}

/// `sum sin^2 x_i / 3`, which already fills [0, 1].
fn template(grid: &PeriodicGrid, dtype: DType) -> Sharded {
    volume(grid, dtype, |x| [x.iter().map(|x| x.sin().powi(2)).sum::<f64>() / 3.0])
}

/// `v0 (sin z cos y sin y, sin x cos z sin z, sin y cos x sin x)`.
fn velocity(grid: &PeriodicGrid, dtype: DType, v0: f64) -> Sharded {
    volume(grid, dtype, |[x, y, z]| {
        let of = |a: f64, b: f64| v0 * a.sin() * b.cos() * b.sin();
        [of(z, y), of(x, z), of(y, x)]
    })
}

fn vector(field: Sharded) -> FieldVector {
    FieldVector::new(vec![field], ffdp_parallel::hosts::Holders::ALONE)
}

fn options(preconditioner: Preconditioner) -> VelocityOptions {
    VelocityOptions {
        beta: 1e-2,
        beta_div: 1e-4,
        steps: 4,
        keep_gradients: false,
        preconditioner,
        inner_tolerance: 1e-3,
    }
}

/// The images of the problem: the second is the first, carried along `v0`'s velocity.
fn images(grid: &PeriodicGrid, dtype: DType, v0: f64) -> VelocityImages {
    let moving = template(grid, dtype);
    let flow = Flow::along(grid, &velocity(grid, dtype, v0), 4).unwrap();
    let fixed = flow.path(&moving).unwrap().pop().unwrap();
    VelocityImages { fixed, moving, masked: [false; 2] }
}

fn problem(
    grid: &PeriodicGrid,
    dtype: DType,
    v0: f64,
    preconditioner: Preconditioner,
) -> VelocityProblem {
    let images = images(grid, dtype, v0);
    VelocityProblem::new(grid.clone(), Arc::new(Mse), images, options(preconditioner)).unwrap()
}

/// `|a - b| / |b|`.
fn off(a: &Sharded, b: &Sharded) -> f64 {
    let (a, b) = (vector(a.clone()), vector(b.clone()));
    let less = ffdp_optim::Space::combine(&[(1.0, &a), (-1.0, &b)]);
    let [rest, all] =
        [&less, &b].map(|x: &FieldVector| ffdp_optim::Space::dots(&[[x, x]]).unwrap()[0]);
    (rest / all).sqrt()
}
