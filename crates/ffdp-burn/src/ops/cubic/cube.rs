//! Cubic splines on the GPU: a unit a voxel; neighbours come from the caches.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{CubicOps, inverse_taps};
use crate::ops::fft::dims_of;
use crate::ops::launch::{
    CUBE, Extent, UNITS, assert_f32, buffer, cubes, empty, extent, upload, wide_address,
};

/// Neighbours at which `z^s` has fallen to the last digit of f32: `0.268^13 = 4e-8`.
const REACH: usize = 13;

/// The inverse of `(1, 4, 1) / 6` along an axis of `n` voxels, `stride` elements apart.
#[cube(launch_unchecked, address_type = "dynamic")]
fn inverse_kernel(
    data: &[f32],
    taps: &[f32],
    output: &mut [f32],
    n: usize,
    stride: usize,
    #[comptime] reach: u32,
) {
    let cube = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
    let element = cube * CUBE_DIM_X as usize + UNIT_POS_X as usize;
    if element >= output.len() {
        terminate!();
    }
    let at = element / stride % n;
    let line = element - at * stride;
    let mut sum = taps[0] * data[element];
    #[unroll]
    for s in 1..comptime!(reach + 1) {
        let above = at + s as usize;
        let above = select(above < n, above, above - n);
        let below = at + n - s as usize;
        let below = select(below < n, below, below - n);
        // Half a period away both neighbours are one: its tap is halved.
        sum += taps[s as usize] * (data[line + above * stride] + data[line + below * stride]);
    }
    output[element] = sum;
}

/// The four voxels around a position, `stride` elements apart, and their weights.
#[derive(CubeType)]
struct Around {
    at: Array<usize>,
    weight: Array<f32>,
    /// Whether the four lie one after the other, not around the end of the axis.
    in_line: bool,
}

/// Around voxel `p`, displaced by `u`: the whole voxels of `u` are counted apart, so that large volumes lose
/// no digits.
#[cube]
fn around(p: u32, u: f32, n: u32, stride: usize) -> Around {
    let mut at = Array::<usize>::new(4usize);
    let mut weight = Array::<f32>::new(4usize);
    let cell = u.floor();
    let t = u - cell;
    let s = 1.0f32 - t;
    weight[0] = s * s * s * comptime!(1.0f32 / 6.0);
    weight[1] = comptime!(2.0f32 / 3.0) - t * t * (1.0f32 - 0.5f32 * t);
    weight[2] = comptime!(2.0f32 / 3.0) - s * s * (1.0f32 - 0.5f32 * s);
    weight[3] = t * t * t * comptime!(1.0f32 / 6.0);
    let size = i32::cast_from(n);
    let mut first = i32::cast_from(p) + i32::cast_from(cell) - 1;
    first = select(first < 0, first + size, first);
    first = select(first >= size, first - size, first);
    // Farther than once around.
    if first < 0 || first >= size {
        first = (first % size + size) % size;
    }
    let mut voxel = u32::cast_from(first);
    let in_line = voxel + 3 < n;
    #[unroll]
    for tap in 0..4usize {
        at[tap] = voxel as usize * stride;
        voxel = select(voxel + 1 == n, 0u32, voxel + 1);
    }
    Around { at, weight, in_line }
}

/// The sums over the 64 coefficients around a position, of each channel, `len` elements apart.
#[cube]
fn sums(
    coefficients: &[f32],
    x: &Around,
    y: &Around,
    z: &Around,
    first: usize,
    len: usize,
    #[comptime] channels: u32,
    #[comptime] in_line: bool,
) -> Array<f32> {
    let mut sums = Array::<f32>::new(comptime!(channels as usize));
    #[unroll]
    for channel in 0..comptime!(channels as usize) {
        sums[channel] = 0.0f32;
    }
    #[unroll]
    for k in 0..4usize {
        #[unroll]
        for j in 0..4usize {
            let weight = z.weight[k] * y.weight[j];
            #[unroll]
            for channel in 0..comptime!(channels as usize) {
                let row = first + channel * len + z.at[k] + y.at[j];
                let mut along = 0.0f32;
                if comptime!(in_line) {
                    // Constant distances cost no address.
                    let start = row + x.at[0];
                    #[unroll]
                    for i in 0..4usize {
                        along += x.weight[i] * coefficients[start + i];
                    }
                } else {
                    #[unroll]
                    for i in 0..4usize {
                        along += x.weight[i] * coefficients[row + x.at[i]];
                    }
                }
                sums[channel] += weight * along;
            }
        }
    }
    sums
}

/// `channels` of `groups` of them a volume: coefficients of `of` voxels at those of `size`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sample_kernel(
    coefficients: &[f32],
    displacement: &[f32],
    output: &mut [f32],
    of: Extent,
    size: Extent,
    origin_x: u32,
    origin_y: u32,
    origin_z: u32,
    groups: u32,
    #[comptime] channels: u32,
) {
    let x = ABSOLUTE_POS_X;
    let y = ABSOLUTE_POS_Y;
    let slices = size.d.div_ceil(CUBE_DIM_Z);
    let z = CUBE_POS_Z % slices * CUBE_DIM_Z + UNIT_POS_Z;
    let n = (CUBE_POS_Z / slices) as usize;
    if x >= size.w || y >= size.h || z >= size.d {
        terminate!();
    }
    let row = of.w as usize;
    let slice = row * of.h as usize;
    let len = slice * of.d as usize;
    let voxels = size.w as usize * size.h as usize * size.d as usize;
    let voxel = (z as usize * size.h as usize + y as usize) * size.w as usize + x as usize;
    let u = 3 * n * voxels + voxel;
    let ax = around(origin_x + x, displacement[u], of.w, 1usize);
    let ay = around(origin_y + y, displacement[u + voxels], of.h, row);
    let az = around(origin_z + z, displacement[u + 2 * voxels], of.d, slice);
    for group in 0..groups {
        let volume = (n * groups as usize + group as usize) * comptime!(channels as usize);
        let first = volume * len;
        let to = volume * voxels + voxel;
        if ax.in_line {
            let sums = sums(coefficients, &ax, &ay, &az, first, len, channels, true);
            #[unroll]
            for channel in 0..comptime!(channels as usize) {
                output[to + channel * voxels] = sums[channel];
            }
        } else {
            let sums = sums(coefficients, &ax, &ay, &az, first, len, channels, false);
            #[unroll]
            for channel in 0..comptime!(channels as usize) {
                output[to + channel * voxels] = sums[channel];
            }
        }
    }
}

/// One axis of the coefficients; `axis` of a tensor of five.
fn along(data: &CubeTensor, axis: usize) -> CubeTensor {
    let dims = dims_of(data.meta.shape());
    let (n, stride) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let mut taps = inverse_taps(n, REACH);
    let reach = taps.len() - 1;
    if 2 * reach == n {
        taps[reach] /= 2.0;
    }
    let taps: Vec<f32> = taps.iter().map(|tap| *tap as f32).collect();
    let output = empty(data, dims);
    let cubes = dims.iter().product::<usize>().div_ceil(UNITS as usize);
    unsafe {
        inverse_kernel::launch_unchecked(
            &data.client,
            CubeCount::Static(cubes.min(65535) as u32, cubes.div_ceil(65535) as u32, 1),
            CubeDim::new_1d(UNITS),
            wide_address(&[data]),
            buffer(data),
            buffer(&upload(data, &taps)),
            buffer(&output),
            n,
            stride,
            reach as u32,
        );
    }
    output
}

impl CubicOps for CubeBackend {
    fn cubic_coefficients_3d(volume: FloatTensor<Self>, axes: [bool; 3]) -> FloatTensor<Self> {
        assert_f32("cubic_coefficients", &[&volume]);
        let volume = into_contiguous(volume);
        let dims = dims_of(volume.meta.shape());
        let axes = [4, 3, 2].into_iter().filter(|&axis| axes[axis - 2] && dims[axis] > 1);
        axes.fold(volume, |data, axis| along(&data, axis))
    }

    fn cubic_sample_3d(
        coefficients: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        origin: [usize; 3],
    ) -> FloatTensor<Self> {
        assert_f32("cubic_sample", &[&coefficients, &displacement]);
        let [c, u] = [coefficients, displacement].map(into_contiguous);
        let [n, channels, cd, ch, cw] = dims_of(c.meta.shape());
        let [_, _, d, h, w] = dims_of(u.meta.shape());
        let output = empty(&c, [n, channels, d, h, w]);
        // The components of a field share their addresses.
        let together = if channels.is_multiple_of(3) { 3 } else { 1 };
        unsafe {
            sample_kernel::launch_unchecked(
                &c.client,
                cubes("cubic_sample", n, [d, h, w]),
                CUBE.into(),
                wide_address(&[&c, &u]),
                buffer(&c),
                buffer(&u),
                buffer(&output),
                extent([cd, ch, cw]),
                extent([d, h, w]),
                origin[0] as u32,
                origin[1] as u32,
                origin[2] as u32,
                (channels / together) as u32,
                together as u32,
            );
        }
        output
    }
}
