//! Jacobian determinant of `phi(p) = p + u(p)`: volume change and folds.

mod sides;
mod spread;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;

use super::percentile::percentiles;
use crate::Result;
use crate::image::{Buckets, Counts, between, ranks_around};
use sides::{Field, OneSided, is_fold};
use spread::Spread;

/// Voxels that the deviation of ln det J leaves out at either end of an axis, as Learn2Reg does.
const CROP: usize = 2;

/// How a derivative is taken at a voxel; at the border, the one-sided one that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// `u(p + 1) - u(p)`.
    Forward,
    /// `u(p) - u(p - 1)`.
    Backward,
    /// `(u(p + 1) - u(p - 1)) / 2`.
    Central,
}

/// Distribution of det J over the voxels of a field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JacobianDistribution {
    /// Smallest determinant.
    pub min: f64,
    /// First percentile.
    pub p1: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest determinant.
    pub max: f64,
    /// Voxels with det J <= 0 or NaN.
    pub folds: u64,
    /// `folds` over the number of voxels.
    pub fold_fraction: f64,
}

/// Folds and volume change of a displacement field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JacobianReport {
    /// Forward differences along all axes.
    pub forward: JacobianDistribution,
    /// Backward differences along all axes.
    pub backward: JacobianDistribution,
    /// Central differences; blind to folds of one voxel (checkerboards).
    pub central: JacobianDistribution,
    /// Voxels that fold in at least one of: central, or any of the eight mixtures of forward and
    /// backward differences per axis. These are the true folds: a voxel that is not counted
    /// keeps its orientation in each of the eight corners around it.
    pub true_folds: u64,
    /// `true_folds` over the number of voxels.
    pub true_fold_fraction: f64,
    /// Standard deviation of ln det J (central, two voxels cropped per side where the grid has
    /// more than four, determinants below 1e-9 taken as 1e-9). 0 is volume-preserving up to a
    /// constant.
    pub sd_log: f64,
    /// The same as Learn2Reg's evaluation prints it: of ln(det J + 3), the sum clipped to
    /// 1e-9..1e9.
    pub sd_log_learn2reg: f64,
}

/// What of a [`JacobianReport`] is compared between methods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Regularity {
    /// As [`JacobianReport::true_folds`].
    pub true_folds: u64,
    /// As [`JacobianReport::true_fold_fraction`].
    pub true_fold_fraction: f64,
    /// As [`JacobianReport::sd_log`].
    pub sd_log: f64,
}

/// det J at every voxel of a displacement `[3, D, H, W]` on a grid of `size` (x, y, z).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the field is not of that size.
pub fn jacobian_determinants(
    displacement: &[f32],
    size: [usize; 3],
    difference: Difference,
) -> Result<Vec<f32>> {
    let field = Field::new(displacement, size)?;
    Ok(determinants(&field, difference))
}

/// det J at single voxels, by their place in memory: central differences, as [`jacobian_determinants`] has them.
///
/// # Errors
/// As there.
pub fn determinant_of(
    displacement: &[f32],
    size: [usize; 3],
) -> Result<impl Fn(usize) -> f32 + Sync> {
    let field = Field::new(displacement, size)?;
    Ok(move |voxel| field.determinant(voxel, Difference::Central))
}

/// The report of a displacement `[3, D, H, W]` (voxels) on a grid of `size` (x, y, z), in two sweeps over it. Memory:
/// some 10 MB for each thread; 4 bytes per voxel besides the field where it is not finite.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the field is not of that size.
pub fn jacobian(displacement: &[f32], size: [usize; 3]) -> Result<JacobianReport> {
    let field = Field::new(displacement, size)?;
    let all = FieldPlanes { displacement, first: 0, own: 0..size[2] };
    let mut report = JacobianReport::of_runs(size, |add| add(&all))?;
    let JacobianReport { forward, backward, central, .. } = &mut report;
    for (difference, found) in DIFFERENCES.into_iter().zip([forward, backward, central]) {
        if found.p50.is_nan() {
            let [p1, p50, p99] = PERCENTS;
            let all = [0.0, p1, p50, p99, 100.0];
            let [min, p1, p50, p99, max] = percentiles(&mut determinants(&field, difference), all);
            *found = JacobianDistribution { min, p1, p50, p99, max, ..*found };
        }
    }
    Ok(report)
}

/// Some planes of a displacement.
#[derive(Clone, Debug)]
pub struct FieldPlanes<'a> {
    /// `[3, n, H, W]` in voxels: the planes that are counted, and one more on either side where the grid has it.
    pub displacement: &'a [f32],
    /// Number of the first of these.
    pub first: usize,
    /// Those that are counted.
    pub own: Range<usize>,
}

impl FieldPlanes<'_> {
    /// Those that are counted, of a grid of `size` (x, y, z): `[3, n, H, W]`; copied where there are others.
    pub fn own_vectors(&self, [x, y, _]: [usize; 3]) -> Cow<'_, [f32]> {
        let own = (self.own.start - self.first) * x * y..(self.own.end - self.first) * x * y;
        if 3 * own.len() == self.displacement.len() {
            return Cow::Borrowed(self.displacement);
        }
        let components = self.displacement.chunks(self.displacement.len() / 3);
        components.flat_map(|component| &component[own.clone()]).copied().collect()
    }
}

impl JacobianReport {
    /// The report of a displacement that comes in runs of planes, on a grid of `size` (x, y, z): `sweep` hands all runs to
    /// its argument, in their order. It is called twice. Percentiles of a field that is not finite are NaN.
    ///
    /// # Errors
    /// Those of `sweep`, and [`Error::Shape`](crate::Error::Shape) for a run of another size.
    pub fn of_runs(
        size: [usize; 3],
        mut sweep: impl FnMut(&mut dyn FnMut(&FieldPlanes) -> Result<()>) -> Result<()>,
    ) -> Result<Self> {
        let new = || (Regular::default(), <[Kind; 3]>::default());
        let add = |(regular, kinds): &mut (Regular, [Kind; 3]), sides: &mut OneSided, row| {
            for (difference, kind) in DIFFERENCES.into_iter().zip(kinds) {
                let values = sides.determinants(difference).to_vec();
                kind.add(&values);
                if difference == Difference::Central {
                    regular.add(&values, sides, inner(row, size));
                }
            }
        };
        let join = |(regular, kinds): &mut (Regular, [Kind; 3]), next: (Regular, [Kind; 3])| {
            regular.join(next.0);
            kinds.iter_mut().zip(next.1).for_each(|(kind, next)| kind.join(&next));
        };
        let (mut regular, mut kinds) = new();
        sweep(&mut |planes| {
            let (more, by_kind) = Field::of_planes(planes, size)?.sweep(new, add, join);
            regular.join(more);
            regular.settle();
            kinds.iter_mut().zip(&by_kind).for_each(|(kind, more)| kind.join(more));
            Ok(())
        })?;
        let voxels = size.iter().product();
        let [forward, backward, central] = distributions(size, &kinds, sweep)?;
        let (Regularity { true_folds, true_fold_fraction, sd_log }, sd_log_learn2reg) =
            regular.read(voxels);
        Ok(Self {
            forward,
            backward,
            central,
            true_folds,
            true_fold_fraction,
            sd_log,
            sd_log_learn2reg,
        })
    }
}

/// Folds and spread alone, in one sweep over the displacement and without the percentiles of
/// [`jacobian()`]. Arguments as there.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) when the field is not of that size.
pub fn regularity(displacement: &[f32], size: [usize; 3]) -> Result<Regularity> {
    let field = Field::new(displacement, size)?;
    let add = |regular: &mut Regular, sides: &mut OneSided, row| {
        let central = sides.determinants(Difference::Central).to_vec();
        regular.add(&central, sides, inner(row, size));
    };
    let mut regular = field.sweep(Regular::default, add, Regular::join);
    regular.settle();
    Ok(regular.read(field.len()).0)
}

/// In the order in which a report has them.
const DIFFERENCES: [Difference; 3] =
    [Difference::Forward, Difference::Backward, Difference::Central];

/// The voxels of a row that count for the deviation of ln det J; an axis that is too short is not cropped.
fn inner(row: usize, size: [usize; 3]) -> Range<usize> {
    let [x, y, z] = size.map(|n| if n > 2 * CROP { CROP..n - CROP } else { 0..n });
    if y.contains(&(row % size[1])) && z.contains(&(row / size[1])) { x } else { 0..0 }
}

/// What one sweep finds of folds and spread, in some rows.
#[derive(Default)]
struct Regular {
    true_folds: u64,
    /// By row: of ln det J, and as Learn2Reg has it. Joined in the order of the rows: the same bits on any number of
    /// threads.
    logs: Vec<[Spread; 2]>,
    /// Of the rows that are joined.
    spreads: [Spread; 2],
}

impl Regular {
    /// A row with its central determinants, some of which count for the deviation.
    fn add(&mut self, central: &[f32], sides: &OneSided, inner: Range<usize>) {
        self.true_folds += sides.folds(central);
        if inner.is_empty() {
            return;
        }
        let spread = |log: &dyn Fn(f64) -> f64| {
            let logs = central[inner.clone()].iter().map(|&det| log(f64::from(det)));
            Spread::of(&logs.collect::<Vec<f64>>())
        };
        let plain = spread(&|det| det.max(1e-9).ln());
        self.logs.push([plain, spread(&|det| (det + 3.0).clamp(1e-9, 1e9).ln())]);
    }

    /// Adds the rows that follow.
    fn join(&mut self, next: Self) {
        self.true_folds += next.true_folds;
        self.logs.extend(next.logs);
    }

    /// Joins the rows that were added.
    fn settle(&mut self) {
        let join = |[a, b]: [Spread; 2], [c, d]: [Spread; 2]| [a.join(c), b.join(d)];
        self.spreads = self.logs.drain(..).fold(self.spreads, join);
    }

    /// Of all `voxels`, once their rows are joined: the deviation as Learn2Reg has it with the rest.
    fn read(&self, voxels: usize) -> (Regularity, f64) {
        let [sd_log, sd_log_learn2reg] = self.spreads.map(Spread::deviation);
        let (true_folds, true_fold_fraction) =
            (self.true_folds, self.true_folds as f64 / voxels as f64);
        (Regularity { true_folds, true_fold_fraction, sd_log }, sd_log_learn2reg)
    }
}

/// det J by one kind of difference, counted.
#[derive(Default)]
struct Kind {
    counts: Counts,
    folds: u64,
}

impl Kind {
    fn add(&mut self, determinants: &[f32]) {
        self.counts.add_here(determinants);
        self.folds += determinants.iter().filter(|&&det| is_fold(det)).count() as u64;
    }

    fn join(&mut self, other: &Self) {
        self.counts.join(&other.counts);
        self.folds += other.folds;
    }
}

/// Percentiles of a distribution between its extremes.
const PERCENTS: [f64; 3] = [1.0, 50.0, 99.0];

/// Of each of [`DIFFERENCES`]: what is at the ranks of the percentiles takes a second sweep.
fn distributions(
    size: [usize; 3],
    kinds: &[Kind; 3],
    mut sweep: impl FnMut(&mut dyn FnMut(&FieldPlanes) -> Result<()>) -> Result<()>,
) -> Result<[JacobianDistribution; 3]> {
    let voxels: usize = size.iter().product();
    // Finite values alone are counted.
    let finite = |kind: &Kind| kind.counts.count() == voxels;
    let around = PERCENTS.map(|percent| ranks_around(voxels, percent));
    let none = || {
        kinds.each_ref().map(|kind| {
            finite(kind).then(|| Buckets::new(&kind.counts, around.into_iter().flatten()))
        })
    };
    let add = |buckets: &mut [Option<Buckets>; 3], sides: &mut OneSided, _| {
        for (difference, buckets) in DIFFERENCES.into_iter().zip(buckets) {
            let Some(buckets) = buckets else { continue };
            buckets.add_here(sides.determinants(difference));
        }
    };
    let join = |buckets: &mut [Option<Buckets>; 3], next: [Option<Buckets>; 3]| {
        let pairs = buckets.iter_mut().flatten().zip(next.iter().flatten());
        pairs.for_each(|(buckets, next)| buckets.join(next));
    };
    let mut found = none();
    sweep(&mut |planes| {
        join(&mut found, Field::of_planes(planes, size)?.sweep(none, add, join));
        Ok(())
    })?;
    Ok(std::array::from_fn(|k| {
        let kind = &kinds[k];
        let [min, p1, p50, p99, max] = found[k].as_ref().map_or([f64::NAN; 5], |buckets| {
            let value = |rank: usize| buckets.value(&kind.counts, rank);
            let of = |k: usize| between(voxels, around[k].map(value), PERCENTS[k]);
            let [min, max] = kind.counts.extremes().map(f64::from);
            [min, of(0), of(1), of(2), max]
        });
        let fold_fraction = kind.folds as f64 / voxels as f64;
        JacobianDistribution { min, p1, p50, p99, max, folds: kind.folds, fold_fraction }
    }))
}

fn determinants(field: &Field, difference: Difference) -> Vec<f32> {
    field.map(|sides, values| values.copy_from_slice(sides.determinants(difference)))
}
