//! The gradients of a ring-sampled image without a tape: the parcels travel once more.
//!
//! ```text
//! dL/du = sum_parcels S^T g grad I_parcel        dL/dA += dL/dA' + dL/dt' o^T,  dL/dt += dL/dt'
//! dL/dI = the parcels' scattered gradients, sent back to the shards that own the planes
//! ```
//! `A'`, `t'` the local map of a shard that starts at voxel `o`. Nothing is kept between the
//! passes: memory is that of the result and of one parcel.

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::TensorData;

use super::parcel::{Parcel, local_affine};
use super::{RingInputs, RingSampler};
use crate::collective::reduce;
use crate::exchange::Reduction;
use crate::sharded::{Sharded, narrow};
use ffdp_burn::ops::grid_sample::{GridSampleOps, Sampling};

/// Which gradients are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// That of the image.
    pub image: bool,
    /// That of the affine map.
    pub affine: bool,
    /// That of the displacement.
    pub displacement: bool,
}

/// Those that were asked for.
#[derive(Clone, Debug)]
pub struct RingGradients {
    /// Cut like the image.
    pub image: Option<Sharded>,
    /// `[1 or N, 3, 4]`, on the device of the first shard of the fixed side.
    pub affine: Option<Tensor<3>>,
    /// Cut like the fixed side.
    pub displacement: Option<Sharded>,
}

/// What a parcel adds to the gradients.
struct ParcelGradients {
    /// Of the parcel itself.
    image: Option<Tensor<5>>,
    /// Of the map from the shard's own voxels to the parcel's.
    map: Option<Tensor<3>>,
    displacement: Option<Tensor<5>>,
}

impl RingSampler {
    /// The gradients of [`RingSampler::sample`] from `grad`, that of its result.
    ///
    /// # Panics
    /// If a tensor is on the tape, the cuts are not those planned for, or the gradient of an
    /// affine map or a displacement is wanted that is not there.
    pub fn gradients(&self, inputs: &RingInputs, grad: &Sharded, wanted: Wanted) -> RingGradients {
        self.check(inputs);
        assert!(
            inputs.affine.is_some() >= wanted.affine
                && inputs.displacement.is_some() >= wanted.displacement,
            "ring: {wanted:?}, but the affine map or the displacement is not there"
        );
        let mut image = wanted.image.then(|| inputs.moving.clone().map(|shard| shard.zeros_like()));
        let (mut maps, mut fields) = (Vec::new(), Vec::new());
        for k in 0..self.fixed.count() {
            let (mut map, mut field) = (None, None);
            for parcel in &self.route[k] {
                let part = self.part_backward(k, parcel, inputs, &grad.shards()[k], wanted);
                image = image.zip(part.image).map(|(all, part)| self.send_back(all, parcel, part));
                map = sum(map, part.map);
                field = sum(field, part.displacement);
            }
            maps.extend(map.map(|map| self.global_affine(k, map)));
            fields.extend(field);
        }
        RingGradients {
            image,
            affine: wanted.affine.then(|| reduce(maps, Reduction::Sum)),
            displacement: wanted.displacement.then(|| Sharded::new(fields, self.fixed.clone())),
        }
    }

    /// The gradient `[1 or N, 3, 4]` of the affine map from `grad`, that of shard `k` of the result, on the
    /// shard's device.
    ///
    /// # Panics
    /// As [`RingSampler::gradients`].
    pub(crate) fn affine_gradient(
        &self,
        k: usize,
        inputs: &RingInputs,
        grad: &Tensor<5>,
    ) -> Tensor<3> {
        let wanted = Wanted { affine: true, ..Wanted::default() };
        let part = |parcel| self.part_backward(k, parcel, inputs, grad, wanted).map;
        let map = self.route[k].iter().map(part).fold(None, sum);
        self.global_affine(k, map.expect("a route has at least one parcel"))
    }

    fn part_backward(
        &self,
        k: usize,
        parcel: &Parcel,
        inputs: &RingInputs,
        grad: &Tensor<5>,
        wanted: Wanted,
    ) -> ParcelGradients {
        let image = parcel.fetch(inputs.moving, self.mesh.device(k));
        let like = (&image.device(), image.dtype());
        let origins = [self.origin(k), parcel.origin(&self.moving)];
        let map = local_affine(inputs.affine, &image, origins);
        let field = inputs.displacement.map(|field| field.shards()[k].clone());
        let sampling = Sampling {
            interpolation: self.options.interpolation,
            padding: self.options.padding,
            scale: self.options.displacement_scale,
            size: self.fixed.shard_size(k),
            has_affine: map.is_some(),
            has_displacement: field.is_some(),
            accumulation: self.options.accumulation,
        };
        let map = map.unwrap_or_else(|| {
            let identity = [[[1.0f64, 0., 0., 0.], [0., 1., 0., 0.], [0., 0., 1., 0.]]];
            Tensor::from_data(TensorData::from(identity), like)
        });
        // Bound, but not read where there is none.
        let field = field.unwrap_or_else(|| Tensor::zeros([1; 5], like));
        let (image, map, field) = <Dispatch as GridSampleOps>::grid_sample_3d_backward(
            image.into_dispatch(),
            map.into_dispatch(),
            field.into_dispatch(),
            grad.clone().into_dispatch(),
            sampling,
            [wanted.image, wanted.affine, wanted.displacement],
        );
        ParcelGradients {
            image: wanted.image.then(|| Tensor::from_dispatch(image)),
            map: wanted.affine.then(|| Tensor::from_dispatch(map)),
            displacement: wanted.displacement.then(|| Tensor::from_dispatch(field)),
        }
    }

    /// The gradient of a parcel, added to the shards it came from.
    fn send_back(&self, image: Sharded, parcel: &Parcel, gradient: Tensor<5>) -> Sharded {
        let content = parcel.content();
        let first = parcel.wall()[0];
        let dim = self.moving.axis().dim();
        image.add_window(content.clone(), &narrow(gradient, dim, first..first + content.len()))
    }

    /// The gradient of the whole map from that of shard `k`'s own.
    fn global_affine(&self, k: usize, local: Tensor<3>) -> Tensor<3> {
        let translation = local.clone().narrow(2, 3, 1);
        let mut columns: Vec<Tensor<3>> = (0..4).map(|c| local.clone().narrow(2, c, 1)).collect();
        for (axis, first) in self.origin(k).into_iter().enumerate().filter(|(_, o)| *o != 0.0) {
            columns[axis] = columns[axis].clone() + translation.clone().mul_scalar(first);
        }
        Tensor::cat(columns, 2)
    }
}

/// The sum of what is there.
fn sum<const D: usize>(a: Option<Tensor<D>>, b: Option<Tensor<D>>) -> Option<Tensor<D>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}
