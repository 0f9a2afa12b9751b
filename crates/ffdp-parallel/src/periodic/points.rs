//! Single voxels of a field, on the host: where a few points are asked for, or push.

use burn::Tensor;
use burn::tensor::{Device, IndexingUpdateOp, Int, TensorData};

use super::PeriodicGrid;
use crate::exchange::Reduction;
use crate::sharded::Sharded;
use ffdp_image::error::{Error, Result};

impl PeriodicGrid {
    /// A field `[1, 3, D, H, W]` at voxels (x, y, z), components (x, y, z), the same bits on all ranks. Waits for the
    /// devices.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) for other cuts, [`Error::Device`] when values cannot be read, [`Error::LostRank`].
    ///
    /// # Panics
    /// If a voxel lies outside.
    pub fn values_at(&self, field: &Sharded, voxels: &[[usize; 3]]) -> Result<Vec<[f64; 3]>> {
        self.check("values_at", field, Some(3))?;
        let chosen = |(k, shard): (usize, &Tensor<5>)| {
            let (chosen, flat) = self.within(k, voxels);
            let values = (!chosen.is_empty())
                .then(|| by_component(shard.clone()).select(1, indices(&flat, &shard.device())));
            (chosen, values)
        };
        // All devices are at it before one is waited for.
        let parts: Vec<_> = field.shards().iter().enumerate().map(chosen).collect();
        let mut all = vec![0.0; 3 * voxels.len()];
        for (chosen, values) in parts {
            let Some(values) = values else { continue };
            let values = values.try_into_vec_as::<f64>();
            let values = values.map_err(|reason| Error::device("reading voxels", reason))?;
            for (k, at) in chosen.iter().enumerate() {
                for c in 0..3 {
                    all[3 * at + c] = values[c * chosen.len() + k];
                }
            }
        }
        let all = self.holders().combine_numbers(&all, Reduction::Sum)?;
        Ok(all.chunks_exact(3).map(|v| [v[0], v[1], v[2]]).collect())
    }

    /// The field of `values` (x, y, z) at voxels (x, y, z), 0 elsewhere, in the type of the field `like`: the transpose
    /// of [`PeriodicGrid::values_at`].
    ///
    /// # Panics
    /// If a voxel lies outside. No voxel may be named twice.
    pub fn field_of(&self, voxels: &[[usize; 3]], values: &[[f64; 3]], like: &Sharded) -> Sharded {
        let shard = |(k, like): (usize, &Tensor<5>)| {
            let rest = like.zeros_like();
            let (chosen, flat) = self.within(k, voxels);
            if chosen.is_empty() {
                return rest;
            }
            let rows = (0..3).flat_map(|c| chosen.iter().map(move |at| values[*at][c])).collect();
            let data = TensorData::new::<f64, _>(rows, [3, chosen.len()]);
            let (device, dtype) = (like.device(), like.dtype());
            let values = Tensor::from_data(data.convert_dtype(dtype), (&device, dtype));
            let (flat, update) = (indices(&flat, &device), IndexingUpdateOp::Add);
            by_component(rest).select_assign(1, flat, values, update).reshape(like.dims())
        };
        let shards = like.shards().iter().enumerate().map(shard).collect();
        Sharded::new(shards, self.layout().clone())
    }

    /// Which of the voxels shard `k` has, and where in it.
    fn within(&self, k: usize, voxels: &[[usize; 3]]) -> (Vec<usize>, Vec<i64>) {
        let ([depth, height, width], axis) = (self.size(), self.layout().axis());
        let (planes, cut) = (self.layout().planes(k), axis.component());
        let mut size = [width, height, depth];
        let place = |(at, voxel): (usize, &[usize; 3])| {
            assert!((0..3).all(|a| voxel[a] < size[a]), "voxel {voxel:?} of {size:?}");
            planes.contains(&voxel[cut]).then_some((at, *voxel))
        };
        let here: Vec<_> = voxels.iter().enumerate().filter_map(place).collect();
        size[cut] = planes.len();
        let flat = |(at, mut voxel): (usize, [usize; 3])| {
            voxel[cut] -= planes.start;
            (at, (voxel[0] + size[0] * (voxel[1] + size[1] * voxel[2])) as i64)
        };
        here.into_iter().map(flat).unzip()
    }
}

/// `[3, D H W]` of `[1, 3, D, H, W]`.
fn by_component(field: Tensor<5>) -> Tensor<2> {
    let [_, _, d, h, w] = field.dims();
    field.reshape([3, d * h * w])
}

fn indices(flat: &[i64], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(flat.to_vec(), [flat.len()]), device)
}
