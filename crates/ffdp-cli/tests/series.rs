//! `ffdp register` and `ffdp apply` of images with several volumes, as a user meets them.

#[allow(dead_code)] // shared with the other commands' tests
mod support;

use std::fs;

use ffdp_image::image::{Affine, Geometry, Volume};
use ffdp_image::io::images::{read_volume, read_volumes, write_volume, write_volumes};
use ffdp_image::io::write_affine;
use serde_json::Value;
use support::{Folder, ffdp};

/// Soft spheres, shifted along x by so many mm.
fn volume(shift_mm: f64) -> Volume {
    breathing(shift_mm, 1.0)
}

/// The same, so many times as wide.
fn breathing(shift_mm: f64, wider: f64) -> Volume {
    let grid = Geometry::new([28, 28, 20], [5.0; 3]).expect("positive");
    let spheres = [([60.0, 70.0, 50.0], 900.0, 28.0), ([82.0, 60.0, 44.0], 500.0, 12.0)];
    let value = |offset: usize| {
        let p = grid.index_of(offset).map(|index| 5.0 * index as f64);
        let sphere = |(c, height, width): &([f64; 3], f64, f64)| {
            let away = [p[0] - c[0] - shift_mm, p[1] - c[1], p[2] - c[2]];
            let squares = away.iter().map(|v| v * v).sum::<f64>();
            height * (-squares / (2.0 * (width * wider).powi(2))).exp()
        };
        // No two voxels alike, so that the background is no constant.
        (spheres.iter().map(sphere).sum::<f64>() + (offset * 7919 % 13) as f64) as f32
    };
    Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("one for each voxel")
}

const SHIFTS_MM: [f64; 5] = [0.0, 0.5, 1.0, 3.0, 3.5];

fn write_series(folder: &Folder) -> String {
    let mut volumes: Vec<Volume> = SHIFTS_MM.iter().map(|shift| volume(*shift)).collect();
    volumes[1].data.fill(3.0);
    let file = folder.path("bold.nii.gz");
    write_volumes(&file, &volumes, 2.0).expect("writable");
    file
}

/// Demands that a table of motion has the shifts of the volumes; volume 1, which cannot be used, has that of the first.
fn check_shifts(table: impl AsRef<std::path::Path>) {
    let table = fs::read_to_string(table).expect("written");
    for (line, shift) in table.lines().skip(1).zip(SHIFTS_MM) {
        let cells: Vec<&str> = line.split('\t').collect();
        let found: f64 = cells[4].parse().expect("a translation");
        let expected = if cells[0] == "1" { 0.0 } else { shift };
        assert!((found - expected).abs() < 0.2, "{line}");
    }
}

#[test]
fn a_series_is_registered_to_itself_and_its_transforms_are_applied() {
    let folder = Folder::new();
    let (series, out) = (write_series(&folder), folder.path("out"));
    let run = ffdp(&["register", "-m", &series, "-o", &out, "--reference", "first"]);
    run.succeeded();
    assert!(run.stderr.contains("warning: volume 1: it could not be registered"), "{}", run.stderr);
    assert!(
        run.stdout.contains("not registered") && run.stdout.contains("onto volume 0"),
        "{}",
        run.stdout
    );
    check_shifts(folder.path("out/motion.tsv"));
    let text = fs::read_to_string(folder.path("out/metrics.json")).expect("written");
    let metrics: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(metrics["not_registered"], serde_json::json!([1]));
    assert_eq!(metrics["onto"]["volume"], 0);
    let report = fs::read_to_string(folder.path("out/report.html")).expect("written");
    assert_eq!(report.matches("<svg class=\"chart\"").count(), 3);
    assert!(report.contains("translation, mm") && report.contains("framewise displacement"));

    let again = folder.path("again.nii.gz");
    ffdp(&["apply", "-i", &series, "-t", &out, "-o", &again]).succeeded();
    let bytes = |name: &str| fs::read(folder.path(name)).expect("written");
    assert!(bytes("again.nii.gz") == bytes("out/warped.nii.gz"), "other bits than the run itself");
    assert_eq!(read_volumes(&again).expect("a series").len(), 5);
    let one = folder.path("one.nii.gz");
    ffdp(&["apply", "-i", &series, "-t", &out, "-o", &one, "--volume", "3"]).succeeded();
    let volumes = read_volumes(&again).expect("a series");
    assert_eq!(read_volume(&one).expect("a volume").data, volumes[3].data);

    // The same command again replaces its own results; another one is refused.
    ffdp(&["register", "-m", &series, "-o", &out, "--reference", "first"]).succeeded();
    let run = ffdp(&["register", "-m", &series, "-o", &out]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("--overwrite"), "{}", run.stderr);
}

#[test]
fn the_log_of_a_series_that_failed_has_the_reason() {
    let folder = Folder::new();
    let mut broken = volume(0.0);
    broken.data[7] = f32::NAN;
    let (series, out) = (folder.path("bold.nii.gz"), folder.path("out"));
    write_volumes(&series, &[broken.clone(), broken.clone(), broken], 2.0).expect("writable");
    let run = ffdp(&["register", "-m", &series, "-o", &out]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let log = fs::read_to_string(folder.path("out/log.jsonl")).expect("written");
    let last: Value = serde_json::from_str(log.lines().last().expect("lines")).expect("JSON");
    assert_eq!(last["event"], "failed", "{log}");
    let reason = last["reason"].as_str().expect("text");
    assert!(reason.contains("of which none is"), "{log}");
}

#[test]
fn slabs_refuse_a_list_and_several_volumes_and_say_why() {
    let folder = Folder::new();
    let (series, out) = (write_series(&folder), folder.path("out"));
    let (fixed, list) = (folder.path("fixed.nii.gz"), folder.path("pairs.csv"));
    write_volume(&fixed, &volume(0.0)).expect("writable");
    fs::write(&list, format!("fixed,moving\n{fixed},{fixed}\n")).expect("writable");
    let pair = ["-f", &fixed, "-m", &series];
    for (given, plan, words) in [
        (&pair[..], &[][..], ["planes of one volume", "--volume"]),
        (&pair, &["--plan"], ["planes of one volume", "--volume"]),
        (&["--pairs", &list], &[], ["registers one pair", "one after the other"]),
    ] {
        let run = ffdp(&[&["register", "-o", &out, "--slabs"], given, plan].concat());
        assert_eq!(run.code, 1, "{given:?}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{given:?}: no {word:?} in {}", run.stderr);
        }
        assert!(!fs::exists(&out).expect("known"), "{given:?}: nothing is written");
    }
}

#[test]
fn a_series_that_breathes_is_deformed_and_its_deformations_are_applied() {
    let folder = Folder::new();
    let wider = [1.0, 1.06, 1.12, 1.06];
    let volumes: Vec<Volume> = wider.iter().map(|wider| breathing(0.0, *wider)).collect();
    let (series, out) = (folder.path("ct4d.nii.gz"), folder.path("out"));
    write_volumes(&series, &volumes, 2.0).expect("writable");
    let flags = ["--transform", "greedy", "--metric", "mse", "--reference", "first"];
    ffdp(&[&["register", "-m", &series, "-o", &out], &flags[..]].concat()).succeeded();
    for k in 1..wider.len() {
        assert!(
            fs::exists(folder.path(&format!("out/transforms/{k:04}_warp.nii.gz"))).expect("known")
        );
    }
    let warped = read_volumes(folder.path("out/warped.nii.gz")).expect("a series");
    let apart = |a: &Volume, b: &Volume| {
        let pairs = a.data.iter().zip(&b.data);
        pairs.map(|(a, b)| f64::from((a - b).abs())).sum::<f64>()
    };
    for k in 1..wider.len() {
        let [before, after] = [&volumes[k], &warped[k]].map(|volume| apart(volume, &volumes[0]));
        // A rigid map alone leaves all of it: the spheres stay where they are.
        assert!(after < 0.4 * before, "volume {k}: {before} before, {after} after");
    }
    let again = folder.path("again.nii.gz");
    ffdp(&["apply", "-i", &series, "-t", &out, "-o", &again]).succeeded();
    let bytes = |name: &str| fs::read(folder.path(name)).expect("written");
    assert!(bytes("again.nii.gz") == bytes("out/warped.nii.gz"), "other bits than the run itself");
}

#[test]
fn a_series_is_registered_to_another_image() {
    let folder = Folder::new();
    let (series, out, fixed) = (write_series(&folder), folder.path("out"), folder.path("f.nii.gz"));
    write_volume(&fixed, &volume(0.0)).expect("writable");
    let rigid = ["--transform", "rigid", "--metric", "mse", "--json"];
    let run = ffdp(&[&["register", "-f", &fixed, "-m", &series, "-o", &out], &rigid[..]].concat());
    run.succeeded();
    let metrics: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(metrics["onto"], "fixed");
    let found = metrics["volumes"][4]["motion"]["translations_mm"][0].as_f64().expect("a number");
    assert!((found - 3.5).abs() < 0.2, "{found}");
}

#[test]
fn a_series_takes_masks_and_a_transform_to_start_from() {
    let folder = Folder::new();
    let (series, out) = (write_series(&folder), folder.path("out"));
    let grid = volume(0.0).geometry;
    let mask = |name: &str, grid: &Geometry, weight: &dyn Fn([usize; 3]) -> f32| {
        let weights = (0..grid.len()).map(|offset| weight(grid.index_of(offset))).collect();
        let file = folder.path(name);
        let mask = Volume::new(weights, grid.clone()).expect("one for each voxel");
        write_volume(&file, &mask).expect("writable");
        file
    };
    let start = |name: &str, mm: f64| {
        let file = folder.path(name);
        let rows = [[1.0, 0.0, 0.0, mm], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
        write_affine(&file, &Affine::from_rows(rows)).expect("writable");
        file
    };
    // All but a border in which the spheres do not lie.
    let most = mask("most.nii.gz", &grid, &|[x, ..]| if x < 3 { 0.0 } else { 1.0 });
    let near = start("near.txt", 1.0);
    let base = ["register", "-m", &series, "-o", &out, "--reference", "first"];
    let with = |more: &[&str]| ffdp(&[&base, more].concat());
    with(&["--fixed-mask", &most, "--moving-mask", &most, "--initial", &near]).succeeded();
    check_shifts(folder.path("out/motion.tsv"));
    let none = mask("none.nii.gz", &grid, &|_| 0.0);
    let small = Geometry::new([8; 3], [20.0; 3]).expect("positive");
    let other = mask("other.nii.gz", &small, &|_| 1.0);
    let far = start("far.txt", 900.0);
    for (more, word) in [
        (["--fixed-mask", &none], "must not be empty"),
        (["--moving-mask", &none], "must not be empty"),
        (["--fixed-mask", &other], "other.nii.gz (mask of"),
        (["--moving-mask", &other], "other.nii.gz (mask of"),
        (["--initial", &far], "overlap"),
    ] {
        let run = with(&[&more[..], &["--overwrite"]].concat());
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        if word != "overlap" {
            let plan = with(&[&more[..], &["--overwrite", "--plan"]].concat());
            assert!(plan.code == 1 && plan.stderr.contains(word), "{more:?}: {}", plan.stderr);
        }
    }
}

#[test]
fn a_series_of_label_maps_is_no_series_of_images_unless_it_is_said_to_be() {
    let folder = Folder::new();
    let (series, labels) = (write_series(&folder), folder.path("labels.nii"));
    ffdp(&["convert", &series, &labels]).succeeded();
    // intent_code of NIfTI-1, byte 68.
    let mut bytes = fs::read(&labels).expect("written");
    bytes[68..70].copy_from_slice(&1002i16.to_le_bytes());
    fs::write(&labels, bytes).expect("writable");
    let base = ["register", "-m", &labels, "-o", &folder.path("out"), "--reference", "first"];
    let run = ffdp(&base);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("--labels-as-images"), "{}", run.stderr);
    ffdp(&[&base[..], &["--labels-as-images"]].concat()).succeeded();
}

#[test]
fn what_cannot_work_is_refused_with_a_way_out() {
    let folder = Folder::new();
    let (series, out, single) =
        (write_series(&folder), folder.path("out"), folder.path("s.nii.gz"));
    write_volume(&single, &volume(0.0)).expect("writable");
    let two = folder.path("two.nii.gz");
    write_volumes(&two, &[volume(0.0), volume(1.0)], 2.0).expect("writable");
    let base = ["register", "-o", &out, "-m"];
    type Case<'a> = (&'a [&'a str], &'a [&'a str]);
    let cases: &[Case] = &[
        (&[&single], &["--fixed", "has 1"]),
        (&[&series, "--volume", "1"], &["--fixed", "has 5"]),
        (&[&series, "--reference", "last"], &["last", "middle"]),
        (&[&series, "--reference", "9"], &["0..=4", "got 9"]),
        (&[&series, "--reference", "1"], &["volume 1", "every voxel is 3"]),
        (&[&series, "--moving-labels", &single], &["--moving-labels", "--volume", "ffdp apply"]),
        (&[&series, "--landmarks", &single, &single], &["--landmarks", "ffdp measure"]),
        (&[&series, "--channels", &single, &single], &["--channels", "ffdp apply -i OTHER"]),
        (&[&series, "--jacobian"], &["--jacobian", "--jacobian-out"]),
        (&[&series, "--resume"], &["--resume", "--overwrite"]),
        (&[&series, "--format", "ome-zarr"], &["--format", "ffdp convert"]),
        (&[&series, "--checkpoint-every", "10"], &["--checkpoint-every", "without checkpoints"]),
        (&[&series, "--no-inverse"], &["--no-inverse", "no inverse is computed"]),
        (&[&series, "--nan-policy", "zero"], &["--nan-policy", "volumes with NaN are reported"]),
        (&[&series, "--shards", "2"], &["--shards 2", "linear", "--transform greedy"]),
    ];
    for (more, words) in cases {
        let run = ffdp(&[&base, *more].concat());
        assert_eq!(run.code, 1, "{more:?}: {}", run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{more:?}: no {word:?} in {}", run.stderr);
        }
        assert!(!folder.has("out/warped.nii.gz"), "{more:?}");
    }
    let run = ffdp(&["register", "-m", &series, "-o", &out, "--plan"]);
    run.succeeded();
    assert!(run.stdout.contains("host memory"), "{}", run.stdout);
    ffdp(&["register", "-m", &two, "-o", &out]).succeeded();
    let run = ffdp(&["apply", "-i", &series, "-t", &out, "-o", &folder.path("x.nii.gz")]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("2 volumes") && run.stderr.contains("has 5"), "{}", run.stderr);
}
