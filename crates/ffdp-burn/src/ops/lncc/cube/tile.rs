//! The tile of columns that a cube works on: its sizes, and what each unit of it holds.
//!
//! A cube marches along z, one or two planes a step:
//! 1. along z, in registers: a unit holds the last planes of four neighbouring columns and sums them;
//! 2. along x: sixteen units hold a row; what the windows of a unit reach beyond its own columns
//!    comes from its neighbours by shuffles (through shared memory where planes of units are narrow);
//! 3. along y, through shared memory: a unit takes several windows of one column.
//!
//! Where everything beyond the image is zero, a `snug` tile has no margin there, along x, which saves one
//! tile of some widths.
//!
//! Along z first, because then the planes before a march's first window are only loaded, and because
//! the two images are held in registers instead of their five products. With two buffers of shared
//! memory one barrier a step is enough, and units that are through with y go on to the next planes.
//! What is held: `held.rs`; the sums themselves: `sums.rs`.

use cubecl::ir::HardwareProperties;
use cubecl::prelude::*;

use crate::ops::lncc::{LnccWeights, gaussian_weights};
use ffdp_kit::launch::Extent;

/// Columns that a unit holds, neighbours along x.
pub(super) const SPAN: u32 = 4;
/// Units that hold a row.
pub(super) const LANES: u32 = 16;
/// Columns of a tile, margins included.
pub(super) const WIDTH: u32 = SPAN * LANES;
/// Largest index into shared memory. Given it, the compiler sees that adding a constant does not
/// overflow, and adds it in the load or store itself.
pub(super) const LAST_WORD: u32 = (1 << 16) - 1;
/// Registers of a multiprocessor, and how many a unit needs besides those for the planes it holds; of
/// NVIDIA's, and about right for others.
const REGISTERS: u32 = 1 << 16;
const OTHER_REGISTERS: u32 = 45;

/// The weights of a window along an axis; they add up to 1 after [`Tile::scale`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Weights {
    Box,
    /// The bits of the standard deviation in voxels, an `f64`.
    Gaussian(u64),
}

/// A tile for windows of one radius; fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    pub radius: u32,
    weights: Weights,
    /// Rows, margins included; each is held by [`LANES`] units.
    rows: u32,
    /// Planes of windows that a step completes, 1 or 2.
    pub planes: u32,
    /// Buffers of shared memory, 1 or 2.
    pub buffers: u32,
    /// Whether planes of units are wide enough to hand a row around.
    pub shuffles: bool,
    /// Whether the tiles at the image's border have no margin there, along x.
    snug: bool,
}

impl Tile {
    /// The fastest tile for `quantities` sums that a device has room for. `held` values a column and
    /// plane stay in registers, of which 512 units have half as many each as 256.
    pub fn new(
        radius: u32,
        weights: LnccWeights,
        quantities: u32,
        held: u32,
        shuffles: bool,
        hardware: &HardwareProperties,
    ) -> Self {
        let weights = match weights {
            LnccWeights::Box => Weights::Box,
            LnccWeights::Gaussian { sigma_voxels } => Weights::Gaussian(sigma_voxels.to_bits()),
        };
        // Of 65536 registers 32 rows leave 128 a unit, 24 rows 168, less those not for the planes.
        let registers = |planes: u32| held * SPAN * (2 * radius + planes);
        // The margins of the widest windows would leave little of 24 rows: better to spill.
        let tall = registers(2) <= 80 || 2 * radius >= 18;
        let planes = if registers(2) <= 124 { 2 } else { 1 };
        let rows = if tall { 32 } else { 24 };
        let shapes = [(rows, planes, 2), (rows, planes, 1), (rows, 1, 1), (24, 1, 1), (20, 1, 1)];
        let fits = |tile: &Self| {
            tile.rows > 2 * radius
                && tile.units() <= hardware.max_units_per_cube
                && tile.shared_len(quantities) <= LAST_WORD as usize
                && tile.shared_len(quantities) * size_of::<f32>() <= hardware.max_shared_memory_size
        };
        let smallest = (16, 1, 1);
        shapes
            .into_iter()
            .chain([smallest])
            .map(|(rows, planes, buffers)| {
                let snug = false;
                Self { radius, weights, rows, planes, buffers, shuffles, snug }
            })
            .find(fits)
            .unwrap_or_else(|| {
                panic!(
                    "lncc: a window of {} voxels needs more than the {} bytes of shared memory or the \
                     {} units a cube of this device; use a smaller window or the CPU",
                    2 * radius + 1,
                    hardware.max_shared_memory_size,
                    hardware.max_units_per_cube
                )
            })
    }

    /// The tile for values that are zero outside an image of this width: without margins there if that
    /// makes them fewer.
    pub fn zero_outside(self, width: usize) -> Self {
        let snug = Self { snug: self.is_box() && self.shuffles, ..self };
        if snug.across(width) < self.across(width) { snug } else { self }
    }

    /// Cubes that a multiprocessor of this hardware holds at a time, about.
    pub fn resident(self, quantities: u32, held: u32, hardware: &HardwareProperties) -> usize {
        let registers = held * SPAN * self.held() + OTHER_REGISTERS;
        let shared = self.shared_len(quantities) * size_of::<f32>();
        let by_registers = REGISTERS / (registers * self.units());
        (by_registers as usize).min(hardware.max_shared_memory_size / shared).clamp(1, 4)
    }

    /// Tiles along x of an image of this width.
    pub fn across(self, width: usize) -> usize {
        let columns = self.columns() as usize;
        match self.snug {
            false => width.div_ceil(columns),
            true => 1 + width.saturating_sub(WIDTH as usize).div_ceil(columns),
        }
    }

    /// Lanes on either side that the windows of a unit reach.
    pub const fn reach(self) -> u32 {
        self.radius.div_ceil(SPAN)
    }

    pub const fn window(self) -> u32 {
        2 * self.radius + 1
    }

    pub const fn units(self) -> u32 {
        LANES * self.rows
    }

    /// Columns on either side that are loaded for the windows of the others: whole units.
    const fn margin(self) -> u32 {
        self.radius.next_multiple_of(SPAN)
    }

    /// Windows of a tile along x.
    pub const fn columns(self) -> u32 {
        WIDTH - 2 * self.margin()
    }

    /// Windows of a tile along y.
    pub const fn height(self) -> u32 {
        self.rows - 2 * self.radius
    }

    /// Planes that a unit holds.
    pub const fn held(self) -> u32 {
        self.window() + self.planes - 1
    }

    /// Windows along y that a unit sums, of one column and plane.
    pub const fn run(self) -> u32 {
        self.height().div_ceil(self.units() / WIDTH / self.planes)
    }

    /// Words of one quantity and plane; the last unit along y may read past the rows.
    pub const fn plane_len(self) -> u32 {
        (self.rows + self.run()) * WIDTH
    }

    /// Words from quantity to quantity.
    pub const fn quantity_len(self) -> u32 {
        self.planes * self.plane_len()
    }

    /// Words of one buffer.
    pub const fn buffer_len(self, quantities: u32) -> u32 {
        quantities * self.quantity_len()
    }

    /// Words of shared memory.
    pub const fn shared_len(self, quantities: u32) -> usize {
        (self.buffers * self.buffer_len(quantities)) as usize
    }

    /// Weight of value `k` of a window along an axis.
    pub fn weight(self, k: u32) -> f32 {
        match self.weights {
            Weights::Box => 1.0,
            Weights::Gaussian(bits) => {
                gaussian_weights(f64::from_bits(bits), self.radius as usize)[k as usize] as f32
            }
        }
    }

    /// What makes a mean of a sum over the three axes.
    pub fn scale(self) -> f32 {
        match self.weights {
            Weights::Box => 1.0 / self.window().pow(3) as f32,
            Weights::Gaussian(_) => 1.0,
        }
    }

    /// Columns left of the first tile that it holds all the same.
    pub const fn outside(self) -> u32 {
        if self.snug { 0 } else { self.margin() }
    }

    pub const fn is_box(self) -> bool {
        matches!(self.weights, Weights::Box)
    }
}

/// Where column `lane * SPAN + j` of `row` lies in shared memory. Rows are four interleaved combs
/// (x mod 4), exchanged so that neither sixteen units of two rows that store their columns number
/// `j`, nor 32 that read neighbouring columns of a row, meet in a bank.
#[cube]
pub(super) fn slot(row: u32, j: u32, lane: u32) -> u32 {
    row * WIDTH + (j ^ (row % 2)) * LANES + (lane ^ (j / 2 * 8))
}

/// Where this unit stores its columns.
#[cube]
pub(super) fn slots() -> Array<u32> {
    let mut slots = Array::<u32>::new(comptime!(SPAN as usize));
    #[unroll]
    for j in 0..SPAN {
        slots[j as usize] = slot(UNIT_POS / LANES, j, UNIT_POS % LANES);
    }
    slots
}

/// The windows along y that a unit sums: [`Tile::run`] of one column of one plane of the step.
#[derive(CubeType)]
pub(super) struct WindowRun {
    /// Its first value in shared memory, and the value after, up to whole rows.
    pub even: u32,
    pub odd: u32,
    /// Of its first window in its plane of the image.
    pub offset: u32,
    /// Windows that exist.
    pub count: u32,
    /// Which of the step's planes.
    pub plane: u32,
}

/// The planes of a tile that a cube marches over without a stop.
#[derive(CubeType, Clone, Copy)]
pub(super) struct March {
    pub(super) start: i32,
    pub(super) stop: i32,
    /// Which tile, along x and y.
    pub(super) x: u32,
    pub(super) y: u32,
    /// Whether it is the first or the last along x.
    pub(super) first: bool,
    pub(super) last: bool,
}

#[cube]
pub(super) fn run(size: &Extent, march: &March, #[comptime] tile: Tile) -> WindowRun {
    let group = UNIT_POS / WIDTH;
    let plane = group % comptime!(tile.planes);
    let row = group / comptime!(tile.planes) * comptime!(tile.run());
    // 32 units read 32 neighbouring columns, eight of every comb.
    let unit = UNIT_POS % WIDTH;
    let (lane, j) = (unit / 32 * 8 + unit % 8, unit / 8 % SPAN);
    let column = lane * SPAN + j;
    let x = march.x * comptime!(tile.columns()) + column - comptime!(tile.outside());
    let y = march.y * comptime!(tile.height()) + row;
    let mut first = comptime!(tile.margin()).runtime();
    let mut last = comptime!(WIDTH - tile.margin()).runtime();
    if comptime!(tile.snug) {
        first = select(march.first, 0u32, first);
        last = select(march.last, WIDTH, last);
    }
    let exists = column >= first && column < last && x < size.w && y < size.h;
    let left = min(max(tile.height().runtime(), row) - row, comptime!(tile.run()));
    let count = select(exists, min(left, max(size.h, y) - y), 0u32);
    let start = plane * comptime!(tile.plane_len());
    let even = start + slot(row, j, lane);
    let odd = start + slot(row + 1, j, lane) - WIDTH;
    WindowRun { even, odd, offset: y * size.w + x, count, plane }
}

/// Which lanes on either side lie in the same row of the tile: 1, else 0; those `d` lanes further left
/// at `d - 1`, then those to the right.
#[cube]
pub(super) fn edges(#[comptime] tile: Tile) -> Array<f32> {
    let lane = UNIT_POS % LANES;
    let reach = comptime!(tile.reach());
    let mut edges = Array::<f32>::new(comptime!((2 * reach) as usize));
    #[unroll]
    for i in 0..reach {
        let left = lane >= comptime!(i + 1);
        let right = lane < comptime!(LANES - 1 - i);
        edges[i as usize] = select(left, 1.0f32, 0.0f32);
        edges[comptime!((reach + i) as usize)] = select(right, 1.0f32, 0.0f32);
    }
    edges
}
