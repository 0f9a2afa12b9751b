//! The three kernels: `y`; the gradients of queries and bias; those of keys and values.

use cubecl::prelude::*;

use super::block::*;
// CubeCL has a trait of this name.
use super::block::Size;
use ffdp_kit::launch::UNITS;

/// `y` and `l` of the rows of the blocks `CUBE_POS_Y`, `CUBE_POS_Y + CUBE_COUNT_Y`, ..
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward_kernel(
    qkv: &[f32],
    bias: &[f32],
    regions: &[f32],
    y: &mut [f32],
    logs: &mut [f32],
    heads: u32,
    windows: u32,
    #[comptime] size: Size,
) {
    let (window, head) = (CUBE_POS_X / heads, CUBE_POS_X % heads);
    let (group, lane) = (UNIT_POS / LANES, UNIT_POS % LANES);
    let c = comptime!(size.channels);
    let stride = 3 * heads * c;
    let start = window as usize * (stride * comptime!(size.tokens)) as usize + (head * c) as usize;
    let mut keys = Shared::<[f32]>::new_slice(comptime!(size.side()));
    let mut values = Shared::<[f32]>::new_slice(comptime!(size.side()));
    let mut rows = Shared::<[Four]>::new_slice(comptime!((GROUPS * size.channels) as usize));
    let mut matrix = Shared::<[Four]>::new_slice(comptime!((size.tokens * COLUMN) as usize));
    let mut shared = Shared::<[Four]>::new_slice(comptime!(UNITS as usize));
    bring_side(qkv, &mut keys, start + (heads * c) as usize, stride, size);
    bring_side(qkv, &mut values, start + (2 * heads * c) as usize, stride, size);
    let mut block = CUBE_POS_Y;
    while block < comptime!(size.blocks()) {
        let first = block * BLOCK;
        sync_cube();
        bring_rows(qkv, &mut rows, start, stride, first, size);
        sync_cube();
        let mut scores = multiply(&rows, &keys, group, lane, size);
        let mut largest = Four::new(comptime!(f32::MIN));
        #[unroll]
        for k in 0..comptime!(size.columns()) {
            let column = lane + comptime!(k * LANES);
            let mut score = scores[k as usize] * Four::new(comptime!(size.scale()));
            #[unroll]
            for e in 0..4u32 {
                let query = first + group * 4 + e;
                let more = offset(bias, regions, head, window % windows, query, column, size);
                score.insert(e as usize, score.extract(e as usize) + more);
            }
            scores[k as usize] = score;
            if column < comptime!(size.tokens) {
                largest = max(largest, score);
            }
        }
        share(&mut shared, largest);
        for other in 0..LANES {
            largest = max(largest, shared[(group * LANES + other) as usize]);
        }
        let mut sum = Four::new(0.0f32);
        #[unroll]
        for k in 0..comptime!(size.columns()) {
            let weight = (scores[k as usize] - largest).exp();
            scores[k as usize] = weight;
            if lane + comptime!(k * LANES) < comptime!(size.tokens) {
                sum += weight;
            }
        }
        share(&mut shared, sum);
        let total = shared_sum(&shared, group);
        #[unroll]
        for k in 0..comptime!(size.columns()) {
            let column = lane + comptime!(k * LANES);
            if column < comptime!(size.tokens) {
                matrix[(column * COLUMN + group) as usize] = scores[k as usize] / total;
            }
        }
        if lane == 0 {
            #[unroll]
            for e in 0..4u32 {
                let query = first + group * 4 + e;
                if query < comptime!(size.tokens) {
                    let log = largest.extract(e as usize) + total.extract(e as usize).ln();
                    logs[(CUBE_POS_X * comptime!(size.tokens) + query) as usize] = log;
                }
            }
        }
        sync_cube();
        let start =
            window as usize * (heads * c * comptime!(size.tokens)) as usize + (head * c) as usize;
        write_rows(&matrix, &values, y, start, heads * c, first, 1.0f32, size);
        block += CUBE_COUNT_Y;
    }
}

/// The gradients of the queries of the windows `CUBE_POS_Z`, `CUBE_POS_Z + CUBE_COUNT_Z`, ..; `d`;
/// and `to_bias[cube z][heads][T][T]`, summed over these windows.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn to_queries_kernel(
    qkv: &[f32],
    bias: &[f32],
    regions: &[f32],
    logs: &[f32],
    grad: &[f32],
    to_qkv: &mut [f32],
    dots: &mut [f32],
    to_bias: &mut [f32],
    all: u32,
    windows: u32,
    #[comptime] size: Size,
) {
    let (head, heads, first) = (CUBE_POS_X, CUBE_COUNT_X, CUBE_POS_Y * BLOCK);
    let (group, lane) = (UNIT_POS / LANES, UNIT_POS % LANES);
    let c = comptime!(size.channels);
    let stride = 3 * heads * c;
    let mut keys = Shared::<[f32]>::new_slice(comptime!(size.side()));
    let mut values = Shared::<[f32]>::new_slice(comptime!(size.side()));
    let mut queries = Shared::<[Four]>::new_slice(comptime!((GROUPS * size.channels) as usize));
    let mut grads = Shared::<[Four]>::new_slice(comptime!((GROUPS * size.channels) as usize));
    let mut matrix = Shared::<[Four]>::new_slice(comptime!((size.tokens * COLUMN) as usize));
    let mut shared = Shared::<[Four]>::new_slice(comptime!(UNITS as usize));
    let mut sums = Array::<Four>::new(comptime!(size.columns() as usize));
    #[unroll]
    for k in 0..comptime!(size.columns()) {
        sums[k as usize] = Four::new(0.0f32);
    }
    let mut window = CUBE_POS_Z;
    while window < all {
        let start =
            window as usize * (stride * comptime!(size.tokens)) as usize + (head * c) as usize;
        let result =
            window as usize * (heads * c * comptime!(size.tokens)) as usize + (head * c) as usize;
        let row = (window * heads + head) * comptime!(size.tokens);
        sync_cube();
        bring_side(qkv, &mut keys, start + (heads * c) as usize, stride, size);
        bring_side(qkv, &mut values, start + (2 * heads * c) as usize, stride, size);
        bring_rows(qkv, &mut queries, start, stride, first, size);
        bring_rows(grad, &mut grads, result, heads * c, first, size);
        sync_cube();
        let mut weights = multiply(&queries, &keys, group, lane, size);
        let to_weights = multiply(&grads, &values, group, lane, size);
        let mut dot = Four::new(0.0f32);
        #[unroll]
        for k in 0..comptime!(size.columns()) {
            let column = lane + comptime!(k * LANES);
            let mut weight = Four::new(0.0f32);
            if column < comptime!(size.tokens) {
                #[unroll]
                for e in 0..4u32 {
                    let query = min(first + group * 4 + e, comptime!(size.tokens - 1));
                    let more = offset(bias, regions, head, window % windows, query, column, size);
                    let score = weights[k as usize].extract(e as usize) * comptime!(size.scale());
                    weight.insert(e as usize, (score + more - logs[(row + query) as usize]).exp());
                }
            }
            weights[k as usize] = weight;
            dot += weight * to_weights[k as usize];
        }
        share(&mut shared, dot);
        dot = shared_sum(&shared, group);
        #[unroll]
        for k in 0..comptime!(size.columns()) {
            let column = lane + comptime!(k * LANES);
            let to_score = weights[k as usize] * (to_weights[k as usize] - dot);
            sums[k as usize] += to_score;
            if column < comptime!(size.tokens) {
                matrix[(column * COLUMN + group) as usize] = to_score;
            }
        }
        if lane == 0 {
            #[unroll]
            for e in 0..4u32 {
                let query = first + group * 4 + e;
                if query < comptime!(size.tokens) {
                    dots[(row + query) as usize] = dot.extract(e as usize);
                }
            }
        }
        sync_cube();
        write_rows(&matrix, &keys, to_qkv, start, stride, first, comptime!(size.scale()), size);
        window += CUBE_COUNT_Z;
    }
    #[unroll]
    for k in 0..comptime!(size.columns()) {
        let column = lane + comptime!(k * LANES);
        #[unroll]
        for e in 0..4u32 {
            let query = first + group * 4 + e;
            if query < comptime!(size.tokens) && column < comptime!(size.tokens) {
                let row = ((CUBE_POS_Z * heads + head) * comptime!(size.tokens) + query) as usize;
                to_bias[row * comptime!(size.tokens as usize) + column as usize] =
                    sums[k as usize].extract(e as usize);
            }
        }
    }
}

/// The gradients of the keys and values of the blocks `CUBE_POS_Y`, `CUBE_POS_Y + CUBE_COUNT_Y`, ..
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn to_keys_kernel(
    qkv: &[f32],
    bias: &[f32],
    regions: &[f32],
    logs: &[f32],
    dots: &[f32],
    grad: &[f32],
    to_qkv: &mut [f32],
    heads: u32,
    windows: u32,
    #[comptime] size: Size,
) {
    let (window, head) = (CUBE_POS_X / heads, CUBE_POS_X % heads);
    let (group, lane) = (UNIT_POS / LANES, UNIT_POS % LANES);
    let c = comptime!(size.channels);
    let stride = 3 * heads * c;
    let start = window as usize * (stride * comptime!(size.tokens)) as usize + (head * c) as usize;
    let (to_key, to_value) = (start + (heads * c) as usize, start + (2 * heads * c) as usize);
    let result =
        window as usize * (heads * c * comptime!(size.tokens)) as usize + (head * c) as usize;
    let row = CUBE_POS_X * comptime!(size.tokens);
    let mut queries = Shared::<[f32]>::new_slice(comptime!(size.side()));
    let mut grads = Shared::<[f32]>::new_slice(comptime!(size.side()));
    let mut keys = Shared::<[Four]>::new_slice(comptime!((GROUPS * size.channels) as usize));
    let mut values = Shared::<[Four]>::new_slice(comptime!((GROUPS * size.channels) as usize));
    let mut matrix = Shared::<[Four]>::new_slice(comptime!((size.tokens * COLUMN) as usize));
    bring_side(qkv, &mut queries, start, stride, size);
    bring_side(grad, &mut grads, result, heads * c, size);
    let mut block = CUBE_POS_Y;
    while block < comptime!(size.blocks()) {
        let first = block * BLOCK;
        sync_cube();
        bring_rows(qkv, &mut keys, to_key, stride, first, size);
        bring_rows(qkv, &mut values, to_value, stride, first, size);
        sync_cube();
        let mut weights = multiply(&keys, &queries, group, lane, size);
        let mut to_weights = multiply(&values, &grads, group, lane, size);
        #[unroll]
        for k in 0..comptime!(size.columns()) {
            let query = min(lane + comptime!(k * LANES), comptime!(size.tokens - 1));
            let log = logs[(row + query) as usize];
            let mut weight = Four::new(0.0f32);
            #[unroll]
            for e in 0..4u32 {
                let key = first + group * 4 + e;
                let more = offset(bias, regions, head, window % windows, query, key, size);
                let score = weights[k as usize].extract(e as usize) * comptime!(size.scale());
                weight.insert(e as usize, (score + more - log).exp());
            }
            let dot = dots[(row + query) as usize];
            to_weights[k as usize] = weight * (to_weights[k as usize] - Four::new(dot));
            weights[k as usize] = weight;
        }
        put(&weights, &mut matrix, group, lane, size);
        sync_cube();
        write_rows(&matrix, &grads, to_qkv, to_value, stride, first, 1.0f32, size);
        sync_cube();
        put(&to_weights, &mut matrix, group, lane, size);
        sync_cube();
        let scale = comptime!(size.scale());
        write_rows(&matrix, &queries, to_qkv, to_key, stride, first, scale, size);
        block += CUBE_COUNT_Y;
    }
}
