//! The iterations of a level on one device, or in shards on a mesh.

use burn::Tensor;

use super::Field;
use crate::error::{Error, Result};
use crate::image::Geometry;
use crate::ops::{DeformImages, DeformOptions, DeformState, Method, Moments, deform};
use crate::parallel::{
    Axis, Greedy, Mesh, Sharded, ShardedFields, ShardedImages, ShardedMoments, ShardedState, Team,
    descend,
};
use crate::register::comparison::read;

/// The images of a level and what the iterations have reached; `None` only while they are at work.
///
/// The moments start afresh on every level: those of a level that has converged are noise, and
/// following them for ten iterations undid part of the result.
pub(super) enum Work {
    Whole(Box<(DeformImages, Option<DeformState>)>),
    Sharded(Box<Greedy>),
    /// SyN and velocities.
    Fields(Box<(ShardedImages, Option<ShardedFields>)>),
}

/// Voxels from which several devices share a level. Less is done sooner by one: a level of 256x256x512
/// voxels took 4.6 ms an iteration on two H200s, and 3.5 on one.
pub(in crate::register) const SHARED_VOXELS: usize = 64 << 20;

/// A state that is missing means that an iteration failed, after which none is asked for.
const PRESENT: &str = "only an iteration takes the state";

impl Work {
    /// A mesh of one takes the images as they are; others cut them along z, several devices only if that pays.
    pub fn new(
        images: DeformImages,
        field: Field,
        options: &DeformOptions,
        mesh: &Mesh,
    ) -> Result<Self> {
        let small = field.geometry.len() < SHARED_VOXELS;
        if mesh.count() == 1 || mesh.has_several_devices() && small {
            let state = DeformState { field: field.tensor, moments: Moments::default() };
            return Ok(Self::Whole(Box::new((images, Some(state)))));
        }
        let home = mesh.device(0);
        let cut = |image: Tensor<5>, mesh: &Mesh| {
            let [_, _, d, h, w] = image.dims();
            let layout = mesh.layout([d, h, w], Axis::Z)?;
            Ok::<_, Error>(Sharded::from_tensor(image, &layout, &mesh.first(layout.count())))
        };
        // What all shards of one device see needs no cuts.
        let moving_mesh = if mesh.has_several_devices() { mesh } else { &Mesh::one(home) };
        let DeformImages { fixed, moving, affine, masks: [fixed_mask, moving_mask] } = images;
        let masked = [fixed_mask.is_some(), moving_mask.is_some()];
        let with = |image: Tensor<5>, mask: Option<Tensor<5>>| match mask {
            None => image,
            Some(mask) => Tensor::cat(vec![image, mask], 1),
        };
        let fixed = cut(with(fixed, fixed_mask), mesh)?;
        let moving = cut(with(moving, moving_mask), moving_mesh)?;
        let sharded = ShardedImages { fixed, moving, affine, masked };
        if options.method != Method::Greedy {
            let of = |n| cut(field.tensor.clone().narrow(0, n, 1), mesh);
            let fields = (0..field.tensor.dims()[0]).map(of).collect::<Result<_>>()?;
            return Ok(Self::Fields(Box::new((sharded, Some(ShardedFields::new(fields))))));
        }
        let displacement = cut(field.tensor, mesh)?;
        let mesh = displacement.mesh();
        Self::on_shards(sharded, displacement, options, (&mesh, &Team::ALONE))
    }

    /// Images and a displacement that are cut already, or each in one piece; of a team, this process's parts.
    pub fn on_shards(
        images: ShardedImages,
        displacement: Sharded,
        options: &DeformOptions,
        (mesh, team): (&Mesh, &Team),
    ) -> Result<Self> {
        let whole = (images.fixed.shards(), images.moving.shards());
        if let ([fixed], [moving], false) = (whole.0, whole.1, team.fixed.are_several()) {
            let images = images.whole([fixed, moving]);
            let field = displacement.into_shards().remove(0);
            let state = DeformState { field, moments: Moments::default() };
            return Ok(Self::Whole(Box::new((images, Some(state)))));
        }
        let state = ShardedState { displacement, moments: ShardedMoments::default() };
        Ok(Self::Sharded(Box::new(Greedy::in_team(images, state, options, mesh, team.clone())?)))
    }

    /// Does some iterations; returns the measures before them. Waits for the device.
    pub fn iterate(&mut self, options: &DeformOptions, iterations: usize) -> Result<Vec<f64>> {
        let measures = match self {
            Self::Whole(work) => {
                let (images, state) = work.as_mut();
                let before = state.take().expect(PRESENT);
                let (measures, after) = deform(images, before, options, iterations);
                *state = Some(after);
                measures
            }
            Self::Sharded(greedy) => greedy.iterate(iterations)?,
            Self::Fields(work) => {
                let (images, state) = work.as_mut();
                let before = state.take().expect(PRESENT);
                let (measures, after) = descend(images, before, options, iterations)?;
                *state = Some(after);
                measures
            }
        };
        read(measures)
    }

    /// What was found, whole, on the first device.
    pub fn into_field(self, geometry: Geometry) -> Field {
        let tensor = match self {
            Self::Whole(work) => work.1.expect(PRESENT).field,
            Self::Sharded(greedy) => {
                let displacement = greedy.into_state().displacement;
                let home = displacement.mesh().device(0).clone();
                displacement.gather(&home)
            }
            Self::Fields(work) => {
                let (images, state) = *work;
                let home = images.fixed.mesh().device(0).clone();
                let fields = state.expect(PRESENT).fields;
                Tensor::cat(fields.iter().map(|field| field.gather(&home)).collect(), 0)
            }
        };
        Field { tensor, geometry }
    }

    /// What was found, where it rests.
    pub fn into_shards(self) -> Sharded {
        match self {
            Self::Sharded(greedy) => greedy.into_state().displacement,
            Self::Whole(work) => Sharded::whole(work.1.expect(PRESENT).field),
            Self::Fields(_) => unreachable!("slabs are registered by the greedy method"),
        }
    }
}
