//! The discrete search on the GPU: a unit a cell, a unit a point and displacement, a unit a point.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::{Cells, DiscreteOps, Window, pooled_shape};
use crate::ops::grid_sample::cube::{COLUMNS, column_of_unit, columns, inside, len, offset};
use ffdp_kit::launch::{Extent, UNITS, address, assert_f32, buffer, empty, extent};
use ffdp_kit::march::clamped;

#[cube(launch_unchecked, address_type = "dynamic")]
fn pool_kernel(
    features: &[f32],
    output: &mut [f32],
    from: Extent,
    to: Extent,
    width: u32,
    stride: u32,
) {
    let at = column_of_unit(&to, 1u32);
    if !inside(&at, &to) {
        terminate!();
    }
    let (first_x, first_y, first_z) = (at.x * stride, at.y * stride, at.z * stride);
    let (x_end, y_end) = (min(first_x + width, from.w), min(first_y + width, from.h));
    let z_end = min(first_z + width, from.d);
    let volume = at.n as usize * len(&from);
    let mut sum = 0.0f32;
    for z in first_z..z_end {
        for y in first_y..y_end {
            let row = (z as usize * from.h as usize + y as usize) * from.w as usize;
            for x in first_x..x_end {
                sum += features[volume + row + x as usize];
            }
        }
    }
    let voxels = (z_end - first_z) * (y_end - first_y) * (x_end - first_x);
    output[at.n as usize * len(&to) + offset(&at, &to)] = sum / f32::cast_from(voxels);
}

/// Where a window's costs lie: `planes` from the plane `first` of a grid on.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Tile {
    size: Extent,
    first: u32,
    planes: u32,
}

impl Window {
    fn tile(self, [d, h, w]: [usize; 3]) -> TileLaunch {
        TileLaunch::new(extent([d, h, w]), self.first as u32, self.planes as u32)
    }

    /// Cubes over a tile's points, `y` and `z` of them.
    fn cubes(self, [_, h, w]: [usize; 3], y: usize, z: usize) -> CubeCount {
        let x = (self.planes * h * w).div_ceil(UNITS as usize);
        assert!(
            x <= 65535 && y <= 65535 && z <= 65535,
            "discrete: {} planes of {h}x{w} points are more than one launch takes; give the costs fewer bytes",
            self.planes
        );
        CubeCount::Static(x as u32, y as u32, z as u32)
    }
}

/// Cubes along y are displacements, along z batch entries; `steps` is the extent of the moving cells, of which a control
/// point is `apart` from the next.
#[cube(launch_unchecked, address_type = "dynamic")]
fn cost_kernel(
    fixed: &[f32],
    moving: &[f32],
    costs: &mut [f32],
    tile: Tile,
    steps: Extent,
    channels: u32,
    #[comptime] radius: u32,
    #[comptime] apart: u32,
) {
    let (row, area) = (tile.size.w, tile.size.h * tile.size.w);
    let points = tile.planes * area;
    let point = ABSOLUTE_POS_X;
    if point >= points {
        terminate!();
    }
    let width = comptime!(2 * radius + 1);
    let label = CUBE_POS_Y;
    let radius = comptime!(radius as i32);
    let dx = (label % width) as i32 - radius;
    let dy = (label / width % width) as i32 - radius;
    let dz = (label / comptime!(width * width)) as i32 - radius;
    let (x, y, z) = (point % row, point / row % tile.size.h, tile.first + point / area);
    let other_x = clamped((x * apart) as i32 + dx, steps.w);
    let other_y = clamped((y * apart) as i32 + dy, steps.h);
    let other_z = clamped((z * apart) as i32 + dz, steps.d);
    let (len, len_of_moving) = (len(&tile.size), len(&steps));
    let first_channel = CUBE_POS_Z as usize * channels as usize;
    let mut here = first_channel * len + ((z * tile.size.h + y) * row + x) as usize;
    let mut there = first_channel * len_of_moving
        + ((other_z * steps.h + other_y) * steps.w + other_x) as usize;
    let mut sum = 0.0f32;
    for _c in 0..channels {
        let difference = fixed[here] - moving[there];
        sum += difference * difference;
        here += len;
        there += len_of_moving;
    }
    let labels = comptime!((width * width * width) as usize);
    let first = (CUBE_POS_Z as usize * labels + label as usize) * points as usize;
    costs[first + point as usize] = sum;
}

/// Cubes along y are batch entries.
#[cube(launch_unchecked, address_type = "dynamic")]
fn least_kernel(
    costs: &[f32],
    near: &[f32],
    output: &mut [f32],
    tile: Tile,
    #[comptime] radius: u32,
) {
    let area = tile.size.h * tile.size.w;
    let points = (tile.planes * area) as usize;
    let point = ABSOLUTE_POS_X as usize;
    if point >= points {
        terminate!();
    }
    let n = CUBE_POS_Y as usize;
    let len = len(&tile.size);
    let first = n * 4 * len + tile.first as usize * area as usize + point;
    let (near_x, near_y, near_z) = (near[first], near[first + len], near[first + 2 * len]);
    let theta = near[first + 3 * len];
    let width = comptime!((2 * radius + 1) as usize);
    let radius = comptime!(radius as i32);
    let mut at = n * comptime!(width * width * width) * points + point;
    let mut least = f32::MAX.runtime();
    let mut squared = 0.0f32;
    let mut best_x = 0.0f32;
    let mut best_y = 0.0f32;
    let mut best_z = 0.0f32;
    let mut k = comptime!(-radius).runtime();
    while k <= radius {
        let z = f32::cast_from(k);
        let mut j = comptime!(-radius).runtime();
        while j <= radius {
            let y = f32::cast_from(j);
            let mut i = comptime!(-radius).runtime();
            while i <= radius {
                let x = f32::cast_from(i);
                let (ax, ay, az) = (x - near_x, y - near_y, z - near_z);
                let cost = costs[at] + theta * (ax * ax + ay * ay + az * az);
                let length = x * x + y * y + z * z;
                if cost < least || (cost == least && length < squared) {
                    least = cost;
                    squared = length;
                    best_x = x;
                    best_y = y;
                    best_z = z;
                }
                at += points;
                i += 1;
            }
            j += 1;
        }
        k += 1;
    }
    let to = n * 3 * points + point;
    output[to] = best_x;
    output[to + points] = best_y;
    output[to + 2 * points] = best_z;
}

impl DiscreteOps for CubeBackend {
    fn pool_3d(features: FloatTensor<Self>, cells: Cells) -> FloatTensor<Self> {
        assert_f32("discrete", &[&features]);
        let features = into_contiguous(features);
        let shape = features.meta.shape();
        let pooled = pooled_shape(shape, cells);
        let size = [pooled[2], pooled[3], pooled[4]];
        let output = empty(&features, pooled);
        unsafe {
            pool_kernel::launch_unchecked(
                &features.client,
                columns("discrete", shape[0] * shape[1], size, 1),
                COLUMNS.into(),
                address(&[&features]),
                buffer(&features),
                buffer(&output),
                extent([shape[2], shape[3], shape[4]]),
                extent(size),
                cells.width as u32,
                cells.stride as u32,
            );
        }
        output
    }

    fn displacement_costs_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self> {
        assert_f32("discrete", &[&fixed, &moving]);
        let (fixed, moving) = (into_contiguous(fixed), into_contiguous(moving));
        let shape = fixed.meta.shape();
        let size = [shape[2], shape[3], shape[4]];
        let of_moving = moving.meta.shape();
        let steps = extent([of_moving[2], of_moving[3], of_moving[4]]);
        let output = empty(&fixed, window.cost_shape(shape));
        unsafe {
            cost_kernel::launch_unchecked(
                &fixed.client,
                window.cubes(size, window.labels(), shape[0]),
                CubeDim::new_1d(UNITS),
                address(&[&fixed, &moving, &output]),
                buffer(&fixed),
                buffer(&moving),
                buffer(&output),
                window.tile(size),
                steps,
                shape[1] as u32,
                window.radius as u32,
                window.steps as u32,
            );
        }
        output
    }

    fn least_displacement_3d(
        costs: FloatTensor<Self>,
        near: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self> {
        assert_f32("discrete", &[&costs, &near]);
        let (costs, near) = (into_contiguous(costs), into_contiguous(near));
        let shape = near.meta.shape();
        let (batch, size) = (shape[0], [shape[2], shape[3], shape[4]]);
        let output = empty(&costs, [batch, 3, window.planes, size[1], size[2]]);
        unsafe {
            least_kernel::launch_unchecked(
                &costs.client,
                window.cubes(size, batch, 1),
                CubeDim::new_1d(UNITS),
                address(&[&costs, &output]),
                buffer(&costs),
                buffer(&near),
                buffer(&output),
                window.tile(size),
                window.radius as u32,
            );
        }
        output
    }
}
