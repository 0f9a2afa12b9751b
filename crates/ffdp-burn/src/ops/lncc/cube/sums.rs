//! Sums over windows, along z, x and y; neighbouring windows share most of their values. Every
//! window is added afresh, so nothing drifts.

use cubecl::prelude::*;

use super::tile::{LANES, LAST_WORD, SPAN, Tile, WIDTH, WindowRun, slot};

/// Sums over `count` neighbouring windows of `values`, which begin at the first window's first value;
/// to `sums[first..]`.
#[cube]
pub(super) fn window_sums(
    values: &Array<f32>,
    sums: &mut Array<f32>,
    #[comptime] first: u32,
    #[comptime] count: u32,
    #[comptime] tile: Tile,
) {
    let window = comptime!(tile.window());
    if comptime!(tile.is_box()) {
        // Of at most `window` windows, all share some values.
        let group = comptime!(if count < window { count } else { window });
        #[unroll]
        for g in 0..comptime!(count.div_ceil(group)) {
            let start = comptime!(g * group);
            let len = comptime!(if count - start < group { count - start } else { group });
            let mut common = values[comptime!((start + len - 1) as usize)];
            #[unroll]
            for i in len..window {
                common += values[comptime!((start + i) as usize)];
            }
            sums[comptime!((first + start + len - 1) as usize)] = common;
            let mut left = 0.0f32;
            #[unroll]
            for i in 1..len {
                let at = comptime!(start + len - 1 - i);
                left += values[comptime!(at as usize)];
                sums[comptime!((first + at) as usize)] = common + left;
            }
            let mut right = 0.0f32;
            #[unroll]
            for i in 1..len {
                right += values[comptime!((start + window + i - 1) as usize)];
                sums[comptime!((first + start + i) as usize)] += right;
            }
        }
    } else {
        #[unroll]
        for i in 0..count {
            let mut sum = 0.0f32;
            #[unroll]
            for k in 0..window {
                sum += comptime!(tile.weight(k)) * values[comptime!((i + k) as usize)];
            }
            sums[comptime!((first + i) as usize)] = sum;
        }
    }
}

/// Sums quantity `k`, of which `along_z` holds the sums along z (`SPAN` columns of every plane), along
/// x, and stores it from `buffer` on. Without shuffles the sums along z are stored, for [`sum_rows`].
/// Beyond the tile everything is taken to be zero.
#[cube]
pub(super) fn store_rows(
    along_z: &Array<f32>,
    shared: &mut Shared<[f32]>,
    slots: &Array<u32>,
    edges: &Array<f32>,
    buffer: u32,
    #[comptime] k: u32,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for p in 0..tile.planes {
        let mut own = Array::<f32>::new(comptime!(SPAN as usize));
        let mut along_x = Array::<f32>::new(comptime!(SPAN as usize));
        #[unroll]
        for j in 0..SPAN {
            own[j as usize] = along_z[comptime!((p * SPAN + j) as usize)];
        }
        if comptime!(tile.shuffles && tile.is_box()) {
            sum_parts(&own, &mut along_x, edges, tile);
        } else if comptime!(tile.shuffles) {
            let mut row = Array::<f32>::new(comptime!((SPAN + 2 * tile.radius) as usize));
            #[unroll]
            for i in 0..comptime!(SPAN + 2 * tile.radius) {
                let (lane, j) = comptime!(neighbour(i, tile.radius));
                row[i as usize] = from_lane(own[j as usize], edges, lane, tile);
            }
            window_sums(&row, &mut along_x, 0u32, SPAN, tile);
        } else {
            #[unroll]
            for j in 0..comptime!(SPAN as usize) {
                along_x[j] = own[j];
            }
        }
        #[unroll]
        for j in 0..comptime!(SPAN as usize) {
            let at = (buffer + slots[j]) & LAST_WORD;
            let plane = comptime!(k * tile.quantity_len() + p * tile.plane_len());
            shared[(at + plane) as usize] = along_x[j];
        }
    }
}

/// Sums over box windows along x: a neighbour hands over the sum of just those of its columns that a
/// window reaches.
#[cube]
fn sum_parts(own: &Array<f32>, sums: &mut Array<f32>, edges: &Array<f32>, #[comptime] tile: Tile) {
    // Of the first and of the last k columns.
    let mut first = Array::<f32>::new(comptime!(SPAN as usize + 1));
    let mut last = Array::<f32>::new(comptime!(SPAN as usize + 1));
    let mut left = own[0];
    let mut right = own[comptime!(SPAN as usize - 1)];
    first[1] = left;
    last[1] = right;
    #[unroll]
    for k in 2..comptime!(SPAN as usize) {
        left += own[comptime!(k - 1)];
        right += own[comptime!(SPAN as usize - k)];
        first[k] = left;
        last[k] = right;
    }
    let all = left + own[comptime!(SPAN as usize - 1)];
    first[comptime!(SPAN as usize)] = all;
    last[comptime!(SPAN as usize)] = all;

    // Of whole lanes on either side, the nearest n.
    let lanes = comptime!((tile.radius / SPAN) as usize);
    let mut lanes_left = Array::<f32>::new(comptime!(lanes + 1));
    let mut lanes_right = Array::<f32>::new(comptime!(lanes + 1));
    let mut left = 0.0f32;
    let mut right = 0.0f32;
    #[unroll]
    for n in 1..comptime!(lanes + 1) {
        left += from_lane(all, edges, comptime!(-(n as i32)), tile);
        right += from_lane(all, edges, comptime!(n as i32), tile);
        lanes_left[n] = left;
        lanes_right[n] = right;
    }
    #[unroll]
    for j in 0..SPAN {
        let part = comptime!(part(j, tile.radius));
        let mut sum = last[comptime!(part.own as usize)];
        if comptime!(part.from_first) {
            sum = first[comptime!(part.own as usize)];
        }
        let (n, rest) = comptime!(part.left);
        if comptime!(n > 0) {
            sum += lanes_left[n as usize];
        }
        if comptime!(rest > 0) {
            sum += from_lane(last[rest as usize], edges, comptime!(-(n as i32) - 1), tile);
        }
        let (n, rest) = comptime!(part.right);
        if comptime!(n > 0) {
            sum += lanes_right[n as usize];
        }
        if comptime!(rest > 0) {
            sum += from_lane(first[rest as usize], edges, comptime!(n as i32 + 1), tile);
        }
        sums[j as usize] = sum;
    }
}

/// What the window around column `j` of a lane is made of.
struct Part {
    /// Columns of the lane itself, and whether they are its first ones or its last.
    own: u32,
    from_first: bool,
    /// Whole lanes on either side, and columns of the next.
    left: (u32, u32),
    right: (u32, u32),
}

fn part(j: u32, radius: u32) -> Part {
    let (first, last) = (j.saturating_sub(radius), (j + radius).min(SPAN - 1));
    let beyond = |columns: u32| (columns / SPAN, columns % SPAN);
    Part {
        own: last + 1 - first,
        from_first: first == 0,
        left: beyond(radius.saturating_sub(j)),
        right: beyond((j + radius).saturating_sub(SPAN - 1)),
    }
}

/// The value of another lane of the row, so many to the right; 0 beyond the row.
#[cube]
fn from_lane(value: f32, edges: &Array<f32>, #[comptime] lane: i32, #[comptime] tile: Tile) -> f32 {
    let steps = comptime!(lane.unsigned_abs());
    if comptime!(lane < 0) {
        plane_shuffle_up(value, steps) * edges[comptime!(steps as usize - 1)]
    } else if comptime!(lane > 0) {
        let edge = comptime!((tile.reach() + steps - 1) as usize);
        plane_shuffle_down(value, steps) * edges[edge]
    } else {
        value
    }
}

/// Which neighbour along x, and which of its columns, holds value `i` of the row that a unit's
/// windows reach.
fn neighbour(i: u32, radius: u32) -> (i32, u32) {
    let column = i as i32 - radius as i32;
    (column.div_euclid(SPAN as i32), column.rem_euclid(SPAN as i32) as u32)
}

/// Sums the rows in shared memory along x, in place, where units cannot hand them around.
#[cube]
pub(super) fn sum_rows(
    shared: &mut Shared<[f32]>,
    slots: &Array<u32>,
    buffer: u32,
    #[comptime] quantities: u32,
    #[comptime] tile: Tile,
) {
    let (row, lane) = (UNIT_POS / LANES, (UNIT_POS % LANES) as i32);
    let planes = comptime!(quantities * tile.planes);
    let mut along_x = Array::<f32>::new(comptime!((planes * SPAN) as usize));
    sync_cube();
    #[unroll]
    for p in 0..planes {
        let start = buffer + comptime!(p * tile.plane_len());
        let mut values = Array::<f32>::new(comptime!((SPAN + 2 * tile.radius) as usize));
        #[unroll]
        for i in 0..comptime!(SPAN + 2 * tile.radius) {
            let (unit, j) = comptime!(neighbour(i, tile.radius));
            // Only windows of the margin reach beyond the row.
            let lane = clamp(lane + unit, 0i32, comptime!(LANES as i32 - 1)) as u32;
            values[i as usize] = shared[(start + slot(row, j, lane)) as usize];
        }
        window_sums(&values, &mut along_x, comptime!(p * SPAN), SPAN, tile);
    }
    sync_cube();
    #[unroll]
    for p in 0..planes {
        #[unroll]
        for j in 0..SPAN {
            let at = buffer + comptime!(p * tile.plane_len()) + slots[j as usize];
            shared[at as usize] = along_x[comptime!((p * SPAN + j) as usize)];
        }
    }
}

/// Sums quantity `k` along y, to `sums[k * run..]`.
#[cube]
pub(super) fn sum_column(
    shared: &Shared<[f32]>,
    run: &WindowRun,
    buffer: u32,
    sums: &mut Array<f32>,
    #[comptime] k: u32,
    #[comptime] tile: Tile,
) {
    let count = comptime!(tile.run());
    let mut values = Array::<f32>::new(comptime!((count + 2 * tile.radius) as usize));
    let even = (buffer + run.even) & LAST_WORD;
    let odd = (buffer + run.odd) & LAST_WORD;
    #[unroll]
    for i in 0..comptime!(count + 2 * tile.radius) {
        let mut at = even;
        if comptime!(i % 2 == 1) {
            at = odd;
        }
        values[i as usize] = shared[(at + comptime!(k * tile.quantity_len() + i * WIDTH)) as usize];
    }
    window_sums(&values, sums, comptime!(k * count), count, tile);
}

/// The sum of `value` over the units of a cube, in a fixed order, at unit 0.
#[cube]
pub(super) fn sum_over_tile(shared: &mut Shared<[f32]>, value: f32, #[comptime] tile: Tile) -> f32 {
    sync_cube();
    shared[UNIT_POS as usize] = value;
    sync_cube();
    let mut total = 0.0f32;
    if UNIT_POS < LANES {
        #[unroll]
        for i in 0..comptime!(tile.units() / LANES) {
            total += shared[(UNIT_POS + comptime!(i * LANES)) as usize];
        }
    }
    sync_cube();
    shared[UNIT_POS as usize] = total;
    sync_cube();
    total = 0.0f32;
    if UNIT_POS == 0 {
        #[unroll]
        for i in 0..comptime!(LANES as usize) {
            total += shared[i];
        }
    }
    total
}
