//! Smoothing on the GPU.
//!
//! Small kernels take one march along z, like LNCC's: x- and y-sums of a 32 x 8 tile through shared
//! memory, the last planes of each column in registers; every voxel is read and written once. Wide
//! kernels (a pyramid's) take one pass per axis.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use super::{Direction, GaussianOps, GaussianOptions};
use crate::ops::launch::{
    CUBE, Extent, UNITS, address, assert_f32, buffer, cubes, empty, extent, upload,
};

const TILE: Dim3 = Dim3::new_2d(32, 8);
const TILE_X: u32 = 32;
const TILE_Y: u32 = 8;

/// Largest radius of the march: bounds registers and shared memory.
const MARCH_RADIUS: usize = 8;

/// Cubes that a launch should have, so that every multiprocessor has work to switch to.
const CUBES_WANTED: usize = 2048;

/// The radii (x, y, z) and the direction: fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape3 {
    x: u32,
    y: u32,
    z: u32,
    direction: Direction,
}

/// `1 / (K 1)` at a position of an axis; `table` holds it for the first voxels of a long axis, and
/// by symmetry for the last.
#[cube]
fn inverse_norm(table: &[f32], start: u32, position: u32, len: u32) -> f32 {
    table[(start + position.min(len - 1 - position)) as usize]
}

/// Where the half kernels and the norms of each axis begin in the table of constants.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Offsets {
    kernel: u32,
    norm: u32,
}

/// One voxel of a march, with the norms of its plane and row for the adjoint.
#[cube(launch_unchecked, address_type = "dynamic")]
fn march_kernel(
    input: &[f32],
    table: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    x_at: Offsets,
    y_at: Offsets,
    z_at: Offsets,
    #[comptime] shape: Shape3,
) {
    let (rx, ry, rz) = comptime!((shape.x, shape.y, shape.z));
    let adjoint = comptime!(shape.direction == Direction::Adjoint);
    let width = comptime!(TILE_X + 2 * rx);
    let rows = comptime!(TILE_Y + 2 * ry);
    let window = comptime!(2 * rz + 1);
    let mut tile = Shared::<[f32]>::new_slice(comptime!((width * rows) as usize));
    let mut along_x = Shared::<[f32]>::new_slice(comptime!((TILE_X * rows) as usize));
    let mut ring = Array::<f32>::new(comptime!(window as usize));
    #[unroll]
    for i in 0..window {
        ring[i as usize] = 0.0f32;
    }
    let chunks = size.d.div_ceil(chunk);
    let area = size.h as usize * size.w as usize;
    let volume = (CUBE_POS_Z / chunks) as usize * size.d as usize * area;
    let start = (CUBE_POS_Z % chunks) * chunk;
    let stop = min(start + chunk, size.d);
    let (x, y) = (ABSOLUTE_POS_X, ABSOLUTE_POS_Y);
    let left = CUBE_POS_X as i32 * TILE_X as i32 - rx as i32;
    let top = CUBE_POS_Y as i32 * TILE_Y as i32 - ry as i32;
    let (w, h, d) = (size.w as i32, size.h as i32, size.d as i32);
    let column_inside = x < size.w && y < size.h;

    let mut z = start as i32 - rz as i32;
    while z < stop as i32 + rz as i32 {
        sync_cube();
        let plane_inside = z >= 0 && z < d;
        let mut item = UNIT_POS;
        while item < rows * width {
            let tx = left + (item % width) as i32;
            let ty = top + (item / width) as i32;
            let mut value = 0.0f32;
            if plane_inside && tx >= 0 && ty >= 0 && tx < w && ty < h {
                value =
                    input[volume + z as usize * area + ty as usize * size.w as usize + tx as usize];
                if adjoint {
                    value *= inverse_norm(table, x_at.norm, tx as u32, size.w)
                        * inverse_norm(table, y_at.norm, ty as u32, size.h)
                        * inverse_norm(table, z_at.norm, z as u32, size.d);
                }
            }
            tile[item as usize] = value;
            item += UNITS;
        }
        sync_cube();
        let mut item = UNIT_POS;
        while item < rows * TILE_X {
            let middle = (item / TILE_X) * width + item % TILE_X + rx;
            let mut sum = table[x_at.kernel as usize] * tile[middle as usize];
            #[unroll]
            for i in 1..rx + 1 {
                sum += table[(x_at.kernel + i) as usize]
                    * (tile[(middle - i) as usize] + tile[(middle + i) as usize]);
            }
            along_x[item as usize] = sum;
            item += UNITS;
        }
        sync_cube();
        let middle = UNIT_POS + ry * TILE_X;
        let mut plane = table[y_at.kernel as usize] * along_x[middle as usize];
        #[unroll]
        for j in 1..ry + 1 {
            plane += table[(y_at.kernel + j) as usize]
                * (along_x[(middle - j * TILE_X) as usize]
                    + along_x[(middle + j * TILE_X) as usize]);
        }
        #[unroll]
        for i in 0..window - 1 {
            let next = ring[comptime!(i as usize + 1)];
            ring[i as usize] = next;
        }
        ring[comptime!(window as usize - 1)] = plane;
        let centre = z - rz as i32;
        if centre >= start as i32 && column_inside {
            let mut sum = table[z_at.kernel as usize] * ring[comptime!(rz as usize)];
            #[unroll]
            for k in 1..rz + 1 {
                sum += table[(z_at.kernel + k) as usize]
                    * (ring[comptime!((rz - k) as usize)] + ring[comptime!((rz + k) as usize)]);
            }
            if !adjoint {
                sum *= inverse_norm(table, x_at.norm, x, size.w)
                    * inverse_norm(table, y_at.norm, y, size.h)
                    * inverse_norm(table, z_at.norm, centre as u32, size.d);
            }
            let at = centre as usize * area + y as usize * size.w as usize + x as usize;
            output[volume + at] = sum;
        }
        z += 1;
    }
}

/// One pass along the axis whose voxels are `stride` apart.
#[cube(launch_unchecked, address_type = "dynamic")]
fn axis_kernel(
    input: &[f32],
    table: &[f32],
    output: &mut [f32],
    size: Extent,
    at: Offsets,
    radius: u32,
    #[comptime] axis: u32,
    #[comptime] direction: Direction,
) {
    let tiles = size.d.div_ceil(CUBE_DIM_Z);
    let volume = CUBE_POS_Z / tiles;
    let (x, y) = (ABSOLUTE_POS_X, ABSOLUTE_POS_Y);
    let z = (CUBE_POS_Z % tiles) * CUBE_DIM_Z + UNIT_POS_Z;
    if x >= size.w || y >= size.h || z >= size.d {
        terminate!();
    }
    let area = size.h as usize * size.w as usize;
    let voxel = (volume as usize * size.d as usize + z as usize) * area
        + y as usize * size.w as usize
        + x as usize;
    let mut position = x;
    let mut len = size.w;
    let mut stride = 1usize;
    if comptime!(axis == 1) {
        position = y;
        len = size.h;
        stride = size.w as usize;
    }
    if comptime!(axis == 2) {
        position = z;
        len = size.d;
        stride = area;
    }
    let first = position - min(radius, position);
    let last = min(position + radius, len - 1);
    let line = voxel - position as usize * stride;
    let mut sum = 0.0f32;
    for j in first..last + 1 {
        let distance = select(j > position, j - position, position - j);
        let mut weight = table[(at.kernel + distance) as usize];
        if comptime!(direction == Direction::Adjoint) {
            weight *= inverse_norm(table, at.norm, j, len);
        }
        sum += weight * input[line + j as usize * stride];
    }
    if comptime!(direction == Direction::Forward) {
        sum *= inverse_norm(table, at.norm, position, len);
    }
    output[voxel] = sum;
}

/// The constants of all axes in one small buffer: half kernels, then inverse norms of the first
/// half of each axis (the second half mirrors it).
struct Table {
    buffer: CubeTensor,
    offsets: [(u32, u32); 3],
    radii: [usize; 3],
}

impl Table {
    fn new(like: &CubeTensor, options: &GaussianOptions, size_xyz: [usize; 3]) -> Self {
        let mut values: Vec<f32> = Vec::new();
        let mut offsets = [(0, 0); 3];
        let mut radii = [0; 3];
        for axis in 0..3 {
            let half = options.half_kernel(axis);
            let kernel = values.len() as u32;
            values.extend(half.iter().map(|k| *k as f32));
            offsets[axis] = (kernel, values.len() as u32);
            let len = size_xyz[axis];
            for i in 0..len.div_ceil(2) {
                let below: f64 = (1..half.len()).filter(|k| *k <= i).map(|k| half[k]).sum();
                let above: f64 = (1..half.len()).filter(|k| i + k < len).map(|k| half[k]).sum();
                values.push((1.0 / (half[0] + below + above)) as f32);
            }
            radii[axis] = half.len() - 1;
        }
        Self { buffer: upload(like, &values), offsets, radii }
    }

    fn offsets(&self, axis: usize) -> OffsetsLaunch {
        OffsetsLaunch::new(self.offsets[axis].0, self.offsets[axis].1)
    }
}

fn march(
    x: &CubeTensor,
    table: &Table,
    (volumes, size): (usize, [usize; 3]),
    direction: Direction,
) -> CubeTensor {
    let [d, h, w] = size;
    let tiles = w.div_ceil(TILE_X as usize) * h.div_ceil(TILE_Y as usize) * volumes;
    let chunk = d.div_ceil(CUBES_WANTED.div_ceil(tiles)).max(2 * table.radii[2]).clamp(1, d);
    let counts =
        [w.div_ceil(TILE_X as usize), h.div_ceil(TILE_Y as usize), volumes * d.div_ceil(chunk)];
    assert!(
        counts.iter().all(|count| *count <= 65535),
        "gaussian: {volumes} volumes of {d}x{h}x{w} voxels need {counts:?} cubes, more than 65535 \
         along an axis; split the batch"
    );
    let [rx, ry, rz] = table.radii.map(|radius| radius as u32);
    let output = empty(x, x.meta.shape().clone());
    unsafe {
        march_kernel::launch_unchecked(
            &x.client,
            CubeCount::Static(counts[0] as u32, counts[1] as u32, counts[2] as u32),
            TILE.into(),
            address(&[x]),
            buffer(x),
            buffer(&table.buffer),
            buffer(&output),
            extent(size),
            chunk as u32,
            table.offsets(0),
            table.offsets(1),
            table.offsets(2),
            Shape3 { x: rx, y: ry, z: rz, direction },
        );
    }
    output
}

fn along_axis(
    x: &CubeTensor,
    table: &Table,
    (volumes, size): (usize, [usize; 3]),
    axis: usize,
    direction: Direction,
) -> CubeTensor {
    let output = empty(x, x.meta.shape().clone());
    unsafe {
        axis_kernel::launch_unchecked(
            &x.client,
            cubes("gaussian", volumes, size),
            CUBE.into(),
            address(&[x]),
            buffer(x),
            buffer(&table.buffer),
            buffer(&output),
            extent(size),
            table.offsets(axis),
            table.radii[axis] as u32,
            axis as u32,
            direction,
        );
    }
    output
}

impl GaussianOps for CubeBackend {
    fn gaussian_3d(
        x: FloatTensor<Self>,
        options: GaussianOptions,
        direction: Direction,
    ) -> FloatTensor<Self> {
        assert_f32("gaussian", &[&x]);
        let x = into_contiguous(x);
        let shape = x.meta.shape();
        let (volumes, size) = (shape[0] * shape[1], [shape[2], shape[3], shape[4]]);
        let table = Table::new(&x, &options, [size[2], size[1], size[0]]);
        if table.radii.into_iter().all(|radius| radius <= MARCH_RADIUS) {
            return march(&x, &table, (volumes, size), direction);
        }
        (0..3)
            .filter(|axis| table.radii[*axis] > 0)
            .fold(x, |x, axis| along_axis(&x, &table, (volumes, size), axis, direction))
    }
}
