//! The gradient of an image from the slopes of its distances: the adjoint of the sums over patches, then each voxel
//! passes to its neighbours.

use rayon::prelude::*;
use std::ops::Range;

use super::super::{NEIGHBOURS, PAIRS};
use super::rows::{Volume, clamped};
use ffdp_kit::real::Real;
use ffdp_kit::window::{add, vectorized, weigh};

/// The voxels of an axis of `len` whose patches may have voxel `q`.
fn within(q: usize, len: usize, radius: usize) -> Range<usize> {
    q.saturating_sub(radius)..len.min(q + radius + 1)
}

/// How often the patch of each of them has it.
fn times(q: usize, len: usize, radius: usize) -> Vec<f64> {
    let offsets = || -(radius as isize)..=radius as isize;
    let of = |p: usize| offsets().filter(|o| clamped(p, *o, len) == q).count() as f64;
    within(q, len, radius).map(of).collect()
}

/// What the voxels of a plane pass on.
struct Passed {
    /// To voxels of their own plane.
    own: Vec<f64>,
    /// To those at `d` above and below.
    along_z: [Vec<f64>; 2],
}

/// The adjoint of the sum over patches along x; `line` has `r` zeros on both sides of a row.
fn adjoint_along_x(row: &[f64], r: usize, line: &mut [f64], sums: &mut [f64]) {
    let w = row.len();
    line[r..r + w].copy_from_slice(row);
    weigh(&vec![1.0; 2 * r + 1], |o| &line[o..][..w], sums);
    for q in [0, w - 1] {
        let terms = times(q, w, r).into_iter().zip(&row[within(q, w, r)]);
        sums[q] = terms.map(|(times, slope)| times * slope).sum();
    }
}

/// What every voxel of plane `z` passes to each of its six neighbours.
fn to_neighbours<T: Real>(volume: &Volume, slopes: &[T], z: usize) -> [Vec<f64>; 6] {
    let [w, h, d] = volume.size;
    let (area, r) = (volume.area(), volume.patch.radius);
    let mut passed: [Vec<f64>; 6] = std::array::from_fn(|_| vec![0.0; area]);
    let mut aside = volume.aside();
    let mut along_z = vec![0.0; area];
    let (mut along_y, mut sums, mut line) = (vec![0.0; w], vec![0.0; w], vec![0.0; w + 2 * r]);
    let (first, of_z) = (within(z, d, r).start, times(z, d, r));
    for ([a, b], slopes) in PAIRS.into_iter().zip(slopes.chunks(volume.data.len())) {
        weigh(&of_z, |p| &slopes[(first + p) * area..][..area], &mut along_z);
        for y in 0..h {
            let first = within(y, h, r).start;
            weigh(&times(y, h, r), |p| &along_z[(first + p) * w..][..w], &mut along_y);
            adjoint_along_x(&along_y, r, &mut line, &mut sums);
            let values = volume.neighbours(y, z, &mut aside);
            let values = values[a].iter().zip(values[b]);
            let row = y * w..(y + 1) * w;
            vectorized(
                #[inline(always)]
                || sums.iter_mut().zip(values).for_each(|(h, (a, b))| *h *= 2.0 * (a - b)),
            );
            add(&mut passed[a][row.clone()], &sums, 1.0);
            add(&mut passed[b][row], &sums, -1.0);
        }
    }
    passed
}

/// What the voxels of plane `z` pass to each plane.
fn passed<T: Real>(volume: &Volume, slopes: &[T], z: usize) -> Passed {
    let [w, h, _] = volume.size;
    let near = volume.patch.dilation.min(w);
    let to_neighbours = to_neighbours(volume, slopes, z);
    let mut own = vec![0.0; volume.area()];
    for ((axis, sign), passed) in NEIGHBOURS[..4].iter().zip(&to_neighbours) {
        for (y, row) in passed.chunks(w).enumerate() {
            let step = sign * volume.patch.dilation as isize;
            let to = if *axis == 1 { clamped(y, step, h) } else { y };
            let own = &mut own[to * w..][..w];
            match (axis, sign) {
                (1, _) => add(own, row, 1.0),
                (_, 1) => {
                    add(&mut own[near..], &row[..w - near], 1.0);
                    own[w - 1] += row[w - near..].iter().sum::<f64>();
                }
                _ => {
                    add(&mut own[..w - near], &row[near..], 1.0);
                    own[0] += row[..near].iter().sum::<f64>();
                }
            }
        }
    }
    let [.., above, below] = to_neighbours;
    Passed { own, along_z: [above, below] }
}

/// What plane `z` is passed by all.
fn collected(volume: &Volume, passed: &[Passed], z: usize) -> Vec<f64> {
    let (d, dilation) = (volume.size[2], volume.patch.dilation);
    let mut sums = passed[z].own.clone();
    for (n, step) in [dilation as isize, -(dilation as isize)].into_iter().enumerate() {
        for q in within(z, d, dilation).filter(|q| clamped(*q, step, d) == z) {
            add(&mut sums, &passed[q].along_z[n], 1.0);
        }
    }
    sums
}

/// The gradient of the image from `dL/dD`, channel after channel.
pub(super) fn to_image<T: Real>(volume: &Volume, slopes: &[T]) -> Vec<T> {
    let planes = (0..volume.size[2]).into_par_iter();
    let passed: Vec<Passed> = planes.map(|z| passed(volume, slopes, z)).collect();
    let mut image = vec![T::default(); volume.data.len()];
    image.par_chunks_mut(volume.area()).enumerate().for_each(|(z, plane)| {
        let sums = collected(volume, &passed, z);
        plane.iter_mut().zip(sums).for_each(|(value, sum)| *value = T::of(sum));
    });
    image
}
