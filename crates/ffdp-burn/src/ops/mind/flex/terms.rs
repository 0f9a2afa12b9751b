//! What is made of the twelve distances of voxels, several voxels at a time.

use super::super::CHANNELS;
use ffdp_kit::exp::exp;

/// Voxels that are described at a time: two vectors of 256 bits.
pub(super) const LANES: usize = 8;

/// A value of every channel for each of them.
pub(super) type Block = [[f64; LANES]; CHANNELS];

/// A block by channel and voxel.
#[inline(always)]
pub(super) fn block(value: impl Fn(usize, usize) -> f64) -> Block {
    let mut block = [[0.0; LANES]; CHANNELS];
    for (k, values) in block.iter_mut().enumerate() {
        for (i, here) in values.iter_mut().enumerate() {
            *here = value(k, i);
        }
    }
    block
}

/// The sum over the channels of each voxel.
#[inline(always)]
fn over_channels(value: impl Fn(usize, usize) -> f64) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for k in 0..CHANNELS {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += value(k, i);
        }
    }
    sums
}

pub(super) struct Terms {
    /// `E`.
    excess: Block,
    /// `V`.
    pub(super) variance: [f64; LANES],
}

impl Terms {
    /// Of the distances `D`.
    #[inline(always)]
    pub(super) fn new(distances: &Block) -> Self {
        let mut least = distances[0];
        for distances in &distances[1..] {
            for i in 0..LANES {
                least[i] = least[i].min(distances[i]);
            }
        }
        let excess = block(|k, i| distances[k][i] - least[i]);
        let variance = over_channels(|k, i| excess[k][i]).map(|sum| sum / CHANNELS as f64);
        Self { excess, variance }
    }

    /// `S`.
    #[inline(always)]
    pub(super) fn descriptor(&self, [low, high]: [f64; 2]) -> Block {
        let rate = self.variance.map(|variance| -1.0 / variance.clamp(low, high));
        block(|k, i| exp(self.excess[k][i] * rate[i]))
    }

    /// `dL/dD` of `g S`.
    #[inline(always)]
    pub(super) fn pull_back(&self, weighted: &Block, [low, high]: [f64; 2]) -> Block {
        let rate = self.variance.map(|variance| 1.0 / variance.clamp(low, high));
        let mut to_variance = over_channels(|k, i| weighted[k][i] * self.excess[k][i]);
        for (i, to_variance) in to_variance.iter_mut().enumerate() {
            let free = (low..=high).contains(&self.variance[i]);
            let factor = rate[i] * rate[i] / CHANNELS as f64;
            *to_variance = if free { *to_variance * factor } else { 0.0 };
        }
        let mut slope = block(|k, i| to_variance[i] - weighted[k][i] * rate[i]);
        // All are measured from the least, the first of equal ones.
        let mut all = over_channels(|k, i| slope[k][i]);
        for (slope, excess) in slope.iter_mut().zip(&self.excess) {
            for i in 0..LANES {
                let least = if excess[i] == 0.0 { all[i] } else { 0.0 };
                slope[i] -= least;
                all[i] -= least;
            }
        }
        slope
    }
}
