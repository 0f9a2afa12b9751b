//! What operations are measured on: random images, fields, maps and labels.

use burn::tensor::{DType, Device, Distribution, Tensor};
use ffdp::ops::{self, ControlGrid, GaussianOptions};

/// Labels of the bench: OASIS' 35 and the background.
pub const LABELS: usize = 36;

/// Voxels between control points.
pub const SPACING: f64 = 5.0;

/// The control points over a volume of edge `size`, and their extent (d, h, w).
pub fn control_grid(size: usize) -> (ControlGrid, [usize; 3]) {
    ControlGrid::covering([size; 3], [SPACING; 3])
}

/// An input: its channels, its values and whether it wants a gradient.
#[derive(Clone, Copy)]
pub struct Input {
    /// Its channels and values.
    pub kind: Kind,
    /// Whether it wants a gradient.
    pub tracked: bool,
}

#[derive(Clone, Copy)]
pub enum Kind {
    /// One channel, uniform in [0, 1).
    Image,
    /// The same, stored as f16.
    Half,
    /// Three channels, uniform within 1.5 voxels, so that neighbours read nearby corners.
    Field,
    /// Three channels, smooth as of a registration: 2 voxels in the mean square, which change by
    /// about a quarter of a voxel from one to the next.
    Smooth,
    /// A map near the identity, stored as `[1, 1, 1, 3, 4]`.
    Affine,
    /// Three channels of control points [`SPACING`] voxels apart, uniform within 1.5 voxels.
    Controls,
    /// 36 labels in blocks of 8 voxels, as floats.
    Labels,
}

impl Kind {
    /// A tensor of volumes of edge `size`, dense as images from a file are: on CUDA, Burn pads the rows of a
    /// tensor that it makes itself.
    pub fn tensor(self, size: usize, device: &Device) -> Tensor<5> {
        let values = self.values(size, device);
        let dims = values.dims();
        values.reshape([dims.iter().product::<usize>()]).reshape(dims)
    }

    fn values(self, size: usize, device: &Device) -> Tensor<5> {
        let random = |channels, low, high| {
            let shape = [1, channels, size, size, size];
            Tensor::random(shape, Distribution::Uniform(low, high), device)
        };
        match self {
            Self::Image => random(1, 0.0, 1.0),
            Self::Half => random(1, 0.0, 1.0).cast(DType::F16),
            Self::Field => random(3, -1.5, 1.5),
            Self::Controls => {
                let (_, [d, h, w]) = control_grid(size);
                let uniform = Distribution::Uniform(-1.5, 1.5);
                Tensor::random([1, 3, d, h, w], uniform, device)
            }
            Self::Smooth => {
                // Smoothing divides the deviation by (2 sqrt(pi) sigma)^(3/2).
                let sigma = 8.0;
                let deviation = 2.0 * (12.566f64.sqrt() * sigma).powf(1.5);
                let bound = 3f64.sqrt() * deviation;
                ops::gaussian(random(3, -bound, bound), &GaussianOptions::isotropic(sigma))
            }
            Self::Labels => {
                let blocks = size.div_ceil(8);
                let uniform = Distribution::Uniform(0.0, LABELS as f64);
                let labels =
                    Tensor::<6>::random([blocks, 1, blocks, 1, blocks, 1], uniform, device);
                let wide = labels.floor().expand([blocks, 8, blocks, 8, blocks, 8]);
                let whole = wide.reshape([1, 1, blocks * 8, blocks * 8, blocks * 8]);
                whole.slice([0..1, 0..1, 0..size, 0..size, 0..size])
            }
            Self::Affine => {
                let rows = [0.99f32, 0.01, 0.0, 0.3, -0.01, 0.98, 0.02, 0.1, 0.0, 0.01, 1.0, -0.2];
                Tensor::<1>::from_floats(rows, device).reshape([1, 1, 1, 3, 4])
            }
        }
    }
}
