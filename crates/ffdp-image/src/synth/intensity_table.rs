//! Intensity statistics of labels: estimated, stored, tabulated, varied.

use std::collections::BTreeMap;

use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use super::aseg::aseg_structure;
use super::modality::Modality;
use super::random::{Stream, generator};
use super::structure::Structure;
use crate::image::{LabelMap, Volume};
use crate::{Error, Result};

/// The median absolute deviation of a normal distribution is its standard deviation over this.
const NORMAL_OVER_MAD: f64 = 1.482_602_218_505_602;
/// Values further from the median than this many robust deviations are left out.
const CLIP: f64 = 3.0;
/// Variance of a standard normal distribution cut at +-3.
const CLIPPED_VARIANCE: f64 = 0.973_336_9;

/// Normal distribution of one label's intensities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelStatistics {
    /// Mean intensity, in the units of the image.
    pub mean: f64,
    /// Standard deviation.
    pub sd: f64,
}

/// Statistics of every label but background (0), which has intensity 0.
///
/// As JSON: `{"labels": {"2": {"mean": 0.8, "sd": 0.05}, ..}}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntensityTable {
    /// Label id to its statistics.
    pub labels: BTreeMap<i32, LabelStatistics>,
}

impl IntensityTable {
    /// The statistics of images with their label maps, voxels of all images pooled, robust
    /// against outliers and partial volume: mean and deviation of the values within 3 robust
    /// deviations (from the median absolute deviation) of the median, the deviation corrected
    /// for what the cut takes from a normal distribution. Voxels that are not finite are left out.
    ///
    /// # Errors
    /// [`Error::Grid`] when an image and its labels differ in grid, [`Error::Invalid`] when no
    /// labelled voxel is left.
    pub fn estimate<'a>(
        pairs: impl IntoIterator<Item = (&'a Volume, &'a LabelMap)>,
    ) -> Result<Self> {
        let mut values = BTreeMap::<i32, Vec<f32>>::new();
        for (image, labels) in pairs {
            image.geometry.check_same_grid(&labels.geometry, "the label map")?;
            collect(image, labels, &mut values);
        }
        if values.is_empty() {
            let what = "statistics need a label with a finite voxel besides background";
            return Err(Error::invalid(what, "none", "check image and label map"));
        }
        let labels = values.into_iter().map(|(id, values)| (id, robust(values))).collect();
        Ok(Self { labels })
    }

    /// The table of the phantom's structures.
    pub fn of_phantom(modality: Modality) -> Self {
        let entry = |s: Structure| (s.id(), statistics(s, modality));
        Self { labels: Structure::ALL.into_iter().map(entry).collect() }
    }

    /// The table of FreeSurfer's subcortical segmentation (aseg): each id with the intensities of the tissue of
    /// the phantom that it is most like.
    pub fn of_aseg(modality: Modality) -> Self {
        let entry = |id: i32| aseg_structure(id).map(|s| (id, statistics(s, modality)));
        Self { labels: (1..256).filter_map(entry).collect() }
    }

    /// Demands that every label but background have finite statistics.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the labels without, or the value at fault.
    pub fn check_covers(&self, ids: &[i32]) -> Result<()> {
        let missing: Vec<i32> =
            ids.iter().copied().filter(|id| *id != 0 && !self.labels.contains_key(id)).collect();
        if !missing.is_empty() {
            let fix = "give an image to estimate them from, or a table that has them";
            return Err(Error::invalid("every label needs intensity statistics", missing, fix));
        }
        match self.labels.iter().find(|(_, s)| !s.mean.is_finite() || !(0.0..).contains(&s.sd)) {
            Some((id, statistics)) => Err(Error::invalid(
                format!("label {id}: the mean must be finite, the deviation not negative"),
                statistics,
                "correct the table",
            )),
            None => Ok(()),
        }
    }

    /// The table of one subject: every mean moved by `variation` of its label's deviations times
    /// a normal draw of the seed; left and right are drawn apart. 0 is the table itself, as in the
    /// FFDP paper.
    pub fn varied(&self, variation: f64, seed: u64) -> Self {
        let mut random = generator(seed, Stream::Contrast, 0);
        let vary = |(&id, s): (&i32, &LabelStatistics)| {
            let draw: f64 = StandardNormal.sample(&mut random);
            (id, LabelStatistics { mean: s.mean + variation * s.sd * draw, sd: s.sd })
        };
        Self { labels: self.labels.iter().map(vary).collect() }
    }
}

fn statistics(structure: Structure, modality: Modality) -> LabelStatistics {
    let (mean, sd) = modality.statistics(structure);
    LabelStatistics { mean, sd }
}

fn collect(image: &Volume, labels: &LabelMap, values: &mut BTreeMap<i32, Vec<f32>>) {
    let mut rest = image.data.as_slice();
    // Labels come in runs: one look-up per run.
    for run in labels.data.chunk_by(|a, b| a == b) {
        let (here, after) = rest.split_at(run.len());
        rest = after;
        if run[0] != 0 {
            let finite = here.iter().copied().filter(|v| v.is_finite()).peekable();
            let mut finite = finite;
            if finite.peek().is_some() {
                values.entry(run[0]).or_default().extend(finite);
            }
        }
    }
}

/// Statistics of at least one value.
fn robust(mut values: Vec<f32>) -> LabelStatistics {
    let median = f64::from(median(&mut values));
    let mut distances: Vec<f32> =
        values.iter().map(|&v| (f64::from(v) - median).abs() as f32).collect();
    let scale = NORMAL_OVER_MAD * f64::from(self::median(&mut distances));
    // More than half of the values are one and the same: nothing is an outlier.
    let reach = if scale > 0.0 { CLIP * scale } else { f64::INFINITY };
    let kept = || values.iter().map(|&v| f64::from(v)).filter(|v| (v - median).abs() <= reach);
    let count = kept().count() as f64;
    let mean = kept().sum::<f64>() / count;
    let variance = kept().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    let correction = if reach.is_finite() { CLIPPED_VARIANCE } else { 1.0 };
    LabelStatistics { mean, sd: (variance / correction).sqrt() }
}

fn median(values: &mut [f32]) -> f32 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f32::total_cmp).1
}
