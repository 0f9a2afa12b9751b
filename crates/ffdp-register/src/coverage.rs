//! Images that end within what they show: what lies beyond their grid is unknown, and does not count.
//!
//! An image whose border is background goes on with it: a sample beyond its grid reads 0, which is what is there. Any
//! other image (a neck, a bright background, a field of view inside the body) says nothing of what lies beyond. It gets
//! a mask of ones, and every mask of an image that is displaced ends at the outermost voxels of its level: a sample
//! that would be mixed with what lies outside has no weight. So masks are the one way in which voxels do not count,
//! for every similarity, method and shard.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use super::settings::FOREGROUND;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, Planes, Ranks};

/// No tissue has less, in Hounsfield units.
const AIR: f32 = -1024.0;
/// Part of the voxels of which the padding of a CT is at least.
const PADDED: f64 = 0.005;
/// Planes that are looked at, the first and the last among them.
const PLANES: usize = 32;
/// Part of the border that may lie above the background: an ear or a nose that touches it.
const TOUCHING: f64 = 0.01;
/// An axis with fewer voxels keeps all of them: of three slices one would be left.
const THIN: usize = 8;

/// What of an image is unknown before it is registered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unknown {
    /// What lies beyond its grid, as [`ends_inside`] says.
    pub ends_inside: bool,
    /// Voxels of this value: the padding of a CT, one value below that of air in many voxels, which scanners write outside
    /// their field of view.
    pub padding: Option<f32>,
}

impl Unknown {
    /// Looks at 32 planes at most.
    pub fn of(image: &mut dyn Planes) -> Result<Self> {
        let border = Border::of(image)?;
        Ok(Self { ends_inside: border.ends_inside(), padding: border.padding })
    }
}

/// Whether an image ends within what it shows: more than a hundredth of the border of its grid lies above the
/// background, a tenth of the way from the 1st to the 99.9th percentile. Looks at 32 planes at most.
///
/// # Errors
/// Those of reading.
pub fn ends_inside(image: &mut dyn Planes) -> Result<bool> {
    Ok(Border::of(image)?.ends_inside())
}

/// The intensity of what lies beyond an image, as its border suggests: 0 of an image without negative values whose
/// border is dark, else the median of the border; the least value where that of an image with negative ones is positive.
///
/// # Errors
/// Those of reading.
pub fn background(image: &mut dyn Planes) -> Result<f32> {
    Ok(Border::of(image)?.background())
}

/// What the planes of an image show that were looked at.
struct Border {
    /// The 1st and the 99.9th percentile of their values, and the least one.
    low: f32,
    high: f32,
    least: f32,
    /// The first and the last plane, and the rims of all.
    ends: Vec<f32>,
    rims: Vec<f32>,
    /// Planes for which each rim stands.
    planes: f64,
    /// The least value, where it is padding.
    padding: Option<f32>,
}

impl Border {
    fn of(image: &mut dyn Planes) -> Result<Self> {
        let [x, y, count] = image.geometry().size;
        let looked_at = count.min(PLANES);
        let plane_at =
            |k: usize| if looked_at == 1 { 0 } else { k * (count - 1) / (looked_at - 1) };
        let (mut all, mut ends, mut rims) = (Vec::new(), Vec::new(), Vec::new());
        let finite = |value: &f32| value.is_finite();
        for z in (0..looked_at).map(plane_at) {
            let values = image.read(z..z + 1)?;
            all.extend(values.iter().copied().filter(finite));
            if count > 1 && (z == 0 || z + 1 == count) {
                ends.extend(values.iter().copied().filter(finite));
            }
            let at_rim = |i: &usize| {
                let (column, row) = (i % x, i / x);
                column == 0 || column + 1 == x || row == 0 || row + 1 == y
            };
            let rim = (0..values.len()).filter(at_rim).map(|i| values[i]);
            rims.extend(rim.filter(finite));
        }
        let least = all.iter().copied().fold(f32::INFINITY, f32::min);
        let voxels = all.len();
        let mut padding = None;
        if least < AIR && all.iter().any(|value| *value > least) {
            // The padding of a CT is no part of its range.
            all.retain(|value| *value > least);
            let padded = voxels - all.len();
            padding = (padded as f64 >= PADDED * voxels as f64).then_some(least);
        }
        let ranks = Ranks::of(&all);
        let planes = count as f64 / looked_at as f64;
        let Some(last) = ranks.count().checked_sub(1) else {
            return Ok(Self { low: 0.0, high: 0.0, least: 0.0, ends, rims, planes, padding });
        };
        let rank = |percent: f64| (percent / 100.0 * last as f64) as usize;
        let found = ranks.values(&[rank(1.0), rank(99.9)]);
        Ok(Self { least, low: found[0], high: found[1], ends, rims, planes, padding })
    }

    fn ends_inside(&self) -> bool {
        let above = f64::from(self.low) + FOREGROUND * f64::from(self.high - self.low);
        let bright =
            |values: &[f32]| values.iter().filter(|&&v| f64::from(v) > above).count() as f64;
        let area = self.ends.len() as f64 + self.planes * self.rims.len() as f64;
        bright(&self.ends) + self.planes * bright(&self.rims) > TOUCHING * area
    }

    fn background(&self) -> f32 {
        let ranks = Ranks::of(&self.rims);
        let Some(last) = ranks.count().checked_sub(1) else { return 0.0 };
        let median = ranks.values(&[last / 2])[0];
        match self.least < 0.0 {
            true if median > 0.0 => self.least,
            true => median,
            false if median > (self.low + self.high) / 2.0 => median,
            false => 0.0,
        }
    }
}

/// Which images get a mask because they end within what they show, and whose masks end with the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coverage {
    /// Of the fixed and the moving image, as [`ends_inside`] says.
    ends_inside: [bool; 2],
    /// Whether it is shown through a map: the moving image always, the fixed one by a method with two halves.
    displaced: [bool; 2],
}

impl Coverage {
    /// Of images that end inside, and a fixed one that is displaced as well or not.
    pub fn new(ends_inside: [bool; 2], displaces_fixed: bool) -> Self {
        Self { ends_inside, displaced: [displaces_fixed, true] }
    }

    /// Which of the fixed and the moving image get a mask for their grid's sake.
    pub fn masks(&self) -> [bool; 2] {
        [0, 1].map(|i| self.ends_inside[i] && self.displaced[i])
    }

    /// Weights of image `i` on planes of a level, as [`within`] has them where the image is displaced.
    pub fn limit(
        &self,
        i: usize,
        weights: Tensor<5>,
        level: &Geometry,
        planes: Range<usize>,
    ) -> Tensor<5> {
        if self.displaced[i] { within(weights, level, planes) } else { weights }
    }
}

/// Weights on planes of a level, `[1, 1, n, H, W]`, 0 at the outermost voxels of the level along all axes that have
/// enough of them.
fn within(weights: Tensor<5>, level: &Geometry, planes: Range<usize>) -> Tensor<5> {
    let device = weights.device();
    let [x, y, z] = level.size;
    let along = |axis: usize, voxels: usize, part: Range<usize>| {
        (voxels >= THIN).then(|| edge(axis, voxels, part, &device))
    };
    let edges = [along(4, x, 0..x), along(3, y, 0..y), along(2, z, planes)];
    edges.into_iter().flatten().fold(weights, |weights, edge| {
        let edge = edge.cast(weights.dtype());
        weights * edge
    })
}

/// 0 at the first and last of so many voxels along an axis of a tensor, 1 between them.
fn edge(axis: usize, voxels: usize, part: Range<usize>, device: &Device) -> Tensor<5> {
    let mut shape = [1; 5];
    shape[axis] = part.len();
    let inner = |i: usize| f32::from(u8::from(i > 0 && i + 1 < voxels));
    Tensor::from_data(TensorData::new(part.map(inner).collect::<Vec<f32>>(), shape), device)
}

#[cfg(test)]
mod tests {
    use ffdp_image::image::Volume;

    use super::*;

    /// A ball of `inside` around the middle of `outside`, of a radius in voxels.
    fn ball(size: [usize; 3], radius: f64, [inside, outside]: [f32; 2]) -> Volume {
        let geometry = Geometry::new(size, [1.0; 3]).expect("positive");
        let value = |offset: usize| {
            let index = geometry.index_of(offset);
            let squares = (0..3).map(|i| (index[i] as f64 - (size[i] as f64 - 1.0) / 2.0).powi(2));
            if squares.sum::<f64>().sqrt() < radius { inside } else { outside }
        };
        let data = (0..geometry.len()).map(value).collect();
        Volume::new(data, geometry).expect("one value for each voxel")
    }

    #[test]
    fn an_object_inside_a_dark_background_is_whole_and_any_other_image_ends_inside() {
        for (name, size, radius, values, expected) in [
            ("a ball in the dark", [40, 44, 48], 15.0, [1.0, 0.0], false),
            ("the same, negative", [40, 44, 48], 15.0, [300.0, -1000.0], false),
            ("a bright background", [40, 44, 48], 15.0, [0.2, 1.0], true),
            ("a ball that is cut", [40, 44, 48], 23.0, [1.0, 0.0], true),
            (
                "more planes than are looked at, cut at the sides",
                [40, 44, 90],
                40.0,
                [1.0, 0.0],
                true,
            ),
            ("a plane", [40, 44, 1], 15.0, [1.0, 0.0], false),
            ("a plane, bright", [40, 44, 1], 15.0, [0.0, 1.0], true),
            ("nothing", [40, 44, 48], 15.0, [0.5, 0.5], false),
        ] {
            let found = ends_inside(&mut ball(size, radius, values)).expect("it is in memory");
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn what_lies_beyond_an_image_is_what_its_border_shows() {
        for (name, radius, values, expected) in [
            ("MR", 15.0, [700.0, 0.0], 0.0),
            ("MR with a noisy background", 15.0, [700.0, 12.0], 0.0),
            ("CT in air", 15.0, [40.0, -1000.0], -1000.0),
            ("a stained section", 15.0, [80.0, 230.0], 230.0),
        ] {
            let mut image = ball([40, 44, 48], radius, values);
            assert_eq!(background(&mut image).expect("in memory"), expected, "{name}");
        }
        let mut with_air = ball([40, 44, 48], 80.0, [40.0, 0.0]);
        with_air.data[40 * 44 * 24 + 40 * 22 + 20] = -900.0;
        assert_eq!(background(&mut with_air).expect("in memory"), -900.0);
    }

    #[test]
    fn weights_end_at_the_outermost_voxels_and_thin_axes_keep_theirs() {
        let level = Geometry::new([9, 8, 3], [1.0; 3]).expect("positive");
        let ones = Tensor::ones([1, 1, 2, 8, 9], &Device::flex());
        let weights = within(ones, &level, 1..3).try_into_vec_as::<f32>().expect("the CPU");
        for (offset, weight) in weights.into_iter().enumerate() {
            let (x, y) = (offset % 9, offset / 9 % 8);
            let inner = (1..8).contains(&x) && (1..7).contains(&y);
            assert_eq!(weight, f32::from(u8::from(inner)), "({x}, {y})");
        }
    }
}
