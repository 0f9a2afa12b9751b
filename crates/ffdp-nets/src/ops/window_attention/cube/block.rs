//! Rows of the matrix and what a unit does with them: bringing a side, products, sums, columns.

use cubecl::prelude::*;

use crate::ops::window_attention::APART;
use ffdp_kit::launch::UNITS;

/// A number for each of four rows.
pub(super) type Four = Vector<f32, Const<4>>;

/// Units that share four rows.
pub(super) const LANES: u32 = 32;
/// Fours of rows of a cube.
pub(super) const GROUPS: u32 = UNITS / LANES;
/// Rows of a cube at a time.
pub(super) const BLOCK: u32 = 4 * GROUPS;
/// Fours from one column of the matrix to the next: 8 columns lie in different banks.
pub(super) const COLUMN: u32 = GROUPS + 1;

/// Sizes that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Size {
    pub(super) tokens: u32,
    /// Of a head.
    pub(super) channels: u32,
}

impl Size {
    /// From one row of the other side to the next.
    pub(super) fn pitch(self) -> u32 {
        self.channels | 1
    }

    /// Columns of a unit.
    pub(super) fn columns(self) -> u32 {
        self.tokens.div_ceil(LANES)
    }

    pub(super) fn blocks(self) -> u32 {
        self.tokens.div_ceil(BLOCK)
    }

    pub(super) fn scale(self) -> f32 {
        1.0 / (self.channels as f32).sqrt()
    }

    /// Elements of one side.
    pub(super) fn side(self) -> usize {
        (self.tokens * self.pitch()) as usize
    }

    /// Bytes of shared memory of the largest kernel.
    pub(super) fn shared_bytes(self) -> usize {
        let fours = self.tokens * COLUMN + UNITS + 2 * GROUPS * self.channels;
        4 * (2 * self.side() + 4 * fours as usize)
    }
}

/// Brings one side: row `token` starts at `start + token * stride`.
#[cube]
pub(super) fn bring_side(
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
pub(super) fn bring_rows(
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
pub(super) fn multiply(
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
pub(super) fn combine(
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
pub(super) fn write_rows(
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
pub(super) fn offset(
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
pub(super) fn share(values: &mut Shared<[Four]>, value: Four) {
    sync_cube();
    values[UNIT_POS as usize] = value;
    sync_cube();
}

/// The sum of what the units with the same rows have shared.
#[cube]
pub(super) fn shared_sum(values: &Shared<[Four]>, group: u32) -> Four {
    let mut sum = Four::new(0.0f32);
    for lane in 0..LANES {
        sum += values[(group * LANES + lane) as usize];
    }
    sum
}

/// Writes this unit's columns of the matrix.
#[cube]
pub(super) fn put(
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
