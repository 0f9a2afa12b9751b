//! The average of images at every voxel of a template.

use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical, Volume, runs};
use ffdp_image::metrics::Coverage;
use rayon::prelude::*;

use super::settings::Average;
use crate::store::Store;

/// Part of the trilinear weights of a voxel that must lie inside an image for it to count there.
const INSIDE: f64 = 0.5;

/// Voxels that are averaged at a time, of all images, where the values of all are needed.
const PIECE: usize = 1 << 22;

/// Running mean and sum of squared differences from it, by Welford's recurrence in f64.
pub(super) struct Sums {
    mean: Vec<f64>,
    squares: Vec<f64>,
    count: Vec<u32>,
}

impl Sums {
    /// Bytes of a voxel.
    pub const BYTES: u64 = 20;

    pub fn new(voxels: usize) -> Self {
        Self { mean: vec![0.0; voxels], squares: vec![0.0; voxels], count: vec![0; voxels] }
    }

    /// Adds an image; NaN where it does not reach. Images are added in one order, whatever that of the list.
    pub fn add(&mut self, values: &[f32]) {
        let sums = self.mean.par_iter_mut().zip(&mut self.squares).zip(&mut self.count);
        sums.zip(values).for_each(|(((mean, squares), count), &value)| {
            let value = f64::from(value);
            if value.is_nan() {
                return;
            }
            *count += 1;
            let difference = value - *mean;
            *mean += difference / f64::from(*count);
            *squares += difference * (value - *mean);
        });
    }

    /// Mean and variance (of a sample); 0 where no image, or only one, reaches.
    pub fn finish(self, grid: &Geometry) -> Result<[Volume; 2]> {
        let Self { mean, squares, count } = self;
        let variance = squares.iter().zip(&count);
        let variance =
            variance.map(|(s, &n)| if n > 1 { (s / f64::from(n - 1)) as f32 } else { 0.0 });
        let variance = Volume::new(variance.collect(), grid.clone())?;
        let mean = mean.into_iter().map(|m| m as f32).collect();
        Ok([Volume::new(mean, grid.clone())?, variance])
    }
}

/// Gives values that were read with 0 outside an image what lies beyond it or, where that is unknown, NaN; at its border
/// those of the image alone.
pub(super) fn beyond(
    warped: &mut Volume,
    moving: &Geometry,
    value: Option<f32>,
    affine: &Affine<Physical, Physical>,
    displacement: Option<&[f32]>,
) {
    let grid = warped.geometry.clone();
    let coverage = Coverage::new([&grid, moving], affine, displacement);
    if let Some(value) = value {
        if value != 0.0 {
            coverage.fill(&mut warped.data, value);
        }
        return;
    }
    let mut outside = vec![0.0; warped.data.len()];
    coverage.fill(&mut outside, 1.0);
    warped.data.par_iter_mut().zip(outside).for_each(|(value, outside)| {
        let inside = 1.0 - f64::from(outside);
        *value = if inside < INSIDE { f32::NAN } else { (f64::from(*value) / inside) as f32 };
    });
}

/// The average of images that are kept under these names, by voxel.
pub(super) fn of_all(
    store: &Store,
    names: &[String],
    average: Average,
    grid: &Geometry,
) -> Result<Volume> {
    let plane = grid.size[0] * grid.size[1];
    let mut data = Vec::with_capacity(grid.len());
    for planes in runs(grid, (PIECE / names.len().max(1)).max(plane)) {
        let range = planes.start * plane..planes.end * plane;
        let read = |name: &String| store.values::<f32>(name, range.clone());
        let all = names.iter().map(read).collect::<Result<Vec<_>>>()?;
        let at = |voxel: usize| {
            let here = all.iter().map(|values| values[voxel]);
            let mut values: Vec<f32> = here.filter(|value| !value.is_nan()).collect();
            values.sort_unstable_by(f32::total_cmp);
            average.of_sorted(&values)
        };
        data.par_extend((0..range.len()).into_par_iter().map(at));
    }
    Volume::new(data, grid.clone())
}

impl Average {
    /// Of values in ascending order; 0 of none.
    fn of_sorted(self, values: &[f32]) -> f32 {
        let mean = |values: &[f32]| {
            (values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len().max(1) as f64) as f32
        };
        let n = values.len();
        match self {
            Self::Mean => mean(values),
            Self::Median if n == 0 => 0.0,
            Self::Median => mean(&values[(n - 1) / 2..=n / 2]),
            Self::Trimmed { part } => {
                let ends = (part * n as f64).floor() as usize;
                mean(&values[ends..n - ends])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_trimmed_means_leave_extremes_out() {
        let trimmed = Average::Trimmed { part: 0.2 };
        for (average, values, expected) in [
            (Average::Mean, &[1.0, 2.0, 6.0][..], 3.0),
            (Average::Median, &[1.0, 2.0, 60.0], 2.0),
            (Average::Median, &[1.0, 2.0, 4.0, 60.0], 3.0),
            (Average::Median, &[], 0.0),
            (trimmed, &[-90.0, 1.0, 2.0, 3.0, 60.0], 2.0),
            (trimmed, &[1.0, 3.0], 2.0),
        ] {
            assert_eq!(average.of_sorted(values), expected, "{average:?} of {values:?}");
        }
    }

    #[test]
    fn sums_leave_out_what_an_image_does_not_reach() {
        let grid = Geometry::new([3, 1, 1], [1.0; 3]).expect("valid");
        let mut sums = Sums::new(3);
        sums.add(&[1.0, f32::NAN, f32::NAN]);
        sums.add(&[3.0, 5.0, f32::NAN]);
        let [mean, variance] = sums.finish(&grid).expect("as many");
        assert_eq!((mean.data, variance.data), (vec![2.0, 5.0, 0.0], vec![2.0, 0.0, 0.0]));
    }
}
