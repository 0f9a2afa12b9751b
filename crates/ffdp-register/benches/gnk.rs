//! Gauss-Newton-Krylov steps on the synthetic problem of the paper, and what they are made of.
//!
//! ```text
//! cargo bench -p ffdp-register --bench gnk -- --size 64                                      on the CPU
//! cargo bench -p ffdp-register --bench gnk --features cuda -- --device cuda --size 256
//! ```
//! The first run of each row compiles kernels and is not timed, but where it takes longer than 20 s. Memory is what
//! the pools of the device hold at the end of a row, of which they give nothing back by themselves.

use std::f64::consts::TAU;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use burn::Tensor;
use burn::tensor::{DType, Device, TensorData};
use clap::Parser;
use ffdp_burn::losses::Mse;
use ffdp_burn::ops::{
    cubic_coefficients, cubic_sample, fft, inverse_fft, periodic_divergence, periodic_gradient,
    warp,
};
use ffdp_image::Result;
use ffdp_optim::{GaussNewtonOptions, Objective};
use ffdp_parallel::{DeviceMesh, Sharded, periodic::PeriodicGrid};
use ffdp_register::methods::gnk::{
    Flow, Preconditioner, Regularizing, VelocityImages, VelocityOptions, VelocityProblem, minimize,
};

/// Runs that take longer are not repeated.
const PATIENCE_SECONDS: f64 = 20.0;

#[path = "../../../benches/support/backend.rs"]
mod backend;

use backend::Backend;

/// Times Gauss-Newton-Krylov steps.
#[derive(Parser)]
pub struct Arguments {
    /// Voxels along each axis.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Where to run; a GPU must have been compiled in.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    device: Backend,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let Arguments { size, device, .. } = Arguments::parse();
    let run = || {
        let device = device.device(0)?;
        println!("{size}^3 on {device:?}, f32");
        measure(size, &device).map_err(|error| error.to_string())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(n: usize, device: &Device) -> Result<()> {
    operators(n, device)?;
    let grid = PeriodicGrid::on(DeviceMesh::one(device), [n; 3], [TAU / n as f64; 3])?;
    println!(
        "\nrow                                     seconds   steps/iterations (within)   mismatch   det J          memory"
    );
    for (name, beta, first) in [("beta 1e-2", 1e-2, 1e-2), ("beta 1 to 5e-4", 5e-4, 1.0)] {
        for preconditioner in
            [Preconditioner::InvA, Preconditioner::InvH0, Preconditioner::TwoLevelInvH0]
        {
            let options = GaussNewtonOptions::default();
            let regularizing = Regularizing { first, beta, bounds: None };
            row(
                &format!("{name} {preconditioner:?}"),
                &grid,
                preconditioner,
                regularizing,
                options,
                50,
            )?;
        }
    }
    // As CLAIRE's table of times has it: no tolerance is reached.
    let fixed =
        GaussNewtonOptions { tolerance: 0.0, forcing: 0.0, krylov: 10, ..Default::default() };
    let regularizing = Regularizing { first: 1e-2, beta: 1e-2, bounds: None };
    row("5 steps of 10 iterations InvA", &grid, Preconditioner::InvA, regularizing, fixed, 5)
}

/// A solution of the synthetic problem, timed.
fn row(
    name: &str,
    grid: &PeriodicGrid,
    preconditioner: Preconditioner,
    regularizing: Regularizing,
    options: GaussNewtonOptions,
    steps: usize,
) -> Result<()> {
    let device = grid.mesh().device(0).clone();
    let moving = volume(grid, |x| [x.iter().map(|x| x.sin().powi(2)).sum::<f64>() / 3.0]);
    let of = |a: f64, b: f64| 0.5 * a.sin() * b.cos() * b.sin();
    let true_velocity = volume(grid, |[x, y, z]| [of(z, y), of(x, z), of(y, x)]);
    let fixed = Flow::along(grid, &true_velocity, 4)?.path(&moving)?.pop().expect("it has steps");
    drop(true_velocity);
    let apart = difference(&moving, &fixed);
    let mut timed = None;
    for _ in 0..2 {
        device.memory_cleanup();
        let images =
            VelocityImages { fixed: fixed.clone(), moving: moving.clone(), masked: [false; 2] };
        let problem_options = VelocityOptions {
            beta: regularizing.beta,
            beta_div: 1e-4,
            steps: 4,
            keep_gradients: false,
            preconditioner,
            inner_tolerance: 1e-3,
        };
        let start = Instant::now();
        let mut problem =
            VelocityProblem::new(grid.clone(), Arc::new(Mse), images, problem_options)?;
        let (at, gone) = minimize(&mut problem, None, regularizing, options, steps)?;
        device.sync().expect("the device answers");
        let seconds = start.elapsed().as_secs_f64();
        let held = device.memory_pool_usage().map(|usage| usage.bytes_reserved);
        problem.evaluate(&at)?;
        let left = difference(problem.moved().expect("it was evaluated"), &fixed);
        let krylov: usize = gone.iter().map(|step| step.krylov_iterations()).sum();
        let inner: usize = gone.iter().map(|step| step.inner_iterations).sum();
        let counts = format!("{}/{krylov} ({inner})", gone.len());
        timed = Some((seconds, counts, left / apart, problem.determinants()?, held));
        if seconds > PATIENCE_SECONDS {
            break;
        }
    }
    let (seconds, counts, mismatch, [low, high], held) = timed.expect("it ran");
    let held = held.map_or("-".to_string(), |bytes| format!("{:.2} GB", bytes as f64 / 1e9));
    println!(
        "{name:<38}{seconds:>9.3}   {counts:<27} {mismatch:>9.2e}   {low:.2}..{high:.2}   {held:>9}"
    );
    Ok(())
}

/// `|a - b|^2`.
fn difference(a: &Sharded, b: &Sharded) -> f64 {
    let off = a.shards()[0].clone() - b.shards()[0].clone();
    let square = (off.clone() * off).sum();
    square.try_into_vec_as::<f64>().expect("the device answers")[0]
}

/// A function of the points of `[0, 2 pi)^3`.
fn volume<const C: usize>(grid: &PeriodicGrid, at: impl Fn([f64; 3]) -> [f64; C]) -> Sharded {
    let [d, h, w] = grid.size();
    let point = |i: usize| {
        let [x, y, z] = [i % w, i / w % h, i / (w * h)];
        [(x, w), (y, h), (z, d)].map(|(i, n)| TAU * i as f64 / n as f64)
    };
    let mut values = vec![0f32; C * d * h * w];
    for i in 0..d * h * w {
        for (c, value) in at(point(i)).into_iter().enumerate() {
            values[c * d * h * w + i] = value as f32;
        }
    }
    let data = TensorData::new(values, [1, C, d, h, w]);
    let device = grid.mesh().device(0);
    Sharded::from_tensor(Tensor::from_data(data, (device, DType::F32)), grid.layout(), grid.mesh())
}

/// The operations by themselves.
fn operators(n: usize, device: &Device) -> Result<()> {
    let grid = PeriodicGrid::on(DeviceMesh::one(device), [n; 3], [1.0; 3])?;
    let whole = |volume: Sharded| volume.into_shards().remove(0);
    let image = whole(volume(&grid, |x| [x.iter().map(|x| x.sin()).sum()]));
    let field =
        whole(volume(&grid, |[x, y, z]| [y.sin(), (z + x).cos(), (x - y).sin()].map(|u| 1.5 * u)));
    let voxel = [1.0; 3];
    println!("\noperation                             ms");
    let gb = |bytes_per_voxel: f64, ms: f64| bytes_per_voxel * (n * n * n) as f64 / ms / 1e6;
    let say = |name: &str, bytes: f64, run: &dyn Fn() -> Tensor<5>| {
        let ms = milliseconds(device, run);
        println!("{name:<34}{ms:>9.3}   {:>8.1} GB/s of {bytes} bytes a voxel", gb(bytes, ms));
        ms
    };
    say("copy of a field", 24.0, &|| field.clone().mul_scalar(1.0000001));
    say("copy of image to field", 16.0, &|| {
        image.clone().expand(field.dims()).mul_scalar(1.0000001)
    });
    say("gradient", 16.0, &|| periodic_gradient(image.clone(), voxel));
    say("divergence", 16.0, &|| periodic_divergence(field.clone(), voxel));
    say("FFT forth and back", 8.0, &|| inverse_fft(fft(image.clone()), n));
    say("cubic coefficients", 8.0, &|| cubic_coefficients(image.clone()));
    let linear = say("linear sample of an image", 20.0, &|| warp(image.clone(), field.clone()));
    let cubic =
        say("cubic sample of an image", 20.0, &|| cubic_sample(image.clone(), field.clone()));
    let linear3 = say("linear sample of a field", 36.0, &|| warp(field.clone(), field.clone()));
    let cubic3 =
        say("cubic sample of a field", 36.0, &|| cubic_sample(field.clone(), field.clone()));
    println!(
        "cubic over linear: {:.2} of an image, {:.2} of a field",
        cubic / linear,
        cubic3 / linear3
    );
    Ok(())
}

/// The median of some runs after one that is not counted.
fn milliseconds(device: &Device, run: &dyn Fn() -> Tensor<5>) -> f64 {
    let once = || {
        let start = Instant::now();
        drop(run());
        device.sync().expect("the device answers");
        1e3 * start.elapsed().as_secs_f64()
    };
    let first = once();
    let runs = if first > 1e3 { 3 } else { 15 };
    let mut all: Vec<f64> = (0..runs).map(|_| once()).collect();
    all.sort_by(f64::total_cmp);
    all[runs / 2]
}
