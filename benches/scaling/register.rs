//! A registration from coarse to fine of a pair that is never whole in host memory: levels that fit on
//! a device go as one shard, the others as many.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use clap::Args;
use ffdp::image::{Affine, Geometry, index_affine};
use ffdp::losses::Lncc;
use ffdp::ops::{DeformOptions, GridSampleOptions, LnccOptions};
use ffdp::parallel::{
    Axis, DeviceMesh, ShardPlaces, Sharded,
    deform::{ShardedDeform, ShardedImages, ShardedState},
    ops::{jacobian, level, loss, resample_displacement},
    planner::{DeformProblem, page_bytes},
    ring::{RingInputs, ring_sample},
};
use ffdp::register::pyramid::{level_geometry, level_smoothing};
use ffdp::{Error, Result};

use super::iterate::{affine, images, numbers, wait};
use super::pictures::{middle, write};
use super::scene::{Scene, grid, layout, sent, zero_displacement};
use super::{Common, memory};

#[derive(Args, Clone, Debug)]
pub struct Settings {
    #[command(flatten)]
    common: Common,
    /// Shards of the finest level.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Voxels above which a level is cut into shards.
    #[arg(long, default_value_t = 600_000_000)]
    whole: usize,
    /// Shrink factors.
    #[arg(long, value_delimiter = ',', default_value = "32,16,8,4,2,1")]
    shrink: Vec<f64>,
    /// Iterations of every level.
    #[arg(long, value_delimiter = ',', default_value = "250,100,100,100,50,20")]
    iterations: Vec<usize>,
    /// Cut the moving image as well, even on one device; so is one that hardly fits.
    #[arg(long)]
    cut_moving: bool,
    /// Memory of a GPU that is free, GB [what nvidia-smi says]
    #[arg(long)]
    memory_gb: Option<f64>,
    /// Folder for pictures of the central slice (PGM): both images, the moved one, and what is left between
    /// them before and after.
    #[arg(long)]
    pictures: Option<PathBuf>,
}

/// What is chosen before anything is made.
pub struct Fit {
    cut_moving: bool,
    /// GB of the pools' pages.
    pub page_gb: Option<f64>,
}

impl Settings {
    /// Without a plan.
    pub fn as_asked(&self) -> Fit {
        Fit { cut_moving: self.cut_moving, page_gb: None }
    }

    /// Whether the registration fits onto so many GPUs, and how; said before it starts.
    pub fn fit(&self, devices: usize, page_gb: Option<f64>) -> Result<Fit> {
        let common = &self.common;
        let dims = |[x, y, z]: [usize; 3]| [z, y, x];
        let moving = dims(common.moving.unwrap_or(common.size));
        let problem = DeformProblem::plain([dims(common.size), moving], Axis::Z, common.options());
        let plan = problem.cut(devices, self.shards.max(devices))?;
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let free = self.memory_gb.map(|gb| (gb * 1e9) as u64).or_else(free_bytes);
        let needed = gb(plan.device_bytes);
        let Some(free) = free else {
            println!("planned: {needed:.1} GB a device; it is not known how much is free");
            return Ok(Fit { cut_moving: self.cut_moving, page_gb });
        };
        let page = page_bytes(plan.device_bytes, free)?;
        let page_gb = page_gb.or(page.map(gb));
        let cut_moving = self.cut_moving || page.is_some();
        let pages = page_gb.map_or("of the pools' choice".into(), |gb| format!("of {gb:.1} GB"));
        println!(
            "planned: {needed:.1} GB a device of {:.1} free; pages {pages}, moving image cut: {cut_moving}",
            gb(free)
        );
        Ok(Fit { cut_moving, page_gb })
    }
}

/// Of the GPU with the least.
fn free_bytes() -> Option<u64> {
    let arguments = ["--query-gpu=memory.free", "--format=csv,noheader,nounits"];
    let said = std::process::Command::new("nvidia-smi").args(arguments).output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    said.lines().filter_map(|mib| mib.trim().parse::<u64>().ok()).min().map(|mib| mib << 20)
}

pub fn run(settings: &Settings, fit: &Fit, devices: &[Device]) -> Result<()> {
    let common = &settings.common;
    let fixed = Geometry::new(common.size, [1.0; 3])?;
    let moving = grid(&fixed, common.moving.unwrap_or(common.size))?;
    let mesh = DeviceMesh::new(devices, settings.shards.max(devices.len()))?;
    let one = DeviceMesh::one(&devices[0]);
    let moving_mesh = if devices.len() > 1 || fit.cut_moving { &mesh } else { &one };
    println!(
        "register {:?} moving {:?} bf16 {} shards {}",
        fixed.size,
        moving.size,
        common.bf16,
        mesh.count()
    );
    let begin = Instant::now();
    let scene = Scene::new(&fixed, common.displacement, common.seed, &devices[0])?;
    let full = images(&scene, [&fixed, &moving], [&mesh, moving_mesh])?;
    let before = similarity(settings, &full, None, [&fixed, &moving], "before")?;
    println!("images made in {:.1} s, GB {}", begin.elapsed().as_secs_f64(), memory(devices));
    devices.iter().for_each(Device::memory_cleanup);
    let start = Instant::now();
    let levels =
        Levels { full: &full, grids: [&fixed, &moving], mesh: &mesh, one: &one, moving_mesh };
    let mut found: Option<OnGrid> = None;
    println!(
        "{:>7} {:>16} {:>7} {:>9} {:>8} {:>8} {:>9} {:>9} {:>14}",
        "shrink",
        "size",
        "shards",
        "level s",
        "start s",
        "ms/iter",
        "first",
        "last",
        "GB used/held"
    );
    for (shrink, count) in settings.shrink.iter().zip(&settings.iterations) {
        found = Some(levels.register(*shrink, *count, found, settings, devices)?);
    }
    println!("registration {:.2} s", start.elapsed().as_secs_f64());
    devices.iter().for_each(Device::memory_cleanup);
    let field = found.expect("there is a level").displacement;
    let after = similarity(settings, &full, Some(&field), [&fixed, &moving], "after")?;
    let [folds, off, length] = quality(&field, &full.fixed, &scene)?;
    drop(field);
    let known = Sharded::build(full.fixed.layout(), &mesh, |planes, device| {
        Ok(sent(scene.known(&planes), device))
    })?;
    let best = similarity(settings, &full, Some(&known), [&fixed, &moving], "known")?;
    println!("LNCC mean {before:.5} -> {after:.5}; with the known displacement {best:.5}");
    println!("folds {folds}; in the head mean |u - v| {off:.3} voxel of mean |v| {length:.3}");
    Ok(())
}

/// What levels are made of.
struct Levels<'a> {
    full: &'a ShardedImages,
    grids: [&'a Geometry; 2],
    /// Of levels that are cut.
    mesh: &'a DeviceMesh,
    /// Of those that are not.
    one: &'a DeviceMesh,
    moving_mesh: &'a DeviceMesh,
}

/// A displacement, and the grid of the fixed image that it lies on.
struct OnGrid {
    displacement: Sharded,
    grid: Geometry,
}

impl Levels<'_> {
    /// Registers on a level, from what the level before has `found`, and prints its row.
    fn register(
        &self,
        shrink: f64,
        count: usize,
        found: Option<OnGrid>,
        settings: &Settings,
        devices: &[Device],
    ) -> Result<OnGrid> {
        let start = Instant::now();
        let [fixed, moving] = self.grids;
        let grids = [level_geometry(fixed, shrink, 8)?, level_geometry(moving, shrink, 8)?];
        let here = match grids[0].len() <= settings.whole && grids[0] != *fixed {
            true => self.one,
            false => self.mesh,
        };
        let on_level = level_images(self.full, self.grids, &grids, [here, self.moving_mesh])?;
        let displacement = match found {
            Some(found) => {
                resample_displacement(&found.displacement, [&found.grid, &grids[0]], here)?
            }
            None => zero_displacement(&layout(&grids[0], here)?, here)?,
        };
        let map = index_affine(&grids[0], &grids[1], &Affine::identity());
        let options =
            DeformOptions { displacement_scale: map.linear(), ..settings.common.options() };
        let state = ShardedState::new(vec![displacement]);
        // The first iteration meets new kernels, memory and neighbours.
        wait(here)?;
        let timed = Instant::now();
        let mut work = ShardedDeform::new(on_level, state, &options, here)?;
        let mut losses = numbers(work.iterate(1)?)?;
        wait(here)?;
        let begun = timed.elapsed().as_secs_f64();
        let timed = Instant::now();
        if count > 1 {
            losses.extend(numbers(work.iterate(count - 1)?)?);
            wait(here)?;
        }
        let ms = timed.elapsed().as_secs_f64() * 1e3 / (count - 1).max(1) as f64;
        let displacement = work.into_state().fields.remove(0);
        let shards = displacement.layout().count();
        let [grid, _] = grids;
        let size = format!("{:?}", grid.size);
        let held = memory(devices);
        let seconds = start.elapsed().as_secs_f64();
        let [first, last] = [losses.first(), losses.last()].map(|loss| *loss.unwrap_or(&f64::NAN));
        println!(
            "{shrink:>7} {size:>16} {shards:>7} {seconds:>9.2} {begun:>8.2} {ms:>8.2} {first:>9.5} {last:>9.5} {held:>14}"
        );
        Ok(OnGrid { displacement, grid })
    }
}

/// The pair on a level's grids.
fn level_images(
    full: &ShardedImages,
    [fixed, moving]: [&Geometry; 2],
    to: &[Geometry; 2],
    [fixed_mesh, moving_mesh]: [&DeviceMesh; 2],
) -> Result<ShardedImages> {
    let on = |image: &Sharded, from: &Geometry, to: &Geometry, mesh: &DeviceMesh| {
        level(image, [from, to], &level_smoothing(from, to), mesh)
    };
    let moving_mesh = if fixed_mesh.count() == 1 { fixed_mesh } else { moving_mesh };
    Ok(ShardedImages {
        fixed: on(&full.fixed, fixed, &to[0], fixed_mesh)?,
        moving: on(&full.moving, moving, &to[1], moving_mesh)?,
        affine: affine([&to[0], &to[1]], fixed_mesh.device(0)),
        masked: [false; 2],
        landmarks: None,
    })
}

/// The mean of LNCC at full size.
fn similarity(
    settings: &Settings,
    images: &ShardedImages,
    field: Option<&Sharded>,
    [fixed, moving]: [&Geometry; 2],
    name: &str,
) -> Result<f64> {
    let map = index_affine(fixed, moving, &Affine::identity());
    let sampling = GridSampleOptions { displacement_scale: map.linear(), ..Default::default() };
    let inputs =
        RingInputs { moving: &images.moving, affine: Some(&images.affine), displacement: field };
    let mesh = images.fixed.mesh();
    let moved = ring_sample(
        &inputs,
        ShardPlaces { layout: images.fixed.layout(), mesh: &mesh },
        &sampling,
    )?;
    if let Some(folder) = &settings.pictures {
        let [fixed, moved] = [&images.fixed, &moved].map(middle);
        write(folder, "fixed", fixed.clone())?;
        write(folder, &format!("moved_{name}"), moved.clone())?;
        write(folder, &format!("off_{name}"), (moved - fixed).abs())?;
    }
    Ok(1.0 - numbers(loss(&Lncc(LnccOptions::default()), &moved, &images.fixed))?[0])
}

/// Intensity above which a voxel is taken for the head.
pub const HEAD: f64 = 0.05;

/// Voxels at which the map folds; in the head, the mean length of what is wrong and of the known
/// displacement, in voxels.
fn quality(field: &Sharded, fixed: &Sharded, scene: &Scene) -> Result<[f64; 3]> {
    let determinants = jacobian(field);
    let [mut folds, mut off, mut known, mut voxels] = [0.0f64; 4];
    for (k, planes) in field.layout().all_planes().enumerate() {
        let u = field.shards()[k].clone();
        let v = sent(scene.known(&planes), &u.device());
        let head = fixed.shards()[k].clone().greater_elem(HEAD).float();
        let sum = |x: Tensor<5>| Ok::<_, Error>(numbers(x.sum_dim(4).sum_dim(3).sum())?[0]);
        let length = |x: Tensor<5>| (x.clone() * x).sum_dim(1).sqrt() * head.clone();
        folds += sum(determinants.shards()[k].clone().lower_equal_elem(0.0).float())?;
        off += sum(length(u - v.clone()))?;
        known += sum(length(v))?;
        voxels += sum(head.clone())?;
    }
    Ok([folds, off / voxels, known / voxels])
}
