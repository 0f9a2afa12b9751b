//! Arguments of a launch: the plan of a call, the planes it works on, and how they are shared out.

use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;

use super::tile::{LANES, March, SPAN, Tile};
use crate::ops::lncc::{GradientMode, LnccOptions};
use ffdp_kit::launch::Extent;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// Of the windows' march, and of the gradient's.
    pub(super) windows: Tile,
    pub(super) gradient: Tile,
    /// Values that a load takes from the images and from the gamma fields, 1 or 4.
    pub(super) vector: u32,
    /// Whether gamma fields are written for the moved and for the fixed image.
    pub(super) to_moved: bool,
    pub(super) to_fixed: bool,
    /// Whether the gradients are written at once, without the second march.
    pub(super) approximate: bool,
    /// Whether voxels have weights.
    pub(super) weighted: bool,
}

impl Plan {
    pub(super) fn new(
        image: &CubeTensor,
        options: &LnccOptions,
        weighted: bool,
        needs: [bool; 2],
    ) -> Self {
        let properties = image.client.properties();
        let hardware = &properties.hardware;
        // Rows of 16 units must lie within planes of units.
        let shuffles = properties.features.plane.contains(Plane::Ops)
            && hardware.plane_size_min.is_multiple_of(LANES);
        let radius = options.window as u32 / 2;
        let tile = |quantities, held| {
            Tile::new(radius, options.weights, quantities, held, shuffles, hardware)
        };
        let approximate = options.gradient == GradientMode::AntsApproximate;
        let [to_moved, to_fixed] = needs;
        // The approximate gradient and the weights are also read voxel by voxel.
        let whole = image.meta.shape()[4].is_multiple_of(SPAN as usize);
        let vector = if whole && !approximate && !weighted { SPAN } else { 1 };
        let windows = if weighted { tile(6, 3) } else { tile(5, 2) };
        let width = image.meta.shape()[4];
        // Of the fields only; the images are zero outside, but their distance from the mean is not.
        let gradient = tile(3, 3).zero_outside(width);
        Self { windows, gradient, vector, to_moved, to_fixed, approximate, weighted }
    }

    /// Sums over windows: the five products and, if voxels have weights, those.
    pub(super) fn quantities(&self) -> u32 {
        if self.weighted { 6 } else { 5 }
    }

    /// Cubes that a device runs at a time, in the windows' march and in the gradient's.
    pub(super) fn cubes(&self, image: &CubeTensor) -> [usize; 2] {
        let hardware = &image.client.properties().hardware;
        let processors = hardware.num_streaming_multiprocessors.unwrap_or(32) as usize;
        let held = if self.weighted { 3 } else { 2 };
        let windows = self.windows.resident(self.quantities(), held, hardware);
        [windows, self.gradient.resident(3, 3, hardware)].map(|cubes| cubes * processors)
    }

    /// What the images are multiplied by, so that sums of their products over a window are means.
    pub(super) fn unit(&self) -> f32 {
        self.unit_squared().sqrt()
    }

    /// Weights are summed with the products, and make the means.
    pub(super) fn unit_squared(&self) -> f32 {
        if self.weighted { 1.0 } else { self.windows.scale() }
    }

    pub(super) fn fields(&self) -> usize {
        match (self.approximate, self.to_moved, self.to_fixed) {
            (true, ..) | (_, false, false) => 0,
            (_, true, true) => 5,
            _ => 3,
        }
    }
}

/// Where a launch works.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Slab {
    pub(super) size: Extent,
    pub(super) volume: u32,
    /// Planes `[first, first + planes)` of windows or of the gradient.
    pub(super) first: i32,
    pub(super) planes: u32,
    /// Planes of the ring that holds the gamma fields.
    pub(super) ring: u32,
    /// Tiles along x.
    pub(super) across: u32,
    /// Planes of all the tiles, and how many of them a cube takes; see [`Grid`].
    pub(super) total: u32,
    pub(super) share: u32,
    /// Added to the covariance and to both variances.
    pub(super) common: f32,
    /// Added to the product of the variances.
    pub(super) epsilon: f32,
    /// Of the gradient, besides what makes means of its sums.
    pub(super) factor: f32,
}

/// The march from plane `at` of all the tiles' planes on, to plane `end` or the top of its tile.
#[cube]
pub(super) fn march(at: u32, end: u32, slab: &Slab) -> March {
    let tile = at / slab.planes;
    let bottom = at % slab.planes;
    let start = slab.first + bottom as i32;
    let x = tile % slab.across;
    March {
        start,
        stop: start + min(slab.planes - bottom, end - at) as i32,
        x,
        y: tile / slab.across,
        first: x == 0,
        last: x + 1 == slab.across,
    }
}

/// Where plane `z` of a volume of `depth` planes begins; the first plane for those outside.
#[cube]
pub(super) fn plane_base(volume: usize, z: i32, depth: i32, area: usize) -> usize {
    volume + select(z >= 0 && z < depth, z, 0i32) as usize * area
}

/// A launch: tiles over planes `[first, first + planes)`, of which every cube takes an equal share.
///
/// A share may end within a tile, and the next cube goes on there. So all are through at the same time,
/// however many tiles there are.
pub(super) struct Grid {
    pub(super) first: i32,
    pub(super) planes: usize,
    pub(super) across: usize,
    /// Planes of tiles, and how many of them a cube takes.
    pub(super) total: usize,
    pub(super) share: usize,
}

impl Grid {
    /// `cubes` run at a time.
    pub(super) fn new(
        tile: Tile,
        [_, h, w]: [usize; 3],
        first: i32,
        planes: usize,
        cubes: usize,
    ) -> Self {
        let across = tile.across(w);
        let total = across * h.div_ceil(tile.height() as usize) * planes;
        let share = total.div_ceil(cubes).next_multiple_of(tile.planes as usize);
        Self { first, planes, across, total, share }
    }

    pub(super) fn count(&self) -> CubeCount {
        CubeCount::Static(self.len() as u32, 1, 1)
    }

    pub(super) fn len(&self) -> usize {
        self.total.div_ceil(self.share)
    }
}
