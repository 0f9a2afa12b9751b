//! `ffdp synth` as a user meets it.

#[allow(dead_code)] // what cli.rs uses
mod support;

use std::fs;

use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::io::images::{read_labels, read_volume, write_labels, write_volume};
use ffdp_image::metrics::dice;
use ffdp_image::synth::{PhantomSettings, subject};
use serde_json::Value;
use support::{Folder, ffdp};

/// A label map and its image on an oblique grid with voxels of 6 x 7 x 6 mm.
fn write_subject(folder: &Folder) -> LabelMap {
    let settings = PhantomSettings {
        spacing_mm: Some([6.0, 7.0, 6.0]),
        ..PhantomSettings::with_size([28; 3])
    };
    let made = subject(&settings, 5).expect("valid settings");
    let (s, c) = (0.2f64.sin(), 0.2f64.cos());
    let geometry =
        made.labels.geometry.clone().with_direction([[-c, 0.0, s], [0.0, 1.0, 0.0], [s, 0.0, c]]);
    let geometry = geometry.expect("a rotation and a reflection");
    let labels = LabelMap { geometry: geometry.clone(), ..made.labels };
    write_labels(folder.path("labels.nii.gz"), &labels).expect("writable");
    write_volume(folder.path("t1.nii.gz"), &Volume { geometry, ..made.image }).expect("writable");
    labels
}

fn json(folder: &Folder, name: &str) -> Value {
    let text = fs::read_to_string(folder.path(name)).expect("written");
    serde_json::from_str(&text).expect("JSON")
}

/// Distance of the outer faces of two grids, mm: the largest over both ends of the diagonal.
fn distance_of_corners(a: &Geometry, b: &Geometry) -> f64 {
    let corner = |g: &Geometry, high: bool| {
        g.voxel_to_mm().apply(g.size.map(|n| if high { n as f64 - 0.5 } else { -0.5 }))
    };
    let apart = |high| {
        let (p, q) = (corner(a, high), corner(b, high));
        (0..3).map(|i| (p[i] - q[i]).abs()).fold(0.0, f64::max)
    };
    apart(false).max(apart(true))
}

#[test]
fn a_label_map_with_its_image_becomes_finer_images_of_the_same_subject() {
    let folder = Folder::new();
    let labels = write_subject(&folder);
    let [input, image, out] = ["labels.nii.gz", "t1.nii.gz", "out"].map(|name| folder.path(name));
    let arguments =
        ["synth", "-o", &out, "--labels", &input, "--image", &image, "--spacing", "1.5", "3", "6"];
    ffdp(&arguments).succeeded();
    for (spacing, size) in [("1.5", [112, 132, 112]), ("3", [56, 66, 56]), ("6", [28, 33, 28])] {
        let file = |what: &str| folder.path(&format!("out/{spacing}mm/subject-000{what}.nii.gz"));
        let (fine, image) = (read_labels(file("_labels")), read_volume(file("")));
        let (fine, image) = (fine.expect("readable"), image.expect("readable"));
        assert_eq!(fine.geometry, image.geometry);
        assert_eq!(fine.geometry.size, size);
        let asked: f64 = spacing.parse().expect("a number");
        assert!(fine.geometry.spacing_mm.iter().all(|s| (s - asked).abs() < 1e-5));
        // 196 mm are no multiple of 6 mm: 198 mm around the same centre.
        assert!(distance_of_corners(&fine.geometry, &labels.geometry) < 1.01, "{spacing}");
        let volume = |map: &LabelMap| {
            map.data.iter().filter(|&&l| l != 0).count() as f64 * map.geometry.voxel_volume_mm3()
        };
        let ratio = volume(&fine) / volume(&labels);
        assert!((ratio - 1.0).abs() < 0.02, "{spacing} mm: volume {ratio}");
        let background = image.data.iter().zip(&fine.data).filter(|(_, l)| **l == 0);
        let bright = background.clone().filter(|(v, _)| **v > 0.3).count();
        assert!(bright < background.count() / 20, "{spacing} mm: background is dark");
    }
    let statistics = json(&folder, "out/statistics.json");
    let mean = |id: &str| statistics["labels"][id]["mean"].as_f64().expect("a number");
    // White matter against ventricles in T1.
    assert!(mean("1") > mean("5") + 0.2, "{statistics}");
    let manifest = json(&folder, "out/manifest.json");
    assert_eq!(manifest["subjects"][0]["images"][0]["image"], "1.5mm/subject-000.nii.gz");
    assert_eq!(manifest["subjects"][0]["warp"], Value::Null);
    assert_eq!(manifest["statistics"], "estimated from the images");
    assert!(!folder.has("out/1.5mm/pairs.csv"), "one subject makes no pair");
    assert!(!folder.has("out/warps/subject-000_warp.nii.gz"));

    // The statistics serve again, for images of the same labels.
    let (table, again) = (folder.path("out/statistics.json"), folder.path("again"));
    let arguments =
        ["synth", "-o", &again, "--labels", &input, "--statistics", &table, "--spacing", "3"];
    ffdp(&arguments).succeeded();
}

#[test]
fn warps_in_files_carry_the_label_map_onto_the_subject() {
    let folder = Folder::new();
    let [still, warped] = ["still", "warped"].map(|name| folder.path(name));
    let common = ["--spacing", "4", "--uncompressed", "--quiet"];
    let run = |out: &str, more: &[&str]| ffdp(&[&["synth", "-o", out], &common[..], more].concat());
    run(&still, &["-n", "1", "--warp-mm", "0"]).succeeded();
    let strong = ["--warp-mm", "5", "--warp-spacing", "4"];
    run(&warped, &[&["-n", "2", "--modality", "t2"], &strong[..]].concat()).succeeded();
    let labels = |name: &str| read_labels(folder.path(name)).expect("readable");
    let carried = |image: &str, warp: &str| {
        let [image, warp, out] = [image, warp, "carried.nii"].map(|name| folder.path(name));
        let label = ["--interpolation", "label"];
        ffdp(&[&["apply", "-i", &image, "-t", &warp, "-o", &out], &label[..]].concat()).succeeded();
        labels("carried.nii")
    };
    let score = |a: &LabelMap, b: &LabelMap| dice(&a.data, &b.data).expect("one grid").mean();
    let (anatomy, first) =
        ("still/4mm/subject-000_labels.nii", "warped/4mm/subject-000_labels.nii");
    let before = score(&labels(anatomy), &labels(first));
    // Voxels of 4 mm are coarse for a cortex of 3 mm.
    let forward = score(&carried(anatomy, "warped/warps/subject-000_warp.nii"), &labels(first));
    let inverse = "warped/warps/subject-000_inverse_warp.nii";
    let backward = score(&carried(first, inverse), &labels(anatomy));
    assert!(before < 0.6 && forward > 0.75 && backward > 0.75, "{before} {forward} {backward}");
    let other = labels("warped/4mm/subject-001_labels.nii");
    assert!(score(&labels(first), &other) < 0.6, "subjects differ");
}

#[test]
fn the_same_subjects_are_written_as_ome_zarr() {
    let folder = Folder::new();
    let [nifti, zarr] = ["nifti", "zarr"].map(|name| folder.path(name));
    let common = ["-n", "2", "--spacing", "6", "--warp-spacing", "8", "--quiet"];
    ffdp(&[&["synth", "-o", &nifti], &common[..]].concat()).succeeded();
    ffdp(&[&["synth", "-o", &zarr, "--format", "ome-zarr"], &common[..]].concat()).succeeded();
    for name in ["6mm/subject-000", "6mm/subject-001"] {
        let image = |kind: &str, ending: &str| {
            let path = folder.path(&format!("{kind}/{name}{ending}"));
            read_volume(path).expect("readable").data
        };
        assert!(image("nifti", ".nii.gz") == image("zarr", ".zarr"), "{name}");
        let labels = |kind: &str, ending: &str| {
            let path = folder.path(&format!("{kind}/{name}_labels{ending}"));
            read_labels(path).expect("readable").data
        };
        assert!(labels("nifti", ".nii.gz") == labels("zarr", ".zarr"), "{name}");
    }
    assert!(folder.has("zarr/warps/subject-001_inverse_warp.zarr/zarr.json"));
    // Another format is another data set.
    let again = ["synth", "-o", &zarr];
    assert_eq!(ffdp(&[&again, &common[..]].concat()).code, 1);
    ffdp(&[&again, &common[..], &["--overwrite"]].concat()).succeeded();
    assert!(!folder.has("zarr/6mm/subject-000.zarr") && folder.has("zarr/6mm/subject-000.nii.gz"));
}

#[test]
fn pairs_are_listed_as_the_transmorph_example_reads_them() {
    let folder = Folder::new();
    let out = folder.path("out");
    let arguments = ["synth", "-o", &out, "-n", "6", "--spacing", "8", "16", "--json", "--quiet"];
    let run = ffdp(&arguments);
    run.succeeded();
    for spacing in ["8mm", "16mm"] {
        let list = fs::read_to_string(folder.path(&format!("out/{spacing}/pairs.csv")));
        let list = list.expect("written");
        let mut lines = list.lines();
        assert_eq!(lines.next(), Some("fixed,moving,fixed_labels,moving_labels,part"));
        let parts: Vec<&str> = lines
            .map(|line| {
                let fields: Vec<&str> = line.split(',').collect();
                for file in &fields[..4] {
                    assert!(folder.has(&format!("out/{spacing}/{file}")), "{file} of {line}");
                }
                fields[4]
            })
            .collect();
        assert_eq!(parts, ["train", "validation", "test"]);
    }
    let printed: Value = serde_json::from_str(&run.stdout).expect("--json prints JSON only");
    assert_eq!(printed, json(&folder, "out/manifest.json"));
    let seeds: Vec<u64> = printed["subjects"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|subject| subject["seed"].as_u64().expect("a number"))
        .collect();
    assert_eq!(seeds, [2025, 2026, 2027, 2028, 2029, 2030]);
    // A subject is its seed: alone it has the same bits.
    let alone = folder.path("alone");
    let arguments = ["synth", "-o", &alone, "-n", "1", "--spacing", "8", "--seed", "2028"];
    // 16 mm is not asked for, so the grid is not rounded to its multiples; here both agree.
    ffdp(&arguments).succeeded();
    let image = |name: &str| read_volume(folder.path(name)).expect("readable");
    let (a, b) = (image("out/8mm/subject-003.nii.gz"), image("alone/8mm/subject-000.nii.gz"));
    assert_eq!(a, b);
    assert_ne!(a.data, image("out/8mm/subject-002.nii.gz").data);
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is_written() {
    let folder = Folder::new();
    let labels = write_subject(&folder);
    let [map, image, out] = ["labels.nii.gz", "t1.nii.gz", "out"].map(|name| folder.path(name));
    let foreign = LabelMap { data: labels.data.iter().map(|l| l * 1000).collect(), ..labels };
    write_labels(folder.path("foreign.nii"), &foreign).expect("writable");
    let foreign = folder.path("foreign.nii");
    fs::write(folder.path("bad.json"), r#"{"labels": {"1": {"mean": 1}}}"#).expect("writable");
    let bad = folder.path("bad.json");
    for (more, code, expected) in [
        (vec!["--subjects", "0"], 1, "--subjects"),
        (vec!["--spacing", "1", "2.5"], 1, "whole multiple"),
        (vec!["--spacing=-1"], 1, "spacing"),
        (vec!["--spacing", "nan"], 1, "multiple"),
        (vec!["--spacing", "0.00001"], 1, "size"),
        (vec!["--spacing", "0.001"], 1, "available"),
        (vec!["--labels", &map, "--spacing", "8"], 1, "finest spacing"),
        (vec!["--labels", &foreign, "--spacing", "6"], 1, "1000"),
        (
            vec!["--labels", &map, &map, "--image", &image, "--spacing", "6"],
            1,
            "one image for each",
        ),
        (vec!["--labels", &map, "--statistics", &bad, "--spacing", "6"], 1, "bad.json"),
        (vec!["--image", &image], 1, "--labels"),
        (vec!["--labels", &image, "--spacing", "6"], 1, "t1.nii.gz"),
        (vec!["--spacing", "16", "--warp-mm", "60"], 1, "knot_spacing_mm"),
        (vec!["--spacing", "16", "--smoothing=-1"], 1, "smoothing"),
        (vec!["--spacing", "16", "--variation", "nan"], 1, "variation"),
    ] {
        let run = ffdp(&[&["synth", "-o", &out], &more[..]].concat());
        assert_eq!(run.code, code, "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{more:?}: {}", run.stderr);
        assert!(!folder.has("out/manifest.json"), "{more:?}");
    }
}

#[test]
fn inputs_are_never_overwritten() {
    let folder = Folder::new();
    write_subject(&folder);
    fs::create_dir_all(folder.path("out/6mm")).expect("possible");
    let input = folder.path("out/6mm/subject-000_labels.nii.gz");
    fs::copy(folder.path("labels.nii.gz"), &input).expect("possible");
    let before = fs::read(&input).expect("there");
    let out = folder.path("out");
    let run = ffdp(&["synth", "-o", &out, "--labels", &input, "--spacing", "6"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("must not overwrite an input"), "{}", run.stderr);
    assert_eq!(fs::read(&input).expect("still there"), before);
}

#[test]
fn one_subject_leaves_no_second_one_of_an_earlier_data_set() {
    let folder = Folder::new();
    let out = folder.path("out");
    let synth =
        |more: &[&str]| ffdp(&[&["synth", "-o", &out, "--spacing", "6", "-q"], more].concat());
    synth(&["-n", "2"]).succeeded();
    let of_two = ["6mm/pairs.csv", "6mm/subject-001.nii.gz", "warps/subject-001_warp.nii.gz"];
    let has = |name: &str| folder.has(&format!("out/{name}"));
    assert!(of_two.iter().all(|name| has(name)));
    let run = synth(&["-n", "1"]);
    assert_eq!(run.code, 1);
    for word in ["an earlier run", "subjects", "--overwrite"] {
        assert!(run.stderr.contains(word), "no {word:?} in {}", run.stderr);
    }
    synth(&["-n", "2"]).succeeded();
    synth(&["-n", "1", "--overwrite"]).succeeded();
    assert!(!of_two.iter().any(|name| has(name)), "files of the earlier data set are left");
    let listed = json(&folder, "out/manifest.json")["files"].clone();
    let expected = [
        "6mm/subject-000.nii.gz",
        "6mm/subject-000_labels.nii.gz",
        "warps/subject-000_warp.nii.gz",
        "warps/subject-000_inverse_warp.nii.gz",
        "statistics.json",
    ];
    assert_eq!(listed, serde_json::json!(expected));
    assert!(expected.iter().all(|name| has(name)));

    // An input is never removed.
    let image = folder.path("out/6mm/subject-000.nii.gz");
    let run = ffdp(&["register", "-f", &image, "-m", &image, "-o", &out, "--overwrite"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("overwrite an input") && has(expected[0]), "{}", run.stderr);
}

#[test]
fn a_damaged_label_map_leaves_the_earlier_data_set_as_it_was() {
    let folder = Folder::new();
    write_subject(&folder);
    let [good, bad, out] = ["labels.nii.gz", "bad.nii.gz", "out"].map(|name| folder.path(name));
    let bytes = fs::read(&good).expect("written");
    fs::write(&bad, &bytes[..bytes.len() / 2]).expect("writable");
    let [image, made] = ["t1.nii.gz", "made"].map(|name| folder.path(name));
    ffdp(&["synth", "-o", &made, "--labels", &good, "--image", &image, "--spacing", "6"])
        .succeeded();
    let statistics = folder.path("made/statistics.json");
    let synth = |labels: &[&str]| {
        let flags = ["synth", "-o", &out, "--spacing", "6", "-q", "--overwrite"];
        let labels = [&["--statistics", &statistics, "--labels"], labels].concat();
        ffdp(&[&flags[..], &labels].concat())
    };
    synth(&[&good]).succeeded();
    let read = || {
        ["6mm/subject-000.nii.gz", "statistics.json", "manifest.json"]
            .map(|name| fs::read(folder.path(&format!("out/{name}"))).expect("of the first run"))
    };
    let before = read();
    // The second of two: the first could be made.
    let run = synth(&[&good, &bad]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("bad.nii.gz"), "{}", run.stderr);
    assert!(read() == before && !folder.has("out/6mm/subject-001.nii.gz"));
}
