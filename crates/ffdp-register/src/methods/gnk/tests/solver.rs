//! Counts of steps and of iterations.

use super::super::{Regularizing, minimize};
use super::*;
use ffdp_optim::GaussNewtonOptions;

/// Steps, iterations, and the mismatch that is left.
fn solve(
    n: usize,
    beta: f64,
    v0: f64,
    preconditioner: Preconditioner,
    shards: usize,
) -> (usize, usize, f64) {
    let grid = cube(n, shards);
    let mut problem = problem(&grid, DType::F32, v0, preconditioner);
    let first = if beta < 1e-3 { 1.0 } else { beta };
    let regularizing = Regularizing { first, beta, bounds: None };
    let (at, steps) =
        minimize(&mut problem, None, regularizing, GaussNewtonOptions::default(), 50).unwrap();
    let krylov = steps.iter().map(|step| step.krylov_iterations()).sum();
    ffdp_optim::Objective::evaluate(&mut problem, &at).unwrap();
    let images = images(&grid, DType::F32, v0);
    let left = |a: &Sharded| off(a, &images.fixed);
    let mismatch = left(problem.moved().unwrap()) / left(&images.moving);
    println!("{steps:#?}");
    (steps.len(), krylov, mismatch)
}

#[test]
fn counts() {
    for n in [16, 32] {
        for (beta, v0) in [(1e-2, 0.5), (1e-3, 0.5), (5e-4, 0.5), (5e-4, 1.0)] {
            for p in [Preconditioner::InvA, Preconditioner::InvH0, Preconditioner::TwoLevelInvH0] {
                let start = std::time::Instant::now();
                let (gn, krylov, mismatch) = solve(n, beta, v0, p, 1);
                println!(
                    "COUNT {n} beta {beta} v0 {v0} {p:?}: {gn}/{krylov} mismatch {mismatch:.3e} squared {:.3e} {:?}",
                    mismatch * mismatch,
                    start.elapsed()
                );
            }
        }
    }
}
