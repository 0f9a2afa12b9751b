//! The gradient of the image: every output voxel adds to the voxels that it was read from.
//!
//! Slabs of output planes run in parallel, each with sums of its own for those planes of the image that
//! it reaches; where slabs overlap their sums are added in order. How the volume is divided depends on
//! its size and its displacement alone, so the result is reproducible on any number of cores.

use rayon::prelude::*;

use super::gather::widened;
use super::lanes::LANES;
use super::place::SamplePosition;
use super::{Row, Sampler};
use ffdp_kit::real::Real;
use ffdp_kit::window::vectorized;

/// Output planes of a slab.
const PLANES: usize = 16;
/// How often the sums of all slabs may cover the image: wild fields are added up as a whole instead.
const COVERS: usize = 3;

/// Output planes `[first, last)` and the image's planes `[low, high]` that they reach.
struct Slab {
    first: usize,
    last: usize,
    low: usize,
    high: usize,
}

/// `dL/dI`: every output voxel adds `g` to its eight corners.
pub(super) fn to_image<T: Real>(s: &Sampler<'_, T>, grad: &[T]) -> Vec<T> {
    let [d, h, w] = s.sampling.size;
    let len = s.input.iter().product::<usize>();
    let mut output = vec![T::default(); s.image.len()];
    for (n, outputs) in output.chunks_mut(len * s.channels).enumerate() {
        let slabs = slabs(s, n);
        for (c, output) in outputs.chunks_mut(len).enumerate() {
            let grad = &grad[(n * s.channels + c) * d * h * w..][..d * h * w];
            add_slabs(s, n, &slabs, grad, output);
        }
    }
    output
}

/// The slabs of an entry of the batch.
fn slabs<T: Real>(s: &Sampler<'_, T>, n: usize) -> Vec<Slab> {
    let d = s.sampling.size[0];
    let slab = |first: usize| {
        let last = (first + PLANES).min(d);
        let (low, high) = planes(s, n, first, last);
        Slab { first, last, low, high }
    };
    let slabs: Vec<Slab> = (0..d).into_par_iter().step_by(PLANES).map(slab).collect();
    let held: usize = slabs.iter().map(|slab| slab.high + 1 - slab.low).sum();
    if held <= COVERS * s.input[0] {
        return slabs;
    }
    vec![Slab { first: 0, last: d, low: 0, high: s.input[0] - 1 }]
}

/// The planes of the image that output planes `[first, last)` reach.
fn planes<T: Real>(s: &Sampler<'_, T>, n: usize, first: usize, last: usize) -> (usize, usize) {
    let mut reach = (s.input[0] - 1, 0);
    for_each_row(s, n, first..last, |_, row| {
        vectorized(
            #[inline(always)]
            || {
                for x in (0..s.sampling.size[2]).step_by(LANES) {
                    let (low, high) = row.stretch(x).planes();
                    reach = (reach.0.min(low), reach.1.max(high));
                }
            },
        );
    });
    (reach.0.min(reach.1), reach.1)
}

fn for_each_row<T: Real>(
    s: &Sampler<'_, T>,
    n: usize,
    planes: std::ops::Range<usize>,
    mut visit: impl FnMut(usize, &Row<'_, T>),
) {
    let [_, h, w] = s.sampling.size;
    for (z, y) in planes.flat_map(|z| (0..h).map(move |y| (z, y))) {
        visit((z * h + y) * w, &s.row(n, y, z));
    }
}

/// Adds the slabs of one channel up.
fn add_slabs<T: Real>(s: &Sampler<'_, T>, n: usize, slabs: &[Slab], grad: &[T], output: &mut [T]) {
    let area = s.input[1] * s.input[2];
    let sums: Vec<Vec<f64>> = slabs.par_iter().map(|slab| sums_of(s, n, slab, grad)).collect();
    output.par_chunks_mut(area).enumerate().for_each(|(z, plane)| {
        let mut total = vec![0.0; area];
        for (slab, sums) in slabs.iter().zip(&sums) {
            if (slab.low..=slab.high).contains(&z) {
                let sums = &sums[(z - slab.low) * area..][..area];
                total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
            }
        }
        for (value, total) in plane.iter_mut().zip(total) {
            *value = T::of(total);
        }
    });
}

/// The sums of one slab, for the planes of the image that it reaches.
fn sums_of<T: Real>(s: &Sampler<'_, T>, n: usize, slab: &Slab, grad: &[T]) -> Vec<f64> {
    let area = s.input[1] * s.input[2];
    let start = slab.low * area;
    let mut sums = vec![0.0; (slab.high + 1 - slab.low) * area];
    for_each_row(s, n, slab.first..slab.last, |at, row| {
        vectorized(
            #[inline(always)]
            || {
                for x in (0..s.sampling.size[2]).step_by(LANES) {
                    let stretch = row.stretch(x);
                    let g = widened(&grad[at + x..][..stretch.count]);
                    stretch.add_to_corners(&g, &mut sums, start);
                    for (j, place) in stretch.others() {
                        add(&mut sums, start, s.input, &place, g[j]);
                    }
                }
            },
        );
    });
    sums
}

/// Adds `g` to the corners of a sample anywhere; those outside have no weight.
fn add(sums: &mut [f64], start: usize, extent: [usize; 3], place: &SamplePosition, g: f64) {
    let SamplePosition::Anywhere(at) = place else {
        unreachable!("a sample in a cell is one of its stretch's");
    };
    let [_, h, w] = extent;
    for corner in 0..8 {
        let [i, j, k] = [corner & 1, corner >> 1 & 1, corner >> 2];
        let weight = at.x.weight[i] * at.y.weight[j] * at.z.weight[k];
        if weight != 0.0 {
            let row = (at.z.index[k] * h + at.y.index[j]) * w;
            sums[row + at.x.index[i] - start] += weight * g;
        }
    }
}
