//! Iterations at full size, by number of shards: time, memory, and how far the field is from that of one
//! shard. Also with the whole moving image on every device, for what the ring costs.

use std::time::Instant;

use burn::tensor::{DType, Device, Tensor, TensorData};
use clap::{Args, ValueEnum};
use ffdp::image::{Affine, Geometry, Voxel, index_affine};
use ffdp::ops::{Accumulation, DeformMethod, DeformOptions, GaussianOptions, Update, dense_zeros};
use ffdp::parallel::{
    Axis, DeviceMesh, Layout, Sharded,
    deform::{ShardedDeform, ShardedImages, ShardedState},
    memory::{ExactMemory, order_allocations},
    planner::{DeformProblem, DeviceMemory, plan_offloaded},
};
use ffdp::{Error, Result};

use super::newton;
use super::scene::{Scene, Side, grid, layout, sent, zero_displacement};
use super::{Common, memory};

#[derive(Args, Clone, Debug)]
pub struct Settings {
    #[command(flatten)]
    common: Common,
    /// What is iterated.
    #[arg(long, value_enum, default_value_t = MethodArg::Greedy)]
    method: MethodArg,
    /// Every device holds the whole moving image, and none travels round the ring. Results stay as they are.
    #[arg(long, conflicts_with_all = ["cut_moving", "moving"])]
    without_ring: bool,
    /// Every shard but a single one is a problem of its own, which no plane of a neighbour enters (the ablation of the FFDP
    /// paper): its windows and its smoothing end at the seams. With the Dice of the structures of each row.
    #[arg(long, conflicts_with_all = ["without_ring", "memory_gb", "block", "read_every"])]
    without_halos: bool,
    /// Numbers of shards, over all devices; with 1 among them the others are compared with it.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    shards: Vec<usize>,
    /// Timed iterations.
    #[arg(long, default_value_t = 10)]
    iterations: usize,
    /// Print the time of every so many iterations, from the first on, also of those before the clock starts.
    #[arg(long, conflicts_with = "read_every")]
    block: Option<usize>,
    /// Iterations between two readings of the loss [all]
    #[arg(long)]
    read_every: Option<usize>,
    /// Cut the moving image as well, even on one device.
    #[arg(long)]
    cut_moving: bool,
    /// Allocate every buffer by itself, not out of pages of the pools.
    #[arg(long)]
    exact: bool,
    /// Memory of the one device, GB: what does not fit rests in host memory. The planner chooses the shards.
    #[arg(long)]
    memory_gb: Option<f64>,
}

/// `--method`
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum MethodArg {
    /// A displacement.
    Greedy,
    /// A stationary velocity, with the smoothing and the squarings of `ffdp register --transform svf`.
    Svf,
    /// Gauss-Newton-Krylov: an iteration is a step with ten iterations of conjugate gradients.
    Gnk,
}

impl Settings {
    fn options(&self) -> DeformOptions {
        let options = self.common.options();
        if self.method != MethodArg::Svf {
            return options;
        }
        DeformOptions {
            method: DeformMethod::Svf { squarings: 6, accumulation: Accumulation::Fast },
            update: Update::Additive,
            smooth_gradient: GaussianOptions::isotropic(1.75),
            ..options
        }
    }
}

pub fn run(settings: &Settings, devices: &[Device]) -> Result<()> {
    let common = &settings.common;
    let fixed = Geometry::new(common.size, [1.0; 3])?;
    let moving = grid(&fixed, common.moving.unwrap_or(common.size))?;
    if let Some(gb) = settings.memory_gb {
        return offloaded(settings, &devices[0], [&fixed, &moving], gb);
    }
    println!(
        "iterate {:?} moving {:?} bf16 {} {:?} without ring {}",
        fixed.size, moving.size, common.bf16, settings.method, settings.without_ring
    );
    println!(
        "{:>7} {:>10} {:>12} {:>14} {:>12} {:>12}",
        "shards",
        "ms/iter",
        "ns/voxel",
        "GB used/held",
        "loss",
        "|du|: mean, part > 1e-3, max, max at seams"
    );
    let mut whole: Option<Sharded> = None;
    for shards in &settings.shards {
        let some = &devices[..devices.len().min(*shards)];
        let apart = settings.without_halos && *shards > 1;
        let way = if apart { without_halos } else { measure };
        let (field, ms, loss) = way(settings, some, *shards, [&fixed, &moving])?;
        let ns = ms * 1e6 / fixed.len() as f64;
        let held = memory(devices);
        let off = match &whole {
            None => "-".into(),
            Some(whole) => {
                let [mean, many, most, at_seam] = difference(whole, &field)?;
                format!("{mean:.1e} {many:.1e} {most:.1e} {at_seam:.1e}")
            }
        };
        println!("{shards:>7} {ms:>10.2} {ns:>12.4} {held:>14} {loss:>12.6} {off:>12}");
        if settings.without_halos {
            let scene = Scene::new(&fixed, common.displacement, common.seed, &devices[0])?;
            println!("{shards:>7} shards: mean Dice of the structures {:.4}", scene.dice(&field)?);
        }
        if *shards == 1 {
            whole = Some(field);
        }
        devices.iter().for_each(Device::memory_cleanup);
    }
    Ok(())
}

/// Of the memory that may be taken, the part that the planner gives away; the rest is for what is small, and
/// for what an operation allocates within itself.
const GIVEN: f64 = 0.75;

/// Iterations of a problem that rests in host memory as far as the device has no room.
fn offloaded(
    settings: &Settings,
    device: &Device,
    [fixed, moving]: [&Geometry; 2],
    gb: f64,
) -> Result<()> {
    let common = &settings.common;
    let options = common.options();
    let problem = DeformProblem::plain([fixed.dims(), moving.dims()], Axis::Z, options);
    let memory =
        DeviceMemory { bytes: (GIVEN * gb * 1e9) as u64, largest_buffer: (gb * 1e9 / 4.0) as u64 };
    let plan = plan_offloaded(&problem, memory)?;
    order_allocations();
    let shards = plan.layout.count();
    println!(
        "offload {:?} bf16 {}: {shards} shards, {} of them stay; planned {:.1} GB here, {:.1} GB on the host",
        fixed.size,
        common.bf16,
        plan.resident,
        plan.device_bytes as f64 / 1e9,
        plan.host_bytes as f64 / 1e9
    );
    let exact = ExactMemory::on(device, memory.bytes);
    let work = DeviceMesh::new(std::slice::from_ref(device), shards)?;
    let host = Device::flex();
    let place = |k: usize| if k < plan.resident { device.clone() } else { host.clone() };
    let rest: Vec<Device> = (0..shards).map(place).collect();
    let scene = Scene::new(fixed, common.displacement, common.seed, device)?;
    let clock = Instant::now();
    let image = |side, grid: &Geometry| {
        resting(layout(grid, &work)?, &rest, |planes| scene.planes(side, grid, planes, device))
    };
    let images = ShardedImages {
        fixed: image(Side::Fixed, fixed)?,
        moving: image(Side::Moving, moving)?,
        affine: affine([fixed, moving], device),
        masked: [false; 2],
        landmarks: None,
    };
    drop(scene);
    let [_, h, w] = fixed.dims();
    let displacement = resting(plan.layout.clone(), &rest, |planes| {
        Ok(dense_zeros([1, 3, planes.len(), h, w], device, DType::F32))
    })?;
    let state = ShardedState::new(vec![displacement]);
    let mut deform = ShardedDeform::new(images, state, &options, &work)?;
    println!("made in {:.1} s, GB {}", clock.elapsed().as_secs_f64(), memory_of(device));
    for iteration in 0..settings.iterations {
        let clock = Instant::now();
        let loss = numbers(deform.iterate(1)?)?[0];
        let seconds = clock.elapsed().as_secs_f64();
        println!("iteration {iteration}: {seconds:.2} s, loss {loss:.6}, GB {}", memory_of(device));
    }
    drop((deform, exact));
    Ok(())
}

/// Shards that are made one by one and rest on these devices.
fn resting(
    layout: Layout,
    homes: &[Device],
    make: impl Fn(std::ops::Range<usize>) -> Result<Tensor<5>>,
) -> Result<Sharded> {
    let planes = layout.all_planes().zip(homes);
    let shards = planes.map(|(planes, home)| Ok(sent(make(planes)?, home)));
    Ok(Sharded::new(shards.collect::<Result<_>>()?, layout))
}

fn memory_of(device: &Device) -> String {
    memory(std::slice::from_ref(device))
}

/// The field, milliseconds an iteration, and the loss before the last one.
fn measure(
    settings: &Settings,
    devices: &[Device],
    shards: usize,
    [fixed, moving]: [&Geometry; 2],
) -> Result<(Sharded, f64, f64)> {
    let mesh = DeviceMesh::new(devices, shards)?;
    if settings.method == MethodArg::Gnk {
        if settings.without_ring {
            let fix = "leave it out, or use another method";
            return Err(Error::invalid("gnk always has a ring", "--without-ring", fix));
        }
        let (images, _) = pair(settings, &mesh, [fixed, moving])?;
        return newton::measure(images, fixed, settings.iterations);
    }
    let layout = layout(fixed, &mesh)?;
    let _exact: Vec<ExactMemory> = match settings.exact {
        true => devices.iter().map(|device| ExactMemory::on(device, 0)).collect(),
        false => Vec::new(),
    };
    let (images, options) = pair(settings, &mesh, [fixed, moving])?;
    let displacement = zero_displacement(&layout, &mesh)?;
    devices.iter().for_each(Device::memory_cleanup);
    let state = ShardedState::new(vec![displacement]);
    let mut work = ShardedDeform::new(images, state, &options, &mesh)?;
    // As many before the clock starts, so that it meets no kernel for the first time.
    let together = settings.block.or(settings.read_every).unwrap_or(settings.iterations);
    let blocks = settings.iterations.div_ceil(together);
    let each = settings.iterations / blocks;
    let mut times = Vec::new();
    let mut run = |work: &mut ShardedDeform| -> Result<Vec<f64>> {
        let mut losses = Vec::new();
        for _ in 0..blocks {
            let start = Instant::now();
            losses = numbers(work.iterate(each)?)?;
            if settings.block.is_some() {
                wait(&mesh)?;
                times.push(start.elapsed().as_secs_f64() * 1e3 / each as f64);
            }
        }
        wait(&mesh)?;
        Ok(losses)
    };
    run(&mut work)?;
    let start = Instant::now();
    let losses = run(&mut work)?;
    let ms = start.elapsed().as_secs_f64() * 1e3 / (each * blocks) as f64;
    if settings.block.is_some() {
        let times: Vec<String> = times.iter().map(|ms| format!("{ms:.1}")).collect();
        println!("ms an iteration, of {each} after {each}: {}", times.join(" "));
    }
    let last = losses.last().copied().unwrap_or(f64::NAN);
    Ok((work.into_fields().remove(0), ms, last))
}

/// As [`measure`], of shards that are compared, smoothed and scaled each by itself. The moving image is whole.
fn without_halos(
    settings: &Settings,
    devices: &[Device],
    shards: usize,
    [fixed, moving]: [&Geometry; 2],
) -> Result<(Sharded, f64, f64)> {
    if settings.method == MethodArg::Gnk {
        let fix = "leave it out, or use another method";
        return Err(Error::invalid("gnk always has halos", "--without-halos", fix));
    }
    let one = DeviceMesh::one(&devices[0]);
    let cuts = layout(fixed, &DeviceMesh::new(&devices[..1], shards)?)?;
    let (whole, options) = pair(settings, &one, [fixed, moving])?;
    let map = index_affine(fixed, moving, &Affine::identity());
    let (mut fields, mut seconds, mut loss) = (Vec::new(), 0.0, 0.0);
    for planes in cuts.all_planes() {
        let grid = Geometry::new([fixed.size[0], fixed.size[1], planes.len()], [1.0; 3])?;
        let own = layout(&grid, &one)?;
        let to_moving =
            Affine::from_parts(map.linear(), map.apply([0.0, 0.0, planes.start as f64]));
        let images = ShardedImages {
            fixed: Sharded::new(vec![whole.fixed.window(planes.clone(), &devices[0])], own.clone()),
            affine: to_tensor(&to_moving, &devices[0]),
            ..whole.clone()
        };
        let state = ShardedState::new(vec![zero_displacement(&own, &one)?]);
        let mut work = ShardedDeform::new(images, state, &options, &one)?;
        // As many again before the clock starts, as in the rows with halos.
        numbers(work.iterate(settings.iterations)?)?;
        let start = Instant::now();
        let losses = numbers(work.iterate(settings.iterations)?)?;
        seconds += start.elapsed().as_secs_f64();
        loss += losses.last().copied().unwrap_or(f64::NAN) * planes.len() as f64;
        fields.extend(work.into_fields().remove(0).into_shards());
    }
    let ms = seconds * 1e3 / settings.iterations as f64;
    Ok((Sharded::new(fields, cuts), ms, loss / fixed.size[2] as f64))
}

fn pair(
    settings: &Settings,
    mesh: &DeviceMesh,
    [fixed, moving]: [&Geometry; 2],
) -> Result<(ShardedImages, DeformOptions)> {
    let common = &settings.common;
    let home = mesh.device(0);
    let scene = Scene::new(fixed, common.displacement, common.seed, home)?;
    let one = DeviceMesh::one(home);
    let is_cut = mesh.has_several_devices() || settings.cut_moving;
    let is_shared = !settings.without_ring && (is_cut || settings.method == MethodArg::Gnk);
    let moving_mesh = if is_shared { mesh } else { &one };
    let images = images(&scene, [fixed, moving], [mesh, moving_mesh])?;
    let map = index_affine(fixed, moving, &Affine::identity());
    let options = DeformOptions { displacement_scale: map.linear(), ..settings.options() };
    Ok((images, options))
}

/// Both images of a scene, on their meshes, with the map between their grids.
pub fn images(
    scene: &Scene,
    [fixed, moving]: [&Geometry; 2],
    [fixed_mesh, moving_mesh]: [&DeviceMesh; 2],
) -> Result<ShardedImages> {
    let image = |side, grid: &Geometry, mesh: &DeviceMesh| {
        let layout = layout(grid, mesh)?;
        scene.image(side, grid, &layout, mesh)
    };
    Ok(ShardedImages {
        fixed: image(Side::Fixed, fixed, fixed_mesh)?,
        moving: image(Side::Moving, moving, moving_mesh)?,
        affine: affine([fixed, moving], fixed_mesh.device(0)),
        masked: [false; 2],
        landmarks: None,
    })
}

/// From voxels of one grid to those of another over the same field of view.
pub fn affine([fixed, moving]: [&Geometry; 2], device: &Device) -> Tensor<3> {
    to_tensor(&index_affine(fixed, moving, &Affine::identity()), device)
}

fn to_tensor(map: &Affine<Voxel, Voxel>, device: &Device) -> Tensor<3> {
    Tensor::from_data(TensorData::new(map.to_f32().to_vec(), [1, 3, 4]), device)
}

/// Until all devices have done what they were given.
pub(super) fn wait(mesh: &DeviceMesh) -> Result<()> {
    let sync = |device: &Device| {
        device.sync().map_err(|reason| Error::device("waiting for the iterations", reason))
    };
    mesh.devices().iter().try_for_each(sync)
}

/// Numbers read from a device.
pub fn numbers(values: Tensor<1>) -> Result<Vec<f64>> {
    values.try_into_vec_as::<f64>().map_err(|reason| Error::device("reading numbers", reason))
}

/// Planes on either side of a seam whose displacement comes from strips.
const SEAM: usize = 3;

/// How far a field is from the whole one, in voxels: the mean, the part of the components that are more
/// than 1e-3 off, the largest, and the largest next to a seam.
fn difference(whole: &Sharded, field: &Sharded) -> Result<[f64; 4]> {
    let [mut sum, mut many, mut most, mut at_seam] = [0.0f64; 4];
    for (planes, shard) in field.layout().all_planes().zip(field.shards()) {
        let part = whole.window(planes.clone(), &whole.shards()[0].device());
        let off = (part.clone() - sent(shard.clone(), &part.device())).abs();
        let total = |x: Tensor<5>| numbers(x.sum_dim(4).sum_dim(3).sum());
        let largest = |x: Tensor<5>| numbers(x.max_dim(4).max_dim(3).max());
        sum += total(off.clone())?[0];
        many += total(off.clone().greater_elem(1e-3).float())?[0];
        most = most.max(largest(off.clone())?[0]);
        let low = off.clone().narrow(2, 0, SEAM);
        let high = off.narrow(2, planes.len() - SEAM, SEAM);
        at_seam = at_seam.max(largest(low)?[0]).max(largest(high)?[0]);
    }
    let components = 3.0 * field.layout().voxels() as f64;
    Ok([sum / components, many / components, most, at_seam])
}
