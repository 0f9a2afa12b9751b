//! `ffdp measure` as a user meets it.

#[allow(dead_code)] // shared with the other commands' tests
mod support;

use ffdp_image::image::{Affine, LabelMap, Volume};
use ffdp_image::io::images::{read_volume, write_displacement, write_labels, write_volume};
use ffdp_image::io::{LandmarkSpace, write_affine, write_landmarks};
use ffdp_image::synth::Pair;
use serde_json::Value;
use support::{Folder, ProcessOutput, ffdp, on_coarser_grid, write_pair};

/// A pair of 32^3 voxels with its warp and the inverse.
fn pair(folder: &Folder) -> Pair {
    let pair = write_pair(folder, 32, 3);
    let geometry = &pair.fixed.image.geometry;
    for (name, field) in
        [("warp.nii.gz", &pair.displacement), ("back.nii.gz", &pair.inverse_displacement)]
    {
        write_displacement(folder.path(name), field, geometry).expect("writable");
    }
    pair
}

/// Arguments that end in `.nii.gz` are files of the folder.
fn measure(folder: &Folder, arguments: &[&str]) -> ProcessOutput {
    let path = |argument: &&str| match argument.ends_with(".nii.gz") {
        true => folder.path(argument),
        false => argument.to_string(),
    };
    let arguments: Vec<String> = arguments.iter().map(path).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    ffdp(&[&["measure"], &arguments[..]].concat())
}

fn json(run: &ProcessOutput) -> Value {
    run.succeeded();
    serde_json::from_str(&run.stdout).expect("--json prints JSON only")
}

fn number(json: &Value, pointer: &str) -> f64 {
    let value = json.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer} in {json}"))
}

const IMAGES: [&str; 4] = ["--fixed", "fixed.nii.gz", "--moving", "moving.nii.gz"];
const LABELS: [&str; 4] =
    ["--fixed-labels", "fixed_labels.nii.gz", "--moving-labels", "moving_labels.nii.gz"];
const WARPS: [&str; 4] = ["--warp", "warp.nii.gz", "--inverse-warp", "back.nii.gz"];

#[test]
fn the_known_warp_makes_everything_agree_better() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let before = json(&measure(&folder, &[&IMAGES[..], &LABELS, &["--json"]].concat()));
    assert!(before["jacobian"].is_null() && before["inverse_consistency"].is_null());
    let after = json(&measure(&folder, &[&IMAGES[..], &LABELS, &WARPS, &["--json"]].concat()));
    for better in
        ["ncc", "local_ncc", "mutual_information", "normalized_mutual_information", "ssim", "psnr"]
    {
        let pointer = format!("/images/{better}");
        assert!(number(&after, &pointer) > number(&before, &pointer), "{better}: {after}");
    }
    for smaller in ["/images/mean_squared_error", "/labels/mean/hd95", "/labels/mean/assd"] {
        assert!(number(&after, smaller) < number(&before, smaller), "{smaller}: {after}");
    }
    // The grid is coarse: structures of few voxels keep the mean low.
    let dice = "/labels/mean/dice";
    assert!(number(&after, dice) > number(&before, dice) + 0.1, "{after}");
    assert_eq!(number(&after, "/jacobian/true_folds"), 0.0);
    // Inverses of each other, sampled on a grid of about 6 mm.
    let consistency = number(&after, "/inverse_consistency/p95_mm");
    assert!(consistency > 0.0 && consistency < 1.0, "{consistency} mm");
    let ids = after["labels"]["labels"].as_array().expect("a list");
    assert_eq!(ids.len(), pair.fixed.labels.ids().len());
}

#[test]
fn landmarks_are_measured_by_the_headers_and_through_transforms() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let grid = &pair.fixed.image.geometry;
    let fixed: Vec<[f64; 3]> = [[8.0, 9.0, 10.0], [16.0, 15.0, 14.0], [20.0, 12.0, 18.0]]
        .map(|voxel| grid.voxel_to_mm().apply(voxel))
        .to_vec();
    let moving: Vec<[f64; 3]> = fixed.iter().map(|&[x, y, z]| [x + 3.0, y, z - 4.0]).collect();
    let files = ["fixed.csv", "moving.csv"].map(|name| folder.path(name));
    for (file, points) in files.iter().zip([&fixed, &moving]) {
        write_landmarks(file, points, &LandmarkSpace::Ras).expect("writable");
    }
    let shift = folder.path("shift.txt");
    let there =
        Affine::from_rows([[1.0, 0.0, 0.0, 3.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -4.0]]);
    write_affine(&shift, &there).expect("writable");
    let landmarks = ["--landmarks", &files[0], &files[1]];

    let headers = json(&measure(&folder, &[&landmarks[..], &["--json"]].concat()));
    assert_eq!(number(&headers, "/landmarks_mm/after/mean"), 5.0);
    let through = json(&measure(&folder, &[&landmarks[..], &["-t", &shift, "--json"]].concat()));
    assert_eq!(number(&through, "/landmarks_mm/before/mean"), 5.0);
    assert!(number(&through, "/landmarks_mm/after/max") < 1e-9, "{through}");
    let table = measure(&folder, &[&landmarks[..], &["-t", &shift]].concat());
    table.succeeded();
    assert!(
        table.stdout.contains("3 pairs") && table.stdout.contains("5.0000"),
        "{}",
        table.stdout
    );

    let voxels = measure(&folder, &[&landmarks[..], &["--landmark-space", "voxel"]].concat());
    assert_eq!(voxels.code, 1);
    assert!(voxels.stderr.contains("the grid of --fixed"), "{}", voxels.stderr);
}

#[test]
fn a_table_is_printed_with_the_labels_asked_for() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let id = pair.fixed.labels.ids()[1].to_string();
    let more = ["--labels", &id, "--learn2reg"];
    let run = measure(&folder, &[&LABELS[..], &WARPS[..2], &more].concat());
    run.succeeded();
    for expected in ["mean Dice", "InvDice", "HD90cum", "det J", "SDlogJ", "folds"] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
    let first_words = run.stdout.lines().filter_map(|line| line.split_whitespace().next());
    assert_eq!(first_words.filter(|word| *word == id).count(), 1, "{}", run.stdout);
    assert!(!run.stdout.contains("similarity"), "no images were given: {}", run.stdout);
}

#[test]
fn a_mask_limits_the_voxels_of_images() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let mask = ["--mask", "fixed_labels.nii.gz", "--json", "--window", "5", "--bins", "16"];
    let inside = json(&measure(&folder, &[&IMAGES[..], &mask].concat()));
    let count = pair.fixed.labels.data.iter().filter(|&&label| label != 0).count();
    assert_eq!(number(&inside, "/images/voxels"), count as f64);
    let all = json(&measure(&folder, &[&IMAGES[..], &["--json"]].concat()));
    assert_eq!(number(&all, "/images/voxels"), 32f64.powi(3));
    assert!(number(&inside, "/images/ncc") < number(&all, "/images/ncc"), "{inside} {all}");
}

#[test]
fn lost_and_absent_labels_are_reported_and_counted() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let geometry = &pair.fixed.image.geometry;
    let map = |voxels: [(usize, i32); 3]| {
        let mut data = vec![0; geometry.len()];
        voxels.into_iter().for_each(|(offset, label)| data[offset] = label);
        LabelMap::new(data, geometry.clone()).expect("fits")
    };
    // Everything moves by a voxel along x: the last column is lost.
    let mut shift = vec![0f32; 3 * geometry.len()];
    shift[..geometry.len()].fill(-1.0);
    write_displacement(folder.path("warp.nii.gz"), &shift, geometry).expect("writable");
    let save = |name: &str, map: &LabelMap| {
        write_labels(folder.path(name), map).expect("writable");
    };
    save("fixed_labels.nii.gz", &map([(101, 1), (300, 2), (500, 3)]));
    save("moving_labels.nii.gz", &map([(100, 1), (31, 2), (700, 4)]));
    let run = measure(&folder, &[&LABELS[..], &WARPS[..2], &["--json"]].concat());
    let report = json(&run);
    assert_eq!(report["labels"]["lost"], serde_json::json!([2]));
    assert_eq!(report["labels"]["absent"], serde_json::json!([3, 4]));
    assert_eq!(number(&report, "/labels/mean/dice"), 0.5);
    assert_eq!(number(&report, "/labels/mean/hd100"), 0.0);
    assert!(report["labels"]["labels"][1]["surface"]["hd95"].is_null(), "{report}");
    assert!(run.stderr.contains("[2]") && run.stderr.contains("[3, 4]"), "{}", run.stderr);
}

#[test]
fn other_grids_need_a_warp_or_to_be_resampled() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let coarse = on_coarser_grid(&pair.moving.image);
    write_volume(folder.path("moving.nii.gz"), &coarse).expect("writable");
    let run = measure(&folder, &IMAGES);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("another grid") && run.stderr.contains("--resample"),
        "{}",
        run.stderr
    );
    let resampled = json(&measure(&folder, &[&IMAGES[..], &["--resample", "--json"]].concat()));
    assert!(number(&resampled, "/images/ncc") > 0.5, "{resampled}");
    // A warp belongs to the fixed grid.
    let small = Volume::new(vec![0.0; coarse.data.len()], coarse.geometry).expect("fits");
    let zero = vec![0f32; 3 * small.data.len()];
    write_displacement(folder.path("warp.nii.gz"), &zero, &small.geometry).expect("writable");
    let run = measure(&folder, &[&IMAGES[..], &WARPS[..2]].concat());
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("warp.nii.gz (warp of"), "{}", run.stderr);
}

#[test]
fn requests_that_have_no_answer_are_refused_with_the_reason() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let empty = LabelMap::new(vec![0; 32 * 32 * 32], pair.fixed.image.geometry.clone());
    write_labels(folder.path("empty.nii.gz"), &empty.expect("fits")).expect("writable");
    let cases: [(&[&str], &str); 8] = [
        (&[], "--warp"),
        (&IMAGES[..2], "--moving"),
        (&[&LABELS[..], &["--labels", "999"]].concat(), "999"),
        (&[LABELS[0], LABELS[1], LABELS[2], "empty.nii.gz"], "no label but background"),
        (&[&IMAGES[..], &["--window", "6"]].concat(), "must be odd"),
        (&[&IMAGES[..], &["--bins", "1"]].concat(), "2..=1024"),
        (&[&IMAGES[..], &["--mask", "empty.nii.gz"]].concat(), "mask is empty"),
        (&["--warp", "fixed.nii.gz"], "displacement field"),
    ];
    for (arguments, reason) in cases {
        let run = measure(&folder, arguments);
        assert_eq!(run.code, 1, "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(reason), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}

#[test]
fn flags_and_columns_without_an_effect_are_refused() {
    let folder = Folder::new();
    pair(&folder);
    let points = folder.path("points.csv");
    std::fs::write(&points, "x,y,z\n1,2,3\n").expect("writable");
    let landmarks = ["--landmarks", &points, &points];
    let cases: &[(&[&str], &[&str])] = &[
        (&[&IMAGES[..], &WARPS[..2], &["-t", "back.nii.gz"]].concat(), &["--transform", "--warp"]),
        (&[&landmarks[..], &["--resample"]].concat(), &["--resample", "neither an image"]),
        (&[&LABELS[..], &["--volume", "1"]].concat(), &["--volume 1", "no image"]),
        (&[&LABELS[..], &["--nan-policy", "zero"]].concat(), &["--nan-policy zero", "no image"]),
        (&[&IMAGES[..], &["--nan-policy", "mask"]].concat(), &["--nan-policy mask", "weights"]),
        (&[&IMAGES[..], &["--volume", "1"]].concat(), &["--volume 1", "more than one volume"]),
    ];
    for (arguments, words) in cases {
        let run = measure(&folder, arguments);
        assert!(run.code == 1 && run.stdout.is_empty(), "{arguments:?}: {}", run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{arguments:?}: no {word:?} in {}", run.stderr);
        }
    }
    // Of a list the columns say what there is.
    let list = folder.path("list.csv");
    let images = "fixed.nii.gz,moving.nii.gz";
    let labels = "fixed_labels.nii.gz,moving_labels.nii.gz";
    let cases: &[(String, &[&str], &[&str])] = &[
        (format!("fixed,moving\n{images}\n"), &["--labels", "1"], &["--labels 1", "fixed_labels"]),
        (
            format!("fixed_labels,moving_labels\n{labels}\n"),
            &["--learn2reg"],
            &["--learn2reg", "warp or transform"],
        ),
        (
            format!("fixed_labels,moving_labels\n{labels}\n"),
            &["--window", "5"],
            &["--window 5", "fills fixed"],
        ),
        (
            format!("fixed_labels,moving_labels,mask\n{labels},fixed_labels.nii.gz\n"),
            &[],
            &["mask has no effect without fixed"],
        ),
        (
            format!("fixed,moving,warp,transform\n{images},warp.nii.gz,back.nii.gz\n"),
            &[],
            &["transform has no effect next to warp"],
        ),
    ];
    for (text, more, words) in cases {
        std::fs::write(&list, text).expect("writable");
        let run = ffdp(&[&["measure", "--pairs", &list], *more].concat());
        assert_eq!(run.code, 1, "{text}: {}", run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{text}: no {word:?} in {}", run.stderr);
        }
    }
}

#[test]
fn det_j_can_be_had_as_an_image() {
    let folder = Folder::new();
    let pair = pair(&folder);
    let flags = ["--warp", "warp.nii.gz", "--jacobian-out", "det.nii.gz", "--json"];
    let report = json(&measure(&folder, &flags));
    let image = read_volume(folder.path("det.nii.gz")).expect("written");
    assert!(image.geometry.same_grid(&pair.fixed.image.geometry, 1e-6));
    let (low, high) = image.min_max().expect("finite");
    let near = |value: f32, pointer| (f64::from(value) - number(&report, pointer)).abs() < 1e-5;
    assert!(near(low, "/jacobian/central/min") && near(high, "/jacobian/central/max"), "{report}");
    let refused = measure(&folder, &["--warp", "warp.nii.gz", "--jacobian-out", "warp.nii.gz"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("overwrite an input"), "{}", refused.stderr);
}
