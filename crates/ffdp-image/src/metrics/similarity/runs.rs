//! The similarity that registrations report, added up run of planes by run of planes: the images need never be whole in
//! memory.

use rayon::prelude::*;
use serde::Serialize;

use super::information::JointHistogram;
use super::local::{local_ncc_sum, square_sum};
use super::windows::Windows;
use super::{CHUNK, centred, check_length, correlation, extremes, sums};
use crate::Result;
use crate::image::Volume;

/// Window of the local correlation, in voxels.
const WINDOW: usize = 7;
/// Bins of the joint histogram along each axis.
const BINS: usize = 32;

/// How alike two images are, at full resolution, over the voxels that both cover; 1 is best. NaN where there are none.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SimilarityMeasures {
    /// Pearson's correlation.
    pub ncc: f64,
    /// Mean squared local correlation in windows of 7^3 voxels, over the voxels above the fixed
    /// image's lowest value; flat windows count as 0.
    pub local_ncc_foreground: f64,
    /// Mutual information as a part of the joint entropy, 32 bins: 0..1.
    pub nmi: f64,
}

/// Which voxels of the fixed image can be compared: those that a map sends into the moving image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Those that lie there.
    pub inside: Vec<bool>,
    /// Those that lie there with the window of the local correlation around them.
    pub windows: Vec<bool>,
}

impl Compared {
    /// How far a window reaches beyond its voxel.
    pub(in crate::metrics) const REACH: f64 = (WINDOW / 2) as f64;
}

/// Planes of two images on one grid, and which of their voxels are compared.
#[derive(Clone, Copy, Debug)]
pub struct PairPlanes<'a> {
    /// Of the fixed image.
    pub fixed: &'a [f32],
    /// Of the moving image, resampled on the fixed grid.
    pub moved: &'a [f32],
    /// One of each for each voxel.
    pub compared: &'a Compared,
}

impl SimilarityMeasures {
    /// The similarity of a moving image, resampled on the fixed grid, to the fixed one.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when they differ in size.
    pub fn of(fixed: &Volume, moved: &Volume, compared: &Compared) -> Result<Self> {
        let planes = PairPlanes { fixed: &fixed.data, moved: &moved.data, compared };
        planes.check()?;
        let covered = planes.covered();
        let mut extent = Extent::default();
        extent.add(planes, &covered);
        let mut products = Products::new(fixed.geometry.size, &extent);
        products.add(planes, &covered);
        Ok(products.measures())
    }

    /// The same of images on a grid of `size` (x, y, z) that come in runs of planes: `sweep` hands all runs to its
    /// argument, in their order. It is called twice.
    ///
    /// # Errors
    /// Those of `sweep`, and as [`SimilarityMeasures::of`].
    pub fn of_runs(
        size: [usize; 3],
        mut sweep: impl FnMut(&mut dyn FnMut(PairPlanes) -> Result<()>) -> Result<()>,
    ) -> Result<Self> {
        let mut extent = Extent::default();
        sweep(&mut |planes| {
            planes.check()?;
            extent.add(planes, &planes.covered());
            Ok(())
        })?;
        let mut products = Products::new(size, &extent);
        sweep(&mut |planes| {
            products.add(planes, &planes.covered());
            Ok(())
        })?;
        Ok(products.measures())
    }
}

impl PairPlanes<'_> {
    fn check(&self) -> Result<()> {
        let Compared { inside, windows } = self.compared;
        let lengths = [self.moved.len(), inside.len(), windows.len()];
        lengths.into_iter().try_for_each(|length| check_length(self.fixed.len(), length))
    }

    /// The voxels of both images that both cover. They are counted first, so that all cores write them in place.
    fn covered(&self) -> [Vec<f32>; 2] {
        let inside = self.compared.inside.par_chunks(CHUNK);
        let count = |inside: &[bool]| inside.iter().filter(|inside| **inside).count();
        let counts: Vec<usize> = inside.clone().map(count).collect();
        [self.fixed, self.moved].map(|image| {
            let mut covered = vec![0.0; counts.iter().sum()];
            let mut rest = &mut covered[..];
            let parts: Vec<&mut [f32]> =
                counts.iter().map(|&n| rest.split_off_mut(..n).expect("so many")).collect();
            let voxels = image.par_chunks(CHUNK).zip(inside.clone());
            parts.into_par_iter().zip(voxels).for_each(|(part, (image, inside))| {
                let covered = image.iter().zip(inside).filter(|(_, inside)| **inside);
                part.iter_mut().zip(covered).for_each(|(to, (value, _))| *to = *value);
            });
            covered
        })
    }
}

/// What the first sweep finds: means and extremes.
struct Extent {
    /// Of the fixed image.
    lowest: f32,
    voxels: usize,
    square_sums: [f64; 2],
    /// Of the voxels that both cover: their number, and the sum and the extremes of each image.
    covered: usize,
    sums: [f64; 2],
    extremes: [[f32; 2]; 2],
}

impl Default for Extent {
    fn default() -> Self {
        Self {
            lowest: f32::INFINITY,
            voxels: 0,
            square_sums: [0.0; 2],
            covered: 0,
            sums: [0.0; 2],
            extremes: [[f32::INFINITY, f32::NEG_INFINITY]; 2],
        }
    }
}

impl Extent {
    fn add(&mut self, planes: PairPlanes, [of_fixed, of_moved]: &[Vec<f32>; 2]) {
        let PairPlanes { fixed, moved, .. } = planes;
        let lowest = fixed.par_iter().copied().reduce(|| f32::INFINITY, f32::min);
        self.lowest = self.lowest.min(lowest);
        self.voxels += fixed.len();
        self.covered += of_fixed.len();
        let sums = sums(of_fixed, of_moved, |f, m| [f, m]);
        for (k, (all, covered)) in [(fixed, of_fixed), (moved, of_moved)].into_iter().enumerate() {
            self.square_sums[k] += square_sum(all);
            self.sums[k] += sums[k];
            let ([low, high], [lower, higher]) = (self.extremes[k], extremes(covered));
            self.extremes[k] = [low.min(lower), high.max(higher)];
        }
    }
}

/// What the second sweep adds up.
struct Products {
    lowest: f32,
    covered: usize,
    means: [f64; 2],
    centred: [f64; 3],
    histogram: JointHistogram,
    local: LocalRuns,
}

impl Products {
    fn new(size: [usize; 3], extent: &Extent) -> Self {
        let mean_squares = extent.square_sums.map(|sum| sum / extent.voxels as f64);
        Self {
            lowest: extent.lowest,
            covered: extent.covered,
            means: extent.sums.map(|sum| sum / extent.covered as f64),
            centred: [0.0; 3],
            histogram: JointHistogram::new(extent.extremes, BINS),
            local: LocalRuns::new(size, mean_squares),
        }
    }

    fn add(&mut self, planes: PairPlanes, [fixed, moved]: &[Vec<f32>; 2]) {
        let more = centred(fixed, moved, self.means);
        self.centred.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        self.histogram.add(fixed, moved);
        let PairPlanes { fixed, moved, compared } = planes;
        let counts = fixed.par_iter().zip(&compared.windows);
        let counts = counts.map(|(&value, &inside)| inside && value > self.lowest).collect();
        self.local.add([fixed, moved], counts);
    }

    fn measures(&self) -> SimilarityMeasures {
        let LocalRuns { sum, count, .. } = self.local;
        let (ncc, nmi) = match self.covered {
            0 => (f64::NAN, f64::NAN),
            _ => (correlation(self.centred), self.histogram.information().normalized() - 1.0),
        };
        SimilarityMeasures { ncc, local_ncc_foreground: sum / count as f64, nmi }
    }
}

/// The local correlation of images that come in runs: planes wait until those that their windows reach are there.
struct LocalRuns {
    size: [usize; 3],
    mean_squares: [f64; 2],
    /// Planes from `first` on that windows still reach, and which of their voxels count.
    first: usize,
    held: [Vec<f32>; 2],
    counts: Vec<bool>,
    /// The first plane whose windows are not summed.
    next: usize,
    sum: f64,
    count: u64,
}

impl LocalRuns {
    fn new(size: [usize; 3], mean_squares: [f64; 2]) -> Self {
        let held = [Vec::new(), Vec::new()];
        Self { size, mean_squares, first: 0, held, counts: Vec::new(), next: 0, sum: 0.0, count: 0 }
    }

    fn add(&mut self, images: [&[f32]; 2], counts: Vec<bool>) {
        let [x, y, planes] = self.size;
        if counts.len() == x * y * planes {
            return self.sum_windows(images, planes, |voxel| counts[voxel]);
        }
        self.held.iter_mut().zip(images).for_each(|(held, image)| held.extend_from_slice(image));
        self.counts.extend(counts);
        let end = self.first + self.counts.len() / (x * y);
        let ready = if end == planes { end } else { end.saturating_sub(WINDOW / 2) };
        if ready > self.next {
            let own = (self.next - self.first) * x * y..(ready - self.first) * x * y;
            let (held, counts) = (std::mem::take(&mut self.held), std::mem::take(&mut self.counts));
            let images = held.each_ref().map(Vec::as_slice);
            self.sum_windows(images, end - self.first, |v| own.contains(&v) && counts[v]);
            (self.held, self.counts, self.next) = (held, counts, ready);
        }
        let reached = self.next.saturating_sub(WINDOW / 2).max(self.first);
        let gone = (reached - self.first) * x * y;
        self.held.iter_mut().for_each(|held| drop(held.drain(..gone)));
        self.counts.drain(..gone);
        self.first = reached;
    }

    fn sum_windows(
        &mut self,
        [fixed, moved]: [&[f32]; 2],
        planes: usize,
        counts: impl Fn(usize) -> bool + Sync,
    ) {
        let ([x, y, _], weights) = (self.size, [1.0 / WINDOW as f64; WINDOW]);
        let windows = Windows { fixed, moved, size: [x, y, planes], weights: &weights };
        let (sum, count) = local_ncc_sum(&windows, self.mean_squares, counts);
        self.sum += sum;
        self.count += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Geometry;
    use crate::metrics::{foreground, information, local_ncc, ncc};

    /// Sums are taken in another order.
    const ROUNDING: f64 = 1e-12;

    fn image(size: [usize; 3], step: f32) -> Volume {
        let geometry = Geometry::new(size, [1.0; 3]).expect("positive");
        let value = |i: usize| (i as f32 * step).sin() * 3.0 + (i % 7) as f32;
        Volume::new((0..geometry.len()).map(value).collect(), geometry).expect("one for each")
    }

    /// All but some voxels.
    fn most(size: [usize; 3]) -> Compared {
        let count = size.iter().product();
        let inside: Vec<bool> = (0..count).map(|i| i % 11 != 0).collect();
        let windows = (0..count).map(|i| i % 3 != 0).collect();
        Compared { inside, windows }
    }

    fn in_runs(images: [&Volume; 2], compared: &Compared, planes: usize) -> SimilarityMeasures {
        let size = images[0].geometry.size;
        let run = planes * size[0] * size[1];
        SimilarityMeasures::of_runs(size, |add| {
            for first in (0..images[0].data.len()).step_by(run) {
                let voxels = first..(first + run).min(images[0].data.len());
                let part = |all: &[bool]| all[voxels.clone()].to_vec();
                let compared =
                    Compared { inside: part(&compared.inside), windows: part(&compared.windows) };
                let [fixed, moved] = images.map(|image| &image.data[voxels.clone()]);
                add(PairPlanes { fixed, moved, compared: &compared })?;
            }
            Ok(())
        })
        .expect("one size")
    }

    #[test]
    fn the_measures_are_those_of_each_function_over_the_voxels_that_are_covered() {
        let size = [9, 8, 7];
        let (fixed, moved, compared) = (image(size, 0.1), image(size, 0.13), most(size));
        let found = SimilarityMeasures::of(&fixed, &moved, &compared).expect("one size");
        let [f, m] =
            PairPlanes { fixed: &fixed.data, moved: &moved.data, compared: &compared }.covered();
        assert_eq!(found.ncc, ncc(&f, &m).expect("one size"));
        assert_eq!(found.nmi, information(&f, &m, BINS).expect("bins").normalized() - 1.0);
        let mut mask = foreground(&fixed.data);
        mask.iter_mut().zip(&compared.windows).for_each(|(one, other)| *one &= other);
        let local = local_ncc(&fixed.data, &moved.data, size, WINDOW, Some(&mask)).expect("odd");
        assert_eq!(found.local_ncc_foreground, local);
        let none = Compared { inside: vec![false; 504], windows: vec![false; 504] };
        let found = SimilarityMeasures::of(&fixed, &moved, &none).expect("one size");
        assert!([found.ncc, found.local_ncc_foreground, found.nmi].iter().all(|v| v.is_nan()));
    }

    #[test]
    fn voxels_that_are_covered_keep_their_order_in_chunks() {
        let size = [60, 50, 45];
        let (fixed, moved, compared) = (image(size, 0.1), image(size, 0.13), most(size));
        assert!(fixed.data.len() > 2 * CHUNK);
        let planes = PairPlanes { fixed: &fixed.data, moved: &moved.data, compared: &compared };
        for (image, covered) in [&fixed, &moved].into_iter().zip(planes.covered()) {
            let voxels = image.data.iter().zip(&compared.inside).filter(|(_, inside)| **inside);
            assert!(voxels.map(|(value, _)| value).eq(&covered));
        }
    }

    #[test]
    fn runs_of_planes_add_up_to_the_whole() {
        for size in [[9, 8, 17], [9, 8, 5], [6, 5, 1]] {
            let (fixed, moved, compared) = (image(size, 0.1), image(size, 0.13), most(size));
            let whole = SimilarityMeasures::of(&fixed, &moved, &compared).expect("one size");
            for planes in [1, 2, 3, 4, 8, 16] {
                let found = in_runs([&fixed, &moved], &compared, planes);
                for (a, b) in [
                    (whole.ncc, found.ncc),
                    (whole.nmi, found.nmi),
                    (whole.local_ncc_foreground, found.local_ncc_foreground),
                ] {
                    assert!((a - b).abs() <= ROUNDING, "{size:?} by {planes}: {a} {b}");
                }
            }
        }
    }
}
