//! Whether two images have information about each other.
//!
//! Mutual information is never zero: of a few thousand voxels of air, speckle or noise some placement shows more than
//! others, and a search finds it. So a weak result is compared with placements that are surely wrong: turned by 25 to 45
//! degrees about the object, and moved by half its radius or as far as they still overlap.
//!
//! The numbers below separate what was tried (`tests/trust.rs`): contrasts of one head share a tenth of their joint
//! entropy and more, and four times as much as wrong placements where noise of 1.3 times their signal lets them share
//! a thirtieth; MR and ultrasound of eight prostates share less than a tenth, and 1.4 to 2.9 times as much.

use std::f64::consts::{PI, TAU};
use std::sync::Arc;

use super::motion::{Frame, Map};
use super::rigid::rotation;
use crate::pair::{LevelPair, overlap_percent};
use ffdp_burn::losses::{NormalizedMutualInformation, SimilarityLoss};
use ffdp_image::error::Result;
use ffdp_parallel::alignment::Outside;

/// Part of the joint entropy that two images share which needs no comparison.
const ENOUGH: f64 = 0.1;
/// Part below which nothing is shared: interpolation alone, which smooths noise between voxels, makes as much.
const NOTHING: f64 = 0.01;
/// How many times as much as wrong placements a result shows.
const TIMES: f64 = 3.5;
/// Wrong placements.
const PLACEMENTS: usize = 16;
/// How far they are moved, in radii of the object.
const SHIFTS: [f64; 3] = [0.5, 0.25, 0.0];
/// A placement with less of the overlap of the result shows other parts of the images.
const OVERLAP: f64 = 0.5;

/// Whether the images show more of each other under `map` than under wrong maps.
pub(super) fn is_informative(pair: &LevelPair, frame: &Frame, map: &Map) -> Result<bool> {
    let similarity: Arc<dyn SimilarityLoss> = Arc::new(NormalizedMutualInformation::default());
    let aligned = pair.alignment(similarity, Outside::Ignored);
    let shared = |map: &Map| Ok::<_, ffdp_image::Error>(1.0 - aligned.loss(map)?);
    let found = shared(map)?;
    if found >= ENOUGH {
        return Ok(true);
    }
    if found < NOTHING {
        return Ok(false);
    }
    let overlap = |map: &Map| overlap_percent(pair.grids.each_ref(), map);
    let least = OVERLAP * overlap(map);
    let overlaps = |map: &Map| overlap(map) >= least;
    let wrong = (0..PLACEMENTS).filter_map(|k| {
        let mut far = SHIFTS.into_iter().map(|radii| misplacement(frame, k, radii).then(map));
        far.find(overlaps)
    });
    let wrong: Vec<Map> = wrong.collect();
    if wrong.is_empty() {
        return Ok(true);
    }
    let sum = wrong.iter().map(shared).sum::<Result<f64>>()?;
    Ok(found >= TIMES * sum / wrong.len() as f64)
}

/// The wrong motion numbered `k`, which moves by so many radii: axes and directions are spread evenly over the sphere.
fn misplacement(frame: &Frame, k: usize, radii: f64) -> Map {
    let part = (k as f64 + 0.5) / PLACEMENTS as f64;
    // Points of a spiral, an irrational turn apart (Fibonacci's sphere).
    let on_sphere = |part: f64, turn: f64| {
        let (z, angle) = (1.0 - 2.0 * part, TAU * turn);
        let radius = (1.0 - z * z).sqrt();
        [radius * angle.cos(), radius * angle.sin(), z]
    };
    let golden = (5.0f64.sqrt() - 1.0) / 2.0;
    let axis = on_sphere(part, k as f64 * golden);
    let direction = on_sphere((part + 0.5).fract(), k as f64 * golden * golden);
    let angle = (25.0 + 20.0 * (k as f64 * golden).fract()) * PI / 180.0;
    let shift = direction.map(|v| v * radii * frame.radius_mm);
    frame.about_centre(rotation(axis.map(|v| v * angle)), shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misplacements_turn_and_move_as_far_as_they_should_and_are_all_others() {
        let frame = Frame { centre_mm: [3.0, -5.0, 8.0], radius_mm: 60.0 };
        let all: Vec<Map> = (0..PLACEMENTS).map(|k| misplacement(&frame, k, 0.5)).collect();
        for (k, map) in all.iter().enumerate() {
            let linear = map.linear();
            let trace: f64 = (0..3).map(|i| linear[i][i]).sum();
            let degrees = ((trace - 1.0) / 2.0).acos() * 180.0 / PI;
            assert!((24.9..45.1).contains(&degrees), "{k}: {degrees}");
            let moved = map.apply(frame.centre_mm);
            let shift: f64 =
                (0..3).map(|i| (moved[i] - frame.centre_mm[i]).powi(2)).sum::<f64>().sqrt();
            assert!((shift - 30.0).abs() < 1e-9, "{k}: {shift}");
            assert!(all[..k].iter().all(|other| other != map), "{k}");
        }
    }
}
