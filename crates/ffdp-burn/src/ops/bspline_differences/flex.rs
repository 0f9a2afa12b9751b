//! The differences on the CPU: a task a control point, with the changed cells in a list.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{BsplineDifferencesOps, DifferencesPlan, ENTROPIES, MAP};
use crate::ops::bspline::Axis;
use crate::ops::grid_sample::flex::SamplePosition;
use crate::ops::grid_sample::{Interpolation, Padding};
use crate::ops::information::Information;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// `eta(n + m) - eta(n)` of counts.
fn change(n: f64, m: f64) -> f64 {
    match (n > 0.0, n + m > 0.0) {
        (true, true) => m * n.ln() + (n + m) * (m / n).ln_1p(),
        (true, false) => -n * n.ln(),
        (false, true) => m * m.ln(),
        (false, false) => 0.0,
    }
}

fn bin(intensity: f64, bins: usize) -> usize {
    let inside = if intensity > 0.0 { intensity.min(1.0) } else { 0.0 };
    ((inside * bins as f64) as usize).min(bins - 1)
}

/// The loss after a change of the entropies, less that before.
pub(super) fn loss_change(
    [apart, joint]: [f64; 2],
    [by_apart, by_joint]: [f64; 2],
    which: Information,
) -> f64 {
    match which {
        Information::Mutual => by_joint - by_apart,
        Information::Normalized => {
            let after = joint + by_joint;
            if joint < 1e-10 || after < 1e-10 {
                return 0.0;
            }
            (apart * by_joint - by_apart * joint) / (joint * after)
        }
    }
}

/// A table of changes that remembers which cells it has changed.
struct Changes {
    cells: Vec<i32>,
    touched: Vec<usize>,
}

impl Changes {
    fn new(len: usize) -> Self {
        Self { cells: vec![0; len], touched: Vec::new() }
    }

    fn add(&mut self, cell: usize, by: i32) {
        if self.cells[cell] == 0 {
            self.touched.push(cell);
        }
        self.cells[cell] += by;
    }

    /// `sum eta(n + m) - eta(n)`, and all forgotten.
    fn take(&mut self, counts: impl Fn(usize) -> f64) -> f64 {
        let mut sum = 0.0;
        for cell in self.touched.drain(..) {
            let by = std::mem::take(&mut self.cells[cell]);
            // A cell that came back to 0 is there twice.
            sum += if by == 0 { 0.0 } else { change(counts(cell), f64::from(by)) };
        }
        sum
    }
}

/// Where a voxel with displacement `u` is seen: `map (p, 1) + scale u`.
fn sampled_at(map: &[f64], scale: &[[f64; 3]; 3], voxel: [usize; 3], u: [f64; 3]) -> [f64; 3] {
    let p = voxel.map(|i| i as f64);
    [0, 1, 2].map(|a| {
        let (row, s) = (&map[4 * a..][..4], scale[a]);
        let mapped = row[0] * p[0] + row[1] * p[1] + row[2] * p[2] + row[3];
        mapped + s[0] * u[0] + s[1] * u[1] + s[2] * u[2]
    })
}

fn differences<T: Real>(
    [fixed, moving, moved, field]: [&FlexTensor; 4],
    known: &FlexTensor,
    plan: &DifferencesPlan,
) -> FlexTensor {
    let DifferencesPlan { lattice, sampling, bins, step, information } = *plan;
    let shape = moving.layout().shape();
    let input = [shape[2], shape[3], shape[4]];
    let known: Vec<f64> = elements::<T>(known).iter().map(|v| v.wide()).collect();
    let (map, statistics) = known.split_at(MAP);
    let (entropies, counts) = statistics.split_at(ENTROPIES);
    let (rows, cells) = counts.split_at(bins);
    let [fixed, moving, moved, field] = [fixed, moving, moved, field].map(elements::<T>);
    let [_, h, w] = sampling.size;
    let voxels = fixed.len();
    let supports = lattice.axes.each_ref().map(Axis::transposed);
    let [deep, high, wide] = lattice.controls();
    let controls = deep * high * wide;
    let one = |(at, (joint, marginal)): (usize, &mut (Changes, Changes))| {
        let (component, control) = (at / controls, at % controls);
        let [x, y, z] = [control % wide, control / wide % high, control / wide / high];
        let mut loss = |sign: f64| {
            for &(k, across_z) in &supports[2][z] {
                for &(j, across_y) in &supports[1][y] {
                    for &(i, across_x) in &supports[0][x] {
                        let voxel = (k * h + j) * w + i;
                        let mut u = [0, 1, 2].map(|c| field[c * voxels + voxel].wide());
                        u[component] += sign * step * across_x * across_y * across_z;
                        let at = sampled_at(map, &sampling.scale, [i, j, k], u);
                        let before = bin(moved[voxel].wide(), bins);
                        let place =
                            SamplePosition::of(at, input, Interpolation::Linear, Padding::Zeros);
                        let shown = place.value(moving, input, Interpolation::Linear);
                        let after = bin(shown, bins);
                        if before != after {
                            let stays = bin(fixed[voxel].wide(), bins);
                            for (bin, by) in [(before, -1), (after, 1)] {
                                joint.add(bin * bins + stays, by);
                                marginal.add(bin, by);
                            }
                        }
                    }
                }
            }
            let by_joint = -joint.take(|cell| cells[cell]) / voxels as f64;
            let by_apart = -marginal.take(|row| rows[row]) / voxels as f64;
            loss_change([entropies[0], entropies[1]], [by_apart, by_joint], information)
        };
        let (up, down) = (loss(1.0), loss(-1.0));
        T::of((up - down) / (2.0 * step))
    };
    let tables = || (Changes::new(bins * bins), Changes::new(bins));
    let all = (0..3 * controls).into_par_iter();
    let gradient = all.map_init(tables, |tables, at| one((at, tables))).collect();
    tensor(gradient, [1, 3, deep, high, wide])
}

impl BsplineDifferencesOps for Flex {
    fn bspline_differences_3d(
        fixed: FlexTensor,
        moving: FlexTensor,
        moved: FlexTensor,
        field: FlexTensor,
        known: FlexTensor,
        plan: DifferencesPlan,
    ) -> FlexTensor {
        let [fixed, moving, moved, field] =
            [fixed, moving, moved, field].map(|t| t.to_contiguous());
        let known = known.to_contiguous();
        let images = [&fixed, &moving, &moved, &field];
        by_dtype!("bspline_differences", field.dtype(), differences(images, &known, &plan))
    }
}
