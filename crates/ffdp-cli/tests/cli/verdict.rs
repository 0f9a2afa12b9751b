//! What a result is worth, and what lies beyond the moving image.

use std::fs;

use ffdp_image::image::{Geometry, Volume};
use ffdp_image::io::images::{read_volume, write_volume};
use serde_json::Value;

use crate::support::{Folder, ffdp, write_pair};
use crate::{register, register_with};

const FEW: [&str; 4] = ["--shrink", "2", "--iterations", "12"];

fn metrics(folder: &Folder, out: &str) -> Value {
    let text = fs::read(folder.path(&format!("{out}/metrics.json"))).expect("written");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn a_result_that_is_worse_by_the_users_labels_has_failed_and_strict_says_so_by_its_exit() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    // The same labels on both images: whatever moves, they overlap less than before.
    let labels = folder.path("fixed_labels.nii.gz");
    let more = ["--fixed-labels", &labels, "--moving-labels", &labels, "--no-inverse"];
    let more = [&FEW[..], &more].concat();
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more);
    run.succeeded();
    assert!(run.stdout.contains("failed") && run.stdout.contains("overlap less"), "{}", run.stdout);
    let measures = metrics(&folder, "out");
    assert_eq!(measures["verdict"], "failed");
    let reason = measures["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("1.000 ->"), "{reason}");
    let page = fs::read_to_string(folder.path("out/report.html")).expect("written");
    assert!(page.contains("verdict bad") && page.contains("overlap less"));
    let strict = [&more[..], &["--strict"]].concat();
    let run = register(&folder, "fixed.nii.gz", "moving.nii.gz", "strict", &strict);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(run.stderr.contains("overlap less") && folder.has("strict/warped.nii.gz"));
    let list = "fixed,moving,name,fixed_labels,moving_labels\n\
                fixed.nii.gz,moving.nii.gz,pair,fixed_labels.nii.gz,fixed_labels.nii.gz\n";
    fs::write(folder.path("pairs.csv"), list).expect("writable");
    let [list, all] = ["pairs.csv", "all"].map(|name| folder.path(name));
    let pairs = ["register", "--pairs", &list, "-o", &all, "--no-inverse", "--strict"];
    for _ in ["done", "kept"] {
        let run = ffdp(&[&pairs[..], &FEW].concat());
        assert_eq!(run.code, 3, "{}", run.stderr);
        assert!(run.stderr.contains("1 of 1 registrations failed: pair"), "{}", run.stderr);
    }
}

#[test]
fn two_contrasts_are_said_to_be_such_and_multimodal_is_named() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let moving = &pair.moving.image;
    let data = moving.data.iter().map(|v| 1.0 - v).collect();
    let inverted = Volume::new(data, moving.geometry.clone()).expect("fits");
    write_volume(folder.path("inverted.nii.gz"), &inverted).expect("writable");
    register(&folder, "fixed.nii.gz", "inverted.nii.gz", "lncc", &FEW).succeeded();
    let measures = metrics(&folder, "lncc");
    assert_ne!(measures["verdict"], "aligned");
    assert!(measures["reasons"].to_string().contains("--multimodal"), "{}", measures["reasons"]);
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "same", &FEW).succeeded();
    let measures = metrics(&folder, "same");
    assert!(!measures["reasons"].to_string().contains("--multimodal"), "{}", measures["reasons"]);
}

#[test]
fn a_rigid_result_says_how_far_it_moves() {
    let folder = Folder::new();
    let fixed = write_pair(&folder, 32, 3).fixed.image;
    let [x, y, z] = fixed.geometry.origin_mm;
    let geometry = fixed.geometry.clone().with_origin([x + 12.0, y, z]).expect("valid");
    let moving = Volume { geometry, ..fixed };
    write_volume(folder.path("moving.nii.gz"), &moving).expect("writable");
    let rigid = ["--transform", "rigid"];
    register_with(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &rigid).succeeded();
    let measures = metrics(&folder, "out");
    let number = |pointer: &str| measures.pointer(pointer).and_then(Value::as_f64).expect("there");
    // A twentieth of a voxel of 6 mm.
    assert!((number("/motion_mm/mean") - 12.0).abs() < 0.3, "{}", measures["motion_mm"]);
    assert_eq!(number("/displacement_mm/max"), 0.0);
    assert!((number("/affine_determinant") - 1.0).abs() < 1e-6);
    assert_eq!(measures["verdict"], "aligned", "{}", measures["reasons"]);
    // Over what both cover a perfect match is one.
    assert!(number("/similarity/after/ncc") > 0.99, "{}", measures["similarity"]);
}

#[test]
fn beyond_the_moving_image_is_its_background_or_what_is_asked_for() {
    let folder = Folder::new();
    let pair = write_pair(&folder, 32, 3);
    let fixed = &pair.fixed.image;
    let air = |image: &Volume| {
        let data = image.data.iter().map(|v| 1000.0 * v - 1000.0).collect();
        Volume::new(data, image.geometry.clone()).expect("fits")
    };
    // The lower half is missing.
    let [x, y, z] = fixed.geometry.size;
    let moving = air(&pair.moving.image);
    let upper = Geometry::new([x, y, z / 2], moving.geometry.spacing_mm).expect("valid");
    let first = moving.geometry.voxel_to_mm().apply([0.0, 0.0, (z - z / 2) as f64]);
    let upper = upper.with_origin(first).expect("valid");
    let data = moving.data[(z - z / 2) * x * y..].to_vec();
    write_volume(folder.path("air.nii.gz"), &air(fixed)).expect("writable");
    let upper = Volume::new(data, upper).expect("fits");
    write_volume(folder.path("upper.nii.gz"), &upper).expect("writable");
    let lowest = |out: &str| {
        let warped = read_volume(folder.path(&format!("{out}/warped.nii.gz"))).expect("readable");
        // Planes that nothing moves into.
        let values = &warped.data[..4 * x * y];
        (
            values.iter().copied().fold(f32::INFINITY, f32::min),
            values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        )
    };
    for (slabs, name) in [(&[][..], "whole"), (&["--slabs"][..], "slabs")] {
        let run = |out: &str, more: &[&str]| {
            let more = [&FEW[..], &["--no-inverse"], slabs, more].concat();
            register(&folder, "air.nii.gz", "upper.nii.gz", out, &more).succeeded();
            lowest(out)
        };
        assert_eq!(run(name, &[]), (-1000.0, -1000.0), "{name}");
        let asked = format!("{name}-asked");
        assert_eq!(run(&asked, &["--background", "-7"]), (-7.0, -7.0), "{name}");
    }
}
