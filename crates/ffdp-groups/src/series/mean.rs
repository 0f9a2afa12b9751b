//! The mean of volumes where they were brought to.

use ffdp_burn::transform::Composite;
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical, Volume};
use ffdp_image::metrics::Coverage;

use burn::tensor::Device;

/// How near to a voxel's border a position may lie to be inside, in voxels.
const MARGIN: f64 = 0.0;

/// A volume on the grid of the mean, and where it is there.
pub(super) struct Placed {
    values: Vec<f32>,
    inside: Vec<bool>,
}

impl Placed {
    /// A volume seen through a linear map.
    pub fn of(
        volume: &Volume,
        affine: &Affine<Physical, Physical>,
        grid: &Geometry,
        device: &Device,
    ) -> Result<Self> {
        let values = Composite::from(*affine).warp(volume, grid, device)?.data;
        let inside = Coverage::new([grid, &volume.geometry], affine, None).inside(MARGIN);
        Ok(Self { values, inside })
    }
}

/// A mean that grows volume by volume. A voxel that some volumes do not reach is the mean of the others.
pub(super) struct Mean {
    sums: Vec<f64>,
    counts: Vec<u32>,
    grid: Geometry,
}

impl Mean {
    pub fn new(grid: &Geometry) -> Self {
        let count = grid.len();
        Self { sums: vec![0.0; count], counts: vec![0; count], grid: grid.clone() }
    }

    pub fn add(&mut self, Placed { values, inside }: &Placed) {
        let sums = self.sums.iter_mut().zip(&mut self.counts);
        for ((sum, count), (value, inside)) in sums.zip(values.iter().zip(inside)) {
            if *inside {
                *sum += f64::from(*value);
                *count += 1;
            }
        }
    }

    pub fn into_volume(self) -> Result<Volume> {
        let values = self.sums.iter().zip(&self.counts);
        let data = values.map(|(sum, count)| (sum / f64::from((*count).max(1))) as f32).collect();
        Volume::new(data, self.grid)
    }
}
