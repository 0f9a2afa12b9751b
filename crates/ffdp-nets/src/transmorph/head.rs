use burn::module::Module;
use burn::tensor::Tensor;

use super::config::{HEAD_CHANNELS, Resolution, TransMorphConfig};
use crate::layers::Conv3d;
use crate::layers::initializer::WeightInit;
use crate::ops::upsample_x2;
use crate::spline_head::spline_flow;

/// Deviation of the initial weights: the untrained flow is zero to about 1e-4 voxel.
const HEAD_STD: f64 = 1e-5;

/// From the decoder's features to a flow on the full grid, in voxels of the full grid.
#[derive(Module, Debug)]
pub struct FlowHead {
    /// `16 -> 3`, with bias.
    pub conv: Conv3d,
    #[module(skip)]
    resolution: Resolution,
    #[module(skip)]
    control_spacing: Option<usize>,
}

impl FlowHead {
    pub(super) fn new(config: &TransMorphConfig, init: &mut WeightInit) -> Self {
        let conv = Conv3d::near_zero(HEAD_CHANNELS, 3, HEAD_STD, config.precision, init);
        let &TransMorphConfig { resolution, control_spacing, .. } = config;
        Self { conv, resolution, control_spacing }
    }

    pub(super) fn resolution(&self) -> Resolution {
        self.resolution
    }

    /// Voxels between control points, if it predicts those.
    pub(super) fn control_spacing(&self) -> Option<usize> {
        self.control_spacing
    }

    /// Shapes: features `[N, 16, ...]` on the full or on the half grid; output `[N, 3, D, H, W]`
    /// on the full grid or, with control points, on `size` (D, H, W) of it; components (x, y, z).
    pub fn forward(&self, features: Tensor<5>, size: [usize; 3]) -> Tensor<5> {
        if let Some(spacing) = self.control_spacing {
            let voxel = self.resolution.voxels();
            return spline_flow(&self.conv, features, voxel, spacing, size);
        }
        let flow = self.conv.forward(features);
        match self.resolution {
            Resolution::Full => flow,
            // Not multiplied by 2: the half grid only samples the flow, its unit is the
            // full-resolution voxel already, as in the published weights.
            Resolution::Half => upsample_x2(flow),
        }
    }
}
