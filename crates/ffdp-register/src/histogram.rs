//! The intensities of the moving image, distributed as those of the fixed one.
//!
//! Two scanners, or two sequences of one kind, give the same tissue other intensities; squared differences
//! take that for a difference of shape. The distributions are matched by landmarks (Nyul, Udupa 1999):
//! ```text
//! 0 | mean of all | quantiles 1/8 .. 7/8 of what is above the mean | 1
//! ```
//! A landmark of the moving image becomes that of the fixed one; in between, the map is linear. What is
//! above the mean is taken for the object: the size of the background then does not matter. Images are read run by run.

use ffdp_image::error::Result;
use ffdp_image::image::{Counted, finite_statistics, rescaling};

/// Of the voxels above the mean.
const PERCENTS: [f64; 7] = [12.5, 25.0, 37.5, 50.0, 62.5, 75.0, 87.5];

/// Landmarks of a distribution, ascending from 0 to 1.
pub(super) type Landmarks = [f64; PERCENTS.len() + 3];

/// Where landmarks go; linear between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matching {
    pub from: Landmarks,
    pub to: Landmarks,
}

/// The landmarks of an image that was scaled by `range` to [0, 1]; voxels that do not count have none. Takes three
/// sweeps.
///
/// # Errors
/// Those of reading.
pub(super) fn landmarks(counted: &mut Counted, range: [f32; 2]) -> Result<Landmarks> {
    let rescale = rescaling(range);
    let (mut sum, mut count) = (0.0, 0usize);
    counted.sweep(|values| {
        sum += values.iter().map(|v| f64::from(rescale(*v))).sum::<f64>();
        count += values.len();
    })?;
    let mean = sum / count as f64;
    let [from, to] = range.map(f64::from);
    let before = counted.above.replace((from + mean * (to - from)) as f32);
    let object = finite_statistics(counted, PERCENTS, |_, _| {});
    counted.above = before;
    // Of an image that is nowhere above its mean, the mean.
    let quantiles = object?.1.map(|object| object.percentiles.map(|v| f64::from(rescale(v))));
    let mut landmarks = [1.0; PERCENTS.len() + 3];
    (landmarks[0], landmarks[1]) = (0.0, mean);
    landmarks[2..2 + PERCENTS.len()].copy_from_slice(&quantiles.unwrap_or([mean; PERCENTS.len()]));
    Ok(landmarks)
}

impl Matching {
    /// What becomes of an intensity in [0, 1].
    pub fn value(&self, value: f32) -> f32 {
        let Self { from, to } = self;
        let value = f64::from(value);
        let above = from.partition_point(|&landmark| landmark < value).clamp(1, from.len() - 1);
        let [low, high] = [from[above - 1], from[above]];
        // Landmarks coincide where many voxels have one intensity; it goes to the lower one.
        let part = if high > low { (value - low) / (high - low) } else { 0.0 };
        (to[above - 1] + part.clamp(0.0, 1.0) * (to[above] - to[above - 1])) as f32
    }
}

#[cfg(test)]
mod tests {
    use ffdp_image::image::{Geometry, Planes, Volume};

    use super::*;

    /// Two f32 roundings of numbers up to 1, and an interpolation between ranks.
    const ROUNDING: f32 = 1e-5;

    fn image(values: impl Fn(usize) -> f32) -> Volume {
        let geometry = Geometry::new([40, 5, 5], [1.0; 3]).expect("valid");
        Volume::new((0..1000).map(values).collect(), geometry).expect("fits")
    }

    /// Half background at 0 to 0.02, half an object of all intensities from 0.4 to 1.
    fn fixed() -> Volume {
        image(|i| if i < 500 { i as f32 * 4e-5 } else { 0.4 + (i - 499) as f32 * 1.2e-3 })
    }

    /// The object from 0.3 to 1, with a bend in the middle.
    fn changed(v: f32) -> f32 {
        match v {
            v if v < 0.1 => v,
            v if v < 0.7 => 0.3 + (v - 0.4) * 2.0 / 3.0,
            v => 0.5 + (v - 0.7) * 5.0 / 3.0,
        }
    }

    /// The moving image, scaled to [0, 1] already, matched to the fixed one.
    fn matched(
        moving: &Volume,
        moving_mask: Option<&Volume>,
        fixed: &Volume,
        fixed_mask: Option<&Volume>,
    ) -> Result<Volume> {
        let of = |mut image: &Volume, mut mask: Option<&Volume>| {
            let mask = mask.as_mut().map(|mask| mask as &mut dyn Planes);
            landmarks(&mut Counted { image: &mut image, mask, above: None }, [0.0, 1.0])
        };
        let matching = Matching { from: of(moving, moving_mask)?, to: of(fixed, fixed_mask)? };
        let data = moving.data.iter().map(|&v| matching.value(v)).collect();
        Ok(Volume { data, geometry: moving.geometry.clone() })
    }

    #[test]
    fn an_image_is_matched_to_itself_unchanged() {
        let same = matched(&fixed(), None, &fixed(), None).expect("it has voxels");
        let largest = |a: &Volume, b: &Volume| {
            a.data.iter().zip(&b.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        assert!(largest(&same, &fixed()) < ROUNDING);
    }

    #[test]
    fn another_distribution_becomes_that_of_the_fixed_image() {
        let fixed = fixed();
        let moving =
            Volume { data: fixed.data.iter().map(|&v| changed(v)).collect(), ..fixed.clone() };
        let back = matched(&moving, None, &fixed, None).expect("it has voxels");
        let error = |image: &Volume| -> f32 {
            image.data.iter().zip(&fixed.data).map(|(a, b)| (a - b).abs()).sum::<f32>() / 1000.0
        };
        // Only below the lowest quantile, where the means are landmarks, something is left.
        let (before, after) = (error(&moving), error(&back));
        assert!(before > 0.03 && after < 0.1 * before, "{before} -> {after}");
        assert!(back.data.is_sorted(), "the order of intensities is kept");
        let (low, high) = back.min_max().expect("voxels");
        assert!(low == 0.0 && (high - 1.0).abs() < ROUNDING, "{low} {high}");
    }

    #[test]
    fn what_does_not_count_has_no_part_in_it() {
        let fixed = fixed();
        let mask = image(|i| f32::from(i % 2 == 0));
        let with = |bad: f32| {
            let data = fixed.data.iter().zip(&mask.data);
            let data = data.map(|(&v, &weight)| if weight > 0.0 { v } else { bad }).collect();
            let moving = Volume { data, ..fixed.clone() };
            matched(&moving, Some(&mask), &fixed, None).expect("it has voxels").data
        };
        let [zeros, ones] = [0.0, 1.0].map(with);
        assert!((0..1000).step_by(2).all(|i| zeros[i] == ones[i]));
    }
}
