//! Roughness on the GPU: one march along z for the value, one for the gradient (see `march.rs` of `ffdp-kit`).
//!
//! The gradient is computed anew in the backward pass. Stored by the forward pass instead, to be
//! scaled later, it would cost 12 bytes a voxel of traffic more (48 for both passes, not 36), and a
//! field of memory from the one pass to the other.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use self::gradient::{bending_kernel, diffusion_kernel};
use self::value::value_kernel;
use self::variation::variation_kernel;
use super::{RegularityOps, Roughness};
use ffdp_kit::launch::{ExtentLaunch, UNITS, address, assert_f32, buffer, empty, extent, sum_rows};
use ffdp_kit::march::{Grid, Tile, grid};

mod gradient;
mod value;
mod variation;

/// Planes that a cube marches over, at least: it reads up to four on top.
const SHORTEST: usize = 8;

/// [`super::Weights`] in a kernel, and `eps`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Numbers {
    x: f32,
    y: f32,
    z: f32,
    xy: f32,
    xz: f32,
    yz: f32,
    epsilon: f32,
}

/// [`Roughness`] without its number: fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Diffusion,
    Bending,
    TotalVariation,
}

/// `weight` where a voxel has both neighbours along an axis, so that its second difference exists;
/// else 0.
#[cube]
fn between_neighbours(position: i32, len: u32, weight: f32) -> f32 {
    select(position >= 1 && position + 1 < len as i32, weight, 0.0f32)
}

/// The launch of a gradient: field, upstream gradient, output.
type Launch = unsafe fn(
    &Client,
    CubeCount,
    CubeDim,
    AddressType,
    BufferArg,
    BufferArg,
    BufferArg,
    ExtentLaunch,
    u32,
    NumbersLaunch,
);

/// A call: the contiguous field and what is computed of it.
struct Call {
    field: CubeTensor,
    roughness: Roughness,
}

impl Call {
    fn new(field: CubeTensor, roughness: Roughness) -> Self {
        assert_f32("regularity", &[&field]);
        Self { field: into_contiguous(field), roughness }
    }

    fn kind(&self) -> Kind {
        match self.roughness {
            Roughness::Diffusion | Roughness::DiffusionOf(_) => Kind::Diffusion,
            Roughness::Bending | Roughness::BendingOf(_) => Kind::Bending,
            Roughness::TotalVariation { .. } => Kind::TotalVariation,
        }
    }

    fn numbers(&self) -> NumbersLaunch {
        let weights = self.roughness.weights(self.field.meta.shape());
        let [x, y, z] = weights.along.map(|weight| weight as f32);
        let [xy, xz, yz] = weights.across.map(|weight| weight as f32);
        let epsilon = match self.roughness {
            Roughness::TotalVariation { epsilon } => epsilon as f32,
            _ => 0.0,
        };
        NumbersLaunch::new(x, y, z, xy, xz, yz, epsilon)
    }

    fn size(&self) -> [usize; 3] {
        let shape = self.field.meta.shape();
        [shape[2], shape[3], shape[4]]
    }

    /// Component by component, but for total variation, where they belong together.
    fn grid(&self, tile: Tile) -> Grid {
        let components = if self.kind() == Kind::TotalVariation { 1 } else { 3 };
        let volumes = self.field.meta.shape()[0] * components;
        grid("regularity", tile, volumes, self.size(), SHORTEST)
    }

    fn value(self) -> CubeTensor {
        let grid = self.grid(value::TILE);
        let partials = empty(&self.field, [grid.cubes()]);
        unsafe {
            value_kernel::launch_unchecked(
                &self.field.client,
                grid.launch(),
                CubeDim::new_1d(UNITS),
                address(&[&self.field]),
                buffer(&self.field),
                buffer(&partials),
                extent(self.size()),
                grid.chunk,
                self.numbers(),
                self.kind(),
            );
        }
        sum_rows(&partials, 1, grid.cubes(), 1.0)
    }

    fn gradient(self, grad: CubeTensor) -> CubeTensor {
        assert_f32("regularity", &[&grad]);
        let grad = into_contiguous(grad);
        let output = empty(&self.field, self.field.meta.shape().clone());
        let (tile, launch): (Tile, Launch) = match self.kind() {
            Kind::Diffusion => (gradient::DIFFUSION, diffusion_kernel::launch_unchecked),
            Kind::Bending => (gradient::BENDING, bending_kernel::launch_unchecked),
            Kind::TotalVariation => (variation::TILE, variation_kernel::launch_unchecked),
        };
        let grid = self.grid(tile);
        unsafe {
            launch(
                &self.field.client,
                grid.launch(),
                CubeDim::new_1d(UNITS),
                address(&[&self.field]),
                buffer(&self.field),
                buffer(&grad),
                buffer(&output),
                extent(self.size()),
                grid.chunk,
                self.numbers(),
            );
        }
        output
    }
}

impl RegularityOps for CubeBackend {
    fn roughness_3d(field: FloatTensor<Self>, roughness: Roughness) -> FloatTensor<Self> {
        Call::new(field, roughness).value()
    }

    fn roughness_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        roughness: Roughness,
    ) -> FloatTensor<Self> {
        Call::new(field, roughness).gradient(grad)
    }
}
