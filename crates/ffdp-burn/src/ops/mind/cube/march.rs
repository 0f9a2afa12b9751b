//! One march along z: the squared differences of a plane are summed over the patch's extent along x and y from shared
//! memory, and a unit keeps those sums of the patch's planes in registers. Descriptors of two images are compared there
//! as well: those of one are read, those of the other are never stored.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::super::{CHANNELS, PAIRS, Patch};
use ffdp_kit::launch::{Extent, UNITS, sum_over_cube};
use ffdp_kit::march::{Tile, clamped, column};

/// A unit has one column.
pub(super) const TILE: Tile = Tile { units_x: 32, rows: 1, margin: 0, row_margin: 0 };

/// What is made of the distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// The sum of `V` over the columns of a cube.
    Variance,
    /// The descriptors.
    Descriptors,
    /// `dL/dD` over the voxels of a patch, where `dL/dS` is given.
    Slopes,
    /// Where the descriptors `R` of another image are given: the sum of `u |S - R|^2` over the columns of a cube.
    Difference {
        /// Whether there are weights to read.
        weighted: bool,
        /// Whether `dL/dD` over the voxels of a patch is written, for `L` a twelfth of the sum.
        gradient: bool,
    },
}

impl Purpose {
    /// Whether cubes have sums.
    pub(super) const fn sums(self) -> bool {
        matches!(self, Self::Variance | Self::Difference { .. })
    }

    /// Whether each voxel has twelve values.
    pub(super) const fn writes(self) -> bool {
        !matches!(self, Self::Variance | Self::Difference { gradient: false, .. })
    }

    const fn compares(self) -> bool {
        matches!(self, Self::Difference { .. })
    }

    const fn weighted(self) -> bool {
        matches!(self, Self::Difference { weighted: true, .. })
    }
}

/// How a plane of a tile with its margin lies in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Planes {
    /// Columns on either side, along x and y.
    pub(super) margin: u32,
}

impl Planes {
    const fn new(patch: Patch) -> Self {
        Self { margin: (patch.radius + patch.dilation) as u32 }
    }

    pub(super) const fn pitch(self) -> u32 {
        TILE.width() + 2 * self.margin
    }

    const fn rows(self) -> u32 {
        TILE.height() + 2 * self.margin
    }

    pub(super) const fn words(self) -> u32 {
        self.pitch() * self.rows()
    }
}

/// Fills shared memory with three planes: the one `dilation` planes behind `z`, plane `z`, which is summed, and the one
/// as far ahead.
#[cube]
fn fill<T: Float>(
    image: &[T],
    planes: &mut Shared<[f32]>,
    size: &Extent,
    volume: usize,
    z: u32,
    #[comptime] patch: Patch,
) {
    let layout = comptime!(Planes::new(patch));
    let (pitch, words) = comptime!((layout.pitch(), layout.words()));
    let area = size.h as usize * size.w as usize;
    let margin = comptime!(layout.margin as i32);
    let left = (CUBE_POS_X * comptime!(TILE.width())) as i32 - margin;
    let top = (CUBE_POS_Y * comptime!(TILE.height())) as i32 - margin;
    let mut i = UNIT_POS;
    while i < words {
        let x = clamped(left + (i % pitch) as i32, size.w);
        let y = clamped(top + (i / pitch) as i32, size.h);
        let place = y as usize * size.w as usize + x as usize;
        #[unroll]
        for plane in 0..3usize {
            let shift = comptime!((plane as i32 - 1) * patch.dilation as i32);
            let at = volume + clamped(z as i32 + shift, size.d) as usize * area + place;
            planes[(comptime!(plane as u32 * words) + i) as usize] = f32::cast_from(image[at]);
        }
        i += UNITS;
    }
}

/// Adds the squared differences around one voxel of shared memory to the last twelve sums.
#[cube]
fn add_squares(planes: &Shared<[f32]>, sums: &mut Array<f32>, at: u32, #[comptime] patch: Patch) {
    let layout = comptime!(Planes::new(patch));
    let along_x = comptime!(patch.dilation as u32);
    let along_y = comptime!(patch.dilation as u32 * layout.pitch());
    let words = comptime!(layout.words());
    let here = at + words;
    let mut values = Array::<f32>::new(6usize);
    values[0] = planes[(here + along_x) as usize];
    values[1] = planes[(here - along_x) as usize];
    values[2] = planes[(here + along_y) as usize];
    values[3] = planes[(here - along_y) as usize];
    values[4] = planes[(here + words) as usize];
    values[5] = planes[at as usize];
    #[unroll]
    for k in 0..CHANNELS {
        let difference = values[comptime!(PAIRS[k][0])] - values[comptime!(PAIRS[k][1])];
        let last = comptime!(2 * patch.radius * CHANNELS + k);
        sums[last] += difference * difference;
    }
}

/// `image`, `weights` `[N, D, H, W]`, `given`, `output` `[N, 12, D, H, W]`, `totals` one a cube; which of them are read
/// or written, [`Purpose`] says.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn march_kernel<T: Float, G: Float, O: Float>(
    image: &[T],
    bounds: &[f32],
    given: &[G],
    weights: &[f32],
    output: &mut [O],
    totals: &mut [f32],
    size: Extent,
    chunk: u32,
    #[comptime] patch: Patch,
    #[comptime] purpose: Purpose,
    #[define(T, G, O)] _kinds: [ElemType; 3],
) {
    let layout = comptime!(Planes::new(patch));
    let at = column(&size, chunk, TILE);
    let area = size.h as usize * size.w as usize;
    let len = size.d as usize * area;
    let volume = at.volume as usize * len;
    let radius = comptime!(patch.radius as i32);
    let exists = at.writes && at.y < size.h as i32;
    // A unit without a voxel stands on the last one.
    let (x, y) = (clamped(at.x, size.w) as i32, clamped(at.y, size.h) as i32);
    let left = (CUBE_POS_X * comptime!(TILE.width())) as i32 - comptime!(layout.margin as i32);
    let top = (CUBE_POS_Y * comptime!(TILE.height())) as i32 - comptime!(layout.margin as i32);
    let place = y as usize * size.w as usize + x as usize;

    let mut planes = Shared::<[f32]>::new_slice(comptime!(3 * layout.words() as usize));
    let mut sums = Array::<f32>::new(comptime!((2 * patch.radius + 1) * CHANNELS));
    #[unroll]
    for i in 0..comptime!((2 * patch.radius + 1) * CHANNELS) {
        sums[i] = 0.0f32;
    }
    let mut low = 0.0f32;
    let mut high = 0.0f32;
    if comptime!(purpose != Purpose::Variance) {
        low = bounds[(2 * at.volume) as usize];
        high = bounds[(2 * at.volume + 1) as usize];
    }
    let mut total = 0.0f32;
    let mut excess = Array::<f32>::new(CHANNELS);
    let mut slopes = Array::<f32>::new(CHANNELS);
    // Two constants: the compiler multiplies.
    let per_voxel = comptime!(1.0 / patch.voxels() as f32).runtime();
    let per_channel = comptime!(1.0 / CHANNELS as f32).runtime();
    let mut ahead = at.start - radius;
    while ahead < at.stop + radius {
        #[unroll]
        for i in 0..comptime!(2 * patch.radius * CHANNELS) {
            let next = sums[comptime!(i + CHANNELS)];
            sums[i] = next;
        }
        #[unroll]
        for k in 0..CHANNELS {
            sums[comptime!(2 * patch.radius * CHANNELS + k)] = 0.0f32;
        }
        sync_cube();
        fill(image, &mut planes, &size, volume, clamped(ahead, size.d), patch);
        sync_cube();
        let mut j = comptime!(-radius).runtime();
        while j <= radius {
            let row = (clamped(y + j, size.h) as i32 - top) as u32 * comptime!(layout.pitch());
            let mut i = comptime!(-radius).runtime();
            while i <= radius {
                let column = (clamped(x + i, size.w) as i32 - left) as u32;
                add_squares(&planes, &mut sums, row + column, patch);
                i += 1;
            }
            j += 1;
        }
        let z = ahead - radius;
        if exists && z >= at.start {
            let voxel = z as usize * area + place;
            let mut least = 0.0f32;
            let mut which = 0u32;
            #[unroll]
            for k in 0..CHANNELS {
                let mut distance = sums[k];
                #[unroll]
                for plane in 1..comptime!(2 * patch.radius + 1) {
                    distance += sums[comptime!(plane * CHANNELS + k)];
                }
                distance *= per_voxel;
                if comptime!(k == 0) {
                    least = distance;
                } else if distance < least {
                    least = distance;
                    which = comptime!(k as u32).runtime();
                }
                excess[k] = distance;
            }
            let mut variance = 0.0f32;
            #[unroll]
            for k in 0..CHANNELS {
                let distance = excess[k];
                excess[k] = distance - least;
                variance += distance - least;
            }
            variance *= per_channel;
            if comptime!(purpose == Purpose::Variance) {
                total += variance;
            } else {
                let rate = 1.0f32 / min(max(variance, low), high);
                let first = at.volume as usize * CHANNELS * len + voxel;
                let mut weight = 1.0f32;
                if comptime!(purpose.weighted()) {
                    weight = weights[volume + voxel];
                }
                let mut squares = 0.0f32;
                let mut to_variance = 0.0f32;
                #[unroll]
                for k in 0..CHANNELS {
                    let descriptor = (-excess[k] * rate).exp();
                    if comptime!(purpose == Purpose::Descriptors) {
                        output[first + k * len] = O::cast_from(descriptor);
                    } else {
                        let mut grad = f32::cast_from(given[first + k * len]);
                        if comptime!(purpose.compares()) {
                            let difference = descriptor - grad;
                            squares += difference * difference;
                            grad = 2.0f32 * per_channel * weight * difference;
                        }
                        let weighted = grad * descriptor;
                        to_variance += weighted * excess[k];
                        slopes[k] = -weighted * rate;
                    }
                }
                total += weight * squares;
                if comptime!(purpose != Purpose::Descriptors && purpose.writes()) {
                    let inside = variance >= low && variance <= high;
                    to_variance = select(inside, to_variance * rate * rate * per_channel, 0.0f32);
                    let mut all = 0.0f32;
                    #[unroll]
                    for k in 0..CHANNELS {
                        slopes[k] += to_variance;
                        all += slopes[k];
                    }
                    #[unroll]
                    for k in 0..CHANNELS {
                        let is_least = which == comptime!(k as u32);
                        let slope = slopes[k] - select(is_least, all, 0.0f32);
                        output[first + k * len] = O::cast_from(slope * per_voxel);
                    }
                }
            }
        }
        ahead += 1;
    }
    if comptime!(purpose.sums()) {
        let sum = sum_over_cube(total);
        if UNIT_POS == 0 {
            let cube = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
            totals[cube as usize] = sum;
        }
    }
}
