//! Attention on the GPU: a cube has a window and head, 32 rows of its matrix at a time.
//!
//! The rows of one side (queries, or keys in the backward pass to them) are taken four by four: a
//! vector holds a number for each of four rows, a warp's worth of units has four rows, and each
//! unit every 32nd column. The other side lies in shared memory as a whole, in rows of odd length,
//! so that neighbouring columns are in different banks.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{APART, WindowAttentionOps, compose, result_shape};
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, sum_columns};

/// A number for each of four rows.
type Four = Vector<f32, Const<4>>;

/// Units that share four rows.
const LANES: u32 = 32;
/// Fours of rows of a cube.
const GROUPS: u32 = UNITS / LANES;
/// Rows of a cube at a time.
const BLOCK: u32 = 4 * GROUPS;
/// Fours from one column of the matrix to the next: 8 columns lie in different banks.
const COLUMN: u32 = GROUPS + 1;
/// Cubes wanted by the kernel that sums over windows: several for each of some 130 multiprocessors.
const CUBES_WANTED: usize = 528;

/// Sizes that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Size {
    tokens: u32,
    /// Of a head.
    channels: u32,
}

impl Size {
    /// From one row of the other side to the next.
    fn pitch(self) -> u32 {
        self.channels | 1
    }

    /// Columns of a unit.
    fn columns(self) -> u32 {
        self.tokens.div_ceil(LANES)
    }

    fn blocks(self) -> u32 {
        self.tokens.div_ceil(BLOCK)
    }

    fn scale(self) -> f32 {
        1.0 / (self.channels as f32).sqrt()
    }

    /// Elements of one side.
    fn side(self) -> usize {
        (self.tokens * self.pitch()) as usize
    }

    /// Bytes of shared memory of the largest kernel.
    fn shared_bytes(self) -> usize {
        let fours = self.tokens * COLUMN + UNITS + 2 * GROUPS * self.channels;
        4 * (2 * self.side() + 4 * fours as usize)
    }
}

/// Brings one side: row `token` starts at `start + token * stride`.
#[cube]
fn bring_side(
    from: &[f32],
    side: &mut Shared<[f32]>,
    start: usize,
    stride: u32,
    #[comptime] size: Size,
) {
    let mut i = UNIT_POS;
    while i < comptime!(size.tokens * size.channels) {
        let (token, c) = (i / comptime!(size.channels), i % comptime!(size.channels));
        let at = start + (token * stride + c) as usize;
        side[(token * comptime!(size.pitch()) + c) as usize] = from[at];
        i += UNITS;
    }
}

/// Brings the rows of a block, four to a vector; zeros beyond the last.
#[cube]
fn bring_rows(
    from: &[f32],
    rows: &mut Shared<[Four]>,
    start: usize,
    stride: u32,
    first: u32,
    #[comptime] size: Size,
) {
    let mut i = UNIT_POS;
    while i < comptime!(GROUPS * size.channels) {
        let (group, c) = (i / comptime!(size.channels), i % comptime!(size.channels));
        let mut four = Four::new(0.0f32);
        #[unroll]
        for e in 0..4u32 {
            let token = first + group * 4 + e;
            if token < comptime!(size.tokens) {
                four.insert(e as usize, from[start + (token * stride + c) as usize]);
            }
        }
        rows[i as usize] = four;
        i += UNITS;
    }
}

/// The products of this unit's four rows with its columns.
#[cube]
fn multiply(
    rows: &Shared<[Four]>,
    side: &Shared<[f32]>,
    group: u32,
    lane: u32,
    #[comptime] size: Size,
) -> Array<Four> {
    let mut sums = Array::<Four>::new(comptime!(size.columns() as usize));
    #[unroll]
    for k in 0..comptime!(size.columns()) {
        sums[k as usize] = Four::new(0.0f32);
    }
    for c in 0..comptime!(size.channels) {
        let four = rows[(group * comptime!(size.channels) + c) as usize];
        #[unroll]
        for k in 0..comptime!(size.columns()) {
            let column = min(lane + comptime!(k * LANES), comptime!(size.tokens - 1));
            let other = side[(column * comptime!(size.pitch()) + c) as usize];
            sums[k as usize] += four * Four::new(other);
        }
    }
    sums
}

/// Of four rows, the sums over columns of `matrix` times rows of the other side, at channel `c`.
#[cube]
fn combine(
    matrix: &Shared<[Four]>,
    side: &Shared<[f32]>,
    group: u32,
    c: u32,
    #[comptime] size: Size,
) -> Four {
    let mut sum = Four::new(0.0f32);
    for column in 0..comptime!(size.tokens) {
        let other = side[(column * comptime!(size.pitch()) + c) as usize];
        sum += matrix[(column * COLUMN + group) as usize] * Four::new(other);
    }
    sum
}

/// [`combine`] for all rows of the block and all channels, scaled and written to `output`.
#[cube]
fn write_rows(
    matrix: &Shared<[Four]>,
    side: &Shared<[f32]>,
    output: &mut [f32],
    start: usize,
    stride: u32,
    first: u32,
    #[comptime] scale: f32,
    #[comptime] size: Size,
) {
    let mut i = UNIT_POS;
    while i < comptime!(GROUPS * size.channels) {
        let (group, c) = (i / comptime!(size.channels), i % comptime!(size.channels));
        let sum = combine(matrix, side, group, c, size);
        #[unroll]
        for e in 0..4u32 {
            let token = first + group * 4 + e;
            if token < comptime!(size.tokens) {
                output[start + (token * stride + c) as usize] = sum.extract(e as usize) * scale;
            }
        }
        i += UNITS;
    }
}

/// Where `bias` and the difference of regions of a query and key lie, added.
#[cube]
fn offset(
    bias: &[f32],
    regions: &[f32],
    head: u32,
    window: u32,
    query: u32,
    key: u32,
    #[comptime] size: Size,
) -> f32 {
    // Rows beyond the last repeat it; they are not written.
    let query = min(query, comptime!(size.tokens - 1));
    let key = min(key, comptime!(size.tokens - 1));
    let row = (head * comptime!(size.tokens) + query) as usize;
    let value = bias[row * comptime!(size.tokens as usize) + key as usize];
    let own = regions[(window * comptime!(size.tokens) + query) as usize];
    let other = regions[(window * comptime!(size.tokens) + key) as usize];
    select(own == other, value, value - comptime!(APART as f32))
}

/// Puts each unit's value where all units with the same rows read it.
#[cube]
fn share(values: &mut Shared<[Four]>, value: Four) {
    sync_cube();
    values[UNIT_POS as usize] = value;
    sync_cube();
}

/// The sum of what the units with the same rows have shared.
#[cube]
fn shared_sum(values: &Shared<[Four]>, group: u32) -> Four {
    let mut sum = Four::new(0.0f32);
    for lane in 0..LANES {
        sum += values[(group * LANES + lane) as usize];
    }
    sum
}

/// `y` and `l` of the rows of the blocks `CUBE_POS_Y`, `CUBE_POS_Y + CUBE_COUNT_Y`, ..
#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(
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
fn to_queries_kernel(
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
fn to_keys_kernel(
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

/// Writes this unit's columns of the matrix.
#[cube]
fn put(
    columns: &Array<Four>,
    matrix: &mut Shared<[Four]>,
    group: u32,
    lane: u32,
    #[comptime] size: Size,
) {
    #[unroll]
    for k in 0..comptime!(size.columns()) {
        let column = lane + comptime!(k * LANES);
        if column < comptime!(size.tokens) {
            matrix[(column * COLUMN + group) as usize] = columns[k as usize];
        }
    }
}

/// The sizes of a call.
struct Call {
    size: Size,
    all: u32,
    heads: u32,
    windows: u32,
}

impl Call {
    /// `None` where the kernels do not suit the device or the sizes.
    fn new(qkv: &CubeTensor, bias: &CubeTensor, regions: &CubeTensor) -> Option<Self> {
        let shape = qkv.meta.shape();
        let [all, tokens, heads] = [shape[0], shape[1], bias.meta.shape()[0]];
        let size = Size { tokens: tokens as u32, channels: (shape[2] / 3 / heads) as u32 };
        let hardware = &qkv.client.properties().hardware;
        let fits = size.shared_bytes() <= hardware.max_shared_memory_size
            && size.columns() <= 16
            && all * heads * tokens <= u32::MAX as usize / 2
            && all * heads <= 65535;
        let windows = regions.meta.shape()[0] as u32;
        fits.then_some(Self { size, all: all as u32, heads: heads as u32, windows })
    }

    /// A cube for each window and head, or for each block of them where they are few.
    fn cubes(&self) -> CubeCount {
        let pairs = self.all * self.heads;
        let share = if pairs as usize >= CUBES_WANTED { 1 } else { self.size.blocks() };
        CubeCount::Static(pairs, share, 1)
    }
}

fn forward(call: Call, [qkv, bias, regions]: [CubeTensor; 3]) -> (CubeTensor, CubeTensor) {
    let shapes = [&qkv, &bias, &regions].map(|tensor| tensor.meta.shape());
    let y = empty(&qkv, result_shape(shapes[0], shapes[1], shapes[2]));
    let logs = empty(&qkv, [call.all as usize, call.heads as usize, call.size.tokens as usize]);
    unsafe {
        forward_kernel::launch_unchecked(
            &qkv.client,
            call.cubes(),
            CubeDim::new_1d(UNITS),
            address(&[&qkv]),
            buffer(&qkv),
            buffer(&bias),
            buffer(&regions),
            buffer(&y),
            buffer(&logs),
            call.heads,
            call.windows,
            call.size,
        );
    }
    (y, logs)
}

fn backward(
    call: Call,
    [qkv, bias, regions, logs, grad]: [CubeTensor; 5],
) -> (CubeTensor, CubeTensor) {
    let to_qkv = empty(&qkv, qkv.meta.shape().clone());
    let dots = empty(&qkv, logs.meta.shape().clone());
    let blocks = call.size.blocks();
    let share = CUBES_WANTED.div_ceil((call.heads * blocks) as usize).min(call.all as usize);
    let pairs = bias.meta.shape().num_elements();
    let partials = empty(&qkv, [share, pairs]);
    let width = address(&[&qkv, &partials]);
    unsafe {
        to_queries_kernel::launch_unchecked(
            &qkv.client,
            CubeCount::Static(call.heads, blocks, share as u32),
            CubeDim::new_1d(UNITS),
            width,
            buffer(&qkv),
            buffer(&bias),
            buffer(&regions),
            buffer(&logs),
            buffer(&grad),
            buffer(&to_qkv),
            buffer(&dots),
            buffer(&partials),
            call.all,
            call.windows,
            call.size,
        );
        to_keys_kernel::launch_unchecked(
            &qkv.client,
            call.cubes(),
            CubeDim::new_1d(UNITS),
            width,
            buffer(&qkv),
            buffer(&bias),
            buffer(&regions),
            buffer(&logs),
            buffer(&dots),
            buffer(&grad),
            buffer(&to_qkv),
            call.heads,
            call.windows,
            call.size,
        );
    }
    let to_bias = sum_columns(&partials, share, empty(&bias, bias.meta.shape().clone()));
    (to_qkv, to_bias)
}

impl WindowAttentionOps for CubeBackend {
    fn attend_windows(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::attend_windows_with_logs(qkv, bias, regions).0
    }

    fn attend_windows_with_logs(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("window_attention", &[&qkv, &bias, &regions]);
        let inputs = [qkv, bias, regions].map(into_contiguous);
        match Call::new(&inputs[0], &inputs[1], &inputs[2]) {
            Some(call) => forward(call, inputs),
            None => compose::forward::<Self>(inputs),
        }
    }

    fn attend_windows_backward(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
        logs: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("window_attention", &[&qkv, &bias, &regions, &logs, &grad]);
        let inputs = [qkv, bias, regions, logs, grad].map(into_contiguous);
        match Call::new(&inputs[0], &inputs[1], &inputs[2]) {
            Some(call) => backward(call, inputs),
            None => compose::backward::<Self>(inputs),
        }
    }
}
