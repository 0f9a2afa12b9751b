//! The windows on the GPU: a unit for each element of the result, which knows where it comes from.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{WindowCut, WindowOps};
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{Extent, UNITS, address, assert_f32, buffer, empty, extent};

/// The cut, with the number of windows along each axis.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Cut {
    grid: Extent,
    window: Extent,
    shift: Extent,
    counts: Extent,
    channels: u32,
}

/// The number of this unit.
#[cube]
fn own() -> usize {
    (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize) * UNITS as usize
        + UNIT_POS as usize
}

/// Where an index of the rolled grid was before: `(rolled + shift) mod padded`.
#[cube]
fn unrolled(rolled: u32, shift: u32, padded: u32) -> u32 {
    let p = rolled + shift;
    select(p >= padded, p - padded, p)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn cut_kernel(tokens: &[f32], windows: &mut [f32], elements: usize, cut: Cut) {
    let at = own();
    if at >= elements {
        terminate!();
    }
    let (side, counts, grid) = (&cut.window, &cut.counts, &cut.grid);
    let channel = at % cut.channels as usize;
    let token = at / cut.channels as usize;
    let inside = (side.d * side.h * side.w) as usize;
    let (i, window) = ((token % inside) as u32, token / inside);
    let all = (counts.d * counts.h * counts.w) as usize;
    let (a, n) = ((window % all) as u32, window / all);
    let z = a / (counts.h * counts.w) * side.d + i / (side.h * side.w);
    let y = a / counts.w % counts.h * side.h + i / side.w % side.h;
    let x = a % counts.w * side.w + i % side.w;
    let z = unrolled(z, cut.shift.d, counts.d * side.d);
    let y = unrolled(y, cut.shift.h, counts.h * side.h);
    let x = unrolled(x, cut.shift.w, counts.w * side.w);
    let mut value = 0.0f32;
    if z < grid.d && y < grid.h && x < grid.w {
        let place = ((n * grid.d as usize + z as usize) * grid.h as usize + y as usize)
            * grid.w as usize
            + x as usize;
        value = tokens[place * cut.channels as usize + channel];
    }
    windows[at] = value;
}

/// Where an index of the grid is in the rolled one: `(p - shift) mod padded`.
#[cube]
fn rolled(p: u32, shift: u32, padded: u32) -> u32 {
    select(p >= shift, p - shift, p + padded - shift)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn join_kernel(windows: &[f32], tokens: &mut [f32], elements: usize, cut: Cut) {
    let at = own();
    if at >= elements {
        terminate!();
    }
    let (side, counts, grid) = (&cut.window, &cut.counts, &cut.grid);
    let channel = at % cut.channels as usize;
    let place = at / cut.channels as usize;
    let volume = (grid.d * grid.h * grid.w) as usize;
    let (p, n) = ((place % volume) as u32, place / volume);
    let z = rolled(p / (grid.h * grid.w), cut.shift.d, counts.d * side.d);
    let y = rolled(p / grid.w % grid.h, cut.shift.h, counts.h * side.h);
    let x = rolled(p % grid.w, cut.shift.w, counts.w * side.w);
    let a = (z / side.d * counts.h + y / side.h) * counts.w + x / side.w;
    let i = (z % side.d * side.h + y % side.h) * side.w + x % side.w;
    let all = (counts.d * counts.h * counts.w) as usize;
    let token = (n * all + a as usize) * (side.d * side.h * side.w) as usize + i as usize;
    tokens[at] = windows[token * cut.channels as usize + channel];
}

fn launch_cut(cut: WindowCut, channels: usize) -> CutLaunch {
    let (grid, window, shift) = (extent(cut.grid), extent(cut.window), extent(cut.shift));
    CutLaunch::new(grid, window, shift, extent(cut.counts()), channels as u32)
}

fn cubes(output: &CubeTensor) -> CubeCount {
    let cubes = output.meta.shape().num_elements().div_ceil(UNITS as usize);
    lines_of_cubes(cubes)
}

impl WindowOps for CubeBackend {
    fn cut_tokens(tokens: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self> {
        assert_f32("windows", &[&tokens]);
        let tokens = into_contiguous(tokens);
        let windows = empty(&tokens, cut.windows_shape(tokens.meta.shape()));
        unsafe {
            cut_kernel::launch_unchecked(
                &tokens.client,
                cubes(&windows),
                CubeDim::new_1d(UNITS),
                address(&[&windows]),
                buffer(&tokens),
                buffer(&windows),
                windows.meta.shape().num_elements(),
                launch_cut(cut, tokens.meta.shape()[4]),
            );
        }
        windows
    }

    fn join_tokens(windows: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self> {
        assert_f32("windows", &[&windows]);
        let windows = into_contiguous(windows);
        let tokens = empty(&windows, cut.tokens_shape(windows.meta.shape()));
        unsafe {
            join_kernel::launch_unchecked(
                &windows.client,
                cubes(&tokens),
                CubeDim::new_1d(UNITS),
                address(&[&windows]),
                buffer(&windows),
                buffer(&tokens),
                tokens.meta.shape().num_elements(),
                launch_cut(cut, windows.meta.shape()[2]),
            );
        }
        tokens
    }
}
