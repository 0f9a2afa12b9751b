//! What a method improves, on the grid of a level.

use burn::tensor::Tensor;

use crate::image::{Geometry, index_linear};
use crate::ops::{Interpolation, Padding};
use crate::transform::{map_vectors, resample};

/// Vectors in voxels of a grid: a displacement, two halves of one, or a velocity.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// `[1 or 2, 3, D, H, W]`.
    pub tensor: Tensor<5>,
    pub geometry: Geometry,
}

impl Field {
    /// The same motion on another grid; beyond the border, that at the border.
    pub fn resampled(self, geometry: &Geometry) -> Self {
        if self.geometry == *geometry {
            return self;
        }
        let (linear, border) = (Interpolation::Linear, Padding::Border);
        let field = resample(self.tensor, &self.geometry, geometry, linear, border);
        let tensor = map_vectors(field, &index_linear(&self.geometry, geometry));
        Self { tensor, geometry: geometry.clone() }
    }
}
