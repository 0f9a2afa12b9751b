//! Real images next to the repository, where they are present.

use std::collections::BTreeSet;

use super::*;
use crate::image::LabelMap;
use crate::io::images::{header, read_labels, read_slab, read_volume};

/// The folder of real images, or `None` with a note when there is none.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no real images in {}", folder.display());
    None
}

/// File, size, spacing, axes; sum and maximum of the voxels as nibabel 5.4.2 and numpy give them.
type Case = (&'static str, [usize; 3], [f64; 3], &'static str, f64, f32);

const CASES: [Case; 9] = [
    ("voxelmorph/test_scan_t1", [160, 192, 224], [1.0; 3], "LIA", 139728187.0, 249.0),
    ("learn2reg-tutorials2019/subject_1_t1", [160, 192, 224], [1.0; 3], "LIA", 120832425.0, 223.0),
    ("mni152/MNI152_T1_1mm_brain", [182, 218, 182], [1.0; 3], "LAS", 11459447013.0, 8791.0),
    ("t1-epi/highres_t1", [176, 211, 163], [1.0; 3], "RAS", 414563560.0, 1027.0),
    ("t1-epi/example_func_epi", [64, 64, 36], [3.0, 3.0, 3.6], "RAS", 40471360.0, 1809.0),
    ("cfireants/t1_brain", [128, 181, 175], [1.33, 1.0, 1.0], "LAS", 226562920.0, 870.0),
    ("fireants/atlas_2mm_1000_3", [96, 116, 128], [2.0; 3], "RAS", 481873659.0, 3539.0),
    ("prostate-mr-trus/train_000000_us", [44, 59, 41], [0.4; 3], "RAS", 2706005.0, 255.0),
    ("lung/dirlab_copd_01_exp_mask", [192, 192, 208], [1.75, 1.25, 1.75], "RAS", 1006348.0, 1.0),
];

#[test]
fn real_images_have_their_known_shape_place_and_content() {
    let Some(folder) = data() else { return };
    for (name, size, spacing, axes, sum, max) in CASES {
        let path = folder.join(name).with_extension("nii.gz");
        let volume = read_volume(&path).unwrap();
        assert_eq!(volume.geometry.size, size, "{name}");
        for (ours, theirs) in volume.geometry.spacing_mm.iter().zip(spacing) {
            // The table gives two decimals; headers hold f32.
            assert!((ours - theirs).abs() < 5e-3, "{name}: {ours} {theirs}");
        }
        assert_eq!(volume.geometry.axis_codes(), axes, "{name}");
        volume.check_finite(name).unwrap();
        let total: f64 = volume.data.iter().map(|&v| f64::from(v)).sum();
        assert_eq!(total, sum, "{name}");
        assert_eq!(volume.min_max().unwrap().1, max, "{name}");
        let warnings = header(&path).unwrap().warnings;
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
        let middle = size[2] / 2;
        let slab = read_slab(&path, middle..middle + 2).unwrap();
        let slice = size[0] * size[1];
        assert_eq!(slab.data, volume.data[slice * middle..slice * (middle + 2)], "{name}");
    }
}

#[test]
fn every_real_image_can_be_read() {
    let Some(folder) = data() else { return };
    let mut read = 0;
    for group in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let files = if group.is_dir() { fs::read_dir(&group).unwrap().collect() } else { vec![] };
        for path in files.into_iter().map(|entry| entry.unwrap().path()) {
            if path.to_string_lossy().ends_with(".nii.gz") {
                let header = header(&path).unwrap();
                assert!(header.warnings.is_empty(), "{path:?}: {:?}", header.warnings);
                read_volume(&path).unwrap().check_finite("real image").unwrap();
                read += 1;
            }
        }
    }
    assert!(read > 0, "the folder holds no image");
}

#[test]
fn real_labels_overlap_as_documented() {
    let Some(folder) = data() else { return };
    let moving = read_labels(folder.join("voxelmorph/test_scan_seg.nii.gz")).unwrap();
    let fixed = read_labels(folder.join("learn2reg-tutorials2019/subject_1_seg.nii.gz")).unwrap();
    fixed.geometry.check_same_grid(&moving.geometry, "moving labels").unwrap();
    // 46 FreeSurfer ids, one of them background.
    assert_eq!((moving.ids().len(), fixed.ids().len()), (45, 45));
    let ids: BTreeSet<i32> = fs::read_to_string(folder.join("voxelmorph/labels30.csv"))
        .unwrap()
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    assert_eq!(ids.len(), 30);
    let mean = ids.iter().map(|&id| dice(&fixed, &moving, id)).sum::<f64>() / 30.0;
    // The README of the images: mean Dice 0.5224 over these labels.
    assert!((mean - 0.5224).abs() < 5e-5, "{mean}");
}

fn dice(a: &LabelMap, b: &LabelMap, id: i32) -> f64 {
    let count = |map: &LabelMap| map.data.iter().filter(|&&label| label == id).count();
    let both = a.data.iter().zip(&b.data).filter(|&(&p, &q)| p == id && q == id).count();
    2.0 * both as f64 / (count(a) + count(b)) as f64
}
