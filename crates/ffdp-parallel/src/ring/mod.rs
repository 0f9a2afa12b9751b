//! Ring sampler: sampling an image of which no device holds more than a part (FFDP paper, sections
//! 4.2 and I).
//!
//! ```text
//! y(p) = I(x_p) = sum_parcels I_parcel(x_p - start),     x_p = A p + t + S u(p)
//! ```
//! Trilinear interpolation is a sum over eight corners, and every corner lies in exactly one
//! *parcel*, a run of planes of the image. With zero padding, corner by corner, each parcel adds its
//! own corners and no others, wherever `x_p` lies: the sum is exact, for any displacement.
//!
//! The paper sends every shard of the image to every device. Here the bounds of the displacement say
//! which planes a fixed shard can reach at all (`route.rs`), and these travel, in few parcels:
//! for a displacement of a few voxels, the shard's own planes and a few of the neighbours', sampled in
//! one pass. A parcel is at most twice as thick as the thickest shard of the image, so the memory
//! stays a part of the image whatever the displacement; a displacement without bounds makes the image
//! travel the whole ring, starting from each device's own part.
//!
//! A shard of the fixed side starts at plane `o` of its axis, a parcel at plane `s` of the image's:
//! that is a translation of `t` by `A e o - e' s`, and all that distinguishes the part from the
//! whole. Read `route.rs`, then `parcel.rs`; `backward.rs` is for those who have no tape, `block.rs` for
//! iterations, which sample the same part again and again.

use burn::Tensor;

mod backward;
mod block;
mod held;
mod label;
mod parcel;
mod read;
mod route;

pub use backward::{RingGradients, Wanted};
pub(super) use block::{BlockSampler, Keep};
pub use held::HeldPlanes;
pub use read::{BoundedField, ReadSampler};
pub(super) use route::thickest_parcel_of_block;
pub use route::{DisplacementBounds, IndexMap, MappedPlanes};

use super::device_mesh::{DeviceMesh, ShardPlaces};
use super::layout::Layout;
use super::sharded::Sharded;
use super::transfer::to_device;
use ffdp_burn::ops::{self, GridSampleOptions, Interpolation, Padding, grid_sample};
use ffdp_image::error::Result;
use parcel::{Parcel, local_affine};
use route::thickest_parcel;

/// What is sampled, and where. Shapes are those of the whole grids.
#[derive(Clone, Copy, Debug)]
pub struct RingInputs<'a> {
    /// The image, `[N, C, Di, Hi, Wi]`.
    pub moving: &'a Sharded,
    /// `[A|t]`, from fixed to moving voxels in (x, y, z), `[1 or N, 3, 4]`; the identity for none.
    pub affine: Option<&'a Tensor<3>>,
    /// `u`, `[N, 3, D, H, W]` in fixed voxels; zero for none.
    pub displacement: Option<&'a Sharded>,
}

/// A planned transfer of an image to the shards that sample it: valid for as long as the affine map
/// and the displacement keep within the bounds that it was planned for.
#[derive(Clone, Debug)]
pub struct RingSampler {
    fixed: Layout,
    mesh: DeviceMesh,
    moving: Layout,
    options: GridSampleOptions,
    /// For every shard of the fixed side what it samples, its own part of the ring first.
    route: Vec<Vec<Parcel>>,
}

impl RingSampler {
    /// Plans the sampling of images cut like `moving` on the grid of `fixed`. `map` is the affine map and the scale
    /// of the displacement, `bounds` those of the displacement: one for all shards, or one for each. `options.size` and
    /// `options.displacement_scale` are taken from the layout and the map.
    ///
    /// # Panics
    /// If the numbers of shards, places and bounds do not fit each other.
    pub fn new(
        fixed: ShardPlaces,
        moving: &Layout,
        map: &IndexMap,
        bounds: &[DisplacementBounds],
        options: &GridSampleOptions,
    ) -> Self {
        let ShardPlaces { layout: fixed, mesh } = fixed;
        let (shards, places) = (fixed.count(), mesh.count());
        assert!(shards == places, "ring: {shards} shards of the fixed side for {places} places");
        assert!(
            bounds.len() == 1 || bounds.len() == shards,
            "ring: {} bounds for {shards} shards; give one, or one for each",
            bounds.len()
        );
        let of = |k: usize| &bounds[k.min(bounds.len() - 1)];
        let limit = thickest_parcel(moving.thickest());
        let route = fixed.all_planes().enumerate().map(|(k, planes)| {
            let mapped = MappedPlanes { fixed, planes: &planes, map, bounds: of(k) };
            mapped.parcels(moving, options, limit)
        });
        let route = route.collect();
        let options = GridSampleOptions { displacement_scale: map.scale, size: None, ..*options };
        Self { fixed: fixed.clone(), mesh: mesh.clone(), moving: moving.clone(), options, route }
    }

    /// The planes of the image that fixed shard `k` samples, in order.
    pub fn planes(&self, k: usize) -> Vec<std::ops::Range<usize>> {
        self.route[k].iter().map(|parcel| parcel.planes.clone()).collect()
    }

    /// Samples the image: [`grid_sample`](ffdp_burn::ops::grid_sample()) on the whole, in parts.
    ///
    /// Differentiable in image, affine map and displacement. The tape keeps the parcels that
    /// travelled between devices; [`RingSampler::gradients`] sends them anew instead.
    ///
    /// # Shapes
    /// As in [`RingInputs`]; result `[N, C, D, H, W]`, cut like the fixed side.
    ///
    /// # Panics
    /// If the cuts are not those planned for, or as the serial operation.
    pub fn sample(&self, inputs: &RingInputs) -> Sharded {
        self.check(inputs);
        let shards = (0..self.fixed.count()).map(|k| self.sample_shard(k, inputs));
        Sharded::new(shards.collect(), self.fixed.clone())
    }

    /// Shard `k` of [`RingSampler::sample`], on its place of the mesh; the displacement may rest elsewhere.
    pub fn sample_shard(&self, k: usize, inputs: &RingInputs) -> Tensor<5> {
        match self.options.interpolation {
            Interpolation::Label => self.label_shard(k, inputs),
            _ => self.shard(k, inputs),
        }
    }

    /// How much each position that shard `k` samples lies in the image, `[1 or N, 1, D, H, W]` of the shard: 1
    /// inside, less within a voxel of its border. Nothing travels but the affine map.
    pub(crate) fn inside(&self, k: usize, inputs: &RingInputs) -> Tensor<5> {
        let (device, dtype) = (self.mesh.device(k), inputs.moving.shards()[0].dtype());
        let axis = self.moving.axis();
        let parts = self.route[k].iter().map(|parcel| {
            let [d, h, w] = self.moving.size();
            let maps = inputs.affine.map_or(1, |affine| affine.dims()[0]);
            let mut dims = [maps, 1, d, h, w];
            dims[axis.dim()] = parcel.planes.len();
            let ones = Tensor::<5>::ones(dims, (device, dtype));
            let mut start = [0.0; 3];
            start[axis.component()] = parcel.planes.start as f64;
            let affine = local_affine(inputs.affine, &ones, [self.origin(k), start]);
            let (size, padding) = (Some(self.fixed.shard_size(k)), Padding::Zeros);
            grid_sample(ones, affine, None, &GridSampleOptions { size, padding, ..self.options })
        });
        parts.reduce(Tensor::add).expect("a route has at least one parcel")
    }

    /// The sum over the parcels of shard `k`.
    fn shard(&self, k: usize, inputs: &RingInputs) -> Tensor<5> {
        let parts = self.route[k].iter().map(|parcel| self.part(k, parcel, inputs));
        parts.reduce(Tensor::add).expect("a route has at least one parcel")
    }

    /// What one parcel adds to shard `k`.
    fn part(&self, k: usize, parcel: &Parcel, inputs: &RingInputs) -> Tensor<5> {
        let image = parcel.fetch(inputs.moving, self.mesh.device(k));
        let origins = [self.origin(k), parcel.origin(&self.moving)];
        let affine = local_affine(inputs.affine, &image, origins);
        let field = inputs
            .displacement
            .map(|field| to_device(field.shards()[k].clone(), self.mesh.device(k)));
        let options = GridSampleOptions { size: Some(self.fixed.shard_size(k)), ..self.options };
        grid_sample(image, affine, field, &options)
    }

    /// The first voxel (x, y, z) of fixed shard `k`.
    fn origin(&self, k: usize) -> [f64; 3] {
        let mut origin = [0.0; 3];
        origin[self.fixed.axis().component()] = self.fixed.planes(k).start as f64;
        origin
    }

    fn check(&self, inputs: &RingInputs) {
        let (planned, got) = (&self.moving, inputs.moving.layout());
        assert!(planned == got, "ring: planned for an image cut as {planned:?}, got {got:?}");
        if let Some(field) = inputs.displacement {
            let (planned, got) = (&self.fixed, field.layout());
            assert!(planned == got, "ring: planned for a field cut as {planned:?}, got {got:?}");
        }
    }
}

/// [`grid_sample`](ffdp_burn::ops::grid_sample()) of a sharded image on the grid of `fixed`. Plans for the
/// displacement as it is: reads the affine map and the bounds of
/// every shard, and so waits for the devices; loops that know how far a step goes keep a
/// [`RingSampler`].
///
/// # Shapes
/// As [`RingSampler::sample`].
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) when the bounds cannot be read.
///
/// # Panics
/// As [`RingSampler::sample`].
pub fn ring_sample(
    inputs: &RingInputs,
    fixed: ShardPlaces,
    options: &GridSampleOptions,
) -> Result<Sharded> {
    let map = IndexMap::read(inputs.affine, options.displacement_scale)?;
    let bounds = match inputs.displacement {
        Some(field) => DisplacementBounds::read(field)?,
        None => vec![DisplacementBounds::NONE],
    };
    let moving = inputs.moving.layout();
    Ok(RingSampler::new(fixed, moving, &map, &bounds, options).sample(inputs))
}

/// [`warp`](ffdp_burn::ops::warp()) of a sharded image by a displacement that is cut like it. `bounds` are those of the
/// displacement. Differentiable.
///
/// # Panics
/// If image and displacement are cut differently.
pub fn warp(moving: &Sharded, displacement: &Sharded, bounds: &[DisplacementBounds]) -> Sharded {
    moving.check_layout(displacement);
    let (layout, options) = (moving.layout(), GridSampleOptions::default());
    let map = IndexMap::identity();
    let sampler = RingSampler::new(
        ShardPlaces { layout, mesh: &moving.mesh() },
        layout,
        &map,
        bounds,
        &options,
    );
    sampler.sample(&RingInputs { moving, affine: None, displacement: Some(displacement) })
}

/// [`compose`](ffdp_burn::ops::compose()) of sharded fields of one layout, `(id + outer) o (id + inner)`:
/// exact across seams, however far `inner` reaches. `bounds` are those of `inner`. Differentiable.
///
/// # Panics
/// If the fields are cut differently or have not 3 components.
pub fn compose(outer: &Sharded, inner: &Sharded, bounds: &[DisplacementBounds]) -> Sharded {
    outer.check_layout(inner);
    if inner.layout().count() == 1 {
        return outer.clone().zip_map(inner, ops::compose);
    }
    let options = GridSampleOptions { padding: Padding::Border, ..GridSampleOptions::default() };
    let layout = outer.layout();
    let map = IndexMap::identity();
    let sampler = RingSampler::new(
        ShardPlaces { layout, mesh: &inner.mesh() },
        layout,
        &map,
        bounds,
        &options,
    );
    let inputs = RingInputs { moving: outer, affine: None, displacement: Some(inner) };
    sampler.sample(&inputs).zip_map(inner, Tensor::add)
}

/// [`exp`](ffdp_burn::ops::exp()) of a sharded velocity by `steps` squarings. Its bounds are read once and
/// double with every squaring. Differentiable.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) when the bounds cannot be read.
///
/// # Panics
/// If the field has not 3 components, or `steps` is above 30.
pub fn exp(velocity: &Sharded, steps: usize) -> Result<Sharded> {
    if velocity.layout().count() == 1 {
        return Ok(velocity.clone().map(|velocity| ops::exp(velocity, steps)));
    }
    assert!(steps <= 30, "exp: {steps} squarings scale the velocity below f32's reach; use <= 30");
    let part = 1.0 / (1u64 << steps) as f64;
    let bounds = DisplacementBounds::read(velocity)?;
    let bounds = bounds.into_iter().reduce(DisplacementBounds::union).expect("there are shards");
    let mut bounds = bounds.scaled(part);
    let mut displacement = velocity.clone().map(|velocity| velocity.mul_scalar(part));
    for _ in 0..steps {
        displacement = compose(&displacement, &displacement, &[bounds]);
        bounds = bounds.scaled(2.0);
    }
    Ok(displacement)
}
