//! Steps of Gauss-Newton-Krylov on shards, as CLAIRE's table of times has them: so many iterations of conjugate
//! gradients each, whatever they reach.

use std::f64::consts::TAU;
use std::sync::Arc;
use std::time::Instant;

use ffdp::Result;
use ffdp::image::Geometry;
use ffdp::losses::Mse;
use ffdp::optim::GaussNewtonOptions;
use ffdp::parallel::{Sharded, deform::ShardedImages, periodic::PeriodicGrid};
use ffdp::register::methods::gnk::{
    Preconditioner, Regularizing, VelocityImages, VelocityOptions, VelocityProblem, minimize,
};

use super::iterate::wait;

/// Iterations of conjugate gradients in a step.
const KRYLOV: usize = 10;
/// Weight of the roughness.
const BETA: f64 = 1e-2;

/// The velocity after one step and `steps` more, milliseconds of each of these, and the last loss. The time includes
/// the loss and the gradient at the start, evaluated once.
pub fn measure(
    images: ShardedImages,
    grid: &Geometry,
    steps: usize,
) -> Result<(Sharded, f64, f64)> {
    let mesh = images.fixed.mesh();
    // The box has the volume (2 pi)^3.
    let voxel = TAU / (grid.len() as f64).cbrt();
    let periodic = PeriodicGrid::on(mesh.clone(), grid.dims(), [voxel; 3])?;
    let ShardedImages { fixed, moving, .. } = images;
    let images = VelocityImages { fixed, moving, masked: [false; 2] };
    let options = VelocityOptions {
        beta: BETA,
        beta_div: 1e-4,
        steps: 4,
        keep_gradients: false,
        preconditioner: Preconditioner::InvA,
        inner_tolerance: 1e-3,
    };
    let mut problem = VelocityProblem::new(periodic, Arc::new(Mse), images, options)?;
    let regularizing = Regularizing { first: BETA, beta: BETA, bounds: None };
    let newton = GaussNewtonOptions {
        tolerance: 0.0,
        forcing: 0.0,
        krylov: KRYLOV,
        ..GaussNewtonOptions::default()
    };
    // Kernels are compiled here.
    let (start, _) = minimize(&mut problem, None, regularizing, newton, 1)?;
    wait(&mesh)?;
    let clock = Instant::now();
    let (mut reached, taken) = minimize(&mut problem, Some(start), regularizing, newton, steps)?;
    wait(&mesh)?;
    // Fewer where a line search ends them.
    let ms = clock.elapsed().as_secs_f64() * 1e3 / taken.len().max(1) as f64;
    let iterations: usize = taken.iter().map(|step| step.krylov_iterations()).sum();
    println!("{} steps with {iterations} iterations of conjugate gradients", taken.len());
    let loss = taken.last().map_or(f64::NAN, |step| step.loss);
    Ok((reached.fields.remove(0), ms, loss))
}
