//! Smoothing by a small kernel in one march along z (see `march.rs` of `ffdp-kit`): every voxel is read and
//! written once.
//!
//! Where x allows it a unit owns four neighbours along x, a cell, as one vector: fewer and wider
//! accesses. Sums along y are those of a unit's own rows; sums along x read the plane of y-sums from shared
//! memory. Along z the kernel runs in transposed form: a plane, once it is there, is added with its
//! weight to every output plane that it reaches, so that the oldest is finished by it.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Direction;
use ffdp_kit::launch::{Extent, UNITS, address, buffer, empty, extent};
use ffdp_kit::march::{Column, Tile, clamped, column, grid};

/// Largest radius of the march: bounds registers and shared memory.
pub(super) const LARGEST_RADIUS: usize = 8;

/// What is fixed when a kernel is compiled: the tile of cells, the voxels of a cell, radii along x,
/// y, z, and the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    tile: Tile,
    cell: usize,
    radii: [usize; 3],
    direction: Direction,
}

impl Plan {
    fn new(radii: [usize; 3], cell: usize, direction: Direction) -> Self {
        // As many rows as registers and shared memory (32 kB) allow.
        let reach = radii[1].max(radii[2]);
        let (units_x, rows) = match cell {
            1 => (64, [8, 8, 8, 8, 4, 4, 4, 2, 2][reach]),
            _ => (32, 2),
        };
        let margin = radii[0].div_ceil(cell) as u32;
        Self { tile: Tile { units_x, rows, margin, row_margin: 0 }, cell, radii, direction }
    }

    /// Cells on either side that a sum along x reaches.
    const fn reach(&self) -> usize {
        self.tile.margin as usize
    }

    /// Rows that a unit loads.
    const fn loads(&self) -> usize {
        self.tile.rows as usize + 2 * self.radii[1]
    }

    /// Registers of the unfinished sums along z.
    const fn pending(&self) -> usize {
        self.tile.rows as usize * 2 * self.radii[2]
    }

    /// Rows of the tile with their margin.
    const fn norms(&self) -> usize {
        self.tile.height() as usize + 2 * self.radii[1]
    }
}

/// `1 / (K 1)` at a position of an axis.
#[cube]
fn inverse_norm(half: &Sequence<f32>, position: u32, len: u32, #[comptime] radius: usize) -> f32 {
    let mut mass = half[0];
    #[unroll]
    for k in 1..radius + 1 {
        let weight = half[k];
        mass += select(position >= comptime!(k as u32), weight, 0.0f32);
        mass += select(position + comptime!(k as u32) < len, weight, 0.0f32);
    }
    1.0f32 / mass
}

/// [`inverse_norm`], at once where the whole kernel fits: most planes.
#[cube]
fn inverse_norm_of_plane(
    half: &Sequence<f32>,
    z: i32,
    depth: u32,
    #[comptime] radius: usize,
) -> f32 {
    let reach = comptime!(radius as i32);
    let mut norm = 1.0f32;
    if z < reach || z + reach >= depth as i32 {
        norm = inverse_norm(half, clamped(z, depth), depth, radius);
    }
    norm
}

/// Starts loading the rows of plane `z`; zero outside the volume.
#[cube]
fn fetch<N: Size>(
    input: &[Vector<f32, N>],
    rows: &mut Array<Vector<f32, N>>,
    size: &Extent,
    at: &Column,
    z: i32,
    #[comptime] plan: Plan,
) {
    let area = size.h as usize * size.w as usize;
    let exists = z >= 0 && z < size.d as i32 && z < at.stop + comptime!(plan.radii[2] as i32);
    let inside = exists && at.x >= 0 && at.x < size.w as i32;
    let volume = at.volume as usize * size.d as usize * area;
    let base = volume + clamped(z, size.d) as usize * area + clamped(at.x, size.w) as usize;
    #[unroll]
    for j in 0..comptime!(plan.loads()) {
        let y = at.y + comptime!(j as i32 - plan.radii[1] as i32);
        let mut value = Vector::new(0.0f32);
        if inside && y >= 0 && y < size.h as i32 {
            value = input[base + y as usize * size.w as usize];
        }
        rows[j] = value;
    }
}

/// The voxel `offset` voxels after the first one of the middle cell.
#[cube]
fn voxel<N: Size>(
    cells: &Array<Vector<f32, N>>,
    #[comptime] offset: i32,
    #[comptime] plan: Plan,
) -> f32 {
    let at = comptime!(((plan.reach() * plan.cell) as i32 + offset) as usize);
    cells[comptime!(at / plan.cell)].extract(comptime!(at % plan.cell))
}

/// `size` counts cells along x.
#[cube(launch_unchecked, address_type = "dynamic")]
fn march_kernel<N: Size>(
    input: &[Vector<f32, N>],
    output: &mut [Vector<f32, N>],
    along_x: Sequence<f32>,
    along_y: Sequence<f32>,
    along_z: Sequence<f32>,
    size: Extent,
    chunk: u32,
    #[comptime] plan: Plan,
) {
    let tile = comptime!(plan.tile);
    let (rx, ry, rz) = comptime!((plan.radii[0], plan.radii[1], plan.radii[2]));
    let (own_rows, pitch) = comptime!((tile.rows as usize, tile.units_x));
    let adjoint = comptime!(plan.direction == Direction::Adjoint);
    let at = column(&size, chunk, tile);
    let area = size.h as usize * size.w as usize;
    let volume = at.volume as usize * size.d as usize * area;

    // Of the rows of the tile and its margin; each unit needs its neighbours' as well.
    let mut norms_y = Shared::<[f32]>::new_slice(comptime!(plan.norms()));
    let top = (CUBE_POS_Y * comptime!(tile.height())) as i32 - comptime!(ry as i32);
    if UNIT_POS < comptime!(plan.norms() as u32) {
        let y = clamped(top + UNIT_POS as i32, size.h);
        norms_y[UNIT_POS as usize] = inverse_norm(&along_y, y, size.h, ry);
    }
    sync_cube();
    let mut norm_x = Vector::<f32, N>::empty();
    #[unroll]
    for a in 0..comptime!(plan.cell) {
        let cell = comptime!(plan.cell as u32);
        let x = clamped(at.x, size.w) * cell + comptime!(a as u32);
        norm_x.insert(a, inverse_norm(&along_x, x, size.w * cell, rx));
    }
    let first_norm = (UNIT_POS / pitch) * tile.rows;
    let meets_border =
        top < comptime!(ry as i32) || top + comptime!((plan.norms() + ry) as i32) > size.h as i32;

    // Planes of sums along y, alternating: one barrier a plane.
    let mut sums = Shared::<[Vector<f32, N>]>::new_slice(comptime!(2 * tile.words() as usize));
    let mut slot = at.slot;
    let mut rows = Array::<Vector<f32, N>>::new(comptime!(plan.loads()));
    let mut cells = Array::<Vector<f32, N>>::new(comptime!(2 * plan.reach() + 1));
    // `pending[i]` of a row: the sum so far of the i-th next plane to be finished.
    let mut pending = Array::<Vector<f32, N>>::new(comptime!(plan.pending().max(1)));
    #[unroll]
    for i in 0..comptime!(plan.pending()) {
        pending[i] = Vector::new(0.0f32);
    }

    let mut z = at.start - comptime!(rz as i32);
    fetch(input, &mut rows, &size, &at, z, plan);
    while z < at.stop + comptime!(rz as i32) {
        let mut scale = norm_x;
        if adjoint {
            scale *= Vector::new(inverse_norm_of_plane(&along_z, z, size.d, rz));
            if meets_border {
                #[unroll]
                for j in 0..comptime!(plan.loads()) {
                    rows[j] *= Vector::new(norms_y[(first_norm + comptime!(j as u32)) as usize]);
                }
            }
        }
        #[unroll]
        for j in 0..own_rows {
            let mut sum = Vector::new(along_y[0]) * rows[comptime!(j + ry)];
            #[unroll]
            for k in 1..ry + 1 {
                let pair = rows[comptime!(j + ry - k)] + rows[comptime!(j + ry + k)];
                sum += Vector::new(along_y[k]) * pair;
            }
            if adjoint {
                sum *= scale;
            }
            sums[(slot + comptime!(j as u32 * pitch)) as usize] = sum;
        }
        sync_cube();
        fetch(input, &mut rows, &size, &at, z + 1, plan);
        if at.writes {
            let centre = z - comptime!(rz as i32);
            let plane = volume + clamped(centre, size.d) as usize * area + at.x as usize;
            if !adjoint {
                scale *= Vector::new(inverse_norm_of_plane(&along_z, centre, size.d, rz));
            }
            #[unroll]
            for j in 0..own_rows {
                let here = slot + comptime!(j as u32 * pitch);
                #[unroll]
                for i in 0..comptime!(2 * plan.reach() + 1) {
                    let first = here - comptime!(plan.reach() as u32);
                    cells[i] = sums[(first + comptime!(i as u32)) as usize];
                }
                let mut sum = Vector::<f32, N>::empty();
                #[unroll]
                for a in 0..comptime!(plan.cell) {
                    let mut part = along_x[0] * voxel(&cells, comptime!(a as i32), plan);
                    #[unroll]
                    for k in 1..rx + 1 {
                        let left = voxel(&cells, comptime!(a as i32 - k as i32), plan);
                        let right = voxel(&cells, comptime!((a + k) as i32), plan);
                        part += along_x[k] * (left + right);
                    }
                    sum.insert(a, part);
                }
                let mut finished = Vector::new(along_z[rz]) * sum;
                if comptime!(rz > 0) {
                    let oldest = comptime!(j * 2 * rz);
                    finished += pending[oldest];
                    #[unroll]
                    for i in 0..2 * rz - 1 {
                        let weight = Vector::new(along_z[comptime!((i + 1).abs_diff(rz))]);
                        let next = pending[comptime!(oldest + i + 1)];
                        pending[comptime!(oldest + i)] = next + weight * sum;
                    }
                    pending[comptime!(oldest + 2 * rz - 1)] = Vector::new(along_z[rz]) * sum;
                }
                let y = at.y + comptime!(j as i32);
                if centre >= at.start && y < size.h as i32 {
                    if !adjoint {
                        let norm_y = norms_y[(first_norm + comptime!((j + ry) as u32)) as usize];
                        finished *= scale * Vector::new(norm_y);
                    }
                    output[plane + y as usize * size.w as usize] = finished;
                }
            }
        }
        // The other plane of sums.
        slot = select(slot < comptime!(tile.words()), slot + comptime!(tile.words()), at.slot);
        z += 1;
    }
}

/// Voxels of a cell: four where rows consist of whole cells and begin at whole cells.
fn cell(x: &CubeTensor) -> usize {
    let offset = x.handle.offset_start.unwrap_or(0);
    let width = x.meta.shape()[4];
    if width.is_multiple_of(4) && offset.is_multiple_of(16) { 4 } else { 1 }
}

/// Volumes that lie one after the other.
#[derive(Clone, Copy)]
pub(super) struct Volumes {
    pub count: usize,
    /// Voxels (D, H, W) of each.
    pub size: [usize; 3],
}

/// Smooths volumes by the half kernels along x, y, z.
pub(super) fn smooth(
    x: &CubeTensor,
    kernels: &[Vec<f64>; 3],
    volumes: Volumes,
    direction: Direction,
) -> CubeTensor {
    let radii = kernels.each_ref().map(|half| half.len() - 1);
    let plan = Plan::new(radii, cell(x), direction);
    let Volumes { count, size } = volumes;
    let cells = [size[0], size[1], size[2] / plan.cell];
    let grid = grid("gaussian", plan.tile, count, cells, (4 * radii[2]).max(8));
    let weights = |axis: usize| kernels[axis].iter().map(|k| *k as f32).collect();
    let output = empty(x, x.meta.shape().clone());
    unsafe {
        march_kernel::launch_unchecked(
            &x.client,
            grid.launch(),
            CubeDim::new_1d(UNITS),
            address(&[x]),
            plan.cell,
            buffer(x),
            buffer(&output),
            weights(0),
            weights(1),
            weights(2),
            extent(cells),
            grid.chunk,
            plan,
        );
    }
    output
}
