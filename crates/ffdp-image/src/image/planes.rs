//! Images that are read plane by plane, of which no more than a slab need be in memory, and what must be
//! known of all of their voxels.

use std::borrow::Borrow;
use std::ops::Range;

use super::geometry::Geometry;
use super::moved_labels::MovedLabels;
use super::ranks::{Buckets, Counts, between, ranks_around};
use super::volume::Volume;
use crate::error::{Error, Result};

/// An image whose planes (slices along z) are read a few at a time, best in ascending order.
pub trait Planes {
    /// The grid of the whole image.
    fn geometry(&self) -> &Geometry;

    /// The voxels of the planes `z`, x fastest; the next call replaces them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the range is empty or leaves the image, and those of the file behind it.
    fn read(&mut self, z: Range<usize>) -> Result<&[f32]>;

    /// All voxels, where they lie in memory.
    fn all(&self) -> Option<&[f32]> {
        None
    }

    /// What the values of a label map stand for: the labels themselves, unless f32 would round them.
    fn labels(&self) -> &MovedLabels {
        &MovedLabels::Themselves
    }
}

/// The whole image lies in memory: a volume, or a reference to one.
impl<V: Borrow<Volume>> Planes for V {
    fn geometry(&self) -> &Geometry {
        &self.borrow().geometry
    }

    fn read(&mut self, z: Range<usize>) -> Result<&[f32]> {
        let Volume { data, geometry } = (*self).borrow();
        let [x, y, planes] = geometry.size;
        check_planes(&z, planes)?;
        Ok(&data[z.start * x * y..z.end * x * y])
    }

    fn all(&self) -> Option<&[f32]> {
        Some(&self.borrow().data)
    }
}

/// One of several volumes that lie one after the other in a stack of planes.
pub struct OneOf<'a> {
    stack: &'a mut dyn Planes,
    grid: Geometry,
    first: usize,
}

impl<'a> OneOf<'a> {
    /// The volume numbered `k`, from 0, of those on `grid`.
    pub fn new(stack: &'a mut dyn Planes, grid: &Geometry, k: usize) -> Self {
        Self { stack, grid: grid.clone(), first: k * grid.size[2] }
    }
}

impl Planes for OneOf<'_> {
    fn geometry(&self) -> &Geometry {
        &self.grid
    }

    fn read(&mut self, z: Range<usize>) -> Result<&[f32]> {
        check_planes(&z, self.grid.size[2])?;
        self.stack.read(self.first + z.start..self.first + z.end)
    }

    fn labels(&self) -> &MovedLabels {
        self.stack.labels()
    }
}

/// Demands planes of an image of so many.
pub fn check_planes(z: &Range<usize>, planes: usize) -> Result<()> {
    if z.start < z.end && z.end <= planes {
        return Ok(());
    }
    let what = format!("planes must lie inside 0..{planes}");
    Err(Error::invalid(what, z, "choose another range"))
}

/// Voxels that are read at a time where nothing else decides.
pub(crate) const SWEEP: usize = 1 << 22;

/// Runs of planes of about so many voxels that together are all of them.
pub fn runs(geometry: &Geometry, voxels: usize) -> impl Iterator<Item = Range<usize>> {
    let [x, y, planes] = geometry.size;
    let step = (voxels / (x * y)).clamp(1, planes);
    (0..planes).step_by(step).map(move |first| first..(first + step).min(planes))
}

/// What is known of an image that was read once or twice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics<const K: usize> {
    /// Smallest and largest value.
    pub extremes: [f32; 2],
    /// The percentiles that were asked for.
    pub percentiles: [f32; K],
}

/// An image, and the mask on its grid where one has: only voxels with a weight above 0 count.
pub struct Counted<'a> {
    /// The image.
    pub image: &'a mut dyn Planes,
    /// Its weights.
    pub mask: Option<&'a mut dyn Planes>,
    /// Only values above this one count, where it is given.
    pub above: Option<f32>,
}

impl Counted<'_> {
    /// Shows the voxels that count, run by run.
    ///
    /// # Errors
    /// Those of reading.
    pub fn sweep(&mut self, mut visit: impl FnMut(&[f32])) -> Result<()> {
        if let (Some(all), None, None) = (self.image.all(), &self.mask, self.above) {
            visit(all);
            return Ok(());
        }
        let geometry = self.image.geometry().clone();
        let least = self.above.unwrap_or(f32::NEG_INFINITY);
        let mut inside = Vec::new();
        for run in runs(&geometry, SWEEP) {
            let values = self.image.read(run.clone())?;
            inside.clear();
            match (&mut self.mask, self.above) {
                (None, None) => {
                    visit(values);
                    continue;
                }
                (None, Some(_)) => inside.extend(values.iter().filter(|value| **value > least)),
                (Some(mask), above) => {
                    let pairs = values.iter().zip(mask.read(run)?);
                    // What is no number is counted, to be refused.
                    let counts = |(value, weight): &(&f32, &f32)| {
                        **weight > 0.0 && (above.is_none() || **value > least)
                    };
                    inside.extend(pairs.filter(counts).map(|(value, _)| *value));
                }
            }
            visit(&inside);
        }
        Ok(())
    }
}

/// Demands finite voxels and returns their extremes; `name` is that of the image in messages.
///
/// # Errors
/// [`Error::NonFinite`], and those of reading.
pub fn check_finite(name: &str, image: &mut dyn Planes) -> Result<[f32; 2]> {
    let geometry = image.geometry().clone();
    let plane = geometry.size[0] * geometry.size[1];
    let mut extremes = [f32::INFINITY, f32::NEG_INFINITY];
    let (mut nan, mut infinite, mut first) = (0, 0, None);
    for run in runs(&geometry, SWEEP) {
        let values = image.read(run.clone())?;
        for &value in values {
            extremes = [extremes[0].min(value), extremes[1].max(value)];
            nan += usize::from(value.is_nan());
            infinite += usize::from(value.is_infinite());
        }
        if nan + infinite > 0 && first.is_none() {
            let here = values.iter().position(|v| !v.is_finite());
            first = here.map(|offset| run.start * plane + offset);
        }
    }
    let Some(first) = first else { return Ok(extremes) };
    let (what, first) = (name.to_string(), geometry.index_of(first));
    Err(Error::NonFinite { what, nan, infinite, first })
}

/// Extremes and percentiles of what counts of an image as a volume computes them, to the bit, in two sweeps; `name`
/// is that of the image in messages.
///
/// # Errors
/// [`Error::NonFinite`] for NaN or infinite voxels among those that count, and those of reading.
pub fn statistics<const K: usize>(
    name: &str,
    counted: &mut Counted,
    percents: [f64; K],
) -> Result<Statistics<K>> {
    let mut seen = 0;
    let (finite, found) = finite_statistics(counted, percents, |sweep, values| {
        if sweep == 0 {
            seen += values.len();
        }
    })?;
    if finite < seen {
        check_finite(name, counted.image)?;
    }
    Ok(found.expect("an image has voxels"))
}

/// [`statistics`] of the finite voxels among those that count, how many they are, and nothing else where there are none.
/// `visit` is shown all that count in each sweep, 0 and 1.
///
/// # Errors
/// Those of reading.
pub fn finite_statistics<const K: usize>(
    counted: &mut Counted,
    percents: [f64; K],
    mut visit: impl FnMut(usize, &[f32]),
) -> Result<(usize, Option<Statistics<K>>)> {
    let mut counts = Counts::default();
    counted.sweep(|values| {
        counts.add(values);
        visit(0, values);
    })?;
    let finite = counts.count();
    if finite == 0 {
        return Ok((0, None));
    }
    let around = |&percent: &f64| ranks_around(finite, percent);
    let mut buckets = Buckets::new(&counts, percents.iter().flat_map(around));
    counted.sweep(|values| {
        buckets.add(values);
        visit(1, values);
    })?;
    let percentiles = percents.map(|percent| {
        let values = around(&percent).map(|rank| buckets.value(&counts, rank));
        between(finite, values, percent) as f32
    });
    Ok((finite, Some(Statistics { extremes: counts.extremes(), percentiles })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffdp_kit::testing::normal;

    fn volume(size: [usize; 3]) -> Volume {
        let geometry = Geometry::new(size, [1.0; 3]).expect("positive");
        let data = normal(geometry.len(), 3).iter().map(|&v| v as f32).collect();
        Volume::new(data, geometry).expect("one value for each voxel")
    }

    #[test]
    fn statistics_of_planes_are_those_of_the_volume() {
        let mut volume = volume([30, 20, 40]);
        volume.data[5_000..15_000].fill(0.125);
        volume.data[7] = -0.0;
        for percents in [[1.0, 99.9], [0.0, 100.0], [33.3, 50.0]] {
            let mut all = Counted { image: &mut volume, mask: None, above: None };
            let found = statistics("it", &mut all, percents).expect("finite");
            let expected = volume.percentiles(percents).expect("finite");
            assert_eq!(found.percentiles.map(f32::to_bits), expected.map(f32::to_bits));
            let (low, high) = volume.min_max().expect("finite");
            assert_eq!(found.extremes, [low, high]);
        }
    }

    #[test]
    fn what_is_not_finite_is_counted_and_placed_as_in_the_volume() {
        let mut volume = volume([5, 4, 3]);
        (volume.data[33], volume.data[47], volume.data[59]) = (f32::NAN, f32::INFINITY, f32::NAN);
        let expected = volume.check_finite("it").expect_err("it is not").to_string();
        let mut all = Counted { image: &mut volume, mask: None, above: None };
        let error = statistics("it", &mut all, [1.0]).expect_err("it is not");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn runs_are_all_planes_once() {
        let geometry = Geometry::new([3, 5, 11], [1.0; 3]).expect("positive");
        for voxels in [1, 15, 40, 75, 1000] {
            let all: Vec<usize> = runs(&geometry, voxels).flatten().collect();
            assert_eq!(all, (0..11).collect::<Vec<_>>(), "{voxels}");
        }
        assert_eq!(runs(&geometry, 40).next(), Some(0..2));
    }
}
