//! A brain-like pair of any size, made on the devices slab by slab from a seed.
//!
//! ```text
//! moving(q) = I(q)      fixed(p) = I(p + v(p))      so that u = v is the answer
//! ```
//! `I` is a phantom of a head, read between its voxels, with texture within the tissue; `v` a smooth random
//! displacement. The texture is a sum of octaves, from four voxels of the fixed grid to an eighth of its edge: so
//! every level of a pyramid has structure of a few of its own voxels, as a scan of anatomy has. With the finest
//! octave alone tissue is flat to the coarse levels, and what they leave over is more than the finest can find
//! (a noise of four voxels looks like any other place of it from more than two voxels off).

use std::ops::Range;

use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};
use ffdp::Result;
use ffdp::image::{Geometry, LabelMap};
use ffdp::ops::{GaussianOptions, GridSampleOptions, Padding, dense_zeros, gaussian, grid_sample};
use ffdp::parallel::{Axis, DeviceMesh, Layout, Sharded};
use ffdp::synth::{PhantomSettings, Subject, subject};

use super::iterate::numbers;

/// Edge of the phantom in voxels, and of the lattice of the displacement.
const PHANTOM: usize = 128;
const LATTICE: usize = 24;
/// Planes of an image that are made at a time: the same bits whatever the cuts, and no buffer of the size
/// of an image, after which memory pools would size their pages.
pub const RUN: usize = 16;
/// Voxels of the fixed grid for one of the texture.
const TEXTURE: usize = 4;
/// The coarsest octave has so many values along the longest edge, or a few more.
const COARSEST: usize = 8;
/// Standard deviation of each octave, as a part of the intensity.
const CONTRAST: f64 = 0.3;

/// What the pair is read from; each covers the field of view.
pub struct Scene {
    phantom: Tensor<5>,
    /// Fine to coarse.
    texture: Vec<Tensor<5>>,
    /// In voxels of the fixed grid.
    displacement: Tensor<5>,
    fixed: Geometry,
    /// Of the phantom.
    labels: LabelMap,
}

/// Which of the two images.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Fixed,
    Moving,
}

impl Scene {
    /// For a fixed image on a grid, whose longest displacement has so many voxels.
    pub fn new(fixed: &Geometry, longest: f64, seed: u64, device: &Device) -> Result<Self> {
        let Subject { image: phantom, labels } =
            subject(&PhantomSettings::with_size([PHANTOM; 3]), seed)?;
        device.seed(seed);
        let normal =
            |shape: [usize; 5]| Tensor::<5>::random(shape, Distribution::Normal(0.0, 1.0), device);
        let longest_edge = fixed.size.into_iter().max().expect("three extents");
        let octaves = std::iter::successors(Some(TEXTURE), |voxels| Some(2 * voxels))
            .take_while(|voxels| *voxels == TEXTURE || longest_edge / voxels >= COARSEST);
        let texture = octaves.map(|voxels| {
            let [d, h, w] = fixed.dims().map(|extent| extent.div_ceil(voxels));
            normal([1, 1, d, h, w])
        });
        let texture = texture.collect();
        let noise = normal([1, 3, LATTICE, LATTICE, LATTICE]);
        let smooth = gaussian(noise, &GaussianOptions::isotropic(2.5));
        let most = smooth.clone().abs().max().reshape([1; 5]);
        Ok(Self {
            phantom: phantom.to_tensor(device),
            texture,
            displacement: smooth / most * longest,
            fixed: fixed.clone(),
            labels,
        })
    }

    /// Where its planes are made.
    pub fn device(&self) -> Device {
        self.phantom.device()
    }

    /// One of the images on a grid of its own.
    pub fn image(
        &self,
        side: Side,
        grid: &Geometry,
        layout: &Layout,
        mesh: &DeviceMesh,
    ) -> Result<Sharded> {
        Sharded::build(layout, mesh, |planes, device| self.planes(side, grid, planes, device))
    }

    /// Planes of one of the images.
    pub fn planes(
        &self,
        side: Side,
        grid: &Geometry,
        planes: Range<usize>,
        device: &Device,
    ) -> Result<Tensor<5>> {
        let [h, w] = [grid.size[1], grid.size[0]];
        let runs = (planes.start / RUN..planes.end.div_ceil(RUN)).map(|run| {
            let all = run * RUN..((run + 1) * RUN).min(grid.size[2]);
            let [first, end] = [planes.start.max(all.start), planes.end.min(all.end)];
            // One axis, for which no device pads rows.
            let line = self.run(side, grid, &all).reshape([all.len() * h * w]);
            let line = line.narrow(0, (first - all.start) * h * w, (end - first) * h * w);
            let part = line.reshape([1, 1, end - first, h, w]);
            sent(part, device).reshape([(end - first) * h * w])
        });
        Ok(Tensor::cat(runs.collect(), 0).reshape([1, 1, planes.len(), h, w]))
    }

    /// Planes of one of the images that are made together.
    fn run(&self, side: Side, grid: &Geometry, planes: &Range<usize>) -> Tensor<5> {
        let u = (side == Side::Fixed).then(|| self.known(planes));
        let of = |lattice: &Tensor<5>| read(lattice, grid, planes, u.clone());
        let tissue = of(&self.phantom);
        let texture = self.texture.iter().map(of).reduce(Tensor::add);
        let texture = texture.expect("there is an octave").mul_scalar(CONTRAST).add_scalar(1.0);
        (tissue * texture).clamp(0.0, 1.0)
    }

    /// Mean Dice of the phantom's structures where a field shows them and where they lie.
    pub fn dice(&self, field: &Sharded) -> Result<f64> {
        let device = self.device();
        let labels = self.labels.to_tensor(&device);
        let ids: Vec<i32> = self.labels.ids().into_iter().filter(|id| *id != 0).collect();
        let mut sum = 0.0;
        for id in &ids {
            let structure = labels.clone().equal_elem(*id).float();
            let [mut both, mut all] = [0.0f64; 2];
            for (planes, shard) in field.layout().all_planes().zip(field.shards()) {
                let [found, known] = [sent(shard.clone(), &device), self.known(&planes)].map(|u| {
                    read(&structure, &self.fixed, &planes, Some(u)).greater_elem(0.5).float()
                });
                let count = |x: Tensor<5>| numbers(x.sum_dim(4).sum_dim(3).sum());
                both += count(found.clone() * known.clone())?[0];
                all += count(found)?[0] + count(known)?[0];
            }
            sum += 2.0 * both / all;
        }
        Ok(sum / ids.len() as f64)
    }

    /// `v` on planes of the fixed grid, in its voxels.
    pub fn known(&self, planes: &Range<usize>) -> Tensor<5> {
        read(&self.displacement, &self.fixed, planes, None)
    }
}

/// A tensor on another device; Burn's own `to_device` does not wait for what either end is at.
pub fn sent(tensor: Tensor<5>, device: &Device) -> Tensor<5> {
    Sharded::whole(tensor).moved_to(&DeviceMesh::one(device)).into_shards().remove(0)
}

/// A lattice over the field of view at the voxels of `planes` of a grid, displaced by `u`.
fn read(
    lattice: &Tensor<5>,
    grid: &Geometry,
    planes: &Range<usize>,
    u: Option<Tensor<5>>,
) -> Tensor<5> {
    let [_, _, d, h, w] = lattice.dims();
    let (size, device) = (grid.size, lattice.device());
    let scale: [f64; 3] = std::array::from_fn(|i| [w, h, d][i] as f64 / size[i] as f64);
    let first = [0.0, 0.0, planes.start as f64];
    let mut map = [[0.0f64; 4]; 3];
    let mut displacement_scale = [[0.0; 3]; 3];
    for i in 0..3 {
        map[i][i] = scale[i];
        map[i][3] = (first[i] + 0.5) * scale[i] - 0.5;
        displacement_scale[i][i] = scale[i];
    }
    let map = TensorData::from([map]).convert::<f32>();
    let options = GridSampleOptions {
        padding: Padding::Border,
        displacement_scale,
        size: Some([planes.len(), size[1], size[0]]),
        ..Default::default()
    };
    grid_sample(lattice.clone(), Some(Tensor::from_data(map, &device)), u, &options)
}

/// A grid of so many voxels (x, y, z) over the field of view of `full`.
pub fn grid(full: &Geometry, size: [usize; 3]) -> Result<Geometry> {
    full.resized(size)
}

/// No displacement, cut along z.
pub fn zero_displacement(layout: &Layout, mesh: &DeviceMesh) -> Result<Sharded> {
    let [_, h, w] = layout.size();
    Sharded::build(layout, mesh, |planes, device| {
        Ok(dense_zeros([1, 3, planes.len(), h, w], device, DType::F32))
    })
}

/// The cuts of a grid into as many shards as the mesh has places.
pub fn layout(grid: &Geometry, mesh: &DeviceMesh) -> Result<Layout> {
    mesh.layout(grid.dims(), Axis::Z)
}
