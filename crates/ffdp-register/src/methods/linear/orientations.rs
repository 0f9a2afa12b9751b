//! Every way to turn an image: where its axes and its header say nothing.
//!
//! Rotations spread evenly over their ball are scored on a coarse level as they are, and the most alike are candidates
//! for the first placement next to those of the moments.

use super::motion::Map;
use crate::checks::MINIMUM_OVERLAP_PERCENT;
use crate::pair::{AlignedPair, overlap_percent};
use crate::settings::OrientationSettings;
use ffdp_burn::transform::rotations;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, Matrix3};
use rayon::prelude::*;

/// The most alike of all orientations, the best first: `place` turns a rotation into maps.
pub(super) fn orientations(
    aligned: &AlignedPair,
    settings: &OrientationSettings,
    across: Option<[f64; 3]>,
    place: impl Fn(&Matrix3) -> Vec<Map>,
) -> Result<Vec<Map>> {
    let OrientationSettings { up_to_degrees, spacing_degrees, kept } = *settings;
    let turns = match across {
        None => rotations(up_to_degrees, spacing_degrees),
        Some(axis) => turns_about(axis, up_to_degrees, spacing_degrees),
    };
    let grids = aligned.pair.grids.each_ref();
    let overlaps = |map: &Map| overlap_percent(grids, map) >= MINIMUM_OVERLAP_PERCENT;
    let maps: Vec<Map> = turns.iter().flat_map(place).collect();
    let maps: Vec<Map> = maps.into_par_iter().filter(overlaps).collect();
    let mut scored: Vec<_> = aligned.losses(&maps)?.into_iter().zip(maps).collect();
    scored.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Ok(scored.into_iter().take(kept).map(|(_, map)| map).collect())
}

/// The axis across planes, in RAS mm; `None` of volumes.
pub(super) fn across(grid: &Geometry, axis: Option<usize>) -> Option<[f64; 3]> {
    axis.map(|axis| grid.direction.map(|row| row[axis]))
}

/// Turns about one axis, in its plane.
fn turns_about(axis: [f64; 3], up_to_degrees: f64, spacing_degrees: f64) -> Vec<Matrix3> {
    let steps = (up_to_degrees / spacing_degrees).floor() as i32;
    let full = up_to_degrees + spacing_degrees > 180.0;
    let all = if full {
        (0..(360.0 / spacing_degrees).ceil() as i32).collect()
    } else {
        (-steps..=steps).collect::<Vec<_>>()
    };
    let spacing = if full { 360.0 / all.len() as f64 } else { spacing_degrees };
    all.into_iter().map(|k| turn_about(axis, (f64::from(k) * spacing).to_radians())).collect()
}

/// By Rodrigues' formula.
fn turn_about(axis: [f64; 3], angle: f64) -> Matrix3 {
    let (sin, cos) = angle.sin_cos();
    let cross = [[0.0, -axis[2], axis[1]], [axis[2], 0.0, -axis[0]], [-axis[1], axis[0], 0.0]];
    std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let one = if i == j { cos } else { 0.0 };
            one + sin * cross[i][j] + (1.0 - cos) * axis[i] * axis[j]
        })
    })
}

/// The angle between the rotations of two maps whose stretches are the same, degrees.
pub(super) fn angle_between(a: &Map, b: &Map) -> f64 {
    let (a, b) = (a.linear(), b.linear());
    let dot = |a: &Matrix3, b: &Matrix3| -> f64 {
        (0..9).map(|k| a[k / 3][k % 3] * b[k / 3][k % 3]).sum()
    };
    let size = (dot(&a, &a) * dot(&b, &b)).sqrt() / 3.0;
    ((dot(&a, &b) / size - 1.0) / 2.0).clamp(-1.0, 1.0).acos().to_degrees()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_in_a_plane_keep_its_axis_and_are_a_spacing_apart() {
        let axis = [0.0, 0.6, 0.8];
        let turns = turns_about(axis, 180.0, 25.0);
        assert_eq!(turns.len(), 15, "24 degrees each");
        for (k, turn) in turns.iter().enumerate() {
            let map = Map::from_parts(*turn, [0.0; 3]);
            let moved = map.apply(axis);
            assert!((0..3).all(|i| (moved[i] - axis[i]).abs() < 1e-12), "{moved:?}");
            let expected = f64::min(24.0 * k as f64, 360.0 - 24.0 * k as f64);
            let got = angle_between(&map, &Map::identity());
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
        assert_eq!(turns_about(axis, 60.0, 30.0).len(), 5);
    }
}
