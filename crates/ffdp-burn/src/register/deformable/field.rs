//! What a method improves, on the grid of a level.

use burn::tensor::Tensor;

use crate::error::Result;
use crate::image::{Geometry, index_linear};
use crate::ops::{Interpolation, Padding};
use crate::transform::{Displacement, map_vectors, resample};

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

    /// Each of its fields, to be kept.
    pub fn parts(&self) -> Result<Vec<Displacement>> {
        let part =
            |n| Displacement::new(self.tensor.clone().narrow(0, n, 1), self.geometry.clone());
        (0..self.tensor.dims()[0]).map(part).collect()
    }

    /// The field of which these are the parts; `None` of none.
    pub fn of_parts(parts: Vec<Displacement>) -> Option<Self> {
        let geometry = parts.first()?.geometry().clone();
        let tensors = parts.into_iter().map(Displacement::into_field).collect();
        Some(Self { tensor: Tensor::cat(tensors, 0), geometry })
    }
}
