//! Free-form deformation by normalised mutual information: rates of its operations, and registrations from coarse to
//! fine of a pair that no file holds, with the analytic gradient and L-BFGS and with what Ikeda et al. (2014) have: 256
//! whole bins, finite differences of every control point, steepest descent.
//!
//! ```text
//! cargo bench --bench scaling --features cuda -- --device cuda splines --size 512x512x296 --displacement 24
//! cargo bench --bench scaling --features cuda -- --device cuda splines --size 512x512x512 --spacing 5 --levels 1 --iterations 20 --no-differences
//! ```
//! The first is the paper's problem: three levels, 16 voxels of each level between control points. An operation is the
//! median of several runs; a rate counts voxels of the fixed image, `GB/s` the paper's 12 bytes a voxel of a histogram
//! (two values read, a bin written) and of a support.

use std::time::Instant;

use burn::tensor::{Device, Tensor};
use clap::Args;
use ffdp::image::{Geometry, Volume};
use ffdp::ops::{
    ControlGrid, Counting, HistogramOptions, Information, ParzenKernel, VotesImages, VotesOptions,
    bspline, bspline_differences, bspline_pull_back, bspline_votes, bspline_votes_pull_back,
    joint_histogram, warp,
};
use ffdp::parallel::DeviceMesh;
use ffdp::register::{
    LevelSettings, Register, Settings as Registering, Similarity, Stage,
    methods::{FfdSettings, SplineGradient},
    settings::{ConvergenceSettings, MiSettings, OptimizerSettings},
};
use ffdp::{Error, Result};

use super::iterate::{affine, images};
use super::scene::Scene;
use super::{Common, memory};

#[derive(Args, Clone, Debug)]
pub struct Settings {
    #[command(flatten)]
    common: Common,
    /// Voxels of a level between its control points; 16 for the paper's livers, 4 for its brains.
    #[arg(long, default_value_t = 16.0)]
    spacing: f64,
    /// Shrink factors; each level halves the control points' distance.
    #[arg(long, value_delimiter = ',', default_value = "4,2,1")]
    levels: Vec<f64>,
    /// Iterations of a level, at most.
    #[arg(long, default_value_t = 100)]
    iterations: usize,
    /// Leave out the finite differences.
    #[arg(long)]
    no_differences: bool,
    /// Leave out the operations.
    #[arg(long)]
    no_operations: bool,
}

pub fn run(settings: &Settings, devices: &[Device]) -> Result<()> {
    let (common, device) = (&settings.common, &devices[0]);
    let grid = Geometry::new(common.size, [1.0; 3])?;
    let one = DeviceMesh::one(device);
    println!("splines {:?}, {} voxels between control points", grid.size, settings.spacing);
    let scene = Scene::new(&grid, common.displacement, common.seed, device)?;
    let pair = images(&scene, [&grid, &grid], [&one, &one])?;
    // Into 0..1, which bins are of.
    let image = |image: &Tensor<5>| {
        let (low, high) =
            (image.clone().min().reshape([1; 5]), image.clone().max().reshape([1; 5]));
        (image.clone() - low.clone()) / (high - low)
    };
    let [fixed, moving] = [&pair.fixed, &pair.moving].map(|side| image(&side.shards()[0]));
    if !settings.no_operations {
        operations(settings, &grid, [&fixed, &moving])?;
    }
    let volume = |image: Tensor<5>| -> Result<Volume> {
        let read = image.into_data().try_to_vec::<f32>();
        let data =
            read.map_err(|reason| Error::device("reading an image", format!("{reason:?}")))?;
        Ok(Volume { data, geometry: grid.clone() })
    };
    let [fixed, moving] = [volume(fixed)?, volume(moving)?];
    drop(pair);
    device.memory_cleanup();
    let lbfgs = FfdSettings::default().optimizer;
    registration(settings, [&fixed, &moving], (SplineGradient::Analytic, lbfgs, 32), device)?;
    // Once more, with all kernels compiled.
    registration(settings, [&fixed, &moving], (SplineGradient::Analytic, lbfgs, 32), device)?;
    if !settings.no_differences {
        let by = (SplineGradient::FiniteDifferences, OptimizerSettings::Sgd, 256);
        registration(settings, [&fixed, &moving], by, device)?;
    }
    println!("GB used/held {}", memory(devices));
    Ok(())
}

/// One registration, level by level.
fn registration(
    settings: &Settings,
    [fixed, moving]: [&Volume; 2],
    (gradient, optimizer, bins): (SplineGradient, OptimizerSettings, usize),
    device: &Device,
) -> Result<()> {
    let finest = settings.levels.last().copied().unwrap_or(1.0);
    let level = |&shrink| LevelSettings { shrink, iterations: settings.iterations };
    let ffd = FfdSettings {
        levels: settings.levels.iter().map(level).collect(),
        similarity: Similarity::Nmi(MiSettings { bins }),
        spacing_mm: [settings.spacing * finest; 3],
        gradient,
        optimizer,
        convergence: ConvergenceSettings::default(),
        ..FfdSettings::default()
    };
    let stages = vec![Stage::Ffd(ffd)];
    let settings = Registering { stages, ..Registering::default() };
    let start = Instant::now();
    let result = Register::new(fixed, moving).settings(&settings).on(device).run()?;
    let all = start.elapsed().as_secs_f64();
    println!("\n{gradient:?}, {optimizer:?}, {bins} bins");
    println!(
        "{:>16} {:>10} {:>9} {:>9} {:>9} {:>9}  end",
        "level", "iterations", "s", "ms/iter", "first", "last"
    );
    let (mut seconds, mut iterations) = (0.0, 0);
    for level in &result.stages[0].levels {
        let count = level.losses.len();
        println!(
            "{:>16} {count:>10} {:>9.3} {:>9.3} {:>9.5} {:>9.5}  {:?}",
            format!("{:?}", level.size),
            level.seconds,
            level.seconds * 1e3 / count as f64,
            level.losses[0],
            level.losses[count - 1],
            level.stop,
        );
        seconds += level.seconds;
        iterations += count;
    }
    let rate = fixed.geometry.len() as f64 / seconds / 1e3;
    println!(
        "{iterations} iterations in {seconds:.3} s, {rate:.0} Kvoxel/s; with levels and results {all:.2} s; loss {:.5} -> {:.5}",
        result.loss_before, result.loss_after
    );
    Ok(())
}

/// Runs of an operation.
const RUNS: usize = 9;

/// The median of several runs, ms.
fn time<T>(device: &Device, runs: usize, run: impl Fn() -> T) -> Result<f64> {
    let sync = || device.sync().map_err(|reason| Error::device("timing", reason));
    drop(run());
    sync()?;
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        drop(run());
        sync()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[runs / 2])
}

fn operations(
    settings: &Settings,
    grid: &Geometry,
    [fixed, moving]: [&Tensor<5>; 2],
) -> Result<()> {
    let device = &fixed.device();
    let size = grid.dims();
    let voxels = grid.len() as f64;
    let (control, [d, h, w]) = ControlGrid::covering(size, [settings.spacing; 3]);
    // A few voxels, as after some iterations.
    let normal = burn::tensor::Distribution::Normal(0.0, 2.0);
    let coefficients = Tensor::<5>::random([1, 3, d, h, w], normal, device);
    let images = VotesImages {
        fixed: fixed.clone(),
        moving: moving.clone(),
        affine: affine([grid, grid], device),
    };
    let smooth = VotesOptions::default();
    let whole = |counting| {
        let histogram =
            HistogramOptions { bins: 256, kernel: ParzenKernel::Delta, ..Default::default() };
        VotesOptions { histogram, counting, ..VotesOptions::default() }
    };
    println!("{:<52} {:>9} {:>12} {:>9}", "operation", "ms", "Mvoxel/s", "GB/s");
    let row = |name: &str, ms: f64, bytes: f64| {
        println!("{name:<52} {ms:>9.3} {:>12.0} {:>9.1}", voxels / ms / 1e3, bytes / ms / 1e6);
    };
    let field = bspline(coefficients.clone(), &control, size);
    row(
        "field of the control points",
        time(device, RUNS, || bspline(coefficients.clone(), &control, size))?,
        12.0 * voxels,
    );
    row(
        "its pull-back",
        time(device, RUNS, || bspline_pull_back(field.clone(), &control, [d, h, w], [0; 3]))?,
        12.0 * voxels,
    );
    let votes = |options: VotesOptions| {
        time(device, RUNS, || bspline_votes(&images, coefficients.clone(), &control, &options))
    };
    row("warp and histogram in one, 32 smooth bins", votes(smooth)?, 12.0 * voxels);
    row(
        "  one operation after the other",
        time(device, RUNS, || {
            let field = bspline(coefficients.clone(), &control, size);
            joint_histogram(warp(moving.clone(), field), fixed.clone(), &smooth.histogram)
        })?,
        12.0 * voxels,
    );
    for (name, counting) in [
        ("warp and histogram in one, 256 whole bins", Counting::Automatic),
        ("  a band of 177 bins", Counting::Band(177)),
        ("  in global memory", Counting::Global),
    ] {
        row(name, votes(whole(counting))?, 12.0 * voxels);
    }
    let by = whole(Counting::Automatic).histogram;
    row(
        "histogram alone, 256 whole bins",
        time(device, RUNS, || joint_histogram(moving.clone(), fixed.clone(), &by))?,
        12.0 * voxels,
    );
    let slope = Tensor::<3>::ones([1, 32, 32], device);
    row(
        "gradient of the control points, 32 smooth bins",
        time(device, RUNS, || {
            let coefficients = coefficients.clone();
            bspline_votes_pull_back(&images, coefficients, &control, slope.clone(), &smooth)
        })?,
        12.0 * voxels,
    );
    if !settings.no_differences {
        let options = whole(Counting::Automatic);
        let by = (&options, Information::Normalized, 1.0);
        let ms =
            time(device, 1, || bspline_differences(&images, coefficients.clone(), &control, by))?;
        // As the paper counts: six times the voxels of every support.
        let supports = (d * h * w) as f64 * (4.0 * settings.spacing).powi(3);
        row("gradient of the control points, differences, 256 bins", ms, 72.0 * supports);
    }
    Ok(())
}
