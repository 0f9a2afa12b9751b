//! Whether an image is one of labels.

use std::collections::BTreeSet;
use std::path::Path;

use ffdp_image::error::Result;
use ffdp_image::image::Planes;
use ffdp_image::io::images::{Header, INTENT_LABEL, PlaneReader};

/// The planes in the middle that are looked at, of an image of any size.
const LOOKED_AT: usize = 16;
/// A label map has no more different values there.
const MOST_LABELS: usize = 512;
/// Of the voxels other than 0, the part whose neighbour in the row is the same, at least: 0.88 to 1 in the label maps of
/// shared data sets, 0 to 0.23 in their MR and ultrasound images of 8 and 16 bits.
const EQUAL_NEIGHBOURS: f64 = 0.6;
/// Of the steps between values other than 0, the part by more than 1, at least: those of a smooth image are small.
const LARGE_STEPS: f64 = 0.15;

/// Whether an image seems to have labels: it says so, or has integers, few, in regions with borders that are no slopes.
/// Two values or one, as of a mask, count where no intent contradicts.
pub(super) fn looks_like_labels(path: &Path, header: &Header) -> Result<bool> {
    if header.intent_code == INTENT_LABEL {
        return Ok(true);
    }
    if header.slope != 1.0 || header.volumes() > 1 {
        return Ok(false);
    }
    let mut planes = PlaneReader::open(path, None)?;
    let [x, _, all] = header.geometry.size;
    let first = all.saturating_sub(LOOKED_AT) / 2;
    let values = planes.read(first..(first + LOOKED_AT).min(all))?;
    if values.iter().any(|value| value.fract() != 0.0) {
        return Ok(false);
    }
    let distinct: BTreeSet<i64> = values.iter().map(|v| *v as i64).collect();
    let pairs = values.chunks(x).flat_map(|row| row.windows(2)).map(|pair| (pair[0], pair[1]));
    let (mut equal, mut small, mut other) = (0usize, 0usize, 0usize);
    for (a, b) in pairs.filter(|(a, b)| *a != 0.0 && *b != 0.0) {
        match (a - b).abs() {
            0.0 => equal += 1,
            1.0 => small += 1,
            _ => other += 1,
        }
    }
    let (steps, inside) = (small + other, equal + small + other);
    let is_in_regions = inside > 0 && equal as f64 >= EQUAL_NEIGHBOURS * inside as f64;
    let has_borders = distinct.len() <= 4 || other as f64 >= LARGE_STEPS * steps as f64;
    Ok(distinct.len() <= MOST_LABELS && distinct.len() > 1 && is_in_regions && has_borders)
}
