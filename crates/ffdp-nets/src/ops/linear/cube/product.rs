//! Products of matrices, the same kernel for the three products of a linear layer.
//!
//! A cube has a tile of 128 rows and up to 128 columns. While it multiplies 32 steps of the depth from
//! shared memory, the next are on their way to its registers. A factor lies in shared memory as it
//! lies in the tensor; lines are so long that the 32 lanes of a fragment read 32 different banks.
//! On tensor cores a plane multiplies fragments in TF32; in f32 every lane has the sums that would be
//! its fragments' and adds their products one step of the depth after the other.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::precision::Precision;
use ffdp_kit::cubes::grid_of_cubes;
use ffdp_kit::launch::{UNITS, address, buffer, empty, sum_columns};
use ffdp_kit::tensor_cores::{LANES, Left, Right, Sums, add_product, available, rounded};

/// Rows of a tile.
const ROWS: u32 = 128;
/// Steps of the depth at a time.
const DEPTH: u32 = 32;
/// Rows of a plane: two fragments. Four planes are one below the other, two side by side.
const PLANE_ROWS: u32 = 32;
/// Cubes that a product should have: two for each of some 130 multiprocessors.
const CUBES_WANTED: usize = 264;
/// Steps of the depth below which a product is not sliced further.
const LEAST_DEPTH: usize = 256;

/// The axis along which a factor is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Along {
    /// The sum's: `[rows, depth]` on the left, `[columns, depth]` on the right.
    Depth,
    /// The result's: `[depth, rows]` on the left, `[depth, columns]` on the right.
    Result,
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    left: Along,
    right: Along,
    /// Columns of a tile.
    columns: u32,
    /// Elements of a vector.
    width: u32,
    /// Of the products; tensor cores are there for TF32.
    precision: Precision,
}

impl Plan {
    fn tiles(self) -> [Tile; 2] {
        [Tile::new(self.left, ROWS), Tile::new(self.right, self.columns)]
    }

    fn shared_bytes(self) -> usize {
        self.tiles().map(Tile::elements).iter().sum::<usize>() * size_of::<f32>()
    }
}

/// A tile of a factor in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tile {
    lines: u32,
    len: u32,
    /// From one line to the next.
    pitch: u32,
}

impl Tile {
    /// Of `side` rows or columns.
    fn new(along: Along, side: u32) -> Self {
        match along {
            // 4 modulo 32 banks: eight lines of four neighbours are in different ones.
            Along::Depth => Self { lines: side, len: DEPTH, pitch: DEPTH + 4 },
            // 8 modulo 32 banks: four lines of eight neighbours are.
            Along::Result => Self { lines: DEPTH, len: side, pitch: side + 8 },
        }
    }

    /// Vectors that a unit brings.
    fn brought(self, width: u32) -> u32 {
        self.lines * self.len / width / UNITS
    }

    fn elements(self) -> usize {
        (self.lines * self.pitch) as usize
    }
}

/// The sizes of a product.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    rows: u32,
    columns: u32,
    depth: u32,
    /// Steps of the depth of a slice.
    slice: u32,
}

/// Brings a tile whose first element is that of line `first_line` at `first`; zeros from line
/// `lines` and element `stop` on. A line of the factor has `pitch` elements.
#[cube]
fn bring<N: Size>(
    factor: &[Vector<f32, N>],
    values: &mut Array<Vector<f32, N>>,
    first_line: u32,
    lines: u32,
    first: u32,
    stop: u32,
    pitch: u32,
    #[comptime] tile: Tile,
    #[comptime] width: u32,
) {
    #[unroll]
    for i in 0..comptime!(tile.brought(width)) {
        let number = UNIT_POS + comptime!(i * UNITS);
        let line = first_line + number / comptime!(tile.len / width);
        let at = first + number % comptime!(tile.len / width) * width;
        let mut value = Vector::<f32, N>::new(0.0f32);
        if line < lines && at < stop {
            value =
                factor[(line as usize * pitch as usize + at as usize) / comptime!(width as usize)];
        }
        values[i as usize] = value;
    }
}

/// A number as it is multiplied, as bits.
#[cube]
fn factor_bits(value: f32, #[comptime] precision: Precision) -> u32 {
    if comptime!(precision == Precision::TensorFloat) {
        rounded(value)
    } else {
        u32::reinterpret(value)
    }
}

/// Puts what was brought into shared memory.
#[cube]
fn put<N: Size>(
    values: &Array<Vector<f32, N>>,
    shared: &mut Shared<[u32]>,
    #[comptime] tile: Tile,
    #[comptime] width: u32,
    #[comptime] precision: Precision,
) {
    #[unroll]
    for i in 0..comptime!(tile.brought(width)) {
        let number = UNIT_POS + comptime!(i * UNITS);
        let line = number / comptime!(tile.len / width);
        let at = line * comptime!(tile.pitch) + number % comptime!(tile.len / width) * width;
        let value = values[i as usize];
        #[unroll]
        for e in 0..width {
            shared[(at + e) as usize] = factor_bits(value.extract(e as usize), precision);
        }
    }
}

/// Where element `(side, depth)` of a factor lies in its tile.
#[cube]
fn place(side: u32, depth: u32, #[comptime] along: Along, #[comptime] tile: Tile) -> u32 {
    if comptime!(along == Along::Depth) {
        side * comptime!(tile.pitch) + depth
    } else {
        depth * comptime!(tile.pitch) + side
    }
}

/// Adds the products of what is in shared memory, on tensor cores: a lane's own row and column are
/// those of its group in the first fragments, `t` its place in the group.
#[cube]
fn add_fragments(
    left: &Shared<[u32]>,
    right: &Shared<[u32]>,
    sums: &mut Array<Sums>,
    own_row: u32,
    own_column: u32,
    t: u32,
    #[comptime] plan: Plan,
) {
    let [left_tile, right_tile] = comptime!(plan.tiles());
    let across = comptime!(plan.columns / 16);
    #[unroll]
    for step in 0..comptime!(DEPTH / 8) {
        let depth = t + comptime!(step * 8);
        let mut fragments = Array::<Left>::new(2usize);
        #[unroll]
        for i in 0..2u32 {
            let mut fragment = Left::empty();
            #[unroll]
            for e in 0..4u32 {
                let row = own_row + comptime!(i * 16 + e % 2 * 8);
                let at = place(row, depth + comptime!(e / 2 * 4), plan.left, left_tile);
                fragment.insert(e as usize, left[at as usize]);
            }
            fragments[i as usize] = fragment;
        }
        #[unroll]
        for j in 0..across {
            let column = own_column + comptime!(j * 8);
            let mut fragment = Right::empty();
            #[unroll]
            for e in 0..2u32 {
                let at = place(column, depth + comptime!(e * 4), plan.right, right_tile);
                fragment.insert(e as usize, right[at as usize]);
            }
            #[unroll]
            for i in 0..2u32 {
                let own = comptime!((i * across + j) as usize);
                sums[own] = add_product(fragments[i as usize], fragment, sums[own]);
            }
        }
    }
}

/// [`add_fragments`] without tensor cores: a lane's own row and column are those of its first sum.
#[cube]
fn add_numbers(
    left: &Shared<[u32]>,
    right: &Shared<[u32]>,
    sums: &mut Array<Sums>,
    own_row: u32,
    own_column: u32,
    #[comptime] plan: Plan,
) {
    let [left_tile, right_tile] = comptime!(plan.tiles());
    let across = comptime!(plan.columns / 16);
    for depth in 0..DEPTH {
        let mut rows = Array::<Sums>::new(2usize);
        #[unroll]
        for i in 0..2u32 {
            let mut row = Sums::empty();
            #[unroll]
            for e in 0..4u32 {
                let side = own_row + comptime!(i * 16 + e / 2 * 8);
                let at = place(side, depth, plan.left, left_tile);
                row.insert(e as usize, f32::reinterpret(left[at as usize]));
            }
            rows[i as usize] = row;
        }
        #[unroll]
        for j in 0..across {
            let mut column = Sums::empty();
            #[unroll]
            for e in 0..4u32 {
                let side = own_column + comptime!(j * 8 + e % 2);
                let at = place(side, depth, plan.right, right_tile);
                column.insert(e as usize, f32::reinterpret(right[at as usize]));
            }
            #[unroll]
            for i in 0..2u32 {
                let own = comptime!((i * across + j) as usize);
                sums[own] += rows[i as usize] * column;
            }
        }
    }
}

/// `output[slice][rows][columns]`; a cube has a tile of columns (x), of rows (y) and a slice (z).
#[cube(launch_unchecked, address_type = "dynamic")]
fn product_kernel<N: Size>(
    left: &[Vector<f32, N>],
    right: &[Vector<f32, N>],
    output: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: Plan,
) {
    let [left_tile, right_tile] = comptime!(plan.tiles());
    let width = comptime!(plan.width);
    let (first_row, first_column) = (CUBE_POS_Y * ROWS, CUBE_POS_X * comptime!(plan.columns));
    let start = CUBE_POS_Z * sizes.slice;
    let stop = min(start + sizes.slice, sizes.depth);
    let (plane, lane) = (UNIT_POS / LANES, UNIT_POS % LANES);
    let (g, t) = (lane / 4, lane % 4);
    // Eight columns a fragment.
    let across = comptime!(plan.columns / 16);
    let plane_row = plane % 4 * PLANE_ROWS;
    let plane_column = plane / 4 * comptime!(plan.columns / 2);

    let mut lefts = Array::<Vector<f32, N>>::new(comptime!(left_tile.brought(width) as usize));
    let mut rights = Array::<Vector<f32, N>>::new(comptime!(right_tile.brought(width) as usize));
    let mut left_shared = Shared::<[u32]>::new_slice(comptime!(left_tile.elements()));
    let mut right_shared = Shared::<[u32]>::new_slice(comptime!(right_tile.elements()));
    let mut sums = Array::<Sums>::new(comptime!((2 * across) as usize));
    #[unroll]
    for i in 0..comptime!(2 * across) {
        sums[i as usize] = Sums::new(0.0f32);
    }
    bring_both(
        left,
        right,
        &mut lefts,
        &mut rights,
        first_row,
        first_column,
        start,
        stop,
        &sizes,
        plan,
    );
    let mut k = start;
    while k < stop {
        sync_cube();
        put(&lefts, &mut left_shared, left_tile, width, plan.precision);
        put(&rights, &mut right_shared, right_tile, width, plan.precision);
        sync_cube();
        k += DEPTH;
        if k < stop {
            bring_both(
                left,
                right,
                &mut lefts,
                &mut rights,
                first_row,
                first_column,
                k,
                stop,
                &sizes,
                plan,
            );
        }
        if comptime!(plan.precision == Precision::TensorFloat) {
            add_fragments(
                &left_shared,
                &right_shared,
                &mut sums,
                plane_row + g,
                plane_column + g,
                t,
                plan,
            );
        } else {
            add_numbers(
                &left_shared,
                &right_shared,
                &mut sums,
                plane_row + g,
                plane_column + 2 * t,
                plan,
            );
        }
    }

    let first = CUBE_POS_Z as usize * sizes.rows as usize;
    #[unroll]
    for i in 0..2u32 {
        #[unroll]
        for j in 0..across {
            #[unroll]
            for e in 0..4u32 {
                let row = first_row + plane_row + g + comptime!(i * 16 + e / 2 * 8);
                let column = first_column + plane_column + 2 * t + comptime!(j * 8 + e % 2);
                if row < sizes.rows && column < sizes.columns {
                    output[(first + row as usize) * sizes.columns as usize + column as usize] =
                        sums[comptime!((i * across + j) as usize)].extract(e as usize);
                }
            }
        }
    }
}

/// Brings the tiles of both factors from step `k` of the depth on.
#[cube]
fn bring_both<N: Size>(
    left: &[Vector<f32, N>],
    right: &[Vector<f32, N>],
    lefts: &mut Array<Vector<f32, N>>,
    rights: &mut Array<Vector<f32, N>>,
    first_row: u32,
    first_column: u32,
    k: u32,
    stop: u32,
    sizes: &Sizes,
    #[comptime] plan: Plan,
) {
    let [left_tile, right_tile] = comptime!(plan.tiles());
    let width = comptime!(plan.width);
    let (rows, columns, depth) = (sizes.rows, sizes.columns, sizes.depth);
    if comptime!(plan.left == Along::Depth) {
        bring(left, lefts, first_row, rows, k, stop, depth, left_tile, width);
    } else {
        bring(left, lefts, k, stop, first_row, rows, rows, left_tile, width);
    }
    if comptime!(plan.right == Along::Depth) {
        bring(right, rights, first_column, columns, k, stop, depth, right_tile, width);
    } else {
        bring(right, rights, k, stop, first_column, columns, columns, right_tile, width);
    }
}

/// Columns of a tile, for as few idle ones as possible.
fn tile_columns(columns: usize) -> u32 {
    match columns {
        0..=32 => 32,
        33..=64 => 64,
        n if n.is_multiple_of(96) => 96,
        _ => 128,
    }
}

/// Slices of the depth, and the steps of each.
fn slices(tiles: usize, depth: usize) -> (usize, usize) {
    let most = CUBES_WANTED.div_ceil(tiles).min(depth / LEAST_DEPTH).max(1);
    let slice = depth.div_ceil(most).next_multiple_of(DEPTH as usize);
    (depth.div_ceil(slice), slice)
}

/// A contiguous matrix of a product, and what its lines run along.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    pub matrix: &'a CubeTensor,
    pub along: Along,
}

/// The product `[rows, columns]` of two contiguous matrices that lie as said; none where TF32 may be and the
/// device has no tensor cores, which leaves all kernels to Burn, or where no tile fits into shared memory.
pub(super) fn product(left: Factor, right: Factor, precision: Precision) -> Option<CubeTensor> {
    let sides = |Factor { matrix, along }: Factor| {
        let [first, second] = [matrix.meta.shape()[0], matrix.meta.shape()[1]];
        if along == Along::Depth { [first, second] } else { [second, first] }
    };
    let [rows, depth] = sides(left);
    let [columns, _] = sides(right);
    let along = [left.along, right.along];
    let (left, right) = (left.matrix, right.matrix);
    let lines = [left.meta.shape()[1], right.meta.shape()[1]];
    let width = [4, 2, 1].into_iter().find(|w| lines.iter().all(|l| l.is_multiple_of(*w)));
    let width = width.expect("1 divides every number");
    if precision == Precision::TensorFloat && !available(&left.client) {
        return None;
    }
    let most = left.client.properties().hardware.max_shared_memory_size;
    let plan =
        |columns| Plan { left: along[0], right: along[1], columns, width: width as u32, precision };
    let wanted = tile_columns(columns);
    let fits = |tile: &u32| *tile <= wanted && plan(*tile).shared_bytes() <= most;
    let tile = [wanted, 64, 32].into_iter().find(fits)?;
    let counts = [columns.div_ceil(tile as usize), rows.div_ceil(ROWS as usize)];
    let (slices, slice) = slices(counts[0] * counts[1], depth);
    let output = empty(left, [rows, columns]);
    let partials = if slices == 1 { output.clone() } else { empty(left, [slices, rows, columns]) };
    unsafe {
        product_kernel::launch_unchecked(
            &left.client,
            grid_of_cubes("linear", [counts[0], counts[1], slices]),
            CubeDim::new_1d(UNITS),
            address(&[left, right, &partials]),
            width,
            buffer(left),
            buffer(right),
            buffer(&partials),
            SizesLaunch::new(rows as u32, columns as u32, depth as u32, slice as u32),
            plan(tile),
        );
    }
    Some(if slices == 1 { output } else { sum_columns(&partials, slices, output) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_the_depth_and_fill_the_device() {
        for (tiles, depth) in [(1, 107_520), (4, 107_520), (840, 96), (36, 768), (1, 1), (12, 33)] {
            let (slices, slice) = slices(tiles, depth);
            assert!(slices * slice >= depth && (slices - 1) * slice < depth, "{tiles} {depth}");
            assert!(slices == 1 || slice >= LEAST_DEPTH, "{tiles} {depth}");
        }
        assert!(slices(4, 107_520).0 * 4 >= CUBES_WANTED * 9 / 10);
    }

    #[test]
    fn every_unit_brings_whole_vectors() {
        for columns in [1, 64, 96, 100, 288] {
            for along in [Along::Depth, Along::Result] {
                for (side, width) in [(ROWS, 4), (tile_columns(columns), 4), (ROWS, 1)] {
                    let tile = Tile::new(along, side);
                    assert_eq!(tile.brought(width) * width * UNITS, tile.lines * tile.len);
                }
            }
        }
    }
}
