//! The bias on the GPU: a unit for each pair of tokens, and back a unit for each row of the table.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{PositionBiasOps, bias_shape, table_shape};
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{Extent, UNITS, address, assert_f32, buffer, empty, extent};

/// The number of this unit.
#[cube]
fn own() -> usize {
    (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize) * UNITS as usize
        + UNIT_POS as usize
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn spread_kernel(table: &[f32], bias: &mut [f32], heads: u32, window: Extent) {
    let at = own();
    let tokens = (window.d * window.h * window.w) as usize;
    if at >= heads as usize * tokens * tokens {
        terminate!();
    }
    let head = at / (tokens * tokens);
    let (query, key) = ((at / tokens % tokens) as u32, (at % tokens) as u32);
    let area = window.h * window.w;
    let a = query / area + window.d - 1 - key / area;
    let b = query / window.w % window.h + window.h - 1 - key / window.w % window.h;
    let c = query % window.w + window.w - 1 - key % window.w;
    let row = (a * (2 * window.h - 1) + b) * (2 * window.w - 1) + c;
    bias[at] = table[row as usize * heads as usize + head];
}

/// The first key that has a query at `offset`, which is counted from the most negative one, and the
/// one behind the last.
#[cube]
fn keys(offset: u32, side: u32) -> (u32, u32) {
    // key + offset - (side - 1) lies in 0..side.
    let first = select(offset < side - 1, side - 1 - offset, 0u32);
    let stop = min(side, 2 * side - 1 - offset);
    (first, stop)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gather_kernel(grad: &[f32], table: &mut [f32], heads: u32, window: Extent) {
    let at = own();
    let (columns, lines) = (2 * window.w - 1, 2 * window.h - 1);
    if at >= ((2 * window.d - 1) * lines * columns * heads) as usize {
        terminate!();
    }
    let (row, head) = ((at / heads as usize) as u32, at % heads as usize);
    let (a, b, c) = (row / columns / lines, row / columns % lines, row % columns);
    let tokens = window.d * window.h * window.w;
    let along_d = keys(a, window.d);
    let along_h = keys(b, window.h);
    let along_w = keys(c, window.w);
    let mut sum = 0.0f32;
    for z in along_d.0..along_d.1 {
        for y in along_h.0..along_h.1 {
            for x in along_w.0..along_w.1 {
                let key = (z * window.h + y) * window.w + x;
                let (qz, qy) = (z + a + 1 - window.d, y + b + 1 - window.h);
                let query = (qz * window.h + qy) * window.w + (x + c + 1 - window.w);
                let pair = (head * tokens as usize + query as usize) * tokens as usize;
                sum += grad[pair + key as usize];
            }
        }
    }
    table[at] = sum;
}

fn cubes(output: &CubeTensor) -> CubeCount {
    let cubes = output.meta.shape().num_elements().div_ceil(UNITS as usize);
    lines_of_cubes(cubes)
}

impl PositionBiasOps for CubeBackend {
    fn spread_positions(table: FloatTensor<Self>, window: [usize; 3]) -> FloatTensor<Self> {
        assert_f32("position_bias", &[&table]);
        let table = into_contiguous(table);
        let bias = empty(&table, bias_shape(table.meta.shape(), window));
        unsafe {
            spread_kernel::launch_unchecked(
                &table.client,
                cubes(&bias),
                CubeDim::new_1d(UNITS),
                address(&[&bias]),
                buffer(&table),
                buffer(&bias),
                table.meta.shape()[1] as u32,
                extent(window),
            );
        }
        bias
    }

    fn gather_positions(grad: FloatTensor<Self>, window: [usize; 3]) -> FloatTensor<Self> {
        assert_f32("position_bias", &[&grad]);
        let grad = into_contiguous(grad);
        let table = empty(&grad, table_shape(grad.meta.shape(), window));
        unsafe {
            gather_kernel::launch_unchecked(
                &grad.client,
                cubes(&table),
                CubeDim::new_1d(UNITS),
                address(&[&grad]),
                buffer(&grad),
                buffer(&table),
                grad.meta.shape()[0] as u32,
                extent(window),
            );
        }
        table
    }
}
