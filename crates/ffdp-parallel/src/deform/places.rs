//! Where the shards of a field are computed and where they rest, for models of fields.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::Device;
use ffdp_image::error::Result;

use super::maps::grid_of;
use super::view::Grid;
use crate::collective::reduce;
use crate::device_mesh::DeviceMesh;
use crate::exchange::Reduction;
use crate::hosts::Holders;
use crate::sharded::Sharded;

/// Where the shards of a field are computed and rest, and who else has a part of it: with it a
/// [`FieldModel`](super::FieldModel) makes fields and adds up gradients shard by shard, of one device, of many, of host
/// memory, of several ranks.
#[derive(Clone, Debug)]
pub struct FieldPlaces(Grid);

impl FieldPlaces {
    /// Those of `field`, which is computed on `mesh`; of several ranks, each has its planes.
    ///
    /// # Panics
    /// If `mesh` has another number of places than there are shards.
    pub fn of(field: &Sharded, mesh: &DeviceMesh, holders: &Holders) -> Self {
        super::check_places(field, mesh);
        Self(grid_of(field, mesh, holders))
    }

    /// The device that has what is not cut.
    pub fn home(&self) -> &Device {
        self.0.homes.device(0)
    }

    /// Who else has a part.
    pub fn holders(&self) -> &Holders {
        &self.0.holders
    }

    /// A field of which `shard(k, planes, device)` gives planes of the level, `[1, 3, n, H, W]`, computed on a device; on
    /// top of `start`.
    pub fn field(
        &self,
        start: Option<&Sharded>,
        mut shard: impl FnMut(usize, Range<usize>, &Device) -> Tensor<5>,
    ) -> Sharded {
        let (layout, homes) = (&self.0.layout, &self.0.homes);
        let mut put = |k: usize| {
            let mut field = shard(k, layout.planes(k), homes.device(k));
            if let Some(start) = start {
                field = field + homes.bring(k, start.shards()[k].clone());
            }
            let field = homes.put_away(k, field);
            homes.settle(k);
            field
        };
        Sharded::new((0..layout.count()).map(&mut put).collect(), layout.clone())
    }

    /// The sum over all shards and ranks of what `part(k, planes, values)` makes of a field's values on planes; on the
    /// first device.
    ///
    /// # Errors
    /// [`Error::LostRank`](ffdp_image::Error::LostRank).
    pub fn sum<const D: usize>(
        &self,
        field: &Sharded,
        mut part: impl FnMut(usize, Range<usize>, Tensor<5>) -> Tensor<D>,
    ) -> Result<Tensor<D>> {
        let (layout, homes) = (&self.0.layout, &self.0.homes);
        let parts = field.shards().iter().enumerate().map(|(k, values)| {
            let own = part(k, layout.planes(k), homes.bring(k, values.clone()));
            homes.settle(k);
            own
        });
        self.0.holders.combine(reduce(parts, Reduction::Sum), Reduction::Sum)
    }

    /// The first voxel (D, H, W) and the size of shard `k`.
    pub(super) fn block(&self, k: usize) -> [[usize; 3]; 2] {
        let layout = &self.0.layout;
        let mut first = [0; 3];
        first[layout.axis().dim() - 2] = layout.planes(k).start;
        [first, layout.shard_size(k)]
    }
}
