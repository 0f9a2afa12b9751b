//! The labels of a real pair of brains next to the repository, where they are present.

use std::fs;
use std::path::Path;

use super::*;
use crate::io::images::read_labels;

/// Distances are kept in f32.
const F32_ROUNDING: f64 = 1e-6;

/// A measure by name, and its mean.
type Golden = (&'static str, fn(&LabelSurface) -> f64, f64);

/// Means over the 30 labels by `surface-distance` 0.1: what the script prints for these files.
const GOLDEN: [Golden; 7] = [
    ("HD100", |label| label.hd100, 9.792705920174189),
    ("HD95", |label| label.hd95, 4.790720465148378),
    ("HD90", |label| label.hd90, 3.900613638411585),
    ("HD90 cumulative", |label| label.hd90_cumulative, 1.5008657131400374),
    ("ASSD", |label| label.assd, 1.6590120042850267),
    ("fixed to moved", |label| label.fixed_to_moved, 1.7021041517370226),
    ("moved to fixed", |label| label.moved_to_fixed, 1.5306001539508967),
];

#[test]
fn surfaces_of_a_real_pair_agree_with_deepmind() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !folder.is_dir() {
        println!("skipped: no real images in {}", folder.display());
        return;
    }
    let read = |name: &str| read_labels(folder.join(name)).expect("readable");
    let fixed = read("learn2reg-tutorials2019/subject_1_seg.nii.gz");
    let moving = read("voxelmorph/test_scan_seg.nii.gz");
    let ids = fs::read_to_string(folder.join("voxelmorph/labels30.csv")).expect("readable");
    let ids: Vec<i32> = ids.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert_eq!(ids.len(), 30);
    let unit = DistanceUnit::Millimetres;
    let surfaces = surface_distances(&fixed, &moving, &ids, unit).expect("one grid");
    for (measure, of, golden) in GOLDEN {
        assert_agrees(measure, surface_mean(&surfaces, of), golden, F32_ROUNDING);
    }
    let dice = dice_of(&fixed.data, &moving.data, &ids).expect("one grid");
    // Counts of voxels: exact but for the order of the sum.
    assert_agrees("Dice", dice.mean(), 0.5224082564829987, 1e-14);
}
