//! The transpose along one axis: many positions in, few control points out; each owns its sum.

use cubecl::prelude::*;

use super::ENTRY;

/// Along an axis whose elements are `stride` apart: a unit marches along a line and keeps the sums of the
/// four control points that see it; a sum is written when the march has left its support. The lines of
/// `blocks` blocks; a unit writes `chunk` control points and reads what they see.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn march_kernel(
    grad: &[f32],
    table: &[f32],
    output: &mut [f32],
    len: u32,
    controls: u32,
    stride: usize,
    blocks: u32,
    chunk: u32,
) {
    let line = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    if line >= stride {
        terminate!();
    }
    let chunks = controls.div_ceil(chunk);
    let ranges = len as usize * comptime!(ENTRY);
    let mut task = CUBE_POS_Z;
    while task < blocks * chunks {
        let block = (task / chunks) as usize;
        let from = (task % chunks) * chunk;
        let to = min(from + chunk, controls);
        let source = block * len as usize * stride + line;
        let sink = block * controls as usize * stride + line;
        let start = u32::cast_from(table[ranges + from as usize * 2]);
        let stop = u32::cast_from(table[ranges + (to as usize - 1) * 2 + 1]);
        // The control points held .. held + 4; the first ones may belong to the chunk before.
        let mut sums = Array::<f32>::new(4usize);
        #[unroll]
        for k in 0..4usize {
            sums[k] = 0.0f32;
        }
        let mut held = from - min(from, 3u32);
        let mut p = start;
        while p < stop {
            let entry = p as usize * comptime!(ENTRY);
            let first = u32::cast_from(table[entry]);
            while held < first {
                if held >= from && held < to {
                    output[sink + held as usize * stride] = sums[0];
                }
                shift(&mut sums);
                held += 1;
            }
            let g = grad[source + p as usize * stride];
            #[unroll]
            for k in 0..4usize {
                sums[k] += table[entry + comptime!(k + 1)] * g;
            }
            p += 1;
        }
        while held < to {
            if held >= from {
                output[sink + held as usize * stride] = sums[0];
            }
            shift(&mut sums);
            held += 1;
        }
        task += CUBE_COUNT_Z;
    }
}

/// On to the next control point.
#[cube]
fn shift(sums: &mut Array<f32>) {
    #[unroll]
    for k in 0..3usize {
        let next = sums[comptime!(k + 1)];
        sums[k] = next;
    }
    sums[3] = 0.0f32;
}

/// Along contiguous lines: a unit a control point, which reads the positions that see it.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn along_lines_kernel(
    grad: &[f32],
    table: &[f32],
    output: &mut [f32],
    len: u32,
    controls: u32,
    lines: usize,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    let line = at / controls as usize;
    if line >= lines {
        terminate!();
    }
    let control = (at % controls as usize) as u32;
    let range = len as usize * comptime!(ENTRY) + control as usize * 2;
    let start = u32::cast_from(table[range]);
    let stop = u32::cast_from(table[range + 1]);
    let source = line * len as usize;
    let mut sum = 0.0f32;
    for p in start..stop {
        let entry = p as usize * comptime!(ENTRY);
        let tap = control - u32::cast_from(table[entry]);
        sum += table[entry + 1 + tap as usize] * grad[source + p as usize];
    }
    output[at] = sum;
}
