//! The registration of `ffdp register --slabs` on a pair that no file holds: what does not fit onto the one
//! device rests in host memory. The planes of the pair are made when they are asked for, and go through host
//! memory as those of a file would.

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use clap::Args;
use ffdp::image::{Geometry, Planes};
use ffdp::ops::{MomentStorage, Optimizer};
use ffdp::parallel::memory::order_allocations;
use ffdp::register::{
    LevelSettings, Observer, Placement, Register, Stage,
    methods::GreedySettings,
    report::{LevelReport, LevelStart, Progress},
    result::Warp,
    settings::{AdamSettings, OptimizerSettings},
};
use ffdp::{Error, Result};

use super::iterate::numbers;
use super::register::HEAD;
use super::scene::{RUN, Scene, Side, grid, sent};
use super::{Common, memory};

#[derive(Args, Clone, Debug)]
pub struct Settings {
    #[command(flatten)]
    common: Common,
    /// Memory of the device, GB.
    #[arg(long)]
    memory_gb: f64,
    /// Shrink factors.
    #[arg(long, value_delimiter = ',', default_value = "4,1")]
    shrink: Vec<f64>,
    /// Iterations of every level.
    #[arg(long, value_delimiter = ',', default_value = "100,4")]
    iterations: Vec<usize>,
}

pub fn run(settings: &Settings, devices: &[Device]) -> Result<()> {
    order_allocations();
    let (common, device) = (&settings.common, &devices[0]);
    let fixed = Geometry::new(common.size, [1.0; 3])?;
    let moving = grid(&fixed, common.moving.unwrap_or(common.size))?;
    println!("slabs {:?} moving {:?} bf16 {}", fixed.size, moving.size, common.bf16);
    let scene = Scene::new(&fixed, common.displacement, common.seed, device)?;
    let side = |side, grid| Read { scene: &scene, side, grid, values: Vec::new(), first: 0 };
    let (mut of_fixed, mut of_moving) =
        (side(Side::Fixed, fixed.clone()), side(Side::Moving, moving.clone()));
    let levels = settings.shrink.iter().zip(&settings.iterations);
    let level = |(&shrink, &iterations)| LevelSettings { shrink, iterations };
    let Optimizer::Adam(adam) = common.options().optimizer else { unreachable!("it is Adam") };
    let greedy = GreedySettings {
        levels: levels.map(level).collect(),
        optimizer: OptimizerSettings::Adam(AdamSettings {
            moments: adam.storage,
            ..AdamSettings::default()
        }),
        ..GreedySettings::default()
    };
    let bytes_each = if adam.storage == MomentStorage::Full { 40.0 } else { 28.0 };
    let state = (fixed.len() as f64 * bytes_each + moving.len() as f64 * 4.0) / 1e9;
    println!("images, displacement and moments of the finest level: {state:.1} GB");
    let all = ffdp::register::Settings {
        stages: vec![Stage::Greedy(greedy)],
        loss_interval: 1,
        ..ffdp::register::Settings::default()
    };
    let placement =
        Placement::Device { device: device.clone(), bytes: (settings.memory_gb * 1e9) as u64 };
    let clock = Instant::now();
    let mut reporter = Reporter { start: clock, last: clock, device };
    let registration = Register::new(&mut of_fixed, &mut of_moving).settings(&all).on(&placement);
    let found = registration.observer(&mut reporter).run()?;
    let (before, after) = (found.loss_before, found.loss_after);
    let seconds = clock.elapsed().as_secs_f64();
    println!("registration {seconds:.1} s, loss {before:.6} -> {after:.6}, {:?}", found.outcome);
    let Some(warp) = &found.warp else { return Ok(()) };
    let folds = warp.folding()?.folds;
    let [off, length] = quality(warp, &scene, device)?;
    println!("folds {folds}; in the head mean |u - v| {off:.3} voxel of mean |v| {length:.3}");
    Ok(())
}

/// One of the images.
struct Read<'a> {
    scene: &'a Scene,
    side: Side,
    grid: Geometry,
    /// Of the plane `first` and those after it: what was made and may be asked for again.
    values: Vec<f32>,
    first: usize,
}

impl Planes for Read<'_> {
    fn geometry(&self) -> &Geometry {
        &self.grid
    }

    fn read(&mut self, z: Range<usize>) -> Result<&[f32]> {
        let [x, y, extent] = self.grid.size;
        let plane = x * y;
        let made = self.first..self.first + self.values.len() / plane;
        if !(made.start..=made.end).contains(&z.start) {
            (self.first, self.values) = (z.start, Vec::new());
        } else if z.end > made.end {
            // Readers ascend, or begin again.
            self.values.drain(..(z.start - made.start) * plane);
            self.first = z.start;
        }
        let mut end = self.first + self.values.len() / plane;
        while end < z.end {
            // To the end of a run, which is made as a whole.
            let next = end..((end / RUN + 1) * RUN).min(extent);
            let device = self.scene.device();
            let planes = self.scene.planes(self.side, &self.grid, next.clone(), &device)?;
            let values = planes.try_into_vec_as::<f32>();
            let values = values.map_err(|no| Error::device("reading planes back", no))?;
            self.values.extend(values);
            end = next.end;
        }
        let at = (z.start - self.first) * plane;
        Ok(&self.values[at..at + z.len() * plane])
    }
}

/// Prints when levels begin and end, and how long iterations took.
struct Reporter<'a> {
    start: Instant,
    last: Instant,
    device: &'a Device,
}

impl Reporter<'_> {
    fn say(&self, what: &str) {
        let (at, held) =
            (self.start.elapsed().as_secs_f64(), memory(std::slice::from_ref(self.device)));
        println!("{at:>8.1} s  {what}, GB {held}");
    }
}

impl Observer for Reporter<'_> {
    fn level_started(&mut self, level: &LevelStart) -> ControlFlow<()> {
        self.say(&format!("shrink {} {:?}: read", level.shrink, level.size));
        self.last = Instant::now();
        ControlFlow::Continue(())
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        let Progress { iteration, iterations, loss, .. } = progress;
        if *iterations <= 10 {
            let seconds = self.last.elapsed().as_secs_f64();
            self.say(&format!("iteration {iteration}: {seconds:.2} s, loss {loss:.6}"));
            self.last = Instant::now();
        }
        ControlFlow::Continue(())
    }

    fn level_finished(&mut self, level: &LevelReport) -> ControlFlow<()> {
        let last = level.losses.last().copied().unwrap_or(f64::NAN);
        self.say(&format!("shrink {}: {:.2} s, loss {last:.6}", level.shrink, level.seconds));
        ControlFlow::Continue(())
    }
}

/// In the head, the mean length of what is wrong and of the known displacement, in voxels.
fn quality(warp: &Warp, scene: &Scene, device: &Device) -> Result<[f64; 2]> {
    let [mut off, mut known, mut voxels] = [0.0f64; 3];
    for (planes, shard) in warp.field.layout().all_planes().zip(warp.field.shards()) {
        let u = sent(shard.clone(), device);
        let v = scene.known(&planes);
        let fixed = scene.planes(Side::Fixed, &warp.fixed, planes, device)?;
        let head = fixed.greater_elem(HEAD).float();
        let sum = |x: Tensor<5>| Ok::<_, Error>(numbers(x.sum_dim(4).sum_dim(3).sum())?[0]);
        let length = |x: Tensor<5>| (x.clone() * x).sum_dim(1).sqrt() * head.clone();
        off += sum(length(u - v.clone()))?;
        known += sum(length(v))?;
        voxels += sum(head.clone())?;
    }
    Ok([off / voxels, known / voxels])
}
