//! What a launch is told: the plan of a call, the planes it works on, and how they are shared out.

use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;

use super::tile::{LANES, SPAN, Tile};
use crate::ops::launch::Extent;
use crate::ops::lncc::{GradientMode, LnccOptions};

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
        let gradient = tile(3, 3);
        Self { windows, gradient, vector, to_moved, to_fixed, approximate, weighted }
    }

    /// Sums over windows: the five products and, if voxels have weights, those.
    pub(super) fn quantities(&self) -> u32 {
        if self.weighted { 6 } else { 5 }
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
    /// Planes that one cube marches over.
    pub(super) chunk: u32,
    pub(super) epsilon: f32,
}

/// The planes of windows that a cube marches over.
#[derive(CubeType, Clone, Copy)]
pub(super) struct March {
    pub(super) start: i32,
    pub(super) stop: i32,
}

#[cube]
pub(super) fn march(slab: &Slab) -> March {
    let start = slab.first + (CUBE_POS_Z * slab.chunk) as i32;
    March { start, stop: min(start + slab.chunk as i32, slab.first + slab.planes as i32) }
}

/// Where plane `z` of a volume of `depth` planes begins; the first plane for those outside.
#[cube]
pub(super) fn plane_base(volume: usize, z: i32, depth: i32, area: usize) -> usize {
    volume + select(z >= 0 && z < depth, z, 0i32) as usize * area
}

/// Where the gamma fields of plane `z` begin in their ring.
#[cube]
pub(super) fn ring_base(z: i32, slab: &Slab, area: usize, #[comptime] radius: u32) -> usize {
    ((z + comptime!(radius as i32)) as u32 % slab.ring) as usize * area
}

/// The launches of one march: a tile over planes `[first, first + planes)`.
pub(super) struct Grid {
    pub(super) first: i32,
    pub(super) planes: usize,
    pub(super) chunk: usize,
    pub(super) cubes: [usize; 3],
}

impl Grid {
    /// Shares the planes out in marches such that the last wave of cubes is full, but not so short
    /// that their margins count.
    pub(super) fn new(
        tile: Tile,
        [_, h, w]: [usize; 3],
        first: i32,
        planes: usize,
        image: &CubeTensor,
    ) -> Self {
        let hardware = &image.client.properties().hardware;
        let processors = hardware.num_streaming_multiprocessors.unwrap_or(32) as usize;
        let x = w.div_ceil(tile.columns() as usize);
        let y = h.div_ceil(tile.height() as usize);
        let step = tile.planes as usize;
        // Loading a plane of the margin costs about a third of a plane of windows.
        let margin = step + 2 * tile.radius as usize / 3;
        let time = |chunk: usize| {
            let waves = (x * y * planes.div_ceil(chunk)).div_ceil(processors);
            waves * (chunk + margin)
        };
        let chunks = (1..=planes).map(|parts| planes.div_ceil(parts).next_multiple_of(step));
        let chunk = chunks.min_by_key(|chunk| time(*chunk)).expect("there is a plane");
        Self { first, planes, chunk, cubes: [x, y, planes.div_ceil(chunk)] }
    }

    pub(super) fn count(&self) -> CubeCount {
        let [x, y, z] = self.cubes.map(|cubes| cubes as u32);
        CubeCount::Static(x, y, z)
    }

    pub(super) fn len(&self) -> usize {
        self.cubes.iter().product()
    }
}
