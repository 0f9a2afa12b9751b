//! Free-form deformation by normalised mutual information: rates of its operations, and registrations from coarse to
//! fine of a pair that no file holds, with the analytic gradient and L-BFGS and with what Ikeda et al. (2014) have: 256
//! whole bins, no penalties, finite differences of every control point, steepest descent until the gradient is short.
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
    ControlGrid, Counting, DifferencesOptions, HistogramOptions, Information, ParzenKernel,
    VotesImages, VotesOptions, bspline, bspline_differences, bspline_pull_back, bspline_votes,
    bspline_votes_pull_back, joint_histogram, warp,
};
use ffdp::parallel::DeviceMesh;
use ffdp::register::{
    LevelSettings, Register, Settings as Registering, Similarity, Stage,
    methods::{FfdSettings, SplineGradient},
    settings::{ConvergenceSettings, MiSettings, OptimizerSettings, Regularization},
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
    /// Norm of the gradient at which a level of the paper's algorithm ends; 1e-3 in its table 1.
    #[arg(long, default_value_t = 1e-3)]
    gradient_tolerance: f64,
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
    let pair = [&fixed, &moving];
    registration(settings, pair, "ours", FfdSettings::default(), device)?;
    registration(settings, pair, "ours, all kernels compiled", FfdSettings::default(), device)?;
    if !settings.no_differences {
        let paper = papers(settings.gradient_tolerance);
        registration(settings, pair, "the paper's", paper, device)?;
    }
    println!("GB used/held {}", memory(devices));
    Ok(())
}

/// Ikeda et al. have no penalties, and levels that only the norm of the gradient ends; here also a step that a tenth of does
/// not help, and the iterations.
fn papers(gradient_tolerance: f64) -> FfdSettings {
    FfdSettings {
        similarity: Similarity::Nmi(MiSettings { bins: 256, ..MiSettings::default() }),
        gradient: SplineGradient::FiniteDifferences,
        optimizer: OptimizerSettings::Sgd,
        regularization: Regularization::default(),
        volume: 0.0,
        gradient_tolerance,
        convergence: ConvergenceSettings { tolerance: 0.0, ..ConvergenceSettings::default() },
        ..FfdSettings::default()
    }
}

/// One registration, level by level.
fn registration(
    settings: &Settings,
    [fixed, moving]: [&Volume; 2],
    name: &str,
    algorithm: FfdSettings,
    device: &Device,
) -> Result<()> {
    let finest = settings.levels.last().copied().unwrap_or(1.0);
    let level = |&shrink| LevelSettings { shrink, iterations: settings.iterations };
    let ffd = FfdSettings {
        levels: settings.levels.iter().map(level).collect(),
        spacing_mm: [settings.spacing * finest; 3],
        ..algorithm
    };
    let stages = vec![Stage::Ffd(ffd)];
    let settings = Registering { stages, ..Registering::default() };
    let start = Instant::now();
    let result = Register::new(fixed, moving).settings(&settings).on(device).run()?;
    let all = start.elapsed().as_secs_f64();
    println!("\n{name}");
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

/// A pair of images, and control points that deform the moving one.
struct Splines {
    images: VotesImages,
    coefficients: Tensor<5>,
    control: ControlGrid,
}

impl Splines {
    fn new(settings: &Settings, grid: &Geometry, [fixed, moving]: [&Tensor<5>; 2]) -> Self {
        let device = &fixed.device();
        let (control, [d, h, w]) = ControlGrid::covering(grid.dims(), [settings.spacing; 3]);
        // A few voxels, as after some iterations.
        let normal = burn::tensor::Distribution::Normal(0.0, 2.0);
        let coefficients = Tensor::<5>::random([1, 3, d, h, w], normal, device);
        let affine = affine([grid, grid], device);
        let images = VotesImages { fixed: fixed.clone(), moving: moving.clone(), affine };
        Self { images, coefficients, control }
    }

    /// Control points along each axis.
    fn points(&self) -> [usize; 3] {
        let [_, _, d, h, w] = self.coefficients.dims();
        [d, h, w]
    }

    fn field(&self) -> Tensor<5> {
        let [_, _, d, h, w] = self.images.fixed.dims();
        bspline(self.coefficients.clone(), &self.control, [d, h, w])
    }

    /// Times an operation that moves 12 bytes a voxel, and prints its row.
    fn time<T>(&self, name: &str, run: impl Fn() -> T) -> Result<()> {
        self.print(name, time(&self.coefficients.device(), RUNS, run)?, 12.0 * self.voxels());
        Ok(())
    }

    fn voxels(&self) -> f64 {
        self.images.fixed.dims().iter().product::<usize>() as f64
    }

    fn print(&self, name: &str, ms: f64, bytes: f64) {
        let rate = self.voxels() / ms / 1e3;
        println!("{name:<52} {ms:>9.3} {rate:>12.0} {:>9.1}", bytes / ms / 1e6);
    }

    fn votes(&self, name: &str, options: &VotesOptions) -> Result<()> {
        self.time(name, || {
            bspline_votes(&self.images, self.coefficients.clone(), &self.control, options)
        })
    }

    fn histograms(&self) -> Result<()> {
        let VotesImages { fixed, moving, .. } = &self.images;
        let histogram = |moved, options| joint_histogram(moved, fixed.clone(), options);
        let smooth = VotesOptions::default();
        self.votes("warp and histogram in one, 32 smooth bins", &smooth)?;
        self.time("  one operation after the other", || {
            histogram(warp(moving.clone(), self.field()), &smooth.histogram)
        })?;
        for (name, counting) in [
            ("warp and histogram in one, 256 whole bins", Counting::Automatic),
            ("  a band of 177 bins", Counting::Band(177)),
            ("  in global memory", Counting::Global),
        ] {
            self.votes(name, &whole_bins(counting))?;
        }
        let whole = whole_bins(Counting::Automatic).histogram;
        self.time("histogram alone, 256 whole bins", || histogram(moving.clone(), &whole))
    }

    fn gradient(&self) -> Result<()> {
        let slope = Tensor::<3>::ones([1, 32, 32], &self.coefficients.device());
        self.time("gradient of the control points, 32 smooth bins", || {
            let (coefficients, smooth) = (self.coefficients.clone(), VotesOptions::default());
            bspline_votes_pull_back(
                &self.images,
                coefficients,
                &self.control,
                slope.clone(),
                &smooth,
            )
        })
    }

    fn differences(&self, spacing: f64) -> Result<()> {
        let options = whole_bins(Counting::Automatic);
        let information = Information::Normalized;
        let by = DifferencesOptions { votes: &options, information, step_voxels: 1.0 };
        let ms = time(&self.coefficients.device(), 1, || {
            bspline_differences(&self.images, self.coefficients.clone(), &self.control, by)
        })?;
        // As the paper counts: six times the voxels of every support.
        let points: usize = self.points().iter().product();
        let supports = points as f64 * (4.0 * spacing).powi(3);
        self.print("gradient of the control points, differences, 256 bins", ms, 72.0 * supports);
        Ok(())
    }
}

fn whole_bins(counting: Counting) -> VotesOptions {
    let histogram =
        HistogramOptions { bins: 256, kernel: ParzenKernel::Delta, ..Default::default() };
    VotesOptions { histogram, counting, ..VotesOptions::default() }
}

fn operations(settings: &Settings, grid: &Geometry, images: [&Tensor<5>; 2]) -> Result<()> {
    let splines = Splines::new(settings, grid, images);
    println!("{:<52} {:>9} {:>12} {:>9}", "operation", "ms", "Mvoxel/s", "GB/s");
    splines.time("field of the control points", || splines.field())?;
    let (field, points) = (splines.field(), splines.points());
    splines.time("its pull-back", || {
        bspline_pull_back(field.clone(), &splines.control, points, [0; 3])
    })?;
    splines.histograms()?;
    splines.gradient()?;
    if !settings.no_differences {
        splines.differences(settings.spacing)?;
    }
    Ok(())
}
